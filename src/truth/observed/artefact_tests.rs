//! What public artefacts must yield, one table each.

use serde_json::{Value, json};

use super::metrics::{self, Fact};
use super::*;

macro_rules! artefact {
    ($name:literal) => {
        include_str!(concat!("../../../tests/artefacts/", $name))
    };
}

const A21: &str = artefact!("A21_sglang_server_args_line.log");
const A22: &str = artefact!("A22_sglang_startup_dsv4.log");
const A23: &str = artefact!("A23_sglang_batch_lines.log");
const A24: &str = artefact!("A24_vllm_startup_nondefault.log");
const A26: &str = artefact!("A26_vllm_specdecode_metrics.log");
const A28: &str = artefact!("A28_journal_prefix.log");
const A29: &str = artefact!("A29_sglang_get_server_info.json");
const A31: &str = artefact!("A31_llama_props.json");
const A32: &str = artefact!("A32_vllm_metrics.prom");

fn log(text: &str) -> Observed {
    let mut seen = Observed::default();
    seen.add_log("/var/log/server.log", text);
    seen
}

fn server_info(answer: Value) -> Observed {
    let mut seen = Observed::default();
    seen.add_server_info("http://h:1/server_info", answer);
    seen
}

fn check(seen: &Observed, expect: &[(&str, SourceKind, Value)]) {
    for (name, kind, value) in expect {
        let first = seen.value(name).unwrap_or_else(|| panic!("nothing says {name}"));
        assert_eq!((&first.value, first.kind), (value, *kind), "{name}: {:#?}", seen.all(name));
    }
}

fn decided<'a>(seen: &'a Observed, name: &str) -> Option<(&'a str, u32, Option<&'a Value>)> {
    seen.decision(name).map(|d| (d.decided.raw(), d.line, d.asked.as_ref()))
}

#[test]
fn a21_what_was_asked_and_what_the_server_chose() {
    let seen = log(A21);
    check(
        &seen,
        &[
            ("attention_backend", SourceKind::Arguments, json!("triton")),
            ("kv_cache_dtype", SourceKind::Arguments, json!("fp8_e4m3")),
            ("page_size", SourceKind::Decision, json!(1)),
            ("nsa_prefill_backend", SourceKind::Decision, json!("flashmla_auto")),
            ("nsa_decode_backend", SourceKind::Decision, json!("flashmla_kv")),
            ("chunked_prefill_size", SourceKind::Arguments, json!(16384)),
            ("tp_size", SourceKind::Arguments, json!(8)),
            ("moe_runner_backend", SourceKind::Arguments, json!("auto")),
            ("context_length", SourceKind::Arguments, Value::Null),
            ("mem_fraction_static", SourceKind::Arguments, json!(0.908)),
            ("trust_remote_code", SourceKind::Arguments, json!(false)),
            ("mm_process_config", SourceKind::Arguments, json!({})),
            ("torchao_config", SourceKind::Arguments, json!("")),
            ("json_model_override_args", SourceKind::Arguments, json!("{}")),
        ],
    );
    assert_eq!(seen.value("cuda_graph_bs").unwrap().value.as_array().unwrap().len(), 22);
    assert_eq!(decided(&seen, "page_size"), Some(("1", 2, Some(&json!(1)))));
    assert_eq!(decided(&seen, "nsa_decode_backend").map(|d| d.1), Some(3));
    assert_eq!(seen.value("attention_backend").unwrap().line, Some(4));
    assert!(!seen.value("moe_runner_backend").unwrap().kind.is_resolved());
    assert_eq!(seen.warnings.len(), 3, "{:#?}", seen.warnings);
    assert!(seen.damaged.is_empty() && seen.starts.len() == 1);
}

