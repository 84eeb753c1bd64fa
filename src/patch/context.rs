//! What the judgement of patches is told of the running deployment: plain data that the caller fills from its state.
//!
//! Not responsible for reading any of it. Where the caller finds each part:
//!
//! - [`Running::variables`]: rows of kind `env`, the strongest claim that is known. `unlisted` is `Unset` only where a
//!   whole environment was read. [`Reading::blind_to`] is `Claim::blind_to`, but not for names that `truth::knowledge`
//!   has as `local`: the engine leaves those alone.
//! - [`Running::settings`]: rows of kind `flag` and `config`, observed before effective before declared, by
//!   `truth::flags::key`; `architecture` and `moe_quantization` from `CheckpointFacts` or the log, `capability` of
//!   the cards.
//! - [`Running::overwritten`]: the overwrites of `truth::knowledge`, with whether architecture, card and version are
//!   those of the target.
//! - [`Running::read_by_checkout`]: variables that the checkout's own source reads: all gates of the reader and
//!   `Layers::installed`.
//! - [`Running::imports`]: rows of component `imports`. `agrees` is `Imported`, `differs` is `Other`, all else is
//!   `Unknown`.
//! - [`Level`]: `TargetTruth::levels` and `level_sources`, with the suspect level of the case.
//! - [`Measured`]: `MicroReport::verdicts` of the microtest of the patch.
//! - [`Ruling`]: the newest `Verdict` about it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::types::Phase;
pub use crate::case::Role;
pub use crate::isolate::verdict::Finding;
pub use crate::kernel::report::ErrorClass;

/// A statement and where it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What it says, in one clause.
    pub fact: String,
    /// Where it was read.
    pub source: String,
}

/// A value that may be absent, or not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "text")]
pub enum Value {
    /// It has this text.
    Set(String),
    /// It is known to be absent.
    Unset,
    /// It could not be read, and why.
    Unknown(String),
}

/// A value and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// The value.
    pub value: Value,
    /// Where it was read, or where it was looked for.
    pub source: String,
    /// What this source can never show. A value that is *absent* in such a source is not known to be absent: leave it
    /// out for a variable that the engine is known to leave alone, as one that only a patch has.
    pub blind_to: Option<String>,
}

impl Reading {
    /// A reading of something that nobody looked for.
    pub fn missing(what: &str) -> Self {
        Self { value: Value::Unknown(format!("{what} was not read")), source: "not read".into(), blind_to: None }
    }
}

/// The phases of serving that a target of a role goes through; a router computes nothing.
pub fn phases_of(role: Role) -> &'static [Phase] {
    match role {
        Role::Prefill => &[Phase::Load, Phase::Template, Phase::Extend, Phase::Transfer],
        Role::Decode => &[Phase::Load, Phase::Template, Phase::Decode, Phase::Transfer, Phase::Parse],
        Role::Monolithic => &[Phase::Load, Phase::Template, Phase::Extend, Phase::Decode, Phase::Parse],
        Role::Router => &[],
    }
}

/// A variable that the engine sets by itself after its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Overwrite {
    /// The value that it gets.
    pub value: String,
    /// Whether it does so on this target; `None` where model, card or version are not known.
    pub applies: Option<bool>,
    /// Where that was read.
    pub source: String,
}

/// Whether a process has a file of the fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Import {
    /// It imported this text.
    Imported {
        /// By what that is shown.
        source: String,
    },
    /// It has another text, or none.
    Other {
        /// What it has instead, in one clause.
        why: String,
        /// By what that is shown.
        source: String,
    },
    /// That could not be told.
    Unknown {
        /// Why.
        why: String,
    },
}

/// The level of a patch on one target, as the case names its levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The variable or flag that has it; `None` where the case names none.
    pub switch: Option<String>,
    /// The level that the process has; `None` is unknown, and `source` says why.
    pub level: Option<String>,
    /// The level under suspicion.
    pub suspect: String,
    /// Where it was read, or why it could not be.
    pub source: String,
}

