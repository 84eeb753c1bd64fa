//! The changes of a fork: read from diffs, commits and installed files, and weighed by named rules.

pub mod belief;
pub mod case_text;
pub mod context;
pub mod declared;
pub mod diff;
pub mod edit;
pub mod facts;
pub mod gates;
pub mod guard;
pub mod import;
pub mod installed;
pub mod inventory;
pub mod language;
pub mod of_state;
pub mod phases;
pub mod risk;
pub mod state;
pub mod types;

#[cfg(test)]
mod incident;
