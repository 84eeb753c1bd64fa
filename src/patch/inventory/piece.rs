//! The lines of a diff that are one patch, as a diff of its own.
//!
//! Not responsible for whether it can be applied by itself: a hunk that leans on another patch's lines may not.

use super::group::{Group, Part};
use crate::patch::diff::{Diff, Owner};

/// The part of the text of a diff that a group is: of each of its files the header, then its hunks.
pub fn piece(text: &[u8], diff: &Diff, group: &Group) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
    let mut files: Vec<usize> = group.parts.iter().map(|part| part.file).collect();
    files.dedup();
    let mut out = Vec::new();
    for file in files {
        let hunks: Vec<usize> = group.parts.iter().filter(|p| p.file == file).filter_map(|p: &Part| p.hunk).collect();
        let mut behind_header = false;
        for run in &diff.owners {
            let taken = match run.owner {
                // What stands between two commits of a log is counted to the file before it, and is none of its header.
                Owner::File(of) => of == file && !behind_header,
                Owner::Hunk { file: of, hunk } => {
                    behind_header |= of == file;
                    of == file && hunks.contains(&hunk)
                }
                Owner::Commit(_) | Owner::Remark(_) => false,
            };
            let (first, last) = (run.first as usize - 1, (run.last as usize).min(lines.len()));
            let run = lines.get(first..last).filter(|_| taken).unwrap_or_default();
            out.extend(run.iter().flat_map(|line| *line));
        }
        // The last line of a text may lack its end.
        if out.last().is_some_and(|b| *b != b'\n') {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::patch::diff::read_bytes;
    use crate::patch::inventory::take;

    const TEXT: &str = "\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def one():
 def one():
-    return 1
+    return 2
     pass
@@ -10,3 +10,3 @@ def two():
 def two():
-    return 1
+    return 2
     pass
diff --git a/b.py b/b.py
--- a/b.py
+++ b/b.py
@@ -1 +1 @@
-x = 1
+x = 2";

    #[test]
    fn a_blank_line_between_two_commits_stood_before_the_hunk_and_no_git_applied_it() {
        let (first, second) = TEXT.split_at(TEXT.find("diff --git a/b.py").unwrap());
        let head = |hash: &str| format!("commit {}\nAuthor: A <a@b>\nDate:   x\n\n    One\n\n", hash.repeat(40));
        let text = format!("{}{first}\n{}{second}", head("a"), head("b"));
        let diff = read_bytes(text.as_bytes());
        let all = take(&diff, &BTreeMap::new());
        let pieces: Vec<Vec<u8>> = all.groups.iter().map(|group| piece(text.as_bytes(), &diff, group)).collect();
        assert_eq!(
            pieces.iter().map(|p| String::from_utf8_lossy(p)).collect::<Vec<_>>(),
            [first, &format!("{second}\n")]
        );
    }

    #[test]
    fn pieces_are_diffs_that_read_as_the_patches_they_were_taken_from() {
        let diff = read_bytes(TEXT.as_bytes());
        let all = take(&diff, &BTreeMap::new());
        assert_eq!(all.groups.len(), 3);
        for (group, entry) in all.groups.iter().zip(&all.entries) {
            let part = piece(TEXT.as_bytes(), &diff, group);
            let again = take(&read_bytes(&part), &BTreeMap::new());
            assert_eq!(again.remarks, [], "{}", String::from_utf8_lossy(&part));
            let [one] = &again.entries[..] else { panic!("{} patches", again.entries.len()) };
            assert_eq!((&one.files, one.added, one.removed), (&entry.files, entry.added, entry.removed));
        }
    }
}
