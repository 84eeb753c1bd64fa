//! The constants at the top of a Python file, each with its line.
//!
//! Not responsible for which constants there are. What could change a constant without saying so plainly, such as an
//! `if` around it, is an error: a server that computes with something else than the text says would mislead.

use tree_sitter::Node;

use crate::patch::language::{Language, Source};
use crate::serving::python_literal::{PyValue, literal};

/// `NAME = LITERAL`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    /// From 1.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: PyValue,
}

/// A line, from 1, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) line: usize,
    pub(super) reason: String,
}

impl Wrong {
    pub(super) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// Reads the assignments of a whole file in their order; imports, functions, classes and docstrings are passed over.
///
/// # Errors
/// The first line that is not UTF-8, not Python, or a statement that could change a constant unseen.
pub(super) fn assignments(bytes: &[u8]) -> Result<Vec<Assignment>, Wrong> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = bytes[..e.valid_up_to()].split(|b| *b == b'\n').count();
        Wrong::new(line, "it is not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(source) = Source::whole(Language::Python, text) else {
        return Err(Wrong::new(1, "this program cannot read Python"));
    };
    if let Some(node) = first_fault(source.root()) {
        return Err(Wrong::new(line_of(node), "it is not Python"));
    }
    let mut out = Vec::new();
    let mut cursor = source.root().walk();
    for statement in source.root().named_children(&mut cursor) {
        match statement.kind() {
            "comment"
            | "import_statement"
            | "import_from_statement"
            | "future_import_statement"
            | "function_definition"
            | "class_definition"
            | "decorated_definition" => {}
            "expression_statement" => out.extend(assignment(&source, statement)?),
            _ => return Err(not_plain(statement)),
        }
    }
    Ok(out)
}

/// The assignment of a statement; `None` is a text by itself, such as a docstring.
fn assignment(source: &Source, statement: Node<'_>) -> Result<Option<Assignment>, Wrong> {
    let plain = (statement.named_child_count() == 1).then(|| statement.named_child(0)).flatten();
    let inner = plain.ok_or_else(|| not_plain(statement))?;
    if matches!(inner.kind(), "string" | "concatenated_string") {
        return Ok(None);
    }
    let name = inner.child_by_field_name("left").filter(|left| left.kind() == "identifier");
    let (Some(name), "assignment") = (name, inner.kind()) else { return Err(not_plain(statement)) };
    let (line, name) = (line_of(statement), source.text_of(name).to_owned());
    let value = inner.child_by_field_name("right").and_then(|right| value(source, right));
    match value {
        Some(value) => Ok(Some(Assignment { line, name, value })),
        None => Err(Wrong::new(line, format!("`{name}` is set to something else than a plain value"))),
    }
}

fn value(source: &Source, right: Node<'_>) -> Option<PyValue> {
    let is_literal =
        matches!(right.kind(), "integer" | "float" | "string" | "unary_operator" | "true" | "false" | "none");
    literal(source.text_of(right)).filter(|v| is_literal && !matches!(v, PyValue::Other(_)))
}

fn not_plain(statement: Node<'_>) -> Wrong {
    Wrong::new(line_of(statement), "a statement that is not `NAME = VALUE` may change what the lab computes")
}

fn line_of(node: Node<'_>) -> usize {
    node.start_position().row + 1
}

/// The first place that is no Python.
fn first_fault(node: Node<'_>) -> Option<Node<'_>> {
    if !node.has_error() {
        return None;
    }
    let mut cursor = node.walk();
    let inside = node.children(&mut cursor).find_map(first_fault);
    inside.or_else(|| (node.is_error() || node.is_missing()).then_some(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(usize, &str, PyValue)]) {
        let found = assignments(text.as_bytes()).unwrap_or_else(|e| panic!("{e:?}: {text}"));
        let found: Vec<_> = found.iter().map(|a| (a.line, a.name.as_str(), a.value.clone())).collect();
        assert_eq!(found, expect, "{text}");
    }

    fn check_wrong(text: &str, line: usize, reason: &str) {
        let wrong = assignments(text.as_bytes()).unwrap_err();
        assert!(wrong.line == line && wrong.reason.contains(reason), "{wrong:?}: {text}");
    }

    #[test]
    fn plain_values_are_read_with_their_lines() {
        use PyValue::{Bool, Float, Int, Str};
        check("", &[]);
        check("A = 1\n", &[(1, "A", Int(1))]);
        check("A = -2  # two back\nB = 1.5", &[(1, "A", Int(-2)), (2, "B", Float(1.5))]);
        check(
            "A = True\nB = False\nC = None\n",
            &[(1, "A", Bool(true)), (2, "B", Bool(false)), (3, "C", PyValue::None)],
        );
        check("A = \"fp8_e4m3\"\nB = 'x'\n", &[(1, "A", Str("fp8_e4m3".into())), (2, "B", Str("x".into()))]);
        check("A: int = 3\r\nB=4\r\n", &[(1, "A", Int(3)), (2, "B", Int(4))]);
        check("\u{feff}A = 1\n", &[(1, "A", Int(1))]);
        check("A = 1\nA = 2\n", &[(1, "A", Int(1)), (2, "A", Int(2))]);
        check("A = 1; B = 2\n", &[(1, "A", Int(1)), (1, "B", Int(2))]);
    }

    #[test]
    fn what_is_no_constant_of_the_file_is_passed_over() {
        check("\"\"\"Text.\n\nA = 9\n\"\"\"\nA = 1\n", &[(5, "A", PyValue::Int(1))]);
        check("import torch\nfrom os import path\n\n\ndef f(\n    a,\n):\n    A = 2\n    if a:\n        B = 3\n", &[]);
        check("class C:\n    A = 2\n\n\n@wrap\ndef f():\n    pass\n\n\nA = 1\n", &[(10, "A", PyValue::Int(1))]);
        check("# A = 3\n", &[]);
    }

    #[test]
    fn what_cannot_be_followed_is_said_with_its_line() {
        check_wrong("A = 1\nif A:\n    A = 2\n", 2, "not `NAME = VALUE`");
        check_wrong("A = 1\nA += 1\n", 2, "not `NAME = VALUE`");
        check_wrong("A, B = 1, 2\n", 1, "not `NAME = VALUE`");
        check_wrong("A.x = 1\n", 1, "not `NAME = VALUE`");
        check_wrong("setup()\n", 1, "not `NAME = VALUE`");
        check_wrong("\nA = f()\n", 2, "`A` is set to something else");
        check_wrong("A = 1 + 1\n", 1, "`A` is set to something else");
        check_wrong("A = B = 1\n", 1, "`A` is set to something else");
        check_wrong("A = f\"x\"\n", 1, "`A` is set to something else");
        check_wrong("A = [1]\n", 1, "`A` is set to something else");
        check_wrong("A: int\n", 1, "`A` is set to something else");
        check_wrong("A = 1\nB = = 2\n", 2, "not Python");
        check_wrong("A = 1\n<<<<<<< ours\nA = 2\n", 2, "not Python");
    }
}
