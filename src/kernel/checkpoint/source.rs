//! Where the bytes of a checkpoint come from: the program itself, files here, files on a host.
//!
//! Responsible for opening each and for reading by position. Not responsible for what the bytes mean.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use fs_err as fs;

use super::error::{CheckpointError, Damage};
use super::index::Index;
use super::ranges::Part;
use super::remote::{Remote, RemoteFile, Seen, Survey};
use super::transfer::Counter;
use super::{Checkpoint, Progress, Shard, Stop};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
const CONFIG: &str = "config.json";
/// The longest index that is read, a hundred times the largest that is known.
const INDEX_LIMIT: u64 = 1_000_000_000;
/// The longest configuration that is read.
const CONFIG_LIMIT: u64 = 16_000_000;

/// Where the bytes come from; a part names its file by the number of its shard.
#[derive(Debug)]
pub(super) enum Source {
    /// One file within the program.
    Bytes(&'static [u8]),
    /// Files here.
    Files {
        /// One for each shard; `None` where there is no such file.
        files: Vec<Option<fs::File>>,
        /// The folder, for what stands beside.
        folder: std::path::PathBuf,
    },
    /// Files on a host.
    Host {
        /// The way to it.
        remote: Remote,
        /// One for each shard, then the configuration where there is one.
        files: Vec<RemoteFile>,
        /// The number of the configuration.
        config: Option<usize>,
    },
}

impl Source {
    /// Makes ready to read these parts; what is here already needs nothing.
    pub(super) fn fetch(
        &self,
        parts: &[Part],
        counter: &Counter,
        progress: Progress<'_>,
        stop: Stop<'_>,
    ) -> Result<(), CheckpointError> {
        match self {
            Self::Bytes(_) | Self::Files { .. } => Ok(()),
            Self::Host { remote, files, .. } => remote.fetch(files, parts, counter, progress, stop),
        }
    }

    /// The bytes of one part.
    pub(super) fn read(&self, part: &Part, counter: &Counter, stop: Stop<'_>) -> Result<Vec<u8>, CheckpointError> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes.get(part.start as usize..part.end as usize).ok_or_else(short)?.to_vec(),
            Self::Files { files, .. } => {
                let file = files.get(part.file).and_then(Option::as_ref).ok_or_else(short)?;
                let mut bytes = vec![0; part.len() as usize];
                file.file().read_exact_at(&mut bytes, part.start).map_err(|error| named(&error, file.path()))?;
                bytes
            }
            Self::Host { remote, files, .. } => return remote.read(files, part, counter, stop),
        };
        counter.asked();
        counter.moved(part.len());
        Ok(bytes)
    }

    /// The text of the configuration beside the shards; `None` where there is none.
    pub(super) fn config(&self, counter: &Counter, stop: Stop<'_>) -> Result<Option<String>, CheckpointError> {
        match self {
            Self::Bytes(_) => Ok(None),
            Self::Files { folder, .. } => match fs::read_to_string(folder.join(CONFIG)) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
            Self::Host { remote, files, config } => {
                let Some(at) = *config else { return Ok(None) };
                let part = Part::new(at, &(0..files[at].size.min(CONFIG_LIMIT)));
                let bytes = remote.read(files, &part, counter, stop)?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    }
}

fn short() -> std::io::Error {
    std::io::ErrorKind::UnexpectedEof.into()
}

fn named(error: &std::io::Error, path: &Path) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("failed to read from `{}`: {error}", path.display()))
}

/// The checkpoint in this folder, or in this file.
pub(super) fn open_local(path: &Path) -> Result<Checkpoint, CheckpointError> {
    if !path.is_dir() {
        return open_file(path);
    }
    let index_path = path.join(INDEX);
    let text = match fs::File::open(&index_path) {
        Ok(file) => read_index(&index_path, &file)?,
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) if path.join(SINGLE).exists() => return open_file(&path.join(SINGLE)),
        Err(_) => return Err(CheckpointError::Empty { place: path.display().to_string() }),
    };
    let index = parse_index(&index_path.display().to_string(), &text)?;
    let counter = Counter::default();
    counter.asked();
    counter.moved(text.len() as u64);
    let mut files = Vec::with_capacity(index.shards().len());
    let mut shards = Vec::with_capacity(index.shards().len());
    for name in index.shards() {
        let shard = path.join(name);
        let file = match fs::File::open(&shard) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let length = file.as_ref().map(|file| file.metadata().map(|m| m.len())).transpose()?;
        shards.push(Shard { label: shard.display().to_string(), length, header: OnceLock::new() });
        files.push(file);
    }
    let source = Source::Files { files, folder: path.to_owned() };
    Ok(Checkpoint { place: path.display().to_string(), source, index: Some(index), shards, counter })
}

