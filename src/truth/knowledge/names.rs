//! Names of variables: whose they are, which known one a misspelt one is near, and which the installed source has. Pure.

use std::collections::BTreeSet;

use crate::case::ServingEngine;

/// Prefixes of variables that belong to an engine.
const PREFIXES: &[(&str, ServingEngine)] = &[
    ("SGLANG_", ServingEngine::Sglang),
    ("SGL_", ServingEngine::Sglang),
    ("VLLM_", ServingEngine::Vllm),
    ("LLAMA_ARG_", ServingEngine::LlamaServer),
];

/// Edits that a slip of the finger makes at most.
const SLIPS: usize = 2;
/// A name must be so many times longer than its slips.
const LENGTH_PER_SLIP: usize = 6;

/// The engine that a variable belongs to by its prefix.
pub fn engine(name: &str) -> Option<ServingEngine> {
    PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, engine)| *engine)
}

/// The known name that a name was probably meant to be: one or two slips away, and not only by a number.
///
/// Names of other prefixes are never taken for each other.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let own = engine(name)?;
    let digitless = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let plain = digitless(name);
    let near = known
        .filter(|k| engine(k) == Some(own) && k.len().abs_diff(name.len()) <= SLIPS && digitless(k) != plain)
        .map(|k| (strsim::osa_distance(name, k), k))
        .filter(|(slips, _)| (1..=SLIPS).contains(slips) && name.len() >= slips * LENGTH_PER_SLIP);
    near.min().map(|(_, k)| k)
}

/// The variables that an engine's own source names, such as `environ.py` or `envs.py`: upper-case words that are
/// quoted or assigned, whatever their prefix.
pub fn in_source(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') {
            continue;
        }
        let end = line.find(|c: char| !is_part(c)).unwrap_or(line.len());
        let rest = line[end..].trim_start();
        if is_name(&line[..end]) && rest.starts_with([':', '=']) {
            out.insert(line[..end].to_owned());
        }
        for quote in ['"', '\''] {
            out.extend(line.split(quote).skip(1).step_by(2).filter(|word| is_name(word)).map(str::to_owned));
        }
    }
    out
}

fn is_part(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

fn is_name(word: &str) -> bool {
    word.len() > 3
        && word.contains('_')
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_and_other_names() {
        let known = ["VLLM_USE_V1", "VLLM_USE_DEEP_GEMM", "SGLANG_OPT_USE_TOPK_V2", "SGLANG_RADIX_FORCE_MISS"];
        for (name, expect) in [
            ("VLLM_USER_V1", Some("VLLM_USE_V1")),
            ("VLLM_USE_DEEPGEMM", Some("VLLM_USE_DEEP_GEMM")),
            ("SGLANG_RADIX_FORCE_MSIS", Some("SGLANG_RADIX_FORCE_MISS")),
            ("SGLANG_OPT_USE_TOPK_V1", None),
            ("SGLANG_USE_V1", None),
            ("SGLANG_SM120_TRITON_INDEXER", None),
            ("PATH", None),
            ("MY_RADIX_FORCE_MISS", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), expect, "{name}");
        }
    }

    #[test]
    fn names_of_a_source() {
        let text = "class Envs:\n    SGLANG_A_B = EnvBool(False)\n    # SGLANG_GONE = EnvBool(True)\n    x = 1\n\
                    \"VLLM_C_D\":\n    lambda: os.getenv('VLLM_E_F', \"naive\"),\n    VLLM_T: bool = True\n";
        let names: Vec<String> = in_source(text).into_iter().collect();
        assert_eq!(names, ["SGLANG_A_B", "VLLM_C_D", "VLLM_E_F", "VLLM_T"]);
    }
}
