//! One look at a start that loads: who owns the port, whether the start still lives, and what its log gained.
//!
//! One round trip a look. `parse` is pure. Not responsible for what makes a start proven, which is `remote::prove`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::machine::Machine;
use super::probe::frame::Frame;
use super::probe::parse;
use super::probe::types::PortOwners;
use super::proc::Unknown;
use super::shell_text::{BELONG, TICKS};
use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// What to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The port of the server.
    pub port: u16,
    /// Traces of the start, where a script was started.
    pub run: Option<String>,
    /// Path and bytes that are known of a log that is a file.
    pub log: Option<(String, u64)>,
    /// The unit and the cursor of its journal, empty at first.
    pub unit: Option<(String, String)>,
    /// The container and the time of its last line, empty at first.
    pub container: Option<(String, String)>,
}

/// What a look saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Who owns the port.
    pub owners: PortOwners,
    /// Control groups of the owners, one a line.
    pub cgroups: BTreeMap<u32, String>,
    /// The start of the script, where one was asked for.
    pub start: Option<Start>,
    /// The unit, where one was asked for: its properties, or why they are unknown.
    pub unit: Option<Result<BTreeMap<String, Untrusted>, Unknown>>,
    /// The container, where one was asked for, or why it is unknown.
    pub container: Option<Result<Contained, Unknown>>,
    /// New whole lines of the log.
    pub lines: Vec<String>,
    /// Whether more of the log waits to be read.
    pub more: bool,
    /// The question for the next look.
    pub next: Question,
}

/// How a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contained {
    /// Its whole id.
    pub id: String,
    /// Whether it runs.
    pub running: bool,
    /// What it ended with last.
    pub exit: String,
    /// Whether it was ended for want of memory.
    pub out_of_memory: bool,
}

/// How the start of a script is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Whether it was made at all.
    pub made: bool,
    /// The shell that leads it, where it lives.
    pub leader: Option<u32>,
    /// Its other processes.
    pub members: BTreeSet<u32>,
    /// What its shell ended with.
    pub exit: Option<String>,
    /// Length of the log before it.
    pub offset: Option<u64>,
}

impl Start {
    /// The exit status of a start whose every process is gone; a script may leave its server in the background, in a
    /// session of its own, and end.
    pub fn ended(&self) -> Option<&str> {
        let gone = self.made && self.leader.is_none() && self.members.is_empty();
        gone.then(|| self.exit.as_deref().unwrap_or("unknown"))
    }
}

fn script() -> String {
    let (frame, sockets, container) =
        (include_str!("probe/frame.sh"), include_str!("probe/sockets.sh"), include_str!("probe/container.sh"));
    // What a start leaves is read when it is asked for, not before.
    format!("{frame}{sockets}{container}{TICKS}\nbelong() {{\n{BELONG}\n}}\n{}", include_str!("watch.sh"))
}

/// Looks once.
///
/// # Errors
/// The host cannot be reached, or gives no answer.
pub async fn look(machine: &Machine, question: &Question, cancel: &CancellationToken) -> Result<Look, Failure> {
    let mut words = vec!["port".to_owned(), question.port.to_string()];
    if let Some(run) = &question.run {
        words.extend(["run".to_owned(), run.clone()]);
    }
    if let Some((path, offset)) = &question.log {
        words.extend(["log".to_owned(), path.clone(), offset.to_string()]);
    }
    if let Some((unit, cursor)) = &question.unit {
        words.extend(["unit".to_owned(), unit.clone(), cursor.clone()]);
    }
    if let Some((name, since)) = &question.container {
        words.extend(["container".to_owned(), name.clone(), since.clone()]);
    }
    let frame = machine.framed(&script(), &words, cancel).await?;
    Ok(read(&frame, question))
}

fn read(frame: &Frame, question: &Question) -> Look {
    let mut next = question.clone();
    let listeners = parse::listeners(frame);
    let owners = parse::owners(frame, question.port, &listeners);
    let cgroups = match &owners {
        PortOwners::Processes(pids) => {
            pids.iter().filter_map(|pid| Some((*pid, parse::text(frame, &format!("cgroup.{pid}")).ok()?))).collect()
        }
        PortOwners::Nobody | PortOwners::Unknown(_) => BTreeMap::new(),
    };
    let mut lines = Vec::new();
    let mut more = false;
    if let Some((_, offset)) = &mut next.log {
        let from = parse::text(frame, "log.offset").ok().and_then(|t| t.trim().parse().ok()).unwrap_or(*offset);
        let bytes = parse::bytes(frame, "log.new").map_or(&[][..], |(bytes, _)| bytes);
        // A line without an end must not stop everything behind it.
        let full = bytes.len() >= 131_072;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(if full { bytes.len() } else { 0 }, |i| i + 1);
        lines = String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned).collect();
        *offset = from + whole as u64;
        more = full;
    }
    if let Some((_, cursor)) = &mut next.unit {
        for line in parse::text(frame, "unit.log").unwrap_or_default().lines() {
            match line.strip_prefix("-- cursor: ") {
                Some(at) => at.clone_into(cursor),
                None => lines.push(line.to_owned()),
            }
        }
    }
    if let Some((_, since)) = &mut next.container {
        lines.extend(lines_after(&parse::text_of_part(frame, "container.lines"), since));
    }
    Look {
        owners,
        cgroups,
        start: question.run.as_ref().map(|_| start(frame)),
        unit: question.unit.as_ref().map(|_| parse::properties(frame)),
        container: question.container.as_ref().map(|_| contained(frame)),
        lines,
        more,
        next,
    }
}

fn contained(frame: &Frame) -> Result<Contained, Unknown> {
    let text = parse::line(frame, "container.state")?;
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [id, running, exit, out_of_memory] => Ok(Contained {
            id: id.to_owned(),
            running: running == "true",
            exit: exit.to_owned(),
            out_of_memory: out_of_memory == "true",
        }),
        _ => Err(parse::odd("container.state", &text)),
    }
}

/// Lines that are later than `since`, which becomes the time of the last one; each begins with its time.
fn lines_after(text: &str, since: &mut String) -> Vec<String> {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let before = time(since);
    let mut out = Vec::new();
    for line in text.lines() {
        let (at, rest) = line.split_once(' ').unwrap_or((line, ""));
        match time(at) {
            Some(now) if before.is_some_and(|before| now <= before) => {}
            Some(now) => {
                if time(since).is_none_or(|last| now > last) {
                    at.clone_into(since);
                }
                out.push(rest.to_owned());
            }
            // What has no time is said by the tool itself.
            None => {}
        }
    }
    out
}

fn start(frame: &Frame) -> Start {
    let text = |name: &str| parse::text(frame, &format!("start.{name}")).ok();
    let first = |text: String| text.split_whitespace().next().map(str::to_owned);
    Start {
        made: text("pid").is_some_and(|t| !t.trim().is_empty()),
        leader: text("leader").and_then(first).and_then(|p| p.parse().ok()),
        members: text("members").unwrap_or_default().split_whitespace().filter_map(|p| p.parse().ok()).collect(),
        exit: text("exit").and_then(first),
        offset: text("offset").and_then(first).and_then(|o| o.parse().ok()),
    }
}
