//! Identity, configuration and load: endpoints that change nothing.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::ServeRole;
use super::error::ApiError;
use super::state::{App, Shared, Submission, collect, warm_up_room};
use crate::lab::model::tokens;
use crate::lab::scheduler::Sampling;

/// Alive means: a token comes out.
pub(super) async fn health(State(app): Shared) -> Result<StatusCode, StatusCode> {
    if !app.switches.health_generation {
        return Ok(StatusCode::OK);
    }
    let sampling =
        Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, max_new: 1, stop: Vec::new(), ignore_eos: true };
    let id = Some(format!("HEALTH_CHECK_{}", app.next_id()));
    let submission = Submission {
        ids: vec![tokens::BOS],
        sampling,
        salt: String::new(),
        logprobs: None,
        id,
        room: Some(warm_up_room()),
    };
    let (_, events) = app.submit(submission).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    match tokio::time::timeout(Duration::from_secs(20), collect(events)).await {
        Ok(Ok(_)) => Ok(StatusCode::OK),
        _ => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

pub(super) async fn model_info(State(app): Shared) -> Json<Value> {
    Json(json!({
        "model_path": app.args.model_path(),
        "tokenizer_path": app.args.model_path(),
        "is_generation": true,
        "preferred_sampling_params": null,
        "weight_version": "default",
        "has_image_understanding": false,
        "has_audio_understanding": false,
        "model_type": "deepseek_v4",
        "architectures": ["DeepseekV4ForCausalLM"],
    }))
}

pub(super) async fn server_info(State(app): Shared) -> Json<Value> {
    let mut flat: Map<String, Value> = app.resolved.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    let mut internal = flat.clone();
    let loads = app.engine.loads();
    internal.insert("last_gen_throughput".into(), json!(loads.gen_throughput));
    internal.insert("effective_max_running_requests_per_dp".into(), json!(app.args.running()));
    internal.insert(
        "memory_usage".into(),
        json!({"weight": 0.01, "kvcache": 0.0, "token_capacity": app.args.max_total_tokens}),
    );
    flat.insert("status".into(), json!("ready"));
    flat.insert("max_total_num_tokens".into(), json!(app.args.max_total_tokens));
    flat.insert("max_req_input_len".into(), json!(app.args.context_length.saturating_sub(1)));
    flat.insert("startup_time".into(), json!(app.startup_seconds));
    flat.insert("internal_states".into(), json!([internal]));
    flat.insert("version".into(), json!(version()));
    flat.insert("kv_events".into(), Value::Null);
    Json(Value::Object(flat))
}

fn version() -> String {
    format!("patchbench-lab-{}", env!("CARGO_PKG_VERSION"))
}

pub(super) async fn models(State(app): Shared) -> Json<Value> {
    let created = jiff::Timestamp::now().as_second() - app.started.elapsed().as_secs() as i64;
    Json(json!({"object": "list", "data": [{
        "id": app.args.served_model_name,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": app.args.served_model_name,
        "parent": null,
        "max_model_len": app.args.context_length,
    }]}))
}

/// What `/v1/loads` can be asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct LoadsQuery {
    format: Option<String>,
}

pub(super) async fn loads(State(app): Shared, Query(query): Query<LoadsQuery>) -> Response {
    if query.format.as_deref() == Some("prometheus") {
        return prometheus(&app);
    }
    let loads = app.engine.loads();
    let total = app.args.max_total_tokens as usize;
    Json(json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "version": version(),
        "accelerator": "cpu",
        "num_accelerators": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": loads.running,
            "num_waiting_reqs": loads.waiting + loads.in_transfer,
            "num_used_tokens": loads.used_tokens,
            "num_total_tokens": loads.used_tokens,
            "max_total_num_tokens": total,
            "token_usage": loads.used_tokens as f64 / total as f64,
            "gen_throughput": loads.gen_throughput,
            "cache_hit_rate": hit_rate(loads.cached_tokens, loads.prompt_tokens),
            "disaggregation": disaggregation(&app, loads.in_transfer),
        }],
    }))
    .into_response()
}

/// The requests on their way between two servers; nothing for a server that does everything.
fn disaggregation(app: &App, in_transfer: usize) -> Value {
    match app.args.part() {
        Some(ServeRole::Prefill) => json!({"mode": "prefill", "prefill_inflight_queue_reqs": in_transfer}),
        Some(ServeRole::Decode) => json!({"mode": "decode", "decode_transfer_queue_reqs": in_transfer}),
        Some(ServeRole::Monolithic | ServeRole::Router) | None => Value::Null,
    }
}

fn hit_rate(cached: u64, prompt: u64) -> f64 {
    if prompt == 0 { 0.0 } else { cached as f64 / prompt as f64 }
}

pub(super) async fn metrics(State(app): Shared) -> Response {
    if !app.args.enable_metrics {
        let message = "Metrics are off; start the server with `--enable-metrics`.".to_owned();
        return ApiError { status: StatusCode::NOT_FOUND, kind: "NotFoundError", message }.into_response();
    }
    prometheus(&app)
}

fn prometheus(app: &App) -> Response {
    let loads = app.engine.loads();
    let total = f64::from(app.args.max_total_tokens);
    let rows: [(&str, &str, &str, f64); 10] = [
        ("num_running_reqs", "gauge", "The number of running requests.", loads.running as f64),
        (
            "num_queue_reqs",
            "gauge",
            "The number of requests in the waiting queue.",
            (loads.waiting + loads.in_transfer) as f64,
        ),
        ("num_used_tokens", "gauge", "The number of used tokens.", loads.used_tokens as f64),
        ("token_usage", "gauge", "The token usage.", loads.used_tokens as f64 / total),
        ("gen_throughput", "gauge", "The generation throughput (token/s).", loads.gen_throughput),
        ("cache_hit_rate", "gauge", "The prefix cache hit rate.", hit_rate(loads.cached_tokens, loads.prompt_tokens)),
        ("prompt_tokens_total", "counter", "Number of prefill tokens processed.", loads.prompt_tokens as f64),
        ("cached_tokens_total", "counter", "Number of cached prompt tokens.", loads.cached_tokens as f64),
        (
            "generation_tokens_total",
            "counter",
            "Number of generation tokens processed.",
            loads.generation_tokens as f64,
        ),
        ("num_requests_total", "counter", "Number of requests processed.", loads.requests as f64),
    ];
    let kind_of = match app.args.part() {
        Some(ServeRole::Prefill) => "prefill",
        Some(ServeRole::Decode) => "decode",
        Some(ServeRole::Monolithic | ServeRole::Router) | None => "unified",
    };
    let mut out = String::new();
    for (name, kind, help, value) in rows {
        let model = &app.args.served_model_name;
        let _ = write!(out, "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {kind}\n");
        let _ = writeln!(out, "sglang:{name}{{engine_type={kind_of:?},model_name={model:?}}} {value}");
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], out).into_response()
}
