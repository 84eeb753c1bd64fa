//! Driving an engine without a screen: send a command, wait for what it started, read the state.
//!
//! Not responsible for printing; a caller that wants to show progress looks at the handle's live messages.

use std::sync::Arc;

use thiserror::Error;

use crate::engine::command::Command;
use crate::engine::ids::ProcedureId;
use crate::engine::input::{Actor, JobOutcome};
use crate::engine::procedure::Failure;
use crate::engine::runtime::{Ended, EngineHandle};
use crate::engine::state::{ProcedureStatus, State};

/// Why a command did not do what it was sent for.
#[derive(Debug, Error)]
pub enum DriveError {
    /// It was refused, or a job or a change that it started failed.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// The engine has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Sends a command and waits until every job has ended; changes that it planned stay planned.
///
/// # Errors
/// It was refused, a job that it started failed, or the engine ended.
pub async fn ask(handle: &mut EngineHandle, actor: &Actor, command: Command) -> Result<Arc<State>, DriveError> {
    let before = handle.state.borrow().clone();
    let after = handle.ask(actor.clone(), command).await?;
    if let Some(refusal) = after.refusal.as_ref().filter(|r| r.seq > before.seq) {
        return Err(DriveError::Failed(refusal.failure.clone()));
    }
    let state = settle(handle).await?;
    let failed = state.jobs.values().filter(|job| job.id.0 > before.counters.job).find_map(|job| match &job.outcome {
        Some(JobOutcome::Failed { failure }) => Some(failure.clone()),
        _ => None,
    });
    match failed {
        Some(failure) => Err(DriveError::Failed(failure)),
        None => Ok(state),
    }
}

/// Searches to the end; a job of the search that fails is the search's business.
///
/// # Errors
/// The search was refused, or the engine ended.
pub async fn search(handle: &mut EngineHandle, actor: &Actor, patches: Vec<String>) -> Result<Arc<State>, DriveError> {
    let before = handle.state.borrow().seq;
    let after = handle.ask(actor.clone(), Command::Isolate { patches }).await?;
    if let Some(refusal) = after.refusal.as_ref().filter(|r| r.seq > before) {
        return Err(DriveError::Failed(refusal.failure.clone()));
    }
    Ok(settle(handle).await?)
}

/// Waits until no job runs and no search is active.
///
/// # Errors
/// The engine ended.
pub async fn settle(handle: &mut EngineHandle) -> Result<Arc<State>, Ended> {
    loop {
        let state = handle.state.borrow_and_update().clone();
        let searching = state.search.as_ref().is_some_and(|s| s.is_active());
        if state.running_jobs().next().is_none() && !searching {
            return Ok(state);
        }
        handle.state.changed().await.map_err(|_| Ended)?;
    }
}

/// The changes that wait for a confirmation.
pub fn planned(state: &State) -> Vec<ProcedureId> {
    with_status(state, |status| *status == ProcedureStatus::Planned)
}

/// Drops changes that were planned and did not begin.
///
/// # Errors
/// The engine ended.
pub async fn discard(handle: &EngineHandle, actor: &Actor, planned: &[ProcedureId]) -> Result<(), Ended> {
    for procedure in planned {
        handle.ask(actor.clone(), Command::Discard { procedure: *procedure }).await?;
    }
    Ok(())
}

/// The changes that were cut off or failed, and that nothing came after on their target: they wait to be
/// finished or undone.
pub fn half_done(state: &State) -> Vec<ProcedureId> {
    let open =
        with_status(state, |s| matches!(s, ProcedureStatus::Interrupted { .. } | ProcedureStatus::Failed { .. }));
    let superseded = |id: &ProcedureId| {
        let target = &state.procedures[id].procedure.target;
        state
            .procedures
            .iter()
            .any(|(other, p)| other > id && p.procedure.target == *target && p.status != ProcedureStatus::Discarded)
    };
    open.into_iter().filter(|id| !superseded(id)).collect()
}

fn with_status(state: &State, wanted: impl Fn(&ProcedureStatus) -> bool) -> Vec<ProcedureId> {
    state.procedures.iter().filter(|(_, p)| wanted(&p.status)).map(|(id, _)| *id).collect()
}

/// Sends a command that changes targets, confirms what it planned, and waits for the end.
///
/// `typed` is what the user gave as `--yes NAME`; production wants the target's name.
///
/// # Errors
/// It was refused, could not be planned, failed, or the engine ended.
pub async fn change(
    handle: &mut EngineHandle,
    actor: &Actor,
    command: Command,
    typed: Option<&str>,
) -> Result<Arc<State>, DriveError> {
    let mut state = ask(handle, actor, command).await?;
    for procedure in planned(&state) {
        let confirm = Command::Confirm { procedure, typed: typed.map(str::to_owned) };
        state = run(handle, actor, confirm, procedure).await?;
    }
    Ok(state)
}

/// Sends a command that runs or takes back this procedure, and waits for its end.
///
/// # Errors
/// It was refused, failed, or the engine ended.
pub async fn run(
    handle: &mut EngineHandle,
    actor: &Actor,
    command: Command,
    procedure: ProcedureId,
) -> Result<Arc<State>, DriveError> {
    let state = ask(handle, actor, command).await?;
    match state.procedures.get(&procedure).map(|p| &p.status) {
        Some(ProcedureStatus::Failed { failure }) => Err(DriveError::Failed(failure.clone())),
        _ => Ok(state),
    }
}
