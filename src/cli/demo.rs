//! `patchbench demo --headless`: what `isolate` prints, with the name of the scenario.
//!
//! Starting the lab and running the search is not done here.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::isolate::{self, IsolateReport};
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::engine::state::State;

/// What the search found on the lab.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DemoReport {
    /// The scenario that was asked for; what it hides is not looked at.
    pub scenario: String,
    /// What the search found.
    #[serde(flatten)]
    pub found: IsolateReport,
}

impl Report for DemoReport {
    const NAME: &'static str = "demo";
}

/// Answers `demo --headless` once the search has ended.
pub fn answer(state: &State, scenario: &str, session: &Path, style: Style) -> Answer {
    let report = DemoReport { scenario: scenario.to_owned(), found: isolate::isolate_report(state) };
    let text = isolate::text(&report.found, style);
    isolate::finish(Answer::new(&report, isolate::status(state), text), state, Some(session))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Status;
    use crate::cli::fixture;

    #[test]
    fn demo_has_the_fields_of_isolate_and_the_scenario() {
        let answer = answer(&fixture::full_state(), "incident", Path::new("s"), Style::PLAIN);
        assert_eq!(answer.body["scenario"], "incident");
        assert_eq!(answer.body["verdicts"][0]["verdict"], "guilty");
        assert_eq!(answer.body["symptom"]["trials"], 24);
        assert_eq!(answer.status, Status::Finding);
        assert!(answer.text.ends_with("session  s"));
    }
}
