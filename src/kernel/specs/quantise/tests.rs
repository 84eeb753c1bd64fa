use super::*;
use crate::kernel::candidate::parse;
use crate::kernel::config::ModelConfig;
use crate::kernel::format::{Storage, block};
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::quantise::{Rule, quantise};
use crate::kernel::specs::proof;

/// Flash, narrower, for a program that is not optimised.
fn small() -> Cases<Case> {
    synthetic(&ModelConfig { hidden_size: 512, ..ModelConfig::flash() }, 1)
}

fn candidate(text: &str) -> Candidate {
    parse(&format!("[[candidate]]\nspec = \"quantise\"\nname = \"n\"\n{text}"), "here", &[&INFO]).unwrap().remove(0)
}

#[test]
fn without_rounding_it_is_the_reference() {
    proof::exact_is_the_reference(&Quantise, &small());
}

#[test]
fn twins_are_far_from_all_good_candidates() {
    proof::good_ones_are_near_and_twins_far(&Quantise, &small(), INFO.candidates, 2.0);
}

#[test]
fn cases_are_labelled_and_reproducible() {
    proof::cases_are_whole(&Quantise, [&small(), &small()]);
}

#[test]
fn formats_and_oracle_agree() {
    for case in &small().cases {
        for word in ["fp8-1x128", "fp8-1x128-ue8m0", "fp8-128x128", "fp8-128x128-ue8m0", "mxfp4", "nvfp4"] {
            let storage: Storage = word.parse().unwrap();
            for values in [&case.activation[..], &case.weight] {
                let expect = quantise(values, case.width, Rule::named(word).unwrap()).dequantise();
                let got = storage.store(values, case.width);
                // The format divides in f32 and the oracle in f64, so that a quotient within an f32
                // unit of a midpoint may fall to the other side; a product of two f32 scales may
                // differ in its last bit.
                for ((x, a), b) in values.iter().zip(&got).zip(&expect) {
                    let alike = (a - b).abs() <= 2e-7 * b.abs();
                    let tie = (x - f64::midpoint(*a, *b)).abs() <= 2e-7 * x.abs();
                    assert!(alike || tie, "{word}: {x} becomes {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn a_late_scale_is_the_formats_own_late_scale() {
    let case = &small().cases[0];
    let got = Quantise.run(case, &candidate("round = { activation = \"fp8-1x128-ue8m0\" }\nfault = \"late-scale\""));
    let named = Quantise.run(case, &candidate("round = { activation = \"fp8-1x128-ue8m0-late\" }"));
    // All but those near a midpoint, as above.
    let pairs = got.parts[0].values.iter().zip(&named.parts[0].values);
    let others = pairs.filter(|(a, b)| (*a - *b).abs() > 2e-7 * b.abs()).count();
    assert!(others * 50 < got.parts[0].values.len(), "{others}");
    assert!(proof::error(&got, &Quantise.reference(case), 0) > 0.2);
}

#[test]
fn a_fault_without_anything_to_spoil_changes_nothing() {
    let case = &small().cases[1];
    let check = |format: &str, fault: &str| {
        let round = format!("round = {{ activation = \"{format}\" }}");
        let good = Quantise.run(case, &candidate(&round));
        assert_eq!(Quantise.run(case, &candidate(&format!("{round}\nfault = \"{fault}\""))), good, "{format} {fault}");
    };
    check("bf16", "neighbour-scale");
    check("fp8-1x128", "nibbles-swapped");
    check("fp8-1x128", "late-scale");
    check("mxfp4", "second-scale-forgotten");
    check("mxfp4", "e4m3-as-e5m2");
    check("fp8-1x128", "grid-transposed");
}

#[test]
fn mxfp4_weights_cost_nothing_as_nvfp4_with_copied_scales_and_something_afresh() {
    let case = &small().cases[2];
    let word: Storage = "mxfp4".parse().unwrap();
    let Storage::Block(format) = word else { panic!("mxfp4 is a block format") };
    let codes = block::quantise(format, &case.weight, case.width);
    assert_eq!(block::dequantise(&codes), case.weight.to_vec(), "the weights are on the grid");
    let copied = block::nvfp4_of_mxfp4(&codes).unwrap();
    assert_eq!(block::dequantise(&copied), case.weight.to_vec());
    let afresh = Quantise.run(case, &candidate("round = { weight = \"nvfp4\" }"));
    let error = proof::error(&afresh, &Quantise.reference(case), 1);
    assert!((0.01..0.2).contains(&error), "{error}");
}

#[test]
fn each_operand_shows_alone() {
    let case = &small().cases[0];
    let right = Quantise.reference(case);
    let got = Quantise.run(case, &candidate("round = { weight = \"fp8-128x128\" }"));
    assert_eq!(proof::error(&got, &right, 0), 0.0);
    assert!(proof::error(&got, &right, 1) > 0.01 && proof::error(&got, &right, 2) > 0.01);
}
