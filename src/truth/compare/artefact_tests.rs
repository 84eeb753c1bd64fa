//! What public artefacts must yield once the layers are compared.

use serde_json::{Value, json};

use super::*;
use crate::remote::{proc, script};
use crate::truth::{Known, RowKind, flags, matters};

macro_rules! artefact {
    ($name:literal) => {
        include_str!(concat!("../../../tests/artefacts/", $name))
    };
}

fn declared(text: &str) -> Declared {
    script::declared(&script::parse(text).unwrap(), "/x/serve.sh", None)
}

fn process(environ: &[u8], line: &str) -> Process {
    let words: Vec<u8> = shlex::split(line).unwrap().iter().flat_map(|w| format!("{w}\0").into_bytes()).collect();
    (7, proc::environ(environ), proc::cmdline(&words))
}

fn find<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no row {name}: {rows:#?}"))
}

fn value(claim: Option<&crate::truth::Claim>) -> Option<&str> {
    claim.and_then(|c| c.value.as_ref()).map(crate::untrusted::Untrusted::raw)
}

#[test]
fn a01_the_declared_switches_of_one_s_own() {
    let layers = Layers { declared: Some(declared(artefact!("A01_sglang_decode_exports.sh"))), ..Layers::default() };
    let rows = rows(&layers, &[]);
    for name in ["SGLANG_SM120_MMA_FLASHMLA", "SGLANG_SM120_TRITON_INDEXER"] {
        let row = find(&rows, name);
        assert_eq!((value(row.declared.as_ref()), row.status), (Some("1"), RowStatus::OneSource));
        assert!(row.note.contains("no upstream version"), "{row:#?}");
    }
    assert!(rows.iter().all(|r| !matters(r)), "{:#?}", rows.iter().filter(|r| matters(r)).collect::<Vec<_>>());
}

#[test]
fn a02_false_means_off_and_a_prefix_is_its_flag() {
    let environ = b"SGLANG_OPT_FP8_WO_A_GEMM=False\0SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT=1\0SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=1\0";
    let line = "sglang serve --model-path m --mem-fraction-static=0.88 --speculative-algo EAGLE";
    let said = json!({"mem_fraction_static": 0.88, "speculative_algorithm": "EAGLE"});
    let layers = Layers {
        process: Some(process(environ, line)),
        observed: Some(Ok(("/i".into(), flags::observed(&said)))),
        ..Layers::default()
    };
    let rows = rows(&layers, &[]);
    for (name, status, note) in [
        ("SGLANG_OPT_FP8_WO_A_GEMM", RowStatus::OneSource, "means off"),
        ("SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT", RowStatus::OneSource, ""),
        ("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", RowStatus::OneSource, ""),
        ("--mem-fraction-static", RowStatus::Agrees, ""),
        ("--speculative-algo", RowStatus::Agrees, ""),
    ] {
        let row = find(&rows, name);
        assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
    }
    assert_eq!(value(find(&rows, "SGLANG_OPT_FP8_WO_A_GEMM").effective.as_ref()), Some("False"), "the text is kept");
}

#[test]
fn a03_two_exports_and_a_budget_that_is_only_asked_for() {
    let said = json!({"dp_size": 8, "chunked_prefill_size": 1024, "max_running_requests": 256});
    let layers = Layers {
        declared: Some(declared(artefact!("A03_sglang_dup_export_inline_comments.sh"))),
        observed: Some(Ok(("/i".into(), flags::observed(&said)))),
        engine: Some(ServingEngine::Sglang),
        ..Layers::default()
    };
    let rows = rows(&layers, &[]);
    let row = find(&rows, "SGLANG_HACK_FLASHMLA_BACKEND");
    assert_eq!((value(row.declared.as_ref()), row.status), (Some("tilelang"), RowStatus::GivenTwice));
    assert!(row.note.contains("counts; line"), "{row:#?}");
    let row = find(&rows, "--chunked-prefill-size");
    assert_eq!((row.status, value(row.declared.as_ref())), (RowStatus::OverriddenBy, Some("8192")), "{row:#?}");
    assert_eq!(find(&rows, "--max-running-request").status, RowStatus::Agrees);
}

#[test]
fn a05_a_flag_given_twice_on_a_command_line() {
    let line = "python3 -m sglang.launch_server --model-path Qwen/QwQ-32B --host 0.0.0.0 --port 8000 --trust-remote-code \
                --attention-backend triton --quantization fp8 --chat-template qwen2-vl --attention-backend flashinfer --tp 2";
    let said = json!({"attention_backend": "flashinfer", "tp_size": 2});
    let layers = Layers {
        process: Some(process(b"HF_TOKEN=hf_REDACTED\0", line)),
        observed: Some(Ok(("/i".into(), flags::observed(&said)))),
        ..Layers::default()
    };
    let rows = rows(&layers, &[]);
    let row = find(&rows, "--attention-backend");
    assert_eq!((row.status, row.note.as_str()), (RowStatus::GivenTwice, "the last one counts; before it: `triton`"));
    assert_eq!(value(row.effective.as_ref()), Some("flashinfer"));
    assert!(!serde_json::to_string(&rows).unwrap().contains("hf_REDACTED"));
}

