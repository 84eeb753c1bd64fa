use super::*;
use proptest::prelude::*;

const A21: &str = include_str!("../../tests/artefacts/A21_sglang_server_args_line.log");
const A22: &str = include_str!("../../tests/artefacts/A22_sglang_startup_dsv4.log");
const A23: &str = include_str!("../../tests/artefacts/A23_sglang_batch_lines.log");
const A28: &str = include_str!("../../tests/artefacts/A28_journal_prefix.log");

fn text(s: &str) -> PyValue {
    PyValue::Str(s.into())
}

fn decided(start: &Start) -> Vec<(&str, &str)> {
    start.decided.iter().map(|(n, v, _)| (n.as_str(), v.as_str())).collect()
}

#[test]
fn a21_arguments_are_typed() {
    let reading = read_log(A21);
    assert_eq!(reading.starts.len(), 1);
    let args = &reading.starts[0].args;
    assert!(args.complete && reading.damaged.is_empty());
    for (name, value) in [
        ("attention_backend", text("triton")),
        ("kv_cache_dtype", text("fp8_e4m3")),
        ("page_size", PyValue::Int(1)),
        ("nsa_prefill_backend", text("flashmla_auto")),
        ("nsa_decode_backend", text("flashmla_kv")),
        ("chunked_prefill_size", PyValue::Int(16384)),
        ("tp_size", PyValue::Int(8)),
        ("moe_runner_backend", text("auto")),
        ("context_length", PyValue::None),
        ("mem_fraction_static", PyValue::Float(0.908)),
        ("trust_remote_code", PyValue::Bool(false)),
        ("uvicorn_access_log_exclude_prefixes", PyValue::List(vec![])),
        ("mm_process_config", PyValue::Dict(vec![])),
        ("json_model_override_args", text("{}")),
        ("torchao_config", text("")),
        ("hicache_ratio", PyValue::Float(2.0)),
        ("otlp_traces_endpoint", text("localhost:4317")),
        ("cpu_offload_gb", PyValue::Int(0)),
        ("offload_group_size", PyValue::Int(-1)),
        ("forward_hooks", PyValue::None),
    ] {
        assert_eq!(args.get(name), Some(&value), "{name}");
    }
    let Some(PyValue::List(sizes)) = args.get("cuda_graph_bs") else { panic!("{:?}", args.get("cuda_graph_bs")) };
    assert_eq!((sizes.len(), &sizes[21]), (22, &PyValue::Int(512)));
    assert_eq!(args.get("no_such_name"), None);
}

#[test]
fn a21_what_the_server_decided_is_kept_apart_from_what_was_asked() {
    let reading = read_log(A21);
    let decided = decided(&reading.starts[0]);
    for pair in [("page_size", "1"), ("nsa_prefill_backend", "flashmla_auto"), ("nsa_decode_backend", "flashmla_kv")] {
        assert!(decided.contains(&pair), "{pair:?} not in {decided:?}");
    }
}

#[test]
fn a22_the_story_of_one_start() {
    let reading = read_log(A22);
    let start = &reading.starts[0];
    assert_eq!(reading.starts.len(), 1);
    assert!(start.ready && reading.damaged.is_empty());
    assert_eq!(decided(start), [("swa_full_tokens_ratio", "0.1")]);
    assert_eq!(start.args.get("mem_fraction_static"), Some(&PyValue::Float(0.6)));
    assert_eq!(start.args.get("disable_radix_cache"), Some(&PyValue::Bool(true)));
    let figure = |about: &str, name: &str, rank: u32| {
        let found = start.figures.iter().find(|f| f.about == about && f.ranks == [("TP".to_owned(), rank)]);
        found.and_then(|f| f.pairs.iter().find(|(n, _)| n == name)).map(|(_, v)| v.as_str())
    };
    for (name, value) in [
        ("max_total_num_tokens", "1317632"),
        ("chunked_prefill_size", "8192"),
        ("max_prefill_tokens", "16384"),
        ("max_running_requests", "256"),
        ("context_len", "1048576"),
    ] {
        assert_eq!(figure("", name, 0), Some(value), "{name}");
    }
    assert_eq!(figure("Load weight begin", "avail mem", 1), Some("93.56 GB"));
    assert_eq!(figure("DSv4 memory calculation", "full_token", 1), Some("1317632"));
    assert_eq!(figure("Memory profiling", "rest_memory", 0), Some("19.58 GB"));
    assert_eq!(figure("Capture cuda graph end", "avail mem", 0), None);
}

