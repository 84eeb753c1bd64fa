//! What the tests of several microtests ask of candidates and twins.

use crate::kernel::candidate::Candidate;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::measure::rel_l2;
use crate::kernel::microtest::{Cases, Microtest, Outcome};

/// Cases with their references.
pub(super) struct Prepared<M: Microtest> {
    test: M,
    pub cases: Cases<M::Case>,
    pub references: Vec<Outcome>,
}

impl<M: Microtest> Prepared<M> {
    pub(super) fn new(test: M, cases: Cases<M::Case>) -> Self {
        let references = cases.cases.iter().map(|case| test.reference(case)).collect();
        Self { test, cases, references }
    }

    /// Relative error of each part at one case; infinite where a value is not a number or infinite.
    pub(super) fn at(&self, case: usize, candidate: &Candidate) -> Vec<f64> {
        of_outcomes(&self.test.run(&self.cases.cases[case], candidate), &self.references[case])
    }

    /// The error of the main part, the largest of all cases.
    pub(super) fn worst(&self, candidate: &Candidate) -> f64 {
        (0..self.references.len()).map(|case| self.main(case, candidate)).fold(0.0, f64::max)
    }

    /// The error of the main part at one case.
    pub(super) fn main(&self, case: usize, candidate: &Candidate) -> f64 {
        self.at(case, candidate).pop().unwrap()
    }

    /// How far the candidate strays at a case beyond what its rounding points and its sums do alone:
    /// the error over the root of the sum of their squared errors, the largest of all parts.
    pub(super) fn beyond_its_points(&self, case: usize, candidate: &Candidate) -> f64 {
        let mut alone: Vec<Candidate> = candidate.round.keys().map(|point| candidate.only(point)).collect();
        if candidate.accumulate.dtype != Rounding::Exact {
            alone.push(candidate.only_sums());
        }
        let alone: Vec<Vec<f64>> = alone.iter().map(|c| self.at(case, c)).collect();
        let explained = |part: usize| alone.iter().map(|a| a[part] * a[part]).sum::<f64>().sqrt() + 1e-10;
        self.at(case, candidate).iter().enumerate().map(|(part, error)| error / explained(part)).fold(0.0, f64::max)
    }
}

/// Relative error of each part.
pub(super) fn of_outcomes(got: &Outcome, right: &Outcome) -> Vec<f64> {
    let parts = got.parts.iter().zip(&right.parts);
    parts.map(|(got, right)| rel_l2(&got.values, &right.values).unwrap_or(f64::INFINITY)).collect()
}

/// The candidate of a name.
pub(super) fn named(candidates: &[Candidate], name: &str) -> Candidate {
    candidates.iter().find(|c| c.name == name).cloned().unwrap()
}

/// Candidates without and with a fault.
pub(super) fn good_and_bad(candidates: Vec<Candidate>) -> (Vec<Candidate>, Vec<Candidate>) {
    candidates.into_iter().partition(|c| c.fault.is_none())
}

/// A candidate that does one thing at one point, and is exact else.
pub(super) fn one_point(spec: &str, point: &str, rounding: Rounding) -> Candidate {
    let mut candidate = Candidate::exact(spec);
    candidate.round.insert(point.into(), Storage::Element(rounding));
    candidate
}

/// That every fault of the vocabulary has a twin of its name, and the other way round.
pub(super) fn twins_are_the_vocabulary<M: Microtest>(test: &M, twins: &[Candidate]) {
    let mut faults: Vec<&str> = test.spec().faults.iter().map(|(name, _)| *name).collect();
    let mut there: Vec<&str> = twins.iter().filter_map(|t| t.fault.as_deref()).collect();
    faults.sort_unstable();
    there.sort_unstable();
    assert_eq!(there, faults);
    assert!(twins.iter().all(|t| t.fault.as_deref() == Some(t.name.as_str()) && t.round.is_empty()));
}

/// Ids of a long prompt of the lab model in which facts are told and asked.
pub(super) fn lab_ids(tokens: usize) -> Vec<u16> {
    let words = "river stone door blue 41 kernel token garden seven ".repeat(tokens / 50 + 1);
    let bytes = words.bytes().map(u16::from);
    [256, 258].into_iter().chain(bytes).take(tokens).collect()
}
