//! Tensors by name out of safetensors files: one file or many with an index, here, in the program or on another host.
//!
//! Responsible for finding a tensor, for moving its bytes and no others, and for giving it as f64. `index` and `header`
//! read and check what a checkpoint says of itself, `decode` converts, `remote` and `cache` fetch from a host, `layout`
//! knows the names of DeepSeek-V4. Not responsible for what the tensors mean.
//!
//! Files are read by position and only where a tensor lies: a truncated file then gives an error, where a memory map would
//! give a bus error. The headers of shards are read when a tensor of theirs is first wanted.

mod cache;
mod decode;
mod error;
mod header;
mod index;
pub mod layout;
mod place;
mod ranges;
mod remote;
#[cfg(test)]
mod remote_tests;
mod source;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use safetensors::Dtype;

use crate::kernel::config::ModelConfig;
pub use error::{CheckpointError, Damage};
use header::Header;
pub use header::Place;
use index::Index;
pub use place::{open_place, open_place_over};
use ranges::Part;
use source::Source;
use transfer::Counter;
pub use transfer::{Transfer, remaining, size};

/// Is told bytes done, bytes in all and what is being done, from the thread that reads.
pub type Progress<'a> = &'a (dyn Fn(u64, u64, &str) + Sync);
/// Whether to stop.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// The lab's checkpoint, built into the program.
static LAB: &[u8] = crate::lab::model::EMBEDDED;

/// An open checkpoint: its names in memory, its data where it was.
#[derive(Debug)]
pub struct Checkpoint {
    place: String,
    source: Source,
    /// `None` where one file holds everything.
    index: Option<Index>,
    shards: Vec<Shard>,
    counter: Counter,
}

/// One file with tensors.
#[derive(Debug)]
struct Shard {
    /// What it is called in messages.
    label: String,
    /// Its bytes; `None` where there is no such file.
    length: Option<u64>,
    header: OnceLock<Header>,
}

/// A tensor of any stored type, as f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// Values in C order.
    pub values: Vec<f64>,
}

/// A tensor as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// Its bytes: values in C order, little-endian.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// The values of its bytes, exact for every stored float; `None` for a type that is not converted.
    pub fn values(&self) -> Option<Vec<f64>> {
        decode::decode(self.dtype, &self.bytes)
    }
}

/// What a checkpoint holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Tensors.
    pub tensors: usize,
    /// Files.
    pub shards: usize,
    /// Bytes of all tensors; `None` where no index says so.
    pub bytes: Option<u64>,
    /// Tensors of the hyper-connections among them, by name.
    pub hc_tensors: usize,
    /// Tensors by stored type, in those files whose header was read.
    pub dtypes: BTreeMap<String, usize>,
    /// How many files those are.
    pub headers: usize,
}

impl Checkpoint {
    /// The lab's checkpoint, which is part of the program.
    ///
    /// # Errors
    /// The program was built with a damaged file.
    pub fn lab() -> Result<Self, CheckpointError> {
        Self::from_bytes("the lab's checkpoint", LAB)
    }

    /// A checkpoint of one file in memory; `place` names it in errors.
    ///
    /// # Errors
    /// The bytes are not a whole safetensors file.
    pub fn from_bytes(place: &str, bytes: &'static [u8]) -> Result<Self, CheckpointError> {
        Self::single(place.to_owned(), Source::Bytes(bytes), bytes.len() as u64, &|| false)
    }

    /// The checkpoint in this folder (its `model.safetensors.index.json`, else its `model.safetensors`), or in this file.
    ///
    /// # Errors
    /// There is no such file, or it is not whole.
    pub fn open(path: &std::path::Path) -> Result<Self, CheckpointError> {
        source::open_local(path)
    }

    fn single(place: String, source: Source, length: u64, stop: Stop<'_>) -> Result<Self, CheckpointError> {
        let shard = Shard { label: place.clone(), length: Some(length), header: OnceLock::new() };
        let checkpoint = Self { place, source, index: None, shards: vec![shard], counter: Counter::default() };
        checkpoint.headers(&[0], &|_, _, _| {}, stop)?;
        Ok(checkpoint)
    }

    /// What this checkpoint is called in messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Names of all tensors: in the order of the index, else in the order of their data.
    pub fn names(&self) -> Vec<String> {
        match &self.index {
            Some(index) => index.names().map(str::to_owned).collect(),
            None => self.shards[0].header.get().map(|header| header.names().to_vec()).unwrap_or_default(),
        }
    }

    /// What was moved so far.
    pub fn transfer(&self) -> Transfer {
        self.counter.now()
    }

