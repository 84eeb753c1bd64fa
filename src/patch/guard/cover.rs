//! Whole statements around rows of a Python file.
//!
//! Not responsible for which rows change.

use std::ops::Range;

use tree_sitter::Node;

use super::align::{Run, Sides};
use crate::patch::language::Source;

/// One side of a file with what its rows hold.
pub(super) struct Side<'s> {
    pub(super) source: &'s Source,
    /// Rows that hold code: neither blank, nor only a comment or documentation.
    code: Vec<bool>,
    /// Rows that begin within a string, whose blanks belong to its value.
    within_string: Vec<bool>,
}

/// Both sides with what differs.
pub(super) struct Both<'s> {
    pub(super) sides: &'s Sides,
    pub(super) new: Side<'s>,
    pub(super) old: Side<'s>,
}

/// Complete statements of one block.
#[derive(Clone, Debug)]
pub(super) struct Cover<'t> {
    pub(super) statements: Vec<Node<'t>>,
    /// Their rows.
    pub(super) rows: Range<usize>,
    /// The column that they begin at, in bytes.
    pub(super) column: usize,
}

impl<'s> Both<'s> {
    pub(super) fn new(sides: &'s Sides, new: Side<'s>, old: Side<'s>) -> Self {
        Self { sides, new, old }
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.sides.runs
    }

    /// The same row of the other side; only for a row that no run holds. `from_new`: the row is one of the new side.
    pub(super) fn twin_row(&self, row: usize, from_new: bool) -> usize {
        let mut at = row;
        for run in self.runs() {
            let (own, other) = if from_new { (&run.new, &run.old) } else { (&run.old, &run.new) };
            if own.end <= row {
                at = (at + other.len()).saturating_sub(own.len());
            }
        }
        at
    }

    /// The definition of the other side whose line is that of this one.
    pub(super) fn twin(&self, definition: Node<'_>, from_new: bool) -> Option<Node<'s>> {
        let row = self.twin_row(definition.start_position().row, from_new);
        let other = if from_new { &self.old } else { &self.new };
        let mut all = other.source.nodes().into_iter();
        all.find(|node| node.kind() == definition.kind() && node.start_position().row == row)
    }

    /// Whether a row differs between the sides.
    pub(super) fn is_changed(&self, row: usize, of_new: bool) -> bool {
        self.runs().iter().any(|run| if of_new { &run.new } else { &run.old }.contains(&row))
    }
}

impl<'s> Side<'s> {
    pub(super) fn new(source: &'s Source) -> Self {
        let rows = source.line_numbers().count();
        let mut side = Self { source, code: vec![false; rows], within_string: vec![false; rows] };
        let mut cursor = source.root().walk();
        loop {
            let node = cursor.node();
            let (first, last) = (node.start_position().row, node.end_position().row);
            let is_string = node.kind() == "string";
            if is_string {
                side.within_string.iter_mut().take(last + 1).skip(first + 1).for_each(|row| *row = true);
            }
            let passed = node.kind() == "comment" || is_documentation(node);
            let leaf = node.child_count() == 0 && node.start_byte() < node.end_byte();
            if !passed && (is_string || leaf) {
                side.code.iter_mut().take(last + 1).skip(first).for_each(|row| *row = true);
            }
            if !passed && cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return side;
                }
            }
        }
    }

    pub(super) fn is_code(&self, row: usize) -> bool {
        self.code.get(row).copied().unwrap_or_default()
    }

    pub(super) fn is_within_string(&self, row: usize) -> bool {
        self.within_string.get(row).copied().unwrap_or_default()
    }

    /// The row as written, without its ending.
    pub(super) fn row(&self, row: usize) -> &'s str {
        self.source.line(row as u32 + 1).unwrap_or_default()
    }

    /// The rows of code among these, from the first to the last; `None` where there is none.
    pub(super) fn code_rows(&self, rows: &Range<usize>) -> Option<Range<usize>> {
        let first = rows.clone().find(|row| self.is_code(*row))?;
        let last = rows.clone().rfind(|row| self.is_code(*row))?;
        Some(first..last + 1)
    }

    /// The fewest complete statements of one block that hold all code of these rows, not deeper than `limit`; `None`
    /// where there is no code.
    pub(super) fn cover(&self, rows: &Range<usize>, limit: usize) -> Option<Cover<'s>> {
        let code = self.code_rows(rows)?;
        let mut block = self.source.root();
        loop {
            let all = statements(block);
            let mut from = all.iter().position(|s| s.end_position().row >= code.start)?;
            let mut to = all.iter().rposition(|s| s.start_position().row < code.end)?;
            // Statements that share a row with another cannot be told apart in rows.
            while from > 0 && shares_row(&all, from) {
                from -= 1;
            }
            while to + 1 < all.len() && shares_row(&all, to + 1) {
                to += 1;
            }
            let taken = all.get(from..=to)?;
            let (first, last) = (taken.first()?, taken.last()?);
            let found = Cover {
                rows: first.start_position().row..last.end_position().row + 1,
                column: first.start_position().column,
                statements: taken.to_vec(),
            };
            let [only] = taken else { return Some(found) };
            let inner = blocks(*only).into_iter().find(|block| {
                let inner = statements(*block);
                let (Some(first), Some(last)) = (inner.first(), inner.last()) else { return false };
                first.start_position().row <= code.start
                    && last.end_position().row + 1 >= code.end
                    && first.start_position().column <= limit
                    && self.begins_row(*first)
            });
            match inner {
                Some(inner) => block = inner,
                None => return Some(found),
            }
        }
    }

    fn begins_row(&self, node: Node<'_>) -> bool {
        let at = node.start_position();
        self.row(at.row).get(..at.column).is_some_and(|before| before.trim().is_empty())
    }
}

