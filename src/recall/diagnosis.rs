//! The signature of a failure in words, each with its counts. Pure.
//!
//! It describes what was seen; it accuses nobody. A difference is called one only if the 95 % Wilson intervals
//! of the two rates do not overlap, and never without the numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::fit;
use super::matrix::Counts;
use crate::recall::trial::{FailKind, Outcome, ProbeForm, Trial};

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What it is about.
    pub about: About,
    /// The sentence, with its counts.
    pub text: String,
    /// Trials that it rests on.
    pub n: u32,
}

/// What a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// How much fails at all.
    Rate,
    /// How the answers fail.
    Kind,
    /// Length of the prompt.
    Length,
    /// Depth of the fact.
    Depth,
    /// How the fact is planted.
    Form,
    /// Prefix cache.
    Cache,
    /// Trials that say nothing.
    Void,
    /// The server counts other tokens than were asked for.
    Tokens,
}

/// The signature of these trials; empty without trials.
pub fn diagnosis<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Vec<Remark> {
    let trials: Vec<&Trial> = trials.into_iter().collect();
    let mut out = Vec::new();
    let all = count(&trials, |_| true);
    if trials.is_empty() {
        return out;
    }
    if let Some((low, high)) = all.interval() {
        let text = format!(
            "{} of {} trials fail ({}, 95 % interval {} to {})",
            all.fail,
            all.n,
            percent(all.rate().unwrap_or_default()),
            percent(low),
            percent(high)
        );
        out.push(Remark { about: About::Rate, text, n: all.n });
    }
    out.extend(kinds(&trials, all.fail));
    out.extend(ordered(&trials, About::Length, |t| f64::from(t.key.length), |x| format!("{x:.0} tokens")));
    out.extend(ordered(&trials, About::Depth, |t| t.key.depth, |x| format!("depth {x}")));
    out.extend(forms(&trials));
    out.extend(cache(&trials));
    out.extend(voids(&trials));
    out.extend(tokens(&trials));
    out
}

fn count(trials: &[&Trial], which: impl Fn(&Trial) -> bool) -> Counts {
    let mut counts = Counts::default();
    trials.iter().filter(|t| which(t)).for_each(|t| counts.add(&t.outcome));
    counts
}

fn percent(rate: f64) -> String {
    format!("{:.0} %", rate * 100.0)
}

fn of(counts: Counts) -> String {
    format!("{} of {}", counts.fail, counts.n)
}

/// Whether the intervals of two rates do not overlap.
fn differ(a: Counts, b: Counts) -> bool {
    match (a.interval(), b.interval()) {
        (Some((a_low, a_high)), Some((b_low, b_high))) => a_high < b_low || b_high < a_low,
        _ => false,
    }
}

fn kinds(trials: &[&Trial], fails: u32) -> Vec<Remark> {
    let mut by_kind: BTreeMap<FailKind, u32> = BTreeMap::new();
    for trial in trials {
        if let Outcome::Fail { how } = trial.outcome {
            *by_kind.entry(how).or_default() += 1;
        }
    }
    let mut kinds: Vec<(FailKind, u32)> = by_kind.into_iter().collect();
    kinds.sort_by_key(|&(kind, n)| (std::cmp::Reverse(n), kind));
    kinds
        .into_iter()
        .map(|(kind, n)| {
            let what = match kind {
                FailKind::NoEarlierContext => "deny any earlier context",
                FailKind::NearMiss => "give the value with a slip of a few characters",
                FailKind::Wrong => "give another value or text",
                FailKind::Loop => "repeat themselves",
                FailKind::Empty => "are empty",
            };
            Remark { about: About::Kind, text: format!("{n} of {fails} failures {what}"), n: fails }
        })
        .collect()
}

