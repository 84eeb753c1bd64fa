//! Scripts of the artefacts, and overrides run by a real bash with stub programs.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command as Process;

use proptest::prelude::*;

use super::*;
use crate::truth::declared::Declared;

fn artefact(name: &str) -> String {
    fs_err::read_to_string(format!("{}/tests/artefacts/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn read(text: &str) -> Declared {
    declared(&parse(text).unwrap(), "/x/serve.sh", None)
}

fn env(switch: &str, value: Option<&str>) -> Ask {
    Ask { switch: switch.into(), value: value.map(str::to_owned), takes_value: true }
}

fn flag(switch: &str, value: Option<&str>, takes_value: bool) -> Ask {
    Ask { switch: switch.into(), value: value.map(str::to_owned), takes_value }
}

fn check_variables(declared: &Declared, expect: &[(&str, &str, u32)]) {
    for (name, value, line) in expect {
        let found = declared.variables.get(*name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((found.value.as_ref().and_then(Text::known), found.place.line), (Some(*value), *line), "{name}");
    }
}

fn check_flags(declared: &Declared, expect: &[(&str, &str)]) {
    for (name, value) in expect {
        let found = declared.flags.iter().find(|f| f.name == *name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(found.value.known(), Some(*value), "{name}");
    }
}

#[test]
fn a01_exports_and_flags() {
    let declared = read(&artefact("A01_sglang_decode_exports.sh"));
    check_variables(
        &declared,
        &[
            ("SGLANG_SM120_MMA_FLASHMLA", "1", 4),
            ("SGLANG_SM120_TRITON_INDEXER", "1", 5),
            ("CUDA_HOME", "/usr/local/cuda", 6),
        ],
    );
    check_flags(
        &declared,
        &[
            ("--tp", "4"),
            ("--base-gpu-id", "4"),
            ("--moe-runner-backend", "triton"),
            ("--mem-fraction-static", "0.85"),
            ("--cuda-graph-max-bs", "32"),
            ("--context-length", "524288"),
            ("--port", "30002"),
            ("--disaggregation-mode", "decode"),
            ("--enable-metrics", ""),
            ("--reasoning-parser", "deepseek-v4"),
            ("--tool-call-parser", "deepseekv4"),
        ],
    );
    assert_eq!(declared.variables.len(), 3);
    assert_eq!(declared.blind_to.as_deref(), Some("what lines 7 bring in"));
}

#[test]
fn a02_prefix_environment() {
    let declared = read(&artefact("A02_sglang_env_prefix.sh"));
    check_variables(
        &declared,
        &[
            ("SGLANG_OPT_FP8_WO_A_GEMM", "False", 1),
            ("SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT", "1", 2),
            ("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", "1", 3),
        ],
    );
    check_flags(
        &declared,
        &[("--mem-fraction-static", "0.88"), ("--speculative-algo", "EAGLE"), ("--trust-remote-code", "")],
    );
    assert_eq!(super::super::argv::identity(&declared.argv).as_deref(), Some("sglang serve"));
}

#[test]
fn a03_second_export_wins_and_comments_give_nothing() {
    let declared = read(&artefact("A03_sglang_dup_export_inline_comments.sh"));
    let backend = &declared.variables["SGLANG_HACK_FLASHMLA_BACKEND"];
    assert_eq!(backend.value.as_ref().and_then(Text::known), Some("tilelang"));
    let all: Vec<(u32, Option<&str>)> =
        backend.all.iter().map(|(l, v)| (l.line, v.as_ref().and_then(Text::known))).collect();
    assert_eq!(all, [(8, Some("torch")), (9, Some("tilelang"))]);
    check_variables(
        &declared,
        &[("SGLANG_OPT_USE_FUSED_COMPRESS", "false", 4), ("SGLANG_FORCE_TRITON_MOE_FP8", "1", 17)],
    );
    assert!(!declared.variables.contains_key("CUDA_VISIBLE_DEVICES"));
    check_flags(
        &declared,
        &[("--max-running-request", "256"), ("--attention-backend", "compressed"), ("--chunked-prefill-size", "8192")],
    );
    assert!(!declared.flags.iter().any(|f| f.name == "--ep"));
}

#[test]
fn a07_array_and_a10_wrappers() {
    let declared = read(&artefact("A07_bash_array_launch.sh"));
    check_flags(&declared, &[("--dsa-topk-backend", "torch"), ("--kv-cache-dtype", "bfloat16")]);
    let max = declared.flags.iter().find(|f| f.name == "--max-running-requests").unwrap();
    assert!(matches!(&max.value, Text::Unresolved { because, .. } if because.contains("computed")), "{max:?}");
    let port = declared.flags.iter().find(|f| f.name == "--port").unwrap();
    assert!(matches!(&port.value, Text::Unresolved { because, .. } if because.contains("8888")), "{port:?}");
    let declared = read(&artefact("A10_vllm_nohup_numactl.sh"));
    check_variables(&declared, &[("CUDA_VISIBLE_DEVICES", "4", 3), ("HF_HOME", "/scratch/ops/.cache", 5)]);
    check_flags(&declared, &[("--enforce-eager", ""), ("--dtype", "bfloat16")]);
    assert!(!declared.flags.iter().any(|f| f.name == "--membind"));
}

#[test]
fn values_that_need_the_host_are_unresolved() {
    let declared =
        read("export A=${X:-d}\nexport B=$HOME/x\nexport C=$(date)\nexport D=~/m\nE=5\nexport F=$E.1\nsrv --p 1\n");
    for name in ["A", "B", "C", "D"] {
        assert!(declared.variables[name].value.as_ref().unwrap().known().is_none(), "{name}");
    }
    check_variables(&declared, &[("F", "5.1", 6)]);
    assert!(!declared.variables.contains_key("E"), "not exported");
    let text = read("if [ -n \"$Q\" ]; then export A=1; fi\nexport B=1\nunset B\nsrv --p 1\n");
    assert!(text.variables["A"].value.as_ref().unwrap().known().is_none());
    assert_eq!(text.variables["B"].value, None);
}

/// Runs a script with stubs for its programs; returns environment and arguments of the server.
fn run(
    folder: &Path,
    text: &str,
    options: &[String],
    inherited: &[(&str, &str)],
) -> (BTreeMap<String, String>, Vec<String>) {
    let bin = folder.join("bin");
    fs_err::create_dir_all(&bin).unwrap();
    let seen = folder.join("seen");
    let stub = format!(
        "#!/bin/bash\nenv -0 > '{0}.env'\nprintf '%s\\0' \"${{0##*/}}\" \"$@\" > '{0}.argv'\npwd > '{0}.pwd'\n",
        seen.display()
    );
    for name in ["python", "python3", "sglang", "srv", "nohup"] {
        fs_err::write(bin.join(name), if name == "nohup" { "#!/bin/bash\nexec \"$@\"\n" } else { &stub }).unwrap();
        fs_err::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = folder.join("override.sh");
    fs_err::write(&path, text).unwrap();
    let status = Process::new("bash")
        .args(options)
        .arg(&path)
        .current_dir(folder)
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .envs(inherited.iter().copied())
        .status()
        .unwrap();
    assert!(status.success(), "{text}");
    let environment = super::super::proc::environ(&fs_err::read(folder.join("seen.env")).unwrap()).unwrap();
    let argv = super::super::proc::cmdline(&fs_err::read(folder.join("seen.argv")).unwrap()).unwrap();
    (environment.pairs.into_iter().collect(), argv.words().unwrap().to_vec())
}

/// What the server must see after an override.
fn check_run(text: &str, asks: &[Ask], inherited: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let activate = folder.path().join("activate");
    fs_err::write(&activate, "export FROM_VENV=1\n").unwrap();
    let text = text.replace("/opt/venvs/dsv4/bin/activate", &activate.display().to_string());
    let path = folder.path().join("serve.sh").display().to_string();
    let made = make_override(&text, &path, asks, None).unwrap();
    let (environment, argv) = run(folder.path(), &made.text, &made.options, inherited);
    let words = super::super::argv::known(&argv);
    for ask in asks {
        let seen = if ask.switch.starts_with('-') {
            super::super::argv::flag_value(&words, &ask.switch, ask.takes_value).unwrap()
        } else {
            environment.get(&ask.switch).cloned()
        };
        assert_eq!(seen, ask.value, "{}\n{}", ask.switch, made.text);
    }
    // What the script alone would have shown differs in nothing but what was asked.
    let (plain_env, plain_argv) = run(folder.path(), &text, &made.options, inherited);
    for (name, value) in &plain_env {
        if !asks.iter().any(|a| a.switch == *name) && name != "_" {
            assert_eq!(environment.get(name), Some(value), "{name} changed");
        }
    }
    let plain_words = super::super::argv::known(&plain_argv);
    for flag in super::super::argv::flags(&plain_words) {
        if !asks.iter().any(|a| a.switch == flag.name) {
            let value = |w: &[Option<String>]| super::super::argv::flag_value(w, &flag.name, true).unwrap();
            assert_eq!(value(&words), value(&plain_words), "{} changed", flag.name);
        }
    }
    made.text
}

#[test]
fn overrides_of_the_artefacts_run_as_asked() {
    let a01 = artefact("A01_sglang_decode_exports.sh");
    let text = check_run(
        &a01,
        &[
            env("SGLANG_SM120_TRITON_INDEXER", None),
            env("SGLANG_SM120_MMA_FLASHMLA", Some("0")),
            env("SGLANG_NEW", Some("a b")),
            flag("--moe-runner-backend", Some("marlin"), true),
            flag("--enable-metrics", None, false),
            flag("--mhc-gemm", Some("bf16"), true),
        ],
        &[("SGLANG_SM120_TRITON_INDEXER", "inherited")],
    );
    assert!(text.contains("\nexport SGLANG_SM120_MMA_FLASHMLA=0\n"), "{text}");
    assert!(text.contains("unset SGLANG_SM120_TRITON_INDEXER\n"), "{text}");
    let a02 = artefact("A02_sglang_env_prefix.sh");
    check_run(
        &a02,
        &[
            env("SGLANG_OPT_FP8_WO_A_GEMM", None),
            env("SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT", Some("0")),
            flag("--mem-fraction-static", Some("0.5"), true),
            flag("--trust-remote-code", None, false),
        ],
        &[("SGLANG_OPT_FP8_WO_A_GEMM", "1")],
    );
    let a03 = artefact("A03_sglang_dup_export_inline_comments.sh");
    let text = check_run(
        &a03,
        &[
            env("SGLANG_HACK_FLASHMLA_BACKEND", Some("torch")),
            env("SGLANG_OPT_USE_FUSED_COMPRESS", Some("true")),
            flag("--disable-radix-cache", None, false),
            flag("--page-size", Some("64"), true),
        ],
        &[],
    );
    assert!(text.contains("export SGLANG_OPT_USE_FUSED_COMPRESS=true #torch compressor"), "{text}");
    assert!(text.contains("#export SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton"), "{text}");
    let a07 = artefact("A07_bash_array_launch.sh") + "wait\n";
    check_run(
        &a07,
        &[
            env("SGLANG_DSA_FUSE_TOPK", Some("true")),
            flag("--dsa-topk-backend", Some("triton"), true),
            flag("--new", Some("x"), true),
            flag("--enable-metrics", None, false),
        ],
        &[],
    );
}

#[test]
fn overrides_of_awkward_scripts() {
    for (text, asks) in [
        (
            "#!/bin/bash -e\ncd \"$(dirname \"${BASH_SOURCE[0]}\")\"\nexport D=\"$(dirname \"$0\")\"\nsrv --a 1 \"$@\"\n",
            vec![flag("--a", None, true)],
        ),
        ("A=1\nexport A\nsrv --p 1", vec![env("A", Some("2"))]),
        ("A=1\nsrv --p 1", vec![env("A", Some("2"))]),
        ("if true; then\n  export A=1\nfi\nsrv --p 1\n", vec![env("A", Some("2"))]),
        ("if true; then\n  export A=1\n  exec srv --p 1\nfi\n", vec![env("A", Some("2")), env("B", None)]),
        ("true && exec srv --p 1\n", vec![env("A", Some("2")), flag("--p", Some("it's"), true)]),
        ("f() { export A=1; }\nexport A=0\nf\nsrv --p 1\n", vec![env("A", Some("2"))]),
        ("export A= B=2; srv --p 1 --p=2 2>&1 | cat\n", vec![env("A", Some("x y")), flag("--p", Some("3"), true)]),
        (
            "set -a\nA=1\nset +a\nX=3 nohup srv \\\n  --q \\\n  --p 1 >/dev/null 2>&1 &\nwait\n",
            vec![env("A", Some("2")), env("X", None), flag("--p", None, true)],
        ),
        ("(export A=1; srv --p 1)\n", vec![env("A", None)]),
        ("run() {\n  srv --p 1 \"$@\"\n}\nexport A=1\nrun --q 2\n", vec![env("A", Some("0"))]),
        ("srv --p 1 # --p 5\n", vec![flag("--p", Some("2"), true), flag("--q", Some(""), false)]),
        ("export A=1\nsrv --cfg '{\"k\": [1, 2]}' --p \"x y\"\n", vec![env("A", None), flag("--p", Some("$z"), true)]),
    ] {
        check_run(text, &asks, &[("A", "inherited"), ("B", "inherited")]);
    }
}

#[test]
fn what_cannot_be_placed_is_refused() {
    for (text, ask, expect) in [
        ("#!/usr/bin/env python3\nprint()\n", env("A", None), "is not a bash script"),
        ("echo hello\n", env("A", None), "no command with flags"),
        ("a --p 1\nb --q 2\n", env("A", None), "several programs with flags, on lines 1, 2"),
        ("docker run --gpus all img\n", env("A", None), "through `docker`"),
        ("readonly A=1\nsrv --p 1\n", env("A", Some("2")), "line 1 makes it read-only"),
        ("true && export A=1 && srv --p 1\n", env("A", Some("2")), "within the statement"),
        ("env -u A srv --p 1\n", env("A", Some("2")), "the `env` on line 1"),
        ("srv --p 1 $EXTRA\n", flag("--q", None, true), "cannot tell whether the word on line 1"),
        (
            "\"$BIN\" serve --p \"$P\" \"${MORE[@]}\"\n",
            flag("--q", None, true),
            "cannot tell whether the word on line 1",
        ),
        ("srv --p 1 2\n", flag("--p", None, true), "several words follow"),
        ("srv --p 1 > log --q 2\n", flag("--q", None, true), "after a redirection"),
        ("echo ${BASH_SOURCE[1]}\nsrv --p 1\n", env("A", None), "line 1 of `/x/s.sh` uses `BASH_SOURCE`"),
    ] {
        let failure = make_override(text, "/x/s.sh", &[ask], None).unwrap_err();
        assert!(failure.message.contains(expect), "{text}: {}", failure.message);
    }
}

#[test]
fn a_program_from_a_variable_is_a_server() {
    let text =
        "#!/usr/bin/env bash\nexport X=1\nexec \"${BIN:-srv}\" lab serve --deployment \"$DEPLOYMENT\" --port 1\n";
    let asks = [env("X", None), flag("--mhc-gemm", None, true), flag("--kv", Some("int4"), true)];
    let made = make_override(text, "/x/s.sh", &asks, None).unwrap();
    assert!(made.text.contains("unset X\nexec") && made.text.ends_with("--port 1 --kv int4\n"), "{}", made.text);
    check_run(text, &asks, &[("DEPLOYMENT", "/d/1")]);
}

#[test]
fn the_port_tells_two_servers_apart() {
    let text = "python -m srv --port 1 &\npython -m srv --port 2 &\nwait\n";
    let made = make_override(text, "/x/s.sh", &[flag("--a", Some("b"), true)], Some(2)).unwrap();
    assert!(made.text.contains("--port 1 &\n") && made.text.contains("--port 2 --a b &"), "{}", made.text);
}

fn check_script(text: &str, variables: &[(&str, Result<&str, &str>)], flags: &[(&str, Result<&str, &str>)]) {
    let read = read(text);
    let say = |text: &Text| match text {
        Text::Known(text) => Ok(text.clone()),
        Text::Unresolved { because, .. } => Err(because.clone()),
    };
    let owned = |r: &Result<&str, &str>| r.map(str::to_owned).map_err(str::to_owned);
    for (name, expect) in variables {
        let found = read.variables.get(*name).and_then(|v| v.value.as_ref()).map(say);
        assert_eq!(found, Some(owned(expect)), "{name} in {text}");
    }
    for (name, expect) in flags {
        let found = read.flags.iter().find(|f| f.name == *name).map(|f| say(&f.value));
        assert_eq!(found, Some(owned(expect)), "{name} in {text}");
    }
}

#[test]
fn what_a_script_says_and_what_only_the_host_can() {
    for (text, variables, flags) in [
        ("X=1\nexport Y=${X:-2}\nsrv --p ${X:-3}\n", &[("Y", Ok("1"))][..], &[("--p", Ok("1"))][..]),
        (
            "srv --p=${X:-3} --q $Y\n",
            &[],
            &[
                ("--p", Err("`X` comes from the host; `3` where it is not set")),
                ("--q", Err("`Y` comes from the host")),
            ],
        ),
        (": \"${X:=3}\"\nsrv --p $X\n", &[], &[("--p", Err("`X` comes from the host; `3` where it is not set"))]),
        (
            "export A=$((2 * 8))\nN=4\nsrv --p $((N + 1)) --q $((M + 1))\n",
            &[("A", Ok("16"))],
            &[("--p", Ok("5")), ("--q", Err("`$((M + 1))` is computed, and `M` comes from the host"))],
        ),
        ("export A=$'a\\tb'\nsrv --p 1\n", &[("A", Ok("a\tb"))], &[]),
        (
            "ARGS=(--p 1)\nARGS+=(--q \"x y\")\nsrv serve m \"${ARGS[@]}\" --r 2\n",
            &[],
            &[("--p", Ok("1")), ("--q", Ok("x y")), ("--r", Ok("2"))],
        ),
        ("ARGS=(--p 1)\nif x; then ARGS+=(--q 2); fi\nsrv --o 0 \"${ARGS[@]}\"\n", &[], &[("--o", Ok("0"))]),
        ("srv --p 1 $EXTRA\n", &[], &[("--p", Ok("1"))]),
        ("srv --cuda-graph-bs 1 $EXTRA\n", &[], &[("--cuda-graph-bs", Err("`EXTRA` comes from the host"))]),
        (
            "cat > x <<EOF\nexport A=2\nother --p 2\nEOF\nexport A=1\nsrv --p 1\n",
            &[("A", Ok("1"))],
            &[("--p", Ok("1"))],
        ),
        ("srv \\\n  --p 1 \\\n  --q 2 # --q 3\n", &[], &[("--p", Ok("1")), ("--q", Ok("2"))]),
        (
            "export A=1\nbash -c 'export B=$A; exec srv --p \"$B\"'\n",
            &[("A", Ok("1")), ("B", Ok("1"))],
            &[("--p", Ok("1"))],
        ),
        ("export A=1\nenv -i B=2 srv --p 1\n", &[("B", Ok("2"))], &[("--p", Ok("1"))]),
        ("sudo -E B=2 srv --p 1\n", &[("B", Ok("2"))], &[("--p", Ok("1"))]),
        (
            "systemd-run --unit x -p Environment='A=1 B=2' -E C=3 --uid=5 srv --p 1\n",
            &[("A", Ok("1")), ("B", Ok("2")), ("C", Ok("3"))],
            &[("--p", Ok("1"))],
        ),
    ] {
        check_script(text, variables, flags);
    }
    // What the service manager starts has nothing of the shell, and `env -i` takes everything away.
    assert!(!read("export A=1\nsystemd-run srv --p 1\n").variables.contains_key("A"));
    assert_eq!(read("export A=1\nenv -i srv --p 1\n").variables["A"].value, None);
    let sudo = read("export A=1\nsudo srv --p 1\n");
    assert!(sudo.variables["A"].value.as_ref().is_some_and(|v| v.known().is_none()));
    let hidden = read("srv --p 1 $EXTRA\n");
    assert!(hidden.diagnostics.iter().any(|d| d.code == "hidden-flags"), "{:?}", hidden.diagnostics);
}

#[test]
fn an_array_in_a_command_keeps_its_lines() {
    let read = read("A=(\n  --p 1\n  --q 2\n)\nexec srv m \"${A[@]}\"\n");
    let lines: Vec<(&str, u32)> = read.flags.iter().map(|f| (f.name.as_str(), f.place.line)).collect();
    assert_eq!(lines, [("--p", 2), ("--q", 3)]);
}

#[test]
fn every_server_of_a_script_is_listed_and_the_port_chooses() {
    let text = "export A=1\nB=1 python -m srv --port 1 &\nexport A=2\nsrv2 --port 2 &\nwait\n";
    let script = parse(text).unwrap();
    let all = all_declared(&script, "/x/s.sh");
    let seen: Vec<_> = all
        .iter()
        .map(|d| {
            (d.flag("--port").and_then(|f| f.value.known()), d.variables["A"].value.as_ref().and_then(Text::known))
        })
        .collect();
    assert_eq!(seen, [(Some("1"), Some("1")), (Some("2"), Some("2"))]);
    let second = declared(&script, "/x/s.sh", Some(2));
    assert_eq!(second.flag("--port").and_then(|f| f.value.known()), Some("2"));
    assert!(!second.variables.contains_key("B"));
    assert!(second.diagnostics.iter().any(|d| d.code == "other-servers" && d.message.contains("lines 2")));
    let unclear = declared(&script, "/x/s.sh", None);
    assert!(unclear.argv.is_empty() && unclear.diagnostics.iter().any(|d| d.message.contains("on lines 2, 4")));
}

#[test]
fn deep_nesting_is_refused_with_a_sentence() {
    for text in [
        "(".repeat(100_000),
        format!("export A={}x{}\n", "$(".repeat(100_000), ")".repeat(100_000)),
        "$(".repeat(100_000),
        format!("export A=\"{}\"", "${A:-".repeat(100_000)),
        format!("{}srv --p 1{}\n", "(".repeat(100_000), ")".repeat(100_000)),
        "{ ".repeat(100_000),
    ] {
        let failure = parse(&text).unwrap_err();
        assert!(failure.message.contains("nested too deeply"), "{}", failure.message);
        assert!(make_override(&text, "/x/s.sh", &[env("A", None)], None).is_err());
    }
}

#[test]
fn deep_nesting_without_brackets_is_left_out_and_said() {
    let ifs = format!("{}srv --p 1\n{}", "if x; then\n".repeat(3_000), "fi\n".repeat(3_000));
    let chained = format!("true{} && srv --p 1\n", " && true".repeat(3_000));
    let pipes = format!("true{} | srv --p 1\n", " | ! true".repeat(3_000));
    for text in [ifs, chained, pipes, "`".repeat(20_000), "\"$(".repeat(400)] {
        let _ = parse(&text).map(|s| declared(&s, "/x/s.sh", None));
    }
    let read = read(&format!("export A=1\n{}srv --p 1\n{}", "if x; then\n".repeat(3_000), "fi\n".repeat(3_000)));
    assert!(read.diagnostics.iter().any(|d| d.code == "script-syntax"), "{:?}", read.diagnostics);
    check_variables(&read, &[("A", "1", 1)]);
}

#[test]
fn a_secret_of_a_script_is_in_no_row_and_no_remark() {
    let text = "export HF_TOKEN=hunter2\nexport API_KEY=${K:-hunter2}\nexport OPENAI_API_KEY=\"${K:?hunter2}\"\n\
                srv --api-key hunter2 --admin-api-key=${Q:-hunter2} --p \"$X\" $HUNTER\n";
    let read = read(text);
    assert_eq!(read.variables["HF_TOKEN"].value, Some(Text::Known("hunter2".into())), "kept for the comparison");
    let layers = crate::truth::compare::Layers {
        target: "t".into(),
        declared: Some(read.clone()),
        ..crate::truth::compare::Layers::default()
    };
    let rows = crate::truth::compare::rows(&layers, &[]);
    let shown = crate::truth::declared::command::shown(&read);
    let all = format!("{rows:?} {} {:?} {shown:?}", serde_json::to_string(&rows).unwrap(), read.diagnostics);
    assert!(!all.contains("hunter2"), "{all}");
    assert!(rows.iter().any(|r| r.name == "--admin-api-key"));
}

proptest! {
    #[test]
    fn no_text_is_a_panic(
        text in "[ -~\n]{0,200}",
        shell in "(\\$\\(|\\$\\{|\\(\\(|\\)|\\}|\"|'|=|X|\\[|\\]|@|:-|<<E\n|E\n|;| |\n|&|docker run |-e |bash -c |env |sudo ){0,40}",
    ) {
        for text in [text, shell] {
            if let Ok(script) = parse(&text) {
                let _ = declared(&script, "/x/s.sh", Some(1));
                let _ = all_declared(&script, "/x/s.sh");
            }
        }
    }
}

proptest! {
    #[test]
    fn without_asks_only_the_header_differs(text in "[ -~\n]{0,300}") {
        if !text.contains("BASH_SOURCE") && !text.starts_with("#!") {
            let made = make_override(&text, "/x/s.sh", &[], None).unwrap();
            prop_assert_eq!(made.text.strip_prefix(&made.header), Some(text.as_str()));
        }
    }

    #[test]
    fn levels_read_back_as_asked(
        value in "[ -~]{0,12}", form in 0..6_usize, old in "[a-z0-9]{0,4}",
    ) {
        let forms = [
            format!("export A={old}\nsrv --p 1\n"), format!("A={old} srv --p 1\n"), "srv --p 1\n".to_owned(),
            format!("export A={old}\nexport A=x\nexec srv --p 1\n"), format!("export B=1 A='{old}'\nnohup srv --p 1 &\n"),
            format!("export A=\"{old}\"\n. ./more\nsrv --p 1\n"),
        ];
        let asks = [env("A", Some(&value)), flag("--v", Some(&format!("v{value}")), true)];
        let made = make_override(&forms[form], "/x/s.sh", &asks, None).unwrap();
        let back = read(&made.text);
        prop_assert_eq!(back.variables["A"].value.as_ref().and_then(Text::known), Some(value.as_str()), "{}", made.text);
        let flag = back.flags.iter().find(|f| f.name == "--v").unwrap();
        prop_assert_eq!(flag.value.known().map(str::to_owned), Some(format!("v{value}")));
    }
}
