//! Makes text of the lines of a hunk that a parser of whole files can read.
//!
//! Not responsible for parsing it.

use tree_sitter::Tree;

use super::Language;

const QUOTES: &str = "\"\"\"";

/// Number of blanks that all lines begin with.
pub(super) fn shared(lines: &[(u32, &str)]) -> usize {
    let filled = lines.iter().map(|(_, line)| *line).filter(|line| !line.trim().is_empty());
    filled.map(|line| line.len() - line.trim_start_matches([' ', '\t']).len()).min().unwrap_or_default()
}

/// The lines in one text, each without so many blanks.
pub(super) fn dedented(lines: &[(u32, &str)], shared: usize) -> String {
    lines.iter().map(|(_, line)| line.get(shared..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What may have to stand before the text, if it begins in the middle of a string, a list of arguments or a body, as
/// it seems to.
pub(super) fn openings(language: Language, text: &str) -> Vec<&'static str> {
    let mut openings = Vec::new();
    if language == Language::Python && text.matches(QUOTES).count() % 2 == 1 {
        openings.push(QUOTES);
    }
    let python = language == Language::Python;
    match unopened(text) {
        Some(')') if python => openings.extend(["def f(", "f("]),
        Some(')') => openings.push("void f("),
        Some(']') if python => openings.push("f = ["),
        Some('}') if python => openings.push("f = {"),
        Some('}') if language == Language::Cuda => openings.push("void f() {"),
        _ => {}
    }
    openings
}

/// The first bracket that is closed and was never opened. Brackets in strings are counted too, which costs a try.
fn unopened(text: &str) -> Option<char> {
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Some(c),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Number of places that the parser could not read.
pub(super) fn faults(tree: &Tree) -> usize {
    let mut count = 0;
    let mut cursor = tree.root_node().walk();
    loop {
        let node = cursor.node();
        count += usize::from(node.is_error() || node.is_missing());
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return count;
            }
        }
    }
}
