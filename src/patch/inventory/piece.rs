//! The lines of a diff that are one patch, as a diff of its own, and how much of them a session keeps.
//!
//! Not responsible for whether it can be applied by itself: a hunk that leans on another patch's lines may not.

use std::collections::BTreeMap;

use super::group::Group;
use crate::patch::diff::{Diff, Hunk, Owner, Side};
use crate::patch::types::{Entry, Piece};
use crate::redact;
use crate::untrusted::{MAX_BYTES, Untrusted};

/// The most that is kept of the patches of one import, in bytes; it stands in the journal and in the memory.
pub const MOST_OF_AN_IMPORT: usize = 4 * 1024 * 1024;

/// The lines of a diff by the file that they belong to, read once for all its patches.
#[derive(Debug)]
pub struct Pieces<'a> {
    diff: &'a Diff,
    lines: Vec<&'a [u8]>,
    runs: BTreeMap<usize, Vec<(Owner, usize, usize)>>,
}

impl<'a> Pieces<'a> {
    /// The lines of a text and the diff that was read of it.
    pub fn new(text: &'a [u8], diff: &'a Diff) -> Self {
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        let mut runs: BTreeMap<usize, Vec<(Owner, usize, usize)>> = BTreeMap::new();
        for run in &diff.owners {
            let (Owner::File(file) | Owner::Hunk { file, .. }) = run.owner else { continue };
            let (first, last) = (run.first as usize - 1, (run.last as usize).min(lines.len()));
            runs.entry(file).or_default().push((run.owner, first, last));
        }
        Self { diff, lines, runs }
    }

    /// The part of the text that a group is: of each of its files the header, then its hunks. Their old lines are
    /// counted as if the other hunks had never been, so that the piece can be taken out of the whole new file at the very
    /// place: git looks for a hunk that is reversed where its old lines are said to be.
    pub fn of(&self, group: &Group) -> Vec<u8> {
        let mut files: Vec<usize> = group.parts.iter().map(|part| part.file).collect();
        files.dedup();
        let mut out = Vec::new();
        for file in files {
            let hunks: Vec<usize> =
                group.parts.iter().filter(|part| part.file == file).filter_map(|part| part.hunk).collect();
            let (mut behind_header, mut longer) = (false, 0);
            for (owner, first, last) in self.runs.get(&file).into_iter().flatten() {
                let rows = self.lines.get(*first..*last).unwrap_or_default();
                let Owner::Hunk { hunk: at, .. } = *owner else {
                    // What stands between two commits of a log is counted to the file before it, and is none of its header.
                    if !behind_header {
                        out.extend(rows.concat());
                    }
                    continue;
                };
                behind_header = true;
                let hunk = self.diff.files.get(file).and_then(|f| f.hunks.get(at)).filter(|_| hunks.contains(&at));
                let (Some(hunk), Some((head, body))) = (hunk, rows.split_first()) else { continue };
                out.extend(moved(head, hunk, longer));
                out.extend(body.concat());
                longer += count(hunk, Side::Added) - count(hunk, Side::Removed);
            }
            // The last line of a text may lack its end.
            if out.last().is_some_and(|b| *b != b'\n') {
                out.push(b'\n');
            }
        }
        out
    }
}

/// The part of the text of a diff that a group is.
pub fn piece(text: &[u8], diff: &Diff, group: &Group) -> Vec<u8> {
    Pieces::new(text, diff).of(group)
}

/// Gives each entry its lines, in order, as long as there is room for them. `entries`: one for each group.
pub fn keep(text: &[u8], diff: &Diff, groups: &[Group], entries: &mut [Entry]) {
    let pieces = Pieces::new(text, diff);
    let mut room = MOST_OF_AN_IMPORT;
    for (group, entry) in groups.iter().zip(entries) {
        entry.piece = Some(kept(&pieces.of(group), &mut room));
    }
}

/// What is kept of a piece where there is `room` for so many bytes, which it takes its part of.
pub(super) fn kept(piece: &[u8], room: &mut usize) -> Piece {
    let bytes = piece.len() as u64;
    if piece.len() > MAX_BYTES {
        return Piece::TooLong { bytes };
    }
    if piece.len() > *room {
        return Piece::NoRoom { bytes };
    }
    let text = redact::text(&String::from_utf8_lossy(piece));
    // What stands for a secret may be longer than it was.
    if text.len() > MAX_BYTES {
        return Piece::TooLong { bytes };
    }
    *room = room.saturating_sub(text.len());
    Piece::Kept { text: Untrusted::from(text) }
}

