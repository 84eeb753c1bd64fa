//! Asserts that a change adds or takes away.
//!
//! Not responsible for whether they hold.

use std::sync::LazyLock;

use regex::Regex;
use tree_sitter::Node;

use super::changed::Changed;
use super::place;
use super::sides::Text;
use crate::patch::gates::shown;
use crate::patch::language::{Language, Source};
use crate::patch::types::{Fact, Signal};

/// Calls of Python that assert something in a kernel.
pub(super) const CALLS: &[&str] = &["tl.static_assert", "tl.device_assert"];

static MACRO: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:assert|static_assert|TORCH_CHECK\w*|CHECK(?:_\w+)?|DG_\w*ASSERT|FLASHINFER_CHECK)\s*\(").ok()
});

/// What was found.
pub(super) struct Asserts {
    pub(super) added: Vec<Fact<String>>,
    pub(super) removed: Vec<Fact<Signal>>,
}

/// An assert of a source.
#[derive(Clone, Debug)]
pub(super) struct Assert {
    condition: String,
    text: String,
    first: u32,
    last: u32,
}

/// The asserts of the changed lines. One whose condition still stands on the other side was only worded anew.
pub(super) fn of(path: &str, lines: &[Changed<'_>], new: Option<&Text>, old: Option<&Text>) -> Asserts {
    let touched = |text: Option<&Text>, added: bool| -> Vec<Assert> {
        let touches = |assert: &&Assert| {
            lines.iter().any(|line| line.added == added && (assert.first..=assert.last).contains(&line.number))
        };
        text.map(|text| text.asserts.iter().filter(touches).cloned().collect()).unwrap_or_default()
    };
    let (added, removed) = (touched(new, true), touched(old, false));
    let stands = |assert: &Assert, others: &[Assert]| others.iter().any(|other| other.condition == assert.condition);
    let fact = |assert: &Assert| Fact {
        value: assert.text.clone(),
        place: place(path, assert.first),
        text: assert.text.clone(),
    };
    Asserts {
        added: added.iter().filter(|assert| !stands(assert, &removed)).map(fact).collect(),
        removed: removed
            .iter()
            .filter(|assert| !stands(assert, &added))
            .map(|assert| Fact {
                value: Signal::AssertRemoved,
                place: place(path, assert.first),
                text: assert.text.clone(),
            })
            .collect(),
    }
}

/// Every assert of a source.
pub(super) fn of_source(source: &Source) -> Vec<Assert> {
    if source.language == Language::Cuda {
        let line = |number: u32| {
            let code = source.code(number)?;
            let hit = MACRO.as_ref().is_some_and(|pattern| pattern.is_match(code));
            let text = hit.then(|| source.line(number).map(shown)).flatten()?;
            Some(Assert { condition: code.split_whitespace().collect(), text, first: number, last: number })
        };
        return source.line_numbers().filter_map(line).collect();
    }
    let read = |node: &Node<'_>| {
        let condition = condition(source, *node)?;
        let (first, last) = source.lines_of(*node)?;
        let joined: Vec<&str> = source.text_of(*node).split_whitespace().collect();
        Some(Assert { condition, text: shown(&joined.join(" ")), first, last })
    };
    source.nodes().iter().filter_map(read).collect()
}

fn condition(source: &Source, node: Node<'_>) -> Option<String> {
    let tested = match node.kind() {
        "assert_statement" => node.named_child(0)?,
        "call" if CALLS.contains(&source.text_of(node.child_by_field_name("function")?)) => {
            node.child_by_field_name("arguments")?.named_child(0)?
        }
        _ => return None,
    };
    Some(source.text_of(tested).split_whitespace().collect())
}
