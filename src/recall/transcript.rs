//! The whole conversation of a trial with the raw answer, as it stands in a blob.
//!
//! Whoever runs a trial writes the blob. Not responsible for redaction: the prompts are our own
//! generator's text, the answers are foreign and rendered visibly.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::recall::trial::{Outcome, TrialKey};
use crate::serving::chat::ChatMessage;
use crate::session::blobs::{BlobError, BlobStore};
use crate::session::format::BlobHash;
use crate::untrusted::Untrusted;

/// The version that is written.
pub const VERSION: u32 = 1;

/// Why a transcript cannot be shown.
#[derive(Debug, Error)]
pub enum TranscriptError {
    /// It is missing or damaged.
    #[error("the transcript cannot be read: {0}")]
    Blob(#[from] BlobError),
    /// It is no transcript of a known form.
    #[error("the transcript is of a form that this program does not know: {0}")]
    Form(#[from] serde_json::Error),
}

/// Everything about one trial that is too long for the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// Version of this form.
    pub version: u32,
    /// What was asked.
    pub key: TrialKey,
    /// The messages that were sent.
    pub messages: Vec<ChatMessage>,
    /// The tool definitions that were sent.
    pub tools: Vec<Value>,
    /// The value that was told.
    pub expected: String,
    /// A value that was told of another owner.
    pub decoy: String,
    /// Index of the message that tells the fact.
    pub told_in: usize,
    /// The answer as it came.
    pub answer: Untrusted,
    /// The reasoning as it came.
    pub reasoning: Untrusted,
    /// What became of the trial.
    pub outcome: Outcome,
    /// Index into `expected` of the first wrong character.
    pub first_wrong: Option<usize>,
    /// Why the model stopped, as the server says.
    pub finish_reason: Option<Untrusted>,
    /// Tokens of the prompt as the tokenizer counted before it was sent.
    pub tokenized: Option<u32>,
    /// Tokens of the prompt as the answer counts.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: Option<u32>,
    /// Seconds from sending to the first piece of the answer.
    pub first_token_s: Option<f64>,
    /// Seconds from sending to the end.
    pub seconds: f64,
    /// What went wrong with the request, if it did.
    pub error: Option<Untrusted>,
}

impl Transcript {
    /// The bytes of the blob.
    ///
    /// # Errors
    /// A number that JSON cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// The transcript that a trial names.
    ///
    /// # Errors
    /// The blob is missing or damaged, or is no transcript.
    pub fn read(blobs: &BlobStore, hash: &BlobHash) -> Result<Self, TranscriptError> {
        Ok(Self::from_bytes(&blobs.get(hash)?)?)
    }

    /// A transcript from the bytes of its blob.
    ///
    /// # Errors
    /// The bytes are no transcript.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// What was told, what came, and a caret under the first wrong character; no caret on a pass.
///
/// All three lines start with labels of equal width. The answer is shown from the place that resembles the
/// value most, and at most `width` characters of each.
pub fn render_with_caret(expected: &str, got: &Untrusted, first_wrong: Option<usize>, width: usize) -> String {
    let told = Untrusted::from(expected);
    let answer = Untrusted::from(resembling_part(expected, got.raw(), first_wrong));
    let mut out = format!("told {}\ngot  {}", told.visible(width), answer.visible(width));
    let Some(first) = first_wrong else { return out };
    // The caret stands under the visible form of the told value, in which a character may need several cells.
    let before: String = expected.chars().take(first).collect();
    let column = Untrusted::from(before).visible(width).chars().count();
    let _ = write!(out, "\n     {}^", " ".repeat(column));
    out
}

/// The answer from the place at which the right characters of the value begin, so that both stand one below the other.
fn resembling_part<'a>(expected: &str, got: &'a str, first_wrong: Option<usize>) -> &'a str {
    let got = got.trim();
    let right: String = expected.chars().take(first_wrong.unwrap_or(usize::MAX)).collect();
    if right.is_empty() {
        return got;
    }
    got.find(&right).map_or(got, |at| &got[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::trial::{FailKind, ProbeForm};
    use crate::serving::chat::ChatRole;

    fn transcript() -> Transcript {
        Transcript {
            version: VERSION,
            key: TrialKey { form: ProbeForm::Needle, length: 1024, depth: 0.5, seed: 9 },
            messages: vec![ChatMessage::new(ChatRole::User, "The pin for the door is 482113.")],
            tools: Vec::new(),
            expected: "482113".into(),
            decoy: "QX7".into(),
            told_in: 0,
            answer: "48\u{1b}2114".into(),
            reasoning: "".into(),
            outcome: Outcome::Fail { how: FailKind::NearMiss },
            first_wrong: Some(5),
            finish_reason: Some("stop".into()),
            tokenized: Some(1020),
            prompt_tokens: Some(1021),
            cached_tokens: None,
            first_token_s: Some(0.1),
            seconds: 0.5,
            error: None,
        }
    }

    #[test]
    fn a_transcript_survives_its_blob_byte_by_byte() {
        let t = transcript();
        assert_eq!(Transcript::from_bytes(&t.to_bytes().unwrap()).unwrap(), t);
        assert!(Transcript::from_bytes(b"{}").is_err());
    }

    fn check(expected: &str, got: &str, first: Option<usize>, lines: &[&str]) {
        let text = render_with_caret(expected, &got.into(), first, 40);
        assert_eq!(text.lines().collect::<Vec<_>>(), lines, "{text}");
    }

    #[test]
    fn the_caret_stands_under_the_first_wrong_character() {
        check("QX741B", "QX742B", Some(4), &["told QX741B", "got  QX742B", "         ^"]);
        check("QX741B", "The value is QX742B.", Some(4), &["told QX741B", "got  QX742B.", "         ^"]);
        check("QX741B", "", Some(0), &["told QX741B", "got  ", "     ^"]);
        check("né-48", "né-58", Some(3), &["told né-48", "got  né-58", "        ^"]);
    }

    #[test]
    fn a_pass_has_no_caret() {
        check("QX741B", "QX741B", None, &["told QX741B", "got  QX741B"]);
    }

    #[test]
    fn control_characters_of_an_answer_are_shown_and_not_obeyed() {
        check("QX741B", "\u{1b}[2J", Some(0), &["told QX741B", "got  ␛[2J", "     ^"]);
        check("QX741B", "a\nb", Some(0), &["told QX741B", "got  a⏎b", "     ^"]);
    }
}
