//! Puts imported patches together and divides them again, with what a session kept of them. No line is ever lost.
//!
//! What is put together keeps what was read of each; what is divided is read anew from its own lines. Not responsible
//! for the state of a session.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::build::entry;
use super::group::{Group, parts};
use super::piece::Pieces;
use super::regroup::{By, Regroup, merge, split};
use super::{registry, sides};
use crate::patch::diff::{Diff, read_bytes};
use crate::patch::facts::Facts;
use crate::patch::types::{Entry, Origin, Piece};
use crate::untrusted::{MAX_BYTES, Untrusted};

/// Why a patch was not divided.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotDivided {
    /// It cannot be grouped so.
    #[error(transparent)]
    Regroup(#[from] Regroup),
    /// Its lines are not there.
    #[error("the lines of `{0}` were not kept when it was imported")]
    NoLines(String),
    /// The parts would not add up to it: a secret of several lines was taken out of its text.
    #[error("the parts of `{0}` would not have all its lines, since some were taken out as a secret")]
    Loses(String),
}

/// A patch as its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divided {
    /// The parts, in the order of the lines.
    pub entries: Vec<Entry>,
    /// Names of switches that were read of whole files and that no part reads by its own lines.
    pub unseen: Vec<String>,
}

/// One patch of several, under a title from which its id comes. `all`: every imported patch, for the ids.
///
/// # Errors
/// There are fewer than two different ones, one is unknown, or the title gives no id or that of another.
pub fn together(all: &[&Entry], ids: &[&str], title: &str) -> Result<Entry, Regroup> {
    let bare = |e: &&Entry| Group { id: e.id.clone(), title: e.title.clone(), origin: e.origin.clone(), parts: vec![] };
    let groups: Vec<Group> = all.iter().map(bare).collect();
    let merged = merge(&groups, ids, title)?;
    let chosen: Vec<&Entry> = all.iter().copied().filter(|e| ids.contains(&e.id.as_str())).collect();
    // It stands where the first of them stood.
    let place = all.iter().position(|e| ids.contains(&e.id.as_str()));
    let group = place.and_then(|at| merged.into_iter().nth(at)).ok_or(Regroup::TooFew)?;
    let mut facts = Facts::default();
    let mut files = Vec::new();
    for one in &chosen {
        let one = one.without_lines();
        files.extend(one.files.into_iter().filter(|f| !files.contains(f)).collect::<Vec<_>>());
        facts.merge(Facts {
            symbols: one.symbols,
            gates: one.gates,
            phases: one.phases,
            dtypes: one.dtypes,
            kernels: one.kernels,
            asserts: one.asserts,
            signals: one.signals,
        });
    }
    // Where one of them may be in any phase, so may they all.
    if chosen.iter().any(|e| e.phases.is_empty()) {
        facts.phases.clear();
    }
    Ok(Entry {
        id: group.id,
        title: group.title,
        origin: group.origin,
        files,
        symbols: facts.symbols,
        gates: facts.gates,
        phases: facts.phases,
        dtypes: facts.dtypes,
        kernels: facts.kernels,
        asserts: facts.asserts,
        signals: facts.signals,
        added: chosen.iter().map(|e| e.added).sum(),
        removed: chosen.iter().map(|e| e.removed).sum(),
        said_by: None,
        piece: joined(&chosen),
    })
}

/// The lines of all of them, where they were kept and are not too many; else how many they are, where that is known.
fn joined(chosen: &[&Entry]) -> Option<Piece> {
    let mut whole = String::new();
    let (mut bytes, mut complete) = (0, true);
    for one in chosen {
        match one.piece.as_ref()? {
            Piece::Kept { text } => {
                whole.push_str(text.raw());
                bytes += text.raw().len() as u64;
            }
            Piece::TooLong { bytes: more } | Piece::NoRoom { bytes: more } => {
                bytes += more;
                complete = false;
            }
        }
    }
    let fits = complete && whole.len() <= MAX_BYTES;
    Some(if fits { Piece::Kept { text: Untrusted::from(whole) } } else { Piece::TooLong { bytes } })
}

/// The parts of a patch, read anew from the lines that were kept of it. `taken`: ids that others have.
///
/// # Errors
/// Its lines were not kept, it is one piece under this division, or the parts would not have all its lines.
pub fn apart(whole: &Entry, by: By, taken: &BTreeSet<&str>) -> Result<Divided, NotDivided> {
    let Some(Piece::Kept { text }) = &whole.piece else { return Err(NotDivided::NoLines(whole.id.clone())) };
    let bytes = text.raw().as_bytes();
    let diff = read_bytes(bytes);
    let sides = sides(&diff, &BTreeMap::new());
    let group = Group {
        id: whole.id.clone(),
        title: whole.title.clone(),
        origin: whole.origin.clone(),
        parts: diff.files.iter().enumerate().flat_map(|(index, file)| parts(index, file)).collect(),
    };
    let mut groups = split(&[group], &diff, &sides, &whole.id, by)?;
    name(&mut groups, whole, taken);
    let (registry, pieces) = (registry(&diff, &sides, &BTreeMap::new()), Pieces::new(bytes, &diff));
    let part = |group: &Group| {
        let lines = String::from_utf8_lossy(&pieces.of(group)).into_owned();
        Entry { piece: Some(Piece::Kept { text: lines.into() }), ..entry(&diff, &sides, group, &registry) }
    };
    let entries: Vec<Entry> = groups.iter().map(part).collect();
    if sums(&entries) != (whole.added, whole.removed) || !is_whole(&diff) {
        return Err(NotDivided::Loses(whole.id.clone()));
    }
    let reads = |name: &str| entries.iter().flat_map(|e| &e.gates).any(|g| g.name == name);
    let unseen: BTreeSet<&str> = whole.gates.iter().map(|g| g.name.as_str()).filter(|name| !reads(name)).collect();
    Ok(Divided { unseen: unseen.into_iter().map(str::to_owned).collect(), entries })
}

/// Lines that were added and taken away.
fn sums(entries: &[Entry]) -> (u32, u32) {
    entries.iter().fold((0, 0), |(added, removed), e| (added + e.added, removed + e.removed))
}

/// Whether every hunk has the lines that its header counts.
fn is_whole(diff: &Diff) -> bool {
    diff.files.iter().flat_map(|file| &file.hunks).all(|hunk| hunk.complete)
}

/// Gives each part an id of its own, and the commit that the whole came from.
fn name(groups: &mut [Group], whole: &Entry, taken: &BTreeSet<&str>) {
    let of = match &whole.origin {
        Origin::Commit { hash, .. } | Origin::Hunks { commit: Some(hash), .. } => Some(hash),
        _ => None,
    };
    let mut used: BTreeSet<String> = taken.iter().map(|id| (*id).to_owned()).collect();
    for group in groups {
        if let (Origin::Hunks { commit, .. }, Some(hash)) = (&mut group.origin, of) {
            *commit = Some(hash.clone());
        }
        let base = group.id.clone();
        let mut number = 2;
        while !used.insert(group.id.clone()) {
            group.id = format!("{base}-{number}");
            number += 1;
        }
    }
}

#[cfg(test)]
#[path = "remake_tests.rs"]
mod tests;
