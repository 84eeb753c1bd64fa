//! What mixes become, eight tokens at a time, with a candidate's faults.
//!
//! Responsible for the same bits as [`hyper::split`] token by token, in vector lanes. Not
//! responsible for the products.

use crate::kernel::candidate::Candidate;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::oracle::EPS;
use crate::kernel::oracle::hyper::{MIXES, ROUNDS, STREAMS};
use crate::kernel::sites::group::{GROUP, Lanes};

/// Coefficients of eight tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mixed {
    /// Weight of each stream in the site input.
    pub pre: [Lanes; STREAMS],
    /// Weight of the sublayer's output in each new stream.
    pub post: [Lanes; STREAMS],
    /// The combination matrix, `[j][k]`.
    pub comb: [[Lanes; STREAMS]; STREAMS],
}

/// Scales and offsets of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    /// Scales of `pre`, `post` and the combination.
    pub scale: [f64; 3],
    /// Offsets of the 24 mixes.
    pub base: [f64; MIXES],
}

impl Mixed {
    /// The coefficients that make new stream `k`: of the sublayer's output, then of the four streams.
    #[inline(always)]
    pub(super) fn new_stream(&self, k: usize) -> [Lanes; 1 + STREAMS] {
        [self.post[k], self.comb[0][k], self.comb[1][k], self.comb[2][k], self.comb[3][k]]
    }

    /// The coefficients that make the site input, in the same order.
    #[inline(always)]
    pub(super) fn site_input(&self) -> [Lanes; 1 + STREAMS] {
        [[0.0; GROUP], self.pre[0], self.pre[1], self.pre[2], self.pre[3]]
    }
}

/// The mixes of eight tokens: the product, rounded as the candidate says, over the root mean square.
#[inline(always)]
pub(super) fn mixes(product: &[Lanes; MIXES], squares: &Lanes, inner: usize, candidate: &Candidate) -> [Lanes; MIXES] {
    let misplaced = candidate.has_fault("eps-misplaced");
    let scale: Lanes = std::array::from_fn(|lane| {
        let mean = squares[lane] / inner as f64;
        1.0 / if misplaced { mean.sqrt() + EPS } else { (mean + EPS).sqrt() }
    });
    let stored = store(candidate.at("output"), product);
    stored.map(|output| std::array::from_fn(|lane| output[lane] * scale[lane]))
}

/// The coefficients that a candidate makes of its mixes.
#[inline(always)]
pub(super) fn coefficients(mixes: &[Lanes; MIXES], affine: &Affine, candidate: &Candidate) -> Mixed {
    let twice = candidate.has_fault("scale-twice");
    let scale = if twice { affine.scale.map(|s| s * s) } else { affine.scale };
    let mut mixed = split(mixes, scale, &affine.base);
    if candidate.has_fault("transposed") {
        mixed.comb = std::array::from_fn(|j| std::array::from_fn(|k| mixed.comb[k][j]));
    }
    if candidate.has_fault("post-factor-forgotten") {
        mixed.post = mixed.post.map(|post| post.map(|p| p / 2.0));
    }
    mixed
}

/// [`crate::kernel::oracle::hyper::split`] in lanes.
#[inline(always)]
pub(super) fn split(mixes: &[Lanes; MIXES], scale: [f64; 3], base: &[f64; MIXES]) -> Mixed {
    let at = |i: usize, part: usize| -> Lanes { std::array::from_fn(|lane| mixes[i][lane] * scale[part] + base[i]) };
    let logits = std::array::from_fn(|j| std::array::from_fn(|k| at(2 * STREAMS + STREAMS * j + k, 2)));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    Mixed {
        pre: std::array::from_fn(|i| at(i, 0).map(|x| sigmoid(x) + EPS)),
        post: std::array::from_fn(|i| at(STREAMS + i, 1).map(|x| 2.0 * sigmoid(x))),
        comb: sinkhorn(&logits),
    }
}

#[inline(always)]
fn sinkhorn(logits: &[[Lanes; STREAMS]; STREAMS]) -> [[Lanes; STREAMS]; STREAMS] {
    let mut m = *logits;
    for row in &mut m {
        for lane in 0..GROUP {
            let top = row.iter().map(|x| x[lane]).fold(f64::NEG_INFINITY, f64::max);
            for x in row.iter_mut() {
                x[lane] = (x[lane] - top).exp();
            }
        }
        let sum = total(row);
        for x in row.iter_mut() {
            for lane in 0..GROUP {
                x[lane] = x[lane] / sum[lane] + EPS;
            }
        }
    }
    divide_columns(&mut m);
    for _ in 1..ROUNDS {
        for row in &mut m {
            let sum = total(row);
            for x in row.iter_mut() {
                divide(x, &sum);
            }
        }
        divide_columns(&mut m);
    }
    m
}

