use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::procedure::ProcessKey;

fn at(s: f64) -> Timestamp {
    Timestamp::from_millisecond((s * 1000.0) as i64).unwrap()
}

/// Feeds lines that come a second apart; gives the words after each that told something.
fn follow(engine: ServingEngine, lines: &[&str]) -> (Loading, Vec<String>) {
    let mut loading = Loading::new(engine, at(0.0));
    let mut said = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if loading.take(line, at(i as f64 + 1.0)) {
            said.push(if loading.is_ready() { "ready".to_owned() } else { loading.words() });
        }
    }
    (loading, said)
}

const SGLANG: &str = "\
[2026-05-15 09:09:22] server_args=ServerArgs(model_path='/models/DeepSeek-V4-Flash-Base', tp_size=8)
[2026-05-15 09:09:36 TP0] Load weight begin. avail mem=93.61 GB
[2026-05-15 09:09:36 TP1] Load weight begin. avail mem=93.56 GB
Loading safetensors checkpoint shards:   0% Completed | 0/46 [00:00<?, ?it/s]
Loading safetensors checkpoint shards:  26% Completed | 12/46 [00:09<00:25,  1.33it/s]
[2026-05-15 09:09:53 TP0] Load weight end. elapsed=17.1 s, type=DeepseekV4ForCausalLM, dtype=torch.bfloat16
[2026-05-15 09:09:53 TP0] Memory profiling: available_gpu_memory=57.01 GB, total_gpu_memory=93.58 GB
[2026-05-15 09:09:53 TP0] KV Cache is allocated. #tokens: 1317632, K size: 1.52 GB, V size: 1.52 GB
[2026-05-15 09:09:53 TP0] Memory pool end. avail mem=36.31 GB
[2026-05-15 09:09:53 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=36.25 GB
[2026-05-15 09:09:53 TP1] Load weight end. elapsed=17.2 s, type=DeepseekV4ForCausalLM
[2026-05-15 09:09:54 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)
\r  0%|          | 0/52 [00:00<?, ?it/s]\rCapturing batches (bs=160 avail_mem=36.2 GB):  23%|██▎       | 12/52 [00:10<00:34,  1.15it/s]
[2026-05-15 09:10:49 TP0] Capture cuda graph end. Time elapsed: 55.46 s. mem usage=1.93 GB. avail mem=34.28 GB.
[2026-05-15 09:10:50] INFO:     Started server process [889167]
[2026-05-15 09:10:50] INFO:     127.0.0.1:38328 - \"GET /get_model_info HTTP/1.1\" 200 OK
[2026-05-15 09:10:53] The server is fired up and ready to roll!
[2026-05-15 09:10:54 TP0] Load weight begin. avail mem=93.61 GB";

const VLLM: &str = "\
2026-04-19 12:18:36.356 | (APIServer pid=1) INFO 04-19 10:18:36 [utils.py:233] non-default args: {'model_tag': 'x'}
(EngineCore pid=207) INFO 04-19 10:19:24 [gpu_model_runner.py:4735] Starting to load model RedHatAI/Qwen3.6-35B...
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:04<00:04,  4.01s/it]
(EngineCore pid=207) INFO 04-19 10:19:40 [default_loader.py:384] Loading weights took 12.93 seconds
(EngineCore pid=207) INFO 04-19 10:19:41 [gpu_model_runner.py:4820] Model loading took 20.41 GiB memory and 14.2 seconds
(EngineCore pid=207) INFO 04-19 10:19:53 [backends.py:988] Using cache directory: /root/.cache/vllm/torch_compile_cache
(EngineCore pid=207) INFO 04-19 10:20:20 [gpu_worker.py:437] Available KV cache memory: 0.67 GiB
(EngineCore pid=207) INFO 04-19 10:20:20 [kv_cache_utils.py:1319] GPU KV cache size: 12,624 tokens
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|████▌     | 23/51 [00:02<00:02, 11.9it/s]
Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35 [00:02<00:00, 13.2it/s]
(EngineCore pid=207) INFO 04-19 10:20:26 [gpu_model_runner.py:6053] Graph capturing finished in 6 secs, took 0.38 GiB
(APIServer pid=1) INFO 04-19 10:20:27 [api_server.py:1870] Starting vLLM API server 0 on http://0.0.0.0:8000
(APIServer pid=1) INFO:     Application startup complete.";

