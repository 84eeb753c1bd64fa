//! What people say of a patch in place of what was read of it: its phases, its gate, a note. Pure; nothing is deleted.
//!
//! A person beats a reader, and the newest word counts. Not responsible for beliefs, which rest on evidence; see `belief`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::types::{Entry, Fact, Phase, Place};
use crate::case::{Case, Gate};

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Edit {
    /// The phases that it can reach.
    Phases {
        /// None of them is: as it was read.
        phases: BTreeSet<Phase>,
    },
    /// How it is switched, for a patch of the case.
    Gate {
        /// The gate that counts from now on.
        gate: Gate,
        /// What the case file said; the edit counts as long as it says so still.
        read: Gate,
    },
    /// Anything else.
    Note {
        /// The text, without secrets; empty takes the note back.
        text: String,
    },
}

/// What somebody said, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    /// Who.
    pub by: String,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// What.
    pub edit: Edit,
}

/// The phases that count, with who said so; `None` where what was read counts.
pub fn phases<'a>(said: impl DoubleEndedIterator<Item = &'a Said>) -> Option<(&'a BTreeSet<Phase>, &'a Said)> {
    let newest = said.rev().find_map(|said| match &said.edit {
        Edit::Phases { phases } => Some((phases, said)),
        Edit::Gate { .. } | Edit::Note { .. } => None,
    });
    newest.filter(|(phases, _)| !phases.is_empty())
}

/// The gate that was said last, with what the case file said then, and who said it.
pub fn gate<'a>(said: impl DoubleEndedIterator<Item = &'a Said>) -> Option<(&'a Gate, &'a Gate, &'a Said)> {
    said.rev().find_map(|said| match &said.edit {
        Edit::Gate { gate, read } => Some((gate, read, said)),
        Edit::Phases { .. } | Edit::Note { .. } => None,
    })
}

/// The case with a gate that a person said, if the case file still says what it said then.
#[must_use]
pub fn regated(case: &Case, id: &str, gate: &Gate, read: &Gate) -> Case {
    let mut case = case.clone();
    for patch in case.patches.iter_mut().filter(|p| p.id == id && p.gate == *read) {
        patch.gate = gate.clone();
    }
    case
}

/// The note that counts, with who wrote it.
pub fn note<'a>(said: impl DoubleEndedIterator<Item = &'a Said>) -> Option<(&'a str, &'a Said)> {
    let newest = said.rev().find_map(|said| match &said.edit {
        Edit::Note { text } => Some((text.as_str(), said)),
        Edit::Phases { .. } | Edit::Gate { .. } => None,
    });
    newest.filter(|(text, _)| !text.is_empty())
}

/// The entry with the phases that a person said, where somebody did.
#[must_use]
pub fn edited<'a>(entry: Entry, said: impl DoubleEndedIterator<Item = &'a Said>) -> Entry {
    let Some((phases, said)) = phases(said) else { return entry };
    let fact = |phase: &Phase| Fact {
        value: format!("said by {}", said.by),
        place: Place { path: "this session".into(), line: None },
        text: phase.word().to_owned(),
    };
    let phases: BTreeMap<Phase, Fact<String>> = phases.iter().map(|phase| (*phase, fact(phase))).collect();
    Entry { phases, said_by: Some(said.by.clone()), ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::phases::phases as reached;

    fn said(by: &str, edit: Edit) -> Said {
        Said { by: by.into(), at: Timestamp::UNIX_EPOCH, edit }
    }

    fn of(phases: &[Phase]) -> Edit {
        Edit::Phases { phases: phases.iter().copied().collect() }
    }

    fn check(all: &[Said], phases: &[Phase], by: Option<&str>) {
        let read = Fact {
            value: "why".to_owned(),
            place: Place { path: "srt/dsv4/indexer.py".into(), line: Some(7) },
            text: "def forward_decode".into(),
        };
        let entry =
            Entry { phases: BTreeMap::from([(Phase::Decode, read)]), ..Entry::of_file("p", "", "srt/dsv4/indexer.py") };
        let entry = edited(entry, all.iter());
        assert_eq!(reached(&entry).into_keys().collect::<Vec<_>>(), phases);
        assert_eq!(entry.said_by.as_deref(), by);
    }

    #[test]
    fn a_person_beats_the_reader_and_the_newest_word_counts() {
        let (ana, bo) = (said("ana", of(&[Phase::Decode])), said("bo", of(&[Phase::Load])));
        let back = said("ana", of(&[]));
        let note = said("ana", Edit::Note { text: "seen".into() });
        // What is known of the kernel adds a phase to what was read, and nothing to what a person said.
        check(&[], &[Phase::Extend, Phase::Decode], None);
        check(&[ana.clone(), note.clone()], &[Phase::Decode], Some("ana"));
        check(&[ana.clone(), bo.clone()], &[Phase::Load], Some("bo"));
        check(&[ana, bo, back], &[Phase::Extend, Phase::Decode], None);
        let gone = said("bo", Edit::Note { text: String::new() });
        assert_eq!(super::note([&note].into_iter()).map(|(text, _)| text), Some("seen"));
        assert_eq!(super::note([&note, &gone].into_iter()), None);
    }
}
