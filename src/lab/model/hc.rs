//! Hyper-connections: mixing coefficients of a site, the site's input, and the new streams.
//!
//! Not responsible for what the sublayer between them computes.
#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

use pulp::Arch;

use super::linear::Linear;
use super::math::{exp, sigmoid, sum_squares};
use super::{EPS, FLAT, MhcGemm, SINKHORN, STREAMS, WIDTH, round};

/// Numbers that the mixing product gives for one token: 4 pre, 4 post, 16 comb.
const MIXES: usize = 24;
/// Tokens whose Sinkhorn rounds run side by side.
const SIDE: usize = 8;

/// Weights of one site.
#[derive(Clone, Debug)]
pub struct Site {
    product: Linear,
    scale: [f32; 3],
    base: [f32; MIXES],
    gemm: MhcGemm,
}

/// Coefficients of one site for one token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Weight of each stream in the site's input.
    pub pre: [f32; STREAMS],
    /// Weight of the sublayer's output in each new stream.
    pub post: [f32; STREAMS],
    /// `comb[j][k]`: weight of old stream `j` in new stream `k`.
    pub comb: [[f32; STREAMS]; STREAMS],
}

impl Site {
    /// A site from `fn` `[24, 512]`, `scale` and `base`; `fn` is rounded once as `gemm` says.
    pub(super) fn new(weight: &[f32], scale: [f32; 3], base: [f32; MIXES], gemm: MhcGemm) -> Self {
        let weight: Vec<f32> = weight.iter().map(|w| operand(*w, gemm)).collect();
        Self { product: Linear::pack(&weight, MIXES, FLAT), scale, base, gemm }
    }

    /// Coefficients for every token of `streams`, `[tokens, 4, 128]`.
    pub fn mix(&self, arch: Arch, streams: &[f32]) -> Vec<Mix> {
        let mut products = match self.gemm {
            MhcGemm::Fp32 => self.product.apply(arch, streams),
            gemm => {
                let rounded: Vec<f32> = streams.iter().map(|x| operand(*x, gemm)).collect();
                self.product.apply(arch, &rounded)
            }
        };
        if self.gemm == MhcGemm::Bf16 {
            for m in &mut products {
                *m = round::bf16(*m);
            }
        }
        let mut mixes = vec![Mix::default(); streams.len() / FLAT];
        arch.dispatch(
            #[inline(always)]
            || self.coefficients(streams, &mut products, &mut mixes),
        );
        mixes
    }

    #[inline(always)]
    fn coefficients(&self, streams: &[f32], products: &mut [f32], mixes: &mut [Mix]) {
        for (x, m) in streams.chunks_exact(FLAT).zip(products.chunks_exact_mut(MIXES)) {
            let r = 1.0 / (sum_squares(x) / FLAT as f32 + EPS).sqrt();
            for v in m {
                *v *= r;
            }
        }
        for (products, mixes) in products.chunks(SIDE * MIXES).zip(mixes.chunks_mut(SIDE)) {
            let mut comb = [[0.0_f32; SIDE]; STREAMS * STREAMS];
            for (t, (m, mix)) in products.chunks_exact(MIXES).zip(mixes.iter_mut()).enumerate() {
                for i in 0..STREAMS {
                    mix.pre[i] = sigmoid(m[i].mul_add(self.scale[0], self.base[i])) + EPS;
                    mix.post[i] = 2.0 * sigmoid(m[4 + i].mul_add(self.scale[1], self.base[4 + i]));
                }
                for (i, c) in comb.iter_mut().enumerate() {
                    c[t] = m[8 + i].mul_add(self.scale[2], self.base[8 + i]);
                }
            }
            sinkhorn(&mut comb);
            for (t, mix) in mixes.iter_mut().enumerate() {
                for (i, c) in comb.iter().enumerate() {
                    mix.comb[i / STREAMS][i % STREAMS] = c[t];
                }
            }
        }
    }
}

fn operand(x: f32, gemm: MhcGemm) -> f32 {
    match gemm {
        MhcGemm::Fp32 => x,
        MhcGemm::Tf32 => round::tf32(x),
        MhcGemm::Bf16 => round::bf16(x),
    }
}

/// Row softmax, then alternating column and row divisions; ends on columns. Eight tokens at once.
#[inline(always)]
fn sinkhorn(c: &mut [[f32; SIDE]; STREAMS * STREAMS]) {
    for row in c.chunks_exact_mut(STREAMS) {
        for t in 0..SIDE {
            let max = row.iter().fold(f32::NEG_INFINITY, |a, v| a.max(v[t]));
            let mut sum = 0.0;
            for v in row.iter_mut() {
                v[t] = exp(v[t] - max);
                sum += v[t];
            }
            for v in row.iter_mut() {
                v[t] = v[t] / sum + EPS;
            }
        }
    }
    columns(c);
    for _ in 1..SINKHORN {
        for row in c.chunks_exact_mut(STREAMS) {
            let mut inverse = [0.0; SIDE];
            for t in 0..SIDE {
                inverse[t] = 1.0 / (row[0][t] + row[1][t] + row[2][t] + row[3][t] + EPS);
            }
            for v in row {
                for t in 0..SIDE {
                    v[t] *= inverse[t];
                }
            }
        }
        columns(c);
    }
}

