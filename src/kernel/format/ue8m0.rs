//! ue8m0: a scale that is a power of two in one byte.
//!
//! Responsible for its codes and for rounding up to one. The exponent is the byte less 127, from
//! -127 to 127; 0xff is NaN; there is no zero, no sign and no infinity.
//!
//! `float4` has this format as `E8M0`, but not so that it could be used: it rounds up through a
//! logarithm, which takes the f64 just above a power of two for that power, and it makes the largest
//! scale of an infinity and the smallest of a negative number, where a block that holds such a thing
//! must not look sound. Its codes are the same, which a test compares.

/// The code for NaN.
pub const NAN: u8 = 0xff;

/// The least power of two that is not below `scale`, as its code.
///
/// NaN, infinite and negative scales become [`NAN`]. Zero and what is below 2^-127 become 2^-127;
/// what is above 2^127 becomes 2^127, which is then below it.
pub fn encode_up(scale: f32) -> u8 {
    if !scale.is_finite() || scale < 0.0 {
        return NAN;
    }
    const SMALLEST: u32 = 0x0040_0000;
    let bits = scale.to_bits() & 0x7fff_ffff;
    if bits <= SMALLEST {
        return 0;
    }
    let (exponent, mantissa) = (bits >> 23, bits & 0x007f_ffff);
    (exponent + u32::from(mantissa != 0)).min(254) as u8
}

/// The power of two of a code, exactly; NaN for 0xff.
pub fn decode(code: u8) -> f32 {
    match code {
        NAN => f32::NAN,
        // 2^-127 is below the normal numbers of f32.
        0 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

#[cfg(test)]
mod tests {
    use float4::E8M0;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_is_an_exponent_with_bias_127() {
        for code in 0..255_u8 {
            let value = 2_f64.powi(i32::from(code) - 127);
            assert_eq!(f64::from(decode(code)), value);
            assert_eq!(encode_up(decode(code)), code);
            assert_eq!(E8M0::from_bits(code).to_f64(), value);
        }
        assert!(decode(NAN).is_nan() && E8M0::from_bits(NAN).to_f64().is_nan());
    }

    #[test]
    fn a_scale_just_above_a_power_of_two_takes_the_next() {
        for code in 0..254_u8 {
            assert_eq!(encode_up(decode(code).next_up()), code + 1, "{code}");
            assert_eq!(encode_up(decode(code + 1).next_down()), code + 1, "{code}");
        }
    }

    #[test]
    fn what_has_no_code() {
        let check = |scale: f32, code: u8| assert_eq!(encode_up(scale), code, "{scale}");
        check(f32::NAN, NAN);
        check(f32::INFINITY, NAN);
        check(-1.0, NAN);
        check(0.0, 0);
        check(-0.0, 0);
        check(f32::from_bits(1), 0);
        check(f32::MAX, 254);
    }

    #[test]
    fn float4_fails_just_above_a_power_of_two_and_hides_infinity() {
        assert_eq!(E8M0::from_f64(2_f64.powi(100).next_up()).to_bits(), 227);
        assert_eq!(E8M0::from_f64(f64::INFINITY).to_bits(), 254);
    }

    proptest! {
        #[test]
        fn the_power_is_the_least_that_is_not_below(bits in 0x0040_0000_u32..=0x7f00_0000) {
            let scale = f32::from_bits(bits);
            let up = decode(encode_up(scale));
            prop_assert!(up >= scale && up / 2.0 < scale);
        }
    }
}
