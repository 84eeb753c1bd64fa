//! The reference on inputs that moved by one unit in the last place of bf16.
//!
//! Responsible for moving one stream value in eight and for what that does to each part, made
//! element by element: the Gram matrices know nothing of moved streams.

use half::bf16;
use rand::Rng as _;
use rand_pcg::Pcg64;

use crate::kernel::candidate::Candidate;
use crate::kernel::oracle::hyper::{MIXES, STREAMS};
use crate::kernel::sites::alone::PARTS;
use crate::kernel::sites::block::{Packed, Products};
use crate::kernel::sites::coefficients::{Affine, Mixed, coefficients, mixes};
use crate::kernel::sites::group::{GROUP, Lanes, Stored};
use crate::kernel::sites::sums::{PartLanes, PartSums};

/// A block of moved streams and their products in f64.
pub(super) struct Moved {
    streams: Vec<bf16>,
    products: Products,
    inner: usize,
}

impl Moved {
    /// Moves the streams of the block at `place`, which is a site and a token.
    pub(super) fn new(packed: &Packed, streams: &[bf16], seed: u64, place: (usize, usize)) -> Self {
        let mut random = Pcg64::new(u128::from(seed), ((place.0 as u128) << 64) | place.1 as u128);
        let streams = flip(streams, &mut random);
        Self { products: packed.products(&streams, &[0]), streams, inner: packed.inner() }
    }

    /// Adds the errors of one group of the block against mixes and coefficients of the reference.
    pub(super) fn compare(
        &self,
        group: usize,
        streams: &[bf16],
        output: &[f64],
        affine: &Affine,
        right: (&[Lanes; MIXES], &Mixed),
        parts: &mut [PartSums; PARTS.len()],
    ) {
        let exact = Candidate::default();
        let got = mixes(&self.products.made[0][group], &self.products.squares[group], self.inner, &exact);
        let mixed = coefficients(&got, affine, &exact);
        let moved = &self.streams[group * self.inner * GROUP..][..self.inner * GROUP];
        let mut lanes = [PartLanes::default(); PARTS.len()];
        got.iter().zip(right.0).for_each(|(got, right)| lanes[0].element(got, right));
        let combs = mixed.comb.as_flattened().iter().zip(right.1.comb.as_flattened());
        combs.for_each(|(got, right)| lanes[1].element(got, right));
        let size = output.len();
        let values = |streams: &[bf16], at: usize| -> [Lanes; 1 + STREAMS] {
            std::array::from_fn(|vector| {
                std::array::from_fn(|lane| match vector {
                    0 => output[at + lane],
                    stream => streams[(stream - 1) * size + at + lane].wide(),
                })
            })
        };
        for at in (0..size).step_by(GROUP) {
            let (got, whole) = (values(moved, at), values(streams, at));
            lanes[2].element(&made(&mixed.site_input(), &got), &made(&right.1.site_input(), &whole));
            for k in 0..STREAMS {
                lanes[3].element(&made(&mixed.new_stream(k), &got), &made(&right.1.new_stream(k), &whole));
            }
        }
        parts.iter_mut().zip(&lanes).for_each(|(part, lanes)| part.add_lanes(lanes));
    }
}

fn made(coefficients: &[Lanes; 1 + STREAMS], vectors: &[Lanes; 1 + STREAMS]) -> Lanes {
    std::array::from_fn(|lane| coefficients.iter().zip(vectors).map(|(c, v)| c[lane] * v[lane]).sum())
}

/// One value in eight moved by one unit in the last place, up or down; zeros and what is not finite
/// stay, and so does what would become infinite.
fn flip(values: &[bf16], random: &mut Pcg64) -> Vec<bf16> {
    let mut move_one = |value: &bf16| {
        let draw = random.next_u32() % 16;
        if draw > 1 || value.to_f32() == 0.0 || !value.is_finite() {
            return *value;
        }
        let bits = if draw == 0 { value.to_bits() + 1 } else { value.to_bits() - 1 };
        let next = bf16::from_bits(bits);
        if next.is_finite() { next } else { *value }
    };
    values.iter().map(&mut move_one).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn one_value_in_eight_moves_by_one_unit() {
        let values: Vec<bf16> = (0..16_000).map(|i| bf16::from_f32((i as f32 * 0.37).sin() + 2.0)).collect();
        let moved = flip(&values, &mut Pcg64::seed_from_u64(4));
        let changed = values.iter().zip(&moved).filter(|(a, b)| a != b).count();
        assert!((1_800..2_200).contains(&changed), "{changed}");
        assert!(values.iter().zip(&moved).all(|(a, b)| a.to_bits().abs_diff(b.to_bits()) <= 1));
    }

    #[test]
    fn nothing_leaves_the_finite_numbers_or_zero() {
        let values = [bf16::ZERO, bf16::NEG_ZERO, bf16::MAX, bf16::MIN, bf16::INFINITY].repeat(64);
        let moved = flip(&values, &mut Pcg64::seed_from_u64(1));
        for (old, new) in values.iter().zip(&moved) {
            assert!(new == old || old.is_finite() && new.is_finite() && old.to_f32() != 0.0, "{old} {new}");
        }
    }
}
