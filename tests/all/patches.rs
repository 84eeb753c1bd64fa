//! What a session knows of imported patches: their lines, what was put together, divided or said of them, and that a
//! journal brings it back.

use std::collections::BTreeSet;
use std::sync::Arc;

use patchbench::engine::command::Command;
use patchbench::engine::event::{Event, Happened};
use patchbench::engine::input::{Body, JobReport};
use patchbench::engine::state::State;
use patchbench::patch::edit::Edit;
use patchbench::patch::import::imported;
use patchbench::patch::inventory::By;
use patchbench::patch::of_state;
use patchbench::patch::types::{Entry, Phase, Piece};
use patchbench::session::format::{ChainHash, decode, encode};

use crate::common::{case, step};

const DIFF: &[u8] = include_bytes!("../artefacts/A38_patch_inventory.diff");

/// An import of this diff.
fn import(text: &[u8]) -> Body {
    let entries = imported(text, None, "a.diff").entries.into_iter().map(Arc::new).collect();
    Body::Report(JobReport::PatchesRead { source: "a.diff".into(), entries })
}

/// The state and the events after inputs.
fn run(bodies: impl IntoIterator<Item = Body>) -> (State, Vec<Event>) {
    let mut state = State::default();
    let mut events = Vec::new();
    for body in bodies {
        let outcome = step(&state, body);
        events.extend(outcome.events);
        state = outcome.state;
    }
    (state, events)
}

/// The state that a journal of these events gives.
fn replayed(events: &[Event]) -> State {
    let mut text = String::new();
    let mut hash = ChainHash::start();
    for event in events {
        let (line, next) = encode(event, &hash).unwrap();
        text.push_str(&line);
        hash = next;
    }
    let mut state = State::default();
    for event in &decode(text.as_bytes(), 0, ChainHash::start()).unwrap().events {
        state.apply(event);
    }
    state
}

fn text(entry: &Entry) -> &str {
    match &entry.piece {
        Some(Piece::Kept { text }) => text.raw(),
        other => panic!("{} has no lines: {other:?}", entry.id),
    }
}

/// Lines of all patches that were added and taken away.
fn sums(state: &State) -> (u32, u32) {
    state.entries.iter().fold((0, 0), |(added, removed), e| (added + e.added, removed + e.removed))
}

#[test]
fn the_lines_of_an_import_come_back_from_the_journal() {
    let (state, events) = run([import(DIFF)]);
    assert_eq!(replayed(&events), state);
    let count = |sign: char, head: &str| {
        let lines = state.entries.iter().flat_map(|e| text(e).lines());
        lines.filter(|l| l.starts_with(sign) && !l.starts_with(head)).count() as u32
    };
    assert_eq!((count('+', "+++"), count('-', "---")), sums(&state));
}

#[test]
fn a_journal_of_a_version_that_kept_no_lines_loads() {
    let (state, _) = run([import(DIFF)]);
    let mut json = serde_json::to_value(&*state.entries[0]).unwrap();
    json.as_object_mut().unwrap().remove("piece").unwrap();
    let entry: Entry = serde_json::from_value(json).unwrap();
    assert_eq!(entry, state.entries[0].without_lines());
}

fn merge(ids: &[&str], title: &str) -> Body {
    let patches = ids.iter().map(|id| (*id).to_owned()).collect();
    Body::Command(Command::MergePatches { patches, title: title.into() })
}

fn split(patch: &str, by: By) -> Body {
    Body::Command(Command::SplitPatch { patch: patch.into(), by })
}

fn say(patch: &str, edit: Edit) -> Body {
    Body::Command(Command::EditPatch { patch: patch.into(), edit })
}

fn phases(all: &[Phase]) -> Edit {
    Edit::Phases { phases: all.iter().copied().collect() }
}

fn ids(state: &State) -> Vec<&str> {
    state.entries.iter().map(|e| e.id.as_str()).collect()
}

#[track_caller]
fn refused(state: &State, body: Body, expect: &str) {
    let outcome = step(state, body);
    let said = outcome.events.iter().find_map(|e| match &e.what {
        Happened::Refused { failure, .. } => {
            Some(format!("{} | {}", failure.message, failure.hint.clone().unwrap_or_default()))
        }
        _ => None,
    });
    assert_eq!(said.as_deref(), Some(expect));
    assert_eq!(outcome.state.entries, state.entries);
}

#[test]
fn what_is_put_together_and_divided_keeps_every_line_and_comes_back_from_the_journal() {
    let before = run([import(DIFF)]).0;
    let all = ids(&before);
    let (state, events) = run([import(DIFF), merge(&all[1..4], "chat and indexer")]);
    assert_eq!(ids(&state), [&[all[0], "chat-and-indexer"], &all[4..]].concat(), "it stands where the first stood");
    assert_eq!(sums(&state), sums(&before));
    assert_eq!(replayed(&events), state);
    for by in By::ALL {
        let (state, events) = run([import(DIFF), merge(&all[1..4], "one"), split("one", by)]);
        assert_eq!(sums(&state), sums(&before), "{by:?}");
        assert_eq!(state.entries.len(), before.entries.len(), "{by:?}");
        assert_eq!(replayed(&events), state);
    }
}

