//! What recording and replaying cost: append with batched sync, decode, replay.
//!
//! `cargo bench --bench engine`; the figures are in `docs/performance.md`.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use divan::Bencher;
use divan::counter::ItemsCount;
use jiff::Timestamp;
use patchbench::engine::event::{Event, Happened};
use patchbench::engine::input::Actor;
use patchbench::engine::state::State;
use patchbench::session::format::{ChainHash, decode, encode};
use patchbench::session::journal::Journal;
use patchbench::session::replay::replay;
use patchbench::session::storage::FileStorage;

const EVENTS: u64 = 100_000;

fn main() {
    divan::main();
}

fn events() -> Vec<Event> {
    (1..=EVENTS)
        .map(|seq| Event {
            seq,
            at: Timestamp::from_second(1_760_000_000 + seq as i64).unwrap(),
            actor: Actor::driver("ann"),
            what: Happened::NoteAdded { text: format!("the needle at depth {seq} was not found") },
        })
        .collect()
}

fn text(events: &[Event]) -> Vec<u8> {
    let mut hash = ChainHash::start();
    let mut text = String::new();
    for event in events {
        let (line, next) = encode(event, &hash).unwrap();
        text.push_str(&line);
        hash = next;
    }
    text.into_bytes()
}

/// Appends in batches of 10,000 and syncs each batch, as a flood of reports would.
#[divan::bench(sample_count = 5)]
fn append_with_batched_sync(bencher: Bencher<'_, '_>) {
    let events = events();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let dir = tempfile::tempdir().unwrap();
        let storage = FileStorage::open(&dir.path().join("journal.jsonl")).unwrap();
        let mut journal = Journal::new(Box::new(storage), 0, ChainHash::start(), 0);
        for batch in events.chunks(10_000) {
            journal.append(batch).unwrap();
            journal.sync().unwrap();
        }
    });
}

#[divan::bench(sample_count = 5)]
fn decode_and_check_chain(bencher: Bencher<'_, '_>) {
    let text = text(&events());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| decode(&text, 0, ChainHash::start()).unwrap().events.len());
}

#[divan::bench(sample_count = 5)]
fn replay_decoded(bencher: Bencher<'_, '_>) {
    let events = events();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| replay(State::default(), &events).seq);
}
