//! What a person can ask for. Plain data; the one-line docs and keys stand in `engine::table`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::engine::ids::{JobId, ProcedureId, ProposalId};
use crate::recall::trial::ProbeForm;

/// A wish of the driver, or through a proposal of a watcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Command {
    /// Put a case into the session.
    OpenCase {
        /// The case, read and checked.
        case: Box<Case>,
    },
    /// Read the three layers of a target, or of all.
    Probe {
        /// Target name; `None` is all.
        target: Option<String>,
    },
    /// Start, stop or restart a target; levels that are not named stay as they are.
    Restart {
        /// Target name.
        target: String,
        /// Patch to level.
        levels: BTreeMap<String, String>,
    },
    /// Stop a target.
    Stop {
        /// Target name.
        target: String,
    },
    /// Set one patch to a level on one target, or on all it is in, by restarting them.
    Toggle {
        /// Patch id.
        patch: String,
        /// Target name; `None` is all that the patch is in.
        target: Option<String>,
        /// Level name.
        level: String,
    },
    /// Put a target back to its own configuration.
    Restore {
        /// Target name; `None` is all.
        target: Option<String>,
    },
    /// Run a planned procedure whose commands were shown.
    Confirm {
        /// The procedure.
        procedure: ProcedureId,
        /// What was typed; on production it must be the target's name.
        typed: Option<String>,
    },
    /// Drop a planned procedure.
    Discard {
        /// The procedure.
        procedure: ProcedureId,
    },
    /// Finish a half-done procedure.
    ResumeProcedure {
        /// The procedure.
        procedure: ProcedureId,
    },
    /// Take a half-done or done procedure back.
    UndoProcedure {
        /// The procedure.
        procedure: ProcedureId,
    },
    /// Run recall trials against the entry target as it is.
    Recall {
        /// What to run.
        plan: RecallPlan,
    },
    /// Run a microtest.
    Micro {
        /// Spec name, such as `mhc-mix`.
        spec: String,
        /// Device, such as `cpu`.
        device: String,
        /// Folder of the checkpoint; `None` is the lab's.
        checkpoint: Option<String>,
    },
    /// Find the guilty patch: anchors, then patches in case order, then acquittals.
    Isolate {
        /// Patches to try; empty is all.
        patches: Vec<String>,
    },
    /// Stop the search; trials and verdicts so far stay.
    StopIsolation,
    /// Cancel a job.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// Write a note into the journal.
    Note {
        /// The text.
        text: String,
    },
    /// Name this point of the session.
    Snapshot {
        /// The name.
        name: String,
    },
    /// Ask the driver to do something.
    Propose {
        /// What.
        command: Box<Command>,
    },
    /// Do what a watcher proposed.
    Approve {
        /// The proposal.
        proposal: ProposalId,
    },
    /// Decline what a watcher proposed.
    Reject {
        /// The proposal.
        proposal: ProposalId,
    },
    /// Choose what stays at the end.
    ChooseEndState {
        /// The configuration.
        end_state: EndState,
    },
}

/// Trials to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecallPlan {
    /// Forms; each length and depth is asked in each.
    pub forms: Vec<ProbeForm>,
    /// Prompt lengths in server tokens.
    pub lengths: Vec<u32>,
    /// Depths of the fact, 0 to 1.
    pub depths: Vec<f64>,
    /// Conversations for each cell.
    pub repeats: u32,
    /// First seed; cell and repeat are mixed in.
    pub seed: u64,
    /// Requests in flight at once.
    pub concurrency: u32,
    /// Factor levels, such as `cache` = `cold`.
    pub factors: BTreeMap<String, String>,
}

/// What stays when the investigation ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum EndState {
    /// As it was found.
    Original,
    /// The guilty patches off, everything else as found.
    BestKnown,
    /// These levels.
    Stated {
        /// Patch to level.
        levels: BTreeMap<String, String>,
    },
}
