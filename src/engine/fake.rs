//! A world without servers, for tests of the engine and of the screens.
//!
//! It plans changes of three empty steps, proves every start it is asked for, and lets a plain
//! function decide each trial. It stands behind the same trait as the real world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::case::Case;
use crate::engine::effect::{ChangeWish, JobSpec};
use crate::engine::ids::{BootId, ProcedureId, TrialId};
use crate::engine::input::JobReport;
use crate::engine::job::{EngineGone, JobContext};
use crate::engine::procedure::{Action, BootProof, Evidence, Failure, Phase, Procedure, ProcessKey, Purpose, Step};
use crate::engine::runtime::{JobFuture, World};
use crate::recall::trial::{Outcome, ProbeForm, Trial, TrialKey};
use crate::truth::{ServerStatus, TargetTruth};
use crate::untrusted::Untrusted;

/// Decides a trial from the levels of the boot and what is asked.
pub type Judge = fn(arm: &BTreeMap<String, String>, key: &TrialKey) -> Outcome;

/// A world without servers.
#[derive(Clone, Debug)]
pub struct FakeWorld {
    judge: Judge,
    pause: Duration,
    pid: Arc<AtomicU32>,
}

impl FakeWorld {
    /// A world whose trials end as `judge` says, each step taking `pause`.
    pub fn new(judge: Judge, pause: Duration) -> Self {
        Self { judge, pause, pid: Arc::new(AtomicU32::new(1000)) }
    }

    fn next_pid(&self) -> u32 {
        self.pid.fetch_add(1, Ordering::Relaxed)
    }
}

impl World for FakeWorld {
    fn job(&self, spec: JobSpec, context: JobContext) -> JobFuture {
        let world = self.clone();
        Box::pin(async move { run(&world, spec, &context).await.map_err(|gone| Failure::new(gone.to_string())) })
    }
}

async fn run(world: &FakeWorld, spec: JobSpec, context: &JobContext) -> Result<(), EngineGone> {
    match spec {
        JobSpec::Probe { case, target, known } => {
            let report = truth(&case, &target, known);
            context.report(JobReport::TruthRead(report.into())).await
        }
        JobSpec::Change { case, target, wish } => {
            context.report(JobReport::Planned(plan(&case, &target, &wish).into())).await
        }
        JobSpec::RunProcedure { case, procedure, phase, from, .. } => {
            run_procedure(world, &case, &procedure, phase, from, context).await
        }
        JobSpec::Recall { plan, boots, arm, .. } => {
            for length in &plan.lengths {
                for depth in &plan.depths {
                    for repeat in 0..plan.repeats {
                        if context.cancel.is_cancelled() {
                            return Ok(());
                        }
                        tokio::time::sleep(world.pause).await;
                        let key = TrialKey {
                            form: plan.forms.first().copied().unwrap_or(ProbeForm::MultiTurn),
                            length: *length,
                            depth: *depth,
                            seed: plan.seed + u64::from(repeat),
                        };
                        let outcome = (world.judge)(&arm, &key);
                        context
                            .report(JobReport::TrialDone(trial(&boots, &arm, &plan.factors, key, outcome).into()))
                            .await?;
                    }
                }
            }
            Ok(())
        }
        JobSpec::Micro { .. } | JobSpec::ImportPatches { .. } => Ok(()),
    }
}

async fn run_procedure(
    world: &FakeWorld,
    case: &Case,
    procedure: &Arc<Procedure>,
    phase: Phase,
    from: usize,
    context: &JobContext,
) -> Result<(), EngineGone> {
    let id = procedure.id;
    let steps: Vec<usize> = match phase {
        Phase::Do => (from..procedure.steps.len()).collect(),
        Phase::Undo => (0..=from.min(procedure.steps.len() - 1)).rev().collect(),
    };
    for step in steps {
        context.report(JobReport::StepStarted { procedure: id, step, phase }).await?;
        tokio::time::sleep(world.pause).await;
        let evidence = vec![Evidence {
            about: procedure.steps[step].name.clone(),
            seen: Untrusted::from("done"),
            source: "fake".into(),
        }];
        context.report(JobReport::StepDone { procedure: id, step, phase, evidence }).await?;
    }
    if phase == Phase::Do && procedure.purpose != Purpose::Stop {
        let proof = proof(case, &procedure.target, &procedure.levels, world.next_pid());
        context.report(JobReport::BootProven { procedure: Some(id), proof: proof.into() }).await?;
    }
    Ok(())
}

/// A procedure of three empty steps for this wish.
pub fn plan(case: &Case, target: &str, wish: &ChangeWish) -> Procedure {
    let (purpose, levels) = match wish {
        ChangeWish::Running(levels) => (Purpose::Restart, levels.clone()),
        ChangeWish::Stopped => (Purpose::Stop, BTreeMap::new()),
        ChangeWish::Original => (Purpose::Restore, suspect_levels(case)),
    };
    let step = |name: &str| Step {
        name: name.into(),
        check: Action::Nothing,
        apply: Action::Shell { script: format!("true # {name}"), timeout_s: 1.0 },
        undo: Some(Action::Nothing),
        undo_proof: None,
        proof: Action::Nothing,
    };
    Procedure {
        id: ProcedureId(0),
        purpose,
        target: target.into(),
        title: format!("restart {target}"),
        levels,
        load: None,
        jobs: None,
        lease: None,
        notes: Vec::new(),
        steps: vec![step("write-override"), step("stop"), step("start")],
    }
}

/// The suspect level of every patch of the case.
pub fn suspect_levels(case: &Case) -> BTreeMap<String, String> {
    case.patches.iter().map(|p| (p.id.clone(), p.suspect.clone())).collect()
}

/// The proof of a start with these levels; patches that are not named have their suspect level.
pub fn proof(case: &Case, target: &str, levels: &BTreeMap<String, String>, pid: u32) -> BootProof {
    let mut all = suspect_levels(case);
    all.extend(levels.clone());
    BootProof {
        target: target.into(),
        process: ProcessKey { pid, start_ticks: u64::from(pid) * 10 },
        started_at: Timestamp::UNIX_EPOCH,
        proven_at: Timestamp::UNIX_EPOCH,
        levels: all,
        unverified: BTreeMap::new(),
        readable_env: false,
        evidence: Vec::new(),
    }
}

fn truth(case: &Case, target: &str, known: Option<ProcessKey>) -> TargetTruth {
    TargetTruth {
        target: target.into(),
        at: Timestamp::UNIX_EPOCH,
        status: if known.is_some() { ServerStatus::Ready } else { ServerStatus::Down },
        process: known,
        processes: Vec::new(),
        rows: Vec::new(),
        levels: case.patches.iter().map(|p| (p.id.clone(), None)).collect(),
        level_sources: BTreeMap::new(),
        served: crate::truth::Served::default(),
        diagnostics: Vec::new(),
    }
}

fn trial(
    boots: &[BootId],
    arm: &BTreeMap<String, String>,
    factors: &BTreeMap<String, String>,
    key: TrialKey,
    outcome: Outcome,
) -> Trial {
    Trial {
        id: TrialId(0),
        at: Timestamp::UNIX_EPOCH,
        boots: boots.to_vec(),
        arm: arm.clone(),
        factors: factors.clone(),
        prompt_tokens: Some(key.length),
        cached_tokens: Some(0),
        expected: "QX7-41B".into(),
        got: if outcome == Outcome::Pass { "QX7-41B".into() } else { "This is the very first message.".into() },
        first_wrong: (outcome != Outcome::Pass).then_some(0),
        seconds: 0.1,
        transcript: None,
        key,
        outcome,
    }
}
