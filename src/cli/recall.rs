//! `patchbench recall`: what the model remembers, as a length-by-depth matrix, from the state.
//!
//! Pure over `State`; running the trials is the engine's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Number, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::state::{State, TrialEntry};
use crate::isolate::exit;
use crate::recall::matrix::{self, CellKey, Counts};
use crate::recall::trial::{FailKind, Outcome, ProbeForm};
use crate::stats::interval::{Z_TWO_SIDED_95, wilson};

/// Characters of an answer that the text form shows.
const SHOWN: usize = 40;

/// What the model remembers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecallReport {
    /// All trials of the report together; `null` where none counts.
    pub symptom: Option<RecallSymptom>,
    /// Failure rate above which the lower bound makes a symptom.
    pub floor: Number,
    /// One per form, length, depth and level of each factor.
    pub cells: Vec<RecallCell>,
    /// One per trial, in the order in which they ended.
    pub trials: Vec<TrialRow>,
}

/// How often the trials of a report fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecallSymptom {
    /// Share of failed trials.
    pub rate: Number,
    /// Lower Wilson bound (95 %) of the rate with each trial counted as independent. Trials of one boot share
    /// its luck, so the bound of `isolate`, which counts boots, is lower for the same trials.
    pub lower: Number,
    /// Trials that count.
    pub trials: u32,
}

/// Trials of one form, length, depth and level of each factor.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecallCell {
    /// How the fact is planted and asked for.
    pub form: ProbeForm,
    /// Prompt length aimed at, in server tokens.
    pub length: u32,
    /// Where the fact stands, 0 to 1, to three digits.
    pub depth: Number,
    /// Level for each factor, such as `cache` = `cold`.
    pub factors: BTreeMap<String, String>,
    /// Passed trials.
    pub pass: u32,
    /// Failed trials.
    pub fail: u32,
    /// Void trials.
    pub void: u32,
    /// Failed trials by kind, in words.
    pub kinds: BTreeMap<String, u32>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TrialRow {
    /// Number within the session.
    pub id: u64,
    /// Journal line.
    pub seq: u64,
    /// How the fact is planted and asked for.
    pub form: ProbeForm,
    /// Prompt length aimed at, in server tokens.
    pub length: u32,
    /// Where the fact stands, 0 to 1.
    pub depth: Number,
    /// Seed of filler, fact and nonce.
    pub seed: u64,
    /// Boots that the request could meet.
    pub boots: Vec<u64>,
    /// Level for each `patch@target`; a level that could not be read back is absent.
    pub arm: BTreeMap<String, String>,
    /// Prompt length as the server counted it.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens taken from the prefix cache, as the server says.
    pub cached_tokens: Option<u32>,
    /// Pass, fail with a kind, or void.
    pub outcome: Outcome,
    /// The answer that was planted.
    pub expected: String,
    /// The answer that came.
    pub got: String,
    /// Character index of the first difference.
    pub first_wrong: Option<usize>,
    /// Hash of the transcript's blob.
    pub transcript: Option<String>,
}

impl Report for RecallReport {
    const NAME: &'static str = "recall";
}

/// What the trials after journal line `after` show; 0 is all of the session.
pub fn recall_report(state: &State, after: u64) -> RecallReport {
    let entries: Vec<&TrialEntry> = state.trials.iter().filter(|t| t.seq > after).collect();
    let cells = cells(&entries);
    let (fail, pass) = cells.iter().fold((0, 0), |(f, p), c| (f + c.fail, p + c.pass));
    let n = fail + pass;
    let symptom = (n > 0).then(|| RecallSymptom {
        rate: Number(f64::from(fail) / f64::from(n)),
        lower: Number(wilson(f64::from(fail), f64::from(n), Z_TWO_SIDED_95).lower),
        trials: n,
    });
    let floor = exit::floor(state);
    RecallReport { symptom, floor: Number(floor), cells, trials: entries.iter().map(|t| trial_row(t)).collect() }
}

/// The exit status: a symptom is a finding; no trial that counts is a failure of the world.
pub fn status(report: &RecallReport) -> Status {
    match &report.symptom {
        None => Status::World,
        Some(symptom) if symptom.lower.0 > report.floor.0 => Status::Finding,
        Some(_) => Status::Done,
    }
}

/// Answers `recall` once the trials have ended; `after` is the journal line before the first of them.
pub fn answer(state: &State, after: u64, session: Option<&Path>, style: Style) -> Answer {
    let report = recall_report(state, after);
    let status = status(&report);
    let text = text(&report, style);
    let answer = Answer::new(&report, status, text).kept_in(session).diagnostics(state.diagnostics.iter().cloned());
    match status {
        Status::World => answer.error(ErrorCode::TooFewTrials, void_reason(&report), None),
        _ => answer,
    }
}

