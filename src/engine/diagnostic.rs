//! Something that the user must know although nothing failed as a whole. Plain data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something was not read, was dropped, or may mislead.
    Warning,
    /// Something was asked for and cannot be done.
    Error,
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// Stable kebab-case name of this kind of remark.
    pub code: String,
    /// One clear sentence, lower case, no full stop.
    pub message: String,
    /// Where: a file and line, an URL, a pid.
    pub place: Option<String>,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A warning without place or hint.
    pub fn warning(code: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, code: code.into(), message: message.into(), place: None, hint: None }
    }

    /// The same remark with a place.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The same remark with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
