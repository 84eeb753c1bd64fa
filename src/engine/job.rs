//! What a running job holds: its id, its cancel token, and its way back to the engine.
//!
//! Not responsible for the registry of jobs, which is part of the state, nor for starting them,
//! which is `runtime`.

use thiserror::Error;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::engine::ids::JobId;
use crate::engine::input::JobReport;
use crate::engine::live::Live;
use crate::session::blobs::BlobStore;

/// A report on its way to the engine, with the way to say that it is on disk.
#[derive(Debug)]
pub struct Report {
    /// What the job tells.
    pub report: JobReport,
    /// Told once every event of the report is synced.
    pub acknowledged: oneshot::Sender<()>,
}

/// The engine has ended, or cannot write its journal; the job must stop without doing anything more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine has stopped taking reports")]
pub struct EngineGone;

/// What a job holds.
#[derive(Clone, Debug)]
pub struct JobContext {
    /// Its id.
    pub job: JobId,
    /// Set when the job must stop; check it between steps and select on it in every wait.
    pub cancel: CancellationToken,
    /// Where large results go before they are reported.
    pub blobs: BlobStore,
    reports: mpsc::Sender<Report>,
    live: broadcast::Sender<Live>,
}

impl JobContext {
    /// A context that reports to these channels.
    pub fn new(
        job: JobId,
        cancel: CancellationToken,
        blobs: BlobStore,
        reports: mpsc::Sender<Report>,
        live: broadcast::Sender<Live>,
    ) -> Self {
        Self { job, cancel, blobs, reports, live }
    }

    /// Tells the engine, and returns when the events are on disk.
    ///
    /// # Errors
    /// The engine is gone: what was reported may not be on disk, so nothing may rest on it.
    pub async fn report(&self, report: JobReport) -> Result<(), EngineGone> {
        let (acknowledged, on_disk) = oneshot::channel();
        self.reports.send(Report { report, acknowledged }).await.map_err(|_| EngineGone)?;
        on_disk.await.map_err(|_| EngineGone)
    }

    /// Shows something that is not worth keeping; never waits.
    pub fn live(&self, live: Live) {
        // An error only says that nobody looks on.
        let _ = self.live.send(live);
    }

    /// Shows how far the job is.
    pub fn progress(&self, done: u64, total: Option<u64>, phase: impl Into<String>) {
        self.live(Live::Progress { job: self.job, done, total, phase: phase.into(), eta_s: None });
    }

    /// Shows a line of the job's own log.
    pub fn log(&self, line: impl Into<String>) {
        self.live(Live::JobLog { job: self.job, line: line.into() });
    }
}

/// A context without an engine, for tests of a single job.
pub mod fake {
    use super::{CancellationToken, JobContext, JobId, JobReport, Live, Report, broadcast, mpsc};
    use crate::session::blobs::{BlobError, BlobStore};

    /// What such a job reported and showed.
    #[derive(Debug)]
    pub struct Ends {
        /// Reports, acknowledged at once by [`Ends::next`].
        pub reports: mpsc::Receiver<Report>,
        /// Live messages.
        pub live: broadcast::Receiver<Live>,
    }

    impl Ends {
        /// The next report; acknowledges it. `None` when the job is over.
        pub async fn next(&mut self) -> Option<JobReport> {
            let Report { report, acknowledged } = self.reports.recv().await?;
            let _ = acknowledged.send(());
            Some(report)
        }
    }

    /// A context whose reports end in the returned receiver.
    ///
    /// # Errors
    /// The blob folder cannot be made.
    pub fn context(blobs: &std::path::Path) -> Result<(JobContext, Ends), BlobError> {
        let (reports, receiver) = mpsc::channel(256);
        let (live, live_receiver) = broadcast::channel(4096);
        let context = JobContext::new(JobId(1), CancellationToken::new(), BlobStore::open(blobs)?, reports, live);
        Ok((context, Ends { reports: receiver, live: live_receiver }))
    }
}
