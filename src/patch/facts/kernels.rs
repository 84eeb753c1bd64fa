//! Kernels that a change defines, changes, launches or no longer launches.
//!
//! Not responsible for what they compute.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use tree_sitter::Node;

use super::changed::Changed;
use super::place;
use super::sides::Text;
use crate::patch::gates::shown;
use crate::patch::language::{Language, Source};
use crate::patch::types::Fact;

/// Decorators that make a kernel of a function.
pub(super) const DECORATORS: &[&str] =
    &["triton.jit", "jit", "tilelang.jit", "gluon.jit", "cute.kernel", "cute.jit", "cuda.jit", "T.prim_func"];

static LAUNCH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"([A-Za-z_]\w*(?:::\w+)*)\s*(?:<[^<>;]*(?:<[^<>;]*>[^<>;]*)*>)?\s*<<<").ok());

static TORCH_OP: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\btorch\.ops\.(\w+\.\w+)").ok());

/// A kernel that a syntax tree defines or launches, with its lines.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    first: u32,
    last: u32,
    name: String,
}

/// Every kernel of a source that its tree shows.
pub(super) fn of_tree(source: &Source) -> Vec<Kernel> {
    let nodes = source.nodes();
    let defined: BTreeSet<&str> = nodes.iter().filter_map(|node| definition(source, *node)).collect();
    let named = |node: &Node<'_>| {
        let name = definition(source, *node).or_else(|| launch(source, *node, &defined))?.to_owned();
        let (first, last) = source.lines_of(*node)?;
        Some(Kernel { first, last, name })
    };
    nodes.iter().filter_map(named).collect()
}

/// Kernels of the changed lines; on the old side for those that were taken away.
pub(super) fn touched(path: &str, lines: &[Changed<'_>], new: Option<&Text>, old: Option<&Text>) -> Vec<Fact<String>> {
    let mut out: Vec<Fact<String>> = Vec::new();
    for (added, text) in [(true, new), (false, old)] {
        let changed: Vec<&Changed<'_>> = lines.iter().filter(|line| line.added == added).collect();
        let Some(text) = text.filter(|_| !changed.is_empty()) else { continue };
        let mut found: Vec<(u32, String)> = Vec::new();
        for kernel in &text.kernels {
            let touches = changed.iter().find(|line| (kernel.first..=kernel.last).contains(&line.number));
            found.extend(touches.map(|line| (line.number, kernel.name.clone())));
        }
        for line in changed {
            found.extend(by_words(line.code).into_iter().map(|name| (line.number, name)));
        }
        found.sort();
        for (line, name) in found {
            if !out.iter().any(|fact| fact.value == name) {
                let shows = shown(text.source.line(line).unwrap_or_default());
                out.push(Fact { value: name, place: place(path, line), text: shows });
            }
        }
    }
    out
}

fn by_words(code: &str) -> Vec<String> {
    let names = |pattern: &LazyLock<Option<Regex>>| -> Vec<String> {
        let captures = pattern.iter().flat_map(|pattern| pattern.captures_iter(code));
        captures.filter_map(|capture| capture.get(1)).map(|name| name.as_str().to_owned()).collect()
    };
    [names(&LAUNCH), names(&TORCH_OP)].concat()
}

/// The name of the kernel that a node defines.
fn definition<'s>(source: &'s Source, node: Node<'_>) -> Option<&'s str> {
    match (source.language, node.kind()) {
        (Language::Python, "decorated_definition") => {
            let kernel = |child: Node<'_>| {
                let text = source.text_of(child).trim_start_matches('@');
                child.kind() == "decorator" && DECORATORS.contains(&text.split('(').next().unwrap_or(text).trim())
            };
            let decorated = node.children(&mut node.walk()).any(kernel);
            let name = node.child_by_field_name("definition")?.child_by_field_name("name")?;
            decorated.then(|| source.text_of(name))
        }
        (Language::Cuda, "function_definition") => {
            let mut declarator = node.child_by_field_name("declarator")?;
            let head = source.text_of(node).split('(').next()?;
            while let Some(inner) = declarator.child_by_field_name("declarator") {
                declarator = inner;
            }
            // Attributes such as launch bounds have brackets of their own.
            let global = head.contains("__global__");
            global.then(|| source.text_of(declarator))
        }
        _ => None,
    }
}

/// The name of the kernel that a call launches: `name[grid](…)`.
fn launch<'s>(source: &'s Source, node: Node<'_>, defined: &BTreeSet<&str>) -> Option<&'s str> {
    if source.language != Language::Python || node.kind() != "call" {
        return None;
    }
    let function = node.child_by_field_name("function").filter(|function| function.kind() == "subscript")?;
    let name = source.text_of(function.child_by_field_name("value")?);
    let name = name.rsplit('.').next().unwrap_or(name);
    let subscript = function.child_by_field_name("subscript")?;
    let grid = source.text_of(subscript);
    let launches = defined.contains(name)
        || name.contains("kernel")
        || grid.contains("grid")
        || matches!(subscript.kind(), "tuple" | "lambda");
    launches.then_some(name)
}
