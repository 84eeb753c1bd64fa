//! `patchbench truth`: the three layers of every flag and variable, from the state.
//!
//! Pure over `State`. A value that could not be read stays *unknown*; it never reads as unset.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::state::State;
use crate::truth::service::ServiceProcess;
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, ServerStatus, TargetTruth, is_disagreement};
use crate::untrusted::Untrusted;

/// Characters of a value that the text form shows.
const SHOWN: usize = 48;

/// The three layers of every target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TruthReport {
    /// One per target of the case.
    pub targets: Vec<TargetRow>,
    /// One per variable, flag and configuration value.
    pub rows: Vec<TruthRow>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TargetRow {
    /// Its name.
    pub target: String,
    /// Whether it serves.
    pub status: ServerStatus,
    /// Process id of the server, if one was found.
    pub pid: Option<u32>,
    /// When it was read; `null` where it was not.
    pub at: Option<String>,
    /// The processes of its service, the server first.
    pub processes: Vec<ServiceProcess>,
}

/// One variable, flag or configuration value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TruthRow {
    /// Target name.
    pub target: String,
    /// Process or part it belongs to.
    pub component: String,
    /// Variable, flag or key.
    pub name: String,
    /// What kind of name it is.
    pub kind: RowKind,
    /// What the launch script, unit or file says.
    pub declared: Option<ClaimRow>,
    /// What the process was started with.
    pub effective: Option<ClaimRow>,
    /// What the server or its log says.
    pub observed: Option<ClaimRow>,
    /// What the comparison says.
    pub status: RowStatus,
    /// One sentence for people; may be empty.
    pub note: String,
}

/// One statement with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClaimRow {
    /// The value; `null` is absent if `known` is `yes`, and not known otherwise.
    pub value: Option<String>,
    /// Whether the source could tell.
    pub known: KnownWord,
    /// Why it could not, if it could not.
    pub because: Option<String>,
    /// Where it was read.
    pub source: String,
    /// Line in the source, counted from 1.
    pub line: Option<u32>,
    /// What this source can never show.
    pub blind_to: Option<String>,
}

/// Whether a source could tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnownWord {
    /// It was read.
    Yes,
    /// It could not be read.
    Unknown,
}

impl Report for TruthReport {
    const NAME: &'static str = "truth";
}

/// The newest reading of every target.
pub fn truth_report(state: &State) -> TruthReport {
    let target = |(name, target): (&String, &crate::engine::state::TargetState)| TargetRow {
        target: name.clone(),
        status: target.truth.as_ref().map_or(ServerStatus::Unknown, |t| t.status),
        pid: target.truth.as_ref().and_then(|t| t.process).map(|p| p.pid),
        at: target.truth.as_ref().map(|t| t.at.to_string()),
        processes: target.truth.as_ref().map(|t| t.processes.clone()).unwrap_or_default(),
    };
    TruthReport {
        targets: state.targets.iter().map(target).collect(),
        rows: readings(state).flat_map(|t| t.rows.iter().map(row)).collect(),
    }
}

/// The exit status: a disagreement is a finding; without one, a target that was not read is a failure of the world.
pub fn status(report: &TruthReport) -> Status {
    if report.rows.iter().any(|r| is_disagreement(r.status)) {
        Status::Finding
    } else if report
        .targets
        .iter()
        .any(|t| t.at.is_none() || matches!(t.status, ServerStatus::Unknown | ServerStatus::Down))
    {
        Status::World
    } else {
        Status::Done
    }
}

/// Answers `truth` once every target was probed.
pub fn answer(state: &State, session: Option<&Path>, style: Style) -> Answer {
    let report = truth_report(state);
    let remarks: Vec<Diagnostic> = readings(state).flat_map(|t| t.diagnostics.iter().cloned()).collect();
    let status = status(&report);
    let text = text(&report, style);
    let answer = Answer::new(&report, status, text)
        .kept_in(session)
        .diagnostics(state.diagnostics.iter().cloned())
        .diagnostics(remarks);
    match status {
        Status::World => answer.error(
            ErrorCode::Unreachable,
            "not every target runs and could be read",
            Some(
                "check `host` and `url` of each target in the case; a server that is down has no process to read"
                    .into(),
            ),
        ),
        _ => answer,
    }
}

