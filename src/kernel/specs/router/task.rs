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
        unread: 0,
        flops: 2.0 * (rows * width * experts) as f64,
    }
}

/// Scores, choice and weights of the kernel; the layer's output is made of them here.
pub(super) fn read(case: &Case, candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
    let active = case.layer.active;
    let (chosen, weights) = (outputs[1].indices(), outputs[2].numbers());
    let experts = case.layer.experts as i32;
    let rows = chosen.chunks_exact(active).zip(weights.chunks_exact(active)).map(|(chosen, weights)| {
        if chosen.iter().all(|e| (0..experts).contains(e)) {
            return (chosen.iter().map(|e| *e as u32).collect(), weights.to_vec());
        }
        // What names an expert that there is not is no number, whichever experts stand in for it.
        ((0..active as u32).collect(), vec![f64::NAN; active])
    });
    let (chosen, weights): (Vec<Vec<u32>>, Vec<Vec<f64>>) = rows.unzip();
    run::finished(case, candidate, outputs[0].numbers(), &chosen, &weights)
}
