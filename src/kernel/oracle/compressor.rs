//! The compressor: one key out of a window of tokens.
//!
//! Responsible for the softmax over a window, for overlapping windows, for norm and rotation of a
//! key, and for what is not yet a key. Not responsible for the two projections that feed it, nor for
//! quantising the keys.
//!
//! Keys have `dim` values. With a ratio of 4 windows overlap: each token is projected to `2 dim`
//! values, the first `dim` for the window after its own and the last `dim` for its own. With other
//! ratios a token has `dim` values, for its own window.

use std::collections::VecDeque;

use crate::kernel::oracle::rms;
use crate::kernel::oracle::rotary::{Rotary, Turn};

/// The ratio whose windows overlap.
pub const OVERLAPPING: usize = 4;

/// What a compressor is.
#[derive(Clone, Debug, PartialEq)]
pub struct Compressor {
    /// Tokens a window.
    pub ratio: usize,
    /// Values of a key.
    pub dim: usize,
    /// Added to the gates by place in the window, `[ratio, inputs]`.
    pub ape: Vec<f64>,
    /// Norm of a key, `[dim]`.
    pub norm: Vec<f64>,
    /// Rotation of a key, by the position of the first token of its window.
    pub rotary: Rotary,
}

impl Compressor {
    /// Whether a window also reads the one before it.
    pub fn overlaps(&self) -> bool {
        self.ratio == OVERLAPPING
    }

    /// Values of a projected token: `2 dim` where windows overlap, else `dim`.
    pub fn inputs(&self) -> usize {
        if self.overlaps() { 2 * self.dim } else { self.dim }
    }

    /// The keys of all complete windows, `[tokens / ratio, dim]`; `values` and `gates` are
    /// `[tokens, inputs]`. Tokens after the last complete window make no key.
    pub fn compress(&self, values: &[f64], gates: &[f64]) -> Vec<f64> {
        let tokens = values.len() / self.inputs();
        (0..tokens / self.ratio).flat_map(|window| self.key(window, values, gates)).collect()
    }

    /// The key of one window, which must be complete.
    ///
    /// Dimension `d` is the mean of the window's values of `d` with the weights `softmax(gate + ape)`,
    /// each dimension with its own. Where windows overlap, the mean is over `2 ratio` tokens: of the
    /// window before the first half of the inputs is taken, of the window itself the second half.
    /// The first window has none before it.
    pub fn key(&self, window: usize, values: &[f64], gates: &[f64]) -> Vec<f64> {
        let (inputs, ratio) = (self.inputs(), self.ratio);
        let mut key = vec![0.0; self.dim];
        for (d, mean) in key.iter_mut().enumerate() {
            let mut terms = Vec::new();
            let mut read = |window: usize, input: usize| {
                for place in 0..ratio {
                    let at = (window * ratio + place) * inputs + input;
                    terms.push((gates[at] + self.ape[place * inputs + input], values[at]));
                }
            };
            if self.overlaps() {
                if window > 0 {
                    read(window - 1, d);
                }
                read(window, self.dim + d);
            } else {
                read(window, d);
            }
            *mean = weighted_mean(&terms);
        }
        let mut key = rms(&key, &self.norm);
        self.rotary.turn(&mut key, window * ratio, Turn::There);
        key
    }
}

/// `sum e^(g - m) v / sum e^(g - m)` over pairs of gate and value, `m` being the largest gate.
fn weighted_mean(terms: &[(f64, f64)]) -> f64 {
    let most = terms.iter().map(|(gate, _)| *gate).fold(f64::NEG_INFINITY, f64::max);
    let (mut mean, mut sum) = (0.0, 0.0);
    for (gate, value) in terms {
        let weight = (gate - most).exp();
        sum += weight;
        mean += weight * value;
    }
    mean / sum
}

/// Tokens that have come and may still be read by a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Values and gates of these tokens, oldest first: the window before, if windows overlap, and
    /// the window that is not complete.
    rows: VecDeque<(Vec<f64>, Vec<f64>)>,
    tokens: usize,
}

impl State {
    /// How many tokens have come.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens of the window that is not complete.
    pub fn tail(&self, compressor: &Compressor) -> usize {
        self.tokens % compressor.ratio
    }

