//! What a log adds: the current start with its arguments and choices, earlier starts, and a sum of its batches. Pure.
//!
//! Not responsible for the form of lines, which is `serving::log_grammar`.

use serde_json::Value;

use super::{BatchSummary, Change, Damage, Decision, From, Observed, SourceKind, StartSeen, Warned, line_number};
use crate::redact;
use crate::serving::log_grammar::{self, ArgsForm, Batch, BatchKind, Level, LogReading, ServerArgs, Start};
use crate::serving::python_literal::{self, PyValue};
use crate::untrusted::Untrusted;

/// Damaged lines that are named; the rest is counted.
const NAMED: usize = 20;
/// Depth to which a nested configuration is spelled out as `outer.inner`.
const DEPTH: usize = 4;

impl Observed {
    /// Adds a log, `source` being its path or the command that printed it.
    pub fn add_log(&mut self, source: &str, text: &str) {
        self.add_reading(source, &log_grammar::read_log(text));
    }

    /// Adds a log that was read.
    pub fn add_reading(&mut self, source: &str, log: &LogReading) {
        self.starts.extend(starts(&log.starts));
        if let Some(start) = log.current() {
            self.add_start(source, start);
        }
        let from_line = log.current_from();
        self.batches = summary(log, from_line);
        if let Some(tokens) = self.batches.chunk_tokens {
            // What was seen at work, beside what was configured.
            let line = log.batches.iter().find(|(_, b)| b.count("#new-token") == Some(tokens)).map(|(n, _)| *n);
            let from = From { kind: SourceKind::Load, source, line: line.map(line_number), when: None };
            self.say("prefill_chunk_seen", Value::from(tokens), from);
        }
        if let Some((line, pairs)) = log.load.as_ref().filter(|(line, _)| *line >= from_line) {
            for (said, name) in LOAD {
                let text = pairs.iter().find(|(n, _)| n == said).map(|(_, value)| value.as_str());
                if let Some(value) = text.and_then(share_or_count) {
                    let from = From { kind: SourceKind::Load, source, line: Some(line_number(*line)), when: None };
                    self.say(name, value, from);
                }
            }
        }
        let current = log.warnings.iter().filter(|(line, _, _)| *line >= from_line);
        self.warnings.extend(current.map(|(line, level, text)| Warned {
            source: source.to_owned(),
            line: line_number(*line),
            is_error: *level == Level::Error,
            text: Untrusted::from(text.as_str()),
        }));
        if !log.damaged.is_empty() {
            let lines = log.damaged.iter().take(NAMED).map(|line| line_number(*line)).collect();
            self.damaged.push(Damage { source: source.to_owned(), count: log.damaged.len(), lines });
        }
        self.restarts = self.restarts.max(log.restarts);
        self.unit_warnings.extend(log.unit_warnings.iter().map(|line| Untrusted::from(line.as_str())));
    }

    fn add_start(&mut self, source: &str, start: &Start) {
        let when = start.time.as_deref();
        let at = |kind, line: usize| From { kind, source, line: Some(line_number(line)), when };
        let kind = match start.args.form {
            ArgsForm::All => SourceKind::Arguments,
            ArgsForm::NonDefault => SourceKind::NonDefaultArguments,
        };
        self.add_arguments(&start.args, at(kind, start.line));
        if let Some((config, line)) = &start.config {
            self.add_arguments(config, at(SourceKind::EngineConfig, *line));
            if let Some(version) = &start.version {
                self.say("version", Value::from(version.as_str()), at(SourceKind::EngineConfig, *line));
            }
        }
        for figures in start.figures.iter().filter(|f| f.about.is_empty()) {
            for (name, value) in &figures.pairs {
                self.say(name, scalar(value), at(SourceKind::Figures, figures.line));
            }
        }
        for (name, value, line) in &start.decided {
            let asked = start.args.get(name).map(PyValue::to_json);
            self.say(name, scalar(value), at(SourceKind::Decision, *line));
            self.decisions.push(Decision {
                name: name.clone(),
                asked,
                decided: Untrusted::from(redact::value(name, value)),
                source: source.to_owned(),
                line: line_number(*line),
            });
        }
    }

    fn add_arguments(&mut self, args: &ServerArgs, from: From<'_>) {
        for (name, value) in &args.values {
            self.say(name, value.to_json(), from);
            if from.kind == SourceKind::EngineConfig {
                spell_out(value, name, 0, &mut |name, value| self.say(name, value, from));
            }
        }
        for secret in &args.withheld {
            self.withhold(secret, from);
        }
    }
}

