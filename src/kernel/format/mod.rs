//! Number formats narrower than f64: how a value is rounded into them.
//!
//! Responsible for the rounding rule of each format, the codes of the 8-bit and 4-bit ones, and the
//! layouts that share a scale among a block of elements. Not responsible for deciding where a kernel
//! rounds, which is [`crate::kernel::candidate`], nor for the layout of a cache page.
//!
//! Every rule takes an f32, because that is what a kernel holds in its registers before it narrows;
//! [`Rounding::round`] therefore rounds an f64 to f32 first. `half` is used from f32 only: its
//! conversion from f64 drops the low 32 bits of the mantissa and so takes a value just above a tie
//! for the tie. `float8` and `float4` round once from either width; what they get right and what
//! they do not offer is told in [`fp8`], [`fp4`] and [`ue8m0`].

pub mod block;
pub mod fp4;
pub mod fp8;
mod storage;
pub mod ue8m0;

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use block::{BlockFormat, Quantised, dequantise, quantise};
pub use storage::{Storage, UnknownStorage};

use fp4::Ties;
use fp8::Overflow;

/// A point at which a value is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Stays f64.
    #[default]
    Exact,
    /// f32: 23 stored mantissa bits, nearest, ties to even.
    F32,
    /// TF32: the range of f32 with 10 stored mantissa bits, nearest, ties to even.
    Tf32,
    /// bfloat16: the range of f32 with 7 stored mantissa bits, nearest, ties to even.
    Bf16,
    /// IEEE binary16: 10 stored mantissa bits, nearest, ties to even, infinite from 65,520 on.
    F16,
    /// 8-bit float with 3 stored mantissa bits (e4m3fn), nearest, ties to even, at most 448.
    E4m3,
    /// The same where nobody saturates: NaN above 464 and for an infinity.
    E4m3Unsaturated,
    /// 8-bit float with 2 stored mantissa bits, nearest, ties to even, at most 57,344.
    E5m2,
    /// 4-bit float with 1 stored mantissa bit, nearest, ties to even, at most 6.
    E2m1,
    /// The same with ties toward zero, and without a negative zero, as `DeepGEMM` rounds.
    E2m1Strict,
}

impl Rounding {
    /// All rules, the widest format first.
    pub const ALL: [Self; 10] = [
        Self::Exact,
        Self::F32,
        Self::Tf32,
        Self::Bf16,
        Self::F16,
        Self::E4m3,
        Self::E4m3Unsaturated,
        Self::E5m2,
        Self::E2m1,
        Self::E2m1Strict,
    ];

    /// The value that remains of `x`; NaN stays NaN, also where the format has no code for it.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Self::Exact => x,
            Self::F32 => f64::from(x as f32),
            Self::Tf32 => f64::from(round_tf32(x as f32)),
            Self::Bf16 => f64::from(round_bf16(x as f32)),
            Self::F16 => f64::from(round_f16(x as f32)),
            Self::E4m3 => round_e4m3(x, Overflow::Saturate),
            Self::E4m3Unsaturated => round_e4m3(x, Overflow::Special),
            Self::E5m2 => f64::from(fp8::decode_e5m2(fp8::encode_e5m2(x as f32, Overflow::Saturate))),
            Self::E2m1 => round_e2m1(x, Ties::Even),
            Self::E2m1Strict => round_e2m1(x, Ties::TowardZero),
        }
    }

    /// Its name, which is also how it is written in TOML.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::E4m3 => "e4m3",
            Self::E4m3Unsaturated => "e4m3-unsaturated",
            Self::E5m2 => "e5m2",
            Self::E2m1 => "e2m1",
            Self::E2m1Strict => "e2m1-strict",
        }
    }

    /// The largest relative error of one rounding of a normal number (half a unit in the last place).
    ///
    /// Subnormal numbers, and numbers that saturate, can lose more. The normal numbers of the narrow
    /// formats begin high: at 2^-6 for e4m3, at 2^-14 for e5m2, at 1 for e2m1.
    pub fn unit(self) -> f64 {
        let bits = match self {
            Self::Exact => 53,
            Self::F32 => 24,
            Self::Tf32 | Self::F16 => 11,
            Self::Bf16 => 8,
            Self::E4m3 | Self::E4m3Unsaturated => 4,
            Self::E5m2 => 3,
            Self::E2m1 | Self::E2m1Strict => 2,
        };
        0.5_f64.powi(bits)
    }
}

fn round_e4m3(x: f64, overflow: Overflow) -> f64 {
    f64::from(fp8::decode_e4m3(fp8::encode_e4m3(x as f32, overflow)))
}

fn round_e2m1(x: f64, ties: Ties) -> f64 {
    if x.is_nan() {
        return x;
    }
    f64::from(fp4::decode_e2m1(fp4::encode_e2m1(x as f32, ties)))
}

/// bfloat16 of `x` as f32: nearest, ties to even; beyond the range infinite; NaN stays NaN.
pub fn round_bf16(x: f32) -> f32 {
    bf16::from_f32(x).to_f32()
}

/// binary16 of `x` as f32: nearest, ties to even, with subnormals; beyond the range infinite.
pub fn round_f16(x: f32) -> f32 {
    f16::from_f32(x).to_f32()
}

/// TF32 of `x` as f32: nearest, ties to even, on the 10 stored mantissa bits that remain.
///
/// Subnormals are rounded on the same grid (steps of 2^-136) and not flushed; beyond the range
/// infinite. Hardware differs in ties: the PTX instruction `cvt.rna.tf32.f32` takes them away from
/// zero, and a matrix unit that is given unconverted f32 ignores the low 13 bits, which truncates.
pub fn round_tf32(x: f32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    const DROPPED: u32 = 13;
    let bits = x.to_bits();
    let last_kept = (bits >> DROPPED) & 1;
    let half_less_one = (1 << (DROPPED - 1)) - 1;
    // A carry out of the mantissa raises the exponent, which is the right neighbour there too.
    f32::from_bits((bits + half_less_one + last_kept) >> DROPPED << DROPPED)
}

#[cfg(test)]
mod rounding_tests;
