//! The only way to change a state: apply an event to it. Pure; live and replay use the same code.

use std::sync::Arc;

use jiff::Timestamp;

use crate::case::Case;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::event::{Event, Happened};
use crate::engine::ids::{ProcedureId, QueuedId};
use crate::engine::input::JobOutcome;
use crate::engine::procedure::{Action, Phase, Procedure, Purpose, Step};
use crate::engine::queue::{self, Dropped, Queued, Unqueued};
use crate::engine::state::{
    Boot, Changed, FailedStep, Job, NamedPoint, Note, ProcedureState, ProcedureStatus, Proposal, Refusal, State,
    StepState, TargetState, TimelineEntry, TrialEntry,
};
use crate::engine::timeline;
use crate::patch::belief::{self, THE_SEARCH};
use crate::patch::context::Evidence;
use crate::patch::edit::Said;
use crate::truth::{ServerStatus, TargetTruth};

impl State {
    /// Writes down what is believed from now on, in place of what the same source said before.
    fn hold(&mut self, at: Timestamp, subject: &str, by: &str, says: String, source: String, why: &str) {
        let held = belief::history(&self.beliefs, subject);
        let replaces = held.iter().filter(|b| b.by == by && b.ended.is_none()).map(|b| b.id).collect();
        let change = belief::Change::Hold {
            subject: subject.to_owned(),
            evidence: vec![Evidence { fact: says.clone(), source }],
            says,
            by: by.to_owned(),
            at,
            replaces,
            why: Some(why.to_owned()),
        };
        if let Ok(next) = belief::apply(&self.beliefs, &change) {
            self.beliefs = Arc::new(next);
        }
    }

