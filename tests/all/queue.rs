//! What is asked while a change runs: when it begins, and when it is dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use patchbench::engine::command::{Command, RecallPlan};
use patchbench::engine::effect::{ChangeWish, Effect, JobSpec};
use patchbench::engine::event::Happened;
use patchbench::engine::fake;
use patchbench::engine::ids::{JobId, ProcedureId, QueuedId};
use patchbench::engine::input::{Actor, Body, JobOutcome, JobReport};
use patchbench::engine::procedure::{Failure, Phase};
use patchbench::engine::queue::{Unqueued, must_wait};
use patchbench::engine::state::{ProcedureStatus, State};
use patchbench::engine::update::Outcome;
use patchbench::recall::trial::ProbeForm;

use crate::common::{after, step};

const P1: ProcedureId = ProcedureId(1);

fn ended(job: u64, outcome: JobOutcome) -> Body {
    Body::Report(JobReport::Ended { job: JobId(job), outcome })
}

fn recall() -> Command {
    let plan = RecallPlan {
        forms: vec![ProbeForm::Needle],
        lengths: vec![1024],
        depths: vec![0.5],
        repeats: 1,
        seed: 1,
        concurrency: 1,
        factors: BTreeMap::new(),
    };
    Command::Recall { plan }
}

fn queue(command: Command) -> Body {
    Body::Command(Command::Queue { command: Box::new(command) })
}

fn toggle(level: &str) -> Command {
    Command::Toggle { patch: "triton-indexer".into(), target: None, level: level.into() }
}

fn running() -> State {
    let case = patchbench_case();
    let proof = fake::proof(&case, "lab", &BTreeMap::new(), 7);
    after(
        &State::default(),
        [
            Body::Command(Command::OpenCase { case: Box::new(case) }),
            ended(1, JobOutcome::Done),
            Body::Report(JobReport::BootProven { procedure: None, proof: proof.into() }),
        ],
    )
}

fn patchbench_case() -> patchbench::case::Case {
    crate::common::case(&["triton-indexer"])
}

fn planned(state: &State, level: &str) -> State {
    let levels = BTreeMap::from([("triton-indexer".to_owned(), level.to_owned())]);
    let change = fake::plan(&patchbench_case(), "lab", &ChangeWish::Running(levels));
    after(state, [Body::Report(JobReport::Planned(change.into()))])
}

/// p1 runs as job 2, its first step begun.
fn changing() -> State {
    let phase = Phase::Do;
    after(
        &planned(&running(), "off"),
        [
            Body::Command(Command::Confirm { procedure: P1, typed: None }),
            Body::Report(JobReport::StepStarted { procedure: P1, step: 0, phase }),
        ],
    )
}

/// Every step of a procedure ends well, and its boot is proven.
fn completed(state: &State, procedure: ProcedureId) -> State {
    let phase = Phase::Do;
    let proof = fake::proof(&patchbench_case(), "lab", &BTreeMap::new(), 100 + procedure.0 as u32);
    let mut bodies = Vec::new();
    for step in 0..state.procedures[&procedure].steps.len() {
        bodies.push(Body::Report(JobReport::StepStarted { procedure, step, phase }));
        bodies.push(Body::Report(JobReport::StepDone { procedure, step, phase, evidence: Vec::new() }));
    }
    bodies.push(Body::Report(JobReport::BootProven { procedure: Some(procedure), proof: proof.into() }));
    after(state, bodies)
}

fn specs(outcome: &Outcome) -> Vec<&'static str> {
    let word = |e: &Effect| match e {
        Effect::Start { spec: JobSpec::Recall { .. }, .. } => Some("recall"),
        Effect::Start { spec: JobSpec::Change { .. }, .. } => Some("plan"),
        _ => None,
    };
    outcome.effects.iter().filter_map(word).collect()
}

