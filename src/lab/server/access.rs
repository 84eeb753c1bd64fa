//! One log line for each request, in uvicorn's form.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;

use crate::lab::log;

pub(in crate::lab) async fn log_access(
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let target = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let method = request.method().clone();
    let version = request.version();
    let response = next.run(request).await;
    let status = response.status();
    log::line(&format!(
        "INFO:     {client} - \"{method} {target} {version:?}\" {} {}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default()
    ));
    response
}
