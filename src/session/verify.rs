//! Whether a session can be trusted: chain, acknowledgement, blobs, snapshots; and its repair.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::event::{Event, Happened};
use crate::engine::state::State;
use crate::session::blobs::BlobStore;
use crate::session::format::{BlobHash, ChainHash, Loaded, check_chain, decode};
use crate::session::lock;
use crate::session::replay::replay_to;
use crate::session::snapshot::{self, Cached};
use crate::session::store::{Head, HeadFile, SessionError, hash_at, journal_path, read_head, write_head};

/// What was checked and found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Verification {
    /// Events whose chain holds.
    pub events: u64,
    /// Blobs that are named by those events and match their hash.
    pub blobs: u64,
    /// Blobs that are named by those events and were withheld when the session was exported.
    pub withheld: u64,
    /// What does not hold; empty is a session that can be trusted.
    pub problems: Vec<Diagnostic>,
    /// What is worth knowing and takes no trust away.
    pub remarks: Vec<Diagnostic>,
}

/// Name of the list of blobs that an export left out: one hash a line.
pub const WITHHELD: &str = "WITHHELD";

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
    if let Some(first) = loaded.events.first()
        && !matches!(first.what, Happened::SessionStarted { .. })
    {
        let message = "the first event is not the beginning of a session, so something before it is gone".to_owned();
        problems.push(problem("no-beginning", message, &path));
    }
    let mut remarks = Vec::new();
    check_head(dir, &bytes, &loaded, &mut problems)?;
    let (blobs, withheld) = check_blobs(dir, &loaded.events, &mut problems, &mut remarks)?;
    check_snapshots(dir, &bytes, &loaded, &mut problems, &mut remarks);
    if let Some(pid) = lock::holder(&dir.join("lock"))? {
        let message = format!("process {pid} has the session open, so it may have grown while it was read");
        remarks.push(remark("open", message, &dir.join("lock")));
    }
    Ok(Verification { events: loaded.events.len() as u64, blobs, withheld, problems, remarks })
}

