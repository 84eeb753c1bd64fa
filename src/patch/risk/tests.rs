use super::*;
use crate::patch::context::{
    Bearing, ErrorClass, Evidence, Finding, Level, Measured, ModelFacts, Role, Ruling, Running, Symptom, SymptomKind,
};
use crate::patch::incident::{place, set};
use crate::patch::types::{DtypeChange, Fact, FileTouch, GateDefault, GateKind, GateRead, Phase, Signal, Touch};

const FILE: &str = "python/sglang/srt/layers/activation.py";

fn fact<T>(value: T) -> Fact<T> {
    Fact { value, place: place(FILE, 3), text: "the line".into() }
}

fn evidence() -> Evidence {
    Evidence { fact: "a fact".into(), source: "a source".into() }
}

fn patch() -> Entry {
    Entry::of_file("p", "a patch", FILE)
}

fn doing(signals: &[Signal]) -> Entry {
    Entry { signals: signals.iter().map(|s| fact(*s)).collect(), ..patch() }
}

fn cast(from: Option<&str>, to: Option<&str>) -> Entry {
    let name = |text: Option<&str>| text.map(str::to_owned);
    Entry { dtypes: vec![fact(DtypeChange { from: name(from), to: name(to) })], ..patch() }
}

fn in_phases(phases: &[Phase]) -> Entry {
    Entry { phases: phases.iter().map(|p| (*p, fact("why".to_owned()))).collect(), ..patch() }
}

fn scene() -> Scene {
    Scene { running: vec![Running::unread("t", Role::Monolithic)], ..Scene::default() }
}

fn suspecting(phases: &[(Phase, Bearing)], role: Role) -> Scene {
    let phases = phases.iter().map(|(p, b)| (*p, (*b, evidence()))).collect();
    let symptom = Symptom { phases, ..Symptom::default() };
    Scene { symptom, running: vec![Running::unread("t", role)], ..Scene::default() }
}

/// The weight that a rule adds; `None` where it does not fire.
fn weight(rule: &str, ranked: &Ranked) -> Option<f64> {
    assert!(RULES.iter().any(|r| r.name == rule), "there is no rule `{rule}`");
    let terms = ranked.terms.iter().filter(|t| t.rule == rule);
    let weights: Vec<f64> = terms.map(|t| t.weight).collect();
    assert!(weights.len() <= 1, "a rule fires once");
    weights.first().copied()
}

fn check(rule: &str, entry: &Entry, scene: &Scene, notes: &Notes, expect: Option<f64>) {
    let ranked = assess(entry, scene, notes);
    assert_eq!(weight(rule, &ranked), expect, "{rule}: {:?}", ranked.terms);
    assert!(ranked.terms.iter().all(|t| !t.fact.is_empty() && !t.source.is_empty()), "{:?}", ranked.terms);
}

fn plain(rule: &str, entry: &Entry, expect: Option<f64>) {
    check(rule, entry, &scene(), &Notes::default(), expect);
}

