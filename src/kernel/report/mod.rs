//! What a microtest found, as plain data.

mod band;
mod card;
pub mod floats;
pub mod recorded;
mod spread;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use band::{Band, Growth, Member};
pub use card::{CardCheck, CardReport, Ceilings, KernelRun, PeerCopy};
pub use recorded::Recorded;
pub use spread::{Bin, Cause, Heat, Row, Spread};

/// The result of one microtest on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MicroReport {
    /// Spec name, such as `mhc-mix`.
    pub spec: String,
    /// Device, such as `cpu`.
    pub device: String,
    /// When it ended.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Where weights and activations came from, in one sentence.
    pub provenance: String,
    /// Recorded activations that were taken; empty where none were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<Recorded>,
    /// Number of tokens, width, sites and the like, in the spec's own words.
    pub shape: String,
    /// One curve per candidate and per way of measuring.
    pub curves: Vec<Curve>,
    /// The upper edge of the noise band: errors that a right arithmetic makes anyway.
    pub floor: Vec<Curve>,
    /// What the band is made of.
    #[serde(default)]
    pub bands: Vec<Band>,
    /// Errors of the parts inside a site, with the reference's input.
    #[serde(default)]
    pub parts: Vec<PartCurve>,
    /// How the errors of each candidate's elements are spread, by part.
    #[serde(default)]
    pub spreads: Vec<Spread>,
    /// What each rounding point of a candidate does alone.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Errors of the main part by point and row.
    #[serde(default)]
    pub heats: Vec<Heat>,
    /// What changed in the decisions, the floor first.
    #[serde(default)]
    pub decisions: Vec<Decisions>,
    /// What changed in the sets that were kept, such as keys or experts, the floor first.
    #[serde(default)]
    pub sets: Vec<Sets>,
    /// Known-bad twins; one that is not caught makes the whole report worthless.
    #[serde(default)]
    pub controls: Vec<Control>,
    /// What the numbers mean.
    pub verdicts: Vec<CandidateVerdict>,
    /// Candidates that were not run, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The card it ran on, if it ran on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardReport>,
    /// Seconds it took.
    pub seconds: f64,
}

impl MicroReport {
    /// What makes the whole report worthless, in sentences: twins that were missed, a card that does not keep what
    /// it is given, kernels whose bits change from run to run.
    pub fn spoiled(&self) -> Vec<String> {
        let missed = self.controls.iter().filter(|c| !c.caught);
        let missed = missed.map(|c| format!("the test missed its known-bad twin `{}`: {}", c.name, c.says));
        let faults = self.card.iter().flat_map(|card| card.check.faults());
        let faults = faults.map(|fault| format!("the card {} is not to be trusted: {fault}", self.device));
        let kernels = self.card.iter().flat_map(|card| &card.kernels).filter(|k| k.other_bits > 0);
        let restless = kernels.map(|k| {
            format!("`{}` gave other bits in {} of {} runs with the same inputs", k.candidate, k.other_bits, k.runs)
        });
        let astray = self.card.iter().flat_map(|card| &card.astray);
        let astray = astray.map(|what| format!("a split-k choice of the plain kernel is not the function: {what}"));
        let unproven = (self.card.is_some() && self.controls.is_empty())
            .then(|| "no known-bad twin could run, so that nothing proves that the test can fail".to_owned());
        missed.chain(faults).chain(restless).chain(astray).chain(unproven).collect()
    }

    /// The verdict of the candidate that strays furthest.
    pub fn worst(&self) -> Option<&CandidateVerdict> {
        self.verdicts.iter().max_by_key(|v| v.class)
    }
}

