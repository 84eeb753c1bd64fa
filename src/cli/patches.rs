//! `patchbench patches` and `patches explain`: patches and factors under suspicion with gate, state and risk, from the
//! state.
//!
//! Pure over `State`. Not responsible for the rules; see `patch::risk`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::case::{Gate, LevelValue, Role};
use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Number, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::config::nearest;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::input::JobOutcome;
use crate::engine::state::State;
use crate::isolate::verdict::{Finding, SubjectKind};
use crate::patch::belief::{self, Belief};
use crate::patch::case_text::{case_text, gate_of};
use crate::patch::of_state;
use crate::patch::risk::{self, Kind, Open, Ranked, Term, Tie, Tier};
use crate::patch::state::Found;
use crate::patch::types::Entry;
use crate::untrusted::visible_lines;

/// The patches of a case, and the factors beside them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PatchesReport {
    /// The most suspect first.
    pub patches: Vec<PatchRow>,
    /// Switches that need no restart, the most suspect first.
    pub factors: Vec<FactorRow>,
    /// Which of them have the same score, and what would separate them.
    pub ties: Vec<Tie>,
}

/// One factor.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FactorRow {
    /// Id.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// The sum of its risk.
    pub risk: RiskRow,
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
    /// The sum of its risk.
    pub risk: RiskRow,
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
    /// Whether the patch acts there: `live`, `off`, `inert`, `set-but-not-read`, `not-imported` or `unknown`.
    pub state: String,
    /// Why, in one clause.
    pub because: String,
}

/// A risk and what it is the sum of. It orders patches; it is no probability.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RiskRow {
    /// The sum.
    pub score: Number,
    /// Its class.
    pub tier: Tier,
    /// The terms.
    pub terms: Vec<Term>,
    /// What is not known and would change the sum.
    pub open: Vec<Open>,
}

/// What was imported.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ImportReport {
    /// Where from, in one line.
    pub source: String,
    /// The changes with everything that was read of them, in the order of the diff.
    pub entries: Vec<Entry>,
    /// Their risk, the most suspect first, with what is known of the deployment where a case was given.
    pub patches: Vec<PatchRow>,
    /// The entries as text for a case file.
    pub case_text: String,
}

impl Report for ImportReport {
    const NAME: &'static str = "patches-import";
}

/// The sum behind one risk.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExplainReport {
    /// What it is about; `null` where nothing of that id is known.
    pub subject: Option<Ranked>,
    /// The ties that it is in.
    pub ties: Vec<Tie>,
    /// What was ever believed of it, oldest first.
    pub beliefs: Vec<Belief>,
}

impl Report for ExplainReport {
    const NAME: &'static str = "explain";
}

impl Report for PatchesReport {
    const NAME: &'static str = "patches";
}

/// The patches of the session's case, with the levels that its targets run with.
pub fn patches_report(state: &State) -> PatchesReport {
    let entries = of_state::entries(state);
    let ranked = of_state::weigh(state, &entries);
    let by_id: BTreeMap<&str, &Entry> = entries.iter().map(|e| (e.id.as_str(), e)).collect();
    let of_kind = |kind| ranked.iter().filter(move |r| r.kind == kind);
    PatchesReport {
        patches: of_kind(Kind::Patch)
            .map(|one| row(state, &entries, by_id.get(one.id.as_str()).copied(), one))
            .collect(),
        factors: of_kind(Kind::Factor)
            .map(|one| FactorRow { id: one.id.clone(), title: one.title.clone(), risk: risk_row(one) })
            .collect(),
        ties: risk::ties(&ranked),
    }
}

/// Answers `patches` once the case is open and its targets were probed.
pub fn answer(state: &State, session: Option<&Path>, style: Style) -> Answer {
    let report = patches_report(state);
    let text = text(&report, style);
    let mut answer = Answer::new(&report, Status::Done, text).diagnostics(state.diagnostics.iter().cloned());
    let unread = unread_targets(state);
    if !unread.is_empty() {
        let message = format!("what runs is not known of {}", unread.join(", "));
        answer.status = Status::World;
        answer = answer.error(ErrorCode::Unreachable, message, Some("`patchbench truth CASE` says why".into()));
    }
    if state.case.is_none() {
        answer.status = Status::Usage;
        answer = answer.error(ErrorCode::Case, "no case is open", None);
    }
    answer.kept_in(session)
}

/// How an import is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportForm {
    /// As a table.
    Table,
    /// As text for a case file.
    Case,
}

