//! Reports of `patchbench lab scenarios` and `lab reveal`.
//!
//! Running the lab and reading a sealed deployment is `lab`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::cli::table::{Cell, table};

/// The scenarios of the lab, by name; what they hide is not said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenariosReport {
    /// Names, in order.
    pub scenarios: Vec<String>,
}

/// The sealed answer of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RevealReport {
    /// Folder of the deployment.
    pub deployment: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The faults; empty is a healthy server.
    pub faults: Vec<FaultRow>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FaultRow {
    /// Its kind.
    pub kind: String,
    /// When it strikes.
    pub when: String,
    /// How often, in the words of the scenario.
    pub rate: String,
}

impl Report for ScenariosReport {
    const NAME: &'static str = "lab-scenarios";
}

impl Report for RevealReport {
    const NAME: &'static str = "lab-reveal";
}

/// Answers `lab scenarios`.
pub fn scenarios(names: Vec<String>) -> Answer {
    let text = names.join("\n");
    Answer::new(&ScenariosReport { scenarios: names }, Status::Done, text)
}

/// Answers `lab reveal`.
pub fn reveal(report: &RevealReport, style: Style) -> Answer {
    let head = format!("scenario {} in {}", style.bold(&report.scenario), report.deployment);
    let text = if report.faults.is_empty() {
        format!("{head}\nnothing is hidden: the server is healthy")
    } else {
        let cells = |f: &FaultRow| vec![f.kind.clone().into(), f.when.clone().into(), f.rate.clone().into()];
        let rows: Vec<Vec<Cell>> = report.faults.iter().map(cells).collect();
        format!("{head}\n\n{}", table(&["fault", "when", "rate"], &[], &rows, style))
    };
    Answer::new(report, Status::Done, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_server_is_said_to_be_healthy() {
        let report = RevealReport { deployment: "d".into(), scenario: "clean".into(), faults: Vec::new() };
        assert!(reveal(&report, Style::PLAIN).text.contains("nothing is hidden"));
    }

    #[test]
    fn scenarios_are_one_name_a_line() {
        assert_eq!(scenarios(vec!["a".into(), "b".into()]).text, "a\nb");
    }
}
