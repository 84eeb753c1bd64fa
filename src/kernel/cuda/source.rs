//! CUDA sources: those that are built in, and a user's own.
//!
//! Responsible for the head of a source, which names its candidates, and for the text and the options
//! that a compiler gets. Not responsible for compiling.

use std::fmt::Write as _;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::{self, Candidate};
use crate::kernel::microtest::SpecInfo;
use crate::kernel::outside::Cuda;

/// A source that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its microtest.
    pub spec: &'static str,
    /// Its name, such as `mhc_mix.cu`.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! source {
    ($spec:literal, $file:literal) => {
        Source { spec: $spec, file: $file, text: include_str!(concat!("../../../kernels/cuda/", $file)) }
    };
}

/// The built-in sources.
pub static SOURCES: [Source; 6] = [
    source!("mhc-mix", "mhc_mix.cu"),
    source!("indexer", "indexer.cu"),
    source!("decode-attention", "decode_attention.cu"),
    source!("router", "router.cu"),
    source!("norm", "norm.cu"),
    source!("quantise", "quantise.cu"),
];

/// The kernels by which a card's ceilings are measured.
pub static CEILINGS: &str = include_str!("../../../kernels/cuda/ceilings.cu");

/// What a source may include.
static HEADERS: [(&str, &str); 2] = [
    ("common.cuh", include_str!("../../../kernels/cuda/common.cuh")),
    ("formats.cuh", include_str!("../../../kernels/cuda/formats.cuh")),
];

/// The built-in source of a microtest.
pub fn of(spec: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|s| s.spec == spec)
}

/// The candidates that the head of a source names: its first lines, those that begin with `//!`, are TOML.
///
/// # Errors
/// The head is no TOML of that form, or a candidate names what there is not.
pub fn candidates(text: &str, place: &str, spec: &SpecInfo) -> Result<Vec<Candidate>, Failure> {
    let head = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut toml = String::new();
    for line in head {
        // The spec is said once for all; a candidate's table wants it in each.
        if line.trim_start().starts_with("spec =") {
            continue;
        }
        toml.push_str(line);
        toml.push('\n');
        if line.trim() == "[[candidate]]" {
            let _ = writeln!(toml, "spec = \"{}\"", spec.name);
        }
    }
    candidate::parse(&toml, place, &[spec])
}

/// A source with its headers in place, for a compiler that looks for no files.
///
/// # Errors
/// It includes something else.
pub fn expanded(text: &str, place: &str) -> Result<String, Failure> {
    let mut out = String::new();
    let mut there: Vec<&str> = Vec::new();
    expand(text, place, &mut there, &mut out)?;
    Ok(out)
}

fn expand(text: &str, place: &str, there: &mut Vec<&str>, out: &mut String) -> Result<(), Failure> {
    let place = &place.replace(['"', '\\', '\n'], "_");
    let _ = writeln!(out, "#line 1 \"{place}\"");
    for (number, line) in text.lines().enumerate() {
        let Some(wanted) = line.trim().strip_prefix("#include") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let wanted = wanted.trim().trim_matches(['"', '<', '>']);
        let Some((name, header)) = HEADERS.iter().find(|(name, _)| *name == wanted) else {
            let names = HEADERS.map(|(name, _)| format!("`{name}`")).join(" and ");
            return Err(Failure::new(format!("`{place}` includes `{wanted}`, which is not at hand"))
                .hint(format!("a kernel here may include {names} and nothing else")));
        };
        if !there.contains(name) {
            there.push(name);
            expand(header, name, there, out)?;
            let _ = writeln!(out, "#line {} \"{place}\"", number + 2);
        }
    }
    Ok(())
}

/// The architecture that a candidate is compiled for on a card of this compute capability.
///
/// Cards with instructions of their own family are compiled for them: narrow conversions of Blackwell are among these.
pub fn arch(cuda: &Cuda, capability: u32) -> String {
    match (&cuda.arch, capability) {
        (Some(arch), _) => arch.clone(),
        (None, 100 | 103 | 120 | 121) => format!("sm_{capability}a"),
        (None, other) => format!("sm_{other}"),
    }
}

/// Options for the compiler: products and sums are rounded one by one unless a kernel says otherwise.
pub fn options(cuda: &Cuda, arch: &str) -> Vec<String> {
    let fixed = [format!("--gpu-architecture={arch}"), "-std=c++17".into(), "--fmad=false".into()];
    fixed.into_iter().chain(cuda.define.iter().map(|macro_| format!("-D{macro_}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::specs;

    #[test]
    fn every_head_names_candidates_of_its_spec_and_a_twin() {
        for source in &SOURCES {
            let spec = specs().iter().find(|s| s.name == source.spec).unwrap();
            let all = candidates(source.text, source.file, spec).unwrap();
            assert!(all.iter().all(|c| c.cuda.is_some()), "{}", source.file);
            assert!(all.iter().any(|c| c.fault.is_some()), "{} has no twin", source.file);
            assert!(all.iter().any(|c| c.fault.is_none()), "{} has no candidate", source.file);
            for candidate in &all {
                for launch in candidate.cuda.iter().flat_map(|c| &c.launch) {
                    assert!(
                        source.text.contains(&format!("{}(", launch.function))
                            || source.text.contains(&launch.function),
                        "{}: {} is not there",
                        source.file,
                        launch.function
                    );
                }
            }
        }
    }

    #[test]
    fn a_header_is_put_in_once_and_nothing_else_is() {
        let text = "#include \"common.cuh\"\n#include \"common.cuh\"\nint last;\n";
        let all = expanded(text, "mine.cu").unwrap();
        assert_eq!(all.matches("#line 1 \"common.cuh\"").count(), 1);
        assert!(all.ends_with("int last;\n"));
        assert!(!all.contains("#include"));
        let failure = expanded("#include <cuda_fp8.h>\n", "mine.cu").unwrap_err();
        assert_eq!(failure.message, "`mine.cu` includes `cuda_fp8.h`, which is not at hand");
    }

    #[test]
    fn options_say_the_architecture_and_keep_products_apart_from_sums() {
        let cuda = Cuda { define: vec!["A=1".into()], ..Cuda::default() };
        let check = |capability, expect: &str| assert_eq!(arch(&cuda, capability), expect);
        check(80, "sm_80");
        check(90, "sm_90");
        check(120, "sm_120a");
        assert_eq!(options(&cuda, "sm_90"), ["--gpu-architecture=sm_90", "-std=c++17", "--fmad=false", "-DA=1"]);
    }
}
