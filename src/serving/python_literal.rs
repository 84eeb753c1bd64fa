//! Python's way of writing values, as far as a server's log uses it: `Name(key=value, …)` with literals.
//!
//! Pure. What is no literal, such as an enum member or a nested object, is kept as text and never guessed at.

use std::fmt;

use serde_json::Value;

/// Nesting that is read; deeper text is kept as it is.
const MAX_DEPTH: usize = 32;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum PyValue {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// A string, its escapes read.
    Str(String),
    /// A list, tuple or set.
    List(Vec<PyValue>),
    /// A dict, in the order of the text.
    Dict(Vec<(PyValue, PyValue)>),
    /// Something else, as text.
    Other(String),
}

impl PyValue {
    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The same value in JSON. A member of an enum becomes its own name; other text stays text.
    pub fn to_json(&self) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::from(*n),
            Self::Float(x) => {
                serde_json::Number::from_f64(*x).map_or_else(|| Value::from(x.to_string()), Value::Number)
            }
            Self::Str(s) => Value::from(s.as_str()),
            Self::Other(s) => Value::from(member(s)),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Dict(items) => Value::Object(items.iter().map(|(k, v)| (k.to_string(), v.to_json())).collect()),
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }
}

impl fmt::Display for PyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Str(s) | Self::Other(s) => f.write_str(s),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Dict(items) => {
                f.write_str("{")?;
                for (i, (key, value)) in items.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

/// `<Mode.FULL: 'full'>` is `FULL`; anything else is itself.
fn member(text: &str) -> &str {
    let inside = text.strip_prefix('<').and_then(|t| t.strip_suffix('>')).and_then(|t| t.split_once(':'));
    inside.and_then(|(path, _)| path.split_once('.')).map_or(text, |(_, name)| name)
}

/// A call with keyword arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Name of the class.
    pub name: String,
    /// Arguments in the order of the text.
    pub arguments: Vec<(String, PyValue)>,
    /// Whether the closing bracket was reached; a line that a journal cut is not complete.
    pub complete: bool,
}

/// Reads `Name(key=value, …)` at the start of the text; `None` if it does not start so.
pub fn call(text: &str) -> Option<Call> {
    let mut cursor = Cursor { rest: text.trim_start() };
    let name = cursor.name()?;
    cursor.eat('(').then_some(())?;
    let (arguments, complete) = cursor.keywords(Some(')'));
    Some(Call { name, arguments, complete })
}

/// Reads `key=value, …` to the end of the text: what came, and whether it was whole.
pub fn keywords(text: &str) -> (Vec<(String, PyValue)>, bool) {
    Cursor { rest: text.trim() }.keywords(None)
}

/// Reads the dict at the start of the text, whatever follows it; `None` if there is no whole one.
pub fn dict(text: &str) -> Option<Vec<(String, PyValue)>> {
    let mut cursor = Cursor { rest: text.trim_start() };
    if !cursor.rest.starts_with('{') {
        return None;
    }
    match cursor.value(0)? {
        PyValue::Dict(pairs) => Some(pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect()),
        _ => None,
    }
}

/// Reads one value that fills the whole text.
pub fn literal(text: &str) -> Option<PyValue> {
    let mut cursor = Cursor { rest: text.trim() };
    let value = cursor.value(0)?;
    cursor.rest.is_empty().then_some(value)
}

struct Cursor<'a> {
    rest: &'a str,
}

