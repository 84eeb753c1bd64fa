//! Commands that were asked while a change of their targets ran, and that begin once it is over. Pure.
//!
//! They begin one after another, in the order in which they were asked. Where a change or a command before them does
//! not end well they are dropped with a word, since what they were asked for is not there; what takes changes back is
//! kept and begins.

use imbl::Vector;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::engine::command::{Command, EndState};
use crate::engine::decide;
use crate::engine::event::Happened;
use crate::engine::ids::{JobId, ProcedureId, QueuedId};
use crate::engine::input::{Actor, JobOutcome};
use crate::engine::procedure::Failure;
use crate::engine::state::{ProcedureStatus, State};
use crate::engine::update::Turn;

/// Commands that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// In the order in which they begin.
    pub items: Vector<Queued>,
    /// The jobs of the last one that began.
    pub jobs: Vec<JobId>,
    /// The last one that was dropped.
    pub dropped: Option<Dropped>,
}

/// A command that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// Its number.
    pub id: QueuedId,
    /// Who asked.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
    /// What.
    pub command: Command,
    /// The change that must end well before it; `None` where it waits for a command before it alone.
    pub after: Option<ProcedureId>,
}

/// A command that was dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropped {
    /// Journal line.
    pub seq: u64,
    /// What.
    pub command: Command,
    /// Why, in one clause.
    pub why: String,
}

/// How a command left the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Unqueued {
    /// It began.
    Started {
        /// The jobs that it started; none where it was refused.
        jobs: Vec<JobId>,
    },
    /// A person took it out.
    Removed,
    /// What it waited for did not end well.
    Dropped {
        /// Why, in one clause.
        why: String,
    },
}

/// The targets that a command is about; `None` for one that cannot wait.
pub fn targets_of(case: Option<&Case>, command: &Command) -> Option<Vec<String>> {
    let all = || case.iter().flat_map(|c| &c.targets).map(|t| t.name.clone()).collect();
    Some(match command {
        Command::Restart { target, .. } | Command::Stop { target } => vec![target.clone()],
        Command::Toggle { target: Some(target), .. } | Command::Restore { target: Some(target) } => {
            vec![target.clone()]
        }
        Command::Toggle { patch, target: None, .. } => {
            let patch = case.and_then(|c| Some((c, c.patch(patch)?)));
            patch.map_or_else(all, |(c, p)| p.targets_in(c).map(|t| t.name.clone()).collect())
        }
        Command::Recall { .. } => case.map_or_else(Vec::new, |c| c.met_targets().map(|t| t.name.clone()).collect()),
        Command::Restore { target: None } | Command::Isolate { .. } | Command::ChooseEndState { .. } => all(),
        _ => return None,
    })
}

/// Whether a command takes changes back: such a one is never dropped for what went wrong before it.
pub fn is_way_back(command: &Command) -> bool {
    match command {
        Command::Restore { .. } | Command::Stop { .. } => true,
        Command::ChooseEndState { end_state } => matches!(end_state, EndState::Original),
        _ => false,
    }
}

/// The change that a command must wait for: one of its targets is being changed right now.
pub fn held_by(state: &State, command: &Command) -> Option<ProcedureId> {
    let targets = targets_of(state.case.as_deref(), command)?;
    targets.iter().find_map(|t| state.running_procedure(t)).map(|p| p.procedure.id)
}

/// Whether a command that is asked now has to wait: for a change, or for what was asked before it.
pub fn must_wait(state: &State, command: &Command) -> bool {
    let case = state.case.as_deref();
    let Some(targets) = targets_of(case, command) else { return false };
    let waits = |q: &Queued| targets_of(case, &q.command).is_some_and(|t| t.iter().any(|t| targets.contains(t)));
    held_by(state, command).is_some() || state.queue.items.iter().any(waits)
}

/// Puts a command at the end, or does it at once where nothing holds it.
///
/// # Errors
/// It is of a kind that cannot wait.
pub(crate) fn add(turn: &mut Turn, command: &Command) -> Result<(), Failure> {
    if targets_of(turn.state.case.as_deref(), command).is_none() {
        return Err(Failure::new(format!("`{}` cannot wait", command.spelling()))
            .hint("trials, restarts, toggles, stops, restores, searches and the end state can"));
    }
    if !must_wait(&turn.state, command) {
        decide::act(turn, command);
        return Ok(());
    }
    let queued = QueuedId(turn.state.counters.queued + 1);
    let after = held_by(&turn.state, command);
    turn.record(Happened::CommandQueued { queued, command: Box::new(command.clone()), after });
    Ok(())
}

