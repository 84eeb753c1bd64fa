//! Sends a request to a prefill and a decode server at once, and its answer back; other questions to any worker.
//!
//! The same request goes to both, with the room in which they meet. What the decode server answers is the answer;
//! of the prefill server only an error is of use. A client that goes away takes both requests with it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::workers::{Kind, Taken};
use super::{Shared, health};

/// First wait before a request is tried again.
const BACKOFF: Duration = Duration::from_millis(50);

/// A task that ends with whoever waits for it.
struct Leash<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Leash<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `/v1/chat/completions` and `/generate`.
pub(super) async fn pair(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> Response {
    let body: Value = match serde_json::from_slice(&body) {
        Ok(body @ Value::Object(_)) => body,
        Ok(_) => return refused(StatusCode::BAD_REQUEST, "the request is no JSON object"),
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some((prefill, decode)) = take(&shared).await else {
        return refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "No available prefill or decode workers (all unhealthy or removed)",
        );
    };
    let request = with_room(body, &prefill);
    let send = |worker: &Taken| shared.http.post(format!("{}{}", worker.0.url, uri.path())).json(&request).send();
    let (first, answer) = (send(&prefill), send(&decode));
    // The prefill server's answer is read to its end, so that its request counts as long as it runs.
    let mut first = Leash(tokio::spawn(async move {
        let _prefill = prefill;
        let response = first.await.map_err(|e| e.to_string())?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((status, bytes))
    }));
    tokio::pin!(answer);
    let mut prefilled = false;
    loop {
        tokio::select! {
            done = &mut first.0, if !prefilled => match done {
                Ok(Ok((status, _))) if status.is_success() => prefilled = true,
                Ok(Ok((status, bytes))) => return plain(status, bytes),
                Ok(Err(error)) => return refused(StatusCode::BAD_GATEWAY, &format!("Prefill server error: {error}")),
                Err(error) => return refused(StatusCode::BAD_GATEWAY, &format!("Prefill server error: {error}")),
            },
            response = &mut answer => return match response {
                Ok(response) => pass_on(response, (first, decode)),
                Err(error) => refused(StatusCode::BAD_GATEWAY, &format!("Decode server error: {error}")),
            },
        }
    }
}

/// A worker of each kind; waits a little for one that is about to come back, as `SGLang`'s router does.
async fn take(shared: &Shared) -> Option<(Taken, Taken)> {
    let mut backoff = BACKOFF;
    for attempt in 0..=shared.args.retry_max_retries {
        if attempt > 0 {
            tokio::time::sleep(backoff).await;
            backoff = backoff.mul_f64(1.5);
            health::look_now(shared).await;
        }
        if let (Some(prefill), Some(decode)) = (shared.workers.pick(Kind::Prefill), shared.workers.pick(Kind::Decode)) {
            return Some((prefill, decode));
        }
    }
    None
}

/// The request with the room in which prefill and decode meet; a batch has one for each prompt.
fn with_room(mut body: Value, prefill: &Taken) -> Value {
    let url = reqwest::Url::parse(&prefill.0.url).ok();
    let host = url.as_ref().and_then(|u| u.host_str()).unwrap_or("127.0.0.1").to_owned();
    let port = prefill.0.bootstrap_port;
    let room = || rand::random::<u64>() >> 1;
    match batch(&body) {
        None => {
            body["bootstrap_host"] = json!(host);
            body["bootstrap_port"] = json!(port);
            body["bootstrap_room"] = json!(room());
        }
        Some(count) => {
            body["bootstrap_host"] = json!(vec![host; count]);
            body["bootstrap_port"] = json!(vec![port; count]);
            body["bootstrap_room"] = json!((0..count).map(|_| room()).collect::<Vec<_>>());
        }
    }
    body
}

/// Prompts in a request of many; `None` for a single one.
fn batch(body: &Value) -> Option<usize> {
    let texts = body.get("text").and_then(Value::as_array);
    let ids = body.get("input_ids").and_then(Value::as_array).filter(|ids| ids.iter().any(Value::is_array));
    texts.or(ids).map(Vec::len)
}

/// Questions that any one worker answers for all: which model, which tokens.
pub(super) async fn any(State(shared): State<Arc<Shared>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let Some(worker) = shared.workers.pick(Kind::Prefill).or_else(|| shared.workers.pick(Kind::Decode)) else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "No available workers (all unhealthy or removed)");
    };
    let target = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
    let request = shared.http.request(method, format!("{}{target}", worker.0.url));
    match request.header(header::CONTENT_TYPE, "application/json").body(body).timeout(super::QUICK).send().await {
        Ok(response) => pass_on(response, worker),
        Err(error) => refused(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

/// Asks every worker to forget its prefixes.
pub(super) async fn flush_cache(State(shared): State<Arc<Shared>>) -> Response {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for worker in shared.workers.all() {
        let sent = shared.http.post(format!("{}/flush_cache", worker.url)).timeout(super::QUICK).send().await;
        match sent.and_then(reqwest::Response::error_for_status) {
            Ok(_) => successful.push(worker.url.clone()),
            Err(error) => failed.push(json!({"worker": worker.url, "error": error.to_string()})),
        }
    }
    let status = if failed.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
    let word = if failed.is_empty() { "success" } else { "partial_success" };
    let flushed = successful.len();
    let body = json!({"status": word, "workers_flushed": flushed, "successful": successful, "failed": failed});
    (status, axum::Json(body)).into_response()
}

/// The answer of a worker, as it comes; `kept` lives as long as the answer.
fn pass_on<K: Send + 'static>(response: reqwest::Response, kept: K) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let body = response.bytes_stream().map(move |chunk| {
        let _ = &kept;
        chunk
    });
    let mut answer = (status, Body::from_stream(body)).into_response();
    if let Some(kind) = kind {
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    answer
}

fn plain(status: StatusCode, bytes: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn refused(status: StatusCode, message: &str) -> Response {
    let kind = if status.is_client_error() { "BadRequestError" } else { "ServiceUnavailable" };
    let error = json!({"message": message, "type": kind, "param": null, "code": status.as_u16()});
    (status, axum::Json(json!({"error": error}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_told_from_one_prompt() {
        let check = |body: Value, expect: Option<usize>| assert_eq!(batch(&body), expect, "{body}");
        check(json!({"text": "one"}), None);
        check(json!({"input_ids": [1, 2, 3]}), None);
        check(json!({"messages": []}), None);
        check(json!({"text": ["one", "two"]}), Some(2));
        check(json!({"input_ids": [[1, 2], [3]]}), Some(2));
    }
}
