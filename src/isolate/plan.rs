//! The next step of the search, as a pure function of what was seen.
//!
//! The engine calls [`next`] whenever a search is active and nothing runs. Facts are journaled and [`next`] is
//! called again; a command is carried out first. All that the search needs is in the state, so a search can be
//! cut off anywhere and begun again on what is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::Case;
use crate::engine::command::Command;
use crate::engine::event::Happened;
use crate::engine::procedure::Failure;
use crate::engine::state::State;
use crate::isolate::arms;
use crate::isolate::phases::{self, View};
use crate::isolate::run::{self, Progress};
pub use crate::isolate::search::Search;
use crate::isolate::search::{DeadArm, Ending, Rules, Work};
use crate::patch::of_state;

/// What the search wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Facts to record.
    Record(Vec<Happened>),
    /// Something to be done.
    Do(Command),
    /// Nothing more.
    Finished,
}

/// The next step of the search.
pub fn next(state: &State) -> Next {
    let (Some(search), Some(case)) = (&state.search, &state.case) else { return Next::Finished };
    if !search.is_active() {
        return Next::Finished;
    }
    let view = View::new(state, case, search);
    let Some(current) = &search.run else { return phases::step(&view) };
    let idle = Search { run: None, ..search.as_ref().clone() };
    match run::step(&view, current) {
        Progress::Do(command) => Next::Do(command),
        Progress::Due(run) => phases::record(&view, Vec::new(), Search { run: Some(run), ..idle }),
        Progress::Complete => phases::step(&View { search: &idle, ..view }),
        Progress::Refused => {
            let why = format!("a command was refused while the search was at this: {}", current.title);
            phases::finish(&view, Vec::new(), idle, Ending::CannotRun { why })
        }
        Progress::Failed(why) => match &current.work {
            Work::Boot { arm, .. } if !arm.is_empty() => {
                let mut search = idle;
                search.dead.push(DeadArm { arm: arm.clone(), why: why.clone() });
                let remark = phases::warning("arm-failed", format!("{}: {why}", current.title));
                phases::record(&view, vec![remark], search)
            }
            Work::Boot { .. } | Work::Probe | Work::Micro { .. } => {
                let why = format!("{}: {why}", current.title);
                phases::finish(&view, Vec::new(), idle, Ending::CannotRun { why })
            }
        },
    }
}

/// A search over these patches, or over all of the case when none is named.
///
/// Patches without a usable gate are set aside; the search says so when it begins.
///
/// # Errors
/// No case is open, the case has no target, a patch is unknown, or a search runs already.
pub fn begin(state: &State, patches: &[String]) -> Result<Search, Failure> {
    let case =
        state.case.as_ref().ok_or_else(|| Failure::new("no case is open").hint("open one with `patchbench CASE`"))?;
    if state.search.as_ref().is_some_and(|s| s.is_active()) {
        return Err(Failure::new("a search runs already").hint("`stop-isolation` ends it"));
    }
    if arms::serving_targets(case).next().is_none() {
        return Err(Failure::new("the case has no target that serves requests")
            .hint("add a `[[target]]` with the role `monolithic`, or `prefill` and `decode`"));
    }
    if case.recall.lengths.is_empty() || case.recall.depths.is_empty() {
        return Err(Failure::new("the case asks for no prompt length or no depth")
            .hint("give `[recall]` `lengths` and `depths`, or leave them out for the defaults"));
    }
    if let Some(unknown) = patches.iter().find(|id| case.patch(id).is_none()) {
        let known: Vec<_> = case.patches.iter().map(|p| p.id.as_str()).collect();
        return Err(
            Failure::new(format!("the case has no patch `{unknown}`")).hint(format!("it has {}", known.join(", ")))
        );
    }
    let (mut tried, mut set_aside) = (Vec::new(), BTreeMap::new());
    for patch in case.patches.iter().filter(|p| patches.is_empty() || patches.contains(&p.id)) {
        match arms::no_gate(case, patch) {
            None => tried.push(patch.id.clone()),
            Some(why) => {
                set_aside.insert(patch.id.clone(), why);
            }
        }
    }
    // The most suspect first; the case's own order decides between equals.
    let scores: BTreeMap<String, f64> = of_state::ranked(state).into_iter().map(|r| (r.id, r.score)).collect();
    let score = |id: &String| scores.get(id).copied().unwrap_or(0.0);
    tried.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let targets = searched_targets(case, &tried);
    Ok(Search { patches: tried, set_aside, targets, rules: Rules::default(), ..Search::default() })
}