#[test]
fn a23_four_chunks_are_one_prompt_and_a_probe_is_none() {
    let reading = read_log(A23);
    let seen = prompts(&reading.batches);
    assert_eq!(seen[0], PromptSeen { chunks: vec![8192, 8192, 8192, 2560], cached: 0 });
    assert_eq!(seen[0].tokens(), 27136);
    assert_eq!(seen[1], PromptSeen { chunks: vec![256], cached: 26880 });
    assert_eq!(seen[1].tokens(), 27136);
    assert_eq!(seen.len(), 2);
    let by_line = |n: usize| reading.batches.iter().find(|(line, _)| *line == n).map(|(_, b)| b);
    assert!(by_line(6).unwrap().is_health_probe());
    assert!(!by_line(7).unwrap().is_health_probe());
}

#[test]
fn a23_every_form_is_read_and_the_overprinted_line_is_counted() {
    let reading = read_log(A23);
    assert_eq!(reading.damaged, [14]);
    assert_eq!(reading.batches.len(), 13);
    let number = |line: usize, name: &str| reading.batches.iter().find(|(l, _)| *l == line).unwrap().1.number(name);
    assert_eq!(number(5, "accept len"), Some(2.41));
    assert_eq!(number(5, "#token"), Some(27176.0));
    assert_eq!(number(7, "full token usage"), Some(0.71));
    assert_eq!(number(8, "#retracted-req"), Some(0.0));
    assert_eq!(number(10, "#pending-token"), Some(109_585.0));
    assert_eq!(number(11, "#queue-req"), Some(4.0));
    assert!((number(12, "cache hit rate").unwrap() - 0.333).abs() < 1e-12);
    assert_eq!(number(13, "gen throughput (token/s)"), Some(4210.55));
    let last = &reading.batches.last().unwrap().1;
    assert_eq!((last.number("accept len"), last.rejects_every_draft()), (Some(1.0), true));
    assert!(!reading.batches[4].1.rejects_every_draft());
}

#[test]
fn a23_ranks_stand_in_the_prefix() {
    let line = read_line(A23.lines().nth(7).unwrap());
    let ranks: Vec<(&str, u32)> = line.ranks.iter().map(|(n, r)| (n.as_str(), *r)).collect();
    assert_eq!(ranks, [("DP", 2), ("TP", 2), ("EP", 2)]);
    assert_eq!(line.time.as_deref(), Some("2026-05-07 13:40:43"));
}

#[test]
fn a28_two_starts_and_the_change_between_them() {
    let reading = read_log(A28);
    let starts: Vec<(Option<u32>, Option<&str>)> =
        reading.starts.iter().map(|s| (s.pid, s.args.get("moe_runner_backend").and_then(PyValue::as_str))).collect();
    assert_eq!(starts, [(Some(165_790), Some("triton")), (Some(201_113), Some("flashinfer_trtllm_routed"))]);
    assert_eq!(reading.restarts, Some(3));
    assert_eq!(reading.unit_warnings.len(), 1);
    assert!(reading.unit_warnings[0].contains("lemond.service:18"));
    assert!(decided(&reading.starts[0])[0].1.starts_with("hybrid FP8+NVFP4 checkpoint"));
    assert!(reading.starts[0].figures.iter().any(|f| f.pairs.contains(&("context_len".into(), "524288".into()))));
    assert!(reading.damaged.is_empty());
}

