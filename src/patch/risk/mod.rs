//! How far each patch and each factor is under suspicion: a sum of named rules, each with its fact and source. Pure.
//!
//! `table` holds the rules and their weights, `apply` says when one fires, `sites` counts places of a forward pass,
//! `reports` counts public causes, `factors` are the switches that need no restart, `explain` and `ties` put the sums
//! into words, `priors` hands them to the search. Nothing here knows the name of a patch.
//!
//! # What a score is
//!
//! Weights are in the manner of log-odds (natural logarithm): +0.7 is "twice as suspect, all else equal". They were
//! chosen by hand, in this order. What decides the question by itself is set above the sum of everything else (a
//! verdict ±40, what is dead here −20; a test keeps the rest below 20). What the symptom says of the phase is set
//! next (+1.5, −2). Kinds of arithmetic are set between 0.4 and 1.2 by how much damage one wrong line of them does.
//! Rates of public reports count half their logarithm, since reports are of other people's patches and are written
//! about what can be found. Nobody fitted them to outcomes, and the rules are not independent of each other: a score
//! orders patches, and is no probability.

mod apply;
mod explain;
mod factors;
mod priors;
mod reports;
mod sites;
mod table;
mod ties;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::explain::explain;
pub use self::factors::Factor;
pub use self::priors::{MOST_TO_LEAST, priors};
pub use self::reports::{Class, Count, of_class, of_factor, threads, threads_of_factor};
pub use self::table::{RULES, Rule};
pub use self::ties::{SAME, Tie, ties};
use super::context::{Notes, Role, Running, Scene};
use super::state::{self, Found};
use super::types::Entry;

/// Scores from here on are `high`: about three strong reasons together.
pub const HIGH: f64 = 4.0;
/// Scores from here on are `medium`: about two.
pub const MEDIUM: f64 = 2.0;

/// Name that stands for the target where the case has none, or none that the patch is in.
const NO_TARGET: &str = "any target";

/// Class of a risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Look here last.
    Low,
    /// Look here.
    Medium,
    /// Look here first.
    High,
}

impl Tier {
    /// The tier of a score.
    pub fn of(score: f64) -> Self {
        if score >= HIGH {
            Self::High
        } else if score >= MEDIUM {
            Self::Medium
        } else {
            Self::Low
        }
    }

    /// The tier in one word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One term of a risk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Term {
    /// Name of the rule.
    pub rule: String,
    /// What it adds, to a hundredth, so that the terms as shown add up to the score as shown.
    pub weight: f64,
    /// The fact it rests on.
    pub fact: String,
    /// Where the fact was read.
    pub source: String,
}

/// What is not known of a patch and would change its score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Open {
    /// What is not known.
    pub unknown: String,
    /// What would tell.
    pub how: String,
    /// How far the score could fall.
    pub down: f64,
    /// How far it could rise.
    pub up: f64,
}

/// What is ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A patch.
    Patch,
    /// A switch that needs no restart.
    Factor,
}

/// A patch or factor with its risk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// Id.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// Patch or factor.
    pub kind: Kind,
    /// The sum of the terms.
    pub score: f64,
    /// Its class.
    pub tier: Tier,
    /// The terms, in the order of the table of rules.
    pub terms: Vec<Term>,
    /// Its state on each target.
    pub states: Vec<Found>,
    /// What is not known of it, what would change most first.
    pub open: Vec<Open>,
}

/// Ranks patches and factors together, the most suspect first; equal scores by id.
///
/// `notes` are by id, of patches and factors alike.
pub fn rank(entries: &[Entry], scene: &Scene, notes: &BTreeMap<String, Notes>) -> Vec<Ranked> {
    let nothing = Notes::default();
    let of = |id: &str| notes.get(id).unwrap_or(&nothing);
    let patches = entries.iter().map(|entry| assess(entry, scene, of(&entry.id)));
    let factors = Factor::ALL.iter().map(|factor| assess_factor(*factor, scene, of(factor.id())));
    let mut all: Vec<Ranked> = patches.chain(factors).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)).then_with(|| a.title.cmp(&b.title)));
    all
}

/// The risk of one patch.
pub fn assess(entry: &Entry, scene: &Scene, notes: &Notes) -> Ranked {
    let in_it = |target: &str| notes.targets.is_empty() || notes.targets.iter().any(|t| t == target);
    let targets = scene.running.iter().filter(|running| in_it(&running.target));
    let mut states: Vec<Found> =
        targets.map(|running| state::state(entry, notes.levels.get(&running.target), running)).collect();
    if states.is_empty() {
        // What no server runs is told without one.
        states.push(state::state(entry, None, &Running::unknown(NO_TARGET, Role::Monolithic, "no server was read")));
    }
    let weighed = apply::Weighed { subject: apply::Subject::Patch(entry), states: &states, scene, notes };
    summed(&weighed, entry.id.clone(), entry.title.clone(), Kind::Patch, states.clone())
}

/// The risk of one factor.
pub fn assess_factor(factor: Factor, scene: &Scene, notes: &Notes) -> Ranked {
    let states = factors::states(factor, scene);
    let weighed = apply::Weighed { subject: apply::Subject::Factor(factor), states: &states, scene, notes };
    summed(&weighed, factor.id().to_owned(), factor.title().to_owned(), Kind::Factor, states.clone())
}

fn summed(weighed: &apply::Weighed<'_>, id: String, title: String, kind: Kind, states: Vec<Found>) -> Ranked {
    let terms: Vec<Term> = RULES.iter().filter_map(|rule| apply::apply(rule, weighed)).collect();
    let score = hundredth(terms.iter().map(|t| t.weight).sum());
    let open = apply::open(weighed);
    Ranked { id, title, kind, score, tier: Tier::of(score), terms, states, open }
}

/// Rounded to a hundredth; never a negative zero.
fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
