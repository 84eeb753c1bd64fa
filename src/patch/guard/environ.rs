//! Finds where the guards get `os` from.
//!
//! Not responsible for names within functions; see `scope`.

use tree_sitter::Node;

use super::Refusal;
use super::cover::{Both, statements};
use super::pieces::Piece;
use super::{scope, write};

/// The row of the new side before which `import os` must be put; `None` where the module imports it before any guard.
///
/// # Errors
/// The module calls something else `os`, or a guard would stand before what must come first in a file.
pub(super) fn import_row(view: &Both<'_>, pieces: &[Piece]) -> Result<Option<usize>, Refusal> {
    let source = view.new.source;
    let first = pieces.iter().map(write::start).min().unwrap_or_default();
    if let Some(node) = scope::bound(&view.new, source.root()).get("os") {
        let row = node.start_position().row;
        return Err(Refusal::at(row, "the module calls something else `os`, so a guard cannot use that name"));
    }
    let all = statements(source.root());
    let has_it = |statement: &Node<'_>| {
        let row = statement.start_position().row;
        let plain = |part: Node<'_>| {
            part.kind() == "dotted_name" && matches!(source.text_of(part).split('.').next(), Some("os"))
        };
        let guarded = pieces.iter().filter_map(|piece| piece.new.as_ref()).any(|rows| rows.contains(&row));
        row < first
            && !guarded
            && statement.kind() == "import_statement"
            && statement.named_children(&mut statement.walk()).any(plain)
    };
    if all.iter().any(has_it) {
        return Ok(None);
    }
    let is_head = |(at, statement): (usize, &Node<'_>)| {
        let text = at == 0
            && statement.kind() == "expression_statement"
            && statement.named_child(0).is_some_and(|child| matches!(child.kind(), "string" | "concatenated_string"));
        text || statement.kind() == "future_import_statement"
    };
    let heads = all.iter().enumerate().take_while(|one| is_head(*one)).count();
    let behind = heads.checked_sub(1).and_then(|last| all.get(last)).map_or(0, |last| last.end_position().row + 1);
    if first < behind {
        return Err(Refusal::at(first, "the change stands before what must come first in a file"));
    }
    let next = all.get(heads).map_or(behind, |next| next.start_position().row);
    Ok(Some(next.min(first).max(behind)))
}
