//! Checks what is served against the checkpoint's own `config.json`, and finds the window of one request. Pure.
//!
//! Not responsible for tensors; see `kernel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cells::observed_claim;
use super::judge::show;
use super::view::View;
use crate::case::ServingEngine;
use crate::truth::observed::{Observed, Seen};
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, flags};
use crate::untrusted::Untrusted;

/// What a `config.json` says, as far as a server can contradict it, and where a model computes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointFacts {
    /// Path of the file.
    pub path: String,
    /// First architecture.
    pub architecture: Option<String>,
    /// Method of quantisation.
    pub quantization: Option<String>,
    /// Tokens that the positions reach, scaling included.
    pub context: Option<u64>,
    /// Keys that the sparse indexer keeps.
    pub index_topk: Option<u64>,
    /// Tokens of the sliding window.
    pub sliding_window: Option<u64>,
    /// `num_hidden_layers`.
    pub layers: Option<u32>,
    /// `num_hash_layers`.
    pub hash_layers: Option<u32>,
    /// `compress_ratios` of the hidden layers; empty is unknown.
    pub compress_ratios: Vec<u32>,
    /// `hc_mult`: streams of the hyper-connections.
    pub hyper_streams: Option<u32>,
}

impl CheckpointFacts {
    /// Reads a `config.json`; of a model with several parts, the text part counts.
    pub fn read(path: &str, config: &Value) -> Self {
        let text = config.get("text_config").filter(|t| t.is_object()).unwrap_or(config);
        let number = |name: &str| text.get(name).or_else(|| config.get(name)).and_then(Value::as_u64);
        let quantization = ["quantization_config", "compression_config"].iter().find_map(|name| {
            let group = config.get(*name).or_else(|| text.get(*name))?;
            group.get("quant_algo").or_else(|| group.get("quant_method"))?.as_str().map(str::to_owned)
        });
        let small = |name: &str| number(name).and_then(|n| u32::try_from(n).ok());
        let layers = small("num_hidden_layers");
        let ratios = text.get("compress_ratios").and_then(Value::as_array);
        let ratios: Option<Vec<u32>> =
            ratios.and_then(|all| all.iter().map(|n| u32::try_from(n.as_u64()?).ok()).collect());
        // Layers that predict further tokens stand behind the hidden ones.
        let hidden = layers.map_or(usize::MAX, |n| n as usize);
        Self {
            path: path.to_owned(),
            layers,
            hash_layers: small("num_hash_layers"),
            compress_ratios: ratios.unwrap_or_default().into_iter().take(hidden).collect(),
            hyper_streams: small("hc_mult"),
            architecture: config.pointer("/architectures/0").and_then(Value::as_str).map(str::to_owned),
            quantization,
            context: context(text, number("max_position_embeddings")),
            index_topk: number("index_topk"),
            sliding_window: number("sliding_window"),
        }
    }
}

/// The largest of the stated positions and what the scaling reaches from the original ones.
fn context(config: &Value, stated: Option<u64>) -> Option<u64> {
    let scaling = config.get("rope_scaling").or_else(|| config.get("rope_parameters"));
    let number = |name: &str| scaling.and_then(|s| s.get(name)).and_then(Value::as_f64);
    let scaled = number("original_max_position_embeddings")
        .zip(number("factor"))
        .map(|(original, factor)| (original * factor).round() as u64);
    stated.max(scaled)
}

/// Tokens that one request may take, prompt and answer together.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Tokens.
    pub tokens: u64,
    /// The limit that is the smallest, and each other one with its tokens.
    pub limits: Vec<(String, u64)>,
}

/// Limits of one request, by name; the smallest counts.
const LIMITS: &[&str] =
    &["context_length", "max_model_len", "max_req_input_len", "max_total_num_tokens", "n_ctx", "max_total_tokens"];

