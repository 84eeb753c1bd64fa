use super::*;
use crate::kernel::candidate::{Accumulate, parse};
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::config::ModelConfig;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::EPS;
use crate::kernel::oracle::model::Model;
use crate::kernel::specs::proof;

/// Flash, narrower and with fewer heads, for a program that is not optimised.
fn small() -> Cases<Case> {
    let config = ModelConfig {
        hidden_size: 1024,
        q_lora_rank: 256,
        head_dim: 128,
        num_attention_heads: 8,
        ..ModelConfig::flash()
    };
    synthetic(&config, 1)
}

fn from_lab() -> Cases<Case> {
    let ids: Vec<u16> = b"the key is QX7-41B".iter().map(|b| u16::from(*b)).collect();
    lab(&Model::load(&Checkpoint::lab().unwrap()).unwrap(), &ids)
}

fn candidate(text: &str) -> Candidate {
    parse(&format!("[[candidate]]\nspec = \"norm\"\nname = \"n\"\n{text}"), "here", &[&INFO]).unwrap().remove(0)
}

#[test]
fn without_rounding_it_is_the_reference() {
    proof::exact_is_the_reference(&Norm, &small());
    proof::exact_is_the_reference(&Norm, &from_lab());
}

#[test]
fn twins_are_far_from_all_good_candidates() {
    proof::good_ones_are_near_and_twins_far(&Norm, &small(), INFO.candidates, 10.0);
    proof::good_ones_are_near_and_twins_far(&Norm, &from_lab(), INFO.candidates, 10.0);
}

#[test]
fn cases_are_labelled_and_reproducible() {
    proof::cases_are_whole(&Norm, [&small(), &small()]);
    let lab = from_lab();
    // Two a layer before the sublayers, two within the attention, one before the vocabulary; and quiet rows.
    assert_eq!((lab.labels.len(), lab.cases.len()), (6 * 4 + 2, 6 * 4 + 2));
}

/// The error of a candidate at the point whose label ends so.
fn error_at(cases: &Cases<Case>, end: &str, candidate: &Candidate) -> f64 {
    let at = cases.labels.iter().position(|l| l.ends_with(end)).unwrap();
    proof::error(&Norm.run(&cases.cases[at], candidate), &Norm.reference(&cases.cases[at]), 1)
}

#[test]
fn eps_outside_the_root_shows_on_quiet_rows_alone() {
    let twin = candidate("fault = \"eps-outside\"");
    let cases = small();
    assert!(error_at(&cases, "quiet rows", &twin) > 0.2);
    assert!(error_at(&cases, "1024 wide", &twin) < 1e-6);
}

#[test]
fn a_quiet_row_is_as_loud_as_the_root_of_eps() {
    for cases in [small(), from_lab()] {
        let quiet = cases.cases.last().unwrap();
        let square = quiet.inputs.iter().map(|v| v * v).sum::<f64>() / quiet.inputs.len() as f64;
        assert!((square / EPS - 1.0).abs() < 0.01, "{square}");
    }
}

#[test]
fn a_head_is_normed_by_itself() {
    let case = Case { rows: Rows::Heads(2), width: 2, inputs: vec![3.0, 4.0, 0.3, 0.4], weight: vec![1.0; 2].into() };
    let right = Norm.reference(&case);
    assert!(right.parts[0].values[1] > 9.9 * right.parts[0].values[0]);
    let wrong = Norm.run(&case, &candidate("fault = \"wrong-width\""));
    let of_all = 1.0 / ((25.25_f64 / 4.0) + EPS).sqrt();
    assert_eq!(wrong.parts[0].values, [of_all, of_all]);
}

#[test]
fn squares_added_in_bf16_one_after_another_stagnate() {
    // A sum of n like terms stops growing where a term is less than half a step of the sum, at 256
    // terms, so that 1024 terms give a quarter and a row twice as large.
    let case = Case { rows: Rows::Tokens, width: 1024, inputs: vec![1.0; 1024], weight: vec![1.0; 1024].into() };
    let mut bf16 = Candidate::exact("norm");
    bf16.accumulate = Accumulate { dtype: Rounding::Bf16, ..Accumulate::default() };
    assert!((Norm.run(&case, &bf16).parts[1].values[0] - 2.0).abs() < 1e-5);
    bf16.accumulate.splits = 32;
    assert!((Norm.run(&case, &bf16).parts[1].values[0] - 1.0).abs() < 1e-5);
}

#[test]
fn a_moved_input_moves_the_output_by_as_much() {
    for case in &small().cases {
        let moved = Norm.reference(&Norm.flipped(case, 3));
        let error = proof::error(&moved, &Norm.reference(case), 1);
        assert!((1e-4..1e-2).contains(&error), "{error}");
    }
}
