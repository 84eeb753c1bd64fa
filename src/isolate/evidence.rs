//! What the state shows for an arm: its boots, each with its counted trials.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::case::Case;
use crate::engine::command::RecallPlan;
use crate::engine::ids::BootId;
use crate::engine::procedure::BootProof;
use crate::engine::state::State;
use crate::isolate::arms;
use crate::isolate::search::{Arm, Rules, Search};
use crate::isolate::verdict::{ArmCount, Symptom};
use crate::recall::trial::{Outcome, ProbeForm, Trial};
use crate::stats::dispersion::{Effective, Group, effective, intra_boot_correlation};
use crate::stats::etest::{PairedTest, Sides};
use crate::stats::interval::{Interval, Z_TWO_SIDED_95, wilson};

/// Stride between the seeds of boots, so that their prompts never meet.
const SEED_STRIDE: u64 = 1_000_003;

/// Void trials below which an arm is not given up.
const LEAST_VOID: u32 = 6;

/// Failure rate as found below which boots are asked twice as much.
const WEAK_SYMPTOM: f64 = 0.6;

/// What identifies a question: form, length, bits of the depth, seed.
pub type Question = (ProbeForm, u32, u64, u64);

/// One boot of the deployment and the trials that met it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unit {
    /// The boots, one of each target that the search restarts.
    pub boots: Vec<BootId>,
    /// For each question: whether it failed; `None` is void.
    pub answers: BTreeMap<Question, Option<bool>>,
    /// Journal lines of its trials.
    pub seqs: Vec<u64>,
    /// Counted trials, once they are [counted](Self::counted).
    pub group: Group,
}

impl Unit {
    /// The same boot with its answers counted.
    #[must_use]
    pub fn counted(mut self) -> Self {
        let fail = self.answers.values().filter(|a| **a == Some(true)).count() as u32;
        let n = self.answers.values().filter(|a| a.is_some()).count() as u32;
        self.group = Group { fail, n };
        self
    }

    /// Questions asked, void ones included.
    pub fn asked(&self) -> u32 {
        self.answers.len() as u32
    }
}

/// The boots of one arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmData {
    /// Boots with enough counted trials, oldest first.
    pub units: Vec<Arc<Unit>>,
    /// Questions asked on any boot of the arm.
    pub asked: u32,
    /// Of these, void.
    pub void: u32,
}

impl ArmData {
    /// Counted trials of each boot.
    pub fn groups(&self) -> Vec<Group> {
        self.units.iter().map(|u| u.group).collect()
    }

    /// Failure rate of each boot.
    pub fn rates(&self) -> Vec<f64> {
        self.units.iter().map(|u| u.group.rate()).collect()
    }

    /// Number of boots.
    pub fn boots(&self) -> u32 {
        self.units.len() as u32
    }

    /// Failures, counted trials, void trials and boots.
    pub fn count(&self) -> ArmCount {
        let groups = self.groups();
        ArmCount {
            fail: groups.iter().map(|g| g.fail).sum(),
            n: groups.iter().map(|g| g.n).sum(),
            void: self.void,
            boots: self.boots(),
        }
    }

    /// What the trials are worth as independent ones.
    pub fn effective(&self, rules: &Rules) -> Effective {
        let groups = self.groups();
        let rho = intra_boot_correlation(&[&groups]).unwrap_or(0.0).max(rules.least_rho);
        effective(&groups, rho)
    }

    /// Failure rate over all counted trials.
    pub fn rate(&self) -> f64 {
        let count = self.count();
        Group { fail: count.fail, n: count.n }.rate()
    }

    /// Wilson interval (95 %) of the rate on deflated counts.
    pub fn interval(&self, rules: &Rules) -> Interval {
        let worth = self.effective(rules);
        wilson(worth.k, worth.n, Z_TWO_SIDED_95)
    }

    /// Whether so many trials were void that the arm says nothing.
    pub fn starved(&self, rules: &Rules) -> bool {
        // A few void ones on a first boot are chance.
        self.void >= LEAST_VOID && f64::from(self.void) / f64::from(self.asked) > rules.max_void
    }

    /// Journal lines of its boots and trials.
    pub fn seqs(&self, state: &State) -> BTreeSet<u64> {
        let boots = self.units.iter().flat_map(|u| &u.boots).filter_map(|b| state.boots.get(b)).map(|b| b.seq);
        boots.chain(self.units.iter().flat_map(|u| u.seqs.iter().copied())).collect()
    }

    /// The symptom that this arm shows.
    pub fn symptom(&self, rules: &Rules) -> Symptom {
        Symptom { rate: self.rate(), lower: self.interval(rules).lower, trials: self.count().n }
    }
}

/// The questions of one boot.
pub fn recall_plan(case: &Case, session_seed: u64, index: u32, repeats: u32) -> RecallPlan {
    RecallPlan {
        forms: vec![ProbeForm::MultiTurn, ProbeForm::Needle],
        lengths: case.recall.lengths.clone(),
        depths: case.recall.depths.clone(),
        repeats,
        seed: session_seed.wrapping_add(SEED_STRIDE.wrapping_mul(u64::from(index) + 1)),
        concurrency: case.budget.concurrency.max(1),
        factors: factors(),
    }
}

