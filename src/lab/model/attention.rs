//! Sink attention of one query over the window and, in sparse layers, over selected keys.
//!
//! The plain path makes one softmax over all visible keys.
//! The split path rounds the scaled query to bf16, makes one softmax for each split of the keys and
//! merges them by their log-sum-exp, as tensor-core decode kernels do.
#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

use pulp::{Simd, WithSimd};

use super::linear::page_products;
use super::math::exp;
use super::{HEAD, HEADS, WIDTH, round};
use crate::lab::cache::PAGE;

/// Keys and values that lie together: a cache page, or the selected keys gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split<'a> {
    /// `[dimension, slot]`.
    pub(super) keys: &'a [f32],
    /// `[slot, dimension]`.
    pub(super) values: &'a [f32],
    /// First visible slot.
    pub(super) from: usize,
    /// End of the visible slots.
    pub(super) to: usize,
}

/// Attention of one query; the output is `[head, dimension]`.
pub(super) struct Attend<'a> {
    /// `[head, dimension]`, normed and rotated, not scaled.
    pub(super) query: &'a [f32],
    /// Extra logit of each head, in the denominator only.
    pub(super) sink: &'a [f32; HEADS],
    /// Visible keys, in splits.
    pub(super) splits: &'a [Split<'a>],
    /// Whether to take the split path.
    pub(super) merge: bool,
    /// Where the output goes, 128 numbers.
    pub(super) out: &'a mut [f32],
}

const MAX_SPLITS: usize = 4;

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let scale = 1.0 / (HEAD as f32).sqrt();
        let mut query = [0.0_f32; WIDTH];
        for (q, x) in query.iter_mut().zip(self.query) {
            *q = x * scale;
            if self.merge {
                *q = round::bf16(*q);
            }
        }
        let mut scores = [[[0.0_f32; PAGE]; HEADS]; MAX_SPLITS];
        for (split, s) in self.splits.iter().zip(&mut scores) {
            page_products::<S, HEADS>(simd, &query, split.keys, s);
            for head in s.iter_mut() {
                head[..split.from].fill(f32::NEG_INFINITY);
                head[split.to..].fill(f32::NEG_INFINITY);
            }
        }
        let used = self.splits.len();
        if self.merge {
            merged(simd, self.splits, &mut scores[..used], self.sink, self.out);
        } else {
            whole(simd, self.splits, &mut scores[..used], self.sink, self.out);
        }
    }
}