fn check_decision(message: &str, expect: &[(&str, &str)]) {
    let got = decisions(message);
    let got: Vec<(&str, &str)> = got.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(got, expect, "{message}");
}

#[test]
fn announcements_of_decisions() {
    check_decision("Setting page size to 1 for DeepSeek DSA on ROCm.", &[("page_size", "1")]);
    check_decision("Setting KV cache dtype to fp8_e4m3.", &[("kv_cache_dtype", "fp8_e4m3")]);
    check_decision("Set chunked_prefill_size to 1024, because of dp attention", &[("chunked_prefill_size", "1024")]);
    check_decision("Use marlin as MoE runner backend for sm120.", &[("moe_runner_backend", "marlin")]);
    check_decision(
        "Use dsv4 attention backend for DeepSeek V4, setting page_size to 256.",
        &[("attention_backend", "dsv4"), ("page_size", "256")],
    );
    check_decision("Using default HuggingFace chat template with detected content format: openai", &[]);
    check_decision("Settings were read", &[]);
    check_decision("Set", &[]);
    check_decision("Use", &[]);
}

#[test]
fn secrets_of_the_arguments_never_leave() {
    let Said::ServerArgs(args) =
        read_line("server_args=ServerArgs(api_key='sk-1', admin_api_key=None, tp_size=2)").said
    else {
        panic!("not read")
    };
    assert_eq!(args.withheld, ["api_key"]);
    assert_eq!(args.get("admin_api_key"), Some(&PyValue::None));
    assert!(!format!("{args:?}").contains("sk-1"));
}

#[test]
fn a_cut_arguments_line_is_damaged_and_keeps_what_came() {
    let reading = read_log("[2026-06-18 11:02:16] server_args=ServerArgs(tp_size=4, model_path='/mo");
    assert_eq!(reading.damaged, [1]);
    assert_eq!(reading.starts[0].args.get("tp_size"), Some(&PyValue::Int(4)));
}

#[test]
fn decisions_after_the_ready_line_belong_to_the_next_start() {
    let log = "server_args=ServerArgs(a=1)\nThe server is fired up and ready to roll!\nSetting a to 2.\n\
               server_args=ServerArgs(a=2)\nSetting b to 3.";
    let reading = read_log(log);
    assert_eq!(decided(&reading.starts[0]), []);
    assert_eq!(decided(&reading.starts[1]), [("a", "2"), ("b", "3")]);
}

#[test]
fn a_progress_bar_is_no_figure() {
    for line in [
        "Capturing batches (bs=160 avail_mem=36.2 GB):  23%|██▎       | 12/52 [00:10<00:34,  1.15it/s]",
        "Loading safetensors checkpoint shards:  26% Completed | 12/46 [00:09<00:25,  1.33it/s]",
        "100%|██████████| 23/23 [00:06<00:00,  3.51it/s]",
    ] {
        assert_eq!(read_line(line).said, Said::Other, "{line}");
    }
}

#[test]
fn a_message_with_brackets_is_no_journal_prefix() {
    let line = read_line("[2026-06-18 11:02:15 TP2] shape[12]: Decode batch");
    assert_eq!((line.pid, line.time.as_deref()), (None, Some("2026-06-18 11:02:15")));
    let iso = read_line("2026-06-18T11:02:15+0200 gpu-1 bash[7]: The server is fired up and ready to roll!");
    assert_eq!((iso.pid, iso.said), (Some(7), Said::Ready));
}

proptest! {
    #[test]
    fn any_line_is_read_without_a_panic(line in ".{0,120}") {
        let _ = read_log(&line);
        let _ = read_log(&format!("[2026-06-18 11:02:15 TP2] {line}"));
        let _ = read_log(&format!("Jun 18 11:02:15 h bash[1]: Setting {line} to {line}"));
    }

    #[test]
    fn no_line_is_lost(lines in proptest::collection::vec("[ -~]{0,40}", 0..20)) {
        let text = lines.join("\n");
        prop_assert_eq!(read_log(&text).lines, text.lines().count());
    }
}
