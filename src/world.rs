//! The real world behind the engine: which module does which job.
//!
//! Not responsible for any of the work itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::case::{Case, Manager, Target};
use crate::engine::command::Command;
use crate::engine::effect::JobSpec;
use crate::engine::input::{Actor, JobReport};
use crate::engine::job::{EngineGone, JobContext};
use crate::engine::live::{LinkState, Live};
use crate::engine::procedure::{Failure, ProcessKey};
use crate::engine::runtime::{EngineHandle, JobFuture, World};
use crate::engine::state::State;
use crate::patch;
use crate::patch::import::ImportFrom;
use crate::remote::host::{Hosts, reach_all};
use crate::remote::lease::Owner;
use crate::remote::machine::Machine;
use crate::remote::procedures::{Folders, Means};
use crate::truth::ServerStatus;
use crate::untrusted::Untrusted;
use crate::{kernel, recall, redact, remote, truth};

/// How often the logs are looked at.
const LOG_EVERY: Duration = Duration::from_millis(250);
/// How often the servers of other hosts are looked at while trials run.
const BOOTS_EVERY: Duration = Duration::from_secs(5);
/// How often the links to other hosts are looked at.
const LINKS_EVERY: Duration = Duration::from_secs(5);

/// How often the workbench looks at the servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Between two readings of the load.
    pub load: Duration,
    /// Between two full probes; none is made while something else runs.
    pub probe: Duration,
}

/// The world as it is.
#[derive(Clone, Debug)]
pub struct RealWorld {
    /// The links to other hosts, which all jobs share.
    pub hosts: Hosts,
    /// Whose changes these are.
    pub owner: Owner,
}

impl World for RealWorld {
    fn job(&self, spec: JobSpec, context: JobContext) -> JobFuture {
        Box::pin(run(self.clone(), spec, context))
    }
}

impl RealWorld {
    fn means(&self) -> Result<Means, Failure> {
        Ok(Means { hosts: self.hosts.clone(), folders: Folders::standard()?, owner: self.owner.clone() })
    }
}

async fn run(world: RealWorld, spec: JobSpec, context: JobContext) -> Result<(), Failure> {
    match spec {
        JobSpec::Probe { case, target, known } => probe(&world, &case, &target, known, &context).await,
        JobSpec::Change { case, target, wish } => {
            let procedure = remote::procedures::plan(&world.means()?, &case, &target, &wish, &context).await?;
            context.report(JobReport::Planned(Arc::new(procedure))).await.map_err(gone)
        }
        JobSpec::RunProcedure { case, procedure, phase, from, anyway } => {
            let run = remote::execute::Part { phase, from, anyway };
            remote::execute::run(&world.means()?, &case, &procedure, run, &context).await
        }
        JobSpec::Recall { case, plan, boots, processes, arm } => {
            let near = reach_all(&world.hosts, &case).await?;
            let watched = Watched::new(&world.hosts, &case, &processes, &context)?;
            let gone = || watched.gone();
            let met = recall::runner::Met { boots: &boots, arm: &arm, gone: &gone };
            let trials = recall::runner::run(&near, &plan, met, &context);
            tokio::select! {
                end = recall::watch::beside(&case, &near, &context, trials) => end,
                () = watched.follow(&context) => Ok(()),
            }
        }
        JobSpec::ImportPatches { case, from } => import(&world, case.as_deref(), &from, &context).await,
        JobSpec::Micro { spec, device, force_device, checkpoint, candidates, activations } => {
            let paths = [checkpoint, candidates, activations].map(|p| p.map(PathBuf::from));
            micro(spec, device, force_device, paths, &context).await
        }
    }
}

/// The server processes that trials rest on: those of this machine are looked at before each trial, those of another
/// every few seconds, since each look is a round trip.
struct Watched {
    local: Vec<(String, ProcessKey)>,
    afar: Vec<(String, ProcessKey, Machine)>,
    /// The first of the latter that was seen to be gone.
    gone: std::sync::OnceLock<String>,
}

