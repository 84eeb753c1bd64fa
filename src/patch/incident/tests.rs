//! The texts' tiers out of the texts' facts, and what each correction moves.

use std::collections::BTreeMap;

use super::*;
use crate::patch::context::{ErrorClass, Finding, Measured, Ruling};
use crate::patch::risk::{Kind, Ranked, Tier, explain, priors, rank, ties};

fn ranked(facts: &Facts) -> Vec<Ranked> {
    rank(&entries(facts), &scene(facts), &notes())
}

fn patches(facts: &Facts) -> Vec<Ranked> {
    ranked(facts).into_iter().filter(|r| r.kind == Kind::Patch).collect()
}

fn table(ranked: &[Ranked]) -> String {
    let row = |r: &Ranked| {
        let terms = r.terms.iter().map(|t| format!("{} {:+.2}", t.rule, t.weight)).collect::<Vec<_>>().join(", ");
        let state = crate::patch::state::most_alive(&r.states).map_or("-", |f| f.state.word());
        format!("{:<16} {:<6} {:>6.2} {:<7} {terms}\n", r.id, r.tier.word(), r.score, state)
    };
    ranked.iter().map(row).collect()
}

fn tier(facts: &Facts) -> BTreeMap<String, Tier> {
    patches(facts).into_iter().map(|r| (r.id, r.tier)).collect()
}

/// The precision audit: tier 1 mHC and routed scaling, tier 2 the kernels of attention and indexer, tier 3 the rest.
#[test]
fn the_facts_that_the_texts_believed_give_the_tiers_of_the_texts() {
    let tiers = tier(&Facts::as_believed());
    let check = |expect: Tier, ids: &[&str]| {
        for id in ids {
            assert_eq!(tiers[*id], expect, "{id}\n{}", table(&patches(&Facts::as_believed())));
        }
    };
    check(Tier::High, &["mhc-bf16", "routed-scaling"]);
    check(Tier::Medium, &["mma-decode", "triton-indexer", "bf16-indexer"]);
    check(Tier::Low, &["nvfp4-load", "flashinfer-clamp", "thinking-default"]);
    assert_eq!(patches(&Facts::as_believed())[0].id, "mhc-bf16", "the first suspect of all three texts");
}

/// Which patches each correction moves by itself, and no other; see `Correction` for what each is.
#[test]
fn each_correction_moves_what_it_is_about() {
    let before: BTreeMap<String, f64> = patches(&Facts::as_believed()).into_iter().map(|r| (r.id, r.score)).collect();
    let check = |correction, expect: &[(&str, f64)]| {
        let moved: BTreeMap<String, f64> = patches(&Facts::with(correction))
            .into_iter()
            .map(|r| (r.id.clone(), ((r.score - before[&r.id]) * 100.0).round() / 100.0))
            .filter(|(_, by)| *by != 0.0)
            .collect();
        let expect: BTreeMap<String, f64> = expect.iter().map(|(id, by)| ((*id).to_owned(), *by)).collect();
        assert_eq!(moved, expect, "{correction:?}");
    };
    check(Correction::AttentionServesPrefill, &[("mma-decode", 1.5)]);
    check(Correction::IndexerServesPrefill, &[("triton-indexer", 1.5), ("bf16-indexer", 1.5)]);
    check(Correction::EnvironIsBlind, &[("bf16-indexer", 0.3)]);
    // The method of the experts also settles that the loader's change acts.
    check(Correction::RoutedScalingIsLive, &[("routed-scaling", 0.3), ("nvfp4-load", 0.3)]);
    check(Correction::TwoSitesALayer, &[("mhc-bf16", 0.21)]);
    check(Correction::TemplateWasNotChecked, &[("thinking-default", 2.0)]);
}

