use super::*;
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::config::ModelConfig;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::model::Model;
use crate::kernel::oracle::router::times_scaled;
use crate::kernel::specs::proof;

/// Flash with fewer and narrower experts, for a program that is not optimised.
fn small() -> Cases<Case> {
    let config = ModelConfig { hidden_size: 256, n_routed_experts: 32, ..ModelConfig::flash() };
    synthetic(&config, 1)
}

fn from_lab() -> Cases<Case> {
    let ids: Vec<u16> = b"the key is QX7-41B".iter().map(|b| u16::from(*b)).collect();
    lab(&Model::load(&Checkpoint::lab().unwrap()).unwrap(), &ids)
}

fn candidate(name: &str) -> Candidate {
    let (good, twins) = proof::parsed(&Router, INFO.candidates);
    good.into_iter().chain(twins).find(|c| c.name == name).unwrap()
}

#[test]
fn without_rounding_every_variant_is_the_reference() {
    proof::exact_is_the_reference(&Router, &small());
    proof::exact_is_the_reference(&Router, &from_lab());
}

#[test]
fn twins_are_far_from_all_good_candidates_on_synthetic_layers() {
    proof::good_ones_are_near_and_twins_far(&Router, &small(), INFO.candidates, 5.0);
}

#[test]
fn twins_are_far_from_all_good_candidates_on_the_lab() {
    proof::good_ones_are_near_and_twins_far(&Router, &from_lab(), INFO.candidates, 5.0);
}

#[test]
fn cases_are_labelled_and_reproducible() {
    proof::cases_are_whole(&Router, [&small(), &small()]);
    let labels = small().labels;
    assert_eq!(labels.iter().filter(|l| l.ends_with("hash")).count(), 3);
    assert_eq!(labels[5], "layer 42, biased");
    assert_eq!(from_lab().labels.len(), 9);
}

/// How often each candidate applied the factor, on a layer with a hash table and on one without.
fn times(cases: &Cases<Case>, name: &str) -> [Option<i32>; 2] {
    [0, 3].map(|at| {
        let sums = effective_sums(&Router.run(&cases.cases[at], &candidate(name)));
        let found: Vec<Option<i32>> = sums.iter().map(|sum| times_scaled(*sum, 1.5)).collect();
        assert!(found.windows(2).all(|w| w[0] == w[1]));
        found[0]
    })
}

#[test]
fn unit_experts_tell_how_often_the_factor_was_applied() {
    let cases = small();
    let check = |name: &str, hash: Option<i32>, biased: Option<i32>| {
        assert_eq!(times(&cases, name), [hash, biased], "{name}");
    };
    check("fp32", Some(1), Some(1));
    check("fp32-scaled-output", Some(1), Some(1));
    check("bf16-weights", Some(1), Some(1));
    check("scaling-twice", Some(2), Some(2));
    check("scaling-forgotten", Some(0), Some(0));
    check("hash-scaling-twice", Some(2), Some(1));
    check("hash-scaling-forgotten", Some(0), Some(1));
    check("shared-in-sum", None, None);
}

#[test]
fn a_flip_within_the_rounding_shows_in_the_sets_and_not_in_the_values() {
    // Two experts that are told apart by less than bf16 can see.
    let mut cases = small();
    let case = &mut cases.cases[3];
    let Selection::Biased(bias) = &case.selection else { panic!("layer 3 has no hash table") };
    let (mut bias, layer, inputs) = (bias.clone(), case.layer.clone(), case.inputs.clone());
    let scores = Router.reference(case).sets.unwrap().rows[0].scores.clone();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    bias[order[6]] += scores[order[5]] - scores[order[6]] - 1e-5;
    let close = Case::new(layer, Selection::Biased(bias), inputs);
    let right = Router.reference(&close);
    let mut flips = 0;
    // Rounding to bf16 moves both scores; among these points one of them turns the pair.
    for point in ["logits", "scores", "gate", "activation"] {
        let text = format!("[[candidate]]\nspec = \"router\"\nname = \"n\"\nround = {{ {point} = \"bf16\" }}");
        let rough = crate::kernel::candidate::parse(&text, "here", &[&INFO]).unwrap().remove(0);
        let got = Router.run(&close, &rough);
        flips += usize::from(got.sets.as_ref().unwrap().rows[0].kept != right.sets.as_ref().unwrap().rows[0].kept);
        assert!(proof::error(&got, &right, 1) < 0.02, "{point}");
    }
    assert!(flips > 0);
}

#[test]
fn a_moved_input_keeps_the_choice_it_is_measured_from() {
    for case in small().cases.iter().chain(&from_lab().cases) {
        let moved = Router.flipped(case, 5);
        let (got, right) = (Router.reference(&moved), Router.reference(case));
        assert_ne!(got.parts[0].values, right.parts[0].values);
        for part in 0..3 {
            assert!(proof::error(&got, &right, part) < 0.05, "{}", proof::error(&got, &right, part));
        }
    }
}

#[test]
fn the_bound_of_the_activation_is_reached() {
    let clamp = candidate("clamp-forgotten");
    for case in small().cases {
        assert_ne!(Router.run(&case, &clamp).parts[2], Router.reference(&case).parts[2]);
    }
}

#[test]
fn both_places_of_the_factor_differ_by_rounding_alone() {
    let cases = [small().cases, from_lab().cases].concat();
    let check = |a: &str, b: &str, bound: f64| {
        let [a, b] = [a, b].map(candidate);
        for case in &cases {
            let apart = proof::error(&Router.run(case, &a), &Router.run(case, &b), 2);
            assert!(apart < bound, "{apart}");
        }
    };
    check("fp32", "fp32-scaled-output", 2e-7);
    check("fp32", "fp32-shared-fused", 2e-7);
    check("bf16-weights", "bf16-weights-scaled-output", 4e-3);
}

#[test]
fn twice_and_forgotten_are_one_ratio_in_the_weights_and_none_in_the_output() {
    for case in &small().cases {
        let right = Router.reference(case);
        for (name, ratio) in [("scaling-twice", 1.5), ("scaling-forgotten", 1.0 / 1.5)] {
            let got = Router.run(case, &candidate(name));
            let ratios = |part: usize| {
                let pairs = got.parts[part].values.iter().zip(&right.parts[part].values);
                pairs.filter(|(_, r)| **r != 0.0).map(|(g, r)| g / r).collect::<Vec<f64>>()
            };
            assert!(ratios(1).iter().all(|r| (r - ratio).abs() < 1e-12));
            assert!(ratios(2).iter().any(|r| (r - ratio).abs() > 0.1));
        }
    }
}
