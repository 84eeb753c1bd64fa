//! Matrix products with the machine's vector instructions.
//!
//! Responsible for packing a weight matrix and multiplying token rows by it.
//! The sum over the inner width runs in one fixed order whatever the number of rows, so that a
//! token's result does not depend on which tokens share its batch.
#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

use pulp::{Arch, Simd, WithSimd};

/// Output columns that are packed together.
const PANEL: usize = 32;

/// A weight matrix `[outputs, inner]`, packed in panels of 32 outputs.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    panels: Vec<f32>,
    outputs: usize,
    inner: usize,
}

impl Linear {
    /// Packs row-major `weight`, `[outputs, inner]`.
    pub(super) fn pack(weight: &[f32], outputs: usize, inner: usize) -> Self {
        assert_eq!(weight.len(), outputs * inner, "a weight matrix has outputs x inner values");
        let mut panels = vec![0.0; outputs.div_ceil(PANEL) * PANEL * inner];
        for (o, row) in weight.chunks_exact(inner).enumerate() {
            let base = (o / PANEL) * PANEL * inner + o % PANEL;
            for (k, w) in row.iter().enumerate() {
                panels[base + k * PANEL] = *w;
            }
        }
        Self { panels, outputs, inner }
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The product for every row of `x`, `[rows, inner]`: `[rows, outputs]`.
    pub(super) fn apply(&self, arch: Arch, x: &[f32]) -> Vec<f32> {
        let rows = x.len() / self.inner;
        let mut out = vec![0.0; rows * self.outputs];
        arch.dispatch(Apply { linear: self, x, out: &mut out });
        out
    }
}

struct Apply<'a> {
    linear: &'a Linear,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (inner, outputs) = (self.linear.inner, self.linear.outputs);
        for (p, panel) in self.linear.panels.chunks_exact(PANEL * inner).enumerate() {
            let (vectors, _) = S::as_simd_f32s(panel);
            let column = p * PANEL;
            let width = PANEL.min(outputs - column);
            let blocks = self.x.chunks(6 * inner).zip(self.out.chunks_mut(6 * outputs));
            for (x, out) in blocks {
                match x.len() / inner {
                    6 => rows::<S, 6>(simd, vectors, x, inner, out, outputs, column, width),
                    5 => rows::<S, 5>(simd, vectors, x, inner, out, outputs, column, width),
                    4 => rows::<S, 4>(simd, vectors, x, inner, out, outputs, column, width),
                    3 => rows::<S, 3>(simd, vectors, x, inner, out, outputs, column, width),
                    2 => rows::<S, 2>(simd, vectors, x, inner, out, outputs, column, width),
                    _ => rows::<S, 1>(simd, vectors, x, inner, out, outputs, column, width),
                }
            }
        }
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the innermost kernel; a struct would only rename them")]
fn rows<S: Simd, const R: usize>(
    simd: S,
    panel: &[S::f32s],
    x: &[f32],
    inner: usize,
    out: &mut [f32],
    outputs: usize,
    column: usize,
    width: usize,
) {
    let lanes = S::F32_LANES;
    let per_k = PANEL / lanes;
    let x: [&[f32]; R] = std::array::from_fn(|i| &x[i * inner..(i + 1) * inner]);
    let mut buffer = [0.0_f32; PANEL];
    let mut tile = [[simd.splat_f32s(0.0); 2]; R];
    let mut step = 0;
    while step < per_k {
        for t in &mut tile {
            *t = [simd.splat_f32s(0.0); 2];
        }
        for (k, weights) in panel.chunks_exact(per_k).enumerate() {
            let (w0, w1) = (weights[step], weights[step + 1]);
            for i in 0..R {
                let a = simd.splat_f32s(x[i][k]);
                tile[i][0] = simd.mul_add_f32s(a, w0, tile[i][0]);
                tile[i][1] = simd.mul_add_f32s(a, w1, tile[i][1]);
            }
        }
        let first = step * lanes;
        let wide = (2 * lanes).min(width.saturating_sub(first));
        for (i, t) in tile.iter().enumerate() {
            let (vectors, _) = S::as_mut_simd_f32s(&mut buffer);
            vectors[0] = t[0];
            vectors[1] = t[1];
            let at = i * outputs + column + first;
            out[at..at + wide].copy_from_slice(&buffer[..wide]);
        }
        step += 2;
        if step * lanes >= width {
            return;
        }
    }
}

/// Products of `H` query vectors of width 32 with the 64 keys of a page stored `[dimension, slot]`.
#[inline(always)]
pub(super) fn page_products<S: Simd, const H: usize>(simd: S, query: &[f32], page: &[f32], out: &mut [[f32; 64]; H]) {
    let (page, _) = S::as_simd_f32s(page);
    let per_k = 64 / S::F32_LANES;
    let query: [&[f32]; H] = std::array::from_fn(|h| &query[h * 32..(h + 1) * 32]);
    let mut step = 0;
    while step < per_k {
        let mut acc = [[simd.splat_f32s(0.0); 2]; H];
        for (d, keys) in page.chunks_exact(per_k).enumerate() {
            let (k0, k1) = (keys[step], keys[step + 1]);
            for h in 0..H {
                let q = simd.splat_f32s(query[h][d]);
                acc[h][0] = simd.mul_add_f32s(q, k0, acc[h][0]);
                acc[h][1] = simd.mul_add_f32s(q, k1, acc[h][1]);
            }
        }
        for h in 0..H {
            let (o, _) = S::as_mut_simd_f32s(&mut out[h]);
            o[step] = acc[h][0];
            o[step + 1] = acc[h][1];
        }
        step += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(w: &[f32], n: usize, k: usize, x: &[f32]) -> Vec<f32> {
        x.chunks(k).flat_map(|row| (0..n).map(move |o| (0..k).map(|i| row[i] * w[o * k + i]).sum::<f32>())).collect()
    }

    fn check(rows: usize, n: usize, k: usize) {
        let value = |i: usize| ((i * 7919 % 1000) as f32 - 500.0) / 500.0;
        let w: Vec<f32> = (0..n * k).map(value).collect();
        let x: Vec<f32> = (0..rows * k).map(|i| value(i + 13)).collect();
        let got = Linear::pack(&w, n, k).apply(Arch::new(), &x);
        for (g, e) in got.iter().zip(naive(&w, n, k, &x)) {
            assert!((g - e).abs() < 1e-3, "{g} {e}");
        }
    }

    #[test]
    fn products_agree_with_the_plain_sum() {
        for rows in [1, 2, 5, 6, 7, 17] {
            check(rows, 24, 512);
            check(rows, 264, 128);
            check(rows, 4, 32);
        }
    }

    #[test]
    fn a_row_does_not_depend_on_its_neighbours() {
        let w: Vec<f32> = (0..128 * 128).map(|i| (i as f32).sin()).collect();
        let x: Vec<f32> = (0..7 * 128).map(|i| (i as f32).cos()).collect();
        let linear = Linear::pack(&w, 128, 128);
        let all = linear.apply(Arch::new(), &x);
        let one = linear.apply(Arch::new(), &x[3 * 128..4 * 128]);
        assert_eq!(all[3 * 128..4 * 128], one[..]);
    }
}
