use std::sync::OnceLock;

use super::*;
use crate::kernel::candidate::parse;
use crate::kernel::config::ModelConfig;
use crate::kernel::specs::check::{self, Prepared, good_and_bad, named};

fn flash() -> &'static Prepared<CompressorTest> {
    static MADE: OnceLock<Prepared<CompressorTest>> = OnceLock::new();
    MADE.get_or_init(|| Prepared::new(CompressorTest, synthetic(&ModelConfig::flash(), 7)))
}

fn candidates() -> Vec<Candidate> {
    parse(INFO.candidates, "compressor.toml", &[&INFO]).unwrap()
}

#[test]
fn without_rounding_it_is_the_reference() {
    assert!(flash().worst(&Candidate::exact("compressor")) < 1e-12);
}

#[test]
fn every_twin_is_caught_wherever_it_can_show() {
    let (_, twins) = good_and_bad(candidates());
    check::twins_are_the_vocabulary(&CompressorTest, &twins);
    for twin in &twins {
        let inputs = &flash().cases;
        for (at, (label, case)) in inputs.labels.iter().zip(&inputs.cases).enumerate() {
            let error = flash().main(at, twin);
            if applies(case, twin) {
                assert!(error > 0.1, "{}: {error:.2e} at {label}", twin.name);
            } else {
                assert!(error < 1e-12, "{}: {error:.2e} at {label}", twin.name);
            }
        }
    }
}

#[test]
fn every_good_candidate_strays_no_further_than_its_points() {
    let (good, _) = good_and_bad(candidates());
    for candidate in &good {
        for case in [3, 4, 6] {
            let beyond = flash().beyond_its_points(case, candidate);
            assert!(beyond < 2.0, "{}: {beyond}", candidate.name);
        }
        assert!(flash().worst(candidate) < 6e-3, "{}", candidate.name);
    }
}

#[test]
fn the_numbers_of_the_page_hold() {
    let candidates = candidates();
    let check = |name: &str, error: f64| {
        let got = flash().worst(&named(&candidates, name));
        assert!((got / error - 1.0).abs() < 0.05, "{name}: {got:.2e} where {error:.1e} is written");
    };
    check("fp32", 1.8e-3);
    check("bf16-state", 3.1e-3);
    check("bf16-weights", 3.0e-3);
    check("bf16", 4.1e-3);
}

#[test]
fn every_point_is_rounded() {
    for (point, _) in INFO.points {
        let candidate = check::one_point("compressor", point, Rounding::Bf16);
        assert!(flash().main(0, &candidate) > 1e-4, "{point}");
    }
}

#[test]
fn lengths_have_the_remainders_that_the_page_names() {
    let remainders = |ratio| -> Vec<usize> {
        let cases = flash().cases.cases.iter().filter(|c| c.compressor.ratio == ratio);
        cases.map(|c| c.tokens() % ratio).collect()
    };
    assert_eq!(remainders(4), [0, 1, 2, 3, 3]);
    assert_eq!(remainders(128), [0, 1, 127]);
    assert_eq!(synthetic(&ModelConfig::flash(), 7).cases, flash().cases.cases);
}

#[test]
fn an_unfinished_window_has_no_key() {
    for (case, right) in flash().cases.cases.iter().zip(&flash().references) {
        let keys = &right.parts[0];
        let complete = case.tokens() / case.compressor.ratio;
        assert_eq!(keys.values.len(), case.windows() * keys.columns);
        assert!(keys.values[complete * keys.columns..].iter().all(|x| *x == 0.0));
        assert!(keys.values[..complete * keys.columns].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn a_moved_input_changes_keys_a_little() {
    let case = &flash().cases.cases[0];
    let flipped = CompressorTest.flipped(case, 3);
    assert_eq!(flipped, CompressorTest.flipped(case, 3));
    let error = check::of_outcomes(&CompressorTest.reference(&flipped), &flash().references[0])[0];
    assert!((1e-4..3e-2).contains(&error), "{error}");
}
