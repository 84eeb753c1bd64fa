//! One engine for one run of a headless command: progress, interruption, end.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use fs_err as fs;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Context;
use crate::cli::answer::Failed;
use crate::cli::args::JsonForm;
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::stream::event_line;
use crate::engine::drive::DriveError;
use crate::engine::event::Happened;
use crate::engine::input::Actor;
use crate::engine::runtime::{self, Engine, EngineHandle};
use crate::remote::host::{Hosts, Settings};
use crate::session::format::{ChainHash, decode};
use crate::session::store::{self, OpenSession, SessionError};
use crate::world::RealWorld;

/// A running engine and whose it is.
pub struct Run {
    /// The engine.
    pub engine: Engine,
    /// Folder of its session.
    pub dir: PathBuf,
    /// The user of this process.
    pub actor: Actor,
    /// The links to other hosts.
    pub hosts: Hosts,
    /// Timeline lines that were there before this run.
    old_lines: usize,
}

impl Run {
    /// A handle of one's own.
    pub fn handle(&self) -> EngineHandle {
        self.engine.handle.clone()
    }
}

/// Runs an async command to its end on a runtime of its own.
///
/// # Errors
/// Those of the command; or the runtime cannot be made.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// The user of this process, as the driver.
pub fn driver() -> Actor {
    let name = ["USER", "LOGNAME"].iter().find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
    Actor::driver(name.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw())))
}

/// Makes a session called after `stem` and the time, and starts an engine on it.
///
/// # Errors
/// The session cannot be made or written.
pub fn start_new(context: &Context, stem: &str, seed: u64) -> Result<Run, Failed> {
    let now = Timestamp::now();
    let mut session = None;
    // Two runs of the same second get different names.
    for attempt in 1..100 {
        let suffix = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        let name = format!("{}-{}{suffix}", plain_name(stem), now.strftime("%Y%m%d-%H%M%S"));
        match store::create(&context.paths.sessions, &name) {
            Err(SessionError::Exists(_)) => {}
            other => {
                session = Some((name, other?));
                break;
            }
        }
    }
    let Some((name, session)) = session else {
        return Err(Failed::world(ErrorCode::Session, "a hundred sessions were begun in this second"));
    };
    let id = uuid::Uuid::now_v7();
    let program = env!("CARGO_PKG_VERSION").to_owned();
    start(session, Happened::SessionStarted { id, name, program, seed })
}

/// Starts an engine on a session that is open; `first` is its first event.
///
/// # Errors
/// The journal cannot be written.
pub fn start(session: OpenSession, first: Happened) -> Result<Run, Failed> {
    let (dir, old_lines) = (session.dir.clone(), session.state.timeline.len());
    let actor = driver();
    let hosts = Hosts::new(Settings::from_environment());
    let world = Arc::new(RealWorld { hosts: hosts.clone() });
    let engine = runtime::start(session, Some(first), &actor, world)
        .map_err(|e| Failed::world(ErrorCode::Io, e.to_string()).session(&dir))?;
    Ok(Run { engine, dir, actor, hosts, old_lines })
}

fn plain_name(stem: &str) -> String {
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let plain = plain.trim_matches('-').to_owned();
    if plain.is_empty() { "session".to_owned() } else { plain }
}

/// Does `work` while progress is shown; an interrupt gives it up, and the engine still ends in order.
///
/// # Errors
/// The work failed, was interrupted, or the journal could not be written.
pub async fn supervise<T>(
    context: &Context,
    run: &Run,
    work: impl Future<Output = Result<T, DriveError>>,
) -> Result<T, Failed> {
    let quiet = context.quiet || context.json == Some(JsonForm::Stream);
    let mut progress = Progress::new(quiet, run.old_lines);
    let mut stream = (context.json == Some(JsonForm::Stream)).then(|| JournalStream::new(run));
    let mut state = run.engine.handle.state.clone();
    let mut live = run.engine.handle.live.subscribe();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::pin!(work);
    let result = loop {
        tokio::select! {
            result = &mut work => break result.map_err(|e| failed(&e)),
            Ok(()) = state.changed() => {
                let state = state.borrow_and_update().clone();
                progress.state(&state);
                if let Some(stream) = &mut stream {
                    stream.print()?;
                }
            }
            Ok(live) = live.recv() => progress.live(&live),
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                break Err(interrupted());
            }
            _ = terminate.recv() => break Err(interrupted()),
            _ = hang_up.recv() => break Err(interrupted()),
        }
    };
    progress.state(&run.engine.handle.state.borrow());
    progress.finish();
    if let Some(stream) = &mut stream {
        stream.print()?;
    }
    result.map_err(|f| f.session(&run.dir))
}

fn interrupted() -> Failed {
    Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted")
        .hint("`patchbench session resume` goes on from what was recorded")
}

fn failed(error: &DriveError) -> Failed {
    match error {
        DriveError::Failed(failure) => Failed::from_failure(ErrorCode::Refused, failure),
        DriveError::Ended(_) => Failed::world(ErrorCode::Io, "the session could not be written any more")
            .hint("free some space; what was recorded so far is safe"),
    }
}

/// Ends the engine in order: what runs is cancelled, a change of a server comes to its end.
///
/// # Errors
/// The journal could not be written.
pub async fn finish(run: Run) -> Result<(), Failed> {
    let state = run.engine.handle.state.borrow().clone();
    for job in state.running_jobs().filter(|j| j.procedure.is_some()) {
        output::stderr_line(&format!("waiting for a change to come to its end: {}", job.title));
    }
    run.engine.handle.close().await;
    let dir = run.dir;
    run.engine.ended().await.map_err(|e| {
        Failed::world(ErrorCode::Io, e.to_string())
            .hint("free some space; what was recorded so far is safe")
            .session(dir)
    })
}

/// Prints the journal's new lines as they are acknowledged.
struct JournalStream {
    path: PathBuf,
    offset: usize,
    seq: u64,
    hash: ChainHash,
}

impl JournalStream {
    fn new(run: &Run) -> Self {
        Self { path: store::journal_path(&run.dir), offset: 0, seq: 0, hash: ChainHash::start() }
    }

    fn print(&mut self) -> Result<(), Failed> {
        let bytes = fs::read(&self.path)?;
        let loaded = decode(bytes.get(self.offset..).unwrap_or_default(), self.seq, self.hash.clone())
            .map_err(|e| Failed::world(ErrorCode::Session, e.to_string()))?;
        for event in &loaded.events {
            output::stdout_line(&event_line(event))?;
            self.seq = event.seq;
        }
        self.offset += loaded.good_bytes as usize;
        self.hash = loaded.hash;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_name_is_always_a_file_name() {
        for (stem, expect) in [("dsv4", "dsv4"), ("a b/c", "a-b-c"), ("../..", "session"), ("", "session")] {
            assert_eq!(plain_name(stem), expect);
        }
    }
}
