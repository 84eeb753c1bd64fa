//! A case of the router as tensors.

use super::case::{Case, Selection};
use super::run;
use crate::kernel::candidate::Candidate;
use crate::kernel::microtest::Outcome;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Data, Kind, Slot, Tensor};

/// Tokens, gate, and how experts are chosen; the experts themselves are not given.
pub(super) fn task(case: &Case) -> Task {
    let layer = &*case.layer;
    let (rows, width, experts, active) = (case.tokens(), layer.width, layer.experts, layer.active);
    let (bias, table) = match &case.selection {
        Selection::Biased(bias) => (bias.clone(), vec![-1; rows * active]),
        Selection::Hash(chosen) => (vec![0.0; experts], chosen.iter().flatten().map(|e| *e as i32).collect()),
    };
    Task {
        rows,
        inputs: vec![
            Tensor::rows("inputs", &[rows, width], &case.inputs),
            Tensor::whole("gate", &[experts, width], &layer.gate),
            Tensor::whole("bias", &[experts], &bias),
            Tensor { name: "table", shape: vec![rows, active], data: Data::I32(table), by_row: true },
        ],
        outputs: vec![
            Slot::rows("scores", &[rows, experts]),
            Slot { kind: Kind::I32, ..Slot::rows("chosen", &[rows, active]) },
            Slot::rows("weights", &[rows, active]),
        ],
        ints: vec![("width", width), ("experts", experts), ("active", active)],
        floats: vec![("scaling", layer.scaling as f32)],
        scratch: Scratch { row_and_split: experts * 4, ..Scratch::default() },
        flops: 2.0 * (rows * width * experts) as f64,
    }
}

/// Scores, choice and weights of the kernel; the layer's output is made of them here.
pub(super) fn read(case: &Case, candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
    let active = case.layer.active;
    let (chosen, weights) = (outputs[1].indices(), outputs[2].numbers());
    let chosen = chosen.chunks_exact(active).map(|row| -> Vec<u32> {
        // An index that is no expert is one beyond them all, so that it counts as a wrong choice.
        row.iter().map(|e| u32::try_from(*e).unwrap_or(u32::MAX).min(case.layer.experts as u32 - 1)).collect()
    });
    let weights = weights.chunks_exact(active).map(<[f64]>::to_vec);
    let (chosen, weights): (Vec<_>, Vec<_>) = (chosen.collect(), weights.collect());
    run::finished(case, candidate, outputs[0].numbers(), &chosen, &weights)
}
