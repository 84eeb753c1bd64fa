//! The Hadamard rotation of the indexer's queries and keys.
//!
//! Responsible for the rotation alone. Not responsible for which of the two is rotated: a score is
//! kept only if both are, because the rotation is orthogonal.

/// Rotates `row` in place: `y_i = n^-0.5 sum_j (-1)^popcount(i & j) x_j`.
///
/// `n`, the length, must be a power of two. The rotation is its own inverse. Sums and differences of
/// pairs are taken from neighbours to halves, and the factor is applied once, at the end.
pub fn rotate(row: &mut [f64]) {
    assert!(row.len().is_power_of_two(), "a Hadamard rotation needs a length that is a power of two");
    let mut half = 1;
    while half < row.len() {
        for pair in row.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let factor = (row.len() as f64).sqrt().recip();
    for x in row {
        *x *= factor;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_definition(row: &[f64]) -> Vec<f64> {
        let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let root = (row.len() as f64).sqrt();
        (0..row.len()).map(|i| row.iter().enumerate().map(|(j, x)| sign(i, j) * x).sum::<f64>() / root).collect()
    }

    #[test]
    fn four_values_by_hand() {
        let mut row = [1.0, 2.0, 3.0, 4.0];
        rotate(&mut row);
        assert_eq!(row, [5.0, -1.0, -2.0, 0.0]);
    }

    #[test]
    fn one_value_stays() {
        let mut row = [3.0];
        rotate(&mut row);
        assert_eq!(row, [3.0]);
    }

    proptest! {
        #[test]
        fn it_is_the_definition_and_its_own_inverse(power in 0_u32..8, seed in prop::collection::vec(-9.0_f64..9.0, 128)) {
            let row = &seed[..1 << power];
            let mut once = row.to_vec();
            rotate(&mut once);
            for (got, expect) in once.iter().zip(by_definition(row)) {
                prop_assert!((got - expect).abs() < 1e-11);
            }
            rotate(&mut once);
            for (got, expect) in once.iter().zip(row) {
                prop_assert!((got - expect).abs() < 1e-11);
            }
        }

        #[test]
        fn a_product_is_kept_if_both_are_rotated_and_lost_if_one_is(
            q in prop::collection::vec(0.5_f64..9.0, 16), k in prop::collection::vec(0.5_f64..9.0, 16),
        ) {
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
            let rotated = |row: &[f64]| { let mut row = row.to_vec(); rotate(&mut row); row };
            let right = dot(&q, &k);
            prop_assert!((dot(&rotated(&q), &rotated(&k)) / right - 1.0).abs() < 1e-12);
            prop_assert!((dot(&rotated(&q), &k) / right - 1.0).abs() > 1e-3);
        }
    }
}
