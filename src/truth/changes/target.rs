//! What an answer tells of one target: its service, its files, its checkout, its Python. Pure.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::parse::{Dated, Found, dated, records, seconds};
use super::types::{Kind, Starter, Subject};
use crate::remote::probe::parse as section;
use crate::remote::probe::types::HostFacts;
use crate::remote::proc;

/// Records of a unit that the script asks for.
const MOST_RECORDS: usize = 2000;
/// Moves of a checkout that the script asks for.
const MOST_MOVES: usize = 1000;

/// Reads what is the target's; `number` is its place in the question.
pub(super) fn read(found: &mut Found<'_>, facts: &HostFacts, number: usize, subject: &Subject) {
    let name = |what: &str| format!("t{number}.{what}");
    if !found.has(&name("name")) {
        return found.gap("everything of the target", "the answer does not reach it");
    }
    match &subject.starter {
        Starter::Unit(unit) => service(found, &name, unit),
        Starter::Script => found.gap("earlier starts", "a script keeps no record of its starts; its log may"),
        Starter::Container => found.gap("earlier starts and the container's files", "containers are not looked into"),
        Starter::Unknown => found.gap("earlier starts", "the case does not say what starts the target"),
    }
    process(found, facts, number, subject);
    if subject.script.is_some() {
        files(found, &name("script"), Kind::LaunchScript, "the launch script");
    }
    match &subject.checkout {
        Some(folder) => checkout(found, &name, folder),
        None => found.gap("the checkout", "the case names none"),
    }
    match &subject.checkpoint {
        Some(_) => files(found, &name("checkpoint"), Kind::Checkpoint, "the files of the checkpoint"),
        None => found.gap("the checkpoint", "the case names none"),
    }
    for (module, path) in subject.modules.iter().enumerate() {
        self::module(found, &format!("t{number}.module.{module}"), path);
    }
}

/// Notes files that changed, each under its path.
fn files(found: &mut Found<'_>, name: &str, kind: Kind, what: &str) {
    let Some(lines) = found.lines(name, what) else { return };
    let (all, complaints) = dated(&lines);
    found.complaints(what, &complaints);
    for file in &all {
        changed(found, kind, file);
    }
}

fn changed(found: &mut Found<'_>, kind: Kind, file: &Dated) {
    if let Some((at, how)) = file.since(found.since) {
        found.change(at, kind, &format!("{}: {how}", file.path), &file.path);
    }
}

fn service(found: &mut Found<'_>, name: &impl Fn(&str) -> String, unit: &str) {
    if let Some(lines) = found.lines(&name("show"), &format!("the state of `{unit}`")) {
        let value = |key: &str| lines.iter().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        if value("LoadState") == Some("not-found") {
            found.gap(format!("the unit `{unit}`"), "systemd knows no unit of that name");
        }
        if value("NeedDaemonReload") == Some("yes") {
            let what = "its files changed after systemd read them: a restart uses the old ones until `daemon-reload`";
            found.remark("daemon-reload", what, unit);
        }
        if let Some(at) = value("ExecMainStartTimestamp").and_then(stamp) {
            let restarts = value("NRestarts").and_then(|n| n.parse::<u64>().ok()).filter(|n| *n > 0);
            let more = restarts.map_or_else(String::new, |n| format!("; restarted {n} times by systemd"));
            found.change(at, Kind::ServiceStart, &format!("{unit}: its main process started{more}"), "systemctl show");
        }
    } else {
        found.gap("which files the unit is made of", "systemd does not tell");
    }
    files(found, &name("unitfiles"), Kind::UnitFile, "the files of the unit");
    files(found, &name("envfiles"), Kind::EnvironmentFile, "the environment files of the unit");
    let Some(lines) = found.lines(&name("journal"), "earlier starts") else { return };
    let (all, complaints) = records(&lines);
    found.complaints("earlier starts", &complaints);
    if all.len() >= MOST_RECORDS {
        found.gap(
            "earlier starts",
            format!("more than {MOST_RECORDS} records of the unit, and only the last were read"),
        );
    }
    for record in &all {
        if let Some(kind) = kind_of(&record.id, &record.message) {
            found.change(record.at, kind, &record.message, &format!("journal of {unit}"));
        }
    }
}

