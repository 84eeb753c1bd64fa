//! The hand-over of a computed prompt from a prefill server to a decode server, over HTTP.
//!
//! A router gives both servers the same request with a *room*. The prefill server keeps the state of the room on
//! its bootstrap port until the decode server fetches it there, once. Not responsible for computing either part.

mod fetch;
mod rooms;
mod wire;

pub use fetch::{FetchError, fetch};
pub use rooms::{RoomTaken, Rooms, router};
pub use wire::{WireError, decode, encode};

use super::cache::{PAGE, PAGE_NUMBERS};
use super::model::tokens;
use super::scheduler::{HandOver, TokenLogprob};

/// The host that stands for nobody: `SGLang` warms servers up with it, and no state is moved.
pub const FAKE_BOOTSTRAP_HOST: &str = "2.2.2.2";

/// Where the state of one request is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Host of the prefill server's bootstrap port.
    pub host: String,
    /// The bootstrap port.
    pub port: u16,
    /// Number of the room, drawn by the router.
    pub room: u64,
}

impl Room {
    /// Whether no state is moved for it.
    pub fn is_fake(&self) -> bool {
        self.host == FAKE_BOOTSTRAP_HOST
    }
}

/// The state of a prompt that nobody computed: what a warm-up decodes from.
pub fn blank(prompt: usize) -> HandOver {
    let page = || vec![0.0; PAGE_NUMBERS].into_boxed_slice();
    HandOver {
        prompt,
        cached: 0,
        first: Some(TokenLogprob { logprob: None, id: tokens::BOS, top: Vec::new() }),
        prompt_logprobs: Vec::new(),
        pages: (0..prompt.div_ceil(PAGE)).map(|_| page()).collect(),
    }
}
