use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::patch::context::{Overwrite, Reading, Role, Value};
use crate::patch::types::{Fact, FileTouch, GateDefault, GateKind, GateRead, Place, Signal};

const FILE: &str = "python/sglang/srt/layers/activation.py";

fn entry(path: &str) -> Entry {
    Entry { added: 1, removed: 1, ..Entry::of_file("p", "", path) }
}

fn gate(kind: GateKind, name: &str, default: GateDefault, text: &str) -> GateRead {
    GateRead { name: name.into(), kind, default, place: Place { path: FILE.into(), line: Some(3) }, text: text.into() }
}

fn gated(gates: Vec<GateRead>) -> Entry {
    Entry { gates, ..entry(FILE) }
}

fn reading(value: Value) -> Reading {
    Reading { value, source: "environ of 7".into(), blind_to: None }
}

fn target() -> Running {
    let unlisted = reading(Value::Unset);
    Running { unlisted, ..Running::unread("t", Role::Monolithic) }
}

fn with(name: &str, value: Value) -> Running {
    Running { variables: BTreeMap::from([(name.to_owned(), reading(value))]), ..target() }
}

fn settings(pairs: &[(&str, &str)]) -> Running {
    let read = |text: &str| match text {
        "(unset)" => reading(Value::Unset),
        text => reading(Value::Set(text.into())),
    };
    Running { settings: pairs.iter().map(|(k, v)| ((*k).to_owned(), read(v))).collect(), ..target() }
}

/// The word of the state, and the obstacle where there is one.
fn word(entry: &Entry, level: Option<&Level>, running: &Running) -> String {
    let found = state(entry, level, running);
    assert!(!found.because.is_empty());
    assert!(!found.evidence.is_empty(), "{found:?}");
    assert!(found.evidence.iter().all(|e| !e.source.is_empty()));
    match found.state {
        State::Inert { by } => format!("inert by {by:?}"),
        other => other.word().to_owned(),
    }
}

fn set(text: &str) -> Value {
    Value::Set(text.into())
}

#[test]
fn a_variable_is_read_as_its_line_reads_it() {
    let check = |kind, text: &str, default: &str, value: Option<&str>, expect: &str| {
        let entry = gated(vec![gate(kind, "X", GateDefault::Written(default.into()), text)]);
        let running = with("X", value.map_or(Value::Unset, set));
        assert_eq!(word(&entry, None, &running), expect, "{text} with {value:?}");
    };
    use GateKind::{Environ, Helper, Registry};
    let compared = "os.environ.get(\"X\", \"0\") == \"1\"";
    check(Environ, compared, "0", Some("1"), "live");
    check(Environ, compared, "0", Some("0"), "off");
    check(Environ, compared, "0", Some("true"), "off");
    check(Environ, compared, "0", None, "off");
    check(Environ, compared, "1", None, "live");
    let listed = "os.getenv('X', '') in ('1', 'on')";
    check(Environ, listed, "", Some("on"), "live");
    check(Environ, listed, "", Some("yes"), "off");
    // The text "0" is true in Python.
    check(Environ, "if os.environ.get(\"X\"):", "0", Some("0"), "unknown");
    check(Environ, "if int(os.environ.get(\"X\", \"0\")):", "0", Some("0"), "off");
    check(Helper, "get_bool_env_var(\"X\")", "false", Some("0"), "off");
    check(Helper, "get_bool_env_var(\"X\")", "false", Some("True"), "live");
    check(Helper, "get_bool_env_var(\"X\", \"true\")", "true", None, "live");
    check(Registry, "envs.X.get()", "False", Some("1"), "live");
    check(Registry, "envs.X.get()", "\"flashinfer\"", Some("triton"), "unknown");
    check(Helper, "if not get_bool_env_var(\"X\")", "false", Some("1"), "unknown");
}

#[test]
fn a_name_that_negates_is_not_guessed_at() {
    for name in ["SGLANG_DISABLE_FAST_PATH", "VLLM_NO_USAGE", "SGL_SKIP_CHECK"] {
        let entry = gated(vec![gate(GateKind::Helper, name, GateDefault::Written("false".into()), "")]);
        assert_eq!(word(&entry, None, &with(name, set("1"))), "unknown", "{name}");
    }
}

