//! Reads of variables in scripts.
//!
//! Not responsible for variables that the script gives itself, and for what `export` and assignments write.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::{Found, Seen, names};
use crate::patch::language::Source;
use crate::patch::types::{GateDefault, GateKind};

/// Every read in a source.
pub(super) fn reads(source: &Source, path: &str) -> Vec<Found> {
    let nodes = source.nodes();
    let own: BTreeSet<&str> = nodes.iter().filter_map(|node| assigned(source, *node)).collect();
    nodes.iter().filter_map(|node| read(source, *node, &own)?.at(source, path, *node)).collect()
}

/// The name that a node gives a value without looking at an older one.
fn assigned<'s>(source: &'s Source, node: Node<'_>) -> Option<&'s str> {
    match node.kind() {
        "variable_assignment" => {
            let name = source.text_of(node.child_by_field_name("name")?);
            let value = node.child_by_field_name("value").map(|value| source.text_of(value)).unwrap_or_default();
            // `X=${X:-1}` hands on what the environment says.
            (!value.contains(&format!("${{{name}")) && !value.contains(&format!("${name}"))).then_some(name)
        }
        "for_statement" => node.child_by_field_name("variable").map(|name| source.text_of(name)),
        _ => None,
    }
}

fn read(source: &Source, node: Node<'_>, own: &BTreeSet<&str>) -> Option<Seen> {
    let text = source.text_of(node);
    let (name, default) = match node.kind() {
        "simple_expansion" => (text.strip_prefix('$')?, GateDefault::Unknown),
        "expansion" => expansion(text.strip_prefix("${")?.strip_suffix('}')?)?,
        _ => return None,
    };
    // Without a default, only a name in capitals that the script never sets can come from outside.
    let said = default != GateDefault::Unknown;
    let reads = names::is_variable(name) && name.len() > 1 && !own.contains(name);
    let reads = reads || (said && !own.contains(name) && is_name(name));
    reads.then(|| Seen { name: name.to_owned(), kind: GateKind::Environ, default })
}

/// The name and default within `${…}`; `None` where it is a length, a list or a pattern.
fn expansion(inner: &str) -> Option<(&str, GateDefault)> {
    let end = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len());
    let (name, rest) = inner.split_at_checked(end).filter(|(name, _)| is_name(name))?;
    if rest.is_empty() {
        return Some((name, GateDefault::Unknown));
    }
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let default = match (rest.bytes().next()?, rest.get(1..)?) {
        (b'-' | b'=', "") | (b'+', _) => GateDefault::Unset,
        (b'-' | b'=', text) => GateDefault::Written(text.to_owned()),
        (b'?', _) => GateDefault::Required,
        _ => return None,
    };
    Some((name, default))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
