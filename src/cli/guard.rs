//! `patchbench patches guard`: the diff that puts a patch under one variable, and the case entry that it makes possible.
//!
//! Pure. Not responsible for making the guards; see `patch::guard`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::case::Gate;
use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::engine::diagnostic::Diagnostic;
use crate::patch::case_text::{case_text, gate_of};
use crate::patch::guard::{Outcome, Shown};
use crate::patch::types::{Entry, GateDefault, GateKind, GateRead, Place};
use crate::untrusted::Untrusted;

/// What is left to do where no variable can switch a patch.
const OTHERWISE: &str = "switch it by taking it out of the source: `gate = { reverse = … }`";

/// A guard for a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GuardReport {
    /// Id of the patch.
    pub id: String,
    /// Variable that switches it: unset is the patched source, `0` is what stood there before.
    pub variable: String,
    /// Diff from the patched files to the guarded ones; `null` where the patch cannot be guarded.
    pub diff: Option<String>,
    /// How many guards it puts in.
    pub guards: usize,
    /// How the patch can be switched once the diff is applied.
    pub gate: Option<Gate>,
    /// The entry of the patch for a case file, with this gate.
    pub case_text: Option<String>,
    /// What a reviewer should know, such as what stays whatever the variable is.
    pub remarks: Vec<Remark>,
    /// Why it cannot be guarded, place by place.
    pub refusals: Vec<Remark>,
}

/// A sentence and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Remark {
    /// Path, and line of the patched file.
    pub place: String,
    /// One clause.
    pub text: String,
}

impl Report for GuardReport {
    const NAME: &'static str = "patches-guard";
}

/// Answers `patches guard ID`.
pub fn answer(entry: &Entry, variable: &str, outcome: Outcome) -> Answer {
    let shown = |all: Vec<Shown>| -> Vec<Remark> {
        let visible = |text: String| Untrusted::from(text).visible(300);
        all.into_iter().map(|one| Remark { place: visible(one.place), text: visible(one.text) }).collect()
    };
    let guarded = outcome.refusals.is_empty();
    let entry = with_variable(entry, variable);
    let alone = std::slice::from_ref(&entry);
    let report = GuardReport {
        id: entry.id.clone(),
        variable: variable.to_owned(),
        diff: guarded.then_some(outcome.diff),
        guards: outcome.guards,
        gate: gate_of(&entry, alone).filter(|_| guarded),
        case_text: guarded.then(|| case_text(alone, &BTreeMap::new())),
        remarks: shown(outcome.remarks),
        refusals: shown(outcome.refusals),
    };
    let text = report.diff.as_deref().map(|diff| diff.strip_suffix('\n').unwrap_or(diff)).unwrap_or_default();
    let remark = |remark: &Remark| Diagnostic::warning("guard", &remark.text).at(&remark.place);
    let mut all: Vec<Diagnostic> = report.remarks.iter().map(remark).collect();
    let Some((first, others)) = report.refusals.split_first() else {
        return Answer::new(&report, Status::Done, text).diagnostics(all);
    };
    all.extend(others.iter().map(remark));
    let message = format!("{}: no variable can switch `{}`: {}", first.place, report.id, first.text);
    Answer::new(&report, Status::World, text).diagnostics(all).error(
        ErrorCode::Refused,
        message,
        Some(OTHERWISE.to_owned()),
    )
}

/// The entry as it will be read once the guards are in.
fn with_variable(entry: &Entry, variable: &str) -> Entry {
    let place = entry.symbols.first().map(|symbol| symbol.place.clone());
    let path = entry.files.first().map(|file| file.path.clone()).unwrap_or_default();
    let read = GateRead {
        name: variable.to_owned(),
        kind: GateKind::Environ,
        default: GateDefault::Written("\"1\"".to_owned()),
        place: place.unwrap_or(Place { path, line: None }),
        text: "the guard".to_owned(),
    };
    Entry { gates: vec![read], ..entry.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(refusals: Vec<Shown>) -> Outcome {
        let diff = if refusals.is_empty() { "diff --git a/a.py b/a.py\n \n" } else { "" };
        Outcome { diff: diff.into(), guards: 1, remarks: vec![], refusals }
    }

    #[test]
    fn the_entry_has_the_variable_as_its_gate() {
        let answer = answer(&Entry::of_file("a", "t", "a.py"), "PATCHBENCH_A", outcome(vec![]));
        assert_eq!((answer.status, answer.text.as_str()), (Status::Done, "diff --git a/a.py b/a.py\n "));
        let text = answer.body["case_text"].as_str().unwrap();
        let gate = "gate = { env = \"PATCHBENCH_A\", levels = { on = { unset = true }, off = \"0\" } }";
        assert!(text.contains(gate), "{text}");
    }

    #[test]
    fn a_refusal_is_no_diff_and_says_what_else_can_be_done() {
        let why = Shown { place: "a.py:3".into(), text: "why".into() };
        let answer = answer(&Entry::of_file("a", "t", "a.py"), "A", outcome(vec![why.clone(), why]));
        let error = answer.error.unwrap();
        assert_eq!(answer.status, Status::World);
        assert_eq!(error.message, "a.py:3: no variable can switch `a`: why");
        assert_eq!(error.hint.as_deref(), Some(OTHERWISE));
        assert_eq!((answer.diagnostics.len(), answer.body["diff"].is_null()), (1, true));
    }
}
