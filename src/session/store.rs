//! The folder of a session: making, finding, opening and reading one.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use thiserror::Error;

use crate::engine::diagnostic::Diagnostic;
use crate::engine::event::Event;
use crate::engine::state::State;
use crate::session::blobs::{BlobError, BlobStore};
use crate::session::bundle::TAGS;
use crate::session::format::{ChainHash, Damage, Loaded, check_chain, decode};
use crate::session::journal::Journal;
use crate::session::lock::{Lock, LockError};
use crate::session::replay::replay;
use crate::session::snapshot;
use crate::session::storage::FileStorage;
use crate::session::verify;

/// A session that is open for writing.
pub struct OpenSession {
    /// Its folder.
    pub dir: PathBuf,
    /// Its journal.
    pub journal: Journal,
    /// Its state.
    pub state: State,
    /// Its blobs.
    pub blobs: BlobStore,
    /// What was found while it was opened.
    pub remarks: Vec<Diagnostic>,
    /// Held while it is open.
    pub lock: Lock,
}

/// Why a session cannot be made, found or opened.
#[derive(Debug, Error)]
pub enum SessionError {
    /// There is none of that name.
    #[error("there is no session `{0}`")]
    NotFound(String),
    /// There is one of that name already.
    #[error("there is a session `{0}` already")]
    Exists(String),
    /// A name that is not a plain file name.
    #[error("`{0}` is not a session name: use letters, digits, `-`, `_` and `.`")]
    BadName(String),
    /// Another program has it open.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The journal cannot be trusted.
    #[error("the journal is damaged at {0}")]
    Damaged(#[from] Damage),
    /// The journal lacks events that were acknowledged.
    #[error("the journal ends at event {have}, but {acknowledged} were acknowledged")]
    Short {
        /// Events in the journal.
        have: u64,
        /// Events that were acknowledged.
        acknowledged: u64,
    },
    /// The disk said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The blob folder cannot be used.
    #[error("{0}")]
    Blobs(#[from] BlobError),
}

impl SessionError {
    /// What the user can do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound(_) => Some("`patchbench session list` shows what there is"),
            Self::Exists(_) => Some("`session resume` opens it again"),
            Self::Locked(LockError::Held(_)) => Some("close the other one first; watching is not in this version"),
            Self::Damaged(_) | Self::Short { .. } => {
                Some("`session verify` says more; `session repair` keeps everything before the damage")
            }
            Self::BadName(_) | Self::Locked(_) | Self::Io(_) | Self::Blobs(_) => None,
        }
    }
}

/// How far the journal was acknowledged, kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of the last acknowledged event.
    pub seq: u64,
    /// Hash of its line.
    pub hash: ChainHash,
}

/// Path of the journal in a session's folder.
pub fn journal_path(dir: &Path) -> PathBuf {
    dir.join("journal.jsonl")
}

/// Makes a new, empty session under `root`; its first event is the caller's to write.
///
/// # Errors
/// The name is taken or not a file name, or the disk said no.
pub fn create(root: &Path, name: &str) -> Result<OpenSession, SessionError> {
    let dir = free_folder(root, name)?;
    fs::create_dir(&dir)?;
    open(&dir)
}

/// The folder of a session that may be made under this name.
///
/// # Errors
/// The name is taken or not a plain file name, or the disk said no.
pub fn free_folder(root: &Path, name: &str) -> Result<PathBuf, SessionError> {
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !plain {
        return Err(SessionError::BadName(name.to_owned()));
    }
    fs::create_dir_all(root)?;
    let dir = root.join(name);
    if dir.exists() {
        return Err(SessionError::Exists(name.to_owned()));
    }
    Ok(dir)
}

