//! The changed lines of a hunk, without those that were only moved.
//!
//! Not responsible for what they say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::sides::Sides;
use crate::patch::diff::{Hunk, Side};
use crate::patch::language::Source;
use crate::patch::types::Place;

/// A changed line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed<'a> {
    /// Added, or taken away.
    pub(super) added: bool,
    /// Its number in the file of its side.
    pub(super) number: u32,
    /// Its place in the new file.
    pub(super) new: u32,
    /// As written.
    pub(super) raw: &'a str,
    /// Without comments and strings; as written, where the language is not read.
    pub(super) code: &'a str,
    /// Without comments.
    pub(super) words: &'a str,
    /// Number of its run: lines of a run stand together without a line of context between them.
    pub(super) run: usize,
}

impl Changed<'_> {
    /// Where it stands.
    pub(super) fn place(&self, path: &str) -> Place {
        super::place(path, self.number)
    }
}

/// The changed lines of a hunk that are not blank. A line that only got other blanks before it, such as one that an
/// `if` was put around, is not changed; one that stands elsewhere is.
pub(super) fn lines<'a>(hunk: &'a Hunk, sides: &'a Sides, index: usize) -> Vec<Changed<'a>> {
    let indented = indented(hunk);
    let mut run = 0;
    let mut out = Vec::new();
    for (at, line) in hunk.lines.iter().enumerate() {
        let added = match line.side {
            Side::Context => {
                run += 1;
                continue;
            }
            Side::Added => true,
            Side::Removed => false,
        };
        let raw = line.text.as_str();
        if raw.trim().is_empty() || indented.contains(&at) {
            continue;
        }
        let source = if added { sides.new_of(index) } else { sides.old_of(index) };
        let number = if added { line.new } else { line.old };
        let part = |read: fn(&Source, u32) -> Option<&str>| source.map_or(Some(raw), |source| read(source, number));
        let (code, words) = (part(Source::code).unwrap_or(raw), part(Source::words).unwrap_or(raw));
        out.push(Changed { added, number, new: line.new, raw, code, words, run });
    }
    out
}

/// Places of removed and added lines that are the same but for the blanks before and behind them.
fn indented(hunk: &Hunk) -> BTreeSet<usize> {
    let mut removed: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (at, line) in hunk.lines.iter().enumerate().filter(|(_, line)| line.side == Side::Removed) {
        removed.entry(line.text.trim()).or_default().push_back(at);
    }
    let mut places = BTreeSet::new();
    for (at, line) in hunk.lines.iter().enumerate().filter(|(_, line)| line.side == Side::Added) {
        let Some(old) = removed.get_mut(line.text.trim()).and_then(VecDeque::pop_front) else { continue };
        if hunk.lines.get(old).is_some_and(|old| old.text != line.text) {
            places.extend([old, at]);
        }
    }
    places
}
