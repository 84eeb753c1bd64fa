//! Progress on standard error while a command runs without the workbench.
//!
//! A terminal gets bars; anything else gets one plain line per job; `--quiet` gets nothing.

use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;

use crate::cli::output::stderr_line;
use crate::engine::ids::JobId;
use crate::engine::live::Live;
use crate::engine::state::State;
use crate::serving::load_phase::{self, LoadPhase, Loading};
use crate::untrusted::visible_lines;

/// Where progress goes.
#[derive(Debug)]
pub enum Progress {
    /// Bars on a terminal.
    Bars {
        /// The block of bars.
        block: MultiProgress,
        /// One bar per running job.
        bars: HashMap<JobId, ProgressBar>,
        /// Timeline lines shown so far.
        seen: usize,
        /// Starts that are waited for.
        starts: Starts,
    },
    /// One line per event.
    Lines {
        /// Timeline lines shown so far.
        seen: usize,
        /// Starts that are waited for.
        starts: Starts,
    },
    /// Nothing.
    Silent,
}

/// What is known of the starts that are waited for.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    /// The times of the phases at the start before, by target.
    earlier: BTreeMap<String, Vec<(LoadPhase, f64)>>,
    /// Proven starts that were looked at for them.
    boots: usize,
    /// The job that waits, by target.
    jobs: BTreeMap<String, JobId>,
    /// The newest word of each start, by job.
    loading: HashMap<JobId, (String, Loading)>,
    /// Phases that were told in lines, by target.
    told: BTreeMap<String, usize>,
}

impl Starts {
    fn state(&mut self, state: &State) {
        if self.boots != state.boots.len() {
            self.boots = state.boots.len();
            let targets = state.targets.keys();
            self.earlier = targets.map(|t| (t.clone(), load_phase::earlier(state, t))).collect();
        }
        self.jobs.clear();
        for job in state.running_jobs() {
            if let Some(p) = job.procedure.and_then(|id| state.procedures.get(&id)) {
                self.jobs.insert(p.procedure.target.clone(), job.id);
            }
        }
        self.loading.retain(|id, (target, _)| self.jobs.get(target) == Some(id));
    }

    /// Takes a word of a start in; gives the line that tells it, if it begins a phase.
    fn take(&mut self, target: &str, loading: &Loading, now: Timestamp) -> Option<String> {
        let begun = loading.begun().len();
        let told = self.told.insert(target.to_owned(), begun);
        if let Some(job) = self.jobs.get(target) {
            self.loading.insert(*job, (target.to_owned(), loading.clone()));
        }
        // A new start tells fewer phases than the one before it.
        let new = told.is_none_or(|told| begun != told) && !loading.is_ready();
        new.then(|| format!("{} {target}: {}", now.strftime("%H:%M:%S"), self.words(target, loading, now)))
    }

    fn words(&self, target: &str, loading: &Loading, now: Timestamp) -> String {
        let earlier = self.earlier.get(target).map_or(&[][..], Vec::as_slice);
        format!("{}, {}", loading.words(), loading.left(earlier, now).words())
    }
}

impl Progress {
    /// Progress for this run; `quiet` is what the user asked for, `seen` the timeline lines that are old.
    pub fn new(quiet: bool, seen: usize) -> Self {
        if quiet {
            return Self::Silent;
        }
        if std::io::stderr().is_terminal() {
            return Self::Bars { block: MultiProgress::new(), bars: HashMap::new(), seen, starts: Starts::default() };
        }
        Self::Lines { seen, starts: Starts::default() }
    }

    /// Shows what is new in the state.
    pub fn state(&mut self, state: &State) {
        let (Self::Bars { seen, starts, .. } | Self::Lines { seen, starts }) = self else { return };
        starts.state(state);
        let lines: Vec<String> = new_lines(state, *seen);
        *seen = state.timeline.len();
        match self {
            Self::Bars { block, bars, .. } => {
                bars.retain(|job, bar| {
                    let running = state.jobs.get(job).is_some_and(|j| j.outcome.is_none());
                    if !running {
                        bar.finish_and_clear();
                    }
                    running
                });
                for line in lines {
                    // A terminal that went away is no reason to stop working.
                    let _ = block.println(visible_lines(&line));
                }
                for (id, job) in state.jobs.iter().filter(|(_, job)| job.outcome.is_none()) {
                    bars.entry(*id).or_insert_with(|| bar(block, &job.title));
                }
            }
            Self::Lines { .. } => lines.iter().for_each(|line| stderr_line(line)),
            Self::Silent => {}
        }
    }

