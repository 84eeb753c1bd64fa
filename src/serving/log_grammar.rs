//! The log lines of `SGLang` and `vLLM`, read one by one and as the story of one or more starts. Pure.
//!
//! `types` is what is read; `prefix` takes off what stands before a message; `decisions` knows what a server says to have chosen by itself.
//! Batch lines are read as `key: value` pairs, because their fields differ by model and version.
//! A line that cannot be read is counted, never a failure. Absence of a line is not evidence:
//! journals rotate, limit their rate and cut long lines.

mod decisions;
mod prefix;
mod types;

use std::collections::BTreeMap;

use self::decisions::decisions;
pub use self::prefix::Level;
pub use self::types::{
    ArgsForm, Batch, BatchKind, Figures, LogLine, LogReading, PromptSeen, Said, ServerArgs, Speculation, Start,
};
use crate::redact;
use crate::serving::python_literal::{self, PyValue};

/// The longest part of a line that is read, in bytes; a longer line counts as damaged.
pub const MAX_LINE: usize = 256 * 1024;

/// Warnings that are kept; the rest is counted.
pub const MAX_WARNINGS: usize = 200;

/// Reads one line.
pub fn read_line(line: &str) -> LogLine {
    read(line).0
}

/// The ranks that a line names in front of its message; empty where it names none.
pub fn ranks(line: &str) -> Vec<(String, u32)> {
    prefix::strip(&prefix::bounded(line, MAX_LINE).0).ranks
}

/// The line, and its message where it is a warning or an error.
fn read(line: &str) -> (LogLine, Option<String>) {
    let (line, cut) = prefix::bounded(line, MAX_LINE);
    let prefix = prefix::strip(&line);
    let mut out = LogLine {
        time: prefix.time.map(str::to_owned),
        ranks: prefix.ranks,
        pid: prefix.pid,
        component: prefix.component,
        level: prefix.level,
        said: Said::Other,
    };
    if prefix.ident == Some("systemd") {
        out.said = systemd(prefix.message);
        return (out, None);
    }
    out.said = said(prefix.message);
    if let Said::Batch(batch) = &mut out.said {
        batch.dp = out.ranks.iter().find(|(name, _)| name == "DP").map(|(_, rank)| *rank);
    }
    if (prefix.overprinted || cut) && out.said != Said::Other {
        out.said = match out.said {
            // What came before the cut is still true.
            Said::ServerArgs(args) => Said::ServerArgs(ServerArgs { complete: false, ..args }),
            _ => Said::Damaged,
        };
    }
    let warned = (out.level >= Level::Warning).then(|| {
        let text = prefix.message.get(..prefix::floor(prefix.message, 2000)).unwrap_or_default();
        redact::text(text)
    });
    (out, warned)
}

/// Reads a whole log.
pub fn read_log(text: &str) -> LogReading {
    let mut reading = LogReading::default();
    // Decisions are printed before the arguments of the same start.
    let mut pending: Vec<(String, String, usize)> = Vec::new();
    let mut pending_pid = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        reading.lines = number;
        let (line, warned) = read(line);
        if let Some(warned) = warned {
            reading.warnings_in_all += 1;
            if reading.warnings.len() < MAX_WARNINGS {
                reading.warnings.push((number, line.level, warned));
            }
        }
        let current = reading.starts.last_mut().filter(|s| !s.ready && (s.pid == line.pid || line.pid.is_none()));
        match line.said {
            Said::ServerArgs(args) => {
                if !args.complete {
                    reading.damaged.push(number);
                }
                let decided = std::mem::take(&mut pending);
                reading.starts.push(Start {
                    pid: line.pid.or(line.component.map(|(_, pid)| pid)),
                    line: number,
                    time: line.time,
                    args,
                    decided,
                    ..Start::default()
                });
            }
            Said::EngineConfig(args, version) => {
                if !args.complete {
                    reading.damaged.push(number);
                }
                match reading.starts.last_mut() {
                    Some(start) if start.config.is_none() => {
                        start.version = version;
                        start.config = Some((args, number));
                    }
                    // Every data-parallel engine prints the same.
                    Some(start) if start.config.as_ref().is_some_and(|(a, _)| *a == args) => {}
                    _ => reading.starts.push(Start {
                        pid: line.pid,
                        line: number,
                        time: line.time,
                        version,
                        config: Some((args, number)),
                        ..Start::default()
                    }),
                }
            }
            Said::Decided(pairs) => {
                let entries = pairs.into_iter().map(|(name, value)| (name, value, number));
                if let Some(start) = current {
                    start.decided.extend(entries);
                } else {
                    pending_pid = line.pid;
                    pending.extend(entries);
                }
            }
            Said::Figures(about, pairs) => {
                if let Some(start) = current {
                    start.figures.push(Figures { line: number, ranks: line.ranks, about, pairs });
                }
            }
            Said::Ready => {
                if let Some(start) = current {
                    start.ready = true;
                }
            }
            Said::Batch(batch) => reading.batches.push((number, batch)),
            Said::Speculation(window) => match reading.speculation.last_mut() {
                // The places may stand on a line of their own.
                Some((_, before)) if window.is_only_positions() && before.per_position.is_empty() => {
                    before.per_position = window.per_position;
                }
                _ => reading.speculation.push((number, window)),
            },
            Said::Load(pairs) => reading.load = Some((number, pairs)),
            Said::Restarting(count) => reading.restarts = reading.restarts.max(Some(count)),
            Said::UnitWarning(text) => reading.unit_warnings.push(redact::text(&text)),
            Said::Damaged => reading.damaged.push(number),
            Said::Other => {}
        }
    }
    if !pending.is_empty() {
        match reading.starts.last_mut() {
            // A line of the process that runs, printed late.
            Some(start) if pending_pid.is_none() || start.pid == pending_pid => start.decided.append(&mut pending),
            // The arguments line of this start is missing or still to come.
            _ => reading.starts.push(Start { pid: pending_pid, decided: pending, ..Start::default() }),
        }
    }
    reading
}

