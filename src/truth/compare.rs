//! Puts what the script declares, what the process was started with and what the server says side by side. Pure.
//!
//! Values are compared as they are and redacted only when they become part of a row.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Claim, Known, Row, RowKind, RowStatus, flags};
use crate::case::{Gate, Patch};
use crate::redact;
use crate::remote::argv::{self, FlagValue};
use crate::remote::proc::{Cmdline, Environ, Unknown};
use crate::truth::declared::{Declared, Place, Text};
use crate::untrusted::Untrusted;

/// Pid, environment and command line of a process.
pub type Process = (u32, Result<Environ, Unknown>, Result<Cmdline, Unknown>);
/// URL and values of a configuration answer.
pub type Observed = (String, BTreeMap<String, Value>);

/// Everything that was read of one target.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Target name.
    pub target: String,
    /// What the target's own files declare.
    pub declared: Option<Declared>,
    /// The override that the process was started from: its path and what it declares.
    pub replaced: Option<(String, Declared)>,
    /// The process: pid, environment, command line.
    pub process: Option<Process>,
    /// The configuration that the server reports: URL and values, or why there is none.
    pub observed: Option<Result<Observed, String>>,
}

impl Layers {
    fn declaring(&self) -> impl Iterator<Item = &Declared> {
        self.declared.iter().chain(self.replaced.iter().map(|(_, d)| d))
    }
}

/// What a layer says of one name, unredacted.
#[derive(Clone, Debug)]
struct Said {
    value: Result<Option<String>, String>,
    source: String,
    line: Option<u32>,
    blind_to: Option<String>,
    /// Places of further values that do not count, with their text.
    also: Vec<(Place, String)>,
}

impl Said {
    fn at(
        place: &Place,
        value: Result<Option<String>, String>,
        blind_to: Option<String>,
        also: Vec<(Place, String)>,
    ) -> Self {
        Self { value, source: place.file.clone(), line: Some(place.line), blind_to, also }
    }

    fn claim(&self, name: &str) -> Claim {
        let (value, known) = match &self.value {
            Ok(value) => (value.as_deref().map(|v| Untrusted::from(redact::value(name, v))), Known::Yes),
            Err(because) => (None, Known::Unknown { because: redact::text(because) }),
        };
        Claim { value, known, source: self.source.clone(), line: self.line, blind_to: self.blind_to.clone() }
    }

    /// What is said; `None` is absent, an error is not known.
    fn text(&self) -> Result<Option<&str>, &str> {
        self.value.as_ref().map(Option::as_deref).map_err(String::as_str)
    }
}

/// Facts that a server reports beside its flags.
const FACTS: &[&str] = &[
    "max_total_num_tokens",
    "max_req_input_len",
    "startup_time",
    "version",
    "kv_events",
    "last_gen_throughput",
    "memory_usage",
    "effective_max_running_requests_per_dp",
    "status",
    "max_model_len",
];

/// One row for each variable, flag and reported value: disagreements first, then the patches' own switches,
/// then what is declared or reported, and last what the process merely inherited.
pub fn rows(layers: &Layers, patches: &[&Patch]) -> Vec<Row> {
    let gates: BTreeSet<&str> = patches.iter().map(|p| p.gate.switch_name()).collect();
    let mut rows = variables(layers, patches);
    rows.extend(flag_rows(layers, patches));
    rows.sort_by_key(|r| {
        let trouble = r.status.min(RowStatus::OneSource);
        let inherited = r.declared.is_none() && r.observed.is_none();
        (trouble, !gates.contains(r.name.as_str()), inherited, r.status, r.kind, r.name.clone())
    });
    rows
}