#[inline(always)]
fn divide_columns(m: &mut [[Lanes; STREAMS]; STREAMS]) {
    for k in 0..STREAMS {
        let sum = total(&[m[0][k], m[1][k], m[2][k], m[3][k]]);
        for row in m.iter_mut() {
            divide(&mut row[k], &sum);
        }
    }
}

#[inline(always)]
fn total(terms: &[Lanes; STREAMS]) -> Lanes {
    std::array::from_fn(|lane| terms[0][lane] + terms[1][lane] + terms[2][lane] + terms[3][lane])
}

#[inline(always)]
fn divide(x: &mut Lanes, sum: &Lanes) {
    for lane in 0..GROUP {
        x[lane] /= sum[lane] + EPS;
    }
}

fn store(storage: Storage, product: &[Lanes; MIXES]) -> [Lanes; MIXES] {
    match storage {
        Storage::Element(Rounding::Exact) => *product,
        Storage::Element(rule) => product.map(|output| output.map(|p| rule.round(p))),
        Storage::Block(_) => {
            // Block scales run over the outputs of one token.
            let rows: Vec<f64> = (0..GROUP).flat_map(|lane| product.map(|output| output[lane])).collect();
            let stored = storage.store(&rows, MIXES);
            std::array::from_fn(|output| std::array::from_fn(|lane| stored[lane * MIXES + output]))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::oracle::hyper;

    fn candidate(text: &str) -> Candidate {
        toml::from_str(&format!("spec = \"mhc-mix\"\nname = \"n\"\n{text}")).unwrap()
    }

    fn one(mixed: &Mixed, lane: usize) -> hyper::Coefficients {
        hyper::Coefficients {
            pre: mixed.pre.map(|x| x[lane]),
            post: mixed.post.map(|x| x[lane]),
            comb: mixed.comb.map(|row| row.map(|x| x[lane])),
        }
    }

    proptest! {
        #[test]
        fn lanes_have_the_bits_of_the_oracle(
            values in prop::collection::vec(-6.0_f64..6.0, MIXES * GROUP), scale in prop::array::uniform3(-2.0_f64..2.0),
        ) {
            let mixes: [Lanes; MIXES] =
                std::array::from_fn(|i| std::array::from_fn(|lane| values[i * GROUP + lane]));
            let base = std::array::from_fn(|i| i as f64 / 20.0 - 0.6);
            let got = split(&mixes, scale, &base);
            for lane in 0..GROUP {
                prop_assert_eq!(one(&got, lane), hyper::split(&mixes.map(|m| m[lane]), scale, &base));
            }
        }
    }

    #[test]
    fn each_fault_changes_its_own_part_alone() {
        let mixes: [Lanes; MIXES] = std::array::from_fn(|i| [(i as f64 * 1.3).sin(); GROUP]);
        let affine = Affine { scale: [0.5, 0.7, 0.9], base: [0.1; MIXES] };
        let of = |text: &str| one(&coefficients(&mixes, &affine, &candidate(text)), 3);
        let right = of("");
        assert_eq!(of("fault = \"transposed\"").comb, hyper::transpose(&right.comb));
        assert_eq!(of("fault = \"post-factor-forgotten\"").post.map(|p| p * 2.0), right.post);
        let squared = hyper::split(&mixes.map(|m| m[3]), [0.25, 0.7 * 0.7, 0.9 * 0.9], &[0.1; MIXES]);
        assert_eq!(of("fault = \"scale-twice\""), squared);
        assert_eq!(of("fault = \"eps-misplaced\""), right);
    }

    #[test]
    fn the_output_is_rounded_before_the_root_mean_square_and_eps_goes_under_it() {
        let product = [[std::f64::consts::PI; GROUP]; MIXES];
        let squares = [8.0; GROUP];
        let got = |text: &str| mixes(&product, &squares, 16, &candidate(text))[5][2];
        assert_eq!(got(""), std::f64::consts::PI * (1.0 / (0.5_f64 + EPS).sqrt()));
        assert_eq!(got("round = { output = \"bf16\" }"), 3.140_625 * (1.0 / (0.5_f64 + EPS).sqrt()));
        assert_eq!(got("fault = \"eps-misplaced\""), std::f64::consts::PI * (1.0 / (0.5_f64.sqrt() + EPS)));
    }
}
