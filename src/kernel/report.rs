//! What a microtest found, as plain data.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Number of tokens, width, sites and the like, in the spec's own words.
    pub shape: String,
    /// One curve per candidate and per way of measuring.
    pub curves: Vec<Curve>,
    /// The curve of errors that the reference's own rounding makes anyway.
    pub floor: Vec<Curve>,
    /// Errors of the parts inside a site, with the reference's input.
    #[serde(default)]
    pub parts: Vec<PartCurve>,
    /// What changed in the decisions, the floor first.
    #[serde(default)]
    pub decisions: Vec<Decisions>,
    /// Known-bad twins; one that is not caught makes the whole report worthless.
    #[serde(default)]
    pub controls: Vec<Control>,
    /// What the numbers mean.
    pub verdicts: Vec<CandidateVerdict>,
    /// Seconds it took.
    pub seconds: f64,
}

impl MicroReport {
    /// The verdict of the candidate that strays furthest.
    pub fn worst(&self) -> Option<&CandidateVerdict> {
        self.verdicts.iter().max_by_key(|v| v.class)
    }
}

/// One error curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
}

/// How a curve was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveMode {
    /// Each site alone, fed with the reference's input.
    PerSite,
    /// Each site fed with the candidate's own earlier output.
    Compounded,
}

/// One error curve of a part inside a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartCurve {
    /// Which part.
    pub part: Part,
    /// The curve; its mode is always per site.
    pub curve: Curve,
}

/// A part inside a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The 24 numbers that are mixed out of a token.
    Mixes,
    /// What the sublayer is given.
    SiteInput,
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

/// Floats on disk: a finite number is a number, NaN and infinity are strings.
pub mod floats {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Float {
        Number(f64),
        Text(String),
    }

    /// Writes each float as a number or as `"NaN"`, `"inf"`, `"-inf"`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            values.iter().map(|v| if v.is_finite() { Float::Number(*v) } else { Float::Text(v.to_string()) }),
        )
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// A string that is not a float.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Float>::deserialize(deserializer)?;
        values
            .into_iter()
            .map(|v| match v {
                Float::Number(v) => Ok(v),
                Float::Text(t) => t.parse().map_err(serde::de::Error::custom),
            })
            .collect()
    }
}
