//! The microtest of the compressor: one key out of each window of tokens.
//!
//! Responsible for its vocabulary, its inputs as a type and its reference. Not responsible for a
//! candidate's arithmetic (`arithmetic`) nor for where inputs come from (`inputs`).
//!
//! The reference has no rounding point: weights, drawn in f32, and everything after them are exact.
//! What quantising a key costs is part of `decode-attention` and of `indexer`.
//!
//! # What was measured
//!
//! Synthetic inputs, seed 7; relative L2 error of the keys, the largest of eight sequences: 1.8e-3 with
//! everything in f32 and keys stored in bf16, 3.1e-3 with the state in bf16, 3.0e-3 with weights in
//! bf16, 4.1e-3 with all of these and bf16 projections. (A public port says that checkpoints hold both
//! weights in bf16 already, which is unconfirmed; then rounding them loses nothing.)

mod arithmetic;
mod inputs;
#[cfg(test)]
mod tests;

pub use inputs::synthetic;

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::matrix::Matrix;
use crate::kernel::microtest::{Microtest, Outcome, PartValues, SpecInfo};
use crate::kernel::oracle::compressor::{Compressor, OVERLAPPING};
use crate::kernel::specs::activations;

/// Its name, and the vocabulary of its candidates.
pub static INFO: SpecInfo = SpecInfo {
    name: "compressor",
    says: "how far do compressed keys stray when the projections or the state of unfinished windows are narrower",
    parts: &["keys"],
    stored: Rounding::Bf16,
    points: &[
        ("weight", "the weights of both projections"),
        ("projected", "values and gates of a token"),
        ("state", "values, and gates with their place added, as they wait for their window to end"),
        ("probability", "the weight of a token in its window"),
        ("mean", "the weighted mean of a window"),
        ("normed", "that mean after its norm"),
        ("key", "the key after its rotation"),
    ],
    choices: &[],
    faults: &[
        ("window-shifted", "windows begin one token late"),
        ("ape-forgotten", "gates do not know their place in the window"),
        ("incomplete-window", "the tokens after the last complete window make a key"),
        ("halves-exchanged", "the window before gives the second half of its inputs and the window itself the first"),
        ("rope-at-window-end", "a key is rotated to the last token of its window"),
    ],
    candidates: include_str!("../../../../kernels/candidates/compressor.toml"),
    does_not_show: "how the state of unfinished windows is kept between steps, moved between servers or dropped, nor \
                    what quantising the keys adds",
};

/// The microtest `compressor`.
#[derive(Clone, Copy, Debug)]
pub struct CompressorTest;

/// One sequence through one compressor.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What the compressor is.
    pub compressor: Compressor,
    /// Projection to values, `[inputs, width]`.
    pub values: Vec<f64>,
    /// Projection to gates, `[inputs, width]`.
    pub gates: Vec<f64>,
    /// Tokens, `[tokens, width]`.
    pub x: Vec<f64>,
    /// Width of a token.
    pub width: usize,
}

impl Case {
    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.x.len() / self.width
    }

    /// Windows, the unfinished one among them.
    pub fn windows(&self) -> usize {
        self.tokens().div_ceil(self.compressor.ratio)
    }
}

/// Keys of all windows; that of an unfinished window, which must not be there, is zero.
fn outcome(case: &Case, mut keys: Vec<f64>) -> Outcome {
    let columns = case.compressor.dim;
    keys.resize(case.windows() * columns, 0.0);
    Outcome { parts: vec![PartValues { name: "keys", columns, values: keys }], sets: None }
}

/// Whether a fault can show in a case: only overlapping windows have halves, and only a length that
/// is no multiple of the ratio leaves a window unfinished.
pub fn applies(case: &Case, candidate: &Candidate) -> bool {
    match candidate.fault.as_deref() {
        Some("halves-exchanged") => case.compressor.ratio == OVERLAPPING,
        Some("incomplete-window") => !case.tokens().is_multiple_of(case.compressor.ratio),
        _ => true,
    }
}

impl Microtest for CompressorTest {
    type Case = Case;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &Case) -> Outcome {
        let project = |weights: &[f64]| Matrix::pack(weights, case.compressor.inputs(), case.width).times(&case.x);
        outcome(case, case.compressor.compress(&project(&case.values), &project(&case.gates)))
    }

    fn run(&self, case: &Case, candidate: &Candidate) -> Outcome {
        arithmetic::run(case, candidate)
    }

    fn applies(&self, case: &Case, candidate: &Candidate) -> bool {
        applies(case, candidate)
    }

    fn flipped(&self, case: &Case, seed: u64) -> Case {
        Case { x: activations::moved(&case.x, &mut activations::dice(seed, 0)), ..case.clone() }
    }
}
