//! How events stand on disk: one JSON line each, chained by hash. Pure.
//!
//! The chain runs over the payload's hash and not over the payload, so that a bundle whose payloads
//! were withheld still verifies. Not responsible for files; see `session::journal`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::engine::event::{Event, Happened};
use crate::engine::input::Actor;

/// Version of the payloads that this program writes; older ones are upcast on read.
pub const PAYLOAD_VERSION: u32 = 1;

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

/// Hash of a line and of everything before it, in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChainHash(pub String);

impl ChainHash {
    /// What stands before the first line.
    pub fn start() -> Self {
        Self("0".repeat(64))
    }
}

#[derive(Serialize)]
struct LineOut<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    payload: &'a RawValue,
    hash: &'a str,
}

#[derive(Serialize)]
struct Head<'a> {
    seq: u64,
    at: Timestamp,
    actor: &'a Actor,
    kind: &'a str,
    v: u32,
}

#[derive(Deserialize)]
struct LineIn<'a> {
    seq: u64,
    at: Timestamp,
    actor: Actor,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    v: u32,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    withheld: Option<String>,
    hash: ChainHash,
}

#[derive(Serialize, Deserialize)]
struct Tagged<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// The journal line of an event, with its line end, and the hash that the next line is chained to.
///
/// # Errors
/// The event cannot be written as JSON, which only a map with odd keys could cause.
pub fn encode(event: &Event, previous: &ChainHash) -> Result<(String, ChainHash), serde_json::Error> {
    let tagged = serde_json::to_string(&event.what)?;
    let tagged: Tagged<'_> = serde_json::from_str(&tagged)?;
    let head = Head { seq: event.seq, at: event.at, actor: &event.actor, kind: &tagged.kind, v: PAYLOAD_VERSION };
    let hash = chain(
        previous,
        &serde_json::to_string(&head)?,
        blake3::hash(tagged.payload.get().as_bytes()).to_hex().as_str(),
    );
    let mut line = serde_json::to_string(&LineOut { head, payload: tagged.payload, hash: &hash.0 })?;
    line.push('\n');
    Ok((line, hash))
}

fn chain(previous: &ChainHash, head: &str, payload_hash: &str) -> ChainHash {
    let mut hasher = blake3::Hasher::new();
    for part in [previous.0.as_str(), "\n", head, "\n", payload_hash] {
        hasher.update(part.as_bytes());
    }
    ChainHash(hasher.finalize().to_hex().to_string())
}

/// What a journal, or a part of it, holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The events, in order.
    pub events: Vec<Event>,
    /// Hash of the last good line.
    pub hash: ChainHash,
    /// Bytes up to and with the last good line.
    pub good_bytes: u64,
    /// Bytes of a last line that was cut off while it was written; it was never acknowledged.
    pub torn_bytes: u64,
}

/// A journal that cannot be trusted from some line on.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("journal line {line}: {why}")]
pub struct Damage {
    /// Line, counted from 1 within what was read.
    pub line: usize,
    /// Why, in one clause.
    pub why: String,
    /// What stands before it.
    pub good: Box<Loaded>,
}

/// Reads lines that follow a line with sequence number `seq` and hash `hash` (0 and [`ChainHash::start`]
/// at the beginning).
///
/// A last line without its line end is torn: it is dropped and counted, not an error.
///
/// # Errors
/// A line in between is not one of ours, or does not follow from the one before it.
pub fn decode(bytes: &[u8], mut seq: u64, hash: ChainHash) -> Result<Loaded, Damage> {
    let mut loaded = Loaded { events: Vec::new(), hash, good_bytes: 0, torn_bytes: 0 };
    let mut rest = bytes;
    let mut line_number = 0;
    while !rest.is_empty() {
        line_number += 1;
        let Some(end) = rest.iter().position(|b| *b == b'\n') else {
            loaded.torn_bytes = rest.len() as u64;
            return Ok(loaded);
        };
        let (line, tail) = rest.split_at(end + 1);
        match decode_line(&line[..end], seq, &loaded.hash) {
            Ok((event, hash)) => {
                seq = event.seq;
                loaded.hash = hash;
                loaded.good_bytes += line.len() as u64;
                loaded.events.push(event);
            }
            Err(why) => return Err(Damage { line: line_number, why, good: Box::new(loaded) }),
        }
        rest = tail;
    }
    Ok(loaded)
}

/// Checks the chain of lines from the beginning without reading their payloads; returns the last hash.
///
/// # Errors
/// A line is not one of ours, or does not follow from the one before it.
pub fn check_chain(bytes: &[u8]) -> Result<ChainHash, String> {
    let mut hash = ChainHash::start();
    for (i, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        hash = check_line(line, i as u64, &hash).map_err(|why| format!("line {}: {why}", i + 1))?.1;
    }
    Ok(hash)
}

fn decode_line(line: &[u8], seq: u64, previous: &ChainHash) -> Result<(Event, ChainHash), String> {
    let (line, hash) = check_line(line, seq, previous)?;
    let Some(payload) = line.payload else {
        return Err(format!("its payload ({}) was withheld from this bundle", line.kind));
    };
    let what = upcast(&line.kind, line.v, payload)?;
    Ok((Event { seq: line.seq, at: line.at, actor: line.actor, what }, hash))
}

fn check_line<'a>(line: &'a [u8], seq: u64, previous: &ChainHash) -> Result<(LineIn<'a>, ChainHash), String> {
    let line: LineIn<'_> = serde_json::from_slice(line).map_err(|e| format!("not a journal line: {e}"))?;
    if line.seq != seq + 1 {
        return Err(format!("line number {} follows {seq}", line.seq));
    }
    let payload_hash = match (line.payload, &line.withheld) {
        (Some(payload), None) => blake3::hash(payload.get().as_bytes()).to_hex().to_string(),
        (None, Some(hash)) => hash.clone(),
        _ => return Err("neither a payload nor the hash of a withheld one".into()),
    };
    let head = Head { seq: line.seq, at: line.at, actor: &line.actor, kind: &line.kind, v: line.v };
    let head = serde_json::to_string(&head).map_err(|e| e.to_string())?;
    let hash = chain(previous, &head, &payload_hash);
    if hash != line.hash {
        return Err("its hash does not follow from its content and the line before".into());
    }
    Ok((line, hash))
}

/// Reads a payload of any version that was ever written.
fn upcast(kind: &str, version: u32, payload: &RawValue) -> Result<Happened, String> {
    if version > PAYLOAD_VERSION {
        return Err(format!("`{kind}` has version {version}, and this program knows versions up to {PAYLOAD_VERSION}"));
    }
    let tagged = serde_json::to_string(&Tagged { kind: kind.into(), payload }).map_err(|e| e.to_string())?;
    serde_json::from_str(&tagged).map_err(|e| format!("`{kind}`: {e}"))
}
