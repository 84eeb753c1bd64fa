//! Laws of the ranking over entries and scenes of every kind.

use proptest::prelude::*;

use super::*;
use crate::patch::context::{
    Bearing, ErrorClass, Evidence, Finding, Measured, ModelFacts, Reading, Role, Ruling, Running, Symptom, SymptomKind,
    Value,
};
use crate::patch::incident::{place, set};
use crate::patch::types::{DtypeChange, Fact, GateDefault, GateKind, GateRead, Phase, Signal};

const PATHS: [&str; 6] = [
    "python/sglang/srt/models/deepseek_v4.py",
    "python/sglang/srt/layers/moe/hash_topk.py",
    "python/sglang/srt/layers/attention/dsv4/indexer.py",
    "python/sglang/srt/managers/scheduler.py",
    "docs/readme.md",
    "kernels/csrc/moe/x.cu",
];
const PHASES: [Phase; 6] = [Phase::Load, Phase::Template, Phase::Extend, Phase::Decode, Phase::Transfer, Phase::Parse];
const DTYPES: [Option<&str>; 5] = [None, Some("fp32"), Some("bf16"), Some("fp8"), Some("odd")];

fn fact<T>(value: T, path: &str) -> Fact<T> {
    Fact { value, place: place(path, 1), text: "line".into() }
}

fn evidence() -> Evidence {
    Evidence { fact: "fact".into(), source: "source".into() }
}

prop_compose! {
    fn entries_of(id: String)(
        path in prop::sample::select(&PATHS[..]),
        signals in prop::collection::vec(prop::sample::select(&Signal::ALL[..]), 0..5),
        phases in prop::collection::btree_set(prop::sample::select(&PHASES[..]), 0..4),
        dtypes in prop::collection::vec(
            (prop::sample::select(&DTYPES[..]), prop::sample::select(&DTYPES[..])), 0..3),
        gated in any::<bool>(),
        symbol in prop::sample::select(&["hc_pre", "forward", "marlin_gemm"][..]),
    ) -> Entry {
        let gate = GateRead {
            name: "X".into(),
            kind: GateKind::Helper,
            default: GateDefault::Written("false".into()),
            place: place(path, 1),
            text: "get_bool_env_var(\"X\")".into(),
        };
        let name = |text: Option<&str>| text.map(str::to_owned);
        let dtype = |(from, to)| fact(DtypeChange { from: name(from), to: name(to) }, path);
        Entry {
            symbols: vec![fact(symbol.to_owned(), path)],
            gates: if gated { vec![gate] } else { Vec::new() },
            signals: signals.into_iter().map(|s| fact(s, path)).collect(),
            phases: phases.into_iter().map(|p| (p, fact("why".to_owned(), path))).collect(),
            dtypes: dtypes.into_iter().map(dtype).collect(),
            ..Entry::of_file(&id, "title", path)
        }
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    entries_of("p".into())
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Set("1".into())),
        Just(Value::Set("0".into())),
        Just(Value::Unset),
        Just(Value::Unknown("wiped".into())),
    ]
}

prop_compose! {
    fn any_scene()(
        x in value(),
        role in prop::sample::select(&[Role::Prefill, Role::Decode, Role::Monolithic][..]),
        runner in prop::sample::select(&[None, Some("triton"), Some("marlin")][..]),
        architecture in prop::sample::select(&[None, Some("DeepseekV4ForCausalLM"), Some("Llama")][..]),
        loses in any::<bool>(),
        bearings in prop::collection::btree_map(
            prop::sample::select(&PHASES[..]),
            prop::sample::select(&[Bearing::Likely, Bearing::Possible, Bearing::Excluded][..]), 0..5),
    ) -> Scene {
        let mut running = Running::unread("t", role);
        running.unlisted = Reading { value: x, source: "environ".into(), blind_to: None };
        for (key, text) in [("moe_runner_backend", runner), ("architecture", architecture)] {
            if let Some(text) = text {
                running.settings.insert(key.into(), set(text, "server_info"));
            }
        }
        running.settings.insert("moe_quantization".into(), set("nvfp4", "log"));
        let kind = if loses { SymptomKind::LosesContext } else { SymptomKind::Other };
        let phases = bearings.into_iter().map(|(p, b)| (p, (b, evidence()))).collect();
        Scene {
            symptom: Symptom { kind, phases, ..Symptom::default() },
            model: ModelFacts { layers: Some(43), hyper_streams: Some(4), ..ModelFacts::default() },
            running: vec![running],
        }
    }
}

