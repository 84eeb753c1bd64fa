//! `changes CASE --since TIME`: asks every host of a case once, all at the same time, reading only.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use jiff::{Timestamp, ZonedDateTime};
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::ChangesArgs;
use crate::cli::changes::{self, Asked};
use crate::cli::connect::case_file;
use crate::cli::connect::run::block_on;
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::{Context, output};
use crate::remote::host::{HostError, Hosts, Place};
use crate::truth::changes::{Question, ask, subject};

/// Answers `changes`.
///
/// # Errors
/// The time or the case cannot be used, or the user interrupted it. A host that does not answer is part of the answer.
pub fn changes(context: &Context, args: &ChangesArgs) -> Result<Answer, Failed> {
    let since = changes::since(&args.since, &ZonedDateTime::now())?;
    let (case, remarks) = case_file(&args.case)?;
    let questions = questions(&case, since).map_err(|e| Failed::from_failure(ErrorCode::Case, &e.failure()))?;
    let asked = block_on(look(context, questions))?;
    Ok(changes::answer(since, asked, context.style).diagnostics(remarks))
}

/// One question for each host and way to gain rights on it.
fn questions(case: &Case, since: Timestamp) -> Result<Vec<(Place, Question)>, HostError> {
    let mut all: BTreeMap<(String, Vec<String>), (Place, Question)> = BTreeMap::new();
    for target in &case.targets {
        let place = Place::of(target)?;
        let key = (place.host.name().to_owned(), place.become_with.clone());
        let empty = || {
            let question = Question { host: target.host.clone(), since, subjects: Vec::new() };
            (place, question)
        };
        all.entry(key).or_insert_with(empty).1.subjects.push(subject(case, target));
    }
    Ok(all.into_values().collect())
}

async fn look(context: &Context, questions: Vec<(Place, Question)>) -> Result<Vec<Asked>, Failed> {
    let (hosts, cancel) = (Hosts::default(), CancellationToken::new());
    let quiet = context.quiet;
    let one = |(place, question): (Place, Question)| {
        let (hosts, cancel) = (&hosts, &cancel);
        async move {
            if !quiet {
                output::stderr_line(&format!("{}: reading what it keeps of its past", question.host));
            }
            let history = ask(hosts, &place, &question, cancel).await;
            let targets = question.subjects.into_iter().map(|s| s.name).collect();
            Asked { host: question.host, targets, history }
        }
    };
    tokio::select! {
        asked = join_all(questions.into_iter().map(one)) => Ok(asked),
        _ = tokio::signal::ctrl_c() => {
            cancel.cancel();
            Err(Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted; nothing was changed"))
        }
    }
}
