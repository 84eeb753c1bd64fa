//! Time of the mixing microtest at the lab's size, and of its parts.
//!
//! `cargo bench --bench micro`.

#![allow(missing_docs, clippy::expect_used, reason = "a benchmark fails by panicking")]

use jiff::Timestamp;
use patchbench::kernel::candidate::candidates;
use patchbench::kernel::checkpoint::Checkpoint;
use patchbench::kernel::mhc::sweep::{Ticker, alone, reference};
use patchbench::kernel::mhc::{golden_ids, run};
use patchbench::kernel::oracle::model::Model;

fn main() {
    divan::main();
}

/// The whole microtest: weights, reference, floor, candidates, twins, verdicts.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn mhc_mix() {
    let lab = Checkpoint::lab().expect("the built-in checkpoint is whole");
    divan::black_box(run(&lab, &|_, _, _| {}, &|| false, Timestamp::UNIX_EPOCH).expect("the sweep ends"));
}

/// Reading the weights alone.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn load() {
    let lab = Checkpoint::lab().expect("the built-in checkpoint is whole");
    divan::black_box(Model::load(&lab).expect("the lab's names and shapes"));
}

/// One forward pass in f64 on one core.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn forward(bencher: divan::Bencher<'_, '_>) {
    let (model, ids) = lab();
    bencher.bench_local(|| reference(&model, &ids, &quiet()).ok());
}

/// All sites of the bf16 candidate, each alone, on one core.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn sites_alone(bencher: divan::Bencher<'_, '_>) {
    let (model, ids) = lab();
    let reference = reference(&model, &ids, &quiet()).expect("nobody cancels");
    let candidates = candidates();
    let bf16 = candidates.last().expect("there are candidates");
    bencher.bench_local(|| alone(&model, &reference, bf16, &quiet()).ok());
}

fn lab() -> (Model, Vec<u16>) {
    let lab = Checkpoint::lab().expect("the built-in checkpoint is whole");
    (Model::load(&lab).expect("the lab's names and shapes"), golden_ids().expect("the built-in prompt"))
}

fn quiet() -> Ticker<'static> {
    Ticker::new(1, &|_, _, _| {}, &|| false)
}
