//! Activations and random numbers that the cases of several microtests are made of.
//!
//! Responsible for synthetic activations with the two features that make low precision hard, for
//! the inputs of the lab model's sublayers, and for the smallest change of an activation. Not
//! responsible for weights.

use std::f64::consts::TAU;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::kernel::format::Rounding;
use crate::kernel::oracle::model::{Model, SITES};

/// What [`synthetic`] makes, for a provenance sentence.
pub const SHAPE: &str = "normal numbers with outlier channels (one in 512, at least two, 20 to 60 times larger) and \
    one token with massive activations (three values 100 to 200 times larger), in bf16";

/// A source of random numbers for one case of one seed: the same bits in every run.
pub fn dice(seed: u64, case: u64) -> Pcg64 {
    // Streams of neighbouring seeds must not be neighbours, hence the odd factor.
    Pcg64::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case)
}

/// `count` normal numbers with mean 0 and this standard deviation (Box and Muller's formula).
pub fn normals(dice: &mut Pcg64, count: usize, deviation: f64) -> Vec<f64> {
    let mut numbers = Vec::with_capacity(count + 1);
    while numbers.len() < count {
        let (radius, turn): (f64, f64) = (1.0 - dice.random::<f64>(), dice.random());
        let (sin, cos) = (turn * TAU).sin_cos();
        let length = (-2.0 * radius.ln()).sqrt() * deviation;
        numbers.extend([length * cos, length * sin]);
    }
    numbers.truncate(count);
    numbers
}

/// Activations `[tokens, width]` in bf16, see [`SHAPE`]. The last token is the one with massive
/// values.
pub fn synthetic(dice: &mut Pcg64, tokens: usize, width: usize) -> Vec<f64> {
    let mut values = normals(dice, tokens * width, 1.0);
    for _ in 0..(width / 512).max(2) {
        let (channel, factor) = (dice.random_range(0..width), dice.random_range(20.0..60.0));
        values.iter_mut().skip(channel).step_by(width).for_each(|v| *v *= factor);
    }
    for _ in 0..3 {
        let (channel, factor) = (dice.random_range(0..width), dice.random_range(100.0..200.0));
        values[(tokens - 1) * width + channel] *= factor;
    }
    values.iter().map(|v| Rounding::Bf16.round(*v)).collect()
}

/// The values with one in eight moved by one unit in the last place of bf16, up or down.
pub fn moved(values: &[f64], dice: &mut Pcg64) -> Vec<f64> {
    let step = |v: f64| match v.abs().log2() {
        exponent if exponent.is_finite() => 2_f64.powi(exponent.floor() as i32 - 7),
        _ => 0.0,
    };
    let one = |v: &f64| match dice.random_range(0..16) {
        0 => v + step(*v),
        1 => v - step(*v),
        _ => *v,
    };
    values.iter().map(one).collect()
}

/// The relative error of a row that [`moved`] makes: a step of at most 2^-7 in one of eight.
pub const MOVED: f64 = 0.007_812_5 * 0.353_553_390_593_273_8;

/// The inputs of every site of the lab model before their norms, `[tokens, width]` each, in its own
/// f64 forward pass; and the streams that enter the head, `[tokens, 4, width]`.
pub fn lab_site_inputs(model: &Model, ids: &[u16]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let mut streams = model.embed(ids);
    let mut inputs = Vec::with_capacity(SITES);
    for site in 0..SITES {
        let (_, coefficients) = model.coefficients(site, &streams);
        let step = model.step(site, &streams, &coefficients);
        inputs.push(step.input);
        streams = step.streams;
    }
    (inputs, streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deviation(values: &[f64]) -> f64 {
        (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_and_another_case_other_ones() {
        let draw = |seed, case| synthetic(&mut dice(seed, case), 2, 64);
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
    }

    #[test]
    fn normal_numbers_are_normal() {
        let numbers = normals(&mut dice(1, 0), 40_001, 2.0);
        assert_eq!(numbers.len(), 40_001);
        assert!((deviation(&numbers) - 2.0).abs() < 0.05);
        assert!(numbers.iter().sum::<f64>().abs() / 40_001.0 < 0.05);
        let beyond = numbers.iter().filter(|v| v.abs() > 4.0).count() as f64 / 40_001.0;
        assert!((beyond - 0.0455).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn outlier_channels_and_massive_activations_are_there() {
        let (tokens, width) = (64, 1024);
        let values = synthetic(&mut dice(1, 0), tokens, width);
        let channel = |c: usize| deviation(&values.iter().skip(c).step_by(width).copied().collect::<Vec<_>>());
        let large = (0..width).filter(|c| channel(*c) > 15.0).count();
        assert!((1..=5).contains(&large), "{large}");
        let (plain, last) = values.split_at((tokens - 1) * width);
        assert!(deviation(last) > 1.5 * deviation(plain));
        assert!(values.iter().all(|v| Rounding::Bf16.round(*v) == *v));
    }

    #[test]
    fn one_in_eight_moves_by_one_step_of_bf16() {
        let values = synthetic(&mut dice(1, 0), 8, 512);
        let got = moved(&values, &mut dice(2, 0));
        let changed: Vec<(f64, f64)> = values.iter().copied().zip(got).filter(|(a, b)| a != b).collect();
        assert!((changed.len() as f64 / values.len() as f64 - 0.125).abs() < 0.02);
        for (a, b) in changed {
            let relative = (a - b).abs() / a.abs();
            assert!((0.5_f64.powi(8)..=0.5_f64.powi(7)).contains(&relative), "{a} {b}");
            assert_eq!(Rounding::Bf16.round(b), b, "it lands on a bf16 value");
        }
        assert_eq!(moved(&[0.0; 64], &mut dice(1, 0)), [0.0; 64]);
        assert!(moved(&[f64::NAN; 64], &mut dice(1, 0)).iter().all(|v| v.is_nan()));
    }
}
