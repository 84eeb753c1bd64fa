//! The sparse indexer: scores of the keys before the window and the choice of the top 64.
//!
//! The gathered path reads an array that holds the whole sequence in order; the paged path follows
//! the page table for every page. Healthy, both read the same keys.
#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

use std::cmp::Ordering;

use pulp::{Arch, Simd, WithSimd};

use super::linear::page_products;
use super::{Faults, HEAD, HEADS, TOP_K, WIDTH, round};
use crate::lab::cache::{PAGE, PageId, Pool};

/// Where the indexer keys of one sequence are read.
pub(super) enum Keys<'a> {
    /// One array for the whole sequence, page after page.
    Gathered(&'a [f32]),
    /// Through the page table.
    Paged { pool: &'a Pool, pages: &'a [PageId], sparse: usize },
}

/// Copies the indexer keys of a sequence into one array.
pub(super) fn gather(pool: &Pool, pages: &[PageId], sparse: usize, faults: &Faults) -> Vec<f32> {
    let mut out = Vec::with_capacity(pages.len() * PAGE * HEAD);
    for logical in 0..pages.len() {
        let read = faults.index_page(logical, pages.len());
        out.extend_from_slice(pool.index_keys(pages[read], sparse));
    }
    out
}

/// Queries of consecutive rows of one sequence.
pub(super) struct Queries<'a> {
    /// `[rows, head, dimension]`.
    pub(super) query: &'a [f32],
    /// `[rows, head]`.
    pub(super) weight: &'a [f32],
    /// How many keys lie before the window, for each row.
    pub(super) limits: &'a [usize],
    /// Round operands and scores to bf16.
    pub(super) bf16: bool,
}

/// The chosen positions of every row, ascending.
pub(super) fn select(arch: Arch, queries: &Queries<'_>, keys: &Keys<'_>, faults: &Faults) -> Vec<Vec<u32>> {
    let mut tops: Vec<Top> = queries.limits.iter().map(|limit| Top::new(*limit)).collect();
    let deepest = queries.limits.iter().copied().max().unwrap_or(0);
    let mut scratch = Vec::new();
    if deepest > TOP_K {
        for logical in 0..deepest.div_ceil(PAGE) {
            let page = match keys {
                Keys::Gathered(all) => &all[logical * PAGE * HEAD..(logical + 1) * PAGE * HEAD],
                Keys::Paged { pool, pages, sparse } => {
                    pool.index_keys(pages[faults.index_page(logical, pages.len())], *sparse)
                }
            };
            let page = repaint(page, queries.bf16, faults, &mut scratch);
            let sign = if faults.index_sign { -1.0 } else { 1.0 };
            arch.dispatch(ScorePage { queries, page, first: logical * PAGE, sign, tops: &mut tops });
        }
    }
    tops.into_iter().map(Top::finish).collect()
}

fn repaint<'a>(page: &'a [f32], bf16: bool, faults: &Faults, scratch: &'a mut Vec<f32>) -> &'a [f32] {
    if !bf16 && !faults.index_interleaved {
        return page;
    }
    scratch.clear();
    if faults.index_interleaved {
        // The page holds dimension after dimension; this reads it as if it held token after token.
        scratch.extend((0..HEAD * PAGE).map(|i| page[(i % PAGE) * HEAD + i / PAGE]));
    } else {
        scratch.extend_from_slice(page);
    }
    if bf16 {
        for k in scratch.iter_mut() {
            *k = round::bf16(*k);
        }
    }
    scratch
}

struct ScorePage<'a> {
    queries: &'a Queries<'a>,
    page: &'a [f32],
    first: usize,
    sign: f32,
    tops: &'a mut [Top],
}

impl WithSimd for ScorePage<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let queries = self.queries;
        let rows = queries.query.chunks_exact(WIDTH).zip(queries.weight.chunks_exact(HEADS));
        let mut products = [[0.0_f32; PAGE]; HEADS];
        let mut rounded = [0.0_f32; WIDTH];
        for ((query, weight), top) in rows.zip(self.tops) {
            if top.limit <= self.first || top.limit <= TOP_K {
                continue;
            }
            let mut scores = [0.0_f32; PAGE];
            if queries.bf16 {
                for (r, q) in rounded.iter_mut().zip(query) {
                    *r = round::bf16(*q);
                }
                page_products::<S, HEADS>(simd, &rounded, self.page, &mut products);
                for h in 0..HEADS {
                    for (s, p) in scores.iter_mut().zip(&products[h]) {
                        *s = round::bf16(weight[h] * round::bf16(*p).max(0.0) + *s);
                    }
                }
            } else {
                page_products::<S, HEADS>(simd, query, self.page, &mut products);
                for h in 0..HEADS {
                    for (s, p) in scores.iter_mut().zip(&products[h]) {
                        *s = weight[h].mul_add(p.max(0.0), *s);
                    }
                }
            }
            for s in &mut scores {
                *s *= self.sign;
            }
            let visible = (top.limit - self.first).min(PAGE);
            top.offer(&scores[..visible], self.first);
        }
    }
}