#[inline(always)]
fn columns(c: &mut [[f32; SIDE]; STREAMS * STREAMS]) {
    for k in 0..STREAMS {
        let mut inverse = [0.0; SIDE];
        for t in 0..SIDE {
            inverse[t] = 1.0 / (c[k][t] + c[4 + k][t] + c[8 + k][t] + c[12 + k][t] + EPS);
        }
        for j in 0..STREAMS {
            for t in 0..SIDE {
                c[4 * j + k][t] *= inverse[t];
            }
        }
    }
}

/// The site's input for every token: the streams weighted by `pre`, `[tokens, 128]`.
pub(super) fn gather(arch: Arch, streams: &[f32], pre: impl Fn(usize) -> [f32; STREAMS]) -> Vec<f32> {
    let mut out = vec![0.0; streams.len() / STREAMS];
    arch.dispatch(
        #[inline(always)]
        || {
            for (t, (x, y)) in streams.chunks_exact(FLAT).zip(out.chunks_exact_mut(WIDTH)).enumerate() {
                let pre = pre(t);
                let (x0, rest) = x.split_at(WIDTH);
                let (x1, rest) = rest.split_at(WIDTH);
                let (x2, x3) = rest.split_at(WIDTH);
                for i in 0..WIDTH {
                    y[i] = pre[0] * x0[i] + pre[1] * x1[i] + pre[2] * x2[i] + pre[3] * x3[i];
                }
            }
        },
    );
    out
}

/// Replaces the streams: `x'_k = post_k f + sum_j comb[j][k] x_j`.
pub(super) fn scatter(arch: Arch, streams: &mut [f32], mixes: &[Mix], sublayer: &[f32]) {
    arch.dispatch(
        #[inline(always)]
        || {
            let tokens = streams.chunks_exact_mut(FLAT).zip(mixes).zip(sublayer.chunks_exact(WIDTH));
            for ((x, mix), f) in tokens {
                let (x0, rest) = x.split_at_mut(WIDTH);
                let (x1, rest) = rest.split_at_mut(WIDTH);
                let (x2, x3) = rest.split_at_mut(WIDTH);
                let (c, p) = (&mix.comb, &mix.post);
                for i in 0..WIDTH {
                    let (a, b, d, e, f) = (x0[i], x1[i], x2[i], x3[i], f[i]);
                    x0[i] = p[0] * f + c[0][0] * a + c[1][0] * b + c[2][0] * d + c[3][0] * e;
                    x1[i] = p[1] * f + c[0][1] * a + c[1][1] * b + c[2][1] * d + c[3][1] * e;
                    x2[i] = p[2] * f + c[0][2] * a + c[1][2] * b + c[2][2] * d + c[3][2] * e;
                    x3[i] = p[3] * f + c[0][3] * a + c[1][3] * b + c[2][3] * d + c[3][3] * e;
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [f32; 16] = [0., 1., 2., 3., 3., 0., -1., 1., -2., 2., 0.5, 0., 1., 1., 1., -3.];

    fn balanced() -> [[f32; SIDE]; 16] {
        let mut c: [[f32; SIDE]; 16] = std::array::from_fn(|i| [ROWS[i]; SIDE]);
        sinkhorn(&mut c);
        c
    }

    #[test]
    fn sinkhorn_golden_values() {
        let expect = [
            0.017_362_56,
            0.056_195_8,
            0.260_166_26,
            0.666_275_4,
            0.738_005_4,
            0.043_751_23,
            0.027_413_72,
            0.190_828,
            0.009_539_61,
            0.620_127_4,
            0.235_665_14,
            0.134_666_94,
            0.235_091_44,
            0.279_924_6,
            0.476_754_9,
            0.008_228_08,
        ];
        for (got, want) in balanced().iter().zip(expect) {
            assert!((got[5] - want).abs() < 2e-6, "{} {want}", got[5]);
        }
    }

    #[test]
    fn new_streams_sum_over_the_first_index() {
        let c = balanced();
        let mut mix = Mix::default();
        for (i, c) in c.iter().enumerate() {
            mix.comb[i / 4][i % 4] = c[0];
        }
        let mut x: Vec<f32> = [1.0, 10.0, 100.0, 1000.0].iter().flat_map(|v| [*v; WIDTH]).collect();
        scatter(Arch::new(), &mut x, &[mix], &[0.0; WIDTH]);
        for (k, want) in [243.442_82, 342.431_04, 500.855_7, 24.269_338].iter().enumerate() {
            assert!((x[k * WIDTH] - want).abs() < 2e-3, "{} {want}", x[k * WIDTH]);
        }
    }
}