/// The targets that the patches are in; all that serve where there is no patch.
fn searched_targets(case: &Arc<Case>, patches: &[String]) -> Vec<String> {
    let holds = |target: &str| {
        patches.is_empty()
            || patches.iter().filter_map(|id| case.patch(id)).any(|p| p.targets_in(case).any(|t| t.name == target))
    };
    arms::serving_targets(case).filter(|t| holds(t)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Gate;
    use crate::isolate::exit::{Conclusion, conclusion};
    use crate::isolate::fake::{self, Culprit, Nature, World};
    use crate::isolate::search::Phase;
    use crate::isolate::verdict::{Finding, Verdict};

    fn single(patch: usize) -> Nature {
        Nature { culprit: Culprit::Single(patch), ..Nature::default() }
    }

    fn searched(case: Case, nature: Nature) -> World {
        let mut world = World::new(case, nature, 7);
        world.search(2000).unwrap();
        assert!(world.state.search.as_ref().is_some_and(|s| !s.is_active()), "the search came to no end");
        world
    }

    fn verdict<'a>(world: &'a World, patch: &str) -> &'a Verdict {
        world.state.verdicts.iter().find(|v| v.subject.id == patch).unwrap()
    }

    fn check(world: &World, findings: &[(&str, Finding)], exit: Conclusion) {
        for (patch, finding) in findings {
            let got = verdict(world, patch);
            assert_eq!(got.verdict, *finding, "{patch}: {}", got.why);
        }
        assert_eq!(world.state.verdicts.len(), findings.len());
        assert_eq!(conclusion(&world.state), exit);
    }

    fn said(world: &World, part: &str) -> bool {
        world.state.diagnostics.iter().any(|d| d.message.contains(part))
    }

    #[test]
    fn the_guilty_is_found_the_others_acquitted_and_it_is_left_off() {
        let world = searched(fake::case(3), single(1));
        check(
            &world,
            &[("p0", Finding::Acquitted), ("p1", Finding::Guilty), ("p2", Finding::Acquitted)],
            Conclusion::Guilty,
        );
        let levels = &world.state.current_boot("lab").unwrap().proof.levels;
        assert_eq!((levels["p0"].as_str(), levels["p1"].as_str()), ("on", "off"));
        assert!(said(&world, "is left with it off"));
        let guilty = verdict(&world, "p1");
        assert!(guilty.bound.unwrap() <= 0.05 / 3.0 && guilty.on.boots >= 4 && guilty.off.boots >= 4, "{guilty:?}");
        let acquitted = verdict(&world, "p2");
        assert!(acquitted.bound.unwrap() <= 0.15 && acquitted.on.boots >= 2 && acquitted.off.boots >= 2);
        assert!(acquitted.why.contains("shared by all other patches"), "{}", acquitted.why);
    }

    #[test]
    fn a_search_over_prefill_and_decode_never_came_to_a_trial() {
        let world = searched(fake::divided(3), single(1));
        check(
            &world,
            &[("p0", Finding::Acquitted), ("p1", Finding::Guilty), ("p2", Finding::Acquitted)],
            Conclusion::Guilty,
        );
        for entry in &world.state.trials {
            let met: Vec<_> = entry.trial.boots.iter().map(|b| world.state.boots[b].proof.target.as_str()).collect();
            assert_eq!(met, ["router", "prefill", "decode"]);
        }
        let starts = |t: &str| world.state.boots.values().filter(|b| b.proof.target == t).count();
        assert_eq!((starts("router"), starts("prefill") == starts("decode")), (1, true));
    }

    #[test]
    fn an_environment_that_must_be_readable_is_so_in_every_arm() {
        let mut case = fake::case(2);
        case.targets[0].readable_env = true;
        let mut world = World::new(case, single(1), 7);
        // It runs as found, and its environment cannot be read.
        world.restart("lab", &BTreeMap::new());
        let mut met = world.state.current_boot("lab").unwrap().as_ref().clone();
        let mut proof = met.proof.as_ref().clone();
        (proof.readable_env, proof.process.start_ticks) = (false, 99);
        proof.levels.clear();
        proof.unverified = [("p0", "overwritten"), ("p1", "overwritten")].map(|(p, w)| (p.into(), w.into())).into();
        met.proof = Arc::new(proof);
        world.state.boots.insert(met.id, Arc::new(met.clone()));
        world.state.targets.get_mut("lab").unwrap().original.clear();
        world.search(2000).unwrap();
        assert_eq!(verdict(&world, "p1").verdict, Finding::Guilty);
        let asked: Vec<_> = world.state.trials.iter().flat_map(|t| &t.trial.boots).collect();
        assert!(!asked.is_empty() && asked.iter().all(|b| world.state.boots[*b].proof.readable_env));
        assert!(!asked.contains(&&met.id), "the server as found is of no arm");
    }

    #[test]
    fn evidence_names_lines_of_boots_and_trials() {
        let world = searched(fake::case(2), single(0));
        for verdict in &world.state.verdicts {
            assert!(!verdict.evidence.is_empty());
            for seq in &verdict.evidence {
                let boot = world.state.boots.values().any(|b| b.seq == *seq);
                let trial = world.state.trials.iter().any(|t| t.seq == *seq);
                assert!(boot || trial, "{seq} is neither a boot nor a trial");
            }
        }
    }

    #[test]
    fn without_a_symptom_nobody_is_judged() {
        let world = searched(fake::case(2), Nature::default());
        check(&world, &[("p0", Finding::Inconclusive), ("p1", Finding::Inconclusive)], Conclusion::NoFinding);
        assert!(verdict(&world, "p0").why.contains("no symptom"));
        assert_eq!(world.state.search.as_ref().unwrap().ended, Some(Ending::NoSymptom));
    }

    #[test]
    fn a_symptom_that_stays_with_all_off_shows_no_patch() {
        let world = searched(fake::case(2), Nature { culprit: Culprit::Always, ..Nature::default() });
        check(&world, &[("p0", Finding::NotShown), ("p1", Finding::NotShown)], Conclusion::Unexplained);
    }

    #[test]
    fn partners_are_not_separable_and_either_of_two_is_not_shown() {
        let both = searched(fake::case(3), Nature { culprit: Culprit::Both(0, 2), ..Nature::default() });
        check(
            &both,
            &[("p0", Finding::NotSeparable), ("p1", Finding::NotShown), ("p2", Finding::NotSeparable)],
            Conclusion::Unexplained,
        );
        assert!(said(&both, "`p0`, `p2` unmake the symptom"));
        let either = searched(fake::case(3), Nature { culprit: Culprit::Either(0, 2), ..Nature::default() });
        check(
            &either,
            &[("p0", Finding::NotShown), ("p1", Finding::NotShown), ("p2", Finding::NotShown)],
            Conclusion::Unexplained,
        );
    }

    #[test]
    fn an_arm_that_cannot_start_costs_only_its_patch() {
        let nature = Nature { needed: Some("p0".into()), ..single(1) };
        let mut world = World::new(fake::case(2), nature, 7);
        world.search(2000).unwrap();
        // All off needs `p0` off, which does not start, so nothing can be shown both ways.
        assert!(matches!(world.state.search.as_ref().unwrap().ended, Some(Ending::CannotRun { .. })));
        assert!(verdict(&world, "p1").why.contains("died while loading"));
        assert_eq!(conclusion(&world.state), Conclusion::WorldFailed);
    }

    #[test]
    fn void_trials_end_the_search_with_the_reason() {
        let world = searched(fake::case(2), Nature { void: 0.6, ..single(0) });
        check(&world, &[("p0", Finding::Inconclusive), ("p1", Finding::Inconclusive)], Conclusion::WorldFailed);
        assert!(verdict(&world, "p0").why.contains("were void"));
        let some = searched(fake::case(2), Nature { void: 0.1, ..single(0) });
        assert_eq!(verdict(&some, "p0").verdict, Finding::Guilty);
        assert!(verdict(&some, "p0").on.void > 0);
    }

    #[test]
    fn patches_that_cannot_be_switched_or_read_are_set_aside_and_never_acquitted() {
        let mut case = fake::case(3);
        case.patches[0].gate = Gate::None;
        let world = searched(case, Nature { unverified: vec!["p2".into()], ..single(1) });
        check(
            &world,
            &[("p0", Finding::Inconclusive), ("p1", Finding::Guilty), ("p2", Finding::Inconclusive)],
            Conclusion::Guilty,
        );
        assert!(said(&world, "`p0` is not tried: it has no variable, flag or diff"));
        assert!(said(&world, "could not be read back: the environment was all NUL"));
    }

    #[test]
    fn a_refused_command_ends_the_search_instead_of_asking_again() {
        let mut world = World::new(fake::case(2), Nature { refuse: true, ..single(0) }, 1);
        world.restart("lab", &BTreeMap::new());
        let commands = world.search(2000).unwrap();
        assert!(commands < 6, "{commands} commands");
        assert!(matches!(world.state.search.as_ref().unwrap().ended, Some(Ending::CannotRun { .. })));
        assert_eq!(conclusion(&world.state), Conclusion::WorldFailed);
    }

    #[test]
    fn a_search_that_was_cut_off_goes_on_with_what_is_recorded() {
        let whole = searched(fake::case(3), single(2));
        for cut in [3, 10, 25] {
            let mut world = World::new(fake::case(3), single(2), 7);
            world.search(cut).unwrap();
            let stopped = world.state.search.as_ref().unwrap().stopped();
            world.state.search = Some(Arc::new(stopped));
            world.search(2000).unwrap();
            assert_eq!(verdict(&world, "p2").verdict, Finding::Guilty, "cut after {cut}");
            let (a, b) = (world.state.boots.len(), whole.state.boots.len());
            assert!(a <= b + 2, "cut after {cut}: {a} boots, {b} in one go");
        }
    }

    #[test]
    fn what_somebody_switched_before_is_not_taken_for_as_found() {
        let mut world = World::new(fake::case(2), single(0), 7);
        world.restart("lab", &BTreeMap::new());
        world.restart("lab", &BTreeMap::from([("p0".into(), "off".into())]));
        world.search(2000).unwrap();
        assert_eq!(world.state.search.as_ref().unwrap().as_found["p0@lab"], "on");
        assert_eq!(verdict(&world, "p0").verdict, Finding::Guilty);
    }

    #[test]
    fn a_patch_that_was_off_when_found_is_not_tried() {
        let mut world = World::new(fake::case(2), single(1), 7);
        world.restart("lab", &BTreeMap::from([("p0".into(), "off".into())]));
        world.search(2000).unwrap();
        assert_eq!(verdict(&world, "p0").verdict, Finding::Inconclusive);
        assert!(verdict(&world, "p0").why.contains("suspect level"));
        assert_eq!(verdict(&world, "p1").verdict, Finding::Guilty);
    }

    #[test]
    fn a_microtest_that_fails_does_not_stop_the_search() {
        let mut case = fake::case(2);
        case.patches[1].microtest = Some("mhc-mix".into());
        let world = searched(case, single(0));
        assert_eq!(world.state.search.as_ref().unwrap().micro, ["mhc-mix"]);
        assert_eq!(verdict(&world, "p0").verdict, Finding::Guilty);
    }

    #[test]
    fn inseparable_patches_convict_neither() {
        let mut case = fake::case(3);
        case.patches[1].requires = vec!["p0".into()];
        let world = searched(case, single(1));
        assert_eq!(verdict(&world, "p1").verdict, Finding::NotSeparable);
        assert!(!world.state.verdicts.iter().any(|v| v.verdict == Finding::Guilty));
    }

    fn check_begin(change: impl Fn(&mut Case), patches: &[&str], part: &str) {
        let mut case = fake::case(2);
        change(&mut case);
        let world = World::new(case, Nature::default(), 1);
        let patches: Vec<_> = patches.iter().map(|p| (*p).to_owned()).collect();
        let failure = begin(&world.state, &patches).unwrap_err();
        assert!(failure.message.contains(part), "{failure:?}");
        assert!(failure.hint.is_some());
    }

    #[test]
    fn what_cannot_be_searched_is_refused_with_a_hint() {
        check_begin(|_| (), &["nobody"], "no patch `nobody`");
        check_begin(|c| c.targets.clear(), &[], "no target");
        check_begin(|c| c.recall.lengths.clear(), &[], "no prompt length");
        assert!(begin(&State::default(), &[]).unwrap_err().message.contains("no case"));
        let mut running = World::new(fake::case(1), Nature::default(), 1);
        running.search(1).unwrap();
        assert!(begin(&running.state, &[]).unwrap_err().message.contains("runs already"));
    }

    #[test]
    fn the_search_survives_its_journal_line() {
        let mut world = World::new(fake::case(3), single(0), 7);
        for steps in [2, 9, 30] {
            if world.state.search.is_none() {
                world.search(steps).unwrap();
            } else {
                world.go_on(steps);
            }
            let search = world.state.search.clone().unwrap();
            let text = serde_json::to_string(search.as_ref()).unwrap();
            assert_eq!(serde_json::from_str::<Search>(&text).unwrap(), *search);
        }
    }

    #[test]
    fn a_finished_or_absent_search_wants_nothing() {
        assert_eq!(next(&State::default()), Next::Finished);
        let world = searched(fake::case(1), single(0));
        assert_eq!(next(&world.state), Next::Finished);
        assert_eq!(world.state.search.as_ref().unwrap().phase, Phase::Done);
        assert_eq!(verdict(&world, "p0").verdict, Finding::Guilty);
    }
}
