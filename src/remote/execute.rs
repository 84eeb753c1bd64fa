//! Runs the steps of a procedure, reporting each before and after, and takes them back.
//!
//! Every step is journaled as started before anything is done. Cancelling takes effect between steps
//! and in waits; what is half done can be finished or undone later, since each step knows how to check itself.

use std::sync::Arc;
use std::time::Duration;

use super::local::{self, ShellFailure};
use super::prove;
use crate::case::{Case, Target};
use crate::engine::input::JobReport;
use crate::engine::job::{EngineGone, JobContext};
use crate::engine::procedure::{
    Action, BootExpectation, BootProof, Evidence, Failure, Phase, Procedure, ProcessKey, Step,
};
use crate::redact;
use crate::untrusted::Untrusted;

pub use super::prove::{adopt, adopt_in};

/// Runs a procedure: `Do` from step `from` upwards, `Undo` from step `from` downwards.
///
/// # Errors
/// A step failed, and nothing after it ran; the failure was reported. Or the job was cancelled between steps,
/// or the engine is gone.
pub async fn run(
    case: &Case,
    procedure: &Procedure,
    phase: Phase,
    from: usize,
    ctx: &JobContext,
) -> Result<(), Failure> {
    let target = case
        .target(&procedure.target)
        .ok_or_else(|| Failure::new(format!("the case has no target `{}`", procedure.target)))?;
    let order: Vec<usize> = match phase {
        Phase::Do => (from..procedure.steps.len()).collect(),
        Phase::Undo => (0..procedure.steps.len().min(from + 1)).rev().collect(),
    };
    let total = order.len() as u64;
    for (done, step) in order.into_iter().enumerate() {
        if ctx.cancel.is_cancelled() {
            return Err(Failure::new(format!("cancelled before step `{}`", procedure.steps[step].name)));
        }
        ctx.progress(done as u64, Some(total), progress_phase(&procedure.steps[step].name, phase));
        let id = procedure.id;
        tell(ctx, JobReport::StepStarted { procedure: id, step, phase }).await?;
        let run = Run { case, target, procedure, ctx };
        let end = match phase {
            Phase::Do => run.forward(&procedure.steps[step]).await,
            Phase::Undo => run.back(&procedure.steps[step]).await,
        };
        match end {
            Ok(evidence) => tell(ctx, JobReport::StepDone { procedure: id, step, phase, evidence }).await?,
            Err(failure) => {
                tell(ctx, JobReport::StepFailed { procedure: id, step, phase, failure: failure.clone() }).await?;
                return Err(failure);
            }
        }
    }
    Ok(())
}

async fn tell(ctx: &JobContext, report: JobReport) -> Result<(), Failure> {
    ctx.report(report).await.map_err(|e: EngineGone| Failure::new(e.to_string()))
}

fn progress_phase(step: &str, phase: Phase) -> String {
    let doing = match step {
        "write-override" => "writing the override",
        "stop" => "stopping",
        "start" => "starting",
        "prove" => "loading",
        "retire-override" => "putting the override aside",
        other => other,
    };
    match phase {
        Phase::Do => doing.to_owned(),
        Phase::Undo => format!("taking back: {doing}"),
    }
}

struct Run<'a> {
    case: &'a Case,
    target: &'a Target,
    procedure: &'a Procedure,
    ctx: &'a JobContext,
}

