use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{TensorView, serialize};

use super::*;

/// A tensor to be written.
pub(in crate::kernel) struct Written<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// A tensor of these values in one of the types of floats.
pub(in crate::kernel) fn tensor<'a>(name: &'a str, dtype: Dtype, shape: &[usize], values: &[f64]) -> Written<'a> {
    let bytes = |v: &f64| match dtype {
        Dtype::BF16 => bf16::from_f64(*v).to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f64(*v).to_le_bytes().to_vec(),
        Dtype::F32 => (*v as f32).to_le_bytes().to_vec(),
        Dtype::I32 => (*v as i32).to_le_bytes().to_vec(),
        _ => v.to_le_bytes().to_vec(),
    };
    Written { name, dtype, shape: shape.to_vec(), bytes: values.iter().flat_map(bytes).collect() }
}

/// A tensor of values that differ.
pub(in crate::kernel) fn wave<'a>(name: &'a str, shape: &[usize]) -> Written<'a> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (i as f64 * 0.377).sin() * 2.0).collect();
    tensor(name, Dtype::BF16, shape, &values)
}

/// Writes a file of a recording.
pub(in crate::kernel) fn write(folder: &Path, file: &str, tensors: &[Written<'_>]) -> PathBuf {
    let view =
        |t: &'_ Written<'_>| TensorView::new(t.dtype, t.shape.clone(), &t.bytes).map(|v| v.data().len()).unwrap();
    assert!(tensors.iter().all(|t| view(t) == t.bytes.len()));
    let views = tensors.iter().map(|t| (t.name, TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()));
    let path = folder.join(file);
    fs_err::write(&path, serialize(views, None).unwrap()).unwrap();
    path
}

fn recording(tensors: &[Written<'_>]) -> (tempfile::TempDir, Recording) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "dump.safetensors", tensors);
    let recording = Recording::open(folder.path()).unwrap();
    (folder, recording)
}

/// What is found for a microtest of the lab model.
fn found(spec: &str, tensors: &[Written<'_>]) -> Result<Vec<Found>, Failure> {
    let (_folder, recording) = recording(tensors);
    recording.at(spec, &spots(spec, &Sizes::LAB), LAYERS)
}

#[test]
fn a_shape_fits_with_any_number_of_dimensions_before_a_row() {
    let check = |row: &[usize], shape: &[usize], expect: Option<[usize; 2]>| {
        assert_eq!(Spot::new("x", "x", row).fit(shape), expect, "{row:?} {shape:?}");
    };
    check(&[128], &[7, 128], Some([7, 128]));
    check(&[128], &[2, 7, 128], Some([14, 128]));
    check(&[128], &[128], None);
    check(&[128], &[7, 64], None);
    check(&[4, 128], &[7, 4, 128], Some([7, 512]));
    check(&[4, 128], &[7, 512], Some([7, 512]));
    check(&[4, 128], &[1, 7, 512], Some([7, 512]));
    check(&[4, 128], &[4, 128], None);
    check(&[4, 128], &[0, 4, 128], Some([0, 512]));
    check(&[4, 128], &[], None);
    let any = |shape: &[usize]| Spot::any("x", "x").fit(shape);
    assert_eq!(any(&[3, 256]), Some([3, 256]));
    assert_eq!((any(&[3, 200]), any(&[3, 0]), any(&[256])), (None, None, None));
}

#[test]
fn tensors_are_found_by_layer_and_name_and_others_left_alone() {
    let tensors = [
        wave("layers.5.ffn_norm_input", &[9, 128]),
        wave("layers.5.attn_norm_input", &[9, 128]),
        wave("layers.0.q_heads_input", &[9, 4, 32]),
        wave("logits", &[9, 264]),
        wave("layers.x.attn_norm_input", &[9, 128]),
        wave("layers.1.other", &[9, 128]),
    ];
    let found = found("norm", &tensors).unwrap();
    let seen: Vec<(usize, &str, usize, usize)> = found.iter().map(|f| (f.layer, f.says, f.rows, f.width)).collect();
    assert_eq!(seen, [(0, "query heads", 9, 128), (5, "attention", 9, 128), (5, "ffn", 9, 128)]);
}

#[test]
fn what_does_not_fit_is_one_sentence_with_a_hint() {
    let check = |spec: &str, tensors: &[Written<'_>], message: &str, hint: &str| {
        let failure = found(spec, tensors).unwrap_err();
        assert!(failure.message.ends_with(message), "{}", failure.message);
        assert!(failure.hint.as_deref().is_some_and(|h| h.contains(hint)), "{failure:?}");
    };
    check(
        "mhc-mix",
        &[wave("x", &[2, 2])],
        "has no tensor that microtest `mhc-mix` takes",
        "it takes `layers.N.hc_attn_input` [tokens, 4, 128], `layers.N.hc_ffn_input` [tokens, 4, 128], layers counted from 0; \
         there are 1, x; where steps or ranks repeat",
    );
    check(
        "router",
        &[wave("layers.0.ffn_input", &[8, 4096])],
        "dump.safetensors` has shape [8, 4096] where [tokens, 128] is needed",
        "those of `--checkpoint`",
    );
    check(
        "quantise",
        &[wave("layers.0.down_input", &[8, 100])],
        "has shape [8, 100] where [tokens, a multiple of 128] is needed",
        "--checkpoint",
    );
    check(
        "router",
        &[wave("layers.6.ffn_input", &[8, 128])],
        "of a layer that is not among the model's 6",
        "--checkpoint",
    );
    check(
        "router",
        &[tensor("layers.0.ffn_input", Dtype::I32, &[1, 128], &[1.0; 128])],
        "is stored as I32, which no activations are",
        "BF16, F16, F32 and F64 are taken",
    );
    check("router", &[wave("layers.0.ffn_input", &[0, 128])], "holds no token", "leave it out");
}

#[test]
fn values_that_nothing_can_be_measured_on_are_refused_with_their_place() {
    let check = |change: &dyn Fn(&mut Vec<f64>), message: &str| {
        let mut values: Vec<f64> = (0..3 * 128).map(f64::from).collect();
        change(&mut values);
        let (_folder, recording) = recording(&[tensor("layers.2.ffn_input", Dtype::F32, &[3, 128], &values)]);
        let found = recording.at("router", &spots("router", &Sizes::LAB), LAYERS).unwrap();
        let failure = recording.take(&found[0], 3).unwrap_err();
        assert!(failure.message.starts_with("tensor `layers.2.ffn_input` of `"), "{}", failure.message);
        assert!(failure.message.ends_with(message), "{}", failure.message);
        assert!(failure.hint.is_some());
        // What lies behind the rows that are taken harms nobody.
        assert_eq!(recording.take(&found[0], 1).is_ok(), !message.contains("alone"));
    };
    check(&|v| v[2 * 128 + 5] = f64::NAN, "is no number at row 2, column 5; 1 of its values are not finite");
    check(&|v| v[128..130].fill(f64::NEG_INFINITY), "is infinite at row 1, column 0; 2 of its values are not finite");
    check(&|v| v.fill(0.0), "holds 0 alone, on which nothing can be measured");
}

#[test]
fn the_first_rows_are_taken_and_told_with_their_hash() {
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F64] {
        let values: Vec<f64> = (0..4 * 128).map(|i| f64::from(i % 256)).collect();
        let (folder, recording) = recording(&[tensor("layers.1.ffn_input", dtype, &[4, 128], &values)]);
        let found = recording.at("router", &spots("router", &Sizes::LAB), LAYERS).unwrap();
        let taken = recording.take(&found[0], 2).unwrap();
        assert_eq!(taken.values, values[..256]);
        let told = &taken.recorded;
        assert_eq!((told.dtype.clone(), &told.shape, told.rows), (dtype.to_string(), &vec![4, 128], 2));
        assert_eq!(Path::new(&told.file), folder.path().join("dump.safetensors"));
        let bytes = tensor("x", dtype, &[2, 128], &values[..256]).bytes;
        assert_eq!(told.hash, blake3::hash(&bytes).to_hex().to_string());
        assert_eq!(recording.take(&found[0], 9).unwrap().recorded.rows, 4);
    }
}

#[test]
fn many_layers_are_spread_evenly_and_stay_whole() {
    let names: Vec<String> =
        (0..6).flat_map(|n| [format!("layers.{n}.attn_norm_input"), format!("layers.{n}.ffn_norm_input")]).collect();
    let tensors: Vec<Written<'_>> = names.iter().map(|name| wave(name, &[2, 128])).collect();
    let found = found("norm", &tensors).unwrap();
    let check = |most: usize, expect: &[usize]| {
        let layers: Vec<usize> = spread(&found, most).iter().map(|f| f.layer).collect();
        let twice: Vec<usize> = expect.iter().flat_map(|n| [*n, *n]).collect();
        assert_eq!(layers, twice, "{most}");
    };
    check(100, &[0, 1, 2, 3, 4, 5]);
    check(12, &[0, 1, 2, 3, 4, 5]);
    check(6, &[0, 2, 5]);
    check(5, &[0, 5]);
    check(1, &[0]);
}

#[test]
fn a_recording_says_which_microtests_it_is_for() {
    let check = |names: &[&str], expect: &[&str]| {
        let tensors: Vec<Written<'_>> = names.iter().map(|name| wave(name, &[2, 64])).collect();
        assert_eq!(recording(&tensors).1.specs().unwrap(), expect, "{names:?}");
    };
    check(&["layers.0.hc_ffn_input", "x"], &["mhc-mix"]);
    check(&["layers.42.attn_output"], &["mhc-mix"]);
    check(&["layers.3.ffn_input"], &["router", "quantise"]);
    check(&["layers.3.q_norm_input", "layers.3.down_input"], &["norm", "quantise"]);
    let failure = recording(&[wave("hidden", &[2, 64])]).1.specs().unwrap_err();
    assert!(failure.message.contains("no tensor of `"), "{}", failure.message);
    assert!(
        failure.hint.is_some_and(|h| h.contains("`layers.N.attn_norm_input`") && h.contains("there are 1, hidden"))
    );
}
