//! What the search will still cost, and the cheapest next step in one line.

use serde::{Deserialize, Serialize};

use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::arms;
use crate::isolate::evidence;
use crate::isolate::phases::View;
use crate::isolate::plan;
use crate::isolate::search::{Arm, Phase, Search, Work};
use crate::isolate::verdict::{Finding, SubjectKind};
use crate::truth::ServerStatus;

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

/// One line that names the cheapest next step.
pub fn next_step_hint(state: &State) -> String {
    let Some(case) = &state.case else { return "no case is open: `open CASE`, or `demo` for the lab".into() };
    if let Some(search) = state.search.as_ref().filter(|s| s.is_active()) {
        let left = estimate(state);
        return format!("{}; about {} boots and {:.1} min to go", search.headline(), left.boots, left.minutes);
    }
    let open = case.targets.iter().find_map(|t| state.open_procedure(&t.name));
    if let Some(open) = open {
        let id = open.procedure.id;
        return match open.status {
            ProcedureStatus::Planned => format!("{id} waits: `confirm {id}` runs it, `discard {id}` drops it"),
            ProcedureStatus::Interrupted { .. } => {
                format!("{id} is half done: `resume-procedure {id}` finishes it, `undo-procedure {id}` takes it back")
            }
            _ => format!("{id} runs: {}", open.procedure.title),
        };
    }
    for target in arms::serving_targets(case) {
        let known = state.target(target);
        let Some(truth) = known.and_then(|t| t.truth.as_ref()) else {
            return format!("`{target}` was not read yet: `probe` reads what runs, and changes nothing");
        };
        if state.current_boot(target).is_none() {
            return match truth.status {
                ServerStatus::Down => format!("`{target}` is down: `restart {target}` starts it"),
                ServerStatus::Loading => format!("`{target}` is loading: `probe` looks again"),
                ServerStatus::Ready | ServerStatus::Unknown => {
                    format!("no start of `{target}` is proven: `restart {target}` gives one, `probe` looks again")
                }
            };
        }
    }
    judged_hint(state)
}

fn judged_hint(state: &State) -> String {
    let floor = state.case.as_ref().map_or(0.15, |c| c.recall.floor);
    let guilty: Vec<_> = state
        .verdicts
        .iter()
        .filter(|v| v.verdict == Finding::Guilty && v.subject.kind == SubjectKind::Patch)
        .map(|v| format!("`{}`", v.subject.id))
        .collect();
    if !guilty.is_empty() {
        let guilty = guilty.join(", ");
        return match state.end_state {
            None => format!("{guilty} is guilty: `end-state best-known` leaves it off, `end-state original` restores"),
            Some(_) => format!("{guilty} is guilty and the end state is chosen: `report` writes it down"),
        };
    }
    if state.trials.is_empty() {
        let left = estimate(state);
        return format!(
            "nothing was asked yet: `recall` asks once, `isolate` finds the patch in about {:.1} min",
            left.minutes
        );
    }
    match &state.symptom {
        None => {
            format!(
                "the symptom is not measured: `isolate` does it and goes on, about {:.1} min",
                estimate(state).minutes
            )
        }
        Some(s) if s.lower <= floor => "no symptom was measured: ask at other lengths, or replay a real client".into(),
        Some(_) if state.verdicts.is_empty() => "there is a symptom: `isolate` looks for the patch".into(),
        Some(_) => {
            "the symptom is not explained: read the verdicts, then look at what the patches do not switch".into()
        }
    }
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
    use std::collections::BTreeMap;

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

    fn check(state: &State, part: &str) {
        let hint = next_step_hint(state);
        assert!(hint.contains(part), "`{hint}` does not name `{part}`");
    }

    #[test]
    fn every_stage_names_its_next_step() {
        check(&State::default(), "no case");
        let mut world = World::new(fake::case(3), guilty(1), 1);
        check(&world.state, "`probe`");
        world.carry_out(&crate::engine::command::Command::Probe { target: None });
        check(&world.state, "is down");
        world.restart("lab", &BTreeMap::new());
        check(&world.state, "nothing was asked");
        let case = world.state.case.clone().unwrap();
        world.recall(&evidence::recall_plan(&case, 0, 0, 1));
        check(&world.state, "symptom is not measured");
        world.search(6).unwrap();
        check(&world.state, "min to go");
        world.go_on(10_000);
        check(&world.state, "`p1` is guilty");
    }

    #[test]
    fn a_healthy_end_asks_for_other_questions() {
        let mut world = World::new(fake::case(3), Nature::default(), 1);
        world.search(10_000).unwrap();
        check(&world.state, "no symptom");
        assert_eq!(run_trials(&world.state), None);
    }
}
