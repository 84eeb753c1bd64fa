//! `patchbench patches`: the patches under suspicion with gate, state and risk, from the state.
//!
//! Pure over `State`. Risk rules are not part of this version: a risk that was not worked out is `null`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::case::{Case, Gate, LevelValue, Patch};
use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Number, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::state::State;
use crate::isolate::verdict::{Finding, SubjectKind};

/// The patches of a case.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PatchesReport {
    /// In case order.
    pub patches: Vec<PatchRow>,
}

/// One patch.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PatchRow {
    /// Id within the case.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// File, or file and line, of the change.
    pub site: Option<String>,
    /// How it is switched.
    pub gate: Gate,
    /// Phases it can reach.
    pub phases: Vec<String>,
    /// The level under suspicion.
    pub suspect: String,
    /// Level on each target it is in.
    pub state: Vec<LevelRow>,
    /// The sum of its risk; `null` where it was not worked out.
    pub risk: Option<RiskRow>,
    /// The newest verdict about it.
    pub verdict: Option<Finding>,
}

/// Level of a patch on one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LevelRow {
    /// Target name.
    pub target: String,
    /// Level that the running process has; `null` is unknown.
    pub level: Option<String>,
    /// Where it was read, or why it could not be.
    pub source: String,
}

/// A risk and what it is the sum of.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RiskRow {
    /// The sum.
    pub score: Number,
    /// Its class.
    pub tier: RiskTier,
    /// The terms.
    pub terms: Vec<RiskTerm>,
}

/// Class of a risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RiskTier {
    /// Look here last.
    Low,
    /// Look here.
    Medium,
    /// Look here first.
    High,
}

/// One term of a risk.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RiskTerm {
    /// Name of the rule.
    pub rule: String,
    /// What it adds.
    pub weight: Number,
    /// The fact it rests on.
    pub fact: String,
    /// Where the fact was read.
    pub source: String,
}

impl Report for PatchesReport {
    const NAME: &'static str = "patches";
}

/// The patches of the session's case, with the levels that its targets run with.
pub fn patches_report(state: &State) -> PatchesReport {
    let Some(case) = state.case.as_deref() else { return PatchesReport { patches: Vec::new() } };
    PatchesReport { patches: case.patches.iter().map(|patch| row(state, case, patch)).collect() }
}

/// Answers `patches` once the case is open and its targets were probed.
pub fn answer(state: &State, session: Option<&Path>, style: Style) -> Answer {
    let report = patches_report(state);
    let text = text(&report, style);
    let unrated = Diagnostic {
        severity: Severity::Info,
        code: "risk-not-rated".into(),
        message: "risks are not worked out in this version; the order is that of the case file".into(),
        place: None,
        hint: None,
    };
    let mut answer = Answer::new(&report, Status::Done, text)
        .diagnostics(state.diagnostics.iter().cloned())
        .diagnostics(report.patches.iter().any(|p| p.risk.is_none()).then_some(unrated));
    if state.case.is_none() {
        answer.status = Status::Usage;
        answer = answer.error(ErrorCode::Case, "no case is open", None);
    }
    match session {
        Some(path) => answer.session(path),
        None => answer,
    }
}

/// The table for people.
pub fn text(report: &PatchesReport, style: Style) -> String {
    if report.patches.is_empty() {
        return "the case names no patches".to_owned();
    }
    let rows: Vec<Vec<Cell>> = report.patches.iter().map(cells).collect();
    table(&["patch", "gate", "phases", "state", "risk", "verdict", "title"], &[], &rows, style)
}

fn row(state: &State, case: &Case, patch: &Patch) -> PatchRow {
    let level = |target: &crate::case::Target| {
        let truth = state.targets.get(&target.name).and_then(|t| t.truth.as_deref());
        let source = match truth {
            None => "not read yet".to_owned(),
            Some(t) => t.level_sources.get(&patch.id).cloned().unwrap_or_else(|| "no reader for this gate".to_owned()),
        };
        LevelRow {
            target: target.name.clone(),
            level: truth.and_then(|t| t.levels.get(&patch.id).cloned().flatten()),
            source,
        }
    };
    let is_about = |s: &crate::isolate::verdict::Subject| s.kind == SubjectKind::Patch && s.id == patch.id;
    PatchRow {
        id: patch.id.clone(),
        title: patch.title.clone(),
        site: patch.site.clone(),
        gate: patch.gate.clone(),
        phases: patch.phases.clone(),
        suspect: patch.suspect.clone(),
        state: patch.targets_in(case).map(level).collect(),
        risk: None,
        verdict: state.verdicts.iter().find(|v| is_about(&v.subject)).map(|v| v.verdict),
    }
}

fn cells(patch: &PatchRow) -> Vec<Cell> {
    let state = patch.state.iter().map(|s| format!("{}={}", s.target, s.level.as_deref().unwrap_or("?")));
    let verdict = match patch.verdict {
        None => Cell::marked("-", Mark::Dim),
        Some(Finding::Guilty) => Cell::marked("guilty", Mark::Bad),
        Some(Finding::Acquitted) => Cell::marked("acquitted", Mark::Good),
        Some(other) => Cell::marked(other.word(), Mark::Warning),
    };
    let risk = match &patch.risk {
        None => Cell::marked("not rated", Mark::Dim),
        Some(risk) => format!("{:.1}", risk.score.0).into(),
    };
    vec![
        patch.id.clone().into(),
        gate_text(&patch.gate).into(),
        patch.phases.join(",").into(),
        state.collect::<Vec<_>>().join(" ").into(),
        risk,
        verdict,
        Cell::marked(patch.title.clone(), Mark::Dim),
    ]
}

fn gate_text(gate: &Gate) -> String {
    let Some(levels) = gate.levels() else {
        return match gate {
            Gate::Reverse { diff } => format!("reverse {diff}"),
            _ => "none".to_owned(),
        };
    };
    let level = |(name, value): (&String, &LevelValue)| match value {
        LevelValue::Set(value) => format!("{name}={value}"),
        LevelValue::Unset => format!("{name}=(unset)"),
    };
    format!("{} {}", gate.switch_name(), levels.iter().map(level).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    #[test]
    fn an_unread_level_is_null_with_its_reason() {
        let report = patches_report(&fixture::full_state());
        let mhc = report.patches.iter().find(|p| p.id == "mhc-bf16").unwrap();
        assert_eq!(mhc.state[0], LevelRow { target: "server".into(), level: None, source: "permission denied".into() });
        assert_eq!(mhc.verdict, Some(Finding::Acquitted));
    }

    #[test]
    fn a_session_without_a_case_is_a_usage_error() {
        let answer = answer(&State::default(), None, Style::PLAIN);
        assert_eq!(answer.status, Status::Usage);
        assert_eq!(answer.error.map(|e| e.code), Some(ErrorCode::Case));
    }

    #[test]
    fn text_shows_an_unknown_level_as_a_question_mark() {
        insta::assert_snapshot!(text(&patches_report(&fixture::full_state()), Style::PLAIN), @r#"
        patch           gate                     phases         state      risk       verdict    title
        triton-indexer  TRITON off=(unset) on=1  extend,decode  server=on  not rated  guilty     patch triton-indexer
        mhc-bf16        MHC off=(unset) on=1     extend,decode  server=?   not rated  acquitted  patch mhc-bf16
        "#);
    }

    #[test]
    fn an_unrated_risk_is_said() {
        let answer = answer(&fixture::full_state(), None, Style::PLAIN);
        assert!(answer.diagnostics.iter().any(|d| d.code == "risk-not-rated"));
        assert!(answer.body["patches"][0]["risk"].is_null());
    }
}
