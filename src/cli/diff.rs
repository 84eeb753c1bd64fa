//! `patchbench diff`: two readings side by side. Pure; reading is `connect::diff`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::diagnostic::Diagnostic;
use crate::truth::TargetTruth;
use crate::truth::diff::{DiffRow, Difference, diff};
use crate::untrusted::Untrusted;

/// Characters of a value that the text form shows.
const SHOWN: usize = 40;

/// Two readings side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffReport {
    /// What the left one is.
    pub left: Reading,
    /// What the right one is.
    pub right: Reading,
    /// Names in which they are not the same: what nothing explains first.
    pub rows: Vec<DiffRow>,
}

/// One of the two readings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reading {
    /// As it was named on the command line.
    pub name: String,
    /// The target.
    pub target: String,
    /// When it was read.
    pub at: String,
}

impl Report for DiffReport {
    const NAME: &'static str = "diff";
}

/// The answer for two readings and their names.
pub fn answer(left: (&str, &TargetTruth), right: (&str, &TargetTruth), style: Style) -> Answer {
    let rows = diff(left.1, right.1);
    let reading = |(name, truth): (&str, &TargetTruth)| Reading {
        name: name.to_owned(),
        target: truth.target.clone(),
        at: truth.at.to_string(),
    };
    let report = DiffReport { left: reading(left), right: reading(right), rows };
    let differs =
        |r: &DiffRow| matches!(r.difference, Difference::Differs | Difference::OnlyLeft | Difference::OnlyRight);
    let status = if report.rows.iter().any(differs) { Status::Finding } else { Status::Done };
    let remarks: Vec<Diagnostic> = left.1.diagnostics.iter().chain(&right.1.diagnostics).cloned().collect();
    let text = text(&report, style);
    Answer::new(&report, status, text).diagnostics(remarks)
}

fn text(report: &DiffReport, style: Style) -> String {
    let value = |v: &Option<Untrusted>| v.as_ref().map_or_else(|| "-".to_owned(), |v| v.visible(SHOWN));
    let rows: Vec<Vec<Cell>> = report
        .rows
        .iter()
        .map(|row| {
            let (word, mark, why) = match &row.difference {
                Difference::Differs => ("differs", Mark::Bad, String::new()),
                Difference::OnlyLeft => ("only left", Mark::Bad, String::new()),
                Difference::OnlyRight => ("only right", Mark::Bad, String::new()),
                Difference::Expected { because } => ("expected", Mark::Plain, because.clone()),
                Difference::Unknown { because } => ("unknown", Mark::Warning, because.clone()),
            };
            vec![
                Cell::marked(word, mark),
                Cell::from(Untrusted::from(row.name.as_str()).visible(SHOWN)),
                Cell::from(value(&row.left)),
                Cell::from(value(&row.right)),
                Cell::from(Untrusted::from(why).visible(80)),
            ]
        })
        .collect();
    if rows.is_empty() {
        return format!(
            "{} and {} are the same in everything that was read of both",
            report.left.name, report.right.name
        );
    }
    table(&["", "name", &report.left.name, &report.right.name, ""], &[], &rows, style)
}
