//! The log lines of `SGLang`, read one by one and as the story of one or more starts. Pure.
//!
//! Batch lines are read as `key: value` pairs, because their fields differ by model and version.
//! A line that cannot be read is counted, never a failure. Absence of a line is not evidence:
//! journals rotate, limit their rate and cut long lines.

use crate::serving::python_literal::{self, PyValue};
use crate::serving::server_info::is_secret;

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The server is ready.
    Ready,
    /// The resolved arguments of a start.
    ServerArgs(ServerArgs),
    /// One step of prefill or decode.
    Batch(Batch),
    /// Values that the server chose by itself, as name and value.
    Decided(Vec<(String, String)>),
    /// Numbers, such as sizes of memory pools: what they are about, then name and value.
    Figures(String, Vec<(String, String)>),
    /// systemd restarts the unit; the restart counter.
    Restarting(u32),
    /// systemd does not understand a line of a unit.
    UnitWarning(String),
    /// Nothing that this grammar knows.
    Other,
    /// A known kind of line whose content is broken.
    Damaged,
}

/// One line with what stands before its message.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Time of the server's own prefix, as written.
    pub time: Option<String>,
    /// Ranks of the prefix, such as `TP` 2.
    pub ranks: Vec<(String, u32)>,
    /// Process id of the journal's prefix: the process that opened the stream, the same for all ranks.
    pub pid: Option<u32>,
    /// What it says.
    pub said: Said,
}

/// Resolved arguments of one start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerArgs {
    /// Name and value, in the order of the line; secrets are taken out.
    pub values: Vec<(String, PyValue)>,
    /// Names of secrets that were set.
    pub withheld: Vec<String>,
    /// Whether the line was whole.
    pub complete: bool,
}

impl ServerArgs {
    /// The value of that name; `None` is *the line does not speak of it*.
    pub fn get(&self, name: &str) -> Option<&PyValue> {
        self.values.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// Which kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// One chunk of prompts.
    Prefill,
    /// A sample of the decode steps.
    Decode,
}

/// One batch line.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Which kind of step.
    pub kind: BatchKind,
    /// Name and value, in the order of the line.
    pub fields: Vec<(String, String)>,
}

impl Batch {
    /// The text of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A field as number; a percentage is divided by 100.
    pub fn number(&self, name: &str) -> Option<f64> {
        let text = self.field(name)?;
        match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|x| x / 100.0),
            None => text.parse().ok(),
        }
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Whether it is the one-token prompt of a health check.
    pub fn is_health_probe(&self) -> bool {
        self.kind == BatchKind::Prefill
            && self.count("#new-seq") == Some(1)
            && self.count("#new-token") == Some(1)
            && self.count("#cached-token") == Some(0)
    }

    /// Whether every drafted token was rejected: speculation that only costs.
    pub fn rejects_every_draft(&self) -> bool {
        self.number("accept rate") == Some(0.0)
    }
}

/// A prompt as the prefill lines show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSeen {
    /// Tokens that were computed, chunk by chunk.
    pub chunks: Vec<u64>,
    /// Tokens taken from the prefix cache.
    pub cached: u64,
}

impl PromptSeen {
    /// Prompt length in tokens.
    pub fn tokens(&self) -> u64 {
        self.cached + self.chunks.iter().sum::<u64>()
    }
}

/// Numbers that one line of a start tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Ranks of the prefix.
    pub ranks: Vec<(String, u32)>,
    /// What they are about; empty where the line does not say.
    pub about: String,
    /// Name and value.
    pub pairs: Vec<(String, String)>,
}

/// One start of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Process id of the journal, where there is one.
    pub pid: Option<u32>,
    /// Line number of the arguments, counted from 1.
    pub line: usize,
    /// Resolved arguments.
    pub args: ServerArgs,
    /// What the server chose by itself: name, value, line number.
    pub decided: Vec<(String, String, usize)>,
    /// Numbers, such as sizes of memory pools.
    pub figures: Vec<Figures>,
    /// Whether the ready line came.
    pub ready: bool,
}

/// A log as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogReading {
    /// Starts, oldest first; the last one is the current one.
    pub starts: Vec<Start>,
    /// Batches with their line number.
    pub batches: Vec<(usize, Batch)>,
    /// Highest restart counter of systemd.
    pub restarts: Option<u32>,
    /// Lines of units that systemd does not understand.
    pub unit_warnings: Vec<String>,
    /// Numbers of lines that are of a known kind and broken.
    pub damaged: Vec<usize>,
    /// Lines in all.
    pub lines: usize,
}

