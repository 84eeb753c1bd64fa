//! The router of one layer: which experts a token takes, and with which weights.
//!
//! Responsible for scores, for the choice by hash table or by biased score, for weights, and for
//! weighing the experts' outputs with the scaling factor applied exactly once. Not responsible for
//! what an expert computes, which is [`super::swiglu`], nor for how a server groups tokens.
//!
//! Source of the formulas: the public reference implementation of DeepSeek-V4
//! (`inference/model.py`); for the two places of the scaling factor and for the shared expert among
//! the routed ones, `SGLang` (`models/deepseek_v4.py`, `layers/moe/hash_topk.py`).

/// How a token's experts are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice<'a> {
    /// They follow from the token's id: its row of the table `tid2eid`.
    Hash(&'a [u32]),
    /// Those with the largest score after this bias, one value an expert, is added.
    Biased(&'a [f64]),
}

/// Where the scaling factor is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingPlace {
    /// To the weights, before the experts' outputs are added.
    TopK,
    /// To the sum of the routed experts' outputs.
    Output,
}

/// The experts of one token, in the order of the choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Indices.
    pub experts: Vec<u32>,
    /// Their weights, whose sum is one: the scaling factor is not in them.
    pub weights: Vec<f64>,
}

/// `ln(1 + e^x)` without overflow.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The score of an expert, `sqrt(softplus(logit))`.
pub fn score(logit: f64) -> f64 {
    softplus(logit).sqrt()
}

/// The indices of the `active` largest of `score + bias`, the largest first; of equal ones the
/// lower index first. NaN counts as larger than any number, so that it is not lost.
pub fn top_k(scores: &[f64], bias: &[f64], active: usize) -> Vec<u32> {
    let biased: Vec<f64> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| biased[*b].total_cmp(&biased[*a]).then(a.cmp(b)));
    order[..active].iter().map(|e| *e as u32).collect()
}

/// The experts of a token with these logits. A hash table gives as many as its row has; a bias
/// gives `active`.
///
/// Weights are the **unbiased** scores of the chosen experts over their sum, to which nothing is
/// added; in a hash layer too they come from the scores.
pub fn route(logits: &[f64], choice: Choice<'_>, active: usize) -> Route {
    let scores: Vec<f64> = logits.iter().map(|x| score(*x)).collect();
    let experts = match choice {
        Choice::Hash(row) => row.to_vec(),
        Choice::Biased(bias) => top_k(&scores, bias, active),
    };
    let chosen: Vec<f64> = experts.iter().map(|e| scores[*e as usize]).collect();
    let sum: f64 = chosen.iter().sum();
    Route { experts, weights: chosen.iter().map(|s| s / sum).collect() }
}

/// The output of the layer for one token: `scaling * sum_e weight_e routed_e + shared`, where
/// `routed` has the outputs of the route's experts in its order, all as long as `shared`.
///
/// Both places of the factor are the same function, up to rounding.
pub fn weigh(route: &Route, routed: &[Vec<f64>], shared: &[f64], scaling: f64, place: ScalingPlace) -> Vec<f64> {
    let (before, after) = factors(scaling, place);
    let mut out = vec![0.0; shared.len()];
    for (weight, values) in route.weights.iter().zip(routed) {
        out.iter_mut().zip(values).for_each(|(o, y)| *o += weight * before * y);
    }
    out.iter().zip(shared).map(|(o, y)| o * after + y).collect()
}

/// The same with the shared expert as one more routed one. Its weight is `1 / scaling`, so that the
/// one application of the factor makes it 1, and it is not part of the sum that the others are
/// divided by.
pub fn weigh_with_shared(
    route: &Route,
    routed: &[Vec<f64>],
    shared: &[f64],
    scaling: f64,
    place: ScalingPlace,
) -> Vec<f64> {
    let (before, after) = factors(scaling, place);
    let mut out = vec![0.0; shared.len()];
    let weights = route.weights.iter().copied().chain([1.0 / scaling]);
    for (weight, values) in weights.zip(routed.iter().map(Vec::as_slice).chain([shared])) {
        out.iter_mut().zip(values).for_each(|(o, y)| *o += weight * before * y);
    }
    out.iter().map(|o| o * after).collect()
}

/// What the weights and what the sum is multiplied by.
fn factors(scaling: f64, place: ScalingPlace) -> (f64, f64) {
    match place {
        ScalingPlace::TopK => (scaling, 1.0),
        ScalingPlace::Output => (1.0, scaling),
    }
}

/// How often the scaling factor was applied, read off the sum of a token's effective weights, which
/// is the layer's output with experts that all return 1 and no shared expert. `None` if that sum is
/// no power of the factor within one part in a hundred.
///
/// ```
/// use patchbench::kernel::oracle::router::times_scaled;
/// assert_eq!(times_scaled(1.5, 1.5), Some(1));
/// assert_eq!(times_scaled(2.25, 1.5), Some(2));
/// assert_eq!(times_scaled(1.0, 1.5), Some(0));
/// assert_eq!(times_scaled(1.2, 1.5), None);
/// ```
pub fn times_scaled(effective_sum: f64, scaling: f64) -> Option<i32> {
    let power = (effective_sum.ln() / scaling.ln()).round();
    let near = (effective_sum / scaling.powf(power) - 1.0).abs() < 0.01;
    (near && power.abs() < 100.0).then_some(power as i32)
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
