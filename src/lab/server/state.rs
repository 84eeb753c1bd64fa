//! What all handlers share, and sending a request to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::args::{ServeArgs, ServeRole, Switches};
use super::error::ApiError;
use crate::lab::model::VOCAB;
use crate::lab::scheduler::sampling::uniform;
use crate::lab::scheduler::{Event, Finish, Handle, LogprobSpec, Part, Request, Sampling, TokenLogprob};
use crate::lab::transfer::{self, FAKE_BOOTSTRAP_HOST, Room, Rooms, blank};

/// Shared by all handlers.
#[derive(Debug)]
pub(super) struct App {
    pub(super) args: ServeArgs,
    pub(super) switches: Switches,
    pub(super) resolved: Vec<(&'static str, Value)>,
    pub(super) engine: Handle,
    pub(super) random_seed: u64,
    pub(super) counter: AtomicU64,
    pub(super) started: Instant,
    pub(super) startup_seconds: f64,
    /// Where a prefill server keeps what it computed.
    pub(super) rooms: Rooms,
    /// How a decode server fetches what another one computed.
    pub(super) http: reqwest::Client,
}

pub(super) type Shared = axum::extract::State<Arc<App>>;

/// A request before the engine's own fields are filled in.
pub(super) struct Submission {
    pub(super) ids: Vec<u16>,
    pub(super) sampling: Sampling,
    pub(super) salt: String,
    pub(super) logprobs: Option<LogprobSpec>,
    pub(super) id: Option<String>,
    /// Where the two halves of a divided deployment meet for it.
    pub(super) room: Option<Room>,
}

/// The room of a request that only looks whether a server lives: nothing is handed over.
pub(super) fn warm_up_room() -> Room {
    Room { host: FAKE_BOOTSTRAP_HOST.to_owned(), port: 0, room: 0 }
}

/// A finished request.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) prompt_logprobs: Vec<TokenLogprob>,
    pub(super) tokens: Vec<TokenLogprob>,
    pub(super) cached: usize,
    pub(super) finish: Option<Finish>,
}

impl Collected {
    pub(super) fn ids(&self) -> Vec<u16> {
        self.tokens.iter().map(|t| t.id).collect()
    }

    /// Takes one event; true at the end.
    pub(super) fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Prefilled { cached, logprobs } => {
                self.cached = cached;
                self.prompt_logprobs = logprobs;
                false
            }
            Event::Token(token) => {
                self.tokens.push(token);
                false
            }
            Event::Finished(finish) => {
                self.finish = Some(finish);
                true
            }
        }
    }
}

impl App {
    pub(super) fn next_id(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// A seed for a request that brings none.
    pub(super) fn fresh_seed(&self) -> u64 {
        (uniform(self.random_seed, self.next_id()) * (1_u64 << 53) as f64) as u64
    }

    pub(super) fn context(&self) -> usize {
        self.args.context_length as usize
    }

    /// Limit of new tokens for a prompt: what was asked, else `default`, within the context.
    pub(super) fn new_tokens(
        &self,
        prompt: usize,
        asked: Option<u64>,
        default: Option<usize>,
    ) -> Result<usize, ApiError> {
        let context = self.context();
        if prompt >= context {
            return Err(ApiError::bad(format!(
                "The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."
            )));
        }
        let room = context - prompt;
        match asked {
            Some(asked) if asked > room as u64 => Err(ApiError::bad(format!(
                "Requested token count exceeds the model's maximum context length of {context} tokens. You requested a \
                 total of {} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion.",
                asked.saturating_add(prompt as u64)
            ))),
            Some(asked) => Ok(asked as usize),
            None => Ok(default.unwrap_or(room).min(room)),
        }
    }

    /// Sends a request to the engine; returns its id and its events.
    pub(super) fn submit(&self, submission: Submission) -> Result<(String, UnboundedReceiver<Event>), ApiError> {
        if submission.ids.is_empty() {
            return Err(ApiError::bad("The prompt is empty."));
        }
        if let Some(bad) = submission.ids.iter().find(|id| usize::from(**id) >= VOCAB) {
            return Err(ApiError::bad(format!("Token id {bad} is out of vocab; the vocabulary has {VOCAB} tokens.")));
        }
        let id = submission.id.unwrap_or_else(|| format!("{:016x}{:016x}", self.random_seed, self.next_id()));
        let (events, receiver) = unbounded_channel();
        let mut request = Request {
            id: id.clone(),
            ids: submission.ids,
            sampling: submission.sampling,
            salt: submission.salt,
            logprobs: submission.logprobs,
            events,
            part: Part::Whole,
        };
        match (self.args.part(), submission.room) {
            (Some(ServeRole::Prefill | ServeRole::Decode), None) => {
                return Err(ApiError::bad(format!(
                    "Invalid request: Disaggregated request received without bootstrap room id. req.rid={id:?}"
                )));
            }
            (Some(ServeRole::Prefill), Some(room)) if room.is_fake() => request.part = Part::Prompt(None),
            (Some(ServeRole::Prefill), Some(room)) => {
                let sender = self.rooms.sender(room.room).map_err(|e| ApiError::bad(e.to_string()))?;
                request.part = Part::Prompt(Some(sender));
            }
            (Some(ServeRole::Decode), Some(room)) if room.is_fake() => {
                request.part = Part::Output(Box::new(blank(request.ids.len())));
            }
            (Some(ServeRole::Decode), Some(room)) => {
                tokio::spawn(take_over(self.http.clone(), self.engine.clone(), room, request));
                return Ok((id, receiver));
            }
            (Some(ServeRole::Monolithic | ServeRole::Router) | None, _) => {}
        }
        if self.engine.submit(request) { Ok((id, receiver)) } else { Err(stopped()) }
    }
}

/// Fetches the state that a request goes on from, then gives it to the engine; ends with the client.
async fn take_over(http: reqwest::Client, engine: Handle, room: Room, mut request: Request) {
    let events = request.events.clone();
    let give_up = |why: String| {
        // A client that is gone needs no reason.
        let _ = events.send(Event::Finished(Finish::Abort(why)));
    };
    let _transit = engine.transit();
    let fetched = tokio::select! {
        fetched = transfer::fetch(&http, &room) => fetched,
        () = events.closed() => return,
    };
    match fetched {
        Ok(state) if state.prompt == request.ids.len() => {
            request.part = Part::Output(Box::new(state));
            if !engine.submit(request) {
                give_up("The engine has stopped.".to_owned());
            }
        }
        Ok(state) => give_up(format!(
            "KVTransferError: the prefill server computed {} tokens of a prompt of {}",
            state.prompt,
            request.ids.len()
        )),
        Err(error) => give_up(error.to_string()),
    }
}

/// Waits for the end of a request.
pub(super) async fn collect(mut events: UnboundedReceiver<Event>) -> Result<Collected, ApiError> {
    let mut collected = Collected::default();
    while let Some(event) = events.recv().await {
        if collected.take(event) {
            if let Some(Finish::Abort(reason)) = &collected.finish {
                return Err(ApiError {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    kind: "Abort",
                    message: reason.clone(),
                });
            }
            return Ok(collected);
        }
    }
    Err(stopped())
}

fn stopped() -> ApiError {
    ApiError::internal("The engine has stopped.")
}
