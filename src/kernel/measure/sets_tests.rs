//! Sets, margins and what noise explains.

use proptest::prelude::*;

use super::*;

fn row(kept: &[u32], scores: &[f64]) -> KeptRow {
    KeptRow { kept: kept.to_vec(), scores: scores.to_vec(), planted: None }
}

fn planted(index: u32, row: KeptRow) -> KeptRow {
    KeptRow { planted: Some(index), ..row }
}

fn kept(rows: Vec<KeptRow>) -> KeptSets {
    KeptSets { kind: "keys", rows }
}

/// One row that should keep 3 and 2.
fn one(got: &[u32], reach: f64) -> Sets {
    sets("c", &kept(vec![row(got, &[])]), &kept(vec![row(&[2, 3], &[0.1, 0.7, 0.8, 0.9])]), reach)
}

#[test]
fn sets_are_compared_and_not_their_order() {
    let same = one(&[3, 2], 0.0);
    assert_eq!((same.overlap, same.least_overlap, same.rows_changed, same.rows_beyond_floor), (1.0, 1.0, 0, 0));
    assert_eq!((same.rows, same.keep, same.kind.as_str(), same.candidate.as_str()), (1, 2, "keys", "c"));
    assert!((same.median_margin.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!((same.planted, same.planted_kept), (None, None));
}

#[test]
fn a_near_tie_that_flips_is_harmless() {
    // 2 and 1 are 0.1 apart: each must move by 0.05.
    let check = |reach: f64, beyond: u64| {
        let got = one(&[1, 3], reach);
        assert_eq!((got.overlap, got.rows_changed, got.rows_beyond_floor), (0.5, 1, beyond), "{reach}");
    };
    check(0.0, 1);
    check(0.049, 1);
    check(0.051, 0);
    check(f64::NAN, 0);
    check(f64::INFINITY, 0);
}

#[test]
fn a_member_from_far_below_is_beyond_noise_though_the_lost_one_was_at_the_cut() {
    assert_eq!(one(&[0, 3], 0.06).rows_beyond_floor, 1);
    assert_eq!(one(&[0, 3], 0.36).rows_beyond_floor, 0);
}

#[test]
fn the_widest_pair_decides() {
    // 3 lost and 1 gained are 0.2 apart, though 2 and 1 are only 0.1.
    assert_eq!(one(&[0, 1], 0.06).rows_beyond_floor, 1);
    assert_eq!(one(&[0, 1], 0.06).overlap, 0.0);
}

#[test]
fn what_no_noise_explains() {
    let check = |got: &[u32]| assert_eq!(one(got, 1e9).rows_beyond_floor, 1, "{got:?}");
    check(&[]);
    check(&[3]);
    check(&[3, 3]);
    check(&[1, 2, 3]);
    check(&[3, 4000]);
}

#[test]
fn a_score_that_is_no_number_explains_nothing() {
    let reference = kept(vec![row(&[2, 3], &[0.1, f64::NAN, 0.8, 0.9])]);
    let got = sets("c", &kept(vec![row(&[1, 3], &[])]), &reference, 1e9);
    assert_eq!(got.rows_beyond_floor, 1);
    let reference = kept(vec![row(&[2, 3], &[0.1, 0.2, f64::NAN, 0.9])]);
    let got = sets("c", &kept(vec![row(&[2, 3], &[])]), &reference, 1e9);
    assert_eq!((got.rows_changed, got.median_margin), (0, None));
}

#[test]
fn overlaps_are_over_all_rows_and_of_the_worst() {
    let scores = [0.0, 0.1, 0.2, 0.3];
    let reference = kept(vec![row(&[0, 1, 2, 3], &scores), row(&[2, 3], &scores)]);
    let got = sets("c", &kept(vec![row(&[0, 1, 2, 3], &scores), row(&[0, 1], &scores)]), &reference, 0.0);
    assert_eq!((got.rows, got.keep, got.rows_changed), (2, 4, 1));
    assert!((got.overlap - 4.0 / 6.0).abs() < 1e-12);
    assert_eq!(got.least_overlap, 0.0);
    // The first row drops nothing and has no margin.
    assert!((got.median_margin.unwrap() - 0.1).abs() < 1e-12);
}

#[test]
fn planted_members_are_looked_for() {
    let scores = [0.0, 0.1, 0.2];
    let reference =
        kept(vec![planted(2, row(&[1, 2], &scores)), planted(2, row(&[1, 2], &scores)), row(&[1, 2], &scores)]);
    let rows = vec![row(&[1, 2], &[]), row(&[0, 1], &[]), row(&[0, 1], &[])];
    let got = sets("c", &kept(rows), &reference, 0.0);
    assert_eq!((got.planted, got.planted_kept), (Some(2), Some(1)));
    // What the reference itself leaves out does not count.
    let left_out = kept(vec![planted(0, row(&[1, 2], &scores))]);
    let same = sets("c", &left_out, &left_out, 0.0);
    assert_eq!((same.planted, same.planted_kept), (None, None));
}

#[test]
fn masked_members_make_no_margin() {
    let reference = kept(vec![row(&[0, 1], &[0.5, 0.4, f64::NEG_INFINITY])]);
    assert_eq!(sets("c", &reference, &reference, 0.0).median_margin, None);
}

#[test]
fn rows_that_are_missing_were_not_kept() {
    let reference = kept(vec![row(&[0], &[1.0, 0.0]), row(&[0], &[1.0, 0.0])]);
    let got = sets("c", &kept(vec![row(&[0], &[])]), &reference, 1e9);
    assert_eq!((got.rows, got.rows_changed, got.rows_beyond_floor, got.overlap), (2, 1, 1, 0.5));
    let none = sets("c", &kept(vec![]), &kept(vec![]), 1e9);
    assert_eq!((none.rows, none.overlap, none.least_overlap, none.median_margin), (0, 0.0, 0.0, None));
}

#[test]
fn a_row_that_keeps_nothing_keeps_it() {
    let reference = kept(vec![row(&[], &[])]);
    let got = sets("c", &reference, &reference, 0.0);
    assert_eq!((got.overlap, got.least_overlap, got.rows_changed, got.keep), (1.0, 1.0, 0, 0));
}

#[test]
fn the_median_of_an_even_number_lies_between() {
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![]), None);
}

