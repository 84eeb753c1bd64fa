//! Counts that several panes need, kept up as trials arrive so that a frame need not count them again.
//!
//! Only counts and groups; what they prove is for `stats` and `isolate` to say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, Vector};
use jiff::Timestamp;

use crate::engine::ids::BootId;
use crate::engine::state::{Boot, State, TrialEntry};
use crate::isolate::arms;
use crate::isolate::estimate::estimate;
use crate::isolate::verdict::{Finding, Symptom};
use crate::patch::edit::Said;
use crate::patch::of_state;
use crate::patch::risk::{Kind, Ranked, Tier};
use crate::patch::types::Entry;
use crate::recall::diagnosis::diagnosis;
use crate::recall::matrix::{Counts, depth_permille};
use crate::recall::trial::{ProbeForm, Trial};
use crate::serving::load_phase::Loading;
use crate::truth::ServerStatus;
use crate::ui::live::{LiveRings, Silence};

/// Trials of one kind, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Failed.
    pub fail: u32,
    /// Passed or failed.
    pub n: u32,
    /// Void.
    pub void: u32,
    /// Boots that they met.
    pub boots: BTreeSet<BootId>,
}

impl Count {
    /// Counts one more.
    pub fn add(&mut self, trial: &Trial) {
        let mut counts = Counts { fail: self.fail, n: self.n, void: self.void };
        counts.add(&trial.outcome);
        (self.fail, self.n, self.void) = (counts.fail, counts.n, counts.void);
        self.boots.extend(&trial.boots);
    }

    /// `3/12`, or `-` where no trial counts.
    pub fn fraction(&self) -> String {
        if self.n == 0 { "-".into() } else { format!("{}/{}", self.fail, self.n) }
    }

    /// Failure rate; `None` where no trial counts.
    pub fn rate(&self) -> Option<f64> {
        (self.n > 0).then(|| f64::from(self.fail) / f64::from(self.n))
    }
}

/// The level that a patch runs with on a target, and where that is known from; `None` is unknown.
///
/// The newer of the last reading and the proof of the running boot counts.
pub fn level_of<'a>(state: &'a State, target: &str, patch: &str) -> (Option<&'a str>, String) {
    let Some(entry) = state.targets.get(target) else { return (None, "not read yet".into()) };
    let boot = proven_after_reading(state, target);
    if let Some(boot) = boot {
        if let Some(level) = boot.proof.levels.get(patch) {
            return (Some(level), format!("the proof of boot {}", boot.id));
        }
        if let Some(why) = boot.proof.unverified.get(patch) {
            return (None, why.clone());
        }
    }
    let Some(truth) = &entry.truth else { return (None, "not read yet".into()) };
    let level = truth.levels.get(patch).and_then(Option::as_deref);
    (level, truth.level_sources.get(patch).map_or_else(|| "not read".into(), Clone::clone))
}

/// The running boot of a target, where it was proven after the last reading.
pub fn proven_after_reading<'a>(state: &'a State, target: &str) -> Option<&'a Boot> {
    let entry = state.targets.get(target)?;
    let boot = state.boots.get(&entry.boot?)?;
    let newer = entry.truth.as_ref().is_none_or(|t| boot.proof.proven_at > t.at);
    newer.then_some(&**boot)
}

/// A target that was met and does not answer, unless it was read or proven after that, or is being changed.
///
/// Such a server is not called down: only a probe says that.
pub fn silence(state: &State, live: &LiveRings, target: &str) -> Option<Silence> {
    let silence = live.silent.get(target)?;
    let entry = state.targets.get(target)?;
    let read = entry.truth.as_ref();
    let down = read.is_some_and(|t| t.status == ServerStatus::Down);
    let proven = proven_after_reading(state, target).map(|b| b.proof.proven_at);
    let seen = read.map(|t| t.at).max(proven);
    let newer = seen.is_none_or(|seen| seen <= silence.last);
    let tells = newer && !(down && proven.is_none()) && state.running_procedure(target).is_none();
    // What was seen to serve in between has been silent since then at most.
    let since = seen.map_or(silence.since, |seen| silence.since.max(seen));
    tells.then(|| Silence { since, ..silence.clone() })
}