#[test]
fn the_corrected_table() {
    insta::assert_snapshot!(table(&ranked(&Facts::corrected())), @r#"
    mhc-bf16         high     5.64 live    live-here +0.30, no-gate +1.00, phase-likely +1.50, sites +1.34, dtype-lowered +1.20, dtype-lowered-always +0.30, base-rate +0.00
    triton-indexer   high     5.01 live    live-here +0.30, phase-likely +1.50, sites +0.91, index +0.50, layout +0.70, base-rate +1.10
    mma-decode       high     4.73 live    live-here +0.30, phase-likely +1.50, sites +1.13, dtype-lowered +1.20, accumulation +0.60, base-rate +0.00
    routed-scaling   high     4.53 live    live-here +0.30, no-gate +1.00, phase-likely +1.50, sites +0.33, scale +0.80, assert-removed +0.60, base-rate +0.00
    warm-cache       high     4.35 unknown phase-likely +1.50, base-rate +0.85, met +1.50, untried +0.50
    chunk-alignment  high     4.15 live    live-here +0.30, phase-likely +1.50, base-rate +0.35, met +1.50, untried +0.50
    bf16-indexer     medium   3.91 live    live-here +0.30, phase-likely +1.50, sites +0.91, dtype-lowered +1.20, base-rate +0.00
    thinking-default medium   3.05 live    live-here +0.30, no-gate +1.00, template +0.80, default-on +0.40, base-rate +0.55
    transfer         medium   2.85 live    live-here +0.30, base-rate +0.55, met +1.50, untried +0.50
    template         medium   2.76 live    live-here +0.30, base-rate +0.46, met +1.50, untried +0.50
    concurrency      medium   2.63 unknown phase-likely +1.50, base-rate +0.63, untried +0.50
    length-residue   medium   2.30 live    live-here +0.30, phase-likely +1.50, base-rate +0.00, untried +0.50
    speculation      low      1.13 unknown base-rate +0.63, untried +0.50
    nvfp4-load       low      0.69 live    live-here +0.30, no-gate +1.00, phase-excluded -2.00, layout +0.70, base-rate +0.69
    flashinfer-clamp low    -16.90 inert   dead-here -20.00, no-gate +1.00, phase-likely +1.50, clamp +0.60
    "#);
}

#[test]
fn each_reason_has_its_source() {
    for one in ranked(&Facts::corrected()) {
        assert!(!one.terms.is_empty());
        for term in &one.terms {
            assert!(!term.fact.is_empty() && !term.source.is_empty(), "{}: {term:?}", one.id);
        }
    }
}

#[test]
fn states_of_the_corrected_incident() {
    let all = patches(&Facts::corrected());
    let check = |id: &str, expect: &str, because: &str| {
        let one = all.iter().find(|r| r.id == id).unwrap();
        for found in &one.states {
            assert_eq!(found.state.word(), expect, "{id} on {}: {}", found.target, found.because);
            assert!(found.because.contains(because), "{id}: {}", found.because);
        }
    };
    check("mma-decode", "live", "`SGLANG_SM120_MMA_FLASHMLA` is on: `1`");
    check("bf16-indexer", "live", "the engine sets `SGLANG_FP8_PAGED_MQA_LOGITS_TORCH` to `1` by itself");
    check("routed-scaling", "live", "`moe_quantization` is `nvfp4` and `moe_runner_backend` is `triton`");
    check("flashinfer-clamp", "inert", "`moe_runner_backend` is `triton`");
    let believed = patches(&Facts::as_believed());
    let bf16 = believed.iter().find(|r| r.id == "bf16-indexer").unwrap();
    assert_eq!(bf16.states[0].state.word(), "unknown", "absent from a launcher's environment is not off");
}

/// A rule that knew a patch by its name would give another order once the names are gone.
#[test]
fn the_order_follows_from_facts_and_not_from_names() {
    let facts = Facts::corrected();
    let scores = |ranked: Vec<Ranked>| {
        let mut scores: Vec<(String, f64)> = ranked.into_iter().map(|r| (r.title, r.score)).collect();
        scores.sort_by(|a, b| a.0.cmp(&b.0));
        scores
    };
    let mut renamed = entries(&facts);
    for (at, entry) in renamed.iter_mut().enumerate() {
        entry.id = format!("unit-{}", 97 - 13 * at);
    }
    assert_eq!(scores(rank(&renamed, &scene(&facts), &notes())), scores(ranked(&facts)));
    let ids = |ranked: &[Ranked]| ranked.iter().map(|r| r.score.to_bits()).collect::<Vec<_>>();
    for entry in &mut renamed {
        entry.title = "a change".into();
    }
    assert_eq!(ids(&rank(&renamed, &scene(&facts), &notes())), ids(&ranked(&facts)));
}

#[test]
fn a_measurement_and_a_verdict_move_the_first_suspect() {
    let facts = Facts::corrected();
    let of = |class: Option<ErrorClass>, finding: Option<Finding>| {
        let measured = class.map(|class| {
            let fact = "1.2e-3 in the new streams of a site, floor 1.65e-3".to_owned();
            Measured { class, evidence: Evidence { fact, source: "microtest mhc-mix, synthetic".into() } }
        });
        let ruling = finding.map(|finding| {
            let evidence = Evidence { fact: "4 and 4 boots".into(), source: "journal 91 to 140".into() };
            Ruling { finding, evidence }
        });
        let notes = Notes { measured: measured.into_iter().collect(), ruling, ..Notes::default() };
        let all = rank(&entries(&facts), &scene(&facts), &BTreeMap::from([("mhc-bf16".to_owned(), notes)]));
        let one = all.iter().find(|r| r.id == "mhc-bf16").unwrap();
        (one.tier, all.iter().position(|r| r.id == "mhc-bf16").unwrap(), all.len())
    };
    assert_eq!(of(None, None), (Tier::High, 0, 15));
    assert_eq!(of(Some(ErrorClass::BelowFloor), None).0, Tier::Medium);
    assert_eq!(of(Some(ErrorClass::FlipsDecisions), None), (Tier::High, 0, 15));
    assert_eq!(of(None, Some(Finding::Acquitted)), (Tier::Low, 14, 15));
    assert_eq!(of(Some(ErrorClass::BelowFloor), Some(Finding::Guilty)), (Tier::High, 0, 15));
}

#[test]
fn the_search_prefers_the_suspect_and_forgets_none() {
    let weights = priors(&ranked(&Facts::corrected()));
    assert_eq!(weights.len(), 8, "patches alone");
    let share = |id: &str| (weights[id] * 1000.0).round() / 1000.0;
    assert!(share("mhc-bf16") > share("bf16-indexer") && share("bf16-indexer") > share("nvfp4-load"));
    assert!(share("flashinfer-clamp") > 0.005, "{weights:?}");
}

/// The fields that `patches --json` promises.
#[test]
fn a_risk_as_json() {
    let all = ranked(&Facts::corrected());
    let json = serde_json::to_value(&all).unwrap();
    let first = &json[0];
    assert_eq!((first["id"].as_str(), first["tier"].as_str()), (Some("mhc-bf16"), Some("high")));
    let fields: Vec<&String> = first["terms"][0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["fact", "rule", "source", "weight"]);
    assert_eq!(json[14]["states"][0]["state"], serde_json::json!({"kind": "inert", "by": "backend"}));
    assert_eq!(serde_json::from_value::<Vec<Ranked>>(json).unwrap(), all);
    let scene = scene(&Facts::corrected());
    let text = serde_json::to_string(&scene).unwrap();
    assert_eq!(serde_json::from_str::<Scene>(&text).unwrap(), scene);
}

#[test]
fn an_explanation() {
    let all = ranked(&Facts::corrected());
    let one = all.iter().find(|r| r.id == "routed-scaling").unwrap();
    insta::assert_snapshot!(explain(one, &ties(&all)), @r#"
    patch routed-scaling: high, +4.53
    routed scaling factor in the hash top-k

       +0.30  live-here           live on `prefill`: nothing switches it; its path
                                  is taken: `moe_quantization` is `nvfp4` and
                                  `moe_runner_backend` is `triton`; provided that
                                  the process imported the changed file
                                  (`python/sglang/srt/layers/moe/hash_topk.py`:
                                  nobody looked)
                                  [sgl-project/sglang
                                  layers/quantization/modelopt_quant.py,
                                  layers/moe/hash_topk.py at 30cb848d4b45:
                                  should_fuse_routed_scaling_factor_in_topk]
       +1.00  no-gate             no variable or flag switches it
                                  [python/sglang/srt/layers/moe/hash_topk.py:54]
       +1.50  phase-likely        reaches extend: every forward pass goes through it
                                  (python/sglang/srt/layers/moe/hash_topk.py:54);
                                  prompts of 10k to 30k tokens fail, prompts of 90
                                  pass
                                  [prefill log, recall]
       +0.33  sites               acts 3 times in a forward pass: layers that route
                                  by hash
                                  [config.json of DeepSeek-V4-Flash]
       +0.80  scale               `topk_weights *= self.routed_scaling_factor`
                                  [python/sglang/srt/layers/moe/hash_topk.py:57]
       +0.60  assert-removed      `assert not apply_routed_scaling_factor_on_output`
                                  [python/sglang/srt/layers/moe/hash_topk.py:56]
       +0.00  base-rate           0 of 29 public reports of lost context with a
                                  known cause name scale factors
                                  [83 public reports, counted in
                                  patch::risk::reports]
       +4.53  sum                 high from 4.0, medium from 2.0

    state
      live on `prefill` and `decode`: nothing switches it; its path is taken:
        `moe_quantization` is `nvfp4` and `moe_runner_backend` is `triton`
        no read of a switch in the changed lines
          [python/sglang/srt/layers/moe/hash_topk.py]
        `moe_quantization` is `nvfp4` [log: Auto-detected hybrid FP8+NVFP4
          checkpoint]
        `moe_runner_backend` is `triton` [serve_dsv4_decode.sh:12]
        which settings lead to `python/sglang/srt/layers/moe/hash_topk.py`
          [sgl-project/sglang layers/quantization/modelopt_quant.py,
          layers/moe/hash_topk.py at 30cb848d4b45:
          should_fuse_routed_scaling_factor_in_topk]
        taken for granted: the process imported the changed file
          (`python/sglang/srt/layers/moe/hash_topk.py`: nobody looked)

    not known
      whether switching it makes and unmakes the symptom (-40.00 to +40.00): take
        its diff out, or give it a switch first, and restart
      whether the process imported the changed file
        (`python/sglang/srt/layers/moe/hash_topk.py`: nobody looked) (-20.30 to
        +0.00): taken for granted, since it was not read

    as suspect as
      `mma-decode`: `mma-decode` has dtype-lowered +1.20, sites +1.13, accumulation
        +0.60; `routed-scaling` has no-gate +1.00, scale +0.80, assert-removed
        +0.60, and +0.33 of 1 more
        what would tell: `mma-decode`: whether the process imported the changed file
          (`python/sglang/srt/layers/attention/flash_mla_sm120_triton.py`: nobody
          looked) (taken for granted, since it was not read); `routed-scaling`:
          whether the process imported the changed file
          (`python/sglang/srt/layers/moe/hash_topk.py`: nobody looked) (taken for
          granted, since it was not read)
      `warm-cache`: `routed-scaling` has no-gate +1.00, scale +0.80, assert-removed
        +0.60, and +0.63 of 2 more; `warm-cache` has met +1.50, base-rate +0.85,
        untried +0.50
        what would tell: `routed-scaling`: whether the process imported the changed
          file (`python/sglang/srt/layers/moe/hash_topk.py`: nobody looked) (taken
          for granted, since it was not read); `warm-cache`: whether switching it
          makes and unmakes the symptom (ask the same questions with its other
          level: no restart)

    weights order patches; they are no probabilities
    "#);
}
