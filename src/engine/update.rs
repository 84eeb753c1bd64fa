//! What follows from an input: events to record and effects to start. Pure.
//!
//! Commands of people are in `engine::decide`; here are the turn itself, the reports of jobs,
//! and the search, which moves on whenever nothing else runs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::engine::command::Command;
use crate::engine::decide;
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::effect::{Effect, JobSpec};
use crate::engine::event::{Event, Happened};
use crate::engine::ids::{BootId, JobId, ProcedureId, TrialId};
use crate::engine::input::{Actor, Body, Input, JobOutcome, JobReport};
use crate::engine::procedure::{Failure, Phase, Purpose};
use crate::engine::queue;
use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::plan::{self, Next};
use crate::recall::trial;

/// Facts that the search may record in a row before it must ask for something; more is a defect.
const MAX_SEARCH_RECORDS: usize = 1000;

/// What one input leads to.
#[derive(Debug)]
pub struct Outcome {
    /// Events, already numbered; they must be on disk before the effects begin.
    pub events: Vec<Event>,
    /// What to start.
    pub effects: Vec<Effect>,
    /// The state with the events applied.
    pub state: State,
}

/// What follows from `input` in `state`.
pub fn update(state: &State, input: &Input) -> Outcome {
    let mut turn = Turn::new(state.clone(), input.at, input.actor.clone());
    match &input.body {
        Body::Command(command) => decide::command(&mut turn, command),
        Body::Report(report) => take_report(&mut turn, report),
    }
    queue::advance(&mut turn);
    advance_search(&mut turn);
    Outcome { events: turn.events, effects: turn.effects, state: turn.state }
}

/// One input at work: the state as it becomes, and what was decided so far.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The state with the events so far applied.
    pub(crate) state: State,
    pub(crate) at: Timestamp,
    /// Who sent the input.
    pub(crate) actor: Actor,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Turn {
    fn new(state: State, at: Timestamp, actor: Actor) -> Self {
        Self { state, at, actor, events: Vec::new(), effects: Vec::new() }
    }

    /// When the input came.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Records a fact and applies it.
    pub(crate) fn record(&mut self, what: Happened) {
        let event = Event { seq: self.state.seq + 1, at: self.at, actor: self.actor.clone(), what };
        self.state.apply(&event);
        self.events.push(event);
    }

    /// Asks the world for something.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Records and starts a job.
    pub(crate) fn start(&mut self, title: String, command: Option<&Command>, spec: JobSpec) -> JobId {
        let job = JobId(self.state.counters.job + 1);
        let procedure = match &spec {
            JobSpec::RunProcedure { procedure, .. } => Some(procedure.id),
            _ => None,
        };
        self.record(Happened::JobStarted { job, title, command: command.cloned().map(Box::new), procedure });
        self.effect(Effect::Start { job, spec });
        job
    }

    /// Records that a command was refused.
    pub(crate) fn refuse(&mut self, command: &Command, failure: Failure) {
        self.record(Happened::Refused { command: Box::new(command.redacted()), failure });
    }

    /// Starts, or takes up again, a procedure that is in the journal.
    pub(crate) fn run_procedure(&mut self, id: ProcedureId, phase: Phase, command: Option<&Command>) {
        let anyway = self.state.procedures.get(&id).is_some_and(|p| p.anyway);
        self.run_procedure_so(id, phase, anyway, command);
    }

    /// The same; `anyway` is whether requests that do not end in time may be cut off.
    pub(crate) fn run_procedure_so(&mut self, id: ProcedureId, phase: Phase, anyway: bool, command: Option<&Command>) {
        let (Some(case), Some(entry)) = (self.state.case.clone(), self.state.procedures.get(&id)) else { return };
        let procedure = entry.procedure.clone();
        let from = match phase {
            Phase::Do => entry.steps.iter().position(|s| !s.done).unwrap_or(entry.steps.len()),
            Phase::Undo => entry.steps.iter().rposition(|s| s.started && !s.undone).unwrap_or(0),
        };
        self.record(Happened::ProcedureStarted { procedure: id, phase, anyway });
        let title = match phase {
            Phase::Do => procedure.title.clone(),
            Phase::Undo => format!("undo: {}", procedure.title),
        };
        self.start(title, command, JobSpec::RunProcedure { case, procedure, phase, from, anyway });
    }
}