/// Reads one line.
pub fn read_line(line: &str) -> LogLine {
    let (pid, ident, rest) = strip_journal(line);
    let mut out = LogLine { time: None, ranks: Vec::new(), pid, said: Said::Other };
    if ident == Some("systemd") {
        out.said = systemd(rest);
        return out;
    }
    let mut overprinted = false;
    let mut message = rest;
    if let Some((before, time, ranks, after)) = stamp(rest) {
        overprinted = !before.trim().is_empty();
        out.time = Some(time.to_owned());
        out.ranks = ranks;
        message = after;
    }
    out.said = said(strip_level(message));
    if overprinted && out.said != Said::Other {
        out.said = Said::Damaged;
    }
    out
}

/// Reads a whole log.
pub fn read_log(text: &str) -> LogReading {
    let mut reading = LogReading::default();
    // Decisions are printed before the arguments of the same start.
    let mut pending: Vec<(String, String, usize)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        reading.lines = number;
        let line = read_line(line);
        let current = reading.starts.last_mut().filter(|s| !s.ready && (s.pid == line.pid || line.pid.is_none()));
        match line.said {
            Said::ServerArgs(args) => {
                if !args.complete {
                    reading.damaged.push(number);
                }
                let decided = std::mem::take(&mut pending);
                reading.starts.push(Start { pid: line.pid, line: number, args, decided, ..Start::default() });
            }
            Said::Decided(pairs) => {
                let entries = pairs.into_iter().map(|(name, value)| (name, value, number));
                match current {
                    Some(start) => start.decided.extend(entries),
                    None => pending.extend(entries),
                }
            }
            Said::Figures(about, pairs) => {
                if let Some(start) = current {
                    start.figures.push(Figures { ranks: line.ranks, about, pairs });
                }
            }
            Said::Ready => {
                if let Some(start) = current {
                    start.ready = true;
                }
            }
            Said::Batch(batch) => reading.batches.push((number, batch)),
            Said::Restarting(count) => reading.restarts = reading.restarts.max(Some(count)),
            Said::UnitWarning(text) => reading.unit_warnings.push(text),
            Said::Damaged => reading.damaged.push(number),
            Said::Other => {}
        }
    }
    if !pending.is_empty() {
        // The arguments line of this start is missing or still to come.
        reading.starts.push(Start { decided: pending, ..Start::default() });
    }
    reading
}

/// The prompts of single requests; health probes and batches of several requests are left out.
pub fn prompts(batches: &[(usize, Batch)]) -> Vec<PromptSeen> {
    let mut out: Vec<PromptSeen> = Vec::new();
    let mut still_pending = None;
    for (_, batch) in batches.iter().filter(|(_, b)| b.kind == BatchKind::Prefill && !b.is_health_probe()) {
        let (Some(1), Some(new)) = (batch.count("#new-seq"), batch.count("#new-token")) else {
            still_pending = None;
            continue;
        };
        let pending = batch.count("#pending-token").unwrap_or(0);
        match (still_pending, out.last_mut()) {
            (Some(left), Some(prompt)) if left == pending + new => prompt.chunks.push(new),
            _ => out.push(PromptSeen { chunks: vec![new], cached: batch.count("#cached-token").unwrap_or(0) }),
        }
        still_pending = (pending > 0).then_some(pending);
    }
    out
}

/// Takes `Jun 18 11:02:15 host bash[165790]: ` off: pid, identifier, rest.
fn strip_journal(line: &str) -> (Option<u32>, Option<&str>, &str) {
    let plain = (None, None, line);
    let Some((head, rest)) = line.split_once("]: ") else { return plain };
    let Some((head, pid)) = head.rsplit_once('[') else { return plain };
    let (Ok(pid), Some((place, ident))) = (pid.parse(), head.rsplit_once(' ')) else { return plain };
    let short =
        place.split_whitespace().count() == 4 && place.split_whitespace().nth(2).is_some_and(|t| t.contains(':'));
    let iso = place.split_whitespace().count() == 2 && place.contains('T');
    if short || iso { (Some(pid), Some(ident), rest) } else { plain }
}

type Stamp<'a> = (&'a str, &'a str, Vec<(String, u32)>, &'a str);

/// Finds `[2026-06-18 11:02:15 TP2]`: what stands before it, time, ranks, what follows.
fn stamp(text: &str) -> Option<Stamp<'_>> {
    let open = text.find("[20")?;
    let (inside, after) = text[open + 1..].split_once(']')?;
    let time = inside.get(..19)?;
    let shape = |i: usize, c: u8| time.as_bytes()[i] == c;
    if !(shape(4, b'-') && shape(7, b'-') && shape(13, b':') && shape(16, b':')) {
        return None;
    }
    let ranks = inside[19..]
        .split_whitespace()
        .filter_map(|word| {
            let digits = word.find(|c: char| c.is_ascii_digit())?;
            Some((word[..digits].to_owned(), word[digits..].parse().ok()?))
        })
        .collect();
    Some((&text[..open], time, ranks, after.trim_start()))
}