/// `outer={'inner': 1}` also as `outer.inner`, and a nested `Name(key=value)` alike.
fn spell_out(value: &PyValue, path: &str, depth: usize, say: &mut impl FnMut(&str, Value)) {
    if depth >= DEPTH {
        return;
    }
    let entries: Vec<(String, PyValue)> = match value {
        PyValue::Dict(pairs) => pairs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        PyValue::Other(text) => match python_literal::call(text) {
            Some(call) if call.complete => call.arguments,
            _ => return,
        },
        _ => return,
    };
    for (name, value) in entries {
        let path = format!("{path}.{name}");
        say(&path, value.to_json());
        spell_out(&value, &path, depth + 1, say);
    }
}

/// Words of the load line of `vLLM` and the names that other sources have for the same.
const LOAD: &[(&str, &str)] = &[
    ("Running", "num_running_reqs"),
    ("Waiting", "num_waiting_reqs"),
    ("GPU KV cache usage", "token_usage"),
    ("Prefix cache hit rate", "cache_hit_rate"),
];

/// `4.5%` as 0.045, `2 reqs` as 2.
fn share_or_count(text: &str) -> Option<Value> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.split(' ').next()?.parse().ok()?,
    };
    Some(super::metrics::number(number))
}

/// A word of a log as the value that it means.
fn scalar(text: &str) -> Value {
    match python_literal::literal(text) {
        Some(value @ (PyValue::Int(_) | PyValue::Float(_) | PyValue::Bool(_))) => value.to_json(),
        _ if matches!(text, "true" | "false") => Value::from(text == "true"),
        _ => Value::from(text),
    }
}

fn starts(all: &[Start]) -> Vec<StartSeen> {
    let mut out: Vec<StartSeen> = Vec::with_capacity(all.len());
    let mut before: Option<&Start> = None;
    for start in all {
        let seen = StartSeen {
            pid: start.pid,
            time: start.time.clone(),
            line: line_number(start.line),
            ready: start.ready,
            changes: before.map(|b| changes(&b.args, &start.args)).unwrap_or_default(),
        };
        out.push(seen);
        before = Some(start);
    }
    out
}

/// Arguments that differ. Of a line that was cut, nothing is said about names that it does not have.
fn changes(before: &ServerArgs, now: &ServerArgs) -> Vec<Change> {
    if before.values.is_empty() || now.values.is_empty() {
        return Vec::new();
    }
    let mut names: Vec<&str> = before.values.iter().chain(&now.values).map(|(n, _)| n.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let changed = names.into_iter().filter(|n| match (before.get(n), now.get(n)) {
        (Some(a), Some(b)) => a != b,
        (None, _) => before.complete,
        (_, None) => now.complete,
    });
    changed
        // A new seed at every start is no change.
        .filter(|n| *n != "random_seed")
        .map(|name| Change {
            name: name.to_owned(),
            before: before.get(name).map(PyValue::to_json),
            now: now.get(name).map(PyValue::to_json),
        })
        .collect()
}

fn summary(log: &LogReading, from_line: usize) -> BatchSummary {
    let batches: Vec<(usize, Batch)> = log.batches.iter().filter(|(line, _)| *line >= from_line).cloned().collect();
    let mut out = BatchSummary::default();
    let (mut new, mut cached) = (0_u64, 0_u64);
    for (_, batch) in &batches {
        out.retracted = out.retracted.max(batch.count("#retracted-req").unwrap_or(0));
        match batch.kind {
            BatchKind::Prefill if batch.is_health_probe() => out.health_probes += 1,
            BatchKind::Prefill => {
                out.prefills += 1;
                new = new.saturating_add(batch.count("#new-token").unwrap_or(0));
                cached = cached.saturating_add(batch.count("#cached-token").unwrap_or(0));
            }
            BatchKind::Decode => {
                out.decodes += 1;
                out.acceptance.extend(batch.number("accept rate"));
                out.all_rejected += usize::from(batch.rejects_every_draft());
            }
        }
    }
    let prompts = log_grammar::prompts(&batches);
    out.chunk_tokens =
        prompts.iter().filter(|p| p.chunks.len() > 1).filter_map(|p| p.chunks.iter().max().copied()).max();
    out.prompts = prompts.iter().map(|p| (p.tokens(), p.cached)).collect();
    out.cached_share = (new.saturating_add(cached) > 0).then(|| cached as f64 / new.saturating_add(cached) as f64);
    let windows: Vec<_> = log.speculation.iter().filter(|(line, _)| *line >= from_line).map(|(_, w)| w).collect();
    for window in &windows {
        out.acceptance.extend(window.acceptance());
        out.all_rejected += usize::from(window.acceptance() == Some(0.0));
        if !window.per_position.is_empty() {
            out.per_position.push(window.per_position.clone());
        }
    }
    out.looks_like_a_loop = windows.windows(2).any(|w| w.iter().all(|w| w.accepts_everything()));
    out
}
