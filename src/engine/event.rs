//! What happened. The only thing that changes the state, live and in replay. Plain data.
//!
//! A kind is never renamed or reordered; a payload whose form changes gets a new version and an upcast.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::engine::command::{Command, EndState};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::ids::{BootId, JobId, ProcedureId, ProposalId, QueuedId};
use crate::engine::input::{Actor, JobOutcome};
use crate::engine::procedure::{BootProof, Evidence, Failure, Phase, Procedure};
use crate::engine::queue::Unqueued;
use crate::isolate::plan::Search;
use crate::isolate::verdict::{Symptom, Verdict};
use crate::kernel::report::MicroReport;
use crate::patch::belief;
use crate::patch::edit::Edit;
use crate::patch::types::Entry;
use crate::recall::trial::Trial;
use crate::recall::window::LoadWindow;
use crate::truth::TargetTruth;

/// One line of the journal, without its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1.
    pub seq: u64,
    /// When the input that caused it arrived.
    pub at: Timestamp,
    /// Who caused it.
    pub actor: Actor,
    /// What happened.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "payload")]
pub enum Happened {
    /// The session began.
    SessionStarted {
        /// Session id.
        id: uuid::Uuid,
        /// Session name.
        name: String,
        /// Version of the program.
        program: String,
        /// Seed from which every prompt of the session is drawn.
        seed: u64,
    },
    /// A program opened the session again.
    SessionResumed {
        /// Version of the program.
        program: String,
    },
    /// A case was put into the session.
    CaseOpened {
        /// The case.
        case: Arc<Case>,
    },
    /// A job began.
    JobStarted {
        /// The job.
        job: JobId,
        /// One line for people.
        title: String,
        /// The command that asked for it, if a person did.
        command: Option<Box<Command>>,
        /// The procedure that it runs or takes back, if it does.
        procedure: Option<ProcedureId>,
    },
    /// A job ended.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },
    /// Somebody asked for a job to stop.
    CancelRequested {
        /// The job.
        job: JobId,
    },
    /// A target was read.
    TruthRead {
        /// What was read.
        truth: Arc<TargetTruth>,
    },
    /// A change was worked out; nothing has been changed.
    ProcedurePlanned {
        /// The change.
        procedure: Arc<Procedure>,
    },
    /// A planned change was dropped.
    ProcedureDiscarded {
        /// The procedure.
        procedure: ProcedureId,
    },
    /// A production target may be changed until a time.
    TargetElevated {
        /// The target.
        target: String,
        /// Until when.
        #[schemars(with = "String")]
        until: Timestamp,
    },
    /// A change was confirmed and begins, or is taken up again.
    ProcedureStarted {
        /// The procedure.
        procedure: ProcedureId,
        /// Do or undo.
        phase: Phase,
        /// Whether requests that do not end in time may be cut off.
        #[serde(default)]
        anyway: bool,
    },
    /// A step begins.
    StepStarted {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Do or undo.
        phase: Phase,
    },
    /// A step ended well.
    StepDone {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Do or undo.
        phase: Phase,
        /// What was seen.
        evidence: Vec<Evidence>,
    },
    /// A step failed.
    StepFailed {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Do or undo.
        phase: Phase,
        /// Why.
        failure: Failure,
    },
    /// A start was proven.
    BootProven {
        /// Its number.
        boot: BootId,
        /// The procedure that started it; `None` where a running server was met.
        procedure: Option<ProcedureId>,
        /// The proof.
        proof: Arc<BootProof>,
    },
    /// A trial ended.
    TrialRecorded {
        /// The trial.
        trial: Arc<Trial>,
    },
    /// A microtest ended.
    MicroMeasured {
        /// The result.
        report: Arc<MicroReport>,
    },
    /// Changes of the fork were read into the inventory.
    PatchesImported {
        /// Where from, in one line.
        source: String,
        /// The patches; one of an id that was imported before takes its place.
        entries: Vec<Arc<Entry>>,
    },
    /// Imported patches were put together or divided.
    PatchesRegrouped {
        /// Ids of those that are no more.
        out: Vec<String>,
        /// Those that stand in their place.
        entries: Vec<Arc<Entry>>,
    },
    /// Somebody said something of a patch in place of what was read of it.
    PatchEdited {
        /// Id of the patch.
        patch: String,
        /// What; who said it is the actor.
        edit: Edit,
    },
    /// Something is believed of a patch or factor from now on, or no more.
    Believed {
        /// The change of what is believed.
        change: belief::Change,
    },
    /// The search began, moved on, or ended.
    SearchMoved {
        /// Where it stands.
        search: Arc<Search>,
    },
    /// The symptom was measured.
    SymptomMeasured {
        /// The symptom.
        symptom: Symptom,
    },
    /// A verdict was reached; it supersedes an earlier one about the same subject.
    VerdictReached {
        /// The verdict.
        verdict: Arc<Verdict>,
    },
    /// A note was written.
    NoteAdded {
        /// The text, redacted.
        text: String,
    },
    /// A point of the session was named.
    SnapshotNamed {
        /// The name.
        name: String,
    },
    /// A watcher proposed a command.
    Proposed {
        /// Its number.
        proposal: ProposalId,
        /// What.
        command: Box<Command>,
    },
    /// The driver answered a proposal.
    ProposalAnswered {
        /// The proposal.
        proposal: ProposalId,
        /// Whether it was approved.
        approved: bool,
    },
    /// What stays at the end was chosen.
    EndStateChosen {
        /// The configuration.
        end_state: EndState,
    },
    /// Something worth knowing.
    Said {
        /// The remark.
        diagnostic: Diagnostic,
    },
    /// A command was refused.
    Refused {
        /// The command.
        command: Box<Command>,
        /// Why.
        failure: Failure,
    },
    /// The load of a server while a batch of trials ran.
    WindowMeasured {
        /// The window.
        window: Arc<LoadWindow>,
    },
    /// A command waits until a change is over.
    CommandQueued {
        /// Its number.
        queued: QueuedId,
        /// What.
        command: Box<Command>,
        /// The change; `None` where it waits for a command before it alone.
        after: Option<ProcedureId>,
    },
    /// A command waits no more.
    CommandUnqueued {
        /// Its number.
        queued: QueuedId,
        /// How it left.
        how: Unqueued,
    },
}
