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

/// The process that has a session open, as its lock file names it; `None` where nobody has.
///
/// The file stays when a program ends; only the lock on it says that one runs.
///
/// # Errors
/// The file is there and cannot be looked at.
pub fn holder(path: &Path) -> Result<Option<String>, std::io::Error> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.file().try_lock_shared() {
        Ok(()) => {
            file.file().unlock()?;
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder)?;
            Ok(Some(holder.trim().to_owned()))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
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
