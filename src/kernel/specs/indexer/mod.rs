//! The microtest of the sparse indexer: which compressed keys does a query keep.
//!
//! Responsible for its vocabulary, its inputs as a type and its reference. Not responsible for a
//! candidate's arithmetic (`arithmetic`) nor for where inputs come from (`inputs`).
//!
//! The reference has the model's own rounding points and no others. For DeepSeek-V4 these are the
//! queries and keys in fp8, one f32 scale for each token (and head) over 128 values, which is what
//! `SGLang` feeds its kernels with; keys lie in their pages, and the reference decodes those bytes.
//! Everything after that is exact. The lab model quantises nothing, and neither does its reference.
//!
//! # What was measured
//!
//! Synthetic inputs of the published Flash size, seed 7: 64 heads of 128, top 512 of 600 to 4,096
//! keys, 7 queries, against the fp8 reference. The error is that of the scores, the largest of four
//! lengths; overlap is the share of the reference's keys that are kept; the last column is how far
//! above the first dropped key a key lay that was lost, at most, in standard deviations of the scores.
//! The margin between ranks 512 and 513 is 0.001 of these in the median. All planted keys, 1 standard
//! deviation above, are kept by all of them.
//!
//! | candidate | rel. L2 | overlap | widest lost margin |
//! |---|---|---|---|
//! | fp8, f32 sums | 1.4e-7 | 100 % | - |
//! | products of heads in bf16 | 1.2e-3 | 99.7 % | 0.01 |
//! | everything after the operands in bf16, scores too | 3.0e-3 | 99.3 % | 0.03 |
//! | operands in bf16 instead of fp8 | 2.5e-2 | 95.8 % | 0.25 |
//! | nothing quantised | 2.5e-2 | 95.9 % | 0.25 |
//! | operands in fp4 instead of fp8 | 1.2e-1 | 83.2 % | 1.4 |
//!
//! So bf16 scores, for which the incident states 2.3e-3, move an eighth of what fp8 operands move, and
//! lose only keys at the very edge.

mod arithmetic;
mod inputs;
mod task;
#[cfg(test)]
mod tests;

pub(super) use inputs::spread;
pub use inputs::{lab, synthetic};

use rand_pcg::Pcg64;

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{KeptRow, KeptSets, Microtest, Outcome, PartValues, SpecInfo};
use crate::kernel::oracle::pages::{self, Pages};
use crate::kernel::oracle::rotary::{Rotary, Turn};
use crate::kernel::oracle::{hadamard, indexer};
use crate::kernel::specs::activations;
use crate::kernel::task::Task;
use crate::kernel::tensors::Tensor;

/// Keys in a page of the indexer's cache.
pub const PAGE: usize = 64;

/// Its name, and the vocabulary of its candidates.
pub static INFO: SpecInfo = SpecInfo {
    name: "indexer",
    says: "which compressed keys does a query keep when scores or operands of the indexer are narrower",
    parts: &["scores"],
    stored: Rounding::F32,
    points: &[
        ("query", "queries, rotated; what is not named is the model's own, fp8 for DeepSeek-V4"),
        ("key", "keys, rotated, as they are cached; what is not named is the model's own, fp8 for DeepSeek-V4"),
        ("weight", "the weight of a head with its factors and the scale of the query"),
        ("dot", "the product of a query head and a key"),
        ("weighted", "that product, after relu, times the weight of its head"),
        ("sum", "the sum over heads"),
        ("score", "the sum times the scale of the key"),
    ],
    choices: &[],
    faults: &[
        ("page-off", "every key is read one page of 64 keys too far"),
        ("layout-interleaved", "pages are read as if each key had its scale right behind it"),
        ("sign-wrong", "scores have the wrong sign"),
        ("key-not-rotated", "queries are Hadamard-rotated and keys are not"),
        ("key-scale-forgotten", "keys are not multiplied with their scales"),
        ("relu-forgotten", "negative products count"),
        ("last-chunk-only", "only keys of the last chunk of the prefill can be kept"),
    ],
    candidates: include_str!("../../../../kernels/candidates/indexer.toml"),
    does_not_show: "which keys the attention needed, a fault in how keys get into their pages, or lengths beyond these",
};

/// The microtest `indexer`.
#[derive(Clone, Copy, Debug)]
pub struct Indexer;

/// One length of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Heads of the indexer.
    pub heads: usize,
    /// Width of a head and of a key.
    pub dim: usize,
    /// How many keys a row keeps.
    pub keep: usize,
    /// Keys in one chunk of the prefill.
    pub chunk: usize,
    /// The queries.
    pub rows: Vec<Row>,
    /// Keys before any rotation, `[keys, dim]`.
    pub keys: Vec<f64>,
    /// Rotation by position, of a key by the first of its 4 tokens, followed by the Hadamard
    /// rotation; `None` where the model rotates nothing.
    pub rotary: Option<Rotary>,
    /// The keys in fp8 as the model caches them; `None` where it does not quantise.
    pub pages: Option<Pages>,
}

