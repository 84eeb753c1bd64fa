//! Compares what the layers say of one name. Pure.
//!
//! What could not be read is *unknown* and never a disagreement.

use super::cells::Said;
use super::view::View;
use crate::redact;
use crate::truth::declared::Place;
use crate::truth::observed::{Seen, SourceKind};
use crate::truth::{RowKind, RowStatus, flags};
use crate::untrusted::Untrusted;

/// Characters of a value that a note shows.
const SHOWN: usize = 120;

/// What each layer says of one name.
pub(super) struct Cells<'a> {
    pub(super) declared: Option<Said>,
    pub(super) replaced: Option<Said>,
    /// The override that the process was started from.
    pub(super) override_path: Option<String>,
    pub(super) effective: Option<Said>,
    pub(super) observed: Option<&'a Seen>,
}

/// A value as a note shows it: without secrets, without control characters, bounded.
pub(super) fn show(name: &str, value: &str) -> String {
    Untrusted::from(redact::value(name, value)).visible(SHOWN)
}

/// Two remarks in one sentence.
pub(super) fn join(note: String, more: &str) -> String {
    match (note.is_empty(), more.is_empty()) {
        (true, _) => more.to_owned(),
        (_, true) => note,
        _ => format!("{note}; {more}"),
    }
}

type Same<'s> = &'s dyn Fn(&str, &str) -> bool;

