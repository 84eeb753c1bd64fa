//! Ids of patches: words for people, and enough of a hash that the same change always has the same id.
//!
//! Not responsible for what a patch is.

use std::collections::{BTreeMap, BTreeSet};

use super::group::Group;
use crate::patch::types::Origin;

/// The longest id without what makes it unique, in characters.
const LONGEST: usize = 48;

/// The id of a commit: words of its subject, and the beginning of its hash.
pub(super) fn of_commit(hash: &str, subject: &str) -> String {
    let words = slug(subject);
    let words = if words.is_empty() { "commit".to_owned() } else { words };
    format!("{words}-{}", hash.get(..7).unwrap_or(hash))
}

/// The id of what changes a function of a file: the file's name and the last name of the function.
pub(super) fn of_place(path: &str, symbol: Option<&str>) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem });
    let last = symbol.and_then(|symbol| symbol.rsplit(['.', ':']).next()).unwrap_or_default();
    let words = slug(&format!("{stem} {last}"));
    if words.is_empty() { "file".to_owned() } else { words }
}

/// Words in lower case with hyphens, cut between two of them.
pub(super) fn slug(text: &str) -> String {
    let lower = text.to_lowercase();
    let mut out = String::new();
    for word in lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if out.len() + word.len() >= LONGEST && !out.is_empty() {
            break;
        }
        if !out.is_empty() {
            out.push('-');
        }
        out.extend(word.chars().take(LONGEST));
    }
    out
}

/// Gives every group whose id another has too a part of the hash of where it comes from. What comes from the same place
/// twice, such as two hunks outside of functions, is told apart by its order.
pub(super) fn make_unique(groups: &mut [Group]) {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for group in groups.iter() {
        *count.entry(group.id.clone()).or_default() += 1;
    }
    for group in groups.iter_mut().filter(|group| count.get(&group.id).is_some_and(|count| *count > 1)) {
        let hash = hash(&group.origin);
        group.id = format!("{}-{}", group.id, hash.get(..6).unwrap_or(&hash));
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for group in groups {
        let base = group.id.clone();
        let mut number = 2;
        while !taken.insert(group.id.clone()) {
            group.id = format!("{base}-{number}");
            number += 1;
        }
    }
}

fn hash(origin: &Origin) -> String {
    let mut hasher = blake3::Hasher::new();
    feed(origin, &mut hasher);
    hasher.finalize().to_hex().to_string()
}

fn feed(origin: &Origin, hasher: &mut blake3::Hasher) {
    let mut part = |text: &str| _ = hasher.update(text.as_bytes()).update(&[0]);
    match origin {
        Origin::Commit { hash, .. } => part(hash),
        Origin::Hunks { path, symbol, commit } => {
            part(path);
            part(symbol.as_deref().unwrap_or_default());
            part(commit.as_deref().unwrap_or_default());
        }
        Origin::Record { distribution, path } => {
            part(distribution);
            part(path);
        }
        Origin::Several { parts } => parts.iter().for_each(|origin| feed(origin, hasher)),
    }
}
