//! Puts the statements that a patch changes under one variable: unset is the patched file, `0` is what stood there
//! before. Pure: what comes out is a text for a person to review.
//!
//! Not responsible for applying it, for getting hold of files, or for languages other than Python.

mod align;
mod check;
mod cover;
mod environ;
mod keep;
#[cfg(test)]
mod laws_tests;
mod of_patch;
mod pieces;
mod region;
mod scope;
#[cfg(test)]
mod tests;
mod write;

use thiserror::Error;

use super::diff::Hunk;
use super::language::{Language, Source};

pub use of_patch::{Outcome, Shown, of_group, variable_of};

/// A file with guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// Its text.
    pub text: String,
    /// Number of guards in it; none where all that changes may stay.
    pub guards: usize,
    /// What stays as patched whatever the variable is, and what else a reviewer should know.
    pub remarks: Vec<Note>,
}

/// Something to know about a line of the patched file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, from 1.
    pub line: u32,
    /// One clause.
    pub text: String,
}

/// Why a guard would not keep both sides.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {why}")]
pub struct Refusal {
    /// Line of the patched file, from 1.
    pub line: u32,
    /// One clause.
    pub why: String,
}

impl Refusal {
    /// `row` counts from 0.
    fn at(row: usize, why: impl Into<String>) -> Self {
        Self { line: row as u32 + 1, why: why.into() }
    }
}

/// The file with every changed run of statements under the variable. `text`: the whole patched file; `hunks`: those of
/// the patch in this file, in order.
///
/// # Errors
/// The hunks do not stand in the text, a side does not parse, or a guard would not be the same as one of the sides.
pub fn guard(text: &str, hunks: &[&Hunk], variable: &str) -> Result<Guarded, Refusal> {
    let sides = align::align(text, hunks)?;
    let first = sides.runs.first().map_or(0, |run| run.new.start);
    let read = |rows: &[String], which: &str| {
        let source = Source::whole(Language::Python, &rows.join("\n"));
        let clean = source.filter(|source| !source.root().has_error());
        clean.ok_or_else(|| Refusal::at(first, format!("the {which} file does not parse as Python")))
    };
    let (new, old) = (read(&sides.new, "patched")?, read(&sides.old, "reversed")?);
    let view = cover::Both::new(&sides, cover::Side::new(&new), cover::Side::new(&old));
    let regions = region::regions(&view)?;
    let (mut all, mut remarks) = (Vec::new(), Vec::new());
    for region in &regions {
        let found = pieces::of_region(&view, region)?;
        scope::check(&view, region, &found.pieces)?;
        all.extend(found.pieces);
        remarks.extend(found.remarks);
    }
    if all.is_empty() {
        return Ok(Guarded { text: text.to_owned(), guards: 0, remarks });
    }
    let import = environ::import_row(&view, &all)?;
    let written = write::write(&view, &all, import, variable);
    check::check(&written)?;
    Ok(Guarded { text: written.text, guards: all.len(), remarks })
}
