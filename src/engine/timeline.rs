//! One line per event, for the timeline pane and `session show`. Pure.

use crate::case;
use crate::engine::event::Happened;
use crate::engine::input::JobOutcome;
use crate::engine::procedure::Phase;
use crate::engine::queue::Unqueued;
use crate::engine::state::Mark;
use crate::patch::belief::Change;
use crate::patch::edit::Edit;
use crate::recall::trial::{Outcome, Trial};

/// The line and how it is marked.
pub fn describe(what: &Happened) -> (String, Mark) {
    match what {
        Happened::SessionStarted { name, program, .. } => {
            (format!("session {name} begins (patchbench {program})"), Mark::Plain)
        }
        Happened::SessionResumed { program } => (format!("session resumed (patchbench {program})"), Mark::Plain),
        Happened::CaseOpened { case } => {
            (format!("case {}: {} targets, {} patches", case.name, case.targets.len(), case.patches.len()), Mark::Plain)
        }
        Happened::JobStarted { job, title, .. } => (format!("{job} begins: {title}"), Mark::Plain),
        Happened::JobEnded { job, outcome } => match outcome {
            JobOutcome::Done => (format!("{job} done"), Mark::Plain),
            JobOutcome::Failed { failure } => (format!("{job} failed: {}", failure.message), Mark::Failure),
            JobOutcome::Cancelled => (format!("{job} cancelled"), Mark::Plain),
            JobOutcome::Lost => (format!("{job} lost: the program ended while it ran"), Mark::Failure),
        },
        Happened::CancelRequested { job } => (format!("{job} is asked to stop"), Mark::Plain),
        Happened::TruthRead { truth } => {
            (format!("{} read: {:?}, {} rows", truth.target, truth.status, truth.rows.len()), Mark::Plain)
        }
        Happened::ProcedurePlanned { procedure } => {
            (format!("{} planned: {}", procedure.id, procedure.title), Mark::Plain)
        }
        Happened::TargetElevated { target, until } => (format!("{target} may be changed until {until}"), Mark::Change),
        Happened::ProcedureDiscarded { procedure } => (format!("{procedure} dropped"), Mark::Plain),
        Happened::ProcedureStarted { procedure, phase, anyway } => {
            let anyway = if *anyway { ", requests may be cut off" } else { "" };
            (format!("{procedure} {} begins{anyway}", word(*phase)), Mark::Change)
        }
        Happened::StepStarted { procedure, step, phase } => {
            (format!("{procedure} step {} {} begins", step + 1, word(*phase)), Mark::Change)
        }
        Happened::StepDone { procedure, step, phase, evidence } => {
            (format!("{procedure} step {} {} done, {} proofs", step + 1, word(*phase), evidence.len()), Mark::Proof)
        }
        Happened::StepFailed { procedure, step, phase, failure } => {
            (format!("{procedure} step {} {} failed: {}", step + 1, word(*phase), failure.message), Mark::Failure)
        }
        Happened::BootProven { boot, proof, .. } => {
            let levels: Vec<_> = proof.levels.iter().map(|(patch, level)| format!("{patch}={level}")).collect();
            let unverified = if proof.unverified.is_empty() {
                String::new()
            } else {
                format!(", {} unverified", proof.unverified.len())
            };
            (
                format!("{boot} proven: {} pid {} {}{unverified}", proof.target, proof.process.pid, levels.join(" ")),
                Mark::Proof,
            )
        }
        Happened::TrialRecorded { trial } => (describe_trial(trial), Mark::Plain),
        Happened::WindowMeasured { window } => (window.line(), Mark::Plain),
        Happened::Believed { change } => match change {
            Change::Hold { subject, says, replaces, .. } => {
                let how = if replaces.is_empty() { "" } else { ", in place of what was believed" };
                (format!("believed of {subject}: {says}{how}"), Mark::Plain)
            }
            Change::Withdraw { why, .. } => (format!("believed no more: {why}"), Mark::Plain),
        },
        Happened::PatchesImported { source, entries } => {
            (format!("{} patches read from {source}", entries.len()), Mark::Plain)
        }
        Happened::PatchesRegrouped { out, entries } => {
            let into: Vec<&str> = entries.iter().map(|e| e.id.as_str()).collect();
            let how = if into.len() > 1 { "divided into" } else { "put together as" };
            (format!("{} {how} {}", out.join(", "), into.join(", ")), Mark::Plain)
        }
        Happened::PatchEdited { patch, edit } => match edit {
            Edit::Phases { phases } if phases.is_empty() => (format!("phases of {patch}: as read"), Mark::Plain),
            Edit::Phases { phases } => {
                let words: Vec<&str> = phases.iter().map(|p| p.word()).collect();
                (format!("phases of {patch}: {}", words.join(", ")), Mark::Plain)
            }
            Edit::Gate { gate, .. } => (format!("gate of {patch}: {}", case::gate::spelling(gate)), Mark::Plain),
            Edit::Note { text } if text.is_empty() => (format!("note on {patch} taken back"), Mark::Plain),
            Edit::Note { text } => (format!("note on {patch}: {text}"), Mark::Plain),
        },
        Happened::MicroMeasured { report } => {
            let classes: Vec<_> =
                report.verdicts.iter().map(|v| format!("{} {}", v.candidate, v.class.word())).collect();
            (format!("microtest {} on {}: {}", report.spec, report.device, classes.join(", ")), Mark::Proof)
        }
        Happened::SearchMoved { search } => (search.headline(), Mark::Plain),
        Happened::SymptomMeasured { symptom } => (
            format!(
                "symptom: {:.0} % of {} trials fail, at least {:.0} %",
                symptom.rate * 100.0,
                symptom.trials,
                symptom.lower * 100.0
            ),
            Mark::Proof,
        ),
        Happened::VerdictReached { verdict } => {
            (format!("verdict: {} {} — {}", verdict.subject.id, verdict.verdict.word(), verdict.why), Mark::Verdict)
        }
        Happened::NoteAdded { text } => (format!("note: {text}"), Mark::Plain),
        Happened::SnapshotNamed { name } => (format!("snapshot {name}"), Mark::Plain),
        Happened::Proposed { proposal, command } => {
            (format!("{proposal} proposed: {}", command.spelling()), Mark::Plain)
        }
        Happened::ProposalAnswered { proposal, approved } => {
            (format!("{proposal} {}", if *approved { "approved" } else { "declined" }), Mark::Plain)
        }
        Happened::CommandQueued { queued, command, after } => {
            let after = after.map_or_else(|| "the one before it".to_owned(), |id| id.to_string());
            (format!("{queued} waits for {after}: {}", command.spelling()), Mark::Plain)
        }
        Happened::CommandUnqueued { queued, how } => match how {
            Unqueued::Started { .. } => (format!("{queued} begins"), Mark::Plain),
            Unqueued::Removed => (format!("{queued} taken out of the queue"), Mark::Plain),
            Unqueued::Dropped { why } => (format!("{queued} dropped: {why}"), Mark::Failure),
        },
        Happened::EndStateChosen { end_state } => (format!("end state: {}", end_state.spelling()), Mark::Change),
        Happened::Said { diagnostic } => (diagnostic.message.clone(), Mark::Plain),
        Happened::Refused { command, failure } => {
            (format!("refused `{}`: {}", command.spelling(), failure.message), Mark::Failure)
        }
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Do => "change",
        Phase::Undo => "undo",
    }
}

fn describe_trial(trial: &Trial) -> String {
    let outcome = match &trial.outcome {
        Outcome::Pass => "pass".to_owned(),
        Outcome::Fail { how } => format!("fail ({})", how.word()),
        Outcome::Void { why } => format!("void ({why})"),
    };
    let boots: Vec<_> = trial.boots.iter().map(ToString::to_string).collect();
    format!(
        "{} {} {} tokens depth {:.0} % on {}: {outcome}",
        trial.id,
        trial.key.form.word(),
        trial.key.length,
        trial.key.depth * 100.0,
        boots.join("+")
    )
}
