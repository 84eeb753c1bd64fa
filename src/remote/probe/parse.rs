//! Reads a probe out of an answer. Pure.
//!
//! What the answer does not hold is unknown, whether it was never sent, was cut off or cannot be read;
//! absence is said by the host or not at all.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Ask;
use super::frame::{self, Frame, FrameError, Section, Unread};
use super::types::{
    FileRead, FileStat, FileUnread, Gpus, HostFacts, PortOwners, Probe, Process, Reading, Relation, Text, Unit,
};
use super::{container, imports};
use crate::engine::diagnostic::Diagnostic;
use crate::remote::proc::{self, Listener, Unknown};
use crate::untrusted::Untrusted;

/// Reads the answer to a question.
///
/// # Errors
/// It is no answer at all.
pub fn parse(bytes: &[u8], ask: &Ask, nonce: &str) -> Result<Probe, FrameError> {
    let mut frame = frame::take_apart(bytes, nonce)?;
    let mut diagnostics = std::mem::take(&mut frame.diagnostics);
    let frame = &frame;
    let counts = counts(frame);
    let left_out = counts.get("left").copied().unwrap_or_default();
    if left_out > 0 {
        let message = format!("{left_out} more processes belong to the service and are not read");
        diagnostics.push(Diagnostic::warning("probe-processes", message));
    }
    let listeners = listeners(frame);
    Ok(Probe {
        host: host(frame),
        ports: ask.ports.iter().map(|port| (*port, owners(frame, *port, &listeners))).collect(),
        listeners,
        processes: processes(frame),
        left_out,
        unit: ask.unit.as_ref().map(|name| unit(frame, name)),
        container: ask.container.as_ref().map(|asked| container::read(frame, asked)),
        files: files(frame, "file", "text", &ask.files),
        logs: files(frame, "log", "tail", &ask.logs.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>()),
        overrides: text(frame, "overrides").ok(),
        gpus: ask.gpus.then(|| Gpus { list: table(frame, "gpu.list"), apps: table(frame, "gpu.apps") }),
        imports: (!ask.modules.is_empty()).then(|| {
            let with_source: Vec<bool> = ask.modules.iter().map(|m| m.source.is_some()).collect();
            imports::read(frame, &with_source)
        }),
        round_trips: 1,
        whole: frame.whole,
        diagnostics,
    })
}

pub(super) fn missing(frame: &Frame, name: &str) -> Unknown {
    let how = if frame.whole { "does not hold" } else { "broke off before" };
    Unknown(format!("the host's answer {how} `{name}`"))
}

/// Why a value is unknown, in one clause.
pub(crate) fn reason(why: &Unread) -> Unknown {
    let said = |short: &str, text: &Untrusted| match text.raw().lines().next() {
        Some(line) if !line.trim().is_empty() => format!("{short}: {}", Untrusted::from(line).visible(200)),
        _ => short.to_owned(),
    };
    Unknown(match why {
        Unread::Permission(text) => said("permission denied", text),
        Unread::Gone(text) => said("not there", text),
        Unread::NoCommand => "the program for it is not on the host".into(),
        Unread::TooMuch => "the answer was full".into(),
        Unread::Failed(text) => said("the host could not read it", text),
    })
}

/// The bytes of a section and whether they are all.
pub(crate) fn bytes<'f>(frame: &'f Frame, name: &str) -> Reading<(&'f [u8], bool)> {
    match frame.sections.get(name) {
        None => Err(missing(frame, name)),
        Some(Section::Unread(why)) => Err(reason(why)),
        Some(Section::Read { bytes, truncated }) => Ok((bytes, *truncated)),
    }
}

/// The bytes of a section that must be all there.
pub(crate) fn whole<'f>(frame: &'f Frame, name: &str) -> Reading<&'f [u8]> {
    match bytes(frame, name)? {
        (bytes, false) => Ok(bytes),
        (_, true) => Err(Unknown(format!("`{name}` is longer than what was read of it"))),
    }
}

/// A whole section as text; what is no UTF-8 is replaced.
pub(crate) fn text(frame: &Frame, name: &str) -> Reading<String> {
    Ok(String::from_utf8_lossy(whole(frame, name)?).into_owned())
}

/// What came of a section as text; nothing where it was not read.
pub(crate) fn text_of_part(frame: &Frame, name: &str) -> String {
    bytes(frame, name).map_or_else(|_| String::new(), |(bytes, _)| String::from_utf8_lossy(bytes).into_owned())
}

