//! Where a checkpoint stands, as a user writes it.

use std::path::{Path, PathBuf};

use super::remote::Remote;
use super::source::open_host;
use super::{Checkpoint, Progress, Stop};
use crate::engine::procedure::Failure;
use crate::paths;
use crate::remote::host::{self, Host, Hosts};

/// A folder or file with a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// Here.
    Here(PathBuf),
    /// On a host, by absolute path.
    There(Host, String),
}

/// Opens the checkpoint at a place: `DIR`, `FILE`, or `ssh:HOST:/DIR` for a host that ssh knows.
///
/// What is on a host is reached as the user's own settings say, and kept in the program's cache folder; see
/// [`open_place_over`].
///
/// # Errors
/// The place is no such place, cannot be reached or read, is not whole, or somebody cancelled.
pub fn open_place(place: &str, progress: Progress<'_>, stop: Stop<'_>) -> Result<Checkpoint, Failure> {
    open_place_over(place, &Hosts::default(), paths::checkpoint_cache(), progress, stop)
}

/// The same over links that may stand already; `cache` is the folder in which ranges of hosts are kept, `None` keeps them
/// in memory as long as the checkpoint is open.
///
/// A host is only read: by range, with the texts `survey.sh` and `ranges.sh`. Blocks, so that it is called where waiting
/// is allowed: in a thread of its own or in `spawn_blocking`. `progress` is told bytes done and in all; `stop` is asked
/// whether to give up.
///
/// # Errors
/// As [`open_place`].
pub fn open_place_over(
    place: &str,
    hosts: &Hosts,
    cache: Option<PathBuf>,
    progress: Progress<'_>,
    stop: Stop<'_>,
) -> Result<Checkpoint, Failure> {
    match read_place(place)? {
        Where::Here(path) => Ok(Checkpoint::open(&path)?),
        Where::There(host, path) => {
            let place = host::Place { host, become_with: Vec::new() };
            let remote = Remote::new(hosts.clone(), place, cache)?;
            Ok(open_host(remote, &path, progress, stop)?)
        }
    }
}

/// Reads what a user wrote.
///
/// # Errors
/// It begins as a place on a host and is none.
pub(super) fn read_place(place: &str) -> Result<Where, Failure> {
    let Some(remote) = place.strip_prefix("ssh:") else { return Ok(Where::Here(Path::new(place).to_owned())) };
    let Some((host, path)) = split(remote) else {
        return Err(Failure::new(format!("`{place}` names no absolute path on a host"))
            .hint("write `ssh:HOST:/FOLDER`, with a host that `ssh` knows"));
    };
    let host = Host::named(host).map_err(host::HostError::failure)?;
    Ok(Where::There(host, path.to_owned()))
}

/// Host and path. A host may be a URL with a port, so that the path begins at the first `:/` that is not followed by
/// another `/`.
fn split(remote: &str) -> Option<(&str, &str)> {
    let (at, _) = remote.match_indices(":/").find(|(at, _)| !remote[at + 2..].starts_with('/'))?;
    Some((&remote[..at], &remote[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let there = |host: &str, path: &str| Where::There(Host::named(host).unwrap(), path.to_owned());
        let check = |place: &str, expect: Where| assert_eq!(read_place(place), Ok(expect), "{place}");
        check("lab", Where::Here("lab".into()));
        check("/m/model.safetensors", Where::Here("/m/model.safetensors".into()));
        check("a:b", Where::Here("a:b".into()));
        check("ssh:gpu1:/models/x", there("gpu1", "/models/x"));
        check("ssh:me@gpu1:/", there("me@gpu1", "/"));
        check("ssh:gpu1:/a b:/c", there("gpu1", "/a b:/c"));
        check("ssh:ssh://me@box:2222:/m", there("ssh://me@box:2222", "/m"));
        check("ssh:local:/m", Where::There(Host::Local, "/m".into()));
    }

    #[test]
    fn what_is_no_place_on_a_host_is_said() {
        for place in ["ssh:", "ssh:gpu1", "ssh:gpu1:", "ssh:gpu1:models", "ssh:ssh://gpu1", "ssh::", "ssh:/m"] {
            let failure = read_place(place).unwrap_err();
            assert_eq!(failure.message, format!("`{place}` names no absolute path on a host"));
            assert!(failure.hint.unwrap().contains("ssh:HOST:/FOLDER"));
        }
        for place in ["ssh::/m", "ssh:-oProxyCommand=x:/m", "ssh:a b:/m"] {
            assert!(read_place(place).unwrap_err().message.contains("is no name of a host"), "{place}");
        }
    }
}