impl Cells<'_> {
    /// The value that is set, as far as the process tells it, else the files.
    pub(super) fn set(&self) -> Option<&str> {
        match self.effective.as_ref().map(Said::text) {
            Some(Ok(value)) => value,
            _ => self.declared.as_ref().and_then(|d| d.text().ok().flatten()),
        }
    }

    /// What files and process say of each other; `None` where they do not disagree.
    fn started(&self, name: &str, same: Same<'_>) -> Option<(RowStatus, String)> {
        let declared = self.declared.as_ref();
        let runs = self.effective.as_ref()?.text().ok()?;
        let equal = |a: Option<&str>, b: Option<&str>| match (a, b) {
            (Some(a), Some(b)) => a == b || same(a, b),
            (a, b) => a == b,
        };
        if let Some(said) = declared.and_then(|d| d.text().ok())
            && !equal(said, runs)
        {
            return Some(self.differing(name, runs));
        }
        if declared.is_none() {
            // Only an override speaks of it.
            return match self.replaced.as_ref().and_then(|r| r.text().ok()) {
                Some(said) if !equal(said, runs) || said.is_some() => Some(self.differing(name, runs)),
                _ => None,
            };
        }
        None
    }

    /// The process does not have what the files say: because of an override, or for no known reason.
    fn differing(&self, name: &str, runs: Option<&str>) -> (RowStatus, String) {
        let shown = runs.map_or_else(|| "absent".to_owned(), |v| format!("`{}`", show(name, v)));
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

    fn unknown(&self) -> Option<&str> {
        [&self.declared, &self.effective].into_iter().flatten().find_map(|s| s.text().err())
    }

    /// Given more than once with different values.
    fn twice(&self, name: &str) -> Option<(RowStatus, String)> {
        let said = [&self.declared, &self.effective].into_iter().flatten().find(|s| !s.also.is_empty())?;
        // A place in another file is named whole; words of a command line have no line.
        let place = |p: &Place| match (p.file == said.source, p.line) {
            (true, 0) => "before it".to_owned(),
            (true, line) => format!("line {line}"),
            (false, line) => format!("{}:{line}", p.file),
        };
        let also: Vec<String> = said.also.iter().map(|(p, v)| format!("{}: `{}`", place(p), show(name, v))).collect();
        let counts = match said.line {
            Some(line) => format!("line {line} counts; "),
            None => "the last one counts; ".to_owned(),
        };
        Some((RowStatus::GivenTwice, format!("{counts}{}", also.join(", "))))
    }

    /// How many layers speak of it.
    fn speaking(&self) -> usize {
        usize::from(self.declared.is_some())
            + usize::from(self.effective.is_some())
            + usize::from(self.observed.is_some())
    }

    /// A variable, as the layers alone tell it.
    pub(super) fn judge_variable(&self, name: &str, same: Same<'_>) -> (RowStatus, String) {
        if let Some(trouble) = self.started(name, same) {
            return trouble;
        }
        if let Some(because) = self.unknown() {
            return (RowStatus::UnknownBecause, redact::text(because));
        }
        if let Some(twice) = self.twice(name) {
            return twice;
        }
        if self.declared.is_none() && self.effective.as_ref().is_some_and(|e| e.text() == Ok(None)) {
            return (RowStatus::OneSource, "not set".into());
        }
        (if self.speaking() > 1 { RowStatus::Agrees } else { RowStatus::OneSource }, String::new())
    }

    /// A flag or a fact, with what is known of the engine.
    pub(super) fn judge_flag(&self, view: &View<'_>, key: &str, name: &str, kind: RowKind) -> (RowStatus, String) {
        let (status, note) = self.flag(view, key, name, kind);
        if status == RowStatus::Differs {
            return (status, note);
        }
        // Moments differ, so loads do not contradict each other.
        let momentary = |s: &Seen| matches!(s.kind, SourceKind::Load | SourceKind::Metrics);
        match view.seen.contradiction(key).filter(|(a, b)| a.kind != b.kind && !momentary(a) && !momentary(b)) {
            Some((first, other))
                if !known_same(view, key, &flags::shown(&first.value), &flags::shown(&other.value)) =>
            {
                let says = |s: &Seen| format!("{} says `{}`", place(s), show(name, &flags::shown(&s.value)));
                (RowStatus::Differs, join(note, &format!("{}, {}", says(first), says(other))))
            }
            _ => match self.against_log(view, key, name) {
                Some(trouble) => (RowStatus::Differs, join(note, &trouble)),
                None => (status, join(note, &asked_note(view, key, name))),
            },
        }
    }

    /// The arguments line of the log has another value than the start and than the server's own answer, and no
    /// choice of the server explains it.
    fn against_log(&self, view: &View<'_>, key: &str, name: &str) -> Option<String> {
        let asked = self.effective.as_ref()?.text().ok().flatten().filter(|a| *a != "auto")?;
        let seen = self.observed.filter(|s| s.kind <= SourceKind::Configuration && s.value != redact::MARK)?;
        let agree = |a: &str, b: &serde_json::Value| flags::same(a, b) || known_same(view, key, a, &flags::shown(b));
        let line = view
            .seen
            .all(key)
            .iter()
            .find(|s| matches!(s.kind, SourceKind::Arguments | SourceKind::NonDefaultArguments))?;
        let explained = agree(asked, &line.value)
            || flags::same_value(&line.value, &seen.value)
            || view.seen.decision(key).is_some_and(|d| flags::same(d.decided.raw(), &line.value))
            || divided(view, key, asked, line).is_some();
        let says = |s: &Seen| format!("{} says `{}`", place(s), show(name, &flags::shown(&s.value)));
        (!explained).then(|| format!("started with `{}`, {}, {}", show(name, asked), says(seen), says(line)))
    }

    fn flag(&self, view: &View<'_>, key: &str, name: &str, kind: RowKind) -> (RowStatus, String) {
        let same = |a: &str, b: &str| flags::same_text(a, b) || known_same(view, key, a, b);
        if let Some(trouble) = self.started(name, &same) {
            return trouble;
        }
        let runs = self.effective.as_ref().and_then(|e| e.text().ok());
        let declared = self.declared.as_ref().and_then(|d| d.text().ok().flatten());
        let asked = match &self.effective {
            Some(_) => runs.flatten(),
            None => declared,
        };
        if let (Some(asked), Some(seen)) = (asked, self.observed)
            && !flags::same(asked, &seen.value)
            && !known_same(view, key, asked, &flags::shown(&seen.value))
        {
            return self.resolved(view, key, name, asked, seen);
        }
        if let Some(because) = self.unknown().filter(|_| kind != RowKind::Config) {
            let note = redact::text(because);
            let more = match (declared, self.observed) {
                (Some(said), Some(seen)) if !flags::same(said, &seen.value) => {
                    let says = show(name, &flags::shown(&seen.value));
                    format!("the file has `{}`, the server says `{says}`", show(name, said))
                }
                _ => String::new(),
            };
            return (RowStatus::UnknownBecause, join(note, &more));
        }
        if let Some(twice) = self.twice(name) {
            return twice;
        }
        if kind == RowKind::Config {
            // Nobody can ask for a fact, so that only the server speaks of it.
            let chosen = self.observed.is_some_and(|s| s.kind == SourceKind::Decision);
            return (RowStatus::OneSource, if chosen { "the server's own choice".into() } else { String::new() });
        }
        if runs == Some(None) && self.declared.is_none() {
            return match self.observed {
                Some(seen) => not_given(view, key, name, seen),
                None => match view.tables().and_then(|t| t.flags.get(key)) {
                    Some(flag) if flag.default.is_some() => {
                        (RowStatus::DefaultInEffect, format!("not given; the default is `{}`", default_text(flag)))
                    }
                    _ => (RowStatus::OneSource, "not set".into()),
                },
            };
        }
        let withheld = self.observed.is_some_and(|s| s.value == redact::MARK) && self.speaking() > 1;
        let note = if withheld { "secrets are not compared" } else { "" };
        (if self.speaking() > 1 { RowStatus::Agrees } else { RowStatus::OneSource }, note.to_owned())
    }

    /// The server has something else than it was started with: by its own choice, or for no known reason.
    fn resolved(&self, view: &View<'_>, key: &str, name: &str, asked: &str, seen: &Seen) -> (RowStatus, String) {
        let has = show(name, &flags::shown(&seen.value));
        if seen.value == redact::MARK {
            return (RowStatus::Agrees, "secrets are not compared".into());
        }
        if asked == "auto" {
            return (RowStatus::OverriddenBy, format!("the server resolved `auto` to `{has}`"));
        }
        if let Some(decision) = view.seen.decision(key).filter(|d| flags::same(d.decided.raw(), &seen.value)) {
            let at = format!("{} line {}", decision.source, decision.line);
            return (
                RowStatus::OverriddenBy,
                format!("the server chose `{has}` instead of `{}`: {at}", show(name, asked)),
            );
        }
        if let Some(ranks) = divided(view, key, asked, seen) {
            return (
                RowStatus::OverriddenBy,
                format!("`{}` is divided by `dp_size` {ranks}: `{has}` a rank", show(name, asked)),
            );
        }
        let started = if self.effective.is_some() { "started with" } else { "the file has" };
        (RowStatus::Differs, format!("{started} `{}`, the server says `{has}`", show(name, asked)))
    }
}

