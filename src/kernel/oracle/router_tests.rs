use proptest::prelude::*;

use super::*;
use crate::kernel::oracle::experts;

fn close(got: f64, expect: f64, tolerance: f64) {
    assert!((got - expect).abs() <= tolerance, "{got} where {expect} is known");
}

#[test]
fn score_golden_values() {
    let check = |x: f64, expect: f64| close(score(x), expect, 2e-9);
    check(-20.0, 4.539_99e-5);
    check(-2.0, 0.356_269_576);
    check(0.0, 0.832_554_611);
    check(1.0, 1.145_976_303);
    check(20.0, 4.472_135_955);
    // ln(1 + e^2) is 2.12692801104297.
    check(2.0, 2.126_928_011_042_97_f64.sqrt());
    assert_eq!(softplus(1e4), 1e4);
    assert!(score(f64::NAN).is_nan());
}

#[test]
fn biased_scores_choose_and_do_not_weigh() {
    let got = route(&[0.0, 1.0, 2.0, -1.0], Choice::Biased(&[0.0, 0.0, -1.0, 2.0]), 2);
    assert_eq!(got.experts, [3, 1]);
    close(got.weights[0] * 1.5, 0.492_208_18, 1e-8);
    close(got.weights[1] * 1.5, 1.007_791_82, 1e-8);
}

#[test]
fn a_hash_layer_takes_its_experts_from_the_table_and_its_weights_from_the_scores() {
    let got = route(&[0.0, 1.0, 2.0, -1.0], Choice::Hash(&[3, 0]), 2);
    assert_eq!(got.experts, [3, 0]);
    close(got.weights[0], score(-1.0) / (score(-1.0) + score(0.0)), 1e-15);
}

#[test]
fn equal_scores_take_the_lower_index_and_nan_is_not_lost() {
    assert_eq!(top_k(&[1.0; 5], &[0.0; 5], 2), [0, 1]);
    assert_eq!(top_k(&[1.0, f64::NAN, 3.0], &[0.0; 3], 2), [1, 2]);
}

#[test]
fn it_is_the_labs_router_at_the_labs_size() {
    let logits = [0.3, -0.2, 0.9, 1.4, -3.0, 0.0, 0.1, 0.2];
    let bias = [0.4, -0.1, 0.3, 0.0, 2.0, 0.5, 0.5, 0.4];
    let lab = experts::route(&logits, &bias);
    let got = route(&logits, Choice::Biased(&bias), experts::ACTIVE);
    for (i, (expert, weight)) in lab.into_iter().enumerate() {
        assert_eq!(got.experts[i] as usize, expert);
        close(got.weights[i] * experts::SCALING, weight, 1e-15);
    }
}

/// With experts that all return 1 and no shared one, the output is the sum of effective weights.
fn effective(logits: &[f64], choice: Choice<'_>, place: ScalingPlace) -> f64 {
    let route = route(logits, choice, 2);
    weigh(&route, &[vec![1.0], vec![1.0]], &[0.0], 1.5, place)[0]
}

#[test]
fn the_factor_is_applied_exactly_once_on_a_hash_layer_and_on_a_normal_one() {
    let logits = [0.3, -0.2, 0.9, 1.4];
    for choice in [Choice::Hash(&[2, 0]), Choice::Biased(&[0.1, 0.5, 0.0, -0.2])] {
        for place in [ScalingPlace::TopK, ScalingPlace::Output] {
            let sum = effective(&logits, choice, place);
            close(sum, 1.5, 1e-15);
            assert_eq!(times_scaled(sum, 1.5), Some(1));
        }
    }
}

#[test]
fn a_factor_that_is_forgotten_or_applied_twice_is_read_off_the_sum() {
    let check = |sum: f64, scaling: f64, expect: Option<i32>| assert_eq!(times_scaled(sum, scaling), expect, "{sum}");
    check(1.0, 1.5, Some(0));
    check(1.5, 1.5, Some(1));
    check(2.25, 1.5, Some(2));
    check(1.0 / 1.5, 1.5, Some(-1));
    check(2.5, 2.5, Some(1));
    // The shared expert in the sum leaves 0.6 of the weights.
    check(0.9, 1.5, None);
    check(f64::NAN, 1.5, None);
    check(0.0, 1.5, None);
    check(-1.5, 1.5, None);
}

#[test]
fn the_shared_expert_as_a_routed_one_still_counts_once() {
    let route = route(&[0.3, -0.2, 0.9], Choice::Biased(&[0.0; 3]), 2);
    let routed = [vec![1.0, 2.0], vec![-1.0, 0.5]];
    for place in [ScalingPlace::TopK, ScalingPlace::Output] {
        let apart = weigh(&route, &routed, &[10.0, 20.0], 1.5, place);
        let fused = weigh_with_shared(&route, &routed, &[10.0, 20.0], 1.5, place);
        apart.iter().zip(&fused).for_each(|(a, b)| close(*b, *a, 1e-13));
        // Unit experts: 1.5 from the routed ones and 1 from the shared one.
        close(weigh_with_shared(&route, &[vec![1.0], vec![1.0]], &[1.0], 1.5, place)[0], 2.5, 1e-14);
    }
}

proptest! {
    #[test]
    fn weights_sum_to_one_and_the_choice_is_the_best(
        logits in prop::collection::vec(-9.0_f64..9.0, 8), bias in prop::collection::vec(-1.0_f64..1.0, 8),
        active in 1_usize..8,
    ) {
        let got = route(&logits, Choice::Biased(&bias), active);
        prop_assert!((got.weights.iter().sum::<f64>() - 1.0).abs() < 1e-14);
        let biased = |e: usize| score(logits[e]) + bias[e];
        let least = got.experts.iter().map(|e| biased(*e as usize)).fold(f64::INFINITY, f64::min);
        for e in (0..8).filter(|e| !got.experts.contains(&(*e as u32))) {
            prop_assert!(biased(e) <= least);
        }
    }

    #[test]
    fn both_places_of_the_factor_are_the_same_function(
        logits in prop::collection::vec(-5.0_f64..5.0, 6), outputs in prop::collection::vec(-3.0_f64..3.0, 4),
        scaling in 1.1_f64..3.0,
    ) {
        let route = route(&logits, Choice::Biased(&[0.0; 6]), 3);
        let (routed, shared) = outputs.split_at(3);
        let routed: Vec<Vec<f64>> = routed.iter().map(|y| vec![*y]).collect();
        let [a, b] = [ScalingPlace::TopK, ScalingPlace::Output]
            .map(|place| weigh(&route, &routed, shared, scaling, place)[0]);
        prop_assert!((a - b).abs() < 1e-13);
    }
}
