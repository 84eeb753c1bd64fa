//! The journal of one investigation: its form, its files, and how it comes back.

pub mod blobs;
pub mod bundle;
pub mod format;
pub mod journal;
pub mod lock;
pub mod replay;
pub mod snapshot;
pub mod storage;
pub mod store;
pub mod verify;
