//! The journal of one investigation.

pub mod blobs;
pub mod format;
