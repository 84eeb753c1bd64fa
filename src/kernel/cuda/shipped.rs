//! PTX of the built-in kernels, for machines that have the driver and not the compiler.
//!
//! Responsible for the archive in the program and for making it anew. The driver compiles PTX for the
//! card that is there. Made by `scripts/ptx`; a test compares it with a fresh build.

use std::collections::BTreeMap;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::cuda::nvrtc::{Code, Nvrtc};
use crate::kernel::cuda::source::{self, CEILINGS, SOURCES};
use crate::kernel::outside::Cuda;
use crate::kernel::specs;

/// The archive: a map from `SPEC/CANDIDATE` to PTX as JSON, compressed.
static ARCHIVE: &[u8] = include_bytes!("../../../kernels/ptx.json.zst");

/// What the kernels of the ceilings are called there.
const CEILINGS_KEY: &str = "ceilings";

/// PTX by `SPEC/CANDIDATE`.
pub type Archive = BTreeMap<String, String>;

/// The archive of this program.
///
/// # Errors
/// It is damaged.
pub fn archive() -> Result<Archive, Failure> {
    let damaged = |e: String| Failure::new(format!("the PTX in this program is damaged: {e}"));
    let text = zstd::decode_all(ARCHIVE).map_err(|e| damaged(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))
}

/// The name of a candidate's PTX.
pub fn key(candidate: &Candidate) -> String {
    format!("{}/{}", candidate.spec, candidate.name)
}

/// The architecture of PTX that every card which suits a candidate can take.
fn virtual_arch(cuda: &Cuda) -> String {
    match &cuda.arch {
        Some(arch) => arch.replacen("sm_", "compute_", 1),
        None => format!("compute_{}", cuda.least_arch),
    }
}

/// Compiles the whole archive; `tell` is told each name.
///
/// # Errors
/// A kernel does not compile.
pub fn build(nvrtc: &Nvrtc, tell: &dyn Fn(&str)) -> Result<Archive, Failure> {
    let mut made = Archive::new();
    // Candidates that differ in their splits or launches alone are the same code.
    let mut known: BTreeMap<(String, Vec<String>), String> = BTreeMap::new();
    let mut ptx = |text: &str, place: &str, cuda: &Cuda| -> Result<String, Failure> {
        let options = source::options(cuda, &virtual_arch(cuda));
        if let Some(made) = known.get(&(place.to_owned(), options.clone())) {
            return Ok(made.clone());
        }
        let compiled = nvrtc.compile(place, &source::expanded(text, place)?, &options, Code::Ptx)?;
        let made = without_header(&String::from_utf8_lossy(&compiled.code));
        known.insert((place.to_owned(), options), made.clone());
        Ok(made)
    };
    for from in &SOURCES {
        let Some(spec) = specs().iter().find(|s| s.name == from.spec) else { continue };
        for candidate in source::candidates(from.text, from.file, spec)? {
            let Some(cuda) = &candidate.cuda else { continue };
            tell(&key(&candidate));
            made.insert(key(&candidate), ptx(from.text, from.file, cuda)?);
        }
    }
    let cuda = Cuda { least_arch: 80, ..Cuda::default() };
    made.insert(CEILINGS_KEY.into(), ptx(CEILINGS, "ceilings.cu", &cuda)?);
    Ok(made)
}

/// PTX without the comments at its head, which name the build of the compiler.
fn without_header(ptx: &str) -> String {
    let lines = ptx.trim_end_matches('\0').lines().skip_while(|l| l.starts_with("//") || l.trim().is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The archive as bytes of a file.
///
/// # Errors
/// It cannot be compressed.
pub fn packed(archive: &Archive) -> Result<Vec<u8>, Failure> {
    let text = serde_json::to_vec(archive).map_err(|e| Failure::new(e.to_string()))?;
    zstd::encode_all(text.as_slice(), 19).map_err(|e| Failure::new(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_has_every_built_in_kernel_and_nothing_else() {
        let archive = archive().unwrap();
        let mut expect: Vec<String> = vec![CEILINGS_KEY.into()];
        for from in &SOURCES {
            let spec = specs().iter().find(|s| s.name == from.spec).unwrap();
            expect.extend(source::candidates(from.text, from.file, spec).unwrap().iter().map(key));
        }
        expect.sort();
        assert_eq!(archive.keys().cloned().collect::<Vec<_>>(), expect, "run `scripts/ptx`");
        assert!(archive.values().all(|ptx| ptx.starts_with(".version ")), "PTX begins with its version");
    }

    #[test]
    fn comments_at_the_head_are_no_part_of_it() {
        assert_eq!(without_header("//\n// Build 1\n//\n\n.version 9.0\n// kept\n\0"), ".version 9.0\n// kept\n");
    }
}
