//! The state of one session, and the only way to change it.
//!
//! Pure. Growing collections are persistent, so that a clone for publication costs O(1).

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::engine::command::{Command, EndState};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::ids::{BootId, JobId, ProcedureId, ProposalId};
use crate::engine::input::{Actor, JobOutcome};
use crate::engine::patches::Regrouping;
use crate::engine::procedure::{BootProof, Evidence, Failure, Phase, Procedure};
use crate::engine::queue::Queue;
use crate::isolate::plan::Search;
use crate::isolate::verdict::{Symptom, Verdict};
use crate::kernel::report::MicroReport;
use crate::patch::belief::Log;
use crate::patch::edit::Said;
use crate::patch::types::Entry;
use crate::recall::trial::Trial;
use crate::recall::window::LoadWindow;
use crate::truth::TargetTruth;

/// Everything that a session knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Sequence number of the last event.
    pub seq: u64,
    /// Who the session is.
    pub session: SessionInfo,
    /// The case; `None` before one was opened.
    pub case: Option<Arc<Case>>,
    /// What is known of each target of the case.
    pub targets: OrdMap<String, TargetState>,
    /// Proven starts.
    pub boots: OrdMap<BootId, Arc<Boot>>,
    /// Trials, in the order in which they ended.
    pub trials: Vector<TrialEntry>,
    /// The load of each target while a batch of trials ran, in the order in which batches ended.
    #[serde(default)]
    pub windows: Vector<Arc<LoadWindow>>,
    /// Jobs of this session.
    pub jobs: OrdMap<JobId, Job>,
    /// Remote changes of this session.
    pub procedures: OrdMap<ProcedureId, ProcedureState>,
    /// Changes of the fork that were imported, newest import of each.
    #[serde(default)]
    pub entries: Vector<Arc<Entry>>,
    /// What was put together or divided since its import, oldest first.
    #[serde(default)]
    pub regroupings: Vector<Regrouping>,
    /// What people said of patches in place of what was read of them, oldest first, by the id that is shown.
    #[serde(default)]
    pub edits: OrdMap<String, Vector<Said>>,
    /// What was believed about patches and factors.
    #[serde(default)]
    pub beliefs: Arc<Log>,
    /// Commands that wait for a change to be over.
    #[serde(default)]
    pub queue: Queue,
    /// Microtests, in the order in which they ended.
    pub micro: Vector<Arc<MicroReport>>,
    /// The search, once begun.
    pub search: Option<Arc<Search>>,
    /// The symptom, once measured.
    pub symptom: Option<Symptom>,
    /// The newest verdict of each subject, in the order in which subjects were first judged.
    pub verdicts: Vector<Arc<Verdict>>,
    /// Notes.
    pub notes: Vector<Note>,
    /// Named points.
    pub snapshots: Vector<NamedPoint>,
    /// What watchers proposed.
    pub proposals: OrdMap<ProposalId, Proposal>,
    /// What stays at the end, once chosen.
    pub end_state: Option<EndState>,
    /// Remarks.
    pub diagnostics: Vector<Diagnostic>,
    /// The last command that was refused.
    pub refusal: Option<Refusal>,
    /// One line per event.
    pub timeline: Vector<TimelineEntry>,
    /// Counters for new ids.
    pub counters: Counters,
}

/// Who a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Session id; nil before the first event.
    pub id: uuid::Uuid,
    /// Session name.
    pub name: String,
    /// Version of the program that last opened it.
    pub program: String,
    /// Seed of all prompts.
    pub seed: u64,
    /// When it began.
    pub started_at: Option<Timestamp>,
}

/// Counters for new ids; each is the last id given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Jobs.
    pub job: u64,
    /// Procedures.
    pub procedure: u64,
    /// Boots.
    pub boot: u64,
    /// Trials.
    pub trial: u64,
    /// Proposals.
    pub proposal: u64,
    /// Commands that waited.
    #[serde(default)]
    pub queued: u64,
}