impl Watched {
    fn new(
        hosts: &Hosts,
        case: &Case,
        processes: &[(String, ProcessKey)],
        context: &JobContext,
    ) -> Result<Self, Failure> {
        let mut watched = Self { local: Vec::new(), afar: Vec::new(), gone: std::sync::OnceLock::new() };
        for (name, key) in processes {
            match case.target(name) {
                Some(target) if !target.is_local() => {
                    watched.afar.push((name.clone(), *key, Machine::of(hosts, target)?));
                }
                Some(_) => watched.local.push((name.clone(), *key)),
                None => context.log(format!("`{name}` is no target of the case")),
            }
        }
        Ok(watched)
    }

    /// Why one of them does not serve its target any more.
    fn gone(&self) -> Option<String> {
        let local = self.local.iter().find(|(_, key)| !remote::local::runs(*key));
        local.map(|(name, key)| sentence(name, *key)).or_else(|| self.gone.get().cloned())
    }

    /// Looks at those of other hosts; never ends.
    async fn follow(&self, context: &JobContext) {
        loop {
            tokio::time::sleep(BOOTS_EVERY).await;
            for (name, key, machine) in &self.afar {
                // A host that does not answer says nothing about its processes.
                if let Ok(false) = remote::prove::runs(machine, *key, context).await {
                    // Only the first one is told.
                    let _ = self.gone.set(sentence(name, *key));
                }
            }
        }
    }
}

fn sentence(target: &str, key: ProcessKey) -> String {
    format!("pid {} of `{target}`, which was proven, is gone: somebody else stopped or restarted it", key.pid)
}

fn gone(error: EngineGone) -> Failure {
    Failure::new(error.to_string())
}

/// Reads a target, and proves the server that it meets unless that is known already.
async fn probe(
    world: &RealWorld,
    case: &Case,
    target: &str,
    known: Option<ProcessKey>,
    context: &JobContext,
) -> Result<(), Failure> {
    let read = truth::read::probe(&world.hosts, case, target, context).await?;
    context.report(JobReport::TruthRead(Arc::new(read.truth))).await.map_err(gone)?;
    match read.met.filter(|met| Some(met.process) != known) {
        Some(met) => {
            let report = JobReport::BootProven { procedure: None, proof: Arc::new(met) };
            context.report(report).await.map_err(gone)
        }
        None => Ok(()),
    }
}

async fn import(
    world: &RealWorld,
    case: Option<&Case>,
    from: &ImportFrom,
    context: &JobContext,
) -> Result<(), Failure> {
    let read = patch::import::read(&world.hosts, case, from, context).await?;
    for remark in read.remarks {
        context.report(JobReport::Said(remark)).await.map_err(gone)?;
    }
    let entries = read.entries.into_iter().map(Arc::new).collect();
    context.report(JobReport::PatchesRead { source: from.spelling(), entries }).await.map_err(gone)
}

async fn micro(
    spec: String,
    device: String,
    force_device: bool,
    [checkpoint, candidates, activations]: [Option<PathBuf>; 3],
    context: &JobContext,
) -> Result<(), Failure> {
    let within = context.clone();
    let work = tokio::task::spawn_blocking(move || {
        let progress = |done, total, phase: &str| within.progress(done, Some(total), phase);
        let cancelled = || within.cancel.is_cancelled();
        let request = kernel::Request {
            spec: &spec,
            device: &device,
            force_device,
            checkpoint: checkpoint.as_deref(),
            candidates: candidates.as_deref(),
            activations: activations.as_deref(),
            now: Timestamp::now(),
        };
        for command in kernel::commands(&request)? {
            within.log(format!("starts {command}; it gets its inputs on standard input"));
        }
        kernel::run(&request, &progress, &cancelled)
    });
    let reports = work.await.map_err(|e| Failure::new(format!("the microtest itself broke: {e}")))??;
    let mut failed = Ok(());
    for report in reports {
        match report {
            Ok(report) => context.report(JobReport::MicroDone(Arc::new(report))).await.map_err(gone)?,
            // One device that fails does not hide what the others found; of several, the first is told last.
            Err(failure) => {
                context.log(failure.message.clone());
                failed = failed.and(Err(failure));
            }
        }
    }
    failed
}