#[test]
fn a22_settled_sizes_count_before_arguments() {
    let seen = log(A22);
    check(
        &seen,
        &[
            ("max_total_num_tokens", SourceKind::Figures, json!(1_317_632)),
            ("chunked_prefill_size", SourceKind::Figures, json!(8192)),
            ("max_prefill_tokens", SourceKind::Figures, json!(16384)),
            ("max_running_requests", SourceKind::Figures, json!(256)),
            ("context_length", SourceKind::Figures, json!(1_048_576)),
            ("swa_full_tokens_ratio", SourceKind::Decision, json!(0.1)),
            ("mem_fraction_static", SourceKind::Arguments, json!(0.6)),
            ("disable_radix_cache", SourceKind::Arguments, json!(true)),
        ],
    );
    assert_eq!(decided(&seen, "swa_full_tokens_ratio"), Some(("0.1", 1, None)));
    assert!(seen.starts[0].ready);
    assert_eq!(seen.value("max_running_requests").unwrap().line, Some(10));
}

#[test]
fn a23_batches_together() {
    let seen = log(A23);
    let batches = &seen.batches;
    assert_eq!(batches.chunk_tokens, Some(8192));
    assert_eq!(batches.prompts, [(27_136, 0), (27_136, 26_880)]);
    let warm = batches.prompts[1];
    assert!((warm.1 as f64 / warm.0 as f64 - 0.991).abs() < 5e-4);
    assert_eq!((batches.health_probes, batches.decodes), (1, 4));
    assert_eq!((batches.acceptance.clone(), batches.all_rejected), (vec![0.60, 0.0], 1));
    assert_eq!(seen.damaged, [Damage { source: "/var/log/server.log".into(), count: 1, lines: vec![14] }]);
    check(&seen, &[("prefill_chunk_seen", SourceKind::Load, json!(8192))]);
}

#[test]
fn a24_asked_resolved_and_chosen_by_itself() {
    let seen = log(A24);
    let asked =
        |name: &str| seen.all(name).iter().find(|s| s.kind == SourceKind::NonDefaultArguments).map(|s| s.value.clone());
    for (name, value) in [
        ("tool_call_parser", json!("qwen3_coder")),
        ("host", json!("0.0.0.0")),
        ("api_key", json!(redact::MARK)),
        ("model", json!("RedHatAI/Qwen3.6-35B-A3B-NVFP4")),
        ("trust_remote_code", json!(true)),
        ("max_model_len", json!(8192)),
        ("quantization", json!("compressed-tensors")),
        ("served_model_name", json!(["RedHatAI/Qwen3.6-35B-A3B-NVFP4"])),
        ("reasoning_parser", json!("qwen3")),
        ("gpu_memory_utilization", json!(0.8)),
        ("kv_cache_dtype", json!("fp8_e4m3")),
        ("enable_prefix_caching", json!(true)),
        ("max_num_batched_tokens", json!(8192)),
        ("max_num_seqs", json!(32)),
        ("enable_chunked_prefill", json!(true)),
        ("moe_backend", json!("flashinfer_cutlass")),
        ("model_tag", json!("RedHatAI/Qwen3.6-35B-A3B-NVFP4")),
    ] {
        assert_eq!(asked(name), Some(value), "{name}");
    }
    let reading = crate::serving::log_grammar::read_log(A24);
    assert_eq!(reading.starts[0].args.values.len() + reading.starts[0].args.withheld.len(), 17);
    for (name, value) in [
        ("attention_backend", "FLASHINFER"),
        ("nvfp4_moe_backend", "FLASHINFER_CUTLASS"),
        ("kv_cache_dtype", "fp8_e4m3"),
        ("max_num_batched_tokens", "8192"),
        ("mamba_cache_mode", "align"),
        ("attention_block_size", "2096"),
        ("max_model_len", "8192"),
        ("async_scheduling", "true"),
        ("nvfp4_gemm", "FlashInferCutlassNvFp4LinearKernel"),
        ("gdn_prefill_kernel", "Triton/FLA"),
        ("architecture", "Qwen3_5MoeForConditionalGeneration"),
    ] {
        assert_eq!(seen.decision(name).map(|d| d.decided.raw()), Some(value), "{name}: {:#?}", seen.decisions);
    }
    check(
        &seen,
        &[
            ("version", SourceKind::EngineConfig, json!("0.19.2rc1.dev8+g4b7f5ea1a")),
            ("compilation_config.cudagraph_mode", SourceKind::EngineConfig, json!("FULL_AND_PIECEWISE")),
            ("compilation_config.pass_config.fuse_act_quant", SourceKind::EngineConfig, json!(true)),
            ("compilation_config.pass_config.fuse_norm_quant", SourceKind::EngineConfig, json!(false)),
            ("compilation_config.pass_config.fuse_allreduce_rms", SourceKind::EngineConfig, json!(false)),
            ("kernel_config.moe_backend", SourceKind::EngineConfig, json!("flashinfer_cutlass")),
            ("max_model_len", SourceKind::EngineConfig, json!(8192)),
            ("dtype", SourceKind::EngineConfig, json!("torch.bfloat16")),
        ],
    );
    // A flag that is given with its default does not stand in the arguments line.
    assert!(seen.value("tool_call_parser").unwrap().blind_to.contains("default"));
    assert_eq!((seen.starts.len(), seen.starts[0].pid, seen.damaged.len()), (1, Some(1), 0));
    assert_eq!(seen.withheld, ["api_key"]);
    assert!(seen.warnings.iter().any(|w| w.text.raw().starts_with("Mamba cache mode")));
}

