//! What comes into the engine. Pure, plain data.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::command::Command;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::ids::{InputId, JobId, ProcedureId};
use crate::engine::procedure::{BootProof, Evidence, Failure, Phase, Procedure};
use crate::kernel::report::MicroReport;
use crate::patch::types::Entry;
use crate::recall::trial::Trial;
use crate::recall::window::LoadWindow;
use crate::truth::TargetTruth;

/// One input; the runtime fills in id and time, so that `update` is pure.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Counter within this run of the program.
    pub id: InputId,
    /// When it arrived.
    pub at: Timestamp,
    /// Who sent it.
    pub actor: Actor,
    /// What it says.
    pub body: Body,
}

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// Login or chosen name.
    pub name: String,
    /// What they may do.
    pub role: ActorRole,
}

impl Actor {
    /// The program itself, reporting on its jobs.
    pub fn program() -> Self {
        Self { name: "patchbench".into(), role: ActorRole::Program }
    }

    /// The one who may act.
    pub fn driver(name: impl Into<String>) -> Self {
        Self { name: name.into(), role: ActorRole::Driver }
    }

    /// One who looks on and proposes.
    pub fn watcher(name: impl Into<String>) -> Self {
        Self { name: name.into(), role: ActorRole::Watcher }
    }
}

/// What an actor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActorRole {
    /// May act.
    Driver,
    /// Looks on and proposes.
    Watcher,
    /// The program itself.
    Program,
}

/// What an input says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A person wants something.
    Command(Command),
    /// A job has something to tell.
    Report(JobReport),
}

/// What a job tells the engine; each becomes at least one event.
#[derive(Clone, Debug, PartialEq)]
pub enum JobReport {
    /// The three layers of one target were read.
    TruthRead(Arc<TargetTruth>),
    /// A change was worked out against the target as it is now; nothing has been changed yet.
    Planned(Arc<Procedure>),
    /// A step of a procedure begins; the engine answers when it is on disk.
    StepStarted {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Which part of the step.
        phase: Phase,
    },
    /// A part of a step ended well.
    StepDone {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Which part of the step.
        phase: Phase,
        /// What was seen.
        evidence: Vec<Evidence>,
    },
    /// A part of a step failed.
    StepFailed {
        /// The procedure.
        procedure: ProcedureId,
        /// Index into its steps.
        step: usize,
        /// Which part of the step.
        phase: Phase,
        /// What went wrong.
        failure: Failure,
    },
    /// A start of a target was proven.
    BootProven {
        /// The procedure that started it; `None` where a running server was met.
        procedure: Option<ProcedureId>,
        /// The proof.
        proof: Arc<BootProof>,
    },
    /// A trial ended; its id is given by the engine.
    TrialDone(Arc<Trial>),
    /// The load of a server while the trials of a job ran.
    WindowDone(Arc<LoadWindow>),
    /// What a job found that is worth saying, without ending it.
    Said(Diagnostic),
    /// Changes of the fork were read.
    PatchesRead {
        /// Where from, in one line.
        source: String,
        /// The patches.
        entries: Vec<Arc<Entry>>,
    },
    /// A microtest ended.
    MicroDone(Arc<MicroReport>),
    /// The job ended.
    Ended {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
    },
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum JobOutcome {
    /// It did what it was asked for.
    Done,
    /// It could not.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// The program ended while it ran; said at the next resume.
    Lost,
}
