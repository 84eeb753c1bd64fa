//! Time of the mixing microtest at the lab's size, and of its parts.
//!
//! `cargo bench --bench micro`.

#![allow(missing_docs, clippy::expect_used, reason = "a benchmark fails by panicking")]

use jiff::Timestamp;
use patchbench::kernel::candidate::Candidate;
use patchbench::kernel::checkpoint::Checkpoint;
use patchbench::kernel::format::{Rounding, Storage};
use patchbench::kernel::mhc::chain::reference;
use patchbench::kernel::mhc::{MhcMix, SPEC, cases, golden_ids};
use patchbench::kernel::microtest::Microtest as _;
use patchbench::kernel::oracle::model::Model;
use patchbench::kernel::sweep::Ticker;
use patchbench::kernel::{Request, run};

fn main() {
    divan::main();
}

/// The whole microtest: weights, reference, floor, candidates, twins, verdicts.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn mhc_mix() {
    let request = Request {
        spec: SPEC,
        device: "cpu",
        force_device: false,
        checkpoint: None,
        candidates: None,
        activations: None,
        now: Timestamp::UNIX_EPOCH,
    };
    divan::black_box(run(&request, &|_, _, _| {}, &|| false).expect("the sweep ends"));
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
    bencher.bench_local(|| reference(&model, model.embed(&ids), &quiet()).ok());
}

/// All sites of the bf16 candidate, each alone, on one core.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn sites_alone(bencher: divan::Bencher<'_, '_>) {
    let (model, ids) = lab();
    let reference = reference(&model, model.embed(&ids), &quiet()).expect("nobody cancels");
    let cases = cases(&model, &reference, "the lab").cases;
    let round = ["weight", "streams", "output"].map(|point| (point.to_owned(), Storage::Element(Rounding::Bf16)));
    let bf16 = Candidate { round: round.into(), ..Candidate::exact(SPEC) };
    bencher.bench_local(|| cases.iter().map(|case| MhcMix.run(case, &bf16).parts.len()).sum::<usize>());
}

fn lab() -> (Model, Vec<u16>) {
    let lab = Checkpoint::lab().expect("the built-in checkpoint is whole");
    (Model::load(&lab).expect("the lab's names and shapes"), golden_ids().expect("the built-in prompt"))
}

fn quiet() -> Ticker<'static> {
    Ticker::new(1, &|_, _, _| {}, &|| false)
}
