//! Comparing what a candidate made with what the reference made.
//!
//! Responsible for the checks before a norm, for the relative error, and for what changes in the
//! decisions. Pure. Not responsible for what a number means, which is [`crate::kernel::mhc::judge`].

use std::fmt;

/// What makes a norm worthless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Values that are not numbers.
    NotANumber {
        /// How many.
        count: usize,
        /// Index of the first.
        first: usize,
    },
    /// Infinite values.
    Infinite {
        /// How many.
        count: usize,
        /// Index of the first.
        first: usize,
    },
    /// Every value is zero, where the reference's are not.
    AllZero,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber { count, first } => {
                write!(f, "{count} values are not numbers, the first at index {first}")
            }
            Self::Infinite { count, first } => write!(f, "{count} values are infinite, the first at index {first}"),
            Self::AllZero => write!(f, "every value is zero"),
        }
    }
}

/// Looks for values that no norm may be taken of.
///
/// # Errors
/// There are such values; NaN is told before infinity, infinity before all-zero.
pub fn inspect(got: &[f64], reference: &[f64]) -> Result<(), Unfit> {
    let find = |bad: fn(f64) -> bool| {
        let first = got.iter().position(|v| bad(*v))?;
        Some((got.iter().filter(|v| bad(**v)).count(), first))
    };
    if let Some((count, first)) = find(f64::is_nan) {
        return Err(Unfit::NotANumber { count, first });
    }
    if let Some((count, first)) = find(f64::is_infinite) {
        return Err(Unfit::Infinite { count, first });
    }
    let zero = |values: &[f64]| values.iter().all(|v| *v == 0.0);
    if zero(got) && !zero(reference) {
        return Err(Unfit::AllZero);
    }
    Ok(())
}

/// `|got - reference| / |reference|` in the Euclidean norm; 0/0 is 0.
///
/// # Errors
/// See [`inspect`].
pub fn rel_l2(got: &[f64], reference: &[f64]) -> Result<f64, Unfit> {
    inspect(got, reference)?;
    let off: f64 = got.iter().zip(reference).map(|(a, b)| (a - b) * (a - b)).sum();
    let whole: f64 = reference.iter().map(|b| b * b).sum();
    Ok(if off == 0.0 { 0.0 } else { (off / whole).sqrt() })
}

/// What happened to the top choice at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The reference's logit of its first choice less that of its second, in nats.
    pub margin: f64,
    /// The same two choices under the candidate; negative when their order turned.
    pub margin_got: f64,
    /// Another id is now on top, or a logit is not a number.
    pub flipped: bool,
}

/// The top choice at every position; logits are `[positions, vocabulary]`.
///
/// A difference of logits is a difference of log probabilities, so margins are nats.
pub fn choices(got: &[f64], reference: &[f64], vocabulary: usize) -> Vec<Choice> {
    let rows = got.chunks_exact(vocabulary).zip(reference.chunks_exact(vocabulary));
    rows.map(|(got, reference)| {
        let (first, second) = top_two(reference);
        let flipped = got.iter().any(|v| v.is_nan()) || top_two(got).0 != first;
        Choice { margin: reference[first] - reference[second], margin_got: got[first] - got[second], flipped }
    })
    .collect()
}

/// Indices of the largest and the second largest value; of equal ones the lower index first.
fn top_two(row: &[f64]) -> (usize, usize) {
    let (mut first, mut second) = (0, usize::MAX);
    for i in 1..row.len() {
        if row[i] > row[first] {
            (first, second) = (i, first);
        } else if second == usize::MAX || row[i] > row[second] {
            second = i;
        }
    }
    (first, if second == usize::MAX { first } else { second })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unfit_values_are_told_before_a_norm() {
        let check = |got: &[f64], expect: Unfit| assert_eq!(rel_l2(got, &[1.0, 1.0, 1.0]), Err(expect));
        check(&[1.0, f64::NAN, f64::INFINITY], Unfit::NotANumber { count: 1, first: 1 });
        check(&[f64::INFINITY, 1.0, f64::NEG_INFINITY], Unfit::Infinite { count: 2, first: 0 });
        check(&[0.0, -0.0, 0.0], Unfit::AllZero);
        assert_eq!(rel_l2(&[0.0], &[0.0]), Ok(0.0));
    }

    #[test]
    fn an_error_against_zero_is_infinite_not_hidden() {
        assert_eq!(rel_l2(&[1.0], &[0.0]), Ok(f64::INFINITY));
    }

    #[test]
    fn a_turned_pair_has_a_negative_margin() {
        let got = choices(&[1.0, 2.0, 0.0, 5.0, 1.0, 0.0], &[2.0, 1.5, 0.0, 5.0, 1.0, 0.0], 3);
        assert_eq!(got[0], Choice { margin: 0.5, margin_got: -1.0, flipped: true });
        assert_eq!(got[1], Choice { margin: 4.0, margin_got: 4.0, flipped: false });
    }

    #[test]
    fn logits_that_are_no_numbers_flip() {
        assert!(choices(&[f64::NAN, f64::NAN], &[2.0, 1.0], 2)[0].flipped);
        assert!(choices(&[3.0, f64::NAN], &[2.0, 1.0], 2)[0].flipped);
    }

    #[test]
    fn equal_values_take_the_lower_index() {
        assert_eq!(top_two(&[1.0, 3.0, 3.0, 2.0]), (1, 2));
        assert_eq!(top_two(&[3.0, 1.0]), (0, 1));
    }

    proptest! {
        #[test]
        fn a_constant_ratio_is_its_distance_from_one(
            values in prop::collection::vec(0.1_f64..10.0, 1..40), ratio in 0.5_f64..2.0,
        ) {
            let got: Vec<f64> = values.iter().map(|v| v * ratio).collect();
            let error = rel_l2(&got, &values).unwrap();
            prop_assert!((error - (ratio - 1.0).abs()).abs() < 1e-12);
        }
    }
}
