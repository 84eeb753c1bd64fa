//! Two readings side by side: prefill and decode, two moments of one target, or a replica. Pure.
//!
//! Like is compared with like: the strongest layer that both readings have. What is unknown on either side stays
//! unknown and is no difference.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Claim, Known, Row, RowKind, TargetTruth, flags};
use crate::untrusted::Untrusted;

/// Which layer was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// What the server says.
    Observed,
    /// What the process was started with.
    Effective,
    /// What the files say.
    Declared,
}

/// How two readings stand to each other in one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Difference {
    /// The values differ and nothing known explains it.
    Differs,
    /// The values differ as they should.
    Expected {
        /// Why, in one clause.
        because: String,
    },
    /// Only the first reading speaks of it.
    OnlyLeft,
    /// Only the second reading speaks of it.
    OnlyRight,
    /// One side could not be read.
    Unknown {
        /// Why, in one clause.
        because: String,
    },
}

/// One name in which two readings are not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffRow {
    /// Process or part it belongs to.
    pub component: String,
    /// Variable, flag or key.
    pub name: String,
    /// What kind of name it is.
    pub row_kind: RowKind,
    /// The layer that was compared; `None` where only one side has a row, or no layer is common.
    pub layer: Option<Layer>,
    /// The first value; `None` is absent or not known, as `difference` says.
    pub left: Option<Untrusted>,
    /// The second value.
    pub right: Option<Untrusted>,
    /// How they stand to each other.
    pub difference: Difference,
}

/// Names that differ between two servers, or two starts of one, with good reason.
const EXPECTED: &[(&str, &str)] = &[
    ("port", "each server has its own port"),
    ("host", "each server has its own address"),
    ("nccl_port", "each server has its own port"),
    ("dist_init_addr", "each server has its own address"),
    ("grpc_port", "each server has its own port"),
    ("disaggregation_mode", "it is the role"),
    ("disaggregation_bootstrap_port", "each server has its own port"),
    ("role", "it is the role"),
    ("base_gpu_id", "each server has its own cards"),
    ("node_rank", "it is the rank"),
    ("random_seed", "it is drawn at the start"),
    ("startup_time", "it is a moment"),
    ("last_gen_throughput", "it is a moment"),
    ("memory_usage", "it is a moment"),
    ("available_gpu_mem", "it is a moment"),
    ("num_running_reqs", "it is a moment"),
    ("num_waiting_reqs", "it is a moment"),
    ("num_used_tokens", "it is a moment"),
    ("gen_throughput", "it is a moment"),
    ("token_usage", "it is a moment"),
    ("cache_hit_rate", "it is a moment"),
    ("CUDA_VISIBLE_DEVICES", "each server has its own cards"),
    ("RANK", "it is the rank"),
    ("LOCAL_RANK", "it is the rank"),
    ("INVOCATION_ID", "each start has its own"),
    ("JOURNAL_STREAM", "each start has its own"),
    ("SYSTEMD_EXEC_PID", "each start has its own"),
    ("MEMORY_PRESSURE_WATCH", "each unit has its own"),
    ("SSH_CONNECTION", "it is of the login that started it"),
    ("SSH_CLIENT", "it is of the login that started it"),
    ("SSH_TTY", "it is of the login that started it"),
    ("PWD", "it is the folder it was started in"),
    ("OLDPWD", "it is the folder before"),
    ("SHLVL", "it is the depth of shells"),
    ("_", "it is the last command of a shell"),
];

/// What differs between two readings: differences first, then what is unknown, then what is expected.
pub fn diff(left: &TargetTruth, right: &TargetTruth) -> Vec<DiffRow> {
    let (a, b) = (by_name(left), by_name(right));
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let mut out: Vec<DiffRow> = names
        .into_iter()
        .filter_map(|key| match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => both(a, b),
            (Some(row), None) => Some(only(row, right, true)),
            (None, Some(row)) => Some(only(row, left, false)),
            (None, None) => None,
        })
        .collect();
    out.sort_by_key(|row| match row.difference {
        Difference::Differs => 0,
        Difference::OnlyLeft | Difference::OnlyRight => 1,
        Difference::Unknown { .. } => 2,
        Difference::Expected { .. } => 3,
    });
    out
}

type Key = (RowKind, String, String);

