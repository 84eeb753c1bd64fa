//! The case: which targets are meant, how a client reaches them, and which patches are suspected.
//!
//! The types here are plain data and pure.
//! Reading a file, and explaining its errors by line and key, is `case::read`.

mod check;
pub(crate) mod fields;
pub mod gate;
pub mod read;
pub mod types;

pub use gate::is_variable;
pub use read::{read, read_file};
pub use types::*;

#[cfg(test)]
mod corpus;