/// The table for people: disagreements first, what all layers agree on is only counted.
pub fn text(report: &TruthReport, style: Style) -> String {
    let targets: Vec<Vec<Cell>> = report.targets.iter().map(target_cells).collect();
    // What only the process inherited, and defaults that nobody touched, are counted; what somebody wrote is shown.
    let quiet =
        |r: &&TruthRow| r.declared.is_none() && matches!(r.status, RowStatus::OneSource | RowStatus::DefaultInEffect);
    let mut shown: Vec<&TruthRow> = report.rows.iter().filter(|r| !quiet(r)).collect();
    shown.sort_by_key(|r| (r.status, r.target.clone()));
    let rows: Vec<Vec<Cell>> = shown.iter().map(|r| row_cells(r)).collect();
    let differ = report.rows.iter().filter(|r| is_disagreement(r.status)).count();
    let unknown = report.rows.iter().filter(|r| r.status == RowStatus::UnknownBecause).count();
    let mut parts = vec![table(&["target", "status", "pid", "read at"], &[2], &targets, style)];
    if !rows.is_empty() {
        let heading = ["", "target", "name", "declared", "effective", "observed", "note"];
        parts.push(table(&heading, &[], &rows, style));
    }
    let agree = report.rows.iter().filter(|r| r.status == RowStatus::Agrees).count();
    let overridden = report.rows.iter().filter(|r| r.status == RowStatus::OverriddenBy).count();
    parts.push(format!(
        "{differ} of {} values disagree, {overridden} are overridden, {unknown} could not be told, {agree} agree; \
         {} that one source alone speaks of are left out, `--json` has them",
        report.rows.len(),
        report.rows.len() - shown.len(),
    ));
    parts.join("\n\n")
}

fn readings(state: &State) -> impl Iterator<Item = &TargetTruth> {
    state.targets.values().filter_map(|t| t.truth.as_deref())
}

fn row(row: &Row) -> TruthRow {
    TruthRow {
        target: row.target.clone(),
        component: row.component.clone(),
        name: row.name.clone(),
        kind: row.kind,
        declared: row.declared.as_ref().map(claim),
        effective: row.effective.as_ref().map(claim),
        observed: row.observed.as_ref().map(claim),
        status: row.status,
        note: row.note.clone(),
    }
}

fn claim(claim: &Claim) -> ClaimRow {
    let (known, because) = match &claim.known {
        Known::Yes => (KnownWord::Yes, None),
        Known::Unknown { because } => (KnownWord::Unknown, Some(because.clone())),
    };
    ClaimRow {
        // The exact text: the JSON writer escapes what could steer a terminal.
        value: claim.value.as_ref().map(|v| v.raw().to_owned()),
        known,
        because,
        source: claim.source.clone(),
        line: claim.line,
        blind_to: claim.blind_to.clone(),
    }
}

fn target_cells(target: &TargetRow) -> Vec<Cell> {
    let (word, mark) = match target.status {
        ServerStatus::Unknown => ("unknown", Mark::Warning),
        ServerStatus::Down => ("down", Mark::Bad),
        ServerStatus::Loading => ("loading", Mark::Warning),
        ServerStatus::Ready => ("ready", Mark::Good),
    };
    vec![
        target.target.clone().into(),
        Cell::marked(word, mark),
        target.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()).into(),
        target.at.clone().unwrap_or_else(|| "not read".to_owned()).into(),
    ]
}

