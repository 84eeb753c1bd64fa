//! Finds the function and the classes that a row lies in.
//!
//! Not responsible for what they do.

use tree_sitter::Node;

use super::{Language, Source};

/// The name of the symbol around a row, outermost first.
pub(super) fn of_row(source: &Source, row: usize) -> Option<String> {
    match (source.language, source.whole) {
        (Language::Python, false) => by_indentation(source, row),
        (Language::Python, true) => joined(&by_tree(source, row), "."),
        (language, _) => {
            let names = by_tree(source, row);
            if !names.is_empty() || source.whole {
                return joined(&names, "::");
            }
            let indented = source.shared > 0 || source.row_text(row)?.starts_with([' ', '\t']);
            section(language, &source.section).filter(|_| indented).map(|found| found.name)
        }
    }
}

fn joined(names: &[String], by: &str) -> Option<String> {
    (!names.is_empty()).then(|| names.join(by))
}

/// The names around a row, outermost first.
fn by_tree(source: &Source, row: usize) -> Vec<String> {
    let around = source.definitions.iter().filter(|found| (found.first..=found.last).contains(&row));
    around.map(|found| found.name.clone()).collect()
}

/// A function or class of a tree.
#[derive(Clone, Debug)]
pub(super) struct Defined {
    /// Its first row, with its decorators.
    first: usize,
    last: usize,
    name: String,
}

/// Every function and class of a tree, outer ones first.
pub(super) fn definitions(source: &Source) -> Vec<Defined> {
    let mut out: Vec<Defined> = Vec::new();
    // A decorated definition stands in the tree twice.
    let mut decorated = None;
    for node in source.nodes() {
        let inner = if node.kind() == "decorated_definition" { node.child_by_field_name("definition") } else { None };
        if decorated == Some(node) {
            continue;
        }
        let Some(name) = name_of(source, inner.unwrap_or(node)) else { continue };
        decorated = inner.or(decorated);
        out.push(Defined { first: node.start_position().row, last: node.end_position().row, name });
    }
    out
}

/// The name that a node defines; `None` where it defines no function and no class.
fn name_of(source: &Source, node: Node<'_>) -> Option<String> {
    let text = |node: Node<'_>| source.text_of(node).to_owned();
    match (source.language, node.kind()) {
        (Language::Python | Language::Bash, "function_definition" | "class_definition") => {
            node.child_by_field_name("name").map(text)
        }
        (Language::Cuda, "struct_specifier" | "class_specifier") => {
            node.child_by_field_name("body")?;
            node.child_by_field_name("name").map(text)
        }
        (Language::Cuda, "function_definition") => {
            let mut declarator = node.child_by_field_name("declarator")?;
            while let Some(inner) = declarator.child_by_field_name("declarator") {
                declarator = inner;
            }
            Some(text(declarator)).filter(|name| name.len() < 200)
        }
        _ => None,
    }
}

/// What a line defines.
struct Definition {
    name: String,
    class: bool,
}

/// Walks up from a row over lines that are indented less: a hunk is seldom a tree.
fn by_indentation(source: &Source, row: usize) -> Option<String> {
    let rows: Vec<&str> = source.code.iter().map(String::as_str).collect();
    let indent = |row: &str| row.len() - row.trim_start().len();
    let line = *rows.get(row).filter(|line| !line.trim().is_empty())?;
    let mut level = indent(line);
    let mut names = Vec::new();
    let decorated = || rows.get(row + 1..)?.iter().find(|line| !line.trim_start().starts_with('@'));
    let own = if line.trim_start().starts_with('@') { decorated().copied().unwrap_or(line) } else { line };
    names.extend(definition(own).map(|found| found.name));
    let mut top_is_class = false;
    let above = rows.iter().zip(&source.numbers).take(row).filter(|(_, number)| number.is_some());
    let above: Vec<&str> = above.map(|(line, _)| *line).filter(|line| !line.trim().is_empty()).collect();
    for line in above.into_iter().rev() {
        if indent(line) >= level {
            continue;
        }
        level = indent(line);
        if let Some(found) = definition(line) {
            names.push(found.name);
            top_is_class = found.class;
        }
    }
    // The text was moved to the left by what all its lines share, so the first column may lie within a class.
    let shared = source.shared;
    if level + shared > 0 && !top_is_class {
        let outer = section(Language::Python, &source.section);
        names.extend(outer.filter(|outer| outer.class || names.is_empty()).map(|outer| outer.name));
    }
    names.reverse();
    joined(&names, ".")
}

fn definition(line: &str) -> Option<Definition> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").map_or(line, str::trim_start);
    let class = line.starts_with("class ");
    let rest = line.strip_prefix("def ").or_else(|| line.strip_prefix("class "))?;
    let name: String = rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(Definition { name, class })
}

/// What the header of a hunk says that it lies in.
fn section(language: Language, text: &str) -> Option<Definition> {
    if language == Language::Python {
        return definition(text);
    }
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '~');
    let before = match text.split_once('(') {
        Some((before, _)) => before.trim_end(),
        None if language == Language::Cuda => return None,
        None => text.trim_start().strip_prefix("function ")?.trim_end_matches([' ', '{']),
    };
    let start = before.rfind(|c: char| !word(c)).map_or(0, |at| at + 1);
    let name = before.get(start..).filter(|name| !name.is_empty())?;
    let control = ["if", "for", "while", "switch", "return"].contains(&name);
    (!control).then(|| Definition { name: name.to_owned(), class: false })
}
