//! By how much an arm may fail more often than another at most.

use serde::{Deserialize, Serialize};

use crate::stats::dispersion::{Group, effective, intra_boot_correlation};
use crate::stats::interval::{Z_ONE_SIDED_95, newcombe};

/// The excess failure rate of one arm over another, with bounds that take the boot as the unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// Rate of the first arm minus rate of the second.
    pub difference: f64,
    /// Lower 95 % bound of it (one-sided).
    pub lower: f64,
    /// Upper 95 % bound of it (one-sided).
    pub upper: f64,
    /// The intra-boot correlation that was used.
    pub rho: f64,
}

/// Excess failure rate of `on` over `off`; `None` with fewer than two boots on a side.
///
/// Newcombe's hybrid-score bounds on the counts over their design effects, with the larger of the estimated
/// intra-boot correlation and `least_rho`: a few boots may look more alike than boots are.
/// Sources: `stats::interval::newcombe`, `stats::dispersion`.
pub fn excess(on: &[Group], off: &[Group], least_rho: f64) -> Option<Excess> {
    let counted = |arm: &[Group]| arm.iter().filter(|g| g.n > 0).count();
    if counted(on) < 2 || counted(off) < 2 {
        return None;
    }
    let rho = intra_boot_correlation(&[on, off])?.max(least_rho);
    let (a, b) = (effective(on, rho), effective(off, rho));
    let bounds = newcombe(a.k, a.n, b.k, b.n, Z_ONE_SIDED_95);
    Some(Excess { difference: a.rate() - b.rate(), lower: bounds.lower, upper: bounds.upper, rho })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn arm(boots: usize, fail: u32, n: u32) -> Vec<Group> {
        vec![Group { fail, n }; boots]
    }

    #[test]
    fn one_boot_acquits_nobody() {
        assert_eq!(excess(&arm(1, 0, 500), &arm(5, 0, 500), 0.0), None);
        assert_eq!(excess(&arm(5, 0, 500), &[], 0.0), None);
        let silent = [Group { fail: 0, n: 50 }, Group::default()];
        assert_eq!(excess(&silent, &arm(5, 0, 50), 0.0), None);
    }

    #[test]
    fn no_failure_on_both_sides_gives_the_wilson_bound() {
        // Upper Wilson bound of 0 of 60 at z = 1.645: z²/(n+z²).
        let z2 = Z_ONE_SIDED_95 * Z_ONE_SIDED_95;
        let got = excess(&arm(5, 0, 12), &arm(5, 0, 12), 0.0).unwrap();
        assert!((got.upper - z2 / (60.0 + z2)).abs() < 1e-12, "{got:?}");
    }

    #[test]
    fn boots_that_disagree_weaken_the_bound() {
        let calm = excess(&arm(4, 3, 12), &arm(4, 3, 12), 0.0).unwrap();
        let wild: Vec<Group> = [0, 6, 0, 6].map(|fail| Group { fail, n: 12 }).to_vec();
        let loose = excess(&wild, &arm(4, 3, 12), 0.0).unwrap();
        assert!(loose.upper > calm.upper + 0.02, "{loose:?} {calm:?}");
    }

    #[test]
    fn more_trials_in_the_same_boots_stop_helping() {
        let thousands = excess(&arm(2, 0, 5000), &arm(2, 0, 5000), 0.03).unwrap();
        assert!(thousands.upper > 0.03, "two boots are worth at most 2/rho trials: {thousands:?}");
    }

    /// Share of runs whose bound lies below the true excess, with a boot effect on the logit scale.
    fn missed(on: f64, off: f64, sigma: f64, boots: usize, n: u32) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(9);
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut draw = |logit: f64| -> Vec<Group> {
            (0..boots)
                .map(|_| {
                    let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                    let p = logistic(logit + sigma * normal);
                    Group { fail: (0..n).filter(|_| rng.random_bool(p)).count() as u32, n }
                })
                .collect()
        };
        let mean = |arm: &[Group]| arm.iter().map(|g| g.rate()).sum::<f64>() / arm.len() as f64;
        let truth: f64 = {
            let (a, b): (f64, f64) = (0..400).fold((0.0, 0.0), |(a, b), _| (a + mean(&draw(on)), b + mean(&draw(off))));
            (a - b) / 400.0
        };
        let misses = (0..1000).filter(|_| excess(&draw(on), &draw(off), 0.03).unwrap().upper < truth).count();
        misses as f64 / 1000.0
    }

    #[test]
    fn the_bound_holds_as_often_as_it_claims() {
        for (sigma, boots) in [(0.0, 2), (0.5, 5), (0.5, 3)] {
            let share = missed(-1.0, -2.0, sigma, boots, 24);
            assert!(share <= 0.075, "sigma {sigma}, {boots} boots: missed {share}");
        }
    }
}
