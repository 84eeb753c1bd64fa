//! Whether a session can be trusted: chain, acknowledgement, blobs, snapshots; and its repair.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::event::{Event, Happened};
use crate::session::blobs::BlobStore;
use crate::session::format::{BlobHash, ChainHash, Loaded, decode};
use crate::session::replay::replay_to;
use crate::session::snapshot;
use crate::session::store::{SessionError, journal_path, read_head};

/// What was checked and found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Verification {
    /// Events whose chain holds.
    pub events: u64,
    /// Blobs that are named by those events and match their hash.
    pub blobs: u64,
    /// What does not hold; empty is a session that can be trusted.
    pub problems: Vec<Diagnostic>,
}

/// Checks every line, the acknowledgement, every blob that an event names, and the newest snapshot.
///
/// # Errors
/// There is no session, or it cannot be read at all.
pub fn verify(dir: &Path) -> Result<Verification, SessionError> {
    let path = journal_path(dir);
    if !path.is_file() {
        return Err(SessionError::NotFound(dir.display().to_string()));
    }
    let bytes = fs::read(&path)?;
    let mut problems = Vec::new();
    let loaded = match decode(&bytes, 0, ChainHash::start()) {
        Ok(loaded) => loaded,
        Err(damage) => {
            problems.push(problem("damaged-line", damage.to_string(), &path));
            *damage.good
        }
    };
    if loaded.torn_bytes > 0 {
        problems.push(problem(
            "torn-line",
            format!("the last line is cut off after {} bytes", loaded.torn_bytes),
            &path,
        ));
    }
    check_head(dir, &loaded, &mut problems)?;
    let blobs = check_blobs(dir, &loaded.events, &mut problems)?;
    check_snapshot(dir, &bytes, &loaded, &mut problems);
    Ok(Verification { events: loaded.events.len() as u64, blobs, problems })
}

fn problem(code: &str, message: String, place: &Path) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: code.into(),
        message,
        place: Some(place.display().to_string()),
        hint: None,
    }
}

fn check_head(dir: &Path, loaded: &Loaded, problems: &mut Vec<Diagnostic>) -> Result<(), SessionError> {
    let Some(head) = read_head(dir)? else { return Ok(()) };
    let have = loaded.events.last().map_or(0, |e| e.seq);
    if have < head.seq {
        let message = format!("the journal ends at event {have}, but {} were acknowledged", head.seq);
        problems.push(problem("short-journal", message, &dir.join("HEAD")));
    } else if have == head.seq && loaded.hash != head.hash {
        let message = format!("event {have} is not the one that was acknowledged");
        problems.push(problem("other-journal", message, &dir.join("HEAD")));
    }
    Ok(())
}

fn check_blobs(dir: &Path, events: &[Event], problems: &mut Vec<Diagnostic>) -> Result<u64, SessionError> {
    let store = BlobStore::open(dir.join("blobs"))?;
    let named: BTreeSet<_> = events.iter().filter_map(blob_of).collect();
    let mut good = 0;
    for hash in named {
        match store.get(hash) {
            Ok(_) => good += 1,
            Err(error) => problems.push(problem("bad-blob", error.to_string(), store.dir())),
        }
    }
    Ok(good)
}

fn blob_of(event: &Event) -> Option<&BlobHash> {
    match &event.what {
        Happened::TrialRecorded { trial } => trial.transcript.as_ref(),
        _ => None,
    }
}

fn check_snapshot(dir: &Path, bytes: &[u8], loaded: &Loaded, problems: &mut Vec<Diagnostic>) {
    let Some(snapshot) = snapshot::newest(&dir.join("snapshots"), bytes.len() as u64) else { return };
    if snapshot.state != replay_to(&loaded.events, snapshot.seq) {
        let message =
            format!("the snapshot at event {} is not what the journal gives; it may be deleted", snapshot.seq);
        problems.push(problem("stale-snapshot", message, &dir.join("snapshots")));
    }
}

/// What a repair kept and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Copy of the journal as it was.
    pub kept: PathBuf,
    /// Events that are still there.
    pub events: u64,
    /// Lines that were dropped, torn ones among them.
    pub dropped: u64,
}

/// Cuts the journal before its first bad line; the old one is kept beside it.
///
/// # Errors
/// The disk said no.
pub fn repair(dir: &Path) -> Result<Option<Repaired>, SessionError> {
    let path = journal_path(dir);
    let bytes = fs::read(&path)?;
    let good = match decode(&bytes, 0, ChainHash::start()) {
        Ok(loaded) if loaded.torn_bytes == 0 && read_head(dir)?.is_none_or(|h| h.seq <= loaded.events.len() as u64) => {
            return Ok(None);
        }
        Ok(loaded) => loaded,
        Err(damage) => *damage.good,
    };
    let kept = dir.join(format!("journal.damaged-{}.jsonl", blake3::hash(&bytes).to_hex().get(..8).unwrap_or("copy")));
    fs::copy(&path, &kept)?;
    fs::File::open(&kept)?.sync_all()?;
    let journal = fs::OpenOptions::new().write(true).open(&path)?;
    journal.set_len(good.good_bytes)?;
    journal.sync_all()?;
    for stale in [dir.join("HEAD")] {
        match fs::remove_file(stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    if dir.join("snapshots").is_dir() {
        fs::remove_dir_all(dir.join("snapshots"))?;
    }
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count() as u64;
    let events = good.events.len() as u64;
    Ok(Some(Repaired { kept, events, dropped: lines - events }))
}
