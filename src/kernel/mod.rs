//! How far each kernel's arithmetic strays: number formats, oracle, candidates, sweeps.

pub mod candidate;
pub mod checkpoint;
pub mod config;
pub mod dump;
pub mod figure;
pub mod format;
pub mod matrix;
pub mod measure;
pub mod mhc;
pub mod oracle;
pub mod report;
mod spec;

pub use spec::{SpecInfo, run, specs};
