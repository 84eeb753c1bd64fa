//! The cheapest next step of an investigation, in one line, from what is known. Pure.

use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::estimate::estimate;
use crate::isolate::search::Ending;
use crate::isolate::verdict::Finding;
use crate::truth::ServerStatus;

/// One line that names the next step, its key in back-quotes, and what it costs.
pub fn step(state: &State) -> String {
    let Some(case) = &state.case else {
        return "open a case: `patchbench CASE`, or `patchbench demo` for the lab".into();
    };
    if let Some(p) = state.procedures.values().find(|p| matches!(p.status, ProcedureStatus::Interrupted { .. })) {
        let id = p.procedure.id;
        return format!(
            "{} was cut off: `:resume-procedure {id}` finishes it, `:undo-procedure {id}` takes it back",
            p.procedure.title
        );
    }
    if let Some(p) = state.procedures.values().find(|p| matches!(p.status, ProcedureStatus::Planned)) {
        return format!(
            "{} waits for an answer: `:confirm {}` or `:discard {}`",
            p.procedure.title, p.procedure.id, p.procedure.id
        );
    }
    if let Some(search) = state.search.as_ref().filter(|s| s.is_active()) {
        let left = estimate(state);
        return format!(
            "{}; about {} boots, {:.1} min to go; `:stop-isolation` ends it",
            search.headline(),
            left.boots,
            left.minutes
        );
    }
    if let Some(job) = state.running_jobs().next() {
        if job.procedure.is_some() {
            return format!("{} runs; `c` stops it and takes it back, and what is asked now waits for it", job.title);
        }
        return format!("{} runs; its result comes by itself, `c` cancels it", job.title);
    }
    let truths: Vec<_> =
        case.targets.iter().map(|t| state.targets.get(&t.name).and_then(|s| s.truth.as_ref())).collect();
    if truths.iter().any(Option::is_none) {
        return "read what the servers run with: `P` (seconds, changes nothing)".into();
    }
    let down = case.targets.iter().zip(&truths).find(|(_, t)| t.is_some_and(|t| t.status == ServerStatus::Down));
    if let Some((target, _)) = down {
        return format!("{} is down: `:restart {}` starts it (shown first, then asked)", target.name, target.name);
    }
    let running = state.targets.values().filter_map(|t| t.boot).collect::<Vec<_>>();
    let measured =
        state.trials.iter().any(|t| !t.trial.boots.is_empty() && t.trial.boots.iter().all(|b| running.contains(b)));
    if !measured {
        return "see what the model remembers as it runs now: `r` (changes nothing)".into();
    }
    let guilty: Vec<_> =
        state.verdicts.iter().filter(|v| v.verdict == Finding::Guilty).map(|v| v.subject.id.as_str()).collect();
    if !guilty.is_empty() {
        let open = case.patches.iter().find(|p| !state.verdicts.iter().any(|v| v.subject.id == p.id));
        return match open {
            Some(p) => format!(
                "{} is guilty; `:isolate {}` asks whether {} is innocent (restarts servers)",
                guilty.join(", "),
                p.id,
                p.id
            ),
            None => format!(
                "{} is guilty, every patch is judged: `:end-state best-known`, or `q` to choose what stays",
                guilty.join(", ")
            ),
        };
    }
    match &state.symptom {
        Some(s) if s.lower <= case.recall.floor => {
            "no symptom with these questions: ask longer ones, `:recall --lengths 4096,8192`".into()
        }
        _ if state.verdicts.is_empty() => "find the guilty patch: `i` (restarts servers, minutes)".into(),
        _ if state.search.as_ref().is_some_and(|s| s.ended == Some(Ending::Stopped)) => {
            "the search was stopped: `i` goes on from what is recorded".into()
        }
        _ => "the search ended without a guilty patch: `:isolate PATCH,PATCH` tries fewer with more boots each".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::case::Case;

    #[test]
    fn an_empty_session_asks_for_a_case_and_a_case_without_targets_for_trials() {
        assert!(step(&State::default()).contains("patchbench CASE"));
        let state = State { case: Some(Arc::new(Case::default())), ..State::default() };
        assert!(step(&state).contains("`r`"), "{}", step(&state));
    }
}
