//! The loop that owns the state: takes inputs, journals events, applies them, starts jobs, publishes.
//!
//! It runs on a thread of its own, so that a sync of the disk never holds up an async task.
//! It knows no terminal and no server; what a job does is the [`World`]'s business.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::command::Command;
use crate::engine::effect::{Effect, JobSpec};
use crate::engine::event::{Event, Happened};
use crate::engine::ids::{InputId, JobId};
use crate::engine::input::{Actor, Body, Input, JobOutcome, JobReport};
use crate::engine::job::{JobContext, Report};
use crate::engine::live::Live;
use crate::engine::procedure::Failure;
use crate::engine::state::State;
use crate::engine::update::update;
use crate::session::journal::JournalError;
use crate::session::snapshot::{self, Snapshot};
use crate::session::store::{Head, OpenSession, write_head};

/// Longest time that an appended event stays unsynced.
const SYNC_EVERY: Duration = Duration::from_millis(100);
/// Events between two cached snapshots.
const SNAPSHOT_EVERY: u64 = 5_000;
/// How long a cancelled job may take to end once the engine closes.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Inputs that may wait before senders are held up.
const INBOX: usize = 1024;
/// Live messages that a slow receiver may fall behind before it loses some.
const LIVE: usize = 4096;

/// What a job resolves to.
pub type JobFuture = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Whatever can do jobs: the real world, or a fake one.
pub trait World: Send + Sync + 'static {
    /// The future that does this job; it reports through `context` and stops when it is cancelled.
    fn job(&self, spec: JobSpec, context: JobContext) -> JobFuture;
}

/// The way to a running engine.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Message>,
    /// The newest state.
    pub state: watch::Receiver<Arc<State>>,
    /// Live messages.
    pub live: broadcast::Sender<Live>,
}

/// The engine has ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the engine has ended")]
pub struct Ended;

#[derive(Debug)]
enum Message {
    Command { actor: Actor, command: Command, acknowledged: Option<oneshot::Sender<()>> },
    Close,
}

impl EngineHandle {
    /// Sends a command; returns at once.
    ///
    /// # Errors
    /// The engine has ended.
    pub async fn send(&self, actor: Actor, command: Command) -> Result<(), Ended> {
        let message = Message::Command { actor, command, acknowledged: None };
        self.inbox.send(message).await.map_err(|_| Ended)
    }

    /// Sends a command and returns when its events are on disk and in the state.
    ///
    /// # Errors
    /// The engine has ended, or could not write them.
    pub async fn ask(&self, actor: Actor, command: Command) -> Result<Arc<State>, Ended> {
        let (acknowledged, done) = oneshot::channel();
        let message = Message::Command { actor, command, acknowledged: Some(acknowledged) };
        self.inbox.send(message).await.map_err(|_| Ended)?;
        done.await.map_err(|_| Ended)?;
        Ok(self.state.borrow().clone())
    }

    /// Asks the engine to cancel its jobs, write what is left and end.
    pub async fn close(&self) {
        // An engine that is gone already is closed.
        let _ = self.inbox.send(Message::Close).await;
    }
}

/// A running engine: its handle, and the thread to wait for.
#[derive(Debug)]
pub struct Engine {
    /// The way to it.
    pub handle: EngineHandle,
    thread: std::thread::JoinHandle<Result<(), JournalError>>,
}

impl Engine {
    /// Waits for the end of the engine.
    ///
    /// # Errors
    /// The journal could not be written; everything acknowledged before is on disk.
    pub async fn ended(self) -> Result<(), JournalError> {
        let thread = self.thread;
        match tokio::task::spawn_blocking(move || thread.join()).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Ok(()),
        }
    }
}

/// Starts an engine on an open session; `first` is written before anything else, if given.
///
/// # Errors
/// The first event cannot be written.
pub fn start(
    session: OpenSession,
    first: Option<Happened>,
    actor: &Actor,
    world: Arc<dyn World>,
) -> Result<Engine, JournalError> {
    let (inbox, messages) = mpsc::channel(INBOX);
    let (live, _) = broadcast::channel(LIVE);
    let (reports, report_receiver) = mpsc::channel(INBOX);
    let (publish, state) = watch::channel(Arc::new(session.state.clone()));
    let mut core = Core {
        session,
        world,
        publish,
        live: live.clone(),
        reports,
        cancels: HashMap::new(),
        runtime: Handle::current(),
        inputs: 0,
        last_sync: Instant::now(),
        last_snapshot: 0,
        last_head: Instant::now(),
    };
    core.last_snapshot = core.session.state.seq;
    let remarks = std::mem::take(&mut core.session.remarks);
    let said = remarks.into_iter().map(|diagnostic| Happened::Said { diagnostic });
    let opening: Vec<_> = first.into_iter().chain(said).collect();
    core.record_opening(actor, opening)?;
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || core.run(messages, report_receiver))
        .map_err(JournalError::Io)?;
    Ok(Engine { handle: EngineHandle { inbox, state, live }, thread })
}

