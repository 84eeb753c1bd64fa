//! The rooms of a prefill server: states that wait for the decode server that fetches them.
//!
//! Either side may come first. A room is used once; one that nobody comes to is cleared after a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::oneshot;

use super::encode;
use crate::lab::log;
use crate::lab::scheduler::{HandOver, Handle, Transit};

/// How long a state waits for its decode server, and the other way round; `SGLang` waits as long.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);

/// One room: the ends that were not taken yet.
#[derive(Debug)]
struct Slot {
    sender: Option<oneshot::Sender<HandOver>>,
    receiver: Option<(oneshot::Receiver<HandOver>, Transit)>,
    opened: Instant,
}

/// All rooms of one server.
#[derive(Clone, Debug)]
pub struct Rooms {
    slots: Arc<Mutex<HashMap<u64, Slot>>>,
    engine: Handle,
}

/// Somebody has this end of the room already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bootstrap room {0} is in use")]
pub struct RoomTaken(pub u64);

impl Rooms {
    /// No rooms; their states are counted as in transfer by `engine`.
    pub fn new(engine: Handle) -> Self {
        Self { slots: Arc::default(), engine }
    }

    /// The end of a room that the engine puts the state into.
    ///
    /// # Errors
    /// It was taken before.
    pub fn sender(&self, room: u64) -> Result<oneshot::Sender<HandOver>, RoomTaken> {
        let mut slots = self.slots();
        let sender = self.slot(&mut slots, room).sender.take().ok_or(RoomTaken(room));
        tidy(&mut slots);
        sender
    }

    /// The end of a room from which the state comes.
    ///
    /// # Errors
    /// It was taken before.
    fn receiver(&self, room: u64) -> Result<(oneshot::Receiver<HandOver>, Transit), RoomTaken> {
        let mut slots = self.slots();
        let receiver = self.slot(&mut slots, room).receiver.take().ok_or(RoomTaken(room));
        tidy(&mut slots);
        receiver
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u64, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot<'s>(&self, slots: &'s mut HashMap<u64, Slot>, room: u64) -> &'s mut Slot {
        slots.entry(room).or_insert_with(|| {
            let (sender, receiver) = oneshot::channel();
            let receiver = Some((receiver, self.engine.transit()));
            Slot { sender: Some(sender), receiver, opened: Instant::now() }
        })
    }
}

/// Forgets rooms that both sides came to, and those that somebody has waited in for too long.
fn tidy(slots: &mut HashMap<u64, Slot>) {
    slots.retain(|room, slot| {
        let done = slot.sender.is_none() && slot.receiver.is_none();
        let stale = slot.opened.elapsed() > PATIENCE;
        if stale && !done {
            log::line(&format!("WARNING: bootstrap room {room} was given up: the other side did not come in time"));
        }
        !done && !stale
    });
}

/// The bootstrap server: `GET /state/{room}` answers with the state once it is computed.
pub fn router(rooms: Rooms) -> Router {
    Router::new().route("/state/{room}", get(state)).with_state(rooms)
}

async fn state(State(rooms): State<Rooms>, Path(room): Path<u64>) -> Response {
    let (receiver, transit) = match rooms.receiver(room) {
        Ok(found) => found,
        Err(taken) => return (StatusCode::CONFLICT, taken.to_string()).into_response(),
    };
    match tokio::time::timeout(PATIENCE, receiver).await {
        Ok(Ok(state)) => {
            let bytes = encode(&state);
            drop(transit);
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        Ok(Err(_)) => (StatusCode::GONE, format!("the prefill of bootstrap room {room} was given up")).into_response(),
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, format!("nobody prefilled bootstrap room {room}")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::blank;
    use super::*;
    use crate::lab::model::{Arithmetic, EMBEDDED, Model};
    use crate::lab::scenario::Plan;
    use crate::lab::scheduler::{Config, Engine, Mode};

    fn rooms() -> (Engine, Rooms) {
        let model = Arc::new(Model::load(EMBEDDED, Arithmetic::default()).unwrap());
        let config = Config {
            chunk: 64,
            max_total_tokens: 640,
            context: 256,
            max_running: 1,
            radix: false,
            decode_log_interval: 40,
            mode: Mode::Prefill,
        };
        let (engine, handle) = Engine::new(model, config, Plan::default());
        (engine, Rooms::new(handle))
    }

    #[tokio::test]
    async fn either_side_may_come_first_and_each_comes_once() {
        let (_engine, rooms) = rooms();
        let sender = rooms.sender(1).unwrap();
        assert_eq!(rooms.engine.loads().in_transfer, 1);
        assert_eq!(rooms.sender(1).unwrap_err(), RoomTaken(1));
        sender.send(blank(3)).unwrap();
        let (receiver, transit) = rooms.receiver(1).unwrap();
        assert_eq!(receiver.await.unwrap().prompt, 3);
        drop(transit);
        assert_eq!((rooms.engine.loads().in_transfer, rooms.slots().len()), (0, 0));

        let (receiver, _transit) = rooms.receiver(2).unwrap();
        assert!(rooms.receiver(2).is_err());
        drop(rooms.sender(2).unwrap());
        assert!(receiver.await.is_err(), "a prefill that was given up says so");
    }
}
