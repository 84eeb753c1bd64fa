//! Runs the steps of a procedure, reporting each before and after, and takes them back.
//!
//! Every step is journaled as started before anything is done. Cancelling takes effect between steps
//! and in waits; what is half done can be finished or undone later, since each step knows how to check itself.

use std::sync::Arc;
use std::time::Duration;

use super::machine::{Machine, ShellEnd, ShellFailure};
use super::procedures::Means;
use super::{lease, prove, router};
use crate::case::{Case, Target};
use crate::engine::input::JobReport;
use crate::engine::job::{EngineGone, JobContext};
use crate::engine::procedure::{
    Action, BootExpectation, BootProof, Evidence, Failure, Lease, Phase, Procedure, ProcessKey, Purpose, RoutedWorker,
    RouterAsk, Step,
};
use crate::redact;
use crate::untrusted::Untrusted;

/// Which part of a procedure is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Do or undo.
    pub phase: Phase,
    /// `Do` from this step upwards, `Undo` from it downwards.
    pub from: usize,
    /// Whether requests that do not end in time may be cut off.
    pub anyway: bool,
}

/// Runs a part of a procedure.
///
/// # Errors
/// A step failed, and nothing after it ran; the failure was reported. Or the job was cancelled between steps,
/// or the engine is gone.
pub async fn run(
    means: &Means,
    case: &Case,
    procedure: &Procedure,
    Part { phase, from, anyway }: Part,
    ctx: &JobContext,
) -> Result<(), Failure> {
    let target = case
        .target(&procedure.target)
        .ok_or_else(|| Failure::new(format!("the case has no target `{}`", procedure.target)))?;
    let machine = Machine::of(&means.hosts, target)?.patient();
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
        let run = Run { means, machine: &machine, case, target, procedure, ctx, step, phase, anyway };
        let end = match phase {
            Phase::Do => run.forward().await,
            Phase::Undo => run.back().await,
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
        "lease" => "taking the lease",
        "give-lease-back" => "giving the lease back",
        "write-override" => "writing the override",
        "write-drop-in" => "writing the drop-in",
        "take-drop-in-away" => "taking the drop-in away",
        "stop" => "stopping",
        "start" => "starting",
        "prove" => "loading",
        "retire-override" => "putting the override aside",
        "keep-worker" => "writing down the router's worker",
        "drain" => "draining",
        "re-add" => "bringing it back into its router",
        "prove-entry" => "asking a whole request",
        other => other,
    };
    match phase {
        Phase::Do => doing.to_owned(),
        Phase::Undo => format!("taking back: {doing}"),
    }
}

struct Run<'a> {
    means: &'a Means,
    machine: &'a Machine,
    case: &'a Case,
    target: &'a Target,
    procedure: &'a Procedure,
    ctx: &'a JobContext,
    step: usize,
    phase: Phase,
    anyway: bool,
}