/// Rows by the key of their flag, so that `--tp` and `--tp-size` are one.
fn by_name(truth: &TargetTruth) -> BTreeMap<Key, &Row> {
    let key = |row: &Row| match row.kind {
        RowKind::Env => row.name.clone(),
        RowKind::Flag | RowKind::Config => flags::key(&row.name),
    };
    // A flag that only the server tells is a `config` on one side and may be a flag on the other.
    let kind = |row: &Row| if row.kind == RowKind::Env { RowKind::Env } else { RowKind::Flag };
    truth.rows.iter().map(|row| ((kind(row), row.component.clone(), key(row)), row)).collect()
}

fn layers(row: &Row) -> [(Layer, Option<&Claim>); 3] {
    [
        (Layer::Observed, row.observed.as_ref()),
        (Layer::Effective, row.effective.as_ref()),
        (Layer::Declared, row.declared.as_ref()),
    ]
}

fn both(a: &Row, b: &Row) -> Option<DiffRow> {
    let pairs = layers(a).into_iter().zip(layers(b));
    let common: Vec<(Layer, &Claim, &Claim)> = pairs.filter_map(|((layer, a), (_, b))| Some((layer, a?, b?))).collect();
    let known = common.iter().find(|(_, a, b)| a.known == Known::Yes && b.known == Known::Yes);
    // An unknown layer above a known one hides what is in effect, so it wins.
    let first = common.first();
    let row = |layer, left, right, difference| DiffRow {
        component: a.component.clone(),
        name: a.name.clone(),
        row_kind: a.kind,
        layer,
        left,
        right,
        difference,
    };
    match (first, known) {
        (Some((layer, x, y)), Some((same, ..))) if layer == same => {
            if x.value == y.value || same_text(a.kind, x, y) {
                return None;
            }
            let difference = expected(&a.name, a.kind)
                .map_or(Difference::Differs, |because| Difference::Expected { because: because.to_owned() });
            Some(row(Some(*layer), x.value.clone(), y.value.clone(), difference))
        }
        (Some((layer, x, y)), _) => {
            let because = [x, y].iter().find_map(|c| match &c.known {
                Known::Unknown { because } => Some(because.clone()),
                Known::Yes => None,
            });
            let difference =
                Difference::Unknown { because: because.unwrap_or_else(|| "it could not be read".to_owned()) };
            Some(row(Some(*layer), x.value.clone(), y.value.clone(), difference))
        }
        (None, _) => {
            let because = "the two readings have no source in common".to_owned();
            Some(row(None, strongest(a), strongest(b), Difference::Unknown { because }))
        }
    }
}

fn same_text(kind: RowKind, a: &Claim, b: &Claim) -> bool {
    kind != RowKind::Env && matches!((&a.value, &b.value), (Some(a), Some(b)) if flags::same_text(a.raw(), b.raw()))
}

fn strongest(row: &Row) -> Option<Untrusted> {
    layers(row).into_iter().find_map(|(_, claim)| claim?.value.clone())
}

/// A row of one side only. Where the other side could not read that kind of name at all, its absence says nothing.
fn only(row: &Row, other: &TargetTruth, is_left: bool) -> DiffRow {
    let unread = other.rows.iter().filter(|r| (r.kind == RowKind::Env) == (row.kind == RowKind::Env)).find_map(|r| {
        match &r.effective.as_ref()?.known {
            Known::Unknown { because } => Some(because.clone()),
            Known::Yes => None,
        }
    });
    let value = strongest(row);
    let (left, right) = if is_left { (value, None) } else { (None, value) };
    let difference = match (expected(&row.name, row.kind), unread, is_left) {
        (_, Some(because), _) => Difference::Unknown { because },
        (Some(because), None, _) => Difference::Expected { because: because.to_owned() },
        (None, None, true) => Difference::OnlyLeft,
        (None, None, false) => Difference::OnlyRight,
    };
    DiffRow {
        component: row.component.clone(),
        name: row.name.clone(),
        row_kind: row.kind,
        layer: None,
        left,
        right,
        difference,
    }
}

fn expected(name: &str, kind: RowKind) -> Option<&'static str> {
    let key = if kind == RowKind::Env { name.to_owned() } else { flags::key(name) };
    EXPECTED.iter().find(|(known, _)| *known == key).map(|(_, because)| *because)
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
