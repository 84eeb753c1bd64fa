//! The mixing product with the machine's vector instructions: 24 outputs, a long inner index.
//!
//! Responsible for multiplying a stretch of packed weights by eight tokens, in f64 and in f32. Not
//! responsible for packing, rounding, or cutting the inner index.
//!
//! Every output of every token has one accumulator that takes its products in ascending order of
//! the inner index; a product is rounded before it is added (no fused multiply-add). Vector lanes
//! run over outputs, so neither the machine nor the batch changes a single bit: in f64 this is the
//! plain loop of the oracle, in f32 it is [`crate::kernel::candidate::Accumulate::dot`].

use std::fmt::Debug;
use std::ops::AddAssign;

use pulp::{Arch, Simd, WithSimd};

use crate::kernel::oracle::hyper::MIXES;
use crate::kernel::sites::group::GROUP;

/// What a product is held in.
pub(super) trait Element:
    Copy + Default + Debug + PartialEq + AddAssign + Into<f64> + Send + Sync + 'static
{
    /// Products of one panel: one in f64 and two in f32, which fill three of the widest vectors.
    const SEATS: usize;
    /// Columns of a panel.
    const PANEL: usize = Self::SEATS * MIXES;
    /// A vector of these.
    type Vector<S: Simd>: Copy;
    /// Values in a vector.
    fn lanes<S: Simd>() -> usize;
    /// A vector of one value.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// `sum + a * b`, the product rounded first.
    fn add_product<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, sum: Self::Vector<S>) -> Self::Vector<S>;
    /// A slice as vectors.
    fn vectors<S: Simd>(values: &[Self]) -> &[Self::Vector<S>];
    /// The same, to be written.
    fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [Self::Vector<S>];
}

macro_rules! element {
    ($t:ty, $seats:literal, $v:ident, $lanes:ident, $splat:ident, $mul:ident, $add:ident, $view:ident, $view_mut:ident) => {
        impl Element for $t {
            const SEATS: usize = $seats;
            type Vector<S: Simd> = S::$v;
            #[inline(always)]
            fn lanes<S: Simd>() -> usize {
                S::$lanes
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$v {
                simd.$splat(value)
            }
            #[inline(always)]
            fn add_product<S: Simd>(simd: S, a: S::$v, b: S::$v, sum: S::$v) -> S::$v {
                simd.$add(sum, simd.$mul(a, b))
            }
            #[inline(always)]
            fn vectors<S: Simd>(values: &[Self]) -> &[S::$v] {
                S::$view(values).0
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [S::$v] {
                S::$view_mut(values).0
            }
        }
    };
}

element!(f64, 1, f64s, F64_LANES, splat_f64s, mul_f64s, add_f64s, as_simd_f64s, as_mut_simd_f64s);
element!(f32, 2, f32s, F32_LANES, splat_f32s, mul_f32s, add_f32s, as_simd_f32s, as_mut_simd_f32s);

/// Adds to `sums` (`[8][PANEL]`) the products of a stretch of the inner index: `weights` is
/// `[stretch][PANEL]`, `x` is `[stretch][8]`.
pub(super) fn accumulate<E: Element>(arch: Arch, weights: &[E], x: &[E], sums: &mut [E]) {
    assert_eq!(weights.len() / E::PANEL, x.len() / GROUP, "weights and streams cover the same stretch");
    assert_eq!(sums.len(), GROUP * E::PANEL, "eight tokens have eight rows of sums");
    arch.dispatch(Stretch { weights, x, sums });
}

struct Stretch<'a, E> {
    weights: &'a [E],
    x: &'a [E],
    sums: &'a mut [E],
}

impl<E: Element> WithSimd for Stretch<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, x, sums } = self;
        // As many tokens at a time as the registers hold accumulators for.
        match E::PANEL / E::lanes::<S>() {
            3 => tiles::<E, S, 8, 3>(simd, weights, x, sums),
            6 => tiles::<E, S, 2, 6>(simd, weights, x, sums),
            12 => tiles::<E, S, 2, 12>(simd, weights, x, sums),
            24 => tiles::<E, S, 1, 24>(simd, weights, x, sums),
            _ => tiles::<E, S, 1, 48>(simd, weights, x, sums),
        }
    }
}

/// All tokens of a group, `R` at a time, in `V` vectors of outputs.
#[inline(always)]
fn tiles<E: Element, S: Simd, const R: usize, const V: usize>(simd: S, weights: &[E], x: &[E], sums: &mut [E]) {
    let (weights, _) = E::vectors::<S>(weights).as_chunks::<V>();
    let (x, _) = x.as_chunks::<R>();
    let (sums, _) = E::vectors_mut::<S>(sums).as_chunks_mut::<V>();
    let (sums, _) = sums.as_chunks_mut::<R>();
    for (tile, sums) in sums.iter_mut().enumerate() {
        let mut tile_sums = *sums;
        for (weights, x) in weights.iter().zip(x.iter().skip(tile).step_by(GROUP / R)) {
            for r in 0..R {
                let x = E::splat(simd, x[r]);
                for v in 0..V {
                    tile_sums[r][v] = E::add_product(simd, x, weights[v], tile_sums[r][v]);
                }
            }
        }
        *sums = tile_sums;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of every other path than the machine's widest must have the same bits.
    fn check<E: Element>(value: impl Fn(usize) -> E, multiply: impl Fn(E, E) -> E) {
        for stretch in [0, 1, 3, 64, 257] {
            let weights: Vec<E> = (0..stretch * E::PANEL).map(&value).collect();
            let x: Vec<E> = (0..stretch * GROUP).map(|i| value(i + 31)).collect();
            let mut plain: Vec<E> = (0..GROUP * E::PANEL).map(|i| value(i + 5)).collect();
            let (mut machine, mut scalar) = (plain.clone(), plain.clone());
            for (token, sums) in plain.chunks_exact_mut(E::PANEL).enumerate() {
                for (column, sum) in sums.iter_mut().enumerate() {
                    for k in 0..stretch {
                        *sum += multiply(weights[k * E::PANEL + column], x[k * GROUP + token]);
                    }
                }
            }
            accumulate(Arch::new(), &weights, &x, &mut machine);
            assert_eq!(machine, plain, "{stretch}");
            accumulate(Arch::Scalar, &weights, &x, &mut scalar);
            assert_eq!(scalar, plain, "{stretch}, without vectors");
        }
    }

    #[test]
    fn sums_have_the_bits_of_the_plain_loop_with_and_without_vectors() {
        check(|i| (i as f64 * 0.731).sin() / 3.0, |a, b| a * b);
        check(|i| (i as f32 * 0.731).sin() / 3.0, |a, b| a * b);
    }
}