#[test]
fn what_could_not_be_read_is_never_off() {
    let entry = |default| gated(vec![gate(GateKind::Helper, "X", default, "get_bool_env_var(\"X\")")]);
    let off = GateDefault::Written("false".into());
    let check = |entry: &Entry, running: &Running| assert_eq!(word(entry, None, running), "unknown");
    check(&entry(off.clone()), &Running::unread("t", Role::Decode));
    check(&entry(off.clone()), &with("X", Value::Unknown("its environment was overwritten".into())));
    for default in [GateDefault::Unset, GateDefault::Required, GateDefault::Unknown] {
        check(&entry(default), &target());
    }
    let blind = Reading { blind_to: Some("what is set after the start".into()), ..reading(Value::Unset) };
    check(&entry(off.clone()), &Running { unlisted: blind, ..target() });
    assert_eq!(word(&entry(off), None, &target()), "off");
}

#[test]
fn what_the_engine_sets_by_itself_goes_before_what_it_was_started_with() {
    let entry = gated(vec![gate(GateKind::Registry, "X", GateDefault::Written("False".into()), "envs.X.get()")]);
    let check = |value: Value, to: &str, applies: Option<bool>, expect: &str| {
        let overwrite = Overwrite { value: to.into(), applies, source: "server_args.py".into() };
        let running = Running { overwritten: BTreeMap::from([("X".into(), overwrite)]), ..with("X", value.clone()) };
        assert_eq!(word(&entry, None, &running), expect, "{value:?} {to} {applies:?}");
    };
    check(Value::Unset, "1", Some(true), "live");
    check(set("0"), "1", Some(true), "live");
    check(set("1"), "0", Some(true), "off");
    check(set("1"), "0", Some(false), "live");
    check(set("1"), "0", None, "unknown");
    check(Value::Unset, "1", None, "unknown");
    check(set("1"), "1", None, "live");
}

#[test]
fn several_switches_together() {
    let one = |name: &str| gate(GateKind::Helper, name, GateDefault::Written("false".into()), "");
    let entry = gated(vec![one("A"), one("B")]);
    let check = |a: Value, b: Value, expect: &str| {
        let variables = BTreeMap::from([("A".to_owned(), reading(a)), ("B".to_owned(), reading(b))]);
        assert_eq!(word(&entry, None, &Running { variables, ..target() }), expect);
    };
    check(set("1"), set("1"), "live");
    check(set("0"), set("0"), "off");
    check(set("1"), set("0"), "unknown");
    check(set("0"), Value::Unknown("wiped".into()), "unknown");
}

#[test]
fn a_variable_that_nothing_reads() {
    let off = GateDefault::Written("false".into());
    let entry = gated(vec![gate(GateKind::Helper, "X", off, "get_bool_env_var(\"X\")")]);
    let check = |read: Result<&[&str], &str>, value: Value, expect: &str| {
        let read_by_checkout = match read {
            Ok(names) => Ok((names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>(), "checkout".to_owned())),
            Err(why) => Err(why.to_owned()),
        };
        assert_eq!(word(&entry, None, &Running { read_by_checkout, ..with("X", value) }), expect);
    };
    check(Ok(&["Y"]), set("1"), "set-but-not-read");
    check(Ok(&["X"]), set("1"), "live");
    check(Ok(&["Y"]), Value::Unset, "off");
    check(Err("not read"), set("1"), "live");
}

#[test]
fn the_level_of_the_case_goes_before_the_source() {
    let off = GateDefault::Written("false".into());
    let entry = gated(vec![gate(GateKind::Helper, "X", off, "get_bool_env_var(\"X\")")]);
    let check = |level: Option<&str>, overwritten: bool, expect: &str| {
        let level = Level {
            switch: Some("X".into()),
            level: level.map(str::to_owned),
            suspect: "on".into(),
            source: "environ of 7".into(),
        };
        let mut running = with("X", set("1"));
        if overwritten {
            let overwrite = Overwrite { value: "1".into(), applies: Some(true), source: "server_args.py".into() };
            running.overwritten.insert("X".into(), overwrite);
        }
        assert_eq!(word(&entry, Some(&level), &running), expect);
    };
    check(Some("on"), false, "live");
    check(Some("off"), false, "off");
    check(None, false, "unknown");
    check(Some("off"), true, "unknown");
    let nameless = Level { switch: None, level: None, suspect: "on".into(), source: "no reader".into() };
    assert_eq!(word(&super::tests::entry(FILE), Some(&nameless), &target()), "live", "nothing switches it");
}

