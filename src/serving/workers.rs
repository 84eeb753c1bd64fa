//! The workers of a router: who they are, and taking one out so that it drains.
//!
//! Listing reads only. What changes a router stands in [`change`] alone, so that no reader can call it by accident;
//! `tidy.toml` says who may. Not responsible for deciding when; a change belongs into a procedure with its undo.

use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::client::{Client, bad_answer, said};
use super::endpoint::Endpoint;
use super::error::ServingError;
use crate::case::Role;
use crate::redact;
use crate::untrusted::Untrusted;

/// One worker, as its router tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// The router's id of it.
    pub id: String,
    /// Its base URL, as the router reaches it.
    pub url: String,
    /// What it computes; `None` where the router's word is not known.
    pub role: Option<Role>,
    /// Whether it gets requests; `None` is not told.
    pub healthy: Option<bool>,
    /// Requests that the router has at it; `None` is not told.
    pub load: Option<u64>,
    /// The port on which it hands its keys over, where it has one.
    pub bootstrap_port: Option<u16>,
    /// The request that brings it back as it was listed.
    pub body: Value,
}

/// What a router's list says of a worker under one name, and how the request that adds one calls it.
const KEPT: &[(&str, &str)] = &[
    ("url", "url"),
    ("worker_type", "worker_type"),
    ("bootstrap_port", "bootstrap_port"),
    ("model_id", "model_id"),
    ("priority", "priority"),
    ("cost", "cost"),
    ("runtime_type", "runtime"),
    ("tokenizer_path", "tokenizer_path"),
    ("reasoning_parser", "reasoning_parser"),
    ("tool_parser", "tool_parser"),
    ("chat_template", "chat_template"),
    ("metadata", "labels"),
];

/// The workers of a router. Costs no inference and changes nothing.
///
/// # Errors
/// Any [`ServingError`] of a request; [`ServingError::NotSupported`] where the engine has no such router.
pub async fn list(router: &Client) -> Result<Vec<Worker>, ServingError> {
    let endpoint = endpoint(router)?;
    let answer = router.call(endpoint, None).await?;
    let workers = answer.get("workers").and_then(Value::as_array);
    let workers = workers.ok_or_else(|| bad_answer(endpoint, "it has no `workers`"))?;
    workers.iter().map(|w| read(w).ok_or_else(|| bad_answer(endpoint, "a worker has no `id` or no `url`"))).collect()
}

fn endpoint(router: &Client) -> Result<Endpoint, ServingError> {
    router.dialect().workers.ok_or_else(|| router.not_supported("a router's list of workers"))
}

fn read(worker: &Value) -> Option<Worker> {
    let text = |name: &str| worker.get(name).and_then(Value::as_str).map(str::to_owned);
    let role = match worker.get("worker_type").and_then(Value::as_str) {
        Some("prefill") => Some(Role::Prefill),
        Some("decode") => Some(Role::Decode),
        Some("regular") => Some(Role::Monolithic),
        _ => None,
    };
    let kept = |(told, asked): &(&str, &str)| {
        let value = worker.get(*told).filter(|v| !v.is_null() && v.as_object().is_none_or(|o| !o.is_empty()))?;
        Some(((*asked).to_owned(), value.clone()))
    };
    Some(Worker {
        body: Value::Object(KEPT.iter().filter_map(kept).collect()),
        id: text("id")?,
        url: text("url")?,
        role,
        healthy: worker.get("is_healthy").and_then(Value::as_bool),
        load: worker.get("load").and_then(Value::as_u64),
        bootstrap_port: worker.get("bootstrap_port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()),
    })
}

/// How a wait for an idle worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No request runs, waits or is handed over at it.
    Idle,
    /// So many still are.
    Busy(u64),
    /// It does not tell how many there are.
    Unknown,
}

/// Waits until no request runs, waits or is handed over at a worker, by what it says itself; reads only. `seen` is told
/// the number after each look.
///
/// # Errors
/// Its load cannot be read, or `cancel` ends the wait.
pub async fn until_idle(
    worker: &Client,
    poll: Duration,
    limit: Duration,
    seen: impl Fn(u64),
    cancel: &CancellationToken,
) -> Result<Drained, ServingError> {
    let end = tokio::time::Instant::now() + limit;
    // A request that the router had sent before may reach the worker after the first look.
    let mut idle = 0;
    loop {
        let load = worker.loads().await?;
        let (Some(running), Some(waiting)) = (load.running, load.waiting) else { return Ok(Drained::Unknown) };
        let all = running + waiting + load.handing_over.unwrap_or(0);
        seen(all);
        idle = if all == 0 { idle + 1 } else { 0 };
        if idle == 2 {
            return Ok(Drained::Idle);
        }
        if tokio::time::Instant::now() >= end {
            return Ok(if all == 0 { Drained::Idle } else { Drained::Busy(all) });
        }
        tokio::select! {
            () = cancel.cancelled() => return Err(ServingError::Cancelled),
            () = tokio::time::sleep(poll) => {}
        }
    }
}

/// The requests that **change** a router.
pub mod change {
    use reqwest::Method;

    use super::{Client, ServingError, Value, endpoint, redact, said};
    use crate::serving::key::ApiKey;

    /// Takes a worker out of its router: it gets no new request, and what runs there runs to its end.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; the router knows no such worker.
    pub async fn remove(router: &Client, id: &str) -> Result<(), ServingError> {
        // An id is one part of the path, whatever is in it.
        let part: String = reqwest::Url::parse("http://router/workers/")
            .ok()
            .and_then(|mut url| {
                url.path_segments_mut().ok()?.pop_if_empty().push(id);
                Some(url.path().to_owned())
            })
            .ok_or_else(|| ServingError::BadUrl { url: id.into(), because: "it is no part of a path".into() })?;
        endpoint(router)?;
        send(router, Method::DELETE, &part, None).await
    }

    /// Brings a worker back into its router with the request `body` of [`super::Worker`]; its id may be another one.
    /// `key` is what the router shows the worker.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; the router has that URL already.
    pub async fn add(router: &Client, body: &Value, key: Option<&ApiKey>) -> Result<(), ServingError> {
        let mut body = body.clone();
        if let (Some(key), Some(object)) = (key, body.as_object_mut()) {
            object.insert("api_key".into(), key.word().into());
        }
        let path = endpoint(router)?.path();
        send(router, Method::POST, path, Some(&body)).await
    }

    async fn send(router: &Client, method: Method, path: &str, body: Option<&Value>) -> Result<(), ServingError> {
        let mut request = router.request(method, path).timeout(router.timeouts.plain);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|e| router.transport(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let bytes = response.bytes().await.unwrap_or_default();
        let body = super::Untrusted::from(redact::text(said(&bytes).raw()));
        Err(ServingError::Status { path: "/workers", code: status.as_u16(), body })
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
