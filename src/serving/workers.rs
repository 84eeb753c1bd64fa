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
}

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
    Some(Worker {
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
    /// No request runs or waits at it.
    Idle,
    /// So many still run or wait.
    Busy(u64),
    /// It does not tell how many requests run or wait.
    Unknown,
}

/// Waits until no request runs or waits at a worker, by what it says itself; reads only.
///
/// # Errors
/// Its load cannot be read, or `cancel` ends the wait.
pub async fn until_idle(
    worker: &Client,
    poll: Duration,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<Drained, ServingError> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        let load = worker.loads().await?;
        let (Some(running), Some(waiting)) = (load.running, load.waiting) else { return Ok(Drained::Unknown) };
        if running + waiting == 0 {
            return Ok(Drained::Idle);
        }
        if tokio::time::Instant::now() >= end {
            return Ok(Drained::Busy(running + waiting));
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
    use serde_json::json;

    use super::{Client, Role, ServingError, Value, Worker, endpoint, redact, said};

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

    /// Brings a worker back into its router, as `worker` was listed before; its id will be another one.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; the router has that URL already, or the role is not known.
    pub async fn add(router: &Client, worker: &Worker) -> Result<(), ServingError> {
        let kind = match worker.role {
            Some(Role::Prefill) => "prefill",
            Some(Role::Decode) => "decode",
            Some(Role::Monolithic) => "regular",
            Some(Role::Router) | None => return Err(router.not_supported("adding a worker of unknown kind")),
        };
        let mut body = json!({ "url": worker.url, "worker_type": kind });
        if let Some(port) = worker.bootstrap_port {
            body["bootstrap_port"] = port.into();
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
