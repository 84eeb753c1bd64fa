//! What stands before the message of a log line: container, journal, process, level, time and ranks. Pure.
//!
//! Each part is taken off where it stands and left alone where it does not; nothing here is required.

use std::borrow::Cow;

/// How grave the writer of a line holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not said, or no more than information.
    #[default]
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// A line taken apart.
#[derive(Debug, Default)]
pub(super) struct Prefix<'a> {
    pub(super) pid: Option<u32>,
    pub(super) ident: Option<&'a str>,
    pub(super) component: Option<(String, u32)>,
    pub(super) level: Level,
    pub(super) time: Option<&'a str>,
    pub(super) ranks: Vec<(String, u32)>,
    /// Whether something else was printed over the beginning of the line.
    pub(super) overprinted: bool,
    pub(super) message: &'a str,
}

/// The line without colours and at most so many bytes long; whether it was cut.
pub(super) fn bounded(line: &str, max: usize) -> (Cow<'_, str>, bool) {
    let kept = &line[..floor(line, max)];
    (without_colours(kept), kept.len() < line.len())
}

/// The largest boundary of a character that is not beyond `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// Takes sequences that colour or move (`ESC [ … letter`) out; any other control character stays and stays visible.
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains("\u{1b}[") {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.find(|c: char| !c.is_ascii_digit() && !matches!(c, ';' | '?')) {
            Some(end) if part[end..].starts_with(|c: char| c.is_ascii_alphabetic()) => out.push_str(&part[end + 1..]),
            _ => {
                out.push_str("\u{1b}[");
                out.push_str(part);
            }
        }
    }
    Cow::Owned(out)
}

/// Takes a line apart.
pub(super) fn strip(line: &str) -> Prefix<'_> {
    let line = container(line.trim_end_matches('\r'));
    let (pid, ident, rest) = journal(line);
    let mut out = Prefix { pid, ident, message: rest, ..Prefix::default() };
    if ident == Some("systemd") {
        return out;
    }
    let rest = if pid.is_none() { container_time(rest) } else { rest };
    let (component, rest) = component(rest);
    out.message = rest;
    if let Some((name, _)) = &component {
        out.ranks = name.split('_').filter_map(rank).collect();
    }
    out.component = component;
    if let Some((level, time, message)) = engine(rest) {
        (out.level, out.time, out.message) = (level, Some(time), message);
        return out;
    }
    if let Some((before, time, ranks, after)) = stamp(rest) {
        out.overprinted = !before.trim().is_empty();
        (out.time, out.ranks, out.message) = (Some(time), ranks, after);
    }
    (out.level, out.message) = level(out.message);
    out
}

/// Takes `2026-04-19 12:18:36.353 | ` or `decode-1  | ` off, as container tools print it.
fn container(line: &str) -> &str {
    let Some((head, rest)) = line.split_once("| ").or_else(|| line.split_once('|').filter(|(_, r)| r.is_empty()))
    else {
        return line;
    };
    let head = head.trim_end();
    let clock = head.len() >= 19 && is_date(head) && head.bytes().all(|b| b.is_ascii_digit() || b"-:. TZ".contains(&b));
    let name = !head.is_empty() && head.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if clock || name { rest } else { line }
}

/// Takes `2026-04-19T12:18:36.353000000Z ` off.
fn container_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((head, rest)) if head.len() >= 20 && head.as_bytes()[10] == b'T' && is_date(head) => rest,
        _ => line,
    }
}

/// `2026-04-19` at the start.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10
        && bytes[..10].iter().enumerate().all(|(i, b)| match i {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        })
}

/// Takes `Jun 18 11:02:15 host bash[165790]: ` off: pid, identifier, rest.
fn journal(line: &str) -> (Option<u32>, Option<&str>, &str) {
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
    let ranks = inside[19..].split_whitespace().filter_map(rank).collect();
    Some((&text[..open], time, ranks, after.trim_start()))
}

/// `TP2`: name and number.
fn rank(word: &str) -> Option<(String, u32)> {
    let digits = word.find(|c: char| c.is_ascii_digit())?;
    Some((word[..digits].to_owned(), word[digits..].parse().ok()?))
}

/// Takes `(EngineCore_DP0 pid=207) ` off.
fn component(text: &str) -> (Option<(String, u32)>, &str) {
    let taken = || {
        let (inside, rest) = text.strip_prefix('(')?.split_once(')')?;
        let (name, pid) = inside.split_once(" pid=")?;
        Some(((name.to_owned(), pid.trim().parse().ok()?), rest.trim_start()))
    };
    match taken() {
        Some((component, rest)) => (Some(component), rest),
        None => (None, text),
    }
}

/// Takes `INFO 04-19 10:18:36 [utils.py:299] ` off, as `vLLM` writes it: level, time, message.
fn engine(text: &str) -> Option<(Level, &str, &str)> {
    let (word, rest) = text.split_once(' ')?;
    let level = level_of(word)?;
    let time = rest.get(..14)?;
    let shape = |i: usize, c: u8| time.as_bytes()[i] == c;
    if !(shape(2, b'-') && shape(5, b' ') && shape(8, b':') && shape(11, b':')) {
        return None;
    }
    let rest = rest[14..].trim_start();
    // Older versions leave the opening bracket out.
    let message = rest.split_once("] ").filter(|(place, _)| !place.contains(' ')).map_or(rest, |(_, m)| m);
    Some((level, time, message))
}

/// Takes `WARNING server_args.py:1252: ` or uvicorn's `INFO:     ` off.
fn level(text: &str) -> (Level, &str) {
    let Some((word, rest)) = text.split_once(' ') else { return (Level::Info, text) };
    if let Some(level) = word.strip_suffix(':').and_then(level_of) {
        return (level, rest.trim_start());
    }
    let Some(level) = level_of(word) else { return (Level::Info, text) };
    match rest.split_once(": ") {
        Some((place, message)) if place.contains(".py:") && !place.contains(' ') => (level, message),
        _ => (level, rest),
    }
}

fn level_of(word: &str) -> Option<Level> {
    match word {
        "DEBUG" | "INFO" => Some(Level::Info),
        "WARNING" => Some(Level::Warning),
        "ERROR" | "CRITICAL" => Some(Level::Error),
        _ => None,
    }
}
