//! `demo`: a lab of one's own, the workbench on it, or the whole investigation without a screen.

use std::path::Path;
use std::time::Duration;

use crate::cli::Context;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::DemoArgs;
use crate::cli::connect::case_file;
use crate::cli::connect::run::{Run, block_on, finish, start_new, supervise};
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::{demo, lab};
use crate::engine::command::Command;
use crate::engine::drive::{self, DriveError};
use crate::engine::runtime::EngineHandle;
use crate::engine::state::State;
use crate::isolate::arms;
use crate::lab::install::install;
use crate::lab::scenario::Scenario;

/// Longest wait for the lab's end once the demo is over.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Answers `demo --headless`.
///
/// # Errors
/// The scenario is not known, the lab does not start, the user interrupts, or the session cannot be written.
pub fn headless(context: &Context, args: &DemoArgs) -> Result<Answer, Failed> {
    block_on(async {
        let run = begin(context, args)?;
        let mut handle = run.handle();
        let work = async {
            start_lab(&run, &mut handle).await?;
            drive::search(&mut handle, &run.actor, Vec::new()).await?;
            Ok(())
        };
        let result = supervise(context, &run, work).await;
        let state = end(&run).await;
        let dir = run.dir.clone();
        finish(run).await?;
        match result {
            Ok(()) => Ok(demo::answer(&state, &args.scenario, &dir, context.style)),
            Err(failed) if failed.status == Status::Interrupted || state.trials.is_empty() => Err(failed),
            Err(failed) => {
                let mut answer = demo::answer(&state, &args.scenario, &dir, context.style);
                answer.status = failed.status;
                answer.error = Some(failed.error);
                Ok(answer)
            }
        }
    })
}

/// Makes the session and installs the lab in it.
///
/// # Errors
/// The scenario is not known, or the disk said no.
pub fn begin(context: &Context, args: &DemoArgs) -> Result<Run, Failed> {
    // The name is looked up before a session is made, so that a slip of the pen leaves nothing behind.
    let scenario = lab::scenario(&args.scenario)?;
    let scenario = Scenario { load_seconds: args.load_seconds.max(scenario.load_seconds), ..scenario };
    let run = start_new(context, "demo", args.seed)?;
    let exe = std::env::current_exe()?;
    let port = free_port()?;
    install(&lab_dir(&run.dir), &scenario, args.seed, port, &exe)
        .map_err(|e| Failed::world(ErrorCode::Io, e.to_string()).session(&run.dir))?;
    Ok(run)
}

/// Whether a session has a lab of its own.
pub fn is_of_a_lab(run: &Run) -> bool {
    lab_dir(&run.dir).join("case.toml").is_file()
}

fn lab_dir(session: &Path) -> std::path::PathBuf {
    session.join("lab")
}

/// A port that is free now; somebody may still take it before the lab does, and then the start says so.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Opens the lab's case and starts its servers, with proof.
///
/// # Errors
/// The case cannot be read, or a server does not start.
pub async fn start_lab(run: &Run, handle: &mut EngineHandle) -> Result<(), DriveError> {
    let (case, _) = case_file(&lab_dir(&run.dir).join("case.toml")).map_err(|f| {
        let mut failure = crate::engine::procedure::Failure::new(f.error.message);
        failure.hint = f.error.hint;
        DriveError::Failed(failure)
    })?;
    // A router sees its workers when they are there before it.
    let targets: Vec<String> = arms::met_targets(&case).map(str::to_owned).collect();
    drive::ask(handle, &run.actor, Command::OpenCase { case: Box::new(case) }).await?;
    for target in targets {
        let start = Command::Restart { target, levels: std::collections::BTreeMap::new() };
        drive::change(handle, &run.actor, start, None).await?;
    }
    Ok(())
}

/// Stops the lab's servers; returns the state after that.
pub async fn end(run: &Run) -> std::sync::Arc<State> {
    let mut handle = run.handle();
    let stop = async {
        if handle.state.borrow().search.as_ref().is_some_and(|s| s.is_active()) {
            drive::ask(&mut handle, &run.actor, Command::StopIsolation).await?;
        }
        let running: Vec<_> = handle.state.borrow().running_jobs().map(|j| j.id).collect();
        for job in running {
            handle.ask(run.actor.clone(), Command::Cancel { job }).await?;
        }
        drive::settle(&mut handle).await?;
        let open = drive::planned(&handle.state.borrow());
        drive::discard(&handle, &run.actor, &open).await?;
        let case = handle.state.borrow().case.clone();
        // The router goes first, so that no request comes to a server that is gone.
        let mut targets: Vec<&str> = case.iter().flat_map(|c| arms::met_targets(c)).collect();
        targets.reverse();
        for target in targets {
            drive::change(&mut handle, &run.actor, Command::Stop { target: target.into() }, None).await?;
        }
        Ok::<_, DriveError>(())
    };
    match tokio::time::timeout(STOP_WITHIN, stop).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the lab was not stopped"),
        Err(_) => tracing::warn!("the lab was not stopped in time"),
    }
    run.handle().state.borrow().clone()
}
