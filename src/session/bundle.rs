//! A session as one file for somebody else: written, and read back with suspicion.
//!
//! The journal goes as it is: secrets were taken out before it was written, and its chain still verifies.
//! Transcripts are left out unless they are asked for, and the list of those left out goes in their place.
//! Not responsible for saying what is in it.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use thiserror::Error;

use crate::redact;
use crate::session::blobs::BlobStore;
use crate::session::format::BlobHash;
use crate::session::store::{self, SessionError, journal_path};
use crate::session::verify::{self, WITHHELD};

/// Name of the list of tags: one a line.
pub const TAGS: &str = "TAGS";
/// Files of a session, beside its blobs, that go into a bundle.
const FILES: [&str; 4] = ["journal.jsonl", "HEAD", WITHHELD, TAGS];
/// Largest content that is read back, in bytes: more is a mistake or an attack.
const LARGEST: u64 = 8 << 30;

/// Why a bundle could not be written or read.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The disk said no, or the file is no bundle.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The session, or the place for it.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It holds something that no session has.
    #[error("`{0}` does not belong into an exported session")]
    Foreign(String),
    /// It is larger than any session.
    #[error("the file holds more than {LARGEST} bytes")]
    TooLarge,
    /// What it holds does not verify.
    #[error("the session in the file does not hold: {0}")]
    Unsound(String),
}

/// What went into a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// Transcripts that went in.
    pub blobs: u64,
    /// Transcripts that were left out.
    pub withheld: u64,
    /// Journal lines with something that looks like a secret.
    pub suspicious: u64,
}

/// Writes the session in `dir` into a new file.
///
/// # Errors
/// The session is damaged, the file is there already, or the disk said no.
pub fn export(dir: &Path, name: &str, out: &Path, with_blobs: bool) -> Result<Written, BundleError> {
    let loaded = store::read(dir)?;
    let store = BlobStore::existing(dir.join("blobs"));
    let named: BTreeSet<BlobHash> = loaded.events.iter().filter_map(verify::blob_of).cloned().collect();
    let (inside, left_out): (Vec<_>, Vec<_>) =
        named.into_iter().partition(|hash| with_blobs && store.get(hash).is_ok());
    let journal = fs::read(journal_path(dir))?;
    let journal = &journal[..loaded.good_bytes as usize];
    let suspicious = journal
        .split(|b| *b == b'\n')
        .filter(|line| String::from_utf8(line.to_vec()).is_ok_and(|line| redact::text(&line) != line))
        .count() as u64;
    let file = fs::OpenOptions::new().write(true).create_new(true).open(out)?;
    let mut tar = tar::Builder::new(zstd::Encoder::new(file, 9)?);
    put(&mut tar, &format!("{name}/journal.jsonl"), journal)?;
    for file in ["HEAD", TAGS] {
        if let Some(bytes) = optional(&dir.join(file))? {
            put(&mut tar, &format!("{name}/{file}"), &bytes)?;
        }
    }
    if !left_out.is_empty() {
        let list = left_out.iter().map(|hash| hash.0.as_str()).collect::<Vec<_>>().join("\n") + "\n";
        put(&mut tar, &format!("{name}/{WITHHELD}"), list.as_bytes())?;
    }
    for hash in &inside {
        put(&mut tar, &format!("{name}/blobs/{}.zst", hash.0), &fs::read(store.path(hash))?)?;
    }
    tar.into_inner()?.finish()?.sync_all()?;
    Ok(Written {
        events: loaded.events.len() as u64,
        blobs: inside.len() as u64,
        withheld: left_out.len() as u64,
        suspicious,
    })
}

fn put(tar: &mut tar::Builder<impl io::Write>, path: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    tar.append_data(&mut header, path, bytes)
}

fn optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a bundle into a new session under `root`, called `name` or as the bundle says; returns its folder.
///
/// Nothing is left behind where it does not verify.
///
/// # Errors
/// The file is no bundle, holds something else too, does not verify, or there is a session of that name.
pub fn import(root: &Path, file: &Path, name: Option<&str>) -> Result<PathBuf, BundleError> {
    fs::create_dir_all(root)?;
    let scratch = tempfile::Builder::new().prefix(".import-").tempdir_in(root)?;
    let dir = scratch.path().join("session");
    let found = unpack(file, &dir)?;
    let verification = verify::verify(&dir)?;
    if let Some(problem) = verification.problems.first() {
        return Err(BundleError::Unsound(problem.message.clone()));
    }
    let to = store::free_folder(root, name.unwrap_or(&found))?;
    fs::rename(&dir, &to)?;
    Ok(to)
}

