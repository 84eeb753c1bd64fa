//! Block formats of activations and weights, and a product of what they leave.
//!
//! Responsible for the microtest `quantise`: what each format costs by its own rule, and faulty
//! readers of its codes and scales. Not responsible for the formats, which are
//! [`crate::kernel::format`], nor for how bytes are packed.
//!
//! **Parts.** `activation` and `weight` as they come back; their `product`. The reference does not
//! quantise, so that a good candidate's error is the cost of its format.
//!
//! **Faults** are made of a right writer and a wrong reader, or the other way round, by the oracle's
//! loops; they apply to each operand whose format has what they spoil, such as nibbles or a second
//! scale.
//!
//! There are no cases of the lab model: its matrices are one block of 128 by 128 each, so that no
//! fault of the layout could show.
//!
//! **What was measured** (4,096 and 2,048 wide, seed 1; relative errors): e4m3 costs activations 0.011
//! to 0.022 and weights 0.026 to 0.029, a product of both 0.029 to 0.036, and about 0.035 with
//! power-of-two scales. e2m1 weights cost 0.12 as MXFP4 and 0.095 as NVFP4, a product with both
//! operands so 0.18 and 0.12 to 0.13. Weights that are on the MXFP4 grid already cost nothing as
//! MXFP4, nothing as NVFP4 with copied scales, and 0.063 as NVFP4 quantised afresh. A scale rounded
//! up late is an error of 0.40 to 0.53 in the activations, 16 to 20 times the format's own.

mod case;
mod run;
mod task;

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{Microtest, Outcome, SpecInfo};
use crate::kernel::task::Task;
use crate::kernel::tensors::Tensor;

pub use case::{Case, RECORDED, recorded, synthetic};

/// The name of the test and the vocabulary of its candidates.
pub static INFO: SpecInfo = SpecInfo {
    name: "quantise",
    says: "what block formats of activations and weights cost, and whether codes meet their own scales",
    parts: &["activation", "weight", "product"],
    stored: Rounding::Bf16,
    points: &[("activation", "the inputs of the product"), ("weight", "its weights"), ("output", "the product")],
    choices: &[],
    faults: &[
        ("late-scale", "a power-of-two scale is rounded up after the values were divided by the exact one"),
        ("neighbour-scale", "each block is read with the scale of the next one in its row"),
        ("nibbles-swapped", "of two 4-bit values in a byte the high one is read first"),
        ("e4m3-as-e5m2", "e4m3 codes are read as e5m2"),
        ("second-scale-forgotten", "the scale of the whole tensor is forgotten"),
        ("grid-transposed", "the scales of square blocks are read down the columns"),
    ],
    candidates: include_str!("../../../../kernels/candidates/quantise.toml"),
    does_not_show: "whether the server's checkpoint holds these codes, nor how its kernels unpack them",
};

/// The microtest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantise;

impl Microtest for Quantise {
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

    fn applies(&self, case: &Case, candidate: &Candidate) -> bool {
        match candidate.fault.as_deref() {
            Some("neighbour-scale") => case.has_uneven_blocks(),
            Some("grid-transposed") => case.has_a_grid(),
            _ => true,
        }
    }

    fn task(&self, case: &Case) -> Option<Task> {
        Some(task::task(case))
    }

    fn read(&self, case: &Case, _candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
        let numbers = |at: usize| outputs[at].numbers();
        run::outcome(case, numbers(0), numbers(1), numbers(2))
    }

    fn flipped(&self, case: &Case, seed: u64) -> Case {
        case.flipped(seed)
    }
}

#[cfg(test)]
mod tests;
