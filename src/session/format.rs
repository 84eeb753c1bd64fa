//! How events stand on disk. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Content address of a blob: the hex blake3 hash of its uncompressed bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BlobHash(pub String);

impl BlobHash {
    /// The address of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }
}
