//! Gathers what the parts of a group say into an entry.
//!
//! Not responsible for reading a single hunk.

use super::group::Group;
use crate::patch::diff::{Diff, Side};
use crate::patch::facts::{self, Facts, Sides};
use crate::patch::gates::Registry;
use crate::patch::types::{Entry, FileTouch};

/// The entry of a group. `sides`: one for each file of the diff.
pub fn entry(diff: &Diff, sides: &[Sides], group: &Group, registry: &Registry) -> Entry {
    let mut all = Facts::default();
    let mut files: Vec<FileTouch> = Vec::new();
    let (mut added, mut removed) = (0, 0);
    for part in &group.parts {
        let Some((file, sides)) = diff.files.get(part.file).zip(sides.get(part.file)) else { continue };
        let touch = FileTouch { path: file.path().to_owned(), how: file.touch() };
        if !files.contains(&touch) {
            files.push(touch);
        }
        let Some(hunk) = part.hunk else {
            all.merge(facts::of_path(file.path()));
            continue;
        };
        all.merge(facts::of_hunk(file, sides, hunk, registry));
        let lines = file.hunks.get(hunk).map(|hunk| hunk.lines.as_slice()).unwrap_or_default();
        added += lines.iter().filter(|line| line.side == Side::Added).count() as u32;
        removed += lines.iter().filter(|line| line.side == Side::Removed).count() as u32;
    }
    Entry {
        id: group.id.clone(),
        title: group.title.clone(),
        origin: group.origin.clone(),
        files,
        symbols: all.symbols,
        gates: all.gates,
        phases: all.phases,
        dtypes: all.dtypes,
        kernels: all.kernels,
        asserts: all.asserts,
        signals: all.signals,
        added,
        removed,
        said_by: None,
        piece: None,
    }
}
