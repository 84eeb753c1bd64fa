//! Which conditions stand between a line and its being run.
//!
//! Not responsible for finding the reads within them.

use std::ops::Range;

use tree_sitter::Node;

use super::Found;
use crate::patch::language::Source;

/// The conditions of a source and the rows that each decides about.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    /// First and last row of each function, outer ones first.
    functions: Vec<(usize, usize)>,
    guards: Vec<Guard>,
}

#[derive(Clone, Debug)]
struct Guard {
    first: usize,
    last: usize,
    /// The function that it stands in. A function is called from elsewhere: what guards its definition guards nothing
    /// in it.
    function: Option<usize>,
    condition: Range<usize>,
}

impl Guards {
    /// Reads the conditions of a source: those of branches, and those of branches that leave, for the rest of their
    /// block.
    pub fn new(source: &Source) -> Self {
        let mut out = Self::default();
        // Open functions with their ends; nodes come in the order of the text, outer ones first.
        let mut open: Vec<(usize, usize)> = Vec::new();
        for node in source.nodes() {
            while open.last().is_some_and(|(_, end)| *end <= node.start_byte()) {
                open.pop();
            }
            let function = open.last().map(|(function, _)| *function);
            match node.kind() {
                "function_definition" => {
                    open.push((out.functions.len(), node.end_byte()));
                    out.functions.push((node.start_position().row, node.end_position().row));
                }
                "if_statement" | "elif_clause" | "while_statement" | "preproc_if" | "preproc_elif" => {
                    let Some(condition) = node.child_by_field_name("condition") else { continue };
                    let body = node.child_by_field_name("consequence").or_else(|| node.child_by_field_name("body"));
                    let after = condition.end_position().row + 1;
                    let first = body.map_or(after, |body| body.start_position().row);
                    out.push(first, node.end_position().row, function, condition);
                }
                "block" | "compound_statement" => {
                    for statement in node.named_children(&mut node.walk()) {
                        if let Some(condition) = leaving(statement) {
                            let after = statement.end_position().row + 1;
                            out.push(after, node.end_position().row, function, condition);
                        }
                    }
                }
                _ => {}
            }
        }
        out
    }

    fn push(&mut self, first: usize, last: usize, function: Option<usize>, condition: Node<'_>) {
        self.guards.push(Guard { first, last, function, condition: condition.byte_range() });
    }

    /// The reads in the conditions around a line, in the order of the text.
    pub fn reads(&self, source: &Source, found: &[Found], line: u32) -> Vec<Found> {
        let Some(row) = source.row(line) else { return Vec::new() };
        let function = self.functions.iter().rposition(|(first, last)| (*first..=*last).contains(&row));
        let around = |guard: &&Guard| guard.function == function && (guard.first..=guard.last).contains(&row);
        let spans: Vec<&Range<usize>> = self.guards.iter().filter(around).map(|guard| &guard.condition).collect();
        let inside =
            |found: &&Found| spans.iter().any(|span| span.start <= found.span.start && found.span.end <= span.end);
        found.iter().filter(inside).cloned().collect()
    }
}

/// The condition of a branch that ends by leaving its block.
fn leaving(statement: Node<'_>) -> Option<Node<'_>> {
    if statement.kind() != "if_statement" {
        return None;
    }
    let body = statement.child_by_field_name("consequence")?;
    let last = body.named_child(body.named_child_count().checked_sub(1)? as u32).unwrap_or(body);
    let leaves = |node: Node<'_>| {
        matches!(node.kind(), "return_statement" | "raise_statement" | "continue_statement" | "break_statement")
    };
    (leaves(last) || leaves(body)).then(|| statement.child_by_field_name("condition")).flatten()
}
