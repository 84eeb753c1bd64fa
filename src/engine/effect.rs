//! What the world is asked to do after the events are on disk. Plain data.

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::engine::command::RecallPlan;
use crate::engine::ids::{BootId, JobId};
use crate::engine::procedure::{Phase, Procedure, ProcessKey};
use crate::patch::import::ImportFrom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a job.
    Start {
        /// Its id, already in the state.
        job: JobId,
        /// What it does.
        spec: JobSpec,
    },
    /// Cancel a job.
    Cancel(JobId),
    /// Write a named snapshot of the state.
    WriteSnapshot(String),
}

/// What a job does.
#[derive(Clone, Debug, PartialEq)]
pub enum JobSpec {
    /// Read the three layers of one target.
    Probe {
        /// The case.
        case: Arc<Case>,
        /// Target name.
        target: String,
        /// The process of the boot that is known to run; another one is proven anew.
        known: Option<ProcessKey>,
    },
    /// Plan a change against the target as it is now, journal it, run it.
    Change {
        /// The case.
        case: Arc<Case>,
        /// Target name.
        target: String,
        /// What for.
        wish: ChangeWish,
    },
    /// Run or undo a procedure that is in the journal already.
    RunProcedure {
        /// The case.
        case: Arc<Case>,
        /// The procedure.
        procedure: Arc<Procedure>,
        /// Do or undo.
        phase: Phase,
        /// First step to run (do) or to take back (undo, counted down from here).
        from: usize,
        /// Whether requests that do not end in time may be cut off.
        anyway: bool,
    },
    /// Run recall trials.
    Recall {
        /// The case.
        case: Arc<Case>,
        /// What to run.
        plan: RecallPlan,
        /// Boots that a request can meet.
        boots: Vec<BootId>,
        /// The server processes of those boots, with their targets.
        processes: Vec<(String, ProcessKey)>,
        /// Levels read back at those boots, for each `patch@target`.
        arm: BTreeMap<String, String>,
    },
    /// Read changes of the fork.
    ImportPatches {
        /// The case, if one is open.
        case: Option<Arc<Case>>,
        /// Where from.
        from: ImportFrom,
    },
    /// Run a microtest.
    Micro {
        /// Spec name.
        spec: String,
        /// Device.
        device: String,
        /// Whether a card is used that somebody else computes on.
        force_device: bool,
        /// Where the checkpoint is; `None` is the lab's.
        checkpoint: Option<String>,
        /// File with more candidates.
        candidates: Option<String>,
        /// File or folder of recorded activations.
        activations: Option<String>,
    },
}

/// What a change is meant to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeWish {
    /// Running with these levels.
    Running(BTreeMap<String, String>),
    /// Stopped.
    Stopped,
    /// Running with its own configuration, our traces gone.
    Original,
}
