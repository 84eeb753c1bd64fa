//! The CUDA kernels without a card: every one compiles for every architecture, what is shipped is
//! what a fresh build gives, and a machine without a card says so.
//!
//! Compiled is not run: what a kernel gives is seen on a card alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use patchbench::kernel::candidate::Candidate;
use patchbench::kernel::cuda::nvrtc::{Code, Nvrtc, places};
use patchbench::kernel::cuda::source::{self, CEILINGS, SOURCES};
use patchbench::kernel::cuda::{cards, shipped};
use patchbench::kernel::outside::Cuda;
use patchbench::kernel::specs;
use rayon::prelude::*;
use regex::Regex;

use crate::common::program;

/// The version of the compiler whose output is kept in the repository.
const VERSION: (i32, i32) = (13, 0);

/// Compute capabilities: Ampere, Hopper, and Blackwell of workstations.
const CAPABILITIES: [u32; 3] = [80, 90, 120];

/// The compiler, or `None` with a reason printed where it is not installed.
fn compiler() -> Option<Nvrtc> {
    match Nvrtc::load(&places(&|name| std::env::var(name).ok())) {
        Ok(nvrtc) => Some(nvrtc),
        Err(failure) => {
            println!("SKIP nvrtc: {}", failure.message);
            None
        }
    }
}

/// All built-in candidates with their source.
fn all() -> Vec<(&'static source::Source, Candidate)> {
    let of = |from: &'static source::Source| {
        let spec = specs().iter().find(|s| s.name == from.spec).unwrap();
        let candidates = source::candidates(from.text, from.file, spec).unwrap();
        candidates.into_iter().map(move |candidate| (from, candidate))
    };
    SOURCES.iter().flat_map(of).collect()
}

/// Registers of a thread, and bytes that did not fit into them, by function.
type Figures = BTreeMap<String, (u32, u32)>;

/// Takes the assembler's remarks apart.
fn figures(log: &str) -> Figures {
    let name = Regex::new(r"Function properties for (\S+)|Compiling entry function '([^']+)'").unwrap();
    let spills = Regex::new(r"(\d+) bytes spill stores, (\d+) bytes spill loads").unwrap();
    let used = Regex::new(r"Used (\d+) registers").unwrap();
    let mut found = Figures::new();
    let mut now = String::new();
    for line in log.lines() {
        if let Some(at) = name.captures(line) {
            at.get(1).or(at.get(2)).unwrap().as_str().clone_into(&mut now);
        } else if let Some(at) = spills.captures(line) {
            found.entry(now.clone()).or_default().1 += at[1].parse::<u32>().unwrap() + at[2].parse::<u32>().unwrap();
        } else if let Some(at) = used.captures(line) {
            found.entry(now.clone()).or_default().0 = at[1].parse().unwrap();
        }
    }
    found
}

#[test]
fn remarks_of_the_assembler_are_taken_apart() {
    let log = "ptxas info    : Compiling entry function 'f' for 'sm_90'\nptxas info    : Function properties for f\n    \
               8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 40 registers\n";
    assert_eq!(figures(log), Figures::from([("f".into(), (40, 16))]));
}

