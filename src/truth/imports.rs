//! Which file of a patched module the server imported, by Python's own rules, and whether it was changed since. Pure.
//!
//! A site of a patch becomes a row of component `imports`: *declared* is the file in the checkout of the case,
//! *effective* the one that the server's search path leads to. Import hooks, and what a program changes of its own
//! search path, are not seen, and each claim says so.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Claim, Known, Row, RowKind, RowStatus};
use crate::case::{Patch, Target};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::remote::argv;
use crate::remote::probe::Wanted;
use crate::remote::probe::imports::{Entry, FileAt, Found, Imports, Module, Times, What};
use crate::remote::probe::types::{Probe, Process};
use crate::remote::proc::Unknown;
use crate::remote::source::tree;
use crate::untrusted::Untrusted;

/// Component of the rows.
pub const COMPONENT: &str = "imports";
/// Sites that are looked at.
const MOST: usize = 32;
/// A file that was changed so soon after the start may have been imported before or after, in seconds.
const LOADING_S: i64 = 300;

/// The modules to ask for, by the site of each patch without its line.
pub fn wanted(target: &Target, patches: &[&Patch]) -> BTreeMap<String, Wanted> {
    let sites = patches.iter().filter_map(|p| p.site.as_deref());
    sites.filter_map(|site| module(target, site)).take(MOST).collect()
}

/// The file of a site, and the module that it is.
fn module(target: &Target, site: &str) -> Option<(String, Wanted)> {
    let end = site.find(".py")? + 3;
    let (file, line) = site.split_at(end);
    if !(line.is_empty() || line.starts_with(':')) {
        return None;
    }
    let checkout = target.checkout.as_deref().map(|c| c.trim_end_matches('/'));
    let file = file.trim_start_matches("./");
    let below = checkout.and_then(|c| file.strip_prefix(c)?.strip_prefix('/')).unwrap_or(file);
    if below.starts_with('/') {
        return None;
    }
    // The folders in which the packages of a repository stand, as `python/sglang` does.
    let parts: Vec<&str> = below.split('/').collect();
    let root = parts.iter().take(2).position(|p| matches!(*p, "python" | "src")).map_or(0, |at| at + 1);
    let path = parts[root..].join("/");
    Some((below.to_owned(), Wanted { path, source: checkout.map(|c| format!("{c}/{below}")) }))
}

/// A row for each wanted module of the server.
pub fn rows(target: &Target, probe: &Probe, server: u32, wanted: &BTreeMap<String, Wanted>) -> Vec<Row> {
    let Some(imports) = &probe.imports else { return Vec::new() };
    let (path, started) = process(imports, probe, server);
    let each = wanted.iter().zip(&imports.modules);
    each.map(|((site, wanted), module)| row(target, site, wanted, module, path.as_ref(), started)).collect()
}

/// The search path of a server, and when it started, in seconds since 1970.
fn process(imports: &Imports, probe: &Probe, server: u32) -> (Result<Option<SearchPath>, Unknown>, Option<i64>) {
    let path = match probe.processes.get(&server) {
        Some(process) => search_path(imports, process, server),
        None => Err(Unknown(format!("process {server} was not read"))),
    };
    let start = probe.processes.get(&server).and_then(|p| p.stat.as_ref().ok()).map(|s| s.key);
    (path, start.and_then(|key| probe.host.started_at(key).ok()).map(jiff::Timestamp::as_second))
}

/// Why nothing is known of what a server imports that is written in another language.
pub const NO_PYTHON: &str = "the server is no Python";

/// The file of a module that the rules of a search path lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Its canonical path.
    pub path: String,
    /// The entry of the search path.
    pub folder: String,
    /// Why it is not the checkout's text as it was when the process started, or not known to be; `None` where it is.
    pub otherwise: Option<String>,
}

/// The file that the rules of the server's search path lead to, for each module that a probe was asked for.
pub fn files(probe: &Probe, server: u32, asked: &[Wanted]) -> BTreeMap<String, Result<Imported, Unknown>> {
    let Some(imports) = &probe.imports else { return BTreeMap::new() };
    let (path, started) = process(imports, probe, server);
    let file = |module: &Module| -> Result<Imported, Unknown> {
        let path = path.as_ref().map_err(Clone::clone)?;
        let path = path.as_ref().ok_or_else(|| Unknown(NO_PYTHON.into()))?;
        let found = path.choose(module).ok_or_else(|| Unknown("no entry of its search path has it".into()))?;
        match &found.file.times {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Unknown("the package that it imports has no such file".into())),
            Err(why) => return Err(why.clone()),
        }
        let (status, note) = judge(module.source.as_ref(), found, started);
        Ok(Imported {
            path: found.file.path.clone()?,
            folder: found.folder.clone(),
            otherwise: (status != RowStatus::Agrees).then_some(note),
        })
    };
    asked.iter().zip(&imports.modules).map(|(w, module)| (w.path.clone(), file(module))).collect()
}

