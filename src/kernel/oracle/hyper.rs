//! Manifold-constrained hyper-connections: four residual streams, mixed anew at every site.
//!
//! Responsible for the steps of one site around its sublayer: mixes, split, Sinkhorn, site input,
//! combination; and for the head's mixing. Not responsible for the sublayer.
//!
//! Source of the formulas: the lab model's page, which restates the public reference
//! implementation of DeepSeek-V4 (`inference/model.py`, `inference/kernel.py`).

use crate::kernel::matrix::Matrix;
use crate::kernel::oracle::{EPS, inverse_rms, sigmoid};

/// Number of residual streams.
pub const STREAMS: usize = 4;
/// Numbers that one site mixes out of a token: `pre`, `post` and the combination matrix.
pub const MIXES: usize = (2 + STREAMS) * STREAMS;
/// Sinkhorn rounds of the model.
pub const ROUNDS: usize = 20;

/// A 4 x 4 combination matrix, `[j][k]`: how much of stream j goes into new stream k.
pub type Combination = [[f64; STREAMS]; STREAMS];

/// Weights of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// `fn`, `[24, 4 * width]` in C order, for candidates that round it.
    pub rows: Vec<f64>,
    /// The same, packed.
    pub matrix: Matrix<f64>,
    /// Scales of `pre`, `post` and the combination.
    pub scale: [f64; 3],
    /// Offsets of the 24 mixes.
    pub base: [f64; MIXES],
}

/// What the mixes of one token become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficients {
    /// Weight of each stream in the site input.
    pub pre: [f64; STREAMS],
    /// Weight of the sublayer's output in each new stream.
    pub post: [f64; STREAMS],
    /// The combination matrix.
    pub comb: Combination,
}

/// The mixes of every token of `streams` (`[tokens, 4 * width]`).
///
/// The product comes first, over the flattened streams; the root mean square of the same 4 * width
/// values divides afterwards.
pub fn mixes(site: &Site, streams: &[f64]) -> Vec<[f64; MIXES]> {
    let width = site.rows.len() / MIXES;
    let products = site.matrix.times(streams);
    let (products, _) = products.as_chunks::<MIXES>();
    products
        .iter()
        .zip(streams.chunks_exact(width))
        .map(|(product, token)| {
            let scale = inverse_rms(token);
            product.map(|p| p * scale)
        })
        .collect()
}

/// The coefficients that the mixes of one token stand for.
pub fn split(mixes: &[f64; MIXES], scale: [f64; 3], base: &[f64; MIXES]) -> Coefficients {
    let at = |i: usize, part: usize| mixes[i] * scale[part] + base[i];
    let logits = std::array::from_fn(|j| std::array::from_fn(|k| at(2 * STREAMS + STREAMS * j + k, 2)));
    Coefficients {
        pre: std::array::from_fn(|i| sigmoid(at(i, 0)) + EPS),
        post: std::array::from_fn(|i| 2.0 * sigmoid(at(STREAMS + i, 1))),
        comb: sinkhorn(&logits, ROUNDS),
    }
}

/// Brings a matrix near one whose rows and columns each sum to one.
///
/// Row softmax with the maximum taken off, eps added to every entry, columns divided by their sum
/// plus eps: this is round 1. Every further round divides rows, then columns, by their sum plus
/// eps. It ends on columns, so only they sum to one exactly.
pub fn sinkhorn(logits: &Combination, rounds: usize) -> Combination {
    let mut m = logits.map(|row| {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers = row.map(|x| (x - top).exp());
        let sum: f64 = powers.iter().sum();
        powers.map(|p| p / sum + EPS)
    });
    divide_columns(&mut m);
    for _ in 1..rounds {
        for row in &mut m {
            let sum: f64 = row.iter().sum();
            for x in row.iter_mut() {
                *x /= sum + EPS;
            }
        }
        divide_columns(&mut m);
    }
    m
}

fn divide_columns(m: &mut Combination) {
    for k in 0..STREAMS {
        let sum: f64 = m.iter().map(|row| row[k]).sum();
        for row in m.iter_mut() {
            row[k] /= sum + EPS;
        }
    }
}

/// The same matrix with its indices exchanged.
pub fn transpose(m: &Combination) -> Combination {
    std::array::from_fn(|j| std::array::from_fn(|k| m[k][j]))
}

/// `y = sum_i pre_i x_i` for every token; `streams` is `[tokens, 4, width]`, the result `[tokens, width]`.
pub fn site_input(pre: impl Iterator<Item = [f64; STREAMS]>, streams: &[f64], width: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(streams.len() / STREAMS);
    for (pre, token) in pre.zip(streams.chunks_exact(STREAMS * width)) {
        for d in 0..width {
            out.push((0..STREAMS).map(|i| pre[i] * token[i * width + d]).sum());
        }
    }
    out
}

