use std::path::{Path, PathBuf};

use fs_err as fs;
use half::bf16;
use safetensors::tensor::{TensorView, serialize};

use super::*;
use crate::engine::procedure::Failure;

/// A tensor of a file: name, type, shape, bytes.
pub(super) type Given<'a> = (&'a str, Dtype, &'a [usize], &'a [u8]);

/// The bytes of one safetensors file.
pub(super) fn file(tensors: &[Given<'_>]) -> Vec<u8> {
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    serialize(views, None).unwrap()
}

/// Writes shards and an index that says what is in them.
pub(super) fn write_sharded(folder: &Path, shards: &[(&str, &[Given<'_>])]) {
    let mut map = serde_json::Map::new();
    for (shard, tensors) in shards {
        fs::write(folder.join(shard), file(tensors)).unwrap();
        map.extend(tensors.iter().map(|(name, ..)| ((*name).to_owned(), (*shard).into())));
    }
    write_index(folder, &serde_json::json!({"metadata": {"total_size": 24}, "weight_map": map}).to_string());
}

fn write_index(folder: &Path, text: &str) {
    fs::write(folder.join("model.safetensors.index.json"), text).unwrap();
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn sample() -> Vec<u8> {
    let half = bf16::from_f32(0.1).to_le_bytes();
    file(&[
        ("block.fn", Dtype::F32, &[2, 1], &floats(&[1.5, -2.0])),
        ("block.base", Dtype::BF16, &[1], &half),
        ("block.flag", Dtype::BOOL, &[1], &[1]),
    ])
}

/// Two shards: `a` and `b` in the first, `hc_head_fn` in the second.
fn sharded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (a, b, c) = (floats(&[1.0, 2.0]), [1, 255], floats(&[3.0]));
    let first: &[Given<'_>] = &[("a", Dtype::F32, &[2], &a), ("b", Dtype::I8, &[2], &b)];
    write_sharded(
        folder.path(),
        &[("1.safetensors", first), ("2.safetensors", &[("hc_head_fn", Dtype::F32, &[1], &c)])],
    );
    folder
}

fn on_disk(bytes: &[u8]) -> (tempfile::TempDir, Result<Checkpoint, CheckpointError>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let opened = Checkpoint::open(folder.path());
    (folder, opened)
}

#[test]
fn reads_f32_and_bf16_as_f64() {
    let (_folder, checkpoint) = on_disk(&sample());
    let checkpoint = checkpoint.unwrap();
    assert_eq!(checkpoint.tensor("block.fn", &[2, 1]).unwrap().values, [1.5, -2.0]);
    assert_eq!(checkpoint.tensor("block.base", &[1]).unwrap().values, [0.100_097_656_25]);
}

#[test]
fn file_and_bytes_read_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab");
    let (file, bytes) = (Checkpoint::open(&path).unwrap(), Checkpoint::lab().unwrap());
    assert_eq!(file.names(), bytes.names());
    let read = |c: &Checkpoint| c.tensor("blocks.3.ha.fn", &[24, 512]).unwrap();
    assert_eq!(read(&file), read(&bytes));
}

#[test]
fn a_missing_tensor_names_its_neighbour() {
    let (_folder, checkpoint) = on_disk(&sample());
    let error = checkpoint.unwrap().tensor("block.scale", &[1]).unwrap_err();
    assert!(matches!(&error, CheckpointError::Missing { name, .. } if name == "block.scale"));
    assert!(error.hint().contains("`block."), "{}", error.hint());
}

#[test]
fn a_misshapen_tensor_gives_both_shapes() {
    let (_folder, checkpoint) = on_disk(&sample());
    let failure = Failure::from(checkpoint.unwrap().tensor("block.fn", &[24, 512]).unwrap_err());
    assert!(failure.message.contains("[2, 1]") && failure.message.contains("[24, 512]"), "{}", failure.message);
    assert!(failure.hint.is_some());
}

#[test]
fn an_unconverted_type_is_an_error_and_its_bytes_are_there() {
    let (_folder, checkpoint) = on_disk(&sample());
    let checkpoint = checkpoint.unwrap();
    let error = checkpoint.tensor("block.flag", &[1]).unwrap_err();
    assert!(matches!(error, CheckpointError::Dtype { dtype, .. } if dtype == "BOOL"));
    let stored = checkpoint.stored("block.flag").unwrap();
    assert_eq!((stored.dtype, stored.shape, stored.bytes), (Dtype::BOOL, vec![1], vec![1]));
}

/// What is said of a file with these bytes, without its name.
fn said_of(bytes: &[u8]) -> String {
    let (folder, opened) = on_disk(bytes);
    let (error, path) = (opened.unwrap_err(), folder.path().join("model.safetensors"));
    assert!(!error.hint().is_empty());
    let sentence = error.to_string();
    let start = format!("`{}` is damaged: ", path.display());
    sentence.strip_prefix(&start).unwrap_or_else(|| panic!("{sentence}")).to_owned()
}

/// A file with this header before so many zero bytes.
fn with_header(json: &str, data: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn a_file_too_short_for_a_header_is_named_as_such() {
    assert_eq!(said_of(b""), "0 bytes cannot hold a header");
    assert_eq!(said_of(b"1234567"), "7 bytes cannot hold a header");
}

#[test]
fn a_huge_header_length_is_named_as_such_and_not_allocated() {
    let sentence = "it announces a header of 18446744073709551615 bytes in a file of 16";
    assert_eq!(said_of(&[255; 16]), sentence);
}

#[test]
fn a_header_cut_off_is_named_as_such() {
    let whole = sample();
    assert_eq!(said_of(&whole[..40]), format!("it announces a header of {} bytes in a file of 40", whole[0]));
}

#[test]
fn a_header_that_is_no_json_is_named_as_such() {
    let mut broken = sample();
    broken[8] = b'?';
    assert_eq!(said_of(&broken), "it is no JSON that fits: expected value at line 1 column 1");
}

#[test]
fn overlapping_tensors_are_named_as_such() {
    let json = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    assert_eq!(said_of(&with_header(json, 12)), "tensors `a` and `b` overlap");
}

#[test]
fn a_tensor_behind_the_end_of_the_file_is_named_as_such() {
    let whole = sample();
    let sentence = "tensor `block.flag` ends at byte 11 of the data, and 10 are there";
    assert_eq!(said_of(&whole[..whole.len() - 1]), sentence);
}

#[test]
fn bytes_that_the_header_does_not_describe_are_named_as_such() {
    let sentence = "its header describes 11 bytes of data and 12 are there";
    assert_eq!(said_of(&[sample().as_slice(), b"x"].concat()), sentence);
}

#[test]
fn a_type_that_does_not_fit_the_bytes_is_named_as_such() {
    let json = r#"{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(said_of(&with_header(json, 8)), "tensor `a` is BF16 [2], which takes 4 bytes, and has 8");
    let json = r#"{"a":{"dtype":"FLOAT","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(said_of(&with_header(json, 8)), "tensor `a` has the type `FLOAT`, which the format does not know");
}

#[test]
fn a_name_that_stands_there_twice_is_named_as_such() {
    let one = r#""a":{"dtype":"F32","shape":[1],"data_offsets":"#;
    assert_eq!(said_of(&with_header(&format!("{{{one}[0,4]}},{one}[4,8]}}}}"), 8)), "tensor `a` stands there twice");
}

#[test]
fn a_missing_file_is_an_io_error_with_its_path() {
    let error = Checkpoint::open(Path::new("/nonexistent/model.safetensors")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/model.safetensors"), "{error}");
}

#[test]
fn a_folder_without_a_checkpoint_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    let place = folder.path().display();
    let sentence = format!("`{place}` has neither `model.safetensors.index.json` nor `model.safetensors`");
    assert_eq!(error.to_string(), sentence);
}

#[test]
fn tensors_are_found_over_the_index() {
    let folder = sharded();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.names(), ["a", "b", "hc_head_fn"]);
    assert_eq!(checkpoint.tensor("a", &[2]).unwrap().values, [1.0, 2.0]);
    assert_eq!(checkpoint.tensor("b", &[2]).unwrap().values, [1.0, -1.0]);
    let totals = checkpoint.totals();
    assert_eq!((totals.tensors, totals.shards, totals.bytes, totals.hc_tensors), (3, 2, Some(24), 1));
    assert_eq!(totals.headers, 1, "the second shard was not needed");
    assert_eq!(totals.dtypes, BTreeMap::from([("F32".into(), 1), ("I8".into(), 1)]));
    assert_eq!(checkpoint.any_tensor("hc_head_fn").unwrap(), Tensor { shape: vec![1], values: vec![3.0] });
    assert_eq!(checkpoint.find("hc_head_fn").unwrap().shape, [1]);
}

#[test]
fn only_headers_and_wanted_tensors_are_read() {
    let folder = sharded();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let length = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    let index = length("model.safetensors.index.json");
    assert_eq!(checkpoint.transfer(), Transfer { bytes: index, requests: 1, ..Transfer::default() });
    checkpoint.fetch(&["hc_head_fn"], &|_, _, _| {}, &|| false).unwrap();
    let header = length("2.safetensors") - 4;
    assert_eq!(checkpoint.transfer().bytes, index + header);
    checkpoint.tensor("hc_head_fn", &[1]).unwrap();
    assert_eq!(checkpoint.transfer(), Transfer { bytes: index + header + 4, requests: 4, ..Transfer::default() });
    let place = folder.path().display();
    let moved = index + header + 4;
    let said = format!("{place}: 3 tensors in 2 files, 24 B, 1 of hyper-connections; {moved} B moved in 4 reads");
    assert_eq!(checkpoint.summary(), said);
}

#[test]
fn a_missing_shard_is_named_with_the_tensor_that_wants_it() {
    let folder = sharded();
    fs::remove_file(folder.path().join("2.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    checkpoint.tensor("a", &[2]).unwrap();
    let sentence = format!(
        "`{}` has no shard `2.safetensors`, where the index says that tensor `hc_head_fn` is",
        folder.path().display()
    );
    assert_eq!(checkpoint.tensor("hc_head_fn", &[1]).unwrap_err().to_string(), sentence);
    assert_eq!(checkpoint.fetch(&["hc_head_fn"], &|_, _, _| {}, &|| false).unwrap_err().to_string(), sentence);
}

#[test]
fn a_tensor_that_only_the_index_has_is_named() {
    let folder = sharded();
    write_index(folder.path(), r#"{"weight_map": {"a": "1.safetensors", "c": "1.safetensors"}}"#);
    let error = Checkpoint::open(folder.path()).unwrap().any_tensor("c").unwrap_err();
    let shard = folder.path().join("1.safetensors");
    assert_eq!(error.to_string(), format!("shard `{}` has no tensor `c`, though the index says so", shard.display()));
    assert!(error.hint().contains("different versions"));
}

#[test]
fn a_tensor_that_the_index_lacks_is_missing_even_if_a_shard_has_it() {
    let folder = sharded();
    write_index(folder.path(), r#"{"weight_map": {"a": "1.safetensors"}}"#);
    let error = Checkpoint::open(folder.path()).unwrap().any_tensor("b").unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` has no tensor `b`", folder.path().display()));
}

#[test]
fn a_damaged_shard_is_named_when_it_is_wanted() {
    let folder = sharded();
    let shard = folder.path().join("2.safetensors");
    fs::write(&shard, b"junk").unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    checkpoint.tensor("a", &[2]).unwrap();
    let sentence = format!("`{}` is damaged: 4 bytes cannot hold a header", shard.display());
    assert_eq!(checkpoint.any_tensor("hc_head_fn").unwrap_err().to_string(), sentence);
}

#[test]
fn a_damaged_index_is_named() {
    let check = |text: &str, sentence: &str| {
        let folder = sharded();
        write_index(folder.path(), text);
        let index = folder.path().join("model.safetensors.index.json");
        let error = Checkpoint::open(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}` is damaged: {sentence}", index.display()));
        assert!(!error.hint().is_empty());
    };
    check("{}", "it has no `weight_map`");
    check("", "it is no JSON that fits: EOF while parsing a value at line 1 column 0");
    check(r#"{"weight_map": {"a": "1", "a": "2"}}"#, "tensor `a` stands there twice");
    check(r#"{"weight_map": {"a": "../1"}}"#, "it names a shard \"../1\", which is no file name");
}

#[test]
fn the_configuration_beside_it_is_read() {
    let folder = sharded();
    let config = || Checkpoint::open(folder.path()).unwrap().config(&|| false);
    assert_eq!(config(), Ok(None));
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    assert_eq!(config().unwrap_err().message, "the model's configuration has no `hidden_size`");
    assert_eq!(Checkpoint::lab().unwrap().config(&|| false), Ok(None));
}

#[test]
fn a_truncated_shard_does_not_end_the_program() {
    let folder = sharded();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    checkpoint.find("a").unwrap();
    let path: PathBuf = folder.path().join("1.safetensors");
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20).unwrap();
    let error = checkpoint.any_tensor("a").unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()), "{error}");
}
