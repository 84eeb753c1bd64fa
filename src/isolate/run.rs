//! Carries out one thing that the search wants: which command is due, and whether it got anywhere.

use crate::engine::command::Command;
use crate::engine::input::JobOutcome;
use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::arms;
use crate::isolate::evidence;
use crate::isolate::phases::View;
use crate::isolate::search::{Arm, Run, Work};

/// Commands in a row that may get nowhere.
const MAX_TRIES: u32 = 2;

/// Weight of a running target over an asked question in the measure of progress.
const TARGET_WEIGHT: u64 = 1 << 32;

/// How a run stands.
pub(crate) enum Progress {
    /// This is due and was recorded.
    Do(Command),
    /// The next command is due and must be recorded first.
    Due(Run),
    /// It came to its end.
    Complete,
    /// It cannot be brought to its end.
    Failed(String),
    /// The engine refused the command.
    Refused,
}

/// How a run stands.
pub(crate) fn step(view: &View<'_>, run: &Run) -> Progress {
    let Some(command) = command(view, run) else { return Progress::Complete };
    let state = view.state;
    if state.counters.job <= run.job {
        return if state.seq <= run.seq { Progress::Do(command) } else { Progress::Refused };
    }
    let now = reached(view, run);
    let tries = if now > run.reached { 0 } else { run.tries + 1 };
    if tries < MAX_TRIES {
        return Progress::Due(Run { reached: now, tries, ..run.clone() });
    }
    let enough = matches!(&run.work, Work::Boot { arm, .. } if view.counts_now(arm));
    if enough { Progress::Complete } else { Progress::Failed(why(view, run)) }
}

/// A measure of how far a run is, which only grows when something was achieved.
pub(crate) fn reached(view: &View<'_>, run: &Run) -> u64 {
    match &run.work {
        Work::Probe => arms::serving_targets(view.case).filter(|t| was_read(view.state, t)).count() as u64,
        Work::Micro { .. } => 0,
        Work::Boot { arm, after, .. } => {
            let up = arms::met_targets(view.case).filter(|t| !needs_start(view, t, arm, *after)).count() as u64;
            up * TARGET_WEIGHT + view.current_unit().map_or(0, |u| u64::from(u.asked()))
        }
    }
}

/// Whether the deployment as it runs can still serve as a boot of an arm: right levels, and not yet asked enough.
pub(crate) fn reusable(view: &View<'_>, arm: &Arm) -> bool {
    let runs = arms::met_targets(view.case).all(|t| !needs_start(view, t, arm, 0));
    let wanted = evidence::cells(view.case) * evidence::repeats(view.case, &view.search.rules);
    runs && view.current_unit().is_none_or(|u| u.asked() < wanted) && !view.counts_now(arm)
}

fn command(view: &View<'_>, run: &Run) -> Option<Command> {
    let ran = view.state.counters.job > run.job;
    match &run.work {
        Work::Probe => {
            let read = arms::serving_targets(view.case).all(|t| was_read(view.state, t));
            (!ran || !read).then_some(Command::Probe { target: None })
        }
        Work::Micro { spec } => (!ran).then(|| Command::Micro {
            force_device: false,
            spec: spec.clone(),
            device: "cpu".into(),
            checkpoint: None,
            candidates: None,
            activations: None,
        }),
        Work::Boot { arm, after, index, repeats } => {
            if let Some(target) = arms::met_targets(view.case).find(|t| needs_start(view, t, arm, *after)) {
                return Some(Command::Restart { target: target.into(), levels: arms::levels_for(arm, target) });
            }
            let asked = view.current_unit().map_or(0, |u| u.asked());
            let plan = || evidence::recall_plan(view.case, view.state.session.seed, *index, *repeats);
            (asked < evidence::cells(view.case) * repeats).then(|| Command::Recall { plan: plan() })
        }
    }
}

fn was_read(state: &State, target: &str) -> bool {
    state.target(target).is_some_and(|t| t.truth.is_some())
}

/// Whether a target must be started for an arm: it is down, at other levels, or not fresh.
fn needs_start(view: &View<'_>, target: &str, arm: &Arm, after: u64) -> bool {
    let Some(boot) = view.state.current_boot(target) else { return true };
    let searched = view.search.targets.iter().any(|t| t == target);
    // One boot shows the levels of its own target alone.
    let own = arms::of_target(arm, target);
    let fits = evidence::proven(view.state, &[boot.id], &own) && evidence::readable(view.state, &boot.proof);
    searched && (boot.id.0 <= after || !fits)
}

/// Why a run got nowhere, in one clause: what failed, else what came up other than wanted.
fn why(view: &View<'_>, run: &Run) -> String {
    failed_last(view.state).or_else(|| unlike(view, run)).unwrap_or_else(|| "it gave no trials".into())
}

/// The failure of the last job, or of the change that it ran.
fn failed_last(state: &State) -> Option<String> {
    let job = state.jobs.values().next_back()?;
    if let Some(JobOutcome::Failed { failure }) = &job.outcome {
        return Some(failure.message.clone());
    }
    match &state.procedures.get(&job.procedure?)?.status {
        ProcedureStatus::Failed { failure } => Some(failure.message.clone()),
        _ => None,
    }
}

/// The first level that the running targets do not have although the arm wants it.
fn unlike(view: &View<'_>, run: &Run) -> Option<String> {
    let Work::Boot { arm, .. } = &run.work else { return None };
    let boots = view.search.targets.iter().filter_map(|t| view.state.current_boot(t));
    if let Some(boot) = boots.into_iter().find(|b| !evidence::readable(view.state, &b.proof)) {
        return Some(format!(
            "`{}` came up and does not show that it keeps its environment readable (`SPT_NOENV`)",
            boot.proof.target
        ));
    }
    arm.iter().find_map(|(key, level)| {
        let (patch, target) = arms::split(key);
        let proof = &view.state.current_boot(target)?.proof;
        if let Some(reason) = proof.unverified.get(patch) {
            return Some(format!("the level of `{patch}` on `{target}` could not be read back: {reason}"));
        }
        let other = proof.levels.get(patch) != Some(level);
        other.then(|| format!("`{target}` came up without `{patch}` at `{level}`"))
    })
}
