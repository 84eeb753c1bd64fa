//! A patch that only the case file describes, as an entry that the rules can weigh. Pure.
//!
//! Not responsible for patches that were imported from a diff: those know more of themselves.

use std::collections::BTreeMap;

use super::types::{DtypeChange, Entry, Fact, GateDefault, GateKind, GateRead, Phase, Place, Signal};

/// What a case says of a patch, field by field as `case::Patch` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Id within the case.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// File, or file and line, of the change.
    pub site: Option<String>,
    /// Phases it can reach.
    pub phases: Vec<String>,
    /// The variable or flag that switches it; `None` where there is none, or where its diff is taken out.
    pub switch: Option<String>,
    /// What it changes: `kernel`, `dtype`, ….
    pub changes: BTreeMap<String, String>,
    /// Where all this stands, as `case.toml:31`.
    pub place: Place,
}

/// Words of `changes` and the signal that each is.
const SIGNALS: &[(&[&str], Signal)] = &[
    (&["accumulation", "reduction", "split-k"], Signal::Accumulation),
    (&["scale", "scaling"], Signal::Scale),
    (&["clamp"], Signal::Clamp),
    (&["constant"], Signal::Constant),
    (&["topk", "top-k", "sort"], Signal::TopK),
    (&["mask"], Signal::Mask),
    (&["index", "offset"], Signal::Index),
    (&["layout", "page", "stride"], Signal::Layout),
    (&["cache-key", "cache_key"], Signal::CacheKey),
    (&["transfer"], Signal::Transfer),
    (&["template"], Signal::Template),
    (&["parser"], Signal::Parser),
    (&["default"], Signal::DefaultOn),
];

/// The entry of a patch, and the words of the case that no rule understands.
pub fn entry(declared: &Declared) -> (Entry, Vec<String>) {
    let mut remarks = Vec::new();
    let at = declared.place.clone();
    let (path, line) = match declared.site.as_deref() {
        None => (at.path.clone(), at.line),
        Some(site) => split(site),
    };
    let place = Place { path: path.clone(), line };
    let said = |value: &str, text: String| Fact { value: value.to_owned(), place: place.clone(), text };
    let mut phases = BTreeMap::new();
    for word in &declared.phases {
        match Phase::parse(word) {
            Some(phase) => {
                let fact = Fact { value: "the case says so".to_owned(), place: at.clone(), text: word.clone() };
                phases.insert(phase, fact);
            }
            None => remarks.push(format!("`{word}` is no phase that a rule knows")),
        }
    }
    // A phase that is not understood may be any.
    if !remarks.is_empty() {
        phases.clear();
    }
    let (mut dtypes, mut kernels, mut signals) = (Vec::new(), Vec::new(), Vec::new());
    for (what, how) in &declared.changes {
        let text = format!("{what} = {how}");
        let key = what.to_ascii_lowercase();
        let signal = SIGNALS.iter().find(|(words, _)| words.iter().any(|w| key.contains(w)));
        match (key.as_str(), signal) {
            ("dtype", _) => {
                let (from, to) = how.split_once("->").map_or((None, how.as_str()), |(from, to)| (Some(from), to));
                let name = |text: &str| text.trim().to_owned();
                let value = DtypeChange { from: from.map(name), to: Some(name(to)) };
                dtypes.push(Fact { value, place: place.clone(), text });
            }
            ("kernel", _) => kernels.push(said(how, text)),
            (_, Some((_, signal))) => signals.push(Fact { value: *signal, place: place.clone(), text }),
            _ => remarks.push(format!("`{what}` is no change that a rule knows")),
        }
    }
    let gate = declared.switch.as_ref().map(|name| GateRead {
        name: name.clone(),
        kind: if name.starts_with('-') { GateKind::ServerArgs } else { GateKind::Helper },
        default: GateDefault::Unknown,
        place: at.clone(),
        text: "named by the case".into(),
    });
    let mut entry = Entry {
        gates: gate.into_iter().collect(),
        phases,
        dtypes,
        kernels,
        signals,
        ..Entry::of_file(&declared.id, &declared.title, &path)
    };
    if declared.site.is_none() {
        entry.files.clear();
    }
    (entry, remarks)
}

fn split(site: &str) -> (String, Option<u32>) {
    let split = site.rsplit_once(':').and_then(|(path, line)| Some((path, line.parse().ok()?)));
    split.map_or_else(|| (site.to_owned(), None), |(path, line)| (path.to_owned(), Some(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(phases: &[&str], changes: &[(&str, &str)]) -> (Entry, Vec<String>) {
        entry(&Declared {
            id: "p".into(),
            title: String::new(),
            switch: None,
            site: Some("python/sglang/srt/models/deepseek_v4.py:1244".into()),
            phases: phases.iter().map(|p| (*p).to_owned()).collect(),
            changes: changes.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            place: Place { path: "case.toml".into(), line: Some(31) },
        })
    }

    #[test]
    fn a_site_is_a_file_with_a_line() {
        let (entry, _) = declared(&[], &[("dtype", "fp32 -> bf16")]);
        assert_eq!(entry.files[0].path, "python/sglang/srt/models/deepseek_v4.py");
        assert_eq!(entry.dtypes[0].place.line, Some(1244));
        let change = DtypeChange { from: Some("fp32".into()), to: Some("bf16".into()) };
        assert_eq!(entry.dtypes[0].value, change);
    }

    #[test]
    fn phases_that_are_not_understood_are_all_phases_and_said() {
        let keys = |phases: &[&str]| {
            let (entry, remarks) = declared(phases, &[]);
            (entry.phases.into_keys().collect::<Vec<_>>(), remarks.len())
        };
        assert_eq!(keys(&["prefill", "decode"]), (vec![Phase::Extend, Phase::Decode], 0));
        assert_eq!(keys(&["decode", "sometimes"]), (vec![], 1));
    }

    #[test]
    fn changes_become_facts_and_none_is_dropped_silently() {
        let (entry, remarks) = declared(&[], &[("kernel", "triton"), ("page-size", "64"), ("mood", "bad")]);
        assert_eq!(entry.kernels[0].value, "triton");
        assert_eq!(entry.signals[0].value, Signal::Layout);
        assert_eq!(remarks, ["`mood` is no change that a rule knows"]);
    }
}
