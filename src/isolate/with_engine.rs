//! The search driven by the real engine: every command it gives goes through `update`, every effect is answered
//! by reports as a job would send them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use crate::engine::command::Command;
use crate::engine::effect::{ChangeWish, Effect, JobSpec};
use crate::engine::event::{Event, Happened};
use crate::engine::ids::{BootId, InputId, ProcedureId, TrialId};
use crate::engine::input::{Actor, Body, Input, JobOutcome, JobReport};
use crate::engine::procedure::{Action, BootProof, Phase, Procedure, ProcessKey, Purpose, Step};
use crate::engine::state::State;
use crate::engine::update::update;
use crate::isolate::exit::{Conclusion, conclusion};
use crate::isolate::fake;
use crate::isolate::verdict::Finding;
use crate::recall::trial::{FailKind, Outcome, Trial, TrialKey};
use crate::truth::{ServerStatus, TargetTruth};
use crate::untrusted::Untrusted;

#[derive(Default)]
struct Engine {
    state: State,
    events: Vec<Event>,
    effects: VecDeque<Effect>,
    levels: BTreeMap<String, String>,
    pid: u32,
    effects_done: usize,
}

impl Engine {
    fn send(&mut self, body: Body) {
        let actor = if matches!(body, Body::Command(_)) { Actor::driver("tester") } else { Actor::program() };
        let input = Input { id: InputId(self.state.seq), at: Timestamp::UNIX_EPOCH, actor, body };
        let outcome = update(&self.state, &input);
        self.state = outcome.state;
        self.events.extend(outcome.events);
        self.effects.extend(outcome.effects);
    }

    fn report(&mut self, report: JobReport) {
        self.send(Body::Report(report));
    }

    fn settle(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            self.effects_done += 1;
            assert!(self.effects_done < 2000, "the search does not end");
            let Effect::Start { job, spec } = effect else { continue };
            let outcome = self.job(spec);
            self.report(JobReport::Ended { job, outcome });
        }
    }

    fn job(&mut self, spec: JobSpec) -> JobOutcome {
        match spec {
            JobSpec::Probe { target, .. } => self.probe(target),
            JobSpec::Change { target, wish, .. } => {
                let ChangeWish::Running(levels) = wish else { panic!("the search only restarts") };
                let purpose = if self.pid == 0 { Purpose::Start } else { Purpose::Restart };
                self.report(JobReport::Planned(Arc::new(procedure(&target, purpose, levels))));
            }
            JobSpec::RunProcedure { procedure, .. } => self.change(&procedure),
            JobSpec::Recall { plan, boots, arm, .. } => {
                let sick = self.levels.get("p1").is_some_and(|l| l == "on");
                let mut seed = plan.seed;
                for &form in &plan.forms {
                    for (&length, &depth) in plan.lengths.iter().flat_map(|l| plan.depths.iter().map(move |d| (l, d))) {
                        for _ in 0..plan.repeats {
                            seed += 1;
                            let key = TrialKey { form, length, depth, seed };
                            self.report(JobReport::TrialDone(Arc::new(trial(&boots, &arm, key, sick))));
                        }
                    }
                }
            }
            JobSpec::Micro { .. } | JobSpec::ImportPatches { .. } => return JobOutcome::Cancelled,
        }
        JobOutcome::Done
    }

    fn probe(&mut self, target: String) {
        let process = (self.pid > 0).then_some(ProcessKey { pid: self.pid, start_ticks: 1 });
        let status = if process.is_some() { ServerStatus::Ready } else { ServerStatus::Down };
        self.report(JobReport::TruthRead(Arc::new(TargetTruth {
            target,
            at: Timestamp::UNIX_EPOCH,
            status,
            process,
            processes: Vec::new(),
            rows: Vec::new(),
            levels: BTreeMap::new(),
            level_sources: BTreeMap::new(),
            served: crate::truth::Served::default(),
            diagnostics: Vec::new(),
        })));
    }

    fn change(&mut self, procedure: &Procedure) {
        for (p, l) in [("p0", "on"), ("p1", "on"), ("p2", "on")] {
            self.levels.entry(p.into()).or_insert_with(|| l.into());
        }
        self.levels.extend(procedure.levels.clone());
        self.pid += 1;
        for step in 0..procedure.steps.len() {
            let (id, phase) = (procedure.id, Phase::Do);
            self.report(JobReport::StepStarted { procedure: id, step, phase });
            if step + 1 == procedure.steps.len() {
                let proof = BootProof {
                    target: procedure.target.clone(),
                    process: ProcessKey { pid: self.pid, start_ticks: 1 },
                    started_at: Timestamp::UNIX_EPOCH,
                    proven_at: Timestamp::UNIX_EPOCH,
                    levels: self.levels.clone(),
                    unverified: BTreeMap::new(),
                    readable_env: false,
                    evidence: Vec::new(),
                };
                self.report(JobReport::BootProven { procedure: Some(id), proof: Arc::new(proof) });
            }
            self.report(JobReport::StepDone { procedure: id, step, phase, evidence: Vec::new() });
        }
    }
}

