//! Conditions of faults: a small expression language over gates and request facts. Pure.
//!
//! Names in kebab-case are gates (true when the gate's suspect level is active); `always-on` and
//! `true` hold always, `false` never; `len`, `cached`, `batch`, `turns` and `chunks` are numbers.
//! Operators, loosest first: `||`, `&&`, `== != < <= > >=`, `%`, `!`; and parentheses.

/// Gates that a lab server has.
pub const GATES: [&str; 7] =
    ["mma-decode", "triton-indexer", "bf16-indexer", "mhc-bf16", "mhc-tf32", "routed-scaling", "kv-fp8"];

/// A parsed condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr(Bool);

#[derive(Clone, Debug, PartialEq)]
enum Bool {
    Constant(bool),
    Gate(String),
    Not(Box<Bool>),
    And(Box<Bool>, Box<Bool>),
    Or(Box<Bool>, Box<Bool>),
    Compare(Comparison, Number, Number),
}

#[derive(Clone, Debug, PartialEq)]
enum Number {
    Constant(i64),
    Fact(Fact),
    Remainder(Box<Number>, Box<Number>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A number that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Prompt tokens.
    Len,
    /// Prompt tokens from the prefix cache.
    Cached,
    /// Requests in the engine when it was admitted, itself included.
    Batch,
    /// User turns.
    Turns,
    /// Prefill chunks.
    Chunks,
}

/// What is wrong with a condition, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at column {column}")]
pub struct ExprError {
    /// What is wrong.
    pub message: String,
    /// Column, from 1.
    pub column: usize,
}

impl Expr {
    /// Parses a condition.
    ///
    /// # Errors
    /// With the column, when the text is no condition.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parser = Parser { tokens: lex(text)?, at: 0, end: text.chars().count() + 1 };
        let (value, column) = (parser.or()?, 1);
        if let Some(token) = parser.peek() {
            return Err(error(format!("unexpected `{}`", token.text), token.column));
        }
        Ok(Self(value.condition(column)?))
    }

    /// Whether it holds; `fact` gives the request's numbers.
    pub fn holds(&self, gates: &[String], fact: impl Fn(Fact) -> i64) -> bool {
        self.0.holds(gates, &fact)
    }
}

impl Bool {
    fn holds(&self, gates: &[String], fact: &impl Fn(Fact) -> i64) -> bool {
        match self {
            Self::Constant(b) => *b,
            Self::Gate(name) => gates.iter().any(|g| g == name),
            Self::Not(a) => !a.holds(gates, fact),
            Self::And(a, b) => a.holds(gates, fact) && b.holds(gates, fact),
            Self::Or(a, b) => a.holds(gates, fact) || b.holds(gates, fact),
            Self::Compare(op, a, b) => {
                // A remainder by zero has no value, and a comparison with it does not hold.
                let (Some(a), Some(b)) = (a.value(fact), b.value(fact)) else { return false };
                match op {
                    Comparison::Eq => a == b,
                    Comparison::Ne => a != b,
                    Comparison::Lt => a < b,
                    Comparison::Le => a <= b,
                    Comparison::Gt => a > b,
                    Comparison::Ge => a >= b,
                }
            }
        }
    }
}

impl Number {
    fn value(&self, fact: &impl Fn(Fact) -> i64) -> Option<i64> {
        match self {
            Self::Constant(n) => Some(*n),
            Self::Fact(f) => Some(fact(*f)),
            Self::Remainder(a, b) => a.value(fact)?.checked_rem_euclid(b.value(fact)?),
        }
    }
}

enum Value {
    Condition(Bool),
    Number(Number),
}

impl Value {
    fn condition(self, column: usize) -> Result<Bool, ExprError> {
        match self {
            Self::Condition(b) => Ok(b),
            Self::Number(_) => Err(error("expected a condition, found a number".into(), column)),
        }
    }

    fn number(self, column: usize) -> Result<Number, ExprError> {
        match self {
            Self::Number(n) => Ok(n),
            Self::Condition(_) => Err(error("expected a number, found a condition".into(), column)),
        }
    }
}

fn error(message: String, column: usize) -> ExprError {
    ExprError { message, column }
}

struct Token {
    text: String,
    column: usize,
}

