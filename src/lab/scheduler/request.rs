//! What the engine is asked and what it answers. Plain data.

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::Sampling;

/// One prompt to continue.
#[derive(Debug)]
pub struct Request {
    /// Id that `/abort_request` and the answers name.
    pub id: String,
    /// Prompt, at least one token, shorter than the context.
    pub ids: Vec<u16>,
    /// How tokens are chosen and when generation ends.
    pub sampling: Sampling,
    /// Name space of the prefix cache.
    pub salt: String,
    /// Which log probabilities are wanted.
    pub logprobs: Option<LogprobSpec>,
    /// Where events go; when the other end is gone the request is cancelled.
    pub events: UnboundedSender<Event>,
    /// Which part of it is computed here.
    pub part: Part,
}

/// Which part of a request is computed here.
#[derive(Debug, Default)]
pub enum Part {
    /// Prompt and output.
    #[default]
    Whole,
    /// The prompt and the first token. The state goes to the other end; `None` where nobody wants it.
    Prompt(Option<oneshot::Sender<HandOver>>),
    /// The output, from this state.
    Output(Box<HandOver>),
}

/// A computed prompt, with everything that another server needs to go on from it.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOver {
    /// Prompt tokens whose keys are in the pages.
    pub prompt: usize,
    /// Of these, how many came from the prefix cache.
    pub cached: usize,
    /// The first token; `None` when nothing is to be generated.
    pub first: Option<TokenLogprob>,
    /// Log probabilities of the prompt, where wanted.
    pub prompt_logprobs: Vec<TokenLogprob>,
    /// Pages of keys, values and indexer keys, in the order of the prompt.
    pub pages: Vec<Box<[f32]>>,
}

/// Which log probabilities a request wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogprobSpec {
    /// First prompt token that gets one; `None` is no prompt token.
    pub start: Option<usize>,
    /// Alternatives per position.
    pub top: usize,
}

/// Log probability of one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Natural logarithm; `None` for the first token of a prompt.
    pub logprob: Option<f32>,
    /// The token.
    pub id: u16,
    /// The most probable tokens at its place.
    pub top: Vec<(f32, u16)>,
}

/// What the engine reports about a request, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The prompt is computed.
    Prefilled {
        /// Prompt tokens that came from the prefix cache.
        cached: usize,
        /// Log probabilities of the prompt, where wanted.
        logprobs: Vec<TokenLogprob>,
    },
    /// One new token.
    Token(TokenLogprob),
    /// The request is over; nothing follows.
    Finished(Finish),
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The end token came.
    Eos,
    /// A stop text came.
    StopText(String),
    /// The limit of new tokens was reached.
    Length(usize),
    /// Aborted, with the reason.
    Abort(String),
}
