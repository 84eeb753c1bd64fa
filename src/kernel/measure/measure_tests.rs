//! The checks before a norm, and the two metrics.

use proptest::prelude::*;

use super::*;

#[test]
fn unfit_values_are_told_before_a_norm() {
    let check = |got: &[f64], expect: Unfit| assert_eq!(rel_l2(got, &[1.0, 1.0, 1.0]), Err(expect));
    check(&[1.0, f64::NAN, f64::INFINITY], Unfit::NotANumber { count: 1, first: 1 });
    check(&[f64::INFINITY, 1.0, f64::NEG_INFINITY], Unfit::Infinite { count: 2, first: 0 });
    check(&[0.0, -0.0, 0.0], Unfit::AllZero);
    check(&[1.0, f64::NAN], Unfit::Length { got: 2, reference: 3 });
    assert_eq!(rel_l2(&[0.0], &[0.0]), Ok(0.0));
    assert_eq!(rel_l2(&[], &[]), Err(Unfit::Empty));
}

#[test]
fn an_error_against_zero_is_infinite_not_hidden() {
    assert_eq!(rel_l2(&[1.0], &[0.0]), Ok(f64::INFINITY));
}

#[test]
fn a_constant_is_no_result_where_the_reference_varies() {
    let varied: Vec<f64> = (0..100).map(f64::from).collect();
    let check = |pick: fn(usize) -> f64, got: usize| {
        let values: Vec<f64> = (0..100).map(pick).collect();
        assert_eq!(rel_l2(&values, &varied), Err(Unfit::FewDistinct { got }), "{values:?}");
    };
    check(|_| 7.0, 1);
    check(|i| if i < 60 { 7.0 } else { 0.0 }, 2);
    check(|i| [-448.0, 0.0, 448.0, -0.0][i % 4], 3);
    let four: Vec<f64> = (0..100).map(|i| f64::from(i % 4)).collect();
    assert!(rel_l2(&four, &varied).is_ok());
}

#[test]
fn few_values_are_right_where_the_reference_has_few() {
    let steps: Vec<f64> = (0..100).map(|i| f64::from(i % 15)).collect();
    assert!(rel_l2(&[3.0; 100], &steps).is_ok());
    assert_eq!(rel_l2(&[3.0; 100], &[3.0; 100]), Ok(0.0));
}

#[test]
fn every_reason_is_said_in_words() {
    let check = |unfit: Unfit, part: &str| assert!(unfit.to_string().contains(part), "{unfit}");
    check(Unfit::Length { got: 2, reference: 3 }, "2 values where the reference has 3");
    check(Unfit::Empty, "no values");
    check(Unfit::NotANumber { count: 4, first: 9 }, "4 values are not numbers, the first at index 9");
    check(Unfit::FewDistinct { got: 1 }, "every value is the same");
    check(Unfit::FewDistinct { got: 2 }, "only 2 different values");
}

#[test]
fn rows_are_measured_without_the_checks() {
    assert_eq!(relative(&[3.0; 20], &[4.0; 20]), 0.25);
    assert!(relative(&[f64::NAN, 1.0], &[1.0, 1.0]).is_nan());
    assert!(relative(&[1.0], &[1.0, 1.0]).is_nan());
    assert_eq!(relative(&[], &[]), 0.0);
}

#[test]
fn the_difference_metric_golden_values() {
    let check = |got: &[f64], reference: &[f64], expect: f64| assert_eq!(calc_diff(got, reference), expect);
    check(&[1.0, 2.0], &[1.0, 2.0], 0.0);
    check(&[1.0, 0.0], &[0.0, 1.0], 1.0);
    check(&[-1.0, -2.0], &[1.0, 2.0], 2.0);
    check(&[3.0, 3.0], &[1.0, 1.0], 0.4);
    check(&[0.0], &[0.0], 0.0);
    assert!(calc_diff(&[f64::NAN, 1.0], &[1.0, 1.0]).is_nan());
    assert!(calc_diff(&[0.0, 0.0], &[1.0, 1.0]).is_nan());
    assert!(calc_diff(&[1.0], &[1.0, 1.0]).is_nan());
}