/// A whole section as text without its line end.
pub(crate) fn line(frame: &Frame, name: &str) -> Reading<String> {
    let text = text(frame, name)?;
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

fn number<T: std::str::FromStr>(frame: &Frame, name: &str) -> Reading<T> {
    let text = line(frame, name)?;
    text.trim().parse().map_err(|_| odd(name, &text))
}

pub(crate) fn odd(name: &str, text: &str) -> Unknown {
    Unknown(format!("`{name}` cannot be read: `{}`", Untrusted::from(text).visible(60)))
}

/// What the host says of itself.
pub(crate) fn host(frame: &Frame) -> HostFacts {
    let seen = |name: &str| line(frame, name).map(Untrusted::from);
    HostFacts {
        boot_id: seen("host.boot_id"),
        booted_at: number::<i64>(frame, "host.btime")
            .and_then(|s| Timestamp::from_second(s).map_err(|e| Unknown(e.to_string()))),
        ticks_per_second: number(frame, "host.ticks").and_then(|ticks: u64| match ticks {
            0 => Err(odd("host.ticks", "0")),
            ticks => Ok(ticks),
        }),
        time: line(frame, "host.time").and_then(|text| seconds(&text).ok_or_else(|| odd("host.time", &text))),
        ahead: Err(Unknown("our own clock was not compared".into())),
        kernel: seen("host.kernel"),
        name: seen("host.name"),
        uid: number(frame, "host.uid"),
    }
}

/// Seconds and nanoseconds of `date +%s.%N`; a `date` without `%N` leaves the letters.
fn seconds(text: &str) -> Option<Timestamp> {
    let (seconds, part) = text.trim().split_once('.')?;
    let nanos = if part.len() == 9 { part.parse().unwrap_or_default() } else { 0 };
    Timestamp::new(seconds.parse().ok()?, nanos).ok()
}

/// Every TCP socket that listens.
pub(crate) fn listeners(frame: &Frame) -> Reading<Vec<Listener>> {
    let mut all = proc::listeners(&text(frame, "tcp")?);
    match frame.sections.get("tcp6") {
        // A host without IPv6.
        Some(Section::Unread(Unread::Gone(_))) => {}
        _ => all.extend(proc::listeners(&text(frame, "tcp6")?)),
    }
    Ok(all)
}

/// `nobody` needs both: the port's own section, and whole tables in which nothing listens on it.
pub(crate) fn owners(frame: &Frame, port: u16, listeners: &Reading<Vec<Listener>>) -> PortOwners {
    let read = || -> Reading<PortOwners> {
        let name = format!("port.{port}");
        let text = text(frame, &name)?;
        let mut pids: Vec<u32> = Vec::new();
        let (mut hidden, mut listens) = (0_u64, false);
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["hidden", count] => hidden = count.parse().map_err(|_| odd(&name, line))?,
                ["listen", _] => listens = true,
                ["owner", _, pid] => pids.push(pid.parse().map_err(|_| odd(&name, line))?),
                _ => return Err(odd(&name, line)),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        let known: Vec<u32> =
            pids.into_iter().filter(|p| frame.sections.contains_key(&format!("proc.{p}.stat"))).collect();
        if !known.is_empty() {
            return Ok(PortOwners::Processes(eldest_first(frame, known)));
        }
        listens |= listeners.as_ref().map_err(Clone::clone)?.iter().any(|l| l.port == port);
        if !listens {
            return Ok(PortOwners::Nobody);
        }
        Err(Unknown(format!("port {port} is in use, and the open files of {hidden} processes cannot be read")))
    };
    read().unwrap_or_else(PortOwners::Unknown)
}

/// Owners that no other owner started come first.
fn eldest_first(frame: &Frame, mut pids: Vec<u32>) -> Vec<u32> {
    let parent = |pid: &u32| proc::stat(whole(frame, &format!("proc.{pid}.stat")).ok()?).map(|s| s.ppid);
    let all = pids.clone();
    pids.sort_by_key(|pid| (parent(pid).is_none_or(|above| all.contains(&above)), *pid));
    pids
}

fn counts(frame: &Frame) -> BTreeMap<String, u64> {
    let text = text(frame, "processes").unwrap_or_default();
    text.lines().filter_map(|l| l.split_once(' ')).filter_map(|(n, c)| Some((n.to_owned(), c.parse().ok()?))).collect()
}

fn processes(frame: &Frame) -> BTreeMap<u32, Process> {
    let pids =
        frame.sections.keys().filter_map(|name| name.strip_prefix("proc.")?.strip_suffix(".relation")?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, process(frame, pid)?))).collect()
}

fn process(frame: &Frame, pid: u32) -> Option<Process> {
    let name = |what: &str| format!("proc.{pid}.{what}");
    let relation = match text(frame, &name("relation")).ok()?.as_str() {
        "owner" => Relation::Owner,
        "named" => Relation::Named,
        "ancestor" => Relation::Ancestor,
        "descendant" => Relation::Descendant,
        "group" => Relation::Group,
        "session" => Relation::Session,
        _ => return None,
    };
    let stat = whole(frame, &name("stat")).and_then(|bytes| match proc::stat(bytes) {
        Some(info) if info.key.pid == pid => Ok(info),
        _ => Err(odd(&name("stat"), &String::from_utf8_lossy(bytes))),
    });
    Some(Process {
        relation,
        stat,
        cmdline: whole(frame, &name("cmdline")).and_then(proc::cmdline),
        environ: whole(frame, &name("environ")).and_then(proc::environ),
        cwd: line(frame, &name("cwd")),
        exe: line(frame, &name("exe")),
        cgroup: text(frame, &name("cgroup")).map(Untrusted::from),
        uid: number(frame, &name("uid")),
        out: line(frame, &name("out")),
    })
}