/// That the question does not apply to this server; `None` where it does, or where nothing was asked.
pub fn not_applicable(target: &Target, probe: &Probe, server: u32, patches: &[&Patch]) -> Option<Diagnostic> {
    if patches.iter().all(|p| p.site.is_none()) {
        return None;
    }
    let program = probe.processes.get(&server)?.exe.as_ref().ok()?;
    let name = argv::base_name(program);
    if name.starts_with("python") {
        return None;
    }
    let shown = Untrusted::from(name).visible(40);
    let message = format!("`{shown}` is no Python, so that it imports no file that a patch names as its site");
    let remark = Diagnostic { severity: Severity::Info, ..Diagnostic::warning("imports-not-applicable", message) };
    Some(remark.at(target.name.clone()))
}

/// The kinds of entries of Python's search path that count for a process.
struct SearchPath(Vec<Entry>);

/// How the process reads its search path, or why that is not known.
fn search_path(imports: &Imports, process: &Process, server: u32) -> Result<Option<SearchPath>, Unknown> {
    let unknown = |why: &str| Err(Unknown(why.to_owned()));
    let exe = process.exe.as_ref().map_err(|Unknown(why)| Unknown(format!("its program cannot be read: {why}")))?;
    if !argv::base_name(exe).starts_with("python") {
        return Ok(None);
    }
    if imports.pid.clone()? != server {
        return unknown("another process was looked at");
    }
    if !imports.same_files.clone()? {
        return unknown("the server has a file system of its own, as in a container");
    }
    let words = process.cmdline.clone()?.words().map(<[String]>::to_vec)?;
    let environ =
        process.environ.as_ref().map_err(|Unknown(why)| Unknown(format!("`PYTHONPATH` is not known: {why}")))?;
    if !imports.name_is_sure {
        return unknown("the name that the interpreter was started under is not known, nor its virtual environment");
    }
    imports.version.as_ref().map_err(Clone::clone)?;
    if !imports.complete {
        return unknown("the search path of the server was not listed to its end");
    }
    let set = |name: &str| environ.get(name).is_some_and(|v| !v.is_empty());
    let options: String = words[1..]
        .iter()
        .take_while(|w| w.starts_with('-') && *w != "-")
        .filter(|w| !w.starts_with("--") && !w.starts_with("-X") && !w.starts_with("-W"))
        .map(|w| w.split(['m', 'c']).next().unwrap_or_default())
        .collect();
    let has = |option| options.contains(option);
    let ignores = has('I') || has('E');
    if ignores && set("PYTHONHOME") {
        return unknown("`PYTHONHOME` is set and not read by this process");
    }
    let venv_of = |text: &str| {
        let mut lines = text.lines().filter_map(|l| l.split_once('='));
        lines.any(|(k, v)| k.trim() == "include-system-site-packages" && v.trim().eq_ignore_ascii_case("true"))
    };
    let isolated = has('I');
    let site = !has('S');
    let outside = imports.venv.as_deref().is_none_or(venv_of);
    let user = !(isolated || has('s') || (!ignores && set("PYTHONNOUSERSITE")));
    let safe = isolated || has('P') || (!ignores && set("PYTHONSAFEPATH"));
    let kinds = [
        (Entry::Folder, !safe),
        (Entry::Variable, !ignores),
        (Entry::Environment, site),
        (Entry::User, site && user && outside),
        (Entry::Base, site && outside),
    ];
    Ok(Some(SearchPath(kinds.into_iter().filter(|(_, counts)| *counts).map(|(kind, _)| kind).collect())))
}

impl SearchPath {
    /// A package counts first, then folders without `__init__.py` together, then what finders map.
    fn choose<'m>(&self, module: &'m Module) -> Option<&'m Found> {
        let all = || module.found.iter().filter(|f| self.0.contains(&f.entry));
        let namespace = || all().filter(|f| f.what == What::Namespace);
        all()
            .find(|f| f.what == What::Package)
            .or_else(|| namespace().find(|f| matches!(f.file.times, Ok(Some(_)))))
            .or_else(|| namespace().next())
            .or_else(|| all().find(|f| f.what == What::Finder))
    }
}

/// How an entry came to be the one, for a note.
fn how(found: &Found) -> String {
    let shown = |text: &str| Untrusted::from(text).visible(200);
    let editable = found.origin.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let editable = editable.is_some_and(|v| v.pointer("/dir_info/editable") == Some(&Value::Bool(true)));
    match (found.entry, found.by.as_str()) {
        (Entry::Folder, _) => format!("in the folder of its script or its working folder, `{}`", shown(&found.folder)),
        (Entry::Variable, _) => format!("by `PYTHONPATH`, in `{}`", shown(&found.folder)),
        (_, "") if editable => format!("editable, in `{}`", shown(&found.folder)),
        (_, "") => format!("installed in `{}`", shown(&found.folder)),
        (_, by) => format!("editable, by `{}`", shown(by)),
    }
}