const LLAMA: &str = "\
main: loading model
load_tensors: loading model tensors, this can take a while... (mmap = true)
....................................................................................................
llama_context: constructing llama_context
llama_kv_cache:      CUDA0 KV buffer size =   896.00 MiB
common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
main: model loaded
main: server is listening on http://127.0.0.1:8080 - starting the main loop";

#[test]
fn each_engine_tells_its_phases() {
    let check = |engine, log: &str, expect: &[&str]| {
        let lines: Vec<&str> = log.split('\n').collect();
        assert_eq!(follow(engine, &lines).1, expect);
    };
    check(
        ServingEngine::Sglang,
        SGLANG,
        &[
            "loading weights",
            "loading weights 0 % (0/46)",
            "loading weights 26 % (12/46)",
            "allocating the KV cache",
            "capturing CUDA graphs",
            "capturing CUDA graphs 23 % (12/52)",
            "warming up",
            "ready",
        ],
    );
    check(
        ServingEngine::Vllm,
        VLLM,
        &[
            "loading weights",
            "loading weights 50 % (1/2)",
            "allocating the KV cache",
            "compiling kernels",
            "allocating the KV cache",
            "capturing CUDA graphs",
            "capturing CUDA graphs 100 % (35/35)",
            "warming up",
            "ready",
        ],
    );
    check(ServingEngine::LlamaServer, LLAMA, &["loading weights", "allocating the KV cache", "warming up", "ready"]);
}

#[test]
fn real_logs_tell_their_phases() {
    let check = |engine, text: &str, expect: &[&str]| {
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(follow(engine, &lines).1, expect);
    };
    let dsv4 = include_str!("../../tests/artefacts/A22_sglang_startup_dsv4.log");
    check(ServingEngine::Sglang, dsv4, &["loading weights", "allocating the KV cache", "warming up", "ready"]);
    check(ServingEngine::Sglang, include_str!("../../tests/artefacts/A21_sglang_server_args_line.log"), &[]);
    check(ServingEngine::Sglang, include_str!("../../tests/artefacts/A23_sglang_batch_lines.log"), &[]);
    check(ServingEngine::Vllm, include_str!("../../tests/artefacts/A24_vllm_startup_nondefault.log"), &[]);
}

#[test]
fn lines_that_tell_nothing_change_nothing() {
    for line in [
        "",
        "\r",
        "100%",
        "| 1/2 [",
        "Loading safetensors checkpoint shards: 26% Completed | 12/0 [",
        "Loading safetensors checkpoint shards: 26% Completed | 13/12 [",
        "Loading safetensors checkpoint shards: 26% Completed | x/y [",
        "Loading safetensors checkpoint shards: 26% Completed | 99999999999999999999/46 [",
        "[2026-05-15 09:10:53] Decode batch, #running-req: 1, accept rate: 12%| 3/4",
    ] {
        let mut loading = Loading::new(ServingEngine::Sglang, at(0.0));
        let before = loading.clone();
        assert!(!loading.take(line, at(1.0)) && loading == before, "{line:?}");
    }
}

