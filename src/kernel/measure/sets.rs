//! What changes in the sets that a kernel keeps.
//!
//! Responsible for comparing sets, whatever their order. Not responsible for how they are chosen.
//!
//! Near-ties flip harmlessly. A change of a row's set is explained by noise if no member that was
//! lost scored more above a member that was gained than two scores can move together, which is twice
//! the `reach` of the noise band: one may fall by it while the other rises by it. A member that was
//! lost with none in its place, or an index that has no score, is not explained by any noise.

use crate::kernel::microtest::{KeptRow, KeptSets};
use crate::kernel::report::Sets;

/// What changed in the sets that a candidate kept.
///
/// `reach` is the largest change of a score that the noise band makes ([`largest_shift`]); where it
/// is NaN nothing is counted as beyond it. Scores are the reference's. Margins are taken at rows
/// that drop something with a finite score. A row that the candidate lacks is an empty set; rows
/// that the reference lacks are not looked at. Without rows the overlaps are 0.
pub fn sets(candidate: &str, got: &KeptSets, reference: &KeptSets, reach: f64) -> Sets {
    let reach = if reach.is_nan() { f64::INFINITY } else { reach };
    let rows: Vec<Compared> = reference
        .rows
        .iter()
        .enumerate()
        .map(|(i, row)| compare(got.rows.get(i).map_or(&[], |row| &row.kept), row, reach))
        .collect();
    let kept: usize = rows.iter().map(|row| row.kept).sum();
    let shared: usize = rows.iter().map(|row| row.shared).sum();
    let count = |is: fn(&Compared) -> bool| rows.iter().filter(|row| is(row)).count() as u64;
    let planted = count(|row| row.planted_kept.is_some());
    Sets {
        candidate: candidate.into(),
        kind: reference.kind.into(),
        rows: rows.len() as u64,
        keep: rows.iter().map(|row| row.kept).max().unwrap_or(0) as u64,
        overlap: if rows.is_empty() { 0.0 } else { share(shared, kept) },
        least_overlap: rows.iter().map(|row| share(row.shared, row.kept)).reduce(f64::min).unwrap_or(0.0),
        rows_changed: count(|row| row.changed),
        rows_beyond_floor: count(|row| row.beyond),
        median_margin: median(rows.iter().filter_map(|row| row.margin).collect()),
        planted: (planted > 0).then_some(planted),
        planted_kept: (planted > 0).then(|| count(|row| row.planted_kept == Some(true))),
    }
}

/// The largest change of a score from the reference to `got`; NaN where scores are missing or one is
/// not a number. Two equal infinities, such as those of masked keys, do not differ.
pub fn largest_shift(got: &KeptSets, reference: &KeptSets) -> f64 {
    if got.rows.len() != reference.rows.len() {
        return f64::NAN;
    }
    got.rows
        .iter()
        .zip(&reference.rows)
        .fold(0.0, |largest, (got, reference)| larger(largest, row_shift(got, reference)))
}

fn row_shift(got: &KeptRow, reference: &KeptRow) -> f64 {
    if got.scores.len() != reference.scores.len() {
        return f64::NAN;
    }
    let shift = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
    got.scores.iter().zip(&reference.scores).map(shift).fold(0.0, larger)
}

/// NaN if one is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

struct Compared {
    kept: usize,
    shared: usize,
    changed: bool,
    beyond: bool,
    margin: Option<f64>,
    planted_kept: Option<bool>,
}

fn compare(got: &[u32], reference: &KeptRow, reach: f64) -> Compared {
    let (got, kept) = (as_set(got), as_set(&reference.kept));
    let lost = without(&kept, &got);
    let gained = without(&got, &kept);
    let changed = !lost.is_empty() || !gained.is_empty();
    Compared {
        kept: kept.len(),
        shared: kept.len() - lost.len(),
        changed,
        beyond: changed && !explained(&lost, &gained, &reference.scores, reach),
        margin: margin(&kept, &reference.scores),
        // What the reference itself leaves out, nobody can be asked to keep.
        planted_kept: reference
            .planted
            .filter(|planted| reference.kept.binary_search(planted).is_ok())
            .map(|planted| got.binary_search(&planted).is_ok()),
    }
}

/// Ascending and without doubles, which a broken kernel may write.
fn as_set(indices: &[u32]) -> Vec<u32> {
    let mut indices = indices.to_vec();
    indices.sort_unstable();
    indices.dedup();
    indices
}

fn without(all: &[u32], others: &[u32]) -> Vec<u32> {
    all.iter().copied().filter(|i| others.binary_search(i).is_err()).collect()
}

/// Whether scores that move by `reach` can turn each lost member against each gained one.
fn explained(lost: &[u32], gained: &[u32], scores: &[f64], reach: f64) -> bool {
    if lost.len() != gained.len() {
        return false;
    }
    let of = |indices: &[u32]| indices.iter().map(|i| scores.get(*i as usize).copied()).collect::<Option<Vec<f64>>>();
    let (Some(lost), Some(gained)) = (of(lost), of(gained)) else { return false };
    let highest = lost.into_iter().fold(f64::NEG_INFINITY, larger);
    let lowest = -gained.into_iter().map(|score| -score).fold(f64::NEG_INFINITY, larger);
    highest - lowest <= 2.0 * reach
}

/// The least score that is kept less the greatest finite one that is dropped.
fn margin(kept: &[u32], scores: &[f64]) -> Option<f64> {
    let is_kept = |i: usize| u32::try_from(i).is_ok_and(|i| kept.binary_search(&i).is_ok());
    let dropped = scores.iter().enumerate().filter(|(i, score)| score.is_finite() && !is_kept(*i));
    let greatest = dropped.map(|(_, score)| *score).reduce(f64::max)?;
    let least = kept.iter().map(|i| scores.get(*i as usize).copied()).collect::<Option<Vec<f64>>>()?;
    let least = least.into_iter().map(|score| -score).reduce(larger)?;
    Some(-least - greatest).filter(|margin| margin.is_finite())
}

/// 1 where nothing was to be kept.
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// The mean of the two in the middle where there are two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*lower, *upper))
}

#[cfg(test)]
#[path = "sets_tests.rs"]
mod tests;
