//! Errors of everything that is linear in f and the four streams, without making it.
//!
//! Responsible for the Gram matrix of a token and for norms by it. Not responsible for coefficients.
//!
//! Let v be f and the four streams, five vectors of `width` channels, and G the matrix of their dot
//! products. Whatever is made with coefficients c is a sum of c times v, so that for two sets of
//! coefficients c and c', which make u and u', exactly
//!
//! ```text
//! |u' - u|^2 = d^T G d  with d = c' - c,   |u|^2 = c^T G c,   u' . u = c'^T G c
//! ```
//!
//! New stream k has c = (post k, comb 0k, comb 1k, comb 2k, comb 3k), the site input c = (0, pre).
//! This takes 15 dot products a token for any number of candidates, and no candidate's streams.
//!
//! In f64 the form loses what is smaller than about 1e-8 of `|d| |v|`: errors of streams that are so
//! nearly alike that changes of coefficients cancel are then seen as zero, or as that much.

use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::sites::group::{GROUP, Lanes};

/// f and the streams.
pub(super) const VECTORS: usize = 1 + STREAMS;
const PAIRS: usize = VECTORS * (VECTORS + 1) / 2;

/// Coefficients of f and of the streams, for eight tokens.
pub(super) type Coefficients = [Lanes; VECTORS];

/// The Gram matrices of eight tokens, their upper triangles row by row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gram([Lanes; PAIRS]);

impl Default for Gram {
    fn default() -> Self {
        Self([[0.0; GROUP]; PAIRS])
    }
}

impl Gram {
    /// Adds a stretch of channels, `[channels][8]` of each vector.
    #[inline(always)]
    pub(super) fn add(&mut self, vectors: [&[f64]; VECTORS]) {
        let [f, x0, x1, x2, x3] = vectors.map(|v| v.as_chunks::<GROUP>().0);
        let mut sums = self.0;
        for ((((f, x0), x1), x2), x3) in f.iter().zip(x0).zip(x1).zip(x2).zip(x3) {
            let v = [f, x0, x1, x2, x3];
            let mut pair = 0;
            for a in 0..VECTORS {
                for b in a..VECTORS {
                    for lane in 0..GROUP {
                        sums[pair][lane] += v[a][lane] * v[b][lane];
                    }
                    pair += 1;
                }
            }
        }
        self.0 = sums;
    }

    /// G c.
    #[inline(always)]
    pub(super) fn times(&self, c: &Coefficients) -> Coefficients {
        let mut out = [[0.0; GROUP]; VECTORS];
        for (a, out) in out.iter_mut().enumerate() {
            for (b, c) in c.iter().enumerate() {
                let g = &self.0[place(a.min(b), a.max(b))];
                for lane in 0..GROUP {
                    out[lane] += g[lane] * c[lane];
                }
            }
        }
        out
    }
}

/// The dot product of two sets of coefficients.
#[inline(always)]
pub(super) fn dot(a: &Coefficients, b: &Coefficients) -> Lanes {
    std::array::from_fn(|lane| (0..VECTORS).map(|i| a[i][lane] * b[i][lane]).sum())
}

/// Where a pair with a <= b stands in the triangle.
const fn place(a: usize, b: usize) -> usize {
    a * VECTORS - a * (a + 1) / 2 + b
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_triangle_has_one_place_for_each_pair() {
        let mut places: Vec<usize> = (0..VECTORS).flat_map(|a| (a..VECTORS).map(move |b| place(a, b))).collect();
        assert!(places.is_sorted());
        places.dedup();
        assert_eq!(places, (0..PAIRS).collect::<Vec<_>>());
    }

    fn explicit(vectors: &[Vec<f64>], c: &Coefficients, lane: usize) -> Vec<f64> {
        (0..vectors[0].len() / GROUP)
            .map(|d| (0..VECTORS).map(|a| c[a][lane] * vectors[a][d * GROUP + lane]).sum())
            .collect()
    }

    proptest! {
        #[test]
        fn forms_are_the_norms_of_what_would_have_been_made(
            values in prop::collection::vec(-3.0_f64..3.0, VECTORS * 6 * GROUP),
            right in prop::array::uniform5(-1.0_f64..1.0),
            change in prop::array::uniform5(-1e-3_f64..1e-3),
        ) {
            let vectors: Vec<Vec<f64>> = values.chunks_exact(6 * GROUP).map(<[f64]>::to_vec).collect();
            let mut gram = Gram::default();
            // In two stretches, as blocks of channels come.
            for part in [0..2 * GROUP, 2 * GROUP..6 * GROUP] {
                gram.add(std::array::from_fn(|a| &vectors[a][part.clone()]));
            }
            let c = right.map(|x| [x; GROUP]);
            let d = change.map(|x| [x; GROUP]);
            let moved: Coefficients = std::array::from_fn(|a| [right[a] + change[a]; GROUP]);
            for lane in 0..GROUP {
                let (u, got) = (explicit(&vectors, &c, lane), explicit(&vectors, &moved, lane));
                let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 { got.iter().zip(&u).map(|(g, u)| f(*g, *u)).sum() };
                let near = |form: f64, explicit: f64, scale: f64| (form - explicit).abs() <= 1e-12 * scale;
                let whole = sum(&|g, u| g * g + u * u) + 1.0;
                prop_assert!(near(dot(&c, &gram.times(&c))[lane], sum(&|_, u| u * u), whole));
                prop_assert!(near(dot(&moved, &gram.times(&c))[lane], sum(&|g, u| g * u), whole));
                // The error itself is right to 1e-9 of itself, far below the norms it is the difference of.
                let off = sum(&|g, u| (g - u) * (g - u));
                prop_assert!(near(dot(&d, &gram.times(&d))[lane], off, 1e3 * off + 1e-15));
            }
        }
    }
}