fn dropped(outcome: &Outcome) -> Vec<String> {
    let why = |e: &patchbench::engine::event::Event| match &e.what {
        Happened::CommandUnqueued { queued, how: Unqueued::Dropped { why } } => Some(format!("{queued}: {why}")),
        _ => None,
    };
    outcome.events.iter().filter_map(why).collect()
}

#[test]
fn what_nothing_holds_is_done_at_once() {
    let outcome = step(&running(), queue(recall()));
    assert_eq!(specs(&outcome), ["recall"]);
    assert!(outcome.state.queue.items.is_empty() && !must_wait(&outcome.state, &recall()));
}

#[test]
fn trials_wait_until_the_change_and_its_job_are_over() {
    let state = changing();
    assert!(must_wait(&state, &recall()));
    let outcome = step(&state, queue(recall()));
    assert_eq!(specs(&outcome), [""; 0]);
    assert_eq!(outcome.state.queue.items[0].after, Some(P1));
    let done = completed(&outcome.state, P1);
    assert_eq!(done.procedures[&P1].status, ProcedureStatus::Completed);
    assert_eq!(done.queue.items.len(), 1, "its job has not ended yet");
    let outcome = step(&done, ended(2, JobOutcome::Done));
    assert_eq!(specs(&outcome), ["recall"]);
    assert!(outcome.state.queue.items.is_empty());
    let begun: Vec<&str> =
        outcome.events.iter().filter(|e| e.actor.name == "ann").map(|e| e.what.clone()).map(|w| kind(&w)).collect();
    assert_eq!(begun, ["job", "unqueued"], "it runs for the one who asked");
}

fn kind(what: &Happened) -> &'static str {
    match what {
        Happened::JobStarted { .. } => "job",
        Happened::CommandUnqueued { .. } => "unqueued",
        _ => "other",
    }
}

#[test]
fn a_change_that_does_not_end_well_drops_what_waits_for_it() {
    let waiting = after(&changing(), [queue(recall()), queue(toggle("on"))]);
    let failure = Failure::new("the port is taken");
    let failed = Body::Report(JobReport::StepFailed { procedure: P1, step: 0, phase: Phase::Do, failure });
    let outcome = step(&waiting, failed);
    let title = &waiting.procedures[&P1].procedure.title;
    assert_eq!(dropped(&outcome), [format!("q1: p1 failed: {title}"), format!("q2: p1 failed: {title}")]);
    assert_eq!(specs(&outcome), [""; 0]);
    assert_eq!(outcome.state.queue.dropped.as_ref().unwrap().command, toggle("on"));
    // Cancelled, it is taken back first.
    let cancelled = step(&waiting, ended(2, JobOutcome::Cancelled));
    assert!(matches!(cancelled.state.procedures[&P1].status, ProcedureStatus::Running { phase: Phase::Undo }));
    assert_eq!(dropped(&cancelled), [""; 0]);
    let done = JobReport::StepDone { procedure: P1, step: 0, phase: Phase::Undo, evidence: Vec::new() };
    let back = step(&cancelled.state, Body::Report(done));
    assert_eq!(dropped(&back).len(), 2, "{:?}", back.state.procedures[&P1].status);
    assert!(dropped(&back)[0].contains("taken back"), "{:?}", dropped(&back));
}

#[test]
fn a_restore_was_dropped_just_when_the_change_before_it_failed() {
    let restore = Command::Restore { target: Some("lab".into()) };
    let waiting = after(&changing(), [queue(recall()), queue(restore.clone())]);
    let failed =
        JobReport::StepFailed { procedure: P1, step: 0, phase: Phase::Do, failure: Failure::new("the disk is full") };
    let after_failure = after(&waiting, [Body::Report(failed)]);
    let outcome = step(&after_failure, ended(2, JobOutcome::Failed { failure: Failure::new("the disk is full") }));
    let mut state = outcome.state;
    // What had begun may be taken back first.
    if matches!(state.procedures[&P1].status, ProcedureStatus::Running { phase: Phase::Undo }) {
        let done = JobReport::StepDone { procedure: P1, step: 0, phase: Phase::Undo, evidence: Vec::new() };
        let job = state.counters.job;
        state = after(&state, [Body::Report(done), ended(job, JobOutcome::Done)]);
    }
    assert_eq!(state.queue.dropped.as_ref().map(|d| &d.command), Some(&recall()), "trials lost their ground");
    assert!(state.queue.items.is_empty(), "{:?}", state.queue.items);
    assert!(state.jobs.values().any(|j| j.title.contains("restore")), "{:?}", state.jobs);
}

