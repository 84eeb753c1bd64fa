//! Verdicts and remarks of the search in words, each with its numbers.

use std::collections::BTreeSet;

use crate::engine::state::State;
use crate::isolate::evidence::{self, ArmData};
use crate::isolate::search::{Ending, Search, quoted};
use crate::isolate::verdict::{ArmCount, Finding, Subject, SubjectKind, Verdict};
use crate::stats::acquittal::Excess;

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// `40 of 60 failed on 5 boots (67 %)`.
fn tally(arm: &ArmData) -> String {
    let ArmCount { fail, n, boots, .. } = arm.count();
    let plural = if boots == 1 { "boot" } else { "boots" };
    format!("{fail} of {n} failed on {boots} {plural} ({})", percent(arm.rate()))
}

fn verdict(patch: &str, finding: Finding, on: ArmCount, off: ArmCount, why: String) -> Verdict {
    let subject = Subject { kind: SubjectKind::Patch, id: patch.to_owned() };
    Verdict { subject, verdict: finding, on, off, bound: None, why, evidence: Vec::new() }
}

fn resting_on(state: &State, verdict: Verdict, arms: &[&ArmData]) -> Verdict {
    let seqs: BTreeSet<u64> = arms.iter().flat_map(|a| a.seqs(state)).collect();
    Verdict { evidence: seqs.into_iter().collect(), ..verdict }
}

/// What the paired questions say, as a clause that follows a comma.
fn pairs(better: &ArmData, worse: &ArmData) -> String {
    let test = evidence::paired(better, worse);
    format!("of the same questions {} turned bad and {} good, e-value {:.3e}", test.worse, test.better, test.e_value())
}

/// How much boots of one configuration differ.
pub(crate) fn noise(as_found: &ArmData) -> String {
    let rates = as_found.rates();
    let low = rates.iter().copied().fold(1.0, f64::min);
    let high = rates.iter().copied().fold(0.0, f64::max);
    format!(
        "as found, {}; boots of this one configuration range from {} to {}: a smaller difference means nothing",
        tally(as_found),
        percent(low),
        percent(high)
    )
}

/// The first half of a conviction.
pub(crate) fn unmade(patch: &str, on: &ArmData, without: &ArmData, p: f64) -> String {
    format!(
        "switching `{patch}` off unmakes the symptom: {} with it, {} without (p = {p:.4} over boots); next: does it make it alone",
        tally(on),
        tally(without)
    )
}

/// A conviction; `off_test` and `on_test` are the arms of the two halves, with the subject and without it.
pub(crate) fn guilty(
    state: &State,
    patch: &str,
    off_test: (&ArmData, &ArmData),
    on_test: (&ArmData, &ArmData),
    p_make: f64,
) -> Verdict {
    let p_unmake =
        crate::stats::permutation::permutation(&off_test.0.rates(), &off_test.1.rates(), 1).map_or(1.0, |t| t.p);
    let why = format!(
        "switching it off unmakes the symptom: {} with it, {} without (p = {p_unmake:.4} over boots; {}); \
         switching it on alone makes it: {} against {} with all off (p = {p_make:.4})",
        tally(off_test.0),
        tally(off_test.1),
        pairs(off_test.1, off_test.0),
        tally(on_test.0),
        tally(on_test.1)
    );
    let bare = verdict(patch, Finding::Guilty, off_test.0.count(), off_test.1.count(), why);
    let bare = Verdict { bound: Some(p_unmake.max(p_make)), ..bare };
    resting_on(state, bare, &[off_test.0, off_test.1, on_test.0, on_test.1])
}

/// Switching it off changed nothing.
pub(crate) fn not_shown(state: &State, patch: &str, on: &ArmData, without: &ArmData) -> Verdict {
    let why = format!(
        "the symptom stays with it off: {} with it, {} without; another culprit may mask it, so it is not acquitted",
        tally(on),
        tally(without)
    );
    resting_on(state, verdict(patch, Finding::NotShown, on.count(), without.count(), why), &[on, without])
}

