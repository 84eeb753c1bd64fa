//! `patchbench isolate`: the symptom and the verdicts, from the state.
//!
//! Pure over `State`; running the search is the engine's.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Number, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::state::State;
use crate::isolate::exit::{self, Conclusion};
use crate::isolate::search::Ending;
use crate::isolate::verdict::{ArmCount, Finding, Subject, SubjectKind, Symptom, Verdict};

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct IsolateReport {
    /// The symptom; `null` where it could not be measured.
    pub symptom: Option<SymptomRow>,
    /// Failure rate above which the lower bound makes a symptom.
    pub floor: Number,
    /// One per subject that was judged.
    pub verdicts: Vec<VerdictRow>,
    /// One sentence per verdict that says why, in the same order.
    pub explanations: Vec<Explanation>,
    /// What was used up.
    pub cost: Cost,
}

/// The symptom as measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SymptomRow {
    /// Failure rate with everything as found.
    pub rate: Number,
    /// Lower Wilson bound (95 %) of that rate, on counts that are deflated because trials of one boot share its
    /// luck. It is lower than the bound that `recall` reports for the same trials, which counts each as independent.
    pub lower: Number,
    /// Trials that count.
    pub trials: u32,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VerdictRow {
    /// What it is about.
    pub subject: Subject,
    /// The finding.
    pub verdict: Finding,
    /// Trials with the subject on.
    pub on: ArmCount,
    /// Trials with the subject off.
    pub off: ArmCount,
    /// For `acquitted`: upper 95 % bound of the excess failure rate; for `guilty`: the p-value of the boots.
    pub bound: Option<Number>,
    /// Journal lines that it rests on.
    pub evidence: Vec<u64>,
}

/// Why a verdict was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// What the verdict is about.
    pub subject: Subject,
    /// One sentence with the numbers.
    pub why: String,
}

/// What a search used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cost {
    /// Proven starts of targets.
    pub boots: usize,
    /// Trials, void ones among them.
    pub trials: usize,
}

impl Report for IsolateReport {
    const NAME: &'static str = "isolate";
}

/// What the search found so far.
pub fn isolate_report(state: &State) -> IsolateReport {
    IsolateReport {
        symptom: state.symptom.as_ref().map(symptom_row),
        floor: Number(exit::floor(state)),
        verdicts: state.verdicts.iter().map(|v| verdict_row(v)).collect(),
        explanations: state
            .verdicts
            .iter()
            .map(|v| Explanation { subject: v.subject.clone(), why: v.why.clone() })
            .collect(),
        cost: Cost { boots: state.boots.len(), trials: state.trials.len() },
    }
}

/// The exit status of a search.
pub fn status(state: &State) -> Status {
    match exit::conclusion(state) {
        Conclusion::Guilty => Status::Finding,
        Conclusion::Unexplained => Status::NoVerdict,
        Conclusion::NoFinding => Status::Done,
        Conclusion::WorldFailed => Status::World,
    }
}

/// Answers `isolate` once the search has ended.
pub fn answer(state: &State, session: Option<&Path>, style: Style) -> Answer {
    let report = isolate_report(state);
    let text = text(&report, style);
    finish(Answer::new(&report, status(state), text), state, session)
}

/// Adds what every search says at its end: its session, its remarks, and the error if nothing was measured.
pub fn finish(mut answer: Answer, state: &State, session: Option<&Path>) -> Answer {
    if let Some(session) = session {
        answer.text = format!("{}\n\nsession  {}", answer.text, session.display());
    }
    let answer = answer.kept_in(session).diagnostics(state.diagnostics.iter().cloned());
    if answer.status != Status::World {
        return answer;
    }
    let ended = state.search.as_ref().and_then(|search| search.ended.as_ref());
    let (code, why) = match ended {
        Some(Ending::TooFewTrials { why }) => (ErrorCode::TooFewTrials, why.clone()),
        Some(Ending::CannotRun { why }) => (ErrorCode::Unreachable, why.clone()),
        _ => (ErrorCode::TooFewTrials, "the symptom was not measured: no trial that counts is left".to_owned()),
    };
    answer.error(code, why, Some("`patchbench session show` tells what happened before".into()))
}

/// The verdict for people: the symptom, one line per subject, then the reasons.
pub fn text(report: &IsolateReport, style: Style) -> String {
    let mut parts = vec![symptom_text(report, style)];
    if report.verdicts.is_empty() {
        parts.push("no patch was judged".to_owned());
    } else {
        let rows: Vec<Vec<Cell>> = report.verdicts.iter().map(cells).collect();
        let heading = ["verdict", "subject", "on", "off", "boots on/off", "bound"];
        parts.push(table(&heading, &[2, 3, 4, 5], &rows, style));
        let reasons = report.explanations.iter().map(|e| format!("{}: {}", style.bold(&e.subject.id), e.why));
        parts.push(reasons.collect::<Vec<_>>().join("\n"));
    }
    parts.push(style.dim(&format!("trials {}, boots {}", report.cost.trials, report.cost.boots)));
    parts.join("\n\n")
}

