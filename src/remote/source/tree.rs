//! The names of copies with a diff taken out, by which a process's search path tells what it runs without. Pure.

use std::collections::BTreeSet;

use crate::engine::procedure::Failure;

/// Folder of the copies within our own.
const FOLDER: &str = "trees";
/// What every path of a copy holds.
pub(crate) const MARK: &str = "/trees/";
/// Stands in front of the id of each patch that is taken out; an entry of a search path cannot hold a colon.
const WITHOUT: char = '~';
/// The longest name of a file.
const LONGEST: usize = 255;

/// A copy as a search path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Its folder.
    pub(crate) path: String,
    /// Patches that are taken out of it.
    pub(crate) without: BTreeSet<String>,
}

/// Path of the copies of a target, without what tells one from another.
pub(crate) fn prefix(folder: &str, stem: &str) -> String {
    format!("{folder}/{FOLDER}/{stem}-")
}

/// Path of a copy without these patches; `key` tells it from others of the same.
///
/// # Errors
/// An id cannot stand in a search path, or there are too many.
pub(crate) fn path<'p>(prefix: &str, key: &str, without: impl Iterator<Item = &'p str>) -> Result<String, Failure> {
    let mut path = format!("{prefix}{key}");
    for id in without {
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(Failure::new(format!("the id `{id}` cannot be part of a folder's name"))
                .hint("give the patch an id of letters, digits, `-`, `_` and `.`"));
        }
        path.push(WITHOUT);
        path.push_str(id);
    }
    if path.rsplit('/').next().is_some_and(|name| name.len() > LONGEST) {
        return Err(Failure::new("so many patches taken out at once make a folder's name too long")
            .hint("switch fewer patches of the source at a time"));
    }
    Ok(path)
}

/// The copy of ours that a search path leads to first.
pub(crate) fn of_search_path(value: &str) -> Option<Tree> {
    value.split(':').find_map(of_entry)
}

fn of_entry(entry: &str) -> Option<Tree> {
    let (folder, name) = entry.trim_end_matches('/').rsplit_once('/')?;
    let ours = folder.strip_suffix(FOLDER)?.strip_suffix('/')?.split('/').any(|part| part == "patchbench");
    let (_, without) = name.split_once(WITHOUT).filter(|_| ours)?;
    Some(Tree { path: entry.to_owned(), without: without.split(WITHOUT).map(str::to_owned).collect() })
}

/// A search path without copies of ours; `None` where nothing else is in it.
pub(crate) fn others(value: &str) -> Option<String> {
    let rest: Vec<&str> = value.split(':').filter(|entry| of_entry(entry).is_none()).collect();
    (rest.iter().any(|entry| !entry.is_empty())).then(|| rest.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_path_tells_which_patches_a_process_runs_without() {
        let folder = "/home/ann/.local/state/patchbench/overrides";
        let path = path(&prefix(folder, "lab-1f"), "abc", ["mhc-bf16", "b.2"].into_iter()).unwrap();
        assert_eq!(path, format!("{folder}/trees/lab-1f-abc~mhc-bf16~b.2"));
        let tree = of_search_path(&format!("{path}:/opt/x")).unwrap();
        assert_eq!((tree.path, tree.without), (path.clone(), ["b.2".to_owned(), "mhc-bf16".to_owned()].into()));
        assert_eq!(others(&format!("{path}:/opt/x:/y")), Some("/opt/x:/y".into()));
        assert_eq!(others(&path), None);
        for other in ["", "/opt/x", "/home/ann/trees/a~b", "/run/patchbench/trees/lab-abc", "/run/patchbench/a~b"] {
            assert_eq!(of_search_path(other), None, "{other}");
        }
    }

    #[test]
    fn an_id_that_would_end_the_entry_is_refused() {
        for id in ["a:b", "a/b", "a~b", "a b", ""] {
            assert!(path("/run/patchbench/trees/x-", "k", [id].into_iter()).is_err(), "{id}");
        }
        assert!(path("/t/x-", "k", std::iter::repeat_n("a-long-enough-id", 20)).is_err());
    }
}
