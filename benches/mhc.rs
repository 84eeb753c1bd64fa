//! The mixing microtest at the model's real size, beside the same arithmetic in numpy.
//!
//! `cargo bench --bench mhc [-- ROUNDS]`: 86 sites, 256 tokens, streams of 4 x 4,096, the reference
//! and five candidates. Rust and numpy take turns, with one thread and with two; the least time of
//! all rounds counts. numpy is that of `python3`, or of the interpreter in `PATCHBENCH_PYTHON`.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use patchbench::kernel::candidate::{self, Candidate};
use patchbench::kernel::sites::alone::{Alone, Inputs, PARTS, alone, products_alone};
use patchbench::kernel::sites::compounded::compounded;
use patchbench::kernel::sites::swept::{Extent, INFO, run};
use patchbench::kernel::sites::synthetic::Synthetic;

const SITES: usize = 86;
const WIDTH: usize = 4096;
const TOKENS: usize = 256;
/// Floating-point operations of one product at all sites.
const PRODUCT: f64 = 2.0 * (SITES * TOKENS * 24 * 4 * WIDTH) as f64;

/// Errors measured apart from this program: mixes, combination matrix, new streams of one site.
const KNOWN: [(&str, [f64; 3]); 3] = [
    ("tf32", [2.1e-4, 1.3e-4, 1.1e-4]),
    ("bf16-weights", [1.65e-3, 1.1e-3, 0.9e-3]),
    ("bf16", [2.35e-3, 1.5e-3, 1.2e-3]),
];

/// Least seconds: all, products of all arithmetics, the f64 product.
#[derive(Clone, Copy, Debug)]
struct Least {
    whole: f64,
    products: f64,
    f64: f64,
}

#[derive(serde::Deserialize)]
struct Numpy {
    #[serde(rename = "numpy")]
    version: String,
    seconds: Vec<f64>,
    products: Vec<f64>,
    f64: Vec<f64>,
    errors: BTreeMap<String, Vec<f64>>,
}

fn main() {
    let rounds = std::env::args().find_map(|a| a.parse().ok()).unwrap_or(3);
    let all = candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).expect("the built-in file is right");
    let good: Vec<Candidate> = all.iter().filter(|c| c.fault.is_none()).cloned().collect();
    let mut peers = None;
    let mut peak = None;
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        let (mut ours, mut theirs) = (None, None);
        for _ in 0..rounds {
            ours = Some(least(ours, pool.install(|| rust(&good))));
            peak = peak.or_else(peak_memory);
            if let Some(numpy) = numpy(threads) {
                let min = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
                let got = Least { whole: min(&numpy.seconds), products: min(&numpy.products), f64: min(&numpy.f64) };
                theirs = Some(least(theirs, got));
                peers = Some(numpy);
            }
        }
        tell(threads, ours, theirs);
    }
    println!("peak memory of the sweep: {}", peak.map_or("unknown".into(), |kib| format!("{} MiB", kib / 1024)));
    table(&good, peers.as_ref());
    others(&all, &good);
}

fn least(before: Option<Least>, now: Least) -> Least {
    let Some(before) = before else { return now };
    Least {
        whole: before.whole.min(now.whole),
        products: before.products.min(now.products),
        f64: before.f64.min(now.f64),
    }
}

/// One sweep, inputs included, and its products alone.
fn rust(good: &[Candidate]) -> Least {
    let (_, whole) = timed(sweep(good));
    let inputs = Synthetic::new(SITES, WIDTH, TOKENS, 1);
    let products = timed(|| products_alone(&inputs, &inputs, good).expect("synthetic weights are there")).1;
    let f64 = timed(|| products_alone(&inputs, &inputs, &[]).expect("synthetic weights are there")).1;
    Least { whole, products, f64 }
}

