//! What a word of a script means, as far as the script alone tells.

use std::collections::BTreeMap;

use tree_sitter::Node;

use super::{Text, arithmetic};

/// Values of variables that are known at some point of the script.
pub(super) type Known = BTreeMap<String, Text>;

/// Whether a word vanishes or splits when it is not in quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A command's word: an unquoted expansion is split at spaces.
    Word,
    /// The value of an assignment, or inside quotes: nothing is split.
    Whole,
}

/// The text of a node.
pub(super) fn text(node: Node<'_>, source: &str, known: &Known, place: Place) -> Text {
    let raw = &source[node.byte_range()];
    let unresolved = |because: String| Text::Unresolved { raw: raw.to_owned(), because };
    match node.kind() {
        "number" => Text::Known(raw.to_owned()),
        "word" | "command_name" if node.named_child_count() == 0 => plain_word(raw),
        "command_name" => node.named_child(0).map_or_else(|| plain_word(raw), |n| text(n, source, known, place)),
        "raw_string" => Text::Known(raw.trim_matches('\'').to_owned()),
        "ansi_c_string" => match ansi_c(raw) {
            Some(text) => Text::Known(text),
            None => unresolved(format!("`{raw}` needs the shell")),
        },
        "string" => quoted(node, source, known),
        "concatenation" => joined(node, source, known, place),
        "simple_expansion" | "expansion" => {
            let value = expansion(node, source, known);
            match &value {
                Text::Known(t)
                    if place == Place::Word && (t.is_empty() || t.contains([' ', '\t', '\n', '*', '?', '['])) =>
                {
                    unresolved(format!("`{raw}` is split into words"))
                }
                _ => value,
            }
        }
        "command_substitution" => unresolved(format!("`{raw}` is the output of a command")),
        "arithmetic_expansion" => match arithmetic::evaluate(raw, known) {
            Ok(number) => Text::Known(number.to_string()),
            Err(because) => unresolved(format!("`{raw}` is computed{because}")),
        },
        _ => unresolved(format!("`{raw}` needs the shell")),
    }
}

/// `$'text'` with the escapes that stand for one character; `None` for the others.
fn ansi_c(raw: &str) -> Option<String> {
    let body = raw.strip_prefix("$'")?.strip_suffix('\'')?;
    let mut out = String::new();
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            same @ ('\\' | '\'' | '"' | '?') => same,
            _ => return None,
        });
    }
    Some(out)
}

fn plain_word(raw: &str) -> Text {
    let unresolved = |because: &str| Text::Unresolved { raw: raw.to_owned(), because: format!("`{raw}` {because}") };
    if raw.starts_with('~') {
        return unresolved("needs the home folder of the host");
    }
    if raw.contains(['*', '?']) || (raw.contains('[') && raw.contains(']')) {
        return unresolved("is matched against files of the host");
    }
    if raw.contains('{') && raw.contains('}') && (raw.contains(',') || raw.contains("..")) {
        return unresolved("is expanded by the shell");
    }
    Text::Known(unescape(raw, |_| true))
}

/// Takes backslashes away in front of the characters that `special` names.
fn unescape(raw: &str, special: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('\\', Some('\n')) => {
                chars.next();
            }
            ('\\', Some(next)) if special(next) => {
                out.push(next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

fn quoted(node: Node<'_>, source: &str, known: &Known) -> Text {
    let escaped = |raw: &str| unescape(raw, |c| matches!(c, '"' | '\\' | '$' | '`'));
    let mut out = String::new();
    let mut at = node.start_byte() + 1;
    let end = node.end_byte().saturating_sub(1).max(at);
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor).filter(|c| c.kind() != "string_content") {
        out.push_str(&escaped(&source[at..child.start_byte()]));
        match text(child, source, known, Place::Whole) {
            Text::Known(part) => out.push_str(&part),
            Text::Unresolved { because, .. } => {
                return Text::Unresolved { raw: source[node.byte_range()].to_owned(), because };
            }
        }
        at = child.end_byte();
    }
    out.push_str(&escaped(source.get(at..end).unwrap_or_default()));
    Text::Known(out)
}

fn joined(node: Node<'_>, source: &str, known: &Known, place: Place) -> Text {
    let mut out = String::new();
    let mut at = node.start_byte();
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        out.push_str(&source[at..child.start_byte()]);
        match text(child, source, known, place) {
            Text::Known(part) => out.push_str(&part),
            Text::Unresolved { because, .. } => {
                return Text::Unresolved { raw: source[node.byte_range()].to_owned(), because };
            }
        }
        at = child.end_byte();
    }
    out.push_str(&source[at..node.end_byte()]);
    Text::Known(out)
}

/// `$X`, `${X}`, `${X:-default}`; every other form needs the shell.
fn expansion(node: Node<'_>, source: &str, known: &Known) -> Text {
    let raw = &source[node.byte_range()];
    let unresolved = |because: String| Text::Unresolved { raw: raw.to_owned(), because };
    let body = raw.trim_start_matches('$').trim_start_matches('{').trim_end_matches('}');
    let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return unresolved(format!("`{raw}` is set when the script is run"));
    }
    let default = [":-", "-", ":=", "="].iter().find_map(|op| rest.strip_prefix(op).map(|d| (op.starts_with(':'), d)));
    if !rest.is_empty() && default.is_none() {
        return unresolved(format!("`{raw}` needs the shell"));
    }
    match (known.get(name), default) {
        // `:` takes the default also for an empty value.
        (Some(Text::Known(value)), Some((true, default))) if value.is_empty() && is_literal(default) => {
            Text::Known(default.to_owned())
        }
        (Some(value), _) => value.clone(),
        (None, Some((_, default))) => {
            unresolved(format!("`{name}` comes from the host; `{default}` where it is not set"))
        }
        (None, None) => unresolved(format!("`{name}` comes from the host")),
    }
}

fn is_literal(text: &str) -> bool {
    !text.contains(['$', '`', '"', '\'', '\\', '~', '*', '?'])
}
