//! What an investigation amounts to. The numbers of the exit statuses are in `cli::exit`.

use crate::case::RecallSpec;
use crate::engine::state::State;
use crate::isolate::search::Ending;
use crate::isolate::verdict::Finding;

/// What the state of an investigation stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The symptom was measured, and there is none.
    NoFinding,
    /// A patch is guilty.
    Guilty,
    /// The world failed, too few trials were left after the void ones, or nothing was measured.
    WorldFailed,
    /// A symptom without a verdict.
    Unexplained,
}

/// What the state of an investigation stands for.
pub fn conclusion(state: &State) -> Conclusion {
    if state.verdicts.iter().any(|v| v.verdict == Finding::Guilty) {
        return Conclusion::Guilty;
    }
    let symptom = state.symptom.as_ref().map(|s| s.lower > floor(state));
    match (state.search.as_ref().and_then(|s| s.ended.as_ref()), symptom) {
        (Some(Ending::TooFewTrials { .. } | Ending::CannotRun { .. }), _) | (_, None) => Conclusion::WorldFailed,
        (_, Some(true)) => Conclusion::Unexplained,
        (_, Some(false)) => Conclusion::NoFinding,
    }
}

/// The failure rate above which the lower bound makes a symptom: the case's, else the default of every case.
pub fn floor(state: &State) -> f64 {
    state.case.as_ref().map_or_else(|| RecallSpec::default().floor, |case| case.recall.floor)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::isolate::search::Search;
    use crate::isolate::verdict::{ArmCount, Subject, SubjectKind, Symptom, Verdict};

    fn check(ended: Option<&Ending>, symptom: bool, finding: Option<Finding>, expect: Conclusion) {
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
        assert_eq!(conclusion(&state), expect, "{ended:?} {symptom} {finding:?}");
    }

    #[test]
    fn each_ending_has_its_status() {
        let failed = Ending::CannotRun { why: String::new() };
        check(Some(&Ending::Explained), true, Some(Finding::Guilty), Conclusion::Guilty);
        check(Some(&failed), true, Some(Finding::Guilty), Conclusion::Guilty);
        check(Some(&failed), true, Some(Finding::Inconclusive), Conclusion::WorldFailed);
        check(Some(&Ending::TooFewTrials { why: String::new() }), false, None, Conclusion::WorldFailed);
        check(Some(&Ending::NotThePatches), true, Some(Finding::NotShown), Conclusion::Unexplained);
        check(Some(&Ending::Unexplained), true, Some(Finding::NotSeparable), Conclusion::Unexplained);
        check(Some(&Ending::Stopped), true, None, Conclusion::Unexplained);
        check(Some(&Ending::NoSymptom), false, Some(Finding::Inconclusive), Conclusion::NoFinding);
        check(None, false, None, Conclusion::NoFinding);
    }

    #[test]
    fn nothing_measured_was_taken_for_no_finding() {
        assert_eq!(conclusion(&State::default()), Conclusion::WorldFailed);
    }

    #[test]
    fn the_floor_is_that_of_the_case() {
        let mut state = State { symptom: Some(Symptom { rate: 0.5, lower: 0.2, trials: 24 }), ..State::default() };
        assert_eq!(conclusion(&state), Conclusion::Unexplained);
        let mut case = crate::case::Case::default();
        case.recall.floor = 0.3;
        state.case = Some(Arc::new(case));
        assert_eq!(conclusion(&state), Conclusion::NoFinding);
    }
}
