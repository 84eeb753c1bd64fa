//! Trials counted by form, length, depth and factors. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::recall::trial::{FailKind, Outcome, ProbeForm, Trial};
use crate::stats::interval::{self, Z_TWO_SIDED_95};

/// Which cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// How the fact is planted and asked for.
    pub form: ProbeForm,
    /// Prompt length aimed at, in server tokens.
    pub length: u32,
    /// Depth of the fact in thousandths.
    pub depth_permille: u32,
    /// Level for each factor.
    pub factors: BTreeMap<String, String>,
}

/// What was counted in a cell, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Failed trials.
    pub fail: u32,
    /// Trials that count: passes and fails.
    pub n: u32,
    /// Void trials, which are in neither.
    pub void: u32,
}

impl Counts {
    /// Counts one more outcome.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Pass => self.n += 1,
            Outcome::Fail { .. } => {
                self.n += 1;
                self.fail += 1;
            }
            Outcome::Void { .. } => self.void += 1,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { fail: self.fail + other.fail, n: self.n + other.n, void: self.void + other.void }
    }

    /// Share of failures; `None` without a trial that counts.
    pub fn rate(self) -> Option<f64> {
        (self.n > 0).then(|| f64::from(self.fail) / f64::from(self.n))
    }

    /// 95 % Wilson interval of the failure rate; `None` without a trial that counts.
    pub fn interval(self) -> Option<(f64, f64)> {
        wilson(self.fail, self.n)
    }
}

/// All cells in which something was tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Cell to counts.
    pub cells: BTreeMap<CellKey, Counts>,
    /// Cell to failed trials of each kind; a cell without failures is absent.
    pub kinds: BTreeMap<CellKey, BTreeMap<FailKind, u32>>,
}

impl Matrix {
    /// Lengths that occur, ascending.
    pub fn lengths(&self) -> Vec<u32> {
        self.distinct(|k| k.length)
    }

    /// Depths that occur, ascending, in thousandths.
    pub fn depths(&self) -> Vec<u32> {
        self.distinct(|k| k.depth_permille)
    }

    /// Forms that occur.
    pub fn forms(&self) -> Vec<ProbeForm> {
        self.distinct(|k| k.form)
    }

    /// Combinations of factor levels that occur.
    pub fn factors(&self) -> Vec<BTreeMap<String, String>> {
        self.distinct(|k| k.factors.clone())
    }

    /// Counts of all cells for which `which` holds.
    pub fn sum(&self, which: impl Fn(&CellKey) -> bool) -> Counts {
        self.cells.iter().filter(|(k, _)| which(k)).fold(Counts::default(), |sum, (_, c)| sum.plus(*c))
    }

    /// Counts of a length and depth, over all forms and factors.
    pub fn at(&self, length: u32, depth_permille: u32) -> Counts {
        self.sum(|k| k.length == length && k.depth_permille == depth_permille)
    }

    fn distinct<T: Ord>(&self, of: impl Fn(&CellKey) -> T) -> Vec<T> {
        self.cells.keys().map(of).collect::<BTreeSet<T>>().into_iter().collect()
    }
}

/// Counts trials into cells.
pub fn matrix<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Matrix {
    let mut out = Matrix::default();
    for trial in trials {
        let key = CellKey {
            form: trial.key.form,
            length: trial.key.length,
            depth_permille: depth_permille(trial.key.depth),
            factors: trial.factors.clone(),
        };
        if let Outcome::Fail { how } = trial.outcome {
            *out.kinds.entry(key.clone()).or_default().entry(how).or_default() += 1;
        }
        out.cells.entry(key).or_default().add(&trial.outcome);
    }
    out
}

/// A depth as it stands in a cell.
pub fn depth_permille(depth: f64) -> u32 {
    (depth.clamp(0.0, 1.0) * 1000.0).round() as u32
}