fn row(
    target: &Target,
    site: &str,
    wanted: &Wanted,
    module: &Module,
    path: Result<&Option<SearchPath>, &Unknown>,
    started: Option<i64>,
) -> Row {
    let chosen = match path {
        Err(Unknown(why)) => Err(why.clone()),
        Ok(None) => Err(NO_PYTHON.to_owned()),
        Ok(Some(path)) => path.choose(module).ok_or_else(|| {
            let top = wanted.path.split('/').next().unwrap_or_default();
            format!("no entry of its search path has `{top}`, so that a hook of its own would bring it")
        }),
    };
    let declared = module.source.as_ref().map(|source| claim(source, "the checkout of the case".into()));
    let (effective, (status, note)) = match chosen {
        Err(because) => {
            let source = "the search path of the server".to_owned();
            let known = Known::Unknown { because: because.clone() };
            let blind_to = Some(BLIND.to_owned());
            (Claim { value: None, known, source, line: None, blind_to }, (RowStatus::UnknownBecause, because))
        }
        Ok(found) => {
            let source = if found.by.is_empty() { found.folder.clone() } else { found.by.clone() };
            (claim(&found.file, source), judge(module.source.as_ref(), found, started))
        }
    };
    Row {
        target: target.name.clone(),
        component: COMPONENT.into(),
        name: site.to_owned(),
        kind: RowKind::Config,
        declared,
        effective: Some(Claim { blind_to: Some(BLIND.to_owned()), ..effective }),
        observed: None,
        status,
        note,
    }
}

const BLIND: &str = "import hooks, and what the program changed of its own search path";

fn claim(file: &FileAt, source: String) -> Claim {
    let (value, known) = match (&file.times, &file.path) {
        (Ok(None), _) => (None, Known::Yes),
        (Ok(Some(_)), Ok(path)) => (Some(Untrusted::from(path.as_str())), Known::Yes),
        (Err(Unknown(why)), _) | (_, Err(Unknown(why))) => (None, Known::Unknown { because: why.clone() }),
    };
    Claim { value, known, source, line: None, blind_to: None }
}

/// The file of the process beside the one in the checkout, and beside its own start.
fn judge(source: Option<&FileAt>, found: &Found, started: Option<i64>) -> (RowStatus, String) {
    let how = how(found);
    let times = match &found.file.times {
        Err(Unknown(why)) => return (RowStatus::UnknownBecause, format!("{how}: {why}")),
        Ok(None) => return (RowStatus::Differs, format!("the package has no such file: {how}")),
        Ok(Some(times)) => times,
    };
    match since(times, started) {
        Some((RowStatus::Differs, note)) => return (RowStatus::Differs, format!("{note}; {how}")),
        Some((status, note)) => return place(source, found, &how).min((status, format!("{note}; {how}"))),
        None => {}
    }
    place(source, found, &how)
}

/// Whether the process has the file of the checkout.
fn place(source: Option<&FileAt>, found: &Found, how: &str) -> (RowStatus, String) {
    if let Some(tree) = tree::of_search_path(&found.folder) {
        let without: Vec<&str> = tree.without.iter().map(String::as_str).collect();
        return (RowStatus::OverriddenBy, format!("a copy of ours without `{}`: {how}", without.join("`, `")));
    }
    let Some(source) = source else { return (RowStatus::OneSource, how.to_owned()) };
    match (&source.times, &source.path, &found.file.path) {
        (Err(Unknown(why)), ..) => (RowStatus::UnknownBecause, format!("the file in the checkout: {why}; {how}")),
        (Ok(None), ..) => (RowStatus::UnknownBecause, format!("the checkout has no such file; {how}")),
        (_, Ok(a), Ok(b)) if a == b => (RowStatus::Agrees, how.to_owned()),
        _ => match (&source.sum, &found.file.sum) {
            (Ok(a), Ok(b)) if a == b => (RowStatus::Agrees, format!("another file with the same text: {how}")),
            (Ok(_), Ok(_)) => {
                (RowStatus::Differs, format!("another file with another text than the checkout's: {how}"))
            }
            _ => (RowStatus::UnknownBecause, format!("another file, whose text was not compared: {how}")),
        },
    }
}

/// What the file's dates say against the start of the process; `None` where it was not touched since.
fn since(times: &Times, started: Option<i64>) -> Option<(RowStatus, String)> {
    let Some(started) = started else {
        return Some((
            RowStatus::UnknownBecause,
            "the start of the process is not known, nor whether the file is newer".into(),
        ));
    };
    // The start is known to a second.
    let (modified, changed) = (times.modified.as_second() - started, times.changed.as_second() - started);
    if modified <= 1 {
        let note =
            format!("the file was put there or touched {changed} s after the start, with the date of an older text");
        return (changed > 1).then_some((RowStatus::UnknownBecause, note));
    }
    if modified > LOADING_S {
        let note = format!("changed {modified} s after the start: the process does not run what the file says");
        return Some((RowStatus::Differs, note));
    }
    let note = format!("changed {modified} s after the start, so that it was imported before or after that");
    Some((RowStatus::UnknownBecause, note))
}

#[cfg(test)]
#[path = "imports_tests.rs"]
mod tests;
