//! The phases that a change can reach, with what is known of engines where the changed lines mislead. Pure.
//!
//! Not responsible for reading phases out of a diff: an entry comes with what its own lines say.

use std::collections::BTreeMap;

use super::types::{Entry, Fact, Phase};

/// A kernel that looks as if it served one phase, and serves another as well.
struct Serves {
    /// Parts of the path of a file.
    files: &'static [&'static str],
    /// The phase that its lines name.
    looks: Phase,
    /// The phase that comes with it.
    also: Phase,
    /// Why.
    because: &'static str,
    /// Where it was read.
    source: &'static str,
}

const SERVES: &[Serves] = &[
    Serves {
        files: &["flash_mla_sm120", "flashmla_sm120"],
        looks: Phase::Decode,
        also: Phase::Extend,
        because: "prompts are expanded to one row a token, so that the kernel that asserts one row serves them too",
        source: "sgl-project/sglang layers/attention/deepseek_v4_backend.py at 30cb848d4b45 and 19e85868f616",
    },
    Serves {
        files: &["/dsv4/indexer"],
        looks: Phase::Decode,
        also: Phase::Extend,
        because: "every piece of a prompt takes the paged path, the first one included",
        source: "sgl-project/sglang layers/attention/dsv4/indexer.py at 30cb848d4b45; pull requests 29619, 30140",
    },
];

/// Words of a line that tells one phase from another by itself, so that no table knows better.
const TELLS: &[&str] = &["forward_mode", "forwardmode", "is_decode", "is_extend", "is_prefill"];

/// The phases of an entry and those that come with them; empty is unknown and stays so.
pub fn phases(entry: &Entry) -> BTreeMap<Phase, Fact<String>> {
    let mut all = entry.phases.clone();
    // Whoever said them knew what they left out.
    if entry.said_by.is_some() {
        return all;
    }
    for known in SERVES {
        let Some(looks) = entry.phases.get(&known.looks) else { continue };
        let is_there = |part: &&str| entry.files.iter().any(|f| f.path.to_ascii_lowercase().contains(*part));
        if all.contains_key(&known.also) || !known.files.iter().any(is_there) || tells(entry, looks) {
            continue;
        }
        let value = format!("{} [{}]", known.because, known.source);
        all.insert(known.also, Fact { value, place: looks.place.clone(), text: looks.text.clone() });
    }
    all
}

/// Whether the changed lines themselves ask for the phase.
fn tells(entry: &Entry, looks: &Fact<String>) -> bool {
    let gates = entry.gates.iter().flat_map(|g| [g.name.as_str(), g.text.as_str()]);
    let asserts = entry.asserts.iter().map(|a| a.text.as_str());
    let lines = gates.chain(asserts).chain([looks.text.as_str()]);
    lines.map(str::to_ascii_lowercase).any(|line| TELLS.iter().any(|word| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::incident::place;

    fn check(path: &str, said: &[Phase], text: &str, expect: &[Phase]) {
        let fact = |text: &str| Fact { value: "why".to_owned(), place: place(path, 7), text: text.into() };
        let phases = said.iter().map(|p| (*p, fact(text))).collect();
        let got = super::phases(&Entry { phases, ..Entry::of_file("p", "", path) });
        assert_eq!(got.keys().copied().collect::<Vec<_>>(), expect, "{path} {said:?} {text}");
    }

    #[test]
    fn a_kernel_that_asserts_one_row_serves_prompts_too() {
        use Phase::{Decode, Extend, Load};
        let (mla, indexer) = ("srt/layers/attention/flash_mla_sm120_triton.py", "srt/layers/attention/dsv4/indexer.py");
        check(mla, &[Decode], "assert q.shape[1] == 1", &[Extend, Decode]);
        check(mla, &[Decode], "if forward_batch.forward_mode.is_decode():", &[Decode]);
        check(mla, &[Load], "def load", &[Load]);
        check(mla, &[], "", &[]);
        check(indexer, &[Decode], "def forward_c4_indexer", &[Extend, Decode]);
        check("srt/layers/attention/triton_backend.py", &[Decode], "def forward_decode", &[Decode]);
    }
}
