//! A fake deployment that answers the search: boots, trials, and a hidden truth about who is guilty.
//!
//! It stands in for servers in tests and in the self-test of the search, and drives the real state through
//! real events. It shows the search nothing but what a server would.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::case::{Case, Gate, LevelValue, Manager, Patch, RecallSpec, Role, ServingEngine, Target};
use crate::engine::command::{Command, RecallPlan};
use crate::engine::event::{Event, Happened};
use crate::engine::ids::{BootId, JobId, TrialId};
use crate::engine::input::{Actor, JobOutcome};
use crate::engine::procedure::{BootProof, Failure, ProcessKey};
use crate::engine::state::State;
use crate::isolate::plan::{self, Next};
use crate::recall::trial::{FailKind, Outcome, Trial, TrialKey};
use crate::truth::{ServerStatus, TargetTruth};
use crate::untrusted::Untrusted;

/// Seconds that a boot of the lab takes.
pub const BOOT_SECONDS: f64 = 1.0;
/// Seconds that a trial of the lab takes.
pub const TRIAL_SECONDS: f64 = 0.35;

/// Who is guilty in a fake world; numbers are indices of patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// Nothing fails more than it should.
    Nobody,
    /// It fails whatever the patches.
    Always,
    /// One patch.
    Single(usize),
    /// Two that must be on together.
    Both(usize, usize),
    /// Two of which one suffices.
    Either(usize, usize),
}

/// How a fake world behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Nature {
    /// Who is guilty.
    pub culprit: Culprit,
    /// Failure rate while the culprit is on.
    pub sick: f64,
    /// Failure rate else.
    pub healthy: f64,
    /// Logit standard deviation of the luck of a boot.
    pub sigma: f64,
    /// Draw the sick rate of each boot from beta(2, 3) instead.
    pub flaky: bool,
    /// Share of void trials.
    pub void: f64,
    /// Patches whose level is never read back.
    pub unverified: Vec<String>,
    /// A patch without which the server does not start.
    pub needed: Option<String>,
    /// Refuse every change.
    pub refuse: bool,
}

impl Default for Nature {
    fn default() -> Self {
        Self {
            culprit: Culprit::Nobody,
            sick: 0.9,
            healthy: 0.05,
            sigma: 0.0,
            flaky: false,
            void: 0.0,
            unverified: Vec::new(),
            needed: None,
            refuse: false,
        }
    }
}

/// A fake deployment.
#[derive(Clone, Debug)]
pub struct World {
    /// What the search sees.
    pub state: State,
    /// How it behaves.
    pub nature: Nature,
    /// Failure rate that the running boot of each target alone would give.
    rates: BTreeMap<String, f64>,
    clock: f64,
    rng: Pcg64Mcg,
}

/// A case with one target and so many patches `p0`, `p1`, …, all at their suspect level `on`.
pub fn case(patches: usize) -> Case {
    let target = Target {
        name: "lab".into(),
        role: Role::Monolithic,
        engine: ServingEngine::Sglang,
        host: "local".into(),
        become_with: None,
        url: "http://127.0.0.1:1".into(),
        api_key: None,
        manager: Manager::Script { script: "serve.sh".into(), log: "serve.log".into() },
        launch_script: None,
        checkpoint: None,
        checkout: None,
        production: false,
        readable_env: false,
    };
    let patch = |i: usize| Patch {
        id: format!("p{i}"),
        title: format!("patch {i}"),
        site: None,
        targets: Vec::new(),
        phases: Vec::new(),
        layers: None,
        gate: Gate::Env {
            name: format!("P{i}"),
            levels: BTreeMap::from([("on".into(), LevelValue::Set("1".into())), ("off".into(), LevelValue::Unset)]),
        },
        suspect: "on".into(),
        changes: BTreeMap::new(),
        microtest: None,
        requires: Vec::new(),
        excludes: Vec::new(),
    };
    Case {
        name: "fake".into(),
        targets: vec![target],
        patches: (0..patches).map(patch).collect(),
        recall: RecallSpec::default(),
        ..Case::default()
    }
}

/// [`case`] with a router in front of a prefill and a decode target.
pub fn divided(patches: usize) -> Case {
    let alone = case(patches);
    let named = |name: &str, role| Target { name: name.into(), role, ..alone.targets[0].clone() };
    let targets = vec![named("router", Role::Router), named("prefill", Role::Prefill), named("decode", Role::Decode)];
    Case { targets, entry: Some("router".into()), ..alone }
}

