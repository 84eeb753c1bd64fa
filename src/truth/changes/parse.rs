//! Reads the past of a host out of an answer. Pure.
//!
//! `host` reads what is the host's, `target` what is a target's. What the answer does not hold becomes a gap,
//! whether it was never sent, was cut off or cannot be read; nothing is concluded from a list that is not whole.

use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;

use super::types::{Change, Gap, History, Kind};
use super::{Question, host, target};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::redact;
use crate::remote::probe::frame::{self, Frame, FrameError, Section};
use crate::remote::probe::parse as section;
use crate::remote::proc::Unknown;
use crate::untrusted::Untrusted;

/// Characters of a reason that are kept.
const REASON: usize = 240;
/// Complaints of one program that are kept.
const MOST_COMPLAINTS: usize = 20;

/// Reads the answer to a question.
///
/// # Errors
/// It is no answer at all.
pub fn parse(bytes: &[u8], question: &Question, nonce: &str) -> Result<History, FrameError> {
    let mut frame = frame::take_apart(bytes, nonce)?;
    let remarks = std::mem::take(&mut frame.diagnostics);
    let mut found = Found {
        frame: &frame,
        host: &question.host,
        // Files and logs are dated in whole seconds.
        since: Timestamp::from_second(question.since.as_second()).unwrap_or(question.since),
        target: None,
        changes: Vec::new(),
        gaps: Vec::new(),
        remarks,
    };
    if !frame.whole {
        found.gap("what the rest of the answer would have held", "the answer broke off");
    }
    let tools = frame.sections.keys().filter_map(|name| name.strip_prefix("tool."));
    tools.for_each(|tool| found.gap(format!("what `{tool}` would show"), "the program is not on the host"));
    let facts = section::host(&frame);
    let driver = host::read(&mut found, &facts);
    for (number, subject) in question.subjects.iter().enumerate() {
        found.target = Some(&subject.name);
        target::read(&mut found, &facts, number, subject);
    }
    let Found { mut changes, mut gaps, remarks, .. } = found;
    changes.sort_by_key(|c| c.at);
    let mut kept: Vec<Gap> = Vec::new();
    gaps.drain(..).for_each(|gap| {
        if !kept.contains(&gap) {
            kept.push(gap);
        }
    });
    Ok(History { facts, driver, changes, gaps: kept, remarks })
}

/// What was found so far, and where it is found.
pub(super) struct Found<'f> {
    pub(super) frame: &'f Frame,
    pub(super) host: &'f str,
    pub(super) since: Timestamp,
    pub(super) target: Option<&'f str>,
    pub(super) changes: Vec<Change>,
    pub(super) gaps: Vec<Gap>,
    pub(super) remarks: Vec<Diagnostic>,
}

impl Found<'_> {
    /// Notes a change; one before the time is none.
    pub(super) fn change(&mut self, at: Timestamp, kind: Kind, what: &str, source: &str) {
        if at >= self.since {
            self.undated(kind, what, source);
            if let Some(change) = self.changes.last_mut() {
                change.at = Some(at);
            }
        }
    }

    /// Notes a change of which only that it came since the time is known.
    pub(super) fn undated(&mut self, kind: Kind, what: &str, source: &str) {
        self.changes.push(Change {
            at: None,
            kind,
            host: self.host.to_owned(),
            target: self.target.map(str::to_owned),
            what: redacted(what).into(),
            source: Untrusted::from(source).visible(REASON),
        });
    }

    /// Notes what cannot be told.
    pub(super) fn gap(&mut self, what: impl AsRef<str>, because: impl AsRef<str>) {
        let shown = |text: &str| Untrusted::from(redacted(text)).visible(REASON);
        self.gaps.push(Gap {
            host: self.host.to_owned(),
            target: self.target.map(str::to_owned),
            what: shown(what.as_ref()),
            because: shown(because.as_ref()),
        });
    }

    /// Notes what a program said in the place of a value.
    pub(super) fn complaints(&mut self, what: &str, said: &[&str]) {
        for line in said.iter().take(MOST_COMPLAINTS) {
            self.gap(what, line);
        }
        if said.len() > MOST_COMPLAINTS {
            self.gap(what, format!("the host says so of {} more", said.len() - MOST_COMPLAINTS));
        }
    }

    /// Notes what is worth knowing and no change.
    pub(super) fn remark(&mut self, code: &str, message: &str, place: &str) {
        let shown = |text: &str| Untrusted::from(redacted(text)).visible(REASON);
        let remark = Diagnostic::warning(code, shown(message)).at(shown(place));
        self.remarks.push(Diagnostic { severity: Severity::Info, ..remark });
    }

    /// The lines of a section; a gap where they cannot be read or are not all.
    pub(super) fn lines(&mut self, name: &str, what: &str) -> Option<Vec<String>> {
        match section::bytes(self.frame, name) {
            Ok((bytes, truncated)) => {
                let text = String::from_utf8_lossy(bytes);
                let mut lines: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect();
                if truncated {
                    // The last line may be cut.
                    lines.pop();
                    self.gap(format!("all of {what}"), "there is more than was read of it");
                }
                Some(lines)
            }
            Err(Unknown(why)) => {
                self.gap(what, why);
                None
            }
        }
    }

    /// Whether a section came, in whatever form.
    pub(super) fn has(&self, name: &str) -> bool {
        self.frame.sections.contains_key(name)
    }

    /// A short whole section; `None` where it is not there, without a gap.
    pub(super) fn word(&self, name: &str) -> Option<String> {
        section::line(self.frame, name).ok()
    }

    /// The section as it came.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.frame.sections.get(name)
    }
}

