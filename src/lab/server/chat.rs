//! `/v1/chat/completions`, whole and streamed.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::ApiError;
use super::generate::{Bootstrap, check_sampling, stops, whole_text};
use super::state::{App, Collected, Shared, Submission, collect};
use super::stream;
use super::template::{Message, render};
use super::text::Text;
use super::tokenize::OneOrMany;
use crate::lab::model::tokens;
use crate::lab::scheduler::{Finish, LogprobSpec, Sampling, TokenLogprob};

/// Body of `/v1/chat/completions`.
#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields are the protocol's")]
pub(super) struct ChatBody {
    #[serde(default)]
    messages: Vec<Message>,
    tools: Option<Vec<Box<RawValue>>>,
    input_ids: Option<Vec<u16>>,
    model: Option<String>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    seed: Option<u64>,
    n: Option<u32>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stop: Option<OneOrMany<String>>,
    ignore_eos: Option<bool>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    logprobs: bool,
    top_logprobs: Option<usize>,
    #[serde(default)]
    return_prompt_token_ids: bool,
    #[serde(default)]
    return_token_ids: bool,
    cache_salt: Option<String>,
    extra_key: Option<String>,
    rid: Option<String>,
    #[serde(flatten)]
    bootstrap: Bootstrap,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

fn submission(app: &App, body: &mut ChatBody) -> Result<Submission, ApiError> {
    if body.n.is_some_and(|n| n != 1) {
        return Err(ApiError::bad("Only `n` = 1 is supported."));
    }
    let ids = match body.input_ids.take() {
        Some(ids) => ids,
        None => render(&body.messages, body.tools.as_deref().unwrap_or_default())?,
    };
    let (temperature, top_p) = (body.temperature.unwrap_or(1.0), body.top_p.unwrap_or(1.0));
    check_sampling(temperature, top_p)?;
    let max_new = app.new_tokens(ids.len(), body.max_completion_tokens.or(body.max_tokens), None)?;
    let sampling = Sampling {
        temperature,
        top_p,
        top_k: body.top_k.filter(|k| *k > 0).map_or(0, |k| k as usize),
        seed: body.seed.unwrap_or_else(|| app.fresh_seed()),
        max_new,
        stop: stops(body.stop.take()),
        ignore_eos: body.ignore_eos.unwrap_or(false),
    };
    let logprobs = body.logprobs.then(|| LogprobSpec { start: None, top: body.top_logprobs.unwrap_or(0) });
    let salt = body.cache_salt.take().or_else(|| body.extra_key.take()).unwrap_or_default();
    Ok(Submission { ids, sampling, salt, logprobs, id: body.rid.take(), room: body.bootstrap.room(0) })
}

pub(super) async fn completions(
    State(app): Shared,
    body: Result<Json<ChatBody>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(mut body) = body?;
    let submission = submission(&app, &mut body)?;
    let prompt = submission.ids.clone();
    let stop = submission.sampling.stop.clone();
    let (id, events) = app.submit(submission)?;
    let frame = Frame {
        id,
        model: body.model.take().unwrap_or_else(|| app.args.served_model_name.clone()),
        created: jiff::Timestamp::now().as_second(),
        prompt: prompt.len(),
        cache_report: app.args.enable_cache_report,
        logprobs: body.logprobs,
    };
    if body.stream {
        let include_usage = body.stream_options.is_some_and(|o| o.include_usage);
        let first = vec![frame.chunk(&json!({"role": "assistant", "content": ""}), None, &Value::Null)];
        let mut collected = Collected::default();
        let mut text = Text::new(&stop);
        let mut shown = 0;
        return Ok(stream::respond(events, &first, move |event| {
            let new = text.event(&event);
            let over = collected.take(event);
            let mut lines = Vec::new();
            if !new.is_empty() {
                let logprobs = frame.logprobs_of(&collected.tokens[shown..]);
                shown = collected.tokens.len();
                lines.push(frame.chunk(&json!({"content": new}), None, &logprobs));
            }
            if over {
                lines.push(frame.chunk(&json!({}), collected.finish.as_ref(), &Value::Null));
                if include_usage {
                    lines.push(frame.usage_chunk(&collected));
                }
            }
            lines
        }));
    }
    let collected = collect(events).await?;
    let finish = collected.finish.clone().unwrap_or(Finish::Eos);
    let mut choice = json!({
        "index": 0,
        "message": {
            "role": "assistant",
            "content": whole_text(&collected, &stop),
            "reasoning_content": null,
            "tool_calls": null,
        },
        "logprobs": frame.logprobs_of(&collected.tokens),
        "finish_reason": finish_name(&finish),
        "matched_stop": matched(&finish),
    });
    if body.return_token_ids {
        choice["token_ids"] = json!(collected.ids());
    }
    let mut answer = json!({
        "id": frame.id,
        "object": "chat.completion",
        "created": frame.created,
        "model": frame.model,
        "choices": [choice],
        "usage": frame.usage(&collected),
        "metadata": {"weight_version": "default"},
    });
    if body.return_prompt_token_ids || body.return_token_ids {
        answer["prompt_token_ids"] = json!(prompt);
    }
    Ok(Json(answer).into_response())
}

struct Frame {
    id: String,
    model: String,
    created: i64,
    prompt: usize,
    cache_report: bool,
    logprobs: bool,
}

impl Frame {
    fn chunk(&self, delta: &Value, finish: Option<&Finish>, logprobs: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "delta": delta,
                "logprobs": logprobs,
                "finish_reason": finish.map(finish_name),
                "matched_stop": finish.map_or(Value::Null, matched),
            }],
            "usage": null,
        })
    }

    fn usage_chunk(&self, collected: &Collected) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [],
            "usage": self.usage(collected),
        })
    }

    fn usage(&self, collected: &Collected) -> Value {
        let completion = collected.tokens.len();
        let details = self.cache_report.then(|| json!({"cached_tokens": collected.cached}));
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": completion,
            "total_tokens": self.prompt + completion,
            "prompt_tokens_details": details,
        })
    }

    fn logprobs_of(&self, tokens: &[TokenLogprob]) -> Value {
        if !self.logprobs {
            return Value::Null;
        }
        let one = |logprob: Option<f32>, id: u16| {
            json!({
                "token": tokens::decode_special(&[id]),
                "bytes": tokens::bytes(&[id]),
                "logprob": logprob,
            })
        };
        let row = |t: &TokenLogprob| {
            let mut row = one(t.logprob, t.id);
            row["top_logprobs"] = t.top.iter().map(|(l, id)| one(Some(*l), *id)).collect();
            row
        };
        json!({"content": tokens.iter().map(row).collect::<Vec<_>>()})
    }
}

fn finish_name(finish: &Finish) -> &'static str {
    match finish {
        Finish::Eos | Finish::StopText(_) => "stop",
        Finish::Length(_) => "length",
        Finish::Abort(_) => "abort",
    }
}

fn matched(finish: &Finish) -> Value {
    match finish {
        Finish::Eos => json!(tokens::EOS),
        Finish::StopText(text) => json!(text),
        Finish::Length(_) | Finish::Abort(_) => Value::Null,
    }
}
