use std::sync::OnceLock;

use super::*;
use crate::kernel::candidate::{Accumulate, parse};
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::config::ModelConfig;
use crate::kernel::measure::rel_l2;
use crate::kernel::oracle::model::Model;
use crate::kernel::specs::check::{self, Prepared, good_and_bad, named};

fn flash() -> &'static Prepared<DecodeAttention> {
    static MADE: OnceLock<Prepared<DecodeAttention>> = OnceLock::new();
    MADE.get_or_init(|| Prepared::new(DecodeAttention, synthetic(&ModelConfig::flash(), 7)))
}

fn of_lab(tokens: usize) -> Prepared<DecodeAttention> {
    let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
    Prepared::new(DecodeAttention, lab(&model, &check::lab_ids(tokens)))
}

fn candidates() -> Vec<Candidate> {
    parse(INFO.candidates, "decode-attention.toml", &[&INFO]).unwrap()
}

#[test]
fn without_rounding_any_split_and_either_base_is_the_reference() {
    for inputs in [flash(), &of_lab(400)] {
        for splits in [1, 7, 200] {
            for base in ["base-e", "base-2"] {
                let mut exact = Candidate::exact("decode-attention");
                exact.accumulate = Accumulate { splits, ..Accumulate::default() };
                exact.choose.insert("exponential".into(), base.into());
                for case in 0..inputs.references.len().min(3) {
                    let errors = inputs.at(case, &exact);
                    assert!(errors.iter().all(|e| *e < 1e-12), "{splits} {base}: {errors:?}");
                }
            }
        }
    }
}

#[test]
fn every_twin_is_caught() {
    let (_, twins) = good_and_bad(candidates());
    check::twins_are_the_vocabulary(&DecodeAttention, &twins);
    let lab = of_lab(400);
    for inputs in [flash(), &lab] {
        for twin in twins.iter().filter(|twin| applies(&inputs.cases.cases[0], twin)) {
            let error = inputs.worst(twin);
            assert!(error > 5e-3, "{}: {error:.2e} in {}", twin.name, inputs.cases.shape);
        }
    }
    let missing: Vec<&str> =
        twins.iter().filter(|t| !applies(&lab.cases.cases[0], t)).map(|t| t.name.as_str()).collect();
    assert_eq!(missing, ["rope-not-back"]);
}

#[test]
fn every_good_candidate_strays_no_further_than_its_points() {
    let ((good, _), lab) = (good_and_bad(candidates()), of_lab(400));
    for candidate in &good {
        for (inputs, case) in [(flash(), 0), (flash(), 2), (&lab, 1)] {
            let beyond = inputs.beyond_its_points(case, candidate);
            assert!(beyond < 2.0, "{}: {beyond}", candidate.name);
        }
        let bound = if candidate.name == "bf16-cache" { 4e-2 } else { 4e-3 };
        assert!(flash().worst(candidate) < bound, "{}", candidate.name);
    }
}

#[test]
fn every_point_is_rounded() {
    for (point, _) in INFO.points {
        // The model's own query is in bf16 already.
        let rounding = if *point == "query" { Rounding::F32 } else { Rounding::Bf16 };
        let candidate = check::one_point("decode-attention", point, rounding);
        assert!(flash().main(2, &candidate) > 1e-5, "{point}");
    }
}

/// Errors of the case with 640 keys without the rounding of the output: of all heads together, of the
/// median head and of the worst.
fn of_640_keys(inputs: &Prepared<DecodeAttention>, name: &str) -> [f64; 3] {
    let mut candidate = named(&candidates(), name);
    candidate.round.remove("output");
    let case = &inputs.cases.cases[3];
    let got = DecodeAttention.run(case, &candidate);
    let (got, right) = (&got.parts[1].values, &inputs.references[3].parts[1].values);
    let heads = got.chunks_exact(case.width()).zip(right.chunks_exact(case.width()));
    let mut heads: Vec<f64> = heads.map(|(got, right)| rel_l2(got, right).unwrap()).collect();
    heads.sort_by(f64::total_cmp);
    [rel_l2(got, right).unwrap(), heads[heads.len() / 2], heads[heads.len() - 1]]
}

/// The same keys, but queries that look for none of them.
fn flat() -> Prepared<DecodeAttention> {
    let mut cases = flash().cases.clone();
    let mut dice = activations::dice(1, 1);
    for row in cases.cases.iter_mut().flat_map(|case| &mut case.rows) {
        row.queries = activations::normals(&mut dice, row.queries.len(), 1.0);
    }
    Prepared::new(DecodeAttention, cases)
}