/// The tags of a session, in order.
///
/// # Errors
/// The list is there and cannot be read.
pub fn tags(dir: &Path) -> io::Result<BTreeSet<String>> {
    match fs::read_to_string(dir.join(TAGS)) {
        Ok(text) => Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Writes the tags of a session; all of them or nothing.
///
/// # Errors
/// Those of the disk.
pub fn write_tags(dir: &Path, tags: &BTreeSet<String>) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    tags.iter().try_for_each(|tag| writeln!(file, "{tag}"))?;
    file.as_file().sync_data()?;
    file.persist(dir.join(TAGS)).map_err(|e| e.error)?;
    Ok(())
}

/// Opens a session for writing: takes the lock, drops a torn last line, and rebuilds the state from
/// the newest snapshot and the rest of the journal.
///
/// # Errors
/// It is locked, damaged, shorter than what was acknowledged, or unreadable.
pub fn open(dir: &Path) -> Result<OpenSession, SessionError> {
    if !dir.is_dir() {
        return Err(SessionError::NotFound(dir.display().to_string()));
    }
    let lock = Lock::take(&dir.join("lock"))?;
    let path = journal_path(dir);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let (state, loaded, start) = load(dir, &bytes)?;
    let mut remarks: Vec<Diagnostic> = check_head(dir, &bytes, state.seq, &loaded.hash)?.into_iter().collect();
    let good = start + loaded.good_bytes;
    let mut storage = FileStorage::open(&path)?;
    if loaded.torn_bytes > 0 {
        use crate::session::storage::Storage as _;
        storage.cut(good)?;
        remarks.push(Diagnostic::warning(
            "torn-line",
            format!(
                "the last journal line was cut off ({} bytes) and was dropped; it was never acknowledged",
                loaded.torn_bytes
            ),
        ));
    }
    let journal = Journal::new(Box::new(storage), state.seq, loaded.hash, good);
    let blobs = BlobStore::open(dir.join("blobs"))?;
    remarks.extend(verify::blob_remark(dir, &state));
    Ok(OpenSession { dir: dir.to_owned(), journal, state, blobs, remarks, lock })
}

/// The state from snapshot and tail; falls back to the whole journal where the snapshot does not fit.
fn load(dir: &Path, bytes: &[u8]) -> Result<(State, Loaded, u64), Damage> {
    if let Some(snapshot) = snapshot::newest(&dir.join("snapshots"), bytes.len() as u64)
        && check_chain(&bytes[..snapshot.offset as usize]).is_ok_and(|hash| hash == snapshot.hash)
        && let Ok(tail) = decode(&bytes[snapshot.offset as usize..], snapshot.seq, snapshot.hash.clone())
    {
        return Ok((replay(snapshot.state, &tail.events), tail, snapshot.offset));
    }
    let whole = decode(bytes, 0, ChainHash::start())?;
    Ok((replay(State::default(), &whole.events), whole, 0))
}

fn check_head(dir: &Path, bytes: &[u8], have: u64, hash: &ChainHash) -> Result<Option<Diagnostic>, SessionError> {
    let head = match read_head(dir)? {
        HeadFile::Read(head) => head,
        HeadFile::Missing if have == 0 => return Ok(None),
        HeadFile::Missing => return Ok(Some(head_remark("missing"))),
        HeadFile::Unreadable(_) => return Ok(Some(head_remark("unreadable"))),
    };
    if have < head.seq {
        return Err(SessionError::Short { have, acknowledged: head.seq });
    }
    let there = if have == head.seq { Some(hash.clone()) } else { hash_at(bytes, head.seq) };
    if there.is_none_or(|there| there != head.hash) {
        let good = Loaded { events: Vec::new(), hash: hash.clone(), good_bytes: 0, torn_bytes: 0 };
        let why = "its hash is not the one that was acknowledged".to_owned();
        return Err(Damage { line: head.seq as usize, why, good: Box::new(good) }.into());
    }
    Ok(None)
}

fn head_remark(how: &str) -> Diagnostic {
    let message = format!("`HEAD` is {how}, so it is unknown whether the end of the journal is complete");
    Diagnostic::warning("no-head", message).hint("`session repair` writes it anew for the events that are there")
}

/// Hash of line number `seq`; `None` where there is none, or the chain up to it does not hold.
pub(crate) fn hash_at(bytes: &[u8], seq: u64) -> Option<ChainHash> {
    let lines: usize = bytes.split_inclusive(|b| *b == b'\n').take(seq as usize).map(<[u8]>::len).sum();
    check_chain(&bytes[..lines]).ok()
}

/// What stands in `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadFile {
    /// There is no such file.
    Missing,
    /// It is there and says nothing that can be used; why.
    Unreadable(String),
    /// How far the journal was acknowledged.
    Read(Head),
}

/// How far the journal was acknowledged.
///
/// # Errors
/// The file is there and the disk does not give it.
pub fn read_head(dir: &Path) -> Result<HeadFile, SessionError> {
    match fs::read(dir.join("HEAD")) {
        Ok(bytes) => Ok(match serde_json::from_slice(&bytes) {
            Ok(head) => HeadFile::Read(head),
            Err(error) => HeadFile::Unreadable(error.to_string()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HeadFile::Missing),
        Err(error) => Err(error.into()),
    }
}

/// Notes how far the journal was acknowledged; all of it or nothing.
///
/// # Errors
/// Those of the disk.
pub fn write_head(dir: &Path, head: &Head) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&serde_json::to_vec(head)?)?;
    file.write_all(b"\n")?;
    file.as_file().sync_data()?;
    file.persist(dir.join("HEAD")).map_err(|e| e.error)?;
    Ok(())
}

/// Reads all events of a session without opening it for writing.
///
/// # Errors
/// It is damaged or unreadable.
pub fn read(dir: &Path) -> Result<Loaded, SessionError> {
    let path = journal_path(dir);
    if !path.is_file() {
        return Err(SessionError::NotFound(dir.display().to_string()));
    }
    Ok(decode(&fs::read(path)?, 0, ChainHash::start())?)
}

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name: that of its folder.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Time of its last event; `None` where nothing can be read.
    pub last_at: Option<Timestamp>,
    /// Number of its last event.
    pub events: u64,
}

/// The sessions under `root`, the newest first; one that cannot be read is listed without a time.
///
/// # Errors
/// The folder is there and cannot be read.
pub fn list(root: &Path) -> io::Result<Vec<Entry>> {
    let folders = match fs::read_dir(root) {
        Ok(folders) => folders,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut entries = Vec::new();
    for folder in folders {
        let path = folder?.path();
        if !journal_path(&path).is_file() {
            continue;
        }
        let last = last_event(&path);
        entries.push(Entry {
            name: path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
            last_at: last.as_ref().map(|e| e.at),
            events: last.map_or(0, |e| e.seq),
            path,
        });
    }
    entries.sort_by(|a, b| b.last_at.cmp(&a.last_at).then(a.name.cmp(&b.name)));
    Ok(entries)
}

fn last_event(dir: &Path) -> Option<Event> {
    read(dir).ok()?.events.pop()
}

/// The folder of a session that was given as a name under `root` or as a path.
///
/// # Errors
/// Neither is a session.
pub fn find(root: &Path, session: &str) -> Result<PathBuf, SessionError> {
    [root.join(session), PathBuf::from(session)]
        .into_iter()
        .find(|dir| journal_path(dir).is_file())
        .ok_or_else(|| SessionError::NotFound(session.to_owned()))
}
