//! Eight tokens side by side, and how streams are stored.
//!
//! Responsible for the layout `[channels][8]` and for widening and narrowing in it. Whatever is done
//! to a token is done in the lanes of a vector, one lane a token, so that sums over channels keep
//! their ascending order and no bit depends on the machine.

use half::bf16;

/// Tokens that lie side by side.
pub const GROUP: usize = 8;

/// One value of each of the eight tokens.
pub(super) type Lanes = [f64; GROUP];

/// What streams are stored in.
pub(super) trait Stored: Copy + Send + Sync {
    /// What is kept of a value.
    fn keep(value: f64) -> Self;
    /// The value, exactly.
    fn wide(self) -> f64;
    /// The value as f32, rounded if it does not fit.
    fn narrow(self) -> f32;
}

impl Stored for f64 {
    #[inline(always)]
    fn keep(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        self as f32
    }
}

/// bf16 as the model stores streams: through f32, nearest, ties to even.
///
/// The same as `half`'s conversions, without branches, so that the compiler makes vectors of them.
impl Stored for bf16 {
    #[inline(always)]
    fn keep(value: f64) -> Self {
        Self::from_bits(bf16_bits(value as f32))
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self.narrow())
    }
    #[inline(always)]
    fn narrow(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// The upper half of the bits of `x`, rounded to nearest, ties to even; NaN stays NaN.
#[inline(always)]
pub(super) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    let quiet = ((bits >> 16) | 0x40) as u16;
    if x.is_nan() { quiet } else { rounded }
}

/// Does work that is written in lanes with the machine's vector instructions.
///
/// A closure would do, were it always inlined: one that is not is compiled for the oldest machine.
macro_rules! vectorised {
    ($(#[$doc:meta])* $name:ident<'a $(, $t:ident: $bound:ident)?> { $($field:ident: $type:ty),* $(,)? } |$simd:pat_param| -> $output:ty $body:block) => {
        $(#[$doc])*
        pub(super) struct $name<'a $(, $t)?> {
            $(pub(super) $field: $type),*
        }

        impl<'a $(, $t: $bound)?> pulp::WithSimd for $name<'a $(, $t)?> {
            type Output = $output;

            #[inline(always)]
            fn with_simd<S: pulp::Simd>(self, $simd: S) -> $output {
                let Self { $($field),* } = self;
                $body
            }
        }
    };
}
pub(super) use vectorised;

/// The f64 values of a stretch.
#[inline(always)]
pub(super) fn widen<T: Stored>(from: &[T], to: &mut [f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.wide();
    }
}

/// One token of a group as a row.
pub(super) fn row<T: Stored>(group: &[T], lane: usize) -> Vec<f64> {
    group.iter().skip(lane).step_by(GROUP).map(|v| v.wide()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(x: f32) {
        let right = bf16::from_f32(x);
        let got = bf16::from_bits(bf16_bits(x));
        assert!(got.to_bits() == right.to_bits(), "{:#x}: {got:?} where half has {right:?}", x.to_bits());
        assert_eq!(got.narrow().to_bits(), right.to_f32().to_bits());
    }

    #[test]
    fn bf16_is_that_of_the_library_at_every_edge_of_the_dropped_bits() {
        for upper in 0..=u16::MAX {
            for lower in [0_u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                check(f32::from_bits(u32::from(upper) << 16 | lower));
            }
        }
    }

    #[test]
    fn every_bf16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let value = bf16::from_bits(bits);
            assert!(value.wide() == value.to_f64() || value.is_nan() && value.wide().is_nan());
        }
    }

    proptest! {
        #[test]
        fn keeping_rounds_through_f32(x in any::<f64>()) {
            prop_assert_eq!(<bf16 as Stored>::keep(x).to_bits(), bf16::from_f32(x as f32).to_bits());
        }
    }
}