/// The window of one request under all limits that are observed, smallest first; `None` where none is.
///
/// A llama-server divides its context among its slots: `/props` tells the share, a flag the whole.
pub fn window(seen: &Observed) -> Option<Window> {
    let number = |name: &str| seen.value(name).and_then(|s| s.value.as_u64());
    let mut limits: Vec<(String, u64)> =
        LIMITS.iter().filter_map(|name| Some(((*name).to_owned(), number(name)?))).filter(|(_, n)| *n > 0).collect();
    limits.sort_by_key(|(_, tokens)| *tokens);
    Some(Window { tokens: limits.first()?.1, limits })
}

fn said(value: Option<String>, source: &str) -> Option<Claim> {
    Some(Claim {
        value: Some(Untrusted::from(value?)),
        known: Known::Yes,
        source: source.to_owned(),
        line: None,
        blind_to: Some("how the server is started".to_owned()),
    })
}

fn row(view: &View<'_>, component: &str, name: &str, declared: Option<Claim>, observed: Option<Claim>) -> Row {
    Row {
        target: view.layers.target.clone(),
        component: component.to_owned(),
        name: name.to_owned(),
        kind: RowKind::Config,
        declared,
        effective: None,
        observed,
        status: RowStatus::OneSource,
        note: String::new(),
    }
}

/// The rows of the checkpoint and of the window.
pub(super) fn rows(view: &View<'_>) -> Vec<Row> {
    let mut out = Vec::new();
    out.extend(window_row(view).or_else(|| slot_row(view)));
    let Some((source, config)) = &view.layers.checkpoint else { return out };
    let facts = CheckpointFacts::read(source, config);
    out.extend(architecture(view, source, &facts));
    out.extend(quantization(view, source, &facts));
    out.extend(served_context(view, source, &facts));
    out.extend(overridden(view, source, config));
    out
}

/// The window of one slot of a llama-server: its slots share the whole context, unless one store serves them all.
pub fn slot_window(context: u64, slots: u64, unified: bool) -> Option<u64> {
    if unified { Some(context) } else { context.checked_div(slots) }
}

/// What the flags of a llama-server make of the window, where the server itself does not tell it.
fn slot_row(view: &View<'_>) -> Option<Row> {
    if view.engine != Some(ServingEngine::LlamaServer) || view.seen.value("n_ctx").is_some() {
        return None;
    }
    // Without a number of slots the server chooses one by itself.
    let (context, slots) = (view.given_number("ctx_size").filter(|c| *c > 0)?, view.given_number("parallel")?);
    let tokens = slot_window(context, slots, view.given("kv_unified"))?;
    let claim = said(Some(tokens.to_string()), "the flags `--ctx-size` and `--parallel`")?;
    let note = format!("tokens of one request: {context} shared by {slots} slots");
    Some(Row { note, ..row(view, "server", "request_window", Some(claim), None) })
}

fn window_row(view: &View<'_>) -> Option<Row> {
    let window = window(&view.seen).filter(|w| w.limits.len() > 1)?;
    let (name, _) = window.limits.first()?;
    let claim = observed_claim(name, view.seen.value(name)?);
    let rest: Vec<String> = window.limits[1..].iter().map(|(name, tokens)| format!("`{name}` {tokens}")).collect();
    let note = format!("tokens of one request: `{name}` is the smallest limit, beside {}", rest.join(", "));
    Some(Row { note, ..row(view, "server", "request_window", None, Some(claim)) })
}

fn architecture(view: &View<'_>, source: &str, facts: &CheckpointFacts) -> Option<Row> {
    let own = facts.architecture.clone()?;
    let seen = view.seen.value("architectures").or_else(|| view.seen.value("architecture"));
    let served = seen.map(|s| match s.value.get(0).and_then(Value::as_str) {
        Some(first) => first.to_owned(),
        None => flags::shown(&s.value),
    });
    let claim = seen
        .zip(served.clone())
        .map(|(s, value)| Claim { value: Some(Untrusted::from(value)), ..observed_claim("architecture", s) });
    let mut row = row(view, "checkpoint", "architecture", said(Some(own.clone()), source), claim);
    (row.status, row.note) = match served {
        Some(served) if served == own => (RowStatus::Agrees, String::new()),
        Some(served) => (
            RowStatus::Differs,
            format!("the checkpoint says `{}`, the server `{}`", show("a", &own), show("a", &served)),
        ),
        None => (RowStatus::OneSource, String::new()),
    };
    Some(row)
}

