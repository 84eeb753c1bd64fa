//! Permutation test over boots: are the boots of one arm worse than those of the other?
//!
//! The boot is the unit: a boot enters with its failure rate, whatever the number of its trials.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// Arrangements up to which every one is looked at.
pub const EXACT_UP_TO: u64 = 200_000;

/// Random arrangements beyond that.
const DRAWS: u64 = 50_000;

/// What the test found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permutation {
    /// Difference of the mean rates, first minus second.
    pub difference: f64,
    /// One-sided p-value: that the first arm is worse.
    pub p: f64,
    /// Whether every arrangement was looked at.
    pub exact: bool,
    /// Arrangements looked at.
    pub arrangements: u64,
}

/// One-sided permutation test that the mean of `first` exceeds that of `second`; `None` where a side is empty.
///
/// The p-value is the share of the `C(n+m, n)` ways to deal the rates to the sides whose difference is at
/// least the one seen. Beyond [`EXACT_UP_TO`] ways it is estimated from seeded draws as `(1 + hits)/(1 + draws)`.
/// Source: Fisher 1935; the +1 correction: Phipson and Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39.
pub fn permutation(first: &[f64], second: &[f64], seed: u64) -> Option<Permutation> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let (n, m) = (first.len(), second.len());
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let seen: f64 = first.iter().sum();
    let difference = seen / n as f64 - second.iter().sum::<f64>() / m as f64;
    // The total is fixed, so the difference grows with the sum of the first side; equal sums must count as equal.
    let threshold = seen - 1e-9;
    if let Some(total) = arrangements(n + m, n).filter(|c| *c <= EXACT_UP_TO) {
        let hits = count_at_least(&all, n, threshold);
        return Some(Permutation { difference, p: hits as f64 / total as f64, exact: true, arrangements: total });
    }
    let hits = draw_at_least(all, n, threshold, seed);
    let p = (1 + hits) as f64 / (1 + DRAWS) as f64;
    Some(Permutation { difference, p, exact: false, arrangements: DRAWS })
}

/// The smallest p-value that `n` boots against `m` can give: `1/C(n+m, n)`.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    if n == 0 || m == 0 {
        return 1.0;
    }
    (1..=n).map(|i| i as f64 / (m + i) as f64).product()
}

/// The least number of boots on each side with which a p-value of `alpha` can be reached at all.
pub fn boots_a_side(alpha: f64) -> usize {
    // Forty boots a side reach 1e-23; an alpha below that is no alpha.
    (1..40).find(|r| smallest_p(*r, *r) <= alpha).unwrap_or(40)
}

fn arrangements(n: usize, k: usize) -> Option<u64> {
    let mut c: u64 = 1;
    for i in 0..k as u64 {
        c = c.checked_mul(n as u64 - i)? / (i + 1);
    }
    Some(c)
}

/// Number of `k`-subsets of `values` whose sum reaches `threshold`.
fn count_at_least(values: &[f64], k: usize, threshold: f64) -> u64 {
    if k == 0 {
        return u64::from(threshold <= 0.0);
    }
    if values.len() < k {
        return 0;
    }
    let (head, rest) = (values[0], &values[1..]);
    count_at_least(rest, k - 1, threshold - head) + count_at_least(rest, k, threshold)
}

