//! Ranges of remote files that were fetched once.
//!
//! Responsible for keeping bytes and giving them back only if they are what was put there. Not responsible for fetching.
//!
//! An entry is a file: the blake3 hash of key and content, then the content. One folder holds the entries of one version
//! of one file; those of an older version are taken away when a newer one is kept. There is no other bound: the program
//! keeps what was asked for until its cache folder is emptied.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fs_err as fs;

use super::error::CheckpointError;

/// One version of one remote file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Version {
    /// The host's name.
    pub(super) host: String,
    /// Absolute path on it.
    pub(super) path: String,
    /// Bytes.
    pub(super) size: u64,
    /// Which state of the file that is.
    pub(super) stamp: Stamp,
}

/// Last change of the content and of the file, in seconds since 1970, and the number of its inode: a copy that takes the
/// place of a file within a second, or keeps its time, is another one.
pub(super) type Stamp = [i64; 3];

/// What the cache has of a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Absent,
    /// Something else than was put there.
    Damaged,
    /// The bytes.
    Whole(Arc<[u8]>),
}

/// A range of a version.
type Key = (Version, Range<u64>);

/// Where fetched ranges are kept.
#[derive(Debug)]
pub(super) enum Cache {
    /// In this folder.
    Folder(PathBuf),
    /// In memory, where there is no folder.
    Memory(Mutex<HashMap<Key, Arc<[u8]>>>),
}

/// Bytes of a hash.
const HASH: usize = 32;

impl Cache {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        folder.map_or_else(|| Self::Memory(Mutex::default()), Self::Folder)
    }

    /// Whether there seems to be such a range; that it is whole is known once it is read.
    pub(super) fn has(&self, version: &Version, bytes: &Range<u64>) -> bool {
        match self {
            Self::Memory(kept) => {
                kept.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&(version.clone(), bytes.clone()))
            }
            Self::Folder(folder) => {
                let expected = HASH as u64 + (bytes.end - bytes.start);
                fs::metadata(entry(folder, version, bytes)).is_ok_and(|m| m.len() == expected)
            }
        }
    }

    /// The bytes of a range, if they are those that were put there.
    pub(super) fn get(&self, version: &Version, bytes: &Range<u64>) -> Found {
        match self {
            Self::Memory(kept) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get(&(version.clone(), bytes.clone())).map_or(Found::Absent, |b| Found::Whole(b.clone()))
            }
            Self::Folder(folder) => {
                // What cannot be read is fetched, whatever the reason.
                let Ok(entry) = fs::read(entry(folder, version, bytes)) else { return Found::Absent };
                match entry.split_first_chunk::<HASH>() {
                    Some((kept, content))
                        if content.len() as u64 == bytes.end - bytes.start
                            && hash(version, bytes, content).as_bytes() == kept =>
                    {
                        Found::Whole(content.into())
                    }
                    _ => Found::Damaged,
                }
            }
        }
    }

    /// Keeps the bytes of a range.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn put(&self, version: &Version, bytes: &Range<u64>, content: &[u8]) -> Result<(), CheckpointError> {
        match self {
            Self::Memory(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.insert((version.clone(), bytes.clone()), content.into());
                Ok(())
            }
            Self::Folder(folder) => {
                let path = entry(folder, version, bytes);
                let failed = |why| CheckpointError::Cache { folder: folder.display().to_string(), why };
                write(&path, &hash(version, bytes, content), content).map_err(failed)
            }
        }
    }
}