fn unpack(file: &Path, dir: &Path) -> Result<String, BundleError> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(fs::File::open(file)?)?.take(LARGEST));
    let (mut name, mut total) = (None, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let (session, inside) = place(&path)
            .filter(|(session, _)| entry.header().entry_type().is_file() && name.as_ref().is_none_or(|n| n == session))
            .ok_or_else(|| BundleError::Foreign(path.display().to_string()))?;
        total += entry.size();
        if total > LARGEST {
            return Err(BundleError::TooLarge);
        }
        let to = dir.join(inside);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut out = private(&to)?;
        io::copy(&mut entry, &mut out)?;
        name = Some(session);
    }
    name.ok_or_else(|| SessionError::NotFound(file.display().to_string()).into())
}

fn private(path: &Path) -> io::Result<fs::File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Session name and place within the session of a path in a bundle; `None` for what no session has.
fn place(path: &Path) -> Option<(String, PathBuf)> {
    let parts: Option<Vec<&str>> = path
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match parts?.as_slice() {
        [session, file] if FILES.contains(file) => Some(((*session).to_owned(), PathBuf::from(file))),
        [session, "blobs", blob] => {
            let hash = blob.strip_suffix(".zst")?;
            let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            is_hash.then(|| ((*session).to_owned(), Path::new("blobs").join(blob)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{Event, Happened};
    use crate::engine::input::Actor;

    fn session(root: &Path) -> PathBuf {
        let mut open = store::create(root, "monday").unwrap();
        let blob = open.blobs.put(b"conversation").unwrap();
        let at = jiff::Timestamp::UNIX_EPOCH;
        let started =
            Happened::SessionStarted { id: uuid::Uuid::nil(), name: "monday".into(), program: "0".into(), seed: 1 };
        let mut entry = crate::cli::fixture::trial(1, 1024, 0.5, crate::recall::trial::Outcome::Pass);
        std::sync::Arc::make_mut(&mut entry.trial).transcript = Some(blob);
        let trial = Happened::TrialRecorded { trial: entry.trial };
        for (seq, what) in [(1, started), (2, trial)] {
            open.journal.append(&[Event { seq, at, actor: Actor::program(), what }]).unwrap();
        }
        open.journal.sync().unwrap();
        let (seq, hash, _) = open.journal.head();
        store::write_head(&open.dir, &store::Head { seq, hash: hash.clone() }).unwrap();
        open.dir
    }

    #[test]
    fn an_exported_session_verifies_without_its_transcripts_and_with_them() {
        for (with_blobs, blobs, withheld) in [(false, 0, 1), (true, 1, 0)] {
            let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let file = from.path().join("monday.tar.zst");
            let written = export(&session(from.path()), "monday", &file, with_blobs).unwrap();
            assert_eq!(written, Written { events: 2, blobs, withheld, suspicious: 0 });
            let dir = import(to.path(), &file, None).unwrap();
            assert_eq!(dir, to.path().join("monday"));
            let found = verify::verify(&dir).unwrap();
            assert_eq!((found.problems.len(), found.blobs, found.withheld), (0, blobs, withheld));
            assert!(matches!(import(to.path(), &file, None), Err(BundleError::Session(SessionError::Exists(_)))));
            assert!(import(to.path(), &file, Some("tuesday")).is_ok());
            let left: Vec<_> = fs::read_dir(to.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left.len(), 2, "{left:?}");
        }
    }

    #[test]
    fn an_export_never_writes_over_a_file() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("there");
        fs::write(&file, "mine").unwrap();
        assert!(export(&session(root.path()), "monday", &file, false).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    fn bundle(root: &Path, entries: &[(&str, &[u8])]) -> PathBuf {
        let file = root.join("b.tar.zst");
        let mut tar = tar::Builder::new(zstd::Encoder::new(fs::File::create(&file).unwrap(), 1).unwrap());
        for (path, bytes) in entries {
            put(&mut tar, path, bytes).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        file
    }

    #[test]
    fn what_is_no_session_is_refused_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let check = |entries: &[(&str, &[u8])]| {
            let sessions = root.path().join("sessions");
            assert!(import(&sessions, &bundle(root.path(), entries), None).is_err(), "{entries:?}");
            assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
        };
        check(&[]);
        check(&[("s/lab/serve.sh", b"x")]);
        check(&[("s/journal.jsonl", b""), ("t/HEAD", b"")]);
        check(&[("s/blobs/abc.zst", b"x")]);
        check(&[("s/journal.jsonl", b"{}\n")]);
        for path in ["../journal.jsonl", "/s/journal.jsonl", "s/../journal.jsonl", "s/blobs/../HEAD"] {
            assert_eq!(place(Path::new(path)), None, "{path}");
        }
    }
}