/// Takes a command out.
///
/// # Errors
/// It does not wait.
pub(crate) fn remove(turn: &mut Turn, queued: QueuedId) -> Result<(), Failure> {
    if !turn.state.queue.items.iter().any(|q| q.id == queued) {
        return Err(Failure::new(format!("{queued} does not wait")));
    }
    turn.record(Happened::CommandUnqueued { queued, how: Unqueued::Removed });
    Ok(())
}

/// Whether the first of the queue may begin.
#[derive(Debug, PartialEq, Eq)]
enum Turned {
    Now,
    Waits,
    Never(String),
}

fn first(state: &State, head: &Queued) -> Turned {
    let of_last = || state.queue.jobs.iter().filter_map(|id| state.jobs.get(id));
    if of_last().any(|j| j.outcome.is_none()) {
        return Turned::Waits;
    }
    let way_back = is_way_back(&head.command);
    for job in of_last().filter(|_| !way_back) {
        match &job.outcome {
            Some(JobOutcome::Failed { .. }) => return Turned::Never(format!("{} failed", job.title)),
            Some(JobOutcome::Cancelled) => return Turned::Never(format!("{} was cancelled", job.title)),
            Some(JobOutcome::Lost) => return Turned::Never(format!("{} was lost", job.title)),
            Some(JobOutcome::Done) | None => {}
        }
    }
    if let Some((id, change)) = head.after.and_then(|id| Some((id, state.procedures.get(&id)?))) {
        let title = &change.procedure.title;
        match &change.status {
            ProcedureStatus::Planned | ProcedureStatus::Running { .. } => return Turned::Waits,
            ProcedureStatus::Completed => {}
            // What is still changed is put back all the more.
            _ if way_back => {}
            ProcedureStatus::Undone => return Turned::Never(format!("{id} was taken back: {title}")),
            ProcedureStatus::Failed { .. } => return Turned::Never(format!("{id} failed: {title}")),
            ProcedureStatus::Interrupted { .. } => return Turned::Never(format!("{id} was cut off: {title}")),
            ProcedureStatus::Discarded => return Turned::Never(format!("{id} was dropped: {title}")),
        }
    }
    let targets = targets_of(state.case.as_deref(), &head.command).unwrap_or_default();
    let open = targets.iter().filter_map(|t| state.open_procedure(t));
    let open = open.filter(|p| matches!(p.status, ProcedureStatus::Planned | ProcedureStatus::Running { .. }));
    // The job of a change tells its last word after the change is complete.
    let ends = state.running_jobs().filter_map(|j| state.procedures.get(&j.procedure?));
    let ends = ends.filter(|p| targets.contains(&p.procedure.target));
    let searching = state.search.as_ref().is_some_and(|s| s.is_active());
    if open.count() + ends.count() > 0 || searching { Turned::Waits } else { Turned::Now }
}

/// Begins what nothing holds any more, and drops what has lost its ground.
pub(crate) fn advance(turn: &mut Turn) {
    while let Some(head) = turn.state.queue.items.front().cloned() {
        match first(&turn.state, &head) {
            Turned::Waits => return,
            Turned::Never(why) => {
                drop_all(turn, &why);
                continue;
            }
            Turned::Now => {}
        }
        let (jobs, refused) = (turn.state.counters.job, turn.state.refusal.as_ref().map(|r| r.seq));
        let actor = std::mem::replace(&mut turn.actor, head.by.clone());
        decide::act(turn, &head.command);
        let jobs = (jobs + 1..=turn.state.counters.job).map(JobId).collect();
        turn.record(Happened::CommandUnqueued { queued: head.id, how: Unqueued::Started { jobs } });
        turn.actor = actor;
        if turn.state.refusal.as_ref().map(|r| r.seq) != refused {
            drop_all(turn, &format!("`{}` before it was refused", head.command.spelling()));
        }
    }
}

fn drop_all(turn: &mut Turn, why: &str) {
    let dropped = turn.state.queue.items.iter().filter(|q| !is_way_back(&q.command));
    let all: Vec<QueuedId> = dropped.map(|q| q.id).collect();
    for queued in all {
        let how = Unqueued::Dropped { why: why.to_owned() };
        turn.record(Happened::CommandUnqueued { queued, how });
    }
}
