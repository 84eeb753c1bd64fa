//! A card that is none: the task of `mhc-mix` with results in f32, for tests where there is no card.
//!
//! Responsible for standing behind the same trait, also as a card that is broken. Not responsible for
//! being like a card in any other way; no command leads to it.

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::report::KernelRun;
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::{Data, Tensor};

/// How the card behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should.
    Well,
    /// One bit of each output is flipped.
    OneBit,
    /// It does not answer.
    Dead,
}

/// A card that is none.
#[derive(Clone, Copy, Debug)]
pub struct FakeCard {
    /// How it behaves.
    pub health: Health,
}

impl Outside for FakeCard {
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        if self.health == Health::Dead {
            return Err(Failure::new("the fake card does not answer"));
        }
        let (Some(Data::F32(weight)), Some(Data::F32(streams))) =
            (task.inputs.first().map(|t| &t.data), task.inputs.get(1).map(|t| &t.data))
        else {
            return Err(Failure::new("the fake card knows `mhc-mix` alone"));
        };
        let inner = streams.len() / task.rows.max(1);
        let eps = task.floats.first().map_or(0.0, |(_, eps)| *eps);
        let mut products = Vec::new();
        let mut inverse = Vec::new();
        for token in streams.chunks_exact(inner) {
            let used = |k: usize| if candidate.fault.is_some() { token[k % (inner / 4)] } else { token[k] };
            let dot = |row: &[f32]| (0..inner).map(|k| f64::from(row[k]) * f64::from(used(k))).sum::<f64>() as f32;
            products.extend(weight.chunks_exact(inner).map(dot));
            let squares: f64 = token.iter().map(|x| f64::from(*x).powi(2)).sum();
            inverse.push((squares / inner as f64 + f64::from(eps)).sqrt().recip() as f32);
        }
        if self.health == Health::OneBit
            && let Some(first) = products.first_mut()
        {
            *first = f32::from_bits(first.to_bits() ^ 1 << 30);
        }
        let filled = |at: usize, values: Vec<f32>| task.outputs[at].filled(bytemuck::cast_slice(&values));
        Ok(vec![filled(0, products), filled(1, inverse)])
    }

    fn measure(&self, candidate: &Candidate, task: &Task) -> Result<Option<KernelRun>, Failure> {
        Ok(Some(KernelRun {
            candidate: candidate.name.clone(),
            runs: 20,
            seconds: 1e-5,
            bytes: task.bytes() as u64,
            ..KernelRun::default()
        }))
    }
}