/// Factor levels of every trial of the search, said outright so that no other trial is taken for one.
fn factors() -> BTreeMap<String, String> {
    BTreeMap::from([("cache".to_owned(), "cold".to_owned())])
}

/// Cells of the matrix: forms, lengths and depths; at least 1.
pub fn cells(case: &Case) -> u32 {
    (2 * case.recall.lengths.len() * case.recall.depths.len()).max(1) as u32
}

/// Conversations for each cell so that a boot gets `rules.trials` at least.
pub fn repeats(case: &Case, rules: &Rules) -> u32 {
    rules.trials.div_ceil(cells(case)).max(1)
}

/// How many times the usual trials a boot gets once the symptom is measured: a weak symptom needs more of them
/// before the rates of the boots of two arms come apart.
pub fn factor(state: &State) -> u32 {
    if state.symptom.as_ref().is_some_and(|s| s.rate < WEAK_SYMPTOM) { 2 } else { 1 }
}

/// Counted trials below which a boot does not count: half of what it is asked.
fn least_counted(case: &Case, rules: &Rules) -> u32 {
    (cells(case) * repeats(case, rules)).div_ceil(2)
}

/// Every boot of the deployment that was asked something, in the order of the boots.
pub fn units(state: &State, case: &Case, search: &Search) -> Vec<Arc<Unit>> {
    let mut units: Vec<Unit> = Vec::new();
    let mut places: BTreeMap<Vec<BootId>, usize> = BTreeMap::new();
    let mut last: Option<(&[BootId], usize)> = None;
    for entry in state.trials.iter().filter(|e| is_asked(case, &e.trial)) {
        // Trials come in runs on the same boots.
        let place = match last {
            Some((met, place)) if *met == entry.trial.boots => place,
            _ => {
                let Some(boots) = counted_boots(state, search, &entry.trial) else { continue };
                *places.entry(boots.clone()).or_insert_with(|| {
                    units.push(Unit { boots, ..Unit::default() });
                    units.len() - 1
                })
            }
        };
        last = Some((&entry.trial.boots, place));
        let unit = &mut units[place];
        let key = &entry.trial.key;
        let question = (key.form, key.length, key.depth.to_bits(), key.seed);
        let answer = match &entry.trial.outcome {
            Outcome::Pass => Some(false),
            Outcome::Fail { .. } => Some(true),
            Outcome::Void { .. } => None,
        };
        // A question counts once a boot; asked again after a void answer, the later answer counts.
        let slot = unit.answers.entry(question).or_insert(None);
        if slot.is_none() {
            *slot = answer;
            unit.seqs.push(entry.seq);
        }
    }
    places.values().map(|place| Arc::new(std::mem::take(&mut units[*place]).counted())).collect()
}

/// Whether a trial asked what the search asks.
fn is_asked(case: &Case, trial: &Trial) -> bool {
    trial.factors == factors()
        && case.recall.lengths.contains(&trial.key.length)
        && case.recall.depths.contains(&trial.key.depth)
}

/// The boots that a trial met on the targets of the search; `None` where it met none of one of them.
fn counted_boots(state: &State, search: &Search, trial: &Trial) -> Option<Vec<BootId>> {
    let of = |target: &String| {
        trial.boots.iter().copied().find(|b| state.boots.get(b).is_some_and(|b| b.proof.target == *target))
    };
    search.targets.iter().map(of).collect()
}

/// Whether these boots were proven to have the levels of an arm.
pub fn proven(state: &State, boots: &[BootId], arm: &Arm) -> bool {
    let boots: BTreeMap<_, _> =
        boots.iter().filter_map(|b| state.boots.get(b)).map(|b| (b.proof.target.as_str(), b.proof.as_ref())).collect();
    arm.iter().all(|(key, level)| {
        let (patch, target) = arms::split(key);
        boots.get(target).is_some_and(|proof| proof.levels.get(patch) == Some(level) && readable(state, proof))
    })
}

/// Whether a boot keeps its environment readable where the case asks for that: all arms do, or none.
pub fn readable(state: &State, proof: &BootProof) -> bool {
    let target = state.case.as_ref().and_then(|c| c.target(&proof.target));
    target.is_none_or(|t| !t.readable_env || proof.readable_env)
}

/// The boots of an arm among `units`.
pub fn arm_data(state: &State, case: &Case, rules: &Rules, units: &[Arc<Unit>], arm: &Arm) -> ArmData {
    let mut data = ArmData::default();
    for unit in units.iter().filter(|u| proven(state, &u.boots, arm)) {
        data.asked += unit.asked();
        data.void += unit.asked() - unit.group.n;
        if unit.group.n >= least_counted(case, rules) {
            data.units.push(unit.clone());
        }
    }
    data
}

