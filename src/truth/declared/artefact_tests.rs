//! Every declared artefact, with all that a correct reading of it must yield.

use super::command::{model, shown};
use super::container::{Asked, Container};
use super::systemd::{Unit, UnitFiles};
use super::*;
use crate::remote::script;
use crate::truth::compare::{self, Layers};

fn artefact(name: &str) -> String {
    fs_err::read_to_string(format!("{}/tests/artefacts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn of_script(name: &str) -> Declared {
    script::declared(&script::parse(&artefact(name)).unwrap(), name, None)
}

/// What a reading must say of one name.
#[derive(Clone, Copy, Debug)]
enum Is<'a> {
    /// This text, on this line.
    Text(&'a str, u32),
    /// Not known; the reason holds this.
    Unknown(&'a str, u32),
    /// Taken away, on this line.
    Unset(u32),
    /// Not spoken of.
    Missing,
}
use Is::{Missing, Text as Known, Unknown, Unset};

fn check_one(name: &str, found: Option<(Option<&Text>, &Place)>, expect: Is<'_>) {
    match (found, expect) {
        (Some((Some(Text::Known(text)), place)), Known(expect, line)) => {
            assert_eq!((text.as_str(), place.line), (expect, line), "{name}");
        }
        (Some((Some(Text::Unresolved { because, .. }), place)), Unknown(expect, line)) => {
            assert!(because.contains(expect), "{name}: {because}");
            assert_eq!(place.line, line, "{name}");
        }
        (Some((None, place)), Unset(line)) => assert_eq!(place.line, line, "{name}"),
        (None, Missing) => {}
        (found, expect) => panic!("{name}: {found:?} is not {expect:?}"),
    }
}

fn check(declared: &Declared, expect: &[(&str, Is<'_>)]) {
    for (name, is) in expect {
        let found = if name.starts_with('-') {
            declared.flags.iter().find(|f| f.name == *name).map(|f| (Some(&f.value), &f.place))
        } else {
            declared.variables.get(*name).map(|v| (v.value.as_ref(), &v.place))
        };
        check_one(name, found, *is);
    }
}

fn check_counts(declared: &Declared, variables: usize, flags: usize) {
    let names: Vec<&str> = declared.flags.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        (declared.variables.len(), names.len()),
        (variables, flags),
        "{:?} {names:?}",
        declared.variables.keys()
    );
}

fn check_remark(declared: &Declared, code: &str, part: &str) {
    let found = declared.diagnostics.iter().any(|d| d.code == code && d.message.contains(part));
    assert!(found, "no {code} with {part}: {:#?}", declared.diagnostics);
}

/// Nothing of a secret is in what reaches rows, remarks and shown command lines.
fn check_secret(declared: &Declared, secret: &str) {
    let layers = Layers { target: "t".into(), declared: Some(declared.clone()), ..Layers::default() };
    let rows = compare::rows(&layers, &[]);
    let all = format!(
        "{} {rows:?} {} {:?}",
        serde_json::to_string(&rows).unwrap(),
        serde_json::to_string(&declared.diagnostics).unwrap(),
        shown(declared)
    );
    assert!(!all.contains(secret), "{secret} in {all}");
}

fn run_container(name: &str) -> Container {
    let text = artefact(name);
    let script = script::parse(&text).unwrap();
    let all = script::containers(&script, name);
    assert_eq!(all.len(), 1);
    all.into_iter().next().unwrap()
}

fn said(setting: Option<&Setting>) -> &Text {
    &setting.unwrap().value
}

#[test]
fn a01_exports_and_a_sourced_file() {
    let read = of_script("A01_sglang_decode_exports.sh");
    check_counts(&read, 3, 14);
    check(
        &read,
        &[
            ("SGLANG_SM120_MMA_FLASHMLA", Known("1", 4)),
            ("SGLANG_SM120_TRITON_INDEXER", Known("1", 5)),
            ("CUDA_HOME", Known("/usr/local/cuda", 6)),
            ("--model-path", Known("/models/DeepSeek-V4-Flash-NVFP4", 9)),
            ("--served-model-name", Known("deepseek-v4-flash", 9)),
            ("--host", Known("0.0.0.0", 10)),
            ("--port", Known("30002", 10)),
            ("--disaggregation-mode", Known("decode", 10)),
            ("--tp", Known("4", 11)),
            ("--base-gpu-id", Known("4", 11)),
            ("--moe-runner-backend", Known("triton", 12)),
            ("--mem-fraction-static", Known("0.85", 12)),
            ("--enable-metrics", Known("", 12)),
            ("--cuda-graph-max-bs", Known("32", 13)),
            ("--context-length", Known("524288", 13)),
            ("--reasoning-parser", Known("deepseek-v4", 14)),
            ("--tool-call-parser", Known("deepseekv4", 14)),
        ],
    );
    assert_eq!(read.blind_to.as_deref(), Some("what lines 7 bring in"));
}

#[test]
fn a02_environment_of_one_command() {
    let read = of_script("A02_sglang_env_prefix.sh");
    check_counts(&read, 3, 11);
    check(
        &read,
        &[
            ("SGLANG_OPT_FP8_WO_A_GEMM", Known("False", 1)),
            ("SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT", Known("1", 2)),
            ("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", Known("1", 3)),
            ("--mem-fraction-static", Known("0.88", 15)),
            ("--speculative-algo", Known("EAGLE", 10)),
            ("--trust-remote-code", Known("", 5)),
            ("--model-path", Known("./models/DeepSeek-V4-Pro", 6)),
        ],
    );
    assert_eq!(remarks::switched("False"), Some(false));
    assert_eq!(flags::key("--speculative-algo"), "speculative_algorithm");
    assert_eq!(argv::identity(&read.argv).as_deref(), Some("sglang serve"));
}

#[test]
fn a03_the_second_export_counts_and_comments_give_nothing() {
    let read = of_script("A03_sglang_dup_export_inline_comments.sh");
    check_counts(&read, 12, 14);
    check(
        &read,
        &[
            ("SGLANG_HACK_FLASHMLA_BACKEND", Known("tilelang", 9)),
            ("SGLANG_OPT_USE_FUSED_COMPRESS", Known("false", 4)),
            ("SGLANG_OPT_USE_OLD_COMPRESSOR", Known("true", 5)),
            ("SGLANG_OPT_USE_FUSED_HASH_TOPK", Known("false", 6)),
            ("SGLANG_OPT_DEEPGEMM_HC_PRENORM", Known("false", 10)),
            ("SGLANG_FORCE_TRITON_MOE_FP8", Known("1", 17)),
            ("CUDA_VISIBLE_DEVICES", Missing),
            ("--max-running-request", Known("256", 27)),
            ("--attention-backend", Known("compressed", 26)),
            ("--chunked-prefill-size", Known("8192", 29)),
            ("--tp", Known("8", 22)),
            ("--dp", Known("8", 23)),
            ("--enable-dp-attention", Known("", 24)),
            ("--ep", Missing),
            ("--disable-cuda-graph", Missing),
        ],
    );
    let all: Vec<u32> = read.variables["SGLANG_HACK_FLASHMLA_BACKEND"].all.iter().map(|(p, _)| p.line).collect();
    assert_eq!(all, [8, 9]);
    assert_eq!(flags::key("--max-running-request"), "max_running_requests");
    check_remark(&read, "asked-only", "1024 a rank");
}

#[test]
fn a05_a_flag_given_twice_in_a_container() {
    let container = run_container("A05_docker_run_duplicate_flag.sh");
    let read = &container.declared;
    assert_eq!(said(container.image.as_ref()), &Text::Known("lmsysorg/sglang:latest".into()));
    assert_eq!(said(container.gpus.as_ref()), &Text::Known("\"device=0,1,2,3,4,5,6,7\"".into()));
    assert_eq!(container.ports[0].value, Text::Known("8000:8000".into()));
    check_counts(read, 3, 14);
    check(
        read,
        &[
            ("OMP_NUM_THREADS", Known("1", 4)),
            ("PYTORCH_CUDA_ALLOC_CONF", Known("expandable_segments:True", 5)),
            ("HF_TOKEN", Known("hf_REDACTED", 6)),
            ("--model-path", Known("Qwen/QwQ-32B", 11)),
            ("--attention-backend", Known("flashinfer", 17)),
            ("--chat-template", Known("qwen2-vl", 16)),
            ("--mem-fraction-static", Known("0.7", 24)),
            ("--shm-size", Missing),
            ("--gpus", Missing),
            ("--ipc", Missing),
            ("-v", Missing),
            ("-p", Missing),
        ],
    );
    check_remark(read, "given-twice", "triton, flashinfer");
    check_remark(read, "chat-template", "`qwen2-vl` is not named after the model `Qwen/QwQ-32B`");
    check_secret(read, "hf_REDACTED");
    assert_eq!(of_script("A05_docker_run_duplicate_flag.sh"), *read);
}

#[test]
fn a06_defaults_and_lists_in_a_container() {
    let container = run_container("A06_docker_run_nargs_defaults.sh");
    let read = &container.declared;
    let is = |setting: Option<&Setting>, default: &str| {
        let place = setting.unwrap();
        check_one(default, Some((Some(&place.value), &place.place)), Unknown(default, place.place.line));
    };
    is(container.image.as_ref(), "`lmsysorg/sglang:dev-cu13` where it is not set");
    is(container.name.as_ref(), "`glm52_dpa` where it is not set");
    assert_eq!(said(container.network.as_ref()), &Text::Known("host".into()));
    check_counts(read, 7, 21);
    check(
        read,
        &[
            ("HF_HUB_OFFLINE", Known("1", 7)),
            ("NCCL_P2P_LEVEL", Known("SYS", 8)),
            ("NCCL_MIN_NCHANNELS", Known("8", 8)),
            ("NCCL_SOCKET_IFNAME", Known("eth0,eth1", 9)),
            ("GLOO_SOCKET_IFNAME", Known("eth1", 9)),
            ("PYTORCH_CUDA_ALLOC_CONF", Known("expandable_segments:True", 10)),
            ("SGLANG_DISABLE_DSA_INDEXER_FUSION", Known("1", 11)),
            ("--model-path", Unknown("`CKPT` comes from the host; `nvidia/GLM-5.2-NVFP4` where it is not set", 14)),
            ("--cuda-graph-bs", Known("16 32 48 64", 21)),
            ("--dsa-prefill-backend", Known("trtllm", 18)),
            ("--dsa-decode-backend", Known("trtllm", 18)),
            ("--chunked-prefill-size", Known("2048", 20)),
            ("--context-length", Known("9472", 21)),
            ("--name", Missing),
        ],
    );
    assert!(flags::same("16 32 48 64", &serde_json::json!([16, 32, 48, 64])));
}

#[test]
fn a07_an_array_and_what_is_computed() {
    let read = of_script("A07_bash_array_launch.sh");
    check_counts(&read, 4, 16);
    check(
        &read,
        &[
            ("MODEL_PATH", Known("zai-org/GLM-5.2-FP8", 4)),
            ("PYTHONNOUSERSITE", Known("1", 5)),
            ("SGLANG_DSA_FUSE_TOPK", Known("false", 6)),
            ("SGLANG_OPT_USE_TOPK_V2", Known("false", 7)),
            ("--model-path", Known("zai-org/GLM-5.2-FP8", 15)),
            ("--port", Unknown("`8888` where it is not set", 18)),
            ("--tp", Unknown("`8` where it is not set", 20)),
            ("--dsa-topk-backend", Known("torch", 24)),
            ("--kv-cache-dtype", Known("bfloat16", 25)),
            ("--max-running-requests", Unknown("computed, and `CONC` comes from the host; `16`", 28)),
            ("--cuda-graph-max-bs", Unknown("line 11 may change `CUDA_GRAPH_MAX_BS`", 29)),
            ("--enable-metrics", Known("", 30)),
        ],
    );
    assert!(!read.argv.iter().flatten().any(|w| w.contains("server.log") || w == "&" || w.contains("portable")));
}

#[test]
fn a09_unset_and_derived() {
    let read = of_script("A09_vllm_unset_derived.sh");
    check_counts(&read, 8, 15);
    check(
        &read,
        &[
            ("VLLM_DISABLED_KERNELS", Unset(3)),
            ("VLLM_IFACE", Known("eth2", 5)),
            ("NCCL_SOCKET_IFNAME", Known("eth2", 6)),
            ("GLOO_SOCKET_IFNAME", Known("eth2", 7)),
            ("NCCL_IB_DISABLE", Known("0", 8)),
            ("VLLM_HOST_IP", Known("192.0.2.10", 9)),
            ("MODEL_PATH", Unknown("`HOME` comes from the host", 11)),
            ("--model", Unknown("`HOME` comes from the host", 18)),
            ("--data-parallel-address", Known("192.0.2.10", 16)),
            ("--max-model-len", Known("262144", 20)),
            ("--attention-backend", Known("triton_attn", 23)),
            ("--enable-prefix-caching", Known("", 25)),
            ("--kv-cache-dtype", Known("fp8", 28)),
        ],
    );
}

#[test]
fn a10_wrappers_are_skipped() {
    let read = of_script("A10_vllm_nohup_numactl.sh");
    check_counts(&read, 3, 8);
    check(
        &read,
        &[
            ("CUDA_VISIBLE_DEVICES", Known("4", 3)),
            ("PYTHONUNBUFFERED", Known("1", 4)),
            ("HF_HOME", Known("/scratch/ops/.cache", 5)),
            ("--enforce-eager", Known("", 16)),
            ("--speculative-config", Known("{\"method\":\"mtp\",\"num_speculative_tokens\":2}", 14)),
            ("--membind", Missing),
            ("--cpunodebind", Missing),
            ("-c", Missing),
        ],
    );
    assert_eq!(model(&read), Some(Text::Known("example-org/guard-qwen3-15b-bf16-272k".into())));
    assert_eq!(argv::identity(&read.argv).as_deref(), Some("vllm serve"));
}

fn chosen(all: &super::container::Containers) -> &Container {
    all.chosen().unwrap_or_else(|| panic!("{:#?}", all.diagnostics))
}

#[test]
fn a13_entrypoint_and_folded_command() {
    let all =
        compose::read(&artefact("A13_compose_entrypoint_folded.yaml"), "c.yaml", Asked::default(), &Files::default());
    let container = chosen(&all);
    let read = &container.declared;
    let expect =
        ["python3", "-m", "sglang.launch_server", "--model-path", "…", "--host", "0.0.0.0", "--port", "30000", "…"];
    assert_eq!(shown(read), expect);
    check_counts(read, 2, 3);
    check(
        read,
        &[
            ("SGLANG_ENABLE_JIT_DEEPGEMM", Known("0", 11)),
            ("HF_TOKEN", Unknown("`HF_TOKEN` comes from the host", 10)),
            ("--model-path", Unknown("`SGLANG_MODEL` comes from the host; `Qwen/Qwen3-8B` where it is not set", 14)),
            ("--host", Known("0.0.0.0", 15)),
            ("--port", Known("30000", 16)),
        ],
    );
    check_remark(read, "hidden-flags", "`${SGLANG_EXTRA_ARGS}` may bring further flags");
    assert!(matches!(said(container.image.as_ref()), Text::Unresolved { because, .. } if because.contains("`v0.5.9`")));
    let [cache] = &container.volumes[..] else { panic!("{:?}", container.volumes) };
    assert!(matches!(&cache.value, Text::Unresolved { raw, .. } if raw == "${HF_CACHE}:/root/.cache/huggingface"));
    check_remark(read, "volume", "`HF_CACHE` comes from the host");
    let given = Files::default().with(".env", FileText::Read("HF_TOKEN=hunter2\nSGLANG_MODEL=m\n".into()));
    let all = compose::read(&artefact("A13_compose_entrypoint_folded.yaml"), "c.yaml", Asked::default(), &given);
    check(&chosen(&all).declared, &[("--model-path", Unknown("`m` of `.env` where it is not set there", 14))]);
    check_secret(&chosen(&all).declared, "hunter2");
}

#[test]
fn a14_a_shell_text_in_a_block() {
    let asked = Asked { port: Some(8003), name: None };
    let all = compose::read(&artefact("A14_compose_bash_c_block.yaml"), "c.yaml", asked, &Files::default());
    let read = &chosen(&all).declared;
    check_counts(read, 3, 14);
    check(
        read,
        &[
            ("VLLM_LOGGING_LEVEL", Known("INFO", 6)),
            ("VLLM_USE_DEEP_GEMM", Known("0", 7)),
            ("NCCL_DEBUG", Known("WARN", 8)),
            ("--max-model-len", Known("393216", 17)),
            ("--max-num-batched-tokens", Known("8196", 18)),
            ("--max-num-seqs", Known("8", 19)),
            ("--kv-cache-dtype", Known("fp8", 20)),
            ("--tensor-parallel-size", Known("8", 21)),
            ("--port", Known("8003", 22)),
            ("--enable-chunked-prefill", Known("", 24)),
            ("--tool-call-parser", Known("hermes", 27)),
        ],
    );
}

#[test]
fn a16_a_deployment() {
    let all = kubernetes::read(&artefact("A16_k8s_vllm_deployment.yaml"), "k.yaml", Asked::default());
    let container = chosen(&all);
    let read = &container.declared;
    check_counts(read, 3, 7);
    check(
        read,
        &[
            ("VLLM_PORT", Known("8000", 28)),
            ("VLLM_ATTENTION_BACKEND", Known("FLASHINFER", 30)),
            ("HUGGING_FACE_HUB_TOKEN", Unknown("it comes from a secret: key `token` of `hf-token-secret`", 33)),
            ("--model", Known("meta-llama/Llama-3.2-3B-Instruct", 13)),
            ("--enable-auto-tool-choice", Known("", 15)),
            ("--port", Known("8000", 20)),
            ("--dtype", Known("half", 22)),
            ("--max-model-len", Known("8192", 24)),
        ],
    );
    check_remark(read, "vllm-port", "not the port of its HTTP server");
    check_remark(read, "ignored-variable", "set and ignored by vLLM 0.19");
    assert_eq!(read.blind_to.as_deref(), Some("what the image sets by itself"));
}

#[test]
fn a17_a_leader_worker_set() {
    let all = kubernetes::read(&artefact("A17_k8s_lws_sglang.yaml"), "k.yaml", Asked { port: Some(40000), name: None });
    let container = chosen(&all);
    let read = &container.declared;
    assert_eq!(said(container.network.as_ref()), &Text::Known("host".into()));
    check_counts(read, 1, 11);
    check(
        read,
        &[
            ("NCCL_IB_GID_INDEX", Known("3", 17)),
            ("--tp", Known("16", 30)),
            ("--mem-fraction-static", Known("0.93", 24)),
            ("--cuda-graph-bs", Known("16 32", 32)),
            ("--dist-init-addr", Unknown("`LWS_LEADER_ADDRESS` is not set in this manifest", 35)),
            ("--nnodes", Unknown("`LWS_GROUP_SIZE`", 37)),
            ("--node-rank", Unknown("`LWS_WORKER_INDEX`", 39)),
            ("--trust-remote-code", Known("", 41)),
            ("--port", Known("40000", 42)),
        ],
    );
}

fn a19(named: Files) -> Unit {
    let path = |name: &str| format!("/etc/systemd/system/{name}");
    let text = |name: &str| artefact(&format!("A19_systemd_dropin/{name}"));
    let drop_ins = ["vllm.service.d/90-prefix-cache.conf", "vllm.service.d/10-env.conf"];
    let files = UnitFiles {
        name: "vllm.service".into(),
        main: (path("vllm.service"), text("vllm.service")),
        drop_ins: drop_ins.iter().map(|n| (path(n), text(n))).collect(),
        named,
    };
    systemd::read(&files, Some(8000))
}

#[test]
fn a19_a_unit_with_drop_ins() {
    let unit = a19(
        Files::default().with("/etc/default/vllm", FileText::Read(artefact("A19_systemd_dropin/etc_default_vllm")))
    );
    let read = &unit.declared;
    check_counts(read, 8, 6);
    check(
        read,
        &[
            ("VLLM_MAX_MODEL_LEN", Known("32768", 2)),
            ("VLLM_GPU_MEMORY_UTILIZATION", Known("0.92", 10)),
            ("VLLM_MODEL", Known("example/Mistral-Small-24B-AWQ", 9)),
            ("VLLM_SPECULATIVE", Known("{\"method\":\"mtp\",\"num_speculative_tokens\":1}", 3)),
            ("VLLM_EXTRA_ARGS", Known("--enforce-eager", 4)),
            ("VLLM_USE_FLASHINFER_SAMPLER", Known("0", 2)),
            ("VLLM_LOGGING_LEVEL", Known("DEBUG", 3)),
            ("VLLM_COMMENTED", Known("yes # not a comment in an EnvironmentFile", 5)),
            ("VLLM_NOT_READ", Missing),
            ("--model", Known("Qwen/Qwen2.5-7B-Instruct-AWQ", 5)),
            ("--port", Known("8000", 6)),
            ("--enable-prefix-caching", Known("", 7)),
            ("--gpu-memory-utilization", Known("0.90", 8)),
            ("--max-model-len", Known("16384", 9)),
            ("--kv-cache-dtype", Known("auto", 10)),
        ],
    );
    assert!(read.flag("--max-model-len").unwrap().place.file.ends_with("90-prefix-cache.conf"));
    assert_eq!(read.variables["VLLM_MAX_MODEL_LEN"].place.file, "/etc/default/vllm");
    assert_eq!(read.variables["VLLM_MAX_MODEL_LEN"].all.len(), 2);
    check_remark(read, "unit-environment", "`--no-enable-prefix-caching` is no assignment");
    check_remark(read, "env-file-line", "`export VLLM_NOT_READ`");
    // The commands that used them were taken away; the others are read by the server itself.
    check_remark(read, "unused-variable", "`VLLM_MAX_MODEL_LEN` is used by no command of the unit any more");
    check_remark(read, "unused-variable", "/etc/systemd/system/vllm.service:12 was taken away");
    let unused = read.diagnostics.iter().filter(|d| d.code == "unused-variable");
    assert_eq!(unused.count(), 3, "model, length and memory: {:#?}", read.diagnostics);
    check_remark(read, "unit-section", "`StartLimitIntervalSec` belongs into [Unit]");
    let facts = &unit.facts;
    assert_eq!(facts.start_limit_interval, None);
    let text = |s: &Option<Setting>| s.as_ref().and_then(|s| s.value.known().map(str::to_owned));
    for (setting, expect) in [
        (&facts.start_limit_burst, "12"),
        (&facts.user, "ops"),
        (&facts.working_directory, "/srv/vllm"),
        (&facts.restart, "on-failure"),
        (&facts.restart_after, "30"),
        (&facts.kind, "simple"),
        (&facts.program, "/usr/bin/python3"),
    ] {
        assert_eq!(text(setting).as_deref(), Some(expect));
    }
    assert_eq!(argv::identity(&read.argv).as_deref(), Some("-m vllm.entrypoints.openai.api_server"));
}

#[test]
fn a19_without_its_file_of_variables_is_not_known() {
    let unread = a19(Files::default());
    check(&unread.declared, &[("VLLM_MAX_MODEL_LEN", Unknown("`/etc/default/vllm` was not read", 11))]);
    // The file may be missing: then the unit's own value counts.
    let absent = a19(Files::default().with("/etc/default/vllm", FileText::Absent));
    check(&absent.declared, &[("VLLM_MAX_MODEL_LEN", Known("65536", 10))]);
}