/// The best 64 of the keys seen so far; among equal scores the lower position wins.
struct Top {
    limit: usize,
    threshold: f32,
    candidates: Vec<(f32, u32)>,
}

const KEPT: usize = 4 * TOP_K;

impl Top {
    fn new(limit: usize) -> Self {
        let room = if limit > TOP_K { KEPT + PAGE } else { 0 };
        Self { limit, threshold: f32::NEG_INFINITY, candidates: Vec::with_capacity(room) }
    }

    #[inline(always)]
    fn offer(&mut self, scores: &[f32], first: usize) {
        let best = scores.iter().fold(f32::NEG_INFINITY, |a, s| if *s > a { *s } else { a });
        if best <= self.threshold {
            return;
        }
        for (i, s) in scores.iter().enumerate() {
            if *s > self.threshold {
                self.candidates.push((*s, (first + i) as u32));
            }
        }
        if self.candidates.len() >= KEPT {
            self.prune();
        }
    }

    fn prune(&mut self) {
        if self.candidates.len() <= TOP_K {
            return;
        }
        self.candidates.select_nth_unstable_by(TOP_K - 1, better);
        self.candidates.truncate(TOP_K);
        self.threshold = self.candidates[TOP_K - 1].0;
    }

    fn finish(mut self) -> Vec<u32> {
        if self.limit <= TOP_K {
            return (0..self.limit as u32).collect();
        }
        self.prune();
        let mut positions: Vec<u32> = self.candidates.iter().map(|c| c.1).collect();
        positions.sort_unstable();
        positions
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that slice selection asks for")]
fn better(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reference(scores: &[f32]) -> Vec<u32> {
        let mut all: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
        all.sort_by(better);
        all.truncate(TOP_K);
        let mut positions: Vec<u32> = all.iter().map(|c| c.1).collect();
        positions.sort_unstable();
        positions
    }

    fn streaming(scores: &[f32]) -> Vec<u32> {
        let mut top = Top::new(scores.len());
        for (p, page) in scores.chunks(PAGE).enumerate() {
            top.offer(page, p * PAGE);
        }
        top.finish()
    }

    proptest! {
        #[test]
        fn streaming_choice_equals_a_full_sort(levels in proptest::collection::vec(-6..6_i8, 65..900)) {
            let scores: Vec<f32> = levels.iter().map(|l| f32::from(*l)).collect();
            prop_assert_eq!(streaming(&scores), reference(&scores));
        }
    }

    #[test]
    fn scores_golden_values() {
        // The first 64 keys score low, so the three keys under test must be among the chosen.
        let mut page = vec![0.0; PAGE * HEAD];
        for (slot, key) in [(0, [1.0, 1.0]), (1, [-1.0, 2.0]), (2, [0.0, -3.0])] {
            page[slot] = key[0];
            page[PAGE + slot] = key[1];
        }
        let mut query = [0.0; WIDTH];
        (query[0], query[1], query[HEAD], query[HEAD + 1]) = (1.0, -2.0, 0.5, 1.5);
        let queries = Queries { query: &query, weight: &[0.3, 0.9, 0.0, 0.0], limits: &[TOP_K + 1], bf16: false };
        let mut tops = [Top::new(TOP_K + 1)];
        Arch::new().dispatch(ScorePage { queries: &queries, page: &page, first: 0, sign: 1.0, tops: &mut tops });
        let scores: Vec<f32> = tops[0].candidates.iter().map(|c| c.0).take(3).collect();
        for (s, e) in scores.iter().zip([1.8, 2.25, 1.8]) {
            assert!((s - e).abs() < 1e-6);
        }
    }

    #[test]
    fn few_keys_are_all_taken() {
        assert_eq!(Top::new(3).finish(), [0, 1, 2]);
    }
}
