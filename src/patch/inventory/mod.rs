//! Makes entries of a diff: hunks are grouped into patches, and each patch gets what its hunks say.
//!
//! Not responsible for getting hold of the diff or of files, for the state of a patch on a server, or for its risk.

mod build;
#[cfg(test)]
mod cases_tests;
mod group;
mod id;
mod piece;
mod record;
mod regroup;
mod remake;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::diff::{Diff, Remark};
use super::facts::Sides;
use super::gates::Registry;
use super::language::{Language, Source};
use super::types::Entry;

pub use build::entry;
pub use group::{Group, Part, groups};
pub use piece::{MOST_OF_AN_IMPORT, Pieces, keep, piece};
pub use record::of_record;
pub use regroup::{By, Regroup, merge, split};
pub use remake::{Divided, NotDivided, apart, together};

/// Everything that a diff tells.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// The patches as groups of hunks, from which they can be grouped anew.
    pub groups: Vec<Group>,
    /// The patches; one for each group, in its order.
    pub entries: Vec<Entry>,
    /// What could not be read; lines are those of the diff.
    pub remarks: Vec<Remark>,
}

/// Names of files that define variables or arguments with their defaults.
const DEFINITIONS: &[&str] = &["environ.py", "envs.py", "server_args.py"];

/// Takes the inventory of a diff. `texts`: whole new files by path, as far as they are there. One that does not agree
/// with the diff is not used, and a remark says so.
pub fn take(diff: &Diff, texts: &BTreeMap<String, String>) -> Inventory {
    let sides = sides(diff, texts);
    let registry = registry(diff, &sides, texts);
    let groups = groups(diff, &sides);
    let entries = groups.iter().map(|group| entry(diff, &sides, group, &registry)).collect();
    let mut remarks = diff.remarks.clone();
    for (file, _) in diff.files.iter().zip(&sides).filter(|(_, sides)| sides.disagrees) {
        let text = format!("the file `{}` is not what the diff leads to: only the hunk was read", file.path());
        remarks.push(Remark { line: file.line, text });
    }
    Inventory { groups, entries, remarks }
}

/// Both sides of each file of a diff.
pub fn sides(diff: &Diff, texts: &BTreeMap<String, String>) -> Vec<Sides> {
    diff.files.iter().map(|file| Sides::new(file, texts.get(file.path()).map(String::as_str))).collect()
}

/// The defaults that the diff itself and the given files define; a whole file is believed before a hunk.
pub fn registry(diff: &Diff, sides: &[Sides], texts: &BTreeMap<String, String>) -> Registry {
    let mut registry = Registry::default();
    let defines = |path: &str| path.rsplit('/').next().is_some_and(|name| DEFINITIONS.contains(&name));
    for (file, sides) in diff.files.iter().zip(sides).filter(|(file, _)| defines(file.path())) {
        for source in (0..file.hunks.len()).filter_map(|hunk| sides.new_of(hunk)) {
            registry.add(source);
        }
    }
    for (path, text) in texts.iter().filter(|(path, _)| defines(path)) {
        if let Some(source) = Language::of_path(path).and_then(|language| Source::whole(language, text)) {
            registry.add(&source);
        }
    }
    registry
}
