//! Root-mean-square norms: of the streams' width, of low-rank queries, and of each query head.
//!
//! Responsible for the microtest `norm`. Not responsible for the norm inside the hyper-connections,
//! which has no weight and divides a product.
//!
//! **Parts.** `inverse-root`, `1 / sqrt(mean(x^2) + eps)`, one a row; `output`, the row times it
//! times the weight.
//!
//! **Quiet rows.** eps is 1e-6: under the root it is half of what is there when a row's root mean
//! square is 1e-3, and beyond f32's sight when that is 1. Where eps stands is therefore only
//! visible on quiet rows, and one point of every curve has them.
//!
//! **What was measured** (sizes of Flash, seed 1): an eps outside the root errs by 5e-7 or less on
//! rows of ordinary size, within f32's own error, and by 0.9 on quiet rows (0.4 on the lab's, which
//! have no outliers). A sum of squares rounded to bf16 adds 0.9e-3 to each row, as one factor, which
//! beside the output's own rounding (1.7e-3) is little; squares *added* in bf16 one after another
//! stop growing and are another function.

mod case;
mod run;

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{Microtest, Outcome, SpecInfo};
use crate::kernel::oracle::EPS;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Slot, Tensor};

pub use case::{Case, RECORDED, Rows, lab, recorded, recorded_in_lab, synthetic};

/// The name of the test and the vocabulary of its candidates.
pub static INFO: SpecInfo = SpecInfo {
    name: "norm",
    says: "root-mean-square norms of rows and of query heads: where they round, and where eps stands",
    parts: &["inverse-root", "output"],
    stored: Rounding::Bf16,
    points: &[
        ("input", "the values of a row"),
        ("squares", "the square of each value"),
        ("sum", "the sum of the squares"),
        ("inverse-root", "the number that a row is multiplied by"),
        ("normed", "the normed row before its weight"),
        ("weight", "the weight of the norm"),
        ("output", "the normed and weighted row"),
    ],
    choices: &[],
    faults: &[
        ("eps-outside", "eps is added to the root, not under it"),
        ("wrong-width", "the sum is divided by another width: of a head by the token's, of a row by twice its own"),
        ("weight-forgotten", "the weight is forgotten"),
        ("one-plus-weight", "the weight is taken as a deviation from 1"),
    ],
    candidates: include_str!("../../../../kernels/candidates/norm.toml"),
    does_not_show: "how a norm that is fused with its neighbours is cut, nor which norm the server calls",
};

/// The microtest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Norm;

impl Microtest for Norm {
    type Case = Case;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &Case) -> Outcome {
        run::reference(case)
    }

    fn run(&self, case: &Case, candidate: &Candidate) -> Outcome {
        run::run(case, candidate)
    }

    fn task(&self, case: &Case) -> Option<Task> {
        let (rows, width) = (case.inputs.len() / case.width, case.width);
        Some(Task {
            rows,
            inputs: vec![
                Tensor::rows("input", &[rows, width], &case.inputs),
                Tensor::whole("weight", &[width], &case.weight),
            ],
            outputs: vec![Slot::rows("inverse_root", &[rows]), Slot::rows("output", &[rows, width])],
            ints: vec![("width", width)],
            floats: vec![("eps", EPS as f32)],
            scratch: Scratch { fixed: 16, ..Scratch::default() },
            unread: 0,
            flops: 4.0 * (rows * width) as f64,
        })
    }

    fn read(&self, case: &Case, _candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
        run::outcome(case, outputs[0].numbers(), outputs[1].numbers())
    }

    fn applies(&self, case: &Case, candidate: &Candidate) -> bool {
        !candidate.has_fault("weight-forgotten") || case.weight.iter().any(|w| *w != 1.0)
    }

    fn flipped(&self, case: &Case, seed: u64) -> Case {
        case.flipped(seed)
    }
}

#[cfg(test)]
mod tests;
