//! `patchbench isolate --plan` and `--simulate`: what a search would spend, and how often it is right.
//!
//! Neither restarts anything. The plan reads the servers of the case; the simulation knows none.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Number, Report};
use crate::cli::style::Style;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::state::State;
use crate::isolate::estimate::estimate;
use crate::isolate::plan;
use crate::isolate::simulate::{self, Tally, Truth};

/// Seed of the first simulated world.
const SEED: u64 = 1;

/// What a search would do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlanReport {
    /// Targets that would be restarted, each many times.
    pub targets: Vec<String>,
    /// Patches that would be tried, in order.
    pub patches: Vec<String>,
    /// Patches that cannot be tried.
    pub set_aside: Vec<SetAside>,
    /// Arms in words, in the order in which they may be run; the search ends as soon as it can tell.
    pub arms: Vec<String>,
    /// Starts of the deployment, if one patch in the middle is guilty.
    pub boots: u32,
    /// Trials, on the same assumption.
    pub trials: u32,
    /// Minutes, on the same assumption and at the pace seen so far, else at a guessed one.
    pub minutes: Number,
    /// Minutes that were allowed; `null` is no bound.
    pub budget: Option<Number>,
}

/// A patch that cannot be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SetAside {
    /// Patch id.
    pub patch: String,
    /// Why not.
    pub why: String,
}

/// The self-test of the search.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulateReport {
    /// One per kind of world.
    pub worlds: Vec<SimulatedWorld>,
}

/// How often the search was right about one kind of world.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SimulatedWorld {
    /// Its name.
    pub world: String,
    /// Searches.
    pub runs: u32,
    /// Searches that convicted an innocent patch.
    pub innocent_convicted: u32,
    /// Searches that acquitted a guilty patch.
    pub guilty_acquitted: u32,
    /// Searches whose convictions are exactly the patches that are guilty alone.
    pub exact: u32,
    /// Searches that named both partners of a pair.
    pub pair_named: u32,
    /// Searches in which every innocent patch was acquitted.
    pub all_acquitted: u32,
    /// Searches that found no symptom.
    pub no_symptom: u32,
    /// Searches that came to no end, or whose exit status did not fit.
    pub stuck: u32,
    /// Mean number of boots.
    pub boots: Number,
    /// Mean number of trials.
    pub trials: Number,
    /// Mean minutes at the lab's pace.
    pub minutes: Number,
}

impl Report for PlanReport {
    const NAME: &'static str = "isolate-plan";
}

impl Report for SimulateReport {
    const NAME: &'static str = "isolate-simulate";
}

/// Answers `isolate --plan` once the targets were read.
pub fn answer(state: &State, budget: Option<f64>, session: Option<&Path>, style: Style) -> Answer {
    let cost = estimate(state);
    let mut report = PlanReport {
        targets: Vec::new(),
        patches: Vec::new(),
        set_aside: Vec::new(),
        arms: Vec::new(),
        boots: cost.boots,
        trials: cost.trials,
        minutes: Number(cost.minutes),
        budget: budget.map(Number),
    };
    let failure = match plan::begin(state, &[]) {
        Ok(search) => {
            report.arms = arms(&search.patches);
            report.targets = search.targets;
            report.patches = search.patches;
            report.set_aside = search.set_aside.into_iter().map(|(patch, why)| SetAside { patch, why }).collect();
            None
        }
        Err(failure) => Some(failure),
    };
    let status = if failure.is_some() { Status::Usage } else { Status::Done };
    let over = budget.filter(|minutes| cost.minutes > *minutes).map(|minutes| {
        let message = format!("the search is expected to need {:.0} min and may take {minutes} min", cost.minutes);
        Diagnostic::warning("over-budget", message).hint("it would stop before it can tell; raise `--budget`")
    });
    let answer = Answer::new(&report, status, text(&report, style))
        .kept_in(session)
        .diagnostics(state.diagnostics.iter().cloned())
        .diagnostics(over);
    match failure {
        Some(failure) => answer.error(ErrorCode::Case, failure.message, failure.hint),
        None => answer,
    }
}