    /// Applies one event; the result depends on nothing but the state and the event.
    pub fn apply(&mut self, event: &Event) {
        let (text, mark) = timeline::describe(&event.what);
        self.timeline.push_back(TimelineEntry {
            seq: event.seq,
            at: event.at,
            by: event.actor.name.clone(),
            text,
            mark,
        });
        self.seq = event.seq;
        match &event.what {
            Happened::SessionStarted { id, name, program, seed } => {
                self.session.id = *id;
                self.session.name.clone_from(name);
                self.session.program.clone_from(program);
                self.session.seed = *seed;
                self.session.started_at = Some(event.at);
            }
            Happened::SessionResumed { program } => {
                self.session.program.clone_from(program);
                self.mark_interrupted(event);
            }
            Happened::CaseOpened { case } => self.open_case(case),
            Happened::JobStarted { job, title, procedure, command: _ } => {
                self.counters.job = self.counters.job.max(job.0);
                let entry = Job {
                    id: *job,
                    title: title.clone(),
                    procedure: *procedure,
                    started_at: event.at,
                    ended_at: None,
                    cancelling: false,
                    outcome: None,
                };
                self.jobs.insert(*job, entry);
            }
            Happened::JobEnded { job, outcome } => {
                if let Some(entry) = self.jobs.get_mut(job) {
                    entry.ended_at = Some(event.at);
                    entry.outcome = Some(outcome.clone());
                }
            }
            Happened::CancelRequested { job } => {
                if let Some(entry) = self.jobs.get_mut(job) {
                    entry.cancelling = true;
                }
            }
            Happened::TruthRead { truth } => self.read_truth(truth),
            Happened::ProcedurePlanned { procedure } => self.plan_procedure(procedure),
            Happened::ProcedureDiscarded { procedure } => self.set_status(*procedure, ProcedureStatus::Discarded),
            Happened::TargetElevated { target, until } => {
                self.targets.entry(target.clone()).or_default().elevated_until = Some(*until);
            }
            Happened::ProcedureStarted { procedure, phase, anyway } => {
                let nothing_to_do = self.procedures.get(procedure).is_some_and(|p| p.steps.is_empty());
                let status = match phase {
                    Phase::Do if nothing_to_do => ProcedureStatus::Completed,
                    Phase::Undo if nothing_to_do => ProcedureStatus::Undone,
                    Phase::Do | Phase::Undo => ProcedureStatus::Running { phase: *phase },
                };
                if let Some(entry) = self.procedures.get_mut(procedure) {
                    entry.confirmed_by = Some(event.actor.clone());
                    entry.anyway = *anyway;
                    // The host was found as its owner wrote it.
                    if nothing_to_do && entry.procedure.purpose == Purpose::Restore {
                        let target = entry.procedure.target.clone();
                        self.targets.entry(target).or_default().changed = None;
                    }
                }
                self.set_status(*procedure, status);
            }
            Happened::StepStarted { procedure, step, phase } => self.start_step(event, *procedure, *step, *phase),
            Happened::StepDone { procedure, step, phase, evidence } => {
                self.end_step(*procedure, *step, *phase, |state| {
                    state.done = *phase == Phase::Do;
                    state.undone = *phase == Phase::Undo;
                    state.evidence.extend(evidence.iter().cloned());
                });
            }
            Happened::StepFailed { procedure, step, phase, failure } => {
                if let Some(entry) = self.procedures.get_mut(procedure) {
                    entry.failed = Some(FailedStep { step: *step, phase: *phase, failure: failure.clone() });
                }
                self.set_status(*procedure, ProcedureStatus::Failed { failure: failure.clone() });
            }
            Happened::BootProven { boot, procedure, proof } => {
                self.counters.boot = self.counters.boot.max(boot.0);
                let entry = Boot { id: *boot, seq: event.seq, procedure: *procedure, proof: proof.clone() };
                self.boots.insert(*boot, Arc::new(entry));
                let overridden = procedure.and_then(|id| self.procedures.get(&id)).is_some_and(|p| {
                    p.procedure.steps.iter().any(|s| matches!(s.name.as_str(), "write-override" | "write-drop-in"))
                });
                let target = self.targets.entry(proof.target.clone()).or_default();
                target.boot = Some(*boot);
                if target.original.is_empty() && target.changed.is_none() && !overridden {
                    target.original.clone_from(&proof.levels);
                }
                // Levels that could not be read are not known to be the original ones.
                let as_found = !target.original.is_empty() && target.original == proof.levels;
                // A copy that only keeps the environment readable is a change of ours too.
                let copied = overridden && proof.readable_env;
                if as_found && proof.unverified.is_empty() && !copied {
                    target.changed = None;
                } else if let Some(changed) = &mut target.changed {
                    changed.levels.clone_from(&proof.levels);
                }
            }
            Happened::TrialRecorded { trial } => {
                self.counters.trial = self.counters.trial.max(trial.id.0);
                self.trials.push_back(TrialEntry { seq: event.seq, trial: trial.clone() });
            }
            Happened::WindowMeasured { window } => self.windows.push_back(window.clone()),
            Happened::PatchesImported { entries, .. } => self.import_patches(entries),
            Happened::PatchesRegrouped { out, entries } => self.regroup_patches(out, entries),
            Happened::PatchEdited { patch, edit } => {
                let said = Said { by: event.actor.name.clone(), at: event.at, edit: edit.clone() };
                self.regate(patch, &said);
                self.edits.entry(patch.clone()).or_default().push_back(said);
            }
            Happened::Believed { change } => {
                if let Ok(next) = belief::apply(&self.beliefs, change) {
                    self.beliefs = Arc::new(next);
                }
            }
            Happened::MicroMeasured { report } => {
                let by = format!("microtest {} on {}", report.spec, report.device);
                let case = self.case.clone();
                for patch in case.iter().flat_map(|c| &c.patches) {
                    if let Some(verdict) = patch.verdict_in(report) {
                        let says = format!("{}, {}: {}", verdict.candidate, verdict.class.word(), verdict.says);
                        self.hold(event.at, &patch.id, &by, says, by.clone(), "a newer run of it");
                    }
                }
                self.micro.push_back(report.clone());
            }
            Happened::SearchMoved { search } => self.search = Some(search.clone()),
            Happened::SymptomMeasured { symptom } => self.symptom = Some(symptom.clone()),
            Happened::VerdictReached { verdict } => {
                match self.verdicts.iter().position(|v| v.subject == verdict.subject) {
                    Some(index) => {
                        self.verdicts.set(index, verdict.clone());
                    }
                    None => self.verdicts.push_back(verdict.clone()),
                }
                let says = format!("{}: {}", verdict.verdict.word(), verdict.why);
                let lines = verdict.evidence.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                let source = if lines.is_empty() { THE_SEARCH.to_owned() } else { format!("journal lines {lines}") };
                self.hold(event.at, &verdict.subject.id, THE_SEARCH, says, source, "a newer verdict");
            }
            Happened::NoteAdded { text } => {
                self.notes.push_back(Note { at: event.at, by: event.actor.clone(), text: text.clone() });
            }
            Happened::SnapshotNamed { name } => {
                self.snapshots.push_back(NamedPoint { name: name.clone(), seq: event.seq, at: event.at });
            }
            Happened::Proposed { proposal, command } => {
                self.counters.proposal = self.counters.proposal.max(proposal.0);
                let entry = Proposal {
                    id: *proposal,
                    by: event.actor.clone(),
                    command: command.as_ref().clone(),
                    approved: None,
                };
                self.proposals.insert(*proposal, entry);
            }
            Happened::ProposalAnswered { proposal, approved } => {
                if let Some(entry) = self.proposals.get_mut(proposal) {
                    entry.approved = Some(*approved);
                }
            }
            Happened::EndStateChosen { end_state } => self.end_state = Some(end_state.clone()),
            Happened::Said { diagnostic } => self.diagnostics.push_back(diagnostic.clone()),
            Happened::CommandQueued { queued, command, after } => {
                self.counters.queued = self.counters.queued.max(queued.0);
                if self.queue.items.is_empty() {
                    // A new row does not depend on how the one before it ended.
                    self.queue.jobs.clear();
                }
                self.queue.items.push_back(Queued {
                    id: *queued,
                    by: event.actor.clone(),
                    at: event.at,
                    command: command.as_ref().clone(),
                    after: *after,
                });
            }
            Happened::CommandUnqueued { queued, how } => self.unqueue(event.seq, *queued, how),
            Happened::Refused { command, failure } => {
                let command = command.spelling();
                self.refusal = Some(Refusal { seq: event.seq, command, failure: failure.clone() });
            }
        }
    }