fn row_cells(row: &TruthRow) -> Vec<Cell> {
    let (word, mark) = match row.status {
        RowStatus::Differs => ("differs", Mark::Bad),
        RowStatus::ConflictsWith => ("conflicts", Mark::Bad),
        RowStatus::AcceptedButOff => ("no effect", Mark::Warning),
        RowStatus::LooksMisspelt => ("misspelt?", Mark::Warning),
        RowStatus::UnknownToThisVersion => ("not read", Mark::Warning),
        RowStatus::OverriddenBy => ("overridden", Mark::Warning),
        RowStatus::GivenTwice => ("given twice", Mark::Warning),
        RowStatus::UnknownBecause => ("unknown", Mark::Warning),
        RowStatus::OneSource => ("one source", Mark::Dim),
        RowStatus::DefaultInEffect => ("default", Mark::Dim),
        RowStatus::Agrees => ("agrees", Mark::Good),
    };
    let mut unknown = [&row.declared, &row.effective, &row.observed].into_iter().flatten();
    let because = unknown.find_map(|c| c.because.clone());
    let note = match (row.note.as_str(), because) {
        ("", Some(because)) => because,
        (note, _) => note.to_owned(),
    };
    vec![
        Cell::marked(word, mark),
        row.target.clone().into(),
        row.name.clone().into(),
        claim_text(row.declared.as_ref()).into(),
        claim_text(row.effective.as_ref()).into(),
        claim_text(row.observed.as_ref()).into(),
        Cell::marked(note, Mark::Dim),
    ]
}

fn claim_text(claim: Option<&ClaimRow>) -> String {
    let Some(claim) = claim else { return "-".to_owned() };
    let value = match (&claim.value, claim.known) {
        (_, KnownWord::Unknown) => return "?".to_owned(),
        (None, KnownWord::Yes) => "(unset)".to_owned(),
        (Some(value), KnownWord::Yes) if value.is_empty() => "\"\"".to_owned(),
        (Some(value), KnownWord::Yes) => Untrusted::from(value.as_str()).visible(SHOWN),
    };
    match claim.line {
        Some(line) => format!("{value} (line {line})"),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    #[test]
    fn unknown_never_reads_as_unset() {
        let report = truth_report(&fixture::full_state());
        let row = report.rows.iter().find(|r| r.name == "MHC").unwrap();
        let effective = row.effective.as_ref().unwrap();
        assert_eq!((effective.known, effective.because.as_deref()), (KnownWord::Unknown, Some("permission denied")));
        assert_eq!(claim_text(row.effective.as_ref()), "?");
        assert_eq!(claim_text(row.declared.as_ref()), "(unset)");
        assert_eq!(claim_text(row.observed.as_ref()), "-");
    }

    #[test]
    fn a_disagreement_is_a_finding() {
        let mut report = truth_report(&fixture::full_state());
        assert_eq!(status(&report), Status::Finding);
        report.rows.retain(|r| r.status != RowStatus::Differs);
        assert_eq!(status(&report), Status::Done);
    }

    #[test]
    fn no_target_read_is_a_failure_of_the_world() {
        let mut state = fixture::full_state();
        state.targets.insert("server".into(), crate::engine::state::TargetState::default());
        let answer = answer(&state, None, Style::PLAIN);
        assert_eq!(answer.status, Status::World);
        assert_eq!(answer.error.map(|e| e.code), Some(ErrorCode::Unreachable));
    }

    #[test]
    fn text_shows_disagreements_first() {
        let text = text(&truth_report(&fixture::full_state()), Style::PLAIN);
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "target  status  pid  read at",
                "server  ready     7  2026-05-01T12:00:00Z",
                "",
                "target  name    declared    effective  observed  note",
                "differs  server  TRITON  0 (line 4)  1          -         set again by the wrapper",
                "unknown  server  MHC     (unset)     ?          -         permission denied",
                "",
                "1 of 2 values disagree, 0 are overridden, 1 could not be told, 0 agree; 0 that one source alone speaks of are left out, `--json` has them",
            ]
        );
    }

    #[test]
    fn names_notes_and_reasons_were_printed_raw() {
        let mut report = truth_report(&fixture::full_state());
        report.rows[0].name = "A\u{1b}[2J".into();
        report.rows[0].note = "set by \u{7}x".into();
        report.targets[0].target = "s\nt".into();
        assert!(!text(&report, Style::PLAIN).chars().any(|c| c.is_control() && c != '\n'));
        assert!(text(&report, Style::PLAIN).contains("s⏎t"));
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        let claim = ClaimRow {
            value: Some("\u{1b}[2J\u{9b}31m".into()),
            known: KnownWord::Yes,
            because: None,
            source: "log".into(),
            line: None,
            blind_to: None,
        };
        assert!(!claim_text(Some(&claim)).chars().any(char::is_control));
        assert!(!crate::cli::json::line(&claim).chars().any(char::is_control));
    }
}