#[test]
fn the_largest_shift_is_that_of_any_score() {
    let of = |a: &[f64], b: &[f64]| largest_shift(&kept(vec![row(&[], a)]), &kept(vec![row(&[], b)]));
    assert_eq!(of(&[1.0, 2.5], &[1.0, 2.0]), 0.5);
    assert_eq!(of(&[f64::NEG_INFINITY, 1.0], &[f64::NEG_INFINITY, 1.0]), 0.0);
    assert_eq!(of(&[f64::NEG_INFINITY, 1.0], &[0.0, 1.0]), f64::INFINITY);
    assert!(of(&[f64::NAN, 5.0], &[1.0, 1.0]).is_nan());
    assert!(of(&[5.0, f64::NAN], &[1.0, 1.0]).is_nan());
    assert!(of(&[1.0], &[1.0, 1.0]).is_nan());
    assert!(largest_shift(&kept(vec![]), &kept(vec![row(&[], &[])])).is_nan());
}

/// The indices of the `keep` largest scores.
fn top(scores: &[f64], keep: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..scores.len() as u32).collect();
    all.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
    all.truncate(keep);
    all.sort_unstable();
    all
}

proptest! {
    #[test]
    fn noise_within_reach_never_convicts(
        pairs in prop::collection::vec((-1.0_f64..1.0, -0.2_f64..0.2), 1..60), keep in 0_usize..60,
    ) {
        let scores: Vec<f64> = pairs.iter().map(|(score, _)| *score).collect();
        let moved: Vec<f64> = pairs.iter().map(|(score, shift)| score + shift).collect();
        let reference = kept(vec![row(&top(&scores, keep), &scores)]);
        let got = kept(vec![row(&top(&moved, keep), &moved)]);
        let reach = largest_shift(&got, &reference);
        let outcome = sets("c", &got, &reference, reach * (1.0 + 1e-12));
        prop_assert_eq!(outcome.rows_beyond_floor, 0);
        prop_assert!(outcome.least_overlap <= outcome.overlap + 1e-12 && outcome.overlap <= 1.0);
        prop_assert_eq!(outcome.rows_changed == 0, outcome.overlap == 1.0);
    }
}