fn variables(layers: &Layers, patches: &[&Patch]) -> Vec<Row> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for declared in layers.declaring() {
        names.extend(declared.variables.keys().map(String::as_str));
    }
    if let Some((_, Ok(environ), _)) = &layers.process {
        names.extend(environ.pairs.iter().map(|(n, _)| n.as_str()));
    }
    names.extend(patches.iter().filter_map(|p| match &p.gate {
        Gate::Env { name, .. } => Some(name.as_str()),
        _ => None,
    }));
    let from = |declared: Option<&Declared>, name: &str| {
        let declared = declared?;
        let variable = declared.variables.get(name)?;
        let also =
            earlier(variable.all.iter().map(|(p, v)| (p.clone(), v.as_ref().map_or("unset", shown_text).to_owned())));
        let value = match &variable.value {
            Some(text) => known_text(text).map(Some),
            None => Ok(None),
        };
        Some(Said::at(&variable.place, value, declared.blind_to.clone(), also))
    };
    let effective = |name: &str| {
        let (pid, environ, _) = layers.process.as_ref()?;
        Some(Said {
            value: environ.as_ref().map(|e| e.get(name).map(str::to_owned)).map_err(|Unknown(why)| why.clone()),
            source: format!("/proc/{pid}/environ"),
            line: None,
            blind_to: Some("what the process set by itself after its start".into()),
            also: Vec::new(),
        })
    };
    names
        .into_iter()
        .map(|name| {
            let said = Layered {
                declared: from(layers.declared.as_ref(), name),
                replaced: from(layers.replaced.as_ref().map(|(_, d)| d), name),
                override_path: layers.replaced.as_ref().map(|(path, _)| path.clone()),
                effective: effective(name),
                observed: None,
            };
            said.row(&layers.target, name.to_owned(), RowKind::Env)
        })
        .collect()
}

fn flag_rows(layers: &Layers, patches: &[&Patch]) -> Vec<Row> {
    let words = match &layers.process {
        Some((_, _, Ok(Cmdline::Words(words)))) => Some(argv::known(words)),
        _ => None,
    };
    // The spelling that is met first names the row.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut meet = |flag: &str| {
        names.entry(flags::key(flag)).or_insert_with(|| flag.to_owned());
    };
    for patch in patches {
        if let Gate::Flag { flag, .. } = &patch.gate {
            meet(flag);
        }
    }
    for declared in layers.declaring() {
        declared.flags.iter().for_each(|f| meet(&f.name));
    }
    let uses = words.as_deref().map(argv::flags).unwrap_or_default();
    for flag in &uses {
        meet(&flag.name);
    }
    if let Some(Ok((_, observed))) = &layers.observed {
        for key in observed.keys() {
            meet(&format!("--{}", key.replace('_', "-")));
        }
    }
    let from = |declared: Option<&Declared>, key: &str| {
        let declared = declared?;
        let flag = declared.flags.iter().rev().find(|f| flags::key(&f.name) == key)?;
        let also = earlier(flag.all.iter().map(|(p, v)| (p.clone(), shown_text(v).to_owned())));
        let value = known_text(&flag.value).map(Some);
        Some(Said::at(&flag.place, value, declared.blind_to.clone(), also))
    };
    let effective = |key: &str| {
        let (pid, _, cmdline) = layers.process.as_ref()?;
        let value = match (cmdline.as_ref().map(Cmdline::words), &words) {
            (Ok(Ok(_)), Some(words)) => {
                Ok(uses.iter().rev().find(|f| flags::key(&f.name) == key).map(|f| used_text(words, &f.value)))
            }
            (Ok(Err(Unknown(why))), _) => Err(why),
            (Err(Unknown(why)), _) => Err(why.clone()),
            (Ok(Ok(_)), None) => Err("the command line cannot be read".into()),
        };
        let source = format!("/proc/{pid}/cmdline");
        Some(Said { value, source, line: None, blind_to: Some("defaults and later changes".into()), also: Vec::new() })
    };
    let observed = |key: &str| match layers.observed.as_ref()? {
        Ok((url, values)) => {
            let value = values.get(key)?;
            let said = Said {
                value: Ok(Some(flags::shown(value))),
                source: url.clone(),
                line: None,
                blind_to: Some("the environment".into()),
                also: Vec::new(),
            };
            Some((said, value.clone()))
        }
        Err(_) => None,
    };
    names
        .into_iter()
        .map(|(key, name)| {
            let said = Layered {
                declared: from(layers.declared.as_ref(), &key),
                replaced: from(layers.replaced.as_ref().map(|(_, d)| d), &key),
                override_path: layers.replaced.as_ref().map(|(path, _)| path.clone()),
                effective: effective(&key),
                observed: observed(&key),
            };
            let fact = FACTS.contains(&key.as_str()) && said.declared.is_none();
            let (name, kind) = if fact { (key, RowKind::Config) } else { (name, RowKind::Flag) };
            said.row(&layers.target, name, kind)
        })
        .collect()
}

