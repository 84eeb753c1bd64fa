//! Large values beside the journal, by content.
//!
//! Responsible for writing a blob so that a crash leaves either all of it or nothing, and for
//! checking its hash when it is read. Not responsible for redaction.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use thiserror::Error;

use crate::session::format::BlobHash;

/// The folder of a session's blobs.
#[derive(Clone, Debug)]
pub struct BlobStore {
    dir: PathBuf,
}

/// Why a blob could not be written or read.
#[derive(Debug, Error)]
pub enum BlobError {
    /// The disk said no.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The bytes are not those that were written.
    #[error("blob {0} is damaged: its content does not match its name")]
    Damaged(String),
}

impl BlobStore {
    /// The store in this folder, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, BlobError> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    /// The store in this folder for reading alone; nothing is made.
    pub fn existing(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Hashes of the blobs that are there, by their names.
    ///
    /// # Errors
    /// The folder is there and cannot be read.
    pub fn names(&self) -> std::io::Result<Vec<BlobHash>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".zst").map(|hash| BlobHash(hash.to_owned())));
        }
        names.sort();
        Ok(names)
    }

    /// Writes the bytes, compressed, readable by the owner alone, and on disk when this returns.
    ///
    /// # Errors
    /// The disk is full or not writable; nothing is left behind then.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobHash, BlobError> {
        let hash = BlobHash::of(bytes);
        let path = self.path(&hash);
        if path.exists() {
            return Ok(hash);
        }
        let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
        file.write_all(&zstd::encode_all(bytes, 3)?)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.as_file().sync_data()?;
        file.persist(&path).map_err(|e| e.error)?;
        fs::File::open(&self.dir)?.sync_all()?;
        Ok(hash)
    }

    /// The bytes of a blob.
    ///
    /// # Errors
    /// It is missing, unreadable or damaged.
    pub fn get(&self, hash: &BlobHash) -> Result<Vec<u8>, BlobError> {
        let bytes = zstd::decode_all(fs::File::open(self.path(hash))?)?;
        if BlobHash::of(&bytes) != *hash {
            return Err(BlobError::Damaged(hash.0.clone()));
        }
        Ok(bytes)
    }

    /// Where the store is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a blob is, or would be.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        self.dir.join(format!("{}.zst", hash.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(dir.path()).unwrap();
        let hash = store.put(b"hello").unwrap();
        assert_eq!(store.put(b"hello").unwrap(), hash);
        assert_eq!(store.get(&hash).unwrap(), b"hello");
        fs::write(store.path(&hash), zstd::encode_all(&b"other"[..], 3).unwrap()).unwrap();
        assert!(matches!(store.get(&hash), Err(BlobError::Damaged(_))));
    }
}
