//! The microtests of single kernels.

pub mod activations;
#[cfg(test)]
mod check;
pub mod compressor;
pub mod decode_attention;
pub mod indexer;
pub mod norm;
mod paged;
mod points;
pub mod product;
#[cfg(test)]
mod proof;
pub mod quantise;
pub mod router;
