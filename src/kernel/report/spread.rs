//! How errors are spread: over elements, over rounding points, over rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the errors of the elements of one part are spread, over all points of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Candidate name.
    pub candidate: String,
    /// Which part.
    pub part: String,
    /// Elements that were compared.
    pub elements: u64,
    /// The greatest absolute error; `None` if a value is not a number.
    pub max_abs: Option<f64>,
    /// Root mean square of the absolute errors; `None` if a value is not a number.
    pub rms: Option<f64>,
    /// Quantiles .5, .9, .99 and .999 of the absolute errors over the reference's root mean square;
    /// a value that is not a number counts as the greatest, so that a quantile may be NaN.
    #[serde(with = "crate::kernel::report::floats::array")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub quantiles: [f64; 4],
    /// The one factor that most of the error is, if it is one: the least-squares ratio of the
    /// candidate to the reference, where it explains at least nine tenths of the squared error.
    pub ratio: Option<f64>,
    /// Absolute errors over the reference's root mean square, counted by power of ten.
    pub histogram: Vec<Bin>,
}

/// One bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Errors from 10 to this power up to ten times as much; `None` counts exact elements.
    pub decade: Option<i32>,
    /// Elements.
    pub count: u64,
}

/// What one rounding point of a candidate does alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// Candidate name.
    pub candidate: String,
    /// The point, such as `weight`, or `sums`.
    pub point: String,
    /// What is done there, such as `bf16`.
    pub rounding: String,
    /// Root mean square over all points of the relative error of the main part, with this alone.
    pub rel_l2: f64,
    /// Its share of the squared error of all points alone, from 0 to 1.
    pub share: f64,
}

/// Errors of the main part by point and row, such as layer and token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heat {
    /// Candidate name.
    pub candidate: String,
    /// What each line is: the points of the curve.
    pub lines: Vec<String>,
    /// What a column is, such as `token`.
    pub column: String,
    /// Number of the first row of each column; columns of several rows hold the greatest error of them.
    pub columns: Vec<u64>,
    /// Relative L2 error of the rows, `[lines][columns]`, to three digits; NaN where there is none.
    #[schemars(with = "Vec<Vec<serde_json::Value>>")]
    pub values: Vec<Row>,
}

/// One line of a heat map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Row(
    /// The values.
    #[serde(with = "crate::kernel::report::floats")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub Vec<f64>,
);
