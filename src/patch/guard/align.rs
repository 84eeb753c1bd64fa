//! Finds the hunks of a patch in the patched file, and takes them back.
//!
//! Not responsible for what the lines mean.

use std::ops::Range;

use super::Refusal;
use crate::patch::diff::{Ending, Hunk, Line, Side};

/// Both sides of a file in rows without line feeds, and the rows that differ.
pub(super) struct Sides {
    pub(super) new: Vec<String>,
    pub(super) old: Vec<String>,
    /// In order. Rows between two runs are the same on both sides.
    pub(super) runs: Vec<Run>,
}

/// Rows of the new side and those that stood in their place; one of both may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) new: Range<usize>,
    pub(super) old: Range<usize>,
}

/// Both sides of a file of which the new one is given.
///
/// # Errors
/// A hunk does not stand in the text, or could stand in several places.
pub(super) fn align(text: &str, hunks: &[&Hunk]) -> Result<Sides, Refusal> {
    let new: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let mut sides = Sides { old: Vec::new(), runs: Vec::new(), new };
    let mut at = 0;
    for hunk in hunks {
        let start = place(&sides.new, hunk, at)?;
        let before = sides.new.get(at..start).unwrap_or_default().to_vec();
        sides.old.extend(before);
        at = start;
        let mut lines = hunk.lines.as_slice();
        while let Some(first) = lines.first() {
            let same = |line: &Line| (line.side == Side::Context) == (first.side == Side::Context);
            let length = lines.iter().take_while(|line| same(line)).count();
            let (run, rest) = lines.split_at(length);
            let (from, old_from) = (at, sides.old.len());
            at += run.iter().filter(|line| line.side != Side::Removed).count();
            if first.side == Side::Context {
                // What stands in the file is taken as it stands there.
                sides.old.extend_from_slice(sides.new.get(from..at).unwrap_or_default());
            } else {
                sides.old.extend(run.iter().filter(|line| line.side == Side::Removed).map(row));
                sides.runs.push(Run { new: from..at, old: old_from..sides.old.len() });
            }
            lines = rest;
        }
    }
    let rest = sides.new.get(at..).unwrap_or_default().to_vec();
    sides.old.extend(rest);
    slide_all(&mut sides);
    Ok(sides)
}

fn row(line: &Line) -> String {
    if line.ending == Ending::CrLf { format!("{}\r", line.text) } else { line.text.clone() }
}

/// The row at which a hunk stands, not before `from`: where its header says, else the only place that has its lines.
fn place(rows: &[String], hunk: &Hunk, from: usize) -> Result<usize, Refusal> {
    let wanted: Vec<&str> = hunk.lines.iter().filter(|line| line.side != Side::Removed).map(text).collect();
    let said = (hunk.new_start as usize).saturating_sub(1);
    if !hunk.complete {
        return Err(Refusal::at(said, "the hunk is cut off"));
    }
    if wanted.is_empty() {
        return Err(Refusal::at(said, "the hunk shows no line of the patched file, so its place cannot be checked"));
    }
    let stands = |at: usize| {
        rows.get(at..at + wanted.len()).is_some_and(|rows| rows.iter().map(|r| trimmed(r)).eq(wanted.iter().copied()))
    };
    if said >= from && stands(said) {
        return Ok(said);
    }
    let mut found = (from..rows.len()).filter(|at| stands(*at));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(Refusal::at(said, "the lines of the hunk stand in several places of the file")),
        (None, _) => Err(Refusal::at(
            said,
            "the file in the checkout does not have the lines of the hunk, or a later change has",
        )),
    }
}

fn text(line: &Line) -> &str {
    trimmed(&line.text)
}

fn trimmed(row: &str) -> &str {
    row.trim_end_matches('\r')
}

/// What is only added or only removed can be shown in several ways where its ends repeat. The one is taken that begins
/// with the least indentation and not with a blank line, as a person would cut it.
fn slide_all(sides: &mut Sides) {
    for at in 0..sides.runs.len() {
        let Some(run) = sides.runs.get(at).cloned() else { continue };
        let before = at.checked_sub(1).and_then(|p| sides.runs.get(p)).map_or((0, 0), |p| (p.new.end, p.old.end));
        let after = sides.runs.get(at + 1).map_or((sides.new.len(), sides.old.len()), |n| (n.new.start, n.old.start));
        let by = match (run.new.is_empty(), run.old.is_empty()) {
            (false, true) => slide(&sides.new, &run.new, before.0, after.0),
            (true, false) => slide(&sides.old, &run.old, before.1, after.1),
            _ => 0,
        };
        let moved = |range: &Range<usize>| {
            let to = |at: usize| at.saturating_add_signed(by);
            to(range.start)..to(range.end)
        };
        if let Some(run) = sides.runs.get_mut(at) {
            *run = Run { new: moved(&run.new), old: moved(&run.old) };
        }
    }
}

/// By how many rows to move a range whose text stays the same when it is moved.
fn slide(rows: &[String], range: &Range<usize>, first: usize, end: usize) -> isize {
    let same = |a: usize, b: usize| rows.get(a).zip(rows.get(b)).is_some_and(|(a, b)| a == b);
    let up = (1..=range.start - first).take_while(|by| same(range.start - by, range.end - by)).count();
    let down = (0..end - range.end).take_while(|by| same(range.start + by, range.end + by)).count();
    let rank = |by: &isize| {
        let row = rows.get(range.start.saturating_add_signed(*by)).map(String::as_str).unwrap_or_default();
        let blank = row.trim().is_empty();
        let indent = row.len() - row.trim_start().len();
        (blank, indent, by.unsigned_abs())
    };
    (-(up as isize)..=down as isize).min_by_key(rank).unwrap_or_default()
}
