//! What is kept of a comparison: sums from which every norm follows.
//!
//! Pure. Responsible for relative errors, the difference metric, and for telling values that no norm
//! may be taken of. Not responsible for what a number means.

use crate::kernel::measure::Unfit;
use crate::kernel::sites::group::{GROUP, Lanes};

/// Sums over all compared elements of one part at one site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartSums {
    /// Of the squared errors.
    pub off: f64,
    /// Of the reference's squares.
    pub right: f64,
    /// Of the candidate's squares.
    pub got: f64,
    /// Of the products of the errors and the reference's elements.
    pub along: f64,
    /// Elements that are not numbers.
    pub nan: Found,
    /// Infinite elements.
    pub infinite: Found,
}

/// Elements of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// Index of the first, if there is one.
    pub first: u64,
}

impl Found {
    fn add(&mut self, count: u64, first: u64) {
        if count > 0 {
            self.first = if self.count == 0 { first } else { self.first.min(first) };
            self.count += count;
        }
    }
}

impl PartSums {
    /// Adds another stretch of elements.
    pub fn add(&mut self, other: &Self) {
        self.off += other.off;
        self.right += other.right;
        self.got += other.got;
        self.along += other.along;
        self.nan.add(other.nan.count, other.nan.first);
        self.infinite.add(other.infinite.count, other.infinite.first);
    }

    /// Notes `count` elements from index `first` on that all have the nature of `value`.
    pub(super) fn inspect(&mut self, value: f64, count: u64, first: u64) {
        if value.is_nan() {
            self.nan.add(count, first);
        } else if value.is_infinite() {
            self.infinite.add(count, first);
        }
    }

    /// Adds what the lanes hold, in their order.
    pub(super) fn add_lanes(&mut self, lanes: &PartLanes) {
        for lane in 0..GROUP {
            self.off += lanes.off[lane];
            self.right += lanes.right[lane];
            self.got += lanes.got[lane];
            self.along += lanes.along[lane];
        }
    }

    /// `|got - right| / |right|`; 0/0 is 0.
    ///
    /// # Errors
    /// There are values that no norm may be taken of: NaN before infinity before all-zero.
    pub fn rel_l2(&self) -> Result<f64, Unfit> {
        if self.nan.count > 0 {
            return Err(Unfit::NotANumber { count: self.nan.count as usize, first: self.nan.first as usize });
        }
        if self.infinite.count > 0 {
            return Err(Unfit::Infinite { count: self.infinite.count as usize, first: self.infinite.first as usize });
        }
        if self.got == 0.0 && self.right != 0.0 {
            return Err(Unfit::AllZero);
        }
        Ok(relative(self.off, self.right))
    }

    /// `1 - 2 sum(xy) / sum(x^2 + y^2)`, which is `sum((x - y)^2) / sum(x^2 + y^2)`: written so, it
    /// keeps its digits where the first form loses them. NaN where there is no norm.
    pub fn calc_diff(&self) -> f64 {
        match self.rel_l2() {
            Ok(0.0) => 0.0,
            Ok(_) => self.off / (self.got + self.right),
            Err(_) => f64::NAN,
        }
    }

    /// The least-squares ratio of the candidate to the reference, where it explains at least nine
    /// tenths of the squared error.
    pub fn ratio(&self) -> Option<f64> {
        // The ratio less one, which a ratio near one would lose to cancellation. By the normal equation
        // it takes its square times |right|^2 off the squared error.
        let beyond_one = self.along / self.right;
        let explained = beyond_one * beyond_one * self.right;
        (self.off > 0.0 && explained >= 0.9 * self.off).then_some(1.0 + beyond_one)
    }
}

/// The same sums for each of eight tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PartLanes {
    pub off: Lanes,
    pub right: Lanes,
    pub got: Lanes,
    pub along: Lanes,
}

impl PartLanes {
    /// Adds one element of each token.
    #[inline(always)]
    pub(super) fn element(&mut self, got: &Lanes, right: &Lanes) {
        for lane in 0..GROUP {
            let off = got[lane] - right[lane];
            self.off[lane] += off * off;
            self.right[lane] += right[lane] * right[lane];
            self.got[lane] += got[lane] * got[lane];
            self.along[lane] += off * right[lane];
        }
    }

    /// The relative error of one token; NaN where it has none.
    pub(super) fn relative(&self, lane: usize) -> f64 {
        relative(self.off[lane], self.right[lane])
    }
}

/// The root of a ratio of two sums of squares; a form that is not negative but for rounding is zero.
fn relative(off: f64, right: f64) -> f64 {
    if off <= 0.0 { 0.0 } else { (off / right).sqrt() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::measure;

    fn sums(got: &[f64], right: &[f64]) -> PartSums {
        let mut sums = PartSums::default();
        for (i, (g, r)) in got.iter().zip(right).enumerate() {
            let one = PartSums {
                off: (g - r) * (g - r),
                right: r * r,
                got: g * g,
                along: (g - r) * r,
                ..PartSums::default()
            };
            sums.add(&one);
            sums.inspect(*g, 1, i as u64);
        }
        sums
    }

    #[test]
    fn unfit_values_are_told_as_by_the_plain_measure() {
        let check = |got: &[f64], right: &[f64]| {
            assert_eq!(sums(got, right).rel_l2(), measure::rel_l2(got, right), "{got:?} {right:?}");
        };
        check(&[1.0, f64::NAN, f64::INFINITY, f64::NAN], &[1.0; 4]);
        check(&[f64::INFINITY, 1.0, f64::NEG_INFINITY], &[1.0; 3]);
        check(&[0.0, 0.0], &[1.0, 2.0]);
        check(&[0.0], &[0.0]);
        check(&[1.0], &[0.0]);
        assert!(sums(&[f64::NAN], &[1.0]).calc_diff().is_nan());
    }

    #[test]
    fn a_lane_that_is_no_number_has_no_relative_error() {
        let mut lanes = PartLanes::default();
        lanes.element(&[f64::NAN; GROUP], &[1.0; GROUP]);
        assert!(lanes.relative(0).is_nan());
    }

    proptest! {
        #[test]
        fn norms_follow_from_the_sums(pairs in prop::collection::vec((-2.0_f64..2.0, -2.0_f64..2.0), 1..30)) {
            let (got, right): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let sums = sums(&got, &right);
            let error = measure::rel_l2(&got, &right).unwrap();
            prop_assert!((sums.rel_l2().unwrap() - error).abs() <= 1e-12 * (1.0 + error));
            let direct = 1.0 - 2.0 * (sums.along + sums.right) / (sums.got + sums.right);
            prop_assert!((sums.calc_diff() - direct).abs() < 1e-12);
        }

        #[test]
        fn one_factor_is_told_and_noise_is_not(values in prop::collection::vec(0.5_f64..2.0, 4..30), factor in 1.1_f64..3.0) {
            let scaled: Vec<f64> = values.iter().map(|v| v * factor).collect();
            prop_assert!((sums(&scaled, &values).ratio().unwrap() - factor).abs() < 1e-9);
            let noisy: Vec<f64> = values.iter().enumerate().map(|(i, v)| v + if i % 2 == 0 { 0.1 } else { -0.1 }).collect();
            prop_assert_eq!(sums(&noisy, &values).ratio(), None);
        }
    }
}
