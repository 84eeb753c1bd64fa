//! Products of many rows with a stated order of sums, faster than one sum at a time.
//!
//! Responsible for `y = W x` bit for bit as [`Accumulate::dot`] makes each of its values. Not
//! responsible for rounding the operands.

use crate::kernel::candidate::{Accumulate, Order};
use crate::kernel::format::Rounding;
use crate::kernel::matrix::Matrix;

/// The products of `rows` (`[outputs, width]`) with every row of `x` (`[tokens, width]`), as
/// `[tokens, outputs]`.
pub fn product(accumulate: Accumulate, rows: &[f64], x: &[f64], width: usize) -> Vec<f64> {
    let plain = matches!(accumulate.order, Order::Ascending | Order::Descending);
    match accumulate.dtype {
        Rounding::Exact if plain => runs(accumulate, rows, x, width, |v| v),
        Rounding::F32 if plain => {
            let sums: Vec<f32> = runs(accumulate, rows, x, width, |v| v as f32);
            sums.into_iter().map(f64::from).collect()
        }
        _ => {
            let outputs = |token| rows.chunks_exact(width).map(move |row| accumulate.dot(row, token));
            x.chunks_exact(width).flat_map(outputs).collect()
        }
    }
}

/// A run of the inner index is a product of its own, whose values are added to those before it.
fn runs<T>(accumulate: Accumulate, rows: &[f64], x: &[f64], width: usize, narrow: fn(f64) -> T) -> Vec<T>
where
    T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign,
{
    let outputs = rows.len() / width;
    let splits = accumulate.splits.clamp(1, width.max(1));
    let mut sums = vec![T::default(); x.len() / width * outputs];
    for split in 0..splits {
        let run = split * width / splits..(split + 1) * width / splits;
        let cut = |values: &[f64]| -> Vec<T> {
            let rows = values.chunks_exact(width).map(|row| &row[run.clone()]);
            match accumulate.order {
                Order::Descending => rows.flat_map(|row| row.iter().rev().map(|v| narrow(*v))).collect(),
                Order::Ascending | Order::Pairwise => rows.flat_map(|row| row.iter().map(|v| narrow(*v))).collect(),
            }
        };
        let part = Matrix::pack(&cut(rows), outputs, run.len()).times(&cut(x));
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_and_width_is_bit_for_bit_that_of_one_sum() {
        let value = |i: usize| ((i * 37 % 101) as f64 / 7.0).sin() * 3.0;
        let (width, outputs, tokens) = (37, 6, 5);
        let rows: Vec<f64> = (0..outputs * width).map(value).collect();
        let x: Vec<f64> = (0..tokens * width).map(|i| value(i + 3)).collect();
        for dtype in [Rounding::Exact, Rounding::F32, Rounding::Bf16] {
            for order in [Order::Ascending, Order::Descending, Order::Pairwise] {
                for splits in [1, 3, 16, 99] {
                    let rule = Accumulate { dtype, splits, order };
                    let expect: Vec<f64> = x
                        .chunks_exact(width)
                        .flat_map(|token| rows.chunks_exact(width).map(move |row| rule.dot(row, token)))
                        .collect();
                    assert_eq!(product(rule, &rows, &x, width), expect, "{rule:?}");
                }
            }
        }
    }
}