/// The prompts of single requests; health probes and batches of several requests are left out.
pub fn prompts(batches: &[(usize, Batch)]) -> Vec<PromptSeen> {
    let mut out: Vec<PromptSeen> = Vec::new();
    // For each data-parallel rank: tokens still to come, and the prompt that they belong to.
    let mut open: BTreeMap<Option<u32>, (u64, usize)> = BTreeMap::new();
    for (_, batch) in batches.iter().filter(|(_, b)| b.kind == BatchKind::Prefill && !b.is_health_probe()) {
        let (Some(1), Some(new)) = (batch.count("#new-seq"), batch.count("#new-token")) else {
            open.remove(&batch.dp);
            continue;
        };
        let pending = batch.count("#pending-token").unwrap_or(0);
        let at = match open.get(&batch.dp) {
            Some((left, at)) if Some(*left) == pending.checked_add(new) => *at,
            _ => {
                out.push(PromptSeen { chunks: Vec::new(), cached: batch.count("#cached-token").unwrap_or(0) });
                out.len() - 1
            }
        };
        out[at].chunks.push(new);
        match pending {
            0 => open.remove(&batch.dp),
            left => open.insert(batch.dp, (left, at)),
        };
    }
    out
}

fn systemd(text: &str) -> Said {
    if let Some((_, counter)) = text.split_once("restart counter is at ") {
        return counter.trim_end_matches('.').parse().map_or(Said::Damaged, Said::Restarting);
    }
    let warned = text.starts_with('/') && (text.contains("ignoring") || text.contains("Unknown"));
    if warned { Said::UnitWarning(text.to_owned()) } else { Said::Other }
}

fn said(message: &str) -> Said {
    if message.contains("The server is fired up and ready to roll!") {
        return Said::Ready;
    }
    if let Some((_, call)) = message.split_once("server_args=") {
        return python_literal::call(call)
            .map_or(Said::Damaged, |c| Said::ServerArgs(arguments(c.arguments, c.complete, ArgsForm::All)));
    }
    if let Some((_, dict)) = message.split_once("non-default args: ") {
        return python_literal::dict(dict)
            .map_or(Said::Damaged, |pairs| Said::ServerArgs(arguments(pairs, true, ArgsForm::NonDefault)));
    }
    if let Some((head, config)) =
        message.split_once(" LLM engine (v").and_then(|(_, rest)| rest.split_once(") with config: "))
    {
        let (pairs, complete) = python_literal::keywords(config);
        return Said::EngineConfig(arguments(pairs, complete, ArgsForm::All), Some(head.to_owned()));
    }
    for (name, kind) in [("Prefill batch", BatchKind::Prefill), ("Decode batch", BatchKind::Decode)] {
        if let Some(at) = message.find(name) {
            let clean = at == 0;
            let fields = pairs(message[at + name.len()..].trim_start_matches([',', '.', ' ']), ": ");
            return match fields {
                Some(fields) if clean => Said::Batch(Batch { kind, fields, dp: None }),
                _ => Said::Damaged,
            };
        }
    }
    if message.starts_with("SpecDecoding metrics: ") || message.starts_with("Per-position acceptance rate: ") {
        return speculation(message).map_or(Said::Damaged, Said::Speculation);
    }
    if let Some((_, rest)) = message.split_once("Avg prompt throughput: ").filter(|_| message.starts_with("Engine ")) {
        return pairs(&format!("Avg prompt throughput: {rest}"), ": ").map_or(Said::Damaged, Said::Load);
    }
    let decided = decisions(message);
    if !decided.is_empty() {
        return Said::Decided(decided);
    }
    // The name of a progress bar may hold numbers, which are none of the server.
    if message.contains("%|") {
        return Said::Other;
    }
    figures(message).unwrap_or(Said::Other)
}

