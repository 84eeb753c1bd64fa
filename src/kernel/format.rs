//! Number formats narrower than f64: how a value is rounded into them.
//!
//! Responsible for the rounding rule of each format. Not responsible for block scales and packed
//! layouts, nor for deciding where a kernel rounds, which is [`crate::kernel::candidate`].
//!
//! Every rule takes an f32, because that is what a kernel holds in its registers before it narrows;
//! [`Rounding::round`] therefore rounds an f64 to f32 first. `half` is used from f32 only: its
//! conversion from f64 drops the low 32 bits of the mantissa and so takes a value just above a tie
//! for the tie.

use half::{bf16, f16};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}

impl Rounding {
    /// The value that remains of `x`; NaN stays NaN.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Self::Exact => x,
            Self::F32 => f64::from(x as f32),
            Self::Tf32 => f64::from(round_tf32(x as f32)),
            Self::Bf16 => f64::from(round_bf16(x as f32)),
            Self::F16 => f64::from(round_f16(x as f32)),
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The largest relative error of one rounding of a normal number (half a unit in the last place).
    pub fn unit(self) -> f64 {
        let bits = match self {
            Self::Exact => 53,
            Self::F32 => 24,
            Self::Tf32 | Self::F16 => 11,
            Self::Bf16 => 8,
        };
        0.5_f64.powi(bits)
    }
}

/// What is done to a tensor at a rounding point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Storage {
    /// Each value is rounded by itself.
    Element(Rounding),
}

impl Default for Storage {
    fn default() -> Self {
        Self::Element(Rounding::Exact)
    }
}

impl Storage {
    /// The values that remain of `[rows, columns]`.
    pub fn store(self, values: &[f64], _columns: usize) -> Vec<f64> {
        match self {
            Self::Element(Rounding::Exact) => values.to_vec(),
            Self::Element(rule) => values.iter().map(|v| rule.round(*v)).collect(),
        }
    }

    /// Its name.
    pub fn word(self) -> String {
        match self {
            Self::Element(rule) => rule.word().into(),
        }
    }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bf16_golden_values() {
        let check = |x: f32, bits: u16| assert_eq!(bf16::from_f32(x).to_bits(), bits, "{x}");
        check(1.0 + 0.5_f32.powi(8), 0x3f80);
        check(std::f32::consts::PI, 0x4049);
        check(0.1, 0x3dcd);
        check(f32::MAX, 0x7f80);
    }

    /// Nearest, ties to even, by exact arithmetic on the two neighbours of the format.
    fn nearest_even(x: f32, kept: u32) -> f32 {
        let dropped = 23 - kept;
        let low = f32::from_bits(x.to_bits() >> dropped << dropped);
        let step = 1_u32 << dropped;
        let high = f32::from_bits(low.to_bits() + step);
        // Above the largest finite value the neighbour is 2^128, which f64 can hold.
        let high_exact = if high.is_infinite() { 2_f64.powi(128).copysign(f64::from(x)) } else { f64::from(high) };
        let (below, above) = ((f64::from(x) - f64::from(low)).abs(), (high_exact - f64::from(x)).abs());
        match below.total_cmp(&above) {
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Equal if (low.to_bits() >> dropped) & 1 == 0 => low,
            std::cmp::Ordering::Greater | std::cmp::Ordering::Equal => high,
        }
    }

    /// Mantissas around every point where the rule can change its mind.
    fn edge_mantissas() -> Vec<u32> {
        let mut all = Vec::new();
        for kept in [0_u32, 1, 2, 3, 0x155, 0x2aa, 0x3fe, 0x3ff] {
            for rest in [0_u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x0800, 0x1800] {
                all.push(kept << 13 | rest);
            }
        }
        all
    }

    #[test]
    fn tf32_is_nearest_even_for_every_exponent() {
        for sign in [0_u32, 1] {
            for exponent in 0..255_u32 {
                for mantissa in edge_mantissas() {
                    let x = f32::from_bits(sign << 31 | exponent << 23 | mantissa);
                    assert_eq!(round_tf32(x).to_bits(), nearest_even(x, 10).to_bits(), "{:#x}", x.to_bits());
                }
            }
        }
    }

    #[test]
    fn bf16_is_nearest_even_for_every_exponent() {
        for exponent in 0..255_u32 {
            for mantissa in edge_mantissas() {
                let x = f32::from_bits(exponent << 23 | mantissa);
                assert_eq!(round_bf16(x).to_bits(), nearest_even(x, 7).to_bits(), "{:#x}", x.to_bits());
            }
        }
    }

    #[test]
    fn tf32_ties_go_to_even() {
        let ulp = 0.5_f32.powi(10);
        assert_eq!(round_tf32(1.0 + ulp / 2.0), 1.0);
        assert_eq!(round_tf32(1.0 + 1.5 * ulp), 1.0 + 2.0 * ulp);
        assert_eq!(round_tf32(-1.0 - ulp / 2.0), -1.0);
    }

    #[test]
    fn tf32_keeps_specials_and_subnormals() {
        assert!(round_tf32(f32::NAN).is_nan());
        // A NaN whose payload sits in the dropped bits must not become infinite.
        assert!(round_tf32(f32::from_bits(0x7f80_0001)).is_nan());
        assert_eq!(round_tf32(f32::INFINITY), f32::INFINITY);
        assert_eq!(round_tf32(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(round_tf32(f32::MAX), f32::INFINITY);
        assert_eq!(round_tf32(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(round_tf32(f32::from_bits(0x2000)), f32::from_bits(0x2000));
        assert_eq!(round_tf32(f32::from_bits(0x1000)), 0.0);
        assert_eq!(round_tf32(f32::from_bits(0x1001)), f32::from_bits(0x2000));
    }

    #[test]
    fn f16_golden_values() {
        let check = |x: f32, expect: f32| assert_eq!(round_f16(x), expect, "{x}");
        check(65_519.0, 65_504.0);
        check(65_520.0, f32::INFINITY);
        check(0.5_f32.powi(25), 0.0);
        check(0.5_f32.powi(24), 0.5_f32.powi(24));
        check(1.0 + 0.5_f32.powi(11), 1.0);
    }

    #[test]
    fn exact_leaves_a_value_alone() {
        assert_eq!(Rounding::Exact.round(std::f64::consts::PI), std::f64::consts::PI);
        assert!(Rounding::Bf16.round(f64::NAN).is_nan());
    }

    proptest! {
        #[test]
        fn rounding_twice_is_rounding_once(x in -1e30_f64..1e30) {
            for rule in [Rounding::Exact, Rounding::F32, Rounding::Tf32, Rounding::Bf16, Rounding::F16] {
                let once = rule.round(x);
                prop_assert_eq!(rule.round(once).to_bits(), once.to_bits());
            }
        }

        #[test]
        fn the_error_stays_within_the_unit(mantissa in 1.0_f32..2.0, exponent in -120_i32..120) {
            let x = f64::from(mantissa) * 2_f64.powi(exponent);
            for rule in [Rounding::F32, Rounding::Tf32, Rounding::Bf16] {
                prop_assert!((rule.round(x) - x).abs() <= rule.unit() * x.abs());
            }
        }

        #[test]
        fn rounding_keeps_order_and_sign(a in any::<f32>(), b in any::<f32>()) {
            prop_assume!(a <= b);
            for rule in [round_tf32, round_bf16, round_f16] {
                prop_assert!(rule(a) <= rule(b));
                prop_assert_eq!(rule(-a).to_bits(), (-rule(a)).to_bits());
            }
        }
    }
}