struct Core {
    session: OpenSession,
    world: Arc<dyn World>,
    publish: watch::Sender<Arc<State>>,
    live: broadcast::Sender<Live>,
    reports: mpsc::Sender<Report>,
    cancels: HashMap<JobId, CancellationToken>,
    runtime: Handle,
    inputs: u64,
    last_sync: Instant,
    last_snapshot: u64,
    last_head: Instant,
}

enum Woken {
    Message(Message),
    Report(Report),
    Tick,
    Closed,
}

impl Core {
    fn record_opening(&mut self, actor: &Actor, facts: Vec<Happened>) -> Result<(), JournalError> {
        let mut state = self.session.state.clone();
        let mut events = Vec::new();
        for what in facts {
            let event = Event { seq: state.seq + 1, at: Timestamp::now(), actor: actor.clone(), what };
            state.apply(&event);
            events.push(event);
        }
        self.session.journal.append(&events)?;
        self.sync()?;
        self.session.state = state;
        self.publish();
        Ok(())
    }

    fn run(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        mut reports: mpsc::Receiver<Report>,
    ) -> Result<(), JournalError> {
        let result = self.serve(&mut messages, &mut reports).and_then(|()| self.close(&mut reports));
        // After a failed write nothing more may happen that the journal would not know of.
        self.cancels.values().for_each(CancellationToken::cancel);
        result
    }

    fn serve(
        &mut self,
        messages: &mut mpsc::Receiver<Message>,
        reports: &mut mpsc::Receiver<Report>,
    ) -> Result<(), JournalError> {
        let runtime = self.runtime.clone();
        loop {
            match runtime.block_on(wait(messages, reports, self.session.journal.is_dirty())) {
                Woken::Message(Message::Command { actor, command, acknowledged }) => {
                    self.take(actor, Body::Command(command))?;
                    if let Some(acknowledged) = acknowledged {
                        self.sync()?;
                        self.publish();
                        // The asker may have gone; the command was done all the same.
                        let _ = acknowledged.send(());
                    }
                }
                Woken::Report(report) => self.take_report(report)?,
                Woken::Tick => {}
                Woken::Message(Message::Close) | Woken::Closed => return Ok(()),
            }
            // Whatever else waits is taken before anything is published or synced by time.
            while let Ok(report) = reports.try_recv() {
                self.take_report(report)?;
            }
            if self.session.journal.is_dirty() && self.last_sync.elapsed() >= SYNC_EVERY {
                self.sync()?;
            }
            self.publish();
            self.cache_snapshot();
        }
    }

    fn take_report(&mut self, report: Report) -> Result<(), JournalError> {
        if let JobReport::Ended { job, .. } = &report.report {
            self.cancels.remove(job);
        }
        self.take(Actor::program(), Body::Report(report.report))?;
        self.sync()?;
        // A job that was dropped does not wait for the answer.
        let _ = report.acknowledged.send(());
        Ok(())
    }

    fn take(&mut self, actor: Actor, body: Body) -> Result<(), JournalError> {
        self.inputs += 1;
        let input = Input { id: InputId(self.inputs), at: Timestamp::now(), actor, body };
        let outcome = update(&self.session.state, &input);
        self.session.journal.append(&outcome.events)?;
        self.session.state = outcome.state;
        if outcome.effects.is_empty() {
            return Ok(());
        }
        self.sync()?;
        // Published before the jobs begin, so that nobody sees a report of a job that is not in the state.
        self.publish();
        outcome.effects.into_iter().for_each(|effect| self.begin(effect));
        Ok(())
    }

