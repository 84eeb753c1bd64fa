//! Reads a written file again: each guard must be one whole statement at the place of what it holds.
//!
//! Not responsible for writing it.

use super::Refusal;
use super::cover::{Side, around};
use super::pieces::name;
use super::write::Written;
use crate::patch::language::{Language, Source};

/// Checks a written file.
///
/// # Errors
/// It does not parse, or a guard was not read as it was meant.
pub(super) fn check(written: &Written) -> Result<(), Refusal> {
    let first = written.guards.first().map_or(0, |place| place.of_new);
    let source = Source::whole(Language::Python, &written.text).filter(|source| !source.root().has_error());
    let source = source.ok_or_else(|| Refusal::at(first, "the file with guards does not parse as Python"))?;
    let (nodes, side) = (source.nodes(), Side::new(&source));
    for place in &written.guards {
        let at_row = |row: usize| nodes.iter().filter(move |node| node.start_position().row == row);
        let found = at_row(place.rows.start).find(|node| node.kind() == "if_statement");
        let whole = found.is_some_and(|node| {
            let otherwise = node.children_by_field_name("alternative", &mut node.walk()).collect::<Vec<_>>();
            let row = otherwise.first().map(|node| node.start_position().row);
            node.end_position().row + 1 == place.rows.end && otherwise.len() <= 1 && row == place.otherwise
        });
        let home = found.map(|node| around(*node).into_iter().map(|around| name(&side, around)).collect::<Vec<_>>());
        if !whole || home.is_none_or(|home| home != place.home) {
            return Err(Refusal::at(place.of_new, "a guard would not hold just the statements that change"));
        }
    }
    Ok(())
}