#[test]
fn a16_a_port_that_is_none_and_a_back_end_that_is_ignored() {
    let environ = b"VLLM_PORT=8000\0VLLM_ATTENTION_BACKEND=FLASHINFER\0";
    let line = "vllm serve --model meta-llama/Llama-3.2-3B-Instruct --port 8000 --dtype half --max-model-len 8192";
    let layers = |version: Option<&str>| Layers {
        process: Some(process(environ, line)),
        version: version.map(str::to_owned),
        ..Layers::default()
    };
    let rows = |version| super::rows(&layers(version), &[]);
    let known = rows(Some("v0.19.1"));
    let port = find(&known, "VLLM_PORT");
    assert_eq!(port.status, RowStatus::AcceptedButOff);
    assert!(port.note.contains("not the HTTP port"), "{port:#?}");
    let backend = find(&known, "VLLM_ATTENTION_BACKEND");
    assert_eq!(backend.status, RowStatus::UnknownToThisVersion);
    assert!(backend.note.starts_with("set, ignored by this version"), "{backend:#?}");
    assert_eq!(find(&rows(Some("v0.12.0")), "VLLM_ATTENTION_BACKEND").status, RowStatus::OneSource);
    let unknown = rows(None);
    let backend = find(&unknown, "VLLM_ATTENTION_BACKEND");
    assert_eq!(backend.status, RowStatus::OneSource, "the version is not known");
    assert!(backend.note.contains("newer versions ignore it"), "{backend:#?}");
}

#[test]
fn a21_a_line_of_the_log_explains_what_nobody_gave() {
    let line = "python -m sglang.launch_server --model-path zai-org/GLM-5-FP8 --tp 8 --attention-backend triton --kv-cache-dtype fp8_e4m3";
    let mut layers = Layers { process: Some(process(b"A=1\0", line)), ..Layers::default() };
    layers.seen.add_log("/l", artefact!("A21_sglang_server_args_line.log"));
    let rows = rows(&layers, &[]);
    for (name, status, note) in [
        ("--attention-backend", RowStatus::Agrees, ""),
        ("--kv-cache-dtype", RowStatus::Agrees, ""),
        ("--tp", RowStatus::Agrees, ""),
        ("--page-size", RowStatus::OverriddenBy, "not given, default `none`; the server chose `1`: /l line 2"),
        (
            "--nsa-prefill-backend",
            RowStatus::OverriddenBy,
            "not given, default `none`; the server chose `flashmla_auto`: /l line 3",
        ),
        ("--moe-runner-backend", RowStatus::DefaultInEffect, "default in effect"),
    ] {
        let row = find(&rows, name);
        assert_eq!((row.status, row.note.as_str()), (status, note), "{row:#?}");
    }
    assert!(rows.iter().all(|r| r.status != RowStatus::Differs), "no invented disagreement");
}

#[test]
fn a22_a28_sizes_and_the_current_start() {
    let mut layers = Layers { engine: Some(ServingEngine::Sglang), ..Layers::default() };
    layers.seen.add_log("/l", artefact!("A22_sglang_startup_dsv4.log"));
    let rows = rows(&layers, &[]);
    assert_eq!(value(find(&rows, "max_total_num_tokens").observed.as_ref()), Some("1317632"));
    let window = find(&rows, "request_window");
    assert_eq!(value(window.observed.as_ref()), Some("1048576"), "{window:#?}");
    let mut layers = Layers { engine: Some(ServingEngine::Sglang), ..Layers::default() };
    layers.seen.add_log("/l", artefact!("A28_journal_prefix.log"));
    let rows = super::rows(&layers, &[]);
    let row = find(&rows, "--moe-runner-backend");
    let claim = row.observed.as_ref().unwrap();
    assert_eq!((value(Some(claim)), claim.line), (Some("flashinfer_trtllm_routed"), Some(8)));
    assert!(claim.blind_to.is_some());
}

#[test]
fn a24_what_was_asked_of_vllm_agrees_with_what_it_resolved() {
    let line = "vllm serve RedHatAI/Qwen3.6-35B-A3B-NVFP4 --tool-call-parser qwen3_coder --host 0.0.0.0 --api-key sk-REDACTED \
                --max-model-len 8192 --quantization compressed-tensors --kv-cache-dtype fp8 --enable-prefix-caching \
                --max-num-batched-tokens 8192 --max-num-seqs 32 --trust-remote-code --moe-backend flashinfer_cutlass --port 8000";
    let mut layers = Layers { process: Some(process(b"A=1\0", line)), ..Layers::default() };
    layers.seen.add_log("/l", artefact!("A24_vllm_startup_nondefault.log"));
    let rows = rows(&layers, &[]);
    let differ: Vec<&Row> = rows.iter().filter(|r| r.status == RowStatus::Differs).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(find(&rows, "--kv-cache-dtype").status, RowStatus::Agrees, "`fp8` is `fp8_e4m3`");
    assert_eq!(find(&rows, "--max-model-len").status, RowStatus::Agrees);
    assert_eq!(
        find(&rows, "--port").status,
        RowStatus::OneSource,
        "given with its default, so not in the line, and not missing"
    );
    let row = find(&rows, "attention_block_size");
    assert_eq!((row.kind, row.note.as_str()), (RowKind::Config, "the server's own choice"));
    assert!(!serde_json::to_string(&rows).unwrap().contains("sk-REDACTED"));
}