/// What an answer says was asked for, where the server has something else.
fn asked_note(view: &View<'_>, key: &str, name: &str) -> String {
    let asked = view.seen.all(key).iter().find(|s| s.kind == SourceKind::Asked);
    asked.map_or_else(String::new, |s| format!("asked for: `{}`", show(name, &flags::shown(&s.value))))
}

/// Where a statement stands, for a note.
fn place(seen: &Seen) -> String {
    seen.line.map_or_else(|| seen.source.clone(), |line| format!("{} line {line}", seen.source))
}

fn known_same(view: &View<'_>, key: &str, a: &str, b: &str) -> bool {
    view.tables().is_some_and(|t| t.same(key, a, b))
}

fn default_text(flag: &crate::truth::knowledge::Flag) -> &str {
    flag.default.as_deref().unwrap_or("none")
}

/// With attention over data-parallel ranks, a budget for all of them is divided among them.
fn divided(view: &View<'_>, key: &str, asked: &str, seen: &Seen) -> Option<u64> {
    let shared = matches!(key, "chunked_prefill_size" | "max_running_requests" | "max_prefill_tokens");
    let number = |name: &str| view.seen.value(name).and_then(|s| s.value.as_u64());
    let dp = number("dp_size").filter(|dp| *dp > 1)?;
    let whole: u64 = asked.parse().ok()?;
    (shared && seen.value.as_u64()?.checked_mul(dp)? == whole).then_some(dp)
}

/// A value that nobody gave: the default, or what became of it.
fn not_given(view: &View<'_>, key: &str, name: &str, seen: &Seen) -> (RowStatus, String) {
    let has = show(name, &flags::shown(&seen.value));
    let chosen = view.seen.decision(key).filter(|d| flags::same(d.decided.raw(), &seen.value));
    let at = chosen.map(|d| format!(": {} line {}", d.source, d.line));
    let Some(flag) = view.tables().and_then(|t| t.flags.get(key)) else {
        return match at {
            Some(at) => (RowStatus::OverriddenBy, format!("not given; the server chose `{has}`{at}")),
            None => (RowStatus::DefaultInEffect, "default in effect".into()),
        };
    };
    let default = flag.default.as_deref();
    if default.map_or(seen.value.is_null(), |d| flags::same(d, &seen.value)) {
        return (RowStatus::DefaultInEffect, "default in effect".into());
    }
    if let Some(at) = at {
        return (
            RowStatus::OverriddenBy,
            format!("not given, default `{}`; the server chose `{has}`{at}", default_text(flag)),
        );
    }
    match default {
        None | Some("auto") => {
            (RowStatus::DefaultInEffect, format!("default in effect: `{}` became `{has}`", default_text(flag)))
        }
        // The table may be of another version than the server, so that only the two values are said.
        Some(default) if flag.span.covers(view.version.as_deref()) != Some(true) => {
            (RowStatus::OneSource, format!("not given; the server has `{has}`, the default known here is `{default}`"))
        }
        Some(default) => {
            (RowStatus::OverriddenBy, format!("not given; the server has `{has}` instead of its default `{default}`"))
        }
    }
}