fn procedure(target: &str, purpose: Purpose, levels: BTreeMap<String, String>) -> Procedure {
    let step = |name: &str| Step {
        name: name.into(),
        check: Action::Nothing,
        apply: Action::Nothing,
        undo: None,
        undo_proof: None,
        proof: Action::Nothing,
    };
    Procedure {
        id: ProcedureId(0),
        purpose,
        target: target.into(),
        title: "restart".into(),
        levels,
        load: None,
        jobs: None,
        lease: None,
        notes: Vec::new(),
        steps: vec![step("stop"), step("start")],
    }
}

fn trial(boots: &[BootId], arm: &BTreeMap<String, String>, key: TrialKey, sick: bool) -> Trial {
    Trial {
        id: TrialId(0),
        at: Timestamp::UNIX_EPOCH,
        boots: boots.to_vec(),
        arm: arm.clone(),
        factors: BTreeMap::from([("cache".into(), "cold".into())]),
        key,
        prompt_tokens: None,
        cached_tokens: None,
        outcome: if sick { Outcome::Fail { how: FailKind::Wrong } } else { Outcome::Pass },
        expected: String::new(),
        got: Untrusted::new(""),
        first_wrong: None,
        seconds: 0.3,
        transcript: None,
    }
}

fn searched() -> Engine {
    let mut engine = Engine::default();
    let mut case = fake::case(3);
    case.patches[0].microtest = Some("mhc-mix".into());
    engine.send(Body::Command(Command::OpenCase { case: Box::new(case) }));
    engine.settle();
    engine.send(Body::Command(Command::Isolate { patches: Vec::new() }));
    engine.settle();
    engine
}

#[test]
fn the_engine_brings_a_search_to_its_verdicts() {
    let engine = searched();
    let got: Vec<_> = engine.state.verdicts.iter().map(|v| (v.subject.id.as_str(), v.verdict)).collect();
    assert_eq!(got, [("p0", Finding::Acquitted), ("p1", Finding::Guilty), ("p2", Finding::Acquitted)]);
    assert_eq!(conclusion(&engine.state), Conclusion::Guilty);
    assert_eq!(engine.levels["p1"], "off");
    assert!(!engine.events.iter().any(|e| matches!(e.what, Happened::Refused { .. })));
    assert!(!engine.state.diagnostics.iter().any(|d| d.code == "search-stuck"));
}

#[test]
fn replaying_the_events_gives_the_same_state() {
    let engine = searched();
    let mut replayed = State::default();
    engine.events.iter().for_each(|e| replayed.apply(e));
    assert_eq!(replayed, engine.state);
}

#[test]
fn any_prefix_of_the_journal_can_be_searched_on() {
    let whole = searched();
    let restarts: Vec<_> =
        whole.events.iter().filter(|e| matches!(e.what, Happened::BootProven { .. })).map(|e| e.seq).collect();
    for cut in restarts.iter().step_by(6) {
        let mut engine = Engine::default();
        whole.events.iter().filter(|e| e.seq <= *cut).for_each(|e| engine.state.apply(e));
        engine.levels = engine.state.current_boot("lab").unwrap().proof.levels.clone();
        engine.pid = engine.state.current_boot("lab").unwrap().proof.process.pid;
        let seq = engine.state.seq + 1;
        let what = Happened::SessionResumed { program: "test".into() };
        engine.state.apply(&Event { seq, at: Timestamp::UNIX_EPOCH, actor: Actor::program(), what });
        // The cut fell between the proof and the end of its step; the user finishes the change.
        let half_done = engine.state.procedures.keys().next_back().copied().unwrap();
        engine.send(Body::Command(Command::ResumeProcedure { procedure: half_done }));
        engine.settle();
        engine.send(Body::Command(Command::Isolate { patches: Vec::new() }));
        engine.settle();
        let guilty: Vec<_> = engine.state.verdicts.iter().filter(|v| v.verdict == Finding::Guilty).collect();
        assert_eq!(guilty.len(), 1, "cut at {cut}");
        assert_eq!(guilty[0].subject.id, "p1");
    }
}

#[test]
fn stopping_by_hand_keeps_what_was_measured() {
    let mut engine = Engine::default();
    engine.send(Body::Command(Command::OpenCase { case: Box::new(fake::case(3)) }));
    engine.settle();
    engine.send(Body::Command(Command::Isolate { patches: Vec::new() }));
    for _ in 0..12 {
        let Some(Effect::Start { job, spec }) = engine.effects.pop_front() else { break };
        let outcome = engine.job(spec);
        engine.report(JobReport::Ended { job, outcome });
    }
    engine.send(Body::Command(Command::StopIsolation));
    assert!(engine.state.search.as_ref().is_some_and(|s| !s.is_active()));
    assert!(engine.state.symptom.is_some() && !engine.state.trials.is_empty());
    assert_eq!(conclusion(&engine.state), Conclusion::Unexplained);
}