/// Answers `patches import SOURCE`. `diffs`: the path of the diff that was written of a patch, by its id.
pub fn imported(
    state: &State,
    source: &str,
    form: ImportForm,
    diffs: &BTreeMap<String, String>,
    session: Option<&Path>,
    style: Style,
) -> Answer {
    let all: Vec<Entry> = state.entries.iter().map(|e| e.without_lines()).collect();
    let mut report = patches_report(state);
    // Imported entries come first, in their order.
    let known = of_state::entries(state);
    let imported: BTreeSet<&str> = known.iter().take(all.len()).map(|e| e.id.as_str()).collect();
    report.patches.retain(|row| imported.contains(row.id.as_str()));
    report.factors.clear();
    let case_text = case_text(&all, diffs);
    let text = match form {
        ImportForm::Table => text(&report, style),
        ImportForm::Case => case_text.clone(),
    };
    let report = ImportReport { source: source.to_owned(), entries: all, patches: report.patches, case_text };
    let failed = state.jobs.values().any(|j| matches!(j.outcome, Some(JobOutcome::Failed { .. })));
    let nothing = (report.entries.is_empty() && !failed).then(|| {
        Diagnostic::warning("no-changes", format!("`{source}` holds no change that could be read"))
            .hint("name a diff file, or a range of commits as `A..B`")
    });
    let answer =
        Answer::new(&report, Status::Done, text).diagnostics(state.diagnostics.iter().cloned()).diagnostics(nothing);
    answer.kept_in(session)
}

/// What was believed, a paragraph each, and how it ended.
fn belief_lines(beliefs: &[Belief]) -> Vec<String> {
    let line = |b: &Belief| {
        let sources: Vec<String> = b.evidence.iter().map(|e| e.source.clone()).collect();
        let ended = b.ended.as_ref().map_or_else(String::new, |end| {
            let by = end.by.map_or_else(String::new, |by| format!(", replaced by {by}"));
            format!("\n      held no more since {}: {}{by}", end.at, end.why)
        });
        visible_lines(&format!("  {}. {}, by {}: {} [{}]{ended}", b.id, b.since, b.by, b.says, sources.join("; ")))
    };
    beliefs.iter().map(line).collect()
}

/// Targets that compute and of which no process could be read.
fn unread_targets(state: &State) -> Vec<String> {
    let case = state.case.iter().flat_map(|c| &c.targets).filter(|t| t.role != Role::Router);
    let read = |name: &str| {
        let truth = state.targets.get(name).and_then(|t| t.truth.as_ref());
        truth.is_some_and(|t| t.process.is_some())
    };
    case.filter(|t| !read(&t.name)).map(|t| format!("`{}`", t.name)).collect()
}