impl World {
    /// A world in which the case is open and nothing was read yet.
    pub fn new(case: Case, nature: Nature, seed: u64) -> Self {
        let mut world = Self {
            state: State::default(),
            nature,
            rates: BTreeMap::new(),
            clock: 0.0,
            rng: Pcg64Mcg::seed_from_u64(seed),
        };
        world.happen(Happened::SessionStarted {
            id: uuid::Uuid::nil(),
            name: "fake".into(),
            program: "fake".into(),
            seed,
        });
        world.happen(Happened::CaseOpened { case: Arc::new(case) });
        world
    }

    /// Begins a search over all patches and carries out what it wants, up to so many commands; returns how many
    /// it took.
    ///
    /// # Errors
    /// The search cannot begin.
    pub fn search(&mut self, limit: usize) -> Result<usize, Failure> {
        let search = plan::begin(&self.state, &[])?;
        self.happen(Happened::SearchMoved { search: Arc::new(search) });
        Ok(self.go_on(limit))
    }

    /// Carries out what the search wants, up to so many commands; returns how many it took.
    pub fn go_on(&mut self, limit: usize) -> usize {
        let mut done = 0;
        while done < limit {
            match plan::next(&self.state) {
                Next::Record(facts) => facts.into_iter().for_each(|f| self.happen(f)),
                Next::Do(command) => {
                    done += 1;
                    self.carry_out(&command);
                }
                Next::Finished => break,
            }
        }
        done
    }

    /// Seconds that passed in this world.
    pub fn seconds(&self) -> f64 {
        self.clock
    }

    /// Does what a command asks for, as the engine and its jobs would.
    pub fn carry_out(&mut self, command: &Command) {
        if self.nature.refuse && matches!(command, Command::Restart { .. }) {
            let failure = Failure::new("the target is read-only");
            return self.happen(Happened::Refused { command: Box::new(command.clone()), failure });
        }
        let job = JobId(self.state.counters.job + 1);
        let title = command.spelling();
        self.happen(Happened::JobStarted { job, title, procedure: None, command: Some(Box::new(command.clone())) });
        let outcome = match command {
            Command::Probe { .. } => {
                let targets: Vec<_> = self.state.case.iter().flat_map(|c| &c.targets).map(|t| t.name.clone()).collect();
                for target in targets {
                    self.read(&target, self.state.current_boot(&target).map(|b| b.proof.process));
                }
                JobOutcome::Done
            }
            Command::Restart { target, levels } => self.restart(target, levels),
            Command::Recall { plan } => {
                self.recall(plan);
                JobOutcome::Done
            }
            _ => JobOutcome::Failed { failure: Failure::new("not in this world") },
        };
        self.happen(Happened::JobEnded { job, outcome });
    }