/// Takes `WARNING server_args.py:1252: ` off.
fn strip_level(text: &str) -> &str {
    let Some((level, rest)) = text.split_once(' ') else { return text };
    if !matches!(level, "DEBUG" | "INFO" | "WARNING" | "ERROR" | "CRITICAL") {
        return text;
    }
    match rest.split_once(": ") {
        Some((place, message)) if place.contains(".py:") && !place.contains(' ') => message,
        _ => rest,
    }
}

fn systemd(text: &str) -> Said {
    if let Some((_, counter)) = text.split_once("restart counter is at ") {
        return counter.trim_end_matches('.').parse().map_or(Said::Damaged, Said::Restarting);
    }
    let warned = text.starts_with('/') && (text.contains("ignoring") || text.contains("Unknown"));
    if warned { Said::UnitWarning(text.to_owned()) } else { Said::Other }
}

fn said(message: &str) -> Said {
    if message.contains("The server is fired up and ready to roll!") {
        return Said::Ready;
    }
    if let Some((_, call)) = message.split_once("server_args=") {
        return python_literal::call(call).map_or(Said::Damaged, |c| Said::ServerArgs(arguments(c)));
    }
    for (name, kind) in [("Prefill batch", BatchKind::Prefill), ("Decode batch", BatchKind::Decode)] {
        if let Some(at) = message.find(name) {
            let clean = at == 0;
            let fields = pairs(message[at + name.len()..].trim_start_matches([',', '.', ' ']), ": ");
            return match fields {
                Some(fields) if clean => Said::Batch(Batch { kind, fields }),
                _ => Said::Damaged,
            };
        }
    }
    let decided = decisions(message);
    if !decided.is_empty() {
        return Said::Decided(decided);
    }
    figures(message).unwrap_or(Said::Other)
}

fn arguments(call: python_literal::Call) -> ServerArgs {
    let mut args = ServerArgs { complete: call.complete, ..ServerArgs::default() };
    for (name, value) in call.arguments {
        if is_secret(&name) && value != PyValue::None {
            args.withheld.push(name);
        } else {
            args.values.push((name, value));
        }
    }
    args
}

/// `key: value` pairs split at `, `; `None` if a piece is no pair. A trailing comma is no piece.
fn pairs(text: &str, between: &str) -> Option<Vec<(String, String)>> {
    let pieces = text.trim_end().trim_end_matches(',').split(", ");
    let read = pieces.map(|piece| {
        let (name, value) = piece.split_once(between)?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    read.collect()
}

/// `about: a=1, b=2`, `about. a b=1 GB` or `a=1, b=2`.
fn figures(message: &str) -> Option<Said> {
    let at = message.find('=')?;
    let start = message[..at].rfind([':', '.', ',']).filter(|&i| message[i + 1..].starts_with(' '));
    let (about, rest) = match start {
        Some(i) => (message[..i].trim(), message[i + 1..].trim()),
        None => ("", message),
    };
    let list = pairs(&rest.trim_end_matches('.').replace(" GB. ", " GB, ").replace(" s. ", " s, "), "=")?;
    Some(Said::Figures(about.to_owned(), list))
}

/// Values that the server chose, from the words of its own announcement.
fn decisions(message: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let first_word = message.split(' ').next().unwrap_or_default();
    if first_word == "Set" && message.contains(" backends for ") {
        let group = message[4..].split(" backends for ").next().unwrap_or_default();
        let list = message.rsplit_once(": ").and_then(|(_, list)| pairs(list.trim_end_matches('.'), "="));
        for (part, value) in list.unwrap_or_default() {
            out.push((format!("{}_{part}_backend", snake(group)), value));
        }
        return out;
    }
    if matches!(first_word, "Use" | "Using") {
        let rest = message[first_word.len()..].trim_start();
        if let Some((value, name)) = rest.split_once(" as ") {
            let name: String = name.split([',', '.']).next().unwrap_or_default().split(" for ").take(1).collect();
            out.push((snake(&name), value.to_owned()));
        } else if let Some((value, _)) = rest.split_once(" attention backend") {
            out.push(("attention_backend".to_owned(), value.to_owned()));
        }
    }
    for opening in ["Setting ", "setting ", "Set "] {
        let at = match opening {
            "setting " => message.find(", setting ").map(|i| i + 2),
            _ => message.starts_with(opening).then_some(0),
        };
        let Some((name, value)) = at.and_then(|i| message[i + opening.len()..].split_once(" to ")) else { continue };
        let value = value.split([' ', ',']).next().unwrap_or_default().trim_end_matches('.');
        if !value.is_empty() && name.split(' ').count() <= 5 {
            out.push((snake(name), value.to_owned()));
        }
    }
    if let Some(what) = message.strip_prefix("Auto-detected ") {
        out.push(("auto_detected".to_owned(), what.trim_end_matches('.').to_owned()));
    }
    out
}

fn snake(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

#[cfg(test)]
#[path = "log_grammar_tests.rs"]
mod tests;
