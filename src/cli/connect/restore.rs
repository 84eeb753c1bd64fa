//! `restore CASE` and `restore HOST`: back to what ran before, with or without the session that changed it.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::change::{How, change};
use crate::cli::Context;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::change::RestoreArgs;
use crate::cli::connect::case_file;
use crate::cli::connect::run::{Run, block_on, finish, start_new};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::engine::command::Command;
use crate::engine::procedure::Failure;
use crate::remote::host::{Host, HostError, Place};
use crate::remote::lease::Found;
use crate::remote::leases::{self, Standing};
use crate::remote::machine::Machine;
use crate::remote::procedures::Folders;

/// What stood on a host, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RestoreReport {
    /// The host.
    pub host: String,
    /// Every lease that stood there.
    pub leases: Vec<LeaseWord>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeaseWord {
    /// Its folder on the host.
    pub path: String,
    /// Who took it, in which session, since when, for which target.
    pub holder: String,
    /// Whether the host has put the target back by itself before.
    pub restored_by_host: bool,
    /// The exact command.
    pub command: String,
    /// What the command runs; `null` where it cannot be read.
    pub script: Option<String>,
    /// What came of it; `null` where it was not run.
    pub outcome: Option<String>,
}

impl Report for RestoreReport {
    const NAME: &'static str = "restore";
}

/// Answers `restore CASE|HOST`.
///
/// # Errors
/// There is no such case or host, the change was not confirmed, or it failed.
pub fn restore(context: &Context, args: &RestoreArgs) -> Result<Answer, Failed> {
    let path = Path::new(&args.what);
    if !path.exists() {
        return on_host(context, args);
    }
    let (case, _) = case_file(path)?;
    let commands = case.targets.iter().map(|t| Command::Restore { target: Some(t.name.clone()) }).collect();
    change(context, path, How { confirm: &args.confirm, readable_env: false }, commands)
}

fn on_host(context: &Context, args: &RestoreArgs) -> Result<Answer, Failed> {
    let host = Host::named(&args.what).map_err(HostError::failure).map_err(|f| world(&f))?;
    block_on(async {
        let run = start_new(context, &format!("restore-{}", args.what), 1)?;
        let (dir, result) = (run.dir.clone(), put_back(context, &run, args, host).await);
        finish(run).await?;
        result.map(|answer| answer.session(dir.clone())).map_err(|failed| failed.session(&dir))
    })
}

async fn put_back(_context: &Context, run: &Run, args: &RestoreArgs, host: Host) -> Result<Answer, Failed> {
    let local = (host == Host::Local).then(Folders::standard).transpose().map_err(|f| world(&f))?;
    let place = Place::new(host, args.become_with.as_deref().unwrap_or_default());
    let machine = Machine::new(run.hosts.clone(), place.map_err(HostError::failure).map_err(|f| world(&f))?);
    let cancel = CancellationToken::new();
    let found = tokio::select! {
        found = leases::list(&machine, local.as_ref(), &cancel) => found.map_err(|f| world(&f))?,
        _ = tokio::signal::ctrl_c() => return Err(interrupted()),
    };
    let mut report = RestoreReport { host: args.what.clone(), leases: Vec::new() };
    for lease in &found {
        report.leases.push(word(lease).map_err(|f| world(&f))?);
    }
    if found.is_empty() {
        let text = format!("nothing on `{}` is held by patchbench, so there is nothing to put back", args.what);
        return Ok(Answer::new(&report, Status::Done, text));
    }
    if args.confirm.plan {
        return Ok(Answer::new(&report, Status::Done, text(&report)));
    }
    if args.confirm.yes.as_deref() != Some(args.what.as_str()) {
        let failed = Failed::usage(ErrorCode::Refused, "nothing was changed: the change was not confirmed")
            .hint(format!("read what would run, then give `--yes {}`", args.what));
        let mut answer = Answer::new(&report, failed.status, text(&report));
        answer.error = Some(failed.error);
        return Ok(answer);
    }
    let mut failure = None;
    for (lease, word) in found.iter().zip(&mut report.leases) {
        note(run, format!("putting back on {}: {}", args.what, word.command)).await?;
        // A half-made way back helps nobody: an interrupt waits for its end, which is bounded.
        let outcome = leases::restore(&machine, lease, &cancel).await;
        let said = match &outcome {
            Ok(said) => said.clone(),
            Err(failed) => failed.message.clone(),
        };
        note(run, format!("{}: {said}", lease.path)).await?;
        word.outcome = Some(said);
        failure = failure.or(outcome.err());
    }
    let mut answer = Answer::new(&report, Status::Done, text(&report));
    if let Some(failure) = failure {
        let failed = world(&failure);
        answer.status = failed.status;
        answer.error = Some(failed.error);
    }
    Ok(answer)
}

/// The journal has the command before it runs.
async fn note(run: &Run, text: String) -> Result<(), Failed> {
    let sent = run.handle().ask(run.actor.clone(), Command::Note { text }).await;
    sent.map(|_| ()).map_err(|e| Failed::world(ErrorCode::Io, e.to_string()))
}

fn word(lease: &Standing) -> Result<LeaseWord, Failure> {
    Ok(LeaseWord {
        path: lease.path.clone(),
        holder: lease.said.visible(300),
        restored_by_host: lease.found == Found::Nobody,
        command: leases::put_back(lease)?,
        script: lease.script.as_ref().ok().map(|s| crate::redact::text(s)),
        outcome: None,
    })
}

fn text(report: &RestoreReport) -> String {
    let mut lines = Vec::new();
    for lease in &report.leases {
        let by_itself = if lease.restored_by_host { " (the host has put it back by itself)" } else { "" };
        lines.push(format!("{}{by_itself}", lease.holder));
        lines.push(format!("  {}", lease.command));
        match &lease.outcome {
            Some(outcome) => lines.push(format!("  {outcome}")),
            None => lines.extend(lease.script.iter().flat_map(|s| s.lines()).map(|l| format!("    {l}"))),
        }
    }
    lines.join("\n")
}

fn world(failure: &Failure) -> Failed {
    Failed::from_failure(ErrorCode::Unreachable, failure)
}

fn interrupted() -> Failed {
    Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted")
}
