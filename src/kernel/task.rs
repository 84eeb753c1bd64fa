//! One case of a microtest as named tensors and sizes: what a kernel on a card and a command are given.
//!
//! Responsible for that form and for cutting it by rows. Not responsible for filling it, which each
//! spec does, nor for running it.

use std::ops::Range;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::report::KernelRun;
use crate::kernel::tensors::{Slot, Tensor};

/// What is computed, without how.
///
/// A kernel's arguments are the inputs, the outputs, the scratch, the number of rows, the number of
/// splits, the ints and the floats, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Rows: tokens or queries, none of which depends on another.
    pub rows: usize,
    /// What is read.
    pub inputs: Vec<Tensor>,
    /// What is made.
    pub outputs: Vec<Slot>,
    /// Whole numbers, by the name that grids know them by.
    pub ints: Vec<(&'static str, usize)>,
    /// Other numbers.
    pub floats: Vec<(&'static str, f32)>,
    /// Bytes that a kernel may use between its launches.
    pub scratch: Scratch,
    /// Bytes of the inputs that no kernel reads in this case.
    pub unread: usize,
    /// Multiplications and additions of it.
    pub flops: f64,
}

/// How many bytes of scratch a task takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// In any case.
    pub fixed: usize,
    /// For each row.
    pub row: usize,
    /// For each row and split.
    pub row_and_split: usize,
}

impl Task {
    /// Bytes of scratch with so many splits.
    pub fn scratch_bytes(&self, splits: usize) -> usize {
        self.scratch.fixed + self.rows * (self.scratch.row + splits * self.scratch.row_and_split)
    }

    /// Bytes of inputs and outputs.
    pub fn bytes(&self) -> usize {
        let outputs: usize = self.outputs.iter().map(|slot| 4 * slot.count()).sum();
        self.inputs.iter().map(|t| t.bytes().len()).sum::<usize>() + outputs
    }

    /// The task of some of its rows.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        Self {
            rows: rows.len(),
            inputs: self.inputs.iter().map(|t| t.part(rows.clone())).collect(),
            outputs: self.outputs.iter().map(|s| s.part(rows.len())).collect(),
            flops: self.flops * rows.len() as f64 / self.rows.max(1) as f64,
            ..self.clone()
        }
    }

    /// A size by the name that grids know it by.
    pub fn extent(&self, name: &str, splits: usize) -> Option<usize> {
        match name {
            "rows" => Some(self.rows),
            "splits" => Some(splits),
            _ => self.ints.iter().find(|(known, _)| *known == name).map(|(_, value)| *value),
        }
    }
}

/// What does a candidate's arithmetic outside this program: a card, or a command on a host.
pub trait Outside: Sync {
    /// The outputs of a task, in its order.
    ///
    /// # Errors
    /// It cannot be run, or what came of it is no such output.
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure>;

    /// The outputs of several tasks; what costs much to start does them all at once.
    ///
    /// # Errors
    /// It cannot be run, or what came of it is no such output.
    fn run_all(&self, candidate: &Candidate, tasks: &[Task]) -> Result<Vec<Vec<Tensor>>, Failure> {
        tasks.iter().map(|task| self.run(candidate, task)).collect()
    }

    /// Runs it many times: whether its bits stay the same, and how long it takes; `None` where nothing can be measured.
    ///
    /// # Errors
    /// It cannot be run.
    fn measure(&self, _candidate: &Candidate, _task: &Task) -> Result<Option<KernelRun>, Failure> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_rows_of_its_range_and_all_that_is_shared() {
        let task = Task {
            rows: 3,
            inputs: vec![
                Tensor::rows("x", &[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
                Tensor::whole("w", &[2], &[7.0, 8.0]),
            ],
            outputs: vec![Slot::rows("y", &[3, 4])],
            ints: vec![("width", 2)],
            scratch: Scratch { fixed: 16, row: 8, row_and_split: 4 },
            flops: 30.0,
            ..Task::default()
        };
        let part = task.part(1..3);
        assert_eq!(part.inputs[0].numbers(), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(part.inputs[1], task.inputs[1]);
        assert_eq!((part.rows, part.outputs[0].count(), part.flops), (2, 8, 20.0));
        assert_eq!((task.scratch_bytes(5), part.scratch_bytes(1)), (16 + 3 * 28, 16 + 2 * 12));
        assert_eq!(task.bytes(), 6 * 4 + 2 * 4 + 12 * 4);
        let check = |name, expect| assert_eq!(task.extent(name, 9), expect, "{name}");
        check("rows", Some(3));
        check("splits", Some(9));
        check("width", Some(2));
        check("depth", None);
    }
}
