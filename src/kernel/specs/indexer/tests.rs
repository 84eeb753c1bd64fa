use std::sync::OnceLock;

use super::*;
use crate::kernel::candidate::parse;
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::config::ModelConfig;
use crate::kernel::oracle::model::Model;
use crate::kernel::specs::check::{self, Prepared, good_and_bad, named};

fn flash() -> &'static Prepared<Indexer> {
    static MADE: OnceLock<Prepared<Indexer>> = OnceLock::new();
    MADE.get_or_init(|| Prepared::new(Indexer, synthetic(&ModelConfig::flash(), 7)))
}

fn of_lab(tokens: usize) -> Prepared<Indexer> {
    let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
    Prepared::new(Indexer, lab(&model, &check::lab_ids(tokens)))
}

fn candidates() -> Vec<Candidate> {
    parse(INFO.candidates, "indexer.toml", &[&INFO]).unwrap()
}

/// What became of the sets of all cases.
struct Kept {
    overlap: f64,
    planted: usize,
    /// The widest margin above the first dropped key that was lost, in standard deviations of its row.
    widest: f64,
}

fn kept(inputs: &Prepared<Indexer>, candidate: &Candidate) -> Kept {
    let (mut common, mut all) = (0, 0);
    let mut kept = Kept { overlap: 0.0, planted: 0, widest: 0.0 };
    for (case, right) in inputs.cases.cases.iter().zip(&inputs.references) {
        let got = Indexer.run(case, candidate).sets.unwrap();
        for (got, right) in got.rows.iter().zip(&right.sets.as_ref().unwrap().rows) {
            let dropped = sorted(&right.scores)[case.keep.min(right.scores.len() - 1)];
            let (there, lost): (Vec<u32>, Vec<u32>) =
                right.kept.iter().partition(|key| got.kept.binary_search(key).is_ok());
            all += right.kept.len();
            common += there.len();
            kept.planted += usize::from(right.planted.is_some_and(|p| there.contains(&p)));
            for key in lost {
                let margin = (right.scores[key as usize] - dropped) / deviation(&right.scores);
                kept.widest = kept.widest.max(margin);
            }
        }
    }
    kept.overlap = common as f64 / all as f64;
    kept
}

fn sorted(scores: &[f64]) -> Vec<f64> {
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted
}

fn deviation(scores: &[f64]) -> f64 {
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    (scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / scores.len() as f64).sqrt()
}

#[test]
fn without_rounding_it_is_the_reference() {
    let exact = Candidate::exact("indexer");
    for inputs in [flash(), &of_lab(400)] {
        assert!(inputs.worst(&exact) < 1e-12);
        assert_eq!(kept(inputs, &exact).overlap, 1.0);
    }
}

#[test]
fn cases_are_cut_as_the_page_says() {
    let cases = &flash().cases;
    assert_eq!(cases.labels[0], "600 keys, length mod 4 = 0");
    let lengths: Vec<usize> = cases.cases.iter().map(|c| c.rows[0].position + 1).collect();
    assert_eq!(lengths, [2400, 4097, 8194, 16387]);
    let visible: Vec<usize> = cases.cases.iter().flat_map(|c| c.rows.iter().map(|r| r.visible)).collect();
    assert_eq!(visible, [600, 575, 1024, 1000, 2048, 2024, 4096]);
    assert!(visible.iter().all(|v| *v > 512), "every row drops keys");
    assert_eq!(synthetic(&ModelConfig::flash(), 7).cases, cases.cases);
    assert_ne!(synthetic(&ModelConfig::flash(), 8).cases, cases.cases);
}

#[test]
fn planted_keys_are_kept_by_a_stated_margin() {
    for row in flash().references.iter().flat_map(|right| &right.sets.as_ref().unwrap().rows) {
        let planted = row.planted.unwrap();
        assert!(row.kept.contains(&planted));
        let margin = (row.scores[planted as usize] - sorted(&row.scores)[512]) / deviation(&row.scores);
        assert!((0.9..1.2).contains(&margin), "{margin}");
    }
}

#[test]
fn every_twin_is_caught() {
    let (_, twins) = good_and_bad(candidates());
    check::twins_are_the_vocabulary(&Indexer, &twins);
    for inputs in [flash(), &of_lab(400)] {
        for twin in &twins {
            let error = inputs.worst(twin);
            assert!(error > 0.1, "{}: {error:.2e} in {}", twin.name, inputs.cases.shape);
        }
    }
    // Some keep many keys all the same: a norm of the scores must be looked at too.
    let overlap = |name: &str| kept(flash(), &named(&twins, name)).overlap;
    for name in ["page-off", "layout-interleaved", "sign-wrong", "key-not-rotated", "relu-forgotten", "last-chunk-only"]
    {
        assert!(overlap(name) < 0.75, "{name}: {}", overlap(name));
    }
    assert!(overlap("key-scale-forgotten") < 0.9);
}