/// Writes an entry so that it is there whole or not at all.
fn write(path: &Path, hash: &blake3::Hash, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    if !folder.is_dir() {
        fs::create_dir_all(folder)?;
        forget_others(folder);
    }
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(hash.as_bytes())?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// Takes away the entries of other versions of the same file; what stays is of no harm.
fn forget_others(folder: &Path) {
    let others = folder.parent().and_then(|file| fs::read_dir(file).ok());
    for other in others.into_iter().flatten().flatten().filter(|other| other.path() != folder) {
        let _ = fs::remove_dir_all(other.path());
    }
}

fn entry(folder: &Path, version: &Version, bytes: &Range<u64>) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    for text in [&version.host, &version.path] {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let file = hasher.finalize().to_hex();
    let [content, entry, inode] = version.stamp;
    let state = format!("{}-{content}-{entry}-{inode}", version.size);
    folder.join(&file[..32]).join(state).join(format!("{}-{}", bytes.start, bytes.end))
}

/// The hash of a range with all that it belongs to, so that an entry under another's name is damaged.
fn hash(version: &Version, bytes: &Range<u64>, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for text in [&version.host, &version.path] {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let stamp = version.stamp.map(|number| number as u64);
    for number in [version.size, bytes.start, bytes.end].into_iter().chain(stamp) {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(content).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(host: &str, path: &str, size: u64, changed: i64) -> Version {
        Version { host: host.into(), path: path.into(), size, stamp: [changed, changed, 3] }
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
        }
        found
    }

    #[test]
    fn a_range_is_found_under_its_own_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        for cache in [Cache::new(Some(folder.path().to_owned())), Cache::new(None)] {
            let kept = version("gpu1", "/m/a", 100, 7);
            cache.put(&kept, &(3..6), b"abc").unwrap();
            assert_eq!(cache.get(&kept, &(3..6)), Found::Whole(b"abc".as_slice().into()));
            assert!(cache.has(&kept, &(3..6)));
            for (other, bytes) in [
                (version("gpu2", "/m/a", 100, 7), 3..6),
                (version("gpu1", "/m/b", 100, 7), 3..6),
                (version("gpu1", "/m/a", 101, 7), 3..6),
                (version("gpu1", "/m/a", 100, 8), 3..6),
                (version("gpu1/m", "/a", 100, 7), 3..6),
                (Version { stamp: [7, 8, 3], ..kept.clone() }, 3..6),
                (Version { stamp: [7, 7, 4], ..kept.clone() }, 3..6),
                (kept.clone(), 3..7),
                (kept.clone(), 2..6),
            ] {
                assert!(!cache.has(&other, &bytes));
                assert_eq!(cache.get(&other, &bytes), Found::Absent, "{other:?} {bytes:?}");
            }
        }
    }

    #[test]
    fn a_damaged_entry_is_never_trusted() {
        let damage: [fn(&mut Vec<u8>); 5] =
            [|e| e[40] ^= 1, |e| e[0] ^= 1, |e| e.truncate(40), Vec::clear, |e| e.push(0)];
        for harm in damage {
            let folder = tempfile::tempdir().unwrap();
            let (cache, kept) = (Cache::new(Some(folder.path().to_owned())), version("gpu1", "/m/a", 100, 7));
            cache.put(&kept, &(0..16), &[5; 16]).unwrap();
            let [path] = files(folder.path()).try_into().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            harm(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.get(&kept, &(0..16)), Found::Damaged);
            cache.put(&kept, &(0..16), &[5; 16]).unwrap();
            assert_eq!(cache.get(&kept, &(0..16)), Found::Whole([5; 16].into()));
        }
    }

    #[test]
    fn an_entry_under_another_ones_name_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, kept) = (Cache::new(Some(folder.path().to_owned())), version("gpu1", "/m/a", 100, 7));
        cache.put(&kept, &(0..4), b"abcd").unwrap();
        let [path] = files(folder.path()).try_into().unwrap();
        fs::copy(&path, path.with_file_name("4-8")).unwrap();
        assert_eq!(cache.get(&kept, &(4..8)), Found::Damaged);
    }

    #[test]
    fn a_newer_version_takes_the_place_of_the_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(folder.path().to_owned()));
        let (old, new, other) =
            (version("g", "/m/a", 100, 7), version("g", "/m/a", 100, 8), version("g", "/m/b", 100, 7));
        for one in [&old, &other, &new] {
            cache.put(one, &(0..4), b"abcd").unwrap();
        }
        assert_eq!(cache.get(&old, &(0..4)), Found::Absent);
        assert!(cache.has(&new, &(0..4)) && cache.has(&other, &(0..4)));
        assert_eq!(files(folder.path()).len(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Cache::new(Some(file.clone())).put(&version("g", "/m", 1, 1), &(0..1), b"a").unwrap_err();
        assert!(error.to_string().starts_with(&format!("what was fetched cannot be kept in `{}`: ", file.display())));
        assert!(error.hint().contains("XDG_CACHE_HOME"));
    }
}