/// How far the start of a target is that is waited for right now.
pub fn loading<'a>(state: &State, live: &'a LiveRings, target: &str) -> Option<&'a Loading> {
    live.loading.get(target).filter(|_| state.is_starting(target))
}

/// The levels of a changed target that are not those it was met with; all of them where that is not known.
pub fn changed_levels(state: &State, target: &str) -> Vec<String> {
    let Some(entry) = state.targets.get(target) else { return Vec::new() };
    let Some(changed) = &entry.changed else { return Vec::new() };
    let differs = |(patch, level): &(&String, &String)| entry.original.get(*patch) != Some(*level);
    changed.levels.iter().filter(differs).map(|(p, l)| format!("{p}={l}")).collect()
}

/// A level for each `patch@target`.
pub type Arm = BTreeMap<String, String>;

/// A `patch@target` for people: the target is named only where there are several.
pub fn arm_key<'a>(state: &State, key: &'a str) -> &'a str {
    let several = state.case.as_ref().is_none_or(|case| case.targets.len() > 1);
    if several { key } else { key.rsplit_once('@').map_or(key, |(patch, _)| patch) }
}

/// A cell of the matrix: form, length, depth in thousandths.
pub type CellKey = (ProbeForm, u32, u32);

/// What a ranking rests on, told apart cheaply.
#[derive(Clone, Debug, Default, PartialEq)]
struct Weighed {
    case: Option<String>,
    truths: Vec<Option<Timestamp>>,
    verdicts: Vec<(String, Finding, usize)>,
    counts: [usize; 2],
    entries: Vector<Arc<Entry>>,
    edits: OrdMap<String, Vector<Said>>,
    symptom: Option<Symptom>,
}

impl Weighed {
    fn of(state: &State) -> Self {
        // A ranking reads every trial: of few each counts, of many one more changes little.
        let trials = state.trials.len();
        let trials = if trials < 256 { trials } else { trials / 32 * 32 };
        Self {
            case: state.case.as_ref().map(|c| c.name.clone()),
            truths: state.targets.values().map(|t| t.truth.as_ref().map(|t| t.at)).collect(),
            verdicts: state.verdicts.iter().map(|v| (v.subject.id.clone(), v.verdict, v.evidence.len())).collect(),
            counts: [state.micro.len(), trials],
            entries: state.entries.clone(),
            edits: state.edits.clone(),
            symptom: state.symptom.clone(),
        }
    }
}

/// The counts.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    seen: usize,
    running: BTreeSet<BootId>,
    last: Option<Arc<Trial>>,
    /// Patches and factors, the most suspect first.
    pub ranked: Vec<Ranked>,
    /// The imported patches among them, by the id under which they are shown.
    pub imported: BTreeMap<String, Arc<Entry>>,
    /// The deployment as found.
    found: Arm,
    /// What the ranking was made of.
    ranked_of: Weighed,
    /// By patch and level, whatever the other patches were.
    pub levels: BTreeMap<(String, String), Count>,
    /// By arm, in the order in which arms were first met.
    pub arms: Vec<(Arm, Count)>,
    /// What the trials of the running boots have in common, in sentences.
    pub remarks: Vec<String>,
    /// Where the search stands and how long it will take, while it goes on.
    pub search: Option<String>,
    /// The matrix of all trials.
    pub all: BTreeMap<CellKey, Count>,
    /// The matrix of the trials of each set of boots, and the order in which the sets were first met.
    pub by_boots: Vec<(BTreeSet<BootId>, BTreeMap<CellKey, Count>)>,
}

