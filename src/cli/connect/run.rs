//! One engine for one run of a headless command: progress, interruption, end.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::config::Config;
use crate::engine::drive::DriveError;
use crate::engine::event::Happened;
use crate::engine::input::Actor;
use crate::engine::runtime::{self, Engine, EngineHandle};
use crate::engine::state::State;
use crate::keep;
use crate::notify;
use crate::remote::host::Hosts;
use crate::session::format::{ChainHash, decode};
use crate::session::store::{self, OpenSession, SessionError};
use crate::untrusted::Untrusted;
use crate::world::RealWorld;

/// Longest name of a person in the journal, in characters.
const NAME_CHARS: usize = 64;
/// Runs that take longer than this end with a notice.
const NOTICE_AFTER: Duration = Duration::from_secs(10);
/// Time between two lines that say what is waited for.
const WAITING_EVERY: Duration = Duration::from_secs(10);

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
    /// Holds the folder of a session that nobody asked to keep, until it is dropped.
    scratch: Option<tempfile::TempDir>,
}

impl Run {
    /// A handle of one's own.
    pub fn handle(&self) -> EngineHandle {
        self.engine.handle.clone()
    }

    /// Folder of the session, if it stays.
    pub fn kept(&self) -> Option<&Path> {
        self.scratch.is_none().then_some(self.dir.as_path())
    }
}

/// Whether the session of a run stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays among the sessions.
    Session,
    /// It is gone when the command ends: the command only looks, and nobody asked for it.
    Nothing,
}

/// Runs an async command to its end on a runtime of its own.
///
/// # Errors
/// Those of the command; or the runtime cannot be made.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // Whoever waited for an engine has given it up; the runtime must not wait for it in turn.
    runtime.shutdown_background();
    result
}

/// The user of this process, as the driver: the setting `name`, else the login.
pub fn driver(config: &Config) -> Actor {
    let chosen = Some(config.text("name").trim()).filter(|name| !name.is_empty());
    if let Some(name) = chosen {
        return Actor::driver(Untrusted::from(name).visible(NAME_CHARS));
    }
    let name = ["USER", "LOGNAME"].iter().find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
    Actor::driver(name.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw())))
}

/// Makes a session called after `stem` and the time, and starts an engine on it.
///
/// # Errors
/// The session cannot be made or written.
pub fn start_new(context: &Context, stem: &str, seed: u64) -> Result<Run, Failed> {
    start_in(context, &context.paths.sessions, stem, seed)
}

/// The same as [`start_new`]; without a wish to keep it, the session is made where nobody finds it.
///
/// # Errors
/// Those of [`start_new`].
pub fn start_kept(context: &Context, stem: &str, seed: u64, keep: Keep) -> Result<Run, Failed> {
    if keep == Keep::Session {
        return start_new(context, stem, seed);
    }
    let scratch = tempfile::Builder::new().prefix("patchbench-").tempdir()?;
    let run = start_in(context, scratch.path(), stem, seed)?;
    Ok(Run { scratch: Some(scratch), ..run })
}

