//! What each layer says of a variable or flag, and the row that becomes of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::Cells;
use super::names;
use super::view::View;
use crate::case::Gate;
use crate::redact;
use crate::remote::argv::{self, FlagValue, Word};
use crate::remote::proc::{Cmdline, Unknown};
use crate::truth::declared::{Declared, DeclaredFlag, Place, Text};
use crate::truth::observed::{Seen, SourceKind};
use crate::truth::{Claim, Known, Row, RowKind, flags};
use crate::untrusted::Untrusted;

/// What a layer says of one name, unredacted.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) value: Result<Option<String>, String>,
    pub(super) source: String,
    pub(super) line: Option<u32>,
    pub(super) blind_to: Option<String>,
    /// Places of further values that do not count, with their text.
    pub(super) also: Vec<(Place, String)>,
}

impl Said {
    fn at(
        place: &Place,
        value: Result<Option<String>, String>,
        blind_to: Option<String>,
        also: Vec<(Place, String)>,
    ) -> Self {
        Self { value, source: place.file.clone(), line: Some(place.line), blind_to, also }
    }

    fn claim(&self, name: &str) -> Claim {
        let (value, known) = match &self.value {
            Ok(value) => (value.as_deref().map(|v| Untrusted::from(redact::value(name, v))), Known::Yes),
            Err(because) => (None, Known::Unknown { because: redact::text(because) }),
        };
        Claim { value, known, source: self.source.clone(), line: self.line, blind_to: self.blind_to.clone() }
    }

    /// What is said; `None` is absent, an error is not known.
    pub(super) fn text(&self) -> Result<Option<&str>, &str> {
        self.value.as_ref().map(Option::as_deref).map_err(String::as_str)
    }
}

/// The claim that an observed statement makes.
pub(super) fn observed_claim(name: &str, seen: &Seen) -> Claim {
    Claim {
        value: Some(Untrusted::from(redact::value(name, &flags::shown(&seen.value)))),
        known: Known::Yes,
        source: seen.source.clone(),
        line: seen.line,
        blind_to: Some(seen.blind_to.clone()),
    }
}

/// Facts that a server reports beside its flags.
const FACTS: &[&str] = &[
    "max_total_num_tokens",
    "max_req_input_len",
    "startup_time",
    "version",
    "kv_events",
    "last_gen_throughput",
    "memory_usage",
    "effective_max_running_requests_per_dp",
    "status",
    "max_model_len",
    "prefill_chunk_seen",
    "available_gpu_mem",
    "n_ctx",
    "total_slots",
    "build_info",
];

/// A row for each variable that the files, the process or a patch name.
pub(super) fn variables(view: &View<'_>) -> Vec<Row> {
    let layers = view.layers;
    let mut all: BTreeSet<&str> = BTreeSet::new();
    for declared in layers.declaring() {
        all.extend(declared.variables.keys().map(String::as_str));
    }
    if let Some((_, Ok(environ), _)) = &layers.process {
        all.extend(environ.pairs.iter().map(|(n, _)| n.as_str()));
    }
    all.extend(view.patches.iter().filter_map(|p| p.gate.variable()));
    all.into_iter()
        .map(|name| {
            let cells = Cells {
                declared: declared_variable(layers.declared.as_ref(), name),
                replaced: declared_variable(layers.replaced.as_ref().map(|(_, d)| d), name),
                override_path: layers.replaced.as_ref().map(|(path, _)| path.clone()),
                effective: variable_of_process(view, name),
                observed: None,
            };
            let (status, note) = names::judge(view, name, &cells);
            row(view, name.to_owned(), RowKind::Env, &cells, status, note)
        })
        .collect()
}

fn declared_variable(declared: Option<&Declared>, name: &str) -> Option<Said> {
    let declared = declared?;
    let variable = declared.variables.get(name)?;
    let all = variable.all.iter().map(|(p, v)| (p.clone(), v.as_ref().map_or("unset", shown_text).to_owned()));
    let value = match &variable.value {
        Some(text) => known_text(text).map(Some),
        None => Ok(None),
    };
    Some(Said::at(&variable.place, value, declared.blind_to.clone(), earlier(&all.collect::<Vec<_>>())))
}

