//! Files of a checkpoint on another host: which there are, and bytes of them by range.
//!
//! Responsible for the two shell texts, `survey.sh` and `ranges.sh`, which only read there, for taking their answers
//! apart, and for fetching each range once. Not responsible for what the bytes mean, nor for the way to the host, which is
//! `remote::host`.
//!
//! The bytes come as they are: in base64, as the answers of a probe, they would cost a third more.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::{Cache, Found, Stamp, Version};
use super::error::CheckpointError;
use super::ranges::{Part, batches, coalesce, cut};
use super::transfer::{Counter, says};
use super::{Progress, Stop};
use crate::engine::procedure::Failure;
use crate::remote::host::blocking::Blocking;
use crate::remote::host::{self, Hosts, Limits, Output, Place};
use crate::untrusted::Untrusted;

const SURVEY: &str = include_str!("survey.sh");
const RANGES: &str = include_str!("ranges.sh");

/// The most bytes of one question: so much is lost when a link breaks, and after so much progress is told.
const BATCH_BYTES: u64 = 16 * 1024 * 1024;
/// The most ranges of one question: they are words of one command line.
const BATCH_RANGES: usize = 64;
/// The longest that one question may take; a link of 100 kB/s needs three minutes for a batch.
const PATIENCE: Duration = Duration::from_mins(10);
/// The most bytes that a login shell may write beside the answer.
const NOISE: usize = 64 * 1024;

/// A host with a checkpoint.
#[derive(Debug)]
pub(super) struct Remote {
    hosts: Hosts,
    place: Place,
    runtime: Blocking,
    cache: Cache,
}

/// One file on the host.
pub(super) type RemoteFile = Version;

/// A file as the host describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes.
    pub(super) size: u64,
    /// Which state of it that is.
    pub(super) stamp: Stamp,
}

/// What stands at a path of the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Survey {
    /// A folder, with the files of a checkpoint by name.
    Folder(BTreeMap<String, Seen>),
    /// A file.
    File(Seen),
}

impl Remote {
    /// A host that is reached over these links; `cache` is the folder in which fetched ranges are kept, `None` keeps
    /// them in memory.
    pub(super) fn new(hosts: Hosts, place: Place, cache: Option<std::path::PathBuf>) -> Result<Self, CheckpointError> {
        Ok(Self { hosts, place, runtime: Blocking::new()?, cache: Cache::new(cache) })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.place.host.name()
    }

    /// What stands at a path.
    ///
    /// # Errors
    /// The host cannot be asked, or there is nothing to read.
    pub(super) fn survey(&self, path: &str, counter: &Counter, stop: Stop<'_>) -> Result<Survey, CheckpointError> {
        let nonce = nonce();
        let output = self.ask("survey", SURVEY, &[nonce.clone(), path.to_owned()], 8 * 1024 * 1024, counter, stop)?;
        read_survey(&String::from_utf8_lossy(&output.out), &nonce).map_err(|odd| {
            let host = self.name();
            CheckpointError::Host(match odd {
                Odd::None => Failure::new(format!("`{path}` is not on `{host}`"))
                    .hint("give the folder in which the shards stand, as an absolute path of that host"),
                Odd::Closed => Failure::new(format!("`{path}` on `{host}` cannot be looked into"))
                    .hint("ask as a user who may read it"),
                Odd::NoCommand => {
                    Failure::new(format!("`{host}` has no `stat`, which is needed to read a checkpoint there"))
                        .hint("install coreutils there")
                }
                Odd::Torn => self.torn(&output),
            })
        })
    }

    /// Brings these parts into the cache, those that are not there; `files` is what their numbers mean.
    ///
    /// # Errors
    /// The host cannot be asked, a file changed, the cache cannot be written, or somebody cancelled. What was fetched
    /// before stays.
    pub(super) fn fetch(
        &self,
        files: &[RemoteFile],
        parts: &[Part],
        counter: &Counter,
        progress: Progress<'_>,
        stop: Stop<'_>,
    ) -> Result<(), CheckpointError> {
        let mut chunks: Vec<Part> = parts.iter().flat_map(|part| cut(part, BATCH_BYTES)).collect();
        chunks.retain(|chunk| !self.cache.has(&files[chunk.file], &chunk.bytes()));
        chunks.sort();
        chunks.dedup();
        let all = chunks.iter().map(Part::len).sum();
        let (mut done, started) = (0, Instant::now());
        for batch in batches(&chunks, BATCH_BYTES, BATCH_RANGES) {
            progress(done, all, &says(self.name(), done, all, started.elapsed()));
            self.fetch_batch(files, batch, counter, stop)?;
            done += batch.iter().map(Part::len).sum::<u64>();
        }
        if all > 0 {
            progress(done, all, &says(self.name(), done, all, started.elapsed()));
        }
        Ok(())
    }