#[test]
fn what_is_left_follows_from_the_share_and_from_the_start_before() {
    use LoadPhase::{Graphs, Launch, Memory, Warmup, Weights};
    let earlier = [(Launch, 10.0), (Weights, 100.0), (Memory, 1.0), (Graphs, 60.0), (Warmup, 4.0)];
    let begin = "[2026-05-15 09:09:36 TP0] Load weight begin.";
    let quarter = "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:40<02:00, 40.00s/it]";
    let check = |lines: &[(f64, &str)], earlier: &[(LoadPhase, f64)], now: f64, expect: Left, words: &str| {
        let mut loading = Loading::new(ServingEngine::Sglang, at(0.0));
        for (when, line) in lines {
            loading.take(line, at(*when));
        }
        let left = loading.left(earlier, at(now));
        assert_eq!((left, left.words().as_str()), (expect, words));
    };
    let graphs = "[2026-05-15 09:09:53 TP0] Capture cuda graph begin.";
    check(&[], &[], 3.0, Left::Unknown, "how long is not known yet");
    check(&[], &earlier, 4.0, Left::Seconds(171.0), "about 2m51s to go");
    check(&[(5.0, begin)], &[], 9.0, Left::Unknown, "how long is not known yet");
    check(&[(5.0, begin)], &earlier, 45.0, Left::Seconds(125.0), "about 2m05s to go");
    // The share of this start counts before the time of the one before.
    check(&[(5.0, begin), (45.0, quarter)], &earlier, 45.0, Left::Seconds(185.0), "about 3m05s to go");
    let phase = "about 2m00s to go in this phase, the rest is not known yet";
    check(&[(5.0, begin), (45.0, quarter)], &[], 45.0, Left::Phase(120.0), phase);
    check(&[(5.0, begin)], &earlier, 106.0, Left::Overdue, "longer than the last start");
    // A draft model loads its weights after the graphs of the large one.
    let draft = [&earlier[..4], &[(Weights, 20.0), (Graphs, 5.0), (Warmup, 4.0)]].concat();
    let twice = [(5.0, begin), (20.0, graphs), (30.0, begin)];
    check(&twice, &draft, 35.0, Left::Seconds(24.0), "about 24s to go");
}

#[test]
fn the_times_of_a_start_come_back_from_its_proof() {
    let lines: Vec<&str> = SGLANG.split('\n').collect();
    let (loading, _) = follow(ServingEngine::Sglang, &lines);
    let proof = BootProof {
        target: "decode".into(),
        process: ProcessKey { pid: 1, start_ticks: 1 },
        started_at: at(0.0),
        proven_at: at(20.0),
        levels: BTreeMap::new(),
        unverified: BTreeMap::new(),
        readable_env: false,
        evidence: loading.evidence("decode.log"),
    };
    assert_eq!(times_of(&proof), loading.times());
    let names: Vec<&str> = proof.evidence.iter().map(|e| e.about.as_str()).collect();
    assert_eq!(names, ["load:launch", "load:weights", "load:memory", "load:graphs", "load:warm-up"]);
    let total: f64 = loading.times().iter().map(|(_, s)| s).sum();
    assert_eq!(total, 17.0, "the phases fill the time until the server is ready");
    let broken = |seen: &str| {
        let evidence = vec![Evidence { about: "load:weights".into(), seen: seen.into(), source: "x".into() }];
        times_of(&BootProof { evidence, ..proof.clone() })
    };
    for seen in ["", "s", "NaN s", "-1 s", "inf s", "12"] {
        assert!(broken(seen).is_empty(), "{seen}");
    }
}

proptest! {
    #[test]
    fn any_text_is_taken_and_bounded(lines in prop::collection::vec(".{0,80}|.*%.*\\|[0-9]{0,20}/[0-9]{0,20} \\[|Load weight begin|Capture cuda graph begin", 0..300)) {
        for engine in [ServingEngine::Sglang, ServingEngine::Vllm, ServingEngine::LlamaServer] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let (loading, _) = follow(engine, &lines);
            prop_assert!(loading.begun().len() <= MOST);
            prop_assert!(loading.share().is_none_or(|s| (0.0..=1.0).contains(&s.value())));
            prop_assert!(loading.times().iter().all(|(_, s)| *s >= 0.0));
            let left = loading.left(&loading.times(), at(1e6));
            prop_assert!(!left.words().is_empty());
        }
    }
}
