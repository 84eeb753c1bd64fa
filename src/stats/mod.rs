//! The arithmetic behind a verdict: intervals, tests, over-dispersion.
//!
//! Pure functions over counts and rates.
//! Which counts belong together, and what a number means for a patch, is `isolate`'s business.

pub mod acquittal;
pub mod dispersion;
pub mod etest;
pub mod interval;
pub mod permutation;