/// What one target runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Running {
    /// Target name.
    pub target: String,
    /// What it does.
    pub role: Role,
    /// Why nothing of it is known; `None` where its server was read.
    #[serde(default)]
    pub unread: Option<String>,
    /// Variables of the process by name.
    pub variables: BTreeMap<String, Reading>,
    /// What is known of a variable that is not in `variables`.
    pub unlisted: Reading,
    /// Variables that the engine sets by itself.
    pub overwritten: BTreeMap<String, Overwrite>,
    /// Flags by key, and the facts `architecture`, `capability` (as 120) and `moe_quantization` (as nvfp4).
    pub settings: BTreeMap<String, Reading>,
    /// Variables that any code of the checkout reads, and where that was looked for; an error says why it is unknown.
    pub read_by_checkout: Result<(BTreeSet<String>, String), String>,
    /// Whether the process has the text of a file, by the path in the diff.
    pub imports: BTreeMap<String, Import>,
}

impl Running {
    /// A target of which nothing was read yet.
    pub fn unread(target: &str, role: Role) -> Self {
        Self {
            target: target.to_owned(),
            role,
            unread: None,
            variables: BTreeMap::new(),
            unlisted: Reading::missing("its environment"),
            overwritten: BTreeMap::new(),
            settings: BTreeMap::new(),
            read_by_checkout: Err("its source was not read".into()),
            imports: BTreeMap::new(),
        }
    }

    /// A target of which nothing can be known, and why.
    pub fn unknown(target: &str, role: Role, why: &str) -> Self {
        Self { unread: Some(why.to_owned()), ..Self::unread(target, role) }
    }

    /// A setting; one that nobody read is unknown.
    pub fn setting(&self, key: &str) -> Reading {
        self.settings.get(key).cloned().unwrap_or_else(|| Reading::missing(&format!("`{key}`")))
    }
}

/// How far a phase is under suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bearing {
    /// Something shows that the symptom does not come from it.
    Excluded,
    /// Nothing speaks for or against it; so is every phase of which nothing is said.
    Possible,
    /// Something points to it.
    Likely,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SymptomKind {
    /// Right on little, first or lone input, and wrong with more context, on a later turn, or in company.
    LosesContext,
    /// Anything else, or not said.
    #[default]
    Other,
}

/// The symptom as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Symptom {
    /// What goes wrong.
    pub kind: SymptomKind,
    /// How far each phase is under suspicion, and why.
    pub phases: BTreeMap<Phase, (Bearing, Evidence)>,
    /// Factor ids that the failing requests met (`true`) or did not (`false`), and how that is known.
    pub met: BTreeMap<String, (bool, Evidence)>,
    /// Prompt tokens of the longest request that failed.
    pub prompt_tokens: Option<u64>,
}

/// What the checkpoint's `config.json` says of the places at which a model computes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFacts {
    /// `num_hidden_layers`.
    pub layers: Option<u32>,
    /// `num_hash_layers`.
    pub hash_layers: Option<u32>,
    /// `compress_ratios` of the hidden layers; empty is unknown.
    pub compress_ratios: Vec<u32>,
    /// `hc_mult`: streams of the hyper-connections; 0 or 1 is none.
    pub hyper_streams: Option<u32>,
    /// Path of the file.
    pub source: String,
}

/// What a microtest says of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The class.
    pub class: ErrorClass,
    /// The numbers, floor and error, and where they come from.
    pub evidence: Evidence,
}

/// A finding with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ruling {
    /// The finding.
    pub finding: Finding,
    /// One sentence with the numbers, and the journal lines.
    pub evidence: Evidence,
}

/// What is known of one patch or factor besides its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notes {
    /// Targets that it is in; empty is all.
    pub targets: Vec<String>,
    /// Its level by target.
    pub levels: BTreeMap<String, Level>,
    /// Microtests of it; the newest of each device.
    pub measured: Vec<Measured>,
    /// The newest verdict.
    pub ruling: Option<Ruling>,
}

/// Everything that does not belong to one patch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scene {
    /// The symptom.
    pub symptom: Symptom,
    /// The model.
    pub model: ModelFacts,
    /// The targets that compute.
    pub running: Vec<Running>,
}
