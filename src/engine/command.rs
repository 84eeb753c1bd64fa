//! What a person can ask for. Plain data; the one-line docs and keys stand in `engine::table`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::{self, Case};
use crate::engine::ids::{JobId, ProcedureId, ProposalId, QueuedId};
use crate::patch::edit::Edit;
use crate::patch::import::ImportFrom;
use crate::patch::inventory::By;
use crate::recall::trial::ProbeForm;
use crate::redact;

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
    /// Allow changes of a production target for some time; putting it back needs no such leave.
    Elevate {
        /// Target name.
        target: String,
        /// For how many seconds.
        seconds: u32,
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
    /// Read changes of the fork into the inventory of patches.
    ImportPatches {
        /// Where from.
        from: ImportFrom,
    },
    /// Put imported patches together as one.
    MergePatches {
        /// Their ids, at least two.
        patches: Vec<String>,
        /// What they are together; its words become the id.
        title: String,
    },
    /// Divide an imported patch.
    SplitPatch {
        /// Its id.
        patch: String,
        /// Into what.
        by: By,
    },
    /// Say something of a patch in place of what was read of it.
    EditPatch {
        /// Its id.
        patch: String,
        /// What.
        edit: Edit,
    },
    /// Write down what is believed of a patch or factor; it takes the place of what the same person believed of it.
    Believe {
        /// Id of the patch or factor.
        subject: String,
        /// What is believed, in one sentence.
        says: String,
        /// What it rests on.
        evidence: String,
        /// Why what was believed before is held no more; needed where something was.
        why: Option<String>,
    },
    /// Run a microtest.
    Micro {
        /// Spec name, such as `mhc-mix`.
        spec: String,
        /// Device: `cpu`, `cuda:0`, several with commas between them, or `all` for every card.
        device: String,
        /// Whether a card is used that somebody else computes on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force_device: bool,
        /// Where the checkpoint is; `None` is the lab's.
        checkpoint: Option<String>,
        /// File with more candidates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        candidates: Option<String>,
        /// File or folder of recorded activations; `None` is the lab's own pass, or made-up ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activations: Option<String>,
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
    /// Do something once the change that runs on its targets has ended well; at once where none runs.
    Queue {
        /// What.
        command: Box<Command>,
    },
    /// Take a command out of the queue.
    Unqueue {
        /// The command.
        queued: QueuedId,
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

impl Command {
    /// The command as it is typed in the palette and on the command line.
    pub fn spelling(&self) -> String {
        match self {
            Self::OpenCase { case } => format!("open {}", case.name),
            Self::Probe { target } => join("probe", target.as_deref()),
            Self::Restart { target, levels } => join(&format!("restart {target}"), levels_text(levels).as_deref()),
            Self::Stop { target } => format!("stop {target}"),
            Self::Toggle { patch, target: Some(target), level } => format!("toggle {patch}@{target} {level}"),
            Self::Toggle { patch, target: None, level } => format!("toggle {patch} {level}"),
            Self::Restore { target } => join("restore", target.as_deref()),
            Self::Elevate { target, seconds } => format!("elevate {target} {}", seconds.div_ceil(60)),
            Self::Confirm { procedure, .. } => format!("confirm {procedure}"),
            Self::Discard { procedure } => format!("discard {procedure}"),
            Self::ResumeProcedure { procedure } => format!("resume-procedure {procedure}"),
            Self::UndoProcedure { procedure } => format!("undo-procedure {procedure}"),
            Self::Recall { plan } => {
                let lengths: Vec<_> = plan.lengths.iter().map(ToString::to_string).collect();
                format!("recall --lengths {} --repeats {}", lengths.join(","), plan.repeats)
            }
            Self::Believe { subject, .. } => format!("believe {subject}"),
            Self::MergePatches { patches, title } => format!("merge-patches {} {title}", patches.join(",")),
            Self::SplitPatch { patch, by } => format!("split-patch {patch} {}", by.word()),
            Self::EditPatch { patch, edit: Edit::Phases { phases } } if phases.is_empty() => {
                format!("phases {patch} none")
            }
            Self::EditPatch { patch, edit: Edit::Phases { phases } } => {
                let words: Vec<_> = phases.iter().map(|p| p.word()).collect();
                format!("phases {patch} {}", words.join(","))
            }
            Self::EditPatch { patch, edit: Edit::Gate { gate, .. } } => {
                format!("gate {patch} {}", case::gate::spelling(gate))
            }
            Self::EditPatch { patch, edit: Edit::Note { .. } } => format!("patch-note {patch}"),
            Self::ImportPatches { from } => format!("import-patches {}", from.spelling()),
            Self::Micro { spec, device, .. } => format!("micro {spec} --device {device}"),
            Self::Isolate { patches } => join("isolate", (!patches.is_empty()).then(|| patches.join(",")).as_deref()),
            Self::StopIsolation => "stop-isolation".into(),
            Self::Cancel { job } => format!("cancel {job}"),
            Self::Note { .. } => "note".into(),
            Self::Snapshot { name } => format!("snapshot {name}"),
            Self::Propose { command } => format!("propose {}", command.spelling()),
            Self::Approve { proposal } => format!("approve {proposal}"),
            Self::Reject { proposal } => format!("reject {proposal}"),
            Self::Queue { command } => format!("queue {}", command.spelling()),
            Self::Unqueue { queued } => format!("unqueue {queued}"),
            Self::ChooseEndState { end_state } => format!("end-state {}", end_state.spelling()),
        }
    }
}

impl Command {
    /// The same with secrets taken out of what was typed, for the journal.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let text = redact::text;
        match self {
            Self::Note { text: note } => Self::Note { text: text(note) },
            Self::Believe { subject, says, evidence, why } => Self::Believe {
                subject: subject.clone(),
                says: text(says),
                evidence: text(evidence),
                why: why.as_deref().map(text),
            },
            Self::MergePatches { patches, title } => {
                Self::MergePatches { patches: patches.clone(), title: text(title) }
            }
            Self::EditPatch { patch, edit: Edit::Note { text: note } } => {
                Self::EditPatch { patch: patch.clone(), edit: Edit::Note { text: text(note) } }
            }
            Self::Propose { command } => Self::Propose { command: Box::new(command.redacted()) },
            Self::Queue { command } => Self::Queue { command: Box::new(command.redacted()) },
            other => other.clone(),
        }
    }
}

impl EndState {
    /// The end state as it is typed.
    pub fn spelling(&self) -> String {
        match self {
            Self::Original => "original".into(),
            Self::BestKnown => "best-known".into(),
            Self::Stated { levels } => join("stated", levels_text(levels).as_deref()),
        }
    }
}

fn levels_text(levels: &BTreeMap<String, String>) -> Option<String> {
    if levels.is_empty() {
        return None;
    }
    let pairs: Vec<_> = levels.iter().map(|(patch, level)| format!("{patch}={level}")).collect();
    Some(pairs.join(" "))
}

fn join(head: &str, tail: Option<&str>) -> String {
    match tail {
        Some(tail) => format!("{head} {tail}"),
        None => head.to_owned(),
    }
}