/// Every kernel for every architecture: registers are listed in `docs/kernels.md`, and none spills.
#[test]
fn every_kernel_compiles_for_every_architecture_and_keeps_to_its_registers() {
    let Some(nvrtc) = compiler() else { return };
    let jobs: Vec<(&source::Source, Candidate, u32)> = all()
        .into_iter()
        .flat_map(|(from, candidate)| {
            let suits = |capability: &u32| candidate.cuda.as_ref().unwrap().suits(*capability).is_ok();
            let suited: Vec<u32> = CAPABILITIES.into_iter().filter(suits).collect();
            suited.into_iter().map(move |capability| (from, candidate.clone(), capability))
        })
        .collect();
    // Candidates that differ in their splits or launches alone are the same code.
    let options = |candidate: &Candidate, capability: u32| {
        let cuda = candidate.cuda.as_ref().unwrap();
        source::options(cuda, &source::arch(cuda, capability))
    };
    let distinct: BTreeSet<(&str, Vec<String>)> =
        jobs.iter().map(|(from, candidate, capability)| (from.file, options(candidate, *capability))).collect();
    let code: BTreeMap<(&str, Vec<String>), Result<Figures, String>> = distinct
        .into_par_iter()
        .map(|(file, options)| {
            let from = SOURCES.iter().find(|s| s.file == file).unwrap();
            let text = source::expanded(from.text, file).unwrap();
            let all: Vec<String> = options.iter().cloned().chain(["--ptxas-options=-v".into()]).collect();
            let made = nvrtc.compile(file, &text, &all, Code::Cubin).map_err(|f| f.message).map(|made| {
                assert!(made.code.starts_with(b"\x7fELF"), "{file} {options:?}: no machine code");
                figures(&made.log)
            });
            ((file, options), made)
        })
        .collect();
    let compiled: Vec<(String, u32, Result<Figures, String>)> = jobs
        .iter()
        .map(|(from, candidate, capability)| {
            let launched = |name: &str| candidate.cuda.iter().flat_map(|c| &c.launch).any(|l| l.function == name);
            let mut made = code[&(from.file, options(candidate, *capability))].clone();
            if let Ok(figures) = &mut made {
                figures.retain(|name, _| launched(name));
            }
            (shipped::key(candidate), *capability, made)
        })
        .collect();
    let broken: Vec<String> = compiled
        .iter()
        .filter_map(|(key, arch, made)| made.as_ref().err().map(|why| format!("{key} sm_{arch}: {why}")))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let mut table = Table::new();
    for (key, capability, made) in compiled {
        for (function, figures) in made.unwrap() {
            table.entry((key.clone(), function)).or_default().insert(capability, figures);
        }
    }
    let spilled: Vec<String> = table
        .iter()
        .flat_map(|((key, function), by)| by.iter().map(move |(arch, f)| (format!("{key} {function} sm_{arch}"), f.1)))
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(what, bytes)| format!("{what}: {bytes} bytes"))
        .collect();
    assert!(spilled.is_empty(), "spills:\n{}", spilled.join("\n"));
    let written = markdown(&table);
    print!("{written}");
    if nvrtc.version != VERSION {
        return;
    }
    if std::env::var_os("PATCHBENCH_BLESS").is_some() {
        bless("docs/kernels.md", written.as_bytes());
        return;
    }
    let kept = fs_err::read_to_string(in_repository("docs/kernels.md")).unwrap();
    let apart = registers_apart(&kept, &written);
    assert!(apart.is_some_and(|most| most <= REGISTERS_APART), "{apart:?}: run `scripts/ptx`");
}

/// Figures by candidate and function, then by capability.
type Table = BTreeMap<(String, String), BTreeMap<u32, (u32, u32)>>;

fn markdown(table: &Table) -> String {
    let mut out = String::from(
        "# Registers of the kernels\n\nCompiled by NVRTC 13.0 for each architecture, which is no run: `-` is where a \
         kernel cannot be compiled for it.\nWhat was run is in `docs/performance.md`. No kernel spills.\n",
    );
    let _ = writeln!(out, "Sources: `{}`.\n", hash_of_sources());
    out.push_str("| candidate | function | sm_80 | sm_90 | sm_120a |\n|---|---|---|---|---|\n");
    for ((key, function), by) in table {
        let of = |capability| by.get(&capability).map_or_else(|| "-".into(), |(registers, _)| registers.to_string());
        let [ampere, hopper, blackwell] = CAPABILITIES.map(of);
        let _ = writeln!(out, "| {key} | `{function}` | {ampere} | {hopper} | {blackwell} |");
    }
    out
}

/// How far registers may lie from those that are written down: of one large source NVRTC 13.0 gives now and then
/// another text, with the same functions and a register more or less.
const REGISTERS_APART: u32 = 8;

/// The largest difference of a number in two tables; `None` where they have other rows or sources.
fn registers_apart(kept: &str, fresh: &str) -> Option<u32> {
    if kept.lines().count() != fresh.lines().count() {
        return None;
    }
    let mut most = 0;
    for (kept, fresh) in kept.lines().zip(fresh.lines()) {
        let (kept, fresh): (Vec<&str>, Vec<&str>) = (kept.split('|').collect(), fresh.split('|').collect());
        if kept.len() != fresh.len() {
            return None;
        }
        for (a, b) in kept.iter().zip(fresh).filter(|(a, b)| *a != b) {
            most = most.max(a.trim().parse::<u32>().ok()?.abs_diff(b.trim().parse().ok()?));
        }
    }
    Some(most)
}

