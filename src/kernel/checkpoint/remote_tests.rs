//! The shell texts and what is made of them, run by this machine's own `sh`; over ssh they run in `tests/all/ssh`.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fs_err as fs;

use super::remote::Remote;
use super::source::open_host;
use super::tests::{Given, file, write_sharded};
use super::*;
use crate::engine::procedure::Failure;
use crate::remote::host::{Host, Hosts, Place as HostPlace};

const QUIET: Progress<'static> = &|_, _, _| {};

fn remote(cache: Option<&Path>) -> Remote {
    let place = HostPlace { host: Host::Local, become_with: Vec::new() };
    Remote::new(Hosts::default(), place, cache.map(Path::to_owned)).unwrap()
}

fn open(path: &Path, cache: Option<&Path>) -> Result<Checkpoint, CheckpointError> {
    open_host(remote(cache), path.to_str().unwrap(), QUIET, &|| false)
}

/// Bytes with every value, newlines among them, none like its neighbour.
fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 7 + seed) % 256) as u8).collect()
}

/// Two shards and a configuration; the folder's name is one that a careless shell would take apart.
fn sample(folder: &Path) -> PathBuf {
    let folder = folder.join("it's a $(model)");
    fs::create_dir(&folder).unwrap();
    let (a, b, c, d) = (bytes(1, 400), bytes(2, 300), bytes(3, 200), bytes(4, 100));
    let first: &[Given<'_>] =
        &[("a", Dtype::U8, &[400], &a), ("b", Dtype::U8, &[300], &b), ("c", Dtype::U8, &[200], &c)];
    write_sharded(&folder, &[("1.safetensors", first), ("2.safetensors", &[("d", Dtype::U8, &[100], &d)])]);
    fs::write(folder.join("config.json"), "{}").unwrap();
    folder
}

fn length(folder: &Path, name: &str) -> u64 {
    fs::metadata(folder.join(name)).unwrap().len()
}

#[test]
fn wanted_ranges_are_moved_once_and_read_as_here() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = sample(root.path());
    let here = Checkpoint::open(&folder).unwrap();
    for cache in [Some(cache.path()), None] {
        let there = open(&folder, cache).unwrap();
        let index = length(&folder, "model.safetensors.index.json");
        assert_eq!(there.transfer(), Transfer { bytes: index, requests: 2, cached: index, refetched: 0 });
        assert_eq!(there.place(), format!("local:{}", folder.display()));
        there.fetch(&["a", "b", "d"], QUIET, &|| false).unwrap();
        let headers = length(&folder, "1.safetensors") - 900 + length(&folder, "2.safetensors") - 100;
        let moved = there.transfer();
        assert_eq!((moved.bytes, moved.requests), (index + headers + 400 + 300 + 100, 5));
        for name in ["a", "b", "d"] {
            assert_eq!(there.stored(name).unwrap(), here.stored(name).unwrap());
        }
        assert_eq!(there.transfer().bytes, moved.bytes, "what was fetched is not asked for again");
        assert_eq!(there.stored("c").unwrap(), here.stored("c").unwrap());
        assert_eq!(there.transfer().bytes, moved.bytes + 200, "what was not fetched is read when it is wanted");
    }
}

#[test]
fn the_second_reading_moves_nothing() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = sample(root.path());
    let first = open(&folder, Some(cache.path())).unwrap();
    first.fetch(&["a", "c"], QUIET, &|| false).unwrap();
    let second = open(&folder, Some(cache.path())).unwrap();
    second.fetch(&["a", "c"], QUIET, &|| false).unwrap();
    assert_eq!(second.stored("a").unwrap(), first.stored("a").unwrap());
    assert_eq!(second.stored("c").unwrap().bytes, bytes(3, 200));
    let moved = second.transfer();
    assert_eq!((moved.bytes, moved.requests, moved.refetched), (0, 1, 0), "one look at sizes and times");
    assert!(moved.cached > 600);
}

#[test]
fn a_file_that_changed_is_fetched_anew() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = sample(root.path());
    open(&folder, Some(cache.path())).unwrap().stored("d").unwrap();
    let other = bytes(9, 100);
    let shard = folder.join("2.safetensors");
    let copy = folder.join("copy");
    fs::write(&copy, file(&[("d", Dtype::U8, &[100], &other)])).unwrap();
    fs::rename(&copy, &shard).unwrap();

    assert_eq!(open(&folder, Some(cache.path())).unwrap().stored("d").unwrap().bytes, other);
}

#[test]
fn a_damaged_entry_of_the_cache_is_fetched_anew() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = sample(root.path());
    open(&folder, Some(cache.path())).unwrap().stored("d").unwrap();
    damage_all(cache.path());
    let again = open(&folder, Some(cache.path())).unwrap();
    assert_eq!(again.stored("d").unwrap().bytes, bytes(4, 100));
    let moved = again.transfer();
    assert_eq!(moved.refetched, 4, "index, two pieces of the header, the tensor");
    assert!(moved.bytes > 0 && moved.cached == 0, "{moved:?}");
}

