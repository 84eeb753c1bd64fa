//! The operands of a product as tensors.

use super::case::Case;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Kind, Slot, Tensor};

/// Both operands; what comes back of each, and their product.
pub(super) fn task(case: &Case) -> Task {
    let width = case.width;
    let (rows, outputs) = (case.activation.len() / width, case.weight.len() / width);
    let of_row = (width + width / 8 + 64) * 4;
    Task {
        rows,
        inputs: vec![
            Tensor::rows("activation", &[rows, width], &case.activation),
            Tensor::whole("weight", &[outputs, width], &case.weight),
        ],
        outputs: vec![
            Slot::rows("activation_back", &[rows, width]),
            Slot { name: "weight_back", shape: vec![outputs, width], kind: Kind::F32, by_row: false },
            Slot::rows("product", &[rows, outputs]),
        ],
        ints: vec![("width", width), ("outputs", outputs)],
        floats: Vec::new(),
        // Codes, scales and maxima of both operands.
        scratch: Scratch { fixed: outputs * of_row + 4096, row: of_row, row_and_split: 0 },
        unread: 0,
        flops: 2.0 * (rows * outputs * width) as f64,
    }
}
