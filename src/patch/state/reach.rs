//! Whether anything of a deployment leads to a change: back end, model, settings. Pure; the table is data with sources.

use super::Obstacle;
use crate::patch::context::{Evidence, Running, Value};
use crate::patch::types::{Entry, FileTouch, Signal, Touch};

/// Whether something leads to a change.
pub(super) enum Reached {
    /// Something does, by what if a table knows.
    Yes { because: Option<String>, evidence: Vec<Evidence>, remarks: Vec<String> },
    /// Nothing does.
    No { by: Obstacle, because: String, evidence: Vec<Evidence> },
    /// It cannot be told.
    Unknown { because: String, evidence: Vec<Evidence> },
}

/// A path of the source and what must be set so that a server comes to it.
struct Path {
    /// Parts of a file name that it must have, any of them; none is every file.
    files: &'static [&'static str],
    /// Parts of names: all symbols that were changed must have one (all kernels where no symbol was read); none is
    /// every name.
    names: &'static [&'static str],
    /// Signals that a change of the file may have; none is any. For changes of a branch inside a function.
    only: &'static [Signal],
    /// Any of these must hold, each with all of its needs.
    any_of: &'static [&'static [Need]],
    /// What is in the way where none holds.
    by: Obstacle,
    /// Where it was read.
    source: &'static str,
}

/// A setting that a path needs.
struct Need {
    setting: &'static str,
    is: Is,
    /// What holds where nobody set it.
    unset: Unset,
}

enum Is {
    OneOf(&'static [&'static str]),
    NotOneOf(&'static [&'static str]),
    StartsWith(&'static str),
}

#[derive(Clone, Copy)]
enum Unset {
    /// The engine chooses.
    Chosen,
    /// The path is not taken.
    NotTaken,
}

const MOE_FILES: &[&str] = &["/moe/", "quantization/", "moe_runner"];

const fn runner(is: Is) -> Need {
    Need { setting: "moe_runner_backend", is, unset: Unset::Chosen }
}

const fn experts(formats: &'static [&'static str]) -> Need {
    Need { setting: "moe_quantization", is: Is::OneOf(formats), unset: Unset::Chosen }
}

const PATHS: &[Path] = &[
    Path {
        files: MOE_FILES,
        names: &["flashinfer", "trtllm"],
        only: &[],
        any_of: &[&[runner(Is::StartsWith("flashinfer"))]],
        by: Obstacle::Backend,
        source: "sgl-project/sglang layers/quantization/modelopt_quant.py at 30cb848d4b45: a branch for each runner",
    },
    Path {
        files: MOE_FILES,
        names: &["marlin"],
        only: &[],
        any_of: &[&[runner(Is::OneOf(&["marlin"]))]],
        by: Obstacle::Backend,
        source: "sgl-project/sglang layers/quantization/ at 30cb848d4b45: each runner has its own branch",
    },
    // The factor is multiplied in by top-k, and not by the model, where the method of the experts says so.
    Path {
        files: &["hash_topk"],
        names: &[],
        only: &[Signal::Scale, Signal::AssertRemoved],
        any_of: &[
            &[experts(&["nvfp4", "modelopt_fp4"]), runner(Is::NotOneOf(&["marlin"]))],
            &[experts(&["fp8"]), runner(Is::OneOf(&["cutlass", "flashinfer_trtllm_routed"]))],
            &[experts(&["none"]), runner(Is::OneOf(&["flashinfer_trtllm_routed"]))],
        ],
        by: Obstacle::Backend,
        source: "sgl-project/sglang layers/quantization/modelopt_quant.py, layers/moe/hash_topk.py at 30cb848d4b45: \
                 should_fuse_routed_scaling_factor_in_topk",
    },
    Path {
        files: &["models/deepseek_v4", "/dsv4/", "deepseek_v4_backend"],
        names: &[],
        only: &[],
        any_of: &[&[Need { setting: "architecture", is: Is::StartsWith("DeepseekV4"), unset: Unset::Chosen }]],
        by: Obstacle::Model,
        source: "config.json: architectures; sgl-project/sglang models/deepseek_v4.py",
    },
    Path {
        files: &["quantization/", "model_loader/"],
        names: &["nvfp4"],
        only: &[],
        any_of: &[&[experts(&["nvfp4", "modelopt_fp4"])]],
        by: Obstacle::Model,
        source: "sgl-project/sglang layers/quantization/modelopt_quant.py at 30cb848d4b45",
    },
    Path {
        files: &["/speculative/", "eagle", "nextn"],
        names: &[],
        only: &[],
        any_of: &[&[Need {
            setting: "speculative_algorithm",
            is: Is::NotOneOf(&["none", "null"]),
            unset: Unset::NotTaken,
        }]],
        by: Obstacle::Setting,
        source: "meaning of the flag, sgl-project/sglang server_args.py",
    },
    Path {
        files: &["/disaggregation/"],
        names: &[],
        only: &[],
        any_of: &[&[Need {
            setting: "disaggregation_mode",
            is: Is::OneOf(&["prefill", "decode"]),
            unset: Unset::NotTaken,
        }]],
        by: Obstacle::Setting,
        source: "meaning of the flag, sgl-project/sglang server_args.py",
    },
    Path {
        files: &["hicache", "hiradix", "hierarchical"],
        names: &[],
        only: &[],
        any_of: &[&[Need {
            setting: "enable_hierarchical_cache",
            is: Is::OneOf(&["true", "1"]),
            unset: Unset::NotTaken,
        }]],
        by: Obstacle::Setting,
        source: "meaning of the flag, sgl-project/sglang server_args.py",
    },
];

