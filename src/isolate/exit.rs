//! The exit status of an investigation.

use crate::engine::state::State;
use crate::isolate::search::Ending;
use crate::isolate::verdict::Finding;

/// No finding.
pub const NO_FINDING: u8 = 0;
/// A patch is guilty.
pub const GUILTY: u8 = 1;
/// The world failed, or too few trials were left after the void ones.
pub const WORLD_FAILED: u8 = 3;
/// A symptom without a verdict.
pub const UNEXPLAINED: u8 = 4;

/// The exit status that the state of an investigation stands for.
pub fn exit_status(state: &State) -> u8 {
    if state.verdicts.iter().any(|v| v.verdict == Finding::Guilty) {
        return GUILTY;
    }
    let floor = state.case.as_ref().map_or(0.15, |case| case.recall.floor);
    let symptom = state.symptom.as_ref().is_some_and(|s| s.lower > floor);
    match state.search.as_ref().and_then(|s| s.ended.as_ref()) {
        Some(Ending::TooFewTrials { .. } | Ending::CannotRun { .. }) => WORLD_FAILED,
        _ if symptom => UNEXPLAINED,
        _ => NO_FINDING,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::isolate::search::Search;
    use crate::isolate::verdict::{ArmCount, Subject, SubjectKind, Symptom, Verdict};

    fn check(ended: Option<&Ending>, symptom: bool, finding: Option<Finding>, expect: u8) {
        let lower = if symptom { 0.4 } else { 0.1 };
        let verdict = |verdict| {
            let subject = Subject { kind: SubjectKind::Patch, id: "p0".into() };
            let (on, off) = (ArmCount::default(), ArmCount::default());
            Arc::new(Verdict { subject, verdict, on, off, bound: None, why: String::new(), evidence: Vec::new() })
        };
        let state = State {
            search: Some(Arc::new(Search { ended: ended.cloned(), ..Search::default() })),
            symptom: Some(Symptom { rate: 0.5, lower, trials: 24 }),
            verdicts: finding.map(verdict).into_iter().collect(),
            ..State::default()
        };
        assert_eq!(exit_status(&state), expect, "{ended:?} {symptom} {finding:?}");
    }

    #[test]
    fn each_ending_has_its_status() {
        let failed = Ending::CannotRun { why: String::new() };
        check(Some(&Ending::Explained), true, Some(Finding::Guilty), 1);
        check(Some(&failed), true, Some(Finding::Guilty), 1);
        check(Some(&failed), true, Some(Finding::Inconclusive), 3);
        check(Some(&Ending::TooFewTrials { why: String::new() }), false, None, 3);
        check(Some(&Ending::NotThePatches), true, Some(Finding::NotShown), 4);
        check(Some(&Ending::Unexplained), true, Some(Finding::NotSeparable), 4);
        check(Some(&Ending::Stopped), true, None, 4);
        check(Some(&Ending::NoSymptom), false, Some(Finding::Inconclusive), 0);
        check(None, false, None, 0);
        assert_eq!(exit_status(&State::default()), 0);
    }
}
