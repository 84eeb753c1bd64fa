//! Errors of the HTTP interface, in `OpenAI`'s shape, and of starting the server.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::lab::model::LoadError;
use crate::lab::router::RouterError;
use crate::lab::scenario::{ScenarioError, SealError};
use crate::lab::source::SourceError;

/// An answer that says what is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "BadRequestError", message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "InternalServerError", message: message.into() }
    }

    pub(super) fn body(&self) -> serde_json::Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": null, "code": self.status.as_u16()}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::bad(rejection.body_text())
    }
}

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port belongs to someone else.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Host and port.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Two flags say different parts.
    #[error("`--role` and `--disaggregation-mode` say different parts")]
    Role,
    /// The router cannot start.
    #[error("{0}")]
    Router(#[from] RouterError),
    /// The checkpoint file cannot be read.
    #[error("cannot read the checkpoint: {0}")]
    CheckpointRead(std::io::Error),
    /// The checkpoint is not the lab model's.
    #[error("broken checkpoint: {0}")]
    Checkpoint(#[from] LoadError),
    /// The deployment cannot be read.
    #[error("cannot read the deployment: {0}")]
    Deployment(#[from] SealError),
    /// The deployment holds a scenario that this program does not understand.
    #[error("the deployment does not fit this program: {0}")]
    Scenario(#[from] ScenarioError),
    /// The source on `PYTHONPATH` cannot be run.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// Threads, signals or sockets.
    #[error("the server failed: {0}")]
    Io(#[from] std::io::Error),
    /// The engine thread ended.
    #[error("the engine stopped unexpectedly")]
    EngineDied,
}

impl ServeError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bind { .. } => Some("choose another `--port`, or stop the process that owns this one"),
            Self::Role => Some("leave `--role` out"),
            Self::Router(error) => error.hint(),
            Self::CheckpointRead(_) | Self::Checkpoint(_) => Some(
                "`--checkpoint` names the folder that holds `model.safetensors`; without it the built-in one is used",
            ),
            Self::Deployment(_) | Self::Scenario(_) => Some("install the lab again to get a fresh deployment"),
            Self::Source(_) => Some("mend the file, or take its folder out of `PYTHONPATH` to run without a checkout"),
            Self::Io(_) | Self::EngineDied => None,
        }
    }
}