fn variable_of_process(view: &View<'_>, name: &str) -> Option<Said> {
    let (pid, environ, _) = view.layers.process.as_ref()?;
    Some(Said {
        value: environ.as_ref().map(|e| e.get(name).map(str::to_owned)).map_err(|Unknown(why)| why.clone()),
        source: format!("/proc/{pid}/environ"),
        line: None,
        blind_to: Some("what the process set by itself after its start".into()),
        also: Vec::new(),
    })
}

fn row(
    view: &View<'_>,
    name: String,
    kind: RowKind,
    cells: &Cells<'_>,
    status: crate::truth::RowStatus,
    note: String,
) -> Row {
    Row {
        target: view.layers.target.clone(),
        component: "server".into(),
        declared: cells.declared.as_ref().map(|s| s.claim(&name)),
        effective: cells.effective.as_ref().filter(|_| kind != RowKind::Config).map(|s| s.claim(&name)),
        observed: cells.observed.map(|seen| observed_claim(&name, seen)),
        name,
        kind,
        status,
        note,
    }
}

/// A row for each flag that the files, the process, a patch or the server name, and for each fact of the server.
pub(super) fn flags(view: &View<'_>) -> Vec<Row> {
    let layers = view.layers;
    let words = match &layers.process {
        Some((_, _, Ok(Cmdline::Words(words)))) => Some(argv::known(words)),
        _ => None,
    };
    let uses = uses(view, words.as_deref());
    // The spelling that is met first names the row.
    let mut spelled: BTreeMap<String, String> = BTreeMap::new();
    let mut meet = |flag: &str| {
        spelled.entry(view.spelled(flag).0).or_insert_with(|| flag.to_owned());
    };
    for patch in view.patches {
        if let Gate::Flag { flag, .. } = &patch.gate {
            meet(flag);
        }
    }
    for declared in layers.declaring() {
        declared.flags.iter().for_each(|f| meet(&f.name));
    }
    for used in &uses {
        meet(&used.name);
    }
    for key in view.seen.values.keys() {
        spelled.entry(key.clone()).or_insert_with(|| format!("--{}", key.replace('_', "-")));
    }
    spelled
        .into_iter()
        .map(|(key, name)| {
            let cells = Cells {
                declared: declared_flag(view, layers.declared.as_ref(), &key),
                replaced: declared_flag(view, layers.replaced.as_ref().map(|(_, d)| d), &key),
                override_path: layers.replaced.as_ref().map(|(path, _)| path.clone()),
                effective: flag_of_process(view, &uses, words.is_some(), &key),
                observed: view.seen.value(&key),
            };
            let (name, kind) =
                if is_fact(view, &key, &cells) { (key.clone(), RowKind::Config) } else { (name, RowKind::Flag) };
            let (status, note) = cells.judge_flag(view, &key, &name, kind);
            row(view, name, kind, &cells, status, note)
        })
        .collect()
}

/// Whether a server reports it and nobody can ask for it.
fn is_fact(view: &View<'_>, key: &str, cells: &Cells<'_>) -> bool {
    let asked = cells.declared.is_some() || cells.effective.as_ref().is_some_and(|e| matches!(e.text(), Ok(Some(_))));
    if asked || view.patches.iter().any(|p| matches!(&p.gate, Gate::Flag { flag, .. } if view.spelled(flag).0 == key)) {
        return false;
    }
    if FACTS.contains(&key) {
        return true;
    }
    if view.tables().is_some_and(|t| t.flags.contains_key(key)) {
        return false;
    }
    let of_log = |kind| matches!(kind, SourceKind::Decision | SourceKind::Figures);
    cells.observed.is_some_and(|s| {
        matches!(s.kind, SourceKind::Load | SourceKind::Metrics | SourceKind::Identity) || of_log(s.kind)
    }) || key.contains(['.', ':'])
}