fn arms(patches: &[String]) -> Vec<String> {
    let mut arms = vec!["as found".to_owned()];
    if patches.is_empty() {
        return arms;
    }
    arms.push("every patch off".to_owned());
    arms.extend(patches.iter().map(|patch| format!("`{patch}` off; if that unmakes the symptom, on alone")));
    arms.push("the guilty off, all others on".to_owned());
    arms
}

fn text(report: &PlanReport, style: Style) -> String {
    let mut lines = vec![
        format!("restarts  {}", report.targets.join(", ")),
        format!(
            "costs     about {} boots, {} trials, {:.0} min, if one patch in the middle is guilty",
            report.boots,
            report.trials,
            report.minutes.0.ceil()
        ),
    ];
    lines.extend(report.arms.iter().map(|arm| format!("arm       {arm}")));
    lines.extend(report.set_aside.iter().map(|s| format!("not tried `{}`: {}", s.patch, s.why)));
    let yes: Vec<_> = report.targets.iter().map(|t| format!("--yes {t}")).collect();
    lines.push(style.dim(&format!("nothing was restarted; `{}` runs it", yes.join(" "))));
    lines.join("\n")
}

/// Answers `isolate --simulate`: `runs` searches in each world of the self-test.
///
/// # Errors
/// A search cannot begin, which is a defect of the program.
pub fn simulated(runs: u32) -> Result<Answer, Failed> {
    let rows: Vec<(Truth, Tally)> = simulate::truths()
        .into_iter()
        .map(|truth| {
            let tally =
                simulate::simulate(&truth, runs, SEED).map_err(|f| Failed::from_failure(ErrorCode::Refused, &f))?;
            Ok((truth, tally))
        })
        .collect::<Result<_, Failed>>()?;
    let worlds = rows.iter().map(|(truth, t)| {
        let mean = |total: f64| Number(total / f64::from(t.runs.max(1)));
        SimulatedWorld {
            world: truth.name.to_owned(),
            runs: t.runs,
            innocent_convicted: t.innocent_convicted,
            guilty_acquitted: t.guilty_acquitted,
            exact: t.exact,
            pair_named: t.pair_named,
            all_acquitted: t.all_acquitted,
            no_symptom: t.no_symptom,
            stuck: t.stuck,
            boots: mean(t.boots as f64),
            trials: mean(t.trials as f64),
            minutes: mean(t.seconds / 60.0),
        }
    });
    let report = SimulateReport { worlds: worlds.collect() };
    Ok(Answer::new(&report, Status::Done, simulate::table(&rows).trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    #[test]
    fn a_plan_names_what_it_would_restart_and_warns_over_its_budget() {
        let answer = answer(&fixture::full_state(), Some(0.01), None, Style::PLAIN);
        assert_eq!(answer.status, Status::Done);
        assert_eq!(answer.body["targets"], serde_json::json!(["server"]));
        assert!(answer.body["boots"].as_u64().unwrap() > 4, "{}", answer.text);
        assert!(answer.text.contains("`mhc-bf16` off") && answer.text.contains("--yes server"), "{}", answer.text);
        assert!(answer.diagnostics.iter().any(|d| d.code == "over-budget"));
    }

    #[test]
    fn a_plan_without_a_case_is_a_usage_error() {
        assert_eq!(answer(&State::default(), None, None, Style::PLAIN).status, Status::Usage);
    }

    #[test]
    fn the_self_test_was_only_a_test() {
        let answer = simulated(1).unwrap();
        let worlds = answer.body["worlds"].as_array().unwrap();
        assert_eq!(worlds.len(), simulate::truths().len());
        assert!(worlds.iter().all(|w| w["runs"] == 1 && w["boots"].as_f64().unwrap() > 1.0));
        assert!(answer.text.contains("innocent-convicted"));
    }
}
