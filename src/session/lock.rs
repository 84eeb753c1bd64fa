//! One writer per session.

use std::fs::TryLockError;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use fs_err as fs;
use thiserror::Error;

/// The lock of a session; it ends with the program, however that ends.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

/// Why a session could not be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another program has it open.
    #[error("the session is open in another patchbench (process {0})")]
    Held(String),
    /// The disk said no.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Lock {
    /// Takes the lock, or says who has it.
    ///
    /// # Errors
    /// It is held, or the file cannot be opened.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let mut file = fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        match file.file().try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.rewind()?;
                write!(file, "{}", std::process::id())?;
                Ok(Self { _file: file })
            }
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                Err(LockError::Held(holder.trim().to_owned()))
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}
