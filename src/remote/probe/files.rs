//! Texts among the files of a probe. Pure.

use super::types::{FileUnread, Probe};
use crate::engine::procedure::Failure;
use crate::remote::proc::Unknown;

/// The longest launch script that is read, in bytes.
const SCRIPT_BYTES: usize = 1024 * 1024;

/// The text of a launch script that a probe brought.
///
/// # Errors
/// It is missing, unreadable, too long, or no text.
pub fn script_text(probe: &Probe, path: &str) -> Result<String, Failure> {
    let file = probe.files.get(path);
    let bytes = match file.map(|f| &f.bytes) {
        Some(Ok(bytes)) => bytes,
        Some(Err(FileUnread::Absent)) => {
            return Err(Failure::new(format!("the launch script `{path}` does not exist"))
                .hint("correct the target's script in the case"));
        }
        Some(Err(FileUnread::Permission)) => {
            return Err(Failure::new(format!("the launch script `{path}` cannot be read"))
                .hint("reach the host as a user who may read it, or give the target a `become`"));
        }
        Some(Err(FileUnread::Unknown(Unknown(why)))) => {
            return Err(Failure::new(format!("the launch script `{path}` cannot be read: {why}")));
        }
        None => {
            return Err(Failure::new(format!("the launch script `{path}` was not read"))
                .hint("name it as the target's `launch_script`, so that it comes with the first question"));
        }
    };
    if bytes.len() > SCRIPT_BYTES || file.is_some_and(|f| f.truncated) {
        return Err(Failure::new(format!("the launch script `{path}` is longer than {SCRIPT_BYTES} bytes")));
    }
    std::str::from_utf8(bytes)
        .ok()
        .filter(|t| !t.contains('\0'))
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("the launch script `{path}` is no text")).hint("name a bash script"))
}
