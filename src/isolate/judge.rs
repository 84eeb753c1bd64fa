//! What the boots of two arms say about a patch.

use crate::isolate::evidence::ArmData;
use crate::isolate::search::Rules;
use crate::stats::permutation::permutation;

/// Seed of the permutation draws, used only where there are too many arrangements to count.
const PERMUTATION_SEED: u64 = 1;

/// Boots of a patch on alone before it may be said to make nothing.
const LEAST_ALONE: u32 = 4;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// The first arm is worse, with this p-value of the boots.
    Proven {
        /// One-sided permutation p-value.
        p: f64,
    },
    /// No difference worth another boot.
    NoChange,
    /// Not decided: look again with so many boots a side.
    Look(u32),
    /// Not decided, and no more boots are allowed.
    Exhausted,
}

/// Compares the boots of two arms at one look; `no_change` is the early stop for a clear lack of difference.
///
/// Proven takes a permutation p-value below the share of this look and a difference of `delta` at least:
/// a smaller one would not explain a symptom, and one below half of it is no change. An early stop can only acquit less and convict less,
/// so it spends no error.
pub fn judge(
    rules: &Rules,
    patches: usize,
    look: u32,
    worse: &ArmData,
    better: &ArmData,
    no_change: bool,
) -> Judgement {
    if no_change {
        return Judgement::NoChange;
    }
    let Some(test) = permutation(&worse.rates(), &better.rates(), PERMUTATION_SEED) else {
        return Judgement::Look(look);
    };
    if look >= rules.first_look(patches) {
        if test.difference < rules.delta / 2.0 {
            return Judgement::NoChange;
        }
        if test.difference >= rules.delta && test.p <= rules.threshold(look, patches) {
            return Judgement::Proven { p: test.p };
        }
    }
    if look < rules.last_look(patches) { Judgement::Look(look + 1) } else { Judgement::Exhausted }
}

/// Whether the symptom clearly stays with a patch off: the rate is not below the lower bound of the arm
/// with it on, and nearer to that arm than to all-off.
pub fn stays(rules: &Rules, on: &ArmData, without: &ArmData, off: &ArmData) -> bool {
    let rate = without.rate();
    rate >= on.interval(rules).lower && rate >= f64::midpoint(on.rate(), off.rate())
}

/// Whether a patch on alone clearly makes nothing: the rate is not above the upper bound of all-off, and
/// nearer to all-off than to the arm with the symptom.
pub fn makes_nothing(rules: &Rules, alone: &ArmData, off: &ArmData, on: &ArmData) -> bool {
    let rate = alone.rate();
    // It was seen to unmake the symptom, so that it cannot make it takes more than two boots.
    alone.boots() >= LEAST_ALONE && rate <= off.interval(rules).upper && rate <= f64::midpoint(on.rate(), off.rate())
}

/// Whether every patch off clearly fails like all on: not below its lower bound, and more than half as often.
pub fn fails_anyway(rules: &Rules, on: &ArmData, off: &ArmData) -> bool {
    off.rate() >= on.interval(rules).lower && off.rate() >= on.rate() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::evidence::Unit;
    use crate::recall::trial::ProbeForm;

    fn arm(fails: &[u32]) -> ArmData {
        let unit = |fail: &u32| {
            Unit {
                answers: (0..12).map(|i| ((ProbeForm::Needle, 1024, 0, i), Some(i < u64::from(*fail)))).collect(),
                ..Unit::default()
            }
            .counted()
        };
        ArmData { units: fails.iter().map(unit).map(std::sync::Arc::new).collect(), ..ArmData::default() }
    }

    fn check(look: u32, worse: &[u32], better: &[u32], expect: Judgement) {
        let got = judge(&Rules::default(), 5, look, &arm(worse), &arm(better), false);
        match (got, expect) {
            (Judgement::Proven { p }, Judgement::Proven { p: e }) => assert!((p - e).abs() < 1e-9, "{p}"),
            _ => assert_eq!(got, expect, "{worse:?} against {better:?} at {look}"),
        }
    }

    #[test]
    fn few_boots_convict_nobody_however_clear() {
        check(2, &[12, 12], &[0, 0], Judgement::Look(3));
        check(4, &[12; 4], &[0; 4], Judgement::Look(5));
        check(5, &[12; 5], &[0; 5], Judgement::Proven { p: 1.0 / 252.0 });
    }

    #[test]
    fn overlapping_boots_need_more() {
        check(5, &[8, 8, 8, 8, 2], &[1, 1, 3, 1, 1], Judgement::Look(6));
        check(8, &[8, 1, 8, 1, 8, 1, 8, 1], &[1, 1, 1, 1, 1, 4, 1, 9], Judgement::Exhausted);
    }

    #[test]
    fn a_small_difference_does_not_explain_a_symptom() {
        check(5, &[2; 5], &[2, 1, 1, 1, 2], Judgement::NoChange);
        check(5, &[2; 5], &[1; 5], Judgement::Look(6));
        check(8, &[2; 8], &[1; 8], Judgement::Exhausted);
    }

    #[test]
    fn later_looks_have_a_smaller_share() {
        // p = 2/924 would do at the first look of five patches, not at the second.
        check(6, &[9, 9, 9, 9, 9, 3], &[0, 0, 0, 0, 0, 4], Judgement::Look(7));
        check(6, &[9; 6], &[0; 6], Judgement::Proven { p: 1.0 / 924.0 });
    }

    #[test]
    fn early_stops_see_the_clear_cases_only() {
        let rules = Rules::default();
        let (on, off) = (arm(&[10, 11]), arm(&[1, 0]));
        assert!(stays(&rules, &on, &arm(&[10, 11]), &off));
        assert!(!stays(&rules, &on, &arm(&[1, 0]), &off));
        assert!(makes_nothing(&rules, &arm(&[0, 1, 0, 1]), &off, &on));
        assert!(!makes_nothing(&rules, &arm(&[0, 1]), &off, &on), "two boots are too few for that");
        assert!(!makes_nothing(&rules, &arm(&[10, 11, 10, 10]), &off, &on));
        assert!(fails_anyway(&rules, &on, &arm(&[9, 10])));
        assert!(!fails_anyway(&rules, &on, &off));
    }
}