    /// What it holds, as far as it is known without reading more.
    pub fn totals(&self) -> Totals {
        let headers: Vec<&Header> = self.shards.iter().filter_map(|shard| shard.header.get()).collect();
        let mut dtypes = BTreeMap::new();
        for place in headers.iter().flat_map(|header| header.places()) {
            *dtypes.entry(place.dtype.to_string()).or_insert(0) += 1;
        }
        let is_hc = |name: &str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            ["hc_attn_", "hc_ffn_", "hc_head_"].iter().any(|start| last.starts_with(start))
        };
        let data = |header: &&Header| header.places().map(|p| p.bytes.end - p.bytes.start).sum::<u64>();
        let (tensors, bytes, hc_tensors) = if let Some(index) = &self.index {
            (index.len(), index.total_size(), index.names().filter(|name| is_hc(name)).count())
        } else {
            let names = self.names();
            (names.len(), headers.first().map(data), names.iter().filter(|name| is_hc(name)).count())
        };
        Totals { tensors, shards: self.shards.len(), bytes, hc_tensors, dtypes, headers: headers.len() }
    }

    /// What the checkpoint holds and what of it was moved, in one line.
    pub fn summary(&self) -> String {
        let (totals, moved) = (self.totals(), self.transfer());
        let all = totals.bytes.map_or_else(|| "size unknown".to_owned(), size);
        let files = if totals.shards == 1 { "1 file".to_owned() } else { format!("{} files", totals.shards) };
        let cached = if moved.cached == 0 { String::new() } else { format!(", {} from the cache", size(moved.cached)) };
        format!(
            "{}: {} tensors in {files}, {all}, {} of hyper-connections; {} moved in {} reads{cached}",
            self.place,
            totals.tensors,
            totals.hc_tensors,
            size(moved.bytes),
            moved.requests
        )
    }

    /// The model's configuration beside the checkpoint; `None` where there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is none of a DeepSeek-V4 model.
    pub fn config(&self, stop: Stop<'_>) -> Result<Option<ModelConfig>, crate::engine::procedure::Failure> {
        let text = self.source.config(&self.counter, stop)?;
        Ok(text.map(|text| ModelConfig::parse(&text)).transpose()?)
    }

    /// Type, shape and bytes of a tensor, without reading it.
    ///
    /// # Errors
    /// There is no such tensor, or the header of its shard is not whole.
    pub fn find(&self, name: &str) -> Result<&Place, CheckpointError> {
        self.locate(name, &|| false).map(|(_, place)| place)
    }

    /// The tensor of that name and shape, converted to f64 (exact for every stored float).
    ///
    /// # Errors
    /// It is missing, has another shape or an unconverted type, or cannot be read.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, CheckpointError> {
        let (_, place) = self.locate(name, &|| false)?;
        if place.shape != shape {
            return Err(CheckpointError::Misshapen {
                place: self.place.clone(),
                name: name.into(),
                expected: shape.to_vec(),
                found: place.shape.clone(),
            });
        }
        self.any_tensor(name)
    }

    /// The tensor of that name, whatever its shape, converted to f64.
    ///
    /// # Errors
    /// It is missing, has an unconverted type, or cannot be read.
    pub fn any_tensor(&self, name: &str) -> Result<Tensor, CheckpointError> {
        let stored = self.stored(name)?;
        let Some(values) = stored.values() else {
            let (place, dtype) = (self.place.clone(), stored.dtype.to_string());
            return Err(CheckpointError::Dtype { place, name: name.into(), dtype });
        };
        Ok(Tensor { shape: stored.shape, values })
    }

    /// The tensor of that name as it is stored, of any type.
    ///
    /// # Errors
    /// It is missing or cannot be read.
    pub fn stored(&self, name: &str) -> Result<Stored, CheckpointError> {
        let (shard, place) = self.locate(name, &|| false)?;
        let bytes = self.read(&Part::new(shard, &place.bytes), &|| false)?;
        Ok(Stored { dtype: place.dtype, shape: place.shape.clone(), bytes })
    }

    /// The first values of the tensor of that name as they are stored, at most so many; its shape is that of the whole.
    ///
    /// # Errors
    /// It is missing or cannot be read.
    pub fn start(&self, name: &str, values: usize) -> Result<Stored, CheckpointError> {
        let (shard, place) = self.locate(name, &|| false)?;
        let bytes = (values as u64).saturating_mul(place.dtype.bitsize() as u64) / 8;
        let end = place.bytes.start.saturating_add(bytes).min(place.bytes.end);
        let bytes = self.read(&Part::new(shard, &(place.bytes.start..end)), &|| false)?;
        Ok(Stored { dtype: place.dtype, shape: place.shape.clone(), bytes })
    }

    /// Makes ready to read these tensors: the headers of their shards are read, and what is on a host is moved here, in
    /// few questions, each byte once and only where the cache does not have it.
    ///
    /// # Errors
    /// A tensor is missing, its shard is not whole, the host cannot be asked, or somebody cancelled; what was moved
    /// before stays in the cache.
    pub fn fetch<N: AsRef<str>>(
        &self,
        names: &[N],
        progress: Progress<'_>,
        stop: Stop<'_>,
    ) -> Result<(), CheckpointError> {
        let mut shards = BTreeSet::new();
        for name in names {
            shards.insert(self.shard_of(name.as_ref())?);
        }
        self.headers(&shards.into_iter().collect::<Vec<_>>(), progress, stop)?;
        let mut parts = Vec::with_capacity(names.len());
        for name in names {
            let (shard, place) = self.locate(name.as_ref(), stop)?;
            parts.push(Part::new(shard, &place.bytes));
        }
        self.source.fetch(&parts, &self.counter, progress, stop)
    }

    /// The shard that holds a tensor by the index; the shard is there.
    fn shard_of(&self, name: &str) -> Result<usize, CheckpointError> {
        let Some(index) = &self.index else { return Ok(0) };
        let Some(at) = index.shard_of(name) else { return Err(self.missing(name)) };
        if self.shards[at].length.is_none() {
            let shard = index.shards()[at].clone();
            return Err(CheckpointError::MissingShard { place: self.place.clone(), shard, tensor: name.into() });
        }
        Ok(at)
    }

    fn locate(&self, name: &str, stop: Stop<'_>) -> Result<(usize, &Place), CheckpointError> {
        let at = self.shard_of(name)?;
        self.headers(&[at], &|_, _, _| {}, stop)?;
        let shard = &self.shards[at];
        match shard.header.get().and_then(|header| header.place(name)) {
            Some(place) => Ok((at, place)),
            None if self.index.is_none() => Err(self.missing(name)),
            None => Err(CheckpointError::NotInShard { shard: shard.label.clone(), tensor: name.into() }),
        }
    }

    fn missing(&self, name: &str) -> CheckpointError {
        let nearest = nearest(name, &self.names());
        CheckpointError::Missing { place: self.place.clone(), name: name.into(), nearest }
    }

    /// Reads the headers of these shards that are not read yet: all lengths first, then all texts.
    fn headers(&self, shards: &[usize], progress: Progress<'_>, stop: Stop<'_>) -> Result<(), CheckpointError> {
        let unread: Vec<(usize, u64)> = shards
            .iter()
            .filter(|at| self.shards[**at].header.get().is_none())
            .filter_map(|at| Some((*at, self.shards[*at].length?)))
            .collect();
        let damaged =
            |at: usize, what| CheckpointError::Damaged { place: self.shards[at].label.clone(), what: Box::new(what) };
        let firsts: Vec<Part> =
            unread.iter().map(|(at, file)| Part::new(*at, &(0..header::PREFIX.min(*file)))).collect();
        self.source.fetch(&firsts, &self.counter, &|_, _, _| {}, stop)?;
        let mut texts = Vec::with_capacity(unread.len());
        for (first, (at, file)) in firsts.iter().zip(&unread) {
            let length = header::length(&self.read(first, stop)?, *file).map_err(|what| damaged(*at, what))?;
            texts.push(Part::new(*at, &(header::PREFIX..header::PREFIX + length)));
        }
        self.source.fetch(&texts, &self.counter, progress, stop)?;
        for (text, (at, file)) in texts.iter().zip(&unread) {
            let header = Header::parse(&self.read(text, stop)?, *file).map_err(|what| damaged(*at, what))?;
            // Another thread may have read the same header; both are equal.
            let _ = self.shards[*at].header.set(header);
        }
        Ok(())
    }

    fn read(&self, part: &Part, stop: Stop<'_>) -> Result<Vec<u8>, CheckpointError> {
        self.source.read(part, &self.counter, stop)
    }
}

/// The name with the longest common beginning and end; `None` if nothing is shared.
fn nearest(name: &str, names: &[String]) -> Option<String> {
    let shared = |other: &str| {
        let head = name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let tail = name.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
        head + tail
    };
    names.iter().max_by_key(|other| shared(other)).filter(|other| shared(other) > 0).cloned()
}