/// The symptom stays with every patch off.
pub(crate) fn not_the_patches(state: &State, patch: &str, on: &ArmData, off: &ArmData) -> Verdict {
    let why = format!(
        "the symptom stays with every patch off: {} as found, {} with all off; so no patch is shown to make it, \
         and one of them may still be masked by what does",
        tally(on),
        tally(off)
    );
    resting_on(state, verdict(patch, Finding::NotShown, on.count(), off.count(), why), &[on, off])
}

/// The boots differ, but not clearly enough for the claimed error.
pub(crate) fn undecided(state: &State, patch: &str, on: &ArmData, off: &ArmData) -> Verdict {
    let why = format!(
        "the boots do not separate with it and without it: {} against {}; more boots than the search allows are needed",
        tally(on),
        tally(off)
    );
    resting_on(state, verdict(patch, Finding::Inconclusive, on.count(), off.count(), why), &[on, off])
}

/// It unmakes the symptom, and does not make it alone.
pub(crate) fn needs_partner(
    state: &State,
    patch: &str,
    on: &ArmData,
    without: &ArmData,
    alone: &ArmData,
    off: &ArmData,
) -> Verdict {
    let why = format!(
        "switching it off unmakes the symptom ({} with it, {} without), but on alone it does not make it ({} against {} with all off): it needs a partner",
        tally(on),
        tally(without),
        tally(alone),
        tally(off)
    );
    let bare = verdict(patch, Finding::NotSeparable, on.count(), without.count(), why);
    resting_on(state, bare, &[on, without, alone, off])
}

/// It makes and unmakes the symptom, but only together with patches that it cannot be switched without.
pub(crate) fn inseparable(
    state: &State,
    patch: &str,
    companions: &[String],
    on: &ArmData,
    without: &ArmData,
) -> Verdict {
    let why = format!(
        "it makes and unmakes the symptom ({} with it, {} without), but is switched together with {}",
        tally(on),
        tally(without),
        quoted(companions)
    );
    resting_on(state, verdict(patch, Finding::NotSeparable, on.count(), without.count(), why), &[on, without])
}

fn acquitted(
    state: &State,
    patch: &str,
    (on, off): (&ArmData, &ArmData),
    excess: &Excess,
    how: &str,
    delta: f64,
) -> Verdict {
    let why = format!(
        "{how}, {}, against {} with all off: at most {} more often (upper 95 % bound, intra-boot correlation {:.2}; allowed {})",
        tally(on),
        tally(off),
        percent(excess.upper.max(0.0)),
        excess.rho,
        percent(delta)
    );
    let bare = verdict(patch, Finding::Acquitted, on.count(), off.count(), why);
    resting_on(state, Verdict { bound: Some(excess.upper), ..bare }, &[on, off])
}

/// Acquitted in the arm with the guilty off and all others on.
pub(crate) fn acquitted_together(
    state: &State,
    patch: &str,
    search: &Search,
    arms: (&ArmData, &ArmData),
    excess: &Excess,
) -> Verdict {
    let how = format!("with {} off and it on, in one arm shared by all other patches", quoted(&search.guilty));
    acquitted(state, patch, arms, excess, &how, search.rules.delta)
}

/// Acquitted in an arm of its own.
pub(crate) fn acquitted_alone(
    state: &State,
    patch: &str,
    search: &Search,
    arms: (&ArmData, &ArmData),
    excess: &Excess,
) -> Verdict {
    let how = format!("with {} off and it on alone", quoted(&search.guilty));
    acquitted(state, patch, arms, excess, &how, search.rules.delta)
}

/// Nothing can be said, for this reason.
pub(crate) fn inconclusive(patch: &str, why: String) -> Verdict {
    verdict(patch, Finding::Inconclusive, ArmCount::default(), ArmCount::default(), why)
}

/// The search ended before the patch was tried.
pub(crate) fn never_tried(state: &State, patch: &str, ending: &Ending, as_found: &ArmData) -> Verdict {
    let why = match ending {
        Ending::NoSymptom => format!("there was no symptom to explain: as found, {}", tally(as_found)),
        Ending::TooFewTrials { why } | Ending::CannotRun { why } => why.clone(),
        Ending::Explained | Ending::NotThePatches | Ending::Unexplained | Ending::Stopped => "it was not tried".into(),
    };
    let bare = verdict(patch, Finding::Inconclusive, as_found.count(), ArmCount::default(), why);
    resting_on(state, bare, &[as_found])
}

