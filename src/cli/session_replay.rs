//! `patchbench session replay`: what was known after each event.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::session;
use crate::cli::style::Style;
use crate::cli::table::{Cell, table};
use crate::engine::event::Event;
use crate::engine::state::State;
use crate::isolate::verdict::{Finding, Subject};
use crate::recall::matrix;
use crate::session::store::{self, SessionError};

/// A session, event by event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionReplay {
    /// What was known after each event, in order.
    pub states: Vec<StateRow>,
}

/// What was known after an event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StateRow {
    /// Number of the event.
    pub seq: u64,
    /// When it happened.
    pub at: String,
    /// What happened, in one line.
    pub text: String,
    /// Proven starts so far.
    pub boots: usize,
    /// Trials so far that count.
    pub trials: u32,
    /// Those among them that failed.
    pub failed: u32,
    /// Void trials so far.
    pub void: u32,
    /// Targets that differ from their own configuration.
    pub changed: Vec<String>,
    /// Jobs that run, by title.
    pub running: Vec<String>,
    /// Verdicts so far.
    pub verdicts: Vec<VerdictWord>,
}

/// A verdict in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VerdictWord {
    /// What it is about.
    pub subject: Subject,
    /// The finding.
    pub verdict: Finding,
}

impl Report for SessionReplay {
    const NAME: &'static str = "session-replay";
}

/// Answers `session replay SESSION [--at EVENT]…`; a damaged journal is played up to the damage.
///
/// # Errors
/// There is no such session or event, or it cannot be read at all.
pub fn replay(root: &Path, session: &str, at: &[u64], style: Style) -> Result<Answer, Failed> {
    let dir = store::find(root, session)?;
    let (_, remark) = session::read(&dir)?;
    let events = match store::read(&dir) {
        Ok(loaded) => loaded.events,
        Err(SessionError::Damaged(damage)) => damage.good.events,
        Err(error) => return Err(error.into()),
    };
    if let Some(unknown) = at.iter().find(|seq| !events.iter().any(|e| e.seq == **seq)) {
        let failed = Failed::usage(ErrorCode::Session, format!("the session has no event {unknown}"));
        return Err(failed.hint(format!("it has events 1 to {}", events.last().map_or(0, |e| e.seq))));
    }
    let report = SessionReplay { states: states(&events, at) };
    let rows: Vec<Vec<Cell>> = report.states.iter().map(cells).collect();
    let heading = ["event", "UTC", "boots", "failed", "changed", "runs", "verdicts", "what"];
    let text = table(&heading, &[0, 2, 3], &rows, style);
    Ok(Answer::new(&report, Status::Done, text).session(dir).diagnostics(remark))
}

fn states(events: &[Event], at: &[u64]) -> Vec<StateRow> {
    let mut state = State::default();
    let mut counts = matrix::Counts::default();
    let mut rows = Vec::new();
    for event in events {
        state.apply(event);
        if let crate::engine::event::Happened::TrialRecorded { trial } = &event.what {
            counts.add(&trial.outcome);
        }
        if !at.is_empty() && !at.contains(&event.seq) {
            continue;
        }
        rows.push(StateRow {
            seq: event.seq,
            at: event.at.to_string(),
            text: state.timeline.last().map(|t| t.text.clone()).unwrap_or_default(),
            boots: state.boots.len(),
            trials: counts.n,
            failed: counts.fail,
            void: counts.void,
            changed: state.targets.iter().filter(|(_, t)| t.changed.is_some()).map(|(name, _)| name.clone()).collect(),
            running: state.running_jobs().map(|job| job.title.clone()).collect(),
            verdicts: state
                .verdicts
                .iter()
                .map(|v| VerdictWord { subject: v.subject.clone(), verdict: v.verdict })
                .collect(),
        });
    }
    rows
}

fn cells(row: &StateRow) -> Vec<Cell> {
    let verdicts: Vec<_> = row.verdicts.iter().map(|v| format!("{} {}", v.subject.id, v.verdict.word())).collect();
    let failed = if row.trials == 0 { "-".to_owned() } else { format!("{}/{}", row.failed, row.trials) };
    let clock = row.at.get(11..19).unwrap_or(&row.at).to_owned();
    vec![
        row.seq.to_string().into(),
        clock.into(),
        row.boots.to_string().into(),
        failed.into(),
        row.changed.join(" ").into(),
        row.running.join(", ").into(),
        verdicts.join(", ").into(),
        row.text.clone().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;
    use crate::engine::event::Happened;
    use crate::engine::input::Actor;
    use crate::recall::trial::{FailKind, Outcome};

    #[test]
    fn each_state_holds_what_was_known_then_and_not_later() {
        let trial = |id, outcome| Happened::TrialRecorded { trial: fixture::trial(id, 1024, 0.5, outcome).trial };
        let facts = [
            trial(1, Outcome::Pass),
            trial(2, Outcome::Fail { how: FailKind::Wrong }),
            Happened::VerdictReached { verdict: fixture::verdict("a", Finding::Guilty).into() },
        ];
        let events: Vec<Event> = (1..)
            .zip(facts)
            .map(|(seq, what)| Event { seq, at: fixture::noon(), actor: Actor::program(), what })
            .collect();
        let all = states(&events, &[]);
        let got: Vec<_> = all.iter().map(|s| (s.failed, s.trials, s.verdicts.len())).collect();
        assert_eq!(got, [(0, 1, 0), (1, 2, 0), (1, 2, 1)]);
        assert_eq!(states(&events, &[2]), all[1..2]);
    }
}