fn remark(code: &str, message: String, place: &Path) -> Diagnostic {
    Diagnostic { severity: Severity::Info, ..problem(code, message, place) }
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

fn check_head(dir: &Path, bytes: &[u8], loaded: &Loaded, problems: &mut Vec<Diagnostic>) -> Result<(), SessionError> {
    let path = dir.join("HEAD");
    let have = loaded.events.last().map_or(0, |e| e.seq);
    let unknown = "so it is unknown whether the end of the journal is complete";
    let head = match read_head(dir)? {
        HeadFile::Read(head) => head,
        HeadFile::Missing if have == 0 => return Ok(()),
        HeadFile::Missing => {
            problems.push(problem("head-missing", format!("`HEAD` is missing, {unknown}"), &path));
            return Ok(());
        }
        HeadFile::Unreadable(why) => {
            problems.push(problem("head-unreadable", format!("`HEAD` cannot be read ({why}), {unknown}"), &path));
            return Ok(());
        }
    };
    if have < head.seq {
        let message = format!("the journal ends at event {have}, but {} were acknowledged", head.seq);
        problems.push(problem("short-journal", message, &path));
    } else if hash_at(bytes, head.seq).is_none_or(|hash| hash != head.hash) {
        let message = format!("event {} is not the one that was acknowledged", head.seq);
        problems.push(problem("other-journal", message, &path));
    }
    Ok(())
}

fn check_blobs(
    dir: &Path,
    events: &[Event],
    problems: &mut Vec<Diagnostic>,
    remarks: &mut Vec<Diagnostic>,
) -> Result<(u64, u64), SessionError> {
    let store = BlobStore::existing(dir.join("blobs"));
    let left_out = withheld(dir)?;
    let named: BTreeSet<&BlobHash> = events.iter().filter_map(blob_of).collect();
    let (mut good, mut missing) = (0, 0);
    for hash in &named {
        match store.get(hash) {
            Ok(_) => good += 1,
            Err(_) if left_out.contains(hash) && !store.path(hash).exists() => missing += 1,
            Err(error) => problems.push(problem("bad-blob", error.to_string(), &store.path(hash))),
        }
    }
    if missing > 0 {
        let message = format!("{missing} blobs were withheld when the session was exported");
        remarks.push(remark("withheld-blobs", message, &dir.join(WITHHELD)));
    }
    let unnamed = store.names()?.iter().filter(|hash| !named.contains(hash)).count();
    if unnamed > 0 {
        let message = format!("{unnamed} blobs are named by no event: they were written before a crash, or put there");
        remarks.push(remark("unnamed-blobs", message, store.dir()));
    }
    Ok((good, missing))
}

/// Hashes of the blobs that an export left out.
fn withheld(dir: &Path) -> io::Result<BTreeSet<BlobHash>> {
    match fs::read_to_string(dir.join(WITHHELD)) {
        Ok(text) => Ok(text.lines().map(|line| BlobHash(line.trim().to_owned())).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// One remark about transcripts of this state that cannot be read, for whoever opens or shows the session.
pub fn blob_remark(dir: &Path, state: &State) -> Option<Diagnostic> {
    let store = BlobStore::existing(dir.join("blobs"));
    let left_out = withheld(dir).unwrap_or_default();
    let named: BTreeSet<&BlobHash> = state.trials.iter().filter_map(|t| t.trial.transcript.as_ref()).collect();
    let unread: Vec<&BlobHash> = named.iter().copied().filter(|hash| store.get(hash).is_err()).collect();
    let (out, bad): (Vec<&BlobHash>, Vec<&BlobHash>) = unread.into_iter().partition(|hash| left_out.contains(hash));
    if bad.is_empty() && out.is_empty() {
        return None;
    }
    let mut words = Vec::new();
    if !bad.is_empty() {
        words.push(format!("{} of {} transcripts are missing or damaged", bad.len(), named.len()));
    }
    if !out.is_empty() {
        words.push(format!("{} were withheld when the session was exported", out.len()));
    }
    let remark = Diagnostic::warning("bad-blobs", words.join(", "));
    Some(remark.at(store.dir().display().to_string()).hint("`session verify` names them"))
}

/// The blob that an event names.
pub(crate) fn blob_of(event: &Event) -> Option<&BlobHash> {
    match &event.what {
        Happened::TrialRecorded { trial } => trial.transcript.as_ref(),
        _ => None,
    }
}

fn check_snapshots(
    dir: &Path,
    bytes: &[u8],
    loaded: &Loaded,
    problems: &mut Vec<Diagnostic>,
    remarks: &mut Vec<Diagnostic>,
) {
    for (path, cached) in snapshot::all(&dir.join("snapshots")) {
        let snapshot = match cached {
            Cached::Unreadable => {
                remarks.push(remark("unreadable-snapshot", "a snapshot cannot be read and is not used".into(), &path));
                continue;
            }
            Cached::OtherForm => {
                let message = "a snapshot is of another version of the program and is not used".into();
                remarks.push(remark("other-snapshot", message, &path));
                continue;
            }
            Cached::Read(snapshot) => snapshot,
        };
        let before = bytes.get(..snapshot.offset as usize);
        let chained = before.is_some_and(|b| check_chain(b).is_ok_and(|hash| hash == snapshot.hash));
        if !chained || !same_on_disk(&snapshot.state, &replay_to(&loaded.events, snapshot.seq)) {
            let message =
                format!("the snapshot at event {} is not what the journal gives; it may be deleted", snapshot.seq);
            problems.push(problem("stale-snapshot", message, &path));
        }
    }
}

/// Whether two states are the same bytes: in memory a value that is no number differs from itself, and a microtest may
/// have measured one.
fn same_on_disk(a: &State, b: &State) -> bool {
    match (serde_json::to_vec(a), serde_json::to_vec(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
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

/// Cuts the journal before its first bad line, keeping the old one beside it, and writes `HEAD` for what is left.
///
/// Nothing is done where the journal is whole and `HEAD` fits it.
///
/// # Errors
/// The disk said no.
pub fn repair(dir: &Path) -> Result<Option<Repaired>, SessionError> {
    let path = journal_path(dir);
    let bytes = fs::read(&path)?;
    let (good, whole) = match decode(&bytes, 0, ChainHash::start()) {
        Ok(loaded) if loaded.torn_bytes == 0 => (loaded, true),
        Ok(loaded) => (loaded, false),
        Err(damage) => (*damage.good, false),
    };
    let seq = good.events.last().map_or(0, |e| e.seq);
    let fits = match read_head(dir)? {
        HeadFile::Read(head) => head.seq <= seq && hash_at(&bytes, head.seq).is_some_and(|hash| hash == head.hash),
        HeadFile::Missing => seq == 0,
        HeadFile::Unreadable(_) => false,
    };
    if whole && fits {
        return Ok(None);
    }
    let kept = dir.join(format!("journal.damaged-{}.jsonl", blake3::hash(&bytes).to_hex().get(..8).unwrap_or("copy")));
    fs::copy(&path, &kept)?;
    fs::File::open(&kept)?.sync_all()?;
    let journal = fs::OpenOptions::new().write(true).open(&path)?;
    journal.set_len(good.good_bytes)?;
    journal.sync_all()?;
    write_head(dir, &Head { seq, hash: good.hash.clone() })?;
    if dir.join("snapshots").is_dir() {
        fs::remove_dir_all(dir.join("snapshots"))?;
    }
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count() as u64;
    let events = good.events.len() as u64;
    Ok(Some(Repaired { kept, events, dropped: lines - events }))
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
