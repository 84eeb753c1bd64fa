//! Reads the text form of Prometheus metrics and the facts that `SGLang`, `vLLM` and llama-server tell in it. Pure.
//!
//! Not responsible for history: a counter is the total since the start of the process.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Damage, From, Observed, SourceKind, line_number};
use crate::serving::log_grammar::MAX_LINE;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the series.
    pub name: String,
    /// Labels in the order of the text.
    pub labels: Vec<(String, String)>,
    /// Value; may be NaN or infinite.
    pub value: f64,
    /// Line, counted from 1.
    pub line: u32,
}

/// A text as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    /// Samples in the order of the text.
    pub samples: Vec<Sample>,
    /// Lines that are neither a sample nor a comment.
    pub damaged: Vec<u32>,
}

impl Exposition {
    /// The sum over all labels of a counter, with or without the ending `_total`; the line of the first sample.
    pub fn sum(&self, name: &str) -> Option<(f64, u32)> {
        self.fold(name, |a, b| a + b)
    }

    /// The largest value of a gauge over all labels; the line of the first sample.
    pub fn max(&self, name: &str) -> Option<(f64, u32)> {
        self.fold(name, f64::max)
    }

    fn fold(&self, name: &str, join: impl Fn(f64, f64) -> f64) -> Option<(f64, u32)> {
        let mut own = self.samples.iter().filter(|s| s.name.strip_suffix("_total").unwrap_or(&s.name) == name);
        let first = own.next()?;
        Some((own.map(|s| s.value).fold(first.value, join), first.line))
    }
}

/// Reads a text. A line that cannot be read is counted.
pub fn read(text: &str) -> Exposition {
    let mut out = Exposition::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = line_number(index + 1);
        match (line.len() <= MAX_LINE).then(|| sample(line, number)).flatten() {
            Some(sample) => out.samples.push(sample),
            None => out.damaged.push(number),
        }
    }
    out
}

/// `name{label="value",…} value [time] [# exemplar]`.
fn sample(line: &str, number: u32) -> Option<Sample> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.strip_prefix([' ', '\t']).map(str::trim_start)?.split_whitespace().next()?;
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()?, line: number })
}

type Labels = Vec<(String, String)>;

/// What follows the opening brace, up to and without the closing one, and the rest.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((out, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        out.push((name.trim().to_owned(), value));
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// A quoted text with its escapes read, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 2..])),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    None
}

/// A fact that a gauge tells by itself: series, name, whether labels add up.
const GAUGES: &[(&str, &str, bool)] = &[
    ("sglang:num_running_reqs", "num_running_reqs", true),
    ("sglang:num_queue_reqs", "num_waiting_reqs", true),
    ("sglang:token_usage", "token_usage", false),
    ("sglang:cache_hit_rate", "cache_hit_rate", false),
    ("sglang:spec_accept_length", "accept_length", false),
    ("vllm:num_requests_running", "num_running_reqs", true),
    ("vllm:num_requests_waiting", "num_waiting_reqs", true),
    ("vllm:kv_cache_usage_perc", "token_usage", false),
    ("vllm:gpu_cache_usage_perc", "token_usage", false),
    ("llamacpp:requests_processing", "num_running_reqs", true),
    ("llamacpp:requests_deferred", "num_waiting_reqs", true),
    ("llamacpp:kv_cache_usage_ratio", "token_usage", false),
];

/// A fact that two counters tell: part, whole, name.
const SHARES: &[(&str, &str, &str)] = &[
    ("vllm:prefix_cache_hits", "vllm:prefix_cache_queries", "cache_hit_rate"),
    ("vllm:gpu_prefix_cache_hits", "vllm:gpu_prefix_cache_queries", "cache_hit_rate"),
    ("vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_draft_tokens", "draft_acceptance_rate"),
    ("sglang:cached_tokens", "sglang:prompt_tokens", "cache_hit_rate"),
];

/// A fact of the metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The engine that the series belongs to: `sglang`, `vllm` or `llamacpp`.
    pub engine: &'static str,
    /// Name.
    pub name: &'static str,
    /// Value; a share is between 0 and 1.
    pub value: f64,
    /// Part and whole, where it is a quotient.
    pub of: Option<(f64, f64)>,
    /// Line of the first sample.
    pub line: u32,
}

/// What the known series tell, engines apart. A share of nothing is no fact.
pub fn facts(exposition: &Exposition) -> Vec<Fact> {
    let engine = |series: &'static str| series.split(':').next().unwrap_or_default();
    let mut out: BTreeMap<(&str, &str), Fact> = BTreeMap::new();
    for (part, whole, name) in SHARES {
        let (Some((hits, line)), Some((all, _))) = (exposition.sum(part), exposition.sum(whole)) else { continue };
        if all > 0.0 && hits.is_finite() && all.is_finite() {
            let fact = Fact { engine: engine(part), name, value: hits / all, of: Some((hits, all)), line };
            out.entry((engine(part), name)).or_insert(fact);
        }
    }
    for (series, name, adds) in GAUGES {
        let found = if *adds { exposition.sum(series) } else { exposition.max(series) };
        if let Some((value, line)) = found.filter(|(value, _)| value.is_finite()) {
            let fact = Fact { engine: engine(series), name, value, of: None, line };
            out.entry((engine(series), name)).or_insert(fact);
        }
    }
    out.into_values().collect()
}

/// A number in JSON: a whole one without its fraction, what is no number as text.
pub(crate) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Value::from(value as i64);
    }
    serde_json::Number::from_f64(value).map_or_else(|| Value::from(value.to_string()), Value::Number)
}

impl Observed {
    /// Adds `/metrics`. Where the text holds series of several engines, each fact names its engine.
    pub fn add_metrics(&mut self, url: &str, text: &str) {
        let exposition = read(text);
        if !exposition.damaged.is_empty() {
            let lines = exposition.damaged.iter().copied().take(20).collect();
            self.damaged.push(Damage { source: url.to_owned(), count: exposition.damaged.len(), lines });
        }
        let facts = facts(&exposition);
        let mixed = facts.iter().any(|f| f.engine != facts[0].engine);
        for fact in facts {
            let name = if mixed { format!("{}:{}", fact.engine, fact.name) } else { fact.name.to_owned() };
            let from = From { kind: SourceKind::Metrics, source: url, line: Some(fact.line), when: None };
            self.say(&name, number(fact.value), from);
        }
    }
}
