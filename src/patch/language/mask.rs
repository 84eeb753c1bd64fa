//! Blanks out of a text what is no code, so that words in comments are not taken for deeds.
//!
//! Not responsible for finding anything in what is left.

use tree_sitter::{Node, Tree};

/// What stays of strings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Nothing but the code within them.
    Code,
    /// All but documentation.
    Strings,
}

/// The rows of a text with blanks in place of comments and strings. Columns stay as they are.
pub(super) fn masked(text: &str, tree: &Tree, keep: Keep) -> Vec<String> {
    let mut bytes = text.as_bytes().to_vec();
    let mut cursor = tree.root_node().walk();
    loop {
        let node = cursor.node();
        let blank = blanked(node, keep);
        if blank {
            for byte in bytes.get_mut(node.byte_range()).unwrap_or_default() {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        if !blank && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                // Whole nodes were blanked, and a node never ends within a character.
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return text.split('\n').map(|row| row.trim_end_matches('\r').to_owned()).collect();
            }
        }
    }
}

fn blanked(node: Node<'_>, keep: Keep) -> bool {
    match node.kind() {
        "comment" => true,
        "string_content" | "raw_string" | "raw_string_content" | "char_literal" | "system_lib_string" => {
            keep == Keep::Code
        }
        // A string that stands alone is documentation.
        "expression_statement" => {
            node.child_count() == 1 && node.child(0).is_some_and(|child| child.kind() == "string")
        }
        _ => false,
    }
}