/// New streams `x'_k = post_k f + sum_j comb[j][k] x_j`, the sum over the **first** index.
///
/// `f` is `[tokens, width]`, `streams` and the result are `[tokens, 4, width]`.
pub fn combine(coefficients: &[Coefficients], f: &[f64], streams: &[f64], width: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(streams.len());
    let tokens = streams.chunks_exact(STREAMS * width).zip(f.chunks_exact(width));
    for (c, (token, f)) in coefficients.iter().zip(tokens) {
        for k in 0..STREAMS {
            for d in 0..width {
                let kept: f64 = (0..STREAMS).map(|j| c.comb[j][k] * token[j * width + d]).sum();
                out.push(c.post[k] * f[d] + kept);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOGITS: Combination =
        [[0.0, 1.0, 2.0, 3.0], [3.0, 0.0, -1.0, 1.0], [-2.0, 2.0, 0.5, 0.0], [1.0, 1.0, 1.0, -3.0]];

    fn check_table(rounds: usize, expect: &Combination) {
        let got = sinkhorn(&LOGITS, rounds);
        for (row, wanted) in got.iter().zip(expect) {
            for (a, b) in row.iter().zip(wanted) {
                assert!((a - b).abs() < 6e-9, "{rounds} rounds: {a} where {b} is known");
            }
        }
    }

    #[test]
    fn sinkhorn_after_one_round() {
        check_table(
            1,
            &[
                [0.026_547_54, 0.073_468_28, 0.317_758_25, 0.748_092_38],
                [0.688_086_24, 0.034_878_61, 0.020_416_83, 0.130_652_49],
                [0.011_016_81, 0.612_338_43, 0.217_398_98, 0.114_202_89],
                [0.274_348_59, 0.279_313_84, 0.444_424_60, 0.007_051_08],
            ],
        );
    }

    #[test]
    fn sinkhorn_after_twenty_rounds() {
        check_table(
            20,
            &[
                [0.017_362_56, 0.056_195_80, 0.260_165_26, 0.666_275_40],
                [0.738_005_38, 0.043_751_23, 0.027_413_72, 0.190_828_57],
                [0.009_539_61, 0.620_127_36, 0.235_665_14, 0.134_666_94],
                [0.235_091_44, 0.279_924_60, 0.476_754_89, 0.008_228_08],
            ],
        );
    }

    fn mixed(comb: Combination) -> Vec<f64> {
        let c = Coefficients { pre: [0.0; 4], post: [0.0; 4], comb };
        combine(&[c], &[0.0], &[1.0, 10.0, 100.0, 1000.0], 1)
    }

    #[test]
    fn streams_are_summed_over_the_first_index() {
        let comb = sinkhorn(&LOGITS, 20);
        let check = |got: Vec<f64>, expect: [f64; 4]| {
            for (a, b) in got.iter().zip(expect) {
                assert!((a - b).abs() < 1e-6, "{a} where {b} is known");
            }
        };
        check(mixed(comb), [243.442_821, 342.431_044, 500.855_704, 24.269_338]);
        check(mixed(transpose(&comb)), [692.871_249, 194.745_461, 164.444_270, 58.937_909]);
    }

    #[test]
    fn split_places_eps_and_the_factor_two() {
        let c = split(&[0.0; MIXES], [1.0; 3], &[0.0; MIXES]);
        assert_eq!(c.pre, [0.5 + EPS; 4]);
        assert_eq!(c.post, [1.0; 4]);
        assert!(c.comb.iter().flatten().all(|x| (x - 0.25).abs() < 1e-6));
    }

    #[test]
    fn each_scale_reaches_its_own_part() {
        let ones = [1.0; MIXES];
        let c = split(&ones, [0.0, 30.0, 0.0], &[0.0; MIXES]);
        assert_eq!((c.pre[0], c.post[0]), (0.5 + EPS, 2.0 * sigmoid(30.0)));
        let c = split(&ones, [-30.0, 0.0, 0.0], &[0.0; MIXES]);
        assert_eq!((c.pre[0], c.post[0]), (sigmoid(-30.0) + EPS, 1.0));
    }

    #[test]
    fn mixes_divide_by_the_root_mean_square_of_all_streams() {
        let rows: Vec<f64> = (0..MIXES * STREAMS).map(|i| i as f64).collect();
        let matrix = Matrix::pack(&rows, MIXES, STREAMS);
        let site = Site { rows, matrix, scale: [1.0; 3], base: [0.0; MIXES] };
        let got = mixes(&site, &[1.0, 1.0, 1.0, 5.0]);
        let expect = (0.0 + 1.0 + 2.0 + 3.0 * 5.0) / (28.0_f64 / 4.0 + EPS).sqrt();
        assert!((got[0][0] - expect).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn columns_sum_to_one_and_rows_nearly(logits in prop::array::uniform4(prop::array::uniform4(-3.0_f64..3.0))) {
            let m = sinkhorn(&logits, ROUNDS);
            for k in 0..STREAMS {
                let column: f64 = m.iter().map(|row| row[k]).sum();
                prop_assert!((column - 1.0).abs() < 2e-6);
                prop_assert!((m[k].iter().sum::<f64>() - 1.0).abs() < 0.05);
            }
        }
    }
}