#[test]
fn cards_that_a_test_asks_for() {
    let check = |name: &str, text: &str, card: Option<&str>, expect: &str| {
        let entry = gated(vec![gate(GateKind::Arch, name, GateDefault::Unknown, text)]);
        let running = card.map_or_else(target, |card| settings(&[("capability", card)]));
        assert_eq!(word(&entry, None, &running), expect, "{name} {card:?}");
    };
    check("is_sm120_supported", "if is_sm120_supported():", Some("120"), "live");
    check("is_sm120_supported", "if is_sm120_supported():", Some("90"), "inert by Architecture");
    check("is_sm120_supported", "if not is_sm120_supported():", Some("90"), "unknown");
    check("is_sm120_supported", "if is_sm120_supported():", None, "unknown");
    check("is_hip", "if is_hip():", Some("90"), "unknown");
    check("arch", "arch == \"sm_90a\"", Some("90"), "live");
}

#[test]
fn fields_of_the_arguments_and_constants() {
    let written = |text: &str| GateDefault::Written(text.into());
    let field = |default| gated(vec![gate(GateKind::ServerArgs, "server_args.enable_x", default, "")]);
    assert_eq!(word(&field(written("False")), None, &settings(&[("enable_x", "True")])), "live");
    assert_eq!(word(&field(written("False")), None, &settings(&[("enable_x", "(unset)")])), "off");
    assert_eq!(word(&field(written("False")), None, &target()), "unknown");
    let constant = |default| gated(vec![gate(GateKind::Constant, "USE_X", default, "if USE_X:")]);
    assert_eq!(word(&constant(written("True")), None, &target()), "live");
    assert_eq!(word(&constant(written("False")), None, &target()), "off");
    assert_eq!(word(&constant(GateDefault::Unknown), None, &target()), "unknown");
}

#[test]
fn the_routed_factor_is_inert_only_where_the_method_does_not_fuse_it() {
    let path = "python/sglang/srt/layers/moe/hash_topk.py";
    let signal = |value| Fact { value, place: Place { path: path.into(), line: Some(57) }, text: "w *= f".into() };
    let routed = Entry { signals: vec![signal(Signal::Scale), signal(Signal::AssertRemoved)], ..entry(path) };
    let check = |runner: &str, experts: &str, expect: &str| {
        let running = settings(&[("moe_runner_backend", runner), ("moe_quantization", experts)]);
        assert_eq!(word(&routed, None, &running), expect, "{runner} {experts}");
    };
    check("triton", "nvfp4", "live");
    check("flashinfer_trtllm_routed", "nvfp4", "live");
    check("marlin", "nvfp4", "inert by Backend");
    check("triton", "fp8", "inert by Backend");
    check("cutlass", "fp8", "live");
    check("triton", "none", "inert by Backend");
    check("auto", "nvfp4", "unknown");
    check("(unset)", "fp8", "unknown");
    assert_eq!(word(&routed, None, &settings(&[("moe_runner_backend", "triton")])), "unknown");
    let more = Entry { signals: vec![signal(Signal::Scale), signal(Signal::TopK)], ..routed.clone() };
    let marlin = settings(&[("moe_runner_backend", "marlin"), ("moe_quantization", "nvfp4")]);
    assert_eq!(word(&more, None, &marlin), "live", "what else it changes is not behind that branch");
}