#[test]
fn commands_begin_one_after_another_and_a_planned_change_is_waited_for() {
    let waiting = after(&changing(), [queue(toggle("on")), queue(recall())]);
    let outcome = step(&completed(&waiting, P1), ended(2, JobOutcome::Done));
    assert_eq!(specs(&outcome), ["plan"]);
    let plan = outcome.state.counters.job;
    let p2 = planned(&outcome.state, "on");
    assert_eq!(p2.queue.items[0].after, Some(ProcedureId(2)), "the trials are for the servers after the toggle");
    let asked = step(&p2, ended(plan, JobOutcome::Done));
    assert_eq!((specs(&asked), asked.state.queue.items.len()), (vec![], 1), "a person is asked first");
    let discarded = step(&asked.state, Body::Command(Command::Discard { procedure: ProcedureId(2) }));
    assert_eq!(dropped(&discarded).len(), 1);
    let confirmed = after(&asked.state, [Body::Command(Command::Confirm { procedure: ProcedureId(2), typed: None })]);
    let job = confirmed.counters.job;
    let outcome = step(&completed(&confirmed, ProcedureId(2)), ended(job, JobOutcome::Done));
    assert_eq!(specs(&outcome), ["recall"]);
    // A plan that fails takes what waits for it along.
    let failure = Failure::new("the script cannot be read");
    let failed = step(&outcome_of_plan(&waiting), ended(plan, JobOutcome::Failed { failure }));
    assert_eq!(dropped(&failed).len(), 1, "{:?}", failed.state.queue);
}

fn outcome_of_plan(waiting: &State) -> State {
    step(&completed(waiting, P1), ended(2, JobOutcome::Done)).state
}

#[test]
fn a_command_is_taken_out_or_refused() {
    let waiting = after(&changing(), [queue(recall())]);
    let out = step(&waiting, Body::Command(Command::Unqueue { queued: QueuedId(1) }));
    assert!(out.state.queue.items.is_empty());
    for (command, expect) in [
        (Command::Unqueue { queued: QueuedId(7) }, "q7 does not wait"),
        (Command::Queue { command: Box::new(Command::StopIsolation) }, "`stop-isolation` cannot wait"),
    ] {
        let outcome = step(&waiting, Body::Command(command));
        assert_eq!(outcome.state.refusal.unwrap().failure.message, expect);
    }
    // What is refused when it begins takes along what waits for it.
    let waiting = after(&changing(), [queue(toggle("no-such-level")), queue(recall())]);
    let outcome = step(&completed(&waiting, P1), ended(2, JobOutcome::Done));
    assert_eq!(dropped(&outcome), ["q2: `toggle triton-indexer no-such-level` before it was refused"]);
}

#[test]
fn a_program_that_ends_leaves_no_queue_behind() {
    let waiting = after(&changing(), [queue(recall())]);
    let mut resumed = waiting.clone();
    let what = Happened::SessionResumed { program: "0.1.0".into() };
    let event = patchbench::engine::event::Event {
        seq: waiting.seq + 1,
        at: Timestamp::UNIX_EPOCH,
        actor: Actor::driver("ann"),
        what,
    };
    resumed.apply(&event);
    assert!(resumed.queue.items.is_empty());
    assert!(resumed.diagnostics.last().unwrap().message.contains("waited when the program ended"));
}
