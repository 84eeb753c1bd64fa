//! This machine, read without a round trip: its processes, and logs that are followed.
//!
//! What the bytes mean stands in `remote::proc`. Nothing here changes anything, and nothing here is the way to a target,
//! which is `remote::machine`.

use std::io::{Read as _, Seek as _, SeekFrom};

use super::proc::{self, Cmdline, Environ, ProcessInfo, Unknown};
use crate::engine::procedure::ProcessKey;

/// The most bytes of a log that are read at once.
pub const TAIL_BYTES: u64 = 256 * 1024;

/// Every process that can be seen.
pub fn processes() -> Vec<ProcessInfo> {
    let Ok(entries) = fs_err::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| process(e.file_name().to_str()?.parse().ok()?)).collect()
}

/// The process with this pid; `None` where there is none.
pub fn process(pid: u32) -> Option<ProcessInfo> {
    proc::stat(&fs_err::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether exactly this process runs; a zombie does not.
pub fn runs(key: ProcessKey) -> bool {
    process(key.pid).is_some_and(|p| p.key == key && p.runs())
}

/// The environment of a process at its last `exec`.
///
/// # Errors
/// It cannot be read, or is overwritten.
pub fn environ(pid: u32) -> Result<Environ, Unknown> {
    proc::environ(&read_proc(pid, "environ")?)
}

/// The command line of a process.
///
/// # Errors
/// It cannot be read, or is empty.
pub fn cmdline(pid: u32) -> Result<Cmdline, Unknown> {
    proc::cmdline(&read_proc(pid, "cmdline")?)
}

fn read_proc(pid: u32, name: &str) -> Result<Vec<u8>, Unknown> {
    let path = format!("/proc/{pid}/{name}");
    fs_err::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Unknown(format!("permission denied for {path}")),
        std::io::ErrorKind::NotFound => Unknown(format!("process {pid} is gone")),
        _ => Unknown(error.to_string()),
    })
}

/// What tells one boot of this machine from another; `None` where `/proc` does not say.
pub fn boot_id() -> Option<String> {
    Some(fs_err::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Length of a file in bytes; 0 where there is none.
pub fn file_len(path: &str) -> u64 {
    fs_err::metadata(path).map_or(0, |m| m.len())
}

/// New text of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Whole lines after the offset.
    pub lines: Vec<String>,
    /// Where to go on: after the last whole line.
    pub offset: u64,
}

/// The next whole lines of a file after an offset, at most some hundred kilobytes; ask again for more.
/// A file that became shorter is read from its start.
///
/// # Errors
/// The file cannot be opened or read.
pub fn tail(path: &str, offset: u64) -> std::io::Result<Tail> {
    let mut file = fs_err::File::open(path)?;
    let len = file.metadata()?.len();
    let start = if len < offset { 0 } else { offset };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let mut whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    if whole == 0 && bytes.len() as u64 == TAIL_BYTES {
        // A line without an end must not stop everything behind it.
        whole = bytes.len();
    }
    let lines = String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned).collect();
    Ok(Tail { lines, offset: start + whole as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let me = process(std::process::id()).unwrap();
        assert!(runs(me.key) && me.runs());
        assert!(!runs(ProcessKey { start_ticks: me.key.start_ticks + 1, ..me.key }));
        assert!(environ(me.key.pid).unwrap().get("PATH").is_some());
        assert!(!cmdline(me.key.pid).unwrap().words().unwrap().is_empty());
        assert!(processes().iter().any(|p| p.key == me.key));
        assert!(boot_id().is_some());
    }

    #[test]
    fn a_log_is_followed_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log").display().to_string();
        fs_err::write(&path, "one\ntwo\nthr").unwrap();
        let first = tail(&path, 4).unwrap();
        assert_eq!((first.lines.clone(), first.offset), (vec!["two".to_owned()], 8));
        fs_err::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, first.offset).unwrap().lines, ["three"]);
        fs_err::write(&path, "new\n").unwrap();
        assert_eq!(tail(&path, 14).unwrap().lines, ["new"]);
        assert!(tail(&format!("{path}-none"), 0).is_err());
        assert_eq!(file_len(&format!("{path}-none")), 0);
        fs_err::write(&path, "x\n".repeat(200_000)).unwrap();
        assert_eq!(tail(&path, 0).unwrap().offset, TAIL_BYTES, "a long line is read in pieces, nothing is left out");
    }
}