#[test]
fn a26_acceptance_of_each_window() {
    let seen = log(A26);
    let expect = [0.914, 0.452, 1.0, 1.0, 0.009, 0.0, 0.831];
    assert_eq!(seen.batches.acceptance.len(), expect.len(), "{:?}", seen.batches);
    for (seen, expect) in seen.batches.acceptance.iter().zip(expect) {
        assert!((seen - expect).abs() < 1e-9, "{seen} {expect}");
    }
    let places: Vec<usize> = seen.batches.per_position.iter().map(Vec::len).collect();
    assert_eq!(places, [3, 3, 3, 3, 2, 5, 7]);
    assert_eq!(seen.batches.per_position[0], [0.983, 0.897, 0.862]);
    assert!(seen.batches.looks_like_a_loop && seen.damaged.is_empty());
    assert_eq!(seen.batches.all_rejected, 1);
    let apart: String = A26.lines().take(3).collect::<Vec<_>>().join("\n");
    assert!(!log(&apart).batches.looks_like_a_loop, "one window is no loop");
}

#[test]
fn a28_the_current_start_and_what_changed() {
    let seen = log(A28);
    let starts: Vec<(Option<u32>, u32)> = seen.starts.iter().map(|s| (s.pid, s.line)).collect();
    assert_eq!(starts, [(Some(165_790), 2), (Some(201_113), 8)]);
    let change = Change {
        name: "moe_runner_backend".into(),
        before: Some(json!("triton")),
        now: Some(json!("flashinfer_trtllm_routed")),
    };
    assert_eq!(seen.starts[1].changes, [change]);
    check(&seen, &[("moe_runner_backend", SourceKind::Arguments, json!("flashinfer_trtllm_routed"))]);
    assert_eq!((seen.restarts, seen.unit_warnings.len()), (Some(3), 1));
    // Sizes and choices of the earlier start say nothing of the current one.
    assert!(seen.all("max_total_num_tokens").is_empty() && seen.decisions.is_empty());
}

#[test]
fn a29_internal_states_first_and_the_top_level_kept() {
    let seen = server_info(serde_json::from_str(A29).unwrap());
    check(
        &seen,
        &[
            ("decode_attention_backend", SourceKind::InternalState, json!("fa3")),
            ("prefill_attention_backend", SourceKind::InternalState, json!("fa3")),
            ("disable_chunked_prefix_cache", SourceKind::InternalState, json!(true)),
            ("pp_max_micro_batch_size", SourceKind::InternalState, json!(128)),
            ("disable_cuda_graph", SourceKind::Configuration, json!(true)),
            ("cuda_graph_bs", SourceKind::Configuration, json!([1, 2, 4])),
            ("chunked_prefill_size", SourceKind::Configuration, json!(8192)),
            ("max_total_num_tokens", SourceKind::Configuration, json!(20480)),
            ("max_req_input_len", SourceKind::Configuration, json!(20474)),
        ],
    );
    assert_eq!(seen.asked("decode_attention_backend").map(|s| s.value.clone()), Some(Value::Null));
    assert_eq!(seen.asked("disable_chunked_prefix_cache").map(|s| s.value.clone()), Some(json!(false)));
    assert!(seen.version().is_some());
    let window = crate::truth::compare::window(&seen).unwrap();
    assert_eq!((window.tokens, window.limits[0].0.as_str()), (20_474, "max_req_input_len"));
}

