//! Which phases a change can reach, by the rules on paths, names and words.
//!
//! Not responsible for what really runs: a name is a claim of its author, and the reason says where it was read.

use std::collections::BTreeMap;

use super::changed::Changed;
use super::rules::{self, Where};
use crate::patch::gates::shown;
use crate::patch::types::{Fact, Phase, Place};

/// The phases that rules name, each with its first reason.
pub(super) fn of(path: &str, lines: &[Changed<'_>], symbols: &[Fact<String>]) -> BTreeMap<Phase, Fact<String>> {
    let mut out: BTreeMap<Phase, Fact<String>> = BTreeMap::new();
    for (rule, pattern, unless) in rules::phases() {
        if unless.as_ref().is_some_and(|unless| unless.is_match(path)) {
            continue;
        }
        let hit = match rule.place {
            Where::Path => pattern.find(path).map(|word| {
                let place = Place { path: path.to_owned(), line: None };
                (format!("the path holds `{}`", word.as_str()), place, path.to_owned())
            }),
            Where::Symbol => symbols.iter().find_map(|symbol| {
                let last = symbol.value.rsplit(['.', ':']).next().unwrap_or(&symbol.value);
                let reason = || format!("`{}` is named so", symbol.value);
                pattern.is_match(last).then(|| (reason(), symbol.place.clone(), symbol.text.clone()))
            }),
            Where::Line => lines.iter().find_map(|line| {
                let word = pattern.find(line.code)?;
                Some((format!("the line says `{}`", word.as_str().trim()), line.place(path), shown(line.raw)))
            }),
        };
        if let Some((value, place, text)) = hit {
            out.entry(rule.phase).or_insert(Fact { value, place, text });
        }
    }
    out
}
