//! The changes of a fork: read from diffs, commits and installed files, and weighed by named rules.

pub mod types;