#[test]
fn the_numbers_of_the_page_hold() {
    let check = |inputs: &Prepared<DecodeAttention>, name: &str, expect: [f64; 3]| {
        for (got, expect) in of_640_keys(inputs, name).iter().zip(expect) {
            assert!((got / expect - 1.0).abs() < 0.05, "{name}: {got:.2e} where {expect:.1e} is written");
        }
    };
    let flat = flat();
    check(flash(), "query-rounded", [4.6e-4, 4.2e-4, 9.2e-3]);
    check(flash(), "mma", [4.8e-4, 4.5e-4, 9.2e-3]);
    check(&flat, "query-rounded", [1.4e-3, 1.8e-3, 3.9e-3]);
    check(&flat, "mma", [1.5e-3, 1.8e-3, 4.1e-3]);
    assert!(of_640_keys(flash(), "stock")[2] < 5e-6);
    let with_output = |inputs: &Prepared<DecodeAttention>, name: &str| inputs.main(3, &named(&candidates(), name));
    for inputs in [flash(), &flat] {
        assert!((1.4e-3..1.9e-3).contains(&with_output(inputs, "stock")));
        assert!(with_output(inputs, "mma") < 2.5e-3);
    }
    assert!((2.5e-2..3e-2).contains(&with_output(flash(), "bf16-cache")));
    let moved = |case: usize| {
        let flipped = DecodeAttention.flipped(&flash().cases.cases[case], 1 + case as u64);
        check::of_outcomes(&DecodeAttention.reference(&flipped), &flash().references[case])[1]
    };
    let all = (0..4).map(moved).map(|error| error * error).sum::<f64>();
    assert!((8e-3..1e-2).contains(&(all / 4.0).sqrt()));
}

#[test]
fn a_moved_input_is_cached_anew_and_changes_the_output_a_little() {
    for inputs in [flash(), &of_lab(300)] {
        let case = &inputs.cases.cases[1];
        let flipped = DecodeAttention.flipped(case, 3);
        assert_eq!(flipped, DecodeAttention.flipped(case, 3));
        assert_ne!(flipped.cache, case.cache);
        let error = check::of_outcomes(&DecodeAttention.reference(&flipped), &inputs.references[1])[1];
        assert!((1e-4..3e-2).contains(&error), "{error}");
    }
}

#[test]
fn cases_are_cut_as_the_page_says() {
    let cases = &flash().cases;
    let seen: Vec<usize> = cases.cases.iter().map(|c| c.rows[0].seen.len()).collect();
    assert_eq!(seen, [1, 128, 168, 640]);
    for case in &cases.cases {
        assert_eq!((case.sinks.len(), case.width()), (8, 512));
        assert!(
            case.rows.iter().all(|r| r.seen.is_sorted_by(|a, b| a < b) && r.seen.iter().all(|e| *e < case.entries()))
        );
    }
    assert_eq!(synthetic(&ModelConfig::flash(), 7).cases, cases.cases);
    assert_ne!(synthetic(&ModelConfig::flash(), 8).cases, cases.cases);
}

#[test]
fn the_sink_takes_a_share_of_the_weight() {
    // A query that sees one key may look for it with all its might.
    for (case, right) in flash().cases.cases.iter().zip(&flash().references).skip(1) {
        let lse = &right.parts[0].values;
        let shares: Vec<f64> =
            lse.iter().zip(case.sinks.iter().cycle()).map(|(lse, sink)| 1.0 / (1.0 + (lse - sink).exp())).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((0.05..0.8).contains(&mean), "{mean}");
    }
}

#[test]
fn the_lab_attends_as_the_lab_model_does() {
    let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
    let ids = check::lab_ids(300);
    let cases = lab(&model, &ids);
    let (inputs, _) = activations::lab_site_inputs(&model, &ids);
    let block = &model.blocks[4];
    let h = crate::kernel::oracle::rms(&inputs[8], &block.norms[0]);
    let right = crate::kernel::oracle::attention::attend(&block.attention, &h, ids.len());
    let heads = &DecodeAttention.reference(&cases.cases[1]).parts[1].values;
    let got = block.attention.wo.times(heads);
    for (row, got) in cases.cases[1].rows.iter().zip(got.chunks_exact(128)) {
        assert!(rel_l2(got, &right[row.position * 128..][..128]).unwrap() < 1e-12);
    }
}

#[test]
fn the_lab_says_what_is_left_out() {
    assert!(!of_lab(400).cases.provenance.contains("left out"));
    let short = of_lab(100).cases;
    assert!(short.provenance.contains("no key is left out"));
    assert_eq!(short.cases[0].rows.len(), 8);
}
