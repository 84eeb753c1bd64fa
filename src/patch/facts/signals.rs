//! Signals of changed lines: by words, and by what differs between a removed line and the one in its place.
//!
//! Not responsible for the rules by word, which stand in `rules`.

use std::sync::LazyLock;

use regex::Regex;

use super::changed::Changed;
use super::rules::{self, Part};
use crate::patch::gates::shown;
use crate::patch::types::{Fact, Signal};

static NUMBER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?f?)\b").ok());

/// Words that switch something off and on, as they stand in pairs.
const SWITCHES: &[(&str, &str)] = &[
    ("False", "True"),
    ("false", "true"),
    ("\"0\"", "\"1\""),
    ("'0'", "'1'"),
    ("\"false\"", "\"true\""),
    ("\"False\"", "\"True\""),
    ("\"off\"", "\"on\""),
    (":-0}", ":-1}"),
];

/// A default that switches something on: in a registry, or where a variable is read as a truth value.
static ON: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        \bEnvBool\w*\(\s*True\b
        | \b(?:get_bool_env_var|env_flag|env_bool)\(\s*["'][A-Z0-9_]+["']\s*,\s*(?:default\s*=\s*)?(?:["'](?:1|true|True|on|yes)["']|True)
        | (?:environ\.get|getenv)\(\s*["'][A-Z0-9_]+["']\s*,\s*["'](?:1|true|True|on|yes)["']\s*\)
          (?:\.\w+\(\))*\s*(?:==|!=|in\b|not\s+in\b)"#,
    )
    .ok()
});

/// Every signal of the changed lines.
pub(super) fn of(path: &str, lines: &[Changed<'_>]) -> Vec<Fact<Signal>> {
    let mut out = Vec::new();
    let mut push = |signal, line: &Changed<'_>| {
        let fact = Fact { value: signal, place: line.place(path), text: shown(line.raw) };
        if !out.contains(&fact) {
            out.push(fact);
        }
    };
    for line in lines {
        for compiled in rules::signals() {
            let text = match compiled.part {
                Part::Code => line.code,
                Part::Words => line.words,
            };
            let hits = compiled.patterns.matches(text);
            for rule in hits.iter().filter_map(|hit| compiled.rules.get(hit)) {
                if rule.path.is_empty() || rule.path.iter().any(|part| path.contains(part)) {
                    push(rule.signal, line);
                }
            }
        }
    }
    for run in lines.chunk_by(|left, right| left.run == right.run) {
        let removed: Vec<&Changed<'_>> = run.iter().filter(|line| !line.added).collect();
        for line in run.iter().filter(|line| line.added) {
            if removed.iter().any(|old| numbers_differ(old.code, line.code)) {
                push(Signal::Constant, line);
            }
            let turned = removed.iter().any(|old| turned_on(old.words, line.words));
            if turned || (on(line.words) && !removed.iter().any(|old| on(old.words))) {
                push(Signal::DefaultOn, line);
            }
        }
    }
    out
}

/// Whether two lines differ in their numbers only.
fn numbers_differ(old: &str, new: &str) -> bool {
    let Some(number) = NUMBER.as_ref() else { return false };
    old.trim() != new.trim() && number.replace_all(old.trim(), "#") == number.replace_all(new.trim(), "#")
}

/// Whether two lines differ in one word only, which gives a default and was off before.
fn turned_on(old: &str, new: &str) -> bool {
    let (old, new) = (old.trim(), new.trim());
    let gives = ["=", ":-", "env"].iter().any(|word| new.contains(word));
    gives
        && SWITCHES.iter().any(|(off, on)| {
            old.match_indices(off).any(|(at, _)| {
                let end = at + off.len();
                let (head, tail) = (old.get(..at).unwrap_or_default(), old.get(end..).unwrap_or_default());
                new.len() == head.len() + on.len() + tail.len()
                    && new.starts_with(head)
                    && new.ends_with(tail)
                    && new.get(head.len()..head.len() + on.len()) == Some(*on)
            })
        })
}

fn on(words: &str) -> bool {
    ON.as_ref().is_some_and(|pattern| pattern.is_match(words))
}
