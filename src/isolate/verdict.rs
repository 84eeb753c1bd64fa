//! A verdict and what it rests on, as plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was found about one patch or factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// What it is about.
    pub subject: Subject,
    /// The finding.
    pub verdict: Finding,
    /// Trials with the subject on.
    pub on: ArmCount,
    /// Trials with the subject off.
    pub off: ArmCount,
    /// For `acquitted`: upper 95 % bound of the excess failure rate; for `guilty`: the p-value of the boots.
    pub bound: Option<f64>,
    /// One sentence with the numbers that says why.
    pub why: String,
    /// Journal sequence numbers of the boots and trials it rests on.
    pub evidence: Vec<u64>,
}

/// What a verdict is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Patch or factor.
    pub kind: SubjectKind,
    /// Its id.
    pub id: String,
}

/// Patch or factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// A patch.
    Patch,
    /// A switch that needs no restart.
    Factor,
}

/// The finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Switching it alone makes and unmakes the symptom, both ways.
    Guilty,
    /// With it on and the guilty off, the failure rate exceeds all-off by at most delta.
    Acquitted,
    /// Switching it changed nothing while the symptom stayed.
    NotShown,
    /// It cannot be told apart from another with these switches.
    NotSeparable,
    /// Too little was seen.
    Inconclusive,
}

/// Trials of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmCount {
    /// Failed trials.
    pub fail: u32,
    /// Trials that count: passes and fails.
    pub n: u32,
    /// Void trials.
    pub void: u32,
    /// Boots that the trials met.
    pub boots: u32,
}

/// The symptom as measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Symptom {
    /// Failure rate with everything as found.
    pub rate: f64,
    /// Lower Wilson bound (95 %) of that rate, on counts deflated for the luck that trials of a boot share.
    pub lower: f64,
    /// Trials that count.
    pub trials: u32,
}

impl Finding {
    /// The finding in one word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Guilty => "guilty",
            Self::Acquitted => "acquitted",
            Self::NotShown => "not-shown",
            Self::NotSeparable => "not-separable",
            Self::Inconclusive => "inconclusive",
        }
    }
}