/// What systemd says with a record, by the id of its catalogue; `None` is of no interest.
fn kind_of(id: &str, message: &str) -> Option<Kind> {
    Some(match id {
        "39f53479d3a045ac8e11786248231fbf" => Kind::ServiceStart,
        "9d1aaa27d60140bd96365438aad20286" => Kind::ServiceStop,
        "7b05ebc668384222baa8881179cfda54" => Kind::ServiceReload,
        // A process that ended by itself and well.
        "98e322203f7a4ed290d09fe03c09fe15" if message.contains("code=exited, status=0") => Kind::ServiceStop,
        "98e322203f7a4ed290d09fe03c09fe15"
        | "be02cf6855d2428ba40df7e9d022f03d"
        | "d9b373ed55a64feb8242e02dbe79a49c"
        | "5eb03494b6584870a536b337290809b3"
        | "fe6faa94e7774663a0da52717891d8ef" => Kind::ServiceFailure,
        _ => return None,
    })
}

/// A time as `systemctl show` prints it in UTC: `Fri 2026-05-01 10:00:00 UTC`.
fn stamp(text: &str) -> Option<Timestamp> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        [_, day, clock, "UTC"] => format!("{day}T{clock}Z").parse().ok(),
        _ => None,
    }
}

fn process(found: &mut Found<'_>, facts: &HostFacts, number: usize, subject: &Subject) {
    const PACKAGES: &str = "packages of the server's Python";
    let part = |name: &str, before: &str| name.strip_prefix(before)?.parse::<u32>().ok();
    let sites = format!("t{number}.sites.");
    let pids: Vec<u32> = found.frame.sections.keys().filter_map(|name| part(name, &sites)).collect();
    if pids.is_empty() {
        let why = no_process(found, subject);
        found.gap("when the server's process started", &why);
        return found.gap(PACKAGES, &why);
    }
    let mut known = false;
    for pid in pids {
        let name = format!("t{number}.proc.{pid}.stat");
        let started =
            section::whole(found.frame, &name).map(proc::stat).map(|info| info.map(|i| facts.started_at(i.key)));
        match started {
            Ok(Some(Ok(at))) => {
                found.change(at, Kind::ServiceStart, &format!("process {pid} started"), &format!("/proc/{pid}/stat"));
            }
            Ok(None) => found.gap(format!("when process {pid} started"), "its state cannot be read"),
            Ok(Some(Err(why))) | Err(why) => found.gap(format!("when process {pid} started"), why.0),
        }
        let folders = found.lines(&format!("{sites}{pid}"), &format!("packages of process {pid}"));
        known |= folders.is_some_and(|lines| !lines.is_empty());
    }
    if !known {
        return found.gap(PACKAGES, "no folder of packages belongs to the server's processes");
    }
    let Some(lines) = found.lines(&format!("t{number}.dist"), PACKAGES) else { return };
    let (all, complaints) = dated(&lines);
    found.complaints(PACKAGES, &complaints);
    for file in &all {
        let (folder, last) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let package = last.strip_suffix(".dist-info").and_then(|l| l.rsplit_once('-'));
        match (package, file.since(found.since)) {
            (Some((name, version)), Some((at, _))) => {
                let how = if file.content >= found.since {
                    "was installed or its record changed"
                } else {
                    "was put in place with an older date"
                };
                found.change(at, Kind::PythonPackage, &format!("{name} {version} {how}"), folder);
            }
            _ => changed(found, Kind::PythonPackage, file),
        }
    }
}

/// Why the server's process is not known.
fn no_process(found: &Found<'_>, subject: &Subject) -> String {
    let Some(port) = subject.port else { return "the case names no port, and no main process runs".to_owned() };
    let Ok(text) = section::text(found.frame, &format!("port.{port}")) else {
        return format!("the answer does not tell who owns port {port}");
    };
    let hidden = text.lines().find_map(|l| l.strip_prefix("hidden ")).unwrap_or("some").to_owned();
    if text.lines().any(|l| l.starts_with("listen ")) {
        return format!("port {port} is in use, and the open files of {hidden} processes cannot be read");
    }
    format!("nothing listens on port {port}")
}

fn checkout(found: &mut Found<'_>, name: &impl Fn(&str) -> String, folder: &str) {
    if let Some(lines) = found.lines(&name("reflog"), "moves of the checkout") {
        moves(found, &lines, folder);
    }
    if found.has(&name("filters")) {
        let why = "the filters that the repository names are not run, since a repository may name any program";
        found.gap("whether files that go through a filter, such as those of LFS, differ from their commit", why);
    }
    for line in found.lines(&name("dirty"), "files that differ from their commit").unwrap_or_default() {
        dirty(found, &line, folder);
    }
    files(found, &name("built"), Kind::BuiltExtension, "compiled files in the checkout");
    if found.has(&name("built_by")) {
        found.gap(
            "compiled files that were put there with an older date",
            "the host's `find` looks at the date of the content alone",
        );
    }
}

