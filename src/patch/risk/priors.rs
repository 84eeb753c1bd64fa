//! Weights for the search out of scores. Pure.

use std::collections::BTreeMap;

use super::{Kind, MEDIUM, Ranked};

/// The most that the search may prefer one patch to another, as a ratio of weights.
///
/// A search finds what it does not expect only if it looks there at all; at a ratio of 20, the least suspect of eight
/// patches still has more than a two-hundredth of the mass, whatever its score.
pub const MOST_TO_LEAST: f64 = 20.0;

/// Score over which the weight rises to about three quarters of its way: two strong reasons.
const SPREAD: f64 = 2.0;

/// Weights of the patches by id, adding up to 1; factors have none, since the search switches patches.
///
/// The map is `1 + (MOST_TO_LEAST - 1) * logistic((score - MEDIUM) / SPREAD)`, divided by the sum. It rises with the
/// score, never reaches 0, and no weight is more than [`MOST_TO_LEAST`] times another. A score that is no number
/// counts as one in the middle.
pub fn priors(ranked: &[Ranked]) -> BTreeMap<String, f64> {
    let patches = || ranked.iter().filter(|r| r.kind == Kind::Patch);
    let total: f64 = patches().map(|r| raw(r.score)).sum();
    patches().map(|r| (r.id.clone(), raw(r.score) / total)).collect()
}

fn raw(score: f64) -> f64 {
    let at = if score.is_nan() { 0.0 } else { (score - MEDIUM) / SPREAD };
    1.0 + (MOST_TO_LEAST - 1.0) / (1.0 + (-at).exp())
}
