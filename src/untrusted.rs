//! Text that came from outside: remote output, model output, file content.
//!
//! Responsible for bounding its length and for making control characters visible.
//! Not responsible for secrets; `redact` runs before a text becomes part of the state.

use std::fmt::{self, Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest foreign text that is kept in the state, in bytes; longer texts belong in a blob.
pub const MAX_BYTES: usize = 64 * 1024;

const CUT_MARK: &str = "…[cut]";

/// Foreign text, kept as it came but bounded in length.
///
/// It has no `Display`: [`Untrusted::visible`] and [`Untrusted::raw`] are the only ways to read it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Untrusted(String);

impl Untrusted {
    /// Bounds `text` to [`MAX_BYTES`]; a cut text ends in a mark that says so.
    pub fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > MAX_BYTES {
            let mut end = MAX_BYTES - CUT_MARK.len();
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str(CUT_MARK);
        }
        Self(text)
    }

    /// The text for a screen or a report: control, bidirectional and invisible characters are
    /// spelled out, and at most `max_chars` characters are shown before `…`.
    pub fn visible(&self, max_chars: usize) -> String {
        let mut out = String::new();
        for (count, c) in self.0.chars().enumerate() {
            if count == max_chars {
                out.push('…');
                break;
            }
            push_visible(&mut out, c);
        }
        out
    }

    /// The text as it came, for parsers and graders; never for a screen.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Whether nothing came.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Text of several lines for a terminal: as [`Untrusted::visible`], without a bound, and line ends stay.
///
/// For the last step before printing; what stands in one line is made visible where the line is made.
pub fn visible_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c => push_visible(&mut out, c),
        }
    }
    out
}

fn push_visible(out: &mut String, c: char) {
    match c {
        '\n' => out.push('⏎'),
        '\t' => out.push_str("\\t"),
        '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('␦')),
        '\u{7f}' => out.push('␡'),
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32);
        }
        _ => out.push(c),
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Untrusted({:?})", self.visible(200))
    }
}

impl From<String> for Untrusted {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Untrusted {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<Untrusted> for String {
    fn from(text: Untrusted) -> Self {
        text.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expect: &str) {
        assert_eq!(Untrusted::from(input).visible(40), expect);
    }

    #[test]
    fn control_characters_are_visible() {
        check("a\u{1b}[31mred", "a␛[31mred");
        check("two\nlines\tand", "two⏎lines\\tand");
        check("right\u{202e}left", "right\\u{202e}left");
        check("\u{9b}31m", "\\u{9b}31m");
        check("del\u{7f}", "del␡");
    }

    #[test]
    fn long_text_is_cut_and_says_so() {
        let text = Untrusted::from("é".repeat(MAX_BYTES));
        assert!(text.raw().len() <= MAX_BYTES);
        assert!(text.raw().ends_with("…[cut]"));
        check(&"x".repeat(50), &format!("{}…", "x".repeat(40)));
    }

    #[test]
    fn journal_round_trip() {
        let text = Untrusted::from("a\u{0}b\n");
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<Untrusted>(&json).unwrap(), text);
    }
}