/// One error curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// Candidate name, such as `bf16`.
    pub candidate: String,
    /// `per-site` or `compounded`.
    pub mode: CurveMode,
    /// What each point is: `layer 0 attention`, ….
    pub labels: Vec<String>,
    /// Relative L2 error at each point; NaN and infinity are kept (as strings on disk).
    #[serde(with = "crate::kernel::report::floats")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub rel_l2: Vec<f64>,
    /// `1 - 2 sum(xy) / sum(x^2 + y^2)` at each point, the metric of `DeepGEMM`'s tests: about half
    /// the square of the relative error. Empty in reports that are older than it.
    #[serde(default, with = "crate::kernel::report::floats", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub calc_diff: Vec<f64>,
    /// How a compounded curve grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
}

/// How a curve was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveMode {
    /// Each site alone, fed with the reference's input.
    #[default]
    PerSite,
    /// Each site fed with the candidate's own earlier output.
    Compounded,
    /// The candidate at that site alone, the rest exact; measured after the last site.
    SingleInjection,
}

impl CurveMode {
    /// The way of measuring in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::PerSite => "per site",
            Self::Compounded => "compounded",
            Self::SingleInjection => "one site alone, at the end",
        }
    }
}

/// One error curve of another part than the main one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartCurve {
    /// Which part, such as `mixes`.
    pub part: String,
    /// The curve.
    pub curve: Curve,
}

/// What changed in the sets that a kernel keeps: keys of the indexer, experts of the router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sets {
    /// Candidate name, or `floor`.
    pub candidate: String,
    /// What is kept, such as `keys` or `experts`.
    pub kind: String,
    /// Rows that chose.
    pub rows: u64,
    /// How many each row keeps.
    pub keep: u64,
    /// The share of the reference's set that the candidate kept, over all rows.
    pub overlap: f64,
    /// The least overlap of one row.
    pub least_overlap: f64,
    /// Rows whose set differs.
    pub rows_changed: u64,
    /// Of these, rows of which a lost member had a wider margin than two scores can move together within the band.
    pub rows_beyond_floor: u64,
    /// The reference's margin at the cut (last kept less first dropped), median over the rows.
    pub median_margin: Option<f64>,
    /// Rows of which the reference keeps a planted member; `None` where there is none.
    pub planted: Option<u64>,
    /// Of these, rows that kept it.
    pub planted_kept: Option<u64>,
}

/// What changed in the decisions of the whole model, with the candidate at every site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decisions {
    /// Candidate name, or `floor`.
    pub candidate: String,
    /// Positions at which the model chose a token.
    pub positions: u64,
    /// Positions at which another token is now on top.
    pub flips: u64,
    /// Of these, positions whose margin is wider than the floor moves any margin.
    pub flips_beyond_floor: u64,
    /// The widest margin of the reference that flipped, in nats; `None` if none flipped.
    pub widest_flipped: Option<f64>,
    /// The largest change of a margin, in nats; `None` if a logit is not a number.
    pub largest_shift: Option<f64>,
    /// Choices of experts (one a token and layer).
    pub expert_choices: u64,
    /// Of these, choices of another set of experts.
    pub expert_flips: u64,
}

/// A known-bad twin and whether the test caught it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// Name, such as `transposed`.
    pub name: String,
    /// It was classed as broken.
    pub caught: bool,
    /// One sentence with the numbers.
    pub says: String,
    /// Its curves.
    pub curves: Vec<Curve>,
}

/// What the numbers of one candidate mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateVerdict {
    /// Candidate name.
    pub candidate: String,
    /// Below the floor, above it, or broken.
    pub class: ErrorClass,
    /// One sentence with the numbers.
    pub says: String,
    /// One sentence about what it does not show.
    pub does_not_show: String,
}

/// Class of an error, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorClass {
    /// Not above what the reference's own rounding makes.
    BelowFloor,
    /// Above it, but no decision flips.
    AboveFloor,
    /// Decisions flip.
    FlipsDecisions,
    /// Not the same function.
    Broken,
}

impl ErrorClass {
    /// The class in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::BelowFloor => "below floor",
            Self::AboveFloor => "above floor",
            Self::FlipsDecisions => "flips decisions",
            Self::Broken => "broken",
        }
    }
}
