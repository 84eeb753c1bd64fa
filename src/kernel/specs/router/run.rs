//! The router's arithmetic: the reference, and a candidate's.

use std::collections::BTreeSet;

use super::case::{Case, Selection};
use crate::kernel::candidate::Candidate;
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::microtest::{KeptRow, KeptSets, Outcome, PartValues};
use crate::kernel::oracle::router::{ScalingPlace, score, softplus, top_k, weigh};
use crate::kernel::specs::product::product;

/// How many times its declared error two scores may be apart to count as not told apart.
const UNSURE: f64 = 8.0;

/// The steepest slope of `sqrt(softplus(x))`, which it has near x = 0.7.
const SLOPE: f64 = 0.32;

/// The reference, by the oracle's functions alone.
pub(super) fn reference(case: &Case) -> Outcome {
    let layer = &*case.layer;
    let scores: Vec<f64> = case.exact.logits.iter().map(|x| score(*x)).collect();
    let own: Vec<Vec<u32>> = case.exact.routes.iter().map(|r| r.experts.clone()).collect();
    let mut weights = vec![0.0; scores.len()];
    let mut output = Vec::new();
    let exact = Candidate::default();
    for token in 0..case.tokens() {
        let row = &scores[token * layer.experts..][..layer.experts];
        let mut route = case.exact.routes[token].clone();
        let mut outputs = case.exact.outputs[token].clone();
        if let Some(right) = not_told_apart(case, &exact, token, &own[token]) {
            let chosen: Vec<f64> = right.iter().map(|e| row[*e as usize]).collect();
            let sum: f64 = chosen.iter().sum();
            route.weights = chosen.iter().map(|s| s / sum).collect();
            route.experts = right.to_vec();
            outputs =
                right.iter().chain([&(layer.experts as u32)]).map(|e| layer.apply(*e, case.token(token))).collect();
        }
        for (expert, weight) in route.experts.iter().zip(&route.weights) {
            weights[token * layer.experts + *expert as usize] = weight * layer.scaling;
        }
        let (shared, routed) = outputs.split_last().map_or((&[][..], &[][..]), |(s, r)| (s.as_slice(), r));
        output.extend(weigh(&route, routed, shared, layer.scaling, ScalingPlace::TopK));
    }
    outcome(case, scores, own, weights, output)
}

/// A candidate's arithmetic.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let layer = &*case.layer;
    let logits = logits(case, candidate);
    let curve = if candidate.has_fault("root-forgotten") { softplus } else { score };
    let scores = candidate.at("scores").store(&logits.iter().map(|x| curve(*x)).collect::<Vec<_>>(), layer.experts);
    let own: Vec<Vec<u32>> = scores
        .chunks_exact(layer.experts)
        .enumerate()
        .map(|(token, row)| choose(case, candidate, token, row))
        .collect();
    finish(case, candidate, scores, &own, |_, row, experts| weigh_row(case, candidate, row, experts))
}

/// The outcome of a kernel's scores, choices and weights of each token.
///
/// Where its choice cannot be told from the exact one, its scores are weighed once more with that one.
pub(super) fn finished(
    case: &Case,
    candidate: &Candidate,
    scores: Vec<f64>,
    chosen: &[Vec<u32>],
    weights: &[Vec<f64>],
) -> Outcome {
    finish(case, candidate, scores, chosen, |token, row, experts| {
        if experts == chosen[token] { weights[token].clone() } else { weigh_row(case, candidate, row, experts) }
    })
}

/// `weigh` gives the weights of a token's experts out of its scores.
fn finish(
    case: &Case,
    candidate: &Candidate,
    scores: Vec<f64>,
    own: &[Vec<u32>],
    weigh: impl Fn(usize, &[f64], &[u32]) -> Vec<f64>,
) -> Outcome {
    let layer = &*case.layer;
    let mut weights = vec![0.0; scores.len()];
    let mut output = Vec::new();
    let mut ran = Vec::new();
    for (token, chosen) in own.iter().enumerate() {
        let right = not_told_apart(case, candidate, token, chosen);
        let experts = right.unwrap_or(chosen);
        let row = &scores[token * layer.experts..][..layer.experts];
        let weighed = weigh(token, row, experts);
        let next = u32::from(candidate.has_fault("expert-off-by-one"));
        let run = |experts: &[u32]| experts.iter().map(|e| (e + next) % layer.experts as u32).collect::<Vec<_>>();
        ran.push(run(chosen));
        let experts = run(experts);
        for (expert, weight) in experts.iter().zip(&weighed) {
            weights[token * layer.experts + *expert as usize] = weight * after(case, candidate);
        }
        output.extend(output_row(case, candidate, token, &experts, &weighed));
    }
    let output = candidate.at("output").store(&output, layer.made());
    outcome(case, scores, ran, weights, output)
}