fn any_measured() -> impl Strategy<Value = Vec<Measured>> {
    let class = prop::sample::select(
        &[ErrorClass::BelowFloor, ErrorClass::AboveFloor, ErrorClass::FlipsDecisions, ErrorClass::Broken][..],
    );
    prop::collection::vec(class.prop_map(|class| Measured { class, evidence: evidence() }), 0..2)
}

fn ruled(finding: Option<Finding>, measured: Vec<Measured>) -> Notes {
    Notes { ruling: finding.map(|finding| Ruling { finding, evidence: evidence() }), measured, ..Notes::default() }
}

fn states(ranked: &Ranked) -> Vec<crate::patch::state::State> {
    ranked.states.iter().map(|f| f.state.clone()).collect()
}

proptest! {
    #[test]
    fn one_more_signal_never_lowers_a_score(
        entry in any_entry(), scene in any_scene(), signal in prop::sample::select(&Signal::ALL[..]),
    ) {
        let mut more = entry.clone();
        let path = entry.files[0].path.clone();
        more.signals.push(fact(signal, &path));
        let (before, after) = (assess(&entry, &scene, &Notes::default()), assess(&more, &scene, &Notes::default()));
        // What a line does can show that nothing leads to it; that is the state, which has its own rule.
        if states(&before) == states(&after) {
            prop_assert!(after.score >= before.score, "{:?} {:?}", before.terms, after.terms);
        }
    }

    #[test]
    fn one_more_lowered_type_never_lowers_a_score(entry in any_entry(), scene in any_scene()) {
        let mut more = entry.clone();
        let path = entry.files[0].path.clone();
        more.dtypes.push(fact(DtypeChange { from: Some("fp32".into()), to: Some("bf16".into()) }, &path));
        let (before, after) = (assess(&entry, &scene, &Notes::default()), assess(&more, &scene, &Notes::default()));
        if states(&before) == states(&after) {
            prop_assert!(after.score >= before.score);
        }
    }

    #[test]
    fn verdicts_go_one_way_and_decide_by_themselves(
        entry in any_entry(), scene in any_scene(), measured in any_measured(),
    ) {
        let of = |finding| assess(&entry, &scene, &ruled(finding, measured.clone()));
        let bare = of(None);
        prop_assert!(of(Some(Finding::Acquitted)).score < bare.score);
        prop_assert!(of(Some(Finding::NotShown)).score < bare.score);
        prop_assert!(of(Some(Finding::Guilty)).score > bare.score);
        prop_assert_eq!(of(Some(Finding::Acquitted)).tier, Tier::Low);
        prop_assert_eq!(of(Some(Finding::Guilty)).tier, Tier::High);
        prop_assert_eq!(of(Some(Finding::Inconclusive)).score, bare.score);
    }

    #[test]
    fn what_is_unknown_is_never_less_suspect_than_what_is_off(entry in any_entry(), scene in any_scene()) {
        let with = |value: Value| {
            let mut scene = scene.clone();
            scene.running[0].unlisted.value = value;
            assess(&entry, &scene, &Notes::default())
        };
        let (off, unknown) = (with(Value::Set("0".into())), with(Value::Unknown("wiped".into())));
        let on = with(Value::Set("1".into()));
        prop_assert!(unknown.score >= off.score);
        prop_assert!(on.score >= unknown.score);
        prop_assert!(states(&unknown) != [crate::patch::state::State::Off]);
    }

    #[test]
    fn what_is_dead_here_is_low(entry in any_entry(), scene in any_scene(), measured in any_measured()) {
        let ranked = assess(&entry, &scene, &ruled(None, measured));
        if ranked.states[0].state.is_dead() {
            prop_assert_eq!(ranked.tier, Tier::Low, "{:?}", ranked.terms);
        }
    }

    #[test]
    fn terms_add_up_as_they_are_shown(entry in any_entry(), scene in any_scene(), measured in any_measured()) {
        let ranked = assess(&entry, &scene, &ruled(None, measured));
        let hundredths = |x: f64| (x * 100.0).round() as i64;
        let sum: i64 = ranked.terms.iter().map(|t| hundredths(t.weight)).sum();
        prop_assert_eq!(sum, hundredths(ranked.score));
        prop_assert_eq!(ranked.tier, Tier::of(ranked.score));
        prop_assert!(ranked.terms.iter().all(|t| !t.fact.is_empty() && !t.source.is_empty()));
    }

    #[test]
    fn the_order_does_not_depend_on_the_order_of_entries(
        mut entries in prop::collection::vec(any_entry(), 1..6), scene in any_scene(), turn in 0usize..6,
    ) {
        for (at, entry) in entries.iter_mut().enumerate() {
            entry.id = format!("p{at}");
        }
        let there = rank(&entries, &scene, &BTreeMap::new());
        let turn = turn % entries.len();
        entries.rotate_left(turn);
        entries.reverse();
        prop_assert_eq!(there, rank(&entries, &scene, &BTreeMap::new()));
    }

    #[test]
    fn priors_are_bounded_and_rise_with_the_score(scores in prop::collection::vec(-60.0f64..60.0, 1..12)) {
        let one = assess(&Entry::of_file("p", "", "x.py"), &Scene::default(), &Notes::default());
        let ranked: Vec<Ranked> = scores
            .iter()
            .enumerate()
            .map(|(at, score)| Ranked { id: format!("p{at:02}"), score: *score, ..one.clone() })
            .collect();
        let weights = priors(&ranked);
        prop_assert_eq!(weights.len(), ranked.len());
        let (least, most) = weights.values().fold((f64::MAX, 0.0f64), |(l, m), w| (l.min(*w), m.max(*w)));
        prop_assert!(least > 0.0 && most <= least * MOST_TO_LEAST * (1.0 + 1e-12));
        prop_assert!((weights.values().sum::<f64>() - 1.0).abs() < 1e-9);
        for a in &ranked {
            for b in &ranked {
                prop_assert!(a.score < b.score || weights[&a.id] >= weights[&b.id]);
            }
        }
    }

    #[test]
    fn an_explanation_says_every_term_and_fits(entry in any_entry(), scene in any_scene()) {
        let ranked = rank(&[entry], &scene, &BTreeMap::new());
        let ties = ties(&ranked);
        for one in &ranked {
            let text = explain(one, &ties);
            prop_assert!(one.terms.iter().all(|t| text.contains(&t.rule)));
            for line in text.lines().filter(|l| l.chars().count() > 80) {
                prop_assert!(line.split_whitespace().count() <= 1, "{line}");
            }
        }
    }
}

