//! The table of the public artefacts: each is read by tests of its own, or is named here as an exception.

use std::collections::BTreeSet;
use std::path::Path;

/// What stands for an artefact.
enum By {
    /// Tests in these files say what it must yield.
    Tests(&'static [&'static str]),
    /// Nothing reads it; why.
    Nothing(&'static str),
}
use By::{Nothing, Tests};

const DECLARED: &[&str] = &["src/truth/declared/artefact_tests.rs"];
const OBSERVED: &[&str] = &["src/truth/observed/artefact_tests.rs"];
const COMPARED: &[&str] = &["src/truth/compare/artefact_tests.rs"];

const TABLE: [(&str, By); 27] = [
    ("A01_sglang_decode_exports.sh", Tests(DECLARED)),
    ("A02_sglang_env_prefix.sh", Tests(DECLARED)),
    ("A03_sglang_dup_export_inline_comments.sh", Tests(DECLARED)),
    ("A05_docker_run_duplicate_flag.sh", Tests(DECLARED)),
    ("A06_docker_run_nargs_defaults.sh", Tests(DECLARED)),
    ("A07_bash_array_launch.sh", Tests(DECLARED)),
    ("A09_vllm_unset_derived.sh", Tests(DECLARED)),
    ("A10_vllm_nohup_numactl.sh", Tests(DECLARED)),
    ("A13_compose_entrypoint_folded.yaml", Tests(DECLARED)),
    ("A14_compose_bash_c_block.yaml", Tests(DECLARED)),
    ("A16_k8s_vllm_deployment.yaml", Tests(DECLARED)),
    ("A17_k8s_lws_sglang.yaml", Tests(DECLARED)),
    ("A19_systemd_dropin", Tests(DECLARED)),
    (
        "A21_sglang_server_args_line.log",
        Tests(&["src/truth/observed/artefact_tests.rs", "src/truth/compare/artefact_tests.rs"]),
    ),
    ("A22_sglang_startup_dsv4.log", Tests(OBSERVED)),
    ("A23_sglang_batch_lines.log", Tests(OBSERVED)),
    ("A24_vllm_startup_nondefault.log", Tests(OBSERVED)),
    ("A26_vllm_specdecode_metrics.log", Tests(OBSERVED)),
    ("A28_journal_prefix.log", Tests(OBSERVED)),
    ("A29_sglang_get_server_info.json", Tests(&["src/serving/server_info.rs", "src/truth/compare/artefact_tests.rs"])),
    ("A31_llama_props.json", Tests(OBSERVED)),
    ("A32_vllm_metrics.prom", Tests(OBSERVED)),
    ("A33_proc_readable", Tests(COMPARED)),
    ("A34_proc_clobbered", Tests(COMPARED)),
    (
        "A36_curl_completion_request.sh",
        Nothing("a conversation of a client: `recall import` is not part of this version"),
    ),
    (
        "A38_patch_inventory.diff",
        Tests(&["src/patch/diff/tests.rs", "src/patch/inventory/tests.rs", "src/patch/case_text.rs"]),
    ),
    ("A39_reference_numbers.json", Nothing("orders of magnitude for people who read a report of `micro`, no input")),
];

#[test]
fn every_artefact_is_read_or_named_as_an_exception() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let there: BTreeSet<String> = fs_err::read_dir(root.join("tests/artefacts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, TABLE.iter().map(|(name, _)| (*name).to_owned()).collect());
    let sources = sources(&root.join("src"));
    for (name, by) in &TABLE {
        match by {
            Tests(files) => {
                for file in *files {
                    let text = fs_err::read_to_string(root.join(file)).unwrap();
                    assert!(text.contains(name), "`{file}` does not read `{name}`");
                }
            }
            Nothing(why) => {
                let reader = sources.iter().find(|(_, text)| text.contains(name));
                assert!(reader.is_none(), "`{name}` is read by {:?}: it is no exception ({why})", reader.map(|r| &r.0));
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut out = Vec::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push((path.clone(), fs_err::read_to_string(&path).unwrap()));
        }
    }
    out
}
