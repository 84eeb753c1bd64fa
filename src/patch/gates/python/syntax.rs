//! Small questions about nodes of Python's tree.
//!
//! Not responsible for what reads a switch.

use tree_sitter::Node;

use crate::patch::language::Source;

/// How far up an expression is followed: a node finds its parent from the root, and nobody nests so deeply by hand.
const DEEPEST: usize = 64;

/// The arguments of a call.
#[derive(Default)]
pub(super) struct Arguments<'t> {
    /// Those without a name.
    pub(super) positional: Vec<Node<'t>>,
    /// Those with one.
    pub(super) named: Vec<(String, Node<'t>)>,
}

/// Reads the arguments of a call.
pub(super) fn arguments<'t>(source: &Source, call: Node<'t>) -> Arguments<'t> {
    let mut found = Arguments::default();
    let Some(list) = call.child_by_field_name("arguments") else { return found };
    for argument in children(list) {
        match argument.kind() {
            "comment" => {}
            "keyword_argument" => {
                let name = argument.child_by_field_name("name").map(|name| source.text_of(name).to_owned());
                let value = argument.child_by_field_name("value");
                found.named.extend(name.zip(value));
            }
            _ => found.positional.push(argument),
        }
    }
    found
}

impl<'t> Arguments<'t> {
    /// The argument at a place or of a name.
    pub(super) fn get(&self, place: usize, name: &str) -> Option<Node<'t>> {
        let named = self.named.iter().find(|(found, _)| found == name).map(|(_, value)| *value);
        self.positional.get(place).copied().filter(|node| !node.kind().ends_with("splat")).or(named)
    }
}

/// The named children of a node.
pub(super) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    node.named_children(&mut node.walk()).collect()
}

/// The text of a string without quotes; `None` where the node is none, or has code in it.
pub(super) fn literal(source: &Source, node: Node<'_>) -> Option<String> {
    let mut node = node;
    for _ in 0..DEEPEST {
        match node.kind() {
            "parenthesized_expression" => node = node.named_child(0)?,
            "string" => return plain(source, node),
            "concatenated_string" => return children(node).into_iter().map(|part| plain(source, part)).collect(),
            _ => return None,
        }
    }
    None
}

fn plain(source: &Source, node: Node<'_>) -> Option<String> {
    let parts = children(node);
    let plain = parts.iter().all(|part| matches!(part.kind(), "string_start" | "string_content" | "string_end"));
    let content = parts.iter().filter(|part| part.kind() == "string_content");
    (plain && node.kind() == "string").then(|| content.map(|part| source.text_of(*part)).collect())
}

/// The text of an expression in one line.
pub(super) fn written(source: &Source, node: Node<'_>) -> String {
    source.text_of(node).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a value is stored in the node or taken away from it, instead of being read.
pub(super) fn is_target(node: Node<'_>) -> bool {
    // Where the parser found no statement, the sign of one is believed.
    if node.next_sibling().is_some_and(|next| next.kind() == "=") {
        return true;
    }
    let mut at = node;
    for _ in 0..DEEPEST {
        let Some(parent) = at.parent() else { return false };
        match parent.kind() {
            "pattern_list" | "tuple_pattern" | "list_pattern" | "tuple" | "expression_list" => at = parent,
            "assignment" | "augmented_assignment" | "for_statement" => {
                return parent.child_by_field_name("left") == Some(at);
            }
            "delete_statement" | "del_statement" => return true,
            _ => return false,
        }
    }
    false
}

/// Whether the value of the expression is thrown away.
pub(super) fn is_statement(node: Node<'_>) -> bool {
    node.parent().is_some_and(|parent| parent.kind() == "expression_statement" && parent.named_child_count() == 1)
}

/// Whether the node is part of an expression whose truth decides something.
pub(super) fn decides(node: Node<'_>) -> bool {
    let mut at = node;
    for _ in 0..DEEPEST {
        let Some(parent) = at.parent() else { return false };
        match parent.kind() {
            "boolean_operator" | "not_operator" | "comparison_operator" | "assert_statement" | "if_clause" => {
                return true;
            }
            "if_statement" | "elif_clause" | "while_statement" => {
                return parent.child_by_field_name("condition") == Some(at);
            }
            "conditional_expression" if children(parent).get(1) == Some(&at) => return true,
            kind if kind.ends_with("_statement") || kind.ends_with("_definition") || kind == "block" => return false,
            _ => {}
        }
        at = parent;
    }
    false
}

/// Whether the node itself is what is tested for truth.
pub(super) fn is_tested(node: Node<'_>) -> bool {
    let mut at = node;
    for _ in 0..DEEPEST {
        let Some(parent) = at.parent() else { return false };
        match parent.kind() {
            "boolean_operator" | "not_operator" | "parenthesized_expression" => at = parent,
            "if_statement" | "elif_clause" | "while_statement" => {
                return parent.child_by_field_name("condition") == Some(at);
            }
            "conditional_expression" => return children(parent).get(1) == Some(&at),
            "if_clause" => return true,
            _ => return false,
        }
    }
    false
}

/// The last name of `a.b.c` or of `c`.
pub(super) fn last_name<'s>(source: &'s Source, node: Node<'_>) -> Option<&'s str> {
    match node.kind() {
        "identifier" => Some(source.text_of(node)),
        "attribute" => node.child_by_field_name("attribute").map(|name| source.text_of(name)),
        _ => None,
    }
}
