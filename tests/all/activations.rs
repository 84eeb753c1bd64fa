//! The real program on recorded activations: what it takes, what it says of them, what it refuses.

use std::path::Path;
use std::process::{Command, Stdio};

use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use serde_json::Value;

use crate::common::program;

/// Runs `patchbench micro …` with `--json`; its status and its one object.
fn micro(root: &Path, args: &[&str]) -> (i32, Value) {
    let mut command = Command::new(program());
    command.arg("micro").args(args).arg("--json").current_dir(root).stdin(Stdio::null());
    command.env("PATCHBENCH_SESSIONS", root.join("sessions")).env("XDG_STATE_HOME", root.join("state"));
    command.env("XDG_CONFIG_HOME", root.join("config")).env("XDG_CACHE_HOME", root.join("cache"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), value)
}

/// Writes a file with one tensor of bf16.
fn record(path: &Path, name: &str, shape: &[usize], value: impl Fn(usize) -> f32) {
    let count: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|i| bf16::from_f32(value(i)).to_le_bytes()).collect();
    let view = TensorView::new(Dtype::BF16, shape.to_vec(), &bytes).unwrap();
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, serialize([(name, view)], None).unwrap()).unwrap();
}

fn wave(i: usize) -> f32 {
    (i as f32 * 0.377).sin() * 2.0
}

#[test]
fn recorded_streams_take_the_place_of_made_up_ones() {
    let root = tempfile::tempdir().unwrap();
    // One file as `SGLang`'s dumper names it once it is converted, and one plain one.
    let dumped = "step=0___rank=0___dump_index=7___name=hc_attn_input___layer_id=0.safetensors";
    record(&root.path().join("dump").join(dumped), "value", &[24, 4, 128], wave);
    record(&root.path().join("dump/norms.safetensors"), "layers.2.ffn_norm_input", &[40, 128], wave);

    let (status, found) = micro(root.path(), &["--activations", "dump"]);
    assert!(status < 2, "{found:#}");
    let reports = found["reports"].as_array().unwrap();
    let specs: Vec<&str> = reports.iter().map(|r| r["spec"].as_str().unwrap()).collect();
    assert_eq!(specs, ["mhc-mix", "norm"], "those that the recording has something for, and no other");
    for report in reports {
        assert!(report["controls"].as_array().unwrap().iter().all(|c| c["caught"] == true), "{report:#}");
        assert_eq!(report["recorded"].as_array().unwrap().len(), 1);
    }
    let streams = &reports[0]["recorded"][0];
    assert_eq!((&streams["tensor"], &streams["rows"]), (&"layers.0.hc_attn_input".into(), &24.into()));
    assert_eq!(streams["file"], format!("dump/{dumped}"));
    assert_eq!(streams["hash"].as_str().map(str::len), Some(64));
    let provenance = reports[0]["provenance"].as_str().unwrap();
    for part in ["layers.0.hc_attn_input", dumped, "BF16 [24, 4, 128]", &streams["hash"].as_str().unwrap()[..12]] {
        assert!(provenance.contains(part), "{part}: {provenance}");
    }

    // Without a recording nothing of the kind is said, and the numbers are others.
    let (_, own) = micro(root.path(), &["norm"]);
    assert!(own["reports"][0].get("recorded").is_none());
    assert_ne!(own["reports"][0]["curves"], reports[1]["curves"]);
}

#[test]
fn a_recording_at_the_real_size_is_measured_with_what_it_lacks_made_up() {
    let root = tempfile::tempdir().unwrap();
    record(&root.path().join("r.safetensors"), "layers.3.ffn_input", &[1, 20, 4096], wave);
    let (status, found) =
        micro(root.path(), &["quantise", "--checkpoint", "synthetic:flash", "--activations", "r.safetensors"]);
    assert!(status < 2, "{found:#}");
    let report = &found["reports"][0];
    assert_eq!(report["curves"][0]["labels"][0], "layer 3 into experts, 4096 wide");
    assert!(report["provenance"].as_str().unwrap().contains("; weights made up, seed 1: "), "{report:#}");
}

#[test]
fn what_cannot_be_taken_is_one_sentence_with_a_hint() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    record(&at("other.safetensors"), "hidden", &[8, 128], wave);
    record(&at("wide.safetensors"), "layers.0.attn_norm_input", &[8, 4096], wave);
    record(
        &at("nan.safetensors"),
        "layers.0.attn_norm_input",
        &[8, 128],
        |i| if i == 300 { f32::NAN } else { wave(i) },
    );
    fs_err::write(at("short.safetensors"), b"\x10").unwrap();
    fs_err::write(at("pickle.pt"), b"PK\x03\x04").unwrap();
    let refused = |args: &[&str], message: &str, hint: &str| {
        let (status, answer) = micro(root.path(), args);
        assert_eq!(status, 3, "{answer:#}");
        let error = &answer["error"];
        assert!(error["message"].as_str().is_some_and(|m| m.contains(message)), "{message}: {answer:#}");
        assert!(error["hint"].as_str().is_some_and(|h| h.contains(hint)), "{hint}: {answer:#}");
    };
    refused(&["--activations", "other.safetensors"], "is named as a microtest takes it", "`layers.N.hc_attn_input`");
    refused(&["norm", "--activations", "other.safetensors"], "has no tensor that microtest `norm`", "[tokens, 128]");
    refused(&["norm", "--activations", "wide.safetensors"], "[8, 4096] where [tokens, 128] is needed", "--checkpoint");
    refused(&["norm", "--activations", "nan.safetensors"], "is no number at row 2, column 44", "leave that tensor out");
    refused(
        &["indexer", "--activations", "wide.safetensors"],
        "takes no recorded activations",
        "leave `--activations` out",
    );
    refused(&["--activations", "nowhere"], "`nowhere` is not there", "the folder of a recording");
    refused(&["norm", "--activations", "short.safetensors"], "1 bytes cannot hold a header", "copy the file again");
    refused(&["norm", "--activations", "pickle.pt"], "is a pickle of torch, which is not read", "save_file");
}