fn count(hunk: &Hunk, side: Side) -> i64 {
    hunk.lines.iter().filter(|line| line.side == side).count() as i64
}

/// The header of a hunk whose old lines begin where its new ones do, but for the lines by which the file is `longer`.
fn moved(head: &[u8], hunk: &Hunk, longer: i64) -> Vec<u8> {
    let context = count(hunk, Side::Context);
    // A side without lines is said to begin at the line before it.
    let first = |side| i64::from(context + count(hunk, side) > 0);
    let start = i64::from(hunk.new_start) - first(Side::Added) - longer + first(Side::Removed);
    let rest = head.strip_prefix(b"@@ -").map(<[u8]>::trim_ascii_start).unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest.get(digits..) {
        Some(rest) if digits > 0 && start >= 0 => [format!("@@ -{start}").as_bytes(), rest].concat(),
        _ => head.to_vec(),
    }
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
    fn a_piece_was_taken_out_of_another_place_with_the_same_lines() {
        let text = TEXT.replace("@@ -1,3 +1,3 @@", "@@ -1,3 +1,5 @@").replacen(
            "+    return 2\n",
            "+    a\n+    b\n+    c\n",
            1,
        );
        let text = text.replace("@@ -10,3 +10,3 @@", "@@ -10,3 +12,3 @@");
        let diff = read_bytes(text.as_bytes());
        let all = take(&diff, &BTreeMap::new());
        let heads: Vec<String> = all
            .groups
            .iter()
            .flat_map(|group| {
                let piece = String::from_utf8(piece(text.as_bytes(), &diff, group)).unwrap();
                piece.lines().filter(|line| line.starts_with("@@")).map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(heads, ["@@ -1,3 +1,5 @@ def one():", "@@ -12,3 +12,3 @@ def two():", "@@ -1 +1 @@"]);
        // All of it together stays as it was.
        let whole = Group { parts: all.groups.iter().flat_map(|g| g.parts.clone()).collect(), ..all.groups[0].clone() };
        assert_eq!(String::from_utf8(piece(text.as_bytes(), &diff, &whole)).unwrap(), format!("{text}\n"));
    }

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

    fn check(text: &str, room: usize, expect: &Piece) {
        assert_eq!(&kept(text.as_bytes(), &mut { room }), expect);
    }

    #[test]
    fn what_is_kept_is_bounded_and_without_secrets() {
        let text = |t: &str| Piece::Kept { text: Untrusted::from(t) };
        check("+x = 1\n", 100, &text("+x = 1\n"));
        check("+key = \"sk-abcdef0123\"\n", 100, &text("+key = \"[redacted]\"\n"));
        check("+x = 1\n", 6, &Piece::NoRoom { bytes: 7 });
        let long = "+x\n".repeat(MAX_BYTES);
        check(&long, usize::MAX, &Piece::TooLong { bytes: long.len() as u64 });
        // Each mark is longer than the key that it stands for.
        let keys = "+k = \"sk-abcdef\"\n".repeat(MAX_BYTES / 17);
        check(&keys, usize::MAX, &Piece::TooLong { bytes: keys.len() as u64 });
    }

    #[test]
    fn an_import_keeps_no_more_than_there_is_room_for() {
        // Few long lines: it is their length that counts.
        let hunk = |i: usize| {
            let lines = format!("+# {}\n", "x ".repeat(1000)).repeat(31);
            format!("diff --git a/f{i}.txt b/f{i}.txt\n--- a/f{i}.txt\n+++ b/f{i}.txt\n@@ -0,0 +1,31 @@\n{lines}")
        };
        let text: String = (0..80).map(hunk).collect();
        let diff = read_bytes(text.as_bytes());
        let mut all = take(&diff, &BTreeMap::new());
        keep(text.as_bytes(), &diff, &all.groups, &mut all.entries);
        let size = |e: &Entry| match &e.piece {
            Some(Piece::Kept { text }) => text.raw().len(),
            _ => 0,
        };
        let sum: usize = all.entries.iter().map(size).sum();
        assert!(sum <= MOST_OF_AN_IMPORT && sum + 64 * 1024 > MOST_OF_AN_IMPORT, "{sum}");
        assert!(matches!(all.entries[79].piece, Some(Piece::NoRoom { .. })));
    }
}
