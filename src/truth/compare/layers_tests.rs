use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::case::{Gate, LevelValue};
use crate::remote::{proc, script};
use crate::truth::{Known, Row, RowStatus, flags, matters};

fn declared(path: &str, text: &str) -> Declared {
    script::declared(&script::parse(text).unwrap(), path, None)
}

fn layers(text: &str, environ: &[u8], line: &str, observed: &Value) -> Layers {
    let words: Vec<u8> = shlex::split(line).unwrap().iter().flat_map(|w| format!("{w}\0").into_bytes()).collect();
    Layers {
        target: "lab".into(),
        declared: Some(declared("/x/serve.sh", text)),
        replaced: None,
        process: Some((7, proc::environ(environ), proc::cmdline(&words))),
        observed: Some(Ok(("http://h:1/server_info".into(), flags::observed(observed)))),
        ..Layers::default()
    }
}

fn check(layers: &Layers, name: &str, status: RowStatus, note: &str) {
    let rows = rows(layers, &[]);
    let row = rows.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no row {name}: {rows:#?}"));
    assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
}

const SCRIPT: &str = "export A=1\nexport B=x\nexport B=y\nexport C=1\nexport D=$HOST_D\nexport HF_TOKEN=abc\n\
                      exec srv --tp 4 --mode fp32 --moe auto --gone 1\n";
const ENVIRON: &[u8] = b"A=1\0B=y\0C=2\0D=q\0HF_TOKEN=abc\0OTHER=1\0";
const LINE: &str = "srv --tp=4 --mode fp32 --moe auto --extra";

fn usual() -> Layers {
    let said = json!({"tp_size": 4, "mode": "bf16", "moe": "triton", "page_size": 64, "extra": true, "version": "1", "api_key": "k"});
    layers(SCRIPT, ENVIRON, LINE, &said)
}

#[test]
fn each_status_has_its_ground() {
    for (name, status, note) in [
        ("A", RowStatus::Agrees, ""),
        ("B", RowStatus::GivenTwice, "line 3 counts; line 2: `x`"),
        ("C", RowStatus::Differs, "the process has `2`"),
        ("D", RowStatus::UnknownBecause, "`HOST_D` comes from the host"),
        ("OTHER", RowStatus::OneSource, ""),
        ("--tp", RowStatus::Agrees, ""),
        ("--mode", RowStatus::Differs, "started with `fp32`, the server says `bf16`"),
        ("--moe", RowStatus::OverriddenBy, "the server resolved `auto` to `triton`"),
        ("--gone", RowStatus::Differs, "the process has absent"),
        ("--extra", RowStatus::Agrees, ""),
        ("--page-size", RowStatus::DefaultInEffect, "default in effect"),
        ("version", RowStatus::OneSource, ""),
    ] {
        check(&usual(), name, status, note);
    }
}

#[test]
fn disagreements_come_first_and_secrets_never() {
    let rows = rows(&usual(), &[]);
    let trouble = |r: &Row| r.status.min(RowStatus::OneSource);
    assert!(rows.windows(2).all(|w| trouble(&w[0]) <= trouble(&w[1])));
    let json = serde_json::to_string(&rows).unwrap();
    assert!(!json.contains("abc") && !json.contains("\"k\""), "{json}");
}

#[test]
fn an_overwritten_environment_is_never_a_disagreement() {
    let mut layers = usual();
    layers.process = Some((7, proc::environ(&[0; 90]), proc::cmdline(b"sglang::scheduler_TP0\0\0\0\0")));
    for row in rows(&layers, &[]).iter().filter(|r| r.declared.is_some()) {
        assert_eq!(row.status, RowStatus::UnknownBecause, "{row:#?}");
        assert!(row.effective.as_ref().is_some_and(|e| e.value.is_none() && e.known != Known::Yes));
    }
}

#[test]
fn an_override_explains_what_it_changes() {
    let mut layers = layers("export A=1\nsrv --mode fp32 --x 1\n", b"Q=1\0", "srv --mode bf16", &json!({}));
    layers.replaced = Some(("/o.sh".into(), declared("/o.sh", "export A=1\nunset A\nsrv --mode bf16\n")));
    check(&layers, "A", RowStatus::OverriddenBy, "absent by /o.sh line 2");
    check(&layers, "--mode", RowStatus::OverriddenBy, "`bf16` by /o.sh line 3");
    check(&layers, "--x", RowStatus::OverriddenBy, "absent by /o.sh");
}

#[test]
fn a_target_that_is_down_keeps_its_rows() {
    let layers = Layers { process: None, observed: None, ..usual() };
    let rows = rows(&layers, &[]);
    assert!(rows.iter().any(|r| r.name == "A") && rows.iter().all(|r| r.effective.is_none()));
}

#[test]
fn a_patch_has_its_row_even_where_nothing_sets_it() {
    let patch = gated("PB");
    let rows = rows(&usual(), &[&patch]);
    let row = rows.iter().find(|r| r.name == "PB").unwrap();
    assert_eq!((row.status, row.note.as_str()), (RowStatus::OneSource, "not set"));
    assert_eq!(row.effective.as_ref().unwrap().known, Known::Yes);
}

fn gated(name: &str) -> Patch {
    let levels = BTreeMap::from([("on".into(), LevelValue::Set("1".into())), ("off".into(), LevelValue::Unset)]);
    Patch {
        id: "p".into(),
        title: String::new(),
        site: None,
        targets: Vec::new(),
        phases: Vec::new(),
        layers: None,
        gate: Gate::Env { name: name.into(), levels },
        suspect: "on".into(),
        changes: BTreeMap::new(),
        microtest: None,
        requires: Vec::new(),
        excludes: Vec::new(),
    }
}

/// A server of `SGLang` that runs what its files say.
fn sglang(environ: &[u8], line: &str, said: &Value) -> Layers {
    Layers { declared: None, engine: Some(ServingEngine::Sglang), ..layers("", environ, line, said) }
}

#[test]
fn names_of_variables() {
    let environ = b"SGLANG_RADIX_FORCE_MSIS=1\0SGLANG_OPT_FP8_WO_A_GEMM=False\0SGLANG_RADIX_FORCE_MISS=on\0\
                    SGLANG_ENABLE_THINKING=1\0SGLANG_DEFAULT_THINKING=0\0SGL_LOG_MS=1\0SGLANG_SM120_MMA_FLASHMLA=1\0\
                    SGLANG_OF_OUR_OWN=1\0SGLANG_OPT_USE_TOPK_V2=off\0SGLANG_EMPTY=\0VLLM_USER_V1=1\0PATHX=1\0";
    let layers = sglang(environ, "python -m sglang.launch_server", &json!({}));
    for (name, status, note) in [
        ("SGLANG_RADIX_FORCE_MSIS", RowStatus::LooksMisspelt, "not known here, unlike `SGLANG_RADIX_FORCE_MISS`"),
        ("SGLANG_OPT_FP8_WO_A_GEMM", RowStatus::OneSource, "means off"),
        (
            "SGLANG_RADIX_FORCE_MISS",
            RowStatus::AcceptedButOff,
            "`on` is no truth value here, so the default `false` counts",
        ),
        (
            "SGLANG_ENABLE_THINKING",
            RowStatus::ConflictsWith,
            "old name of `SGLANG_DEFAULT_THINKING`, which is set to `0` too",
        ),
        ("SGL_LOG_MS", RowStatus::OneSource, "old name of `SGLANG_LOG_MS`"),
        (
            "SGLANG_SM120_MMA_FLASHMLA",
            RowStatus::OneSource,
            "no upstream version reads it: only a patch of one's own does",
        ),
        ("SGLANG_OF_OUR_OWN", RowStatus::OneSource, ""),
        (
            "SGLANG_OPT_USE_TOPK_V2",
            RowStatus::OverriddenBy,
            "`off` is no truth value here, so the default `true` counts",
        ),
        ("SGLANG_EMPTY", RowStatus::OneSource, ""),
        ("VLLM_USER_V1", RowStatus::OneSource, ""),
        ("PATHX", RowStatus::OneSource, ""),
    ] {
        check(&layers, name, status, note);
    }
    let patch = gated("SGLANG_SM120_MMA_FLASHMLA");
    let rows = rows(&layers, &[&patch]);
    let row = rows.iter().find(|r| r.name == "SGLANG_SM120_MMA_FLASHMLA").unwrap();
    assert_eq!((row.status, row.note.as_str()), (RowStatus::OneSource, ""), "a patch of the case reads it");
}

#[test]
fn the_installed_source_knows_its_names() {
    let names = crate::truth::knowledge::names::in_source(
        "    SGLANG_RADIX_FORCE_MISS = EnvBool(False)\n    SGLANG_NEW = EnvInt(1)\n",
    );
    let environ = b"SGLANG_NEW=1\0SGLANG_RADIX_FORCE_MSIS=1\0SGLANG_OF_OUR_OWN=1\0SGLANG_GATE_X=1\0";
    let mut layers = sglang(environ, "python -m sglang.launch_server", &json!({}));
    layers.installed = Some(("/s/environ.py".into(), names));
    for (name, status, note) in [
        ("SGLANG_NEW", RowStatus::OneSource, ""),
        (
            "SGLANG_RADIX_FORCE_MSIS",
            RowStatus::LooksMisspelt,
            "not in /s/environ.py, which has `SGLANG_RADIX_FORCE_MISS`",
        ),
        ("SGLANG_OF_OUR_OWN", RowStatus::UnknownToThisVersion, "not in /s/environ.py, so set and not read there"),
    ] {
        check(&layers, name, status, note);
    }
    let patch = gated("SGLANG_GATE_X");
    assert!(rows(&layers, &[&patch]).iter().any(|r| r.name == "SGLANG_GATE_X" && r.status == RowStatus::OneSource));
}

#[test]
fn a_known_default_is_said_for_a_switch_that_is_not_set() {
    let patch = gated("SGLANG_RADIX_FORCE_MISS");
    let rows = rows(&sglang(b"A=1\0", "python -m sglang.launch_server", &json!({})), &[&patch]);
    let row = rows.iter().find(|r| r.name == "SGLANG_RADIX_FORCE_MISS").unwrap();
    assert_eq!((row.status, row.note.as_str()), (RowStatus::DefaultInEffect, "not set; the default is `false`"));
}

#[test]
fn what_the_server_overwrites_on_its_card() {
    let environ = b"SGLANG_OPT_USE_TOPK_V2=1\0SGLANG_OPT_FP8_WO_A_GEMM=0\0SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=0\0";
    let said = json!({"device": "cuda"});
    let mut layers = sglang(environ, "python -m sglang.launch_server", &said);
    layers.checkpoint = Some(("/m/config.json".into(), json!({"architectures": ["DeepseekV4ForCausalLM"]})));
    let patch = gated("SGLANG_OPT_DEEPGEMM_HC_PRENORM");
    let status = |layers: &Layers, name: &str| {
        let rows = rows(layers, &[&patch]);
        let row = rows.iter().find(|r| r.name == name).unwrap();
        (row.status, row.note.contains("itself sets"))
    };
    // The card is not known: a remark and no verdict.
    assert_eq!(status(&layers, "SGLANG_OPT_USE_TOPK_V2"), (RowStatus::OneSource, true));
    layers.capability = Some(120);
    for (name, expect) in [
        ("SGLANG_OPT_USE_TOPK_V2", (RowStatus::AcceptedButOff, true)),
        ("SGLANG_OPT_FP8_WO_A_GEMM", (RowStatus::OneSource, true)),
        ("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH", (RowStatus::OverriddenBy, true)),
        ("SGLANG_OPT_DEEPGEMM_HC_PRENORM", (RowStatus::OverriddenBy, true)),
    ] {
        assert_eq!(status(&layers, name), expect, "{name}");
    }
    layers.process = Some((7, proc::environ(&[0; 90]), proc::cmdline(b"sglang::scheduler_TP0\0\0\0\0")));
    assert_eq!(status(&layers, "SGLANG_OPT_DEEPGEMM_HC_PRENORM"), (RowStatus::UnknownBecause, true));
    layers.capability = Some(90);
    layers.process = Some((7, proc::environ(environ), proc::cmdline(b"python\0")));
    assert_eq!(status(&layers, "SGLANG_OPT_USE_TOPK_V2"), (RowStatus::OneSource, false));
}

#[test]
fn flags_that_nobody_gave() {
    let line = "python -m sglang.launch_server --tp 2";
    let said = json!({"tp_size": 2, "moe_runner_backend": "triton", "attention_backend": "fa3", "schedule_policy": "lpm",
                      "stream_interval": 1, "no_such_flag": 3, "page_size": null});
    let mut layers = sglang(b"A=1\0", line, &said);
    for (name, status, note) in [
        ("--moe-runner-backend", RowStatus::DefaultInEffect, "default in effect: `auto` became `triton`"),
        ("--attention-backend", RowStatus::DefaultInEffect, "default in effect: `none` became `fa3`"),
        (
            "--schedule-policy",
            RowStatus::OneSource,
            "not given; the server has `lpm`, the default known here is `fcfs`",
        ),
        ("--stream-interval", RowStatus::DefaultInEffect, "default in effect"),
        ("--no-such-flag", RowStatus::DefaultInEffect, "default in effect"),
        ("--page-size", RowStatus::DefaultInEffect, "default in effect"),
        ("--tp", RowStatus::Agrees, ""),
    ] {
        check(&layers, name, status, note);
    }
    layers.seen.add_log("/l", "Use triton as MoE runner backend for sm120.\nserver_args=ServerArgs(tp_size=2)");
    let note = "not given, default `auto`; the server chose `triton`: /l line 1";
    check(&layers, "--moe-runner-backend", RowStatus::OverriddenBy, note);
}

#[test]
fn what_was_given_and_what_became_of_it() {
    let line = "python -m sglang.launch_server --dp 8 --enable-dp-attention --chunked-prefill-size 8192 --max-running-request 256 \
                --cuda-graph-bs 1 2 --disable-cuda-graph --page-size 64 --kv-cache-dtype bf16 --api-key hunter2 --tp 2 --tp-size 4";
    let said = json!({"dp_size": 8, "enable_dp_attention": true, "chunked_prefill_size": 1024, "max_running_requests": 256,
                      "cuda_graph_bs": [1, 2], "disable_cuda_graph": true, "page_size": 256, "kv_cache_dtype": "bfloat16",
                      "api_key": "hunter2", "tp_size": 4});
    let mut layers = sglang(b"SGLANG_USE_AITER=1\0", line, &said);
    layers.seen.add_log(
        "/l",
        "Use dsv4 attention backend for X, setting page_size to 256.\nserver_args=ServerArgs(tp_size=4)",
    );
    for (name, status, note) in [
        ("--chunked-prefill-size", RowStatus::OverriddenBy, "`8192` is divided by `dp_size` 8: `1024` a rank"),
        ("--max-running-request", RowStatus::Agrees, ""),
        ("--cuda-graph-bs", RowStatus::AcceptedButOff, "without effect: `disable_cuda_graph` is `true`"),
        ("--page-size", RowStatus::OverriddenBy, "the server chose `256` instead of `64`: /l line 1"),
        ("--kv-cache-dtype", RowStatus::Agrees, ""),
        ("--api-key", RowStatus::Agrees, "secrets are not compared"),
        ("--tp", RowStatus::GivenTwice, "the last one counts; before it: `2`"),
        ("--enable-dp-attention", RowStatus::Agrees, ""),
    ] {
        check(&layers, name, status, note);
    }
    assert!(!serde_json::to_string(&rows(&layers, &[])).unwrap().contains("hunter2"));
}

#[test]
fn settings_that_do_not_go_together() {
    let line = "python -m sglang.launch_server --moe-runner-backend triton";
    let said = json!({"moe_runner_backend": "triton"});
    for (environ, expect) in [
        (&b"SGLANG_USE_AITER=True\0"[..], RowStatus::ConflictsWith),
        (b"SGLANG_USE_AITER=no\0", RowStatus::Agrees),
        (b"A=1\0", RowStatus::Agrees),
    ] {
        let rows = rows(&sglang(environ, line, &said), &[]);
        let row = rows.iter().find(|r| r.name == "--moe-runner-backend").unwrap();
        assert_eq!(row.status, expect, "{row:#?}");
    }
    let wiped = Layers {
        process: Some((
            7,
            proc::environ(&[0; 9]),
            proc::cmdline(b"python\0-m\0sglang.launch_server\0--moe-runner-backend\0triton\0"),
        )),
        ..sglang(b"A=1\0", line, &said)
    };
    assert!(rows(&wiped, &[]).iter().all(|r| r.status != RowStatus::ConflictsWith), "unknown is no conflict");
}

#[test]
fn a_flag_of_llama_server_beats_its_variable() {
    let mut layers = layers(
        "",
        b"LLAMA_ARG_CTX_SIZE=4096\0LLAMA_ARG_PORT=8080\0",
        "llama-server -c 8192 -np 2",
        &json!({"n_ctx": 4096}),
    );
    layers.declared = None;
    check(&layers, "LLAMA_ARG_CTX_SIZE", RowStatus::OverriddenBy, "`-c` on the command line wins: `8192`");
    check(&layers, "LLAMA_ARG_PORT", RowStatus::OneSource, "");
    let window = |layers: &Layers| {
        let row = rows(layers, &[]).into_iter().find(|r| r.name == "request_window")?;
        Some((row.declared?.value?.raw().to_owned(), row.note))
    };
    assert_eq!(window(&layers), None, "the server tells the window of a slot itself");
    layers.observed = None;
    let expect = ("4096".to_owned(), "tokens of one request: 8192 shared by 2 slots".to_owned());
    assert_eq!(window(&layers), Some(expect));
    assert_eq!((slot_window(8192, 4, true), slot_window(8192, 0, false)), (Some(8192), None));
}

#[test]
fn sources_of_the_server_that_contradict_each_other() {
    let mut layers = sglang(
        b"A=1\0",
        "python -m sglang.launch_server --max-running-requests 64",
        &json!({"max_running_requests": 64}),
    );
    layers.seen.add_log("/l", "server_args=ServerArgs(tp_size=1)\nmax_running_requests=128, context_len=4096");
    let note = "http://h:1/server_info says `64`, /l line 2 says `128`";
    check(&layers, "--max-running-requests", RowStatus::Differs, note);
}

#[test]
fn an_arguments_line_that_contradicts_the_start_went_unseen() {
    let line =
        "python -m sglang.launch_server --page-size 64 --chunked-prefill-size 8192 --moe-runner-backend auto --tp 2";
    let said = json!({"page_size": 64, "chunked_prefill_size": 8192, "moe_runner_backend": "triton", "tp_size": 2,
        "api_key": "k"});
    let mut layers = sglang(b"A=1\0", line, &said);
    let log = "server_args=ServerArgs(page_size=32, chunked_prefill_size=8192, moe_runner_backend='auto', tp_size=2)";
    layers.seen.add_log("/l", log);
    let note = "started with `64`, http://h:1/server_info says `64`, /l line 1 says `32`";
    check(&layers, "--page-size", RowStatus::Differs, note);
    check(&layers, "--chunked-prefill-size", RowStatus::Agrees, "");
    check(&layers, "--moe-runner-backend", RowStatus::OverriddenBy, "the server resolved `auto` to `triton`");
    // Without the server's own answer the line speaks alone.
    layers.observed = None;
    check(&layers, "--page-size", RowStatus::Differs, "started with `64`, the server says `32`");
}

#[test]
fn the_checkpoint_is_asked_too() {
    let config = json!({"architectures": ["A"], "max_position_embeddings": 4096, "index_topk": 512,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 4096}, "quantization_config": {"quant_method": "fp8"}});
    let said = json!({"architectures": ["B"], "context_length": 20000, "quantization": null,
        "json_model_override_args": "{\"index_topk\": 1024, \"x\": 1}"});
    let mut layers = sglang(b"A=1\0", "python -m sglang.launch_server", &said);
    layers.checkpoint = Some(("/m/config.json".into(), config));
    for (name, status, note) in [
        ("architecture", RowStatus::Differs, "the checkpoint says `A`, the server `B`"),
        ("context_length", RowStatus::Differs, "20000 tokens are served, and the positions reach 16384"),
        ("quantization", RowStatus::OneSource, "the server names none, so the checkpoint decides"),
        ("index_topk", RowStatus::OverriddenBy, "`512` in the checkpoint, replaced by `--json-model-override-args`"),
        ("x", RowStatus::OneSource, "added by `--json-model-override-args`"),
    ] {
        let rows = rows(&layers, &[]);
        let row =
            rows.iter().find(|r| r.component == "checkpoint" && r.name == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
        assert_eq!(row.declared.as_ref().map_or("/m/config.json", |c| c.source.as_str()), "/m/config.json");
    }
}

#[test]
fn a_clean_server_has_nothing_that_matters() {
    let environ = b"SGLANG_SM120_MMA_FLASHMLA=1\0SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\0PATH=/bin\0";
    let script = "export SGLANG_SM120_MMA_FLASHMLA=1\nexport SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1\n\
                  exec patchbench lab serve --port 1 --mhc-gemm bf16 --chunked-prefill-size 256 --enable-metrics\n";
    let line = "patchbench lab serve --port 1 --mhc-gemm bf16 --chunked-prefill-size 256 --enable-metrics";
    let said = json!({"port": 1, "mhc_gemm": "bf16", "chunked_prefill_size": 256, "enable_metrics": true, "device": "cpu",
        "tp_size": 1, "page_size": 64, "attention_backend": "dsv4", "schedule_policy": "fcfs", "random_seed": 7,
        "max_total_num_tokens": 131_072, "max_req_input_len": 32767, "context_length": 32768, "status": "ready",
        "version": "patchbench-lab-0.1.0", "quantization": null, "max_running_requests": 32});
    for engine in [None, Some(ServingEngine::Sglang)] {
        let mut layers = Layers { engine, ..layers(script, environ, line, &said) };
        layers.seen.add_model_info(
            "/model_info",
            json!({"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"}),
        );
        layers.seen.add_log(
            "/l",
            "[2026-06-18 11:02:16] server_args=ServerArgs(port=1, mhc_gemm='bf16', chunked_prefill_size=256)",
        );
        let patch = gated("SGLANG_SM120_MMA_FLASHMLA");
        let rows = rows(&layers, &[&patch]);
        let trouble: Vec<&Row> = rows.iter().filter(|r| matters(r)).collect();
        assert!(trouble.is_empty(), "{trouble:#?}");
    }
}

#[test]
fn escapes_of_a_server_are_visible_in_notes() {
    let layers = layers("", b"A=1\0", "srv --mode fp32", &json!({"mode": "\u{1b}[31mbf16\n"}));
    check(&layers, "--mode", RowStatus::Differs, "started with `fp32`, the server says `␛[31mbf16⏎`");
}

proptest! {
    #[test]
    fn any_layers_are_compared_without_a_panic(
        script in "(export [A-Z_]{1,9}=[ -~]{0,9}\n){0,3}", environ in prop::collection::vec(any::<u8>(), 0..60),
        words in prop::collection::vec(prop_oneof!["--[a-z-]{1,9}(=[ -~]{0,5})?", "[ -~]{0,6}"], 0..6),
        names in prop::collection::vec("[a-z_.:]{1,9}", 0..4), log in "[ -~\n]{0,80}", version in "[v0-9.a-z]{0,6}",
        engine in prop::sample::select(vec![ServingEngine::Sglang, ServingEngine::Vllm, ServingEngine::LlamaServer]),
    ) {
        let line: Vec<u8> = words.iter().flat_map(|w| format!("{w}\0").into_bytes()).collect();
        let said: serde_json::Map<String, Value> = names.into_iter().zip(words.clone().into_iter().map(Value::from)).collect();
        let mut layers = Layers {
            declared: script::parse(&script).ok().map(|s| script::declared(&s, "/x", None)),
            process: Some((7, proc::environ(&environ), proc::cmdline(&line))),
            observed: Some(Ok(("/i".into(), flags::observed(&Value::Object(said.clone()))))),
            engine: Some(engine),
            version: Some(version),
            checkpoint: Some(("/c".into(), Value::Object(said))),
            ..Layers::default()
        };
        layers.seen.add_log("/l", &log);
        let rows = rows(&layers, &[]);
        // A row that could not be read is never a disagreement.
        for row in rows.iter().filter(|r| r.effective.as_ref().is_some_and(|c| c.known != Known::Yes)) {
            prop_assert!(!matches!(row.status, RowStatus::Agrees | RowStatus::ConflictsWith), "{:?}", row);
        }
    }
}
