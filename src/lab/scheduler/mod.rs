//! The engine: one thread that owns model, cache and queue, and turns requests into tokens.
//!
//! Responsible for admission, chunked prefill, batched decode, sampling, stopping and cancelling.
//! Not responsible for HTTP, templates or text.

pub mod engine;
pub mod handle;
pub mod request;
pub mod sampling;
mod sequence;

pub use engine::{Config, Engine, Mode};
pub use handle::{Handle, Loads, Transit};
pub use request::{Event, Finish, HandOver, LogprobSpec, Part, Request, TokenLogprob};
pub use sampling::Sampling;
