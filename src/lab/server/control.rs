//! Endpoints that change the server: flush and abort.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, Uri};
use serde::Deserialize;

use super::error::ApiError;
use super::state::Shared;

pub(super) async fn flush_cache(State(app): Shared) -> (StatusCode, String) {
    match app.engine.flush().await {
        Ok(()) => (StatusCode::OK, "Cache flushed.\nPlease check backend logs for more details.\n".to_owned()),
        Err(reason) => (StatusCode::BAD_REQUEST, reason + "\n"),
    }
}

/// Body of `/abort_request`.
#[derive(Debug, Deserialize)]
pub(super) struct AbortBody {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

pub(super) async fn abort_request(
    State(app): Shared,
    body: Result<Json<AbortBody>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(body) = body?;
    match body {
        AbortBody { abort_all: true, .. } => app.engine.abort(None),
        AbortBody { rid: Some(rid), .. } => app.engine.abort(Some(rid)),
        AbortBody { .. } => return Err(ApiError::bad("Either `rid` or `abort_all` is required.")),
    }
    Ok(StatusCode::OK)
}

pub(super) async fn not_found(uri: Uri) -> ApiError {
    let message = format!("There is no endpoint `{}`.", uri.path());
    ApiError { status: StatusCode::NOT_FOUND, kind: "NotFoundError", message }
}
