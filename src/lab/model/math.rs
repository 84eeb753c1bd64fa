//! Small vector functions that the parts of the model share.
#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

use super::EPS;

/// `e^x` in f32, to about 2 units in the last place; 0 below -87. Written so that loops over it vectorise.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let clamped = x.clamp(-87.0, 88.0);
    let n = (clamped * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-0.693_359_4, clamped);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4_f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p.mul_add(r, c);
    }
    let value = p.mul_add(r * r, r) + 1.0;
    let scaled = value * f32::from_bits(((n as i32 + 127) << 23) as u32);
    if x < -87.0 { 0.0 } else { scaled }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Sum of squares with eight running sums, so that it vectorises.
#[inline(always)]
pub(super) fn sum_squares(v: &[f32]) -> f32 {
    let mut acc = [0.0_f32; 16];
    for chunk in v.chunks_exact(16) {
        for (a, x) in acc.iter_mut().zip(chunk) {
            *a = x.mul_add(*x, *a);
        }
    }
    acc.iter().sum()
}

/// Root-mean-square norm with a weight, in place. The length must be a multiple of 16.
#[inline(always)]
pub(super) fn rms_norm(v: &mut [f32], weight: &[f32]) {
    let r = 1.0 / (sum_squares(v) / v.len() as f32 + EPS).sqrt();
    for (x, w) in v.iter_mut().zip(weight) {
        *x *= r * w;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exp_is_accurate(x in -86.0_f32..87.0) {
            let exact = f64::from(x).exp();
            prop_assert!((f64::from(exp(x)) - exact).abs() <= 3e-7 * exact);
        }
    }

    #[test]
    fn exp_of_minus_infinity_is_zero() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn norm_gives_unit_mean_square() {
        let mut v: Vec<f32> = (1..=32).map(|i| i as f32).collect();
        rms_norm(&mut v, &[1.0; 32]);
        assert!((sum_squares(&v) / 32.0 - 1.0).abs() < 1e-5);
    }
}
