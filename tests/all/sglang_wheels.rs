//! Measures the reader of gates on the diff between two releases of a real engine.
//!
//! The folders of the two unpacked wheels come from `PATCHBENCH_SGLANG_WHEELS`, `OLD:NEW`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use patchbench::patch::diff::{self, FileDiff, Side};
use patchbench::patch::gates::{self, Registry};
use patchbench::patch::inventory;
use patchbench::patch::language::{Language, Source};
use patchbench::patch::types::{GateDefault, GateKind};

const TRUTH: &str = include_str!("../data/gates_truth.tsv");
const VARIABLE: &str = "PATCHBENCH_SGLANG_WHEELS";

/// A read: file, line, name, kind.
type Read = (String, u32, String, String);

struct Truth {
    files: BTreeSet<String>,
    reads: BTreeMap<Read, String>,
    others: BTreeSet<(String, u32, String)>,
}

fn truth() -> Truth {
    let mut truth = Truth { files: BTreeSet::new(), reads: BTreeMap::new(), others: BTreeSet::new() };
    for row in TRUTH.lines().filter(|row| !row.starts_with('#')) {
        // Empty cells at the end of a row are left out.
        let mut cells: Vec<&str> = row.split('\t').collect();
        cells.resize(6, "");
        let [what, file, line, name, kind, default] = cells[..] else { panic!("{row}") };
        let at = || line.parse::<u32>().unwrap();
        match what {
            "file" => _ = truth.files.insert(file.to_owned()),
            "read" => {
                let read = (file.to_owned(), at(), name.to_owned(), kind.to_owned());
                assert!(truth.reads.insert(read, default.to_owned()).is_none(), "twice: {row}");
            }
            "not-read" => _ = truth.others.insert((file.to_owned(), at(), name.to_owned())),
            other => panic!("{other}"),
        }
    }
    truth
}

fn wheels() -> Option<(PathBuf, PathBuf)> {
    let value = std::env::var(VARIABLE).ok()?;
    let (old, new) = value.split_once(':')?;
    Some((PathBuf::from(old).join("sglang"), PathBuf::from(new).join("sglang")))
}

fn made(old: &Path, new: &Path) -> Vec<u8> {
    let mut git = Command::new("git");
    git.args(["-c", "core.quotePath=false", "diff", "--no-index", "--no-color", "--no-ext-diff"]).arg(old).arg(new);
    git.output().expect("git runs").stdout
}

fn kind(kind: GateKind) -> Option<&'static str> {
    match kind {
        GateKind::Environ => Some("environ"),
        GateKind::Helper => Some("helper"),
        GateKind::Registry => Some("registry"),
        _ => None,
    }
}

fn default(default: &GateDefault) -> String {
    match default {
        GateDefault::Written(text) => text.clone(),
        GateDefault::Unset => "unset".to_owned(),
        GateDefault::Required => "required".to_owned(),
        GateDefault::Unknown => "unknown".to_owned(),
    }
}

/// Reads in the added lines of a file: on the whole new file, or on each hunk alone.
fn reads_of(file: &FileDiff, name: &str, whole: Option<&str>) -> BTreeMap<Read, String> {
    let Some(language) = Language::of_path(name) else { return BTreeMap::new() };
    let mut reads = BTreeMap::new();
    let mut keep = |source: &Source, added: &[u32]| {
        let found = gates::reads(source, name, &Registry::default());
        for found in gates::touching(&found, added) {
            let Some(kind) = kind(found.read.kind) else { continue };
            let line = found.read.place.line.unwrap();
            // A read of a constant's definition is placed there.
            if found.lines.0 == line {
                let read = (name.to_owned(), line, found.read.name.clone(), kind.to_owned());
                reads.insert(read, default(&found.read.default));
            }
        }
    };
    let added = |lines: &[diff::Line]| -> Vec<u32> {
        lines.iter().filter(|line| line.side == Side::Added).map(|line| line.new).collect()
    };
    if let Some(text) = whole {
        let source = Source::whole(language, text).unwrap();
        let lines: Vec<u32> = file.hunks.iter().flat_map(|hunk| added(&hunk.lines)).collect();
        keep(&source, &lines);
        return reads;
    }
    for hunk in &file.hunks {
        let new: Vec<(u32, &str)> =
            hunk.lines.iter().filter(|l| l.side != Side::Removed).map(|l| (l.new, l.text.as_str())).collect();
        keep(&Source::fragment(language, &new, &hunk.section).unwrap(), &added(&hunk.lines));
    }
    reads
}

struct Score {
    precision: f64,
    recall: f64,
    defaults: f64,
}

