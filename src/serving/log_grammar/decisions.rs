//! What a server says to have chosen by itself, from the words of its own announcement. Pure.
//!
//! Each rule takes one way of saying it, so that a new name needs no new rule.

use super::pairs;

/// Names that an announcement spells out, and the flag that they are about.
const NAMES: &[(&str, &str)] = &[
    ("asynchronous_scheduling", "async_scheduling"),
    ("chunked_prefill", "enable_chunked_prefill"),
    ("prefix_caching", "enable_prefix_caching"),
];

/// Name and value of each choice that the message announces.
pub(super) fn decisions(message: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    backends(message, &mut out);
    if out.is_empty() {
        used(message, &mut out);
        set(message, &mut out);
        states(message, &mut out);
    }
    out
}

/// `Set NSA backends for fp8_e4m3 KV Cache: prefill=flashmla_auto, decode=flashmla_kv.`
fn backends(message: &str, out: &mut Vec<(String, String)>) {
    let Some(group) = message.strip_prefix("Set ").and_then(|m| m.split_once(" backends for ")).map(|(g, _)| g) else {
        return;
    };
    let list = message.rsplit_once(": ").and_then(|(_, list)| pairs(list.trim_end_matches('.'), "="));
    for (part, value) in list.unwrap_or_default() {
        out.push((format!("{}_{part}_backend", snake(group)), value));
    }
}

/// `Use X as Y`, `Using X attention backend`, `Using X for Y`, `Using X … kernel`.
fn used(message: &str, out: &mut Vec<(String, String)>) {
    let Some(rest) = message.strip_prefix("Use ").or_else(|| message.strip_prefix("Using ")) else { return };
    if let Some((value, name)) = rest.split_once(" as ") {
        let name = name.split([',', '.']).next().unwrap_or_default().split(" for ").next().unwrap_or_default();
        out.push((snake(name), value.to_owned()));
        return;
    }
    if let Some(tokens) = rest.strip_prefix("max model len ") {
        out.push(("max_model_len".to_owned(), first_word(tokens)));
        return;
    }
    if let Some((value, _)) = rest.split_once(" data type to store kv cache") {
        out.push(("kv_cache_dtype".to_owned(), bare(value)));
        return;
    }
    let Some((value, what)) = rest.split_once(' ') else { return };
    let clause = what.split(['.', ',']).next().unwrap_or_default();
    if let Some(name) = clause.strip_prefix("for ") {
        if name.split(' ').count() <= 4 {
            out.push((snake(name), bare(value)));
        }
        return;
    }
    for end in ["backend", "kernel"] {
        let words: Vec<&str> = clause.split(' ').collect();
        if let Some(at) = words.iter().position(|w| *w == end).filter(|at| (1..4).contains(at)) {
            out.push((snake(&words[..=at].join(" ")), bare(value)));
            return;
        }
    }
}

/// `Setting X to Y`, `Set X to Y`, `…, setting X to Y`.
fn set(message: &str, out: &mut Vec<(String, String)>) {
    for opening in ["Setting ", "setting ", "Set "] {
        let at = match opening {
            "setting " => message.find(", setting ").map(|i| i + 2),
            _ => message.starts_with(opening).then_some(0),
        };
        let Some((name, value)) = at.and_then(|i| message[i + opening.len()..].split_once(" to ")) else { continue };
        let value = first_word(value);
        if !value.is_empty() && name.split(' ').count() <= 5 {
            out.push((snake(name), value));
        }
    }
}

/// `X is set to Y for …`, `X is enabled with y=1.`, `Auto-detected X`, `Resolved architecture: X`.
fn states(message: &str, out: &mut Vec<(String, String)>) {
    if let Some(what) = message.strip_prefix("Auto-detected ") {
        out.push(("auto_detected".to_owned(), what.trim_end_matches('.').to_owned()));
    }
    if let Some(what) = message.strip_prefix("Resolved architecture: ") {
        out.push(("architecture".to_owned(), first_word(what)));
    }
    if let Some((name, value)) = message.split_once(" is set to ").filter(|(name, _)| is_name(name)) {
        out.push((snake(name), bare(&first_word(value))));
    }
    for (said, value) in [(" is enabled", "true"), (" is disabled", "false")] {
        let Some((name, rest)) = message.split_once(said).filter(|(name, _)| is_name(name)) else { continue };
        if rest.trim_end_matches('.').is_empty() {
            out.push((snake(name), value.to_owned()));
        } else if let Some(list) = rest.strip_prefix(" with ").and_then(|l| pairs(l.trim_end_matches('.'), "=")) {
            out.push((snake(name), value.to_owned()));
            out.extend(list);
        }
    }
}

fn is_name(text: &str) -> bool {
    text.split(' ').count() <= 5 && text.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-'))
}

fn first_word(text: &str) -> String {
    text.split([' ', ',']).next().unwrap_or_default().trim_end_matches('.').to_owned()
}

fn bare(text: &str) -> String {
    text.trim_matches(['\'', '"', '`']).to_owned()
}

fn snake(name: &str) -> String {
    let name = name.trim().to_lowercase().replace([' ', '-'], "_");
    NAMES.iter().find(|(said, _)| *said == name).map_or(name, |(_, flag)| (*flag).to_owned())
}
