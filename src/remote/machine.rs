//! Shell texts on the host of a target.
//!
//! A text that only reads is asked again when the link breaks. A text that changes something runs detached there and
//! leaves its result in files, so that neither a lost link nor the end of this program stops it half-way.
//! Not responsible for what a text says.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::host::{self, HostError, Hosts, Limits, Place};
use super::probe::frame::{self, Frame};
use super::shell_text;
use crate::case::Target;
use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// The most bytes of a text's output that are kept.
const OUT_BYTES: usize = 1024 * 1024;
/// How long a link may be away in the middle of a change before the change is given up.
const PATIENCE: Duration = Duration::from_mins(5);
/// Between two attempts over a link that was lost.
const AGAIN: Duration = Duration::from_secs(1);
/// What the detached runner ends with where it could not run or lost its text.
const NO_RESULT: i32 = 97;
/// What it ends with where the text took too long and still runs.
const STILL_RUNS: i32 = 98;

/// Where the texts run, and with what rights.
#[derive(Clone, Debug)]
pub struct Machine {
    hosts: Hosts,
    place: Place,
    /// How long a link may be away.
    patience: Duration,
}

/// How a shell text ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellEnd {
    /// Exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

impl ShellEnd {
    /// Whether it ended with status 0.
    pub fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// The last line that it wrote, errors first, for a message.
    pub fn last_line(&self) -> String {
        let last = |text: &str| text.lines().rev().find(|l| !l.trim().is_empty()).map(str::to_owned);
        last(&self.err).or_else(|| last(&self.out)).unwrap_or_else(|| match self.status {
            Some(status) => format!("ended with status {status}"),
            None => "was ended by a signal".into(),
        })
    }
}

/// Why a shell text has no end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ShellFailure {
    /// The host could not be used.
    #[error("{0}")]
    Host(HostError),
    /// It took too long and was ended.
    #[error("did not end within {0} s")]
    Timeout(f64),
    /// Nothing came of it: it was ended from outside, or its files could not be written.
    #[error("has no result: {0}")]
    Lost(String),
    /// The job was cancelled and the text was ended.
    #[error("cancelled")]
    Cancelled,
}

impl Machine {
    /// The host of a target.
    ///
    /// # Errors
    /// Its host is no name, or its `become` no command.
    pub fn of(hosts: &Hosts, target: &Target) -> Result<Self, Failure> {
        Ok(Self::new(hosts.clone(), Place::of(target).map_err(HostError::failure)?))
    }

    /// A place on a host.
    pub fn new(hosts: Hosts, place: Place) -> Self {
        Self { hosts, place, patience: Duration::ZERO }
    }

    /// The same in the middle of a change, where a link that is lost is waited for.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { patience: PATIENCE, ..self }
    }

    /// The links it goes over.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The host and the rights on it.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Runs a text that changes nothing, again where the link broke.
    ///
    /// # Errors
    /// The host cannot be used, it took too long, or the job was cancelled.
    pub async fn read(&self, text: &str, timeout_s: f64, cancel: &CancellationToken) -> Result<ShellEnd, ShellFailure> {
        self.patiently(text, &[], timeout_s, cancel).await
    }

    /// Runs a script that prints a framed answer, with these words after the nonce, again where the link broke.
    ///
    /// # Errors
    /// The host cannot be used, or gave no answer.
    pub async fn framed(&self, script: &str, words: &[String], cancel: &CancellationToken) -> Result<Frame, Failure> {
        let nonce = uuid::Uuid::now_v7().simple().to_string();
        let words: Vec<String> = std::iter::once(nonce.clone()).chain(words.iter().cloned()).collect();
        let end = self.patiently(script, &words, 60.0, cancel).await.map_err(ShellFailure::failure)?;
        frame::take_apart(end.out.as_bytes(), &nonce).map_err(|error| {
            let said = Untrusted::from(crate::redact::text(&end.last_line())).visible(160);
            Failure::new(format!("`{}`: {error} (`{said}`)", self.place.host.name()))
                .hint("the host needs a POSIX `sh`, `/proc` and coreutils; check the target's `become`")
        })
    }

    /// Runs a text that changes something, detached; `job` is a path on the host where its traces lie.
    ///
    /// An attempt that still runs there, since the program before was killed, is waited for instead of being made twice.
    ///
    /// # Errors
    /// See [`ShellFailure`]. After a timeout or a cancel, the text was ended.
    pub async fn detached(
        &self,
        job: &str,
        text: &str,
        timeout_s: f64,
        cancel: &CancellationToken,
    ) -> Result<ShellEnd, ShellFailure> {
        let lost = |failure: Failure| ShellFailure::Lost(failure.message);
        let first = shell_text::detached(job, text, timeout_s, true).map_err(lost)?;
        let again = shell_text::detached(job, text, timeout_s, false).map_err(lost)?;
        let result = match self.once(&first, &[], timeout_s + 10.0, cancel).await {
            Err(ShellFailure::Host(HostError::LinkLost { .. })) => {
                self.patiently(&again, &[], timeout_s + 10.0, cancel).await
            }
            other => other,
        };
        let result = match result {
            Ok(end) if end.status == Some(STILL_RUNS) => Err(ShellFailure::Timeout(timeout_s)),
            other => other,
        };
        match result {
            Err(failure @ (ShellFailure::Timeout(_) | ShellFailure::Cancelled)) => {
                let end = shell_text::end_detached(job).map_err(lost)?;
                // It may have ended by itself in the meantime; the next check of its step says what became of it.
                let _ = self.read(&end, 10.0, &CancellationToken::new()).await;
                Err(match failure {
                    ShellFailure::Timeout(_) => ShellFailure::Timeout(timeout_s),
                    other => other,
                })
            }
            Ok(end) if end.status == Some(NO_RESULT) => Err(ShellFailure::Lost(end.last_line())),
            other => other,
        }
    }

    async fn patiently(
        &self,
        text: &str,
        words: &[String],
        timeout_s: f64,
        cancel: &CancellationToken,
    ) -> Result<ShellEnd, ShellFailure> {
        let until = tokio::time::Instant::now() + self.patience;
        loop {
            let result = self.once(text, words, timeout_s, cancel).await;
            let Err(ShellFailure::Host(error)) = &result else { return result };
            if error.is_lasting() || tokio::time::Instant::now() >= until {
                return result;
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = cancel.cancelled() => return Err(ShellFailure::Cancelled),
            }
        }
    }

    async fn once(
        &self,
        text: &str,
        words: &[String],
        timeout_s: f64,
        cancel: &CancellationToken,
    ) -> Result<ShellEnd, ShellFailure> {
        let limits = Limits { time: Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX), bytes: OUT_BYTES };
        match host::run(&self.hosts, &self.place, text, words, &limits, cancel).await {
            Ok(output) => Ok(ShellEnd {
                status: output.status,
                out: String::from_utf8_lossy(&output.out).into_owned(),
                err: output.err.raw().to_owned(),
            }),
            Err(HostError::Timeout { .. }) => Err(ShellFailure::Timeout(timeout_s)),
            Err(HostError::Cancelled) => Err(ShellFailure::Cancelled),
            Err(other) => Err(ShellFailure::Host(other)),
        }
    }
}

