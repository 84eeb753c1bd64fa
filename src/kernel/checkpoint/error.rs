//! What can be wrong with a checkpoint, one sentence and one hint each.

use thiserror::Error;

use crate::engine::procedure::Failure;

/// Why a checkpoint or a tensor could not be read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A folder that holds no checkpoint.
    #[error("`{place}` has neither `model.safetensors.index.json` nor `model.safetensors`")]
    Empty {
        /// The folder.
        place: String,
    },
    /// The bytes of a file are not what such a file has.
    #[error("`{place}` is damaged: {what}")]
    Damaged {
        /// The file.
        place: String,
        /// What is wrong with it.
        what: Box<Damage>,
    },
    /// The index names a shard that is not there.
    #[error("`{place}` has no shard `{shard}`, where the index says that tensor `{tensor}` is")]
    MissingShard {
        /// The folder.
        place: String,
        /// The shard's file name.
        shard: String,
        /// A tensor that was wanted of it.
        tensor: String,
    },
    /// The index promises a tensor that the shard does not have.
    #[error("shard `{shard}` has no tensor `{tensor}`, though the index says so")]
    NotInShard {
        /// The shard.
        shard: String,
        /// The tensor.
        tensor: String,
    },
    /// There is no tensor of that name.
    #[error("`{place}` has no tensor `{name}`")]
    Missing {
        /// The checkpoint.
        place: String,
        /// The tensor.
        name: String,
        /// The stored name that looks most like it.
        nearest: Option<String>,
    },
    /// The tensor has another shape.
    #[error("tensor `{name}` of `{place}` has shape {found:?} where {expected:?} is needed")]
    Misshapen {
        /// The checkpoint.
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
        /// The checkpoint.
        place: String,
        /// The tensor.
        name: String,
        /// The stored type.
        dtype: String,
    },
    /// Another file stands there now.
    #[error("`{file}` changed while it was read")]
    Changed {
        /// The file.
        file: String,
    },
    /// A host could not be asked, or answered otherwise than it should.
    #[error("{}", .0.message)]
    Host(Failure),
    /// What was fetched cannot be kept.
    #[error("what was fetched cannot be kept in `{folder}`: {why}")]
    Cache {
        /// The folder of the cache.
        folder: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// Somebody cancelled.
    #[error("cancelled while the checkpoint was read")]
    Cancelled,
}

/// What is wrong with the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// Too short for the length of a header.
    #[error("{length} bytes cannot hold a header")]
    Short {
        /// Bytes of the file.
        length: u64,
    },
    /// The header's length cannot be.
    #[error("it announces a header of {announced} bytes in a file of {length}")]
    HeaderLength {
        /// What its first eight bytes say.
        announced: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// Not JSON, or JSON of another form.
    #[error("it is no JSON that fits: {0}")]
    Json(String),
    /// An index without its map.
    #[error("it has no `weight_map`")]
    NoMap,
    /// A shard that is called by no plain file name.
    #[error("it names a shard {shard:?}, which is no file name")]
    ShardName {
        /// What stands there.
        shard: String,
    },
    /// One name for two tensors.
    #[error("tensor `{tensor}` stands there twice")]
    Twice {
        /// The name.
        tensor: String,
    },
    /// A type that the format does not have.
    #[error("tensor `{tensor}` has the type `{dtype}`, which the format does not know")]
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// What stands there.
        dtype: String,
    },
    /// Type and shape need another number of bytes.
    #[error("tensor `{tensor}` is {dtype} {shape:?}, which takes {needed} bytes, and has {found}")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: String,
        /// Its shape.
        shape: Vec<usize>,
        /// What they take; a number that no file can have is said in words.
        needed: String,
        /// What its offsets say.
        found: u64,
    },
    /// It ends before it begins.
    #[error("tensor `{tensor}` begins at byte {start} of the data and ends at {end}")]
    Backwards {
        /// The tensor.
        tensor: String,
        /// Its start.
        start: u64,
        /// Its end.
        end: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
    },
    /// Bytes that belong to no tensor.
    #[error("{bytes} bytes before tensor `{tensor}` belong to none")]
    Hole {
        /// The tensor after the hole.
        tensor: String,
        /// Its size.
        bytes: u64,
    },
    /// A tensor lies behind the end of the file.
    #[error("tensor `{tensor}` ends at byte {end} of the data, and {there} are there")]
    Beyond {
        /// The tensor.
        tensor: String,
        /// Where it ends.
        end: u64,
        /// Bytes of data in the file.
        there: u64,
    },
    /// The file goes on after the last tensor.
    #[error("its header describes {described} bytes of data and {there} are there")]
    Trailing {
        /// By the header.
        described: u64,
        /// In the file.
        there: u64,
    },
}

impl CheckpointError {
    /// What the user can do.
    pub fn hint(&self) -> String {
        match self {
            Self::Io(_) => "give a folder with `model.safetensors` or its index, or a file itself".into(),
            Self::Empty { .. } => "give the folder in which the shards stand, or one `.safetensors` file".into(),
            Self::Damaged { what, .. } => what.hint().into(),
            Self::MissingShard { .. } => "copy the shard that is missing; the download may not have ended".into(),
            Self::NotInShard { .. } => {
                "index and shards are of different versions: copy both again from the same place".into()
            }
            Self::Missing { nearest: Some(nearest), .. } => {
                format!("the nearest name is `{nearest}`; this test needs a checkpoint with the lab model's names")
            }
            Self::Missing { nearest: None, .. } | Self::Misshapen { .. } => {
                "this test needs a checkpoint with the lab model's names and shapes".into()
            }
            Self::Dtype { .. } => {
                "BF16, F16, F32, F64, I64, I32, U8, I8, F8_E4M3, F8_E5M2 and F8_E8M0 are converted".into()
            }
            Self::Changed { .. } => "wait until the copy to that place has ended, then read it again".into(),
            Self::Host(failure) => failure.hint.clone().unwrap_or_default(),
            Self::Cache { .. } => "make room there, or set `XDG_CACHE_HOME` to another folder".into(),
            Self::Cancelled => "what was read so far is kept; the next attempt goes on there".into(),
        }
    }
}

impl Damage {
    fn hint(&self) -> &'static str {
        match self {
            Self::Short { .. } | Self::Beyond { .. } | Self::Trailing { .. } => {
                "copy the file again and compare its size with the original's"
            }
            Self::HeaderLength { .. } => "it may be no safetensors file at all: look at its first bytes",
            Self::Json(_) | Self::NoMap => "copy the file again and compare its checksum with the original's",
            Self::ShardName { .. } => "do not use this index: a shard stands in the same folder",
            Self::Twice { .. }
            | Self::UnknownDtype { .. }
            | Self::Size { .. }
            | Self::Backwards { .. }
            | Self::Overlap { .. }
            | Self::Hole { .. } => {
                "its writer made an error, or it is of a newer format: write it again with a current safetensors"
            }
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Host(failure) => failure,
            CheckpointError::Cancelled => Self::new(error.to_string()),
            other => {
                let hint = other.hint();
                Self::new(other.to_string()).hint(hint)
            }
        }
    }
}
