//! Tests of the reader of diffs: forms of headers, damage, and the law that every line has one owner.

use proptest::prelude::*;

use super::{Diff, Ending, FileDiff, Form, Owner, Side, read, read_bytes};
use crate::patch::types::Touch;

const INVENTORY: &str = include_str!("../../../tests/artefacts/A38_patch_inventory.diff");

/// One line for each file: path, touch, lines added and removed, similarity.
fn summary(diff: &Diff) -> Vec<String> {
    diff.files.iter().map(file_line).collect()
}

fn file_line(file: &FileDiff) -> String {
    let touch = match file.touch() {
        Touch::Renamed { from } => format!("renamed {} {from}", file.similarity.unwrap_or_default()),
        Touch::Copied { from } => format!("copied {} {from}", file.similarity.unwrap_or_default()),
        Touch::Mode { from, to } => format!("mode {from} {to}"),
        other => format!("{other:?}").to_lowercase(),
    };
    format!("{} | {touch} | +{} -{}", file.path(), file.count(Side::Added), file.count(Side::Removed))
}

fn check(text: &str, expect: &[&str]) {
    let diff = read(text);
    assert_eq!(summary(&diff), expect, "{text}");
    assert_eq!(diff.remarks, [], "{text}");
    whole(text, &diff);
}

fn check_remarks(text: &str, files: &[&str], remarks: &[(u32, &str)]) {
    let diff = read(text);
    assert_eq!(summary(&diff), files, "{text}");
    let found: Vec<_> = diff.remarks.iter().map(|remark| (remark.line, remark.text.as_str())).collect();
    assert_eq!(found.len(), remarks.len(), "{found:?}");
    for ((line, text), (expect_line, part)) in found.iter().zip(remarks) {
        assert_eq!(line, expect_line, "{found:?}");
        assert!(text.contains(part), "{text:?} has no {part:?}");
    }
    whole(text, &diff);
}

/// The law: every line of the text belongs to exactly one part, and every part that is named exists.
fn whole(text: &str, diff: &Diff) {
    let lines = text.split('\n').count() - usize::from(text.is_empty() || text.ends_with('\n'));
    let mut next = 1;
    for run in &diff.owners {
        assert_eq!(run.first, next, "{:?}", diff.owners);
        assert!(run.last >= run.first);
        next = run.last + 1;
        match run.owner {
            Owner::Commit(index) => assert!(index < diff.commits.len()),
            Owner::File(index) => assert!(index < diff.files.len()),
            Owner::Hunk { file, hunk } => assert!(hunk < diff.files[file].hunks.len()),
            Owner::Remark(index) => assert!(index < diff.remarks.len()),
        }
    }
    assert_eq!(next as usize - 1, lines, "{:?}", diff.owners);
    for (file, entry) in diff.files.iter().enumerate() {
        for (hunk, body) in entry.hunks.iter().enumerate() {
            let owner = Owner::Hunk { file, hunk };
            let owned: u32 = diff.owners.iter().filter(|run| run.owner == owner).map(|r| r.last - r.first + 1).sum();
            assert!(owned as usize > body.lines.len(), "a hunk owns its header and its lines");
        }
    }
}

#[test]
fn the_inventory_of_the_incident() {
    check(
        INVENTORY,
        &[
            "docs/perf.png | binary | +0 -0",
            "python/sglang/srt/entrypoints/openai/serving_chat.py | modified | +1 -1",
            "python/sglang/srt/layers/attention/dsv4/indexer_sm120.py | renamed 86 python/sglang/srt/layers/attention/dsv4/indexer.py | +4 -1",
            "python/sglang/srt/layers/attention/flash_mla_sm120_triton.py | added | +8 -0",
            "python/sglang/srt/layers/moe/hash_topk.py | modified | +2 -1",
            "python/sglang/srt/models/deepseek_v4.py | modified | +2 -1",
            "scripts/serve dsv4.sh | mode 100644 100755 | +0 -0",
        ],
    );
    let diff = read(INVENTORY);
    let chat = &diff.files[1].hunks[0];
    assert_eq!(chat.lines.last().unwrap().ending, Ending::Missing);
    let mixing = &diff.files[5].hunks[0];
    assert_eq!(mixing.section, "class DeepseekV4DecoderLayer(nn.Module):");
    let added: Vec<u32> = mixing.lines.iter().filter(|line| line.side == Side::Added).map(|line| line.new).collect();
    assert_eq!(added, [1241, 1242]);
}

