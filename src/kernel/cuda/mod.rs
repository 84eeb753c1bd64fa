//! Microtests on the cards of this machine.
//!
//! Responsible for finding driver, compiler and cards, and for running kernels on them: one thread a
//! card, which owns its context. Not responsible for what a kernel should give ([`mod@crate::kernel::specs`])
//! nor for what an error means ([`crate::kernel::judge`]).
//!
//! Nothing here is linked: driver, compiler and management library are looked for when they are
//! needed, and each that is missing is a sentence.

pub mod busy;
pub mod card;
pub(super) mod check;
pub mod fake;
pub mod found;
mod job;
pub mod lease;
pub mod nvrtc;
mod program;
pub mod shipped;
pub mod source;

pub use card::Card;
pub use found::{CardInfo, cards};