impl Derived {
    /// Takes in the trials that are new in `state`; starts again where the state is not a continuation.
    pub fn update(&mut self, state: &State) {
        let same = match (&self.last, self.seen.checked_sub(1).and_then(|i| state.trials.get(i))) {
            (None, _) => self.seen == 0,
            (Some(last), Some(entry)) => Arc::ptr_eq(last, &entry.trial) || **last == *entry.trial,
            (Some(_), None) => false,
        };
        if !same {
            *self = Self::default();
        }
        for entry in &state.trials.skip(self.seen) {
            self.take(entry);
        }
        let running: BTreeSet<BootId> = state.targets.values().filter_map(|t| t.boot).collect();
        if self.seen != state.trials.len() || self.running != running || !same {
            let met = |t: &&TrialEntry| t.trial.boots.iter().all(|b| running.contains(b)) && !t.trial.boots.is_empty();
            let trials = state.trials.iter().filter(met).map(|t| &*t.trial);
            self.remarks = diagnosis(trials).into_iter().map(|r| r.text).collect();
            self.running = running;
        }
        self.found = arms::originals(state);
        let weighed = Weighed::of(state);
        if self.ranked_of != weighed {
            self.ranked = of_state::ranked(state);
            // Factors of which nothing is suspected must not stand between the patches.
            self.ranked.sort_by_key(|r| r.kind == Kind::Factor && r.tier == Tier::Low);
            self.imported = of_state::shown(state);
            self.ranked_of = weighed;
        }
        self.search = state.search.as_ref().filter(|s| s.is_active()).map(|s| {
            let left = estimate(state);
            format!("{}; about {} boots, {:.1} min to go", s.headline(), left.boots, left.minutes)
        });
        self.seen = state.trials.len();
    }

    /// The matrix of trials that met only boots that run now; `None` where there is no such trial.
    pub fn now(&self, state: &State) -> Option<&BTreeMap<CellKey, Count>> {
        let running: BTreeSet<BootId> = state.targets.values().filter_map(|t| t.boot).collect();
        self.by_boots
            .iter()
            .rev()
            .find(|(boots, _)| !boots.is_empty() && boots.is_subset(&running))
            .map(|(_, cells)| cells)
    }

