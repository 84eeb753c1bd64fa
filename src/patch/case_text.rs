//! Imported patches as `[[patch]]` entries of a case file, each line with where it was read. Pure.
//!
//! Not responsible for which of them a case should name: a person reads the text before it becomes part of a case.

use std::fmt::Write as _;

use super::types::{Entry, GateDefault, GateKind, GateRead, Place, Signal};
use crate::untrusted::visible_lines;

/// The entries as text for a case file.
pub fn case_text(entries: &[Entry]) -> String {
    entries.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(entry: &Entry) -> String {
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
    gate(&mut out, entry);
    let changes: Vec<String> = changes(entry).iter().map(|(what, how)| format!("{what} = {}", quoted(how))).collect();
    if !changes.is_empty() {
        line(&mut out, "changes", &format!("{{ {} }}", changes.join(", ")), None);
    }
    out
}

/// The gate of the only variable that the change reads; where there are several, a person must choose.
fn gate(out: &mut String, entry: &Entry) {
    let variables: Vec<&GateRead> = entry
        .gates
        .iter()
        .filter(|g| matches!(g.kind, GateKind::Environ | GateKind::Helper | GateKind::Registry))
        .collect();
    let mut names: Vec<&str> = variables.iter().map(|g| g.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match (&names[..], variables.first()) {
        ([name], Some(read)) => {
            let (on, off) = levels(read);
            let text = format!("{{ env = {}, levels = {{ on = {on}, off = {off} }} }}", quoted(name));
            let default = match &read.default {
                GateDefault::Written(text) => format!("default {text}"),
                GateDefault::Unset => "default unset".into(),
                GateDefault::Required => "required".into(),
                GateDefault::Unknown => "default not said here".into(),
            };
            line(out, "gate", &text, Some(&format!("{}, {default}", shown(&read.place))));
            line(out, "suspect", "\"on\"", None);
        }
        ([], _) => line(out, "gate", "\"none\"", Some("no variable is read in what it changes")),
        (several, _) => {
            let all = several.join(", ");
            line(out, "gate", "\"none\"", Some(&format!("TODO: which of {all} switches it, and which levels it has")));
        }
    }
}

/// The values that switch it on and off: what is on by default is switched off by a value.
fn levels(read: &GateRead) -> (&'static str, &'static str) {
    let on_by_default = match &read.default {
        GateDefault::Written(text) => {
            let text = text.trim_matches(['"', '\'']).to_ascii_lowercase();
            matches!(text.as_str(), "1" | "true" | "yes" | "y" | "on")
        }
        GateDefault::Unset | GateDefault::Required | GateDefault::Unknown => false,
    };
    if on_by_default { ("{ unset = true }", "\"0\"") } else { ("\"1\"", "{ unset = true }") }
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

    const A38: &[u8] = include_bytes!("../../tests/artefacts/A38_patch_inventory.diff");

    #[test]
    fn imported_patches_become_entries_that_a_case_reads() {
        let entries = imported(A38, None, "a.diff").entries;
        let target = "name = \"x\"\n[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:1\"\n";
        let text = format!("{target}{}", case_text(&entries));
        let (case, remarks) = read(&text, "case.toml");
        let case = case.unwrap_or_else(|| panic!("{remarks:#?}\n{text}"));
        assert_eq!(case.patches.len(), entries.len(), "{remarks:#?}");
        let gates: Vec<&str> = case.patches.iter().map(|p| p.gate.switch_name()).filter(|g| *g != "none").collect();
        assert_eq!(gates, ["SGLANG_SM120_TRITON_INDEXER", "SGLANG_SM120_MMA_FLASHMLA"]);
        let mhc = case.patches.iter().find(|p| p.changes.get("dtype").is_some_and(|d| d == "fp32 -> bf16"));
        assert!(mhc.is_some(), "{text}");
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