    /// Takes one projected token; its window's key if it is the last of it.
    pub fn push(&mut self, compressor: &Compressor, values: &[f64], gates: &[f64]) -> Option<Vec<f64>> {
        self.rows.push_back((values.to_vec(), gates.to_vec()));
        self.tokens += 1;
        if !self.tokens.is_multiple_of(compressor.ratio) {
            return None;
        }
        let window = self.tokens / compressor.ratio - 1;
        let (values, gates): (Vec<_>, Vec<_>) = self.rows.iter().cloned().unzip();
        // The rows held are those of the last window or two: count windows from the oldest held.
        let held = Compressor { rotary: Rotary { frequencies: Vec::new() }, ..compressor.clone() };
        let mut key = held.key(self.rows.len() / compressor.ratio - 1, &values.concat(), &gates.concat());
        compressor.rotary.turn(&mut key, window * compressor.ratio, Turn::There);
        let needed = if compressor.overlaps() { compressor.ratio } else { 0 };
        self.rows.drain(..self.rows.len() - needed);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::oracle::EPS;

    /// One value and nothing rotated, so that a key is `mean / sqrt(mean^2 + eps)` times the norm.
    fn plain(ratio: usize, ape: Vec<f64>) -> Compressor {
        Compressor { ratio, dim: 1, ape, norm: vec![2.0], rotary: Rotary { frequencies: Vec::new() } }
    }

    fn normed(mean: f64) -> f64 {
        2.0 * mean / (mean * mean + EPS).sqrt()
    }

    #[test]
    fn gates_and_places_weigh_a_window() {
        let compressor = plain(2, vec![0.0, 3_f64.ln()]);
        let mean = (-4.0 + 3.0 * 1.0) / 4.0;
        assert_eq!(compressor.compress(&[-4.0, 1.0], &[0.5, 0.5]), [normed(mean)]);
        // Equal weights would give a key of the other sign than weights by place.
        let even = plain(2, vec![0.0, 0.0]).compress(&[-2.0, 1.0], &[0.5, 0.5]);
        let placed = compressor.compress(&[-2.0, 1.0], &[0.5, 0.5]);
        assert!(even[0] < 0.0 && placed[0] > 0.0);
    }

    #[test]
    fn an_overlapping_window_takes_the_first_half_of_the_one_before_and_the_second_of_its_own() {
        let compressor = plain(4, vec![0.0; 8]);
        // Value 1 in the first half, -1 in the second, gates such that one token of each decides.
        let values: Vec<f64> = (0..8).flat_map(|t| [f64::from(t) + 1.0, -f64::from(t) - 1.0]).collect();
        let mut gates = vec![-1e3; 16];
        gates[2 * 2] = 0.0; // token 2, first half
        gates[2 * 5 + 1] = 0.0; // token 5, second half
        let first = compressor.key(0, &values, &gates);
        let mean = -(1.0 + 2.0 + 3.0 + 4.0) / 4.0;
        assert!((first[0] - normed(mean)).abs() < 1e-12, "the first window has equal gates in its own half");
        let second = compressor.key(1, &values, &gates);
        assert!((second[0] - normed(f64::midpoint(3.0, -6.0))).abs() < 1e-12, "{second:?}");
    }

    #[test]
    fn a_key_is_rotated_by_the_first_token_of_its_window() {
        let compressor =
            Compressor { ratio: 3, dim: 2, ape: vec![0.0; 6], norm: vec![1.0; 2], rotary: Rotary::new(2, 10.0, None) };
        let keys = compressor.compress(&[1.0, 0.0].repeat(6), &[0.0; 12]);
        let length = (0.5_f64 + EPS).sqrt().recip();
        assert!((keys[0] - length).abs() < 1e-12 && keys[1].abs() < 1e-12);
        assert!((keys[2] - 3_f64.cos() * length).abs() < 1e-12 && (keys[3] - 3_f64.sin() * length).abs() < 1e-12);
    }

    #[test]
    fn an_incomplete_window_makes_no_key() {
        let compressor = plain(4, vec![0.0; 8]);
        for tokens in 0..9 {
            let keys = compressor.compress(&vec![1.0; 2 * tokens], &vec![0.0; 2 * tokens]);
            assert_eq!(keys.len(), tokens / 4, "{tokens} tokens");
        }
    }

    proptest! {
        #[test]
        fn token_by_token_is_the_same_as_all_at_once(
            ratio in prop::sample::select(vec![2_usize, 4, 5]), tokens in 0_usize..23, seed in 0_u32..1000,
        ) {
            let value = |i: usize, k: f64| ((i as f64 + f64::from(seed)) * k).sin();
            let mut compressor = Compressor {
                ratio, dim: 4, ape: Vec::new(), norm: vec![1.0, 0.5, 2.0, 1.5], rotary: Rotary::new(2, 100.0, None),
            };
            let inputs = compressor.inputs();
            compressor.ape = (0..ratio * inputs).map(|i| value(i, 0.7)).collect();
            let values: Vec<f64> = (0..tokens * inputs).map(|i| value(i, 1.3)).collect();
            let gates: Vec<f64> = (0..tokens * inputs).map(|i| 3.0 * value(i, 2.1)).collect();
            let mut state = State::default();
            let mut keys = Vec::new();
            for (v, g) in values.chunks_exact(inputs).zip(gates.chunks_exact(inputs)) {
                keys.extend(state.push(&compressor, v, g).into_iter().flatten());
            }
            prop_assert_eq!(keys, compressor.compress(&values, &gates));
            prop_assert_eq!((state.tokens(), state.tail(&compressor)), (tokens, tokens % ratio));
        }
    }
}
