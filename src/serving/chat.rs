//! Chat completions, read as the stream that a server sends.
//!
//! A stream is complete when it says `[DONE]`, or when it ends after a finish reason; anything else is an error,
//! never a short answer. Not responsible for judging the text.

use std::time::Instant;

use eventsource_stream::{EventStreamError, Eventsource as _};
use futures_util::{Stream, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::serving::capabilities::{ColdRun, Dialect};
use crate::serving::client::{Client, MAX_ANSWER, said, small};
use crate::serving::endpoint::Endpoint;
use crate::serving::error::ServingError;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// Instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The output of a tool.
    Tool,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: ChatRole,
    /// What is said.
    pub content: String,
    /// Calls that an assistant message makes, in the form of the chat API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// For a tool message: which call it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl ChatMessage {
    /// A message without tool calls.
    pub fn new(role: ChatRole, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// Name of the model; see [`Client::served_model`].
    pub model: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Tool definitions in the form of the chat API.
    pub tools: Vec<Value>,
    /// Sampling temperature; always sent, because servers have defaults of their own.
    pub temperature: f64,
    /// Longest answer in tokens.
    pub max_tokens: u32,
    /// Makes this request share its prefix only with requests of the same salt; `None` shares with all.
    pub cache_salt: Option<String>,
    /// Whether the model thinks first; `None` leaves it to the server.
    pub thinking: Option<bool>,
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatAnswer {
    /// The text, as it came.
    pub text: String,
    /// The reasoning, as it came.
    pub reasoning: String,
    /// Why the model stopped; `None` if the server did not say.
    pub finish_reason: Option<String>,
    /// Prompt tokens, as the server counts.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens taken from the prefix cache; `None` is *not told*, not zero.
    pub cached_tokens: Option<u32>,
    /// Seconds from sending to the end of the stream.
    pub seconds: f64,
    /// Seconds from sending to the first text or reasoning; `None` if none came.
    pub first_token_s: Option<f64>,
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Of the text.
    Text(&'a str),
    /// Of the reasoning.
    Reasoning(&'a str),
}

/// The body of a request in the dialect of its engine.
pub fn request_body(request: &ChatRequest, dialect: &Dialect) -> Value {
    let mut body = json!({
        "model": request.model,
        "messages": request.messages,
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !request.tools.is_empty() {
        body["tools"] = Value::from(request.tools.as_slice());
    }
    if let Some(thinking) = request.thinking {
        body["chat_template_kwargs"] = json!({ "thinking": thinking, "enable_thinking": thinking });
    }
    match (&request.cache_salt, dialect.cold) {
        (Some(salt), ColdRun::CacheSalt) => body["cache_salt"] = salt.as_str().into(),
        (Some(_), ColdRun::CachePromptOff) => body["cache_prompt"] = false.into(),
        (None, _) => {}
    }
    body
}

impl Client {
    /// Sends a conversation and reads the streamed answer; `on_delta` sees each piece as it comes.
    ///
    /// # Errors
    /// Any [`ServingError`]; [`ServingError::Cancelled`] as soon as `cancel` is set, with the connection dropped.
    pub async fn chat_stream(
        &self,
        request: &ChatRequest,
        on_delta: impl FnMut(Delta<'_>) + Send,
        cancel: &CancellationToken,
    ) -> Result<ChatAnswer, ServingError> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ServingError::Cancelled),
            answer = self.read_stream(request, on_delta) => answer,
        }
    }

    async fn read_stream(
        &self,
        request: &ChatRequest,
        mut on_delta: impl FnMut(Delta<'_>) + Send,
    ) -> Result<ChatAnswer, ServingError> {
        let started = Instant::now();
        let dialect = self.dialect();
        let body = request_body(request, &dialect);
        let first_limit = self.timeouts.first_token;
        let late = |what, limit: std::time::Duration| ServingError::TimedOut { what, seconds: limit.as_secs() };
        let response = tokio::time::timeout(first_limit, self.send(Endpoint::Chat, Some(&body)))
            .await
            .map_err(|_| late("the first token", first_limit))??;
        let mut events = std::pin::pin!(bounded(response).eventsource());
        let mut reader = Reader { dialect, answer: ChatAnswer::default(), events: 0 };
        loop {
            // Some servers open the stream before the prompt is computed; only a piece of the answer ends that wait.
            let (what, limit, left) = match reader.answer.first_token_s {
                None => ("the first token", first_limit, first_limit.saturating_sub(started.elapsed())),
                Some(_) => ("the next token", self.timeouts.between, self.timeouts.between),
            };
            let event = tokio::time::timeout(left, events.next()).await.map_err(|_| late(what, limit))?;
            let Some(event) = event else { break };
            let event = event.map_err(|e| self.stream_error(e, reader.events))?;
            if event.data.trim() == "[DONE]" {
                return Ok(reader.finish(started));
            }
            reader.take(&event.data, started, &mut on_delta)?;
        }
        match reader.answer.finish_reason {
            Some(_) => Ok(reader.finish(started)),
            None => Err(ServingError::CutShort { events: reader.events }),
        }
    }

    fn stream_error(&self, error: EventStreamError<Broken>, events: usize) -> ServingError {
        let because = match error {
            EventStreamError::Utf8(_) => "its text is not utf-8".to_owned(),
            EventStreamError::Parser(e) => format!("it is no event stream: {e}"),
            EventStreamError::Transport(Broken::Transport(_)) if events > 0 => {
                return ServingError::CutShort { events };
            }
            EventStreamError::Transport(Broken::Transport(e)) => return self.transport(&e),
            EventStreamError::Transport(Broken::TooLong) => {
                return ServingError::TooLong { path: Endpoint::Chat.path(), limit: MAX_ANSWER };
            }
        };
        ServingError::BadAnswer { path: Endpoint::Chat.path(), because }
    }
}

/// Why the bytes of a stream stopped.
#[derive(Debug)]
enum Broken {
    Transport(reqwest::Error),
    TooLong,
}

/// The bytes of an answer, up to the limit of all answers.
fn bounded(response: reqwest::Response) -> impl Stream<Item = Result<Vec<u8>, Broken>> {
    response.bytes_stream().scan(0_usize, |total, chunk| {
        let item = chunk.map_err(Broken::Transport).and_then(|bytes| {
            *total += bytes.len();
            if *total > MAX_ANSWER { Err(Broken::TooLong) } else { Ok(bytes.to_vec()) }
        });
        std::future::ready(Some(item))
    })
}

struct Reader {
    dialect: Dialect,
    answer: ChatAnswer,
    events: usize,
}

impl Reader {
    fn take(&mut self, data: &str, started: Instant, on_delta: &mut impl FnMut(Delta<'_>)) -> Result<(), ServingError> {
        let chunk: Value = serde_json::from_str(data).map_err(|e| ServingError::BadAnswer {
            path: Endpoint::Chat.path(),
            because: format!("event {} is no json: {e}", self.events + 1),
        })?;
        self.events += 1;
        if chunk.get("error").is_some_and(|e| !e.is_null()) {
            return Err(ServingError::InStream { message: said(data.as_bytes()) });
        }
        if let Some(delta) = chunk.pointer("/choices/0/delta") {
            let piece = |name: &str| delta.get(name).and_then(Value::as_str).filter(|s| !s.is_empty());
            if let Some(text) = piece(self.dialect.reasoning_field) {
                self.answer.reasoning.push_str(text);
                on_delta(Delta::Reasoning(text));
            }
            if let Some(text) = piece("content") {
                self.answer.text.push_str(text);
                on_delta(Delta::Text(text));
            }
            let came = !self.answer.text.is_empty() || !self.answer.reasoning.is_empty();
            if came && self.answer.first_token_s.is_none() {
                self.answer.first_token_s = Some(started.elapsed().as_secs_f64());
            }
        }
        if let Some(reason) = chunk.pointer("/choices/0/finish_reason").and_then(Value::as_str) {
            self.answer.finish_reason = Some(reason.to_owned());
        }
        if let Some(count) = chunk.pointer("/usage/prompt_tokens").and_then(small) {
            self.answer.prompt_tokens = Some(count);
        }
        if let Some(count) = self.dialect.cached_tokens.iter().find_map(|p| chunk.pointer(p).and_then(small)) {
            self.answer.cached_tokens = Some(count);
        }
        Ok(())
    }

    fn finish(self, started: Instant) -> ChatAnswer {
        ChatAnswer { seconds: started.elapsed().as_secs_f64(), ..self.answer }
    }
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
