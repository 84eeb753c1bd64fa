//! Tells what may stay as patched whatever the variable is, because nothing that stood there before can notice it.
//!
//! Not responsible for statements that compute.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::Refusal;
use super::cover::{Cover, Side, is_definition};
use super::pieces::{decorators, is_kernel_maker};

/// Words of a file: every identifier in it.
pub(super) fn words<'s>(side: &Side<'s>) -> BTreeSet<&'s str> {
    let source = side.source;
    source.nodes().into_iter().filter(|node| node.kind() == "identifier").map(|node| source.text_of(node)).collect()
}

/// A name that an import binds, and what it is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Imported<'s> {
    module: &'s str,
    name: &'s str,
    bound: &'s str,
}

/// The names that these imports add, where they keep all that the old ones bound and the old file has no such words.
/// `None` where they are not only imports, or the old file would see the difference.
///
/// # Errors
/// An import of `__future__` changes, which holds for the whole file.
pub(super) fn imports<'s>(
    new: (&Side<'s>, &Cover<'s>),
    old: Option<(&Side<'s>, &Cover<'s>)>,
    old_words: &BTreeSet<&str>,
) -> Result<Option<Vec<&'s str>>, Refusal> {
    let all = |cover: &Cover<'_>, kind: fn(&str) -> bool| cover.statements.iter().all(|s| kind(s.kind()));
    let is_future = |kind: &str| kind == "future_import_statement";
    let covers = [Some(new.1), old.map(|(_, cover)| cover)];
    if covers.into_iter().flatten().flat_map(|cover| &cover.statements).any(|s| is_future(s.kind())) {
        return Err(Refusal::at(new.1.rows.start, "an import of `__future__` holds for the whole file"));
    }
    let is_import = |kind: &str| matches!(kind, "import_statement" | "import_from_statement");
    if !covers.into_iter().flatten().all(|cover| all(cover, is_import)) {
        return Ok(None);
    }
    let Some(now) = bound(new.0, new.1) else { return Ok(None) };
    let before = match old {
        None => BTreeSet::new(),
        Some((side, cover)) => match bound(side, cover) {
            Some(bound) => bound,
            None => return Ok(None),
        },
    };
    let added: Vec<&str> = now.difference(&before).map(|import| import.bound).collect();
    let unseen = before.is_subset(&now) && added.iter().all(|name| !old_words.contains(name));
    Ok(unseen.then_some(added))
}

/// What imports bind; `None` where one binds everything of a module.
fn bound<'s>(side: &Side<'s>, cover: &Cover<'s>) -> Option<BTreeSet<Imported<'s>>> {
    let text = |node: Node<'_>| side.source.text_of(node);
    let mut out = BTreeSet::new();
    for statement in &cover.statements {
        let module = statement.child_by_field_name("module_name");
        for part in statement.named_children(&mut statement.walk()).filter(|part| Some(*part) != module) {
            let (name, bound) = match part.kind() {
                "dotted_name" if module.is_some() => (text(part), text(part)),
                "dotted_name" => (text(part), text(part).split('.').next()?),
                "aliased_import" => (text(part.child_by_field_name("name")?), text(part.child_by_field_name("alias")?)),
                "comment" => continue,
                _ => return None,
            };
            out.insert(Imported { module: module.map(text).unwrap_or_default(), name, bound });
        }
    }
    Some(out)
}

/// The name of a function of the module that only new code can call: it is not decorated, but for what makes a kernel
/// of it, and the old file has no such word.
pub(super) fn function<'s>(side: &Side<'s>, statement: Node<'s>, old_words: &BTreeSet<&str>) -> Option<&'s str> {
    let definition = statement.child_by_field_name("definition").unwrap_or(statement);
    let plain = is_definition(definition) && definition.kind() == "function_definition";
    let of_module = statement.parent().is_some_and(|parent| parent.kind() == "module");
    let name = side.source.text_of(definition.child_by_field_name("name")?);
    let silent = decorators(side, definition).iter().all(|decorator| is_kernel_maker(decorator));
    (plain && of_module && silent && !name.starts_with("__") && !old_words.contains(name)).then_some(name)
}
