//! Imported patches as `[[patch]]` entries of a case file, each line with where it was read. Pure.
//!
//! Not responsible for which of them a case should name: a person reads the text before it becomes part of a case.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::types::{Entry, GateDefault, GateRead, Place, Signal};
use crate::case::{Gate, LevelValue};
use crate::untrusted::visible_lines;

/// The entries as text for a case file. `diffs`: the path of a diff of its own by id; what no variable switches is
/// switched by taking that out.
pub fn case_text(entries: &[Entry], diffs: &BTreeMap<String, String>) -> String {
    let diff = |entry: &Entry| diffs.get(&entry.id).map(String::as_str);
    entries.iter().map(|entry| one(entry, entries, diff(entry))).collect::<Vec<_>>().join("\n")
}

fn one(entry: &Entry, all: &[Entry], diff: Option<&str>) -> String {
    let mut out = "[[patch]]\n".to_owned();
    line(&mut out, "id", &quoted(&entry.id), None);
    line(&mut out, "title", &quoted(&entry.title), None);
    let site = entry.symbols.first().map(|s| shown(&s.place)).or_else(|| Some(entry.files.first()?.path.clone()));
    if let Some(site) = site {
        line(&mut out, "site", &quoted(&site), None);
    }
    if !entry.phases.is_empty() {
        let words: Vec<String> = entry.phases.keys().map(|p| quoted(p.word())).collect();
        let why: Vec<String> = entry.phases.values().map(|f| f.value.clone()).collect();
        line(&mut out, "phases", &format!("[{}]", words.join(", ")), Some(&why.join("; ")));
    }
    gate(&mut out, entry, all, diff);
    let changes: Vec<String> = changes(entry).iter().map(|(what, how)| format!("{what} = {}", quoted(how))).collect();
    if !changes.is_empty() {
        line(&mut out, "changes", &format!("{{ {} }}", changes.join(", ")), None);
    }
    out
}

/// The variables that a change reads.
fn variables(entry: &Entry) -> Vec<&str> {
    let mut names: Vec<&str> = entry.gates.iter().filter(|g| g.kind.is_variable()).map(|g| g.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The reads of a variable in all changes, the newest last: what counts is how the tree reads it in the end.
fn reads<'a>(all: &'a [Entry], name: &str) -> Vec<&'a GateRead> {
    all.iter().flat_map(|e| &e.gates).filter(|g| g.kind.is_variable()).filter(|g| g.name == name).collect()
}

/// How a change is switched: by the only variable that it reads; `None` where there is none or several.
pub fn gate_of(entry: &Entry, all: &[Entry]) -> Option<Gate> {
    let [name] = variables(entry)[..] else { return None };
    let on = || LevelValue::Set("1".into());
    let (on, off) = if is_on_by_default(reads(all, name).last()?) {
        (LevelValue::Unset, LevelValue::Set("0".into()))
    } else {
        (on(), LevelValue::Unset)
    };
    let levels = BTreeMap::from([("on".to_owned(), on), ("off".to_owned(), off)]);
    Some(Gate::Env { name: name.to_owned(), levels })
}

/// The gate of the only variable that the change reads; where there are several, a person must choose.
fn gate(out: &mut String, entry: &Entry, all: &[Entry], diff: Option<&str>) {
    match &variables(entry)[..] {
        [name] => {
            let reads = reads(all, name);
            let Some(read) = reads.last() else { return };
            let (on, off) = levels(read);
            let text = format!("{{ env = {}, levels = {{ on = {on}, off = {off} }} }}", quoted(name));
            let mut why = format!("{}, {}", shown(&read.place), default_words(read));
            if let Some(other) = reads.iter().find(|r| is_on_by_default(r) != is_on_by_default(read)) {
                why = format!("{why}; CAUTION: {} says {}", shown(&other.place), default_words(other));
            }
            let sharing: Vec<&str> =
                all.iter().filter(|e| e.id != entry.id && variables(e).contains(name)).map(|e| e.id.as_str()).collect();
            if !sharing.is_empty() {
                why = format!("{why}; CAUTION: it switches {} too", sharing.join(", "));
            }
            line(out, "gate", &text, Some(&why));
            line(out, "suspect", "\"on\"", None);
        }
        [] => match diff {
            Some(diff) => {
                let why = "no variable is read in what it changes, so the diff is taken out";
                line(out, "gate", &format!("{{ reverse = {} }}", quoted(diff)), Some(why));
            }
            None => line(out, "gate", "\"none\"", Some("no variable is read in what it changes")),
        },
        several => {
            let all = several.join(", ");
            line(out, "gate", "\"none\"", Some(&format!("TODO: which of {all} switches it, and which levels it has")));
        }
    }
}

fn default_words(read: &GateRead) -> String {
    match &read.default {
        GateDefault::Written(text) => format!("default {text}"),
        GateDefault::Unset => "default unset".into(),
        GateDefault::Required => "required".into(),
        GateDefault::Unknown => "default not said here".into(),
    }
}

/// The values that switch it on and off: what is on by default is switched off by a value.
fn levels(read: &GateRead) -> (&'static str, &'static str) {
    if is_on_by_default(read) { ("{ unset = true }", "\"0\"") } else { ("\"1\"", "{ unset = true }") }
}

fn is_on_by_default(read: &GateRead) -> bool {
    match &read.default {
        GateDefault::Written(text) => {
            let text = text.trim_matches(['"', '\'']).to_ascii_lowercase();
            matches!(text.as_str(), "1" | "true" | "yes" | "y" | "on")
        }
        GateDefault::Unset | GateDefault::Required | GateDefault::Unknown => false,
    }
}