#[test]
fn names_of_rules_are_unique_and_each_says_why() {
    let mut names: Vec<&str> = RULES.iter().map(|r| r.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
    assert!(RULES.iter().all(|r| !r.because.is_empty() && r.weight != 0.0));
    let does = |s: Signal| RULES.iter().filter(|r| r.when == table::When::Does(s)).count();
    assert!(Signal::ALL.iter().all(|s| does(*s) == 1), "each signal has one rule");
}

#[test]
fn a_patch_without_a_switch() {
    let gated = |kind| {
        let gate = GateRead {
            name: "X".into(),
            kind,
            default: GateDefault::Written("0".into()),
            place: place(FILE, 3),
            text: "X".into(),
        };
        Entry { gates: vec![gate], ..patch() }
    };
    plain("no-gate", &patch(), Some(1.0));
    plain("no-gate", &gated(GateKind::Environ), None);
    plain("no-gate", &gated(GateKind::ServerArgs), None);
    plain("no-gate", &gated(GateKind::Arch), Some(1.0));
    plain("no-gate", &gated(GateKind::Constant), Some(1.0));
    let level = |switch: Option<&str>| {
        let level =
            Level { switch: switch.map(str::to_owned), level: None, suspect: "on".into(), source: "not read".into() };
        Notes { levels: BTreeMap::from([("t".into(), level)]), ..Notes::default() }
    };
    check("no-gate", &patch(), &scene(), &level(Some("X")), None);
    check("no-gate", &patch(), &scene(), &level(None), Some(1.0));
}

#[test]
fn phases_against_the_symptom() {
    use Bearing::{Excluded, Likely, Possible};
    let notes = Notes::default();
    let both = |entry: &Entry, scene: &Scene, likely: Option<f64>, excluded: Option<f64>| {
        check("phase-likely", entry, scene, &notes, likely);
        check("phase-excluded", entry, scene, &notes, excluded);
    };
    let extend = suspecting(&[(Phase::Extend, Likely), (Phase::Load, Excluded)], Role::Monolithic);
    both(&in_phases(&[Phase::Extend]), &extend, Some(1.5), None);
    both(&in_phases(&[Phase::Decode, Phase::Extend]), &extend, Some(1.5), None);
    both(&in_phases(&[Phase::Decode]), &extend, None, None);
    both(&in_phases(&[Phase::Load]), &extend, None, Some(-2.0));
    both(&in_phases(&[Phase::Load, Phase::Decode]), &extend, None, None);
    both(&in_phases(&[]), &extend, Some(1.5), None);
    both(&in_phases(&[Phase::Extend]), &scene(), None, None);
    both(&in_phases(&[Phase::Extend]), &suspecting(&[(Phase::Extend, Possible)], Role::Monolithic), None, None);
    // A target that never computes a prompt cannot show a fault of it.
    both(&in_phases(&[Phase::Extend]), &suspecting(&[(Phase::Extend, Likely)], Role::Decode), None, Some(-2.0));
    both(&in_phases(&[Phase::Extend]), &suspecting(&[(Phase::Extend, Likely)], Role::Prefill), Some(1.5), None);
}

#[test]
fn places_of_a_forward_pass_are_counted_from_the_model() {
    let model = ModelFacts {
        layers: Some(43),
        hash_layers: Some(3),
        compress_ratios: (0..44).map(|l| if (2..43).contains(&l) { [4, 128][l % 2] } else { 0 }).collect(),
        hyper_streams: Some(4),
        source: "config.json".into(),
    };
    let count = |path: &str, symbol: Option<&str>, model: &ModelFacts| {
        let symbols = symbol.map(|s| fact(s.to_owned())).into_iter().collect();
        sites::sites(&Entry { symbols, ..Entry::of_file("p", "", path) }, model).map(|(count, _)| count)
    };
    let check = |path: &str, symbol: Option<&str>, expect: Option<u32>| {
        assert_eq!(count(path, symbol, &model), expect, "{path} {symbol:?}");
    };
    check("models/deepseek_v4.py", Some("hc_pre"), Some(86));
    check("layers/attention/dsv4/indexer.py", None, Some(21));
    check("layers/attention/dsv4/compressor.py", None, Some(41));
    check("layers/moe/hash_topk.py", None, Some(3));
    check("layers/moe/fused_moe.py", None, Some(43));
    check("layers/attention/flash_mla_sm120_triton.py", None, Some(43));
    check("layers/logits_processor.py", None, Some(1));
    check("managers/scheduler.py", None, None);
    check("managers/scheduler.py", Some("MHCPre"), Some(86));
    let bare = ModelFacts { hyper_streams: None, compress_ratios: Vec::new(), ..model.clone() };
    assert_eq!(count("models/x.py", Some("hc_pre"), &bare), Some(43), "at least one a layer");
    assert_eq!(count("layers/attention/dsv4/indexer.py", None, &bare), None);
    assert_eq!(count("models/x.py", Some("hc_pre"), &ModelFacts { hyper_streams: Some(1), ..model.clone() }), None);
    let mhc = Entry { symbols: vec![fact("hc_pre".into())], ..patch() };
    let of = |phases: &[Phase]| Entry { phases: in_phases(phases).phases, ..mhc.clone() };
    let modelled = Scene { model, ..scene() };
    super::tests::check("sites", &mhc, &modelled, &Notes::default(), Some(1.34));
    super::tests::check("sites", &of(&[Phase::Load]), &modelled, &Notes::default(), None);
    super::tests::check("sites", &mhc, &scene(), &Notes::default(), None);
}

#[test]
fn value_types() {
    let check = |from: Option<&str>, to: Option<&str>, expect: Option<&str>| {
        let ranked = assess(&cast(from, to), &scene(), &Notes::default());
        let fired: Vec<&str> =
            ranked.terms.iter().map(|t| t.rule.as_str()).filter(|r| r.starts_with("dtype")).collect();
        let always = fired.contains(&"dtype-lowered-always");
        assert_eq!(always, expect == Some("dtype-lowered"), "nothing switches it");
        let fired: Vec<&str> = fired.into_iter().filter(|r| *r != "dtype-lowered-always").collect();
        assert_eq!(fired.first().copied(), expect, "{from:?} -> {to:?}");
        assert!(fired.len() <= 1);
    };
    check(Some("fp32"), Some("bf16"), Some("dtype-lowered"));
    check(Some("torch.float32"), Some("tf32"), Some("dtype-lowered"));
    check(Some("bf16"), Some("fp8_e4m3"), Some("dtype-lowered"));
    check(Some("fp16"), Some("bfloat16"), Some("dtype-lowered"));
    check(Some("bf16"), Some("fp32"), Some("dtype-changed"));
    check(Some("int8"), Some("bf16"), Some("dtype-changed"));
    check(None, Some("bf16"), Some("dtype-named"));
    check(None, Some("fp32"), None);
    check(Some("bf16"), Some("bf16"), None);
}

#[test]
fn each_kind_of_line_has_its_rule() {
    for signal in Signal::ALL {
        let rule = RULES.iter().find(|r| r.when == table::When::Does(signal)).unwrap();
        plain(rule.name, &doing(&[signal]), Some(rule.weight));
        plain(rule.name, &doing(&[signal, signal]), Some(rule.weight));
        plain(rule.name, &patch(), None);
    }
    let twice = assess(&doing(&[Signal::Mask, Signal::Mask]), &scene(), &Notes::default());
    assert!(twice.terms.iter().any(|t| t.fact == "`the line` and 1 more"), "{:?}", twice.terms);
}

#[test]
fn rates_of_public_reports() {
    let losing = Scene { symptom: Symptom { kind: SymptomKind::LosesContext, ..Symptom::default() }, ..scene() };
    let rate = |entry: &Entry, scene: &Scene, expect| check("base-rate", entry, scene, &Notes::default(), expect);
    rate(&doing(&[Signal::TopK]), &losing, Some(1.1));
    rate(&doing(&[Signal::Layout]), &losing, Some(0.69));
    rate(&doing(&[Signal::Scale]), &losing, Some(0.0));
    rate(&cast(Some("fp32"), Some("bf16")), &losing, Some(0.0));
    rate(&doing(&[Signal::Scale, Signal::TopK]), &losing, Some(1.1));
    rate(&doing(&[Signal::Scale]), &scene(), Some(0.49));
    rate(&doing(&[Signal::Clamp]), &losing, None);
    let ranked = assess(&doing(&[Signal::TopK]), &losing, &Notes::default());
    let term = ranked.terms.iter().find(|t| t.rule == "base-rate").unwrap();
    assert!(term.fact.starts_with("8 of 29 public reports of lost context"), "{term:?}");
    assert!(term.source.contains("sglang PR#39288"), "{term:?}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let binary = Entry { files: vec![FileTouch { path: "kernel.cubin".into(), how: Touch::Binary }], ..patch() };
    plain("unread", &binary, Some(0.4));
    plain("unread", &patch(), None);
}

#[test]
fn states_weigh_as_they_should() {
    let model = "python/sglang/srt/models/deepseek_v4.py";
    let of = |architecture: Option<&str>| {
        let mut running = Running::unread("t", Role::Monolithic);
        if let Some(name) = architecture {
            running.settings.insert("architecture".into(), set(name, "config.json"));
        }
        assess(
            &Entry::of_file("p", "", model),
            &Scene { running: vec![running], ..Scene::default() },
            &Notes::default(),
        )
    };
    let weights = |r: &Ranked| (weight("live-here", r), weight("dead-here", r));
    assert_eq!(weights(&of(Some("DeepseekV4ForCausalLM"))), (Some(0.3), None));
    assert_eq!(weights(&of(Some("LlamaForCausalLM"))), (None, Some(-20.0)));
    assert_eq!(weights(&of(None)), (None, None));
    assert!(of(None).open.iter().any(|o| o.unknown.starts_with("whether it acts on `t`") && o.down == -20.0));
    let nowhere = assess(&Entry::of_file("p", "", "docs/a.md"), &Scene::default(), &Notes::default());
    assert_eq!((nowhere.tier, nowhere.states.len()), (Tier::Low, 1), "told without any target");
}

#[test]
fn a_patch_counts_as_alive_where_any_of_its_targets_has_it() {
    let mut dead = Running::unread("a", Role::Monolithic);
    dead.settings.insert("architecture".into(), set("Llama", "config.json"));
    let mut live = dead.clone();
    live.target = "b".into();
    live.settings.insert("architecture".into(), set("DeepseekV4ForCausalLM", "config.json"));
    let scene = Scene { running: vec![dead, live], ..Scene::default() };
    let model = Entry::of_file("p", "", "python/sglang/srt/models/deepseek_v4.py");
    let of = |targets: &[&str]| {
        let targets = targets.iter().map(|t| (*t).to_owned()).collect();
        assess(&model, &scene, &Notes { targets, ..Notes::default() })
    };
    assert_eq!(weight("live-here", &of(&[])), Some(0.3));
    assert_eq!(weight("dead-here", &of(&["a"])), Some(-20.0));
    assert_eq!(of(&["b"]).states.len(), 1);
}

#[test]
fn measured_errors() {
    let of = |classes: &[ErrorClass]| Notes {
        measured: classes.iter().map(|class| Measured { class: *class, evidence: evidence() }).collect(),
        ..Notes::default()
    };
    let kinds = [
        ("measured-below-floor", ErrorClass::BelowFloor, -1.8),
        ("measured-above-floor", ErrorClass::AboveFloor, 0.5),
        ("measured-flips", ErrorClass::FlipsDecisions, 2.5),
        ("measured-broken", ErrorClass::Broken, 4.0),
    ];
    for (rule, class, weight) in kinds {
        check(rule, &patch(), &scene(), &of(&[class]), Some(weight));
        check(rule, &patch(), &scene(), &of(&[]), None);
    }
    let both = of(&[ErrorClass::FlipsDecisions, ErrorClass::BelowFloor]);
    check("measured-flips", &patch(), &scene(), &both, Some(2.5));
    check("measured-below-floor", &patch(), &scene(), &both, None);
}

#[test]
fn verdicts() {
    let of = |finding| Notes { ruling: Some(Ruling { finding, evidence: evidence() }), ..Notes::default() };
    let check = |finding, expect: &[(&str, f64)]| {
        let ranked = assess(&patch(), &scene(), &of(finding));
        let fired: Vec<(&str, f64)> = ranked
            .terms
            .iter()
            .filter(|t| t.rule.starts_with("verdict"))
            .map(|t| (t.rule.as_str(), t.weight))
            .collect();
        assert_eq!(fired, expect);
    };
    check(Finding::Guilty, &[("verdict-guilty", 40.0)]);
    check(Finding::Acquitted, &[("verdict-acquitted", -40.0)]);
    check(Finding::NotShown, &[("verdict-not-shown", -0.5)]);
    check(Finding::NotSeparable, &[]);
    check(Finding::Inconclusive, &[]);
}

#[test]
fn tiers_and_their_cut_offs() {
    let check = |score, tier| assert_eq!(Tier::of(score), tier, "{score}");
    check(4.0, Tier::High);
    check(3.99, Tier::Medium);
    check(2.0, Tier::Medium);
    check(1.99, Tier::Low);
    check(-20.0, Tier::Low);
}

#[test]
fn factors_apply_where_a_deployment_has_them() {
    let running = |role, pairs: &[(&str, &str)]| {
        let mut running = Running::unread("t", role);
        for (key, value) in pairs {
            running.settings.insert((*key).into(), set(value, "server_info"));
        }
        running
    };
    let check = |factor: Factor, running: Vec<Running>, tokens: Option<u64>, expect: &str| {
        let symptom = Symptom { prompt_tokens: tokens, ..Symptom::default() };
        let scene = Scene { symptom, running, ..Scene::default() };
        let ranked = assess_factor(factor, &scene, &Notes::default());
        let word = crate::patch::state::most_alive(&ranked.states).map_or("none", |f| f.state.word());
        assert_eq!(word, expect, "{factor:?}: {:?}", ranked.states);
        assert_eq!(weight("dead-here", &ranked).is_some(), expect == "inert");
    };
    use Role::{Decode, Monolithic, Prefill};
    check(Factor::Transfer, vec![running(Prefill, &[]), running(Decode, &[])], None, "live");
    check(Factor::Transfer, vec![running(Monolithic, &[])], None, "inert");
    check(Factor::Transfer, vec![running(Decode, &[])], None, "unknown");
    check(Factor::WarmCache, vec![running(Monolithic, &[("disable_radix_cache", "True")])], None, "inert");
    check(Factor::WarmCache, vec![running(Monolithic, &[("disable_radix_cache", "false")])], None, "live");
    check(Factor::WarmCache, vec![running(Monolithic, &[("enable_prefix_caching", "True")])], None, "live");
    check(Factor::WarmCache, vec![running(Monolithic, &[])], None, "unknown");
    check(Factor::Template, vec![running(Monolithic, &[])], None, "live");
    check(Factor::Concurrency, vec![running(Monolithic, &[("max_running_requests", "1")])], None, "inert");
    check(Factor::Concurrency, vec![running(Monolithic, &[("total_slots", "4")])], None, "live");
    check(Factor::Speculation, vec![running(Monolithic, &[("speculative_algorithm", "EAGLE")])], None, "live");
    check(Factor::Speculation, vec![running(Monolithic, &[("speculative_algorithm", "None")])], None, "inert");
    check(Factor::Speculation, vec![running(Monolithic, &[])], None, "unknown");
    let chunk = || vec![running(Monolithic, &[("chunked_prefill_size", "8192")])];
    check(Factor::ChunkAlignment, chunk(), Some(27_000), "live");
    check(Factor::ChunkAlignment, chunk(), Some(8_192), "inert");
    check(Factor::ChunkAlignment, chunk(), None, "unknown");
    check(Factor::LengthResidue, vec![running(Monolithic, &[])], None, "unknown");
}

#[test]
fn factors_that_the_failing_requests_met() {
    let of = |met: Option<bool>, ruling: Option<Finding>| {
        let met = met.map(|met| ("warm-cache".to_owned(), (met, evidence()))).into_iter().collect();
        let scene = Scene { symptom: Symptom { met, ..Symptom::default() }, ..scene() };
        let ruling = ruling.map(|finding| Ruling { finding, evidence: evidence() });
        assess_factor(Factor::WarmCache, &scene, &Notes { ruling, ..Notes::default() })
    };
    let weights = |r: &Ranked| (weight("met", r), weight("not-met", r), weight("untried", r));
    assert_eq!(weights(&of(Some(true), None)), (Some(1.5), None, Some(0.5)));
    assert_eq!(weights(&of(Some(false), None)), (None, Some(-2.0), Some(0.5)));
    assert_eq!(weights(&of(None, Some(Finding::NotShown))), (None, None, None));
    assert_eq!(of(Some(true), Some(Finding::Guilty)).tier, Tier::High);
}

#[test]
fn ties_say_what_differs_and_what_would_tell() {
    let named = |id: &str, entry: Entry| Entry { id: id.into(), ..entry };
    let rank = |entries: &[Entry]| {
        let ranked = super::rank(entries, &scene(), &BTreeMap::new());
        ranked.into_iter().filter(|r| r.kind == Kind::Patch).collect::<Vec<_>>()
    };
    let same = ties(&rank(&[named("a", doing(&[Signal::TopK])), named("b", doing(&[Signal::TopK]))]));
    assert_eq!(same.len(), 1);
    assert_eq!(same[0].why, "the same rules apply with the same weights");
    assert!(same[0].separates.starts_with("for both, "), "{same:?}");
    let other = ties(&rank(&[named("a", doing(&[Signal::Clamp])), named("b", doing(&[Signal::AssertRemoved]))]));
    assert_eq!(other[0].why, "`a` has clamp +0.60; `b` has assert-removed +0.60");
    assert!(ties(&rank(&[named("a", doing(&[Signal::TopK])), named("b", patch())])).is_empty());
}
