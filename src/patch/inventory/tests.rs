//! Tests of grouping: the inventory of the incident, ids, and the laws of putting together and dividing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{By, Group, Inventory, Part, Regroup, merge, sides, split, take};
use crate::patch::diff::{Diff, read};
use crate::patch::types::{DtypeChange, GateDefault, GateKind, Origin, Phase, Signal, Touch};

const INVENTORY: &str = include_str!("../../../tests/artefacts/A38_patch_inventory.diff");

fn inventory(text: &str) -> Inventory {
    take(&read(text), &BTreeMap::new())
}

fn ids(groups: &[Group]) -> Vec<&str> {
    groups.iter().map(|group| group.id.as_str()).collect()
}

fn signals(entry: &crate::patch::types::Entry) -> Vec<Signal> {
    let mut found: Vec<Signal> = entry.signals.iter().map(|fact| fact.value).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn the_inventory_of_the_incident() {
    let inventory = inventory(INVENTORY);
    let [image, chat, indexer, kernel, topk, mixing, script] = inventory.entries.as_slice() else { panic!() };
    assert_eq!(
        ids(&inventory.groups),
        [
            "perf",
            "serving-chat",
            "indexer-sm120-forward-c4-indexer",
            "flash-mla-sm120-triton",
            "hash-topk-forward",
            "deepseek-v4-hc-pre",
            "serve-dsv4",
        ]
    );
    assert_eq!((&image.files[0].how, image.added, image.phases.len()), (&Touch::Binary, 0, 0));
    assert_eq!(signals(chat), [Signal::Template, Signal::DefaultOn]);
    assert!(chat.phases.contains_key(&Phase::Template) && chat.gates.is_empty() && chat.dtypes.is_empty());

    let gate = &indexer.gates[0];
    assert_eq!((gate.name.as_str(), gate.kind), ("SGLANG_SM120_TRITON_INDEXER", GateKind::Registry));
    assert_eq!((&gate.default, gate.place.line), (&GateDefault::Unknown, Some(76)));
    assert!(matches!(&indexer.files[0].how, Touch::Renamed { from } if from.ends_with("dsv4/indexer.py")));
    assert_eq!(indexer.dtypes[0].value, DtypeChange { from: None, to: Some("bf16".to_owned()) });

    let gate = &kernel.gates[0];
    assert_eq!((gate.name.as_str(), gate.kind), ("SGLANG_SM120_MMA_FLASHMLA", GateKind::Environ));
    assert_eq!(gate.default, GateDefault::Written("\"0\"".to_owned()));
    assert_eq!(kernel.gates.len(), 1, "the constant that holds the variable is no second gate");
    assert_eq!(kernel.asserts[0].value, "assert q.shape[1] == 1");
    assert_eq!(kernel.phases.keys().collect::<Vec<_>>(), [&Phase::Decode]);
    assert_eq!((kernel.added, kernel.removed, &kernel.files[0].how), (8, 0, &Touch::Added));

    assert_eq!(signals(topk), [Signal::Scale, Signal::AssertRemoved]);
    assert!(topk.gates.is_empty() && topk.phases.is_empty());

    assert!(mixing.gates.is_empty() && mixing.phases.is_empty());
    assert_eq!(mixing.symbols[0].value, "DeepseekV4DecoderLayer.hc_pre");
    let change = &mixing.dtypes[0];
    assert_eq!(change.value, DtypeChange { from: Some("fp32".to_owned()), to: Some("bf16".to_owned()) });
    assert_eq!(change.place.line, Some(1241));
    assert_eq!((mixing.added, mixing.removed), (2, 1));

    assert_eq!(script.files[0].how, Touch::Mode { from: "100644".to_owned(), to: "100755".to_owned() });
    assert_eq!(script.files[0].path, "scripts/serve dsv4.sh");
    assert_eq!(inventory.remarks, []);
}

const LOG: &str = "commit 1111111111111111111111111111111111111111\n\n    Add a kernel\n\ndiff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,4 @@\n def f():\n-    a = 1\n+    a = 2\n+    b = 3\n \n@@ -9,2 +10,2 @@\n def g():\n-    a = 1\n+    a = 2\ndiff --git a/y.py b/y.py\n--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-c = 1\n+c = 2\ncommit 2222222222222222222222222222222222222222\n\n    Add a kernel\n\ndiff --git a/x.py b/z.py\nsimilarity index 100%\nrename from x.py\nrename to z.py\n";

#[test]
fn commits_are_patches() {
    let found = inventory(LOG);
    assert_eq!(ids(&found.groups), ["add-a-kernel-1111111", "add-a-kernel-2222222"]);
    assert_eq!(found.entries[0].files.len(), 2);
    assert_eq!((found.entries[0].added, found.entries[0].removed), (4, 3));
    assert!(matches!(&found.entries[1].files[0].how, Touch::Renamed { from } if from == "x.py"));
    assert_eq!(inventory("").groups, []);
}

#[test]
fn ids_are_stable_and_unique() {
    let hunk = |path: &str, name: &str| {
        format!("--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n def {name}():\n-    a\n+    b\n")
    };
    let two = hunk("p/x.py", "f") + &hunk("q/x.py", "f") + &hunk("q/x.py", "g") + &hunk("q/x.py", "g");
    let first = inventory(&two);
    assert_eq!(first.groups, inventory(&two).groups);
    assert!(first.groups[0].id.starts_with("x-f-") && first.groups[1].id.starts_with("x-f-"));
    assert_ne!(first.groups[0].id, first.groups[1].id);
    assert_eq!(first.groups[2].id, "x-g", "the same function in two parts of a text is one patch");
    assert_eq!(first.groups[2].parts.len(), 4);
    assert_eq!(
        super::id::slug("Lower the MHC mixing to bf16, for speed (and much more of it)"),
        "lower-the-mhc-mixing-to-bf16-for-speed-and-much"
    );
    assert_eq!(super::id::slug("größer: 8"), "gr-er-8");
    assert_eq!(super::id::slug("…"), "");
}

#[test]
fn a_whole_file_tells_more_than_a_hunk() {
    let diff =
        read("--- a/p.py\n+++ b/p.py\n@@ -5,2 +5,3 @@ def f():\n         y = 1\n+        z = 2\n     return y\n");
    let text = "import os\nFAST = os.environ.get('FAST_X', '0') == '1'\ndef f():\n    if FAST:\n        y = 1\n        z = 2\n    return y\n";
    let entry = |texts: &[(&str, &str)]| {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        take(&diff, &texts)
    };
    assert_eq!(entry(&[]).entries[0].gates, []);
    let whole = entry(&[("p.py", text)]);
    assert_eq!(whole.entries[0].gates[0].name, "FAST_X");
    assert_eq!(whole.remarks, []);
    let other = entry(&[("p.py", "nothing")]);
    assert!(
        other.entries[0].gates.is_empty() && other.remarks[0].text.contains("`p.py` is not what the diff leads to")
    );
}

#[test]
fn a_registry_in_the_diff_gives_defaults() {
    let text = "--- a/srt/environ.py\n+++ b/srt/environ.py\n@@ -9,1 +9,2 @@ class Envs:\n     SGLANG_A = EnvBool(False)\n+    SGLANG_B = EnvBool(True)\n--- a/m.py\n+++ b/m.py\n@@ -1 +1,2 @@\n a\n+b = envs.SGLANG_B.get()\n";
    let found = inventory(text);
    assert_eq!(found.entries[1].gates[0].default, GateDefault::Written("True".to_owned()));
    assert_eq!(signals(&found.entries[0]), [Signal::DefaultOn]);
}

fn all_parts(groups: &[Group]) -> Vec<Part> {
    let mut parts: Vec<Part> = groups.iter().flat_map(|group| group.parts.iter().copied()).collect();
    parts.sort_unstable();
    parts
}

fn every_part(diff: &Diff) -> Vec<Part> {
    diff.files.iter().enumerate().flat_map(|(index, file)| super::group::parts(index, file)).collect()
}

#[test]
fn a_commit_is_divided_and_still_named() {
    let diff = read(LOG);
    let sides = sides(&diff, &BTreeMap::new());
    let groups = take(&diff, &BTreeMap::new()).groups;
    let by = |by| split(&groups, &diff, &sides, "add-a-kernel-1111111", by).unwrap();
    assert_eq!(ids(&by(By::File)), ["x", "y", "add-a-kernel-2222222"]);
    assert_eq!(ids(&by(By::Function)), ["x-f", "x-g", "y", "add-a-kernel-2222222"]);
    let hunks = by(By::Hunk);
    assert_eq!(hunks.len(), 4);
    assert!(hunks[0].id.starts_with("x-") && hunks[1].id.ends_with("-2"), "{:?}", ids(&hunks));
    for group in by(By::Function).iter().take(3) {
        assert!(matches!(&group.origin, Origin::Hunks { commit: Some(hash), .. } if hash.starts_with("11")));
    }
    let back = merge(&by(By::Function), &["x-f", "x-g", "y"], "Add a kernel again").unwrap();
    assert_eq!(ids(&back), ["add-a-kernel-again", "add-a-kernel-2222222"]);
    assert_eq!(back[0].parts, groups[0].parts);
    let entry = |groups: &[Group]| {
        let registry = super::registry(&diff, &sides, &BTreeMap::new());
        super::entry(&diff, &sides, &groups[0], &registry)
    };
    let (was, is) = (entry(&groups), entry(&back));
    assert_eq!((was.files, was.symbols, was.signals, was.added), (is.files, is.symbols, is.signals, is.added));
}

#[test]
fn what_cannot_be_grouped_anew_says_why() {
    let diff = read(INVENTORY);
    let sides = sides(&diff, &BTreeMap::new());
    let groups = take(&diff, &BTreeMap::new()).groups;
    assert_eq!(merge(&groups, &["perf", "no"], "a"), Err(Regroup::Unknown("no".to_owned())));
    assert_eq!(merge(&groups, &["perf", "perf"], "a"), Err(Regroup::TooFew));
    assert_eq!(merge(&groups, &["perf", "serve-dsv4"], "…"), Err(Regroup::NoWord("…".to_owned())));
    assert_eq!(merge(&groups, &["perf", "serve-dsv4"], "Serving chat"), Err(Regroup::Taken("serving-chat".to_owned())));
    assert_eq!(split(&groups, &diff, &sides, "no", By::File), Err(Regroup::Unknown("no".to_owned())));
    assert_eq!(split(&groups, &diff, &sides, "perf", By::Hunk), Err(Regroup::Whole("perf".to_owned())));
    let merged = merge(&groups, &["perf", "serve-dsv4"], "Perf").unwrap();
    assert!(matches!(&merged[0].origin, Origin::Several { parts } if parts.len() == 2));
}

proptest! {
    #[test]
    fn no_diff_breaks_the_inventory(lines in prop::collection::vec("([-+ ](    ){0,3}(def f\\(|class A:|if |envs\\.|os\\.environ\\[|x\\.float\\(\\)|[ -~é]{0,9}){0,4})", 1..20), name in prop::sample::select(vec!["a.py", "a.cu", "a.sh", "a.txt"]), cut in 0..9_usize) {
        let count = |mark| lines.iter().filter(|line| line.starts_with([' ', mark])).count();
        let (old, new, body) = (count('-'), count('+'), lines.join("\n"));
        let text = format!("--- a/{name}\n+++ b/{name}\n@@ -1,{old} +1,{} @@ def f(\n{body}\n", new + cut);
        let diff = read(&text);
        let found = take(&diff, &BTreeMap::new());
        prop_assert_eq!(all_parts(&found.groups), every_part(&diff));
        let added: u32 = found.entries.iter().map(|entry| entry.added).sum();
        prop_assert_eq!(added as usize, lines.iter().filter(|line| line.starts_with('+')).count());
    }

    #[test]
    fn grouping_anew_loses_nothing(steps in prop::collection::vec((0..12_usize, 0..12_usize, 0..4_u8), 0..12), log in any::<bool>()) {
        let diff = read(if log { LOG } else { INVENTORY });
        let sides = sides(&diff, &BTreeMap::new());
        let mut groups = take(&diff, &BTreeMap::new()).groups;
        let every = every_part(&diff);
        prop_assert_eq!(&all_parts(&groups), &every);
        for (number, (left, right, what)) in steps.into_iter().enumerate() {
            let (a, b) = (groups[left % groups.len()].id.clone(), groups[right % groups.len()].id.clone());
            let next = match what {
                0 => merge(&groups, &[&a, &b], &format!("step {number}")),
                1 => split(&groups, &diff, &sides, &a, By::File),
                2 => split(&groups, &diff, &sides, &a, By::Function),
                _ => split(&groups, &diff, &sides, &a, By::Hunk),
            };
            groups = next.unwrap_or(groups);
            prop_assert_eq!(&all_parts(&groups), &every);
            let mut names = ids(&groups);
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), groups.len());
        }
    }
}
