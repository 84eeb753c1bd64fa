//! Rounding of whole slices of f32 in vectors, for the weights of a site.
//!
//! Responsible for being fast and the same as [`Storage::store`]. Not responsible for the rules.

use crate::kernel::format::{Rounding, Storage};
use crate::kernel::sites::group::bf16_bits;

/// Rounds `values`, which are `[rows, columns]`, in place, as [`Storage::store`] does; what remains
/// is held in f32, which all formats up to f32 fit into.
pub fn round_slice(storage: Storage, values: &mut [f32], columns: usize) {
    match storage {
        Storage::Element(Rounding::Exact | Rounding::F32) => {}
        Storage::Element(Rounding::Bf16) => {
            for v in values.iter_mut() {
                *v = f32::from_bits(u32::from(bf16_bits(*v)) << 16);
            }
        }
        Storage::Element(Rounding::Tf32) => values.iter_mut().for_each(|v| *v = tf32(*v)),
        other => {
            let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            for (value, stored) in values.iter_mut().zip(other.store(&wide, columns)) {
                *value = stored as f32;
            }
        }
    }
}

/// TF32 without branches: the low 13 bits are rounded away, to nearest, ties to even.
#[inline(always)]
fn tf32(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff;
    if x.is_finite() { f32::from_bits(rounded) } else { x }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(rule: Rounding, x: f32) {
        let mut got = [x];
        round_slice(Storage::Element(rule), &mut got, 1);
        let right = rule.round(f64::from(x));
        let same = f64::from(got[0]).to_bits() == right.to_bits() || got[0].is_nan() && right.is_nan();
        assert!(same, "{rule:?} {:#x}: {} where {right} is right", x.to_bits(), got[0]);
    }

    #[test]
    fn slices_are_rounded_as_single_values_at_every_exponent() {
        for rule in Rounding::ALL {
            for upper in 0..=u16::MAX {
                for lower in [0_u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xf000] {
                    check(rule, f32::from_bits(u32::from(upper) << 16 | lower));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn slices_are_rounded_as_single_values(x in any::<f32>()) {
            for rule in Rounding::ALL {
                check(rule, x);
            }
        }
    }
}