    /// Shows a live message: bars move, and lines tell each phase of a start.
    pub fn live(&mut self, live: &Live) {
        let now = Timestamp::now();
        if let Live::Loading { target, loading } = live {
            let (Self::Bars { starts, .. } | Self::Lines { starts, .. }) = self else { return };
            let line = starts.take(target, loading, now);
            if let (Self::Lines { .. }, Some(line)) = (&self, line) {
                stderr_line(&line);
            }
            return;
        }
        let Self::Bars { bars, starts, .. } = self else { return };
        let Live::Progress { job, done, total, phase, .. } = live else { return };
        let Some(bar) = bars.get(job) else { return };
        if let (None, Some((target, loading))) = (total, starts.loading.get(job)) {
            if let Some(share) = loading.share() {
                bar.set_length(share.total);
                bar.set_position(share.done);
            }
            bar.set_message(visible_lines(&starts.words(target, loading, now)));
            return;
        }
        if let Some(total) = total {
            bar.set_length(*total);
        }
        bar.set_position(*done);
        bar.set_message(visible_lines(phase));
    }

    /// Takes the bars off the screen.
    pub fn finish(&mut self) {
        if let Self::Bars { block, bars, .. } = self {
            bars.clear();
            let _ = block.clear();
        }
    }
}

fn new_lines(state: &State, seen: usize) -> Vec<String> {
    let line = |t: &crate::engine::state::TimelineEntry| format!("{} {}", t.at.strftime("%H:%M:%S"), t.text);
    state.timeline.iter().skip(seen).map(line).collect()
}

fn bar(block: &MultiProgress, title: &str) -> ProgressBar {
    let bar = block.add(ProgressBar::no_length());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(visible_lines(title));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::ServingEngine;
    use crate::cli::fixture;

    #[test]
    fn each_event_is_shown_once() {
        let state = fixture::full_state();
        assert_eq!(new_lines(&state, 0), ["12:00:00 session began"]);
        assert!(new_lines(&state, 1).is_empty());
        let mut progress = Progress::Lines { seen: 0, starts: Starts::default() };
        progress.state(&state);
        assert!(matches!(progress, Progress::Lines { seen: 1, .. }));
    }

    #[test]
    fn each_phase_of_a_start_is_told_once() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let mut starts = Starts::default();
        let mut loading = Loading::new(ServingEngine::Sglang, at(0));
        assert_eq!(
            starts.take("decode", &loading, at(1)).as_deref(),
            Some("00:00:01 decode: starting up, how long is not known yet")
        );
        for (line, when, expect) in [
            ("Load weight begin.", 10, Some("00:00:10 decode: loading weights, how long is not known yet")),
            ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [", 20, None),
            ("The server is fired up and ready to roll!", 30, None),
        ] {
            assert!(loading.take(line, at(when)), "{line}");
            assert_eq!(starts.take("decode", &loading, at(when)).as_deref(), expect);
        }
        starts.earlier.insert("decode".into(), loading.times());
        let again = Loading::new(ServingEngine::Sglang, at(100));
        let line = starts.take("decode", &again, at(104));
        assert_eq!(line.as_deref(), Some("00:01:44 decode: starting up, about 26s to go"));
    }

    #[test]
    fn a_bar_goes_when_its_job_is_over() {
        let hidden = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden());
        let bars = HashMap::from([(JobId(9), bar(&hidden, "x"))]);
        let mut progress = Progress::Bars { block: hidden, bars, seen: 0, starts: Starts::default() };
        progress.live(&Live::Progress { job: JobId(9), done: 1, total: Some(2), phase: "p".into(), eta_s: None });
        progress.state(&fixture::full_state());
        let Progress::Bars { bars, .. } = progress else { panic!("the kind changed") };
        assert!(bars.is_empty());
    }
}
