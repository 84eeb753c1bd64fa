//! Rounding of f32 values to the formats that the switches name; results are f32 again.
//!
//! Not responsible for measuring errors; that is `kernel`.

/// Nearest bf16, ties to even. NaN stays NaN.
#[inline]
pub fn bf16(x: f32) -> f32 {
    round_mantissa(x, 16)
}

/// Nearest TF32 (10 stored mantissa bits), ties to even.
#[inline]
pub fn tf32(x: f32) -> f32 {
    round_mantissa(x, 13)
}

#[inline]
fn round_mantissa(x: f32, drop: u32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let bits = x.to_bits();
    let half = (1_u32 << (drop - 1)) - 1 + ((bits >> drop) & 1);
    f32::from_bits(bits.wrapping_add(half) & !((1_u32 << drop) - 1))
}

/// Nearest fp8 e4m3fn, ties to even, saturating at 448.
#[inline]
pub fn e4m3(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let magnitude = x.abs().min(448.0);
    let exponent = if magnitude < 2.0_f32.powi(-6) { -6 } else { magnitude.log2().floor() as i32 };
    let step = 2.0_f32.powi(exponent - 3);
    ((magnitude / step).round_ties_even() * step).min(448.0).copysign(x)
}

/// Rounds a vector to fp8 e4m3 with one f32 scale of `max(amax, 1e-4) / 448`.
pub fn e4m3_scaled(values: &mut [f32]) {
    let amax = values.iter().fold(1e-4_f32, |a, v| a.max(v.abs()));
    let scale = amax / 448.0;
    for v in values {
        *v = e4m3(*v / scale) * scale;
    }
}

/// Rounds a vector to four-bit integers -7..=7 with one f32 scale.
pub fn int4_scaled(values: &mut [f32]) {
    let amax = values.iter().fold(1e-8_f32, |a, v| a.max(v.abs()));
    let scale = amax / 7.0;
    for v in values {
        *v = (*v / scale).round_ties_even().clamp(-7.0, 7.0) * scale;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bf16_golden_values() {
        assert_eq!(bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(bf16(std::f32::consts::PI).to_bits() >> 16, 0x4049);
        assert_eq!(bf16(0.1).to_bits() >> 16, 0x3dcd);
    }

    #[test]
    fn e4m3_golden_values() {
        for (x, expect) in [(0.1, 0.101_562_5), (17.0, 16.0), (1.1875, 1.25), (-300.0, -288.0), (465.0, 448.0)] {
            assert_eq!(e4m3(x), expect, "{x}");
        }
        assert_eq!(e4m3(2.0_f32.powi(-9)), 2.0_f32.powi(-9));
        assert_eq!(e4m3(2.0_f32.powi(-10)), 0.0);
    }

    proptest! {
        #[test]
        fn bf16_agrees_with_half(x in -1e30_f32..1e30) {
            prop_assert_eq!(bf16(x), half::bf16::from_f32(x).to_f32());
        }

        #[test]
        fn rounding_is_idempotent(x in -1e4_f32..1e4) {
            prop_assert_eq!(tf32(tf32(x)), tf32(x));
            prop_assert_eq!(e4m3(e4m3(x)), e4m3(x));
        }
    }
}
