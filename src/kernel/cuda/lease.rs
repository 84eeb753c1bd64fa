//! One microtest at a time on a card, whichever program runs it.
//!
//! Responsible for a file that is locked meanwhile. Not responsible for what others than this program do
//! with the card.

use std::fs::{File, TryLockError};
use std::time::Duration;

use crate::engine::procedure::Failure;

/// How often the lock is tried.
const AGAIN: Duration = Duration::from_millis(100);

/// The card is ours until this is dropped.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

/// Waits for a card until nobody else's microtest runs on it.
///
/// # Errors
/// The lock cannot be made, or somebody cancelled.
pub fn take(uuid: &str, cancelled: &dyn Fn() -> bool) -> Result<Lease, Failure> {
    let path = std::env::temp_dir().join(format!("patchbench-{uuid}.lock"));
    let failed = |e: String| Failure::new(format!("`{}` cannot be locked: {e}", path.display()));
    let file = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| failed(e.to_string()))?.into_file();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lease { _file: file }),
            Err(TryLockError::WouldBlock) if cancelled() => {
                return Err(Failure::new("cancelled while another microtest ran on the card"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
            Err(TryLockError::Error(e)) => return Err(failed(e.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_microtests_take_turns_on_a_card() {
        let uuid = format!("test-{}", std::process::id());
        let first = take(&uuid, &|| false).unwrap();
        let waited = take(&uuid, &|| true).unwrap_err();
        assert_eq!(waited.message, "cancelled while another microtest ran on the card");
        drop(first);
        take(&uuid, &|| true).unwrap();
        fs_err::remove_file(std::env::temp_dir().join(format!("patchbench-{uuid}.lock"))).unwrap();
    }
}