fn open_file(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let folder = path.parent().unwrap_or(path).to_owned();
    let source = Source::Files { files: vec![Some(file)], folder };
    Checkpoint::single(path.display().to_string(), source, length, &|| false)
}

fn read_index(path: &Path, file: &fs::File) -> Result<Vec<u8>, CheckpointError> {
    let length = file.metadata()?.len();
    check_index_length(&path.display().to_string(), length)?;
    let mut bytes = vec![0; length as usize];
    file.file().read_exact_at(&mut bytes, 0).map_err(|error| named(&error, path))?;
    Ok(bytes)
}

fn check_index_length(place: &str, length: u64) -> Result<(), CheckpointError> {
    if length <= INDEX_LIMIT {
        return Ok(());
    }
    let what = Damage::Json(format!("{length} bytes are more than an index has"));
    Err(CheckpointError::Damaged { place: place.to_owned(), what: Box::new(what) })
}

fn parse_index(place: &str, bytes: &[u8]) -> Result<Index, CheckpointError> {
    let parsed = std::str::from_utf8(bytes).map_err(|error| Damage::Json(error.to_string())).and_then(Index::parse);
    parsed.map_err(|what| CheckpointError::Damaged { place: place.to_owned(), what: Box::new(what) })
}

/// The checkpoint at an absolute path of a host.
pub(super) fn open_host(
    remote: Remote,
    path: &str,
    progress: Progress<'_>,
    stop: Stop<'_>,
) -> Result<Checkpoint, CheckpointError> {
    let counter = Counter::default();
    let host = remote.name().to_owned();
    let called = |path: &str| format!("{host}:{path}");
    let file = |path: String, Seen { size, stamp }: Seen| RemoteFile { host: host.clone(), path, size, stamp };
    let folder = path.trim_end_matches('/');
    let within = |name: &str| format!("{folder}/{name}");
    let found = match remote.survey(path, &counter, stop)? {
        Survey::Folder(found) => found,
        Survey::File(seen) => {
            let files = vec![file(path.to_owned(), seen)];
            return single_on_host(remote, called(path), files, None, counter, stop);
        }
    };
    let config = found.get(CONFIG).map(|seen| file(within(CONFIG), *seen));
    let Some(seen) = found.get(INDEX) else {
        let Some(seen) = found.get(SINGLE) else { return Err(CheckpointError::Empty { place: called(folder) }) };
        let files = vec![file(within(SINGLE), *seen)];
        return single_on_host(remote, called(&within(SINGLE)), files, config, counter, stop);
    };
    let index_file = file(within(INDEX), *seen);
    let index_place = called(&index_file.path);
    check_index_length(&index_place, index_file.size)?;
    let part = Part::new(0, &(0..index_file.size));
    let index_file = [index_file];
    remote.fetch(&index_file, std::slice::from_ref(&part), &counter, progress, stop)?;
    let index = parse_index(&index_place, &remote.read(&index_file, &part, &counter, stop)?)?;
    let (files, shards) = shards_on_host(&index, &found, &host, folder);
    let (files, config) = with_config(files, config);
    let source = Source::Host { remote, files, config };
    Ok(Checkpoint { place: called(folder), source, index: Some(index), shards, counter })
}

fn shards_on_host(
    index: &Index,
    found: &BTreeMap<String, Seen>,
    host: &str,
    folder: &str,
) -> (Vec<RemoteFile>, Vec<Shard>) {
    let one = |name: &String| {
        let (path, seen) = (format!("{folder}/{name}"), found.get(name).copied());
        let shard =
            Shard { label: format!("{host}:{path}"), length: seen.map(|seen| seen.size), header: OnceLock::new() };
        let Seen { size, stamp } = seen.unwrap_or_default();
        (RemoteFile { host: host.to_owned(), path, size, stamp }, shard)
    };
    index.shards().iter().map(one).unzip()
}

fn with_config(mut files: Vec<RemoteFile>, config: Option<RemoteFile>) -> (Vec<RemoteFile>, Option<usize>) {
    let at = config.is_some().then_some(files.len());
    files.extend(config);
    (files, at)
}

fn single_on_host(
    remote: Remote,
    place: String,
    files: Vec<RemoteFile>,
    config: Option<RemoteFile>,
    counter: Counter,
    stop: Stop<'_>,
) -> Result<Checkpoint, CheckpointError> {
    let length = files[0].size;
    let (files, config) = with_config(files, config);
    let shard = Shard { label: place.clone(), length: Some(length), header: OnceLock::new() };
    let source = Source::Host { remote, files, config };
    let checkpoint = Checkpoint { place, source, index: None, shards: vec![shard], counter };
    checkpoint.headers(&[0], &|_, _, _| {}, stop)?;
    Ok(checkpoint)
}
