//! Words of a command with the place of each, and the splitting of a text into them.
//!
//! Pure. The splitting is that of POSIX without expansions; `systemd` and bash have their own.

use std::ops::Range;

use super::{Place, Text};
use crate::remote::argv;

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedWord {
    /// Its text.
    pub text: Text,
    /// Where it begins.
    pub place: Place,
    /// Line on which it ends; a text of several lines has its own lines in between.
    pub last_line: u32,
    /// Whether it can turn into none or several words: an expansion that is not in quotes.
    pub splits: bool,
}

impl PlacedWord {
    /// A word that stands on one line.
    pub fn new(text: Text, place: Place) -> Self {
        Self { text, last_line: place.line, place, splits: false }
    }

    /// Its text, if it is known.
    pub fn known(&self) -> Option<&str> {
        self.text.known()
    }
}

/// The words for `remote::argv`.
pub fn argv_of(words: &[PlacedWord]) -> Vec<argv::Word> {
    words.iter().map(|w| w.known().map(str::to_owned)).collect()
}

/// A text in which some parts are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The text; a part that is not known stands as it was written.
    pub text: String,
    /// The parts that are not known, in order, and why.
    pub holes: Vec<(Range<usize>, String)>,
}

impl Template {
    /// The text as a value.
    pub fn whole(self) -> Text {
        match self.holes.into_iter().next() {
            None => Text::Known(self.text),
            Some((_, because)) => Text::Unresolved { raw: self.text, because },
        }
    }

    /// Adds a part that is not known.
    pub fn push_hole(&mut self, raw: &str, because: String) {
        let start = self.text.len();
        self.text.push_str(raw);
        self.holes.push((start..self.text.len(), because));
    }
}

/// One word of a split text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitWord {
    /// Its text.
    pub text: Text,
    /// Its bytes in the text that was split.
    pub at: Range<usize>,
}

/// Splits at blanks; quotes and backslashes count, comments do not exist. Parts that are not known are not split.
///
/// # Errors
/// A quote is not closed.
pub fn split(template: &Template) -> Result<Vec<SplitWord>, String> {
    let text = &template.text;
    let hole = |at: usize| template.holes.iter().find(|(r, _)| r.contains(&at));
    let mut out: Vec<SplitWord> = Vec::new();
    let mut current: Option<(usize, String, Option<String>)> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if let Some((_, because)) = hole(at) {
            let word = current.get_or_insert_with(|| (at, String::new(), None));
            word.1.push(c);
            word.2.get_or_insert_with(|| because.clone());
            continue;
        }
        let next = chars.peek().copied();
        match (quote, c) {
            (None, ' ' | '\t' | '\n' | '\r') => finish(&mut out, &mut current, at, text),
            (None, '\\') if matches!(next, Some((_, '\n'))) => {
                chars.next();
            }
            (None, '\'' | '"') => {
                current.get_or_insert_with(|| (at, String::new(), None));
                quote = Some(c);
            }
            (Some(q), _) if q == c => quote = None,
            (None | Some('"'), '\\')
                if next.is_some_and(|(_, n)| quote.is_none() || matches!(n, '"' | '\\' | '$' | '`' | '\n')) =>
            {
                chars.next();
                let word = current.get_or_insert_with(|| (at, String::new(), None));
                if let Some((_, n)) = next.filter(|(_, n)| *n != '\n') {
                    word.1.push(n);
                }
            }
            _ => current.get_or_insert_with(|| (at, String::new(), None)).1.push(c),
        }
    }
    finish(&mut out, &mut current, text.len(), text);
    match quote {
        Some(q) => Err(format!("a quote {q} is not closed")),
        None => Ok(out),
    }
}

fn finish(out: &mut Vec<SplitWord>, current: &mut Option<(usize, String, Option<String>)>, end: usize, text: &str) {
    let Some((start, value, because)) = current.take() else { return };
    let text = match because {
        None => Text::Known(value),
        Some(because) => Text::Unresolved { raw: text[start..end].to_owned(), because },
    };
    out.push(SplitWord { text, at: start..end });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let template = Template { text: text.into(), holes: Vec::new() };
        let words = split(&template).unwrap();
        let words: Vec<&str> = words.iter().filter_map(|w| w.text.known()).collect();
        assert_eq!(words, expect, "{text}");
    }

    #[test]
    fn words_as_a_shell_splits_them() {
        for (text, expect) in [
            ("a  b\tc\n", &["a", "b", "c"][..]),
            ("'a b' \"c d\"e f\\ g", &["a b", "c de", "f g"]),
            (r#"--x '{"k": 1}' "q\"q" "a\b""#, &["--x", r#"{"k": 1}"#, "q\"q", "a\\b"]),
            ("a \\\n b", &["a", "b"]),
            ("'' \"\"", &["", ""]),
            ("# no comment", &["#", "no", "comment"]),
        ] {
            check(text, expect);
        }
        assert!(split(&Template { text: "a 'b".into(), holes: Vec::new() }).is_err());
    }

    #[test]
    fn an_unknown_part_is_one_word_whatever_it_holds() {
        let mut template = Template { text: "--a x".into(), holes: Vec::new() };
        template.push_hole("${B:-c 'd}", "why".into());
        template.text.push_str(" e");
        let words = split(&template).unwrap();
        assert_eq!(words.len(), 3);
        assert_eq!(words[1].text, Text::Unresolved { raw: "x${B:-c 'd}".into(), because: "why".into() });
        assert_eq!(words[2].text, Text::Known("e".into()));
    }
}