#[test]
fn an_import_of_the_same_changes_takes_every_regrouping_of_them_back() {
    let (before, _) = run([import(DIFF)]);
    let all = ids(&before);
    let other = b"--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-a\n+b\n";
    let (state, events) = run([
        import(DIFF),
        import(other),
        merge(&[all[1], "other"], "both"),
        split("both", By::Hunk),
        merge(&[all[2], all[3]], "rest"),
        import(DIFF),
    ]);
    let now: BTreeSet<&str> = ids(&state).into_iter().collect();
    assert_eq!(now, all.iter().copied().chain(["other"]).collect());
    assert_eq!(sums(&state), (sums(&before).0 + 1, sums(&before).1 + 1), "what was not imported again is there too");
    assert!(state.regroupings.is_empty());
    assert_eq!(replayed(&events), state);
    // What was not imported again stays as it was put together.
    let (state, _) = run([import(DIFF), import(other), merge(&[all[1], all[2]], "two"), import(other)]);
    assert!(ids(&state).contains(&"two"));
}

#[test]
fn what_cannot_be_put_together_or_divided_says_why() {
    let opened = Body::Command(Command::OpenCase { case: Box::new(case(&["mhc-bf16"])) });
    let (state, _) = run([opened, import(DIFF)]);
    let all = ids(&state);
    let one = all[1];
    refused(
        &state,
        merge(&[one, one], "x"),
        "one patch cannot be put together with itself | mark at least two, or write `merge-patches ID,ID TITLE`",
    );
    refused(
        &state,
        merge(&[one, "mhc-bf16"], "x"),
        "`mhc-bf16` is told of by the case alone, so that it has no lines | \
         `import-patches FILE|RANGE` reads the diff that it is in",
    );
    refused(&state, merge(&[one, "template"], "x"), "`template` is a factor and has no lines | choose patches alone");
    refused(&state, merge(&[one, all[2]], all[3]), &format!("`{}` is there already | choose another title", all[3]));
    refused(&state, merge(&[one, all[2]], "Template"), "`template` is there already | choose another title");
    refused(&state, merge(&[one, all[2]], "?"), "the title `?` has no letter or digit | its words become the id");
    refused(
        &state,
        split(one, By::File),
        &format!("`{one}` has one part only | `file`, `function` and `hunk` divide it differently"),
    );
    refused(&state, split("nobody", By::File), "there is no patch `nobody` | `patchbench patches CASE` lists them");
    let mut bare = state.clone();
    bare.entries = bare.entries.iter().map(|e| Arc::new(e.without_lines())).collect();
    refused(
        &bare,
        split(one, By::File),
        &format!(
            "the lines of `{one}` were not kept when it was imported | \
             import a diff of this patch alone, which may fit into a session"
        ),
    );
}

#[test]
fn a_secret_in_a_title_does_not_reach_the_journal() {
    let (state, _) = run([import(DIFF)]);
    let all = ids(&state);
    for body in [
        merge(&[all[1], all[2]], "with sk-abcdef0123"),
        merge(&[all[1]], "with sk-abcdef0123"),
        say(all[1], Edit::Note { text: "see sk-abcdef0123".into() }),
        say("nobody", Edit::Note { text: "see sk-abcdef0123".into() }),
    ] {
        let outcome = step(&state, body);
        let (line, _) = encode(&outcome.events[0], &ChainHash::start()).unwrap();
        assert!(!line.contains("sk-abc"), "{line}");
    }
}

#[test]
fn the_phases_that_a_person_says_weigh_in_place_of_those_that_were_read() {
    let opened = || Body::Command(Command::OpenCase { case: Box::new(case(&["mhc-bf16"])) });
    let entry = |state: &State| of_state::entries(state).into_iter().find(|e| e.id == "mhc-bf16").unwrap();
    let (state, _) = run([opened()]);
    let read: Vec<Phase> = entry(&state).phases.into_keys().collect();
    let (state, events) = run([opened(), say("mhc-bf16", phases(&[Phase::Load]))]);
    let said = entry(&state);
    assert_eq!(said.phases.keys().copied().collect::<Vec<_>>(), [Phase::Load]);
    assert_eq!((said.said_by.as_deref(), said.phases[&Phase::Load].value.as_str()), (Some("ann"), "said by ann"));
    assert_eq!(replayed(&events), state);
    let (state, _) = run([opened(), say("mhc-bf16", phases(&[Phase::Load])), say("mhc-bf16", phases(&[]))]);
    assert_eq!(entry(&state).phases.into_keys().collect::<Vec<_>>(), read);
    refused(
        &state,
        say("mhc-bf16", phases(&[])),
        "nobody said anything else of `mhc-bf16` | it is shown as it was read",
    );
    refused(
        &state,
        say("template", phases(&[Phase::Load])),
        "`template` is a factor, whose phases are its nature | `believe` writes down what is held of it",
    );
    refused(
        &state,
        say("nobody", phases(&[Phase::Load])),
        "there is no patch `nobody` | `patchbench patches CASE` lists them",
    );
}
