//! `EnvironmentFile=`: its own quoting, which is neither a shell's nor that of a unit file. Pure.

use super::super::{Declared, Place, Text, remark};

/// Where a character stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    BeforeKey,
    Key,
    BeforeValue,
    Value,
    ValueEscape,
    Single,
    Double,
    DoubleEscape,
    Comment,
    CommentEscape,
}

/// One assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pair {
    key: String,
    value: String,
    line: u32,
    /// Blanks at the end of an unquoted value, which do not count.
    blanks: usize,
    /// Whether the line goes on from a comment that ends in a backslash.
    after_comment: bool,
    /// Whether the line has no `=`.
    bare: bool,
}

/// Adds the assignments of a file, in order.
pub fn assign(out: &mut Declared, file: &str, text: &str) {
    for pair in pairs(text) {
        let place = Place::new(file, pair.line);
        let name = pair.key.as_str();
        if pair.bare {
            out.diagnostics.push(remark("env-file-line", "this line has no `=` and is ignored", &place));
            continue;
        }
        if !is_name(name) {
            let what =
                if name.starts_with("export ") { "`export` is no part of a name" } else { "its name is not one" };
            let message = format!("the assignment of `{name}` is ignored: {what}");
            out.diagnostics.push(remark("env-file-line", &message, &place));
            continue;
        }
        let value = if pair.after_comment {
            let because = "systemd before 254 takes this line for a part of the comment above".to_owned();
            Text::Unresolved { raw: pair.value, because }
        } else {
            Text::Known(pair.value)
        };
        out.assign(name, place, Some(value));
    }
}

