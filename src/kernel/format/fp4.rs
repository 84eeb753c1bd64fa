//! The 4-bit float e2m1: codes, values, and two codes in a byte.
//!
//! Responsible for both rules for ties and for the order of the nibbles. Not responsible for scales,
//! which are [`super::block`].
//!
//! The numbers are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; there is no infinity and no NaN.
//! What lies beyond 6 becomes 6 and keeps its sign. **NaN becomes +6**, as the hardware conversion
//! makes it: whoever quantises must therefore let the scale carry the NaN.
//!
//! `float4` encodes and decodes right, with ties to even: tests compare it with exact arithmetic at
//! every code, every midpoint and their f32 neighbours. It does not offer `DeepGEMM`'s rule for
//! ties, which is here. Its `MXFP4Block` has no rule for the scale but the next power of two of the
//! largest magnitude, which leaves a third of the range unused, so [`super::block`] does not use it.

use float4::F4E2M1;

/// The largest number of e2m1.
pub const E2M1_MAX: f32 = 6.0;

/// The midpoints between neighbouring numbers.
const MIDPOINTS: [f32; 7] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];

/// What becomes of a value half-way between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The neighbour with the even mantissa, as IEEE 754 has it. A zero keeps its sign.
    Even,
    /// The neighbour nearer to zero, since `DeepGEMM` counts the midpoints that the magnitude is
    /// strictly above. It differs from `Even` at 0.75, 1.75 and 3.5. A zero loses its sign.
    TowardZero,
}

/// The e2m1 code of `x` in the low four bits: sign, 2 bits of exponent with bias 1, 1 of mantissa.
pub fn encode_e2m1(x: f32, ties: Ties) -> u8 {
    match ties {
        Ties::Even => F4E2M1::from_f64(f64::from(x)).to_bits(),
        Ties::TowardZero => toward_zero(x),
    }
}

fn toward_zero(x: f32) -> u8 {
    if x.is_nan() {
        return 7;
    }
    let magnitude = x.abs();
    let code: u8 = MIDPOINTS.iter().map(|m| u8::from(magnitude > *m)).sum();
    let sign = u8::from(x < 0.0 && code != 0);
    sign << 3 | code
}

/// The value of an e2m1 code, exactly; the high four bits are not looked at.
pub fn decode_e2m1(code: u8) -> f32 {
    const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = VALUES[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// Two codes a byte, the first in the low nibble; a last one without a partner has zero above it.
pub fn pack_nibbles(codes: &[u8]) -> Vec<u8> {
    let nibble = |code: &u8| code & 0xf;
    codes.chunks(2).map(|pair| nibble(&pair[0]) | pair.get(1).map_or(0, nibble) << 4).collect()
}

/// The first `count` codes of packed bytes, the low nibble of each byte first.
///
/// Fewer come back where the bytes hold fewer.
pub fn unpack_nibbles(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes.iter().flat_map(|byte| [byte & 0xf, byte >> 4]).take(count).collect()
}

#[cfg(test)]
#[path = "fp4_tests.rs"]
mod tests;
