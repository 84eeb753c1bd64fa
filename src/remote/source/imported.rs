//! Whether a process took a file from a copy without a patch: by what Python compiled of it since the start, by what the
//! log of the start names, and else by the rules of Python's search path.
//!
//! Not responsible for the level itself, which the search path of the process tells.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::SEARCH_PATH;
use super::look::{self, Source};
use super::reversal::Reversal;
use super::text;
use super::tree::{self, Tree};
use crate::engine::procedure::{Evidence, Failure, ProcessKey};
use crate::remote::levels::LevelReading;
use crate::remote::machine::{Machine, ShellFailure};
use crate::remote::probe::{Probe, Wanted};
use crate::remote::proc::Unknown;
use crate::truth::imports::{self, Imported};
use crate::truth::service;

/// What shows that a file was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taken {
    /// What was seen.
    seen: String,
    /// Where.
    source: String,
}

/// Where the evidence comes from.
pub(crate) struct Evidences<'a> {
    /// The host.
    pub(crate) machine: &'a Machine,
    /// What it said of its processes.
    pub(crate) probe: &'a Probe,
    /// The server.
    pub(crate) process: ProcessKey,
    /// The modules that the probe was asked for.
    pub(crate) modules: &'a [Wanted],
    /// Lines of its log that may name a file.
    pub(crate) lines: &'a [String],
    /// The log.
    pub(crate) log: &'a str,
}

/// What the rules of Python's search path say of each file that was asked for.
pub(crate) type Rules = BTreeMap<String, Result<Imported, Unknown>>;

/// Variables by which Python writes what it compiles nowhere, or elsewhere.
const ELSEWHERE: [&str; 2] = ["PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"];

/// Whether Python writes what it compiles beside the file, as the environment of the process says.
fn compiles(environment: &service::Evidence) -> bool {
    let set = |name: &&str| environment.get(name).is_ok_and(|v| v.is_some_and(|v| !v.is_empty()));
    !ELSEWHERE.iter().any(set)
}

/// Holds every level that rests on a copy against what shows that its files were taken. What nothing shows becomes
/// unknown; what is imported from elsewhere has the level of the checkout.
///
/// # Errors
/// The host cannot be asked, or does not tell when the process started.
pub(crate) async fn confirm(
    source: &Source,
    readings: &mut BTreeMap<String, LevelReading>,
    from: &Evidences<'_>,
    cancel: &CancellationToken,
) -> Result<Vec<Evidence>, Failure> {
    let environment = service::evidence(from.probe, from.process.pid);
    let rules = imports::files(from.probe, from.process.pid, from.modules);
    let search_path = environment.get(SEARCH_PATH).ok().flatten();
    let Some(Tree { path, without }) = search_path.and_then(tree::of_search_path) else {
        source.settle(readings, &rules);
        return Ok(Vec::new());
    };
    let chosen = source.sources(|id| without.contains(id));
    let files: BTreeSet<String> = chosen.reversals().iter().flat_map(|r| r.witnesses()).collect();
    let text = text::compiled(&path, files.iter().map(String::as_str))?;
    let end = from.machine.read(&text, 20.0, cancel).await.map_err(ShellFailure::failure)?;
    let mut taken = named(from.lines, from.log, &path, &files);
    let started = from.probe.host.started_at(from.process).map_err(|Unknown(why)| Failure::new(why))?;
    taken.extend(since(&end.out, &path, started));
    let mut evidence = Vec::new();
    for reversal in chosen.reversals() {
        let Some(reading) = readings.get_mut(&reversal.patch).filter(|r| r.level.as_deref() == Ok(super::OUT)) else {
            continue;
        };
        let witnesses = reversal.witnesses();
        let (verdict, shown) = judge(&witnesses, &taken, &rules, compiles(&environment), &path);
        let about = format!("imported:{}", reversal.patch);
        evidence.extend(shown.map(|t| Evidence { about, seen: t.seen.as_str().into(), source: t.source }));
        match verdict {
            Verdict::FromCopy => {}
            Verdict::FromElsewhere(file) => {
                reading.seen = format!("the process imports {file}");
                reading.level = Err(Unknown(look::LEFT.to_owned()));
            }
            Verdict::Unknown(why) => reading.level = Err(Unknown(why)),
        }
    }
    source.settle(readings, &rules);
    Ok(evidence)
}

/// Where the files of a patch were taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    FromCopy,
    FromElsewhere(String),
    Unknown(String),
}

