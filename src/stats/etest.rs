//! Betting tests that stay valid however often one looks.
//!
//! An e-value is the wealth of a gambler who bets against "no difference" and starts with 1.
//! Under no difference it exceeds `1/alpha` with probability at most `alpha`, at any time (Ville).
//! Trials are taken as independent: with a boot effect, `stats::permutation` decides.

use serde::{Deserialize, Serialize};

/// Which differences a test bets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sides {
    /// Either way.
    Two,
    /// Only that the second arm is worse.
    SecondIsWorse,
}

/// A betting `McNemar` test over pairs of the same question in two arms.
///
/// Only pairs that differ count. With `b` good-to-bad and `c` bad-to-good pairs so far and
/// `l = (b + 1/2) / (b + c + 1)` (one-sided: at least 1/2), a good-to-bad pair multiplies the wealth by `2l`
/// and a bad-to-good pair by `2(1 - l)`; under no difference both are as likely, so the mean factor is 1.
/// The rate `l` is the Krichevsky-Trofimov estimate (IEEE Trans. Inf. Theory 27 (1981) 199-207).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedTest {
    sides: Sides,
    /// Pairs that were good in the first arm and bad in the second.
    pub worse: u64,
    /// Pairs that were bad in the first arm and good in the second.
    pub better: u64,
    log_e: f64,
    best_log_e: f64,
}

impl PairedTest {
    /// A test that has seen nothing; its e-value is 1.
    pub fn new(sides: Sides) -> Self {
        Self { sides, worse: 0, better: 0, log_e: 0.0, best_log_e: 0.0 }
    }

    /// Takes one pair: whether the first and the second arm failed on the same question.
    pub fn observe(&mut self, first_failed: bool, second_failed: bool) {
        if first_failed == second_failed {
            return;
        }
        let (b, c) = (self.worse as f64, self.better as f64);
        let mut stake = (b + 0.5) / (b + c + 1.0);
        if self.sides == Sides::SecondIsWorse {
            stake = stake.max(0.5);
        }
        if second_failed {
            self.worse += 1;
            self.log_e += (2.0 * stake).ln();
        } else {
            self.better += 1;
            self.log_e += (2.0 * (1.0 - stake)).ln();
        }
        self.best_log_e = self.best_log_e.max(self.log_e);
    }

    /// The wealth now.
    pub fn e_value(&self) -> f64 {
        self.log_e.exp()
    }

    /// A p-value that is valid at any time: one over the largest wealth so far.
    pub fn p_value(&self) -> f64 {
        (-self.best_log_e).exp()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn median(mut runs: Vec<u32>) -> u32 {
        runs.sort_unstable();
        runs[runs.len() / 2]
    }

    /// Pairs until the wealth reaches 20 when `share` of the pairs turn bad and 1 % turn good.
    fn pairs_needed(share: f64, rng: &mut Pcg64Mcg) -> u32 {
        let mut test = PairedTest::new(Sides::Two);
        for n in 1..2000 {
            let draw: f64 = rng.random();
            test.observe((share..share + 0.01).contains(&draw), draw < share);
            if test.e_value() >= 20.0 {
                return n;
            }
        }
        2000
    }

    fn check_median(share: f64, expect: u32, slack: u32) {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let got = median((0..2001).map(|_| pairs_needed(share, &mut rng)).collect());
        assert!(got.abs_diff(expect) <= slack, "share {share}: median {got}, published {expect}");
    }

    #[test]
    fn paired_test_needs_the_published_number_of_pairs() {
        check_median(0.95, 7, 0);
        check_median(0.5, 14, 1);
        check_median(0.3, 24, 2);
        check_median(0.2, 38, 3);
    }

    /// Mean wealth over every sequence of `n` discordant pairs, each direction as likely.
    fn mean_paired_wealth(sides: Sides, n: u32) -> f64 {
        let total: f64 = (0..1_u32 << n)
            .map(|bits| {
                let mut test = PairedTest::new(sides);
                (0..n).for_each(|i| test.observe(bits >> i & 1 == 0, bits >> i & 1 == 1));
                test.e_value()
            })
            .sum();
        total / f64::from(1_u32 << n)
    }

    #[test]
    fn wealth_is_a_martingale_under_no_difference() {
        for n in 1..=12 {
            for sides in [Sides::Two, Sides::SecondIsWorse] {
                let mean = mean_paired_wealth(sides, n);
                assert!((mean - 1.0).abs() < 1e-9, "{sides:?} after {n}: {mean}");
            }
        }
    }

    #[test]
    fn false_alarms_stay_below_alpha_under_constant_looking() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let alarms = (0..2000)
            .filter(|_| {
                let mut test = PairedTest::new(Sides::Two);
                (0..400).for_each(|_| test.observe(rng.random_bool(0.1), rng.random_bool(0.1)));
                test.p_value() <= 0.05
            })
            .count();
        // Published: 2.5 %. Five per cent of 2,000 are 100.
        assert!((10..=100).contains(&alarms), "{alarms} of 2000");
    }

    #[test]
    fn equal_pairs_say_nothing() {
        let mut test = PairedTest::new(Sides::Two);
        (0..50).for_each(|i| test.observe(i % 3 == 0, i % 3 == 0));
        assert!((test.e_value() - 1.0).abs() < 1e-12);
        assert!((test.p_value() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_sided_test_does_not_bet_on_an_improvement() {
        let mut test = PairedTest::new(Sides::SecondIsWorse);
        (0..30).for_each(|_| test.observe(true, false));
        assert!(test.e_value() <= 1.0);
    }
}
