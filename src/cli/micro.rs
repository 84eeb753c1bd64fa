//! `patchbench micro`: how far each kernel's arithmetic strays, from the state.
//!
//! Pure over `State`; measuring is `kernel`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::state::State;
use crate::kernel::report::{Curve, ErrorClass, MicroReport};

/// Microtests.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MicroReports {
    /// One per microtest and device, in the order in which they ended.
    pub reports: Vec<MicroReport>,
}

impl Report for MicroReports {
    const NAME: &'static str = "micro";
}

/// The microtests of the session, without the first `skip` of them.
pub fn micro_report(state: &State, skip: usize) -> MicroReports {
    MicroReports { reports: state.micro.iter().skip(skip).map(|r| MicroReport::clone(r)).collect() }
}

/// The exit status: decisions that flip, or another function, are a finding.
pub fn status(report: &MicroReports) -> Status {
    let mut classes = report.reports.iter().flat_map(|r| &r.verdicts).map(|v| v.class);
    if report.reports.is_empty() {
        Status::World
    } else if classes.any(|c| matches!(c, ErrorClass::FlipsDecisions | ErrorClass::Broken)) {
        Status::Finding
    } else {
        Status::Done
    }
}

/// Answers `micro` once the microtests have ended.
pub fn answer(state: &State, skip: usize, session: Option<&Path>, style: Style) -> Answer {
    let report = micro_report(state, skip);
    let status = status(&report);
    let text = text(&report, style);
    let answer = Answer::new(&report, status, text).kept_in(session).diagnostics(state.diagnostics.iter().cloned());
    match status {
        Status::World => answer.error(ErrorCode::NoDevice, "no microtest ended", None),
        _ => answer,
    }
}

/// The numbers for people: the worst error of every curve, and what each candidate's numbers mean.
pub fn text(report: &MicroReports, style: Style) -> String {
    report.reports.iter().map(|r| one(r, style)).collect::<Vec<_>>().join("\n\n")
}

fn one(report: &MicroReport, style: Style) -> String {
    let head = format!(
        "{} on {}: {}, {:.2} s\n{}",
        style.bold(&report.spec),
        report.device,
        report.shape,
        report.seconds,
        style.dim(&report.provenance)
    );
    let floor = report.floor.iter().map(|c| curve_cells(c, Mark::Dim));
    let curves = report.curves.iter().map(|c| curve_cells(c, Mark::Plain));
    let rows: Vec<Vec<Cell>> = floor.chain(curves).collect();
    let verdicts: Vec<Vec<Cell>> = report
        .verdicts
        .iter()
        .map(|v| {
            let (word, mark) = class(v.class);
            let says = format!("{}; does not show {}", v.says, v.does_not_show);
            vec![v.candidate.clone().into(), Cell::marked(word, mark), says.into()]
        })
        .collect();
    format!(
        "{head}\n\n{}\n\n{}",
        table(&["candidate", "measured", "median", "worst", "worst at"], &[2, 3], &rows, style),
        table(&["candidate", "class", "what it says"], &[], &verdicts, style)
    )
}

fn curve_cells(curve: &Curve, mark: Mark) -> Vec<Cell> {
    let mode = curve.mode.word();
    // NaN counts as worse than every number.
    let rank = |v: f64| if v.is_nan() { f64::INFINITY } else { v };
    let worst = curve.rel_l2.iter().enumerate().max_by(|a, b| rank(*a.1).total_cmp(&rank(*b.1)));
    let mut sorted = curve.rel_l2.clone();
    sorted.sort_by(|a, b| rank(*a).total_cmp(&rank(*b)));
    let median = sorted.get(sorted.len() / 2).map_or_else(|| "-".to_owned(), |v| format!("{v:.2e}"));
    let (value, place) = match worst {
        None => ("-".to_owned(), "-".to_owned()),
        Some((at, v)) => (format!("{v:.2e}"), curve.labels.get(at).cloned().unwrap_or_else(|| at.to_string())),
    };
    [curve.candidate.clone(), mode.to_owned(), median, value, place]
        .into_iter()
        .map(|text| Cell::marked(text, mark))
        .collect()
}

fn class(class: ErrorClass) -> (&'static str, Mark) {
    match class {
        ErrorClass::BelowFloor => ("below the floor", Mark::Good),
        ErrorClass::AboveFloor => ("above the floor", Mark::Warning),
        ErrorClass::FlipsDecisions => ("flips decisions", Mark::Bad),
        ErrorClass::Broken => ("broken", Mark::Bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    fn check(class: ErrorClass, expect: Status) {
        assert_eq!(status(&MicroReports { reports: vec![fixture::micro(class)] }), expect, "{class:?}");
    }

    #[test]
    fn only_flipped_decisions_and_broken_functions_are_findings() {
        check(ErrorClass::BelowFloor, Status::Done);
        check(ErrorClass::AboveFloor, Status::Done);
        check(ErrorClass::FlipsDecisions, Status::Finding);
        check(ErrorClass::Broken, Status::Finding);
        assert_eq!(status(&MicroReports { reports: Vec::new() }), Status::World);
    }

    #[test]
    fn a_value_that_is_no_number_is_a_string_in_json_and_the_worst_in_text() {
        let report = micro_report(&fixture::full_state(), 0);
        assert_eq!(serde_json::to_value(&report).unwrap()["reports"][0]["curves"][0]["rel_l2"][1], "NaN");
        insta::assert_snapshot!(text(&report, Style::PLAIN), @r#"
        mhc-mix on cpu: 2 sites, 0.25 s
        weights of the lab

        candidate  measured   median    worst  worst at
        stream     per site  2.00e-3  2.00e-3  layer 0 mlp
        bf16       per site      NaN      NaN  layer 0 mlp

        candidate  class            what it says
        bf16       below the floor  at most 1e-3; does not show what the model makes of it
        "#);
    }
}
