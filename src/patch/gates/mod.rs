//! Finds in source text what decides at run time whether code acts: variables, registries, server arguments,
//! tests of the card, constants.
//!
//! Not responsible for the values that a running server has, or for whether a change is dangerous.

mod bash;
mod cpp;
mod guards;
mod names;
mod python;
mod registry;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::language::{Language, Source};
use super::types::{GateDefault, GateKind, GateRead, Place};

pub use guards::Guards;
pub use registry::Registry;

/// A read and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The read.
    pub read: GateRead,
    /// First and last line of the expression.
    pub lines: (u32, u32),
    /// Bytes of the expression in its source; of the test, where a constant is tested that was read elsewhere.
    pub span: Range<usize>,
}

/// Every read in a source, in the order of the text. A default that a registry gives is joined where the place of the
/// read says none.
///
/// A membership test is a read that sees whether the variable is set. A field of a registry that is only named is a
/// read too, since its value is asked for later; one that is assigned, set, overridden or cleared is not. What is
/// read under a computed name has the expression for its name.
pub fn reads(source: &Source, path: &str, registry: &Registry) -> Vec<Found> {
    let mut found = match source.language {
        Language::Python => python::reads(source, path),
        Language::Cuda => cpp::reads(source, path),
        Language::Bash => bash::reads(source, path),
    };
    found.sort_by_key(|found| (found.span.start, found.span.end));
    for found in &mut found {
        registry.join(&mut found.read);
    }
    found
}

/// Reads whose expression touches one of the lines, which are in order.
pub fn touching(found: &[Found], lines: &[u32]) -> Vec<Found> {
    let touches = |found: &&Found| {
        let (first, last) = found.lines;
        let from = lines.partition_point(|line| *line < first);
        lines.get(from).is_some_and(|line| *line <= last)
    };
    found.iter().filter(touches).cloned().collect()
}

/// The longest text of a line that is kept, in characters.
const LONGEST: usize = 200;

/// A line as a fact keeps it: trimmed and bounded.
pub(super) fn shown(line: &str) -> String {
    let line = line.trim();
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    line.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// What a reader of one language says about a node.
struct Seen {
    name: String,
    kind: GateKind,
    default: GateDefault,
}

impl Seen {
    /// Gives it its place; `None` where the node stands in no line of the file.
    fn at(self, source: &Source, path: &str, node: tree_sitter::Node<'_>) -> Option<Found> {
        let lines = source.lines_of(node)?;
        let text = shown(source.line(lines.0).unwrap_or_default());
        let place = Place { path: path.to_owned(), line: Some(lines.0) };
        let read = GateRead { name: self.name, kind: self.kind, default: self.default, place, text };
        Some(Found { read, lines, span: node.byte_range() })
    }
}