fn judge(
    witnesses: &[String],
    taken: &BTreeMap<String, Taken>,
    rules: &Rules,
    compiles: bool,
    tree: &str,
) -> (Verdict, Option<Taken>) {
    if let Some(shown) = witnesses.iter().find_map(|w| taken.get(w)) {
        return (Verdict::FromCopy, Some(shown.clone()));
    }
    let mut why = "nothing else shows it".to_owned();
    for file in witnesses {
        match rules.get(file) {
            Some(Ok(file)) if tree::of_search_path(&file.folder).is_some_and(|t| t.path == tree) => {
                // What a program changes of its own search path, and hooks, are not among the rules.
                if compiles {
                    why =
                        "Python has compiled nothing of it there, as it does with what it imports and may write beside"
                            .into();
                    continue;
                }
                let seen = format!("{}, by the rules of the process's search path", file.path);
                return (Verdict::FromCopy, Some(Taken { seen, source: "the search path of the process".into() }));
            }
            Some(Ok(file)) => return (Verdict::FromElsewhere(file.path.clone()), None),
            Some(Err(Unknown(because))) => why.clone_from(because),
            None => {}
        }
    }
    let files = witnesses.join("`, `");
    (Verdict::Unknown(format!("nothing shows that the process took `{files}` from {tree}: {why}")), None)
}

/// What was compiled since a start, of what the host lists.
fn since(said: &str, tree: &str, started: Timestamp) -> BTreeMap<String, Taken> {
    let one = |line: &str| {
        let (at, file) = line.split_once(' ')?;
        // Dates of files are whole seconds here.
        let after = at.parse::<i64>().ok()? - started.as_second();
        let seen = format!("`{file}` of the copy was compiled {after} s after the start");
        (after >= 0).then(|| (file.to_owned(), Taken { seen, source: format!("{tree}/…/__pycache__") }))
    };
    said.lines().filter_map(one).collect()
}

/// The files of a copy that lines of a log name.
fn named(lines: &[String], log: &str, tree: &str, files: &BTreeSet<String>) -> BTreeMap<String, Taken> {
    let mut out = BTreeMap::new();
    for line in lines {
        for file in files {
            let path = format!("{tree}/{file}");
            if line.contains(&path) {
                out.insert(
                    file.clone(),
                    Taken { seen: format!("the log of the start names {path}"), source: log.to_owned() },
                );
            }
        }
    }
    out
}

/// The modules to ask for: the witnesses of every diff, each with its file in the checkout.
pub(crate) fn wanted(source: &Source) -> Vec<Wanted> {
    let of = |r: &Reversal| -> Vec<Wanted> {
        let root = text::root(&source.checkout, &r.package);
        let one = |path: String| Wanted { source: Some(format!("{root}/{path}")), path };
        r.witnesses().into_iter().map(one).collect()
    };
    source.reversals.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compiled_before_the_start_shows_nothing() {
        let started = Timestamp::from_second(1000).unwrap();
        let taken = since("999 s/a.py\n1003 s/b.py\nnonsense\n", "/t", started);
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["s/b.py"]);
        assert!(taken["s/b.py"].seen.contains("3 s after the start"));
    }

    #[test]
    fn a_log_names_a_file_by_its_whole_path() {
        let lines = ["Loaded arithmetic from /t/s/a.py".to_owned(), "nothing of s/a.py".to_owned()];
        let files = BTreeSet::from(["s/a.py".to_owned()]);
        assert_eq!(named(&lines, "log", "/t", &files).len(), 1);
        assert_eq!(named(&lines, "log", "/u", &files).len(), 0);
    }

    #[test]
    fn the_working_folder_that_comes_first_is_told_from_the_copy() {
        let files = ["s/a.py".to_owned()];
        let tree = "/home/ann/patchbench/trees/lab-1~p";
        let rules = |folder: Result<&str, &str>| {
            let found = |f: &str| Imported { path: format!("{f}/s/a.py"), folder: f.to_owned(), otherwise: None };
            BTreeMap::from([("s/a.py".to_owned(), folder.map(found).map_err(|why| Unknown(why.to_owned())))])
        };
        let of = |rules| judge(&files, &BTreeMap::new(), &rules, false, tree).0;
        assert_eq!(of(rules(Ok(tree))), Verdict::FromCopy);
        // Where Python would have written what it compiled, the rules alone are no proof.
        let written = judge(&files, &BTreeMap::new(), &rules(Ok(tree)), true, tree).0;
        assert!(matches!(written, Verdict::Unknown(why) if why.contains("compiled nothing")));
        assert_eq!(of(rules(Ok("/home"))), Verdict::FromElsewhere("/home/s/a.py".into()));
        assert!(matches!(of(rules(Err("no Python"))), Verdict::Unknown(why) if why.contains("no Python")));
        let taken = BTreeMap::from([("s/a.py".to_owned(), Taken { seen: "x".into(), source: "y".into() })]);
        assert_eq!(judge(&files, &taken, &rules(Ok("/home")), true, tree).0, Verdict::FromCopy);
    }
}
