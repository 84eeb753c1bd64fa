//! Where a search stands, as plain data: parameters, phase, and the arm that is being run.
//!
//! Which boots and trials belong to an arm is not kept here; `isolate::evidence` reads it from the state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::isolate::verdict::Finding;
use crate::stats::permutation::{boots_a_side, smallest_p};

/// Level for each `patch@target`.
pub type Arm = BTreeMap<String, String>;

/// What the search claims and what it may spend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rules {
    /// Chance of convicting any innocent patch, over all patches tried.
    pub alpha: f64,
    /// Excess failure rate below which an arm counts as good as all-off.
    pub delta: f64,
    /// Trials on each boot, at least.
    pub trials: u32,
    /// How many times as many on the boots that decide an acquittal.
    pub acquit_factor: u32,
    /// Looks after the first one at which a difference may be proven.
    pub more_looks: u32,
    /// Boots of the configuration as found, at most, before the symptom counts as absent.
    pub symptom_boots: u32,
    /// Share of void trials above which an arm says nothing.
    pub max_void: f64,
    /// Intra-boot correlation that is assumed at least.
    pub least_rho: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            alpha: 0.05,
            delta: 0.15,
            trials: 12,
            acquit_factor: 3,
            more_looks: 3,
            symptom_boots: 8,
            max_void: 0.3,
            least_rho: 0.03,
        }
    }
}

impl Rules {
    /// Boots a side at the first look at which one of `patches` can be convicted.
    ///
    /// Half of `alpha / patches` is spent there: the least `r` with `1/C(2r,r)` below it.
    pub fn first_look(&self, patches: usize) -> u32 {
        boots_a_side(self.share(patches) / 2.0) as u32
    }

    /// Boots a side at the last look.
    pub fn last_look(&self, patches: usize) -> u32 {
        self.first_look(patches) + self.more_looks
    }

    /// The p-value that convicts at this look; nothing convicts before the first one.
    ///
    /// The first look has half of `alpha / patches`, the later ones share the other half equally (Bonferroni).
    pub fn threshold(&self, look: u32, patches: usize) -> f64 {
        let first = self.first_look(patches);
        if look < first || look > self.last_look(patches) {
            return 0.0;
        }
        let half = self.share(patches) / 2.0;
        if look == first { half } else { half / f64::from(self.more_looks) }
    }

    /// Whether `look` boots a side can convict at all.
    pub fn can_convict(&self, look: u32, patches: usize) -> bool {
        smallest_p(look as usize, look as usize) <= self.threshold(look, patches)
    }

    fn share(&self, patches: usize) -> f64 {
        self.alpha / patches.max(1) as f64
    }
}

/// Where the search stands; kept in the engine's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Patches to try, in order.
    pub patches: Vec<String>,
    /// Patches that cannot be tried, with the reason.
    pub set_aside: BTreeMap<String, String>,
    /// Targets that the patches are in; each counted boot of the deployment is a fresh start of all of them.
    pub targets: Vec<String>,
    /// What it claims and may spend.
    pub rules: Rules,
    /// Levels of the deployment as it was found; empty until it was read.
    pub as_found: Arm,
    /// What it is at.
    pub phase: Phase,
    /// Patches that wait to be switched off, in order.
    pub queue: Vec<String>,
    /// Patches found guilty, in order.
    pub guilty: Vec<String>,
    /// What was found about the others so far.
    pub findings: BTreeMap<String, Finding>,
    /// What is being done for it, if anything.
    pub run: Option<Run>,
    /// Arms that could not be run.
    pub dead: Vec<DeadArm>,
    /// Microtests that were asked for.
    pub micro: Vec<String>,
    /// How it ended; `None` while it goes on.
    pub ended: Option<Ending>,
}

/// What the search is at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Phase {
    /// Reads what runs.
    #[default]
    Truth,
    /// Starts what does not run, and takes down the levels as found.
    Start,
    /// Runs the configuration as found twice and more: noise between boots, and the symptom.
    Symptom,
    /// Measures the arithmetic of patches that have a microtest.
    Micro,
    /// Runs with every patch off.
    AllOff,
    /// Switches one patch off.
    Unmake {
        /// The patch.
        patch: String,
        /// Boots a side that are waited for.
        look: u32,
    },
    /// Switches one patch on alone.
    Make {
        /// The patch.
        patch: String,
        /// Boots a side that are waited for.
        look: u32,
    },
    /// Asks whether the guilty patches explain the symptom, with all others on.
    Explain {
        /// Boots with the guilty off that are waited for.
        on: u32,
        /// Boots with all off that are waited for.
        off: u32,
        /// Times it was extended.
        extended: u32,
    },
    /// Asks the same for one patch that is on alone.
    Alone {
        /// The patch.
        patch: String,
        /// Boots that are waited for.
        boots: u32,
    },
    /// Leaves the deployment with the guilty off.
    Leave {
        /// Whether the guilty explain the symptom.
        explained: bool,
    },
    /// Over.
    Done,
}

