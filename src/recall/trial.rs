//! One trial and its outcome, as plain data.
//!
//! Pure; the runner makes trials, `recall::grade` decides outcomes, `stats` counts them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ids::{BootId, TrialId};
use crate::session::format::BlobHash;
use crate::untrusted::Untrusted;

/// Deployment state + arm + conversation + seed -> outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Number within the session; 0 until the engine has given it one.
    pub id: TrialId,
    /// When the answer was complete.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The set of boots that the request could meet.
    pub boots: Vec<BootId>,
    /// Level for each `patch@target`, as proven at the boot; a level that could not be read back is absent.
    pub arm: BTreeMap<String, String>,
    /// Level for each factor.
    pub factors: BTreeMap<String, String>,
    /// What was asked; equal keys are paired across arms.
    pub key: TrialKey,
    /// Prompt length as the server counted it.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens taken from the prefix cache, as the server says.
    pub cached_tokens: Option<u32>,
    /// Pass, fail with a kind, or void.
    pub outcome: Outcome,
    /// The answer that was planted; our own generator's text.
    pub expected: String,
    /// The answer that came.
    pub got: Untrusted,
    /// Character index of the first difference between expected and got; `None` on a pass.
    pub first_wrong: Option<usize>,
    /// Seconds from sending to the last token.
    pub seconds: f64,
    /// The whole conversation with the raw answers.
    pub transcript: Option<BlobHash>,
}

/// What a trial asks: the same key gives the same conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialKey {
    /// How the fact is planted and asked for.
    pub form: ProbeForm,
    /// Prompt length aimed at, in server tokens.
    pub length: u32,
    /// Where the fact stands, 0 (start) to 1 (end).
    pub depth: f64,
    /// Seed of filler, fact and nonce.
    pub seed: u64,
}

/// How a fact is planted and asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeForm {
    /// Fact in the first turn, talk and tool output between, question in the last turn.
    MultiTurn,
    /// One long prompt with the fact at a depth and the question at the end.
    Needle,
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// The planted value came back.
    Pass,
    /// It did not.
    Fail {
        /// In which way.
        how: FailKind,
    },
    /// The trial says nothing about memory: time-out, HTTP error, truncation, length off target.
    Void {
        /// Why, in one clause.
        why: String,
    },
}

/// In which way an answer is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailKind {
    /// The planted value with a few characters wrong.
    NearMiss,
    /// Another value or text.
    Wrong,
    /// The model says that there is no earlier context.
    NoEarlierContext,
    /// The answer repeats itself.
    Loop,
    /// Nothing came.
    Empty,
}

impl ProbeForm {
    /// The form in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::MultiTurn => "multi-turn",
            Self::Needle => "needle",
        }
    }
}

impl FailKind {
    /// The kind in a few words.
    pub fn word(self) -> &'static str {
        match self {
            Self::NearMiss => "near miss",
            Self::Wrong => "wrong",
            Self::NoEarlierContext => "no earlier context",
            Self::Loop => "loop",
            Self::Empty => "empty",
        }
    }
}