/// Parts of paths of files that no server runs.
const NOT_RUN: &[&str] = &["docs/", "doc/", "test/", "tests/", "benchmark/", "benchmarks/", "examples/", ".github/"];
/// Ends of names of files that no server runs.
const NOT_CODE: &[&str] = &[".md", ".rst", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".ipynb"];

/// Whether anything leads to a change: not, where nothing leads to any of its files.
pub(super) fn reach(entry: &Entry, running: &Running) -> Reached {
    let each: Vec<Reached> = entry.files.iter().map(|file| of_file(entry, file, running)).collect();
    let (mut yes, mut no, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for one in each {
        match one {
            Reached::Yes { because, evidence, .. } => yes.push((because, evidence)),
            Reached::No { by, because, evidence } => no.push((by, because, evidence)),
            Reached::Unknown { because, evidence } => unknown.push((because, evidence)),
        }
    }
    // What no server runs says nothing of the rest.
    let parts = no.iter().filter(|(by, ..)| *by != Obstacle::NotRun);
    let remarks = parts.map(|(_, because, _)| format!("only the rest of it counts: a part is inert, since {because}"));
    let remarks: Vec<String> = remarks.collect();
    if !yes.is_empty() {
        let reasons: Vec<String> = yes.iter().filter_map(|(because, _)| because.clone()).collect();
        let because = (!reasons.is_empty()).then(|| reasons.join("; "));
        return Reached::Yes { because, evidence: yes.into_iter().flat_map(|(_, e)| e).collect(), remarks };
    }
    if !unknown.is_empty() {
        let reasons: Vec<String> = unknown.iter().map(|(because, _)| because.clone()).collect();
        let evidence = unknown.into_iter().flat_map(|(_, e)| e).collect();
        return Reached::Unknown { because: reasons.join("; "), evidence };
    }
    let Some(by) = no.iter().map(|(by, ..)| *by).min() else {
        return Reached::Yes { because: None, evidence: Vec::new(), remarks };
    };
    let reasons: Vec<&str> = no.iter().map(|(_, because, _)| because.as_str()).collect();
    let because = reasons.join("; ");
    Reached::No { by, because, evidence: no.into_iter().flat_map(|(.., e)| e).collect() }
}

fn of_file(entry: &Entry, file: &FileTouch, running: &Running) -> Reached {
    let path = file.path.to_ascii_lowercase();
    let not_run = |because: String| {
        let evidence = vec![Evidence { fact: because.clone(), source: file.path.clone() }];
        Reached::No { by: Obstacle::NotRun, because, evidence }
    };
    if matches!(file.how, Touch::Mode { .. }) {
        return not_run(format!("only the mode of `{}` was changed", file.path));
    }
    let in_folder = |part: &&str| path.starts_with(*part) || path.contains(&format!("/{part}"));
    if NOT_CODE.iter().any(|end| path.ends_with(end)) || NOT_RUN.iter().any(in_folder) {
        return not_run(format!("no server runs `{}`", file.path));
    }
    let (mut because, mut evidence) = (Vec::new(), Vec::new());
    let mut unknown: Option<String> = None;
    for known in PATHS.iter().filter(|p| leads(p, entry, file, &path)) {
        let (holds, words, read) = any_of(known, running);
        evidence.extend(read);
        evidence
            .push(Evidence { fact: format!("which settings lead to `{}`", file.path), source: known.source.into() });
        match holds {
            Some(false) => return Reached::No { by: known.by, because: words, evidence },
            Some(true) => because.push(words),
            None => unknown = Some(unknown.map_or(words.clone(), |before| format!("{before}; {words}"))),
        }
    }
    if let Some(because) = unknown {
        return Reached::Unknown { because, evidence };
    }
    Reached::Yes { because: (!because.is_empty()).then(|| because.join("; ")), evidence, remarks: Vec::new() }
}

/// Whether everything that a change does to a file stands on a path of the table.
fn leads(known: &Path, entry: &Entry, file: &FileTouch, path: &str) -> bool {
    if !known.files.is_empty() && !known.files.iter().any(|part| path.contains(part)) {
        return false;
    }
    let has_name = |name: &str| known.names.iter().any(|part| name.to_ascii_lowercase().contains(part));
    if !known.names.is_empty() {
        let of = |facts: &[crate::patch::types::Fact<String>]| -> Vec<bool> {
            facts.iter().filter(|f| f.place.path == file.path).map(|f| has_name(&f.value)).collect()
        };
        let (symbols, kernels) = (of(&entry.symbols), of(&entry.kernels));
        let names = if symbols.is_empty() { kernels } else { symbols };
        if names.is_empty() || names.contains(&false) {
            return false;
        }
    }
    if known.only.is_empty() {
        return true;
    }
    let mut signals = entry.signals.iter().filter(|s| s.place.path == file.path).peekable();
    let lowers = entry.dtypes.iter().any(|d| d.place.path == file.path);
    signals.peek().is_some() && !lowers && signals.all(|s| known.only.contains(&s.value))
}

/// Whether any set of needs holds, in words and with what was read; `None` is unknown.
fn any_of(known: &Path, running: &Running) -> (Option<bool>, String, Vec<Evidence>) {
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut outcome = Some(false);
    let (mut held, mut failed, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for needs in known.any_of {
        let each: Vec<(Option<bool>, String)> = needs.iter().map(|need| holds(need, running)).collect();
        let all = if each.iter().any(|(h, _)| *h == Some(false)) {
            Some(false)
        } else if each.iter().any(|(h, _)| h.is_none()) {
            None
        } else {
            Some(true)
        };
        match all {
            Some(true) => {
                outcome = Some(true);
                held.extend(each.into_iter().map(|(_, words)| words));
            }
            None => {
                outcome = if outcome == Some(true) { outcome } else { None };
                open.extend(each.into_iter().filter(|(h, _)| h.is_none()).map(|(_, words)| words));
            }
            Some(false) => failed.extend(each.into_iter().filter(|(h, _)| *h == Some(false)).map(|(_, words)| words)),
        }
        for need in *needs {
            let reading = running.setting(need.setting);
            let fact = shown(need.setting, &reading.value);
            let one = Evidence { fact, source: reading.source };
            if !evidence.contains(&one) {
                evidence.push(one);
            }
        }
    }
    let mut words = match outcome {
        Some(true) => held,
        Some(false) => failed,
        None => open,
    };
    words.dedup();
    let joined = words.join(" and ");
    let said = match outcome {
        Some(true) => format!("its path is taken: {joined}"),
        Some(false) => format!("its path is not taken: {joined}"),
        None => format!("whether its path is taken is not known: {joined}"),
    };
    (outcome, said, evidence)
}

fn holds(need: &Need, running: &Running) -> (Option<bool>, String) {
    let reading = running.setting(need.setting);
    let words = shown(need.setting, &reading.value);
    let text = match &reading.value {
        Value::Unknown(_) => return (None, words),
        Value::Unset => match need.unset {
            Unset::Chosen => return (None, format!("{words}, so that the engine chooses it")),
            Unset::NotTaken => return (Some(false), words),
        },
        Value::Set(text) => text,
    };
    if text.eq_ignore_ascii_case("auto") {
        return (None, format!("{words}, so that the engine chooses it"));
    }
    let is = |one: &&str| one.eq_ignore_ascii_case(text);
    let holds = match need.is {
        Is::OneOf(values) => values.iter().any(is),
        Is::NotOneOf(values) => !values.iter().any(is),
        Is::StartsWith(start) => text.to_ascii_lowercase().starts_with(&start.to_ascii_lowercase()),
    };
    (Some(holds), words)
}

fn shown(setting: &str, value: &Value) -> String {
    match value {
        Value::Set(text) => format!("`{setting}` is `{text}`"),
        Value::Unset => format!("`{setting}` is not set"),
        Value::Unknown(why) => format!("`{setting}` is not known ({why})"),
    }
}