fn lex(text: &str) -> Result<Vec<Token>, ExprError> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let start = at;
        let c = chars[at];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        if is_word(c) {
            while at < chars.len() && is_word(chars[at]) {
                at += 1;
            }
        } else {
            let pair: String = chars[at..(at + 2).min(chars.len())].iter().collect();
            at += match pair.as_str() {
                "==" | "!=" | "<=" | ">=" | "&&" | "||" => 2,
                _ if "<>%!()".contains(c) => 1,
                _ => return Err(error(format!("unexpected `{c}`"), start + 1)),
            };
        }
        tokens.push(Token { text: chars[start..at].iter().collect(), column: start + 1 });
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn column(&self) -> usize {
        self.peek().map_or(self.end, |t| t.column)
    }

    fn take(&mut self, options: &[&str]) -> Option<String> {
        let text = self.peek().filter(|t| options.contains(&t.text.as_str()))?.text.clone();
        self.at += 1;
        Some(text)
    }

    fn or(&mut self) -> Result<Value, ExprError> {
        let column = self.column();
        let mut left = self.and()?;
        while self.take(&["||"]).is_some() {
            let right_column = self.column();
            let right = self.and()?.condition(right_column)?;
            left = Value::Condition(Bool::Or(Box::new(left.condition(column)?), Box::new(right)));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Value, ExprError> {
        let column = self.column();
        let mut left = self.comparison()?;
        while self.take(&["&&"]).is_some() {
            let right_column = self.column();
            let right = self.comparison()?.condition(right_column)?;
            left = Value::Condition(Bool::And(Box::new(left.condition(column)?), Box::new(right)));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Value, ExprError> {
        let column = self.column();
        let left = self.remainder()?;
        let Some(op) = self.take(&["==", "!=", "<", "<=", ">", ">="]) else { return Ok(left) };
        let op = match op.as_str() {
            "==" => Comparison::Eq,
            "!=" => Comparison::Ne,
            "<" => Comparison::Lt,
            "<=" => Comparison::Le,
            ">" => Comparison::Gt,
            _ => Comparison::Ge,
        };
        let right_column = self.column();
        let right = self.remainder()?.number(right_column)?;
        Ok(Value::Condition(Bool::Compare(op, left.number(column)?, right)))
    }

    fn remainder(&mut self) -> Result<Value, ExprError> {
        let column = self.column();
        let mut left = self.unary()?;
        while self.take(&["%"]).is_some() {
            let right_column = self.column();
            let right = self.unary()?.number(right_column)?;
            left = Value::Number(Number::Remainder(Box::new(left.number(column)?), Box::new(right)));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Value, ExprError> {
        if self.take(&["!"]).is_some() {
            let column = self.column();
            return Ok(Value::Condition(Bool::Not(Box::new(self.unary()?.condition(column)?))));
        }
        if self.take(&["("]).is_some() {
            let value = self.or()?;
            return match self.take(&[")"]) {
                Some(_) => Ok(value),
                None => Err(error("expected `)`".into(), self.column())),
            };
        }
        let column = self.column();
        let Some(token) = self.peek() else { return Err(error("the condition ends too early".into(), column)) };
        let value = word(&token.text).ok_or_else(|| error(format!("unknown name `{}`", token.text), column))?;
        self.at += 1;
        Ok(value)
    }
}

fn word(text: &str) -> Option<Value> {
    let fact = |f| Some(Value::Number(Number::Fact(f)));
    match text {
        "true" | "always-on" => Some(Value::Condition(Bool::Constant(true))),
        "false" => Some(Value::Condition(Bool::Constant(false))),
        "len" => fact(Fact::Len),
        "cached" => fact(Fact::Cached),
        "batch" => fact(Fact::Batch),
        "turns" => fact(Fact::Turns),
        "chunks" => fact(Fact::Chunks),
        gate if GATES.contains(&gate) => Some(Value::Condition(Bool::Gate(gate.into()))),
        number => number.parse().ok().map(|n| Value::Number(Number::Constant(n))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holds(text: &str, gates: &[&str], len: i64) -> bool {
        let gates: Vec<String> = gates.iter().map(ToString::to_string).collect();
        Expr::parse(text).unwrap().holds(&gates, |f| if f == Fact::Len { len } else { 2 })
    }

    fn fails(text: &str, message: &str, column: usize) {
        assert_eq!(Expr::parse(text).unwrap_err(), ExprError { message: message.into(), column });
    }

    #[test]
    fn conditions() {
        assert!(holds("triton-indexer && mma-decode && len % 4 == 3", &["triton-indexer", "mma-decode"], 7));
        assert!(!holds("triton-indexer && mma-decode && len % 4 == 3", &["triton-indexer"], 7));
        assert!(!holds("triton-indexer && len % 4 == 3", &["triton-indexer"], 8));
        assert!(holds("true || false && false", &[], 0));
        assert!(!holds("(true || false) && false", &[], 0));
        assert!(holds("!mhc-bf16 && always-on", &[], 0));
        assert!(holds("cached > 0 && batch >= 2 && turns != 3 && chunks <= 2", &[], 0));
        assert!(!holds("len % 0 == 0", &[], 4));
    }

    #[test]
    fn mistakes_have_a_column() {
        fails("len = 3", "unexpected `=`", 5);
        fails("len", "expected a condition, found a number", 1);
        fails("true && len", "expected a condition, found a number", 9);
        fails("true == true", "expected a number, found a condition", 9);
        fails("(true", "expected `)`", 6);
        fails("tritn-indexer", "unknown name `tritn-indexer`", 1);
        fails("len % ", "the condition ends too early", 7);
        fails("true true", "unexpected `true`", 6);
        fails("", "the condition ends too early", 1);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-z0-9&|!<>=%() -]{0,30}") {
            let _ = Expr::parse(&text);
        }
    }
}
