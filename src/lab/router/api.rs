//! The router's own endpoints: its workers, whether it lives and is ready, and the load of all.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::args::is_url;
use super::workers::{Kind, NewWorker, Worker};
use super::{Shared, health};
use crate::lab::log;

type Router = State<Arc<Shared>>;

pub(super) async fn liveness() -> &'static str {
    "OK"
}

pub(super) async fn readiness(State(shared): Router) -> Response {
    let all = shared.workers.all();
    let live = |kind| all.iter().filter(|w| w.kind == kind && w.is_healthy()).count();
    let (prefill, decode) = (live(Kind::Prefill), live(Kind::Decode));
    if prefill == 0 || decode == 0 {
        let body = json!({"status": "not ready", "reason": "insufficient healthy workers"});
        return (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    }
    let body = json!({"status": "ready", "healthy_workers": prefill + decode, "total_workers": all.len()});
    Json(body).into_response()
}

pub(super) async fn list(State(shared): Router) -> Json<Value> {
    let all = shared.workers.all();
    Json(json!({
        "workers": all.iter().map(|w| w.info()).collect::<Vec<_>>(),
        "total": all.len(),
        "stats": {
            "prefill_count": shared.workers.count(Kind::Prefill),
            "decode_count": shared.workers.count(Kind::Decode),
            "regular_count": 0,
        },
    }))
}

pub(super) async fn get(State(shared): Router, Path(id): Path<String>) -> Response {
    match shared.workers.get(&id) {
        Some(worker) => Json(worker.info()).into_response(),
        None => not_found(&id),
    }
}

pub(super) async fn add(State(shared): Router, body: Result<Json<NewWorker>, JsonRejection>) -> Response {
    let new = match body {
        Ok(Json(new)) if is_url(&new.url) => new,
        Ok(Json(new)) => return refused(StatusCode::BAD_REQUEST, "BAD_REQUEST", &format!("`{}` is no URL", new.url)),
        Err(rejection) => return refused(StatusCode::BAD_REQUEST, "BAD_REQUEST", &rejection.body_text()),
    };
    let worker = match shared.workers.add(&new) {
        Ok(worker) => worker,
        Err(known) => {
            let message = format!("Worker already exists at URL '{}' with ID {}", known.url, known.id);
            return refused(StatusCode::CONFLICT, "WORKER_ALREADY_EXISTS", &message);
        }
    };
    log::line(&format!("Added {} worker {} with ID {}", kind_word(&worker), worker.url, worker.id));
    let (looking, location) = (Arc::clone(&shared), format!("/workers/{}", worker.id));
    tokio::spawn(async move { health::look_now(&looking).await });
    let body = json!({
        "status": "accepted",
        "worker_id": worker.id,
        "url": worker.url,
        "location": location,
        "message": "Worker addition queued for background processing",
    });
    (StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(body)).into_response()
}

pub(super) async fn remove(State(shared): Router, Path(id): Path<String>) -> Response {
    let Some(worker) = shared.workers.remove(&id) else { return not_found(&id) };
    let running = worker.in_flight();
    log::line(&format!("Removed {} worker {}, {running} requests run to their end", kind_word(&worker), worker.url));
    let body = json!({
        "status": "accepted",
        "worker_id": worker.id,
        "message": "Worker removal queued for background processing",
    });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// What each worker says of its load, as `SGLang`'s router answers it; a worker that says nothing is left out.
pub(super) async fn loads(State(shared): Router) -> Json<Value> {
    let mut loads = Vec::new();
    for worker in shared.workers.all() {
        let url = format!("{}/v1/loads", worker.url);
        let Ok(answer) = shared.http.get(url).timeout(super::QUICK).send().await else { continue };
        let Ok(answer) = answer.json::<Value>().await else { continue };
        for rank in answer["loads"].as_array().into_iter().flatten() {
            let mut rank = rank.clone();
            rank["worker"] = json!(worker.url);
            rank["worker_type"] = json!(worker.kind);
            loads.push(rank);
        }
    }
    let sum = |name: &str| loads.iter().filter_map(|l| l[name].as_u64()).sum::<u64>();
    let (running, waiting) = (sum("num_running_reqs"), sum("num_waiting_reqs"));
    let aggregate = json!({
        "total_running_reqs": running,
        "total_waiting_reqs": waiting,
        "total_reqs": running + waiting,
    });
    Json(json!({
        "timestamp": jiff::Timestamp::now().to_string(),
        "dp_rank_count": loads.len(),
        "loads": loads,
        "aggregate": aggregate,
    }))
}

fn kind_word(worker: &Worker) -> &'static str {
    match worker.kind {
        Kind::Prefill => "prefill",
        Kind::Decode => "decode",
    }
}

fn not_found(id: &str) -> Response {
    refused(StatusCode::NOT_FOUND, "WORKER_NOT_FOUND", &format!("Worker {id} not found"))
}

fn refused(status: StatusCode, code: &str, error: &str) -> Response {
    (status, Json(json!({"error": error, "code": code}))).into_response()
}
