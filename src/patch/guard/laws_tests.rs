//! What holds for every guard: with the variable as it is it is the patched file, with `0` the one before.
//!
//! Programs are drawn as trees of statements; the patch is a few edits of such a tree.

use proptest::prelude::*;

use super::cover::Side;
use super::tests::hunks;
use super::{Guarded, guard};
use crate::patch::language::{Language, Source};

pub(super) const NAME: &str = "PATCHBENCH_P";

/// Which branch of the guards is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    Patched,
    Before,
}

/// The file with each guard in place of which one of its branches stands.
pub(super) fn resolved(text: &str, branch: Branch) -> String {
    let mut rows: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let source = Source::whole(Language::Python, text).unwrap();
    let side = Side::new(&source);
    let head = format!("if os.environ.get(\"{NAME}\", \"1\")");
    let mut guards: Vec<_> = source.nodes();
    guards.retain(|node| node.kind() == "if_statement" && source.text_of(*node).starts_with(&head));
    for node in guards.into_iter().rev() {
        let (first, end) = (node.start_position().row, node.end_position().row + 1);
        let otherwise = node.child_by_field_name("alternative").map(|other| other.start_position().row);
        let turned = rows[first].contains("!= \"1\"");
        let kept = if (branch == Branch::Patched) == turned {
            otherwise.map_or(end, |row| row + 1)..end
        } else {
            first + 1..otherwise.unwrap_or(end)
        };
        let unit = if rows[first].starts_with('\t') { "\t" } else { "    " };
        let dedented = |row: usize| {
            let text = &rows[row];
            let stays = text.trim().is_empty() || side.is_within_string(row);
            if stays { text.clone() } else { text.strip_prefix(unit).unwrap().to_owned() }
        };
        let body: Vec<String> = kept.map(dedented).collect();
        rows.splice(first..end, body);
    }
    rows.join("\n")
}

/// Rows without comments, blank rows, and the import that guards need.
pub(super) fn code(text: &str) -> Vec<String> {
    let rows = text.split('\n').map(str::trim_end);
    let kept = rows.filter(|row| !row.trim().is_empty() && !row.trim().starts_with('#') && *row != "import os");
    kept.map(str::to_owned).collect()
}

pub(super) fn holds(old: &str, new: &str, guarded: &Guarded) {
    let text = &guarded.text;
    assert_eq!(code(&resolved(text, Branch::Patched)), code(new), "patched\n{text}");
    assert_eq!(code(&resolved(text, Branch::Before)), code(old), "before\n{text}");
}

#[derive(Clone, Debug)]
enum Node {
    Plain(u8),
    Long(u8),
    If(u8, Vec<Node>, Vec<Node>),
    While(u8, Vec<Node>),
    Try(Vec<Node>, Vec<Node>),
    With(u8, Vec<Node>),
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let leaf = prop_oneof![3 => (0..6_u8).prop_map(Node::Plain), 1 => (0..6_u8).prop_map(Node::Long)];
    let node = leaf.prop_recursive(3, 24, 3, |inner| {
        let some = prop::collection::vec(inner.clone(), 1..3);
        let any = prop::collection::vec(inner, 0..3);
        prop_oneof![
            (0..6_u8, some.clone(), any).prop_map(|(c, a, b)| Node::If(c, a, b)),
            (0..6_u8, some.clone()).prop_map(|(c, a)| Node::While(c, a)),
            (some.clone(), some.clone()).prop_map(|(a, b)| Node::Try(a, b)),
            (0..6_u8, some).prop_map(|(c, a)| Node::With(c, a)),
        ]
    });
    prop::collection::vec(node, 1..6)
}

