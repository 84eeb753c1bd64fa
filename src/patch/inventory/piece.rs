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
        let hunks = group.parts.iter().filter(|part| part.file == file).filter_map(|part: &Part| part.hunk);
        let owners = std::iter::once(Owner::File(file)).chain(hunks.map(|hunk| Owner::Hunk { file, hunk }));
        for owner in owners {
            for run in diff.owners.iter().filter(|run| run.owner == owner) {
                let (first, last) = (run.first as usize - 1, (run.last as usize).min(lines.len()));
                out.extend(lines.get(first..last).unwrap_or_default().iter().flat_map(|line| *line));
            }
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
