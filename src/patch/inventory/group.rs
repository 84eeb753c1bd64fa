//! Groups the parts of a diff into patches: by commit where the text has commits, else by file and function.
//!
//! Not responsible for what the parts say.

use std::collections::BTreeMap;

use super::id;
use crate::patch::diff::{Diff, FileDiff, Form, Side};
use crate::patch::facts::Sides;
use crate::patch::types::Origin;

/// A part of a diff. Indices are those of the diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The file.
    pub file: usize,
    /// The hunk; `None` is the header of the file: its name, mode or binary content.
    pub hunk: Option<usize>,
}

/// Parts of a diff that are one patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Id of the patch.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// A function of a file, or what lies in none or in several.
pub(super) type Place = (String, Option<String>);

/// Groups every part of a diff; each is in exactly one group.
pub fn groups(diff: &Diff, sides: &[Sides]) -> Vec<Group> {
    let mut groups: Vec<Group> = diff.commits.iter().map(commit).collect();
    for (index, file) in diff.files.iter().enumerate() {
        if let Some(group) = file.commit.and_then(|commit| groups.get_mut(commit)) {
            group.parts.extend(parts(index, file));
        }
    }
    let loose = diff.files.iter().enumerate().filter(|(_, file)| file.commit.is_none());
    let loose: Vec<Part> = loose.flat_map(|(index, file)| parts(index, file)).collect();
    groups.extend(by_function(diff, sides, &loose, None));
    id::make_unique(&mut groups);
    groups
}

fn commit(commit: &crate::patch::diff::Commit) -> Group {
    Group {
        id: id::of_commit(&commit.hash, &commit.subject),
        title: if commit.subject.is_empty() { format!("commit {}", commit.hash) } else { commit.subject.clone() },
        origin: Origin::Commit { hash: commit.hash.clone(), subject: commit.subject.clone() },
        parts: Vec::new(),
    }
}

/// Every part of a file: its header and its hunks.
pub(super) fn parts(index: usize, file: &FileDiff) -> impl Iterator<Item = Part> {
    let hunks = (0..file.hunks.len()).map(Some);
    std::iter::once(None).chain(hunks).map(move |hunk| Part { file: index, hunk })
}

/// Groups parts by file and function. A header stands with the first hunk of its file among them.
pub(super) fn by_function(diff: &Diff, sides: &[Sides], parts: &[Part], commit: Option<&str>) -> Vec<Group> {
    let mut first: BTreeMap<usize, Part> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.hunk.is_some()) {
        first.entry(part.file).or_insert(*part);
    }
    let mut found: BTreeMap<Place, usize> = BTreeMap::new();
    let mut grouped: Vec<(Place, Vec<Part>)> = Vec::new();
    for part in parts {
        let shown = if part.hunk.is_none() { first.get(&part.file).unwrap_or(part) } else { part };
        let place = place(diff, sides, *shown);
        let at = *found.entry(place.clone()).or_insert(grouped.len());
        match grouped.get_mut(at) {
            Some((_, parts)) => parts.push(*part),
            None => grouped.push((place, vec![*part])),
        }
    }
    let group = |(place, parts): (Place, Vec<Part>)| {
        let (path, symbol) = place;
        Group {
            id: id::of_place(&path, symbol.as_deref()),
            title: symbol.as_ref().map_or_else(|| path.clone(), |symbol| format!("{symbol} in {path}")),
            origin: Origin::Hunks { path, symbol, commit: commit.map(str::to_owned) },
            parts,
        }
    };
    grouped.into_iter().map(group).collect()
}

fn place(diff: &Diff, sides: &[Sides], part: Part) -> Place {
    let Some(file) = diff.files.get(part.file) else { return (String::new(), None) };
    let path = file.path().to_owned();
    // A file that comes or goes is one thing.
    let whole = file.old.is_none() || file.new.is_none() || file.form != Form::Text;
    let symbol = part.hunk.filter(|_| !whole).and_then(|hunk| symbol(file, sides.get(part.file)?, hunk));
    (path, symbol)
}

/// The function that all changed lines of a hunk lie in; `None` where they lie in none or in several.
fn symbol(file: &FileDiff, sides: &Sides, hunk: usize) -> Option<String> {
    let changed =
        file.hunks.get(hunk)?.lines.iter().filter(|line| line.side != Side::Context && !line.text.trim().is_empty());
    let of = |line: &crate::patch::diff::Line| match line.side {
        Side::Removed => sides.old_of(hunk)?.symbol(line.old),
        _ => sides.new_of(hunk)?.symbol(line.new),
    };
    let mut found: Option<String> = None;
    for line in changed {
        let name = of(line)?;
        found = Some(match found {
            None => name,
            // A function within another belongs to that.
            Some(outer) if is_within(&name, &outer) => outer,
            Some(inner) if is_within(&inner, &name) => name,
            Some(_) => return None,
        });
    }
    found
}

fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']))
}