/// Answers `patches explain ID`.
pub fn explain(state: &State, id: &str, session: Option<&Path>) -> Answer {
    let ranked = of_state::ranked(state);
    let subject = ranked.iter().find(|r| r.id == id).cloned();
    let ties: Vec<Tie> = risk::ties(&ranked).into_iter().filter(|t| t.above == id || t.below == id).collect();
    let beliefs: Vec<Belief> = belief::history(&state.beliefs, id).into_iter().cloned().collect();
    let mut text = subject.as_ref().map_or_else(String::new, |one| risk::explain(one, &ties));
    if !beliefs.is_empty() {
        text = format!("{}\n\nbelieved\n{}", text.trim_end(), belief_lines(&beliefs).join("\n"));
    }
    let report = ExplainReport { subject, ties, beliefs };
    let mut answer = Answer::new(&report, Status::Done, text).diagnostics(state.diagnostics.iter().cloned());
    if report.subject.is_none() {
        let near = nearest(id, ranked.iter().map(|r| r.id.as_str()));
        let hint = near.map_or_else(
            || "`patchbench patches CASE` lists them".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        answer.status = Status::Usage;
        answer = answer.error(ErrorCode::Usage, format!("there is no patch or factor `{id}`"), Some(hint));
    }
    answer.kept_in(session)
}

/// The table for people.
pub fn text(report: &PatchesReport, style: Style) -> String {
    if report.patches.is_empty() {
        return "no patches are known".to_owned();
    }
    let rows: Vec<Vec<Cell>> =
        report.patches.iter().map(cells).chain(report.factors.iter().map(factor_cells)).collect();
    table(&["patch", "risk", "gate", "phases", "state", "verdict", "title"], &[], &rows, style)
}

fn risk_row(ranked: &Ranked) -> RiskRow {
    RiskRow { score: Number(ranked.score), tier: ranked.tier, terms: ranked.terms.clone(), open: ranked.open.clone() }
}

fn row(state: &State, entries: &[Entry], entry: Option<&Entry>, ranked: &Ranked) -> PatchRow {
    let patch = state.case.as_deref().and_then(|c| c.patch(&ranked.id));
    let level = |found: &Found| {
        let truth = state.targets.get(&found.target).and_then(|t| t.truth.as_deref());
        let source = match truth {
            None => "not read yet".to_owned(),
            Some(t) => t.level_sources.get(&ranked.id).cloned().unwrap_or_else(|| "no reader for this gate".to_owned()),
        };
        LevelRow {
            target: found.target.clone(),
            level: truth.and_then(|t| t.levels.get(&ranked.id).cloned().flatten()),
            source,
            state: found.state.word().to_owned(),
            because: found.because.clone(),
        }
    };
    let is_about = |s: &crate::isolate::verdict::Subject| s.kind == SubjectKind::Patch && s.id == ranked.id;
    let phases = entry.iter().flat_map(|e| e.phases.keys()).map(|p| p.word().to_owned()).collect();
    PatchRow {
        id: ranked.id.clone(),
        title: ranked.title.clone(),
        site: patch.and_then(|p| p.site.clone()).or_else(|| Some(entry?.files.first()?.path.clone())),
        gate: patch.map(|p| p.gate.clone()).or_else(|| gate_of(entry?, entries)).unwrap_or(Gate::None),
        phases: patch.map_or(phases, |p| p.phases.clone()),
        suspect: patch.map_or_else(|| "on".to_owned(), |p| p.suspect.clone()),
        state: ranked.states.iter().map(level).collect(),
        risk: risk_row(ranked),
        verdict: state.verdicts.iter().rfind(|v| is_about(&v.subject)).map(|v| v.verdict),
    }
}

fn risk_cell(risk: &RiskRow) -> Cell {
    let mark = match risk.tier {
        Tier::High => Mark::Bad,
        Tier::Medium => Mark::Warning,
        Tier::Low => Mark::Dim,
    };
    Cell::marked(format!("{} {:+.1}", risk.tier.word(), risk.score.0), mark)
}

fn cells(patch: &PatchRow) -> Vec<Cell> {
    let state = patch.state.iter().map(|s| {
        let level = s.level.as_deref().unwrap_or("?");
        // That a patch that is off is off needs no second word.
        let more = if matches!((level, s.state.as_str()), ("off", "off") | ("on", "live")) { "" } else { &s.state };
        format!("{}={level}{}{more}", s.target, if more.is_empty() { "" } else { " " })
    });
    let verdict = match patch.verdict {
        None => Cell::marked("-", Mark::Dim),
        Some(Finding::Guilty) => Cell::marked("guilty", Mark::Bad),
        Some(Finding::Acquitted) => Cell::marked("acquitted", Mark::Good),
        Some(other) => Cell::marked(other.word(), Mark::Warning),
    };
    vec![
        patch.id.clone().into(),
        risk_cell(&patch.risk),
        gate_text(&patch.gate).into(),
        patch.phases.join(",").into(),
        state.collect::<Vec<_>>().join(" ").into(),
        verdict,
        Cell::marked(patch.title.clone(), Mark::Dim),
    ]
}

fn factor_cells(factor: &FactorRow) -> Vec<Cell> {
    vec![
        factor.id.clone().into(),
        risk_cell(&factor.risk),
        Cell::marked("no restart", Mark::Dim),
        "".into(),
        "".into(),
        Cell::marked("-", Mark::Dim),
        Cell::marked(factor.title.clone(), Mark::Dim),
    ]
}

fn gate_text(gate: &Gate) -> String {
    let Some(levels) = gate.levels() else { return "none".to_owned() };
    if let Gate::Reverse { diff } = gate {
        return format!("reverse {diff}");
    }
    let level = |(name, value): (&String, &LevelValue)| match value {
        LevelValue::Set(value) => format!("{name}={value}"),
        LevelValue::Unset => format!("{name}=(unset)"),
        LevelValue::In | LevelValue::Out => name.clone(),
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
        let state = &mhc.state[0];
        assert_eq!(
            (state.level.as_deref(), state.source.as_str(), state.state.as_str()),
            (None, "permission denied", "unknown")
        );
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
patch            risk        gate                     phases         state             verdict    title
triton-indexer   high +40.3  TRITON off=(unset) on=1  extend,decode  server=on         guilty     patch triton-indexer
mhc-bf16         low -40.0   MHC off=(unset) on=1     extend,decode  server=? unknown  acquitted  patch mhc-bf16
template         low +1.3    no restart                                                -          the conversation becomes a prompt
concurrency      low +1.1    no restart                                                -          other requests are served at the same time
speculation      low +1.1    no restart                                                -          tokens are drafted and verified
chunk-alignment  low +0.8    no restart                                                -          the prompt is computed in pieces
length-residue   low +0.5    no restart                                                -          the length leaves a rest by the width of a window
warm-cache       low -0.7    no restart                                                -          keys of an earlier request are used again
transfer         low -19.4   no restart                                                -          keys go from prefill to decode
"#);
    }

    #[test]
    fn the_terms_of_a_risk_add_up_to_its_score() {
        let report = patches_report(&fixture::full_state());
        let risks = report.patches.iter().map(|p| &p.risk).chain(report.factors.iter().map(|f| &f.risk));
        for risk in risks {
            let sum: f64 = risk.terms.iter().map(|t| t.weight).sum();
            assert!((sum - risk.score.0).abs() < 1e-9, "{risk:#?}");
            assert!(risk.terms.iter().all(|t| !t.fact.is_empty() && !t.source.is_empty()), "{risk:#?}");
        }
    }

    #[test]
    fn the_sum_behind_a_risk_is_explained() {
        let answer = explain(&fixture::full_state(), "triton-indexer", None);
        assert_eq!(answer.status, Status::Done);
        assert!(answer.text.contains("patch triton-indexer: high") && answer.text.contains("sum"), "{}", answer.text);
        let wrong = explain(&fixture::full_state(), "triton-indexr", None);
        assert_eq!(wrong.status, Status::Usage);
        assert_eq!(wrong.error.and_then(|e| e.hint).as_deref(), Some("did you mean `triton-indexer`?"));
    }
}