#[inline(always)]
fn whole<S: Simd>(
    simd: S,
    splits: &[Split<'_>],
    scores: &mut [[[f32; PAGE]; HEADS]],
    sink: &[f32; HEADS],
    out: &mut [f32],
) {
    let mut sums = [0.0_f32; HEADS];
    for h in 0..HEADS {
        let max = scores.iter().fold(sink[h], |m, s| m.max(maximum(&s[h])));
        sums[h] = exp(sink[h] - max);
        for s in scores.iter_mut() {
            sums[h] += exponentials(&mut s[h], max);
        }
    }
    let mut acc = [0.0_f32; WIDTH];
    for (split, s) in splits.iter().zip(scores.iter()) {
        weighted_values(simd, split, s, &mut acc);
    }
    for (h, (o, a)) in out.chunks_exact_mut(HEAD).zip(acc.chunks_exact(HEAD)).enumerate() {
        let inverse = 1.0 / sums[h];
        for (o, a) in o.iter_mut().zip(a) {
            *o = a * inverse;
        }
    }
}

#[inline(always)]
fn merged<S: Simd>(
    simd: S,
    splits: &[Split<'_>],
    scores: &mut [[[f32; PAGE]; HEADS]],
    sink: &[f32; HEADS],
    out: &mut [f32],
) {
    let mut lse = [[f32::NEG_INFINITY; HEADS]; MAX_SPLITS];
    let mut parts = [[0.0_f32; WIDTH]; MAX_SPLITS];
    for (i, (split, s)) in splits.iter().zip(scores.iter_mut()).enumerate() {
        let mut inverse = [0.0_f32; HEADS];
        for h in 0..HEADS {
            let max = maximum(&s[h]);
            if max == f32::NEG_INFINITY {
                s[h].fill(0.0);
                continue;
            }
            let sum = exponentials(&mut s[h], max);
            lse[i][h] = max + sum.ln();
            inverse[h] = 1.0 / sum;
        }
        weighted_values(simd, split, s, &mut parts[i]);
        for (h, part) in parts[i].chunks_exact_mut(HEAD).enumerate() {
            for p in part {
                *p *= inverse[h];
            }
        }
    }
    out.fill(0.0);
    for h in 0..HEADS {
        let max = lse.iter().fold(f32::NEG_INFINITY, |m, l| m.max(l[h]));
        let sum: f32 = lse.iter().map(|l| exp(l[h] - max)).sum();
        let total = max + sum.ln();
        let sink = 1.0 / (1.0 + exp(sink[h] - total));
        for (l, part) in lse.iter().zip(&parts) {
            let w = exp(l[h] - max) / sum * sink;
            for (o, p) in out[h * HEAD..(h + 1) * HEAD].iter_mut().zip(&part[h * HEAD..(h + 1) * HEAD]) {
                *o += w * p;
            }
        }
    }
}

#[inline(always)]
fn maximum(v: &[f32; PAGE]) -> f32 {
    let mut m = [f32::NEG_INFINITY; 16];
    for chunk in v.chunks_exact(16) {
        for (a, x) in m.iter_mut().zip(chunk) {
            *a = if *x > *a { *x } else { *a };
        }
    }
    m.iter().fold(f32::NEG_INFINITY, |a, x| if *x > a { *x } else { a })
}

/// Replaces scores by `e^(s - max)` and returns their sum.
#[inline(always)]
fn exponentials(v: &mut [f32; PAGE], max: f32) -> f32 {
    let mut sums = [0.0_f32; 16];
    for chunk in v.chunks_exact_mut(16) {
        for (a, x) in sums.iter_mut().zip(chunk) {
            *x = exp(*x - max);
            *a += *x;
        }
    }
    sums.iter().sum()
}

/// Adds the values of a split, weighted, to `acc` `[head, dimension]`.
#[inline(always)]
fn weighted_values<S: Simd>(simd: S, split: &Split<'_>, weights: &[[f32; PAGE]; HEADS], acc: &mut [f32; WIDTH]) {
    let (values, _) = S::as_simd_f32s(split.values);
    let per_row = HEAD / S::F32_LANES;
    let (acc, _) = S::as_mut_simd_f32s(acc);
    let mut step = 0;
    while step < per_row {
        let mut sum: [[S::f32s; 2]; HEADS] =
            std::array::from_fn(|h| [acc[h * per_row + step], acc[h * per_row + step + 1]]);
        for (slot, row) in values.chunks_exact(per_row).enumerate().take(split.to).skip(split.from) {
            let (v0, v1) = (row[step], row[step + 1]);
            for (h, s) in sum.iter_mut().enumerate() {
                let w = simd.splat_f32s(weights[h][slot]);
                s[0] = simd.mul_add_f32s(w, v0, s[0]);
                s[1] = simd.mul_add_f32s(w, v1, s[1]);
            }
        }
        for (h, s) in sum.iter().enumerate() {
            acc[h * per_row + step] = s[0];
            acc[h * per_row + step + 1] = s[1];
        }
        step += 2;
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::*;

    /// One head of scores `s` and scalar values `v`, spread over `cuts` splits.
    fn attend(s: &[f32], v: &[f32], sink: f32, cuts: &[usize], merge: bool) -> f32 {
        let mut query = [0.0; WIDTH];
        query[0] = (HEAD as f32).sqrt();
        let mut blocks = Vec::new();
        let mut at = 0;
        for cut in cuts {
            let (mut keys, mut values) = (vec![0.0; HEAD * PAGE], vec![0.0; HEAD * PAGE]);
            for i in 0..*cut {
                keys[i] = s[at + i];
                values[i * HEAD] = v[at + i];
            }
            at += cut;
            blocks.push((keys, values, *cut));
        }
        let splits: Vec<_> = blocks.iter().map(|(keys, values, to)| Split { keys, values, from: 0, to: *to }).collect();
        let mut out = [0.0; WIDTH];
        let sink = &[sink; HEADS];
        Arch::new().dispatch(Attend { query: &query, sink, splits: &splits, merge, out: &mut out });
        out[0]
    }

    #[test]
    fn golden_values_with_and_without_a_sink() {
        let (s, v) = ([0.5, -1.0, 2.0, 0.0], [1.0, 2.0, 3.0, 4.0]);
        for (cuts, merge) in [(&[4][..], false), (&[2, 2], false), (&[2, 2], true), (&[0, 1, 3], true)] {
            assert!((attend(&s, &v, f32::NEG_INFINITY, cuts, merge) - 2.743_858_4).abs() < 2e-6);
            assert!((attend(&s, &v, 0.7, cuts, merge) - 2.298_953_8).abs() < 2e-6);
        }
    }

    #[test]
    fn the_split_path_rounds_its_query() {
        let s = [0.333, -0.777, 1.111];
        let v = [1.0, 2.0, 3.0];
        let (plain, split) = (attend(&s, &v, 0.1, &[3], false), attend(&s, &v, 0.1, &[3], true));
        assert!((plain - split).abs() < 1e-5, "a query of one is exact in bf16: {plain} {split}");
    }
}
