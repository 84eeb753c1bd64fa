//! A remote change as plain data: steps that check, do, prove and can be undone.
//!
//! Pure. Building one for a target is `remote::procedures`; running its actions is `remote::execute`.
//! The journal holds the whole procedure before its first step runs, so that a later process can
//! finish it or take it back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ids::ProcedureId;
use crate::untrusted::Untrusted;

/// A change of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Procedure {
    /// Number within the session; 0 until the engine has given it one.
    pub id: ProcedureId,
    /// What it is for.
    pub purpose: Purpose,
    /// The target it changes.
    pub target: String,
    /// One line for people.
    pub title: String,
    /// Level wanted for each patch of the target.
    pub levels: BTreeMap<String, String>,
    /// What the server was doing when this was planned; `None` where it does not run or does not say.
    #[serde(default)]
    pub load: Option<Load>,
    /// Path on the host, without an ending, of the traces of its steps.
    #[serde(default)]
    pub jobs: Option<String>,
    /// The lease that it needs; `None` for one of an earlier version.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// What whoever confirms it should know beside its steps, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Requests that run.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
}

impl Load {
    /// Whether a stop would cut anybody off.
    pub fn is_busy(self) -> bool {
        self.running + self.waiting > 0
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} requests run and {} wait", self.running, self.waiting)
    }
}

/// The right to change a target, which stands on its host with the way back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// Its folder on the host.
    pub path: String,
    /// Names the session that holds it.
    pub token: String,
    /// Minutes after which the host puts the target back by itself unless it is renewed; `None` is never.
    pub minutes: Option<u32>,
}

impl Procedure {
    /// Whether it takes a running server down.
    pub fn stops(&self) -> bool {
        self.steps.iter().any(Step::stops)
    }

    /// Whether it would cut requests off: not where they are let run to their end first. Putting a target back is never
    /// held up by them.
    pub fn cuts_off(&self) -> bool {
        self.purpose != Purpose::Restore && self.drains().is_none() && self.load.is_some_and(Load::is_busy)
    }

    /// The seconds for which requests are let run to their end before the target is stopped; `None` where none are.
    pub fn drains(&self) -> Option<f64> {
        self.steps.iter().find_map(|step| match step.proof {
            Action::Router { ask: RouterAsk::Idle { .. }, timeout_s, .. } => Some(timeout_s),
            _ => None,
        })
    }

    /// What is typed to confirm it on production: the target's name, and where requests run, that they may be cut off.
    pub fn word(&self) -> String {
        if self.cuts_off() { self.word_anyway() } else { self.target.clone() }
    }

    /// What is typed to confirm it and to allow that requests are cut off, now or after they got their time to end.
    pub fn word_anyway(&self) -> String {
        format!("{} anyway", self.target)
    }
}

/// What a procedure is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// First start of a target that is down.
    Start,
    /// Stop and start with levels stated.
    Restart,
    /// Stop for good.
    Stop,
    /// Back to the original configuration.
    Restore,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Short name: `write-override`, `stop`, `start`, `prove`, ….
    pub name: String,
    /// Reads whether the step is already done, or may not be done; changes nothing.
    pub check: Action,
    /// Does it.
    pub apply: Action,
    /// Takes it back; `None` where there is nothing to take back.
    pub undo: Option<Action>,
    /// Reads the evidence that it was taken back; `None` where `undo` says it by its own end.
    #[serde(default)]
    pub undo_proof: Option<Action>,
    /// Reads the evidence that it was done; changes nothing.
    pub proof: Action,
}

impl Step {
    /// Whether it takes a running server down.
    pub fn stops(&self) -> bool {
        matches!(self.name.as_str(), "stop" | "restart")
    }
}

/// Something that a host can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// Nothing.
    Nothing,
    /// A POSIX shell text, run exactly as shown.
    Shell {
        /// The text.
        script: String,
        /// Seconds after which it counts as failed.
        timeout_s: f64,
    },
    /// Ask whether exactly this process runs.
    ProcessGone {
        /// Process id.
        pid: u32,
        /// Start time in clock ticks since the host's boot, so that a reused pid is not taken for it.
        start_ticks: u64,
        /// Seconds to wait for it to be gone.
        timeout_s: f64,
    },
    /// Ask a router about one of its workers, or change whether it has it.
    Router {
        /// What is asked.
        ask: RouterAsk,
        /// The worker.
        worker: RoutedWorker,
        /// Seconds to wait for the answer that is hoped for.
        timeout_s: f64,
    },
    /// Have the whole deployment compute a request that is sent to its entry.
    EntryToken {
        /// The target that clients talk to.
        entry: String,
        /// Seconds to wait for an answer.
        timeout_s: f64,
    },
    /// Prove a start: new pid, port, ready line, first token, levels read back.
    ProveBoot {
        /// What the proof must hold against.
        expect: BootExpectation,
        /// Seconds to wait for the server to be ready.
        timeout_s: f64,
    },
}

