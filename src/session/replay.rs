//! From events to a state. Pure.

use crate::engine::event::Event;
use crate::engine::state::State;

/// The state after these events, from `start` on.
pub fn replay<'a>(start: State, events: impl IntoIterator<Item = &'a Event>) -> State {
    let mut state = start;
    for event in events {
        state.apply(event);
    }
    state
}

/// The state as it was after event number `seq`.
pub fn replay_to(events: &[Event], seq: u64) -> State {
    replay(State::default(), events.iter().take_while(|e| e.seq <= seq))
}
