//! The words of a setting: quotes, C escapes and `%` specifiers, as `systemd.syntax` has them. Pure.

use super::super::Text;

/// One word of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, quotes and escapes resolved.
    pub(super) text: String,
    /// Byte of the setting at which it begins.
    pub(super) at: usize,
    /// Whether any part of it stood in quotes or was escaped.
    pub(super) quoted: bool,
}

/// Splits a setting into words. An escape that does not exist is kept as it stands where `relaxed`.
///
/// # Errors
/// A quote is not closed, or an escape does not exist; systemd then ignores the setting from there on.
pub(super) fn split(text: &str, relaxed: bool) -> (Vec<Word>, Option<String>) {
    let mut out = Vec::new();
    let mut current: Option<Word> = None;
    let mut quote: Option<char> = None;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let word = |current: &mut Option<Word>| {
            current.get_or_insert_with(|| Word { text: String::new(), at, quoted: false });
        };
        match (quote, c) {
            (None, ' ' | '\t' | '\n' | '\r') => out.extend(current.take()),
            (None, '\'' | '"') => {
                word(&mut current);
                quote = Some(c);
                if let Some(w) = &mut current {
                    w.quoted = true;
                }
            }
            (Some(q), _) if q == c => quote = None,
            (_, '\\') => {
                word(&mut current);
                let Some(w) = &mut current else { continue };
                w.quoted = true;
                match escape(&text[at + 1..]) {
                    Some((c, length)) => {
                        w.text.push(c);
                        while rest.peek().is_some_and(|(next, _)| *next < at + 1 + length) {
                            rest.next();
                        }
                    }
                    None if relaxed => w.text.push('\\'),
                    None => return (out, Some("an escape that does not exist".into())),
                }
            }
            _ => {
                word(&mut current);
                if let Some(w) = &mut current {
                    w.text.push(c);
                }
            }
        }
    }
    if quote.is_some() {
        return (out, Some("a quote that is not closed".into()));
    }
    out.extend(current);
    (out, None)
}

/// The character that an escape stands for, and the bytes after the backslash that it takes.
fn escape(rest: &str) -> Option<(char, usize)> {
    let number = |from: usize, digits: usize, radix: u32| {
        let code =
            rest.get(from..from + digits).and_then(|d| u32::from_str_radix(d, radix).ok()).filter(|n| *n != 0)?;
        let byte = digits < 4;
        char::from_u32(code).filter(|_| !byte || code < 0x80).map(|c| (c, from + digits))
    };
    let simple = match rest.chars().next()? {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        's' => ' ',
        same @ ('\\' | '"' | '\'') => same,
        'x' => return number(1, 2, 16),
        'u' => return number(1, 4, 16),
        'U' => return number(1, 8, 16),
        '0'..='7' => return number(0, 3, 8),
        _ => return None,
    };
    Some((simple, 1))
}

/// Specifiers that only the host can tell.
const OF_HOST: &str = "aAbBCdDEfgGhHlLmMoqsStTuUvVwWyY";

/// A word with its specifiers put in, as far as the name of the unit tells them.
pub(super) fn specifiers(text: &str, unit: &str) -> Text {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let last = prefix.rsplit_once('-').map_or(prefix, |(_, last)| last);
    let mut out = String::new();
    let mut because = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(letter) = chars.peek().copied().filter(|_| c == '%') else {
            out.push(c);
            continue;
        };
        let known = match letter {
            '%' => Some("%".to_owned()),
            'n' => Some(unit.to_owned()),
            'N' => Some(stem.to_owned()),
            'p' => Some(prefix.to_owned()),
            'P' => unescape(prefix),
            'i' => Some(instance.to_owned()),
            'I' => unescape(instance),
            'j' => Some(last.to_owned()),
            'J' => unescape(last),
            _ => None,
        };
        match known {
            // An instance that is not named belongs to a template, which never runs itself.
            Some(_) if matches!(letter, 'i' | 'I') && instance.is_empty() && stem.ends_with('@') => {
                because.get_or_insert(format!("`%{letter}` is the name of the instance"));
                out.push(c);
                continue;
            }
            Some(known) => out.push_str(&known),
            None if OF_HOST.contains(letter) || matches!(letter, 'I' | 'P' | 'J') => {
                because.get_or_insert(format!("`%{letter}` is told by the host"));
                out.push(c);
                continue;
            }
            // Not a specifier: both characters stay.
            None => {
                out.push(c);
                continue;
            }
        }
        chars.next();
    }
    match because {
        None => Text::Known(out),
        Some(because) => Text::Unresolved { raw: text.to_owned(), because },
    }
}

/// The unit-name escaping undone: `-` is `/`, `\xNN` a byte. `None` where it is not whole.
fn unescape(name: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '-' => out.push('/'),
            '\\' => {
                let (c, length) = escape(rest)?;
                out.push(c);
                rest = rest.get(length..)?;
            }
            _ => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_systemd_splits_them() {
        for (text, expect) in [
            ("a  b\t'c d' \"e f\"", &["a", "b", "c d", "e f"][..]),
            (r#"'X={"a":"b"}' Y=\x41\s\101 "q\"q""#, &[r#"X={"a":"b"}"#, "Y=A A", "q\"q"]),
            ("a'b c'd", &["ab cd"]),
            (r"\u00e9 '' \\", &["é", "", "\\"]),
        ] {
            let (words, trouble) = split(text, false);
            assert_eq!(trouble, None, "{text}");
            assert_eq!(words.iter().map(|w| w.text.as_str()).collect::<Vec<_>>(), expect, "{text}");
        }
        assert_eq!(split("a 'b c", true).0.len(), 1);
        assert!(split("a 'b c", true).1.is_some());
        assert!(split(r"a \q", false).1.is_some());
        assert_eq!(split(r"a \q\", true).0[1].text, r"\q\");
    }

    #[test]
    fn specifiers_that_the_name_tells() {
        for (text, unit, expect) in [
            ("%n %N %p %%", "a@b.service", Some("a@b.service a@b a %")),
            ("%i/%I", r"x@b-c\x2dd.service", Some(r"b-c\x2dd/b/c-d")),
            ("%j", "a-b.service", Some("b")),
            ("50% 5%", "a.service", Some("50% 5%")),
            ("%H", "a.service", None),
            ("%i", "a@.service", None),
            ("x%h/y", "a.service", None),
        ] {
            assert_eq!(specifiers(text, unit).known(), expect, "{text}");
        }
    }
}
