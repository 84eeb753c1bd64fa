//! The noise band: what errors a right arithmetic makes anyway, and how errors grow.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CurveMode;

/// The noise band of one part and way of measuring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// Which part; the main part's name in the spec.
    pub part: String,
    /// The way of measuring.
    pub mode: CurveMode,
    /// What each point is.
    pub labels: Vec<String>,
    /// The least error of a member at each point.
    #[serde(with = "crate::kernel::report::floats")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub low: Vec<f64>,
    /// The greatest error of a member at each point.
    #[serde(with = "crate::kernel::report::floats")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub high: Vec<f64>,
    /// What was varied.
    pub members: Vec<Member>,
}

/// One right arithmetic that makes the band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Name, such as `bf16-output`, `input-ulp`, `batch-17`.
    pub name: String,
    /// What it varies, in one line.
    pub says: String,
    /// Root mean square of its errors over all points; NaN where one is.
    #[serde(with = "crate::kernel::report::floats::one")]
    #[schemars(with = "serde_json::Value")]
    pub rms: f64,
}

/// How the errors of a compounded curve grow from point to point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Growth {
    /// Like independent noise: the error grows with the root of the number of points, or slower.
    NoiseLike {
        /// Exponent of the fitted power of the number of points.
        exponent: f64,
    },
    /// Errors add up in one direction: the error grows nearly in proportion, or faster.
    Coherent {
        /// Exponent of the fitted power of the number of points.
        exponent: f64,
    },
    /// One point makes it.
    Break {
        /// Index of the point.
        at: usize,
        /// The error there over the error before it: infinite where there was none or where it is infinite, NaN if it is NaN.
        #[serde(with = "crate::kernel::report::floats::one")]
        #[schemars(with = "serde_json::Value")]
        factor: f64,
    },
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoiseLike { exponent } => write!(f, "noise-like (n^{exponent:.2})"),
            Self::Coherent { exponent } => write!(f, "coherent (n^{exponent:.2})"),
            Self::Break { at, factor } if factor.is_nan() => write!(f, "breaks at point {} (not a number)", at + 1),
            Self::Break { at, factor } if factor.is_infinite() => {
                write!(f, "breaks at point {} (infinitely more than the one before)", at + 1)
            }
            Self::Break { at, factor } => write!(f, "breaks at point {} ({factor:.0} times the one before)", at + 1),
        }
    }
}