/// For each token the sum of its experts' effective weights: what the layer would give if all experts
/// returned 1 and there were no shared one.
pub fn effective_sums(outcome: &Outcome) -> Vec<f64> {
    let weights = outcome.parts.iter().find(|p| p.name == "weights");
    weights.map_or_else(Vec::new, |w| w.values.chunks_exact(w.columns).map(|row| row.iter().sum()).collect())
}

fn logits(case: &Case, candidate: &Candidate) -> Vec<f64> {
    let layer = &*case.layer;
    let exact = Storage::default();
    let [activation, gate] = ["activation", "gate"].map(|point| candidate.at(point));
    let untouched = activation == exact && gate == exact && candidate.accumulate.dtype == Rounding::Exact;
    let products = if untouched {
        // The exact product is there already; another order of f64 sums is no difference.
        case.exact.logits.clone()
    } else {
        let (inputs, gate) = (activation.store(&case.inputs, layer.width), gate.store(&layer.gate, layer.width));
        product(candidate.accumulate, &gate, &inputs, layer.width)
    };
    candidate.at("logits").store(&products, layer.experts)
}

fn choose(case: &Case, candidate: &Candidate, token: usize, scores: &[f64]) -> Vec<u32> {
    match &case.selection {
        Selection::Hash(rows) if !candidate.has_fault("hash-by-scores") => rows[token].clone(),
        Selection::Hash(_) => top_k(scores, &vec![0.0; scores.len()], case.layer.active),
        Selection::Biased(bias) => top_k(scores, bias, case.layer.active),
    }
}

/// The exact choice, where the declared rounding cannot tell it from this one.
fn not_told_apart<'a>(case: &'a Case, candidate: &Candidate, token: usize, chosen: &[u32]) -> Option<&'a [u32]> {
    let Selection::Biased(bias) = &case.selection else { return None };
    let right = &case.right().routes[token].experts;
    let set = |experts: &[u32]| experts.iter().copied().collect::<BTreeSet<u32>>();
    let (got, expect) = (set(chosen), set(right));
    if got == expect {
        return None;
    }
    let experts = case.layer.experts;
    let sure = |expert: &u32| {
        let logit = case.right().logits[token * experts + *expert as usize];
        (score(logit) + bias[*expert as usize], UNSURE * score_error(case, candidate, token, *expert, logit))
    };
    let least = |(value, error): (f64, f64)| value - error;
    let most = |(value, error): (f64, f64)| value + error;
    let lost = expect.difference(&got).map(|e| least(sure(e))).fold(f64::NEG_INFINITY, f64::max);
    let won = got.difference(&expect).map(|e| most(sure(e))).fold(f64::INFINITY, f64::min);
    (lost <= won).then_some(right)
}

/// The error of a score that the candidate's declared rounding makes, as a root mean square or more.
fn score_error(case: &Case, candidate: &Candidate, token: usize, expert: u32, logit: f64) -> f64 {
    let width = case.layer.width;
    let gate = &case.layer.gate[expert as usize * width..][..width];
    let terms = gate.iter().zip(case.token(token)).map(|(w, x)| (w * x) * (w * x)).sum::<f64>().sqrt();
    let unit = |point: &str| candidate.at(point).unit();
    let operands = (unit("activation").powi(2) + unit("gate").powi(2) + case.moved_by().powi(2)).sqrt();
    let sums = candidate.accumulate.dtype.unit() * (width as f64).sqrt();
    SLOPE * ((operands + sums) * terms + unit("logits") * logit.abs()) + unit("scores") * score(logit)
}