/// One query.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its position in the sequence.
    pub position: usize,
    /// It may see the keys below this one.
    pub visible: usize,
    /// Its heads before any rotation, `[heads, dim]`.
    pub queries: Vec<f64>,
    /// Weights of its heads, without factors, `[heads]`.
    pub weights: Vec<f64>,
    /// A key that it must keep.
    pub planted: Option<u32>,
}

impl Case {
    /// Number of keys.
    pub fn count(&self) -> usize {
        self.keys.len() / self.dim
    }

    /// A key, rotated.
    pub fn key(&self, index: usize) -> Vec<f64> {
        let mut key = self.unrotated_key(index);
        if self.rotary.is_some() {
            hadamard::rotate(&mut key);
        }
        key
    }

    /// A key, turned to its position alone.
    fn unrotated_key(&self, index: usize) -> Vec<f64> {
        let mut key = self.keys[index * self.dim..][..self.dim].to_vec();
        if let Some(rotary) = &self.rotary {
            rotary.turn(&mut key, index * indexer::RATIO, Turn::There);
        }
        key
    }

    /// The heads of a query, rotated, `[heads, dim]`.
    pub fn queries(&self, row: &Row) -> Vec<f64> {
        let mut queries = row.queries.clone();
        if let Some(rotary) = &self.rotary {
            for head in queries.chunks_exact_mut(self.dim) {
                rotary.turn(head, row.position, Turn::There);
                hadamard::rotate(head);
            }
        }
        queries
    }

    /// The keys in pages that lie in memory as `table` says.
    fn paged(&self, table: Vec<usize>, key: impl Fn(usize) -> Vec<f64>) -> Pages {
        let mut pages = Pages::zeros(pages::index_layout(PAGE, self.dim), table);
        for index in 0..self.count() {
            pages::write_index_key(&mut pages, index, &key(index));
        }
        pages
    }

    /// The same case with its cache written anew from its keys.
    fn cached(mut self) -> Self {
        if let Some(table) = self.pages.as_ref().map(|pages| pages.table.clone()) {
            self.pages = Some(self.paged(table, |index| self.key(index)));
        }
        self
    }

    /// Scores of one row by the oracle, of the keys that it may see.
    fn scores(&self, row: &Row, keys: &[f64]) -> Vec<f64> {
        let mut queries = self.queries(row);
        if self.pages.is_some() {
            for head in queries.chunks_exact_mut(self.dim) {
                let (codes, scale) = pages::quantise_index_row(head);
                let (values, scale) = pages::index_key(&codes, &scale.to_le_bytes());
                head.iter_mut().zip(values).for_each(|(x, value)| *x = value * scale);
            }
        }
        let factor = indexer::factor(self.heads, self.dim);
        let weights: Vec<f64> = row.weights.iter().map(|w| w * factor).collect();
        let visible = keys.chunks_exact(self.dim).take(row.visible);
        visible.map(|key| indexer::score(&queries, key, &weights)).collect()
    }

    /// All keys as the model caches them, `[keys, dim]`.
    fn own_keys(&self) -> Vec<f64> {
        let key = |index| match &self.pages {
            Some(pages) => pages::read_index_key(pages, index),
            None => self.key(index),
        };
        (0..self.count()).flat_map(key).collect()
    }
}

/// Scores of all rows, zero where a key may not be seen, and what each row keeps.
fn outcome(case: &Case, rows: Vec<KeptRow>) -> Outcome {
    let columns = case.count();
    let mut values = Vec::with_capacity(rows.len() * columns);
    for row in &rows {
        values.extend_from_slice(&row.scores);
        values.resize(values.len() + columns - row.scores.len(), 0.0);
    }
    let parts = vec![PartValues { name: "scores", columns, values }];
    Outcome { parts, sets: Some(KeptSets { kind: "keys", rows }) }
}

impl Microtest for Indexer {
    type Case = Case;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &Case) -> Outcome {
        let keys = case.own_keys();
        let kept = |row: &Row| {
            let scores = case.scores(row, &keys);
            KeptRow { kept: indexer::keep(&scores, case.keep), scores, planted: row.planted }
        };
        outcome(case, case.rows.iter().map(kept).collect())
    }

    fn run(&self, case: &Case, candidate: &Candidate) -> Outcome {
        arithmetic::run(case, candidate)
    }

    fn task(&self, case: &Case) -> Option<Task> {
        Some(task::task(case))
    }

    fn read(&self, case: &Case, _candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
        task::read(case, outputs)
    }

    fn flipped(&self, case: &Case, seed: u64) -> Case {
        let mut dice: Pcg64 = activations::dice(seed, 0);
        let mut flipped = case.clone();
        flipped.keys = activations::moved(&case.keys, &mut dice);
        for row in &mut flipped.rows {
            row.queries = activations::moved(&row.queries, &mut dice);
            row.weights = activations::moved(&row.weights, &mut dice);
        }
        flipped.cached()
    }
}