#[test]
fn back_ends_models_and_settings_that_a_path_needs() {
    let check = |path: &str, symbols: &[&str], pairs: &[(&str, &str)], expect: &str| {
        let symbol = |name: &&str| Fact {
            value: (*name).to_owned(),
            place: Place { path: path.into(), line: Some(1) },
            text: String::new(),
        };
        let entry = Entry { symbols: symbols.iter().map(symbol).collect(), ..entry(path) };
        assert_eq!(word(&entry, None, &settings(pairs)), expect, "{path} {symbols:?} {pairs:?}");
    };
    let modelopt = "python/sglang/srt/layers/quantization/modelopt_quant.py";
    check(modelopt, &["flashinfer_trtllm_moe"], &[("moe_runner_backend", "triton")], "inert by Backend");
    check(modelopt, &["flashinfer_trtllm_moe"], &[("moe_runner_backend", "flashinfer_mxfp4")], "live");
    check(modelopt, &["flashinfer_trtllm_moe"], &[("moe_runner_backend", "auto")], "unknown");
    check(modelopt, &["flashinfer_trtllm_moe", "apply"], &[("moe_runner_backend", "triton")], "live");
    check(modelopt, &["NvFp4Method"], &[("moe_quantization", "fp8")], "inert by Model");
    let model = "python/sglang/srt/models/deepseek_v4.py";
    check(model, &[], &[("architecture", "Qwen3MoeForCausalLM")], "inert by Model");
    check(model, &[], &[("architecture", "DeepseekV4ForCausalLM")], "live");
    check(model, &[], &[], "unknown");
    let draft = "python/sglang/srt/speculative/eagle_worker.py";
    check(draft, &[], &[("speculative_algorithm", "(unset)")], "inert by Setting");
    check(draft, &[], &[("speculative_algorithm", "EAGLE")], "live");
    check(
        "python/sglang/srt/disaggregation/mooncake/conn.py",
        &[],
        &[("disaggregation_mode", "null")],
        "inert by Setting",
    );
    check("python/sglang/srt/mem_cache/hiradix_cache.py", &[], &[("enable_hierarchical_cache", "true")], "live");
    check("docs/perf.png", &[], &[], "inert by NotRun");
    check("test/srt/test_x.py", &[], &[], "inert by NotRun");
    check("python/sglang/srt/latest/doc.py", &[], &[], "live");
}

#[test]
fn a_part_that_is_inert_does_not_make_the_rest_so() {
    let mut both = entry("docs/a.md");
    both.files.push(FileTouch { path: FILE.into(), how: Touch::Modified });
    assert_eq!(word(&both, None, &target()), "live");
    let mode = Touch::Mode { from: "100644".into(), to: "100755".into() };
    let only_mode = Entry { files: vec![FileTouch { path: "serve.sh".into(), how: mode }], ..entry("serve.sh") };
    assert_eq!(word(&only_mode, None, &target()), "inert by NotRun");
}

#[test]
fn which_text_the_process_imported() {
    let check = |import: Option<Import>, expect: &str, assumed: usize| {
        let imports = import.map(|i| (FILE.to_owned(), i)).into_iter().collect();
        let running = Running { imports, ..target() };
        assert_eq!(word(&entry(FILE), None, &running), expect);
        assert_eq!(state(&entry(FILE), None, &running).assumes.len(), assumed);
    };
    let source = || "search path of the server".to_owned();
    check(Some(Import::Imported { source: source() }), "live", 0);
    check(Some(Import::Other { why: "changed 700 s after the start".into(), source: source() }), "not-imported", 0);
    check(Some(Import::Unknown { why: "a container".into() }), "live", 1);
    check(None, "live", 1);
}

#[test]
fn a_patch_of_two_files_is_not_imported_only_where_neither_is() {
    let source = || "search path of the server".to_owned();
    let other = || Some(Import::Other { why: "another text".into(), source: source() });
    let check = |second: Option<Import>, expect: &str| {
        let mut both = entry(FILE);
        both.files.push(FileTouch { path: "b.py".into(), how: Touch::Modified });
        let imports = [(FILE, other()), ("b.py", second)].map(|(path, import)| Some((path.to_owned(), import?)));
        let running = Running { imports: imports.into_iter().flatten().collect(), ..target() };
        assert_eq!(word(&both, None, &running), expect);
    };
    check(other(), "not-imported");
    check(Some(Import::Imported { source: source() }), "live");
    check(Some(Import::Unknown { why: "a container".into() }), "live");
    check(None, "live");
}

#[test]
fn the_most_alive_state_counts() {
    let of = |state| Found { target: "t".into(), state, because: String::new(), evidence: vec![], assumes: vec![] };
    let check = |states: &[State], expect: Option<&str>| {
        let found: Vec<Found> = states.iter().cloned().map(of).collect();
        assert_eq!(most_alive(&found).map(|f| f.state.word()), expect);
    };
    check(&[State::Off, State::Live, State::Unknown], Some("live"));
    check(&[State::Off, State::Unknown], Some("unknown"));
    check(&[State::NotImported, State::SetButNotRead], Some("not-imported"));
    check(&[], None);
}