#[test]
fn a_difference_far_below_one_is_not_lost_to_cancellation() {
    let reference: Vec<f64> = (1..100).map(f64::from).collect();
    let got: Vec<f64> = reference.iter().map(|v| v * (1.0 + 1e-10)).collect();
    let expect = 0.5e-20;
    assert!((calc_diff(&got, &reference) / expect - 1.0).abs() < 1e-5);
}

#[test]
fn the_mixing_of_the_incident_in_both_metrics() {
    // An error of 2.35e-3 against a difference of 2.8e-6, and DeepGEMM's tolerance of 1e-8.
    assert!((diff_of_rel(2.35e-3) / 2.8e-6 - 1.0).abs() < 0.02);
    assert!((rel_of_diff(1e-8) / 1.414e-4 - 1.0).abs() < 1e-3);
}

#[test]
fn no_uncorrelated_error_lies_beyond_one() {
    assert_eq!((rel_of_diff(0.0), rel_of_diff(1.0), diff_of_rel(f64::INFINITY)), (0.0, f64::INFINITY, 1.0));
    assert!(rel_of_diff(1.5).is_nan() && rel_of_diff(-1e-9).is_nan() && rel_of_diff(f64::NAN).is_nan());
    assert!(diff_of_rel(f64::NAN).is_nan());
}

proptest! {
    #[test]
    fn a_constant_ratio_is_its_distance_from_one(
        values in prop::collection::vec(0.1_f64..10.0, 1..40), ratio in 0.5_f64..2.0,
    ) {
        let got: Vec<f64> = values.iter().map(|v| v * ratio).collect();
        let error = rel_l2(&got, &values).unwrap();
        prop_assert!((error - (ratio - 1.0).abs()).abs() < 1e-12);
        // Here the error lies along the reference, and the conversion does not hold.
        let expect = (ratio - 1.0).powi(2) / (1.0 + ratio * ratio);
        prop_assert!((calc_diff(&got, &values) - expect).abs() < 1e-12);
    }

    #[test]
    fn both_forms_of_the_difference_are_one(pairs in prop::collection::vec((0.1_f64..9.0, -9.0_f64..9.0), 20..60)) {
        let (got, reference): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let dot: f64 = got.iter().zip(&reference).map(|(a, b)| a * b).sum();
        let both: f64 = got.iter().chain(&reference).map(|v| v * v).sum();
        prop_assert!((calc_diff(&got, &reference) - (1.0 - 2.0 * dot / both)).abs() < 1e-12);
    }

    #[test]
    fn the_exact_relation_holds_for_any_error(pairs in prop::collection::vec((0.1_f64..9.0, -9.0_f64..9.0), 20..60)) {
        let (got, reference): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let rel = rel_l2(&got, &reference).unwrap();
        let whole: f64 = reference.iter().map(|v| v * v).sum();
        let along: f64 = got.iter().zip(&reference).map(|(a, b)| (a - b) * b).sum::<f64>() / whole;
        let expect = rel * rel / (2.0 + 2.0 * along + rel * rel);
        prop_assert!((calc_diff(&got, &reference) - expect).abs() < 1e-12 * (1.0 + expect));
        prop_assert!(along.abs() <= rel * (1.0 + 1e-12));
    }

    #[test]
    fn an_uncorrelated_error_converts_both_ways(size in 1e-6_f64..3.0) {
        // Every second value carries the error, with alternating sign, so that it is orthogonal.
        let reference: Vec<f64> = (0..64).map(|i| 1.0 + f64::from(i / 4)).collect();
        let scale = size * relative(&vec![0.0; 64], &reference) / (32.0_f64 / reference.iter().map(|v| v * v).sum::<f64>()).sqrt();
        let got: Vec<f64> = reference
            .iter()
            .enumerate()
            .map(|(i, v)| v + [scale, 0.0, -scale, 0.0][i % 4])
            .collect();
        let (rel, diff) = (rel_l2(&got, &reference).unwrap(), calc_diff(&got, &reference));
        prop_assert!((rel / size - 1.0).abs() < 1e-9);
        prop_assert!((diff_of_rel(rel) / diff - 1.0).abs() < 1e-9);
        prop_assert!((rel_of_diff(diff) / rel - 1.0).abs() < 1e-9);
    }
}