fn shown_text(text: &Text) -> &str {
    match text {
        Text::Known(text) => text,
        Text::Unresolved { raw, .. } => raw,
    }
}

fn known_text(text: &Text) -> Result<String, String> {
    match text {
        Text::Known(text) => Ok(text.clone()),
        Text::Unresolved { because, .. } => Err(because.clone()),
    }
}

fn used_text(words: &[argv::Word], value: &FlagValue) -> String {
    match value {
        FlagValue::None => String::new(),
        FlagValue::Joined(text) => text.clone(),
        FlagValue::Words(range) => words[range.clone()].iter().flatten().cloned().collect::<Vec<_>>().join(" "),
    }
}

/// The values before the last one that differ from it.
fn earlier(all: impl Iterator<Item = (Place, String)>) -> Vec<(Place, String)> {
    let all: Vec<(Place, String)> = all.collect();
    let Some((last, before)) = all.split_last() else { return Vec::new() };
    before.iter().filter(|(_, v)| *v != last.1).cloned().collect()
}

struct Layered {
    declared: Option<Said>,
    replaced: Option<Said>,
    /// The override that the process was started from.
    override_path: Option<String>,
    effective: Option<Said>,
    observed: Option<(Said, Value)>,
}

impl Layered {
    fn row(self, target: &str, name: String, kind: RowKind) -> Row {
        let (status, note) = self.judge(&name, kind);
        Row {
            target: target.to_owned(),
            component: "server".into(),
            declared: self.declared.as_ref().map(|s| s.claim(&name)),
            effective: self.effective.filter(|_| kind != RowKind::Config).as_ref().map(|s| s.claim(&name)),
            observed: self.observed.as_ref().map(|(s, _)| s.claim(&name)),
            name,
            kind,
            status,
            note,
        }
    }