fn take_report(turn: &mut Turn, report: &JobReport) {
    match report {
        JobReport::TruthRead(truth) => turn.record(Happened::TruthRead { truth: truth.clone() }),
        JobReport::Planned(procedure) => {
            let mut procedure = procedure.as_ref().clone();
            procedure.id = ProcedureId(turn.state.counters.procedure + 1);
            let id = procedure.id;
            turn.record(Happened::ProcedurePlanned { procedure: procedure.into() });
            if decide::needs_no_question(turn, id) {
                turn.run_procedure(id, Phase::Do, None);
            }
        }
        JobReport::StepStarted { procedure, step, phase } => {
            turn.record(Happened::StepStarted { procedure: *procedure, step: *step, phase: *phase });
        }
        JobReport::StepDone { procedure, step, phase, evidence } => turn.record(Happened::StepDone {
            procedure: *procedure,
            step: *step,
            phase: *phase,
            evidence: evidence.clone(),
        }),
        JobReport::StepFailed { procedure, step, phase, failure } => turn.record(Happened::StepFailed {
            procedure: *procedure,
            step: *step,
            phase: *phase,
            failure: failure.clone(),
        }),
        JobReport::BootProven { procedure, proof } => {
            // A process that is met again is the boot that it was: boots are what a verdict counts.
            let met = turn.state.boots.values().find(|b| {
                let known = &b.proof;
                known.target == proof.target && known.process == proof.process && known.levels == proof.levels
            });
            let boot = met.map_or(BootId(turn.state.counters.boot + 1), |b| b.id);
            turn.record(Happened::BootProven { boot, procedure: *procedure, proof: proof.clone() });
        }
        JobReport::TrialDone(trial) => {
            let mut trial = trial.as_ref().clone();
            trial.id = TrialId(turn.state.counters.trial + 1);
            let current = |id: &BootId| turn.state.targets.values().any(|t| t.boot == Some(*id));
            if !trial.boots.iter().all(current) && !matches!(trial.outcome, trial::Outcome::Void { .. }) {
                trial.outcome =
                    trial::Outcome::Void { why: "the server was changed or gone before the answer was in".into() };
            }
            turn.record(Happened::TrialRecorded { trial: trial.into() });
        }
        JobReport::WindowDone(window) => turn.record(Happened::WindowMeasured { window: window.clone() }),
        JobReport::PatchesRead { source, entries } => {
            turn.record(Happened::PatchesImported { source: source.clone(), entries: entries.clone() });
        }
        JobReport::MicroDone(report) => turn.record(Happened::MicroMeasured { report: report.clone() }),
        JobReport::Said(diagnostic) => turn.record(Happened::Said { diagnostic: diagnostic.clone() }),
        JobReport::Ended { job, outcome } => {
            turn.record(Happened::JobEnded { job: *job, outcome: outcome.clone() });
            fail_orphan(turn, *job, outcome);
            if !roll_back(turn, *job, outcome) {
                read_what_changed(turn, *job);
            }
        }
    }
}

/// What was read of a target before it was changed is stale.
fn read_what_changed(turn: &mut Turn, job: JobId) {
    let changed = turn.state.jobs.get(&job).and_then(|j| j.procedure);
    if let Some(procedure) = changed.and_then(|id| turn.state.procedures.get(&id)) {
        let target = procedure.procedure.target.clone();
        decide::start_probe(turn, None, &target);
    }
}

/// A start or restart that failed or was cancelled is taken back at once, so that nothing is left half-way; in a search,
/// the search decides what comes next. Returns whether it is.
fn roll_back(turn: &mut Turn, job: JobId, outcome: &JobOutcome) -> bool {
    let searching = turn.state.search.as_ref().is_some_and(|s| s.is_active());
    if searching || !matches!(outcome, JobOutcome::Failed { .. } | JobOutcome::Cancelled) {
        return false;
    }
    let of_job = turn.state.jobs.get(&job).and_then(|j| j.procedure);
    let Some((id, entry)) = of_job.and_then(|id| Some((id, turn.state.procedures.get(&id)?))) else { return false };
    let forward = matches!(entry.procedure.purpose, Purpose::Start | Purpose::Restart)
        && matches!(entry.status, ProcedureStatus::Failed { .. })
        // What failed while it was taken back would fail again.
        && entry.failed.as_ref().is_some_and(|f| f.phase == Phase::Do);
    if forward {
        turn.run_procedure(id, Phase::Undo, None);
    }
    forward
}

/// A procedure whose job ended without a word about its step must not stay "running" for ever.
fn fail_orphan(turn: &mut Turn, job: JobId, outcome: &JobOutcome) {
    let Some(procedure) = turn.state.jobs.get(&job).and_then(|j| j.procedure) else { return };
    let Some(entry) = turn.state.procedures.get(&procedure) else { return };
    let ProcedureStatus::Running { phase } = entry.status else { return };
    let step = entry.steps.iter().rposition(|s| s.started).unwrap_or(0);
    let failure = match outcome {
        JobOutcome::Failed { failure } => failure.clone(),
        JobOutcome::Cancelled => Failure::new("cancelled between two steps"),
        JobOutcome::Done | JobOutcome::Lost => Failure::new("ended before its last step"),
    };
    let failure = failure.hint(format!("`resume-procedure {procedure}` finishes it, `undo-procedure` takes it back"));
    turn.record(Happened::StepFailed { procedure, step, phase, failure });
}

/// Lets the search go on while nothing else runs.
fn advance_search(turn: &mut Turn) {
    for _ in 0..MAX_SEARCH_RECORDS {
        let active = turn.state.search.as_ref().is_some_and(|s| s.is_active());
        let busy = turn.state.running_jobs().next().is_some()
            || turn.state.procedures.values().any(|p| matches!(p.status, ProcedureStatus::Running { .. }));
        if !active || busy {
            return;
        }
        match plan::next(&turn.state) {
            Next::Record(facts) => facts.into_iter().for_each(|fact| turn.record(fact)),
            Next::Do(command) => {
                let before = turn.state.counters.job;
                decide::act(turn, &command);
                if turn.state.counters.job > before {
                    return;
                }
            }
            Next::Finished => return,
        }
    }
    let diagnostic = Diagnostic {
        severity: Severity::Error,
        code: "search-stuck".into(),
        message: "the search asked for the same thing again and again and was stopped".into(),
        place: None,
        hint: Some("the trials and verdicts so far are kept; report this with `session export`".into()),
    };
    turn.record(Happened::Said { diagnostic });
    decide::stop_search(turn);
}

/// The levels that a target has now, as far as they are known: proven at its boot, else read, else as first met.
pub(crate) fn known_levels(state: &State, target: &str) -> BTreeMap<String, String> {
    if let Some(boot) = state.current_boot(target) {
        return boot.proof.levels.clone();
    }
    let Some(entry) = state.target(target) else { return BTreeMap::new() };
    if let Some(changed) = &entry.changed {
        return changed.levels.clone();
    }
    entry.original.clone()
}
