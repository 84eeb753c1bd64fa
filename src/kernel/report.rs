//! What a microtest found, as plain data.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of one microtest on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What the numbers mean.
    pub verdicts: Vec<CandidateVerdict>,
    /// Seconds it took.
    pub seconds: f64,
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

/// Class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