impl Cursor<'_> {
    /// Keyword arguments up to `close`, or to the end where there is none; false if they broke off.
    fn keywords(&mut self, close: Option<char>) -> (Vec<(String, PyValue)>, bool) {
        let mut arguments = Vec::new();
        loop {
            self.space();
            match close {
                Some(close) if self.eat(close) => return (arguments, true),
                None if self.rest.is_empty() => return (arguments, true),
                _ => {}
            }
            let Some(key) = self.name() else { return (arguments, false) };
            if !self.eat('=') {
                return (arguments, false);
            }
            let Some(value) = self.value(0) else { return (arguments, false) };
            arguments.push((key, value));
            self.space();
            let ends = match close {
                Some(close) => self.rest.starts_with(close),
                None => self.rest.is_empty(),
            };
            if !self.eat(',') && !ends {
                return (arguments, false);
            }
        }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Option<String> {
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn value(&mut self, depth: usize) -> Option<PyValue> {
        self.space();
        match self.rest.chars().next()? {
            '\'' | '"' => self.string().map(PyValue::Str),
            '[' | '(' if depth < MAX_DEPTH => self.sequence(depth),
            '{' if depth < MAX_DEPTH => self.dict(depth),
            _ => self.word(),
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + c.len_utf8()..];
                return Some(out);
            }
            if c != '\\' {
                out.push(c);
                continue;
            }
            match chars.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                digits @ ('x' | 'u' | 'U') => {
                    let count = match digits {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let hex: String = chars.by_ref().take(count).map(|(_, c)| c).collect();
                    out.push(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)?);
                }
                other => out.push(other),
            }
        }
        None
    }

    fn sequence(&mut self, depth: usize) -> Option<PyValue> {
        let close = if self.eat('[') {
            ']'
        } else {
            self.eat('(');
            ')'
        };
        let mut items = Vec::new();
        loop {
            self.space();
            if self.eat(close) {
                return Some(PyValue::List(items));
            }
            items.push(self.value(depth + 1)?);
            self.space();
            if !self.eat(',') && !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Option<PyValue> {
        self.eat('{');
        let (mut pairs, mut items) = (Vec::new(), Vec::new());
        loop {
            self.space();
            if self.eat('}') {
                return Some(if items.is_empty() { PyValue::Dict(pairs) } else { PyValue::List(items) });
            }
            let key = self.value(depth + 1)?;
            self.space();
            if self.eat(':') {
                pairs.push((key, self.value(depth + 1)?));
            } else {
                items.push(key);
            }
            self.space();
            if !self.eat(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    /// A bare word up to the next separator on its own level; brackets and quotes inside belong to it.
    fn word(&mut self) -> Option<PyValue> {
        let (mut open, mut quote, mut end) = (0_usize, None, self.rest.len());
        for (at, c) in self.rest.char_indices() {
            match (quote, c) {
                (Some(q), _) => quote = (q != c).then_some(q),
                (None, '\'' | '"') => quote = Some(c),
                (None, '(' | '[' | '{' | '<') => open += 1,
                (None, ')' | ']' | '}' | '>') if open > 0 => open -= 1,
                // Inside `<Enum.X: 1>` a colon belongs to the word; outside it ends a dict key.
                (None, ',' | ')' | ']' | '}' | ':') if open == 0 => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        let (word, rest) = self.rest.split_at(end);
        let word = word.trim_end();
        if word.is_empty() || open > 0 || quote.is_some() {
            return None;
        }
        self.rest = rest;
        Some(match word {
            "None" => PyValue::None,
            "True" => PyValue::Bool(true),
            "False" => PyValue::Bool(false),
            _ => number(word).unwrap_or_else(|| PyValue::Other(word.to_owned())),
        })
    }
}

fn number(word: &str) -> Option<PyValue> {
    if let Ok(n) = word.parse::<i64>() {
        return Some(PyValue::Int(n));
    }
    let starts_like_one = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let named = matches!(word, "inf" | "-inf" | "nan");
    (starts_like_one || named).then(|| word.parse().ok().map(PyValue::Float)).flatten()
}

#[cfg(test)]
mod tests {
    use super::PyValue::{Bool, Dict, Float, Int, List, None as Nothing, Other, Str};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(text: &str, expect: PyValue) {
        assert_eq!(literal(text), Some(expect), "{text}");
    }

    fn s(text: &str) -> PyValue {
        Str(text.into())
    }

    #[test]
    fn scalars() {
        check("None", Nothing);
        check("True", Bool(true));
        check("-1", Int(-1));
        check("0.60", Float(0.6));
        check("1e-06", Float(1e-6));
        check("'auto'", s("auto"));
        check("''", s(""));
        check("'{}'", s("{}"));
        check("fp8_e4m3", Other("fp8_e4m3".into()));
        check("<DisaggregationMode.NULL: 'null'>", Other("<DisaggregationMode.NULL: 'null'>".into()));
    }

    #[test]
    fn quotes_commas_and_escapes_stay_in_their_string() {
        check(r#""it's, ok""#, s("it's, ok"));
        check(r"'a\'b\\c\n\x41\u00e9'", s("a'b\\c\nAé"));
        check("'a=b, c=d)'", s("a=b, c=d)"));
    }

    #[test]
    fn nested_values() {
        check("[1, 2]", List(vec![Int(1), Int(2)]));
        check("('a',)", List(vec![s("a")]));
        check("{}", Dict(vec![]));
        check(
            "{'a': [1, {'b': None}], 2: ''}",
            Dict(vec![(s("a"), List(vec![Int(1), Dict(vec![(s("b"), Nothing)])])), (Int(2), s(""))]),
        );
        check("Inner(a=1, b='x, y')", Other("Inner(a=1, b='x, y')".into()));
    }

    #[test]
    fn broken_text_is_nothing() {
        for text in ["", "'open", "[1, 2", "{'a': }", "'bad \\x4'", ")"] {
            assert_eq!(literal(text), None, "{text}");
        }
    }

    #[test]
    fn a_cut_call_keeps_what_came_and_says_so() {
        let cut = call("ServerArgs(tp_size=4, model_path='/mod").unwrap();
        assert_eq!(cut.arguments, [("tp_size".to_owned(), Int(4))]);
        assert!(!cut.complete);
        assert!(call("ServerArgs()").unwrap().complete);
        assert_eq!(call("(a=1)"), None);
    }

    #[test]
    fn arguments_without_a_call_and_a_dict_with_a_rest() {
        let (pairs, whole) = keywords("model='m, x', dtype=torch.bfloat16, k={'a': [1]}, c=C(b=1)");
        assert!(whole);
        let names: Vec<&str> = pairs.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["model", "dtype", "k", "c"]);
        assert_eq!(keywords("a=1, b='cut"), (vec![("a".to_owned(), Int(1))], false));
        assert_eq!(dict("{'a': 1} and more"), Some(vec![("a".to_owned(), Int(1))]));
        assert_eq!((dict("{'a': "), dict("[1]"), dict("{1, 2}")), (None, None, None));
    }

    #[test]
    fn values_in_json() {
        for (text, expect) in [
            ("<CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>", json!("FULL_AND_PIECEWISE")),
            ("<Other>", json!("<Other>")),
            ("{'a': [None, True, 1.5, ''], 2: nan}", json!({"a": [null, true, 1.5, ""], "2": "NaN"})),
        ] {
            assert_eq!(literal(text).unwrap().to_json(), expect, "{text}");
        }
    }

    #[test]
    fn deep_nesting_ends() {
        let text = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(literal(&text).is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}") {
            let _ = literal(&text);
            let _ = call(&format!("A({text}"));
            let _ = (keywords(&text), dict(&format!("{{{text}")));
        }

        #[test]
        fn a_string_survives_its_own_writing(text in "[ -~éß]{0,40}") {
            let written = format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
            prop_assert_eq!(literal(&written), Some(Str(text)));
        }
    }
}