/// The properties of the unit that was asked for, as `systemctl show` prints them.
pub(crate) fn properties(frame: &Frame) -> Reading<BTreeMap<String, Untrusted>> {
    let text = text(frame, "unit.show")?;
    let mut all: BTreeMap<String, Untrusted> = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|l| l.split_once('=')) {
        // A property that comes more than once, such as EnvironmentFiles, is kept line by line.
        let value = match all.get(name) {
            Some(before) => format!("{}\n{value}", before.raw()),
            None => value.to_owned(),
        };
        all.insert(name.to_owned(), value.into());
    }
    Ok(all)
}

fn unit(frame: &Frame, name: &str) -> Unit {
    let journal = bytes(frame, "journal")
        .map(|(bytes, truncated)| Text { text: String::from_utf8_lossy(bytes).into_owned(), truncated });
    Unit {
        name: name.to_owned(),
        properties: properties(frame),
        files: text(frame, "unit.cat").map(|t| unit_files(&t)),
        journal,
    }
}

/// The files that `systemctl cat` prints, each after a comment with its path.
pub(super) fn unit_files(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    let mut blank = true;
    for line in text.split_inclusive('\n') {
        match line.trim_end().strip_prefix("# /") {
            // A path stands at the very start or after a blank line; other comments may look like one.
            Some(path) if blank && is_unit_path(path) => files.push((format!("/{path}"), String::new())),
            _ => {
                if let Some((_, text)) = files.last_mut() {
                    text.push_str(line);
                }
            }
        }
        blank = line.trim().is_empty();
    }
    let last = files.len().saturating_sub(1);
    for (_, text) in files.iter_mut().take(last) {
        // The blank line before the next path is not the file's.
        if text.ends_with("\n\n") {
            text.pop();
        }
    }
    files
}

fn is_unit_path(path: &str) -> bool {
    let kinds = ["service", "conf", "slice", "scope", "socket", "target", "timer"];
    !path.contains(' ') && path.rsplit_once('.').is_some_and(|(_, kind)| kinds.contains(&kind))
}

/// Files by path. One that was asked for and is not in the answer is there too, as unknown.
fn files(frame: &Frame, kind: &str, what: &str, asked: &[String]) -> BTreeMap<String, FileRead> {
    let mut out = BTreeMap::new();
    for number in 0.. {
        if !frame.sections.contains_key(&format!("{kind}.{number}.path")) {
            break;
        }
        // An asked path is known without the host; so is that it is this one.
        let said = text(frame, &format!("{kind}.{number}.path")).ok();
        if let Some(path) = said.or_else(|| asked.get(number).cloned()) {
            out.insert(path, file(frame, kind, number, what));
        }
    }
    for path in asked {
        out.entry(path.clone()).or_insert_with(|| {
            let why = missing(frame, path);
            FileRead { stat: Err(why.clone()), bytes: Err(FileUnread::Unknown(why)), truncated: false }
        });
    }
    out
}

fn file(frame: &Frame, kind: &str, number: usize, what: &str) -> FileRead {
    let name = format!("{kind}.{number}.{what}");
    let stat_name = format!("{kind}.{number}.stat");
    let stat = line(frame, &stat_name).and_then(|l| file_stat(&l).ok_or_else(|| odd(&stat_name, &l)));
    let (bytes, truncated) = match frame.sections.get(&name) {
        None => (Err(FileUnread::Unknown(missing(frame, &name))), false),
        Some(Section::Unread(Unread::Gone(_))) => (Err(FileUnread::Absent), false),
        Some(Section::Unread(Unread::Permission(_))) => (Err(FileUnread::Permission), false),
        Some(Section::Unread(why)) => (Err(FileUnread::Unknown(reason(why))), false),
        Some(Section::Read { bytes, truncated }) => (Ok(bytes.clone()), *truncated),
    };
    FileRead { stat, bytes, truncated }
}

fn file_stat(line: &str) -> Option<FileStat> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let size = next()?.parse().ok()?;
    let modified = Timestamp::from_second(next()?.parse().ok()?).ok()?;
    Some(FileStat { size, modified, inode: next()?.parse().ok()? })
}

fn table(frame: &Frame, name: &str) -> Reading<Vec<Vec<Untrusted>>> {
    let text = text(frame, name)?;
    Ok(text.lines().filter(|l| !l.trim().is_empty()).map(|l| l.split(", ").map(Untrusted::from).collect()).collect())
}
