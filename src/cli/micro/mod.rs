//! `patchbench micro`: how far each kernel's arithmetic strays, from the state.
//!
//! Measuring is `kernel`; `files` writes what was asked for, the rest is pure over `State`.

pub mod files;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::engine::state::State;
use crate::kernel::report::{ErrorClass, MicroReport};

pub use text::text;

/// Microtests.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MicroReports {
    /// One per microtest and device, in the order in which they ended.
    pub reports: Vec<MicroReport>,
    /// What makes a report worthless, each with its microtest and device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spoiled: Vec<String>,
    /// Figures and tables that were written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl Report for MicroReports {
    const NAME: &'static str = "micro";
}

/// The microtests of the session, without the first `skip` of them.
pub fn micro_report(state: &State, skip: usize) -> MicroReports {
    let reports: Vec<MicroReport> = state.micro.iter().skip(skip).map(|r| MicroReport::clone(r)).collect();
    let of = |r: &MicroReport| {
        let place = format!("{} on {}", r.spec, r.device);
        r.spoiled().into_iter().map(move |why| format!("{place}: {why}")).collect::<Vec<_>>()
    };
    MicroReports { spoiled: reports.iter().flat_map(of).collect(), reports, files: Vec::new() }
}

/// The exit status: decisions that flip, another function, or a report that proves nothing are a finding.
pub fn status(report: &MicroReports) -> Status {
    let mut classes = report.reports.iter().flat_map(|r| &r.verdicts).map(|v| v.class);
    if report.reports.is_empty() {
        Status::World
    } else if !report.spoiled.is_empty()
        || classes.any(|c| matches!(c, ErrorClass::FlipsDecisions | ErrorClass::Broken))
    {
        Status::Finding
    } else {
        Status::Done
    }
}

/// Answers `micro` once the microtests have ended, and writes the files that were asked for.
pub fn answer(state: &State, skip: usize, targets: &[files::Target], session: Option<&Path>, style: Style) -> Answer {
    let mut report = micro_report(state, skip);
    let status = status(&report);
    let written = if report.reports.is_empty() { Ok(Vec::new()) } else { files::write(targets, &report.reports) };
    let failed = match written {
        Ok(files) => {
            report.files = files.iter().map(|path| path.display().to_string()).collect();
            None
        }
        Err(failure) => Some(failure),
    };
    let mut text = text(&report, style);
    text.push_str(&written_words(&report.files));
    let status = if failed.is_some() { Status::World } else { status };
    let answer = Answer::new(&report, status, text).kept_in(session).diagnostics(state.diagnostics.iter().cloned());
    match failed {
        _ if report.reports.is_empty() => answer.error(ErrorCode::NoDevice, "no microtest ended", None),
        Some(failure) => answer.error(ErrorCode::Io, failure.message, failure.hint),
        None => answer,
    }
}

/// Which files were written; many of one folder are counted.
fn written_words(files: &[String]) -> String {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        folders.entry(file.rsplit_once('/').map_or(".", |(folder, _)| folder)).or_default().push(file);
    }
    let mut out = String::new();
    for (folder, files) in folders {
        let many = format!("{} files in {folder}", files.len());
        for line in if files.len() > 4 { vec![many.as_str()] } else { files } {
            out.push_str(if out.is_empty() { "\n\nwritten: " } else { "\n         " });
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    fn check(class: ErrorClass, expect: Status) {
        assert_eq!(
            status(&MicroReports { reports: vec![fixture::micro(class)], spoiled: Vec::new(), files: Vec::new() }),
            expect,
            "{class:?}"
        );
    }

    #[test]
    fn only_flipped_decisions_and_broken_functions_are_findings() {
        check(ErrorClass::BelowFloor, Status::Done);
        check(ErrorClass::AboveFloor, Status::Done);
        check(ErrorClass::FlipsDecisions, Status::Finding);
        check(ErrorClass::Broken, Status::Finding);
        assert_eq!(
            status(&MicroReports { reports: Vec::new(), spoiled: Vec::new(), files: Vec::new() }),
            Status::World
        );
    }

    #[test]
    fn many_files_of_a_folder_are_counted() {
        let check = |files: &[&str], expect: &str| {
            assert_eq!(written_words(&files.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>()), expect);
        };
        check(&[], "");
        check(&["a.svg", "b.csv"], "\n\nwritten: a.svg\n         b.csv");
        check(&["d/1", "d/2", "d/3", "d/4", "d/5", "/x.csv"], "\n\nwritten: /x.csv\n         5 files in d");
    }

    #[test]
    fn a_value_that_is_no_number_is_a_string_in_json_and_the_worst_in_text() {
        let report = micro_report(&fixture::full_state(), 0);
        assert_eq!(serde_json::to_value(&report).unwrap()["reports"][0]["curves"][0]["rel_l2"][1], "NaN");
        let text = text(&report, Style::PLAIN);
        assert!(text.contains("\nbf16           NaN      NaN  2.00e-3          -    1/2   2\n"), "{text}");
    }
}
