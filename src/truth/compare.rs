//! Puts what the files declare, what the process was started with and what the server says side by side. Pure.
//!
//! `cells` finds what each layer says of a name, `judge` compares the layers, `names` knows what is known of a
//! variable, `relations` looks at several rows together, `checkpoint` at the model's own configuration.
//! Values are compared as they are and redacted only when they become part of a row.

mod cells;
mod checkpoint;
mod judge;
mod names;
mod relations;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use self::checkpoint::{CheckpointFacts, Window, slot_window, window};
use self::view::View;
use super::observed;
use super::{Row, RowStatus};
use crate::case::{Patch, ServingEngine};
use crate::remote::proc::{Cmdline, Environ, Unknown};
use crate::truth::declared::Declared;

/// Pid, environment and command line of a process.
pub type Process = (u32, Result<Environ, Unknown>, Result<Cmdline, Unknown>);
/// URL and values of a configuration answer.
pub type Observed = (String, BTreeMap<String, Value>);

/// Everything that was read of one target.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Target name.
    pub target: String,
    /// What the target's own files declare.
    pub declared: Option<Declared>,
    /// The override that the process was started from: its path and what it declares.
    pub replaced: Option<(String, Declared)>,
    /// The process: pid, environment, command line.
    pub process: Option<Process>,
    /// The configuration that the server reports: URL and values, or why there is none.
    pub observed: Option<Result<Observed, String>>,
    /// What all answers and logs say, each with its source.
    pub seen: observed::Observed,
    /// The serving engine; `None` is told from the command line where it can be.
    pub engine: Option<ServingEngine>,
    /// Version of the server where something else than the server tells it, such as the tag of an image.
    pub version: Option<String>,
    /// Compute capability of the card, such as 120 for 12.0; `None` is not known.
    pub capability: Option<u32>,
    /// Path and content of the checkpoint's `config.json`.
    pub checkpoint: Option<(String, Value)>,
    /// Path of the installed source that lists the variables, and their names; see `knowledge::names::in_source`.
    pub installed: Option<(String, BTreeSet<String>)>,
}

impl Layers {
    fn declaring(&self) -> impl Iterator<Item = &Declared> {
        self.declared.iter().chain(self.replaced.iter().map(|(_, d)| d))
    }
}

/// One row for each variable, flag and reported value: disagreements first, then the patches' own switches,
/// then what is declared or reported, and last what the process merely inherited.
pub fn rows(layers: &Layers, patches: &[&Patch]) -> Vec<Row> {
    let gates: BTreeSet<&str> = patches.iter().map(|p| p.gate.switch_name()).collect();
    let view = View::new(layers, patches);
    let mut rows = cells::variables(&view);
    rows.extend(cells::flags(&view));
    rows.extend(checkpoint::rows(&view));
    relations::apply(&mut rows, &view);
    rows.sort_by_key(|r| {
        let trouble = r.status.min(RowStatus::OneSource);
        let inherited = r.declared.is_none() && r.observed.is_none();
        (trouble, !gates.contains(r.name.as_str()), inherited, r.status, r.kind, r.name.clone())
    });
    rows
}

#[cfg(test)]
#[path = "compare/artefact_tests.rs"]
mod artefact_tests;
#[cfg(test)]
#[path = "compare/layers_tests.rs"]
mod tests;