    fn unqueue(&mut self, seq: u64, queued: QueuedId, how: &Unqueued) {
        let at = self.queue.items.iter().position(|q| q.id == queued);
        let Some(item) = at.map(|at| self.queue.items.remove(at)) else { return };
        match how {
            Unqueued::Started { jobs } => self.queue.jobs.clone_from(jobs),
            Unqueued::Removed => {}
            Unqueued::Dropped { why } => {
                self.queue.dropped = Some(Dropped { seq, command: item.command, why: why.clone() });
            }
        }
    }

    fn open_case(&mut self, case: &Arc<Case>) {
        for target in &case.targets {
            self.targets.entry(target.name.clone()).or_default();
        }
        self.case = Some(self.with_said_gates(case));
    }

    /// Whatever ran when the program ended runs no more: its jobs are lost, its changes are half done,
    /// and its search waits to be begun again on what is recorded.
    fn mark_interrupted(&mut self, event: &Event) {
        if let Some(search) = self.search.take_if(|s| s.is_active()) {
            self.search = Some(Arc::new(search.stopped()));
        }
        for item in std::mem::take(&mut self.queue).items {
            let message = format!("`{}` waited when the program ended, and was dropped", item.command.spelling());
            self.diagnostics.push_back(Diagnostic::warning("queue-dropped", message));
        }
        let running: Vec<_> = self.jobs.values().filter(|j| j.outcome.is_none()).map(|j| j.id).collect();
        for id in running {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.ended_at = Some(event.at);
                job.outcome = Some(JobOutcome::Lost);
            }
        }
        let cut: Vec<_> = self
            .procedures
            .iter()
            .filter_map(|(id, p)| match p.status {
                ProcedureStatus::Running { phase } => Some((*id, phase)),
                _ => None,
            })
            .collect();
        for (id, phase) in cut {
            self.set_status(id, ProcedureStatus::Interrupted { phase });
        }
    }

    fn read_truth(&mut self, truth: &Arc<TargetTruth>) {
        let boots = &self.boots;
        let target = self.targets.entry(truth.target.clone()).or_default();
        let known = target.boot.and_then(|id| boots.get(&id)).map(|boot| boot.proof.process);
        let gone = match truth.status {
            ServerStatus::Down => true,
            ServerStatus::Unknown => false,
            ServerStatus::Loading | ServerStatus::Ready => truth.process.is_some() && truth.process != known,
        };
        if gone {
            target.boot = None;
        }
        if target.original.is_empty() && target.changed.is_none() && truth.status == ServerStatus::Ready {
            target.original =
                truth.levels.iter().filter_map(|(patch, level)| Some((patch.clone(), level.clone()?))).collect();
        }
        target.truth = Some(truth.clone());
    }

    fn plan_procedure(&mut self, procedure: &Arc<Procedure>) {
        self.counters.procedure = self.counters.procedure.max(procedure.id.0);
        let entry = ProcedureState {
            procedure: procedure.clone(),
            confirmed_by: None,
            anyway: false,
            status: ProcedureStatus::Planned,
            steps: vec![StepState::default(); procedure.steps.len()],
            failed: None,
        };
        self.procedures.insert(procedure.id, entry);
        // What was asked after this change was asked for waits for it too.
        let case = self.case.clone();
        for item in &mut self.queue.items {
            let targets = queue::targets_of(case.as_deref(), &item.command).unwrap_or_default();
            if targets.contains(&procedure.target) {
                item.after = Some(procedure.id);
            }
        }
    }

    fn set_status(&mut self, id: ProcedureId, status: ProcedureStatus) {
        if let Some(entry) = self.procedures.get_mut(&id) {
            entry.status = status;
        }
    }

    fn start_step(&mut self, event: &Event, id: ProcedureId, step: usize, phase: Phase) {
        let Some(entry) = self.procedures.get_mut(&id) else { return };
        entry.status = ProcedureStatus::Running { phase };
        if let Some(state) = entry.steps.get_mut(step) {
            state.started = true;
        }
        let procedure = entry.procedure.clone();
        let by = entry.confirmed_by.clone().unwrap_or_else(|| event.actor.clone());
        let Some(target) = self.targets.get_mut(&procedure.target) else { return };
        // From the stop step on, no request can meet the boot that ran before.
        if procedure.steps.get(step).is_some_and(Step::stops) {
            target.boot = None;
        }
        // Who may change a target is no change of it.
        if procedure.steps.get(step).is_some_and(|s| s.name == "lease") {
            return;
        }
        let first = target.original.is_empty() && target.changed.is_none();
        if first && procedure.purpose == Purpose::Start && phase == Phase::Do {
            target.found_down = true;
        }
        let overrides = procedure.steps.iter().any(|s| matches!(s.name.as_str(), "write-override" | "write-drop-in"));
        let ours = overrides || matches!(procedure.purpose, Purpose::Restart | Purpose::Stop);
        if ours && target.changed.is_none() && phase == Phase::Do {
            target.changed = Some(Changed { since: event.at, by, procedure: id, levels: procedure.levels.clone() });
        }
    }

    fn end_step(&mut self, id: ProcedureId, step: usize, phase: Phase, change: impl FnOnce(&mut StepState)) {
        let Some(entry) = self.procedures.get_mut(&id) else { return };
        let Some(state) = entry.steps.get_mut(step) else { return };
        change(state);
        let last = entry.steps.len() - 1;
        match phase {
            Phase::Do if step == last => entry.status = ProcedureStatus::Completed,
            Phase::Undo if step == 0 => entry.status = ProcedureStatus::Undone,
            Phase::Do | Phase::Undo => return,
        }
        let purpose = entry.procedure.purpose;
        let target = entry.procedure.target.clone();
        if let Some(target) = self.targets.get_mut(&target).filter(|_| phase == Phase::Undo)
            && target.changed.as_ref().is_some_and(|c| c.procedure == id)
        {
            target.changed = None;
        }
        if let Some(target) = self.targets.get_mut(&target).filter(|_| phase == Phase::Do)
            && (purpose == Purpose::Restore || (purpose == Purpose::Stop && target.found_down))
        {
            target.changed = None;
        }
    }

    /// What is known of a target; an unknown name reads as nothing known.
    pub fn target(&self, name: &str) -> Option<&TargetState> {
        self.targets.get(name)
    }

    /// The change of this target that runs now.
    pub fn running_procedure(&self, target: &str) -> Option<&ProcedureState> {
        let runs = |p: &&ProcedureState| matches!(p.status, ProcedureStatus::Running { .. });
        self.procedures.values().rev().filter(|p| p.procedure.target == target).find(runs)
    }

    /// Whether a start of this target is being waited for, so that its log says how far it is.
    pub fn is_starting(&self, target: &str) -> bool {
        let Some(running) = self.running_procedure(target) else { return false };
        let ProcedureStatus::Running { phase } = running.status else { return false };
        let proves = |action: Option<&Action>| matches!(action, Some(Action::ProveBoot { .. }));
        let over = |s: &StepState| if phase == Phase::Do { s.done } else { s.undone };
        let at = running.steps.iter().rposition(|s| s.started && !over(s));
        at.and_then(|i| running.procedure.steps.get(i)).is_some_and(|step| match phase {
            Phase::Do => proves(Some(&step.apply)) || proves(Some(&step.proof)),
            Phase::Undo => proves(step.undo.as_ref()) || proves(step.undo_proof.as_ref()),
        })
    }

    /// Jobs that have not ended.
    pub fn running_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(|job| job.outcome.is_none())
    }

    /// The change that runs, waits for confirmation, or was cut off on this target.
    pub fn open_procedure(&self, target: &str) -> Option<&ProcedureState> {
        self.procedures.values().rev().find(|p| {
            p.procedure.target == target
                && matches!(
                    p.status,
                    ProcedureStatus::Planned | ProcedureStatus::Running { .. } | ProcedureStatus::Interrupted { .. }
                )
        })
    }

    /// Starts of a target that changes of this session made, the newest first; a server that was met is none.
    pub fn own_starts(&self, target: &str) -> impl Iterator<Item = &Arc<Boot>> {
        self.boots.values().rev().filter(move |b| b.procedure.is_some() && b.proof.target == target)
    }

    /// The proven start that requests to this target meet now.
    pub fn current_boot(&self, target: &str) -> Option<&Arc<Boot>> {
        self.boots.get(&self.targets.get(target)?.boot?)
    }
}