    fn judge(&self, name: &str, kind: RowKind) -> (RowStatus, String) {
        let show = |v: &str| redact::value(name, v);
        let declared = self.declared.as_ref();
        let effective = self.effective.as_ref();
        let runs = effective.and_then(|e| e.text().ok());
        if let (Some(said), Some(runs)) = (declared.and_then(|d| d.text().ok()), runs)
            && said != runs
        {
            return self.differing(name, runs);
        }
        if declared.is_none() && runs.is_some() {
            // Only an override speaks of it.
            match self.replaced.as_ref().and_then(|r| r.text().ok()) {
                Some(said) if Some(said) != runs => return self.differing(name, runs.flatten()),
                Some(Some(_)) => return self.differing(name, runs.flatten()),
                _ => {}
            }
        }
        if let (Some(Some(runs)), Some((_, value))) = (runs, &self.observed)
            && !flags::same(runs, value)
        {
            let said = show(&flags::shown(value));
            if runs == "auto" {
                return (RowStatus::OverriddenBy, format!("the server resolved `auto` to `{said}`"));
            }
            return (RowStatus::Differs, format!("started with `{}`, the server says `{said}`", show(runs)));
        }
        let unknown = [declared, effective].into_iter().flatten().find_map(|s| s.value.as_ref().err());
        if let Some(because) = unknown.filter(|_| kind != RowKind::Config) {
            return (RowStatus::UnknownBecause, redact::text(because));
        }
        if let Some(said) = declared.filter(|s| !s.also.is_empty()) {
            // A place in another file is named whole.
            let place = |p: &Place| match p.file == said.source {
                true => format!("line {}", p.line),
                false => format!("{}:{}", p.file, p.line),
            };
            let also: Vec<String> = said.also.iter().map(|(p, v)| format!("{}: `{}`", place(p), show(v))).collect();
            let line = said.line.map(|l| format!("line {l} counts; ")).unwrap_or_default();
            return (RowStatus::GivenTwice, format!("{line}{}", also.join(", ")));
        }
        if runs == Some(None) && declared.is_none() {
            return match (&self.observed, kind) {
                (Some(_), RowKind::Flag) => (RowStatus::OneSource, "default in effect".into()),
                (None, RowKind::Env | RowKind::Flag) => (RowStatus::OneSource, "not set".into()),
                _ => (RowStatus::OneSource, String::new()),
            };
        }
        let speaking =
            usize::from(declared.is_some()) + usize::from(effective.is_some()) + usize::from(self.observed.is_some());
        (if speaking > 1 { RowStatus::Agrees } else { RowStatus::OneSource }, String::new())
    }