    /// How an arm differs from the deployment as found: the levels that its targets had when they were met.
    pub fn arm_text(&self, arm: &Arm) -> String {
        let found = &self.found;
        let (same, other): (Vec<_>, Vec<_>) = arm.iter().partition(|(key, level)| found.get(*key) == Some(*level));
        let named = |levels: &[(&String, &String)]| {
            let mut words: Vec<String> = Vec::new();
            for (key, level) in levels {
                let (patch, _) = key.split_once('@').unwrap_or((key, ""));
                let everywhere = arm.iter().all(|(k, l)| k.split('@').next() != Some(patch) || l == *level);
                let name = if everywhere { patch } else { key.as_str() };
                let word = format!("{name}={level}");
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            words.join(" ")
        };
        match (same.as_slice(), other.as_slice()) {
            // How it was found is not known.
            _ if found.is_empty() => named(&other),
            (_, []) => "as found".into(),
            ([], [_, _, ..]) => "all switched".into(),
            ([_], [_, _, ..]) => format!("all but {}", named(&same)),
            _ => named(&other),
        }
    }

    fn take(&mut self, entry: &TrialEntry) {
        let trial = &entry.trial;
        let mut counted = BTreeSet::new();
        for (key, level) in &trial.arm {
            let patch = key.split_once('@').map_or(key.as_str(), |(p, _)| p);
            if counted.insert((patch, level)) {
                self.levels.entry((patch.to_owned(), level.clone())).or_default().add(trial);
            }
        }
        if let Some((_, count)) = self.arms.iter_mut().find(|(arm, _)| *arm == trial.arm) {
            count.add(trial);
        } else {
            let mut count = Count::default();
            count.add(trial);
            self.arms.push((trial.arm.clone(), count));
        }
        let cell = (trial.key.form, trial.key.length, depth_permille(trial.key.depth));
        self.all.entry(cell).or_default().add(trial);
        let boots: BTreeSet<BootId> = trial.boots.iter().copied().collect();
        let cells = if let Some(i) = self.by_boots.iter().position(|(b, _)| *b == boots) {
            &mut self.by_boots[i].1
        } else {
            self.by_boots.push((boots, BTreeMap::new()));
            let last = self.by_boots.len() - 1;
            &mut self.by_boots[last].1
        };
        cells.entry(cell).or_default().add(trial);
        self.last = Some(Arc::clone(trial));
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::engine::ids::TrialId;
    use crate::engine::state::TargetState;
    use crate::recall::trial::{FailKind, Outcome, TrialKey};

    fn trial(boot: u64, level: &str, fail: bool) -> TrialEntry {
        let trial = Trial {
            id: TrialId(0),
            at: Timestamp::UNIX_EPOCH,
            boots: vec![BootId(boot)],
            arm: Arm::from([("indexer@decode".into(), level.into()), ("mhc@decode".into(), "on".into())]),
            factors: BTreeMap::new(),
            key: TrialKey { form: ProbeForm::Needle, length: 1024, depth: 0.1, seed: 1 },
            prompt_tokens: Some(1024),
            cached_tokens: Some(0),
            outcome: if fail { Outcome::Fail { how: FailKind::Wrong } } else { Outcome::Pass },
            expected: "a".into(),
            got: "b".into(),
            first_wrong: Some(0),
            seconds: 1.0,
            transcript: None,
        };
        TrialEntry { seq: boot, trial: Arc::new(trial) }
    }

    fn state(trials: &[TrialEntry], boot: u64) -> State {
        let mut state = State { trials: trials.iter().cloned().collect(), ..State::default() };
        state.targets.insert("decode".into(), TargetState { boot: Some(BootId(boot)), ..TargetState::default() });
        state
    }

    #[test]
    fn counting_step_by_step_is_counting_at_once() {
        let trials: Vec<_> = (0..10).map(|i| trial(i / 4, if i < 4 { "on" } else { "off" }, i < 4)).collect();
        let mut stepwise = Derived::default();
        for n in 0..=trials.len() {
            stepwise.update(&state(&trials[..n], 2));
        }
        let mut once = Derived::default();
        once.update(&state(&trials, 2));
        assert_eq!(stepwise.levels, once.levels);
        assert_eq!(stepwise.arms, once.arms);
        assert_eq!(stepwise.by_boots, once.by_boots);
        assert_eq!(once.levels[&("indexer".into(), "on".into())].fraction(), "4/4");
        assert_eq!(once.levels[&("indexer".into(), "off".into())].fraction(), "0/6");
    }

    #[test]
    fn another_session_starts_again() {
        let mut derived = Derived::default();
        derived.update(&state(&[trial(1, "on", true), trial(1, "on", true)], 1));
        derived.update(&state(&[trial(1, "off", false)], 1));
        assert_eq!(derived.all.values().map(|c| c.n).sum::<u32>(), 1);
    }

    #[test]
    fn only_boots_that_run_count_as_now() {
        let trials = [trial(1, "on", true), trial(2, "off", false)];
        let mut derived = Derived::default();
        let s = state(&trials, 2);
        derived.update(&s);
        assert_eq!(derived.now(&s).unwrap().values().map(|c| c.fail).sum::<u32>(), 0);
        assert!(derived.now(&state(&trials, 3)).is_none());
    }

    #[test]
    fn an_arm_is_named_by_what_differs() {
        let mut derived = Derived::default();
        let found = |mut state: State| {
            let levels = [("indexer", "on"), ("mhc", "on")].map(|(p, l)| (p.to_owned(), l.to_owned()));
            state.targets.get_mut("decode").unwrap().original = levels.into();
            state
        };
        // The first trials may be those of a changed server.
        let s = found(state(&[trial(1, "off", true)], 1));
        derived.update(&s);
        assert_eq!(derived.arm_text(&derived.arms[0].0), "indexer=off");
        let s = found(state(&[trial(1, "off", true), trial(2, "on", false)], 1));
        derived.update(&s);
        assert_eq!(derived.arm_text(&derived.arms[1].0), "as found");
    }

    #[test]
    fn the_ranking_stood_still_until_the_thirty_second_trial() {
        let mut derived = Derived::default();
        derived.update(&state(&[trial(1, "on", true)], 1));
        let before = derived.ranked_of.clone();
        derived.update(&state(&[trial(1, "on", true), trial(1, "on", true)], 1));
        assert_ne!(derived.ranked_of, before);
    }

    #[test]
    fn void_trials_do_not_count_as_passes() {
        let mut entry = trial(1, "on", false);
        Arc::get_mut(&mut entry.trial).unwrap().outcome = Outcome::Void { why: "time-out".into() };
        let mut derived = Derived::default();
        derived.update(&state(&[entry], 1));
        let count = &derived.all.values().next().unwrap();
        assert_eq!((count.n, count.void, count.fraction().as_str()), (0, 1, "-"));
    }
}