/// The guilty are off and the symptom is not gone.
pub(crate) fn not_explained(search: &Search, on: &ArmData, off: &ArmData) -> String {
    format!(
        "{} off is not shown to be as good as all off: {} against {}; the other patches are tried again",
        quoted(&search.guilty),
        tally(on),
        tally(off)
    )
}

/// Too many void trials.
pub(crate) fn voids(name: &str, arm: &ArmData) -> String {
    let share = f64::from(arm.void) / f64::from(arm.asked.max(1));
    format!("{} of {} trials of the arm `{name}` were void ({})", arm.void, arm.asked, percent(share))
}

/// What the search ends with, and the cheapest next step.
pub(crate) fn farewell(search: &Search, ending: &Ending) -> (String, String) {
    let guilty = quoted(&search.guilty);
    let pair: Vec<_> =
        search.findings.iter().filter(|(_, f)| **f == Finding::NotSeparable).map(|(patch, _)| patch.clone()).collect();
    match ending {
        Ending::NoSymptom => (
            "no symptom: the failure rate as found is not above the floor of the suite".into(),
            "replay the failing client with `recall import FILE`, or ask at other lengths".into(),
        ),
        Ending::Explained => (
            format!("{guilty} explains the symptom; the deployment is left with it off and all else as found"),
            "`end-state best-known` keeps it so, `end-state original` puts everything back".into(),
        ),
        Ending::NotThePatches => (
            "the symptom stays with every patch off, so no patch is shown to be guilty".into(),
            "look at what the patches do not switch: `patchbench truth`, the cache, the template, the client".into(),
        ),
        Ending::Unexplained if !pair.is_empty() => (
            format!("{} unmake the symptom and do not make it alone: they may act together", quoted(&pair)),
            "switch them on together with all others off and run `recall`; `restore` puts everything back".into(),
        ),
        Ending::Unexplained if !search.guilty.is_empty() => (
            format!("{guilty} is guilty and does not explain the whole symptom; the deployment is left with it off"),
            "look for what else is there with `patchbench truth`; `end-state original` puts everything back".into(),
        ),
        Ending::Unexplained if search.patches.is_empty() => (
            "there is a symptom, and no patch that can be switched".into(),
            "give the patches an `env` or `flag` gate with levels in the case file".into(),
        ),
        Ending::Unexplained => (
            "no patch alone makes and unmakes the symptom; all off is better, so several may act".into(),
            "switch half of them off at once and run `recall`; `restore` puts everything back".into(),
        ),
        Ending::TooFewTrials { why } => {
            (why.clone(), "read why in the transcripts of the void trials, and ask shorter prompts".into())
        }
        Ending::CannotRun { why } => {
            (why.clone(), "read the log of the target, then `restore` and `isolate` again".into())
        }
        Ending::Stopped => ("the search was stopped".into(), "`isolate` takes it up on what is recorded".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_names_a_next_step() {
        let why = || "the port is in use".to_owned();
        for ending in [
            Ending::NoSymptom,
            Ending::Explained,
            Ending::NotThePatches,
            Ending::Unexplained,
            Ending::TooFewTrials { why: why() },
            Ending::CannotRun { why: why() },
            Ending::Stopped,
        ] {
            let (message, hint) = farewell(&Search::default(), &ending);
            assert!(!message.is_empty() && hint.contains('`') || hint.contains("void"), "{ending:?}: {hint}");
            assert!(!message.ends_with('.') && !hint.ends_with('.'));
        }
    }

    #[test]
    fn a_pair_that_acts_together_is_named() {
        let findings = [("a".to_owned(), Finding::NotSeparable), ("b".to_owned(), Finding::NotShown)];
        let search = Search { findings: findings.into(), patches: vec!["a".into()], ..Search::default() };
        let (message, _) = farewell(&search, &Ending::Unexplained);
        assert!(message.contains("`a`") && !message.contains("`b`"), "{message}");
    }
}
