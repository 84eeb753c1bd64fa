//! Variables in a text: `${X:-d}` of compose files, `$(X)` of Kubernetes. Pure.

use std::collections::BTreeMap;

use super::Text;
use super::words::Template;
use crate::redact;

/// The text with what compose puts in. `given` are variables of a `.env` file, which the shell around can still
/// replace; so no variable is ever known for sure.
pub(super) fn compose(text: &str, given: &BTreeMap<String, String>) -> Template {
    expand(text, |rest| {
        let (length, because) = variable(rest, given)?;
        Some((length, Piece::Hole(because)))
    })
}

/// What stands in place of an expansion.
enum Piece {
    Known(String),
    /// Not known, and why.
    Hole(String),
}

/// The text with every expansion replaced. `expansion` is given a text from a `$` on, and says how long the expansion
/// there is and what it becomes; where it is none, the `$` stays, and `$$` is one.
fn expand(text: &str, expansion: impl Fn(&str) -> Option<(usize, Piece)>) -> Template {
    let mut out = Template::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.text.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("$$") {
            out.text.push('$');
            2
        } else if let Some((length, piece)) = expansion(rest) {
            match piece {
                Piece::Known(value) => out.text.push_str(&value),
                Piece::Hole(because) => out.push_hole(&rest[..length], because),
            }
            length
        } else {
            out.text.push('$');
            1
        };
        rest = &rest[length..];
    }
    out.text.push_str(rest);
    out
}

/// Length of the expansion at the beginning of a text, and why its value is not known.
fn variable(text: &str, given: &BTreeMap<String, String>) -> Option<(usize, String)> {
    let body = text.strip_prefix('$')?;
    let named = |s: &str| s.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(s.len());
    let Some(inner) = body.strip_prefix('{') else {
        let length = named(body);
        let starts_well = !body.starts_with(|c: char| c.is_ascii_digit()) && length > 0;
        return starts_well.then(|| (1 + length, reason(&body[..length], None, given)));
    };
    let end = closing(inner)?;
    let (name, rest) = inner[..end].split_at(named(&inner[..end]));
    if name.is_empty() {
        return None;
    }
    let default = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-'));
    Some((end + 3, reason(name, default, given)))
}

/// Byte of the brace that closes what an opened one began.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn reason(name: &str, default: Option<&str>, given: &BTreeMap<String, String>) -> String {
    let secret = redact::is_secret_name(name);
    match (given.get(name), default) {
        (Some(_), _) if secret => format!("`{name}` comes from the shell that runs compose or from `.env`"),
        (Some(value), _) => {
            format!("`{name}` comes from the shell that runs compose; `{value}` of `.env` where it is not set there")
        }
        (None, Some(default)) if !secret => format!("`{name}` comes from the host; `{default}` where it is not set"),
        (None, _) => format!("`{name}` comes from the host: the shell or `.env`"),
    }
}

/// The text with `$(NAME)` replaced as Kubernetes does; `$$(NAME)` stays as `$(NAME)`.
pub(super) fn kubernetes(text: &str, known: &BTreeMap<String, Text>) -> Text {
    let template = expand(text, |rest| {
        let (name, _) = rest.strip_prefix("$(")?.split_once(')')?;
        let piece = match known.get(name) {
            Some(Text::Known(value)) => Piece::Known(value.clone()),
            Some(Text::Unresolved { because, .. }) => Piece::Hole(because.clone()),
            None => Piece::Hole(format!("`{name}` is not set in this manifest")),
        };
        Some((name.len() + 3, piece))
    });
    template.whole()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn compose_variables() {
        let given = BTreeMap::from([("G".to_owned(), "g".to_owned())]);
        for (text, expect) in [
            ("a $$x", Ok("a $x")),
            ("a$", Ok("a$")),
            ("$1 ${} ${", Ok("$1 ${} ${")),
            ("${X:-d}", Err("`X` comes from the host; `d` where it is not set")),
            ("$X/y", Err("`X` comes from the host: the shell or `.env`")),
            ("${X:-${Y:-z}}b", Err("`X` comes from the host; `${Y:-z}` where it is not set")),
            ("${X:?must}", Err("`X` comes from the host: the shell or `.env`")),
            ("${G}", Err("`G` comes from the shell that runs compose; `g` of `.env` where it is not set there")),
            ("${API_KEY:-hunter2}", Err("`API_KEY` comes from the host: the shell or `.env`")),
        ] {
            match (compose(text, &given).whole(), expect) {
                (Text::Known(known), Ok(expect)) => assert_eq!(known, expect, "{text}"),
                (Text::Unresolved { because, .. }, Err(expect)) => assert_eq!(because, expect, "{text}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn kubernetes_variables() {
        let known = BTreeMap::from([("A".to_owned(), Text::Known("1".into()))]);
        for (text, expect) in
            [("$(A):2", Some("1:2")), ("$$(A)", Some("$(A)")), ("$A ${A} $(", Some("$A ${A} $(")), ("$(B)", None)]
        {
            assert_eq!(kubernetes(text, &known).known(), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[${}():aA\\-é ]{0,40}") {
            let _ = compose(&text, &BTreeMap::new());
            let _ = kubernetes(&text, &BTreeMap::new());
        }
    }
}