fn symptom_text(report: &IsolateReport, style: Style) -> String {
    let percent = |n: Number| format!("{:.1} %", 100.0 * n.0);
    let Some(symptom) = &report.symptom else {
        return format!("{} not measured", style.warning("symptom:"));
    };
    let (word, relation) = if symptom.lower.0 > report.floor.0 {
        (style.error("symptom:"), "above")
    } else {
        (style.good("no symptom:"), "not above")
    };
    format!(
        "{word} {} of {} trials fail; the lower bound {} over boots is {relation} the floor of {}",
        percent(symptom.rate),
        symptom.trials,
        percent(symptom.lower),
        percent(report.floor),
    )
}

fn cells(row: &VerdictRow) -> Vec<Cell> {
    let mark = match row.verdict {
        Finding::Guilty => Mark::Bad,
        Finding::Acquitted => Mark::Good,
        Finding::NotShown | Finding::NotSeparable | Finding::Inconclusive => Mark::Warning,
    };
    let kind = match row.subject.kind {
        SubjectKind::Patch => "",
        SubjectKind::Factor => " (factor)",
    };
    vec![
        Cell::marked(row.verdict.word(), mark),
        format!("{}{kind}", row.subject.id).into(),
        count_text(row.on).into(),
        count_text(row.off).into(),
        format!("{}/{}", row.on.boots, row.off.boots).into(),
        row.bound.map_or_else(|| "-".to_owned(), |b| format!("{:.3}", b.0)).into(),
    ]
}

fn count_text(count: ArmCount) -> String {
    let void = if count.void > 0 { format!(" ({} void)", count.void) } else { String::new() };
    format!("{}/{} fail{void}", count.fail, count.n)
}

fn symptom_row(symptom: &Symptom) -> SymptomRow {
    SymptomRow { rate: Number(symptom.rate), lower: Number(symptom.lower), trials: symptom.trials }
}

fn verdict_row(verdict: &Verdict) -> VerdictRow {
    VerdictRow {
        subject: verdict.subject.clone(),
        verdict: verdict.verdict,
        on: verdict.on,
        off: verdict.off,
        bound: verdict.bound.map(Number),
        evidence: verdict.evidence.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    fn state(lower: Option<f64>, findings: &[Finding]) -> State {
        let symptom = lower.map(|lower| Symptom { rate: 0.6, lower, trials: 24 });
        let mut state = State { symptom, ..State::default() };
        for (i, finding) in findings.iter().enumerate() {
            state.verdicts.push_back(fixture::verdict(&format!("patch-{i}"), *finding).into());
        }
        state
    }

    fn check(lower: Option<f64>, findings: &[Finding], expect: Status) {
        assert_eq!(status(&state(lower, findings)), expect, "{lower:?} {findings:?}");
    }

    #[test]
    fn the_status_follows_symptom_and_verdicts() {
        check(Some(0.5), &[Finding::Acquitted, Finding::Guilty], Status::Finding);
        check(Some(0.5), &[Finding::NotShown], Status::NoVerdict);
        check(Some(0.5), &[Finding::NotSeparable], Status::NoVerdict);
        check(Some(0.05), &[Finding::Acquitted], Status::Done);
        check(Some(0.15), &[], Status::Done);
        check(None, &[], Status::World);
    }

    #[test]
    fn a_search_that_measured_nothing_says_so_as_an_error() {
        let answer = answer(&state(None, &[]), Some(Path::new("s")), Style::PLAIN);
        assert_eq!(answer.error.as_ref().map(|e| e.code), Some(ErrorCode::TooFewTrials));
        assert!(answer.text.contains("symptom: not measured"));
    }

    #[test]
    fn a_verdict_has_exactly_the_documented_fields() {
        let report = isolate_report(&state(Some(0.5), &[Finding::Guilty]));
        let value = serde_json::to_value(&report).unwrap();
        insta::assert_snapshot!(serde_json::to_string(&value["verdicts"]).unwrap(), @r#"[{"bound":0.0143,"evidence":[7,8],"off":{"boots":4,"fail":1,"n":24,"void":0},"on":{"boots":4,"fail":15,"n":24,"void":2},"subject":{"id":"patch-0","kind":"patch"},"verdict":"guilty"}]"#);
    }

    #[test]
    fn a_bound_that_is_no_number_is_a_string() {
        let mut verdict = fixture::verdict("a", Finding::Inconclusive);
        verdict.bound = Some(f64::NAN);
        assert_eq!(serde_json::to_value(verdict_row(&verdict)).unwrap()["bound"], "NaN");
    }

    #[test]
    fn text_names_the_symptom_and_every_verdict() {
        let report = isolate_report(&state(Some(0.44), &[Finding::Guilty, Finding::Acquitted]));
        insta::assert_snapshot!(text(&report, Style::PLAIN), @r"
        symptom: 60.0 % of 24 trials fail; the lower bound 44.0 % over boots is above the floor of 15.0 %

        verdict    subject                   on        off  boots on/off  bound
        guilty     patch-0  15/24 fail (2 void)  1/24 fail           4/4  0.014
        acquitted  patch-1  15/24 fail (2 void)  1/24 fail           4/4  0.014

        patch-0: because of the numbers
        patch-1: because of the numbers

        trials 0, boots 0
        ");
    }
}