    fn begin(&mut self, effect: Effect) {
        match effect {
            Effect::Start { job, spec } => self.start_job(job, spec),
            Effect::Cancel(job) => {
                if let Some(token) = self.cancels.get(&job) {
                    token.cancel();
                }
            }
            Effect::WriteSnapshot(_) => self.write_snapshot(),
        }
    }

    fn start_job(&mut self, job: JobId, spec: JobSpec) {
        let cancel = CancellationToken::new();
        self.cancels.insert(job, cancel.clone());
        let context =
            JobContext::new(job, cancel.clone(), self.session.blobs.clone(), self.reports.clone(), self.live.clone());
        let work = self.world.job(spec, context.clone());
        self.runtime.spawn(async move {
            let task = tokio::spawn(work);
            let outcome = match task.await {
                Ok(_) if cancel.is_cancelled() => JobOutcome::Cancelled,
                Ok(Ok(())) => JobOutcome::Done,
                Ok(Err(failure)) => JobOutcome::Failed { failure },
                Err(error) => JobOutcome::Failed { failure: Failure::new(format!("the job itself broke: {error}")) },
            };
            // When the engine is gone, the next resume finds the job unfinished and says so.
            let _ = context.report(JobReport::Ended { job, outcome }).await;
        });
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.last_sync = Instant::now();
        self.session.journal.sync()?;
        if self.last_head.elapsed() >= SYNC_EVERY {
            self.write_head();
        }
        Ok(())
    }

    fn publish(&self) {
        if self.publish.borrow().seq != self.session.state.seq {
            self.publish.send_replace(Arc::new(self.session.state.clone()));
        }
    }

    fn cache_snapshot(&mut self) {
        if self.session.state.seq - self.last_snapshot >= SNAPSHOT_EVERY && !self.session.journal.is_dirty() {
            self.write_snapshot();
        }
    }

    /// A snapshot is a cache: that it cannot be written is worth a log line and no more.
    fn write_snapshot(&mut self) {
        let (seq, hash, offset) = self.session.journal.head();
        let snapshot = Snapshot {
            schema: snapshot::schema_hash(),
            seq,
            hash: hash.clone(),
            offset,
            state: self.session.state.clone(),
        };
        self.last_snapshot = seq;
        if let Err(error) = snapshot::write(&self.session.dir.join("snapshots"), &snapshot) {
            tracing::warn!(%error, "snapshot not written");
        }
        self.write_head();
    }

    fn write_head(&mut self) {
        self.last_head = Instant::now();
        let (seq, hash, _) = self.session.journal.head();
        if self.session.journal.synced_seq() == seq
            && let Err(error) = write_head(&self.session.dir, &Head { seq, hash: hash.clone() })
        {
            tracing::warn!(%error, "HEAD not written");
        }
    }

    /// Cancels what runs, but lets a change of a server come to its end, which its own time-outs bound.
    fn close(&mut self, reports: &mut mpsc::Receiver<Report>) -> Result<(), JournalError> {
        if self.session.state.search.as_ref().is_some_and(|s| s.is_active()) {
            self.take(Actor::program(), Body::Command(Command::StopIsolation))?;
        }
        let changing = |state: &State, job: JobId| state.jobs.get(&job).is_some_and(|j| j.procedure.is_some());
        for (job, cancel) in &self.cancels {
            if !changing(&self.session.state, *job) {
                cancel.cancel();
            }
        }
        let until = Instant::now() + LAST_WORDS;
        let runtime = self.runtime.clone();
        loop {
            let running: Vec<_> = self.session.state.running_jobs().map(|j| j.id).collect();
            let patient = running.iter().any(|job| changing(&self.session.state, *job)) || Instant::now() < until;
            if running.is_empty() || !patient {
                break;
            }
            let next = runtime.block_on(async { tokio::time::timeout(SYNC_EVERY, reports.recv()).await });
            if let Ok(Some(report)) = next {
                self.take_report(report)?;
                self.publish();
            }
        }
        self.sync()?;
        self.publish();
        self.write_snapshot();
        Ok(())
    }
}

async fn wait(messages: &mut mpsc::Receiver<Message>, reports: &mut mpsc::Receiver<Report>, dirty: bool) -> Woken {
    let tick = async {
        if dirty {
            tokio::time::sleep(SYNC_EVERY).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        report = reports.recv() => report.map_or(Woken::Closed, Woken::Report),
        message = messages.recv() => message.map_or(Woken::Closed, Woken::Message),
        () = tick => Woken::Tick,
    }
}
