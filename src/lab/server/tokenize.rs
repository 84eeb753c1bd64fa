//! Text to tokens and back, and the chat template without inference.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::ApiError;
use super::state::Shared;
use super::template::{Message, render};
use crate::lab::model::tokens;

/// Body of `/tokenize`: a prompt, or messages with tools.
#[derive(Debug, Deserialize)]
pub(super) struct TokenizeBody {
    prompt: Option<OneOrMany<String>>,
    messages: Option<Vec<Message>>,
    tools: Option<Vec<Box<RawValue>>>,
    #[serde(default = "yes")]
    add_special_tokens: bool,
}

fn yes() -> bool {
    true
}

/// One value, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

pub(super) async fn tokenize(
    State(app): Shared,
    body: Result<Json<TokenizeBody>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let Json(body) = body?;
    let plain = |text: &str| -> Vec<u16> {
        let bos = body.add_special_tokens.then_some(tokens::BOS);
        bos.into_iter().chain(tokens::encode(text)).collect()
    };
    let (ids, count) = match (&body.messages, &body.prompt) {
        (Some(messages), _) => {
            let ids = render(messages, body.tools.as_deref().unwrap_or_default())?;
            (json!(ids), json!(ids.len()))
        }
        (None, Some(OneOrMany::One(text))) => {
            let ids = plain(text);
            (json!(ids), json!(ids.len()))
        }
        (None, Some(OneOrMany::Many(texts))) => {
            let all: Vec<Vec<u16>> = texts.iter().map(|t| plain(t)).collect();
            (json!(all), json!(all.iter().map(Vec::len).collect::<Vec<_>>()))
        }
        (None, None) => return Err(ApiError::bad("Either `prompt` or `messages` is required.")),
    };
    Ok(Json(json!({"tokens": ids, "count": count, "max_model_len": app.args.context_length})))
}

/// Body of `/detokenize`.
#[derive(Debug, Deserialize)]
pub(super) struct DetokenizeBody {
    tokens: Vec<u16>,
    #[serde(default = "yes")]
    skip_special_tokens: bool,
}

pub(super) async fn detokenize(body: Result<Json<DetokenizeBody>, JsonRejection>) -> Result<Json<Value>, ApiError> {
    let Json(body) = body?;
    let text =
        if body.skip_special_tokens { tokens::decode(&body.tokens) } else { tokens::decode_special(&body.tokens) };
    Ok(Json(json!({"text": text})))
}
