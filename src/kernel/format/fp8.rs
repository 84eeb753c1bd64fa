//! The two 8-bit floats: codes and values.
//!
//! Responsible for e4m3fn and e5m2 with both rules for what lies above the largest number. Not
//! responsible for scales, which are [`super::block`].
//!
//! **Rounding** is to nearest, ties to even, once, from f32, with subnormals. A magnitude of at most
//! half the smallest subnormal becomes zero and keeps its sign.
//!
//! `float8` does this right, and saturates: tests compare it with exact arithmetic at every code,
//! every midpoint and their f32 neighbours, and one run over all f32 found no other value. Its
//! documentation says that a value too large becomes infinite, which it does not. It does not offer
//! the cast that does not saturate, which is here: `ml_dtypes` casts so, and a kernel that forgets to
//! clamp before such a cast gets NaN from it.

use float8::{F8E4M3, F8E5M2};

/// The largest number of e4m3fn.
pub const E4M3_MAX: f32 = 448.0;

/// The largest finite number of e5m2.
pub const E5M2_MAX: f32 = 57_344.0;

/// Half-way from [`E4M3_MAX`] to the number that its code for NaN stands in the place of.
const E4M3_TIE: f32 = 464.0;

/// Half-way from [`E5M2_MAX`] to 65,536.
const E5M2_TIE: f32 = 61_440.0;

/// What becomes of a value above the largest finite one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest finite number of the same sign, for infinities too (`cvt.rn.satfinite`).
    Saturate,
    /// What the format has beyond its largest number: NaN in e4m3fn above 464, infinity in e5m2 from
    /// 61,440 on. A value that rounds down to the largest number stays finite.
    Special,
}

/// The e4m3fn code of `x`: sign, 4 bits of exponent with bias 7, 3 bits of mantissa.
///
/// No infinity; 0x7f and 0xff are NaN; the smallest subnormal is 2^-9. The tie at 464 goes to 448,
/// whose mantissa is even, under either rule. NaN stays NaN.
pub fn encode_e4m3(x: f32, overflow: Overflow) -> u8 {
    let saturated = F8E4M3::from_f32(x).to_bits();
    match overflow {
        Overflow::Special if x.abs() > E4M3_TIE => saturated | 0x7f,
        Overflow::Special | Overflow::Saturate => saturated,
    }
}

/// The value of an e4m3fn code, exactly.
pub fn decode_e4m3(code: u8) -> f32 {
    const VALUES: [f32; 256] = {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            values[code] = F8E4M3::from_bits(code as u8).to_f32();
            code += 1;
        }
        values
    };
    VALUES[usize::from(code)]
}

/// The e5m2 code of `x`: sign, 5 bits of exponent with bias 15, 2 bits of mantissa.
///
/// 0x7c and 0xfc are infinities, the codes above them NaN; the smallest subnormal is 2^-16. The tie
/// at 61,440 goes up, since the mantissa of 57,344 is odd; saturation brings it back.
pub fn encode_e5m2(x: f32, overflow: Overflow) -> u8 {
    let saturated = F8E5M2::from_f32(x).to_bits();
    match overflow {
        Overflow::Special if x.abs() >= E5M2_TIE => (saturated & 0x80) | 0x7c,
        Overflow::Special | Overflow::Saturate => saturated,
    }
}

/// The value of an e5m2 code, exactly.
pub fn decode_e5m2(code: u8) -> f32 {
    const VALUES: [f32; 256] = {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            values[code] = F8E5M2::from_bits(code as u8).to_f32();
            code += 1;
        }
        values
    };
    VALUES[usize::from(code)]
}

#[cfg(test)]
#[path = "fp8_tests.rs"]
mod tests;