/// Follows the load and the log of every target of the case, and reads it anew from time to time, until it
/// is cancelled; for the workbench alone.
///
/// A target that stops answering is shown as silent and read anew once.
pub async fn watch(hosts: Hosts, handle: EngineHandle, actor: Actor, pace: Pace, cancel: CancellationToken) {
    let mut tick = tokio::time::interval(LOG_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut logs: BTreeMap<String, u64> = BTreeMap::new();
    let mut silent: BTreeSet<String> = BTreeSet::new();
    let mut load_at: Option<Instant> = None;
    let mut probe_at = Instant::now();
    let links = follow_links(&hosts, &handle);
    tokio::pin!(links);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = &mut links => return,
            _ = tick.tick() => {}
        }
        let state = handle.state.borrow().clone();
        let Some(case) = state.case.clone() else { continue };
        for target in &case.targets {
            // What waits for a start shows its log itself.
            follow_log(target, &mut logs, &handle, !state.is_starting(&target.name));
        }
        let searching = state.search.as_ref().is_some_and(|s| s.is_active());
        let busy = searching || state.running_jobs().next().is_some();
        if busy {
            probe_at = Instant::now();
        } else if probe_at.elapsed() >= pace.probe {
            probe_at = Instant::now();
            if handle.send(actor.clone(), Command::Probe { target: None }).await.is_err() {
                return;
            }
        }
        if load_at.is_some_and(|at| at.elapsed() < pace.load) {
            continue;
        }
        load_at = Some(Instant::now());
        for target in case.targets.iter().filter(|t| serves(&state, &t.name) && link_stands(&hosts, t)) {
            let load = tokio::select! {
                () = cancel.cancelled() => return,
                load = truth::read::load_once(&hosts, target) => load,
            };
            let Ok(load) = load else { continue };
            let first = if let Live::Silent { .. } = &load {
                !busy && silent.insert(target.name.clone())
            } else {
                silent.remove(&target.name);
                false
            };
            // An error only says that nobody looks on.
            let _ = handle.live.send(load);
            // Whether it is down, only a probe can say.
            let probe = Command::Probe { target: Some(target.name.clone()) };
            if first && handle.send(actor.clone(), probe).await.is_err() {
                return;
            }
        }
    }
}

/// Whether a target served when it was looked at last.
fn serves(state: &State, target: &str) -> bool {
    let known = state.target(target);
    known.is_some_and(|t| t.boot.is_some() || t.truth.as_ref().is_some_and(|r| r.status == ServerStatus::Ready))
}

/// Whether asking the target waits for no link that is being mended.
fn link_stands(hosts: &Hosts, target: &Target) -> bool {
    target.is_local() || matches!(hosts.states().borrow().get(&target.host), Some(LinkState::Up { .. }))
}

/// Shows how the links are whenever one changes, and looks at them from time to time.
async fn follow_links(hosts: &Hosts, handle: &EngineHandle) {
    let mut states = hosts.states();
    let mut shown = BTreeMap::new();
    let mut tick = tokio::time::interval(LINKS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let changed = tokio::select! {
            changed = states.changed() => changed.is_ok(),
            _ = tick.tick() => { hosts.check().await; true }
        };
        if !changed {
            return;
        }
        let now = states.borrow_and_update().clone();
        for (host, state) in &now {
            if shown.get(host) != Some(state) {
                // An error only says that nobody looks on.
                let _ = handle.live.send(Live::Link { host: host.clone(), state: state.clone() });
            }
        }
        shown = now;
    }
}

/// Shows the lines that a local log gained; the first look only takes down where it ends, and so does one that may not
/// `show` them.
fn follow_log(target: &Target, logs: &mut BTreeMap<String, u64>, handle: &EngineHandle, show: bool) {
    let Manager::Script { log, .. } = &target.manager else { return };
    if !target.is_local() {
        return;
    }
    let Some(offset) = logs.get(&target.name).copied().filter(|_| show) else {
        logs.insert(target.name.clone(), remote::local::file_len(log));
        return;
    };
    let Ok(tail) = remote::local::tail(log, offset) else { return };
    logs.insert(target.name.clone(), tail.offset);
    // Our own questions about the load would drown what matters.
    let ours = |line: &str| line.contains("\"GET /v1/loads") || line.contains("\"GET /metrics");
    for line in tail.lines.iter().filter(|l| !ours(l)) {
        let line = Untrusted::from(redact::text(line));
        // An error only says that nobody looks on.
        let _ = handle.live.send(Live::ServerLog { target: target.name.clone(), line });
    }
}
