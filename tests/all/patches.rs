//! What a session knows of imported patches: their lines, and that a journal brings them back.

use std::sync::Arc;

use patchbench::engine::event::Event;
use patchbench::engine::input::{Body, JobReport};
use patchbench::engine::state::State;
use patchbench::patch::import::imported;
use patchbench::patch::types::{Entry, Piece};
use patchbench::session::format::{ChainHash, decode, encode};

use crate::common::step;

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