fn moves(found: &mut Found<'_>, lines: &[String], folder: &str) {
    let mut eldest = None;
    for line in lines {
        let read = line.split_once(" HEAD@{").and_then(|(commit, rest)| {
            let (when, subject) = rest.split_once('}')?;
            Some((commit, seconds(when.split(' ').next()?)?, subject.trim()))
        });
        let Some((commit, at, subject)) = read else {
            found.gap("all moves of the checkout", line);
            continue;
        };
        let subject = if subject.is_empty() { "moved" } else { subject };
        found.change(at, Kind::Checkout, &format!("{subject}, to {commit}"), &format!("reflog of {folder}"));
        eldest = Some((at, subject.starts_with("clone")));
    }
    match eldest {
        None => found.gap("moves of the checkout", "its reflog is empty"),
        Some((at, false)) if at > found.since => {
            let why =
                if lines.len() >= MOST_MOVES { "only its last moves were read" } else { "its reflog begins there" };
            found.gap(format!("moves of the checkout before {at}"), why);
        }
        Some(_) => {}
    }
}

fn dirty(found: &mut Found<'_>, line: &str, folder: &str) {
    const WHAT: &str = "files that differ from their commit";
    let parts: Vec<&str> = line.splitn(4, '|').collect();
    let [state, content, inode, path] = parts[..] else {
        return found.gap(WHAT, line.strip_prefix("said|").unwrap_or(line));
    };
    let how = match state.trim() {
        "??" => "is not in the commit",
        state if state.contains('D') => "is deleted and in the commit",
        state if state.contains('U') => "is in conflict",
        _ => "differs from the commit",
    };
    let (Some(content), Some(inode)) = (seconds(content), seconds(inode)) else {
        return found.gap(format!("when {path} changed, which {how}"), "it has no date that can be read");
    };
    let at = if content >= found.since { content } else { inode };
    if at >= found.since {
        found.change(at, Kind::DirtyFile, &format!("{path} {how}"), &format!("git status in {folder}"));
    } else {
        found.remark("dirty-before", &format!("{path} {how}, and is dated {content}, before that time"), folder);
    }
}

fn module(found: &mut Found<'_>, name: &str, path: &str) {
    let Some(lines) = found.lines(&format!("{name}.times"), &format!("the module {path}")) else { return };
    let (all, complaints) = dated(&lines);
    found.complaints(&format!("the module {path}"), &complaints);
    let Some(file) = all.first() else { return };
    let wheel = found.word(&format!("{name}.inner")).map(|inner| wheel(found, name, &inner, &file.path));
    let compared = match &wheel {
        None => String::new(),
        Some(Ok(Wheel { same: true, hash })) => format!("; it is as its wheel has it (sha256 {hash})"),
        Some(Ok(Wheel { same: false, hash })) => format!("; it is not as its wheel has it (sha256 {hash})"),
        Some(Err(why)) => {
            found.gap(format!("whether {} is as its wheel has it", file.path), why);
            String::new()
        }
    };
    match (file.since(found.since), wheel) {
        (Some((at, how)), _) => found.change(at, Kind::Module, &format!("{path}: {how}{compared}"), &file.path),
        (None, Some(Ok(Wheel { same: false, .. }))) => {
            let what = format!("{path} is not as its wheel has it, and is dated {}, before that time", file.content);
            found.remark("not-as-wheel", &what, &file.path);
        }
        (None, _) => {}
    }
}

/// A file beside what the record of its wheel says of it.
struct Wheel {
    same: bool,
    /// Of the file as it is, in hexadecimal.
    hash: String,
}

fn wheel(found: &Found<'_>, name: &str, inner: &str, path: &str) -> Result<Wheel, String> {
    let hash = section::line(found.frame, &format!("{name}.hash")).map_err(|why| why.0)?;
    // A name that holds odd characters is quoted with a stroke before the line.
    let hash = hash.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned();
    if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("the hash of {path} cannot be read"));
    }
    let records = section::text(found.frame, &format!("{name}.record")).map_err(|why| why.0)?;
    let start = format!("/RECORD:{inner},");
    let mut said = records.lines().filter_map(|l| Some(l.split_once(&start)?.1));
    let line = said.next().ok_or("no wheel lists it")?;
    if said.next().is_some() {
        return Err("more than one wheel lists it".into());
    }
    let wanted =
        line.strip_prefix("sha256=").and_then(|l| l.split(',').next()).ok_or("its wheel has no sha256 of it")?;
    let wanted =
        URL_SAFE_NO_PAD.decode(wanted.trim_end_matches('=')).map_err(|_| "the hash of its wheel cannot be read")?;
    let mut wanted_hex = String::new();
    for byte in &wanted {
        // Writing to a text does not fail.
        let _ = write!(wanted_hex, "{byte:02x}");
    }
    Ok(Wheel { same: wanted_hex.eq_ignore_ascii_case(&hash), hash })
}