/// Whether systemd takes a text for the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn pairs(text: &str) -> Vec<Pair> {
    let mut out = Vec::new();
    let mut pair = Pair::default();
    let mut at = At::BeforeKey;
    let mut line = 1;
    let mut key_blanks = 0;
    let mut after_comment = false;
    let mut finish = |pair: &mut Pair| {
        let mut done = std::mem::take(pair);
        let keep = done.value.len() - done.blanks;
        done.value.truncate(keep);
        out.push(done);
    };
    for c in text.trim_start_matches('\u{feff}').chars() {
        let newline = matches!(c, '\n' | '\r');
        let blank = matches!(c, ' ' | '\t') || newline;
        at = match at {
            At::BeforeKey if matches!(c, '#' | ';') => At::Comment,
            At::BeforeKey if blank => {
                after_comment &= c != '\n';
                At::BeforeKey
            }
            At::BeforeKey => {
                pair = Pair { line, after_comment, ..Pair::default() };
                pair.key.push(c);
                after_comment = false;
                key_blanks = 0;
                if c == '=' {
                    pair.key.clear();
                    At::BeforeValue
                } else {
                    At::Key
                }
            }
            At::Key if newline => {
                pair.bare = true;
                finish(&mut pair);
                At::BeforeKey
            }
            At::Key if c == '=' => {
                let keep = pair.key.len() - key_blanks;
                pair.key.truncate(keep);
                At::BeforeValue
            }
            At::Key => {
                key_blanks = if blank { key_blanks + 1 } else { 0 };
                pair.key.push(c);
                At::Key
            }
            At::BeforeValue | At::Value if newline => {
                finish(&mut pair);
                At::BeforeKey
            }
            At::BeforeValue if c == '\'' => At::Single,
            At::BeforeValue if c == '"' => At::Double,
            At::BeforeValue if blank => At::BeforeValue,
            At::BeforeValue | At::Value if c == '\\' => {
                pair.blanks = 0;
                At::ValueEscape
            }
            At::BeforeValue | At::Value => {
                pair.blanks = if blank { pair.blanks + 1 } else { 0 };
                pair.value.push(c);
                At::Value
            }
            At::ValueEscape => {
                if !newline {
                    pair.value.push(c);
                }
                At::Value
            }
            At::Single if c == '\'' => At::BeforeValue,
            At::Double if c == '"' => At::BeforeValue,
            At::Double if c == '\\' => At::DoubleEscape,
            At::Single | At::Double => {
                pair.value.push(c);
                at
            }
            At::DoubleEscape => {
                if !matches!(c, '"' | '\\' | '`' | '$' | '\n') {
                    pair.value.push('\\');
                }
                if c != '\n' {
                    pair.value.push(c);
                }
                At::Double
            }
            At::Comment if c == '\\' => At::CommentEscape,
            At::Comment if newline => At::BeforeKey,
            At::CommentEscape if newline => {
                after_comment = true;
                At::BeforeKey
            }
            At::Comment | At::CommentEscape => At::Comment,
        };
        line += u32::from(c == '\n');
    }
    pair.bare = at == At::Key;
    if !matches!(at, At::BeforeKey | At::Comment | At::CommentEscape) {
        finish(&mut pair);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Declared {
        let mut out = Declared::default();
        assign(&mut out, "e", text);
        out
    }

    fn check(text: &str, expect: &[(&str, &str, u32)], remarks: usize) {
        let out = read(text);
        let mut found: Vec<(&str, &str, u32)> = out
            .variables
            .iter()
            .filter_map(|(n, v)| Some((n.as_str(), v.value.as_ref()?.known()?, v.place.line)))
            .collect();
        found.sort_by_key(|f| f.2);
        assert_eq!(found, expect, "{text}");
        assert_eq!(out.diagnostics.len(), remarks, "{text}: {:?}", out.diagnostics);
    }

    #[test]
    fn lines_as_systemd_reads_them() {
        for (text, expect, remarks) in [
            ("A=1\nB = two words  \n", &[("A", "1", 1), ("B", "two words", 2)][..], 0),
            ("# c\n; d\n  A=1 # e\n", &[("A", "1 # e", 3)], 0),
            ("A=\"x \\\"y\\\" \\n\"\nB='x\\y \"z'\n", &[("A", "x \"y\" \\n", 1), ("B", "x\\y \"z", 2)], 0),
            ("A=\"one\ntwo\"\nB=1\n", &[("A", "one\ntwo", 1), ("B", "1", 3)], 0),
            ("A=a\\\n  b\nB=c\\d\n", &[("A", "a  b", 1), ("B", "cd", 3)], 0),
            ("A=\"a\"b\nB='a' 'b'\n", &[("A", "ab", 1), ("B", "ab", 2)], 0),
            ("A=a\"b c\"\n", &[("A", "a\"b c\"", 1)], 0),
            ("export A=1\n1B=2\n=3\nno assignment\nC=$A\n", &[("C", "$A", 5)], 4),
            ("A=1\nA=2\r\nB=", &[("A", "2", 2), ("B", "", 3)], 0),
            ("A='open\nB=1\n", &[("A", "open\nB=1\n", 1)], 0),
        ] {
            check(text, expect, remarks);
        }
    }

    #[test]
    fn a_line_after_a_continued_comment_is_not_known() {
        let out = read("# comment \\\nA=1\nB=2\n");
        assert!(matches!(&out.variables["A"].value, Some(Text::Unresolved { because, .. }) if because.contains("254")));
        assert_eq!(out.variables["B"].value, Some(Text::Known("2".into())));
    }

    /// Writes a value so that it is read back as it is.
    fn write(name: &str, value: &str, form: usize) -> String {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`");
        match form {
            0 if !value.contains('\'') => format!("{name}='{value}'\n"),
            1 => format!("  {name} =\"{quoted}\"  \n"),
            _ => format!("; note\n{name}=\"{quoted}\"\n# {name}=other\n"),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(values in prop::collection::vec(("[A-Z_][A-Z0-9_]{0,5}", "[ -~\nä]{0,20}", 0..3_usize), 0..6)) {
            let text: String = values.iter().map(|(n, v, form)| write(n, v, *form)).collect();
            let out = read(&text);
            for (name, ..) in &values {
                let last = values.iter().rev().find(|(n, ..)| n == name).map(|(_, v, _)| v.as_str());
                prop_assert_eq!(out.variables[name].value.as_ref().and_then(Text::known), last, "{}", text);
            }
            prop_assert!(out.diagnostics.is_empty());
        }

        #[test]
        fn no_text_is_a_panic(text in "[ -~\n\t\r\\\\\"'=#;]{0,100}") {
            let _ = read(&text);
        }
    }
}
