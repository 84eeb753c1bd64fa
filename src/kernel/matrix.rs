//! Matrix products with a stated order of accumulation.
//!
//! Responsible for `y = W x` over many rows `x`, in f64 for the oracle and in f32 for candidates.
//! Not responsible for rounding the operands.
//!
//! Each output has one accumulator that starts at zero and takes its products in ascending order
//! of the inner index; a product is rounded before it is added (no fused multiply-add). Blocking
//! runs over rows and outputs only, so it does not change a single bit.

use std::ops::{AddAssign, Mul};

/// Outputs and rows of one register block.
const BLOCK: usize = 4;

/// A matrix `[outputs, inputs]`, stored as panels of four outputs; missing outputs are zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    outputs: usize,
    inputs: usize,
    panels: Vec<[T; BLOCK]>,
}

impl<T: Copy + Default + Mul<Output = T> + AddAssign> Matrix<T> {
    /// Packs `rows`, which are `[outputs, inputs]` in C order.
    pub fn pack(rows: &[T], outputs: usize, inputs: usize) -> Self {
        assert_eq!(rows.len(), outputs * inputs, "a matrix has outputs times inputs values");
        let panels = (0..outputs.div_ceil(BLOCK)).flat_map(|panel| {
            (0..inputs).map(move |input| {
                std::array::from_fn(|lane| {
                    let output = panel * BLOCK + lane;
                    if output < outputs { rows[output * inputs + input] } else { T::default() }
                })
            })
        });
        Self { outputs, inputs, panels: panels.collect() }
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The matrix as `[outputs, inputs]` in C order.
    pub fn rows(&self) -> Vec<T> {
        let row = |output: usize| {
            let panel = self.panels.iter().skip(output / BLOCK * self.inputs).take(self.inputs);
            panel.map(move |weights| weights[output % BLOCK])
        };
        (0..self.outputs).flat_map(row).collect()
    }

    /// The products for `x` of shape `[rows, inputs]`, as `[rows, outputs]`.
    pub fn times(&self, x: &[T]) -> Vec<T> {
        assert_eq!(x.len() % self.inputs, 0, "rows must have as many values as the matrix has inputs");
        let rows = x.len() / self.inputs;
        let mut y = vec![T::default(); rows * self.outputs];
        let mut columns = vec![[T::default(); BLOCK]; self.inputs];
        for first in (0..rows).step_by(BLOCK) {
            let held = BLOCK.min(rows - first);
            for row in 0..held {
                let from = &x[(first + row) * self.inputs..][..self.inputs];
                columns.iter_mut().zip(from).for_each(|(column, value)| column[row] = *value);
            }
            for (panel, weights) in self.panels.chunks_exact(self.inputs).enumerate() {
                let block = block(weights, &columns);
                let output = panel * BLOCK;
                let lanes = BLOCK.min(self.outputs - output);
                for (row, sums) in block.iter().enumerate().take(held) {
                    y[(first + row) * self.outputs + output..][..lanes].copy_from_slice(&sums[..lanes]);
                }
            }
        }
        y
    }
}

/// Four rows times four outputs; `sums[row][output]`.
fn block<T: Copy + Default + Mul<Output = T> + AddAssign>(
    weights: &[[T; BLOCK]],
    columns: &[[T; BLOCK]],
) -> [[T; BLOCK]; BLOCK] {
    let mut sums = [[T::default(); BLOCK]; BLOCK];
    for (weight, column) in weights.iter().zip(columns) {
        for row in 0..BLOCK {
            for output in 0..BLOCK {
                sums[row][output] += weight[output] * column[row];
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain<T: Copy + Default + Mul<Output = T> + AddAssign>(w: &[T], x: &[T], outputs: usize, n: usize) -> Vec<T> {
        let mut y = Vec::new();
        for row in x.chunks_exact(n) {
            for output in 0..outputs {
                let mut sum = T::default();
                for i in 0..n {
                    sum += w[output * n + i] * row[i];
                }
                y.push(sum);
            }
        }
        y
    }

    #[test]
    fn blocking_changes_no_bit() {
        for (rows, outputs, inputs) in [(1, 1, 1), (3, 5, 7), (4, 4, 16), (9, 24, 33), (2, 13, 1)] {
            let value = |i: usize| (i as f64 * 0.731).sin() / 3.0;
            let w: Vec<f64> = (0..outputs * inputs).map(value).collect();
            let x: Vec<f64> = (0..rows * inputs).map(|i| value(i + 17)).collect();
            assert_eq!(Matrix::pack(&w, outputs, inputs).times(&x), plain(&w, &x, outputs, inputs));
            let (w, x): (Vec<f32>, Vec<f32>) =
                (w.iter().map(|v| *v as f32).collect(), x.iter().map(|v| *v as f32).collect());
            assert_eq!(Matrix::pack(&w, outputs, inputs).times(&x), plain(&w, &x, outputs, inputs));
        }
    }

    #[test]
    fn what_was_packed_comes_back() {
        for (outputs, inputs) in [(1, 1), (5, 7), (8, 3)] {
            let rows: Vec<f64> = (0..outputs * inputs).map(|i| i as f64).collect();
            assert_eq!(Matrix::pack(&rows, outputs, inputs).rows(), rows);
        }
    }

    #[test]
    fn no_rows_give_no_outputs() {
        assert!(Matrix::pack(&[1.0, 2.0], 1, 2).times(&[]).is_empty());
    }
}
