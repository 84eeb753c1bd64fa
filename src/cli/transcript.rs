//! `patchbench session show SESSION --transcript TRIAL`: the whole conversation of one trial.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::session;
use crate::cli::style::Style;
use crate::recall::transcript::{Transcript, render_with_caret};
use crate::recall::trial::{Outcome, ProbeForm};
use crate::session::blobs::BlobStore;
use crate::session::store;
use crate::untrusted::visible_lines;

/// Characters of the answer beside the marked place.
const SHOWN: usize = 100;

/// The conversation of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TranscriptReport {
    /// Number of the trial within the session.
    pub trial: u64,
    /// Journal line of the trial.
    pub seq: u64,
    /// Hash of the blob that was read.
    pub blob: String,
    /// How the fact was planted and asked for.
    pub form: ProbeForm,
    /// The messages, in the order in which they were sent.
    pub messages: Vec<Message>,
    /// Index of the message that tells the fact.
    pub told_in: usize,
    /// The value that was told.
    pub expected: String,
    /// A value that was told of another owner.
    pub decoy: String,
    /// The answer, as it came.
    pub answer: String,
    /// The reasoning, as it came.
    pub reasoning: String,
    /// What became of the trial.
    pub outcome: Outcome,
    /// Index into `expected` of the first wrong character.
    pub first_wrong: Option<usize>,
    /// What went wrong with the request, if it did.
    pub failure: Option<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Report for TranscriptReport {
    const NAME: &'static str = "session-transcript";
}

/// Answers `session show SESSION --transcript TRIAL`.
///
/// # Errors
/// There is no such session or trial, or the transcript was not kept or cannot be read.
pub fn show(root: &Path, session: &str, trial: u64, style: Style) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let (state, remark) = session::read(&dir)?;
    let entry = state.trials.iter().find(|t| t.trial.id.0 == trial).ok_or_else(|| {
        Failed::usage(ErrorCode::Session, format!("the session has no trial t{trial}"))
            .hint(format!("it has {} trials; `session show` lists them", state.trials.len()))
    })?;
    let hash = entry.trial.transcript.as_ref().ok_or_else(|| {
        let failed = Failed::world(ErrorCode::Session, format!("trial t{trial} has no transcript: nothing was sent"));
        failed.session(&dir)
    })?;
    let read = Transcript::read(&BlobStore::existing(dir.join("blobs")), hash).map_err(|error| {
        let failed = Failed::world(ErrorCode::Session, error.to_string());
        failed.hint("`session verify` says which transcripts are missing, damaged or withheld").session(&dir)
    })?;
    let role = |message: &crate::serving::chat::ChatMessage| {
        serde_json::to_value(message.role).map_or_else(|_| String::new(), |v| v.as_str().unwrap_or_default().to_owned())
    };
    let report = TranscriptReport {
        trial,
        seq: entry.seq,
        blob: hash.0.clone(),
        form: read.key.form,
        messages: read.messages.iter().map(|m| Message { role: role(m), content: m.content.clone() }).collect(),
        told_in: read.told_in,
        expected: read.expected.clone(),
        decoy: read.decoy.clone(),
        answer: read.answer.raw().to_owned(),
        reasoning: read.reasoning.raw().to_owned(),
        outcome: read.outcome.clone(),
        first_wrong: read.first_wrong,
        failure: read.error.as_ref().map(|e| e.raw().to_owned()),
    };
    let text = text(&report, &read, style);
    Ok(Answer::new(&report, Status::Done, text).session(dir).diagnostics(remark))
}

fn text(report: &TranscriptReport, read: &Transcript, style: Style) -> String {
    let mut parts = Vec::new();
    for (i, message) in report.messages.iter().enumerate() {
        let told = if i == report.told_in { ", tells the fact" } else { "" };
        let head = style.bold(&format!("[{}] {}{told}", i + 1, message.role));
        parts.push(format!("{head}\n{}", visible_lines(&message.content)));
    }
    if !report.reasoning.is_empty() {
        parts.push(format!("{}\n{}", style.bold("reasoning"), visible_lines(&report.reasoning)));
    }
    parts.push(format!("{}\n{}", style.bold("answer"), visible_lines(&report.answer)));
    let outcome = match &report.outcome {
        Outcome::Pass => style.good("pass"),
        Outcome::Fail { how } => style.error(how.word()),
        Outcome::Void { why } => style.warning(&format!("void: {why}")),
    };
    let marked = render_with_caret(&read.expected, &read.answer, read.first_wrong, SHOWN);
    parts.push(format!("trial t{}: {outcome}\n{marked}", report.trial));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{Event, Happened};
    use crate::engine::input::Actor;
    use crate::serving::chat::{ChatMessage, ChatRole};

    fn transcript() -> Transcript {
        let entry = crate::cli::fixture::trial(1, 1024, 0.5, Outcome::Pass);
        Transcript {
            version: 1,
            key: entry.trial.key.clone(),
            messages: vec![
                ChatMessage::new(ChatRole::User, "the code is QX741B"),
                ChatMessage::new(ChatRole::User, "?"),
            ],
            tools: Vec::new(),
            expected: "QX741B".into(),
            decoy: "AAAAAA".into(),
            told_in: 0,
            answer: "QX7\u{1b}[2J".into(),
            reasoning: "".into(),
            outcome: Outcome::Fail { how: crate::recall::trial::FailKind::NearMiss },
            first_wrong: Some(3),
            finish_reason: None,
            tokenized: None,
            prompt_tokens: None,
            cached_tokens: None,
            first_token_s: None,
            seconds: 0.1,
            error: None,
        }
    }

    #[test]
    fn transcripts_were_blobs_that_no_command_opened() {
        let root = tempfile::tempdir().unwrap();
        let mut open = store::create(root.path(), "monday").unwrap();
        let blob = open.blobs.put(&transcript().to_bytes().unwrap()).unwrap();
        let at = jiff::Timestamp::UNIX_EPOCH;
        for (seq, transcript) in [(1, Some(blob.clone())), (2, None)] {
            let mut entry = crate::cli::fixture::trial(seq, 1024, 0.5, Outcome::Pass);
            std::sync::Arc::make_mut(&mut entry.trial).transcript = transcript;
            let what = Happened::TrialRecorded { trial: entry.trial };
            open.journal.append(&[Event { seq, at, actor: Actor::program(), what }]).unwrap();
        }
        open.journal.sync().unwrap();
        let answer = show(root.path(), "monday", 1, Style::PLAIN).unwrap();
        assert!(
            answer.text.starts_with("[1] user, tells the fact\nthe code is QX741B\n\n[2] user\n?"),
            "{}",
            answer.text
        );
        assert!(answer.text.contains("told QX741B\ngot  QX7␛[2J\n        ^"), "{}", answer.text);
        assert_eq!(answer.body["answer"], "QX7\u{1b}[2J");
        let failed = |trial| show(root.path(), "monday", trial, Style::PLAIN).unwrap_err();
        assert_eq!(failed(9).status, Status::Usage);
        assert!(failed(2).error.message.contains("no transcript"));
        fs_err::remove_file(open.blobs.path(&blob)).unwrap();
        assert_eq!(failed(1).status, Status::World);
    }
}
