//! The changes of a fork: read from diffs, commits and installed files, and weighed by named rules.

pub mod belief;
pub mod context;
pub mod declared;
pub mod of_state;
pub mod phases;
pub mod risk;
pub mod state;
pub mod types;

#[cfg(test)]
mod incident;