#[test]
fn every_good_candidate_strays_no_further_than_its_points() {
    let ((good, _), lab) = (good_and_bad(candidates()), of_lab(400));
    for candidate in &good {
        for inputs in [flash(), &lab] {
            let beyond = inputs.beyond_its_points(0, candidate);
            assert!(beyond < 2.0, "{}: {beyond}", candidate.name);
        }
    }
}

#[test]
fn the_numbers_of_the_page_hold() {
    let candidates = candidates();
    let check = |name: &str, error: f64, overlap: f64, widest: f64| {
        let candidate = named(&candidates, name);
        let (got, kept) = (flash().worst(&candidate), kept(flash(), &candidate));
        assert!((got / error - 1.0).abs() < 0.05, "{name}: {got:.2e} where {error:.1e} is written");
        assert!((kept.overlap - overlap).abs() < 1e-3, "{name}: {:.4} where {overlap} is written", kept.overlap);
        assert!((kept.widest - widest).abs() < 0.006, "{name}: {:.3} where {widest} is written", kept.widest);
        assert_eq!(kept.planted, 7, "{name}");
    };
    check("fp8", 1.35e-7, 1.0, 0.0);
    check("fp8-bf16-dot", 1.2e-3, 0.997, 0.01);
    check("bf16-scores", 3.0e-3, 0.993, 0.03);
    check("bf16-operands", 2.5e-2, 0.958, 0.25);
    check("fp32", 2.5e-2, 0.959, 0.25);
    check("fp4", 1.2e-1, 0.832, 1.41);
    let rows = flash().references.iter().flat_map(|right| &right.sets.as_ref().unwrap().rows);
    let mut margins: Vec<f64> =
        rows.map(|row| indexer::margin(&row.scores, 512).unwrap() / deviation(&row.scores)).collect();
    margins.sort_by(f64::total_cmp);
    assert!((8e-4..1.3e-3).contains(&margins[3]), "{margins:?}");
}

#[test]
fn every_point_is_rounded() {
    for (point, _) in INFO.points {
        let candidate = check::one_point("indexer", point, Rounding::Bf16);
        assert!(flash().main(0, &candidate) > 1e-4, "{point}");
    }
}

#[test]
fn a_moved_input_is_cached_anew_and_changes_scores_a_little() {
    let case = &flash().cases.cases[0];
    let flipped = Indexer.flipped(case, 3);
    assert_eq!(flipped, Indexer.flipped(case, 3));
    assert_ne!(flipped.pages, case.pages);
    let error = check::of_outcomes(&Indexer.reference(&flipped), &flash().references[0])[0];
    assert!((1e-4..3e-2).contains(&error), "{error}");
}

#[test]
fn the_lab_says_what_is_cut() {
    let cases = of_lab(400).cases;
    assert_eq!(cases.labels, ["layer 2 attention", "layer 4 attention"]);
    assert_eq!(cases.cases[0].rows.len(), 8);
    assert!(!cases.provenance.contains("nothing is cut"));
    let short = of_lab(150);
    let says = "nothing is cut, because no token has more than 64 keys before its window";
    assert!(short.cases.provenance.ends_with(says));
    for row in &short.references[0].sets.as_ref().unwrap().rows {
        assert_eq!(row.kept.len(), row.scores.len());
    }
    assert!(of_lab(20).cases.cases[0].rows.is_empty());
}

#[test]
fn the_lab_keeps_what_the_lab_models_attention_keeps() {
    let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
    let ids = check::lab_ids(300);
    let cases = lab(&model, &ids);
    let (inputs, _) = activations::lab_site_inputs(&model, &ids);
    let block = &model.blocks[2];
    let h = crate::kernel::oracle::rms(&inputs[4], &block.norms[0]);
    let right = crate::kernel::oracle::attention::select(block.attention.indexer.as_ref().unwrap(), &h, ids.len());
    let got = Indexer.reference(&cases.cases[0]).sets.unwrap();
    for (row, kept) in cases.cases[0].rows.iter().zip(&got.rows) {
        let kept: Vec<usize> = kept.kept.iter().map(|k| *k as usize).collect();
        assert_eq!(kept, right[row.position]);
    }
}
