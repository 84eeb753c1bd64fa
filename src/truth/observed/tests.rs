use proptest::prelude::*;
use serde_json::json;

use super::*;

fn log(text: &str) -> Observed {
    let mut seen = Observed::default();
    seen.add_log("/l", text);
    seen
}

#[test]
fn sources_that_disagree_are_all_kept_strongest_first() {
    let mut seen = log("server_args=ServerArgs(max_running_requests=None, page_size=64)\nSetting page size to 256.\n\
                        max_running_requests=128, context_len=4096");
    seen.add_server_info("/i", json!({"page_size": 256, "internal_states": [{"max_running_requests": 64}]}));
    let kinds = |name: &str| seen.all(name).iter().map(|s| s.kind).collect::<Vec<_>>();
    assert_eq!(kinds("page_size"), [SourceKind::Configuration, SourceKind::Decision, SourceKind::Arguments]);
    assert_eq!(kinds("max_running_requests"), [SourceKind::InternalState, SourceKind::Figures, SourceKind::Arguments]);
    let (a, b) = seen.contradiction("max_running_requests").unwrap();
    assert_eq!((&a.value, &b.value), (&json!(64), &json!(128)));
    assert!(seen.contradiction("page_size").is_none(), "what was asked contradicts nothing");
}

#[test]
fn forms_of_prefix() {
    let line = "server_args=ServerArgs(tp_size=2)";
    for prefix in [
        "",
        "[2026-06-18 11:02:16] ",
        "[2026-06-18 11:02:16 DP1 TP0] INFO server_args.py:7: ",
        "Jun 18 11:02:16 h bash[7]: [2026-06-18 11:02:16] ",
        "2026-06-18T11:02:15+0200 gpu-1 bash[7]: ",
        "2026-06-18T11:02:15.123456789Z [2026-06-18 11:02:16] ",
        "decode-1  | [2026-06-18 11:02:16] ",
        "2026-04-19 12:18:36.353 | [2026-06-18 11:02:16] ",
        "\u{1b}[32m[2026-06-18 11:02:16]\u{1b}[0m ",
    ] {
        let seen = log(&format!("{prefix}{line}"));
        assert_eq!(seen.text("tp_size").as_deref(), Some("2"), "{prefix:?}");
        assert!(seen.damaged.is_empty(), "{prefix:?}");
    }
    let coloured =
        "\u{1b}[1;36m(APIServer pid=7)\u{1b}[0;0m INFO 04-19 10:18:36 [utils.py:233] non-default args: {'port': 1}";
    assert_eq!(log(coloured).text("port").as_deref(), Some("1"));
    assert_eq!(
        log("INFO 04-19 10:18:36 utils.py:233] non-default args: {'port': 1}").text("port").as_deref(),
        Some("1")
    );
}

#[test]
fn a_choice_printed_late_belongs_to_the_start_that_runs() {
    let seen = log("server_args=ServerArgs(a=1)\nThe server is fired up and ready to roll!\nSetting b to 3.");
    assert_eq!((seen.starts.len(), seen.text("a").as_deref(), seen.text("b").as_deref()), (1, Some("1"), Some("3")));
}