#[test]
fn tables_of_registers_are_compared_number_by_number() {
    let check = |kept: &str, fresh: &str, expect| assert_eq!(registers_apart(kept, fresh), expect, "{kept} {fresh}");
    check("a\n| f | 40 | - |", "a\n| f | 43 | - |", Some(3));
    check("| f | 40 |", "| g | 40 |", None);
    check("sources 1", "sources 2", None);
    check("| f | 40 |", "| f | 40 |\n| g | 1 |", None);
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn bless(path: &str, bytes: &[u8]) {
    fs_err::write(in_repository(path), bytes).unwrap();
}

/// What the shipped PTX and the table of registers were made of.
fn hash_of_sources() -> String {
    let mut hash = blake3::Hasher::new();
    for from in &SOURCES {
        hash.update(source::expanded(from.text, from.file).unwrap().as_bytes());
    }
    hash.update(source::expanded(CEILINGS, "ceilings.cu").unwrap().as_bytes());
    hash.finalize().to_hex()[..16].to_owned()
}

/// Needs no compiler: whoever changes a kernel is told to make PTX and table anew.
#[test]
fn the_shipped_ptx_was_made_of_these_sources() {
    if std::env::var_os("PATCHBENCH_BLESS").is_some() {
        return;
    }
    let kept = fs_err::read_to_string(in_repository("docs/kernels.md")).unwrap();
    let hash = hash_of_sources();
    assert!(kept.contains(&format!("Sources: `{hash}`.")), "the sources are {hash} now: run `scripts/ptx`");
}

/// Lines of PTX without its numbers, each as often as it stands there.
fn shape(ptx: &str) -> BTreeMap<String, i64> {
    let mut lines = BTreeMap::new();
    for line in ptx.lines() {
        let line = line.trim().replace(|c: char| c.is_ascii_digit(), "");
        *lines.entry(line).or_default() += 1;
    }
    lines
}

/// Of a thousand lines, how many stand in one PTX alone; registers and labels may be numbered otherwise.
fn apart(a: &str, b: &str) -> usize {
    let (a, b) = (shape(a), shape(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let count = |of: &BTreeMap<String, i64>, name: &String| of.get(name).copied().unwrap_or(0);
    let other: i64 = names.into_iter().map(|name| (count(&a, name) - count(&b, name)).abs()).sum();
    (1000 * other / a.values().sum::<i64>().max(1)) as usize
}

/// How many of a thousand lines of PTX may differ in a fresh build.
const PTX_APART: usize = 5;

/// The PTX in the program is that of the sources in the repository.
#[test]
fn shipped_ptx_is_that_of_a_fresh_build() {
    let Some(nvrtc) = compiler() else { return };
    if nvrtc.version != VERSION {
        println!("SKIP nvrtc-version: NVRTC {}.{} makes other text than 13.0", nvrtc.version.0, nvrtc.version.1);
        return;
    }
    let fresh = shipped::build(&nvrtc, &|_| {}).unwrap();
    if std::env::var_os("PATCHBENCH_BLESS").is_some() {
        bless("kernels/ptx.json.zst", &shipped::packed(&fresh).unwrap());
        return;
    }
    let kept = shipped::archive().unwrap();
    assert_eq!(kept.keys().collect::<Vec<_>>(), fresh.keys().collect::<Vec<_>>(), "run `scripts/ptx`");
    // Of one large source NVRTC 13.0 gives now and then another text, with other registers and an order of its own.
    let other: Vec<(&String, usize)> =
        fresh.iter().map(|(key, ptx)| (key, apart(&kept[key], ptx))).filter(|(_, apart)| *apart > PTX_APART).collect();
    assert!(other.is_empty(), "not that of a fresh build, run `scripts/ptx`: {other:?}");
}

#[test]
fn the_ceilings_compile_too() {
    let Some(nvrtc) = compiler() else { return };
    let text = source::expanded(CEILINGS, "ceilings.cu").unwrap();
    for capability in CAPABILITIES {
        let (cuda, arch) = (Cuda::default(), source::arch(&Cuda::default(), capability));
        nvrtc.compile("ceilings.cu", &text, &source::options(&cuda, &arch), Code::Cubin).unwrap();
    }
}

#[test]
fn a_source_that_does_not_compile_is_one_sentence_with_its_line() {
    let Some(nvrtc) = compiler() else { return };
    let text = source::expanded("#include \"common.cuh\"\nint x = missing;\n", "mine.cu").unwrap();
    let failure =
        nvrtc.compile("mine.cu", &text, &source::options(&Cuda::default(), "sm_90"), Code::Cubin).unwrap_err();
    assert!(failure.message.starts_with("`mine.cu` does not compile: mine.cu(2): error"), "{}", failure.message);
}

#[test]
fn without_a_card_the_program_explains_and_everything_else_works() {
    if let Ok(cards) = cards() {
        println!("SKIP no-card: this machine has {} card(s)", cards.len());
        return;
    }
    let ran = Command::new(program()).args(["micro", "norm", "--device", "cuda:0", "--json"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(3), "{}", String::from_utf8_lossy(&ran.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(answer["error"]["code"], "no-device");
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.contains("NVIDIA driver") || said.contains("the driver"), "{said}");
    assert!(answer["error"]["hint"].as_str().unwrap().contains("--device cpu"), "{answer}");
    let cpu = Command::new(program()).args(["micro", "norm", "--json"]).output().unwrap();
    assert_eq!(cpu.status.code(), Some(0), "{}", String::from_utf8_lossy(&cpu.stderr));
}
