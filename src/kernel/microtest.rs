//! What a microtest is: a reference, a candidate's arithmetic, and inputs, point by point.
//!
//! Responsible for the interface between the specs and what measures and judges them. Not
//! responsible for any arithmetic.

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::task::Task;
use crate::kernel::tensors::Tensor;

/// A microtest that can be run, with the vocabulary of its candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecInfo {
    /// Name, such as `mhc-mix`.
    pub name: &'static str,
    /// What it asks, in one line.
    pub says: &'static str,
    /// The parts that are compared, the main one last.
    pub parts: &'static [&'static str],
    /// What the main part is stored in by a right implementation.
    pub stored: Rounding,
    /// Rounding points with what is rounded there, in the order of the arithmetic.
    pub points: &'static [(&'static str, &'static str)],
    /// Variants that are no rounding, with their values; the first value is what is not named.
    pub choices: &'static [(&'static str, &'static [&'static str])],
    /// What can be wrong on purpose, and what it means.
    pub faults: &'static [(&'static str, &'static str)],
    /// Its candidates and known-bad twins as TOML.
    pub candidates: &'static str,
    /// What its numbers cannot show, in one sentence that goes on from "it does not show".
    pub does_not_show: &'static str,
}

/// The inputs of all points of a curve.
#[derive(Clone, Debug)]
pub struct Cases<C> {
    /// What each point is, such as `layer 2, 1024 keys`.
    pub labels: Vec<String>,
    /// Its inputs.
    pub cases: Vec<C>,
    /// Shapes in the spec's own words.
    pub shape: String,
    /// Where weights and activations came from, in one sentence.
    pub provenance: String,
}

/// What one arithmetic made of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its parts, in the order of the spec.
    pub parts: Vec<PartValues>,
    /// The sets that it kept, if the kernel chooses.
    pub sets: Option<KeptSets>,
}

/// The values of one part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartValues {
    /// Name of the part.
    pub name: &'static str,
    /// Values in a row, such as those of one token.
    pub columns: usize,
    /// `[rows, columns]` in C order.
    pub values: Vec<f64>,
}

/// Sets that a kernel kept, one a row.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSets {
    /// What is kept, such as `keys` or `experts`.
    pub kind: &'static str,
    /// The rows.
    pub rows: Vec<KeptRow>,
}

/// What one row kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRow {
    /// Indices that were kept, ascending.
    pub kept: Vec<u32>,
    /// The scores of all indices.
    pub scores: Vec<f64>,
    /// An index that must be kept.
    pub planted: Option<u32>,
}

/// A microtest.
pub trait Microtest: Sync {
    /// The inputs of one point of a curve.
    type Case: Sync + Send;

    /// Its name and vocabulary.
    fn spec(&self) -> &'static SpecInfo;

    /// The reference in f64.
    fn reference(&self, case: &Self::Case) -> Outcome;

    /// A candidate's arithmetic; without rounding and fault it is the reference up to 1e-12.
    fn run(&self, case: &Self::Case, candidate: &Candidate) -> Outcome;

    /// Whether a fault can show in a case: what a model does not have cannot be wrong in it.
    fn applies(&self, _case: &Self::Case, _candidate: &Candidate) -> bool {
        true
    }

    /// The case as tensors, for kernels on a card and for commands; `None` where it has no such form.
    fn task(&self, _case: &Self::Case) -> Option<Task> {
        None
    }

    /// What the outputs of that task mean, in its order.
    fn read(&self, case: &Self::Case, candidate: &Candidate, _outputs: &[Tensor]) -> Outcome {
        self.run(case, candidate)
    }

    /// The same inputs with one activation in eight moved by one unit in the last place of bf16.
    fn flipped(&self, case: &Self::Case, seed: u64) -> Self::Case;
}
