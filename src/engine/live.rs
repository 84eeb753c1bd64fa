//! What is worth seeing now and not worth keeping: progress, log lines, token streams, load.
//!
//! Bounded and beside the state; never an event.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::engine::ids::JobId;
use crate::serving::load_phase::Loading;
use crate::untrusted::Untrusted;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Live {
    /// How far a job is.
    Progress {
        /// The job.
        job: JobId,
        /// Units done.
        done: u64,
        /// Units in all; `None` is not known.
        total: Option<u64>,
        /// What it does right now.
        phase: String,
        /// Seconds left, where there is a ground for saying so.
        eta_s: Option<f64>,
    },
    /// A line of a job's own log.
    JobLog {
        /// The job.
        job: JobId,
        /// The line.
        line: String,
    },
    /// A line of a server's log.
    ServerLog {
        /// Target name.
        target: String,
        /// The line.
        line: Untrusted,
    },
    /// Text that a model is producing.
    Token {
        /// The job.
        job: JobId,
        /// The piece of text.
        text: Untrusted,
    },
    /// The load of a server.
    Load {
        /// Target name.
        target: String,
        /// When.
        at: Timestamp,
        /// `running`, `waiting`, `kv_usage`, `cache_hit_rate`, ….
        values: BTreeMap<String, f64>,
    },
    /// How far a server that loads is.
    Loading {
        /// Target name.
        target: String,
        /// The phases so far.
        loading: Loading,
    },
    /// A server that was met does not answer; whether it is down, only a probe tells.
    Silent {
        /// Target name.
        target: String,
        /// When it was asked.
        at: Timestamp,
        /// Why there is no answer, in one clause.
        why: String,
    },
    /// A server answers, and tells no load.
    Answers {
        /// Target name.
        target: String,
        /// When it was asked.
        at: Timestamp,
    },
    /// The link to a host changed.
    Link {
        /// The host as the case names it.
        host: String,
        /// How it is now.
        state: LinkState,
    },
    /// Messages were dropped because a receiver was too slow.
    Lost {
        /// How many.
        count: u64,
    },
}

/// How the link to a host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum LinkState {
    /// It is being made for the first time, or was asked for again.
    Connecting,
    /// It stands.
    Up {
        /// Since when.
        since: Timestamp,
    },
    /// It broke and is made anew.
    Reconnecting {
        /// The attempt that comes next, counted from 1.
        attempt: u32,
        /// When that is.
        next: Timestamp,
    },
    /// It does not stand, and nothing is tried until somebody asks.
    Down {
        /// Why, in one clause.
        why: String,
    },
}