#[test]
fn every_signal_at_once_is_less_than_what_decides() {
    let all = Entry {
        signals: Signal::ALL.iter().map(|s| fact(*s, PATHS[0])).collect(),
        dtypes: vec![fact(DtypeChange { from: Some("fp32".into()), to: Some("fp4".into()) }, PATHS[0])],
        symbols: vec![fact("hc_pre".to_owned(), PATHS[0])],
        ..Entry::of_file("p", "", PATHS[0])
    };
    let mut scene = Scene {
        model: ModelFacts { layers: Some(120), hyper_streams: Some(4), ..ModelFacts::default() },
        running: vec![Running::unread("t", Role::Monolithic)],
        ..Scene::default()
    };
    scene.symptom.kind = SymptomKind::LosesContext;
    scene.symptom.phases.insert(Phase::Extend, (Bearing::Likely, evidence()));
    scene.running[0].settings.insert("architecture".into(), set("Llama", "config.json"));
    let broken = vec![Measured { class: ErrorClass::Broken, evidence: evidence() }];
    let dead = assess(&all, &scene, &ruled(None, broken.clone()));
    let rest = dead.score + 20.0;
    assert!(rest > 15.0 && rest < 20.0, "{rest}");
    assert_eq!(dead.tier, Tier::Low);
    assert_eq!(assess(&all, &scene, &ruled(Some(Finding::Guilty), broken)).tier, Tier::High);
}
