//! Reads of switches in CUDA, C and C++.
//!
//! Not responsible for macros that are set when the code is built, but for those that name the card.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::{Found, Seen, names};
use crate::patch::language::Source;
use crate::patch::types::{GateDefault, GateKind};

/// The macro that says for which card code is compiled.
const ARCH: &str = "__CUDA_ARCH__";

/// Every read in a source.
pub(super) fn reads(source: &Source, path: &str) -> Vec<Found> {
    let nodes = source.nodes();
    let strings: BTreeMap<&str, &str> = nodes.iter().filter_map(|node| constant(source, *node)).collect();
    let read = |node: &Node<'_>| {
        let seen = match node.kind() {
            "call_expression" => call(source, *node, &strings)?,
            "preproc_if" | "preproc_elif" => return condition(source, path, *node),
            _ => return None,
        };
        seen.at(source, path, *node)
    };
    nodes.iter().filter_map(read).collect()
}

/// A name that holds a string, by a definition or a declaration.
fn constant<'s>(source: &'s Source, node: Node<'_>) -> Option<(&'s str, &'s str)> {
    let (name, value) = match node.kind() {
        "preproc_def" => (node.child_by_field_name("name")?, node.child_by_field_name("value")?),
        "init_declarator" => {
            let mut name = node.child_by_field_name("declarator")?;
            while let Some(inner) = name.child_by_field_name("declarator").or_else(|| pointed(name)) {
                name = inner;
            }
            (name, node.child_by_field_name("value")?)
        }
        _ => return None,
    };
    Some((source.text_of(name), unquoted(source.text_of(value))?))
}

fn pointed(node: Node<'_>) -> Option<Node<'_>> {
    (node.kind() == "pointer_declarator").then(|| node.named_child(0)).flatten()
}

fn unquoted(text: &str) -> Option<&str> {
    text.trim().strip_prefix('"')?.strip_suffix('"').filter(|text| !text.contains('"'))
}

fn call(source: &Source, node: Node<'_>, strings: &BTreeMap<&str, &str>) -> Option<Seen> {
    let function = source.text_of(node.child_by_field_name("function")?);
    let called = function.rsplit("::").next()?;
    let list = node.child_by_field_name("arguments")?;
    let arguments: Vec<&str> = list
        .named_children(&mut list.walk())
        .filter(|argument| argument.kind() != "comment")
        .map(|argument| source.text_of(argument))
        .collect();
    let first = arguments.first()?;
    let name = unquoted(first).or_else(|| strings.get(first).copied());
    if matches!(called, "getenv" | "secure_getenv") {
        let name = name.unwrap_or(first).to_owned();
        return Some(Seen { name, kind: GateKind::Environ, default: GateDefault::Unset });
    }
    let literal = name.is_some_and(names::is_variable);
    if !literal || !names::is_helper(called, literal) {
        return None;
    }
    let default = arguments.get(1).map_or(GateDefault::Unknown, |text| GateDefault::Written((*text).to_owned()));
    Some(Seen { name: name?.to_owned(), kind: GateKind::Helper, default })
}

fn condition(source: &Source, path: &str, node: Node<'_>) -> Option<Found> {
    let condition = node.child_by_field_name("condition")?;
    let text = source.text_of(condition);
    let seen = Seen { name: text.trim().to_owned(), kind: GateKind::Arch, default: GateDefault::Unknown };
    text.contains(ARCH).then(|| seen.at(source, path, condition)).flatten()
}