    /// The bytes of a part, from the cache; what is not whole there is fetched.
    ///
    /// # Errors
    /// As [`Remote::fetch`].
    pub(super) fn read(
        &self,
        files: &[RemoteFile],
        part: &Part,
        counter: &Counter,
        stop: Stop<'_>,
    ) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::with_capacity(part.len() as usize);
        for chunk in cut(part, BATCH_BYTES) {
            bytes.extend_from_slice(&self.read_chunk(files, &chunk, counter, stop)?);
        }
        Ok(bytes)
    }

    fn read_chunk(
        &self,
        files: &[RemoteFile],
        chunk: &Part,
        counter: &Counter,
        stop: Stop<'_>,
    ) -> Result<Arc<[u8]>, CheckpointError> {
        match self.cache.get(&files[chunk.file], &chunk.bytes()) {
            Found::Whole(bytes) => {
                counter.taken(chunk.len());
                return Ok(bytes);
            }
            Found::Damaged => counter.was_damaged(),
            Found::Absent => {}
        }
        let fetched = self.fetch_batch(files, std::slice::from_ref(chunk), counter, stop)?;
        Ok(fetched.into_iter().next().unwrap_or_default().into())
    }

    /// Moves chunks in one round trip, keeps them, and gives them back in their order.
    fn fetch_batch(
        &self,
        files: &[RemoteFile],
        chunks: &[Part],
        counter: &Counter,
        stop: Stop<'_>,
    ) -> Result<Vec<Vec<u8>>, CheckpointError> {
        let pieces = coalesce(chunks);
        let nonce = nonce();
        let words = pieces
            .iter()
            .flat_map(|piece| [files[piece.file].path.clone(), (piece.start + 1).to_string(), piece.len().to_string()]);
        let words: Vec<String> = std::iter::once(nonce.clone()).chain(words).collect();
        let expected: u64 = pieces.iter().map(Part::len).sum();
        let most = expected as usize + (pieces.len() + 1) * 128 + NOISE;
        let output = self.ask("ranges", RANGES, &words, most, counter, stop)?;
        let moved = read_ranges(&output.out, &nonce, &pieces);
        let Some(moved) = moved else { return Err(CheckpointError::Host(self.torn(&output))) };
        for (piece, (seen, _)) in pieces.iter().zip(&moved) {
            let known = &files[piece.file];
            if *seen != (Seen { size: known.size, stamp: known.stamp }) {
                return Err(CheckpointError::Changed { file: format!("{}:{}", known.host, known.path) });
            }
        }
        counter.moved(expected);
        let mut found = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let holder = pieces.iter().zip(&moved).find(|(piece, _)| piece.holds(chunk));
            let bytes = holder.map_or(&[][..], |(piece, (_, bytes))| {
                &bytes[(chunk.start - piece.start) as usize..(chunk.end - piece.start) as usize]
            });
            self.cache.put(&files[chunk.file], &chunk.bytes(), bytes)?;
            found.push(bytes.to_vec());
        }
        Ok(found)
    }

    /// Runs a text that only reads; waits for its end or for somebody who cancels.
    fn ask(
        &self,
        what: &str,
        script: &str,
        words: &[String],
        bytes: usize,
        counter: &Counter,
        stop: Stop<'_>,
    ) -> Result<Output, CheckpointError> {
        if stop() {
            return Err(CheckpointError::Cancelled);
        }
        counter.asked();
        tracing::debug!(
            host = self.name(),
            what,
            words = words.get(1..).unwrap_or_default().join(" "),
            "checkpoint read"
        );
        let limits = Limits { time: PATIENCE, bytes };
        match self.runtime.run(&self.hosts, &self.place, script, words, &limits, stop) {
            Err(host::HostError::Cancelled) => Err(CheckpointError::Cancelled),
            Err(other) => Err(CheckpointError::Host(other.failure())),
            Ok(output) => Ok(output),
        }
    }

    /// An answer that does not end as it should, with the host's last words.
    fn torn(&self, output: &Output) -> Failure {
        let host = self.name();
        let words = output.err.raw().lines().rev().find(|line| !line.trim().is_empty());
        match words {
            Some(words) => {
                let words = Untrusted::from(words).visible(200);
                Failure::new(format!("the checkpoint on `{host}` cannot be read: {words}"))
                    .hint("the host needs `stat`, `tail` and `head`, and you must be allowed to read the files")
            }
            None => Failure::new(format!("the answer of `{host}` about the checkpoint breaks off"))
                .hint("read it again; what was fetched so far is kept"),
        }
    }
}

fn nonce() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Why a survey says nothing.
#[derive(Debug, PartialEq, Eq)]
enum Odd {
    None,
    Closed,
    NoCommand,
    Torn,
}

