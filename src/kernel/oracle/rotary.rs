//! Rotation by position of the last dimensions of a row.
//!
//! Responsible for the angles and for rotating there and back. Not responsible for which position a
//! row has: a compressed key has that of its window's first token.
//!
//! Two neighbouring values are the real and the imaginary part of one number, which is multiplied by
//! `e^(i pos f)`. (The lab model pairs the halves instead: [`crate::kernel::oracle::attention`].)

use std::f64::consts::TAU;

/// The frequencies of a rotation.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    /// Radians a position, one for each pair of dimensions.
    pub frequencies: Vec<f64>,
}

/// How the frequencies are stretched for contexts longer than the model was first trained on (`YaRN`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How many times longer.
    pub factor: f64,
    /// Length of the first training, in tokens.
    pub original: f64,
    /// Pairs that turn at least so often within that length keep their frequency.
    pub beta_fast: f64,
    /// Pairs that turn at most so often are slowed down by the whole factor.
    pub beta_slow: f64,
}

impl Yarn {
    /// As in the published configuration of DeepSeek-V4, for layers with compressed keys.
    pub const DEEPSEEK_V4: Self = Self { factor: 16.0, original: 65536.0, beta_fast: 32.0, beta_slow: 1.0 };
}

/// In which direction a row is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To its position: queries and keys.
    There,
    /// Back from its position: the output of the attention, whose values are rotated keys.
    Back,
}

impl Rotary {
    /// `base^(-2i/dims)` for `dims / 2` pairs, stretched if `yarn` is given.
    ///
    /// With `YaRN` the pair `i` turns at `f (1 - r) + f r / factor`, where `r` rises from 0 to 1 between
    /// the pairs that turn `beta_fast` and `beta_slow` times within the original length, rounded
    /// outwards to whole pairs.
    pub fn new(dims: usize, base: f64, yarn: Option<Yarn>) -> Self {
        assert!(dims.is_multiple_of(2), "a rotation needs pairs of dimensions");
        let plain = |pair: usize| base.powf(-2.0 * pair as f64 / dims as f64);
        let Some(yarn) = yarn else { return Self { frequencies: (0..dims / 2).map(plain).collect() } };
        let pair_that_turns = |times: f64| dims as f64 * (yarn.original / (times * TAU)).ln() / (2.0 * base.ln());
        let low = pair_that_turns(yarn.beta_fast).floor().max(0.0);
        let high = pair_that_turns(yarn.beta_slow).ceil().min(dims as f64 - 1.0);
        let width = if high > low { high - low } else { 1e-3 };
        let stretched = |pair: usize| {
            let slowed = ((pair as f64 - low) / width).clamp(0.0, 1.0);
            plain(pair) * (1.0 - slowed) + plain(pair) / yarn.factor * slowed
        };
        Self { frequencies: (0..dims / 2).map(stretched).collect() }
    }

    /// How many of the last dimensions of a row are rotated.
    pub fn dims(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Rotates the last [`Self::dims`] values of `row` by `position` tokens.
    pub fn turn(&self, row: &mut [f64], position: usize, turn: Turn) {
        assert!(row.len() >= self.dims(), "a row must hold all rotated dimensions");
        let first = row.len() - self.dims();
        for (pair, frequency) in row[first..].chunks_exact_mut(2).zip(&self.frequencies) {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let sin = match turn {
                Turn::There => sin,
                Turn::Back => -sin,
            };
            (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_are_a_pair_and_the_first_dimensions_stay() {
        let rotary = Rotary::new(4, 100.0, None);
        assert_eq!(rotary.frequencies, [1.0, 0.1]);
        let mut row = [7.0, 1.0, 0.0, 0.0, 2.0];
        rotary.turn(&mut row, 3, Turn::There);
        let expect = [7.0, 3_f64.cos(), 3_f64.sin(), -2.0 * 0.3_f64.sin(), 2.0 * 0.3_f64.cos()];
        assert!(row.iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-15), "{row:?}");
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_slows_slow_ones_by_the_whole_factor() {
        let (plain, yarn) = (Rotary::new(64, 160_000.0, None), Rotary::new(64, 160_000.0, Some(Yarn::DEEPSEEK_V4)));
        // Pairs 15 and 25 of 32: 65536 / (32 turns * 2 pi) and 65536 / 2 pi, to the base 160,000.
        for pair in 0..=15 {
            assert_eq!(yarn.frequencies[pair], plain.frequencies[pair], "{pair}");
        }
        assert!(yarn.frequencies[16] < plain.frequencies[16]);
        assert!(yarn.frequencies[24] > plain.frequencies[24] / 16.0);
        for pair in 25..32 {
            assert!((yarn.frequencies[pair] / plain.frequencies[pair] * 16.0 - 1.0).abs() < 1e-12, "{pair}");
        }
    }

    proptest! {
        #[test]
        fn back_undoes_there_and_products_depend_on_the_distance_alone(
            q in prop::collection::vec(-3.0_f64..3.0, 10), k in prop::collection::vec(-3.0_f64..3.0, 10),
            at in 0_usize..9000, distance in 0_usize..900, shift in 0_usize..9000,
        ) {
            let rotary = Rotary::new(8, 10_000.0, None);
            let turned = |row: &[f64], at: usize| { let mut row = row.to_vec(); rotary.turn(&mut row, at, Turn::There); row };
            let mut back = turned(&q, at);
            rotary.turn(&mut back, at, Turn::Back);
            prop_assert!(back.iter().zip(&q).all(|(a, b)| (a - b).abs() < 1e-12));
            let dot = |at: usize| {
                let (q, k) = (turned(&q, at + distance), turned(&k, at));
                q.iter().zip(&k).map(|(x, y)| x * y).sum::<f64>()
            };
            prop_assert!((dot(at) - dot(at + shift)).abs() < 1e-9);
        }
    }
}
