//! `/generate`: the engine's own interface, with token ids and log probabilities.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::state::{App, Collected, Shared, Submission, collect};
use super::stream;
use super::text::Text;
use super::tokenize::OneOrMany;
use crate::lab::model::tokens;
use crate::lab::scheduler::{Finish, LogprobSpec, Sampling, TokenLogprob};
use crate::lab::transfer::Room;

/// New tokens when a request does not say.
const DEFAULT_NEW_TOKENS: usize = 128;
/// `SGLang`'s bootstrap port.
const DEFAULT_BOOTSTRAP_PORT: u16 = 8998;

/// Body of `/generate`.
#[derive(Debug, Deserialize)]
pub(super) struct GenerateBody {
    text: Option<OneOrMany<String>>,
    input_ids: Option<OneOrMany<IdOrList>>,
    #[serde(default)]
    sampling_params: SamplingParams,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    return_logprob: bool,
    logprob_start_len: Option<i64>,
    #[serde(default)]
    top_logprobs_num: usize,
    #[serde(default)]
    return_text_in_logprobs: bool,
    cache_salt: Option<String>,
    extra_key: Option<String>,
    rid: Option<String>,
    #[serde(flatten)]
    bootstrap: Bootstrap,
}

/// Where the two halves of a divided deployment meet; one for each prompt.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Bootstrap {
    #[serde(rename = "bootstrap_host")]
    host: Option<OneOrMany<String>>,
    #[serde(rename = "bootstrap_port")]
    port: Option<OneOrMany<Option<u16>>>,
    #[serde(rename = "bootstrap_room")]
    room: Option<OneOrMany<u64>>,
}

impl Bootstrap {
    /// The room of the prompt with that index; `None` where the request names none.
    pub(super) fn room(&self, index: usize) -> Option<Room> {
        fn at<T: Clone>(all: Option<&OneOrMany<T>>, index: usize) -> Option<T> {
            match all? {
                OneOrMany::One(one) => Some(one.clone()),
                OneOrMany::Many(many) => many.get(index).cloned(),
            }
        }
        Some(Room {
            host: at(self.host.as_ref(), index)?,
            port: at(self.port.as_ref(), index).flatten().unwrap_or(DEFAULT_BOOTSTRAP_PORT),
            room: at(self.room.as_ref(), index)?,
        })
    }
}

/// A token id, or a whole prompt of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum IdOrList {
    Id(u16),
    List(Vec<u16>),
}

#[derive(Debug, Default, Deserialize)]
struct SamplingParams {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    max_new_tokens: Option<u64>,
    stop: Option<OneOrMany<String>>,
    ignore_eos: Option<bool>,
    sampling_seed: Option<u64>,
}

pub(super) fn stops(stop: Option<OneOrMany<String>>) -> Vec<String> {
    let all = match stop {
        None => Vec::new(),
        Some(OneOrMany::One(text)) => vec![text],
        Some(OneOrMany::Many(texts)) => texts,
    };
    all.into_iter().filter(|t| !t.is_empty()).collect()
}

/// Checks the usual sampling numbers.
pub(super) fn check_sampling(temperature: f32, top_p: f32) -> Result<(), ApiError> {
    if !(temperature.is_finite() && temperature >= 0.0) {
        return Err(ApiError::bad(format!("temperature must be non-negative, got {temperature}.")));
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(ApiError::bad(format!("top_p must be in (0, 1], got {top_p}.")));
    }
    Ok(())
}

fn prompts(body: &mut GenerateBody) -> Result<(Vec<Vec<u16>>, bool), ApiError> {
    let encode = |text: &str| -> Vec<u16> { std::iter::once(tokens::BOS).chain(tokens::encode(text)).collect() };
    match (body.text.take(), body.input_ids.take()) {
        (Some(_), Some(_)) => Err(ApiError::bad("Either `text` or `input_ids` must be given, not both.")),
        (Some(OneOrMany::One(text)), None) => Ok((vec![encode(&text)], false)),
        (Some(OneOrMany::Many(texts)), None) => Ok((texts.iter().map(|t| encode(t)).collect(), true)),
        (None, Some(OneOrMany::One(IdOrList::Id(id)))) => Ok((vec![vec![id]], false)),
        (None, Some(OneOrMany::One(IdOrList::List(ids)))) => Ok((vec![ids], false)),
        (None, Some(OneOrMany::Many(items))) => {
            let nested = items.iter().any(|i| matches!(i, IdOrList::List(_)));
            let mut flat = Vec::new();
            let mut lists = Vec::new();
            for item in items {
                match item {
                    IdOrList::Id(id) => flat.push(id),
                    IdOrList::List(list) => lists.push(list),
                }
            }
            match (nested, flat.is_empty()) {
                (false, _) => Ok((vec![flat], false)),
                (true, true) => Ok((lists, true)),
                (true, false) => Err(ApiError::bad("`input_ids` mixes token ids and lists of them.")),
            }
        }
        (None, None) => Err(ApiError::bad("Either `text` or `input_ids` is required.")),
    }
}