impl ShellFailure {
    /// The same, for a job.
    pub fn failure(self) -> Failure {
        match self {
            Self::Host(error) => error.failure(),
            other => Failure::new(format!("the host {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::host::Host;

    fn here() -> Machine {
        Machine::new(Hosts::default(), Place { host: Host::Local, become_with: Vec::new() })
    }

    #[tokio::test]
    async fn texts_that_read_end_or_are_ended() {
        let cancel = CancellationToken::new();
        let end = here().read("echo out; echo err >&2; exit 3", 5.0, &cancel).await.unwrap();
        assert_eq!((end.status, end.out.as_str(), end.last_line().as_str()), (Some(3), "out\n", "err"));
        assert_eq!(here().read("sleep 60 & sleep 60", 0.1, &cancel).await, Err(ShellFailure::Timeout(0.1)));
        cancel.cancel();
        assert_eq!(here().read("sleep 60", 5.0, &cancel).await, Err(ShellFailure::Cancelled));
    }

    #[tokio::test]
    async fn a_change_leaves_its_result_and_is_not_made_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (job, count) = (folder.path().join("jobs/it's a job"), folder.path().join("count"));
        let (job, cancel) = (job.display().to_string(), CancellationToken::new());
        let text = format!("echo x >>'{}'; echo out; echo err >&2; exit 3", count.display());
        let end = here().detached(&job, &text, 5.0, &cancel).await.unwrap();
        assert_eq!((end.status, end.out.as_str(), end.err.as_str()), (Some(3), "out\n", "err\n"));
        // The answer was lost with the link: asking for it again runs nothing.
        let again = shell_text::detached(&job, &text, 5.0, false).unwrap();
        assert_eq!(here().read(&again, 5.0, &cancel).await.unwrap().status, Some(3));
        assert_eq!(fs_err::read_to_string(&count).unwrap(), "x\n");
        // A step that is made anew runs anew.
        here().detached(&job, &text, 5.0, &cancel).await.unwrap();
        assert_eq!(fs_err::read_to_string(&count).unwrap(), "x\nx\n");
    }

    #[tokio::test]
    async fn a_change_whose_asker_was_killed_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (job, count) = (folder.path().join("job").display().to_string(), folder.path().join("count"));
        let text = format!("echo x >>'{}'; sleep 0.5; echo done", count.display());
        let cancel = CancellationToken::new();
        let first = shell_text::detached(&job, &text, 5.0, true).unwrap();
        assert!(here().read(&first, 0.2, &cancel).await.is_err(), "the asker is gone before the end");
        let end = here().detached(&job, &text, 5.0, &cancel).await.unwrap();
        assert_eq!((end.out.as_str(), fs_err::read_to_string(&count).unwrap().as_str()), ("done\n", "x\n"));
    }

    #[tokio::test]
    async fn a_change_that_takes_too_long_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("job").display().to_string();
        let file = folder.path().join("late");
        let text = format!("(sleep 2; touch '{}') & sleep 60", file.display());
        let end = here().detached(&job, &text, 0.3, &CancellationToken::new()).await;
        assert_eq!(end, Err(ShellFailure::Timeout(0.3)));
        tokio::time::sleep(Duration::from_millis(2200)).await;
        assert!(!file.exists());
    }

    #[tokio::test]
    async fn a_change_that_was_killed_on_the_host_has_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("job").display().to_string();
        let text = "kill -KILL $PPID; kill -KILL $$";
        let end = here().detached(&job, text, 5.0, &CancellationToken::new()).await;
        assert!(matches!(&end, Err(ShellFailure::Lost(why)) if why.contains("ended from outside")), "{end:?}");
    }
}