fn weigh_row(case: &Case, candidate: &Candidate, scores: &[f64], experts: &[u32]) -> Vec<f64> {
    let bias = |expert: u32| match &case.selection {
        Selection::Biased(bias) if candidate.has_fault("bias-in-weights") => bias[expert as usize],
        _ => 0.0,
    };
    let chosen: Vec<f64> = experts.iter().map(|e| scores[*e as usize] + bias(*e)).collect();
    let mut sum = candidate.accumulate.sum(&chosen);
    if candidate.has_fault("shared-in-sum") {
        sum += sum / case.layer.scaling;
    }
    let before = before(case, candidate);
    let weights: Vec<f64> = chosen.iter().map(|s| s / sum * before).collect();
    candidate.at("weights").store(&weights, weights.len())
}

fn output_row(case: &Case, candidate: &Candidate, token: usize, experts: &[u32], weights: &[f64]) -> Vec<f64> {
    let layer = &*case.layer;
    let shared = layer.experts as u32;
    let outputs: Vec<Vec<f64>> = experts
        .iter()
        .chain([&shared])
        .map(|e| candidate.at("experts").store(&expert_output(case, candidate, token, *e), layer.made()))
        .collect();
    let (before, after) = (before(case, candidate), after(case, candidate));
    let fused = candidate.chooses("shared", "fused") || candidate.has_fault("shared-unscaled");
    let share = if candidate.has_fault("shared-unscaled") { 1.0 } else { 1.0 / layer.scaling };
    let share = candidate.at("weights").store(&[share * before], 1)[0];
    let column = |at: usize| {
        let routed = weights.iter().zip(&outputs).map(|(weight, y)| weight * y[at]);
        let own = outputs[experts.len()][at];
        if fused {
            let terms: Vec<f64> = routed.chain([share * own]).collect();
            return candidate.accumulate.sum(&terms) * after;
        }
        candidate.accumulate.sum(&routed.collect::<Vec<_>>()) * after + own
    };
    (0..layer.made()).map(column).collect()
}

/// The output of an expert: the one that was kept, where there is one.
fn expert_output(case: &Case, candidate: &Candidate, token: usize, expert: u32) -> Vec<f64> {
    let layer = &*case.layer;
    if candidate.has_fault("clamp-forgotten") {
        return layer.apply_within(f64::INFINITY, expert, case.token(token));
    }
    let kept = &case.exact.outputs[token];
    let at = case.exact.routes[token].experts.iter().chain([&(layer.experts as u32)]).position(|e| *e == expert);
    at.map_or_else(|| layer.apply(expert, case.token(token)), |at| kept[at].clone())
}

/// What the weights are multiplied by in the top-k.
fn before(case: &Case, candidate: &Candidate) -> f64 {
    if candidate.chooses("scaling", "output") { 1.0 } else { times_scaling(case, candidate) }
}

/// What the sum is multiplied by.
fn after(case: &Case, candidate: &Candidate) -> f64 {
    if candidate.chooses("scaling", "output") { times_scaling(case, candidate) } else { 1.0 }
}

/// The scaling factor as often as it is applied.
fn times_scaling(case: &Case, candidate: &Candidate) -> f64 {
    let scaling = case.layer.scaling;
    let hash = matches!(case.selection, Selection::Hash(_));
    match candidate.fault.as_deref() {
        Some("scaling-forgotten") => 1.0,
        Some("scaling-twice") => scaling * scaling,
        Some("hash-scaling-forgotten") if hash => 1.0,
        Some("hash-scaling-twice") if hash => scaling * scaling,
        _ => scaling,
    }
}

fn outcome(case: &Case, scores: Vec<f64>, own: Vec<Vec<u32>>, weights: Vec<f64>, output: Vec<f64>) -> Outcome {
    let experts = case.layer.experts;
    let rows = own.into_iter().enumerate().map(|(token, mut kept)| {
        let scores = match &case.selection {
            Selection::Biased(bias) => {
                scores[token * experts..][..experts].iter().zip(bias).map(|(s, b)| s + b).collect()
            }
            Selection::Hash(rows) => {
                (0..experts).map(|e| f64::from(u8::from(rows[token].contains(&(e as u32))))).collect()
            }
        };
        kept.sort_unstable();
        KeptRow { kept, scores, planted: None }
    });
    let sets = Some(KeptSets { kind: "experts", rows: rows.collect() });
    let part = |name, columns, values| PartValues { name, columns, values };
    let parts = vec![
        part("scores", experts, scores),
        part("weights", experts, weights),
        part("output", case.layer.made(), output),
    ];
    Outcome { parts, sets }
}