static USER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(://)[^/\s@'\x22]+@").ok());

/// Without secrets; the user part of an URL goes whole, since a token may stand there without a password.
fn redacted(text: &str) -> String {
    let text = redact::text(text);
    match USER.as_ref() {
        Some(pattern) => pattern.replace_all(&text, "${1}[redacted]@").into_owned(),
        None => text,
    }
}

/// One record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    pub(super) message: String,
    pub(super) id: String,
}

/// The records among the lines of `journalctl -o json`, and what else stands there.
pub(super) fn records(lines: &[String]) -> (Vec<Record>, Vec<&str>) {
    let mut complaints = Vec::new();
    let mut records = Vec::new();
    for line in lines {
        match record(line) {
            Some(record) => records.push(record),
            None if line.starts_with("-- ") => {}
            None => complaints.push(line.as_str()),
        }
    }
    (records, complaints)
}

fn record(line: &str) -> Option<Record> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| value.get(name).and_then(|v| v.as_str().map(str::to_owned).or_else(|| letters(v)));
    let at = Timestamp::from_microsecond(text("__REALTIME_TIMESTAMP")?.parse().ok()?).ok()?;
    Some(Record { at, message: text("MESSAGE").unwrap_or_default(), id: text("MESSAGE_ID").unwrap_or_default() })
}

/// A text that the journal prints as numbers, because it is no plain text.
fn letters(value: &serde_json::Value) -> Option<String> {
    let bytes: Option<Vec<u8>> =
        value.as_array()?.iter().map(|b| b.as_u64().and_then(|b| u8::try_from(b).ok())).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

/// A file with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dated {
    /// When its content changed; programs can set it.
    pub(super) content: Timestamp,
    /// When its content, name, mode or owner changed; programs cannot set it.
    pub(super) inode: Timestamp,
    /// What it is, in `stat`'s words.
    pub(super) form: String,
    pub(super) path: String,
}

impl Dated {
    /// When and how it changed since a time.
    pub(super) fn since(&self, since: Timestamp) -> Option<(Timestamp, &'static str)> {
        let folder = self.form == "directory";
        if self.content >= since {
            return Some((self.content, if folder { "an entry was added, removed or renamed" } else { "changed" }));
        }
        let inode = "its content is dated before, and it was put there, moved, linked or given to another since";
        (self.inode >= since)
            .then_some((self.inode, if folder { "moved, or its mode or owner changed" } else { inode }))
    }
}

/// The files among the lines of `stat`, and what else stands there.
pub(super) fn dated(lines: &[String]) -> (Vec<Dated>, Vec<&str>) {
    let one = |line: &str| -> Option<Dated> {
        let mut parts = line.splitn(5, '|');
        let mut next = || parts.next();
        let (content, inode) = (seconds(next()?)?, seconds(next()?)?);
        next()?.parse::<u64>().ok()?;
        Some(Dated { content, inode, form: next()?.to_owned(), path: next()?.to_owned() })
    };
    let mut complaints = Vec::new();
    let files = lines.iter().filter_map(|l| {
        one(l).or_else(|| {
            complaints.push(l.as_str());
            None
        })
    });
    let files = files.collect();
    (files, complaints)
}

/// A time in whole seconds.
pub(super) fn seconds(text: &str) -> Option<Timestamp> {
    Timestamp::from_second(text.trim().parse().ok()?).ok()
}
