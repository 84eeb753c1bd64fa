//! Fetches the state of a room from the prefill server that keeps it.

use super::rooms::PATIENCE;
use super::{Room, WireError, decode};
use crate::lab::scheduler::HandOver;

/// Why a state did not come.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The prefill server cannot be reached, or broke off.
    #[error("KVTransferError: cannot fetch the state of bootstrap room {room}: {source}")]
    Connection {
        /// The room.
        room: u64,
        /// What went wrong.
        source: reqwest::Error,
    },
    /// It answered that it has none.
    #[error("KVTransferError: {0}")]
    Refused(String),
    /// What came is no state.
    #[error("KVTransferError: bootstrap room {room}: {source}")]
    Broken {
        /// The room.
        room: u64,
        /// What is wrong with it.
        source: WireError,
    },
}

/// The state of a room, once the prefill server has it.
///
/// # Errors
/// The prefill server is not there or gave the room up, or it sent something else.
pub async fn fetch(http: &reqwest::Client, room: &Room) -> Result<HandOver, FetchError> {
    let connection = |source| FetchError::Connection { room: room.room, source };
    let url = format!("http://{}:{}/state/{}", room.host, room.port, room.room);
    let response = http.get(url).timeout(PATIENCE).send().await.map_err(connection)?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(connection)?;
    if !status.is_success() {
        return Err(FetchError::Refused(String::from_utf8_lossy(&bytes).into_owned()));
    }
    decode(&bytes).map_err(|source| FetchError::Broken { room: room.room, source })
}
