//! Sealed scenarios: which faults a lab server hides, and when each of them strikes.
//!
//! Responsible for the scenario files, their conditions, sealing, and deciding a request's faults.
//! Not responsible for what a fault does; that is `model::arith::Faults` and the code that reads it.

pub mod expr;
pub mod plan;
pub mod seal;

use serde::{Deserialize, Serialize};

pub use expr::Expr;
pub use plan::{Facts, Plan};
pub use seal::{SealError, reveal, seal};

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, the same as the file's.
    pub name: String,
    /// One sentence for `lab reveal`.
    #[serde(default)]
    pub about: String,
    /// Its faults; none is a healthy server.
    #[serde(default, rename = "fault")]
    pub faults: Vec<FaultSpec>,
    /// How its servers divide the work.
    #[serde(default)]
    pub shape: Shape,
    /// Seconds that a server of it takes to load its weights at least.
    #[serde(default)]
    pub load_seconds: f64,
}

/// How the servers of a deployment divide the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// One server does everything.
    #[default]
    Monolithic,
    /// A router in front of one server for prompts and one for outputs.
    Disaggregated,
}

/// One hidden fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// What breaks.
    pub kind: FaultKind,
    /// For which gates and requests; see [`Expr`].
    pub when: String,
    /// How often, among the requests that the condition holds for.
    #[serde(default)]
    pub rate: Rate,
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Indexer keys of whole prefill chunks are read one page off.
    IndexPageOff,
    /// Indexer keys are read interleaved although they are stored planar.
    IndexLayout,
    /// Indexer scores have the wrong sign.
    IndexSign,
    /// Indexer state of a reused prefix comes back one page stale.
    StalePrefix,
    /// The window is 16 tokens instead of 128.
    WindowShort,
    /// The routed scaling factor is applied twice.
    RoutedScale,
    /// Keys and values are stored in four bits.
    KvInt4,
    /// A hand-over from prefill to decode leaves the indexer keys behind.
    StateLeftBehind,
}

/// How often a fault strikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Rate {
    /// The same share in every boot.
    Fixed(f64),
    /// A share drawn anew for each boot, written `beta(a,b)`.
    PerBoot {
        /// The distribution.
        per_boot: String,
    },
}

impl Default for Rate {
    fn default() -> Self {
        Self::Fixed(1.0)
    }
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// No such name.
    #[error("there is no scenario `{name}`; the lab has {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that exist.
        known: String,
    },
    /// The file is not a scenario.
    #[error("scenario `{name}` cannot be read: {reason}")]
    Format {
        /// Scenario name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A condition is not an expression.
    #[error("condition `{when}` of scenario `{name}`: {source}")]
    When {
        /// Scenario name.
        name: String,
        /// The text.
        when: String,
        /// What is wrong with it, and where.
        source: expr::ExprError,
    },
    /// A rate is neither a share nor a distribution.
    #[error("scenario `{name}` has rate `{rate}`; it must be a number from 0 to 1 or `beta(a,b)`")]
    Rate {
        /// Scenario name.
        name: String,
        /// The text.
        rate: String,
    },
}

const FILES: [(&str, &str); 6] = [
    ("incident", include_str!("../../../lab/scenarios/incident.toml")),
    ("clean", include_str!("../../../lab/scenarios/clean.toml")),
    ("flaky", include_str!("../../../lab/scenarios/flaky.toml")),
    ("stale-prefix", include_str!("../../../lab/scenarios/stale-prefix.toml")),
    ("and-pair", include_str!("../../../lab/scenarios/and-pair.toml")),
    ("pd-state", include_str!("../../../lab/scenarios/pd-state.toml")),
];

/// Names of the scenarios that the program carries.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The scenario of that name, checked.
///
/// # Errors
/// When there is none, or its file is not valid.
pub fn named(name: &str) -> Result<Scenario, ScenarioError> {
    let text = FILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).ok_or_else(|| ScenarioError::Unknown {
        name: name.into(),
        known: names().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
    })?;
    parse(name, text)
}

/// Reads a scenario file's text and checks every condition and rate in it.
///
/// # Errors
/// When the text is not a valid scenario.
pub fn parse(name: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let format = |e: toml::de::Error| ScenarioError::Format { name: name.into(), reason: e.to_string() };
    let scenario: Scenario = toml::from_str(text).map_err(format)?;
    Plan::compile(&scenario, &[], 0, 0)?;
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_valid_and_named_after_its_file() {
        for name in names() {
            assert_eq!(named(name).unwrap().name, name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = named("incidnet").unwrap_err().to_string();
        assert!(error.contains("`incident`") && error.contains("`and-pair`"), "{error}");
    }

    #[test]
    fn broken_files_are_explained() {
        let check = |text: &str, expect: &str| {
            let error = parse("x", text).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check("name = 3", "x");
        check("name = \"x\"\n[[fault]]\nkind = \"gremlin\"\nwhen = \"true\"", "gremlin");
        check("name = \"x\"\n[[fault]]\nkind = \"index-sign\"\nwhen = \"len %\"", "column 6");
        check("name = \"x\"\n[[fault]]\nkind = \"index-sign\"\nwhen = \"true\"\nrate = 3", "0 to 1");
        let per_boot = "name = \"x\"\n[[fault]]\nkind = \"index-sign\"\nwhen = \"true\"\nrate = { per_boot = \"b\" }";
        check(per_boot, "beta(a,b)");
    }
}
