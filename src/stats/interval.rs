//! Intervals for a failure rate and for the difference of two.
//!
//! Not responsible for over-dispersion: callers deflate their counts first (`stats::dispersion`).

use serde::{Deserialize, Serialize};

/// Normal quantile of a two-sided 95 % interval.
pub const Z_TWO_SIDED_95: f64 = 1.959_963_984_540_054;

/// Normal quantile of a one-sided 95 % bound.
pub const Z_ONE_SIDED_95: f64 = 1.644_853_626_951_472_2;

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

impl Interval {
    /// The interval that says nothing about a rate.
    pub const UNKNOWN_RATE: Self = Self { lower: 0.0, upper: 1.0 };
}

/// Wilson score interval of a rate with `k` failures in `n` trials (both may be effective, non-integer counts).
///
/// With `p = k/n`: centre `(p + z²/2n) / (1 + z²/n)`, half-width `z sqrt(p(1-p)/n + z²/4n²) / (1 + z²/n)`.
/// Source: E. B. Wilson, JASA 22 (1927) 209-212. No trials give `[0, 1]`.
pub fn wilson(k: f64, n: f64, z: f64) -> Interval {
    if n <= 0.0 {
        return Interval::UNKNOWN_RATE;
    }
    let p = (k / n).clamp(0.0, 1.0);
    let z2 = z * z;
    let scale = 1.0 + z2 / n;
    let centre = (p + z2 / (2.0 * n)) / scale;
    let half = z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / scale;
    // At p = 0 and p = 1 the formula meets the border, and rounding must not push it inside.
    Interval { lower: (centre - half).clamp(0.0, p), upper: (centre + half).clamp(p, 1.0) }
}

/// Newcombe's hybrid-score interval of the difference `k1/n1 - k2/n2`; counts may be effective ones.
///
/// With Wilson intervals `[l, u]` of each rate and `d = p1 - p2`: lower `d - sqrt((p1-l1)² + (u2-p2)²)`,
/// upper `d + sqrt((u1-p1)² + (p2-l2)²)`. Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890,
/// method 10. A side without trials gives `[-1, 1]`.
pub fn newcombe(k1: f64, n1: f64, k2: f64, n2: f64, z: f64) -> Interval {
    if n1 <= 0.0 || n2 <= 0.0 {
        return Interval { lower: -1.0, upper: 1.0 };
    }
    let (p1, p2) = (k1 / n1, k2 / n2);
    let (w1, w2) = (wilson(k1, n1, z), wilson(k2, n2, z));
    let d = p1 - p2;
    Interval { lower: d - (p1 - w1.lower).hypot(w2.upper - p2), upper: d + (w1.upper - p1).hypot(p2 - w2.lower) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not within {tolerance} of {b}");
    }

    fn check_wilson(k: f64, n: f64, lower: f64, upper: f64) {
        let got = wilson(k, n, Z_TWO_SIDED_95);
        near(got.lower, lower, 0.005);
        near(got.upper, upper, 0.005);
    }

    #[test]
    fn wilson_gives_the_published_intervals() {
        check_wilson(20.0, 20.0, 0.84, 1.0);
        check_wilson(4.0, 15.0, 0.11, 0.52);
        // Newcombe 1998 (single proportions), method 3: 81 of 263 and 15 of 148.
        check_wilson(81.0, 263.0, 0.2553, 0.3662);
        check_wilson(15.0, 148.0, 0.0624, 0.1605);
    }

    #[test]
    fn nothing_seen_says_nothing() {
        assert_eq!(wilson(0.0, 0.0, Z_TWO_SIDED_95), Interval::UNKNOWN_RATE);
        assert_eq!(newcombe(0.0, 0.0, 1.0, 2.0, 1.0), Interval { lower: -1.0, upper: 1.0 });
    }

    #[test]
    fn newcombe_gives_the_published_interval() {
        // Newcombe 1998 (differences), table II, method 10: 56 of 70 against 48 of 80.
        let got = newcombe(56.0, 70.0, 48.0, 80.0, Z_TWO_SIDED_95);
        near(got.lower, 0.0524, 5e-5);
        near(got.upper, 0.3339, 5e-5);
    }

    proptest! {
        #[test]
        fn every_interval_holds_its_estimate(n in 1_u64..300, share in 0.0_f64..=1.0, m in 1_u64..300, other in 0.0_f64..=1.0) {
            let (k, j) = ((share * n as f64).round(), (other * m as f64).round());
            let p = k / n as f64;
            let w = wilson(k, n as f64, Z_TWO_SIDED_95);
            prop_assert!(0.0 <= w.lower && w.lower <= p && p <= w.upper && w.upper <= 1.0);
            let d = newcombe(k, n as f64, j, m as f64, Z_TWO_SIDED_95);
            let diff = p - j / m as f64;
            prop_assert!(-1.0 - 1e-12 <= d.lower && d.lower <= diff && diff <= d.upper && d.upper <= 1.0 + 1e-12);
        }

        #[test]
        fn swapping_the_sides_mirrors_the_difference(k in 0_u32..40, j in 0_u32..40) {
            let a = newcombe(k.into(), 40.0, j.into(), 40.0, 1.7);
            let b = newcombe(j.into(), 40.0, k.into(), 40.0, 1.7);
            prop_assert!((a.lower + b.upper).abs() < 1e-12 && (a.upper + b.lower).abs() < 1e-12);
        }

        #[test]
        fn more_trials_at_the_same_rate_narrow_the_interval(k in 0_u32..20, extra in 0_u32..20) {
            let n = f64::from(k + extra + 1);
            let small = wilson(k.into(), n, Z_TWO_SIDED_95);
            let large = wilson(2.0 * f64::from(k), 2.0 * n, Z_TWO_SIDED_95);
            prop_assert!(large.upper - large.lower < small.upper - small.lower);
        }
    }
}