/// Compares the two ends of an ordered quantity, if it has two.
fn ordered(trials: &[&Trial], about: About, value: fn(&Trial) -> f64, name: fn(f64) -> String) -> Option<Remark> {
    let mut values: Vec<f64> = trials.iter().map(|t| value(t)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let (&low, &high) = (values.first()?, values.last()?);
    if values.len() < 2 {
        return None;
    }
    let at = |x: f64| count(trials, |t| value(t) == x);
    let (a, b) = (at(low), at(high));
    if a.n == 0 || b.n == 0 {
        return None;
    }
    let verb = match differ(a, b) {
        false => "no clear difference between",
        true if a.rate() < b.rate() => "failures rise from",
        true => "failures fall from",
    };
    let (from, to) = (format!("{} ({} fail)", name(low), of(a)), format!("{} ({} fail)", name(high), of(b)));
    let link = if differ(a, b) { "to" } else { "and" };
    Some(Remark { about, text: format!("{verb} {from} {link} {to}"), n: a.n + b.n })
}

fn forms(trials: &[&Trial]) -> Option<Remark> {
    let turns = count(trials, |t| t.key.form == ProbeForm::MultiTurn);
    let needle = count(trials, |t| t.key.form == ProbeForm::Needle);
    if turns.n == 0 || needle.n == 0 {
        return None;
    }
    let verdict = match differ(turns, needle) {
        true if turns.rate() > needle.rate() => "over several turns more is lost than inside one message",
        true => "inside one message more is lost than over several turns",
        false => "no clear difference between several turns and one message",
    };
    let text = format!("{verdict}: {} fail over several turns, {} inside one message", of(turns), of(needle));
    Some(Remark { about: About::Form, text, n: turns.n + needle.n })
}

fn cache(trials: &[&Trial]) -> Vec<Remark> {
    let mut out = Vec::new();
    let hit = count(trials, |t| t.cached_tokens.is_some_and(|c| c > 0));
    let miss = count(trials, |t| t.cached_tokens == Some(0));
    let untold = count(trials, |t| t.cached_tokens.is_none());
    if hit.n > 0 && miss.n > 0 {
        let verdict = match differ(hit, miss) {
            true if hit.rate() > miss.rate() => "prompts that meet the prefix cache fail more often",
            true => "prompts that miss the prefix cache fail more often",
            false => "no clear difference between prefix-cache hits and misses",
        };
        let text = format!("{verdict}: {} fail with cached tokens, {} without", of(hit), of(miss));
        out.push(Remark { about: About::Cache, text, n: hit.n + miss.n });
    }
    if untold.n > 0 {
        let all = untold.n + hit.n + miss.n;
        let text = format!("cached tokens are unknown in {} of {all} trials: the server does not tell them", untold.n);
        out.push(Remark { about: About::Cache, text, n: all });
    }
    out
}

fn voids(trials: &[&Trial]) -> Option<Remark> {
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for trial in trials {
        if let Outcome::Void { why } = &trial.outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    let void: u32 = reasons.values().sum();
    let (why, most) = reasons.into_iter().max_by_key(|&(_, n)| n)?;
    let n = trials.len() as u32;
    let text = format!("{void} of {n} trials are void and count as neither; {most} of them: {why}");
    Some(Remark { about: About::Void, text, n })
}

/// A server that counts other prompt tokens than its tokenizer did has rendered another conversation.
fn tokens(trials: &[&Trial]) -> Option<Remark> {
    let told: Vec<(u32, u32)> = trials.iter().filter_map(|t| t.prompt_tokens.map(|p| (p, t.key.length))).collect();
    let off: BTreeSet<bool> = told.iter().filter(|(p, l)| !fit::on_target(*p, *l)).map(|(p, l)| p < l).collect();
    let count = told.iter().filter(|(p, l)| !fit::on_target(*p, *l)).count();
    let what = match (off.contains(&true), off.contains(&false)) {
        (false, false) => return None,
        (true, false) => "fewer prompt tokens than were sent: part of the conversation may be dropped",
        (false, true) => "more prompt tokens than were sent",
        (true, true) => "other prompt tokens than were sent",
    };
    let n = told.len() as u32;
    Some(Remark { about: About::Tokens, text: format!("in {count} of {n} trials the server counts {what}"), n })
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::trial;
    use super::*;

    fn many(n: u32, length: u32, form: ProbeForm, outcome: &Outcome) -> Vec<Trial> {
        (0..n).map(|_| trial(form, length, 0.5, outcome.clone())).collect()
    }

    fn fail(how: FailKind) -> Outcome {
        Outcome::Fail { how }
    }

    fn texts(trials: &[Trial], about: About) -> Vec<String> {
        diagnosis(trials).into_iter().filter(|r| r.about == about).map(|r| r.text).collect()
    }

    #[test]
    fn nothing_is_said_about_nothing() {
        assert_eq!(diagnosis(&[]), []);
    }

    #[test]
    fn kinds_are_counted_most_frequent_first() {
        let mut trials = many(41, 1024, ProbeForm::Needle, &fail(FailKind::NoEarlierContext));
        trials.extend(many(7, 1024, ProbeForm::Needle, &fail(FailKind::NearMiss)));
        trials.extend(many(12, 1024, ProbeForm::Needle, &Outcome::Pass));
        assert_eq!(
            texts(&trials, About::Kind),
            [
                "41 of 48 failures deny any earlier context",
                "7 of 48 failures give the value with a slip of a few characters",
            ]
        );
        assert_eq!(texts(&trials, About::Rate), ["48 of 60 trials fail (80 %, 95 % interval 68 % to 88 %)"]);
    }

    #[test]
    fn a_rise_with_length_is_said_only_when_the_intervals_part() {
        let mut trials = many(20, 1024, ProbeForm::Needle, &Outcome::Pass);
        trials.extend(many(20, 4096, ProbeForm::Needle, &fail(FailKind::Wrong)));
        assert_eq!(
            texts(&trials, About::Length),
            ["failures rise from 1024 tokens (0 of 20 fail) to 4096 tokens (20 of 20 fail)"]
        );
        let mut few = many(2, 1024, ProbeForm::Needle, &Outcome::Pass);
        few.extend(many(2, 4096, ProbeForm::Needle, &fail(FailKind::Wrong)));
        assert_eq!(
            texts(&few, About::Length),
            ["no clear difference between 1024 tokens (0 of 2 fail) and 4096 tokens (2 of 2 fail)"]
        );
    }

    #[test]
    fn one_length_alone_is_no_trend() {
        assert!(texts(&many(9, 1024, ProbeForm::Needle, &Outcome::Pass), About::Length).is_empty());
        assert!(texts(&many(9, 1024, ProbeForm::Needle, &Outcome::Pass), About::Form).is_empty());
    }

    #[test]
    fn forms_are_compared() {
        let mut trials = many(20, 1024, ProbeForm::MultiTurn, &fail(FailKind::Wrong));
        trials.extend(many(20, 1024, ProbeForm::Needle, &Outcome::Pass));
        assert!(texts(&trials, About::Form)[0].starts_with("over several turns more is lost"));
    }

    #[test]
    fn cached_and_cold_are_compared_and_unknown_is_neither() {
        let mut trials = many(20, 1024, ProbeForm::Needle, &Outcome::Pass);
        let mut warm = many(20, 1024, ProbeForm::Needle, &fail(FailKind::Wrong));
        for t in &mut warm {
            t.cached_tokens = Some(960);
        }
        let mut untold = many(5, 1024, ProbeForm::Needle, &Outcome::Pass);
        for t in &mut untold {
            t.cached_tokens = None;
        }
        trials.extend(warm);
        trials.extend(untold);
        assert_eq!(
            texts(&trials, About::Cache),
            [
                "prompts that meet the prefix cache fail more often: 20 of 20 fail with cached tokens, 0 of 20 without",
                "cached tokens are unknown in 5 of 45 trials: the server does not tell them",
            ]
        );
    }

    #[test]
    fn voids_are_named_and_never_counted() {
        let mut trials = many(3, 1024, ProbeForm::Needle, &Outcome::Void { why: "http error 503".into() });
        trials.extend(many(1, 1024, ProbeForm::Needle, &Outcome::Void { why: "no connection".into() }));
        assert!(texts(&trials, About::Rate).is_empty());
        assert_eq!(
            texts(&trials, About::Void),
            ["4 of 4 trials are void and count as neither; 3 of them: http error 503"]
        );
    }

    #[test]
    fn a_dropped_history_shows_in_the_token_counts() {
        let mut trials = many(4, 1024, ProbeForm::MultiTurn, &fail(FailKind::NoEarlierContext));
        trials[0].prompt_tokens = Some(60);
        trials[1].prompt_tokens = None;
        assert_eq!(
            texts(&trials, About::Tokens),
            [
                "in 1 of 3 trials the server counts fewer prompt tokens than were sent: part of the conversation may be dropped"
            ]
        );
    }

    #[test]
    fn every_remark_has_a_number_of_trials() {
        let mut trials = many(20, 1024, ProbeForm::MultiTurn, &fail(FailKind::Loop));
        trials.extend(many(20, 2048, ProbeForm::Needle, &Outcome::Pass));
        for remark in diagnosis(&trials) {
            assert!(remark.n > 0 && remark.text.contains(|c: char| c.is_ascii_digit()), "{remark:?}");
        }
    }
}