/// What a router is asked about a worker. Each names the worker by its URL, since a router gives a new id to what it is
/// told anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum RouterAsk {
    /// Whether it routes to the worker and sees it live; reads only.
    Has,
    /// Whether it does not know the worker; reads only.
    Lacks,
    /// **Take the worker out**: it gets no new request, and what runs there runs to its end.
    Remove,
    /// **Bring the worker back**, and wait until it is seen to live.
    Add,
    /// Wait until nothing runs at the worker, by its own word; reads only.
    Idle {
        /// Whether requests that still run after the time are cut off; else nothing more is done and the worker comes back.
        anyway: bool,
    },
}

impl RouterAsk {
    /// The question or request for people, with exactly what is sent.
    pub fn words(self, worker: &RoutedWorker, timeout_s: f64) -> String {
        let RoutedWorker { router, url, body } = worker;
        match self {
            Self::Has => format!("ask `{router}` whether it routes to {url} and sees it live"),
            Self::Lacks => format!("ask `{router}` whether it does not route to {url}"),
            Self::Remove => format!("DELETE /workers/ID of {url} at `{router}`, gone within {timeout_s} s"),
            Self::Add => format!("POST /workers at `{router}` with {body}, seen to live within {timeout_s} s"),
            Self::Idle { anyway: false } => {
                format!(
                    "wait up to {timeout_s} s until no request runs at {url}; else it is brought back and nothing more is done"
                )
            }
            Self::Idle { anyway: true } => {
                format!("wait up to {timeout_s} s until no request runs at {url}; what still runs then is cut off")
            }
        }
    }
}

/// A worker of a router, with what brings it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedWorker {
    /// The target that routes.
    pub router: String,
    /// The worker's URL, as the router reaches it.
    pub url: String,
    /// The request that brings it back as it was listed; never with a key.
    pub body: serde_json::Value,
}

/// What a proven start must be different from, and must show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootExpectation {
    /// The process before, if there was one.
    pub old: Option<ProcessKey>,
    /// Port that the new process must own.
    pub port: u16,
    /// Base URL for the ready probe and the first token.
    pub url: String,
    /// Path of the log.
    pub log: String,
    /// Byte length of the log before the start: only later lines count.
    pub log_offset: u64,
    /// File with the pid and start ticks of the started shell, whose session the server must belong to;
    /// `None` where the start was not made by a procedure.
    #[serde(default)]
    pub pid_file: Option<String>,
    /// The systemd unit that must have started it; `None` where a script did.
    #[serde(default)]
    pub unit: Option<UnitExpectation>,
    /// The container that must hold it; `None` where another manager started it.
    #[serde(default)]
    pub container: Option<ContainerExpectation>,
    /// Level wanted for each patch, with the text that the process must show.
    pub readback: Vec<Readback>,
}

/// What a start by systemd must show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitExpectation {
    /// The unit.
    pub name: String,
    /// The invocation before, which must be over; `None` where any will do.
    pub old_invocation: Option<String>,
    /// Automatic restarts so far: one more means that the server crashed.
    pub restarts: Option<u32>,
}

/// What a start of a container must show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerExpectation {
    /// Its name.
    pub name: String,
    /// Whether it runs already and was not started anew.
    pub met: bool,
}

/// One level to read back from the new process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Readback {
    /// The patch.
    pub patch: String,
    /// Level name wanted.
    pub level: String,
    /// Environment variable, or flag with dashes.
    pub switch: String,
    /// Value wanted; `None` is absent.
    pub value: Option<String>,
}

/// A process that cannot be mistaken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessKey {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since the host's boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

/// Which part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Doing: check, apply, proof.
    Do,
    /// Taking back.
    Undo,
}

/// One thing that was seen, with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What it is about: `pid`, `port-owner`, `ready-line`, `readiness`, `first-token`, `entry-token`, `level:PATCH`, ….
    pub about: String,
    /// What was seen.
    pub seen: Untrusted,
    /// Where: `/proc/123/environ`, `http://…/generate`, ….
    pub source: String,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// One clear sentence, lower case, no full stop.
    pub message: String,
    /// What the user can do, if anything.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// The same failure with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The proof that a target was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootProof {
    /// The target.
    pub target: String,
    /// The server process.
    pub process: ProcessKey,
    /// When the process started, from its start ticks.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When the proof was complete.
    #[schemars(with = "String")]
    pub proven_at: Timestamp,
    /// Level read back for each patch; a patch that could not be read is in `unverified`.
    pub levels: BTreeMap<String, String>,
    /// Patches whose level could not be read back, with the reason: trials of this boot are void for them.
    pub unverified: BTreeMap<String, String>,
    /// Whether the process keeps its environment readable for every rank (`SPT_NOENV`); `false` is also not known.
    #[serde(default)]
    pub readable_env: bool,
    /// Everything that was seen.
    pub evidence: Vec<Evidence>,
}
