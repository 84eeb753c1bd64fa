//! The few requests that a proof and a probe need: identity, configuration, load, one token.
//!
//! Not responsible for trials; they use the serving client.

use std::time::Duration;

use serde_json::{Value, json};

use crate::case::{KeySource, ServingEngine, Target};
use crate::engine::procedure::Failure;

/// A way to one server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: reqwest::Client,
    base: String,
    key: Option<String>,
    engine: ServingEngine,
}

/// Why a request gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Nothing listens, or the connection broke.
    #[error("no answer from {url}: {why}")]
    NoAnswer {
        /// The URL.
        url: String,
        /// Why.
        why: String,
    },
    /// The server said no.
    #[error("{url} answered {status}")]
    Status {
        /// The URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The answer is not what was asked for.
    #[error("{url} answered something that is not JSON")]
    NotJson {
        /// The URL.
        url: String,
    },
}

/// The way to a target, with its key read now.
///
/// # Errors
/// The key cannot be read, or no client can be made.
pub async fn endpoint(target: &Target) -> Result<Endpoint, Failure> {
    // An error says that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .connect_timeout(Duration::from_secs(2))
        .build()
        .map_err(|e| Failure::new(format!("cannot make an HTTP client: {e}")))?;
    let key = match &target.api_key {
        None => None,
        Some(KeySource::Env(name)) => Some(std::env::var(name).map_err(|_| {
            Failure::new(format!("the variable `{name}` with the key of `{}` is not set", target.name))
        })?),
        Some(KeySource::Command(command)) => Some(key_from(command, &target.name).await?),
    };
    Ok(Endpoint { client, base: target.url.trim_end_matches('/').to_owned(), key, engine: target.engine })
}

async fn key_from(command: &str, target: &str) -> Result<String, Failure> {
    let cancel = tokio_util::sync::CancellationToken::new();
    let end = super::local::shell(command, 20.0, &cancel).await;
    match end {
        Ok(end) if end.ok() => Ok(end.out.trim().to_owned()),
        Ok(_) => Err(Failure::new(format!("the command for the key of `{target}` failed"))),
        Err(error) => Err(Failure::new(format!("the command for the key of `{target}` failed: {error}"))),
    }
}

impl Endpoint {
    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Who the server says it is: its cheapest identity answer, which generates nothing.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn identity(&self) -> Result<(String, Value), HttpError> {
        let paths: &[&str] = match self.engine {
            ServingEngine::Sglang => &["/model_info", "/get_model_info"],
            ServingEngine::Vllm => &["/v1/models"],
            ServingEngine::LlamaServer => &["/props"],
        };
        self.first_known(paths, Duration::from_secs(5)).await
    }

    /// The server's resolved configuration.
    ///
    /// # Errors
    /// It does not answer, or has no such answer.
    pub async fn configuration(&self) -> Result<(String, Value), HttpError> {
        let paths: &[&str] = match self.engine {
            ServingEngine::Sglang => &["/server_info", "/get_server_info"],
            ServingEngine::Vllm => &["/server_info?config_format=json"],
            ServingEngine::LlamaServer => &["/props"],
        };
        self.first_known(paths, Duration::from_secs(10)).await
    }

    /// The first of several names of an endpoint that the server knows; returns its URL too.
    async fn first_known(&self, paths: &[&str], limit: Duration) -> Result<(String, Value), HttpError> {
        let mut last = None;
        for path in paths {
            match self.get(path, limit).await {
                Ok(value) => return Ok((self.url(path), value)),
                Err(error @ HttpError::Status { status: 404, .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| HttpError::NotJson { url: self.base.clone() }))
    }

    /// A JSON answer to GET.
    ///
    /// # Errors
    /// It does not answer in time, or not with JSON.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Value, HttpError> {
        self.send(self.client.get(self.url(path)).timeout(limit), path).await
    }

    /// Has the server generate one token, greedily; returns the URL and the answer.
    ///
    /// # Errors
    /// It does not answer in time.
    pub async fn first_token(&self, limit: Duration) -> Result<(String, Value), HttpError> {
        let (path, body) = match self.engine {
            ServingEngine::Sglang => {
                ("/generate", json!({"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}))
            }
            ServingEngine::Vllm => ("/v1/completions", json!({"prompt": "Hello", "max_tokens": 1, "temperature": 0})),
            ServingEngine::LlamaServer => ("/completion", json!({"prompt": "Hello", "n_predict": 1, "temperature": 0})),
        };
        let request = self.client.post(self.url(path)).json(&body).timeout(limit);
        Ok((self.url(path), self.send(request, path).await?))
    }

    async fn send(&self, request: reqwest::RequestBuilder, path: &str) -> Result<Value, HttpError> {
        let url = self.url(path);
        let request = match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let no_answer = |e: reqwest::Error| {
            let why = if e.is_timeout() {
                "too slow"
            } else if e.is_connect() {
                "no connection"
            } else {
                "broken off"
            };
            HttpError::NoAnswer { url: url.clone(), why: why.into() }
        };
        let answer = request.send().await.map_err(no_answer)?;
        if !answer.status().is_success() {
            return Err(HttpError::Status { url: url.clone(), status: answer.status().as_u16() });
        }
        let bytes = answer.bytes().await.map_err(no_answer)?;
        serde_json::from_slice(&bytes).map_err(|_| HttpError::NotJson { url: url.clone() })
    }
}