fn damage_all(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            damage_all(&path);
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_said() {
    let root = tempfile::tempdir().unwrap();
    let folder = sample(root.path());
    let there = open(&folder, None).unwrap();
    there.find("d").unwrap();
    let shard = folder.join("2.safetensors");
    let long = fs::read(&shard).unwrap();
    fs::write(&shard, [long.as_slice(), b"more"].concat()).unwrap();
    let error = there.stored("d").unwrap_err();
    assert_eq!(error.to_string(), format!("`local:{}` changed while it was read", shard.display()));
    fs::remove_file(&shard).unwrap();
    let failure = Failure::from(there.stored("d").unwrap_err());
    assert!(failure.message.starts_with("the checkpoint on `local` cannot be read: stat: "), "{}", failure.message);
    assert!(failure.message.contains("No such file"), "{}", failure.message);
    fs::write(&shard, &long[..long.len() - 1]).unwrap();
    let failure = Failure::from(there.stored("d").unwrap_err());
    assert_eq!(failure.message, "the answer of `local` about the checkpoint breaks off");
}

#[test]
fn what_stands_at_a_path_is_said() {
    let root = tempfile::tempdir().unwrap();
    let folder = sample(root.path());
    let failed = |path: &Path| Failure::from(open(path, None).unwrap_err());
    let nowhere = root.path().join("nowhere");
    assert_eq!(failed(&nowhere).message, format!("`{}` is not on `local`", nowhere.display()));
    let empty = root.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let sentence =
        format!("`local:{}` has neither `model.safetensors.index.json` nor `model.safetensors`", empty.display());
    assert_eq!(failed(&empty).message, sentence);
    let single = open(&folder.join("2.safetensors"), None).unwrap();
    assert_eq!((single.names(), single.totals().bytes), (vec!["d".to_owned()], Some(100)));
    fs::copy(folder.join("2.safetensors"), empty.join("model.safetensors")).unwrap();
    let alone = open(&empty, None).unwrap();
    assert_eq!(alone.stored("d").unwrap().bytes, bytes(4, 100));
    assert_eq!(alone.config(&|| false), Ok(None));
    let config = open(&folder, None).unwrap().config(&|| false);
    assert_eq!(config.unwrap_err().message, "the model's configuration has no `hidden_size`");
}

#[test]
fn a_missing_shard_on_a_host_is_named() {
    let root = tempfile::tempdir().unwrap();
    let folder = sample(root.path());
    fs::remove_file(folder.join("2.safetensors")).unwrap();
    let error = open(&folder, None).unwrap().stored("d").unwrap_err();
    let place = format!("local:{}", folder.display());
    let sentence = format!("`{place}` has no shard `2.safetensors`, where the index says that tensor `d` is");
    assert_eq!(error.to_string(), sentence);
}

#[test]
fn a_damaged_shard_on_a_host_is_named() {
    let root = tempfile::tempdir().unwrap();
    let folder = sample(root.path());
    let shard = folder.join("2.safetensors");
    let check = |bytes: &[u8], what: &str| {
        fs::write(&shard, bytes).unwrap();
        let error = open(&folder, None).unwrap().stored("d").unwrap_err();
        assert_eq!(error.to_string(), format!("`local:{}` is damaged: {what}", shard.display()));
    };
    check(b"", "0 bytes cannot hold a header");
    check(b"junk", "4 bytes cannot hold a header");
    check(&[255; 16], "it announces a header of 18446744073709551615 bytes in a file of 16");
}

#[test]
fn progress_goes_up_to_all_bytes_and_cancelling_keeps_what_was_moved() {
    let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = root.path().join("large");
    fs::create_dir(&folder).unwrap();
    // More than two batches of 16 MiB.
    let large = bytes(5, 40 * 1024 * 1024);
    let tensor: &[Given<'_>] = &[("large", Dtype::U8, &[large.len()], &large)];
    write_sharded(&folder, &[("1.safetensors", tensor)]);

    let there = open(&folder, Some(cache.path())).unwrap();
    there.find("large").unwrap();
    let seen = Mutex::new(Vec::new());
    let note = |done: u64, all: u64, says: &str| {
        assert!(says.starts_with("reading ") && says.contains(" from local"), "{says}");
        seen.lock().unwrap().push((done, all));
    };
    let stop = || seen.lock().unwrap().last().is_some_and(|(done, _)| *done > 0);
    let error = there.fetch(&["large"], &note, &stop).unwrap_err();
    assert!(matches!(error, CheckpointError::Cancelled), "{error}");
    let batch = 16 * 1024 * 1024;
    let all = large.len() as u64;
    assert_eq!(*seen.lock().unwrap(), [(0, all), (batch, all)]);

    seen.lock().unwrap().clear();
    there.fetch(&["large"], &note, &|| false).unwrap();
    let rest = all - batch;
    assert_eq!(*seen.lock().unwrap(), [(0, rest), (batch, rest), (rest, rest)]);
    assert_eq!(there.stored("large").unwrap().bytes, large);
}