/// 95 % Wilson score interval of `fail` out of `n`, see [`interval::wilson`]; `None` if `n` is 0.
pub fn wilson(fail: u32, n: u32) -> Option<(f64, f64)> {
    let found = interval::wilson(f64::from(fail.min(n)), f64::from(n), Z_TWO_SIDED_95);
    (n > 0).then_some((found.lower, found.upper))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::engine::ids::TrialId;
    use crate::recall::trial::{FailKind, TrialKey};
    use proptest::prelude::*;

    /// A trial with this outcome, for the tests of the modules that count.
    pub(in crate::recall) fn trial(form: ProbeForm, length: u32, depth: f64, outcome: Outcome) -> Trial {
        Trial {
            id: TrialId(0),
            at: jiff::Timestamp::UNIX_EPOCH,
            boots: Vec::new(),
            arm: BTreeMap::new(),
            factors: BTreeMap::from([("cache".into(), "cold".into())]),
            key: TrialKey { form, length, depth, seed: 1 },
            prompt_tokens: Some(length),
            cached_tokens: Some(0),
            outcome,
            expected: "QX741B".into(),
            got: "".into(),
            first_wrong: None,
            seconds: 1.0,
            transcript: None,
        }
    }

    fn fail() -> Outcome {
        Outcome::Fail { how: FailKind::Wrong }
    }

    fn void() -> Outcome {
        Outcome::Void { why: "http error 503".into() }
    }

    #[test]
    fn passes_fails_and_voids_are_kept_apart() {
        let trials = [
            trial(ProbeForm::Needle, 1024, 0.1, Outcome::Pass),
            trial(ProbeForm::Needle, 1024, 0.1, fail()),
            trial(ProbeForm::Needle, 1024, 0.1, void()),
            trial(ProbeForm::MultiTurn, 1024, 0.1, fail()),
            trial(ProbeForm::Needle, 2048, 0.5, Outcome::Pass),
        ];
        let m = matrix(&trials);
        assert_eq!(m.at(1024, 100), Counts { fail: 2, n: 3, void: 1 });
        assert_eq!(m.sum(|k| k.form == ProbeForm::Needle && k.length == 1024), Counts { fail: 1, n: 2, void: 1 });
        assert_eq!(m.at(2048, 500), Counts { fail: 0, n: 1, void: 0 });
        assert_eq!(m.at(4096, 500), Counts::default());
        assert_eq!((m.lengths(), m.depths()), (vec![1024, 2048], vec![100, 500]));
        assert_eq!((m.forms().len(), m.factors().len()), (2, 1));
    }

    #[test]
    fn a_cell_of_voids_has_no_rate() {
        let m = matrix(&[trial(ProbeForm::Needle, 1024, 0.1, void())]);
        assert_eq!(m.at(1024, 100).rate(), None);
        assert_eq!(m.at(1024, 100).interval(), None);
    }

    #[test]
    fn factor_levels_have_cells_of_their_own() {
        let cold = trial(ProbeForm::Needle, 1024, 0.1, fail());
        let warm = Trial { factors: BTreeMap::from([("cache".into(), "warm".into())]), ..cold.clone() };
        assert_eq!(matrix(&[cold, warm]).cells.len(), 2);
    }

    fn check_wilson(fail: u32, n: u32, low: f64, high: f64) {
        let (a, b) = wilson(fail, n).unwrap();
        assert!((a - low).abs() < 5e-3 && (b - high).abs() < 5e-3, "{fail}/{n}: [{a:.4}, {b:.4}]");
    }

    #[test]
    fn wilson_gives_the_published_values() {
        check_wilson(20, 20, 0.84, 1.0);
        check_wilson(4, 15, 0.11, 0.52);
        check_wilson(0, 10, 0.0, 0.2775);
        check_wilson(5, 10, 0.2366, 0.7634);
        assert_eq!(wilson(0, 0), None);
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_rate_and_mirrors(fail in 0_u32..200, more in 0_u32..200) {
            let n = fail + more + 1;
            let (low, high) = wilson(fail, n).unwrap();
            let p = f64::from(fail) / f64::from(n);
            prop_assert!(0.0 <= low && low <= p + 1e-12 && p <= high + 1e-12 && high <= 1.0);
            let (mirrored_low, mirrored_high) = wilson(n - fail, n).unwrap();
            prop_assert!((mirrored_low - (1.0 - high)).abs() < 1e-9 && (mirrored_high - (1.0 - low)).abs() < 1e-9);
        }
    }
}