fn submission(
    app: &App,
    body: &GenerateBody,
    index: usize,
    ids: Vec<u16>,
    stop: &[String],
) -> Result<Submission, ApiError> {
    let params = &body.sampling_params;
    let (temperature, top_p) = (params.temperature.unwrap_or(1.0), params.top_p.unwrap_or(1.0));
    check_sampling(temperature, top_p)?;
    let max_new = app.new_tokens(ids.len(), params.max_new_tokens, Some(DEFAULT_NEW_TOKENS))?;
    let sampling = Sampling {
        temperature,
        top_p,
        top_k: params.top_k.filter(|k| *k > 0).map_or(0, |k| k as usize),
        seed: params.sampling_seed.unwrap_or_else(|| app.fresh_seed()),
        max_new,
        stop: stop.to_vec(),
        ignore_eos: params.ignore_eos.unwrap_or(false),
    };
    let logprobs = body.return_logprob.then(|| LogprobSpec {
        start: body.logprob_start_len.and_then(|s| usize::try_from(s).ok()),
        top: body.top_logprobs_num,
    });
    let salt = body.cache_salt.clone().or_else(|| body.extra_key.clone()).unwrap_or_default();
    Ok(Submission { ids, sampling, salt, logprobs, id: body.rid.clone(), room: body.bootstrap.room(index) })
}

pub(super) async fn generate(
    State(app): Shared,
    body: Result<Json<GenerateBody>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(mut body) = body?;
    let (prompts, batch) = prompts(&mut body)?;
    let stop = stops(body.sampling_params.stop.take());
    let shape = Shape { logprob: body.return_logprob, text: body.return_text_in_logprobs, top: body.top_logprobs_num };
    if body.stream {
        let [prompt]: [Vec<u16>; 1] =
            prompts.try_into().map_err(|_| ApiError::bad("Streaming is supported for a single prompt only."))?;
        let count = prompt.len();
        let begin = Instant::now();
        let (id, events) = app.submit(submission(&app, &body, 0, prompt, &stop)?)?;
        let mut collected = Collected::default();
        let mut text = Text::new(&stop);
        return Ok(stream::respond(events, &[], move |event| {
            let new = text.event(&event);
            let over = collected.take(event);
            if new.is_empty() && !over {
                return Vec::new();
            }
            vec![answer(&id, count, &collected, text.all(), begin, &shape)]
        }));
    }
    let mut waiting = Vec::new();
    for (index, prompt) in prompts.into_iter().enumerate() {
        let count = prompt.len();
        let begin = Instant::now();
        let (id, events) = app.submit(submission(&app, &body, index, prompt, &stop)?)?;
        waiting.push((id, count, begin, events));
    }
    let mut answers = Vec::new();
    for (id, count, begin, events) in waiting {
        let collected = collect(events).await?;
        let text = whole_text(&collected, &stop);
        answers.push(answer(&id, count, &collected, &text, begin, &shape));
    }
    let value = if batch { Value::Array(answers) } else { answers.into_iter().next().unwrap_or(Value::Null) };
    Ok(Json(value).into_response())
}

/// The text of a finished request.
pub(super) fn whole_text(collected: &Collected, stop: &[String]) -> String {
    let mut text = Text::new(stop);
    for id in collected.ids() {
        text.push(id);
    }
    text.end(collected.finish.as_ref().unwrap_or(&Finish::Eos));
    text.all().to_owned()
}

struct Shape {
    logprob: bool,
    text: bool,
    top: usize,
}

fn answer(id: &str, prompt: usize, collected: &Collected, text: &str, begin: Instant, shape: &Shape) -> Value {
    let mut meta = json!({
        "id": id,
        "finish_reason": collected.finish.as_ref().map(finish_reason),
        "prompt_tokens": prompt,
        "weight_version": "default",
        "total_retractions": 0,
        "completion_tokens": collected.tokens.len(),
        "cached_tokens": collected.cached,
        "e2e_latency": begin.elapsed().as_secs_f64(),
    });
    if shape.logprob {
        let triple = |l: Option<f32>, id: u16| {
            let text = shape.text.then(|| tokens::decode_special(&[id]));
            json!([l, id, text])
        };
        let rows = |all: &[TokenLogprob]| -> Vec<Value> { all.iter().map(|t| triple(t.logprob, t.id)).collect() };
        let tops = |all: &[TokenLogprob]| -> Vec<Value> {
            let list = |t: &TokenLogprob| -> Vec<Value> { t.top.iter().map(|(l, id)| triple(Some(*l), *id)).collect() };
            all.iter().map(|t| if t.top.is_empty() { Value::Null } else { Value::Array(list(t)) }).collect()
        };
        meta["input_token_logprobs"] = json!(rows(&collected.prompt_logprobs));
        meta["output_token_logprobs"] = json!(rows(&collected.tokens));
        if shape.top > 0 {
            meta["input_top_logprobs"] = json!(tops(&collected.prompt_logprobs));
            meta["output_top_logprobs"] = json!(tops(&collected.tokens));
        }
    }
    json!({"text": text, "output_ids": collected.ids(), "meta_info": meta})
}

fn finish_reason(finish: &Finish) -> Value {
    match finish {
        Finish::Eos => json!({"type": "stop", "matched": tokens::EOS}),
        Finish::StopText(text) => json!({"type": "stop", "matched": text}),
        Finish::Length(length) => json!({"type": "length", "length": length}),
        Finish::Abort(reason) => json!({"type": "abort", "message": reason}),
    }
}
