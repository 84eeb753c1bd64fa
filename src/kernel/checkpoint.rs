//! Tensors by name out of a safetensors file.
//!
//! Responsible for reading the header of one file, or of bytes built into the program, and for
//! fetching single tensors as f64. Not responsible for sharded checkpoints, nor for what the
//! tensors mean.
//!
//! A file is read by position and only where a tensor lies: a truncated file then gives an error,
//! where a memory map would give a bus error.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use thiserror::Error;

use crate::engine::procedure::Failure;

/// The lab's checkpoint, built into the program.
static LAB: &[u8] = crate::lab::model::EMBEDDED;

/// The longest header that is read; the safetensors library has the same bound.
const HEADER_LIMIT: u64 = 100_000_000;

/// An open checkpoint: its header in memory, its data where it was.
#[derive(Debug)]
pub struct Checkpoint {
    place: String,
    source: Source,
    metadata: Metadata,
    data_start: u64,
}

#[derive(Debug)]
enum Source {
    Bytes(&'static [u8]),
    File(fs::File),
}

/// A tensor of any stored type, as f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// Values in C order.
    pub values: Vec<f64>,
}

/// Why a checkpoint or a tensor could not be read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The bytes are not a whole safetensors file.
    #[error("`{place}` is not a whole safetensors file: {why}")]
    Damaged {
        /// The file.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no tensor of that name.
    #[error("`{place}` has no tensor `{name}`")]
    Missing {
        /// The file.
        place: String,
        /// The tensor.
        name: String,
        /// The stored name that looks most like it.
        nearest: Option<String>,
    },
    /// The tensor has another shape.
    #[error("tensor `{name}` of `{place}` has shape {found:?} where {expected:?} is needed")]
    Misshapen {
        /// The file.
        place: String,
        /// The tensor.
        name: String,
        /// The shape that is needed.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The tensor is stored in a type that this reader does not convert.
    #[error("tensor `{name}` of `{place}` is stored as {dtype}, which is not converted")]
    Dtype {
        /// The file.
        place: String,
        /// The tensor.
        name: String,
        /// The stored type.
        dtype: String,
    },
}

impl CheckpointError {
    /// What the user can do.
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) => "give a folder with `model.safetensors`, or the file itself".into(),
            Self::Damaged { .. } => "copy the file again and compare its size with the original's".into(),
            Self::Missing { nearest: Some(nearest), .. } => {
                format!("the nearest name is `{nearest}`; this test needs a checkpoint with the lab model's names")
            }
            Self::Missing { nearest: None, .. } | Self::Misshapen { .. } => {
                "this test needs a checkpoint with the lab model's names and shapes".into()
            }
            Self::Dtype { .. } => "BF16, F16, F32, F64 and I64 are converted".into(),
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        let hint = error.hint();
        Self::new(error.to_string()).hint(hint)
    }
}

impl Checkpoint {
    /// The lab's checkpoint, which is part of the program.
    ///
    /// # Errors
    /// The program was built with a damaged file.
    pub fn lab() -> Result<Self, CheckpointError> {
        Self::from_bytes("the lab's checkpoint", LAB)
    }

    /// A checkpoint in memory; `place` names it in errors.
    ///
    /// # Errors
    /// The bytes are not a whole safetensors file.
    pub fn from_bytes(place: &str, bytes: &'static [u8]) -> Result<Self, CheckpointError> {
        Self::new(place.to_owned(), Source::Bytes(bytes), bytes.len() as u64)
    }

    /// The checkpoint in this folder (its `model.safetensors`), or in this file.
    ///
    /// # Errors
    /// There is no such file, or it is not a whole safetensors file.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let path: PathBuf = if path.is_dir() { path.join("model.safetensors") } else { path.to_owned() };
        let file = fs::File::open(&path)?;
        let length = file.metadata()?.len();
        Self::new(path.display().to_string(), Source::File(file), length)
    }

    fn new(place: String, source: Source, length: u64) -> Result<Self, CheckpointError> {
        let damaged = |why: String| CheckpointError::Damaged { place: place.clone(), why };
        if length < 8 {
            return Err(damaged(format!("{length} bytes cannot hold a header")));
        }
        let mut word = [0; 8];
        source.read_at(0, &mut word)?;
        let header_length = u64::from_le_bytes(word);
        if header_length > HEADER_LIMIT || header_length > length - 8 {
            return Err(damaged(format!("it announces a header of {header_length} bytes in a file of {length}")));
        }
        let mut header = vec![0; header_length as usize];
        source.read_at(8, &mut header)?;
        // Parsing checks offsets and sizes: contiguous, without overlap, as long as the shape says.
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|e| damaged(format!("its header: {e}")))?;
        let (data_start, data_length) = (8 + header_length, metadata.data_len() as u64);
        if data_length != length - data_start {
            return Err(damaged(format!(
                "its header describes {data_length} bytes of data and {} are there",
                length - data_start
            )));
        }
        Ok(Self { place, source, metadata, data_start })
    }

    /// What this checkpoint is called in messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Names of all tensors, in the order of their data.
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// The tensor of that name and shape, converted to f64 (exact for every stored float).
    ///
    /// # Errors
    /// It is missing, has another shape or an unconverted type, or cannot be read.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, CheckpointError> {
        let Some(info) = self.metadata.info(name) else {
            return Err(CheckpointError::Missing {
                place: self.place.clone(),
                name: name.into(),
                nearest: nearest(name, &self.names()),
            });
        };
        if info.shape != shape {
            return Err(CheckpointError::Misshapen {
                place: self.place.clone(),
                name: name.into(),
                expected: shape.to_vec(),
                found: info.shape.clone(),
            });
        }
        let bytes = self.bytes(info)?;
        let Some(values) = decode(info.dtype, &bytes) else {
            return Err(CheckpointError::Dtype {
                place: self.place.clone(),
                name: name.into(),
                dtype: info.dtype.to_string(),
            });
        };
        Ok(Tensor { shape: shape.to_vec(), values })
    }

    fn bytes(&self, info: &TensorInfo) -> Result<Vec<u8>, CheckpointError> {
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        self.source.read_at(self.data_start + start as u64, &mut bytes)?;
        Ok(bytes)
    }
}