fn read_survey(text: &str, nonce: &str) -> Result<Survey, Odd> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(nonce)?.strip_prefix(' '));
    let kind = lines.next().ok_or(Odd::Torn)?;
    match kind {
        "none" => return Err(Odd::None),
        "closed" => return Err(Odd::Closed),
        "no-command" => return Err(Odd::NoCommand),
        "folder" | "file" => {}
        _ => return Err(Odd::Torn),
    }
    let mut files = BTreeMap::new();
    for line in lines {
        if line == "end" {
            return match kind {
                "folder" => Ok(Survey::Folder(files)),
                _ => files.into_values().next().map(Survey::File).ok_or(Odd::Torn),
            };
        }
        let (seen, name) = read_seen(line).ok_or(Odd::Torn)?;
        files.insert(name.to_owned(), seen);
    }
    Err(Odd::Torn)
}

/// The four numbers of a file, and what comes after them.
fn read_seen(line: &str) -> Option<(Seen, &str)> {
    let mut words = line.splitn(5, ' ');
    let size = words.next()?.parse().ok()?;
    // Some file systems number beyond what is signed; only that numbers differ counts.
    let mut number = || words.next()?.parse::<i128>().ok().map(|number| number as i64);
    let stamp = [number()?, number()?, number()?];
    Some((Seen { size, stamp }, words.next().unwrap_or_default()))
}

/// A file, and the bytes of one range of it.
type Moved<'o> = (Seen, &'o [u8]);

/// The bytes of each piece; `None` where the answer is not whole.
fn read_ranges<'o>(out: &'o [u8], nonce: &str, pieces: &[Part]) -> Option<Vec<Moved<'o>>> {
    let word = format!("{nonce} ");
    // A login shell may have said something before.
    let start = out.windows(word.len()).position(|window| window == word.as_bytes())?;
    let mut rest = &out[start..];
    let mut moved = Vec::with_capacity(pieces.len());
    let head = |rest: &'o [u8]| -> Option<(&'o str, &'o [u8])> {
        let after = rest.strip_prefix(word.as_bytes())?;
        let end = after.iter().position(|b| *b == b'\n')?;
        Some((std::str::from_utf8(&after[..end]).ok()?, &after[end + 1..]))
    };
    for piece in pieces {
        let (said, after) = head(rest)?;
        let (seen, _) = read_seen(said)?;
        let bytes = after.get(..piece.len() as usize)?;
        moved.push((seen, bytes));
        rest = &after[bytes.len()..];
    }
    (head(rest)?.0 == "end").then_some(moved)
}

impl Part {
    fn bytes(&self) -> Range<u64> {
        self.start..self.end
    }

    fn holds(&self, other: &Self) -> bool {
        self.file == other.file && self.start <= other.start && other.end <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64) -> Part {
        Part { file: 0, start, end }
    }

    #[test]
    fn a_survey_is_whole_or_none() {
        let check = |text: &str, expect: Result<Survey, Odd>| assert_eq!(read_survey(text, "n1"), expect, "{text}");
        let folder = |files: &[(&str, Seen)]| {
            Ok(Survey::Folder(files.iter().map(|(name, seen)| ((*name).to_owned(), *seen)).collect()))
        };
        let seen = Seen { size: 9, stamp: [-5, 6, 7] };
        check("hello\nn1 folder\nn1 9 -5 6 7 a b.safetensors\nbanner\nn1 end\n", folder(&[("a b.safetensors", seen)]));
        check("n1 folder\nn1 end\n", folder(&[]));
        check("n1 file\nn1 9 -5 6 7 /m/x\nn1 end\n", Ok(Survey::File(seen)));
        check("n1 file\nn1 end\n", Err(Odd::Torn));
        check("n1 folder\nn1 9 5 6 7 a\n", Err(Odd::Torn));
        check("n1 folder\nn1 9 5 6 a\nn1 end\n", Err(Odd::Torn));
        check("n1 none\n", Err(Odd::None));
        check("n1 closed\n", Err(Odd::Closed));
        check("n1 no-command\n", Err(Odd::NoCommand));
        check("n2 folder\nn2 end\n", Err(Odd::Torn));
        check("", Err(Odd::Torn));
    }

    #[test]
    fn ranges_are_taken_by_their_length_alone() {
        let check = |out: &[u8], expect: Option<Vec<Moved<'_>>>| {
            assert_eq!(read_ranges(out, "n1", &[part(0, 3), part(9, 14)]), expect);
        };
        let seen = Seen { size: 20, stamp: [7, 8, 9] };
        let whole = b"Welcome\nn1 20 7 8 9\na\n\xffn1 20 7 8 9\nn1 enn1 end\nbye";
        check(whole, Some(vec![(seen, b"a\n\xff"), (seen, b"n1 en")]));
        check(b"n1 20 7 8 9\nabcn1 20 7 8 9\nabcden1 end", None);
        check(b"n1 20 7 8 9\nabcn1 20 7 8 9\nabcdn1 end\n", None);
        check(b"n1 20 7 8 9\nabc", None);
        check(b"n1 20 7 8 9\nab", None);
        check(b"n1 x 7 8 9\nabcn1 20 7 8 9\nabcden1 end\n", None);
        check(b"", None);
    }
}
