//! What the changed lines of a hunk say: symbols, gates, value types, kernels, asserts, signals and phases.
//!
//! Not responsible for weighing any of it. What no rule names stays unsaid, and what is unsaid is unknown.

mod asserts;
mod changed;
mod dtypes;
mod kernels;
mod phases;
mod rules;
mod sides;
mod signals;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::diff::FileDiff;
use super::gates::{Registry, shown};
use super::types::{DtypeChange, Fact, GateRead, Phase, Place, Signal};

pub use rules::{PHASES, Part, PhaseRule, SIGNALS, SignalRule, Where};
pub use sides::Sides;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Functions and classes whose lines are changed.
    pub symbols: Vec<Fact<String>>,
    /// Reads in added lines and in the conditions around changed ones.
    pub gates: Vec<GateRead>,
    /// Phases, each with the first reason found.
    pub phases: BTreeMap<Phase, Fact<String>>,
    /// Value types that were replaced.
    pub dtypes: Vec<Fact<DtypeChange>>,
    /// Kernels that are defined, changed or launched.
    pub kernels: Vec<Fact<String>>,
    /// New asserts.
    pub asserts: Vec<Fact<String>>,
    /// Signals; one for each signal and line.
    pub signals: Vec<Fact<Signal>>,
}

/// Reads the facts of one hunk of a file. Facts about a file as a whole are those of its path.
pub fn of_hunk(file: &FileDiff, sides: &Sides, hunk: usize, registry: &Registry) -> Facts {
    let path = file.path();
    let Some(body) = file.hunks.get(hunk) else { return Facts::default() };
    let lines = changed::lines(body, sides, hunk);
    let new = sides.new_of(hunk);
    let mut facts = Facts {
        dtypes: dtypes::changes(path, &lines, sides.language),
        kernels: kernels::touched(path, &lines, sides.new_text(hunk), sides.old_text(hunk)),
        ..Facts::default()
    };
    let asserts = asserts::of(path, &lines, sides.new_text(hunk), sides.old_text(hunk));
    facts.asserts = asserts.added;
    facts.signals = signals::of(path, &lines);
    facts.signals.extend(asserts.removed);
    for line in &lines {
        let source = if line.added { new } else { sides.old_of(hunk) };
        let Some(name) = source.and_then(|source| source.symbol(line.number)) else { continue };
        if !facts.symbols.iter().any(|symbol| symbol.value == name) {
            facts.symbols.push(Fact { value: name, place: line.place(path), text: shown(line.raw) });
        }
    }
    let added: Vec<u32> = lines.iter().filter(|line| line.added).map(|line| line.number).collect();
    // What is taken away stood where its neighbours still stand.
    let mut around: Vec<u32> = lines.iter().map(|line| line.new).collect();
    around.dedup();
    for mut read in sides.gates_of(hunk, &added, &around).into_iter().map(|found| found.read) {
        registry.join(&mut read);
        if !facts.gates.contains(&read) {
            facts.gates.push(read);
        }
    }
    facts.phases = phases::of(path, &lines, &facts.symbols);
    facts
}

/// What the path of a file says, for a file whose lines are not shown.
pub fn of_path(path: &str) -> Facts {
    Facts { phases: phases::of(path, &[], &[]), signals: Vec::new(), ..Facts::default() }
}

impl Facts {
    /// Adds other facts; what is there already is not repeated.
    pub fn merge(&mut self, other: Self) {
        append(&mut self.symbols, other.symbols, |left, right| {
            left.value == right.value && left.place.path == right.place.path
        });
        append(&mut self.gates, other.gates, |left, right| left == right);
        append(&mut self.dtypes, other.dtypes, |left, right| left == right);
        append(&mut self.kernels, other.kernels, |left, right| left.value == right.value);
        append(&mut self.asserts, other.asserts, |left, right| left == right);
        append(&mut self.signals, other.signals, |left, right| left == right);
        for (phase, fact) in other.phases {
            self.phases.entry(phase).or_insert(fact);
        }
    }
}

fn append<T>(all: &mut Vec<T>, more: Vec<T>, same: impl Fn(&T, &T) -> bool) {
    for item in more {
        if !all.iter().any(|found| same(found, &item)) {
            all.push(item);
        }
    }
}

fn place(path: &str, line: u32) -> Place {
    Place { path: path.to_owned(), line: Some(line) }
}