/// Something that was asked for and has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// What.
    pub work: Work,
    /// One line for people.
    pub title: String,
    /// Number of the last job when the next command was due; a higher one means that the command ran.
    pub job: u64,
    /// Journal line at which it was due; a later one without a job means that the command was refused.
    pub seq: u64,
    /// How far it was then.
    pub reached: u64,
    /// Commands in a row that brought it no further.
    pub tries: u32,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Work {
    /// Read every target.
    Probe,
    /// One boot of the deployment with its trials.
    Boot {
        /// Levels; empty is whatever the launch script says.
        arm: Arm,
        /// Only boots with a higher number count as fresh.
        after: u64,
        /// Which boot of the arm it is, from 0: boots of equal index are asked the same questions.
        index: u32,
        /// Conversations for each cell; 0 asks nothing.
        repeats: u32,
    },
    /// A microtest.
    Micro {
        /// Spec name.
        spec: String,
    },
}

/// An arm that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadArm {
    /// Its levels.
    pub arm: Arm,
    /// Why, in one clause.
    pub why: String,
}

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Ending {
    /// There was no symptom.
    NoSymptom,
    /// The guilty patches explain it.
    Explained,
    /// It stays with every patch off.
    NotThePatches,
    /// It is there, and the patches tried do not explain all of it.
    Unexplained,
    /// Too many trials were void.
    TooFewTrials {
        /// Where.
        why: String,
    },
    /// The deployment could not be run as the search needs it.
    CannotRun {
        /// Why.
        why: String,
    },
    /// Ended by hand, or cut off.
    Stopped,
}

impl Search {
    /// Whether it goes on.
    pub fn is_active(&self) -> bool {
        self.ended.is_none()
    }

    /// The same search, ended by hand.
    #[must_use]
    pub fn stopped(&self) -> Self {
        let ended = self.ended.clone().or(Some(Ending::Stopped));
        Self { run: None, phase: Phase::Done, ended, ..self.clone() }
    }

    /// Why an arm could not be run, if it could not.
    pub fn dead(&self, arm: &Arm) -> Option<&str> {
        self.dead.iter().find(|d| d.arm == *arm).map(|d| d.why.as_str())
    }

    /// Where the search stands, in one line.
    pub fn headline(&self) -> String {
        if let Some(ended) = &self.ended {
            return match ended {
                Ending::NoSymptom => "search over: there is no symptom".into(),
                Ending::Explained => format!("search over: {} explains the symptom", quoted(&self.guilty)),
                Ending::NotThePatches => "search over: the symptom stays with every patch off".into(),
                Ending::Unexplained => "search over: the symptom is not explained by one patch at a time".into(),
                Ending::TooFewTrials { why } | Ending::CannotRun { why } => format!("search over: {why}"),
                Ending::Stopped => "search stopped".into(),
            };
        }
        if let Some(run) = &self.run {
            return format!("search: {}", run.title);
        }
        match &self.phase {
            Phase::Truth => format!("search over {} patches begins", self.patches.len()),
            Phase::Start => "search: reads the deployment as found".into(),
            Phase::Symptom => "search: measures the symptom".into(),
            Phase::Micro => "search: microtests".into(),
            Phase::AllOff => "search: every patch off".into(),
            Phase::Unmake { patch, look } => format!("search: `{patch}` off, until {look} boots a side"),
            Phase::Make { patch, look } => format!("search: `{patch}` on alone, until {look} boots a side"),
            Phase::Explain { .. } => format!("search: does {} explain the symptom", quoted(&self.guilty)),
            Phase::Alone { patch, .. } => format!("search: can `{patch}` be acquitted alone"),
            Phase::Leave { .. } => "search: leaves the guilty off".into(),
            Phase::Done => "search over".into(),
        }
    }
}

/// Names between backticks, joined by commas.
pub(crate) fn quoted(names: &[String]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_patches_need_five_boots_a_side() {
        let rules = Rules::default();
        for (patches, boots) in [(0, 4), (1, 4), (5, 5), (6, 5), (7, 6), (20, 6)] {
            assert_eq!(rules.first_look(patches), boots, "{patches} patches");
        }
    }

    #[test]
    fn the_looks_together_spend_no_more_than_alpha() {
        let rules = Rules::default();
        for patches in 1..30 {
            let spent: f64 = (0..40).map(|look| rules.threshold(look, patches)).sum();
            assert!(spent * patches as f64 <= rules.alpha + 1e-12, "{patches} patches spend {spent} each");
        }
    }

    #[test]
    fn every_look_that_may_convict_can() {
        let rules = Rules::default();
        for patches in 1..30 {
            let first = rules.first_look(patches);
            assert!(!rules.can_convict(first - 1, patches), "{patches} patches");
            assert!((first..=rules.last_look(patches)).all(|look| rules.can_convict(look, patches)), "{patches}");
        }
    }

    #[test]
    fn stopping_keeps_an_ending_and_ends_the_run() {
        let search = Search { ended: Some(Ending::Explained), ..Search::default() };
        assert_eq!(search.stopped().ended, Some(Ending::Explained));
        let stopped = Search::default().stopped();
        assert!(!stopped.is_active());
        assert_eq!(stopped.headline(), "search stopped");
    }
}
