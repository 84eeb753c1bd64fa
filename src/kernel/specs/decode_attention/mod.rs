//! The microtest of sparse attention while decoding: one query against the keys that it sees.
//!
//! Responsible for its vocabulary, its inputs as a type and its reference. Not responsible for a
//! candidate's arithmetic (`arithmetic`) nor for where inputs come from (`inputs`).
//!
//! The reference has the model's own rounding points and no others: for DeepSeek-V4 the query in
//! bf16 after its norm and rotation, and the latents in their cache, 448 values in fp8 with a power
//! of two as scale for each 64, and 64 in bf16; the reference decodes those bytes. Everything after
//! that is exact. The lab model rounds neither, and neither does its reference.
//!
//! # What was measured
//!
//! Synthetic inputs of the published width, seed 7; 4 queries of 8 heads against 640 keys; relative L2
//! error of the outputs before they are stored. The stock kernel, which scales the query in f32, is
//! within 5e-6 of f64 at every head, so these are also the distances from it.
//!
//! | queries | kernel | all heads | median head | worst head |
//! |---|---|---|---|---|
//! | look for three keys | scaled query in bf16 | 4.6e-4 | 4.2e-4 | 9.2e-3 |
//! | look for three keys | probabilities in bf16 too | 4.8e-4 | 4.5e-4 | 9.2e-3 |
//! | noise | scaled query in bf16 | 1.4e-3 | 1.8e-3 | 3.9e-3 |
//! | noise | probabilities in bf16 too | 1.5e-3 | 1.8e-3 | 4.1e-3 |
//!
//! Storing the output in bf16, which the stock kernel does too, makes 1.4e-3 to 1.9e-3 by itself, and
//! with it the outputs of the incident's kernel stay below 2.5e-3. The 6.7e-3 that the incident states
//! for it are here the error of single heads, whose weight hangs between a few keys, and not of
//! outputs. It is also less than the 9e-3 that the outputs move when one activation in eight moves by
//! one unit in the last place of bf16, because some latents then take another fp8 code. What fp8 instead of bf16 in the cache makes is ten times the rounding of the output: 2.8e-2.

mod arithmetic;
mod inputs;
mod task;
#[cfg(test)]
mod tests;

pub use inputs::{lab, synthetic};

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{Microtest, Outcome, PartValues, SpecInfo};
use crate::kernel::oracle::pages::{self, LatentLayout, Pages};
use crate::kernel::oracle::rotary::{Rotary, Turn};
use crate::kernel::oracle::sparse;
use crate::kernel::specs::activations;
use crate::kernel::task::Task;
use crate::kernel::tensors::Tensor;

/// Its name, and the vocabulary of its candidates.
pub static INFO: SpecInfo = SpecInfo {
    name: "decode-attention",
    says: "how far does sparse attention with a sink stray when queries, probabilities or splits are rounded",
    parts: &["lse", "output"],
    stored: Rounding::Bf16,
    points: &[
        ("query", "the query, normed and rotated; what is not named is the model's own, bf16 for DeepSeek-V4"),
        ("cache", "keys and values as cached; what is not named is the model's own, fp8 and bf16 for DeepSeek-V4"),
        ("scaled-query", "the query times 1/sqrt(width)"),
        ("score", "the product of query and key, and again its multiple with log2(e)"),
        ("probability", "the exponential of a score, where it is multiplied with a value"),
        ("partial", "the output of one split of the keys"),
        ("lse", "the logarithm of the sum of one split of the keys"),
        ("output", "the output"),
    ],
    choices: &[("exponential", &["base-e", "base-2"]), ("denominator", &["unrounded", "rounded"])],
    faults: &[
        ("sink-in-every-split", "each split of the keys has the sink in its denominator"),
        ("sink-forgotten", "the sink is not in the denominator"),
        ("scale-twice", "products are scaled twice"),
        ("scale-forgotten", "products are not scaled"),
        ("plain-mean-merge", "splits of the keys are averaged without their weights"),
        ("page-off", "every key is read one page too far"),
        ("layout-interleaved", "pages are read as if each token had its scales right behind it"),
        ("rope-not-back", "the rotated dimensions of the output are not rotated back"),
        ("lse-base-mixed", "splits in base 2 are merged in base e"),
        ("neighbour-scale", "each fp8 block is read with the scale of the next one"),
    ],
    candidates: include_str!("../../../../kernels/candidates/decode-attention.toml"),
    does_not_show: "the projections around the attention, which keys were chosen, more than 8 of the heads, \
                    or what many such steps make of a text",
};

/// The microtest `decode-attention`.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttention;

/// Some queries of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The queries.
    pub rows: Vec<Row>,
    /// The logit of each head that has no value.
    pub sinks: Vec<f64>,
    /// What products are multiplied with.
    pub scale: f64,
    /// Keys and values.
    pub cache: Cache,
}

/// One query.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its position in the sequence.
    pub position: usize,
    /// Its heads, `[heads, width]`: before norm and rotation for latents, else as they are multiplied.
    pub queries: Vec<f64>,
    /// The entries of the cache that it sees, ascending.
    pub seen: Vec<usize>,
}

