use super::super::{keep, take};
use super::*;
use crate::patch::types::FileTouch;

const DIFF: &[u8] = include_bytes!("../../../tests/artefacts/A38_patch_inventory.diff");

fn imported(text: &[u8]) -> Vec<Entry> {
    let diff = read_bytes(text);
    let mut all = take(&diff, &BTreeMap::new());
    keep(text, &diff, &all.groups, &mut all.entries);
    all.entries
}

fn merged(entries: &[Entry], title: &str) -> Result<Entry, Regroup> {
    let all: Vec<&Entry> = entries.iter().collect();
    let ids: Vec<&str> = entries.iter().map(|e| e.id.as_str()).collect();
    together(&all, &ids, title)
}

/// What is put together and divided again has the same lines, however it is divided.
fn check(text: &[u8]) {
    let entries = imported(text);
    let whole = merged(&entries, "all of it").unwrap();
    assert_eq!((whole.added, whole.removed), sums(&entries));
    for by in By::ALL {
        let parts = apart(&whole, by, &BTreeSet::new()).unwrap().entries;
        assert_eq!(sums(&parts), sums(&entries), "{by:?}");
        let paths = |all: &[Entry]| -> BTreeSet<String> {
            all.iter().flat_map(|e| &e.files).map(|f: &FileTouch| f.path.clone()).collect()
        };
        assert_eq!(paths(&parts), paths(&entries), "{by:?}");
        let ids: BTreeSet<&str> = parts.iter().map(|e| e.id.as_str()).collect();
        assert_eq!(ids.len(), parts.len(), "{by:?}");
        let again = merged(&parts, "all of it").unwrap();
        assert_eq!((again.added, again.removed), (whole.added, whole.removed));
        let signs = |e: &Entry| match &e.piece {
            Some(Piece::Kept { text }) => {
                let mut lines: Vec<&str> = text.raw().lines().filter(|l| l.starts_with(['+', '-'])).collect();
                // Each part repeats the header of its file.
                lines.retain(|l| !l.starts_with("+++ ") && !l.starts_with("--- "));
                lines.sort_unstable();
                lines.into_iter().map(str::to_owned).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(signs(&again), signs(&whole), "{by:?}");
    }
}

#[test]
fn no_line_is_lost_by_putting_together_and_dividing() {
    check(DIFF);
    check(b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n--- b\n+++ c\n@@ -9 +9 @@\n-a\n+b\n--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-a\n+b\n");
}

#[test]
fn what_was_read_of_the_patches_is_known_of_them_together() {
    let entries = imported(DIFF);
    let whole = merged(&entries, "all of it").unwrap();
    let names =
        |all: &[Entry]| -> BTreeSet<String> { all.iter().flat_map(|e| &e.gates).map(|g| g.name.clone()).collect() };
    assert_eq!(names(std::slice::from_ref(&whole)), names(&entries));
    assert_eq!(whole.id, "all-of-it");
    assert!(whole.phases.is_empty(), "a part that may be in any phase makes the whole so");
    assert!(matches!(&whole.origin, Origin::Several { parts } if parts.len() == entries.len()));
}

#[test]
fn a_part_names_the_commit_of_the_whole_and_takes_no_id_of_another() {
    let mut whole = merged(&imported(DIFF), "all of it").unwrap();
    whole.origin = Origin::Commit { hash: "abc".into(), subject: "s".into() };
    let parts = apart(&whole, By::File, &BTreeSet::from(["perf"])).unwrap().entries;
    assert!(parts.iter().all(|p| matches!(&p.origin, Origin::Hunks { commit: Some(c), .. } if c == "abc")));
    assert!(parts.iter().any(|p| p.id == "perf-2") && parts.iter().all(|p| p.id != "perf"));
}

#[test]
fn a_switch_that_only_the_whole_file_showed_is_named() {
    let mut whole = merged(&imported(DIFF), "all of it").unwrap();
    let mut gate = whole.gates[0].clone();
    gate.name = "SGLANG_AROUND_IT".into();
    whole.gates.push(gate);
    assert_eq!(apart(&whole, By::File, &BTreeSet::new()).unwrap().unseen, ["SGLANG_AROUND_IT"]);
}

#[test]
fn what_cannot_be_divided_stays_whole_and_says_why() {
    let why = |entry: &Entry, by| apart(entry, by, &BTreeSet::new()).unwrap_err().to_string();
    let entries = imported(DIFF);
    let bare = entries[1].without_lines();
    assert_eq!(why(&bare, By::Hunk), format!("the lines of `{}` were not kept when it was imported", bare.id));
    assert!(why(&entries[1], By::File).ends_with("has one part only: there is nothing to divide"));
    let key = "-----BEGIN PRIVATE KEY-----\n+MII\n+-----END PRIVATE KEY-----";
    let text = format!("--- a/x\n+++ b/x\n@@ -0,0 +1,4 @@\n+{key}\n+x\n@@ -9 +12 @@\n-a\n+b\n");
    let secret = merged(&imported(text.as_bytes()), "both");
    let secret = secret.unwrap_or_else(|_| imported(text.as_bytes()).remove(0));
    assert!(why(&secret, By::Hunk).contains("taken out as a secret"), "{}", why(&secret, By::Hunk));
}

#[test]
fn what_is_too_long_together_says_so_and_keeps_its_sums() {
    let text = |name: &str| {
        let lines = "+x = 1\n".repeat(6000);
        format!("--- /dev/null\n+++ b/{name}.py\n@@ -0,0 +1,6000 @@\n{lines}")
    };
    let entries = imported(format!("{}{}", text("a"), text("b")).as_bytes());
    assert_eq!(entries.len(), 2);
    let whole = merged(&entries, "both").unwrap();
    assert_eq!(whole.added, 12_000);
    assert!(matches!(whole.piece, Some(Piece::TooLong { bytes }) if bytes > 84_000), "{:?}", whole.piece);
}
