//! The key cache: pages of 64 tokens, reference counts, and the radix tree of reusable prefixes.
//!
//! Not responsible for deciding which request gets pages; that is `scheduler`.

pub mod pool;
pub mod radix;

pub use pool::{PAGE, PAGE_NUMBERS, PageId, Parts, Pool};
pub use radix::Radix;
