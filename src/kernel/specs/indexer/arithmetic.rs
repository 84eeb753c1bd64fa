//! A candidate's arithmetic of the indexer, and its faults.
//!
//! Responsible for the order of its rounding points. Not responsible for what is right.
//!
//! As kernels do, fp8 codes are multiplied as they are: the scale of a query goes into the weight of
//! its head, that of a key behind the sum over heads.

use super::{Case, PAGE, Row, outcome};
use crate::kernel::candidate::Candidate;
use crate::kernel::format::Storage;
use crate::kernel::microtest::{KeptRow, Outcome};
use crate::kernel::oracle::indexer::{self, relu};
use crate::kernel::oracle::{hadamard, pages};
use crate::kernel::specs::paged::{self, Addressing};
use crate::kernel::specs::points::rule;
use crate::kernel::specs::product::product;

/// Rows of values, each with the scale that is applied later.
struct Scaled {
    values: Vec<f64>,
    scales: Vec<f64>,
}

/// What the candidate makes of the case.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let keys = keys(case, candidate);
    let rows = case.rows.iter().map(|row| kept(case, candidate, row, scores(case, candidate, row, &keys))).collect();
    outcome(case, rows)
}

/// Whether the operand is quantised to fp8 as the model does it.
fn is_own(case: &Case, storage: Storage) -> bool {
    case.pages.is_some() && (storage == Storage::default() || storage.word() == "fp8-1x128")
}

/// The keys as the candidate reads them.
fn keys(case: &Case, candidate: &Candidate) -> Scaled {
    let count = case.count();
    let storage = candidate.at("key");
    let interleaved = candidate.has_fault("layout-interleaved");
    let without_scales = candidate.has_fault("key-scale-forgotten");
    // Where the model's cache is not quantised, these two faults first make it so.
    if is_own(case, storage) || interleaved || without_scales {
        let addressing = Addressing { pages_off: usize::from(candidate.has_fault("page-off")), interleaved };
        let table = case.pages.as_ref().map_or_else(|| (0..count.div_ceil(PAGE)).collect(), |p| p.table.clone());
        let rewritten = match &case.pages {
            Some(_) if candidate.has_fault("key-not-rotated") => {
                Some(case.paged(table, |index| case.unrotated_key(index)))
            }
            Some(_) => None,
            None => Some(case.paged(table, |index| case.key(index))),
        };
        let cache = rewritten.as_ref().or(case.pages.as_ref());
        let read = |index| {
            let (data, scale) = cache.map_or((&[][..], &[0; 4][..]), |pages| paged::bytes(pages, index, addressing));
            pages::index_key(data, scale)
        };
        let (values, scales): (Vec<Vec<f64>>, Vec<f64>) = (0..count).map(read).unzip();
        let scales = if without_scales { vec![1.0; count] } else { scales };
        return Scaled { values: values.concat(), scales };
    }
    let shift = if candidate.has_fault("page-off") { PAGE } else { 0 };
    let key = |index: usize| {
        let index = (index + shift) % count;
        if candidate.has_fault("key-not-rotated") { case.unrotated_key(index) } else { case.key(index) }
    };
    let values: Vec<f64> = (0..count).flat_map(key).collect();
    Scaled { values: storage.store(&values, case.dim), scales: vec![1.0; count] }
}

/// The heads of a query as the candidate holds them.
fn queries(case: &Case, candidate: &Candidate, row: &Row) -> Scaled {
    let mut queries = case.queries(row);
    if case.rotary.is_none() && candidate.has_fault("key-not-rotated") {
        queries.chunks_exact_mut(case.dim).for_each(hadamard::rotate);
    }
    let storage = candidate.at("query");
    if !is_own(case, storage) {
        return Scaled { values: storage.store(&queries, case.dim), scales: vec![1.0; case.heads] };
    }
    let quantise = |head| {
        let (codes, scale) = pages::quantise_index_row(head);
        pages::index_key(&codes, &scale.to_le_bytes())
    };
    let (values, scales): (Vec<Vec<f64>>, Vec<f64>) = queries.chunks_exact(case.dim).map(quantise).unzip();
    Scaled { values: values.concat(), scales }
}

/// Scores of the keys that a row may see.
fn scores(case: &Case, candidate: &Candidate, row: &Row, keys: &Scaled) -> Vec<f64> {
    let at = |point: &str| rule(candidate, point);
    let (weight_rule, dot_rule, weighted_rule) = (at("weight"), at("dot"), at("weighted"));
    let (sum_rule, score_rule) = (at("sum"), at("score"));
    let sums = candidate.accumulate;
    let queries = queries(case, candidate, row);
    let factor = indexer::factor(case.heads, case.dim);
    let weights: Vec<f64> =
        row.weights.iter().zip(&queries.scales).map(|(w, scale)| weight_rule(w * factor * scale)).collect();
    let passes = |dot| if candidate.has_fault("relu-forgotten") { dot } else { relu(dot) };
    let sign = if candidate.has_fault("sign-wrong") { -1.0 } else { 1.0 };
    let seen = &keys.values[..row.visible * case.dim];
    let dots = product(sums, &queries.values, seen, case.dim);
    let mut terms = vec![0.0; case.heads];
    dots.chunks_exact(case.heads)
        .zip(&keys.scales)
        .map(|(dots, scale)| {
            for ((term, dot), weight) in terms.iter_mut().zip(dots).zip(&weights) {
                *term = weighted_rule(passes(dot_rule(*dot)) * weight);
            }
            sign * score_rule(sum_rule(sums.sum(&terms)) * scale)
        })
        .collect()
}

/// What a row keeps.
fn kept(case: &Case, candidate: &Candidate, row: &Row, mut scores: Vec<f64>) -> KeptRow {
    let first = match row.visible.checked_sub(1) {
        Some(last) if candidate.has_fault("last-chunk-only") => last / case.chunk * case.chunk,
        _ => 0,
    };
    scores[..first].fill(0.0);
    let kept = indexer::keep(&scores[first..], case.keep).iter().map(|index| index + first as u32).collect();
    KeptRow { kept, scores, planted: row.planted }
}