fn changes(entry: &Entry) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if let Some(fact) = entry.dtypes.first() {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "?".into());
        out.push(("dtype".into(), format!("{} -> {}", side(&fact.value.from), side(&fact.value.to))));
    }
    if let Some(fact) = entry.kernels.first() {
        out.push(("kernel".into(), fact.value.clone()));
    }
    let words = [
        (Signal::Accumulation, "accumulation"),
        (Signal::Scale, "scale"),
        (Signal::Clamp, "clamp"),
        (Signal::Constant, "constant"),
        (Signal::TopK, "top-k"),
        (Signal::Mask, "mask"),
        (Signal::Index, "index"),
        (Signal::Layout, "layout"),
        (Signal::CacheKey, "cache-key"),
        (Signal::Transfer, "transfer"),
        (Signal::Template, "template"),
        (Signal::Parser, "parser"),
        (Signal::DefaultOn, "default"),
    ];
    for (signal, word) in words {
        if let Some(fact) = entry.signals.iter().find(|s| s.value == signal) {
            out.push((word.into(), format!("{}: {}", shown(&fact.place), fact.text)));
        }
    }
    out
}

fn shown(place: &Place) -> String {
    match place.line {
        Some(line) => format!("{}:{line}", place.path),
        None => place.path.clone(),
    }
}

fn line(out: &mut String, key: &str, value: &str, why: Option<&str>) {
    let why = why.map(|w| format!("  # {}", visible_lines(w).replace('\n', " "))).unwrap_or_default();
    let _ = writeln!(out, "{key} = {value}{why}");
}

/// A text as TOML has it, foreign characters made visible.
fn quoted(text: &str) -> String {
    toml::Value::String(visible_lines(text)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::read::read;
    use crate::patch::import::imported;
    use crate::patch::types::GateKind;

    const A38: &[u8] = include_bytes!("../../tests/artefacts/A38_patch_inventory.diff");

    #[test]
    fn imported_patches_become_entries_that_a_case_reads() {
        let entries = imported(A38, None, "a.diff").entries;
        let target = "name = \"x\"\n[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n";
        let text = format!("{target}{}", case_text(&entries, &BTreeMap::new()));
        let (case, remarks) = read(&text, "case.toml");
        let case = case.unwrap_or_else(|| panic!("{remarks:#?}\n{text}"));
        assert_eq!(case.patches.len(), entries.len(), "{remarks:#?}");
        let gates: Vec<&str> = case.patches.iter().map(|p| p.gate.switch_name()).filter(|g| *g != "none").collect();
        assert_eq!(gates, ["SGLANG_SM120_TRITON_INDEXER", "SGLANG_SM120_MMA_FLASHMLA"]);
        let mhc = case.patches.iter().find(|p| p.changes.get("dtype").is_some_and(|d| d == "fp32 -> bf16"));
        assert!(mhc.is_some(), "{text}");
    }

    #[test]
    fn what_no_variable_switches_is_switched_by_its_diff() {
        let entries = imported(A38, None, "a.diff").entries;
        let diffs = entries.iter().map(|e| (e.id.clone(), format!("d/{}.diff", e.id))).collect();
        let target = "name = \"x\"\n[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n";
        let (case, remarks) = read(&format!("{target}{}", case_text(&entries, &diffs)), "case.toml");
        let case = case.unwrap_or_else(|| panic!("{remarks:#?}"));
        for (patch, entry) in case.patches.iter().zip(&entries) {
            match variables(entry).len() {
                0 => assert_eq!(patch.gate, Gate::Reverse { diff: format!("d/{}.diff", entry.id) }),
                _ => assert!(!matches!(patch.gate, Gate::Reverse { .. }), "{}", patch.id),
            }
        }
        assert!(case.patches.iter().any(|p| matches!(p.gate, Gate::Reverse { .. })));
    }

    #[test]
    fn a_default_that_a_later_commit_turned_gave_levels_the_wrong_way_round() {
        let read = |default: &str, line| GateRead {
            name: "ENG_TRITON".into(),
            kind: GateKind::Environ,
            default: GateDefault::Written(default.into()),
            place: Place { path: "a.py".into(), line: Some(line) },
            text: String::new(),
        };
        let mut entries = imported(A38, None, "a.diff").entries;
        entries.truncate(2);
        entries[0].gates = vec![read("\"1\"", 1)];
        entries[1].gates = vec![read("\"0\"", 9)];
        for entry in &entries {
            let Some(Gate::Env { levels, .. }) = gate_of(entry, &entries) else { panic!() };
            assert_eq!((&levels["on"], &levels["off"]), (&LevelValue::Set("1".into()), &LevelValue::Unset));
        }
        let text = case_text(&entries, &BTreeMap::new());
        assert_eq!(text.matches("on = \"1\", off = { unset = true }").count(), 2, "{text}");
        assert!(text.contains("CAUTION: a.py:1 says default \"1\"; CAUTION: it switches"), "{text}");
    }

    #[test]
    fn what_is_on_by_default_is_switched_off_by_a_value() {
        for (default, expect) in [
            (GateDefault::Written("True".into()), ("{ unset = true }", "\"0\"")),
            (GateDefault::Written("\"1\"".into()), ("{ unset = true }", "\"0\"")),
            (GateDefault::Written("\"0\"".into()), ("\"1\"", "{ unset = true }")),
            (GateDefault::Unset, ("\"1\"", "{ unset = true }")),
        ] {
            let place = Place { path: "a.py".into(), line: Some(1) };
            let read = GateRead { name: "X".into(), kind: GateKind::Environ, default, place, text: String::new() };
            assert_eq!(levels(&read), expect);
        }
    }
}
