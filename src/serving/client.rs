//! The plain HTTP client of a model server: one request, one typed answer or one typed error.
//!
//! Nothing is retried, nothing is cached, redirects and proxies are not followed, and only the endpoints of
//! [`Endpoint`] can be sent. Streamed chat is in `chat`.

use std::time::{Duration, Instant};

use reqwest::header::AUTHORIZATION;
use serde_json::{Value, json};

use crate::case::ServingEngine;
use crate::redact;
use crate::serving::capabilities::{Dialect, Render, dialect};
use crate::serving::chat::ChatMessage;
use crate::serving::endpoint::Endpoint;
use crate::serving::error::ServingError;
use crate::serving::key::ApiKey;
use crate::serving::load;
use crate::serving::server_info::{self, ServerInfo};
use crate::untrusted::Untrusted;

/// The longest answer that is read, in bytes: the ids of a prompt of a million tokens fit.
pub(super) const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// The host by which half of a divided `SGLang` deployment knows that no state is to be moved.
const NO_OTHER_HALF: &str = "2.2.2.2";

/// How long each part of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Making the connection.
    pub connect: Duration,
    /// A request without inference, as a whole.
    pub plain: Duration,
    /// From sending a prompt to the first event of the answer; long prompts take minutes.
    pub first_token: Duration,
    /// Between two events of an answer.
    pub between: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            plain: Duration::from_secs(30),
            first_token: Duration::from_mins(10),
            between: Duration::from_mins(1),
        }
    }
}

/// A way to one server.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) http: reqwest::Client,
    base: String,
    engine: ServingEngine,
    key: Option<ApiKey>,
    pub(super) timeouts: Timeouts,
}

/// What the server says that it serves.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Path or name of the model, where the answer has one.
    pub model: Option<Untrusted>,
    /// The whole answer without secrets.
    pub answer: Value,
}

/// A conversation in the tokens of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenized {
    /// Number of tokens.
    pub count: u32,
    /// The ids, where the server gives them.
    pub tokens: Vec<u32>,
}

/// How busy a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests in work; `None` is not told.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Requests between the halves of a divided deployment, which neither run nor wait.
    pub handing_over: Option<u64>,
    /// Share of the key cache in use, 0 to 1; the fullest rank counts.
    pub kv_usage: Option<f64>,
    /// Share of prompt tokens found in the prefix cache, 0 to 1.
    pub cache_hit_rate: Option<f64>,
}

/// A prompt that no template touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawPrompt {
    /// Token ids.
    Ids(Vec<u32>),
    /// Text, tokenised by the server.
    Text(String),
}

/// The first token of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstToken {
    /// Its text.
    pub text: Untrusted,
    /// Its id, where the server gives it.
    pub id: Option<u32>,
    /// Prompt tokens, as the server counts.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: Option<u32>,
    /// Seconds from sending to the answer.
    pub seconds: f64,
}