impl Run<'_> {
    /// Checks, applies where needed, proves.
    async fn forward(&self, step: &Step) -> Result<Vec<Evidence>, Failure> {
        let mut evidence = Vec::new();
        if self.already(&step.check).await? {
            evidence.push(said(&step.name, "already done", "its check"));
        } else {
            evidence.extend(self.act(&step.name, &step.apply).await?);
        }
        evidence.extend(self.act(&step.name, &step.proof).await?);
        Ok(evidence)
    }

    async fn back(&self, step: &Step) -> Result<Vec<Evidence>, Failure> {
        let Some(undo) = &step.undo else { return Ok(Vec::new()) };
        // A process that still runs may have been told to stop already, by a shell that outlived its program:
        // the stop is finished first, so that nothing ends later what is called restored now.
        let mut evidence = Vec::new();
        if let Action::ProcessGone { pid, start_ticks, .. } = step.check
            && local::runs(ProcessKey { pid, start_ticks })
        {
            evidence.extend(self.act(&step.name, &step.apply).await?);
        }
        evidence.extend(self.act(&step.name, undo).await?);
        if let Some(proof) = &step.undo_proof {
            evidence.extend(self.act(&step.name, proof).await?);
        }
        Ok(evidence)
    }

    async fn already(&self, check: &Action) -> Result<bool, Failure> {
        match check {
            Action::Nothing | Action::ProveBoot { .. } => Ok(false),
            Action::Shell { script, timeout_s } => match local::shell(script, *timeout_s, &self.ctx.cancel).await {
                Ok(end) => Ok(end.ok()),
                Err(failure) => Err(Failure::new(format!("a check {failure}"))),
            },
            Action::ProcessGone { pid, start_ticks, .. } => {
                Ok(!local::runs(ProcessKey { pid: *pid, start_ticks: *start_ticks }))
            }
        }
    }

    async fn act(&self, name: &str, action: &Action) -> Result<Vec<Evidence>, Failure> {
        match action {
            Action::Nothing => Ok(Vec::new()),
            Action::Shell { script, timeout_s } => self.shell(name, script, *timeout_s).await,
            Action::ProcessGone { pid, start_ticks, timeout_s } => {
                let key = ProcessKey { pid: *pid, start_ticks: *start_ticks };
                self.gone(key, *timeout_s).await
            }
            Action::ProveBoot { expect, timeout_s } => self.prove(expect, *timeout_s).await,
        }
    }

    async fn shell(&self, name: &str, script: &str, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let end = local::shell(script, timeout_s, &self.ctx.cancel).await.map_err(|failure| match failure {
            ShellFailure::Cancelled => Failure::new(format!("cancelled within step `{name}`")),
            other => Failure::new(format!("step `{name}` {other}")),
        })?;
        for line in end.out.lines().chain(end.err.lines()) {
            self.ctx.log(redact::text(line));
        }
        if end.ok() {
            let seen =
                if end.out.trim().is_empty() { "ended with status 0".to_owned() } else { end.out.trim().to_owned() };
            return Ok(vec![said(name, &seen, "sh")]);
        }
        let line = Untrusted::from(redact::text(&end.last_line())).visible(300);
        let failure = Failure::new(format!("step `{name}` failed: {line}"));
        Err(if end.err.contains("No space left") {
            failure.hint("the disk is full: free some space, then resume")
        } else {
            failure
        })
    }

    async fn gone(&self, key: ProcessKey, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let limit = tokio::time::sleep(Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX));
        let gone = async {
            while local::runs(key) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = gone => Ok(vec![said("old-process", &format!("pid {} is gone", key.pid), &format!("/proc/{}/stat", key.pid))]),
            () = limit => Err(Failure::new(format!("pid {} still runs after {timeout_s} s", key.pid))),
            () = self.ctx.cancel.cancelled() => Err(Failure::new("cancelled while waiting for a process to end")),
        }
    }

    async fn prove(&self, expect: &BootExpectation, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let proof: BootProof = prove::prove(self.case, self.target, expect, timeout_s, self.ctx).await?;
        let evidence = proof.evidence.clone();
        let proof = Arc::new(proof);
        tell(self.ctx, JobReport::BootProven { procedure: Some(self.procedure.id), proof }).await?;
        Ok(evidence)
    }
}

fn said(about: &str, seen: &str, source: &str) -> Evidence {
    Evidence { about: about.into(), seen: Untrusted::from(redact::text(seen)), source: source.into() }
}

#[cfg(test)]
pub(crate) mod tests;
