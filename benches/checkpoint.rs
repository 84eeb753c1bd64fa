//! Time to open a checkpoint with 135,235 names, and to read the 270 tensors of its hyper-connections.
//!
//! `cargo bench --bench checkpoint`. First the index is read here and by Python's `json`, one after the other, and the
//! ratio is printed.

#![allow(missing_docs, unreachable_pub, dead_code, reason = "the writer of the checkpoint is that of the tests")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::process::Command;
use std::time::{Duration, Instant};

use patchbench::kernel::checkpoint::{Checkpoint, open_place_over};
use patchbench::remote::host::Hosts;

#[path = "../tests/all/common/sparse.rs"]
mod sparse;

/// Runs on each side of the comparison; the fastest counts on both.
const RUNS: usize = 20;

const PYTHON: &str = "import json, sys, time
best = 1e9
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    with open(sys.argv[1]) as file:
        names = json.load(file)['weight_map']
    best = min(best, time.perf_counter() - start)
    assert len(names) == 135235
print(best)";

fn main() {
    // `cargo test --benches` asks every benchmark to run in short.
    if !std::env::args().any(|word| word == "--test" || word == "--list") {
        against_python();
    }
    divan::main();
}

fn against_python() {
    let folder = tempfile::tempdir().unwrap();
    let written = sparse::write_flash(folder.path());
    let here = (0..RUNS).map(|_| {
        let start = Instant::now();
        divan::black_box(Checkpoint::open(folder.path()).unwrap());
        start.elapsed()
    });
    let here = here.min().unwrap_or(Duration::MAX).as_secs_f64();
    let index = folder.path().join("model.safetensors.index.json");
    let output = Command::new("python3").args(["-c", PYTHON]).arg(&index).arg(RUNS.to_string()).output();
    let theirs = output.ok().and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().ok());
    let said = format!("{:.1} MB, 135,235 names, opened here in {:.1} ms", written.index as f64 / 1e6, here * 1e3);
    match theirs {
        Some(theirs) => println!("{said}; json of python3 {:.1} ms, ratio {:.1}", theirs * 1e3, theirs / here),
        None => println!("{said}; python3 is not here to compare with"),
    }
}

/// Reading the index, a table of its names, and finding the shards.
#[divan::bench(sample_count = 50, sample_size = 1)]
fn open(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    sparse::write_flash(folder.path());
    bencher.bench_local(|| Checkpoint::open(folder.path()).unwrap());
}

/// Opening, reading 45 headers, then 270 tensors as f64.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn hyper_connections(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let written = sparse::write_flash(folder.path());
    bencher.bench_local(|| {
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        checkpoint.fetch(&written.names(), &|_, _, _| {}, &|| false).unwrap();
        written.hc.iter().map(|t| checkpoint.tensor(&t.name, &t.shape).unwrap().values.len()).sum::<usize>()
    });
}

/// The same over the shell texts that read a host, run by this machine's own `sh`, with an empty cache.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn hyper_connections_of_a_host(bencher: divan::Bencher<'_, '_>) {
    let folder = tempfile::tempdir().unwrap();
    let written = sparse::write_flash(folder.path());
    bencher.with_inputs(|| tempfile::tempdir().unwrap()).bench_local_refs(|cache| through_sh(&folder, cache, &written));
}

/// The same once more: everything is in the cache.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn hyper_connections_of_the_cache(bencher: divan::Bencher<'_, '_>) {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = sparse::write_flash(folder.path());
    through_sh(&folder, &cache, &written);
    bencher.bench_local(|| through_sh(&folder, &cache, &written));
}

fn through_sh(folder: &tempfile::TempDir, cache: &tempfile::TempDir, written: &sparse::Sparse) -> usize {
    let place = format!("ssh:local:{}", folder.path().display());
    let cache = Some(cache.path().to_owned());
    let checkpoint = open_place_over(&place, &Hosts::default(), cache, &|_, _, _| {}, &|| false).unwrap();
    checkpoint.fetch(&written.names(), &|_, _, _| {}, &|| false).unwrap();
    written.hc.iter().map(|t| checkpoint.tensor(&t.name, &t.shape).unwrap().values.len()).sum()
}