    fn happen(&mut self, what: Happened) {
        let event = Event { seq: self.state.seq + 1, at: self.now(), actor: Actor::program(), what };
        self.state.apply(&event);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond((self.clock * 1000.0) as i64).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Tells what a probe of a target would see: this process, or none.
    fn read(&mut self, target: &str, process: Option<ProcessKey>) {
        let truth = TargetTruth {
            target: target.into(),
            at: self.now(),
            status: if process.is_some() { ServerStatus::Ready } else { ServerStatus::Down },
            process,
            processes: Vec::new(),
            rows: Vec::new(),
            levels: BTreeMap::new(),
            level_sources: BTreeMap::new(),
            served: crate::truth::Served::default(),
            diagnostics: Vec::new(),
        };
        self.happen(Happened::TruthRead { truth: Arc::new(truth) });
    }

    /// Starts the target anew; levels that are not named stay, or are `on` at the first start.
    pub fn restart(&mut self, target: &str, levels: &BTreeMap<String, String>) -> JobOutcome {
        self.clock += BOOT_SECONDS;
        let case = self.state.case.clone().unwrap_or_default();
        let ids: Vec<String> = case.patches.iter().map(|p| p.id.clone()).collect();
        let mut now: BTreeMap<String, String> =
            case.patches_of(target).map(|p| (p.id.clone(), "on".to_owned())).collect();
        if let Some(boot) = self.state.current_boot(target) {
            now.extend(boot.proof.levels.clone());
        }
        now.extend(levels.clone());
        if let Some(needed) = &self.nature.needed
            && now.get(needed).is_some_and(|l| l == "off")
        {
            self.read(target, None);
            return JobOutcome::Failed { failure: Failure::new("the server died while loading") };
        }
        let rate = self.draw_rate(&ids, &now);
        self.rates.insert(target.to_owned(), rate);
        let unverified: BTreeMap<_, _> =
            self.nature.unverified.iter().map(|p| (p.clone(), "the environment was all NUL".to_owned())).collect();
        now.retain(|patch, _| !unverified.contains_key(patch));
        let boot = BootId(self.state.counters.boot + 1);
        let proof = BootProof {
            target: target.into(),
            process: ProcessKey { pid: 1000 + boot.0 as u32, start_ticks: boot.0 },
            started_at: self.now(),
            proven_at: self.now(),
            levels: now,
            unverified,
            readable_env: case.target(target).is_some_and(|t| t.readable_env),
            evidence: Vec::new(),
        };
        self.happen(Happened::BootProven { boot, procedure: None, proof: Arc::new(proof) });
        JobOutcome::Done
    }

    fn draw_rate(&mut self, ids: &[String], levels: &BTreeMap<String, String>) -> f64 {
        let on = |i: usize| ids.get(i).and_then(|id| levels.get(id)).is_some_and(|l| l == "on");
        let active = match self.nature.culprit {
            Culprit::Nobody => false,
            Culprit::Always => true,
            Culprit::Single(i) => on(i),
            Culprit::Both(i, j) => on(i) && on(j),
            Culprit::Either(i, j) => on(i) || on(j),
        };
        if active && self.nature.flaky {
            // The second of four uniforms in order is beta(2, 3).
            let mut u: [f64; 4] = self.rng.random();
            u.sort_by(f64::total_cmp);
            return u[1];
        }
        let rate = if active { self.nature.sick } else { self.nature.healthy };
        // The sum of twelve uniforms less six is normal enough.
        let luck = (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0;
        let logit = (rate / (1.0 - rate)).ln() + self.nature.sigma * luck;
        1.0 / (1.0 + (-logit).exp())
    }

    /// Asks what a plan says of the boots that run; nothing where one of them does not.
    pub fn recall(&mut self, plan: &RecallPlan) {
        let Some(case) = self.state.case.clone() else { return };
        let (mut boots, mut arm) = (Vec::new(), BTreeMap::new());
        for target in case.met_targets() {
            let Some(boot) = self.state.current_boot(&target.name) else { return };
            boots.push(boot.id);
            arm.extend(boot.proof.levels.iter().map(|(p, l)| (format!("{p}@{}", target.name), l.clone())));
        }
        let mut cell = 0;
        for &form in &plan.forms {
            for &length in &plan.lengths {
                for &depth in &plan.depths {
                    for _ in 0..plan.repeats {
                        cell += 1;
                        self.clock += TRIAL_SECONDS;
                        let key = TrialKey { form, length, depth, seed: plan.seed.wrapping_add(cell) };
                        self.ask(&boots, &arm, &plan.factors, key);
                    }
                }
            }
        }
    }

    fn ask(
        &mut self,
        boots: &[BootId],
        arm: &BTreeMap<String, String>,
        factors: &BTreeMap<String, String>,
        key: TrialKey,
    ) {
        // A request fails where any of the servers that it meets makes it fail.
        let rate = self.rates.values().copied().fold(0.0, f64::max);
        let outcome = if self.rng.random_bool(self.nature.void) {
            Outcome::Void { why: "time-out".into() }
        } else if self.rng.random_bool(rate) {
            Outcome::Fail { how: FailKind::Wrong }
        } else {
            Outcome::Pass
        };
        let trial = Trial {
            id: TrialId(self.state.counters.trial + 1),
            at: self.now(),
            boots: boots.to_vec(),
            arm: arm.clone(),
            factors: factors.clone(),
            key,
            prompt_tokens: None,
            cached_tokens: None,
            outcome,
            expected: String::new(),
            got: Untrusted::new(""),
            first_wrong: None,
            seconds: TRIAL_SECONDS,
            transcript: None,
        };
        self.happen(Happened::TrialRecorded { trial: Arc::new(trial) });
    }
}
