//! How far each kernel's arithmetic strays: number formats, oracle, candidates, sweeps.

pub mod candidate;
pub mod checkpoint;
pub mod command;
pub mod config;
pub mod cuda;
pub mod dump;
pub mod figure;
pub mod format;
mod inputs;
pub mod judge;
pub mod matrix;
pub mod measure;
pub mod mhc;
pub mod microtest;
pub mod oracle;
pub mod outside;
mod places;
pub mod recorded;
pub mod report;
pub mod sites;
mod spec;
pub mod specs;
pub mod sweep;
pub mod task;
pub mod tensors;

pub use spec::{Reports, Request, check_name, commands, run, specs, specs_of};
