//! Comparing what a candidate made with what the reference made.
//!
//! Responsible for the checks before a norm, for relative errors and how they spread and grow, and
//! for what changes in decisions and in the sets that are kept. Pure. Not responsible for what a
//! number means, which is [`crate::kernel::judge`].

mod band;
mod choice;
mod growth;
mod sets;
mod spread;

use std::fmt;

pub use band::{MemberErrors, band};
pub use choice::{Choice, choices};
pub use growth::growth;
pub use sets::{largest_shift, sets};
pub use spread::spread;

/// What makes a norm worthless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There are more values on one side than on the other.
    Length {
        /// How many were got.
        got: usize,
        /// How many the reference has.
        reference: usize,
    },
    /// There are no values, so nothing was compared.
    Empty,
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
    /// Hardly any two values differ, where many of the reference's do.
    FewDistinct {
        /// How many different values there are, at most [`FEW`].
        got: usize,
    },
}

/// So many different values are too few to be a result: a constant, or the two ends of a format that
/// everything saturated at, with zero between them.
pub const FEW: usize = 3;

/// A reference with so many different values must not be met by [`FEW`].
pub const MANY: usize = 16;

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got, reference } => write!(f, "there are {got} values where the reference has {reference}"),
            Self::Empty => write!(f, "there are no values"),
            Self::NotANumber { count, first } => {
                write!(f, "{count} values are not numbers, the first at index {first}")
            }
            Self::Infinite { count, first } => write!(f, "{count} values are infinite, the first at index {first}"),
            Self::AllZero => write!(f, "every value is zero"),
            Self::FewDistinct { got: 1 } => write!(f, "every value is the same, where the reference's differ"),
            Self::FewDistinct { got } => {
                write!(f, "there are only {got} different values, where the reference has {MANY} or more")
            }
        }
    }
}

/// Looks for values that no norm may be taken of.
///
/// Meant for whole parts: a short row in a coarse format may rightly hold few different values, and
/// [`relative`] is for rows.
///
/// # Errors
/// There are such values; what is told first is a wrong length, then nothing at all, NaN, infinity,
/// all-zero, and last too few different values.
pub fn inspect(got: &[f64], reference: &[f64]) -> Result<(), Unfit> {
    if got.len() != reference.len() {
        return Err(Unfit::Length { got: got.len(), reference: reference.len() });
    }
    if got.is_empty() {
        return Err(Unfit::Empty);
    }
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
    let different = distinct(got, FEW + 1);
    if different <= FEW && distinct(reference, MANY) == MANY {
        return Err(Unfit::FewDistinct { got: different });
    }
    Ok(())
}

/// How many different numbers there are, counted up to `enough`; both zeros are one.
fn distinct(values: &[f64], enough: usize) -> usize {
    let mut seen: Vec<f64> = Vec::with_capacity(enough);
    for value in values {
        if seen.len() == enough {
            break;
        }
        if !seen.contains(value) {
            seen.push(*value);
        }
    }
    seen.len()
}

/// `|got - reference| / |reference|` in the Euclidean norm; 0/0 is 0.
///
/// # Errors
/// See [`inspect`].
pub fn rel_l2(got: &[f64], reference: &[f64]) -> Result<f64, Unfit> {
    inspect(got, reference)?;
    Ok(relative(got, reference))
}

/// The same without a check: NaN where a value is not a number or the lengths differ.
pub fn relative(got: &[f64], reference: &[f64]) -> f64 {
    if got.len() != reference.len() {
        return f64::NAN;
    }
    let (off, whole) = squares(got, reference);
    if off == 0.0 { 0.0 } else { (off / whole).sqrt() }
}

/// The difference metric of `DeepGEMM`'s tests, `1 - 2 sum(xy) / sum(x^2 + y^2)`; NaN where
/// [`inspect`] finds the values unfit, and 0/0 is 0.
///
/// It is computed as `sum((x - y)^2) / sum(x^2 + y^2)`, which is the same number and does not lose
/// the small ones to cancellation: the other form cannot tell 1e-16 from 0.
///
/// **Relation to the relative L2 error r.** With `got = reference + e` and `c` the share of `e` along
/// the reference, `c = <e, reference> / |reference|^2`, it is exactly `r^2 / (2 + 2c + r^2)`. For an
/// error that is uncorrelated with the reference (`c = 0`) see [`diff_of_rel`]. For one constant
/// factor `c` is that factor less one; `|c|` is never above `r`, so for small errors it is `r^2 / 2`
/// whatever the error, to a relative accuracy of about `r`.
pub fn calc_diff(got: &[f64], reference: &[f64]) -> f64 {
    if inspect(got, reference).is_err() {
        return f64::NAN;
    }
    let (off, whole) = squares(got, reference);
    let own: f64 = got.iter().map(|a| a * a).sum();
    if off == 0.0 { 0.0 } else { off / (own + whole) }
}

/// `sum((got - reference)^2)` and `sum(reference^2)`.
fn squares(got: &[f64], reference: &[f64]) -> (f64, f64) {
    let off = got.iter().zip(reference).map(|(a, b)| (a - b) * (a - b)).sum();
    (off, reference.iter().map(|b| b * b).sum())
}

/// What [`calc_diff`] is for an error of relative size `rel` that is uncorrelated with the reference:
/// `rel^2 / (2 + rel^2)`, about half the square. For other errors see there.
pub fn diff_of_rel(rel: f64) -> f64 {
    if rel.is_infinite() {
        return 1.0;
    }
    rel * rel / (2.0 + rel * rel)
}

/// The relative L2 error of an uncorrelated error for which [`calc_diff`] is `diff`:
/// `sqrt(2 diff / (1 - diff))`. NaN below 0 and above 1, where no uncorrelated error leads.
pub fn rel_of_diff(diff: f64) -> f64 {
    (2.0 * diff / (1.0 - diff)).sqrt()
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
