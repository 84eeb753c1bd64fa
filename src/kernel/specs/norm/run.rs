//! The norm's arithmetic: the reference, and a candidate's.

use super::case::{Case, Rows};
use crate::kernel::candidate::Candidate;
use crate::kernel::microtest::{Outcome, PartValues};
use crate::kernel::oracle::{EPS, inverse_rms, rms};

/// The reference, by the oracle's functions alone.
pub(super) fn reference(case: &Case) -> Outcome {
    let roots = case.inputs.chunks_exact(case.width).map(inverse_rms).collect();
    outcome(case, roots, rms(&case.inputs, &case.weight))
}

/// A candidate's arithmetic.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let width = case.width;
    let store = |point: &str, values: &[f64], columns: usize| candidate.at(point).store(values, columns);
    let inputs = store("input", &case.inputs, width);
    let squares = store("squares", &inputs.iter().map(|x| x * x).collect::<Vec<_>>(), width);
    let sums: Vec<f64> = squares.chunks_exact(width).map(|row| candidate.accumulate.sum(row)).collect();
    let sums = store("sum", &sums, 1);
    let (sums, divisor) = match (candidate.has_fault("wrong-width"), case.rows) {
        (true, Rows::Heads(heads)) if heads > 1 => (sums_of_tokens(&sums, heads), heads * width),
        (true, _) => (sums, 2 * width),
        (false, _) => (sums, width),
    };
    let root = |sum: &f64| {
        let mean = sum / divisor as f64;
        if candidate.has_fault("eps-outside") { 1.0 / (mean.sqrt() + EPS) } else { 1.0 / (mean + EPS).sqrt() }
    };
    let roots = store("inverse-root", &sums.iter().map(root).collect::<Vec<_>>(), 1);
    let normed: Vec<f64> =
        inputs.chunks_exact(width).zip(&roots).flat_map(|(row, root)| row.iter().map(move |x| x * root)).collect();
    let normed = store("normed", &normed, width);
    let weight = store("weight", &case.weight, width);
    let factor = |w: f64| match candidate.fault.as_deref() {
        Some("weight-forgotten") => 1.0,
        Some("one-plus-weight") => 1.0 + w,
        _ => w,
    };
    let weighted = normed.chunks_exact(width).flat_map(|row| row.iter().zip(&weight).map(|(x, w)| x * factor(*w)));
    let output = store("output", &weighted.collect::<Vec<_>>(), width);
    outcome(case, roots, output)
}

/// For every head the sum over all heads of its token.
fn sums_of_tokens(sums: &[f64], heads: usize) -> Vec<f64> {
    sums.chunks_exact(heads).flat_map(|token| vec![token.iter().sum(); heads]).collect()
}

pub(super) fn outcome(case: &Case, roots: Vec<f64>, output: Vec<f64>) -> Outcome {
    let parts = vec![
        PartValues { name: "inverse-root", columns: 1, values: roots },
        PartValues { name: "output", columns: case.width, values: output },
    ];
    Outcome { parts, sets: None }
}
