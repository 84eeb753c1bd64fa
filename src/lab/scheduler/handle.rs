//! How the server talks to the engine thread, and what the engine says that it is doing.
//!
//! Plain messages and numbers; the work is in `engine`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::oneshot;

use super::request::Request;

/// What the engine is doing, for `/v1/loads`, `/server_info` and `/metrics`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Loads {
    /// Requests in prefill or decode.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Tokens of pages in use by requests or by the prefix cache.
    pub used_tokens: usize,
    /// Tokens per second of the last decode interval.
    pub gen_throughput: f64,
    /// Prompt tokens so far.
    pub prompt_tokens: u64,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: u64,
    /// Output tokens so far.
    pub generation_tokens: u64,
    /// Requests so far.
    pub requests: u64,
    /// Requests that were aborted or cancelled.
    pub aborted: u64,
    /// Requests whose state is on its way between two servers.
    pub in_transfer: usize,
}

pub(super) enum Message {
    Request(Box<Request>),
    Abort(Option<String>),
    Flush(oneshot::Sender<Result<(), String>>),
    Stop,
}

/// How the server talks to the engine thread.
#[derive(Clone, Debug)]
pub struct Handle {
    sender: Sender<Message>,
    loads: Arc<Mutex<Loads>>,
    in_transfer: Arc<AtomicUsize>,
}

/// The engine's end of a [`Handle`].
#[derive(Debug)]
pub(super) struct Line {
    pub(super) messages: Receiver<Message>,
    pub(super) loads: Arc<Mutex<Loads>>,
    pub(super) in_transfer: Arc<AtomicUsize>,
}

/// Counts one request whose state is on its way between two servers, until it is dropped.
#[derive(Debug)]
pub struct Transit(Arc<AtomicUsize>);

impl Drop for Transit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle and the engine's end of it.
pub(super) fn line() -> (Handle, Line) {
    let (sender, messages) = channel();
    let loads = Arc::new(Mutex::new(Loads::default()));
    let in_transfer = Arc::new(AtomicUsize::new(0));
    let handle = Handle { sender, loads: Arc::clone(&loads), in_transfer: Arc::clone(&in_transfer) };
    (handle, Line { messages, loads, in_transfer })
}

impl Handle {
    /// Queues a request; false when the engine is gone.
    pub fn submit(&self, request: Request) -> bool {
        self.sender.send(Message::Request(Box::new(request))).is_ok()
    }

    /// Aborts the request of that id, or all.
    pub fn abort(&self, id: Option<String>) {
        let _ = self.sender.send(Message::Abort(id));
    }

    /// Empties the prefix cache.
    ///
    /// # Errors
    /// While requests run or wait, and when the engine is gone; the text says which.
    pub async fn flush(&self) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        let gone = || "the engine has stopped".to_owned();
        self.sender.send(Message::Flush(sender)).map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())?
    }

    /// Ends the engine after the current step; requests in flight are aborted.
    pub fn stop(&self) {
        let _ = self.sender.send(Message::Stop);
    }

    /// What it is doing.
    pub fn loads(&self) -> Loads {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Loads { in_transfer: self.in_transfer.load(Ordering::Relaxed), ..loads }
    }

    /// Counts a request as being on its way between two servers, as long as the answer lives.
    pub fn transit(&self) -> Transit {
        self.in_transfer.fetch_add(1, Ordering::Relaxed);
        Transit(Arc::clone(&self.in_transfer))
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Request(_) => "Request",
            Self::Abort(_) => "Abort",
            Self::Flush(_) => "Flush",
            Self::Stop => "Stop",
        })
    }
}