fn score(truth: &Truth, found: &BTreeMap<Read, String>, title: &str) -> Score {
    let right = found.keys().filter(|read| truth.reads.contains_key(*read)).count();
    for read in found.keys().filter(|read| !truth.reads.contains_key(*read)) {
        println!("{title}: not in the list: {read:?}");
    }
    for read in truth.reads.keys().filter(|read| !found.contains_key(*read)) {
        println!("{title}: missed: {read:?}");
    }
    for (file, line, name) in &truth.others {
        assert!(!found.keys().any(|read| (&read.0, read.1, &read.2) == (file, *line, name)), "no read: {file}:{line}");
    }
    let mut agree = 0;
    for (read, default) in found.iter().filter(|(read, _)| truth.reads.contains_key(*read)) {
        agree += usize::from(truth.reads[read] == *default);
        if truth.reads[read] != *default {
            println!("{title}: default of {read:?} is {}, read as {default}", truth.reads[read]);
        }
    }
    let score = Score {
        precision: right as f64 / found.len().max(1) as f64,
        recall: right as f64 / truth.reads.len() as f64,
        defaults: agree as f64 / right.max(1) as f64,
    };
    println!(
        "{title}: {} listed, {} found, {right} right: precision {:.3}, recall {:.3}, defaults {:.3}",
        truth.reads.len(),
        found.len(),
        score.precision,
        score.recall,
        score.defaults
    );
    score
}

/// Takes the whole inventory with the whole files, and prints what it holds.
fn inventory_of(diff: &diff::Diff, prefix: &str, new: &Path) {
    let mut texts = BTreeMap::new();
    for file in diff.files.iter().filter(|file| file.new.is_some()) {
        let name = file.path().trim_start_matches('/').strip_prefix(prefix).unwrap();
        if Language::of_path(name).is_some() {
            let text = fs_err::read(new.join(name)).unwrap();
            texts.insert(file.path().to_owned(), String::from_utf8_lossy(&text).into_owned());
        }
    }
    let start = Instant::now();
    let found = inventory::take(diff, &texts);
    let entries = &found.entries;
    let with = |what: &str, count: usize| println!("  {count} entries with {what}");
    println!("inventory: {} entries in {:.2?}, {} remarks", entries.len(), start.elapsed(), found.remarks.len());
    with("a function", entries.iter().filter(|entry| !entry.symbols.is_empty()).count());
    with("gates", entries.iter().filter(|entry| !entry.gates.is_empty()).count());
    with("changed types", entries.iter().filter(|entry| !entry.dtypes.is_empty()).count());
    with("kernels", entries.iter().filter(|entry| !entry.kernels.is_empty()).count());
    with("phases", entries.iter().filter(|entry| !entry.phases.is_empty()).count());
    with("signals", entries.iter().filter(|entry| !entry.signals.is_empty()).count());
    let mut signals: BTreeMap<String, usize> = BTreeMap::new();
    for fact in entries.iter().flat_map(|entry| &entry.signals) {
        *signals.entry(format!("{:?}", fact.value)).or_default() += 1;
    }
    println!("  signals by line: {signals:?}");
    let parts: usize = found.groups.iter().map(|group| group.parts.len()).sum();
    assert_eq!(parts, diff.files.iter().map(|file| file.hunks.len() + 1).sum::<usize>());
}

#[test]
fn gates_of_two_releases_against_a_list_made_by_hand() {
    let Some((old, new)) = wheels() else {
        println!("SKIP gates_of_two_releases_against_a_list_made_by_hand: {VARIABLE} names no OLD:NEW");
        return;
    };
    let truth = truth();
    assert!(truth.reads.len() >= 50);
    let start = Instant::now();
    let bytes = made(&old, &new);
    let git = start.elapsed();
    let start = Instant::now();
    let diff = diff::read_bytes(&bytes);
    let parse = start.elapsed();
    let prefix = format!("{}/", new.display()).trim_start_matches('/').to_owned();
    println!(
        "{} bytes, {} files, {} hunks, {} remarks; git {git:.2?}, read {parse:.2?}",
        bytes.len(),
        diff.files.len(),
        diff.files.iter().map(|file| file.hunks.len()).sum::<usize>(),
        diff.remarks.len()
    );
    for remark in diff.remarks.iter().take(10) {
        println!("remark: line {}: {}", remark.line, remark.text);
    }
    let (mut whole, mut alone) = (BTreeMap::new(), BTreeMap::new());
    let (mut all, mut wholes) = (0, std::time::Duration::ZERO);
    let (mut added, mut languages) = (0, BTreeMap::new());
    for file in diff.files.iter().filter(|file| file.new.is_some()) {
        let path = file.path().trim_start_matches('/');
        let Some(name) = path.strip_prefix(&prefix) else { panic!("{path} is not below {prefix}") };
        added += file.count(Side::Added);
        *languages.entry(Language::of_path(name)).or_insert(0) += 1;
        let text = fs_err::read(new.join(name)).unwrap();
        let text = String::from_utf8_lossy(&text);
        let start = Instant::now();
        let reads = reads_of(file, name, Some(&text));
        wholes += start.elapsed();
        all += reads.len();
        if truth.files.contains(name) {
            whole.extend(reads);
            alone.extend(reads_of(file, name, None));
        }
    }
    println!("{added} added lines, files by language {languages:?}; {all} reads in added lines, {wholes:.2?}");
    inventory_of(&diff, &prefix, &new);
    let score_whole = score(&truth, &whole, "whole files");
    let score_alone = score(&truth, &alone, "hunks alone");
    assert!(score_whole.precision >= 0.95 && score_whole.recall >= 0.90 && score_whole.defaults >= 0.95);
    assert!(score_alone.precision >= 0.95 && score_alone.recall >= 0.90);
}