#[test]
fn every_form_of_a_header() {
    check("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", &["x | mode 100644 100755 | +0 -0"]);
    check(
        "diff --git \"a/\\303\\244 b.py\" \"b/\\303\\244 b.py\"\n--- \"a/\\303\\244 b.py\"\n+++ \"b/\\303\\244 b.py\"\n@@ -1 +1 @@\n-a\n+b\n",
        &["ä b.py | modified | +1 -1"],
    );
    check(
        "diff --git a/a b/c d b/a b/c d\nold mode 100644\nnew mode 100755\n",
        &["a b/c d | mode 100644 100755 | +0 -0"],
    );
    check("diff --git a/a b b/a b\n--- a/a b\t\n+++ b/a b\t\n@@ -1 +1 @@\n-a\n+b\n", &["a b | modified | +1 -1"]);
    check("diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n", &["n | renamed 100 o | +0 -0"]);
    check(
        "diff --git a/o b/n\nsimilarity index 90%\ncopy from o\ncopy to n\n--- a/o\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n",
        &["n | copied 90 o | +1 -1"],
    );
    check("diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n", &["e | added | +0 -0"]);
    check("diff --git a/e b/e\ndeleted file mode 100644\nindex e69de29..0000000\n", &["e | deleted | +0 -0"]);
    check(
        "diff --git a/e b/e\ndeleted file mode 100644\nindex 1..0\n--- a/e\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
        &["e | deleted | +0 -1"],
    );
    check("diff --git i/x w/x\n--- i/x\n+++ w/x\n@@ -1 +1 @@\n-a\n+b\n", &["x | modified | +1 -1"]);
    check("diff --git x.py x.py\n--- x.py\n+++ x.py\n@@ -1 +1 @@\n-a\n+b\n", &["x.py | modified | +1 -1"]);
    check(
        "--- old/x.py\t2026-01-01 10:00:00\n+++ new/x.py\t2026-01-02 10:00:00\n@@ -1 +1 @@\n-a\n+b\n",
        &["new/x.py | modified | +1 -1"],
    );
    check(
        "diff -ruN old/x new/x\n--- old/x\t1970-01-01 00:00:00.000000000 +0000\n+++ new/x\t2026-01-02 10:00:00\n@@ -0,0 +1 @@\n+b\n",
        &["new/x | added | +1 -0"],
    );
    check(
        "Index: src/x.c\n===================================================================\n--- src/x.c\t(revision 7)\n+++ src/x.c\t(working copy)\n@@ -1 +1 @@\n-a\n+b\n",
        &["src/x.c | modified | +1 -1"],
    );
    check("Binary files a/x.so and b/x.so differ\n", &["x.so | binary | +0 -0"]);
    check(
        "diff --git a/x.bin b/x.bin\nindex 1..2 100644\nGIT binary patch\nliteral 5\nMc$_abc\n\nliteral 3\nKcmZ\n\ndiff --git a/y b/y\nold mode 100644\nnew mode 100755\n",
        &["x.bin | binary | +0 -0", "y | mode 100644 100755 | +0 -0"],
    );
    check(
        "diff --git a/s b/s\nindex 1..2 160000\n--- a/s\n+++ b/s\n@@ -1 +1 @@\n-Subproject commit 11\n+Subproject commit 22\n",
        &["s | modified | +1 -1"],
    );
}

#[test]
fn lines_that_look_like_headers_are_counted_out() {
    // A removed line `-- a` and an added line `++ b` look like the marks of a file.
    check(
        "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n x\n--- a\n+++ b\n@@ -9 +9 @@\n-c\n+d\n",
        &["q.sql | modified | +2 -2"],
    );
    check("--- a/q\n+++ b/q\n@@ -1,3 +1,2 @@\n x\n---\n y\n", &["q | modified | +0 -1"]);
}

#[test]
fn endings_are_kept() {
    let diff = read("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\r\n+b\r\n c\n\\ No newline at end of file\n");
    let endings: Vec<Ending> = diff.files[0].hunks[0].lines.iter().map(|line| line.ending).collect();
    assert_eq!(endings, [Ending::CrLf, Ending::CrLf, Ending::Missing]);
    assert_eq!(diff.files[0].hunks[0].lines[1].text, "b");
    let whole_text = "diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n";
    check_remarks(whole_text, &["x | modified | +1 -1"], &[(1, "ends with CR LF")]);
}

