//! What the search will still cost, and the cheapest next step in one line.

use serde::{Deserialize, Serialize};

use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::arms;
use crate::isolate::evidence;
use crate::isolate::phases::View;
use crate::isolate::plan;
use crate::isolate::search::{Arm, Phase, Search, Work};

/// Seconds a trial where none was seen: the lab's.
const TRIAL_SECONDS: f64 = 0.35;
/// Seconds a boot on this machine where none was seen: the lab's.
const LOCAL_BOOT_SECONDS: f64 = 1.0;
/// Seconds a boot elsewhere where none was seen: a large model takes minutes to load.
const REMOTE_BOOT_SECONDS: f64 = 480.0;
/// Trials of which the mean time is taken.
const RECENT: usize = 50;

/// What is still to be run, as far as one can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Boots of the deployment.
    pub boots: u32,
    /// Trials.
    pub trials: u32,
    /// Minutes.
    pub minutes: f64,
}

/// What the search still costs, or would cost if it began now; all zero where nothing is left or can be searched.
///
/// It assumes one guilty patch in the middle of those that wait, and two boots for each innocent one before it.
pub fn estimate(state: &State) -> Estimate {
    let Some(case) = &state.case else { return Estimate::default() };
    let search = match &state.search {
        Some(search) if !search.is_active() => return Estimate::default(),
        Some(search) => search.as_ref().clone(),
        None => match plan::begin(state, &[]) {
            Ok(search) => search,
            Err(_) => return Estimate::default(),
        },
    };
    let view = View::new(state, case, &search);
    let (short, long) = remaining(&view);
    let trials = evidence::cells(case) * evidence::repeats(case, &search.rules);
    let trials = short * trials * evidence::factor(state) + long * trials * search.rules.acquit_factor;
    let boots = short + long;
    let busy = f64::from(case.budget.concurrency.max(1));
    let seconds = f64::from(boots) * boot_seconds(state, &search) + f64::from(trials) * trial_seconds(state) / busy;
    Estimate { boots, trials, minutes: seconds / 60.0 }
}

/// Boots with the usual number of trials, and boots with those of an acquittal.
fn remaining(view: &View<'_>) -> (u32, u32) {
    let search = view.search;
    let rules = &search.rules;
    let (first, last) = (rules.first_look(search.patches.len()), rules.last_look(search.patches.len()));
    let boots = |arm: &Arm| if search.as_found.is_empty() { 0 } else { view.arm(arm).boots() };
    let (base, off) = (arms::base(view.case, search), arms::all_off(view.case, search));
    let (on_boots, off_boots) = (boots(&base), boots(&off));
    let up_to = |goal: u32, have: u32| goal.saturating_sub(have);
    let prove = |patch: &str, goal: u32| {
        let alone = boots(&arms::alone(view.case, search, patch));
        up_to(goal, alone) + up_to(goal, off_boots)
    };
    let waiting = |patches: usize| (patches as u32).saturating_sub(1) / 2 * 2;
    match &search.phase {
        Phase::Truth | Phase::Start | Phase::Symptom | Phase::Micro | Phase::AllOff => {
            if search.patches.is_empty() {
                return (up_to(2, on_boots), 0);
            }
            let anchors = up_to(first.max(2), on_boots) + up_to(first.max(2), off_boots);
            (anchors + waiting(search.patches.len()) + 2 * first, 1)
        }
        Phase::Unmake { patch, look } => {
            let without = boots(&arms::without(view.case, search, &base, patch));
            let goal = first.max(*look).min(last);
            let rest = waiting(search.queue.len());
            (up_to(goal, without) + up_to(goal, on_boots) + rest + prove(patch, goal), 1)
        }
        Phase::Make { patch, look } => (prove(patch, first.max(*look).min(last)), 1),
        Phase::Explain { on, off, .. } => (0, up_to(*on, on_boots) + up_to(*off, off_boots)),
        Phase::Alone { patch, boots: goal } => {
            let from = search.patches.iter().position(|p| p == patch).unwrap_or(0);
            let after = (search.patches.len() - from - 1) as u32;
            (1, up_to(*goal, boots(&arms::alone(view.case, search, patch))) + 2 * after)
        }
        Phase::Leave { .. } => (1, 0),
        Phase::Done => (0, 0),
    }
}

fn trial_seconds(state: &State) -> f64 {
    let recent: Vec<f64> = state.trials.iter().rev().take(RECENT).map(|t| t.trial.seconds).collect();
    if recent.is_empty() { TRIAL_SECONDS } else { recent.iter().sum::<f64>() / recent.len() as f64 }
}

/// Mean duration of the changes that ended well, else a guess.
fn boot_seconds(state: &State, search: &Search) -> f64 {
    let done = |id| state.procedures.get(&id).is_some_and(|p| p.status == ProcedureStatus::Completed);
    let seen: Vec<f64> = state
        .jobs
        .values()
        .filter(|j| j.procedure.is_some_and(done))
        .filter_map(|j| Some(j.ended_at?.duration_since(j.started_at).as_secs_f64()))
        .collect();
    if !seen.is_empty() {
        return seen.iter().sum::<f64>() / seen.len() as f64;
    }
    let local = |name: &String| state.case.as_ref().and_then(|c| c.target(name)).is_some_and(|t| t.host == "local");
    if search.targets.iter().all(local) { LOCAL_BOOT_SECONDS } else { REMOTE_BOOT_SECONDS }
}

/// Whether the run at work is a boot with this many trials; for progress displays.
pub fn run_trials(state: &State) -> Option<u32> {
    let (case, search) = (state.case.as_ref()?, state.search.as_ref()?);
    match &search.run.as_ref()?.work {
        Work::Boot { repeats, .. } => Some(evidence::cells(case) * repeats),
        Work::Probe | Work::Micro { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::fake::{self, Culprit, Nature, World};

    fn guilty(patch: usize) -> Nature {
        Nature { culprit: Culprit::Single(patch), ..Nature::default() }
    }

    #[test]
    fn the_whole_demo_is_estimated_within_its_budget() {
        let world = World::new(fake::case(5), Nature::default(), 1);
        let whole = estimate(&world.state);
        assert!((20..40).contains(&whole.boots), "{whole:?}");
        assert!(whole.minutes < 5.0, "{whole:?}");
    }

    #[test]
    fn the_estimate_is_near_what_it_takes_and_falls_to_zero() {
        let mut world = World::new(fake::case(5), guilty(2), 3);
        let whole = estimate(&world.state);
        world.search(10_000).unwrap();
        let took = world.seconds() / 60.0;
        assert!((took / whole.minutes - 1.0).abs() < 0.4, "took {took:.1} min, estimated {whole:?}");
        assert_eq!(estimate(&world.state), Estimate::default());
    }

    #[test]
    fn a_remote_boot_is_not_taken_for_a_cheap_one() {
        let mut case = fake::case(5);
        case.targets[0].host = "gpu-box".into();
        assert!(estimate(&World::new(case, Nature::default(), 1).state).minutes > 60.0);
    }

    #[test]
    fn a_healthy_end_leaves_nothing_to_run() {
        let mut world = World::new(fake::case(3), Nature::default(), 1);
        world.search(10_000).unwrap();
        assert_eq!(run_trials(&world.state), None);
    }
}
