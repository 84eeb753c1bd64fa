//! What happens to the top choice of a model.
//!
//! Responsible for margins and flips of logits. Not responsible for sets that a kernel keeps, which
//! are compared beside it.

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
    use super::*;

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
}
