//! The old and the new text of a file, as far as a diff and a checkout show them.
//!
//! Not responsible for getting hold of a checkout.

use super::asserts::{self, Assert};
use super::kernels::{self, Kernel};
use crate::patch::diff::{FileDiff, Form, Hunk, Line, Side};
use crate::patch::gates::{self, Found, Guards, Registry};
use crate::patch::language::{Language, Source};

/// A text and what its tree shows, read once for all hunks.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) source: Source,
    pub(super) kernels: Vec<Kernel>,
    pub(super) asserts: Vec<Assert>,
}

/// A new text and the reads in it.
#[derive(Clone, Debug)]
struct Read {
    text: Text,
    gates: Vec<Found>,
    guards: Guards,
}

/// Both sides of a file.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The language by the file's name; `None` is one whose syntax is not read.
    pub language: Option<Language>,
    /// The new file, where it is there and agrees with the diff.
    whole: Option<Read>,
    /// New and old side of each hunk.
    hunks: Vec<(Option<Read>, Option<Text>)>,
    /// Whether a text was given that does not agree with the diff, and so was not used.
    pub disagrees: bool,
}

impl Sides {
    /// Reads both sides. `text`: the new file from a checkout; it is used only where each line of the diff stands in it
    /// where the diff says.
    pub fn new(file: &FileDiff, text: Option<&str>) -> Self {
        let language = Language::of_path(file.path());
        let own = whole_in_diff(file);
        let given = text.filter(|text| agrees(file, text));
        let disagrees = text.is_some() && given.is_none();
        let whole = language.zip(given.or(own.as_deref())).and_then(|(language, text)| Source::whole(language, text));
        let whole = whole.map(|source| Read::new(file, source));
        let side = |hunk: &Hunk, left_out: Side, number: fn(&Line) -> u32| {
            let kept = hunk.lines.iter().filter(|line| line.side != left_out);
            let lines: Vec<(u32, &str)> = kept.map(|line| (number(line), line.text.as_str())).collect();
            language.and_then(|language| Source::fragment(language, &lines, &hunk.section))
        };
        let both = |hunk: &Hunk| {
            let new = if whole.is_some() { None } else { side(hunk, Side::Removed, |line| line.new) };
            (new.map(|source| Read::new(file, source)), side(hunk, Side::Added, |line| line.old).map(Text::new))
        };
        let hunks = file.hunks.iter().map(both).collect();
        Self { language, whole, hunks, disagrees }
    }

    fn read_of(&self, hunk: usize) -> Option<&Read> {
        self.whole.as_ref().or_else(|| self.hunks.get(hunk)?.0.as_ref())
    }

    /// The new side around a hunk.
    pub fn new_of(&self, hunk: usize) -> Option<&Source> {
        self.new_text(hunk).map(|text| &text.source)
    }

    /// Reads that touch added lines of a hunk, and reads in the conditions around lines; each with the default that
    /// stands there.
    pub fn gates_of(&self, hunk: usize, added: &[u32], around: &[u32]) -> Vec<Found> {
        let Some(Read { text, gates, guards }) = self.read_of(hunk) else { return Vec::new() };
        let mut found = gates::touching(gates, added);
        found.extend(around.iter().flat_map(|line| guards.reads(&text.source, gates, *line)));
        found
    }

    /// The old side of a hunk.
    pub fn old_of(&self, hunk: usize) -> Option<&Source> {
        self.old_text(hunk).map(|text| &text.source)
    }

    pub(super) fn new_text(&self, hunk: usize) -> Option<&Text> {
        self.read_of(hunk).map(|read| &read.text)
    }

    pub(super) fn old_text(&self, hunk: usize) -> Option<&Text> {
        self.hunks.get(hunk)?.1.as_ref()
    }
}

impl Text {
    fn new(source: Source) -> Self {
        let (kernels, asserts) = (kernels::of_tree(&source), asserts::of_source(&source));
        Self { source, kernels, asserts }
    }
}

impl Read {
    fn new(file: &FileDiff, source: Source) -> Self {
        let gates = gates::reads(&source, file.path(), &Registry::default());
        let guards = Guards::new(&source);
        Self { text: Text::new(source), gates, guards }
    }
}

/// The text of a new file, all of which stands in its diff.
fn whole_in_diff(file: &FileDiff) -> Option<String> {
    let [hunk] = file.hunks.as_slice() else { return None };
    let new = file.old.is_none() && file.form == Form::Text && hunk.complete && hunk.new_start == 1;
    new.then(|| hunk.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n"))
}

/// Whether every line of the new side stands in the text where the diff says.
fn agrees(file: &FileDiff, text: &str) -> bool {
    let rows: Vec<&str> = text.split('\n').map(|row| row.trim_end_matches('\r')).collect();
    let mut lines = file.hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.side != Side::Removed);
    lines.all(|line| {
        let row = (line.new as usize).checked_sub(1).and_then(|row| rows.get(row));
        row.is_some_and(|row| *row == line.text.trim_end_matches('\r'))
    })
}
