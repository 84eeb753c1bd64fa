//! A state on disk, so that a long session opens fast. A cache: any of it may be deleted.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};
use std::io::Write as _;

use crate::engine::event::Happened;
use crate::engine::state::State;
use crate::session::format::ChainHash;

/// A state and where in the journal it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Hash of the form of states and events; a snapshot of another form is not read.
    pub schema: String,
    /// Number of the last event in it.
    pub seq: u64,
    /// Hash of that line.
    pub hash: ChainHash,
    /// Bytes of the journal up to and with that line.
    pub offset: u64,
    /// The state.
    pub state: State,
}

/// Hash of the form of states and events of this program.
pub fn schema_hash() -> String {
    let events = serde_json::to_string(&schemars::schema_for!(Happened)).unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    // The source of the state's own types is their form; those that events carry are in the schema above.
    let parts = [env!("CARGO_PKG_VERSION"), &events, include_str!("../engine/state.rs")];
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\n");
    }
    hasher.finalize().to_hex().to_string()
}

/// Writes a snapshot into `dir`; all of it or nothing.
///
/// # Errors
/// Those of the disk.
pub fn write(dir: &Path, snapshot: &Snapshot) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&zstd::encode_all(serde_json::to_vec(snapshot)?.as_slice(), 3)?)?;
    file.persist(dir.join(format!("{:012}.json.zst", snapshot.seq))).map_err(|e| e.error)?;
    Ok(())
}

/// What a file among the snapshots holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Cached {
    /// A snapshot of this program's form.
    Read(Box<Snapshot>),
    /// One of another form.
    OtherForm,
    /// Nothing that can be read.
    Unreadable,
}

/// The files of `dir`, the oldest first, and what they hold.
pub fn all(dir: &Path) -> Vec<(PathBuf, Cached)> {
    let mut paths: Vec<_> = fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let schema = schema_hash();
    paths.into_iter().map(|path| (path.clone(), read(&path, &schema))).collect()
}

/// The newest snapshot in `dir` of this program's form that lies within `journal_len` bytes;
/// unreadable ones are passed over.
pub fn newest(dir: &Path, journal_len: u64) -> Option<Snapshot> {
    let mut paths: Vec<_> = fs::read_dir(dir).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let schema = schema_hash();
    paths.iter().rev().find_map(|path| match read(path, &schema) {
        Cached::Read(snapshot) if snapshot.offset <= journal_len => Some(*snapshot),
        _ => None,
    })
}

fn read(path: &Path, schema: &str) -> Cached {
    /// The part that stays readable whatever the form of the state.
    #[derive(Deserialize)]
    struct Form {
        schema: String,
    }
    let Some(bytes) = fs::File::open(path).ok().and_then(|file| zstd::decode_all(file).ok()) else {
        return Cached::Unreadable;
    };
    match serde_json::from_slice::<Form>(&bytes) {
        Ok(form) if form.schema != schema => Cached::OtherForm,
        Ok(_) => serde_json::from_slice(&bytes).map_or(Cached::Unreadable, Cached::Read),
        Err(_) => Cached::Unreadable,
    }
}