/// The paired test over questions that both arms were asked: that `second` is worse than `first`.
pub fn paired(first: &ArmData, second: &ArmData) -> PairedTest {
    let all = |arm: &ArmData| -> BTreeMap<Question, bool> {
        arm.units.iter().flat_map(|u| &u.answers).filter_map(|(q, a)| Some((*q, (*a)?))).collect()
    };
    let (a, b) = (all(first), all(second));
    let mut test = PairedTest::new(Sides::SecondIsWorse);
    for (question, failed) in &a {
        if let Some(other) = b.get(question) {
            test.observe(*failed, *other);
        }
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::fake::{self, Nature, World};

    fn world(nature: Nature) -> World {
        World::new(fake::case(2), nature, 1)
    }

    fn search(world: &World) -> Search {
        let state = &world.state;
        let search = crate::isolate::plan::begin(state, &[]).unwrap();
        Search { as_found: arms::as_found(state, state.case.as_ref().unwrap()), ..search }
    }

    fn data(world: &World, arm: &Arm) -> ArmData {
        let (state, search) = (&world.state, search(world));
        let case = state.case.clone().unwrap();
        arm_data(state, &case, &search.rules, &units(state, &case, &search), arm)
    }

    #[test]
    fn trials_are_counted_by_the_boot_that_they_met() {
        let mut world = world(Nature::default());
        world.restart("lab", &BTreeMap::new());
        let case = world.state.case.clone().unwrap();
        let plan = recall_plan(&case, 0, 0, 1);
        world.recall(&plan);
        world.restart("lab", &BTreeMap::from([("p0".into(), "off".into())]));
        world.recall(&plan);
        world.recall(&plan);
        let search = search(&world);
        let on = data(&world, &search.as_found);
        let off = data(&world, &arms::without(&case, &search, &search.as_found, "p0"));
        assert_eq!((on.boots(), on.count().n), (1, 12));
        assert_eq!((off.boots(), off.count().n), (1, 12), "the same question counts once a boot");
    }

    #[test]
    fn other_questions_and_factors_do_not_count() {
        let mut world = world(Nature::default());
        world.restart("lab", &BTreeMap::new());
        let case = world.state.case.clone().unwrap();
        let mut plan = recall_plan(&case, 0, 0, 1);
        plan.factors.insert("cache".into(), "warm".into());
        world.recall(&plan);
        let mut plan = recall_plan(&case, 0, 0, 1);
        plan.lengths = vec![64];
        world.recall(&plan);
        let found = search(&world).as_found;
        assert_eq!(data(&world, &found).asked, 0);
    }

    #[test]
    fn void_trials_count_as_neither_and_starve_an_arm() {
        let mut world = world(Nature { void: 1.0, ..Nature::default() });
        world.restart("lab", &BTreeMap::new());
        let case = world.state.case.clone().unwrap();
        world.recall(&recall_plan(&case, 0, 0, 1));
        let found = search(&world).as_found;
        let got = data(&world, &found);
        assert_eq!((got.boots(), got.count().n, got.void), (0, 0, 12));
        assert!(got.starved(&Rules::default()));
        assert_eq!(got.symptom(&Rules::default()).trials, 0);
        world.nature.void = 0.0;
        world.recall(&recall_plan(&case, 0, 0, 1));
        assert_eq!(data(&world, &found).void, 0, "asked again, the later answer counts");
    }

    #[test]
    fn a_level_that_was_not_read_back_is_no_evidence() {
        let mut world = world(Nature { unverified: vec!["p1".into()], ..Nature::default() });
        world.restart("lab", &BTreeMap::new());
        let case = world.state.case.clone().unwrap();
        world.recall(&recall_plan(&case, 0, 0, 1));
        let wanted = Arm::from([("p0@lab".into(), "on".into()), ("p1@lab".into(), "on".into())]);
        assert_eq!(data(&world, &wanted).boots(), 0);
        assert_eq!(data(&world, &Arm::from([("p0@lab".into(), "on".into())])).boots(), 1);
    }

    #[test]
    fn boots_of_equal_index_are_paired_and_others_are_not() {
        let case = fake::case(1);
        assert_eq!(recall_plan(&case, 5, 2, 1), recall_plan(&case, 5, 2, 1));
        assert_ne!(recall_plan(&case, 5, 2, 1).seed, recall_plan(&case, 5, 1, 1).seed);
        let unit = |failed: bool| Unit {
            answers: (0..8).map(|seed| ((ProbeForm::Needle, 1024, 0, seed), Some(failed))).collect(),
            ..Unit::default()
        };
        let arm = |failed| ArmData { units: vec![Arc::new(unit(failed))], ..ArmData::default() };
        assert_eq!(paired(&arm(false), &arm(true)).worse, 8);
        assert!(paired(&arm(false), &arm(true)).e_value() > 20.0);
    }

    #[test]
    fn a_boot_gets_about_twelve_trials() {
        let mut case = fake::case(1);
        assert_eq!(cells(&case) * repeats(&case, &Rules::default()), 12);
        case.recall.depths = vec![0.5];
        assert_eq!(cells(&case) * repeats(&case, &Rules::default()), 12);
        case.recall.lengths = vec![256, 512, 1024, 2048, 4096, 8192, 16384];
        assert_eq!(cells(&case) * repeats(&case, &Rules::default()), 14);
    }
}