/// One use of a flag on the command line of the process.
struct Use {
    name: String,
    key: String,
    value: String,
}

fn uses(view: &View<'_>, words: Option<&[Word]>) -> Vec<Use> {
    let Some(words) = words else { return Vec::new() };
    let text = |value: &FlagValue| match value {
        FlagValue::None => String::new(),
        FlagValue::Joined(text) => text.clone(),
        FlagValue::Words(range) => words[range.clone()].iter().flatten().cloned().collect::<Vec<_>>().join(" "),
    };
    argv::flags(words)
        .iter()
        .map(|flag| {
            let (key, given) = view.spelled(&flag.name);
            let value = given_text(view, &key, given, text(&flag.value), matches!(flag.value, FlagValue::Joined(_)));
            Use { name: flag.name.clone(), key, value }
        })
        .collect()
}

/// The value of a use: that of its spelling, none for a flag that stands alone, else the words that follow.
fn given_text(view: &View<'_>, key: &str, given: Option<&str>, words: String, joined: bool) -> String {
    match given {
        Some(given) => given.to_owned(),
        None if !joined && view.is_switch(key) => String::new(),
        None => words,
    }
}

fn flag_of_process(view: &View<'_>, uses: &[Use], has_words: bool, key: &str) -> Option<Said> {
    let (pid, _, cmdline) = view.layers.process.as_ref()?;
    let own: Vec<&Use> = uses.iter().filter(|u| u.key == key).collect();
    let value = match cmdline.as_ref().map(Cmdline::words) {
        Ok(Ok(_)) if has_words => Ok(own.last().map(|u| u.value.clone())),
        Ok(Ok(_)) => Err("the command line cannot be read".into()),
        Ok(Err(Unknown(why))) => Err(why),
        Err(Unknown(why)) => Err(why.clone()),
    };
    let source = format!("/proc/{pid}/cmdline");
    let place = Place::new(&source, 0);
    let also = earlier(&own.iter().map(|u| (place.clone(), u.value.clone())).collect::<Vec<_>>());
    Some(Said { value, source, line: None, blind_to: Some("defaults and later changes".into()), also })
}

/// All spellings of a flag together: the last use in the file counts.
fn declared_flag(view: &View<'_>, declared: Option<&Declared>, key: &str) -> Option<Said> {
    let declared = declared?;
    let own: Vec<&DeclaredFlag> = declared.flags.iter().filter(|f| view.spelled(&f.name).0 == key).collect();
    let mut all: Vec<(Place, Result<String, String>, String)> = Vec::new();
    for flag in &own {
        let given = view.spelled(&flag.name).1;
        for (place, text) in &flag.all {
            let value = known_text(text).map(|t| given_text(view, key, given, t, false));
            let shown = value.clone().unwrap_or_else(|_| shown_text(text).to_owned());
            all.push((place.clone(), value, shown));
        }
    }
    if own.len() > 1 {
        // The sort is stable: on one line the order of first use stays.
        all.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let (place, value, _) = all.last().cloned()?;
    let also = earlier(&all.into_iter().map(|(place, _, shown)| (place, shown)).collect::<Vec<_>>());
    Some(Said::at(&place, value.map(Some), declared.blind_to.clone(), also))
}

fn shown_text(text: &Text) -> &str {
    match text {
        Text::Known(text) => text,
        Text::Unresolved { raw, .. } => raw,
    }
}

fn known_text(text: &Text) -> Result<String, String> {
    match text {
        Text::Known(text) => Ok(text.clone()),
        Text::Unresolved { because, .. } => Err(because.clone()),
    }
}

/// The values before the last one that differ from it.
fn earlier(all: &[(Place, String)]) -> Vec<(Place, String)> {
    let Some((last, before)) = all.split_last() else { return Vec::new() };
    before.iter().filter(|(_, v)| !flags::same_text(v, &last.1)).cloned().collect()
}
