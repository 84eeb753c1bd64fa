//! How much the trials of one boot share its luck, and how many independent trials they are worth.

use serde::{Deserialize, Serialize};

/// The counted trials of one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Failed trials.
    pub fail: u32,
    /// Trials that count.
    pub n: u32,
}

impl Group {
    /// Failure rate; 0 where nothing counts.
    pub fn rate(self) -> f64 {
        if self.n == 0 { 0.0 } else { f64::from(self.fail) / f64::from(self.n) }
    }
}

/// Counts that stand for independent trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// Failures.
    pub k: f64,
    /// Trials.
    pub n: f64,
}

impl Effective {
    /// Failure rate; 0 where nothing counts.
    pub fn rate(self) -> f64 {
        if self.n <= 0.0 { 0.0 } else { self.k / self.n }
    }
}

/// Intra-boot correlation of failures, pooled over `arms`, each a list of boots; `None` without two boots in an arm.
///
/// The one-way analysis-of-variance estimator, floored at 0:
/// `rho = (B - W) / (B + (m - 1) W)` with `B` the mean square between the boots of an arm, `W` the mean square
/// within boots, `m = (N - sum n²/N) / (boots - 1)`; sums and degrees of freedom are added over arms.
/// Source: Ridout, Demétrio and Firth, Biometrics 55 (1999) 137-148, estimator `AOV`.
pub fn intra_boot_correlation(arms: &[&[Group]]) -> Option<f64> {
    let (mut between, mut within, mut df_between, mut df_within, mut size) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for arm in arms {
        let boots: Vec<Group> = arm.iter().copied().filter(|g| g.n > 0).collect();
        if boots.len() < 2 {
            continue;
        }
        let total: f64 = boots.iter().map(|g| f64::from(g.n)).sum();
        let rate = boots.iter().map(|g| f64::from(g.fail)).sum::<f64>() / total;
        for g in &boots {
            let (n, p) = (f64::from(g.n), g.rate());
            between += n * (p - rate).powi(2);
            within += n * p * (1.0 - p);
            df_within += n - 1.0;
        }
        size += total - boots.iter().map(|g| f64::from(g.n).powi(2)).sum::<f64>() / total;
        df_between += boots.len() as f64 - 1.0;
    }
    if df_between <= 0.0 || df_within <= 0.0 {
        return None;
    }
    let (b, w, m) = (between / df_between, within / df_within, size / df_between);
    let spread = b + (m - 1.0) * w;
    if spread <= 0.0 {
        // Every trial of each arm ended the same way: nothing is seen to vary at all.
        return Some(0.0);
    }
    Some(((b - w) / spread).clamp(0.0, 1.0))
}

/// Design effect of boots with these sizes: `D = 1 + (m - 1) rho` with `m = sum n² / sum n`.
///
/// With equal sizes `m` is the size. Source: Kish, *Survey Sampling* (1965), sections 5.4 and 8.2.
pub fn design_effect(boots: &[Group], rho: f64) -> f64 {
    let total: f64 = boots.iter().map(|g| f64::from(g.n)).sum();
    if total <= 0.0 {
        return 1.0;
    }
    let size = boots.iter().map(|g| f64::from(g.n).powi(2)).sum::<f64>() / total;
    1.0 + (size - 1.0).max(0.0) * rho.clamp(0.0, 1.0)
}

/// What the trials of an arm are worth: failures and trials over the design effect.
pub fn effective(boots: &[Group], rho: f64) -> Effective {
    let d = design_effect(boots, rho);
    let k: u32 = boots.iter().map(|g| g.fail).sum();
    let n: u32 = boots.iter().map(|g| g.n).sum();
    Effective { k: f64::from(k) / d, n: f64::from(n) / d }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn boots(counts: &[(u32, u32)]) -> Vec<Group> {
        counts.iter().map(|(fail, n)| Group { fail: *fail, n: *n }).collect()
    }

    fn check_rho(counts: &[(u32, u32)], expect: Option<f64>) {
        let got = intra_boot_correlation(&[&boots(counts)]);
        match (got, expect) {
            (Some(g), Some(e)) => assert!((g - e).abs() < 1e-9, "{counts:?}: {g}, expected {e}"),
            _ => assert_eq!(got, expect, "{counts:?}"),
        }
    }

    #[test]
    fn boots_that_fail_as_a_whole_are_fully_correlated() {
        check_rho(&[(10, 10), (0, 10), (10, 10), (0, 10)], Some(1.0));
    }

    #[test]
    fn equal_boots_are_uncorrelated() {
        check_rho(&[(5, 10), (5, 10)], Some(0.0));
        check_rho(&[(0, 10), (0, 10)], Some(0.0));
    }

    #[test]
    fn worked_example() {
        // Rates .2 and .8 of 10: B = 10*(.09+.09)/1 = 1.8, W = (1.6+1.6)/18, m = 10.
        let w = 3.2 / 18.0;
        check_rho(&[(2, 10), (8, 10)], Some((1.8 - w) / (1.8 + 9.0 * w)));
    }

    #[test]
    fn one_boot_cannot_tell() {
        check_rho(&[(3, 10)], None);
        check_rho(&[], None);
        check_rho(&[(3, 10), (0, 0)], None);
    }

    #[test]
    fn difference_between_arms_is_not_correlation() {
        let (on, off) = (boots(&[(9, 10), (9, 10)]), boots(&[(1, 10), (1, 10)]));
        assert_eq!(intra_boot_correlation(&[&on, &off]), Some(0.0));
    }

    #[test]
    fn estimator_finds_a_known_correlation() {
        // A rate per boot from beta(2, 3) has rho = 1/(2+3+1).
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let sample: Vec<Group> = (0..4000)
            .map(|_| {
                // The second of four uniforms in order is beta(2, 3).
                let mut u: [f64; 4] = rng.random();
                u.sort_by(f64::total_cmp);
                Group { fail: (0..12).filter(|_| rng.random_bool(u[1])).count() as u32, n: 12 }
            })
            .collect();
        let rho = intra_boot_correlation(&[&sample]).unwrap();
        assert!((rho - 1.0 / 6.0).abs() < 0.015, "{rho}");
    }

    #[test]
    fn design_effect_deflates() {
        let arm = boots(&[(6, 11), (5, 11)]);
        assert!((design_effect(&arm, 0.1) - 2.0).abs() < 1e-12);
        let e = effective(&arm, 0.1);
        assert!((e.k - 5.5).abs() < 1e-12 && (e.n - 11.0).abs() < 1e-12);
        assert_eq!(effective(&[], 0.5), Effective::default());
    }

    proptest! {
        #[test]
        fn correlation_is_a_share_and_deflation_keeps_the_rate(
            counts in prop::collection::vec((0_u32..=12, 1_u32..=12), 2..8)
        ) {
            let arm: Vec<Group> = counts.iter().map(|(k, n)| Group { fail: *k.min(n), n: *n }).collect();
            let rho = intra_boot_correlation(&[&arm]).unwrap_or(0.0);
            prop_assert!((0.0..=1.0).contains(&rho));
            let raw = effective(&arm, 0.0);
            let deflated = effective(&arm, rho);
            prop_assert!(deflated.n <= raw.n + 1e-9);
            prop_assert!((deflated.rate() - raw.rate()).abs() < 1e-9);
            // A boot is worth at least one trial however alike its trials are.
            prop_assert!(effective(&arm, 1.0).n >= 1.0 - 1e-9);
        }
    }
}