fn sweep(candidates: &[Candidate]) -> impl FnOnce() -> Alone {
    move || {
        let inputs = Synthetic::new(SITES, WIDTH, TOKENS, 1);
        alone(&inputs, &inputs, candidates, Inputs::Still, None, &|| Ok(())).expect("synthetic weights are there")
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begun = Instant::now();
    let made = std::hint::black_box(work());
    (made, begun.elapsed().as_secs_f64())
}

/// Three sweeps in a process of its own; `None` where there is no numpy.
fn numpy(threads: usize) -> Option<Numpy> {
    let python = std::env::var("PATCHBENCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/mhc_numpy.py");
    let sizes = [SITES, WIDTH, TOKENS, 2].map(|n| n.to_string());
    let output = Command::new(python)
        .arg(script)
        .args(sizes)
        .env("OPENBLAS_NUM_THREADS", threads.to_string())
        .env("OMP_NUM_THREADS", threads.to_string())
        .output()
        .ok()?;
    let parsed = serde_json::from_slice(&output.stdout).ok();
    if parsed.is_none() {
        eprintln!("no numpy: {}", String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default());
    }
    parsed
}

/// The most memory that this process ever had, in KiB.
fn peak_memory() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn tell(threads: usize, ours: Option<Least>, theirs: Option<Least>) {
    let show = |who: &str, l: Least| {
        let products = 5.0 * PRODUCT / l.products / 1e9;
        let f64 = PRODUCT / l.f64 / 1e9;
        println!(
            "{threads} thread(s), {who}: sweep {:.2} s; products {:.2} s, {products:.0} GFLOP/s; f64 product {:.2} s, {f64:.0} GFLOP/s",
            l.whole, l.products, l.f64
        );
    };
    for (who, least) in [("rust ", ours), ("numpy", theirs)] {
        let Some(least) = least else { continue };
        show(who, least);
    }
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        println!(
            "{threads} thread(s), numpy over rust: sweep {:.1}, products {:.1}, f64 product {:.1}",
            theirs.whole / ours.whole,
            theirs.products / ours.products,
            theirs.f64 / ours.f64
        );
    }
}

fn root_mean_square(errors: impl Iterator<Item = f64>) -> f64 {
    let squares: Vec<f64> = errors.map(|e| e * e).collect();
    (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
}

/// Errors over all sites beside those of numpy and those known from elsewhere.
fn table(good: &[Candidate], numpy: Option<&Numpy>) {
    let (found, _) = timed(sweep(good));
    for (candidate, errors) in good.iter().zip(&found.arithmetics) {
        let name = candidate.name.as_str();
        for (at, part) in PARTS.iter().enumerate() {
            let error = root_mean_square(errors.parts.iter().map(|site| site[at].rel_l2().unwrap_or(f64::NAN)));
            let diff = errors.parts.iter().map(|site| site[at].calc_diff()).sum::<f64>() / SITES as f64;
            let column = [Some(0), Some(1), None, Some(2)][at];
            let known = KNOWN.iter().find(|(known, _)| *known == name).and_then(|(_, all)| Some(all[column?]));
            let known = known.map(|e| format!(", known {e:.2e}")).unwrap_or_default();
            let theirs = numpy.and_then(|n| n.errors.get(name)).map(|e| format!(", numpy {:.2e}", e[at]));
            println!("{name:14} {part:10} {error:.2e}, calc_diff {diff:.1e}{}{known}", theirs.unwrap_or_default());
        }
    }
    let floor = root_mean_square(found.stored.iter().map(|site| site.rel_l2().unwrap_or(f64::NAN)));
    println!("{:14} {:10} {floor:.2e}, known 1.65e-3", "stored", "streams");
    println!("numpy {}", numpy.map_or("none", |n| &n.version));
}

/// What else there is to run, once each.
fn others(all: &[Candidate], good: &[Candidate]) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads start");
    pool.install(|| {
        println!("with the five twins: {:.2} s", timed(sweep(all)).1);
        let few = Synthetic::new(SITES, WIDTH, 32, 1);
        let (chains, seconds) =
            timed(|| compounded(&few, &few, good, None, &|| Ok(())).expect("synthetic weights are there"));
        let last = |errors: &[patchbench::kernel::sites::sums::PartSums]| {
            errors.last().and_then(|e| e.rel_l2().ok()).unwrap_or(f64::NAN)
        };
        println!(
            "compounded, 32 tokens, 11 chains: {seconds:.2} s; after the last site: floor {:.2e}",
            last(&chains.floor)
        );
        for (a, candidate) in good.iter().enumerate() {
            println!(
                "  {:14} {:.2e}, stored in bf16 {:.2e}",
                candidate.name,
                last(&chains.exact[a]),
                last(&chains.stored[a])
            );
        }
        let inputs = Synthetic::new(SITES, WIDTH, TOKENS, 1);
        let says = inputs.says();
        let ((report, _), seconds) = timed(|| {
            run(&inputs, &inputs, says, all, Extent::default(), None, &|_| Ok(())).expect("synthetic weights are there")
        });
        println!("the whole report: {seconds:.2} s");
        report.verdicts.iter().for_each(|v| println!("  {:14} {}: {}", v.candidate, v.class.word(), v.says));
        report.controls.iter().for_each(|c| println!("  {:14} {}", c.name, c.says));
        report.bands.iter().for_each(|band| {
            let members: Vec<String> = band.members.iter().map(|m| format!("{} {:.1e}", m.name, m.rms)).collect();
            println!("  band of the {}: {}", band.part, members.join(", "));
        });
        report.causes.iter().for_each(|c| {
            println!("  {:14} {:8} {:10} {:.2e} {:3.0} %", c.candidate, c.point, c.rounding, c.rel_l2, 100.0 * c.share);
        });
    });
}