fn write(nodes: &[Node], depth: usize, out: &mut String) {
    let indent = "    ".repeat(depth);
    let line = |text: String, out: &mut String| out.extend([indent.as_str(), &text, "\n"]);
    for node in nodes {
        match node {
            Node::Plain(n) => line(format!("call({n})"), out),
            Node::Long(n) => {
                line(format!("call({n},  # why"), out);
                line("    2, '''x".to_owned(), out);
                out.push_str("  y''')\n");
            }
            Node::If(c, a, b) => {
                line(format!("if c({c}):"), out);
                write(a, depth + 1, out);
                if !b.is_empty() {
                    line("else:".to_owned(), out);
                    write(b, depth + 1, out);
                }
            }
            Node::While(c, a) => {
                line(format!("while c({c}):"), out);
                write(a, depth + 1, out);
            }
            Node::Try(a, b) => {
                line("try:".to_owned(), out);
                write(a, depth + 1, out);
                line("except E:".to_owned(), out);
                write(b, depth + 1, out);
            }
            Node::With(c, a) => {
                line(format!("with c({c}):"), out);
                write(a, depth + 1, out);
            }
        }
    }
}

/// What is done to the tree: where, what, and with which number.
type Edit = (prop::sample::Index, u8, u8);

fn edited(mut nodes: Vec<Node>, edits: &[Edit]) -> Vec<Node> {
    for (at, what, n) in edits {
        let count = count(&nodes);
        if let Some(at) = (count > 0).then(|| at.index(count)) {
            edit(&mut nodes, &mut { at }, *what, *n);
        }
    }
    nodes
}

fn count(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| 1 + parts(node).into_iter().map(|part| count(part)).sum::<usize>()).sum()
}

fn parts(node: &Node) -> Vec<&Vec<Node>> {
    match node {
        Node::Plain(_) | Node::Long(_) => vec![],
        Node::If(_, a, b) | Node::Try(a, b) => vec![a, b],
        Node::While(_, a) | Node::With(_, a) => vec![a],
    }
}

/// Edits the node that is `left` nodes away; a block is never left empty.
fn edit(nodes: &mut Vec<Node>, left: &mut usize, what: u8, n: u8) -> bool {
    for at in 0..nodes.len() {
        if *left == 0 {
            let node = nodes[at].clone();
            match what % 6 {
                0 => nodes[at] = Node::Plain(n),
                1 => nodes.insert(at, Node::Plain(n)),
                2 if nodes.len() > 1 => _ = nodes.remove(at),
                3 => nodes[at] = Node::If(n, vec![node], vec![]),
                4 => nodes[at] = Node::Try(vec![node], vec![Node::Plain(n)]),
                _ => {
                    let inner = parts(&node).first().map(|part| (*part).clone());
                    let inner = inner.unwrap_or_else(|| vec![Node::Long(n)]);
                    nodes.splice(at..=at, inner);
                }
            }
            return true;
        }
        *left -= 1;
        let parts = match &mut nodes[at] {
            Node::Plain(_) | Node::Long(_) => vec![],
            Node::If(_, a, b) | Node::Try(a, b) => vec![a, b],
            Node::While(_, a) | Node::With(_, a) => vec![a],
        };
        for part in parts {
            if edit(part, left, what, n) {
                return true;
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_edit_of_a_function_can_be_guarded_and_both_branches_are_the_two_files(
        old in nodes(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..6_u8, 0..9_u8), 1..5),
    ) {
        let file = |nodes: &[Node]| {
            let mut text = "import torch\n\ndef f(self):\n".to_owned();
            write(nodes, 1, &mut text);
            text.push_str("\ndef g():\n    call(1)\n");
            text
        };
        let (old, new) = (file(&old), file(&edited(old.clone(), &edits)));
        let patch = hunks(&old, &new);
        let guarded = guard(&new, &patch.iter().collect::<Vec<_>>(), NAME);
        match guarded {
            Ok(guarded) => holds(&old, &new, &guarded),
            // Where the end of the function repeats what follows, the diff may be cut within the next one.
            Err(refusal) => prop_assert!(refusal.why.contains("`g`"), "{refusal}\n{old}\n{new}"),
        }
    }
}
