//! How far each kernel's arithmetic strays: number formats, oracle, candidates, sweeps.

pub mod report;