fn quantization(view: &View<'_>, source: &str, facts: &CheckpointFacts) -> Option<Row> {
    let own = facts.quantization.clone()?;
    let seen = view.seen.value("quantization");
    let mut row = row(
        view,
        "checkpoint",
        "quantization",
        said(Some(own.clone()), source),
        seen.map(|s| observed_claim("quantization", s)),
    );
    (row.status, row.note) = match seen {
        None => (RowStatus::OneSource, String::new()),
        Some(s) if s.value.is_null() => {
            (RowStatus::OneSource, "the server names none, so the checkpoint decides".into())
        }
        Some(s) if same_method(&own, &flags::shown(&s.value)) => (RowStatus::Agrees, String::new()),
        Some(s) => {
            let served = show("a", &flags::shown(&s.value));
            (RowStatus::Differs, format!("the checkpoint says `{}`, the server `{served}`", show("a", &own)))
        }
    };
    Some(row)
}

/// `NVFP4` of `ModelOpt` is `modelopt_fp4`, and a name may be longer in one place.
fn same_method(a: &str, b: &str) -> bool {
    let plain = |t: &str| t.to_ascii_lowercase().replace('-', "_");
    let (a, b) = (plain(a), plain(b));
    let bits = |t: &str| ["fp4", "fp8", "int4", "int8"].into_iter().find(|f| t.contains(f));
    let modelopt = b.starts_with("modelopt") && (a == "modelopt" || bits(&a).is_some() && bits(&a) == bits(&b));
    a == b || a.starts_with(&b) || b.starts_with(&a) || modelopt
}

fn served_context(view: &View<'_>, source: &str, facts: &CheckpointFacts) -> Option<Row> {
    let own = facts.context?;
    let limit = |name: &str| view.seen.value(name).filter(|s| s.value.as_u64().is_some());
    let seen: Option<&Seen> = limit("context_length").or_else(|| limit("max_model_len"));
    let served = seen.and_then(|s| s.value.as_u64());
    let mut row = row(
        view,
        "checkpoint",
        "context_length",
        said(Some(own.to_string()), source),
        seen.map(|s| observed_claim("context_length", s)),
    );
    (row.status, row.note) = match served {
        Some(served) if served > own => {
            (RowStatus::Differs, format!("{served} tokens are served, and the positions reach {own}"))
        }
        Some(served) if served < own => (RowStatus::Agrees, format!("shorter than the {own} that the positions reach")),
        Some(_) => (RowStatus::Agrees, String::new()),
        None => (RowStatus::OneSource, String::new()),
    };
    Some(row)
}

/// Keys of `config.json` that the launch replaces.
fn overridden(view: &View<'_>, source: &str, config: &Value) -> Vec<Row> {
    let given = ["json_model_override_args", "hf_overrides"].into_iter().find_map(|name| {
        let (text, claim) = match view.seen.value(name) {
            Some(seen) => (flags::shown(&seen.value), observed_claim(name, seen)),
            None => return None,
        };
        Some((name, serde_json::from_str::<Value>(&text).ok()?, claim))
    });
    let Some((flag, Value::Object(keys), claim)) = given else { return Vec::new() };
    keys.into_iter()
        .map(|(key, now)| {
            let own = config.get(&key);
            let declared = said(own.map(flags::shown), source);
            let observed = Claim { value: Some(Untrusted::from(flags::shown(&now))), ..claim.clone() };
            let mut row = row(view, "checkpoint", &key, declared, Some(observed));
            (row.status, row.note) = match own {
                Some(own) if *own == now => (RowStatus::Agrees, String::new()),
                Some(own) => {
                    let own = show(&key, &flags::shown(own));
                    (
                        RowStatus::OverriddenBy,
                        format!("`{own}` in the checkpoint, replaced by `--{}`", flag.replace('_', "-")),
                    )
                }
                None => (RowStatus::OneSource, format!("added by `--{}`", flag.replace('_', "-"))),
            };
            row
        })
        .collect()
}