/// The matrix for people, one block per form, then the failures.
pub fn text(report: &RecallReport, style: Style) -> String {
    let mut parts = Vec::new();
    let blocks: BTreeSet<_> = report.cells.iter().map(|c| (c.form, &c.factors)).collect();
    let factors: BTreeSet<_> = report.cells.iter().map(|c| &c.factors).collect();
    for (form, levels) in blocks {
        let cells: Vec<&RecallCell> = report.cells.iter().filter(|c| c.form == form && c.factors == *levels).collect();
        let levels: Vec<_> = levels.iter().map(|(factor, level)| format!(", {factor} {level}")).collect();
        let levels = if factors.len() > 1 { levels.concat() } else { String::new() };
        parts.push(format!("{}{levels}\n{}", style.bold(form.word()), form_table(&cells, style)));
    }
    let failures: Vec<Vec<Cell>> = report.trials.iter().filter_map(failure_cells).collect();
    if !failures.is_empty() {
        let heading = ["trial", "length", "depth", "outcome", "expected", "got"];
        parts.push(table(&heading, &[1, 2], &failures, style));
    }
    parts.push(match &report.symptom {
        None => format!("{} no trial counts", style.warning("unknown:")),
        Some(s) => {
            let word = if s.lower.0 > report.floor.0 { style.error("symptom:") } else { style.good("no symptom:") };
            format!(
                "{word} {:.1} % of {} trials fail, lower bound {:.1} % over trials, floor {:.1} %",
                100.0 * s.rate.0,
                s.trials,
                100.0 * s.lower.0,
                100.0 * report.floor.0
            )
        }
    });
    parts.join("\n\n")
}

fn cells(entries: &[&TrialEntry]) -> Vec<RecallCell> {
    let mut counted = matrix::matrix(entries.iter().map(|e| &*e.trial));
    let cell = |(key, counts): (CellKey, Counts)| RecallCell {
        kinds: counted.kinds.remove(&key).unwrap_or_default().into_iter().map(|(k, n)| (k.word().into(), n)).collect(),
        form: key.form,
        length: key.length,
        depth: Number(f64::from(key.depth_permille) / 1000.0),
        factors: key.factors,
        pass: counts.n - counts.fail,
        fail: counts.fail,
        void: counts.void,
    };
    std::mem::take(&mut counted.cells).into_iter().map(cell).collect()
}

fn trial_row(entry: &TrialEntry) -> TrialRow {
    let trial = &entry.trial;
    TrialRow {
        id: trial.id.0,
        seq: entry.seq,
        form: trial.key.form,
        length: trial.key.length,
        depth: Number(trial.key.depth),
        seed: trial.key.seed,
        boots: trial.boots.iter().map(|b| b.0).collect(),
        arm: trial.arm.clone(),
        prompt_tokens: trial.prompt_tokens,
        cached_tokens: trial.cached_tokens,
        outcome: trial.outcome.clone(),
        expected: trial.expected.clone(),
        // The exact text: the JSON writer escapes what could steer a terminal.
        got: trial.got.raw().to_owned(),
        first_wrong: trial.first_wrong,
        transcript: trial.transcript.as_ref().map(|hash| hash.0.clone()),
    }
}

