//! The journal of one investigation.

pub mod format;
