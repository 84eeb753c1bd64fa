//! A case of the decode attention as tensors.

use super::{Cache, Case, outcome};
use crate::kernel::candidate::Candidate;
use crate::kernel::microtest::Outcome;
use crate::kernel::oracle::rotary::Turn;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Data, Slot, Tensor};

/// Queries as the model rounds them, the cache as it lies in memory, and what each query sees.
pub(super) fn task(case: &Case) -> Task {
    let (rows, heads, width, entries) = (case.rows.len(), case.sinks.len(), case.width(), case.entries());
    let queries: Vec<f64> = case.rows.iter().flat_map(|row| case.own_queries(row)).collect();
    let most = case.rows.iter().map(|row| row.seen.len()).max().unwrap_or(0);
    let seen = case.rows.iter().flat_map(|row| {
        let padding = std::iter::repeat_n(-1, most - row.seen.len());
        row.seen.iter().map(|entry| *entry as i32).chain(padding)
    });
    let (keys, values, pages, table) = match &case.cache {
        Cache::Plain { keys, values, .. } => (keys.clone(), values.clone(), Vec::new(), Vec::new()),
        Cache::Latent { pages, .. } => (Vec::new(), Vec::new(), pages.bytes.clone(), pages.table.clone()),
    };
    let (plain, rotated, block, page) = match &case.cache {
        Cache::Plain { width, .. } => (*width, 0, 1, 1),
        Cache::Latent { layout, .. } => (layout.plain, layout.rotated, layout.block, layout.tokens),
    };
    let paged = usize::from(matches!(case.cache, Cache::Latent { .. }));
    let distinct: std::collections::BTreeSet<usize> =
        case.rows.iter().flat_map(|row| row.seen.iter().copied()).collect();
    let unseen = entries - distinct.len();
    let entry_bytes = match &case.cache {
        Cache::Plain { width, .. } => 2 * 4 * width,
        Cache::Latent { layout, .. } => layout.page().data + layout.page().scale,
    };
    let products: usize = case.rows.iter().map(|row| row.seen.len() * heads * width).sum();
    Task {
        rows,
        inputs: vec![
            Tensor::rows("queries", &[rows, heads, width], &queries),
            Tensor::whole("keys", &[keys.len() / width, width], &keys),
            Tensor::whole("values", &[values.len() / width, width], &values),
            Tensor::of_bytes("pages", pages),
            Tensor::of_indices("table", &table),
            Tensor { name: "seen", shape: vec![rows, most], data: Data::I32(seen.collect()), by_row: true },
            Tensor::whole("sinks", &[heads], &case.sinks),
        ],
        outputs: vec![Slot::rows("lse", &[rows, heads]), Slot::rows("output", &[rows, heads, width])],
        ints: vec![
            ("heads", heads),
            ("width", width),
            ("entries", entries),
            ("most", most),
            ("plain", plain),
            ("rotated", rotated),
            ("block", block),
            ("page", page),
            ("paged", paged),
        ],
        floats: vec![("scale", case.scale as f32)],
        // The output of each split of the keys, and what it is merged by.
        scratch: Scratch { row_and_split: heads * (width + 8) * 4, ..Scratch::default() },
        unread: unseen * entry_bytes,
        flops: 4.0 * products as f64,
    }
}

/// The outputs, rotated back by the oracle: a kernel ends before that.
pub(super) fn read(case: &Case, candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
    let mut output = outputs[1].numbers();
    if let Cache::Latent { rotary, .. } = &case.cache
        && !candidate.has_fault("rope-not-back")
    {
        let heads = case.sinks.len();
        for (at, head) in output.chunks_exact_mut(case.width()).enumerate() {
            rotary.turn(head, case.rows[at / heads].position, Turn::Back);
        }
    }
    outcome(case, outputs[0].numbers(), output)
}
