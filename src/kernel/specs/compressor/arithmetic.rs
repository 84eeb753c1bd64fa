//! A candidate's arithmetic of the compressor, and its faults.
//!
//! Responsible for the order of its rounding points. Not responsible for what is right.
//!
//! Tokens come one by one, as while decoding: each waits in the state until its window ends, so the
//! point `state` rounds all of them. A prefill rounds only those of the window that it leaves
//! unfinished and, where windows overlap, of the one before.

use super::{Case, outcome};
use crate::kernel::candidate::Candidate;
use crate::kernel::microtest::Outcome;
use crate::kernel::oracle::EPS;
use crate::kernel::oracle::rotary::Turn;
use crate::kernel::specs::points::rule;
use crate::kernel::specs::product::product;

/// Values and gates of all tokens as they wait for their window, `[tokens, inputs]` each.
struct State {
    values: Vec<f64>,
    gates: Vec<f64>,
}

/// What the candidate makes of the case.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let state = state(case, candidate);
    let complete = case.tokens() / case.compressor.ratio;
    let windows = if candidate.has_fault("incomplete-window") { case.windows() } else { complete };
    outcome(case, (0..windows).flat_map(|window| key(case, candidate, window, &state)).collect())
}

fn state(case: &Case, candidate: &Candidate) -> State {
    let (inputs, ratio) = (case.compressor.inputs(), case.compressor.ratio);
    let projected_rule = rule(candidate, "projected");
    let project = |weights: &[f64]| -> Vec<f64> {
        let weights = candidate.at("weight").store(weights, case.width);
        product(candidate.accumulate, &weights, &case.x, case.width).into_iter().map(&projected_rule).collect()
    };
    let (values, mut gates) = (project(&case.values), project(&case.gates));
    if !candidate.has_fault("ape-forgotten") {
        for (token, gates) in gates.chunks_exact_mut(inputs).enumerate() {
            let place = place(candidate, token, ratio);
            gates.iter_mut().zip(&case.compressor.ape[place * inputs..]).for_each(|(gate, ape)| *gate += ape);
        }
    }
    let storage = candidate.at("state");
    State { values: storage.store(&values, inputs), gates: storage.store(&gates, inputs) }
}

/// The place of a token in its window.
fn place(candidate: &Candidate, token: usize, ratio: usize) -> usize {
    if candidate.has_fault("window-shifted") { (token + ratio - 1) % ratio } else { token % ratio }
}

/// The key of one window.
fn key(case: &Case, candidate: &Candidate, window: usize, state: &State) -> Vec<f64> {
    let compressor = &case.compressor;
    let ratio = compressor.ratio;
    let (probability, mean_rule) = (rule(candidate, "probability"), rule(candidate, "mean"));
    let (normed_rule, key_rule) = (rule(candidate, "normed"), rule(candidate, "key"));
    let sums = candidate.accumulate;
    let mean = |d: usize| {
        let terms = terms(case, candidate, window, d, state);
        let most = terms.iter().map(|(gate, _)| *gate).fold(f64::NEG_INFINITY, f64::max);
        let (weights, values): (Vec<f64>, Vec<f64>) =
            terms.iter().map(|(gate, value)| (probability((gate - most).exp()), *value)).unzip();
        mean_rule(sums.dot(&weights, &values) / sums.sum(&weights))
    };
    let means: Vec<f64> = (0..compressor.dim).map(mean).collect();
    let root = (sums.dot(&means, &means) / means.len() as f64 + EPS).sqrt();
    let mut key: Vec<f64> =
        means.iter().zip(&compressor.norm).map(|(x, weight)| normed_rule(x / root * weight)).collect();
    let behind = if candidate.has_fault("rope-at-window-end") { ratio - 1 } else { 0 };
    compressor.rotary.turn(&mut key, window * ratio + behind, Turn::There);
    key.iter().map(|x| key_rule(*x)).collect()
}

/// Gates and values that dimension `d` of a window's key is made of.
fn terms(case: &Case, candidate: &Candidate, window: usize, d: usize, state: &State) -> Vec<(f64, f64)> {
    let (inputs, ratio, dim) = (case.compressor.inputs(), case.compressor.ratio, case.compressor.dim);
    let shift = usize::from(candidate.has_fault("window-shifted"));
    let (before, own) = match (case.compressor.overlaps(), candidate.has_fault("halves-exchanged")) {
        (true, false) => (d, dim + d),
        (true, true) => (dim + d, d),
        (false, _) => (d, d),
    };
    let mut terms = Vec::new();
    let mut read = |window: usize, input: usize| {
        for token in window * ratio + shift..((window + 1) * ratio + shift).min(case.tokens()) {
            let at = token * inputs + input;
            terms.push((state.gates[at], state.values[at]));
        }
    };
    if case.compressor.overlaps() && window > 0 {
        read(window - 1, before);
    }
    read(window, own);
    terms
}