fn start_in(context: &Context, root: &Path, stem: &str, seed: u64) -> Result<Run, Failed> {
    let now = Timestamp::now();
    let mut session = None;
    // Two runs of the same second get different names.
    for attempt in 1..100 {
        let suffix = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        let name = format!("{}-{}{suffix}", plain_name(stem), now.strftime("%Y%m%d-%H%M%S"));
        match store::create(root, &name) {
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
    start(session, Happened::SessionStarted { id, name, program, seed }, driver(&context.config))
}

/// Starts an engine on a session that is open; `first` is its first event.
///
/// # Errors
/// The journal cannot be written.
pub fn start(session: OpenSession, first: Happened, actor: Actor) -> Result<Run, Failed> {
    let (dir, old_lines) = (session.dir.clone(), session.state.timeline.len());
    let hosts = Hosts::default();
    let owner = keep::owner(&actor.name, &dir);
    let world = Arc::new(RealWorld { hosts: hosts.clone(), owner: owner.clone() });
    let engine = runtime::start(session, Some(first), &actor, world)
        .map_err(|e| Failed::world(ErrorCode::Io, e.to_string()).session(&dir))?;
    // It ends with the engine.
    tokio::spawn(keep::leases(hosts.clone(), owner, engine.handle.clone(), actor.clone()));
    Ok(Run { engine, dir, actor, hosts, old_lines, scratch: None })
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
    let began = Instant::now();
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
    if began.elapsed() >= NOTICE_AFTER {
        let how = if result.is_ok() { "ended" } else { "failed" };
        notify::run(
            context.config.text("notify"),
            &format!("{}: {how}", run.engine.handle.state.borrow().session.name),
        );
    }
    result.map_err(|f| match run.kept() {
        Some(dir) => f.session(dir),
        None => f,
    })
}

fn interrupted() -> Failed {
    Failed::new(Status::Interrupted, ErrorCode::Interrupted, "interrupted")
        .hint("`patchbench session resume` goes on from what was recorded")
}

/// The same, for the person who asked.
pub(super) fn failed(error: &DriveError) -> Failed {
    match error {
        DriveError::Failed(failure) => Failed::from_failure(ErrorCode::Refused, failure),
        DriveError::Ended(_) => Failed::world(ErrorCode::Io, "the session could not be written any more")
            .hint("free some space; what was recorded so far is safe"),
    }
}

/// Ends the engine in order: what runs is cancelled, a change of a server comes to its end.
///
/// That end may take as long as a large model needs to load, so what is waited for is said again and again, and an
/// interrupt gives the wait up: the session then names the change as cut off.
///
/// # Errors
/// The journal could not be written, or the wait was given up.
pub async fn finish(run: Run) -> Result<(), Failed> {
    let handle = run.handle();
    let began = Instant::now();
    let waits = |state: &State| state.running_jobs().find(|j| j.procedure.is_some()).map(|j| j.title.clone());
    let mut said = waits(&handle.state.borrow());
    if let Some(title) = &said {
        output::stderr_line(&format!("waiting for a change to come to its end: {title}; an interrupt gives it up"));
    }
    handle.close().await;
    let kept = run.kept().map(Path::to_owned);
    // Dropped when this is over: it may hold the folder of the session.
    let _scratch = run.scratch;
    let ended = run.engine.ended();
    tokio::pin!(ended);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            result = &mut ended => return result.map_err(|e| {
                let failed = Failed::world(ErrorCode::Io, e.to_string())
                    .hint("free some space; what was recorded so far is safe");
                match kept {
                    Some(dir) => failed.session(dir),
                    None => failed,
                }
            }),
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                return Err(given_up(said.as_deref(), kept));
            }
            _ = terminate.recv() => return Err(given_up(said.as_deref(), kept)),
            _ = hang_up.recv() => return Err(given_up(said.as_deref(), kept)),
            () = tokio::time::sleep(WAITING_EVERY) => {
                said = waits(&handle.state.borrow());
                if let Some(title) = &said {
                    let seconds = began.elapsed().as_secs();
                    output::stderr_line(&format!("still waiting after {seconds} s: {title}; an interrupt gives it up"));
                }
            }
        }
    }
}

fn given_up(what: Option<&str>, session: Option<PathBuf>) -> Failed {
    let what = what.unwrap_or("the session");
    let failed = Failed::new(Status::Interrupted, ErrorCode::Interrupted, format!("left before its end: {what}"))
        .hint("`patchbench session resume SESSION` with `--finish` or `--undo` takes up what was cut off");
    match session {
        Some(dir) => failed.session(dir),
        None => failed,
    }
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
    fn the_setting_name_was_not_used_for_the_journal() {
        let named = |name: &str| {
            let env = [("PATCHBENCH_NAME".to_owned(), name.to_owned())];
            driver(&Config::layered(None, env, []).unwrap()).name
        };
        assert_eq!(named("ann\u{1b}"), "ann␛");
        assert_eq!(named("  "), driver(&Config::default()).name);
    }

    #[test]
    fn a_session_name_is_always_a_file_name() {
        for (stem, expect) in [("dsv4", "dsv4"), ("a b/c", "a-b-c"), ("../..", "session"), ("", "session")] {
            assert_eq!(plain_name(stem), expect);
        }
    }
}