fn arguments(pairs: Vec<(String, PyValue)>, complete: bool, form: ArgsForm) -> ServerArgs {
    let mut args = ServerArgs { complete, form, ..ServerArgs::default() };
    for (name, value) in pairs {
        if redact::is_secret_name(&name) && value != PyValue::None {
            args.withheld.push(name);
        } else {
            args.values.push((name, clean(value)));
        }
    }
    args
}

/// A value without the secrets that it shows by their own form or name.
fn clean(value: PyValue) -> PyValue {
    match value {
        PyValue::Str(text) => PyValue::Str(redact::text(&text)),
        PyValue::Other(text) => PyValue::Other(redact::text(&text)),
        PyValue::List(items) => PyValue::List(items.into_iter().map(clean).collect()),
        PyValue::Dict(pairs) => PyValue::Dict(
            pairs
                .into_iter()
                .map(|(key, value)| {
                    let secret = redact::is_secret_name(&key.to_string()) && value != PyValue::None;
                    let value = if secret { PyValue::Str(redact::MARK.to_owned()) } else { clean(value) };
                    (key, value)
                })
                .collect(),
        ),
        other => other,
    }
}

/// `Mean acceptance length: 3.74, …, Per-position acceptance rate: 0.983, 0.897, …`.
fn speculation(message: &str) -> Option<Speculation> {
    let mut out = Speculation::default();
    let mut in_list = false;
    let text = message.strip_prefix("SpecDecoding metrics: ").unwrap_or(message);
    for piece in text.trim_end().trim_end_matches(',').split(", ") {
        let Some((name, value)) = piece.split_once(": ") else {
            if !in_list {
                return None;
            }
            out.per_position.push(piece.trim().parse().ok()?);
            continue;
        };
        let number = value.split([' ', '%']).next().unwrap_or_default();
        in_list = name == "Per-position acceptance rate";
        match name {
            "Mean acceptance length" => out.mean_length = Some(number.parse().ok()?),
            "Accepted" => out.accepted = Some(number.parse().ok()?),
            "Drafted" => out.drafted = Some(number.parse().ok()?),
            "Per-position acceptance rate" => out.per_position.push(number.parse().ok()?),
            "Avg Draft acceptance rate" => out.stated = Some(number.parse::<f64>().ok()? / 100.0),
            _ => {}
        }
    }
    Some(out)
}

/// `key: value` pairs split at `, `; `None` if a piece is no pair. A trailing comma is no piece.
fn pairs(text: &str, between: &str) -> Option<Vec<(String, String)>> {
    let pieces = text.trim_end().trim_end_matches(',').split(", ");
    let read = pieces.map(|piece| {
        let (name, value) = piece.split_once(between)?;
        let (name, value) = (name.trim(), value.trim());
        (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    });
    read.collect()
}

/// `about: a=1, b=2`, `about. a b=1 GB` or `a=1, b=2`.
fn figures(message: &str) -> Option<Said> {
    if let Some(tokens) = message.strip_prefix("GPU KV cache size: ").and_then(|m| m.strip_suffix(" tokens")) {
        return Some(Said::Figures(
            "GPU KV cache size".to_owned(),
            vec![("tokens".to_owned(), tokens.replace(',', ""))],
        ));
    }
    let at = message.find('=')?;
    let start = message[..at].rfind([':', '.', ',']).filter(|&i| message[i + 1..].starts_with(' '));
    let (about, rest) = match start {
        Some(i) => (message[..i].trim(), message[i + 1..].trim()),
        None => ("", message),
    };
    let list = pairs(&rest.trim_end_matches('.').replace(" GB. ", " GB, ").replace(" s. ", " s, "), "=")?;
    Some(Said::Figures(about.to_owned(), list))
}

#[cfg(test)]
#[path = "log_grammar_tests.rs"]
mod tests;
