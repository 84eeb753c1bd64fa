//! The same flag under its three spellings: `--kebab-case`, `--flag=value`, and `snake_case` keys. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

/// The key under which a server reports a flag.
pub fn key(flag: &str) -> String {
    let bare = flag.trim_start_matches('-').replace('-', "_");
    match ALIASES.iter().find(|(short, _)| *short == bare) {
        Some((_, long)) => (*long).to_owned(),
        None => bare,
    }
}

/// Short flags of `SGLang` and the keys that its configuration reports them under.
const ALIASES: &[(&str, &str)] = &[
    ("tp", "tp_size"),
    ("tensor_parallel_size", "tp_size"),
    ("dp", "dp_size"),
    ("data_parallel_size", "dp_size"),
    ("ep", "ep_size"),
    ("expert_parallel_size", "ep_size"),
    ("pp", "pp_size"),
    ("pipeline_parallel_size", "pp_size"),
    ("model", "model_path"),
    ("tokenizer", "tokenizer_path"),
    ("max_running_request", "max_running_requests"),
    ("speculative_algo", "speculative_algorithm"),
    ("max_seq_len", "max_model_len"),
    ("context_len", "context_length"),
];

/// Every value of a configuration answer; where an inner state says otherwise, the inner state counts.
pub fn observed(answer: &Value) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    let Some(top) = answer.as_object() else { return out };
    let inner = answer.pointer("/internal_states/0").and_then(Value::as_object);
    for (key, value) in top.iter().filter(|(k, _)| k.as_str() != "internal_states") {
        out.insert(key.clone(), value.clone());
    }
    for (key, value) in inner.into_iter().flatten() {
        out.insert(key.clone(), value.clone());
    }
    for size in ["tp_size", "dp_size", "ep_size", "pp_size"] {
        // Older servers report the short name.
        let short = size.trim_end_matches("_size");
        if let Some(value) = out.get(short).cloned() {
            out.entry(size.to_owned()).or_insert(value);
        }
    }
    out
}

/// Whether the text of a flag and a reported value mean the same. A flag without a value is `true`.
pub fn same(text: &str, value: &Value) -> bool {
    match value {
        Value::Bool(b) => truth(text) == Some(*b),
        Value::Number(n) => text.parse::<f64>().is_ok_and(|t| n.as_f64() == Some(t)) || human(text) == n.as_f64(),
        Value::String(s) => s == text || numbers_equal(s, text) || same_type(s, text) || same_json(s, text),
        Value::Null => matches!(text, "None" | "null" | "none"),
        Value::Array(items) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            words.len() == items.len() && words.iter().zip(items).all(|(w, v)| same(w, v))
                || matches!(items.as_slice(), [one] if same(text, one))
                || same_json(text, &value.to_string())
        }
        Value::Object(_) => serde_json::from_str::<Value>(text).is_ok_and(|t| t == *value),
    }
}

/// Whether two texts of one flag mean the same: equal, the same number, or the same JSON.
pub fn same_text(a: &str, b: &str) -> bool {
    a == b || numbers_equal(a, b) || same_json(a, b)
}

/// Whether two reported values mean the same: one source may write `"8"` where another writes `8`.
pub fn same_value(a: &Value, b: &Value) -> bool {
    a == b || same(&shown(a), b) || same(&shown(b), a)
}

fn numbers_equal(a: &str, b: &str) -> bool {
    matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(x), Ok(y)) if x == y)
}

/// `torch.bfloat16` is `bfloat16`, and `half` is `float16`.
fn same_type(a: &str, b: &str) -> bool {
    let plain = |t: &str| match t.strip_prefix("torch.").unwrap_or(t) {
        "half" => "float16".to_owned(),
        "float" => "float32".to_owned(),
        other => other.to_owned(),
    };
    plain(a) == plain(b)
}

fn same_json(a: &str, b: &str) -> bool {
    let read = |t: &str| t.starts_with(['{', '[']).then(|| serde_json::from_str::<Value>(t).ok()).flatten();
    matches!((read(a), read(b)), (Some(x), Some(y)) if x == y)
}

/// `8k` and `1M` as some servers read them: a small letter counts thousands, a large one powers of 1024.
fn human(text: &str) -> Option<f64> {
    let unit = match text.chars().last()? {
        'k' => 1e3,
        'm' => 1e6,
        'K' => 1024.0,
        'M' => 1024.0 * 1024.0,
        _ => return None,
    };
    text[..text.len() - 1].parse::<f64>().ok().map(|n| n * unit)
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "" | "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A reported value as text.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_key_for_all_spellings() {
        for (flag, expect) in
            [("--moe-runner-backend", "moe_runner_backend"), ("--tp", "tp_size"), ("--tp-size", "tp_size"), ("-c", "c")]
        {
            assert_eq!(key(flag), expect);
        }
    }

    #[test]
    fn texts_and_values() {
        for (text, value, expect) in [
            ("4", json!(4), true),
            ("0.85", json!(0.85), true),
            ("0.850", json!("0.85"), true),
            ("", json!(true), true),
            ("", json!(false), false),
            ("bf16", json!("fp32"), false),
            ("16 32", json!([16, 32]), true),
            ("{\"a\": 1}", json!({"a": 1}), true),
            ("x", json!(null), false),
            ("deepseek v4", json!(["deepseek v4"]), true),
            ("[16, 32]", json!([16, 32]), true),
            ("8k", json!(8000), true),
            ("8K", json!(8192), true),
            ("half", json!("torch.float16"), true),
            ("{\"a\":1}", json!("{\"a\": 1}"), true),
        ] {
            assert_eq!(same(text, &value), expect, "{text} {value}");
        }
    }

    #[test]
    fn inner_state_counts() {
        let path = format!("{}/tests/artefacts/A29_sglang_get_server_info.json", env!("CARGO_MANIFEST_DIR"));
        let answer: Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
        let seen = observed(&answer);
        for (key, expect) in [
            ("decode_attention_backend", json!("fa3")),
            ("disable_chunked_prefix_cache", json!(true)),
            ("pp_max_micro_batch_size", json!(128)),
            ("disable_cuda_graph", json!(true)),
        ] {
            assert_eq!(seen.get(key), Some(&expect), "{key}");
        }
    }
}