#[test]
fn a29_nothing_is_invented_about_a_server_that_is_only_observed() {
    let answer: Value = serde_json::from_str(artefact!("A29_sglang_get_server_info.json")).unwrap();
    let mut layers = Layers { engine: Some(ServingEngine::Sglang), ..Layers::default() };
    layers.seen.add_server_info("/server_info", answer.clone());
    layers.observed = Some(Ok(("/server_info".into(), flags::observed(&answer))));
    let observed_only = rows(&layers, &[]);
    let trouble: Vec<&Row> = observed_only.iter().filter(|r| matters(r)).collect();
    assert!(trouble.is_empty(), "{trouble:#?}");
    let row = find(&observed_only, "--decode-attention-backend");
    assert_eq!((value(row.observed.as_ref()), row.note.as_str()), (Some("fa3"), "asked for: `null`"));
    let row = find(&observed_only, "--cuda-graph-bs");
    assert_eq!(
        (value(row.observed.as_ref()), row.note.as_str()),
        (Some("[1,2,4]"), "without effect: `disable_cuda_graph` is `true`")
    );
    layers.process = Some(process(
        b"A=1\0",
        "python -m sglang.launch_server --model-path qwen/qwen2.5-0.5b-instruct --host 0.0.0.0 --port 33814 --cuda-graph-bs 1 2 4",
    ));
    let started = rows(&layers, &[]);
    assert_eq!(find(&started, "--cuda-graph-bs").status, RowStatus::AcceptedButOff);
    let trouble: Vec<&Row> = started.iter().filter(|r| matters(r) && r.name != "--cuda-graph-bs").collect();
    assert!(trouble.is_empty(), "{trouble:#?}");
    assert!(find(&started, "--disable-cuda-graph").note.contains("the default known here is `false`"));
}

#[test]
fn a31_the_window_of_a_slot() {
    let mut layers = Layers {
        process: Some(process(b"A=1\0", "llama-server -c 32768 -np 4 -m /models/x.gguf")),
        ..Layers::default()
    };
    layers.seen.add_props("/props", serde_json::from_str(artefact!("A31_llama_props.json")).unwrap());
    let rows = rows(&layers, &[]);
    assert_eq!(value(find(&rows, "n_ctx").observed.as_ref()), Some("8192"));
    assert_eq!(value(find(&rows, "build_info").observed.as_ref()), Some("b8943-4866913c2"));
    assert_eq!(find(&rows, "-m").status, RowStatus::Differs, "another model than the one that was asked for");
}

#[test]
fn a33_and_a34_a_readable_process_and_an_overwritten_one() {
    let environ = include_bytes!("../../../tests/artefacts/A33_proc_readable/environ.bin");
    let cmdline = include_bytes!("../../../tests/artefacts/A33_proc_readable/cmdline.bin");
    let layers = Layers { process: Some((7, proc::environ(environ), proc::cmdline(cmdline))), ..Layers::default() };
    let rows = rows(&layers, &[]);
    assert_eq!(rows.iter().filter(|r| r.kind == RowKind::Env).count(), 13);
    assert!(rows.iter().all(|r| r.name != "SGLANG_NOT_A_VARIABLE"));
    assert_eq!(value(find(&rows, "SGLANG_EMPTY").effective.as_ref()), Some(""));
    assert_eq!(value(find(&rows, "--json-model-override-args").effective.as_ref()), Some("{\"index_topk\": 512}"));
    assert_eq!(value(find(&rows, "--served-model-name").effective.as_ref()), Some("deepseek v4 flash"));
    let text = serde_json::to_string(&rows).unwrap();
    assert!(!text.contains("REDACTED"), "{text}");

    let environ = include_bytes!("../../../tests/artefacts/A34_proc_clobbered/environ.bin");
    let cmdline = include_bytes!("../../../tests/artefacts/A34_proc_clobbered/cmdline.bin");
    let layers = Layers {
        declared: Some(declared(artefact!("A01_sglang_decode_exports.sh"))),
        process: Some((8, proc::environ(environ), proc::cmdline(cmdline))),
        observed: Some(Ok(("/i".into(), flags::observed(&json!({"tp_size": 8}))))),
        ..Layers::default()
    };
    for row in super::rows(&layers, &[]).iter().filter(|r| r.declared.is_some()) {
        assert_eq!(row.status, RowStatus::UnknownBecause, "{row:#?}");
        assert!(row.effective.as_ref().is_some_and(|e| e.known != Known::Yes));
    }
}
