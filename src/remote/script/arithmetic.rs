//! `$(( … ))` where every part of it is known. Pure.

use super::value::Known;

/// Operators that are evaluated, the loosest first.
const LEVELS: &[&[char]] = &[&['+', '-'], &['*', '/', '%']];

/// The longest expression that is evaluated, in bytes.
const MAX_LENGTH: usize = 200;

/// The number that an expression stands for.
///
/// # Errors
/// A part is not known; the text goes on from "… is computed".
pub(super) fn evaluate(raw: &str, known: &Known) -> Result<i64, String> {
    let body = raw.strip_prefix("$((").and_then(|r| r.strip_suffix("))"));
    let body = body.or_else(|| raw.strip_prefix("$[").and_then(|r| r.strip_suffix(']'))).unwrap_or_default();
    if body.len() > MAX_LENGTH {
        return Err(String::new());
    }
    let mut reading = Reading { rest: body, known };
    let number = reading.level(0)?;
    if reading.rest.trim().is_empty() { Ok(number) } else { Err(String::new()) }
}

struct Reading<'a> {
    rest: &'a str,
    known: &'a Known,
}

impl Reading<'_> {
    fn level(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.level(level + 1)?;
        loop {
            let rest = self.rest.trim_start();
            let Some(operator) = rest.chars().next().filter(|c| operators.contains(c)) else { return Ok(left) };
            // `**`, `++` and `--` mean something else.
            if rest[1..].starts_with(operator) {
                return Err(String::new());
            }
            self.rest = &rest[1..];
            let right = self.level(level + 1)?;
            left = match operator {
                '+' => left.checked_add(right),
                '-' => left.checked_sub(right),
                '*' => left.checked_mul(right),
                '/' => left.checked_div(right),
                _ => left.checked_rem(right),
            }
            .ok_or_else(String::new)?;
        }
    }

    fn operand(&mut self) -> Result<i64, String> {
        let rest = self.rest.trim_start();
        if let Some(inner) = rest.strip_prefix('(') {
            self.rest = inner;
            let number = self.level(0)?;
            self.rest = self.rest.trim_start().strip_prefix(')').ok_or_else(String::new)?;
            return Ok(number);
        }
        let named = rest.strip_prefix("${").or_else(|| rest.strip_prefix('$'));
        let body = named.unwrap_or(rest);
        let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
        let (word, after) = body.split_at(end);
        self.rest = if rest.starts_with("${") { after.strip_prefix('}').ok_or_else(String::new)? } else { after };
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            // A leading zero makes a number octal: left to the shell.
            return word.parse().ok().filter(|_| word == "0" || !word.starts_with('0')).ok_or_else(String::new);
        }
        if word.is_empty() {
            return Err(String::new());
        }
        match self.known.get(word) {
            Some(super::Text::Known(text)) => number(text).ok_or_else(String::new),
            Some(super::Text::Unresolved { because, .. }) => Err(format!(", and {because}")),
            None => Err(format!(", and `{word}` comes from the host")),
        }
    }
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    (text == "0" || !text.trim_start_matches('-').starts_with('0')).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, expect: Option<i64>) {
        let known = Known::from([("N".to_owned(), super::super::Text::Known("4".into()))]);
        assert_eq!(evaluate(raw, &known).ok(), expect, "{raw}");
    }

    #[test]
    fn constants_are_evaluated_and_nothing_else() {
        for (raw, expect) in [
            ("$((2 * N))", Some(8)),
            ("$(( (1+2)*3 - 10/3 ))", Some(6)),
            ("$((N%3))", Some(1)),
            ("$(($N + ${N}))", Some(8)),
            ("$((M * 2))", None),
            ("$((1 / 0))", None),
            ("$((010))", None),
            ("$((N++))", None),
            ("$((2 ** 3))", None),
            ("$((9223372036854775807 + 1))", None),
            ("$((N > 3 ? 1 : 2))", None),
            ("$(())", None),
        ] {
            check(raw, expect);
        }
    }
}