#[test]
fn batches_and_warnings_of_an_earlier_start_do_not_count() {
    let seen = log("WARNING a.py:1: old\nserver_args=ServerArgs(a=1)\n\
                    Decode batch, #running-req: 1, accept rate: 0.50\n\
                    server_args=ServerArgs(a=2)\nWARNING a.py:1: new\n\
                    Decode batch, #running-req: 1, accept rate: 0.75");
    assert_eq!(seen.batches.acceptance, [0.75]);
    assert_eq!(seen.warnings.iter().map(|w| w.text.raw()).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn prompts_of_two_ranks_are_not_mixed_up() {
    let line = |dp: u32, new: u32, pending: u32| {
        format!(
            "[2026-06-18 11:02:16 DP{dp}] Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: 0, #pending-token: {pending}\n"
        )
    };
    let text = [line(0, 10, 5), line(1, 10, 7), line(0, 5, 0), line(1, 7, 0)].concat();
    assert_eq!(log(&text).batches.prompts, [(15, 0), (17, 0)]);
}

#[test]
fn loads_of_several_ranks() {
    let mut seen = Observed::default();
    seen.add_loads(
        "/v1/loads",
        &json!({"version": "1.2", "loads": [
        {"num_running_reqs": 2, "token_usage": 0.2}, {"num_running_reqs": 3, "token_usage": 0.6}]}),
    );
    assert_eq!(seen.text("num_running_reqs").as_deref(), Some("5"));
    assert_eq!(seen.text("token_usage").as_deref(), Some("0.6"));
    assert_eq!(seen.version().as_deref(), Some("1.2"));
    seen.add_loads("/v1/loads", &json!({"loads": "x"}));
    assert_eq!(seen.damaged.len(), 1);
}

#[test]
fn answers_of_another_kind_are_counted() {
    let mut seen = Observed::default();
    seen.add_server_info("/a", json!([1]));
    seen.add_model_info("/b", json!("x"));
    seen.add_props("/c", json!(null));
    assert_eq!((seen.damaged.len(), seen.values.len()), (3, 0));
}

#[test]
fn vllm_in_developer_mode() {
    let mut seen = Observed::default();
    seen.add_server_info(
        "/i",
        json!({"vllm_config": {"model_config": {"max_model_len": 4096}, "flag": 1}, "vllm_env": {"VLLM_X": "1"}}),
    );
    assert_eq!(seen.text("max_model_len").as_deref(), Some("4096"));
    assert!(seen.all("vllm_env").is_empty());
}

#[test]
fn lines_of_metrics() {
    for (line, expect) in [
        ("a:b_total 3", Some(("a:b_total", 0, 3.0))),
        ("a{x=\"1\",y=\"q\\\"}\\n\",} 2.5 1712345", Some(("a", 2, 2.5))),
        ("a{} +Inf", Some(("a", 0, f64::INFINITY))),
        ("a{x=\"1\"} 1 # {trace=\"t\"} 0.5", Some(("a", 1, 1.0))),
        ("a{x=\"1\" 1", None),
        ("a{x=1} 1", None),
        ("a", None),
        ("a x", None),
        ("1a 1", None),
        ("{x=\"1\"} 1", None),
    ] {
        let out = metrics::read(line);
        let got = out.samples.first().map(|s| (s.name.as_str(), s.labels.len(), s.value));
        assert_eq!(got, expect, "{line}");
        assert_eq!(out.damaged.is_empty(), expect.is_some(), "{line}");
    }
    let quoted = metrics::read("a{y=\"q\\\"}\\n\"} 1");
    assert_eq!(quoted.samples[0].labels[0].1, "q\"}\n");
}

#[test]
fn a_share_of_nothing_is_no_fact() {
    let text = "vllm:prefix_cache_queries_total 0\nvllm:prefix_cache_hits_total 0\nvllm:kv_cache_usage_perc NaN\n";
    assert_eq!(metrics::facts(&metrics::read(text)), []);
}

#[test]
fn metrics_of_llama_server_have_no_mark_of_an_engine_where_they_are_alone() {
    let mut seen = Observed::default();
    seen.add_metrics("/m", "llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n");
    assert_eq!(seen.text("num_running_reqs").as_deref(), Some("2"));
    assert_eq!(seen.text("num_waiting_reqs").as_deref(), Some("1"));
}

#[test]
fn ten_megabytes_in_one_line_are_bounded_and_counted() {
    let long = format!("server_args=ServerArgs(a=1, b='{}')", "x".repeat(10 << 20));
    let seen = log(&long);
    assert_eq!(seen.text("a").as_deref(), Some("1"));
    assert_eq!(seen.damaged[0].count, 1);
    assert!(serde_json::to_string(&seen).unwrap().len() < 1 << 20);
    let warning = log(&format!("[2026-06-18 11:02:16] ERROR a.py:1: {}", "é".repeat(5 << 20)));
    assert!(warning.warnings[0].text.raw().len() <= 2000 && warning.warnings[0].is_error);
    let mut metrics = Observed::default();
    metrics.add_metrics("/m", &"a".repeat(10 << 20));
    assert_eq!(metrics.damaged[0].count, 1);
}

#[test]
fn escapes_of_a_log_are_visible_in_remarks() {
    let seen = log("[2026-06-18 11:02:16] ERROR a.py:1: bad \u{1b}]0;title\u{7} \u{202e}end");
    let remarks = seen.remarks();
    assert_eq!(remarks[0].message, "bad ␛]0;title␇ \\u{202e}end");
}

#[test]
fn lines_that_are_nearly_right_are_counted_or_left_alone() {
    for (line, damaged) in [
        ("server_args=", 1),
        ("server_args=ServerArgs(a=1, b=", 1),
        ("non-default args: {'a': 1", 1),
        ("Initializing a V1 LLM engine (v1.0) with config: model='m', x={", 1),
        ("SpecDecoding metrics: Mean acceptance length: x", 1),
        ("SpecDecoding metrics: Per-position acceptance rate: 0.5, y", 1),
        ("Engine 000: Avg prompt throughput: 1.0 tokens/s, Running", 1),
        ("Prefill batch, #new-seq: 1, #new-tok", 1),
        ("the server_args were read", 0),
        ("Using", 0),
        ("GPU KV cache size: many", 0),
        ("", 0),
    ] {
        assert_eq!(log(line).damaged.iter().map(|d| d.count).sum::<usize>(), damaged, "{line}");
    }
}

#[test]
fn load_lines_of_vllm() {
    let text = "(APIServer pid=1) INFO 05-02 20:43:19 [loggers.py:1] Engine 000: Avg prompt throughput: 12.0 tokens/s, \
                Avg generation throughput: 3.5 tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 4.5%, \
                Prefix cache hit rate: 12.5%";
    let reading = crate::serving::log_grammar::read_log(text);
    let (line, pairs) = reading.load.unwrap();
    assert_eq!(line, 1);
    assert!(pairs.contains(&("Prefix cache hit rate".into(), "12.5%".into())), "{pairs:?}");
    let seen = log(text);
    for (name, value) in
        [("num_running_reqs", "2"), ("num_waiting_reqs", "1"), ("token_usage", "0.045"), ("cache_hit_rate", "0.125")]
    {
        assert_eq!(seen.text(name).as_deref(), Some(value), "{name}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let names =
            prop_oneof!["internal_states", "loads", "default_generation_settings", "params", "api_key", "[a-z_]{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        let mut seen = log(&text);
        seen.add_metrics("/m", &text);
    }

    #[test]
    fn lines_that_begin_well_are_read_without_a_panic(head in prop::sample::select(vec![
        "[2026-06-18 11:02:16 TP0] ", "(EngineCore pid=1) INFO 04-19 10:18:36 [a.py:1] ", "Jun 18 11:02:15 h bash[1]: ",
        "server_args=ServerArgs(", "non-default args: {", "Prefill batch, ", "SpecDecoding metrics: ", "a{", "Setting ",
        "Initializing a V1 LLM engine (v1) with config: ", "2026-04-19 12:18:36.353 | ", "\u{1b}[", "Using ",
    ]), tail in ".{0,80}", next in ".{0,20}") {
        let mut seen = log(&format!("{head}{tail}\n{next}\n{head}{head}{tail}"));
        seen.add_metrics("/m", &format!("{head}{tail}"));
    }

    #[test]
    fn numbers_of_any_size_are_added_without_a_panic(a in any::<u64>(), b in any::<u64>()) {
        let line = format!("Prefill batch, #new-seq: 1, #new-token: {a}, #cached-token: {b}, #pending-token: {b}\n");
        let _ = log(&line.repeat(3));
    }

    #[test]
    fn any_answer_is_read_without_a_panic(answer in any_json()) {
        let mut seen = Observed::default();
        seen.add_server_info("/i", answer.clone());
        seen.add_model_info("/m", answer.clone());
        seen.add_props("/p", answer.clone());
        seen.add_loads("/l", &answer);
        let _ = crate::truth::compare::window(&seen);
        let _ = crate::truth::compare::CheckpointFacts::read("config.json", &answer);
    }
}
