//! What is really running: declared, effective and observed, each with its source.
//!
//! The types here are plain data.
//! The readers touch the host; `truth::compare` is pure.

pub mod changes;
pub mod compare;
pub mod declared;
pub mod diff;
pub mod flags;
pub mod imports;
pub mod knowledge;
pub mod observed;
pub mod read;
pub mod service;
pub mod survey;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::ProcessKey;
use crate::untrusted::Untrusted;

/// The three layers of one target at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetTruth {
    /// Target name.
    pub target: String,
    /// When it was read.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Whether it serves.
    pub status: ServerStatus,
    /// The server process, if one was found.
    pub process: Option<ProcessKey>,
    /// The processes of its service, the server first.
    #[serde(default)]
    pub processes: Vec<service::ServiceProcess>,
    /// One row per variable, flag and configuration value; disagreements first.
    pub rows: Vec<Row>,
    /// Level that the running process has for each patch; `None` is unknown.
    pub levels: std::collections::BTreeMap<String, Option<String>>,
    /// Where each level was read, or why it could not be.
    pub level_sources: std::collections::BTreeMap<String, String>,
    /// What is served, as far as it is no row.
    #[serde(default)]
    pub served: Served,
    /// What could not be read, and anything else worth knowing.
    pub diagnostics: Vec<Diagnostic>,
}

/// What a target serves: model, card, version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Served {
    /// Version of the server; `None` is unknown.
    pub version: Option<String>,
    /// Compute capability of the cards, such as 120 for 12.0; `None` is unknown or differs.
    pub capability: Option<u32>,
    /// What the checkpoint's `config.json` says; `None` is unread.
    pub checkpoint: Option<compare::CheckpointFacts>,
}

/// Whether a target serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerStatus {
    /// Could not be told.
    #[default]
    Unknown,
    /// No process owns the port.
    Down,
    /// A process is there, the ready probe does not answer yet.
    Loading,
    /// It answers.
    Ready,
}

/// One variable, flag or configuration value in three layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Target name.
    pub target: String,
    /// Process or part it belongs to: `server`, `resource_tracker`, `checkpoint`, `imports` (sites of patches), ….
    pub component: String,
    /// Variable, flag or key.
    pub name: String,
    /// What kind of name it is.
    pub kind: RowKind,
    /// What the launch script, unit or file says.
    pub declared: Option<Claim>,
    /// What the process was started with.
    pub effective: Option<Claim>,
    /// What the server or its log says.
    pub observed: Option<Claim>,
    /// What the comparison says.
    pub status: RowStatus,
    /// One sentence for people; empty where the status says it all.
    pub note: String,
}

/// What kind of name a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// Environment variable.
    Env,
    /// Command-line flag.
    Flag,
    /// Key of a configuration.
    Config,
}

/// One statement with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The value; `None` is *known to be absent*. A value that could not be read has no claim, or is `Unknown` in `known`.
    pub value: Option<Untrusted>,
    /// Whether the source could tell.
    pub known: Known,
    /// Where it was read: a path, `/proc/PID/environ`, an URL.
    pub source: String,
    /// Line in the source, counted from 1.
    pub line: Option<u32>,
    /// What this source can never show.
    pub blind_to: Option<String>,
}

/// Whether a source could tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Known {
    /// It was read.
    Yes,
    /// It could not be read.
    Unknown {
        /// Why, in one clause.
        because: String,
    },
}

/// What the comparison of the three layers says; graver before less grave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowStatus {
    /// The layers disagree.
    Differs,
    /// It does not go together with another setting.
    ConflictsWith,
    /// Accepted, and without the effect that was asked for.
    AcceptedButOff,
    /// Not a known name, and one or two letters away from one.
    LooksMisspelt,
    /// Set, and read by nothing in this version.
    UnknownToThisVersion,
    /// A later layer replaced an earlier one.
    OverriddenBy,
    /// Given more than once with different values; the last one counts.
    GivenTwice,
    /// At least one layer could not be read.
    UnknownBecause,
    /// Only one layer speaks of it.
    OneSource,
    /// Nobody set it, and its default counts.
    DefaultInEffect,
    /// All layers that speak of it agree.
    Agrees,
}

/// Whether the status of a row says that something is not as somebody meant it: a finding for the exit status.
pub fn is_disagreement(status: RowStatus) -> bool {
    matches!(
        status,
        RowStatus::Differs
            | RowStatus::ConflictsWith
            | RowStatus::AcceptedButOff
            | RowStatus::LooksMisspelt
            | RowStatus::UnknownToThisVersion
            | RowStatus::GivenTwice
    )
}

/// Whether a row needs a look: the "7" of "7 of 431 matter".
pub fn matters(row: &Row) -> bool {
    row.status < RowStatus::OneSource
}