/// What is known of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetState {
    /// The newest reading.
    pub truth: Option<Arc<TargetTruth>>,
    /// The boot that runs now; `None` is down or not proven.
    pub boot: Option<BootId>,
    /// Set while the target differs from its own configuration through us.
    pub changed: Option<Changed>,
    /// The levels it had when we first met it: the way back.
    pub original: BTreeMap<String, String>,
    /// Whether it was down when we first met it, so that stopping it is the way back.
    #[serde(default)]
    pub found_down: bool,
    /// Until when a production target may be changed; `None` is read-only.
    #[serde(default)]
    pub elevated_until: Option<Timestamp>,
}

/// Mark of a target that we changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Since when.
    pub since: Timestamp,
    /// By whom.
    pub by: Actor,
    /// The procedure that changed it first.
    pub procedure: ProcedureId,
    /// Levels that it was changed to.
    pub levels: BTreeMap<String, String>,
}

/// A proven start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// Its number.
    pub id: BootId,
    /// Journal line.
    pub seq: u64,
    /// The procedure that started it.
    pub procedure: Option<ProcedureId>,
    /// The proof.
    pub proof: Arc<BootProof>,
}

/// A trial with its journal line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialEntry {
    /// Journal line.
    pub seq: u64,
    /// The trial.
    pub trial: Arc<Trial>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// One line for people.
    pub title: String,
    /// The procedure that it runs or takes back, if it does.
    pub procedure: Option<ProcedureId>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether somebody asked for it to stop.
    pub cancelling: bool,
    /// How it ended; `None` while it runs.
    pub outcome: Option<JobOutcome>,
}

/// A remote change and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureState {
    /// The change.
    pub procedure: Arc<Procedure>,
    /// Who confirmed it; `None` while it waits.
    pub confirmed_by: Option<Actor>,
    /// Whether whoever confirmed it allowed to cut off requests that do not end in time.
    #[serde(default)]
    pub anyway: bool,
    /// How far it is.
    pub status: ProcedureStatus,
    /// What happened to each step.
    pub steps: Vec<StepState>,
    /// The step that failed last; kept when what had begun was taken back.
    #[serde(default)]
    pub failed: Option<FailedStep>,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedStep {
    /// Its place.
    pub step: usize,
    /// Whether it was being done or taken back.
    pub phase: Phase,
    /// Why.
    pub failure: Failure,
}

/// How far a procedure is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ProcedureStatus {
    /// Shown, not confirmed.
    Planned,
    /// Running.
    Running {
        /// Do or undo.
        phase: Phase,
    },
    /// Cut off while running, found at resume; it waits to be finished or undone.
    Interrupted {
        /// Do or undo.
        phase: Phase,
    },
    /// Every step done and proven.
    Completed,
    /// Every step that had begun was taken back.
    Undone,
    /// A step failed, and nothing more runs.
    Failed {
        /// The failure.
        failure: Failure,
    },
    /// Dropped before it began.
    Discarded,
}

/// What happened to a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Begun.
    pub started: bool,
    /// Done and proven.
    pub done: bool,
    /// Taken back.
    pub undone: bool,
    /// What was seen.
    pub evidence: Vec<Evidence>,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// The text.
    pub text: String,
}

/// A named point of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPoint {
    /// Its name.
    pub name: String,
    /// Journal line.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

/// What a watcher proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its number.
    pub id: ProposalId,
    /// Who.
    pub by: Actor,
    /// What.
    pub command: Command,
    /// `None` while it waits.
    pub approved: Option<bool>,
}

/// A command that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Journal line.
    pub seq: u64,
    /// Its spelling.
    pub command: String,
    /// Why.
    pub failure: Failure,
}

/// One event in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// Journal line.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who: the actor's name.
    pub by: String,
    /// What, in one line.
    pub text: String,
    /// How it should be marked.
    pub mark: Mark,
}

/// How a line of the timeline is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// Nothing special.
    Plain,
    /// Something was changed on a host.
    Change,
    /// Something was proven.
    Proof,
    /// Something failed.
    Failure,
    /// A verdict.
    Verdict,
}
