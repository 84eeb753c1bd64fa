//! Writes the file with its guards.
//!
//! Not responsible for what they hold.

use std::ops::Range;

use super::cover::{Both, Side};
use super::pieces::Piece;

/// A file with guards, and where they stand.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) guards: Vec<Place>,
}

/// Rows of one guard in the written file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// All of it.
    pub(super) rows: Range<usize>,
    /// The rows of `else:`, where it has one.
    pub(super) otherwise: Option<usize>,
    /// The row of the new side at which it stands.
    pub(super) of_new: usize,
    /// The functions and classes around it, innermost first.
    pub(super) home: Vec<String>,
}

/// Writes the new side with the pieces under the variable, and `import os` before row `import`.
pub(super) fn write(view: &Both<'_>, pieces: &[Piece], import: Option<usize>, variable: &str) -> Written {
    let rows = &view.sides.new;
    let (mut out, mut guards): (Vec<String>, Vec<Place>) = (Vec::new(), Vec::new());
    let mut left = pieces;
    let mut row = 0;
    while row < rows.len() || !left.is_empty() {
        if import == Some(row) {
            put_import(view, row, &mut out);
        }
        let mut next = row;
        while let Some((piece, rest)) = left.split_first().filter(|(piece, _)| next == row && start(piece) == row) {
            let first = out.len();
            let otherwise = put(view, piece, variable, &mut out);
            guards.push(Place { rows: first..out.len(), otherwise, of_new: row, home: piece.home.clone() });
            next = piece.new.as_ref().map_or(row, |rows| rows.end);
            left = rest;
        }
        if next == row {
            out.extend(rows.get(row).cloned());
            next += 1;
        }
        row = next;
    }
    Written { text: out.join("\n"), guards }
}

/// The row of the new side at which a guard stands.
pub(super) fn start(piece: &Piece) -> usize {
    piece.new.as_ref().map_or(piece.at, |rows| rows.start)
}

/// Writes one guard, and returns the row of its `else:`.
fn put(view: &Both<'_>, piece: &Piece, variable: &str, out: &mut Vec<String>) -> Option<usize> {
    let (indent, ending) = (&piece.indent, ending(&view.sides.new));
    let wanted = if piece.new.is_some() { "==" } else { "!=" };
    out.push(format!("{indent}if os.environ.get(\"{variable}\", \"1\") {wanted} \"1\":{ending}"));
    let unit = if indent.contains('\t') { "\t" } else { "    " };
    let mut otherwise = None;
    if let Some(new) = &piece.new {
        indented(&view.new, &view.sides.new, new, unit, out);
        if piece.old.is_some() {
            otherwise = Some(out.len());
            out.push(format!("{indent}else:{ending}"));
        }
    }
    if let Some(old) = &piece.old {
        indented(&view.old, &view.sides.old, old, unit, out);
    }
    otherwise
}

/// Copies rows one level deeper. What stands within a string stays where it is, for its blanks are part of the value.
fn indented(side: &Side<'_>, rows: &[String], range: &Range<usize>, unit: &str, out: &mut Vec<String>) {
    for (at, row) in range.clone().zip(rows.get(range.clone()).unwrap_or_default()) {
        let stays = row.trim().is_empty() || side.is_within_string(at);
        out.push(if stays { row.clone() } else { format!("{unit}{row}") });
    }
}

fn put_import(view: &Both<'_>, row: usize, out: &mut Vec<String>) {
    let ending = ending(&view.sides.new);
    out.push(format!("import os{ending}"));
    let next = view.new.row(row).trim_start();
    if !next.is_empty() && !next.starts_with("import ") && !next.starts_with("from ") {
        out.push(ending.to_owned());
    }
}

/// What the rows of a file end with before the line feed.
fn ending(rows: &[String]) -> &'static str {
    if rows.first().is_some_and(|row| row.ends_with('\r')) { "\r" } else { "" }
}
