//! The newest live messages: progress, log lines, load. Bounded; what is dropped is counted.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use crate::engine::ids::JobId;
use crate::engine::live::{LinkState, Live};
use crate::serving::load_phase::Loading;
use crate::untrusted::Untrusted;

/// Lines kept of each log.
pub const LOG_LINES: usize = 1000;
/// Samples kept of each load.
pub const SAMPLES: usize = 240;
const TOKEN_CHARS: usize = 4000;

/// How far a job is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all; `None` is not known.
    pub total: Option<u64>,
    /// What it does right now.
    pub phase: String,
    /// Seconds left, where there is a ground for saying so.
    pub eta_s: Option<f64>,
}

/// The last lines of a log.
#[derive(Clone, Debug, Default)]
pub struct LogRing {
    /// Oldest first.
    pub lines: VecDeque<Untrusted>,
    /// Lines that were there and are no longer kept.
    pub dropped: u64,
}

impl LogRing {
    fn push(&mut self, line: Untrusted) {
        if self.lines.len() == LOG_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }
}

/// The last loads of one server, by name of the value.
#[derive(Clone, Debug, Default)]
pub struct LoadRing {
    /// When the newest was read.
    pub at: Option<Timestamp>,
    /// Oldest first.
    pub values: BTreeMap<String, VecDeque<f64>>,
}

/// A server that does not answer, though it was met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// When it first did not.
    pub since: Timestamp,
    /// When it last did not.
    pub last: Timestamp,
    /// Why, in one clause.
    pub why: String,
}

/// Everything live that the screen may show.
#[derive(Clone, Debug, Default)]
pub struct LiveRings {
    /// By job.
    pub progress: BTreeMap<JobId, Progress>,
    /// Lines of each job.
    pub job_logs: BTreeMap<JobId, LogRing>,
    /// Lines of each server, by target.
    pub server_logs: BTreeMap<String, LogRing>,
    /// Loads of each server, by target.
    pub loads: BTreeMap<String, LoadRing>,
    /// Servers that do not answer, by target.
    pub silent: BTreeMap<String, Silence>,
    /// The newest start of each server that was waited for here, by target; it may be over.
    pub loading: BTreeMap<String, Loading>,
    /// The text that is being produced right now, by job.
    pub tokens: BTreeMap<JobId, String>,
    /// The link to each host that ssh reaches.
    pub links: BTreeMap<String, LinkState>,
    /// Messages that were lost because the screen was too slow.
    pub lost: u64,
}

impl LiveRings {
    /// Takes one message in.
    pub fn take(&mut self, message: Live) {
        match message {
            Live::Progress { job, done, total, phase, eta_s } => {
                self.progress.insert(job, Progress { done, total, phase, eta_s });
            }
            Live::JobLog { job, line } => self.job_logs.entry(job).or_default().push(line.into()),
            Live::ServerLog { target, line } => self.server_logs.entry(target).or_default().push(line),
            Live::Token { job, text } => {
                let all = self.tokens.entry(job).or_default();
                all.push_str(&text.visible(TOKEN_CHARS));
                let excess = all.chars().count().saturating_sub(TOKEN_CHARS);
                if excess > 0 {
                    *all = all.chars().skip(excess).collect();
                }
            }
            Live::Silent { target, at, why } => {
                let since = self.silent.get(&target).map_or(at, |s| s.since);
                self.silent.insert(target, Silence { since, last: at, why });
            }
            Live::Answers { target, at: _ } => {
                self.silent.remove(&target);
            }
            Live::Loading { target, loading } => {
                self.loading.insert(target, loading);
            }
            Live::Load { target, at, values } => {
                self.silent.remove(&target);
                let ring = self.loads.entry(target).or_default();
                ring.at = Some(at);
                for (name, value) in values {
                    let samples = ring.values.entry(name).or_default();
                    if samples.len() == SAMPLES {
                        samples.pop_front();
                    }
                    samples.push_back(value);
                }
            }
            Live::Link { host, state } => {
                self.links.insert(host, state);
            }
            Live::Lost { count } => self.lost += count,
        }
    }

    /// Forgets what belongs to jobs that are over, but for their logs.
    pub fn job_ended(&mut self, job: JobId) {
        self.progress.remove(&job);
        self.tokens.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_bounded_and_losses_counted() {
        let mut rings = LiveRings::default();
        for i in 0..LOG_LINES + 7 {
            rings.take(Live::ServerLog { target: "decode".into(), line: format!("line {i}").into() });
        }
        let log = &rings.server_logs["decode"];
        assert_eq!((log.lines.len(), log.dropped), (LOG_LINES, 7));
        assert_eq!(log.lines[0].raw(), "line 7");
        rings.take(Live::Lost { count: 3 });
        rings.take(Live::Lost { count: 2 });
        assert_eq!(rings.lost, 5);
    }

    #[test]
    fn tokens_are_bounded_and_made_visible() {
        let mut rings = LiveRings::default();
        for _ in 0..5000 {
            rings.take(Live::Token { job: JobId(1), text: "a\u{1b}".into() });
        }
        let text = &rings.tokens[&JobId(1)];
        assert_eq!(text.chars().count(), TOKEN_CHARS);
        assert!(!text.contains('\u{1b}'));
        rings.job_ended(JobId(1));
        assert!(rings.tokens.is_empty());
    }

    #[test]
    fn a_silence_begins_once_and_ends_with_any_answer() {
        let mut rings = LiveRings::default();
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let silent = |s| Live::Silent { target: "decode".into(), at: at(s), why: "connection refused".into() };
        rings.take(silent(10));
        rings.take(silent(12));
        let kept = &rings.silent["decode"];
        assert_eq!((kept.since, kept.last, kept.why.as_str()), (at(10), at(12), "connection refused"));
        rings.take(Live::Answers { target: "decode".into(), at: at(14) });
        assert!(rings.silent.is_empty());
        rings.take(silent(20));
        rings.take(Live::Load { target: "decode".into(), at: at(22), values: BTreeMap::new() });
        assert!(rings.silent.is_empty());
    }

    #[test]
    fn loads_keep_the_newest_samples() {
        let mut rings = LiveRings::default();
        for i in 0..SAMPLES + 5 {
            let values = BTreeMap::from([("kv_usage".to_owned(), i as f64)]);
            rings.take(Live::Load { target: "decode".into(), at: Timestamp::UNIX_EPOCH, values });
        }
        let samples = &rings.loads["decode"].values["kv_usage"];
        assert_eq!((samples.len(), samples[0]), (SAMPLES, 5.0));
    }
}
