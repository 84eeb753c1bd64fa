//! The lab model: shapes, weights and the forward pass over a paged cache.
//!
//! The formulas are those of `lab/README.md`; the arithmetic switches are in [`arith`].
//! Not responsible for scheduling or sampling.

pub mod arith;
mod attention;
mod experts;
pub mod forward;
pub mod hc;
mod indexer;
mod linear;
mod math;
pub mod round;
pub mod tokens;
pub mod weights;

pub use arith::{Arithmetic, Faults, KvDtype, MhcGemm, RoutedScaling};
pub use forward::{Row, SeqView, Step, Trace, forward};
pub use weights::{EMBEDDED, LoadError, Model};

/// Width of one stream.
pub const WIDTH: usize = 128;
/// Number of blocks.
pub const LAYERS: usize = 6;
/// Residual streams of the hyper-connections.
pub const STREAMS: usize = 4;
/// All streams of one token, flattened.
pub const FLAT: usize = WIDTH * STREAMS;
/// Query heads; keys and values have one head that all share.
pub const HEADS: usize = 4;
/// Width of a query, key or value head.
pub const HEAD: usize = 32;
/// Dimensions that rotate, at the end of a head, in window layers.
pub const ROTARY: usize = 16;
/// Keys that every query sees, itself included.
pub const WINDOW: usize = 128;
/// Layers with a sparse indexer.
pub const SPARSE_LAYERS: [usize; 2] = [2, 4];
/// Keys before the window that a sparse layer sees.
pub const TOP_K: usize = 64;
/// Routed experts.
pub const EXPERTS: usize = 8;
/// Routed experts that a token uses.
pub const ACTIVE: usize = 2;
/// Factor on the routed experts' weights.
pub const ROUTED_SCALE: f32 = 1.5;
/// Limit of the gate and of the up projection in an expert.
pub const SWIGLU_LIMIT: f32 = 10.0;
/// Sinkhorn rounds.
pub const SINKHORN: usize = 20;
/// The small number used everywhere.
pub const EPS: f32 = 1e-6;
/// Vocabulary.
pub const VOCAB: usize = 264;
/// Longest context the model was tried at.
pub const MAX_CONTEXT: usize = 32_768;

/// Index among the sparse layers, if `layer` is one.
pub const fn sparse_index(layer: usize) -> Option<usize> {
    match layer {
        2 => Some(0),
        4 => Some(1),
        _ => None,
    }
}