    /// The process does not have what the script says: because of an override, or for no known reason.
    fn differing(&self, name: &str, runs: Option<&str>) -> (RowStatus, String) {
        let shown = runs.map_or_else(|| "absent".to_owned(), |v| format!("`{}`", redact::value(name, v)));
        let explained = match &self.replaced {
            Some(replaced) => replaced.text() == Ok(runs),
            // What an override leaves out has no line in it.
            None => self.override_path.is_some() && runs.is_none(),
        };
        if let Some(path) = self.override_path.as_deref().filter(|_| explained) {
            let line = self.replaced.as_ref().and_then(|r| r.line).map(|l| format!(" line {l}")).unwrap_or_default();
            return (RowStatus::OverriddenBy, format!("{shown} by {path}{line}"));
        }
        (RowStatus::Differs, format!("the process has {shown}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::case::LevelValue;
    use crate::remote::{proc, script};

    fn declared(path: &str, text: &str) -> Declared {
        script::declared(&script::parse(text).unwrap(), path, None)
    }

    fn layers(text: &str, environ: &[u8], line: &str, observed: &Value) -> Layers {
        let words: Vec<u8> = shlex::split(line).unwrap().iter().flat_map(|w| format!("{w}\0").into_bytes()).collect();
        Layers {
            target: "lab".into(),
            declared: Some(declared("/x/serve.sh", text)),
            replaced: None,
            process: Some((7, proc::environ(environ), proc::cmdline(&words))),
            observed: Some(Ok(("http://h:1/server_info".into(), flags::observed(observed)))),
        }
    }

    fn check(layers: &Layers, name: &str, status: RowStatus, note: &str) {
        let rows = rows(layers, &[]);
        let row = rows.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no row {name}: {rows:#?}"));
        assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
    }

    const SCRIPT: &str = "export A=1\nexport B=x\nexport B=y\nexport C=1\nexport D=$HOST_D\nexport HF_TOKEN=abc\n\
                          exec srv --tp 4 --mode fp32 --moe auto --gone 1\n";
    const ENVIRON: &[u8] = b"A=1\0B=y\0C=2\0D=q\0HF_TOKEN=abc\0OTHER=1\0";
    const LINE: &str = "srv --tp=4 --mode fp32 --moe auto --extra";

    fn usual() -> Layers {
        let said = json!({"tp_size": 4, "mode": "bf16", "moe": "triton", "page_size": 64, "extra": true, "version": "1", "api_key": "k"});
        layers(SCRIPT, ENVIRON, LINE, &said)
    }

    #[test]
    fn each_status_has_its_ground() {
        for (name, status, note) in [
            ("A", RowStatus::Agrees, ""),
            ("B", RowStatus::GivenTwice, "line 3 counts; line 2: `x`"),
            ("C", RowStatus::Differs, "the process has `2`"),
            ("D", RowStatus::UnknownBecause, "`HOST_D` comes from the host"),
            ("OTHER", RowStatus::OneSource, ""),
            ("--tp", RowStatus::Agrees, ""),
            ("--mode", RowStatus::Differs, "started with `fp32`, the server says `bf16`"),
            ("--moe", RowStatus::OverriddenBy, "the server resolved `auto` to `triton`"),
            ("--gone", RowStatus::Differs, "the process has absent"),
            ("--extra", RowStatus::Agrees, ""),
            ("--page-size", RowStatus::OneSource, "default in effect"),
            ("version", RowStatus::OneSource, ""),
        ] {
            check(&usual(), name, status, note);
        }
    }

    #[test]
    fn disagreements_come_first_and_secrets_never() {
        let rows = rows(&usual(), &[]);
        let trouble = |r: &Row| r.status.min(RowStatus::OneSource);
        assert!(rows.windows(2).all(|w| trouble(&w[0]) <= trouble(&w[1])));
        let json = serde_json::to_string(&rows).unwrap();
        assert!(!json.contains("abc") && !json.contains("\"k\""), "{json}");
    }

    #[test]
    fn an_overwritten_environment_is_never_a_disagreement() {
        let mut layers = usual();
        layers.process = Some((7, proc::environ(&[0; 90]), proc::cmdline(b"sglang::scheduler_TP0\0\0\0\0")));
        for row in rows(&layers, &[]).iter().filter(|r| r.declared.is_some()) {
            assert_eq!(row.status, RowStatus::UnknownBecause, "{row:#?}");
            assert!(row.effective.as_ref().is_some_and(|e| e.value.is_none() && e.known != Known::Yes));
        }
    }

    #[test]
    fn an_override_explains_what_it_changes() {
        let mut layers = layers("export A=1\nsrv --mode fp32 --x 1\n", b"Q=1\0", "srv --mode bf16", &json!({}));
        layers.replaced = Some(("/o.sh".into(), declared("/o.sh", "export A=1\nunset A\nsrv --mode bf16\n")));
        check(&layers, "A", RowStatus::OverriddenBy, "absent by /o.sh line 2");
        check(&layers, "--mode", RowStatus::OverriddenBy, "`bf16` by /o.sh line 3");
        check(&layers, "--x", RowStatus::OverriddenBy, "absent by /o.sh");
    }

    #[test]
    fn a_target_that_is_down_keeps_its_rows() {
        let layers = Layers { process: None, observed: None, ..usual() };
        let rows = rows(&layers, &[]);
        assert!(rows.iter().any(|r| r.name == "A") && rows.iter().all(|r| r.effective.is_none()));
    }

    #[test]
    fn a_patch_has_its_row_even_where_nothing_sets_it() {
        let levels = BTreeMap::from([("on".into(), LevelValue::Set("1".into())), ("off".into(), LevelValue::Unset)]);
        let patch = Patch {
            id: "p".into(),
            title: String::new(),
            site: None,
            targets: Vec::new(),
            phases: Vec::new(),
            layers: None,
            gate: Gate::Env { name: "PB".into(), levels },
            suspect: "on".into(),
            changes: BTreeMap::new(),
            microtest: None,
            requires: Vec::new(),
            excludes: Vec::new(),
        };
        let rows = rows(&usual(), &[&patch]);
        let row = rows.iter().find(|r| r.name == "PB").unwrap();
        assert_eq!((row.status, row.note.as_str()), (RowStatus::OneSource, "not set"));
        assert_eq!(row.effective.as_ref().unwrap().known, Known::Yes);
    }
}