impl Run<'_> {
    fn of(&self) -> &Step {
        &self.procedure.steps[self.step]
    }

    /// Checks, applies where needed, proves.
    async fn forward(&self) -> Result<Vec<Evidence>, Failure> {
        let step = self.of();
        let mut evidence = Vec::new();
        if let Some(held) = &self.procedure.lease
            && !matches!(step.name.as_str(), "lease" | "give-lease-back")
        {
            match self.held(held).await? {
                Held::Ours => {}
                Held::Restored => {
                    return Err(Failure::new(format!(
                        "the host has put `{}` back by itself, because the lease was not renewed in time",
                        self.target.name
                    ))
                    .hint("ask for the change anew"));
                }
                Held::Failed => {
                    return Err(Failure::new(format!(
                        "the host tried to put `{}` back by itself and could not",
                        self.target.name
                    ))
                    .hint("take this change back, or see the `log` in the lease's folder on the host"));
                }
                Held::Restoring => return Err(self.restoring()),
                Held::Lost => return Err(self.lost()),
            }
        }
        if self.already(&step.check).await? {
            evidence.push(said(&step.name, "already done", "its check"));
        } else {
            evidence.extend(self.act(&step.apply, Kind::Change).await?);
        }
        evidence.extend(self.act(&step.proof, Kind::Look).await?);
        Ok(evidence)
    }

    async fn back(&self) -> Result<Vec<Evidence>, Failure> {
        let step = self.of();
        let Some(undo) = &step.undo else { return Ok(Vec::new()) };
        if let Some(held) = self.procedure.lease.as_ref().filter(|_| step.name != "lease") {
            match self.held(held).await? {
                // What the host could not do is tried from here.
                Held::Ours | Held::Failed => {}
                Held::Restoring => return Err(self.restoring()),
                // A host may have been unable to tell a router.
                Held::Restored if matches!(undo, Action::Router { ask: RouterAsk::Add, .. }) => {}
                Held::Restored => return Ok(vec![said(&step.name, "the host has put it back by itself", &held.path)]),
                Held::Lost => return Err(self.lost()),
            }
        }
        // A process that still runs may have been told to stop already, by a shell that outlived its program:
        // the stop is finished first, so that nothing ends later what is called restored now.
        let mut evidence = Vec::new();
        if let Action::ProcessGone { pid, start_ticks, .. } = step.check
            && prove::runs(self.machine, ProcessKey { pid, start_ticks }, self.ctx).await?
        {
            evidence.extend(self.act(&step.apply, Kind::Change).await?);
        }
        evidence.extend(self.act(undo, Kind::Change).await?);
        if let Some(proof) = &step.undo_proof {
            evidence.extend(self.act(proof, Kind::Look).await?);
        }
        Ok(evidence)
    }

    /// Renews the lease, and says how it stands: nothing is done to a target that is not ours any more.
    async fn held(&self, held: &Lease) -> Result<Held, Failure> {
        let text = lease::renew(&held.path, &self.means.owner, held.minutes.unwrap_or_default())?;
        let end = self.machine.read(&text, 20.0, &self.ctx.cancel).await.map_err(|f| self.broke(f))?;
        match (end.ok(), end.out.trim()) {
            (true, "ours") => Ok(Held::Ours),
            (true, "restored") => Ok(Held::Restored),
            (true, "restoring") => Ok(Held::Restoring),
            (true, "failed") => Ok(Held::Failed),
            (true, "lost") => Ok(Held::Lost),
            _ => {
                Err(Failure::new(format!("the lease of `{}` cannot be renewed: {}", self.target.name, end.last_line())))
            }
        }
    }

    fn restoring(&self) -> Failure {
        Failure::new(format!("the host is putting `{}` back by itself right now", self.target.name))
            .hint("wait until it is done, then read the target anew")
    }

    fn lost(&self) -> Failure {
        Failure::new(format!("`{}` is not held by this session any more", self.target.name))
            .hint("nothing more was done; ask for the change anew to see who holds it")
    }

    fn broke(&self, failure: ShellFailure) -> Failure {
        let name = &self.of().name;
        match failure {
            ShellFailure::Cancelled => Failure::new(format!("cancelled within step `{name}`")),
            ShellFailure::Host(error) => {
                let failure = error.failure();
                Failure { message: format!("step `{name}`: {}", failure.message), ..failure }
            }
            other => Failure::new(format!("step `{name}` {other}")),
        }
    }

    async fn already(&self, check: &Action) -> Result<bool, Failure> {
        match check {
            Action::Nothing | Action::ProveBoot { .. } | Action::EntryToken { .. } => Ok(false),
            Action::Router { ask, worker, .. } => self.asking(worker).holds(*ask).await,
            Action::Shell { script, timeout_s } => {
                let end = self.machine.read(script, *timeout_s, &self.ctx.cancel).await;
                end.map(|end| end.ok()).map_err(|f| self.broke(f))
            }
            Action::ProcessGone { pid, start_ticks, .. } => {
                let key = ProcessKey { pid: *pid, start_ticks: *start_ticks };
                Ok(!prove::runs(self.machine, key, self.ctx).await?)
            }
        }
    }

    async fn act(&self, action: &Action, kind: Kind) -> Result<Vec<Evidence>, Failure> {
        match action {
            Action::Nothing => Ok(Vec::new()),
            Action::Shell { script, timeout_s } => self.shell(script, *timeout_s, kind).await,
            Action::ProcessGone { pid, start_ticks, timeout_s } => {
                let key = ProcessKey { pid: *pid, start_ticks: *start_ticks };
                self.gone(key, *timeout_s).await
            }
            Action::ProveBoot { expect, timeout_s } => self.prove(expect, *timeout_s).await,
            Action::Router { ask, worker, timeout_s } => self.asking(worker).act(*ask, *timeout_s).await,
            Action::EntryToken { entry, timeout_s } => {
                router::entry_token(self.means, self.case, self.target, entry, *timeout_s, self.ctx).await
            }
        }
    }

    fn asking<'w>(&'w self, worker: &'w RoutedWorker) -> router::Asking<'w> {
        let Self { means, case, target, ctx, anyway, .. } = *self;
        let way_back = self.procedure.purpose == Purpose::Restore;
        router::Asking { means, case, target, worker, ctx, anyway, way_back }
    }

    async fn shell(&self, script: &str, timeout_s: f64, kind: Kind) -> Result<Vec<Evidence>, Failure> {
        let name = &self.of().name;
        let end: Result<ShellEnd, ShellFailure> = match (kind, &self.procedure.jobs) {
            (Kind::Change, Some(jobs)) => {
                let way = match self.phase {
                    Phase::Do => "do",
                    Phase::Undo => "undo",
                };
                let job = format!("{jobs}-{}-{way}", self.step);
                self.machine.detached(&job, script, timeout_s, &self.ctx.cancel).await
            }
            (Kind::Look, _) | (_, None) => self.machine.read(script, timeout_s, &self.ctx.cancel).await,
        };
        let end = end.map_err(|f| self.broke(f))?;
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
        Err(match end.err.as_str() {
            err if err.contains("No space left") => failure.hint("the disk is full: free some space, then resume"),
            err if err.contains("Read-only file system") => {
                failure.hint("the file system there is mounted read-only: nothing can be written")
            }
            err if err.contains("held by ") => {
                failure.hint("resume that session, or put the target back with `patchbench restore HOST`")
            }
            _ => failure,
        })
    }

    async fn gone(&self, key: ProcessKey, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let until = tokio::time::Instant::now() + Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        while prove::runs(self.machine, key, self.ctx).await? {
            if tokio::time::Instant::now() >= until {
                return Err(Failure::new(format!("pid {} still runs after {timeout_s} s", key.pid)));
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                () = self.ctx.cancel.cancelled() => return Err(Failure::new("cancelled while waiting for a process to end")),
            }
        }
        Ok(vec![said("old-process", &format!("pid {} is gone", key.pid), &format!("/proc/{}/stat", key.pid))])
    }

    async fn prove(&self, expect: &BootExpectation, timeout_s: f64) -> Result<Vec<Evidence>, Failure> {
        let proof: BootProof = prove::prove(self.means, self.case, self.target, expect, timeout_s, self.ctx).await?;
        let evidence = proof.evidence.clone();
        let proof = Arc::new(proof);
        tell(self.ctx, JobReport::BootProven { procedure: Some(self.procedure.id), proof }).await?;
        Ok(evidence)
    }
}

/// How the lease of a target stands.
enum Held {
    Ours,
    /// The host has put the target back.
    Restored,
    /// The host is putting it back.
    Restoring,
    /// The host tried to and could not.
    Failed,
    /// Nobody's, or somebody else's.
    Lost,
}

/// Whether a text changes something on the host, so that it must not be lost or made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Change,
    Look,
}

fn said(about: &str, seen: &str, source: &str) -> Evidence {
    Evidence { about: about.into(), seen: Untrusted::from(redact::text(seen)), source: source.into() }
}

#[cfg(test)]
pub(crate) mod tests;