/// The functions and classes around a node, innermost first.
pub(super) fn around(node: Node<'_>) -> Vec<Node<'_>> {
    std::iter::successors(node.parent(), Node::parent).filter(|node| is_definition(*node)).collect()
}

fn shares_row(all: &[Node<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| all.get(before));
    before.zip(all.get(at)).is_some_and(|(a, b)| a.end_position().row >= b.start_position().row)
}

/// The statements of a block.
pub(super) fn statements(block: Node<'_>) -> Vec<Node<'_>> {
    block.named_children(&mut block.walk()).filter(|child| child.kind() != "comment").collect()
}

/// The blocks of statements directly within a statement.
fn blocks(statement: Node<'_>) -> Vec<Node<'_>> {
    let mut out = Vec::new();
    let mut open: Vec<Node<'_>> = statement.named_children(&mut statement.walk()).collect();
    while let Some(node) = open.pop() {
        let of_cases = || statements(node).first().is_none_or(|first| first.kind() == "case_clause");
        if node.kind() == "block" && !of_cases() {
            out.push(node);
        } else {
            open.extend(node.named_children(&mut node.walk()));
        }
    }
    out
}

/// Whether the node is a function or a class, without its decorators.
pub(super) fn is_definition(node: Node<'_>) -> bool {
    matches!(node.kind(), "function_definition" | "class_definition")
}

/// Whether the node is the string that documents a module, class or function, alone on its rows.
fn is_documentation(node: Node<'_>) -> bool {
    if node.kind() != "expression_statement" || node.named_child_count() != 1 {
        return false;
    }
    let of = |block: Node<'_>| match block.kind() {
        "module" => true,
        "block" => block.parent().is_some_and(is_definition),
        _ => false,
    };
    let only = node.named_child(0).is_some_and(|only| only.kind() == "string");
    let Some(block) = node.parent().filter(|block| only && of(*block)) else { return false };
    let all = statements(block);
    let next = all.get(1).is_none_or(|next| next.start_position().row > node.end_position().row);
    all.first() == Some(&node) && next
}