#[test]
fn damage_is_told_and_what_is_whole_is_kept() {
    check_remarks(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n@@ -9,3 +9,3 @@\n c\n-d\n",
        &["x | modified | +1 -2"],
        &[(6, "this hunk ends before")],
    );
    // The next file begins in the middle of a hunk.
    check_remarks(
        "--- a/x\n+++ b/x\n@@ -1,5 +1,5 @@\n-a\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
        &["x | modified | +0 -1", "y | modified | +1 -1"],
        &[(3, "this hunk ends before")],
    );
    check_remarks(
        "hello\nworld\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n+c\n",
        &["x | modified | +1 -1"],
        &[(1, "`hello`"), (8, "`+c`")],
    );
    check_remarks("--- a/x\n+++ b/x\n@@ -1,x +1 @@\n-a\n", &["x | modified | +0 -0"], &[(3, "@@ -1,x")]);
    check_remarks("--- a/x\n+++ b/x\n@@ -99999999999 +1 @@\n-a\n", &["x | modified | +0 -0"], &[(3, "@@ -9999")]);
    check_remarks(
        "diff --git a/x b/x\n--- a/x\n+++ b/x\nnoise\n@@ -1 +1 @@\n-a\n+b\n",
        &["x | modified | +1 -1"],
        &[(4, "`noise`")],
    );
    check_remarks("Only in new: x.py\n", &[], &[(1, "`Only in new: x.py`")]);
    check("", &[]);
    let diff = read_bytes(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-\xff\n+b\xfe\n");
    assert_eq!(diff.files[0].count(Side::Added), 1);
    assert_eq!((diff.remarks[0].line, diff.remarks[0].text.contains("in 1 more lines")), (4, true));
}

#[test]
fn a_merge_is_shown_and_not_analysed() {
    let text =
        "diff --cc f.py\nindex 1,2..3\n--- a/f.py\n+++ b/f.py\n@@@ -1,2 -1,2 +1,3 @@@\n  a\n- b\n -c\n++d\n++e\n";
    let text = &format!("{text}diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n");
    check_remarks(text, &["f.py | combined | +0 -0", "y | modified | +1 -1"], &[(1, "combined diff of a merge")]);
    assert_eq!(read(text).files[0].form, Form::Combined);
    check_remarks("diff --combined f\n@@@ -1 -1 +1 @@@\n", &["f | combined | +0 -0"], &[(1, "`f` is the combined")]);
}

const LOG: &str = "commit 1111111111111111111111111111111111111111 (HEAD -> main, tag: v1)\nMerge: 1 2\nAuthor: A <a@b>\nDate:   now\n\n    Lower mixing to bf16\n\n    More words.\n    commit 2222222\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n\ncommit 3333333333333333333333333333333333333333\nAuthor: A <a@b>\nDate:   now\n\n    Nothing\n\ncommit 4444444444444444444444444444444444444444\nAuthor: A <a@b>\n\n    Mode\n\ndiff --git a/y b/y\nold mode 100644\nnew mode 100755\n";

const MAILS: &str = "From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nDate: now\nSubject: [PATCH 1/2] Lower the mixing of the hyper\n connections\n\nWords.\n---\n x | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\ndiff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39.2\n\nFrom 2222222222222222222222222222222222222222 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH 2/2] =?UTF-8?q?gr=C3=B6=C3=9Fer?=\n =?UTF-8?q?=20wie?=\n\n---\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1,2 +1,1 @@\n a\n-b\n-- \n2.39.2\n\n";

fn check_commits(text: &str, commits: &[(&str, &str)], files: &[Option<usize>]) {
    let diff = read(text);
    let found: Vec<(&str, &str)> = diff.commits.iter().map(|c| (&c.hash[..2], c.subject.as_str())).collect();
    assert_eq!(found, commits);
    assert_eq!(diff.files.iter().map(|file| file.commit).collect::<Vec<_>>(), files);
    assert_eq!(diff.remarks, []);
    whole(text, &diff);
}

#[test]
fn commits_are_origins() {
    check_commits(LOG, &[("11", "Lower mixing to bf16"), ("33", "Nothing"), ("44", "Mode")], &[Some(0), Some(2)]);
    let subjects = [("11", "Lower the mixing of the hyper connections"), ("22", "größer wie")];
    check_commits(MAILS, &subjects, &[Some(0), Some(1)]);
    assert_eq!(read(MAILS).files[1].count(Side::Removed), 1, "the signature is no removed line");
    check_commits("commit abcdef1\n\n    s\n", &[("ab", "s")], &[]);
    let prose = "commit abcdef1 was wrong\n";
    assert_eq!(read(prose).commits, []);
    assert_eq!(read(prose).remarks.len(), 1);
}

/// Lines that matter to the reader, and some that do not.
fn fragment() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "diff --git a/x b/x",
        "diff --git a/y z b/y z",
        "diff --cc m",
        "--- a/x",
        "+++ b/x",
        "--- /dev/null",
        "@@ -1 +1 @@",
        "@@ -1,3 +1,2 @@ def f():",
        "@@ -0,0 +1,4 @@",
        "@@@ -1 -1 +1,2 @@@",
        "@@ -x +y @@",
        "-a",
        "+b",
        " c",
        "",
        "\r",
        "\\ No newline",
        "commit 1111111111111111111111111111111111111111",
        "From 1111111111111111111111111111111111111111 Mon",
        "Subject: s",
        "    m",
        "-- ",
        "2.39",
        "old mode 100644",
        "new mode 100755",
        "rename from x",
        "rename to \"q",
        "similarity index 86%",
        "Binary files a/x and b/x differ",
        "GIT binary patch",
        "literal 4",
        "Index: x",
        "======",
        "Only in a: b",
        "---",
        "+++ ",
    ]);
    prop_oneof![9 => fixed.prop_map(str::to_owned), 1 => ".{0,12}".prop_map(|text| text.replace('\n', " "))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost(lines in prop::collection::vec(fragment(), 0..40), end in any::<bool>()) {
        let text = lines.join("\n") + if end { "\n" } else { "" };
        whole(&text, &read(&text));
    }

    #[test]
    fn nothing_is_lost_of_a_real_diff_that_is_cut_or_hurt(cut in 0..4000_usize, at in 0..80_usize, hurt in fragment()) {
        let mut cut = cut.min(INVENTORY.len());
        while !INVENTORY.is_char_boundary(cut) {
            cut -= 1;
        }
        whole(&INVENTORY[..cut], &read(&INVENTORY[..cut]));
        let mut lines: Vec<&str> = INVENTORY.lines().collect();
        lines.insert(at.min(lines.len()), &hurt);
        let text = lines.join("\n");
        whole(&text, &read(&text));
    }

    #[test]
    fn what_another_reader_makes_of_a_made_diff_is_read_the_same(old in text(), new in text()) {
        let patch = diffy::create_patch(&old, &new).to_string();
        let ours = read(&patch);
        whole(&patch, &ours);
        prop_assert_eq!(&ours.remarks, &vec![]);
        let theirs = diffy::Patch::from_str(&patch).unwrap();
        let hunks = ours.files.first().map(|file| file.hunks.as_slice()).unwrap_or_default();
        prop_assert_eq!(hunks.len(), theirs.hunks().len());
        for (ours, theirs) in hunks.iter().zip(theirs.hunks()) {
            prop_assert!(ours.complete);
            let ours: Vec<(Side, String)> = ours.lines.iter().map(|line| (line.side, spelled(line))).collect();
            let theirs: Vec<(Side, String)> = theirs.lines().iter().map(their_line).collect();
            prop_assert_eq!(ours, theirs);
        }
    }
}

fn spelled(line: &super::Line) -> String {
    let ending = match line.ending {
        Ending::Lf => "\n",
        Ending::CrLf => "\r\n",
        Ending::Missing => "",
    };
    line.text.clone() + ending
}

fn their_line(line: &diffy::Line<'_, str>) -> (Side, String) {
    match line {
        diffy::Line::Context(text) => (Side::Context, (*text).to_owned()),
        diffy::Line::Delete(text) => (Side::Removed, (*text).to_owned()),
        diffy::Line::Insert(text) => (Side::Added, (*text).to_owned()),
    }
}

/// A small file, with or without a last line feed, some lines of which look like marks.
fn text() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec!["a", "b", "-- a", "++ b", "", "x\r", "@@ -1 +1 @@", "\\ no"]);
    (prop::collection::vec(line, 0..12), any::<bool>())
        .prop_map(|(lines, end)| lines.join("\n") + if end && !lines.is_empty() { "\n" } else { "" })
}