fn draw_at_least(mut values: Vec<f64>, k: usize, threshold: f64, seed: u64) -> u64 {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut hits = 0;
    for _ in 0..DRAWS {
        // The first k places of a Fisher-Yates shuffle are a uniform k-subset.
        for i in 0..k {
            let j = rng.random_range(i..values.len());
            values.swap(i, j);
        }
        hits += u64::from(values[..k].iter().sum::<f64>() >= threshold);
    }
    hits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(first: &[f64], second: &[f64], p: f64) {
        let got = permutation(first, second, 0).unwrap();
        assert!((got.p - p).abs() < 1e-12, "{got:?}, expected {p}");
        assert!(got.exact);
    }

    #[test]
    fn complete_separation_gives_the_smallest_p() {
        check(&[0.9, 0.8, 1.0, 0.85, 0.95], &[0.1, 0.0, 0.2, 0.05, 0.15], 1.0 / 252.0);
        check(&[0.9, 0.8], &[0.1, 0.0], 1.0 / 6.0);
        check(&[1.0], &[0.0, 0.0, 0.0], 0.25);
    }

    #[test]
    fn no_difference_and_the_wrong_way_are_not_small() {
        check(&[0.5, 0.5, 0.5], &[0.5, 0.5, 0.5], 1.0);
        check(&[0.0, 0.1], &[0.8, 0.9], 1.0);
    }

    #[test]
    fn ties_count_against_the_accusation() {
        // Of the 6 ways, the sums 1.0 (twice, through the tie) reach the one seen.
        check(&[0.7, 0.3], &[0.3, 0.0], 2.0 / 6.0);
    }

    #[test]
    fn an_empty_side_has_no_p() {
        assert_eq!(permutation(&[], &[0.5], 0), None);
        assert_eq!(permutation(&[0.5], &[], 0), None);
    }

    #[test]
    fn boots_for_a_claimed_error() {
        for (alpha, boots) in [(0.05, 3), (0.01, 5), (0.005, 5), (0.0025, 6), (0.5, 1)] {
            assert_eq!(boots_a_side(alpha), boots, "alpha {alpha}");
        }
        assert!((smallest_p(5, 5) - 1.0 / 252.0).abs() < 1e-15);
        assert!((smallest_p(4, 6) - 1.0 / 210.0).abs() < 1e-15);
    }

    #[test]
    fn many_boots_are_drawn_and_agree_with_the_exact_count() {
        let first: Vec<f64> = (0..8).map(|i| 0.42 + 0.05 * f64::from(i)).collect();
        let second: Vec<f64> = (0..8).map(|i| 0.31 + 0.06 * f64::from(i)).collect();
        let exact = permutation(&first, &second, 0).unwrap();
        assert!(exact.exact);
        let all: Vec<f64> = first.iter().chain(&second).copied().collect();
        let hits = draw_at_least(all, 8, first.iter().sum::<f64>() - 1e-9, 5);
        assert!((hits as f64 / DRAWS as f64 - exact.p).abs() < 0.01, "{hits} of {DRAWS}, exact {}", exact.p);
        let long = permutation(&[0.9; 12], &[0.1; 12], 1).unwrap();
        assert!(!long.exact && long.p <= 2.0 / DRAWS as f64);
        assert_eq!(permutation(&[0.9; 12], &[0.1; 12], 1), Some(long), "the same seed gives the same p");
    }

    /// Every way to deal `values` to sides of `k` and the rest.
    fn deals(values: &[f64], k: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
        (0..1_u32 << values.len())
            .filter(|bits| bits.count_ones() as usize == k)
            .map(|bits| {
                let (a, b): (Vec<_>, Vec<_>) = values.iter().enumerate().partition(|(i, _)| bits >> i & 1 == 1);
                (a.into_iter().map(|(_, v)| *v).collect(), b.into_iter().map(|(_, v)| *v).collect())
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_p_value_is_honest(values in prop::collection::vec((0_u32..=6).prop_map(|k| f64::from(k) / 6.0), 4..8), split in 1_usize..4) {
            // With nobody guilty every deal is as likely, so P(p <= a) <= a must hold exactly, ties included.
            let ps: Vec<f64> = deals(&values, split).iter().map(|(a, b)| permutation(a, b, 0).unwrap().p).collect();
            for a in &ps {
                let share = ps.iter().filter(|p| **p <= a + 1e-12).count() as f64 / ps.len() as f64;
                prop_assert!(share <= a + 1e-9, "P(p <= {a}) = {share}");
            }
        }

        #[test]
        fn raising_the_accused_side_never_raises_p(base in prop::collection::vec(0.0_f64..0.5, 6), lift in 0.0_f64..0.5) {
            let (a, b) = base.split_at(3);
            let lifted: Vec<f64> = a.iter().map(|v| v + lift).collect();
            prop_assert!(permutation(&lifted, b, 0).unwrap().p <= permutation(a, b, 0).unwrap().p + 1e-12);
        }
    }
}