/// Keys and values.
#[derive(Clone, Debug, PartialEq)]
pub enum Cache {
    /// One latent is key and value, and its last dimensions are rotated.
    Latent {
        /// How a latent lies in its page.
        layout: LatentLayout,
        /// Rotated latents, before they are quantised, `[entries, width]`.
        latents: Vec<f64>,
        /// The rotation, which the output takes back.
        rotary: Rotary,
        /// The latents as the model caches them.
        pages: Pages,
    },
    /// Keys and values apart, neither rotated nor quantised, `[entries, width]` each.
    Plain {
        /// The keys.
        keys: Vec<f64>,
        /// The values.
        values: Vec<f64>,
        /// Width of a head.
        width: usize,
    },
}

impl Case {
    /// Width of a head.
    pub fn width(&self) -> usize {
        match &self.cache {
            Cache::Latent { layout, .. } => layout.width(),
            Cache::Plain { width, .. } => *width,
        }
    }

    /// Entries of the cache.
    pub fn entries(&self) -> usize {
        match &self.cache {
            Cache::Latent { latents, .. } => latents.len() / self.width(),
            Cache::Plain { keys, .. } => keys.len() / self.width(),
        }
    }

    /// The heads of a row as they are multiplied, before the model's own rounding.
    fn prepared(&self, row: &Row) -> Vec<f64> {
        let Cache::Latent { rotary, .. } = &self.cache else { return row.queries.clone() };
        let head = |head: &[f64]| {
            let mut head = sparse::norm_head(head);
            rotary.turn(&mut head, row.position, Turn::There);
            head
        };
        row.queries.chunks_exact(self.width()).flat_map(head).collect()
    }

    /// The same with the model's own rounding.
    fn own_queries(&self, row: &Row) -> Vec<f64> {
        let rule = match self.cache {
            Cache::Latent { .. } => Rounding::Bf16,
            Cache::Plain { .. } => Rounding::Exact,
        };
        self.prepared(row).iter().map(|x| rule.round(*x)).collect()
    }

    /// All keys and all values as the model caches them, `[entries, width]` each.
    fn own_cache(&self) -> (Vec<f64>, Vec<f64>) {
        match &self.cache {
            Cache::Latent { layout, pages, .. } => {
                let latents: Vec<f64> =
                    (0..self.entries()).flat_map(|token| pages::read_latent(pages, *layout, token)).collect();
                (latents.clone(), latents)
            }
            Cache::Plain { keys, values, .. } => (keys.clone(), values.clone()),
        }
    }
}

impl Cache {
    /// Latents in pages that lie in memory as `table` says.
    pub fn of_latents(layout: LatentLayout, latents: Vec<f64>, rotary: Rotary, table: Vec<usize>) -> Self {
        let mut pages = Pages::zeros(layout.page(), table);
        for (token, latent) in latents.chunks_exact(layout.width()).enumerate() {
            pages::write_latent(&mut pages, layout, token, latent);
        }
        Self::Latent { layout, latents, rotary, pages }
    }
}

/// Whether a fault can show in a case: a cache that is not rotated has nothing to rotate back.
pub fn applies(case: &Case, candidate: &Candidate) -> bool {
    matches!(case.cache, Cache::Latent { .. }) || !candidate.has_fault("rope-not-back")
}

fn outcome(case: &Case, lse: Vec<f64>, output: Vec<f64>) -> Outcome {
    let parts = vec![
        PartValues { name: "lse", columns: case.sinks.len(), values: lse },
        PartValues { name: "output", columns: case.width(), values: output },
    ];
    Outcome { parts, sets: None }
}

impl Microtest for DecodeAttention {
    type Case = Case;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &Case) -> Outcome {
        let (keys, values) = case.own_cache();
        let width = case.width();
        let (mut lse, mut output) = (Vec::new(), Vec::new());
        for row in &case.rows {
            let entries =
                |of: &'_ [f64]| row.seen.iter().map(|e| of[e * width..][..width].to_vec()).collect::<Vec<_>>();
            let (keys, values) = (entries(&keys), entries(&values));
            for (q, sink) in case.own_queries(row).chunks_exact(width).zip(&case.sinks) {
                let (keys, values) = (keys.iter().map(Vec::as_slice), values.iter().map(Vec::as_slice));
                let whole = sparse::attend(q, keys, values, width, case.scale);
                let mut out = sparse::with_sink(&whole, *sink);
                if let Cache::Latent { rotary, .. } = &case.cache {
                    rotary.turn(&mut out, row.position, Turn::Back);
                }
                lse.push(sparse::reported_lse(&whole));
                output.extend(out);
            }
        }
        outcome(case, lse, output)
    }

    fn run(&self, case: &Case, candidate: &Candidate) -> Outcome {
        arithmetic::run(case, candidate)
    }

    fn applies(&self, case: &Case, candidate: &Candidate) -> bool {
        applies(case, candidate)
    }

    fn task(&self, case: &Case) -> Option<Task> {
        Some(task::task(case))
    }

    fn read(&self, case: &Case, candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
        task::read(case, candidate, outputs)
    }

    fn flipped(&self, case: &Case, seed: u64) -> Case {
        let mut dice = activations::dice(seed, 0);
        let mut moved = |values: &[f64]| activations::moved(values, &mut dice);
        let cache = match &case.cache {
            Cache::Latent { layout, latents, rotary, pages } => {
                Cache::of_latents(*layout, moved(latents), rotary.clone(), pages.table.clone())
            }
            Cache::Plain { keys, values, width } => {
                Cache::Plain { keys: moved(keys), values: moved(values), width: *width }
            }
        };
        let rows = case.rows.iter().map(|row| Row { queries: moved(&row.queries), ..row.clone() }).collect();
        Case { rows, cache, ..case.clone() }
    }
}
