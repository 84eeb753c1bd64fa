//! Writing the journal: append, sync, and what happens when the disk says no.
//!
//! Not responsible for the form of a line (`session::format`) nor for the folder (`session::store`).

use std::io;

use thiserror::Error;

use crate::engine::event::Event;
use crate::session::format::{ChainHash, encode};
use crate::session::storage::Storage;

/// A journal that is open for writing.
pub struct Journal {
    storage: Box<dyn Storage>,
    hash: ChainHash,
    seq: u64,
    len: u64,
    synced_seq: u64,
    broken: bool,
}

/// Why a line could not be written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The disk is full.
    #[error("the disk with the session is full, so nothing more can be recorded")]
    Full,
    /// The disk said no.
    #[error("the journal cannot be written: {0}")]
    Io(io::Error),
    /// An event could not be put into JSON.
    #[error("an event cannot be put into the journal: {0}")]
    Encode(#[from] serde_json::Error),
    /// An earlier failure left the journal in an unknown state.
    #[error("the journal failed before and takes nothing more")]
    Broken,
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Self::Full,
            _ => Self::Io(error),
        }
    }
}

impl Journal {
    /// Continues a journal of `len` good bytes whose last line has this number and hash.
    pub fn new(storage: Box<dyn Storage>, seq: u64, hash: ChainHash, len: u64) -> Self {
        Self { storage, hash, seq, len, synced_seq: seq, broken: false }
    }

    /// Appends events; either all of them, or none.
    ///
    /// # Errors
    /// The disk is full or failed. What was appended before stays; a half-written line is cut off again.
    pub fn append(&mut self, events: &[Event]) -> Result<(), JournalError> {
        if self.broken {
            return Err(JournalError::Broken);
        }
        let mut text = String::new();
        let mut hash = self.hash.clone();
        for event in events {
            let (line, next) = encode(event, &hash)?;
            text.push_str(&line);
            hash = next;
        }
        if let Err(error) = self.storage.append(text.as_bytes()) {
            self.broken = self.storage.cut(self.len).is_err();
            return Err(error.into());
        }
        self.len += text.len() as u64;
        self.hash = hash;
        if let Some(last) = events.last() {
            self.seq = last.seq;
        }
        Ok(())
    }

    /// Makes everything appended so far survive a loss of power; returns the last acknowledged number.
    ///
    /// # Errors
    /// The disk failed; the journal takes nothing more, because nobody knows what is on disk.
    pub fn sync(&mut self) -> Result<u64, JournalError> {
        if self.broken {
            return Err(JournalError::Broken);
        }
        if self.synced_seq < self.seq {
            if let Err(error) = self.storage.sync() {
                self.broken = true;
                return Err(error.into());
            }
            self.synced_seq = self.seq;
        }
        Ok(self.synced_seq)
    }

    /// Number of the last event that is acknowledged.
    pub fn synced_seq(&self) -> u64 {
        self.synced_seq
    }

    /// Whether something waits for a sync.
    pub fn is_dirty(&self) -> bool {
        self.synced_seq < self.seq && !self.broken
    }

    /// Where the journal stands: number and hash of the last line, and its length in bytes.
    pub fn head(&self) -> (u64, &ChainHash, u64) {
        (self.seq, &self.hash, self.len)
    }
}
