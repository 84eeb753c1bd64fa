//! Why a request to a model server failed, one sentence and a hint each.
//!
//! Not responsible for what follows from a failure; the caller decides between void, pause and stop.

use thiserror::Error;

use crate::case::ServingEngine;
use crate::engine::procedure::Failure;
use crate::redact;
use crate::untrusted::Untrusted;

/// Characters of a foreign text that a one-line message shows.
const SHOWN: usize = 160;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ServingError {
    /// The URL of the case cannot be used.
    #[error("`{url}` is not a usable server address: {because}")]
    BadUrl {
        /// As the case says it.
        url: String,
        /// Why.
        because: String,
    },
    /// The HTTP client could not be made.
    #[error("the http client cannot start: {because}")]
    NoClient {
        /// Why.
        because: String,
    },
    /// The API key could not be read from its source.
    #[error("the api key cannot be read from {source_name}: {because}")]
    NoKey {
        /// The variable or command, never the key.
        source_name: String,
        /// Why.
        because: String,
    },
    /// No connection, or it broke.
    #[error("no connection to {url}: {because}")]
    Connection {
        /// The server.
        url: String,
        /// The innermost cause.
        because: String,
    },
    /// No answer in time.
    #[error("{what} took longer than {seconds} s")]
    TimedOut {
        /// Which part of the request.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The server answered with an error status.
    #[error("`{path}` answered {code}: {}", shown(.body))]
    Status {
        /// Path of the endpoint.
        path: &'static str,
        /// HTTP status.
        code: u16,
        /// What it said.
        body: Untrusted,
    },
    /// The stream carried an error object.
    #[error("the server reported an error in the middle of its answer: {}", shown(.message))]
    InStream {
        /// What it said.
        message: Untrusted,
    },
    /// The stream ended before the answer was complete.
    #[error("the answer broke off after {events} events")]
    CutShort {
        /// Events until then.
        events: usize,
    },
    /// The answer is not in the form of its endpoint.
    #[error("`{path}` gave an answer that cannot be read: {because}")]
    BadAnswer {
        /// Path of the endpoint.
        path: &'static str,
        /// What is wrong with it.
        because: String,
    },
    /// The answer is longer than anything that was asked for.
    #[error("`{path}` sent more than {limit} bytes")]
    TooLong {
        /// Path of the endpoint.
        path: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// This engine has no way to do it, or none that is implemented.
    #[error("{what} is not supported for {engine:?} yet")]
    NotSupported {
        /// What was wanted.
        what: &'static str,
        /// The engine.
        engine: ServingEngine,
    },
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// What a server said, for a message: without secrets, which servers like to repeat, and visible.
fn shown(said: &Untrusted) -> String {
    Untrusted::from(redact::text(said.raw())).visible(SHOWN)
}

impl ServingError {
    /// What the user can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::BadUrl { .. } => "give `url` as `http://HOST:PORT`, without a path",
            Self::NoKey { .. } => "check `api_key` of the target; the key itself never belongs in the case",
            Self::Connection { .. } => "check that the server runs and that `url` names its port",
            Self::TimedOut { .. } => "the server may be overloaded or hung; look at its log and its load",
            Self::Status { code: 401 | 403, .. } => "set `api_key = { env = \"NAME\" }` for this target",
            Self::Status { code: 404 | 405, .. } => "check `engine` of the target and the version of the server",
            Self::Status { code: 503, .. } => "the server may still be loading; wait until it is ready",
            Self::Status { code: 400 | 422, .. } => {
                "the server refused the request; its context may be too short for it"
            }
            Self::Status { code: 429, .. } => "lower `concurrency`, or set `budget.pause_when`",
            Self::Status { .. } | Self::InStream { .. } | Self::CutShort { .. } => "look at the log of the server",
            Self::BadAnswer { .. } | Self::TooLong { .. } => {
                "check that `url` names a model server and `engine` fits it"
            }
            Self::NotSupported { .. } => "this needs an engine that offers it; see the engine table",
            Self::NoClient { .. } | Self::Cancelled => return None,
        };
        Some(text.into())
    }

    /// Whether the server could not be reached at all, so that the next request will not reach it either.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Whether no later request can do better without a change by the user.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::BadUrl { .. } | Self::NoClient { .. } | Self::NoKey { .. } | Self::NotSupported { .. } => true,
            Self::Status { code, .. } => matches!(code, 401 | 403 | 404 | 405),
            _ => false,
        }
    }

    /// The same as a failure of a job, without secrets.
    pub fn to_failure(&self) -> Failure {
        Failure { message: redact::text(&self.to_string()), hint: self.hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> ServingError {
        ServingError::Status { path: "/v1/tokenize", code, body: "no\u{1b}[31m".into() }
    }

    #[test]
    fn foreign_text_in_a_message_is_made_visible() {
        assert_eq!(status(500).to_string(), "`/v1/tokenize` answered 500: no␛[31m");
    }

    #[test]
    fn a_server_that_repeats_the_key_put_it_into_the_journal() {
        let body = "invalid header: Authorization: Bearer sk-abcdefghijklmnopqrstuvwxyz123456".into();
        let error = ServingError::Status { path: "/generate", code: 401, body };
        for text in [error.to_string(), error.to_failure().message] {
            assert!(!text.contains("abcdefghij") && text.contains(redact::MARK), "{text}");
        }
        let because = "cannot parse `--api-key=sk-abcdefghijklmnopqrstuvwxyz123456`".to_owned();
        let error = ServingError::BadAnswer { path: "/model_info", because };
        assert!(!error.to_failure().message.contains("abcdefghij"), "{error}");
    }

    #[test]
    fn messages_have_no_full_stop_and_a_hint() {
        let errors = [
            status(400),
            status(401),
            status(404),
            status(418),
            status(429),
            status(503),
            ServingError::CutShort { events: 3 },
            ServingError::TimedOut { what: "the first token", seconds: 600 },
            ServingError::NotSupported { what: "reading the load", engine: ServingEngine::LlamaServer },
        ];
        for error in errors {
            assert!(!error.to_string().ends_with('.'), "{error}");
            assert!(error.to_failure().hint.is_some(), "{error}");
        }
    }

    #[test]
    fn only_what_cannot_get_better_is_permanent() {
        assert!(status(401).is_permanent() && status(404).is_permanent());
        assert!(!status(500).is_permanent() && !status(400).is_permanent());
        assert!(!ServingError::CutShort { events: 0 }.is_permanent());
    }
}