impl Source {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::Bytes(bytes) => {
                let start = offset as usize;
                let part = bytes.get(start..start + into.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
                into.copy_from_slice(part);
                Ok(())
            }
            Self::File(file) => file.file().read_exact_at(into, offset),
        }
    }
}

/// Little-endian values as f64; `None` for a type that is not converted.
fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| value(*chunk)).collect()
    }
    match dtype {
        Dtype::BF16 => Some(each(bytes, |b| bf16::from_le_bytes(b).to_f64())),
        Dtype::F16 => Some(each(bytes, |b| f16::from_le_bytes(b).to_f64())),
        Dtype::F32 => Some(each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
        Dtype::F64 => Some(each(bytes, f64::from_le_bytes)),
        Dtype::I64 => Some(each(bytes, |b| i64::from_le_bytes(b) as f64)),
        _ => None,
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

#[cfg(test)]
mod tests {
    use safetensors::tensor::{TensorView, serialize};

    use super::*;

    fn sample() -> Vec<u8> {
        let floats: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let halves: Vec<u8> = [0.1_f32].iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
        let flags = vec![1_u8];
        let views = [
            ("block.fn", TensorView::new(Dtype::F32, vec![2, 1], &floats).unwrap()),
            ("block.base", TensorView::new(Dtype::BF16, vec![1], &halves).unwrap()),
            ("block.flag", TensorView::new(Dtype::U8, vec![1], &flags).unwrap()),
        ];
        serialize(views, None).unwrap()
    }

    fn on_disk(bytes: &[u8]) -> (tempfile::TempDir, Result<Checkpoint, CheckpointError>) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let opened = Checkpoint::open(dir.path());
        (dir, opened)
    }

    #[test]
    fn reads_f32_and_bf16_as_f64() {
        let (_dir, checkpoint) = on_disk(&sample());
        let checkpoint = checkpoint.unwrap();
        assert_eq!(checkpoint.tensor("block.fn", &[2, 1]).unwrap().values, [1.5, -2.0]);
        assert_eq!(checkpoint.tensor("block.base", &[1]).unwrap().values, [0.100_097_656_25]);
    }

    #[test]
    fn file_and_bytes_read_the_same() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
        let (file, bytes) = (Checkpoint::open(&path).unwrap(), Checkpoint::lab().unwrap());
        assert_eq!(file.names(), bytes.names());
        let read = |c: &Checkpoint| c.tensor("blocks.3.ha.fn", &[24, 512]).unwrap();
        assert_eq!(read(&file), read(&bytes));
    }

    #[test]
    fn a_missing_tensor_names_its_neighbour() {
        let (_dir, checkpoint) = on_disk(&sample());
        let error = checkpoint.unwrap().tensor("block.scale", &[1]).unwrap_err();
        assert!(matches!(&error, CheckpointError::Missing { name, .. } if name == "block.scale"));
        assert!(error.hint().contains("`block."), "{}", error.hint());
    }

    #[test]
    fn a_misshapen_tensor_gives_both_shapes() {
        let (_dir, checkpoint) = on_disk(&sample());
        let failure = Failure::from(checkpoint.unwrap().tensor("block.fn", &[24, 512]).unwrap_err());
        assert!(failure.message.contains("[2, 1]") && failure.message.contains("[24, 512]"), "{}", failure.message);
        assert!(failure.hint.is_some());
    }

    #[test]
    fn an_unconverted_type_is_an_error() {
        let (_dir, checkpoint) = on_disk(&sample());
        let error = checkpoint.unwrap().tensor("block.flag", &[1]).unwrap_err();
        assert!(matches!(error, CheckpointError::Dtype { dtype, .. } if dtype == "U8"));
    }

    #[test]
    fn damaged_files_are_named_as_such() {
        let check = |bytes: &[u8], part: &str| {
            let error = on_disk(bytes).1.unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        };
        let whole = sample();
        check(b"", "0 bytes");
        check(&[255; 16], "announces a header");
        check(&whole[..whole.len() - 1], "describes");
        check(&[whole.as_slice(), b"x"].concat(), "describes");
        let mut broken = whole.clone();
        broken[8] = b'?';
        check(&broken, "its header");
    }

    #[test]
    fn a_missing_file_is_an_io_error_with_its_path() {
        let error = Checkpoint::open(Path::new("/nonexistent/model.safetensors")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/model.safetensors"), "{error}");
    }
}
