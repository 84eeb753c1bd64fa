//! The real world behind the engine: which module does which job.
//!
//! Not responsible for any of the work itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::case::Case;
use crate::engine::effect::JobSpec;
use crate::engine::input::JobReport;
use crate::engine::job::{EngineGone, JobContext};
use crate::engine::live::Live;
use crate::engine::procedure::{Failure, ProcessKey};
use crate::engine::runtime::{JobFuture, World};
use crate::truth::ServerStatus;
use crate::{kernel, recall, remote, truth};

/// How often the load of a target is read.
const LOAD_EVERY: Duration = Duration::from_secs(2);

/// The world as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealWorld;

impl World for RealWorld {
    fn job(&self, spec: JobSpec, context: JobContext) -> JobFuture {
        Box::pin(run(spec, context))
    }
}

async fn run(spec: JobSpec, context: JobContext) -> Result<(), Failure> {
    match spec {
        JobSpec::Probe { case, target, known } => probe(&case, &target, known, &context).await,
        JobSpec::Change { case, target, wish } => {
            let procedure = remote::procedures::plan(&case, &target, &wish, &context).await?;
            context.report(JobReport::Planned(Arc::new(procedure))).await.map_err(gone)
        }
        JobSpec::RunProcedure { case, procedure, phase, from } => {
            remote::execute::run(&case, &procedure, phase, from, &context).await
        }
        JobSpec::Recall { case, plan, boots, arm } => recall::runner::run(&case, &plan, &boots, &arm, &context).await,
        JobSpec::Micro { spec, device, checkpoint } => {
            micro(spec, device, checkpoint.map(PathBuf::from), &context).await
        }
    }
}

fn gone(error: EngineGone) -> Failure {
    Failure::new(error.to_string())
}

/// Reads a target, and proves the server that it meets unless that is known already.
async fn probe(case: &Case, target: &str, known: Option<ProcessKey>, context: &JobContext) -> Result<(), Failure> {
    let read = truth::read::probe(case, target, context).await?;
    let met = read.status == ServerStatus::Ready && read.process != known;
    context.report(JobReport::TruthRead(Arc::new(read))).await.map_err(gone)?;
    if !met {
        return Ok(());
    }
    match remote::prove::adopt(case, target, context).await? {
        Some(proof) => {
            let report = JobReport::BootProven { procedure: None, proof: Arc::new(proof) };
            context.report(report).await.map_err(gone)
        }
        None => Ok(()),
    }
}

async fn micro(spec: String, device: String, checkpoint: Option<PathBuf>, context: &JobContext) -> Result<(), Failure> {
    let within = context.clone();
    let work = tokio::task::spawn_blocking(move || {
        let progress = |done, total, phase: &str| within.progress(done, Some(total), phase);
        let cancelled = || within.cancel.is_cancelled();
        kernel::run(&spec, &device, checkpoint.as_deref(), &progress, &cancelled, Timestamp::now())
    });
    let report = work.await.map_err(|e| Failure::new(format!("the microtest itself broke: {e}")))??;
    context.report(JobReport::MicroDone(Arc::new(report))).await.map_err(gone)
}

/// Follows the load of every target of a case until it is cancelled; for the workbench alone.
///
/// A target that does not answer has no load for that moment, which is shown as such.
pub async fn watch(case: Arc<Case>, live: broadcast::Sender<Live>, cancel: CancellationToken) {
    let mut tick = tokio::time::interval(LOAD_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = tick.tick() => {}
        }
        for target in &case.targets {
            if let Ok(load) = truth::read::load_once(target).await {
                // An error only says that nobody looks on.
                let _ = live.send(load);
            }
        }
    }
}
