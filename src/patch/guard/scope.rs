//! Refuses guards that would change what a name means: Python decides for a whole function which names are its own, and
//! whether it is a generator, so that a branch which is not taken counts too.
//!
//! Not responsible for what is guarded.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use super::Refusal;
use super::cover::{Both, Side, around, is_definition};
use super::pieces::{Piece, name};
use super::region::Region;

/// Checks the guards of a region.
///
/// # Errors
/// One side would not be what it is without the guard.
pub(super) fn check<'s>(view: &Both<'s>, region: &Region<'s>, pieces: &[Piece]) -> Result<(), Refusal> {
    let row = region.new.start;
    let (of_new, side, cover) = match (&region.new_cover, &region.old_cover) {
        (Some(cover), _) => (true, &view.new, cover),
        (None, Some(cover)) => (false, &view.old, cover),
        (None, None) => return Ok(()),
    };
    let Some(first) = cover.statements.first().filter(|_| !pieces.is_empty()) else { return Ok(()) };
    let outer = around(*first);
    for definition in &outer {
        if bound(side, *definition).contains_key("os") {
            let name = name(side, *definition);
            return Err(Refusal::at(row, format!("`os` is a name of its own in `{name}`, so the guard cannot use it")));
        }
    }
    let Some(function) = outer.first().filter(|inner| inner.kind() == "function_definition") else { return Ok(()) };
    let Some(twin) = view.twin(*function, of_new) else {
        return Err(Refusal::at(row, format!("`{}` is not found on the other side", name(side, *function))));
    };
    let (new, old) = if of_new { (*function, twin) } else { (twin, *function) };
    same_scope(view, row, new, old)?;
    for (side, cover) in [(&view.new, &region.new_cover), (&view.old, &region.old_cover)] {
        let declared = |node: &Node<'_>| matches!(node.kind(), "global_statement" | "nonlocal_statement");
        let statements = cover.iter().flat_map(|cover| &cover.statements);
        if let Some(node) = statements.flat_map(|s| own(*s)).find(declared) {
            let text = side.source.text_of(node);
            return Err(Refusal::at(row, format!("`{text}` holds for the whole function, whichever branch it is in")));
        }
    }
    Ok(())
}

fn same_scope<'s>(view: &Both<'s>, row: usize, new: Node<'s>, old: Node<'s>) -> Result<(), Refusal> {
    let name = name(&view.new, new);
    let yields = |function: Node<'s>| own(function).iter().any(|node| node.kind() == "yield");
    if yields(new) != yields(old) {
        return Err(Refusal::at(row, format!("`{name}` is a generator on one side alone")));
    }
    let (now, before) = (bound(&view.new, new), bound(&view.old, old));
    let only = |a: &BTreeMap<&'s str, Node<'s>>, b: &BTreeMap<&'s str, Node<'s>>, other: &BTreeSet<&str>| {
        a.keys().find(|name| !b.contains_key(*name) && other.contains(*name)).map(|name| (*name).to_owned())
    };
    let shadowed = only(&now, &before, &words(&view.old, old)).or_else(|| only(&before, &now, &words(&view.new, new)));
    match shadowed {
        Some(word) => {
            let why = format!("`{word}` is a name of its own in `{name}` on one side alone, and the other uses it too");
            Err(Refusal::at(row, why))
        }
        None => Ok(()),
    }
}

/// Identifiers that stand for a variable within a node.
fn words<'s>(side: &Side<'s>, node: Node<'s>) -> BTreeSet<&'s str> {
    let mut out = BTreeSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let skipped = match node.kind() {
            "attribute" => node.child_by_field_name("attribute"),
            "keyword_argument" => node.child_by_field_name("name"),
            _ => None,
        };
        if node.kind() == "identifier" {
            out.insert(side.source.text_of(node));
        }
        open.extend(node.named_children(&mut node.walk()).filter(|child| Some(*child) != skipped));
    }
    out
}

/// Every node of a scope, without those of functions, classes and lambdas within it.
fn own(scope: Node<'_>) -> Vec<Node<'_>> {
    let mut out = Vec::new();
    let mut open = vec![scope];
    while let Some(node) = open.pop() {
        let closed = node != scope && (is_definition(node) || node.kind() == "lambda");
        if !closed {
            open.extend(node.named_children(&mut node.walk()));
        }
        out.push(node);
    }
    out
}

/// The names that a function, class or module binds itself, without those that it declares to be of an outer scope.
/// A plain import of `os` binds the right thing in a module.
pub(super) fn bound<'s>(side: &Side<'s>, scope: Node<'s>) -> BTreeMap<&'s str, Node<'s>> {
    let mut found: Vec<Node<'s>> = Vec::new();
    let mut outer: BTreeSet<&str> = BTreeSet::new();
    let of_module = scope.kind() == "module";
    for node in own(scope) {
        let field = |name: &str| node.child_by_field_name(name);
        match node.kind() {
            "assignment" | "augmented_assignment" | "for_statement" | "type_alias_statement" => {
                targets(field("left"), &mut found);
            }
            "named_expression" => targets(field("name"), &mut found),
            "as_pattern" => targets(field("alias"), &mut found),
            "as_pattern_target" | "delete_statement" | "case_pattern" | "keyword_pattern" => {
                targets(Some(node), &mut found);
            }
            "function_definition" | "class_definition" if node != scope => found.extend(field("name")),
            "parameters" if node.parent() == Some(scope) => parameters(node, &mut found),
            "import_statement" | "import_from_statement" => imported(side, node, of_module, &mut found),
            "global_statement" | "nonlocal_statement" => {
                outer.extend(node.named_children(&mut node.walk()).map(|name| side.source.text_of(name)));
            }
            _ => {}
        }
    }
    let named = found.into_iter().map(|node| (side.source.text_of(node), node));
    named.filter(|(name, _)| !outer.contains(name)).collect()
}

/// The identifiers that a target binds; those of `a.b` and `a[b]` are only read.
fn targets<'s>(target: Option<Node<'s>>, found: &mut Vec<Node<'s>>) {
    let mut open: Vec<Node<'_>> = target.into_iter().collect();
    while let Some(node) = open.pop() {
        match node.kind() {
            "identifier" => found.push(node),
            "attribute" | "subscript" | "call" => {}
            // A name with dots in a pattern is compared, one without them is captured.
            "dotted_name" if node.named_child_count() > 1 => {}
            _ => open.extend(node.named_children(&mut node.walk())),
        }
    }
}

fn parameters<'s>(list: Node<'s>, found: &mut Vec<Node<'s>>) {
    for parameter in list.named_children(&mut list.walk()) {
        let own = match parameter.kind() {
            "typed_parameter" => parameter.named_child(0),
            _ => parameter.child_by_field_name("name").or(Some(parameter)),
        };
        targets(own, found);
    }
}

fn imported<'s>(side: &Side<'s>, node: Node<'s>, of_module: bool, found: &mut Vec<Node<'s>>) {
    let module = node.child_by_field_name("module_name");
    for part in node.named_children(&mut node.walk()).filter(|part| Some(*part) != module) {
        let first = match part.kind() {
            "aliased_import" => part.child_by_field_name("alias"),
            "dotted_name" => part.named_child(0),
            _ => None,
        };
        let right = of_module && module.is_none() && part.kind() == "dotted_name";
        found.extend(first.filter(|first| !(right && side.source.text_of(*first) == "os")));
    }
}