/// Installs the TLS provider of the process; calling it again does nothing.
pub fn install_tls() {
    // The error says only that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client that speaks plain HTTP alone and needs no certificates of the system: a bare host has none, and without any
/// no client can be made otherwise.
///
/// # Errors
/// The system refuses.
pub fn plain_http(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, reqwest::Error> {
    install_tls();
    builder.tls_certs_only([]).build()
}

impl Client {
    /// A client for the server at `base`, such as `http://127.0.0.1:30000`; a trailing `/v1` is taken off.
    ///
    /// # Errors
    /// The address is not usable, or the HTTP client cannot start.
    pub fn new(
        base: &str,
        engine: ServingEngine,
        key: Option<ApiKey>,
        timeouts: Timeouts,
    ) -> Result<Self, ServingError> {
        let bad = |because: &str| ServingError::BadUrl { url: base.into(), because: because.into() };
        let url = reqwest::Url::parse(base).map_err(|e| bad(&e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("only http and https are spoken"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("a user or password does not belong in it"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it has a query"));
        }
        install_tls();
        let builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(timeouts.connect);
        let http = if url.scheme() == "http" { plain_http(builder) } else { builder.build() };
        let http = http.map_err(|e| ServingError::NoClient { because: innermost(&e) })?;
        let base = url.as_str().trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Self { http, base, engine, key, timeouts })
    }

    /// The server, without a trailing slash.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The engine that is spoken to.
    pub fn engine(&self) -> ServingEngine {
        self.engine
    }

    /// Its dialect.
    pub fn dialect(&self) -> Dialect {
        dialect(self.engine)
    }

    /// The URL of an endpoint.
    pub fn url(&self, endpoint: Endpoint) -> String {
        format!("{}{}", self.base, endpoint.path())
    }

    /// Who the server says it is, with the URL that was asked. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn identity(&self) -> Result<(String, Value), ServingError> {
        self.plain(self.dialect().identity).await
    }

    /// The server's configuration as it answers it, but for secrets, with the URL that was asked.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; [`ServingError::NotSupported`] for `vLLM`.
    pub async fn configuration(&self) -> Result<(String, Value), ServingError> {
        let config = self.dialect().config;
        if config.is_empty() {
            return Err(self.not_supported("reading the resolved configuration"));
        }
        self.plain(config).await
    }

    async fn plain(&self, endpoints: &[Endpoint]) -> Result<(String, Value), ServingError> {
        let (endpoint, mut answer) = self.first_of(endpoints, None).await?;
        redact::json(&mut answer);
        Ok((self.url(endpoint), answer))
    }

    /// Has the server generate one token, greedily: the URL that was asked, and the token's text where there is one.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn one_token(&self) -> Result<(String, Option<Untrusted>), ServingError> {
        let (endpoint, body) = match self.engine {
            ServingEngine::Sglang => (Endpoint::Generate, self.smallest_request().await),
            ServingEngine::Vllm => {
                let model = self.served_model().await?;
                (Endpoint::Completions, json!({ "model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0 }))
            }
            ServingEngine::LlamaServer => {
                (Endpoint::Completion, json!({ "prompt": "Hello", "n_predict": 1, "temperature": 0 }))
            }
        };
        self.text_of(endpoint, &body).await
    }

    /// Has the deployment behind a router compute a whole request, greedily: two tokens, since the first one is computed
    /// where the prompt is and only the second one where answers are. The URL that was asked, and the text.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn whole_request(&self) -> Result<(String, Option<Untrusted>), ServingError> {
        let (endpoint, body) = match self.engine {
            ServingEngine::Sglang => {
                let sampling = json!({ "max_new_tokens": 2, "temperature": 0, "ignore_eos": true });
                (Endpoint::Generate, json!({ "text": "Hello", "sampling_params": sampling }))
            }
            ServingEngine::Vllm => {
                let body = json!({ "model": self.served_model().await?, "prompt": "Hello", "max_tokens": 2,
                    "temperature": 0, "ignore_eos": true });
                (Endpoint::Completions, body)
            }
            ServingEngine::LlamaServer => {
                (Endpoint::Completion, json!({ "prompt": "Hello", "n_predict": 2, "temperature": 0 }))
            }
        };
        self.text_of(endpoint, &body).await
    }

    /// Whether a router says that it can serve, in its own words, with the URL that was asked. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request: status 503 is a router that says that it cannot, and why;
    /// [`ServingError::NotSupported`] but for `SGLang`'s.
    pub async fn readiness(&self) -> Result<(String, Value), ServingError> {
        let endpoint = self.dialect().readiness.ok_or_else(|| self.not_supported("a router's word of readiness"))?;
        let mut answer = self.call(endpoint, None).await?;
        redact::json(&mut answer);
        Ok((self.url(endpoint), answer))
    }

    async fn text_of(&self, endpoint: Endpoint, body: &Value) -> Result<(String, Option<Untrusted>), ServingError> {
        let answer = self.call_within(endpoint, Some(body), "the first token", self.timeouts.first_token).await?;
        let text = ["/text", "/content", "/choices/0/text"].iter().find_map(|p| answer.pointer(p)?.as_str());
        Ok((self.url(endpoint), text.map(|t| Untrusted::from(redact::text(t)))))
    }

    /// A request for one token; for half of a divided deployment, for the least that makes it compute.
    async fn smallest_request(&self) -> Value {
        let mut body = json!({ "text": "Hello", "sampling_params": { "max_new_tokens": 1, "temperature": 0 } });
        let info = self.server_info().await.ok();
        let mode = info.as_ref().and_then(|i| i.get("disaggregation_mode")?.as_str());
        if matches!(mode, Some("prefill" | "decode")) {
            // As `SGLang` warms such a server up: no other half takes part. The first token is the other half's, so
            // that only the second one is computed by a server that decodes.
            body["bootstrap_host"] = NO_OTHER_HALF.into();
            body["bootstrap_room"] = 0.into();
            body["sampling_params"] = json!({ "max_new_tokens": 2, "temperature": 0, "ignore_eos": true });
        }
        body
    }

    /// Which model is served. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn model_info(&self) -> Result<ModelInfo, ServingError> {
        let (_, mut answer) = self.first_of(self.dialect().identity, None).await?;
        let model = ["/model_path", "/data/0/id"]
            .iter()
            .find_map(|p| answer.pointer(p).and_then(Value::as_str))
            .map(Untrusted::from);
        if let Value::Object(object) = &mut answer {
            server_info::withhold(object, "", &mut Vec::new());
        }
        Ok(ModelInfo { model, answer })
    }

    /// The resolved configuration, secrets taken out.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; [`ServingError::NotSupported`] for `vLLM`.
    pub async fn server_info(&self) -> Result<ServerInfo, ServingError> {
        let config = self.dialect().config;
        if config.is_empty() {
            return Err(self.not_supported("reading the resolved configuration"));
        }
        let (endpoint, answer) = self.first_of(config, None).await?;
        server_info::read(answer).ok_or_else(|| bad_answer(endpoint, "it is no object"))
    }

    /// The server's load as it answers it, with the URL that was asked. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; [`ServingError::NotSupported`] but for `SGLang`.
    pub async fn load_answer(&self) -> Result<(String, Value), ServingError> {
        let endpoints = self.dialect().load;
        if endpoints.is_empty() {
            return Err(self.not_supported("reading the load"));
        }
        let (endpoint, answer) = self.first_of(endpoints, None).await?;
        Ok((self.url(endpoint), answer))
    }

    /// The server's own counters as Prometheus text, with the URL that was asked. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; a server that was not told to count answers 404.
    pub async fn metrics(&self) -> Result<(String, String), ServingError> {
        let work = async {
            let response = self.send(Endpoint::Metrics, None).await?;
            self.read_all(Endpoint::Metrics, response).await
        };
        let seconds = self.timeouts.plain.as_secs();
        let limit = tokio::time::timeout(self.timeouts.plain, work).await;
        let bytes = limit.unwrap_or(Err(ServingError::TimedOut { what: "the answer", seconds }))?;
        Ok((self.url(Endpoint::Metrics), redact::text(&String::from_utf8_lossy(&bytes))))
    }

    /// How busy the server is. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; [`ServingError::NotSupported`] but for `SGLang`.
    pub async fn loads(&self) -> Result<Load, ServingError> {
        let (_, answer) = self.load_answer().await?;
        read_load(&answer).ok_or_else(|| bad_answer(Endpoint::Loads, "it has no `loads`"))
    }

    /// The conversation in tokens of the server, rendered as for an answer. Costs no inference.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn tokenize(&self, messages: &[ChatMessage], tools: &[Value]) -> Result<Tokenized, ServingError> {
        let mut body = json!({ "model": "default", "messages": messages, "add_generation_prompt": true });
        if !tools.is_empty() {
            body["tools"] = Value::from(tools);
        }
        let (endpoint, answer) = match self.dialect().render {
            Render::Tokenize(endpoints) => {
                if self.engine == ServingEngine::Vllm {
                    body["model"] = self.served_model().await?.into();
                }
                self.first_of(endpoints, Some(&body)).await?
            }
            Render::TemplateThenTokenize => {
                let rendered = self.call(Endpoint::ApplyTemplate, Some(&body)).await?;
                let prompt = rendered.get("prompt").and_then(Value::as_str);
                let prompt = prompt.ok_or_else(|| bad_answer(Endpoint::ApplyTemplate, "it has no `prompt`"))?;
                let body = json!({ "content": prompt, "add_special": true, "parse_special": true });
                (Endpoint::Tokenize, self.call(Endpoint::Tokenize, Some(&body)).await?)
            }
        };
        read_tokens(&answer).ok_or_else(|| bad_answer(endpoint, "it has neither `count` nor `tokens`"))
    }

    /// The first token after a prompt that no template touches. Costs one prompt.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request; [`ServingError::NotSupported`] but for `SGLang`.
    pub async fn generate_first_token(&self, prompt: &RawPrompt) -> Result<FirstToken, ServingError> {
        let endpoint = self.dialect().generate.ok_or_else(|| self.not_supported("generating from a raw prompt"))?;
        let mut body = json!({ "sampling_params": { "max_new_tokens": 1, "temperature": 0.0 } });
        match prompt {
            RawPrompt::Ids(ids) => body["input_ids"] = Value::from(ids.as_slice()),
            RawPrompt::Text(text) => body["text"] = text.as_str().into(),
        }
        let started = Instant::now();
        let answer = self.call_within(endpoint, Some(&body), "the first token", self.timeouts.first_token).await?;
        let text = answer.get("text").and_then(Value::as_str);
        let text = text.ok_or_else(|| bad_answer(endpoint, "it has no `text`"))?;
        Ok(FirstToken {
            text: text.into(),
            id: answer.pointer("/output_ids/0").and_then(small),
            prompt_tokens: answer.pointer("/meta_info/prompt_tokens").and_then(small),
            cached_tokens: answer.pointer("/meta_info/cached_tokens").and_then(small),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// The name under which the model is served; `default` for engines that do not look at it.
    ///
    /// # Errors
    /// Any [`ServingError`] of a request.
    pub async fn served_model(&self) -> Result<String, ServingError> {
        if self.engine != ServingEngine::Vllm {
            return Ok("default".into());
        }
        let answer = self.call(Endpoint::Models, None).await?;
        let id = answer.pointer("/data/0/id").and_then(Value::as_str);
        id.map(str::to_owned).ok_or_else(|| bad_answer(Endpoint::Models, "it lists no model"))
    }

    /// Asks the endpoints in turn until one is known to the server.
    async fn first_of(&self, endpoints: &[Endpoint], body: Option<&Value>) -> Result<(Endpoint, Value), ServingError> {
        let mut unknown = self.not_supported("this request");
        for &endpoint in endpoints {
            match self.call(endpoint, body).await {
                Ok(answer) => return Ok((endpoint, answer)),
                Err(e @ ServingError::Status { code: 404 | 405, .. }) => unknown = e,
                Err(e) => return Err(e),
            }
        }
        Err(unknown)
    }

    pub(super) async fn call(&self, endpoint: Endpoint, body: Option<&Value>) -> Result<Value, ServingError> {
        self.call_within(endpoint, body, "the answer", self.timeouts.plain).await
    }

    async fn call_within(
        &self,
        endpoint: Endpoint,
        body: Option<&Value>,
        what: &'static str,
        limit: Duration,
    ) -> Result<Value, ServingError> {
        let work = async {
            let response = self.send(endpoint, body).await?;
            let bytes = self.read_all(endpoint, response).await?;
            serde_json::from_slice(&bytes).map_err(|e| bad_answer(endpoint, &format!("no json: {e}")))
        };
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or(Err(ServingError::TimedOut { what, seconds: limit.as_secs() }))
    }

    /// Sends a request; an error status becomes an error with what the server said.
    pub(super) async fn send(
        &self,
        endpoint: Endpoint,
        body: Option<&Value>,
    ) -> Result<reqwest::Response, ServingError> {
        let mut request = self.request(endpoint.method(), endpoint.path());
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|e| self.transport(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let path = endpoint.path();
        let bytes = self.read_all(endpoint, response).await.unwrap_or_default();
        Err(ServingError::Status { path, code: status.as_u16(), body: said(&bytes) })
    }

    /// A request to this server, with its key.
    pub(super) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, key.bearer()),
            None => request,
        }
    }

    async fn read_all(&self, endpoint: Endpoint, mut response: reqwest::Response) -> Result<Vec<u8>, ServingError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.transport(&e))? {
            if bytes.len() + chunk.len() > MAX_ANSWER {
                return Err(ServingError::TooLong { path: endpoint.path(), limit: MAX_ANSWER });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    pub(super) fn transport(&self, error: &reqwest::Error) -> ServingError {
        ServingError::Connection { url: self.base.clone(), because: innermost(error) }
    }

    pub(super) fn not_supported(&self, what: &'static str) -> ServingError {
        ServingError::NotSupported { what, engine: self.engine }
    }
}

/// What a server says in the body of an error: the message of an error object, else the text.
pub(super) fn said(bytes: &[u8]) -> Untrusted {
    let text = String::from_utf8_lossy(bytes);
    let json: Option<Value> = serde_json::from_str(&text).ok();
    let message = json.as_ref().and_then(|v| {
        let places = ["/error/message", "/message", "/detail", "/reason", "/error"];
        places.iter().find_map(|p| v.pointer(p).and_then(Value::as_str))
    });
    match message {
        Some(message) => message.into(),
        None if text.trim().is_empty() => "no explanation".into(),
        None => text.trim().into(),
    }
}

pub(super) fn bad_answer(endpoint: Endpoint, because: &str) -> ServingError {
    ServingError::BadAnswer { path: endpoint.path(), because: because.into() }
}

/// The cause at the bottom, which names the fact; the layers above repeat the URL.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

pub(super) fn small(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn read_tokens(answer: &Value) -> Option<Tokenized> {
    let tokens: Option<Vec<u32>> =
        answer.get("tokens").and_then(Value::as_array).and_then(|ids| ids.iter().map(small).collect());
    let count = answer.get("count").and_then(small).or(tokens.as_ref().map(|t| t.len() as u32))?;
    Some(Tokenized { count, tokens: tokens.unwrap_or_default() })
}

/// Sums requests over the ranks and takes the fullest cache; `None` without a `loads` list.
fn read_load(answer: &Value) -> Option<Load> {
    let all = load::over_ranks(answer)?;
    let number = |name: &str| all.get(name).copied();
    Some(Load {
        running: number("num_running_reqs").map(|n| n as u64),
        waiting: number("num_waiting_reqs").map(|n| n as u64),
        handing_over: load::handing_over(answer),
        kv_usage: number("token_usage"),
        cache_hit_rate: number("cache_hit_rate"),
    })
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