fn form_table(cells: &[&RecallCell], style: Style) -> String {
    let mut depths: Vec<f64> = cells.iter().map(|c| c.depth.0).collect();
    depths.sort_by(f64::total_cmp);
    depths.dedup();
    let mut lengths: Vec<u32> = cells.iter().map(|c| c.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let heading: Vec<String> = std::iter::once("length".to_owned())
        .chain(depths.iter().map(|d| format!("depth {:.0} %", 100.0 * d)))
        .collect();
    let rows = lengths.iter().map(|length| {
        let at = |depth: &f64| cells.iter().find(|c| c.length == *length && c.depth.0 == *depth);
        let values = depths.iter().map(|depth| at(depth).map_or_else(|| Cell::from("-"), |c| cell_text(c)));
        std::iter::once(Cell::from(length.to_string())).chain(values).collect::<Vec<_>>()
    });
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let right: Vec<usize> = (0..heading.len()).collect();
    table(&heading, &right, &rows.collect::<Vec<_>>(), style)
}

fn cell_text(cell: &RecallCell) -> Cell {
    let n = cell.pass + cell.fail;
    let void = if cell.void > 0 { format!(" +{} void", cell.void) } else { String::new() };
    let mark = match (n, cell.fail) {
        (0, _) => Mark::Dim,
        (_, 0) => Mark::Good,
        (n, fail) if 2 * fail > n => Mark::Bad,
        _ => Mark::Warning,
    };
    Cell::marked(format!("{}/{n} right{void}", cell.pass), mark)
}

fn failure_cells(trial: &TrialRow) -> Option<Vec<Cell>> {
    let (word, mark) = match &trial.outcome {
        Outcome::Pass => return None,
        Outcome::Fail { how } => {
            (how.word().to_owned(), if *how == FailKind::NearMiss { Mark::Warning } else { Mark::Bad })
        }
        Outcome::Void { why } => (format!("void: {why}"), Mark::Dim),
    };
    let got = crate::untrusted::Untrusted::from(trial.got.as_str()).visible(SHOWN);
    let place = trial.first_wrong.map(|at| format!(" (wrong from character {})", at + 1)).unwrap_or_default();
    Some(vec![
        format!("t{}", trial.id).into(),
        trial.length.to_string().into(),
        format!("{:.0} %", 100.0 * trial.depth.0).into(),
        Cell::marked(word, mark),
        trial.expected.clone().into(),
        format!("{got}{place}").into(),
    ])
}

fn void_reason(report: &RecallReport) -> String {
    let first = report.trials.iter().find_map(|t| match &t.outcome {
        Outcome::Void { why } => Some(why.as_str()),
        _ => None,
    });
    match first {
        Some(why) => format!("no trial counts; the first was void: {why}"),
        None => "no trial was run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    fn with(outcomes: &[Outcome]) -> RecallReport {
        let mut state = State::default();
        for (i, outcome) in outcomes.iter().enumerate() {
            state.trials.push_back(fixture::trial(i as u64 + 1, 1024, 0.5, outcome.clone()));
        }
        recall_report(&state, 0)
    }

    const FAIL: Outcome = Outcome::Fail { how: FailKind::Wrong };

    #[test]
    fn voids_do_not_count_as_fails_or_passes() {
        let report = with(&[Outcome::Pass, FAIL, Outcome::Void { why: "time-out".into() }]);
        let cell = &report.cells[0];
        assert_eq!((cell.pass, cell.fail, cell.void), (1, 1, 1));
        assert_eq!(report.symptom.unwrap().trials, 2);
    }

    #[test]
    fn the_status_follows_the_lower_bound() {
        assert_eq!(status(&with(&[FAIL, FAIL, FAIL, FAIL])), Status::Finding);
        assert_eq!(status(&with(&[FAIL, Outcome::Pass])), Status::Done);
        assert_eq!(status(&with(&[Outcome::Void { why: "x".into() }])), Status::World);
        assert_eq!(status(&with(&[])), Status::World);
    }

    #[test]
    fn warm_and_cold_trials_were_added_up_in_one_cell() {
        let mut state = State::default();
        for (id, level) in [(1, "cold"), (2, "warm")] {
            let mut entry = fixture::trial(id, 1024, 0.5, FAIL);
            let mut trial = (*entry.trial).clone();
            trial.factors.insert("cache".into(), level.into());
            entry.trial = std::sync::Arc::new(trial);
            state.trials.push_back(entry);
        }
        let report = recall_report(&state, 0);
        assert_eq!(report.cells.iter().map(|c| c.fail).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(report.cells[0].kinds["wrong"], 1);
        assert!(text(&report, Style::PLAIN).contains("needle, cache warm"));
    }

    #[test]
    fn only_trials_after_the_line_count() {
        let state = fixture::full_state();
        assert_eq!(recall_report(&state, 0).trials.len(), 3);
        assert_eq!(recall_report(&state, 11).trials.len(), 2);
    }

    #[test]
    fn a_void_run_says_why() {
        assert_eq!(
            void_reason(&with(&[Outcome::Void { why: "time-out".into() }])),
            "no trial counts; the first was void: time-out"
        );
        assert_eq!(void_reason(&with(&[])), "no trial was run");
    }

    #[test]
    fn text_draws_the_matrix_and_the_failures() {
        insta::assert_snapshot!(text(&recall_report(&fixture::full_state(), 0), Style::PLAIN), @r#"
        needle
        length  depth 10 %         depth 90 %
          1024   1/2 right                  -
          2048           -  0/0 right +1 void

        trial  length  depth  outcome         expected  got
        t2       1024   10 %  near miss       4711      47␛1 (wrong from character 3)
        t3       2048   90 %  void: time-out  4711      47␛1 (wrong from character 3)

        no symptom: 50.0 % of 2 trials fail, lower bound 9.5 % over trials, floor 15.0 %
        "#);
    }
}
