//! Groups patches anew by hand: several become one, one becomes several. No part is ever lost.
//!
//! Not responsible for what was said about a patch before; an entry is built anew from its group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::group::{Group, Part, by_function};
use super::id;
use crate::patch::diff::Diff;
use crate::patch::facts::Sides;
use crate::patch::types::Origin;

/// Why patches were not grouped anew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Regroup {
    /// There is no such patch.
    #[error("there is no patch `{0}`: `patchbench patches` lists them")]
    Unknown(String),
    /// One patch cannot be put together with itself.
    #[error("name at least two patches to put together")]
    TooFew,
    /// A title without a word gives no id.
    #[error("the title `{0}` has no letter or digit: name the patch in words")]
    NoWord(String),
    /// Another patch has the id.
    #[error("another patch is named `{0}` already: choose another title")]
    Taken(String),
    /// It is one piece under this division.
    #[error("`{0}` has one part only: there is nothing to divide")]
    Whole(String),
}

/// By what a patch is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// One for each file.
    File,
    /// One for each function of each file.
    Function,
    /// One for each hunk.
    Hunk,
}

impl By {
    /// All of them, from the coarsest.
    pub const ALL: [Self; 3] = [Self::File, Self::Function, Self::Hunk];

    /// Its name, as it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Function => "function",
            Self::Hunk => "hunk",
        }
    }

    /// The division of that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.word() == word)
    }
}

/// Puts patches together under a title, in the place of the first of them. Its id comes from the title.
///
/// # Errors
/// There are fewer than two different ones, one is unknown, or the title gives no id or that of another.
pub fn merge(groups: &[Group], ids: &[&str], title: &str) -> Result<Vec<Group>, Regroup> {
    if let Some(unknown) = ids.iter().find(|id| !groups.iter().any(|group| group.id == **id)) {
        return Err(Regroup::Unknown((*unknown).to_owned()));
    }
    let chosen = |group: &Group| ids.contains(&group.id.as_str());
    let together: Vec<&Group> = groups.iter().filter(|group| chosen(group)).collect();
    if together.len() < 2 {
        return Err(Regroup::TooFew);
    }
    let id = id::slug(title);
    if id.is_empty() {
        return Err(Regroup::NoWord(title.to_owned()));
    }
    if groups.iter().any(|group| group.id == id && !chosen(group)) {
        return Err(Regroup::Taken(id));
    }
    let mut parts: Vec<Part> = together.iter().flat_map(|group| group.parts.iter().copied()).collect();
    parts.sort_unstable();
    let mut origins: Vec<Origin> = Vec::new();
    for origin in together.iter().flat_map(|group| flat(&group.origin)) {
        if !origins.contains(&origin) {
            origins.push(origin);
        }
    }
    let mut merged = Some(Group { id, title: title.to_owned(), origin: Origin::Several { parts: origins }, parts });
    Ok(groups.iter().filter_map(|group| if chosen(group) { merged.take() } else { Some(group.clone()) }).collect())
}

/// Divides a patch; its parts stand in its place. What came from a commit still names it.
///
/// # Errors
/// There is no such patch, or it is one piece.
pub fn split(groups: &[Group], diff: &Diff, sides: &[Sides], id: &str, by: By) -> Result<Vec<Group>, Regroup> {
    let Some(at) = groups.iter().position(|group| group.id == id) else {
        return Err(Regroup::Unknown(id.to_owned()));
    };
    let Some((before, [group, after @ ..])) = groups.split_at_checked(at) else {
        return Err(Regroup::Unknown(id.to_owned()));
    };
    let mut pieces = Vec::new();
    for (commit, parts) in by_commit(diff, &group.parts) {
        pieces.extend(match by {
            By::Function => by_function(diff, sides, &parts, commit),
            By::File => runs(diff, &parts, commit, |left, right| left.file == right.file),
            By::Hunk => runs(diff, &parts, commit, |left, right| left.file == right.file && left.hunk.is_none()),
        });
    }
    if pieces.len() < 2 {
        return Err(Regroup::Whole(id.to_owned()));
    }
    let mut all: Vec<Group> = before.to_vec();
    all.extend(pieces);
    all.extend(after.iter().cloned());
    id::make_unique(&mut all);
    Ok(all)
}

/// The parts of each commit, in order.
fn by_commit<'d>(diff: &'d Diff, parts: &[Part]) -> Vec<(Option<&'d str>, Vec<Part>)> {
    let mut out: Vec<(Option<&str>, Vec<Part>)> = Vec::new();
    for part in parts {
        let commit = diff.files.get(part.file).and_then(|file| file.commit);
        let hash = commit.and_then(|commit| diff.commits.get(commit)).map(|commit| commit.hash.as_str());
        match out.iter_mut().find(|(found, _)| *found == hash) {
            Some((_, parts)) => parts.push(*part),
            None => out.push((hash, vec![*part])),
        }
    }
    out
}

/// Neighbours that belong together, each run as a group of its file.
fn runs(diff: &Diff, parts: &[Part], commit: Option<&str>, together: fn(&Part, &Part) -> bool) -> Vec<Group> {
    let group = |run: &[Part]| {
        let file = run.first().and_then(|part| diff.files.get(part.file));
        let path = file.map(|file| file.path().to_owned()).unwrap_or_default();
        let hunk = run.iter().find_map(|part| file?.hunks.get(part.hunk?));
        let one = hunk.filter(|_| run.iter().filter(|part| part.hunk.is_some()).count() == 1);
        Group {
            id: id::of_place(&path, None),
            title: one.map_or_else(|| path.clone(), |hunk| format!("{path}, line {}", hunk.new_start)),
            origin: Origin::Hunks { path, symbol: None, commit: commit.map(str::to_owned) },
            parts: run.to_vec(),
        }
    };
    parts.chunk_by(together).map(group).collect()
}

fn flat(origin: &Origin) -> Vec<Origin> {
    match origin {
        Origin::Several { parts } => parts.clone(),
        other => vec![other.clone()],
    }
}