#[test]
fn a31_props_of_a_slot() {
    let mut seen = Observed::default();
    seen.add_props("http://h:1/props", serde_json::from_str(A31).unwrap());
    check(
        &seen,
        &[
            ("total_slots", SourceKind::Configuration, json!(4)),
            ("n_ctx", SourceKind::Configuration, json!(8192)),
            ("build_info", SourceKind::Configuration, json!("b8943-4866913c2")),
            ("speculative.n_max", SourceKind::Configuration, json!(16)),
            ("speculative.n_min", SourceKind::Configuration, json!(5)),
            ("speculative", SourceKind::Configuration, json!(false)),
            ("model_path", SourceKind::Configuration, json!("/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf")),
        ],
    );
    assert!(seen.text("chat_template").unwrap().contains("<|start_header_id|>"));
    assert_eq!(crate::truth::compare::window(&seen).map(|w| w.tokens), Some(8192));
}

#[test]
fn a32_metrics_of_two_engines_stay_apart() {
    let facts = metrics::facts(&metrics::read(A32));
    let fact = |engine, name, value, of, line| Fact { engine, name, value, of, line };
    for expect in [
        fact("vllm", "cache_hit_rate", 0.0, Some((0.0, 1131.0)), 5),
        fact("vllm", "draft_acceptance_rate", 0.009, Some((9.0, 1000.0)), 7),
        fact("sglang", "num_running_reqs", 4.0, None, 10),
        fact("sglang", "token_usage", 0.71, None, 11),
    ] {
        assert!(facts.contains(&expect), "{expect:?} not in {facts:#?}");
    }
    assert_eq!(facts.len(), 4);
    let mut seen = Observed::default();
    seen.add_metrics("http://h:1/metrics", A32);
    check(
        &seen,
        &[
            ("vllm:draft_acceptance_rate", SourceKind::Metrics, json!(0.009)),
            ("sglang:token_usage", SourceKind::Metrics, json!(0.71)),
        ],
    );
    assert!(seen.damaged.is_empty());
}

#[test]
fn no_secret_of_an_artefact_is_in_the_result() {
    let mut seen = Observed::default();
    for text in [A21, A22, A23, A24, A26, A28] {
        seen.add_log("/l", text);
    }
    let mut answer: Value = serde_json::from_str(A29).unwrap();
    answer["api_key"] = json!("sk-REDACTED");
    answer["internal_states"][0]["admin_api_key"] = json!("hunter2-REDACTED");
    answer["dist_init_addr"] = json!("tcp://u:pw-REDACTED@h:1");
    seen.add_server_info("http://u:pw-REDACTED@h:1/server_info", answer);
    seen.add_model_info("http://h:1/model_info", json!({"model_path": "m", "hf_token": "hf_REDACTED"}));
    seen.add_props(
        "http://h:1/props",
        json!({"api_key": "sk-REDACTED", "default_generation_settings": {"params": {"token": "x-REDACTED"}}}),
    );
    seen.add_log("/l", "server_args=ServerArgs(api_key='k-REDACTED', extra='{\"password\": \"p-REDACTED\"}', a={'hf_token': 't-REDACTED'})");
    seen.add_log("/l", "WARNING a.py:1: started with --api-key k-REDACTED\n[2026-01-01 00:00:00] WARNING x.py:1: Authorization: Bearer b-REDACTED");
    let text = serde_json::to_string(&seen).unwrap();
    assert!(!text.contains("REDACTED"), "{}", &text[text.find("REDACTED").unwrap().saturating_sub(200)..]);
}
