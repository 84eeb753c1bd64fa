//! A case of the indexer as tensors.

use super::{Case, PAGE, outcome};
use crate::kernel::microtest::{KeptRow, Outcome};
use crate::kernel::oracle::indexer;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Data, Kind, Slot, Tensor};

/// Queries and keys, rotated and not quantised, and the cache where the model has one.
pub(super) fn task(case: &Case) -> Task {
    let (rows, heads, dim, count) = (case.rows.len(), case.heads, case.dim, case.count());
    let queries: Vec<f64> = case.rows.iter().flat_map(|row| case.queries(row)).collect();
    let weights: Vec<f64> = case.rows.iter().flat_map(|row| row.weights.iter().copied()).collect();
    let keys: Vec<f64> = (0..count).flat_map(|index| case.key(index)).collect();
    let (bytes, table) = case.pages.as_ref().map_or_else(Default::default, |p| (p.bytes.clone(), p.table.clone()));
    let visible: Vec<i32> = case.rows.iter().map(|row| row.visible as i32).collect();
    let seen: usize = case.rows.iter().map(|row| row.visible).sum();
    Task {
        rows,
        inputs: vec![
            Tensor::rows("queries", &[rows, heads, dim], &queries),
            Tensor::rows("weights", &[rows, heads], &weights),
            Tensor::whole("keys", &[count, dim], &keys),
            Tensor::of_bytes("pages", bytes),
            Tensor::of_indices("table", &table),
            Tensor { name: "visible", shape: vec![rows], data: Data::I32(visible), by_row: true },
        ],
        outputs: vec![
            Slot::rows("scores", &[rows, count]),
            Slot { kind: Kind::I32, ..Slot::rows("kept", &[rows, case.keep]) },
        ],
        ints: vec![
            ("heads", heads),
            ("dim", dim),
            ("count", count),
            ("keep", case.keep),
            ("page", PAGE),
            ("paged", usize::from(case.pages.is_some())),
        ],
        floats: vec![("factor", indexer::factor(heads, dim) as f32)],
        // Quantised queries and their scales.
        scratch: Scratch { fixed: 256, row: heads * (dim + 8) * 4, row_and_split: 0 },
        // The keys are given twice, and a kernel reads them where the model has them.
        unread: if case.pages.is_some() { 4 * count * dim } else { 0 },
        flops: 2.0 * (seen * heads * dim) as f64,
    }
}

/// Scores of the keys that a row may see, and what it keeps.
pub(super) fn read(case: &Case, outputs: &[Tensor]) -> Outcome {
    let (scores, kept) = (outputs[0].numbers(), outputs[1].indices());
    let rows = case.rows.iter().enumerate().map(|(at, row)| {
        let mut kept: Vec<u32> =
            kept[at * case.keep..][..case.keep].iter().filter_map(|index| u32::try_from(*index).ok()).collect();
        kept.sort_unstable();
        KeptRow { kept, scores: scores[at * case.count()..][..row.visible].to_vec(), planted: row.planted }
    });
    outcome(case, rows.collect())
}
