//! Reads the three layers of a target: launch script, processes, and what the server says.
//!
//! The host is asked once, by the probe, whether it is this machine or another; the server is asked over
//! HTTP. Not responsible for the log grammar nor for comparing. A layer that cannot be read becomes a
//! diagnostic and leaves the others as they are.

mod layers;

pub(crate) use layers::unit_files;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::compare::{self, CheckpointFacts, Layers};
use super::service::{self, Evidence, Origin, ServiceProcess};
use super::{Served, ServerStatus, TargetTruth, flags, imports};
use crate::case::{Case, Manager, Patch, Role, ServingEngine, Target};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::job::JobContext;
use crate::engine::live::Live;
use crate::engine::procedure::{BootProof, Failure, ProcessKey};
use crate::redact;
use crate::remote::host::{self, HostError, Hosts, Place};
use crate::remote::levels::LevelReading;
use crate::remote::machine::Machine;
use crate::remote::owner::Marks;
use crate::remote::probe::owner::{self, Own};
use crate::remote::probe::types::{PortOwners, Probe};
use crate::remote::probe::{self, Ask, Wanted, container};
use crate::remote::proc::{Cmdline, Unknown};
use crate::remote::procedures::folder_of;
use crate::remote::source::imported::{self, Evidences};
use crate::remote::source::look::Source;
use crate::remote::source::{self, tree};
use crate::remote::{Folders, http, prove};
use crate::serving::error::ServingError;
use crate::serving::load;
use crate::truth::declared::Declared;
use crate::truth::survey::recognise::is_model_server;
use crate::untrusted::Untrusted;

/// What a reading gave.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The three layers.
    pub truth: TargetTruth,
    /// The server that runs, where it is the target's own and serves.
    pub met: Option<BootProof>,
}

/// How many bytes of a log's end come with the probe.
const LOG_BYTES: u64 = 128 * 1024;

/// Reads a target, with our overrides in the standard folder.
///
/// # Errors
/// The case has no such target, or the user has no home folder.
pub async fn probe(hosts: &Hosts, case: &Case, target: &str, ctx: &JobContext) -> Result<Reading, Failure> {
    probe_in(hosts, &Folders::standard()?, case, target, ctx).await
}

/// Reads a target.
///
/// # Errors
/// The case has no such target.
pub async fn probe_in(
    hosts: &Hosts,
    folders: &Folders,
    case: &Case,
    target: &str,
    ctx: &JobContext,
) -> Result<Reading, Failure> {
    let target = case.target(target).ok_or_else(|| Failure::new(format!("the case has no target `{target}`")))?;
    let (overrides, _) = folder_of(folders, target);
    let patches: Vec<&Patch> = case.patches_of(&target.name).collect();
    let whole = format!("reading `{}`", target.host);
    ctx.progress(0, Some(2), if target.is_local() { "reading the host" } else { &whole });
    let source = match Machine::of(hosts, target) {
        Ok(machine) => source::look::look(&machine, target, &patches, &overrides, &ctx.cancel).await,
        // The question to the host itself says why it cannot be asked.
        Err(_) => None,
    };
    let mut modules: Vec<Wanted> = imports::wanted(target, &patches).into_values().collect();
    modules.extend(source.iter().flat_map(imported::wanted));
    let mut seen = match ask_host(hosts, target, &overrides, &modules, ctx).await {
        Ok(answer) => {
            let mut seen = look(&answer, target, &patches);
            if let Some(source) = &source {
                look_at_source(&mut seen, source, &answer, hosts, target, &modules, ctx).await;
            }
            seen
        }
        Err(failure) => {
            let mut seen = Seen::of(target);
            seen.say("host-unread", failure, &target.host);
            seen
        }
    };
    ctx.progress(1, Some(2), "asking the server");
    let mut status = seen.status();
    if seen.may_ask() {
        status = ask(hosts, target, &mut seen, status).await;
    }
    let (levels, level_sources) = patch_levels(&seen, &patches);
    let met = met(&seen, case, status);
    let truth = TargetTruth {
        target: target.name.clone(),
        at: Timestamp::now(),
        status,
        process: seen.server(),
        rows: rows(&seen, &patches),
        processes: seen.processes,
        levels,
        level_sources,
        served: Served {
            version: seen.layers.seen.version().or_else(|| seen.layers.version.clone()),
            capability: seen.layers.capability,
            checkpoint: seen.layers.checkpoint.as_ref().map(|(path, config)| CheckpointFacts::read(path, config)),
        },
        diagnostics: seen.diagnostics,
    };
    Ok(Reading { truth, met })
}

/// The proof of a server that was met as it runs: nothing is asked of it for that, no token either. `None` where it does
/// not serve, or is not known to be the target's own.
fn met(seen: &Seen, case: &Case, status: ServerStatus) -> Option<BootProof> {
    let (key, server) = (seen.server()?, seen.processes.first()?);
    if status != ServerStatus::Ready || seen.doubtful || server.pid != key.pid {
        return None;
    }
    let mut readings = seen.levels.clone()?;
    if let (Some(Ok((url, said))), Some((_, _, cmdline))) = (&seen.layers.observed, &seen.layers.process) {
        prove::contradict(case, &mut readings, cmdline, said, url);
    }
    let owner = format!("pid {}, `{}`", key.pid, server.title.visible(160));
    let mut proof = BootProof {
        target: seen.layers.target.clone(),
        process: key,
        started_at: server.started_at?,
        proven_at: Timestamp::now(),
        levels: BTreeMap::new(),
        unverified: BTreeMap::new(),
        readable_env: seen.evidence.as_ref().and_then(|e| service::keeps_environment(e).ok()).unwrap_or(false),
        evidence: vec![prove::seen("port-owner", &owner, "the open sockets of the host")],
    };
    prove::take_levels(&mut proof, readings);
    Some(proof)
}

/// The only question to the host: everything that any layer of this target needs.
async fn ask_host(
    hosts: &Hosts,
    target: &Target,
    overrides: &str,
    modules: &[Wanted],
    ctx: &JobContext,
) -> Result<Probe, Failure> {
    let place = Place::of(target).map_err(HostError::failure)?;
    let mut question = Ask {
        ports: target.port().into_iter().collect(),
        files: files_of(target),
        overrides: Some(overrides.to_owned()),
        gpus: true,
        modules: modules.to_vec(),
        ..Ask::default()
    };
    match &target.manager {
        Manager::Script { log, .. } => question.logs.push((log.clone(), LOG_BYTES)),
        Manager::Systemd { systemd } => question.unit = Some(systemd.clone()),
        Manager::Docker { docker } => {
            question.container = Some(container::Asked { name: docker.clone(), changed: false });
        }
        Manager::Unknown => {}
    }
    probe::ask(hosts, &place, &question, &ctx.cancel).await
}

/// The levels of patches that the source alone switches.
async fn look_at_source(
    seen: &mut Seen,
    source: &Source,
    answer: &Probe,
    hosts: &Hosts,
    target: &Target,
    modules: &[Wanted],
    ctx: &JobContext,
) {
    let Ok(machine) = Machine::of(hosts, target) else { return };
    let (Some(key), Some(mut levels)) = (seen.server(), seen.levels.clone()) else { return };
    let (log, lines) = answer.logs.iter().next().map_or(("", Vec::new()), |(log, read)| {
        let text = String::from_utf8_lossy(read.bytes.as_deref().unwrap_or_default());
        (log.as_str(), text.lines().filter(|l| l.contains(tree::MARK)).map(str::to_owned).collect())
    });
    let from = Evidences { machine: &machine, probe: answer, process: key, modules, lines: &lines, log };
    if let Err(failure) = imported::confirm(source, &mut levels, &from, &ctx.cancel).await {
        seen.say("source-unread", failure, &target.host);
    }
    seen.levels = Some(levels);
}

fn files_of(target: &Target) -> Vec<String> {
    let script = layers::script_path(target).map(str::to_owned);
    [script, layers::config_path(target), layers::environ_path(target)].into_iter().flatten().collect()
}

/// What the host shows.
#[derive(Default)]
struct Seen {
    layers: Layers,
    owner: Owner,
    /// Where the server's variables were read.
    evidence: Option<Evidence>,
    /// The server's tracker, where its own block was read too.
    tracker: Option<Evidence>,
    processes: Vec<ServiceProcess>,
    /// The level of each patch, once a server was seen.
    levels: Option<BTreeMap<String, LevelReading>>,
    /// Which files of patched modules the server imported.
    imports: Vec<super::Row>,
    diagnostics: Vec<Diagnostic>,
    /// Whether the host answered.
    reached: bool,
    /// Whether the owner of the port may be a forwarder, of which no level can be read.
    doubtful: bool,
}

#[derive(Default)]
enum Owner {
    Own(Own),
    Nobody,
    Stranger,
    /// The host could not tell.
    #[default]
    NotRead,
}

impl Seen {
    fn of(target: &Target) -> Self {
        Self { layers: Layers { target: target.name.clone(), ..Layers::default() }, ..Self::default() }
    }

    fn status(&self) -> ServerStatus {
        match self.owner {
            Owner::Own(_) => ServerStatus::Loading,
            Owner::Nobody => ServerStatus::Down,
            Owner::Stranger | Owner::NotRead => ServerStatus::Unknown,
        }
    }

    /// Whether to ask the server: not a stranger, and not over a link that does not stand.
    fn may_ask(&self) -> bool {
        match self.owner {
            Owner::Own(_) => true,
            Owner::NotRead => self.reached,
            Owner::Nobody | Owner::Stranger => false,
        }
    }

    fn server(&self) -> Option<ProcessKey> {
        match &self.owner {
            Owner::Own(own) => Some(own.key),
            Owner::Nobody | Owner::Stranger | Owner::NotRead => None,
        }
    }

    fn take(&mut self, said: impl IntoIterator<Item = layers::Said>) {
        for (code, failure, place) in said {
            self.say(code, failure, &place);
        }
    }

    /// The declaration, whose remarks are said from now on.
    fn remarks_of(&mut self, mut declared: Declared) -> Declared {
        self.diagnostics.append(&mut declared.diagnostics);
        declared
    }

    fn say(&mut self, code: &str, failure: Failure, place: &str) {
        self.diagnostics.push(Diagnostic {
            severity: Severity::Warning,
            code: code.into(),
            message: failure.message,
            place: Some(place.to_owned()),
            hint: failure.hint,
        });
    }
}

fn look(answer: &Probe, target: &Target, patches: &[&Patch]) -> Seen {
    let overrides = answer.overrides.as_deref().unwrap_or_default();
    let mut seen = Seen { reached: true, ..Seen::of(target) };
    seen.diagnostics.extend(answer.diagnostics.iter().cloned());
    seen.diagnostics.extend(answer.host.skew(&target.host));
    let path = layers::script_path(target);
    let (declared, said) = layers::declared(answer, target);
    seen.take(said);
    seen.layers.declared = declared.map(|d| seen.remarks_of(d));
    look_around(&mut seen, answer, target);
    let Some(port) = target.port() else {
        seen.say("no-port", Failure::new("the url has no port"), &target.url);
        return seen;
    };
    let declared = seen.layers.declared.as_ref();
    let argv = declared.map(|d| d.argv.clone()).unwrap_or_default();
    let marks = Marks { script: path.unwrap_or_default(), overrides, argv: &argv };
    match owner::running(answer, &target.name, port, &marks) {
        Ok(Some(own)) => {
            let server = own.key.pid;
            seen.levels = Some(service::levels(answer, server, patches));
            look_at_server(&mut seen, answer, target, overrides, own);
            match imports::not_applicable(target, answer, server, patches) {
                Some(remark) => seen.diagnostics.push(remark),
                None => seen.imports = imports::rows(target, answer, server, &imports::wanted(target, patches)),
            }
        }
        Ok(None) => {
            seen.owner = Owner::Nobody;
            return seen;
        }
        Err(failure) => {
            let told = matches!(answer.ports.get(&port), Some(PortOwners::Processes(_)));
            seen.owner = if told { Owner::Stranger } else { Owner::NotRead };
            seen.say("port-owner", failure, &target.url);
        }
    }
    look_at_log(&mut seen, answer, target);
    seen
}

/// What the host shows beside the declaration and the process: log, checkpoint, installed source, cards.
fn look_around(seen: &mut Seen, answer: &Probe, target: &Target) {
    match layers::checkpoint(answer, target) {
        Ok(config) => seen.layers.checkpoint = config,
        Err(said) => seen.take([said]),
    }
    seen.layers.installed = layers::installed(answer, target);
    seen.layers.capability = layers::capability(answer);
    seen.layers.engine = Some(target.engine);
}

/// The log of the server that runs: of one that is gone, it would speak of another process.
fn look_at_log(seen: &mut Seen, answer: &Probe, target: &Target) {
    match layers::log(answer, target) {
        Ok((source, text)) => seen.layers.seen.add_log(&source, &text),
        Err(said) => seen.take([said]),
    }
    if let Some(what) = layers::log_is_cut(answer, target) {
        let message = format!("{what}: lines of the start may be missing");
        let remark = Diagnostic { severity: Severity::Info, ..Diagnostic::warning("log-cut", message) };
        seen.diagnostics.push(remark.at(target.name.clone()));
    }
    seen.take(layers::needs_reload(answer));
}

fn look_at_server(seen: &mut Seen, answer: &Probe, target: &Target, overrides: &str, own: Own) {
    let pid = own.key.pid;
    let not_read = || Unknown(format!("process {pid} was not read"));
    let process = answer.processes.get(&pid);
    let cmdline = process.map_or_else(|| Err(not_read()), |p| p.cmdline.clone());
    let environ = process.map_or_else(|| Err(not_read()), |p| p.environ.clone());
    let evidence = service::evidence(answer, pid);
    let instead = match (&environ, &evidence.environ) {
        (Err(_), Ok(_)) => format!("{} is read instead", evidence.source()),
        _ => "run as the user who runs the server, or start it with `SPT_NOENV=1`".to_owned(),
    };
    if let Err(Unknown(why)) = &environ {
        let failure = Failure::new(why.clone()).hint(instead);
        seen.say("process-unread", failure, &format!("/proc/{pid}/environ"));
    }
    if let Err(Unknown(why)) = cmdline.as_ref().map(Cmdline::words).map_err(Clone::clone).and_then(|w| w.map(|_| ())) {
        let failure = Failure::new(why).hint("its flags are known only from its script and from the server itself");
        seen.say("process-unread", failure, &format!("/proc/{pid}/cmdline"));
    }
    if let Some(title) = &own.by_port_alone {
        let shown = Untrusted::from(title.as_str()).visible(60);
        let message =
            format!("pid {pid} (`{shown}`) is taken for the server because it owns the port, and nothing else tells");
        seen.say("port-alone", Failure::new(message), &target.url);
        // A forwarder owns ports too, and its variables are not the server's.
        seen.doubtful = !is_model_server(answer, pid) && matches!(cmdline, Ok(Cmdline::Words(_)));
    }
    if let Some(file) = own.started_from.as_deref().filter(|f| f.starts_with(overrides)) {
        let mut said = Vec::new();
        let replaced = layers::of_script(answer, file, target.port(), &BTreeMap::new(), &mut said);
        seen.take(said);
        seen.layers.replaced = replaced.map(|d| (file.to_owned(), seen.remarks_of(d)));
    }
    seen.layers.process = Some((pid, evidence.environ.clone(), cmdline));
    seen.tracker = service::tracker(answer, pid).filter(|_| evidence.origin == Origin::Own && environ.is_ok());
    seen.evidence = Some(evidence);
    seen.processes = service::processes(answer, pid);
    seen.owner = Owner::Own(own);
}

/// Asks the server who it is and what it resolved; says whether it serves. Sources keep the URL of the case,
/// whatever port stands for it here.
async fn ask(hosts: &Hosts, target: &Target, seen: &mut Seen, status: ServerStatus) -> ServerStatus {
    let near = match host::reach(hosts, target).await {
        Ok(near) => near,
        Err(failure) => {
            seen.say("not-forwarded", failure, &target.url);
            return status;
        }
    };
    let (here, far) = (near.url.trim_end_matches('/'), target.url.trim_end_matches('/'));
    let there = |text: &str| text.replace(here, far);
    let endpoint = match http::endpoint(&near).await {
        Ok(endpoint) => endpoint,
        Err(failure) => {
            seen.say("no-client", failure, &target.url);
            return status;
        }
    };
    match endpoint.identity().await {
        Ok((url, answer)) if target.engine == ServingEngine::Sglang && target.role != Role::Router => {
            seen.layers.seen.add_model_info(&there(&url), answer);
        }
        Ok(_) => {}
        Err(error) => {
            let why = format!("the server does not serve: {}", there(&error.to_string()));
            seen.say("not-ready", Failure::new(why), &target.url);
            return status;
        }
    }
    if target.role == Role::Router {
        // A router passes on what one of its workers says of itself; its load is that of all of them.
        if let Ok((url, answer)) = endpoint.load_answer().await {
            seen.layers.seen.add_loads(&there(&url), &answer);
        }
        return ServerStatus::Ready;
    }
    seen.layers.observed = Some(match endpoint.configuration().await {
        Ok((url, answer)) => {
            let url = there(&url);
            match target.engine {
                ServingEngine::LlamaServer => seen.layers.seen.add_props(&url, answer.clone()),
                ServingEngine::Sglang | ServingEngine::Vllm => seen.layers.seen.add_server_info(&url, answer.clone()),
            }
            Ok((url, flags::observed(&answer)))
        }
        Err(error) => {
            let why = format!("the server's configuration cannot be read: {}", there(&error.to_string()));
            seen.say("configuration-unread", Failure::new(why.clone()), &target.url);
            Err(why)
        }
    });
    if let Ok((url, answer)) = endpoint.load_answer().await {
        seen.layers.seen.add_loads(&there(&url), &answer);
    }
    // Absent where the server was not told to count.
    if let Ok((url, text)) = endpoint.metrics().await {
        seen.layers.seen.add_metrics(&there(&url), &text);
    }
    seen.diagnostics.extend(seen.layers.seen.remarks());
    ServerStatus::Ready
}

/// The rows of the comparison, each with the block that its value was read in, and what the server changed
/// of its own variables since.
fn rows(seen: &Seen, patches: &[&Patch]) -> Vec<super::Row> {
    let mut rows = compare::rows(&seen.layers, patches);
    if let Some(evidence) = &seen.evidence {
        service::relabel(&mut rows, evidence);
    }
    if let (Some(tracker), Some((_, Ok(own), _))) = (&seen.tracker, &seen.layers.process) {
        let gates: Vec<&str> = patches.iter().map(|p| p.gate.switch_name()).collect();
        let declares = |d: &Declared, name: &str| d.variables.contains_key(name);
        let matters = |name: &str| {
            gates.contains(&name)
                || seen.layers.declared.as_ref().is_some_and(|d| declares(d, name))
                || seen.layers.replaced.as_ref().is_some_and(|(_, d)| declares(d, name))
        };
        let changed = service::changed_since_start(&seen.layers.target, own, tracker, matters);
        let (first, last): (Vec<_>, Vec<_>) = changed.into_iter().partition(|r| r.status == super::RowStatus::Differs);
        rows.splice(0..0, first);
        rows.extend(last);
    }
    let (first, last): (Vec<_>, Vec<_>) =
        seen.imports.iter().cloned().partition(|r| r.status < super::RowStatus::OneSource);
    rows.splice(0..0, first);
    rows.extend(last);
    rows
}

type Levels = BTreeMap<String, Option<String>>;

fn unknown_levels(patches: &[&Patch], why: &str) -> (Levels, BTreeMap<String, String>) {
    let levels = patches.iter().map(|p| (p.id.clone(), None)).collect();
    (levels, patches.iter().map(|p| (p.id.clone(), why.to_owned())).collect())
}

/// The level of each patch that the host shows, and where.
fn patch_levels(seen: &Seen, patches: &[&Patch]) -> (Levels, BTreeMap<String, String>) {
    let Some(read) = &seen.levels else { return unknown_levels(patches, "no process was read") };
    if seen.doubtful {
        return unknown_levels(patches, "the process that owns the port is not known to be the server");
    }
    let mut levels = BTreeMap::new();
    let mut sources = BTreeMap::new();
    for (patch, reading) in read {
        let source = match &reading.level {
            Ok(_) => format!("{}: {}", reading.source, reading.seen),
            Err(Unknown(why)) => redact::text(&format!("{}: {why}", reading.source)),
        };
        sources.insert(patch.clone(), source);
        levels.insert(patch.clone(), reading.level.clone().ok());
    }
    (levels, sources)
}

/// Reads the load of a server once, or sees that it answers, or that it does not.
///
/// # Errors
/// Its host cannot be reached, or its key cannot be read, so that nothing is known of the server.
pub async fn load_once(hosts: &Hosts, target: &Target) -> Result<Live, Diagnostic> {
    let near = host::reach(hosts, target).await.map_err(|f| Diagnostic::warning("load", f.message))?;
    let endpoint = http::endpoint(&near).await.map_err(|f| Diagnostic::warning("load", f.message))?;
    let answer = match endpoint.load_answer().await {
        // A server that tells no load is asked who it is.
        Err(ServingError::NotSupported { .. }) => endpoint.identity().await,
        answer => answer,
    };
    let (at, target) = (Timestamp::now(), target.name.clone());
    match answer {
        Ok((_, answer)) => {
            let values = load_values(&answer);
            Ok(if values.is_empty() { Live::Answers { target, at } } else { Live::Load { target, at, values } })
        }
        Err(ServingError::Connection { because, .. }) => {
            // The number of the error says nothing more.
            let why = because.split(" (os error").next().unwrap_or_default().to_lowercase();
            Ok(Live::Silent { target, at, why })
        }
        Err(e @ ServingError::TimedOut { .. }) => Ok(Live::Silent { target, at, why: e.to_string() }),
        // Whatever it is, it came from the server.
        Err(ServingError::Status { .. } | ServingError::BadAnswer { .. } | ServingError::TooLong { .. }) => {
            Ok(Live::Answers { target, at })
        }
        Err(e) => Err(Diagnostic::warning("load", e.to_string())),
    }
}

/// The load over all ranks, by the names under which the workbench shows it.
fn load_values(answer: &Value) -> BTreeMap<String, f64> {
    let shown = |name: &str| match name {
        "num_running_reqs" => "running".to_owned(),
        "num_waiting_reqs" => "waiting".to_owned(),
        "num_used_tokens" => "used_tokens".to_owned(),
        "token_usage" => "kv_usage".to_owned(),
        other => other.to_owned(),
    };
    load::over_ranks(answer).into_iter().flatten().map(|(name, value)| (shown(name), value)).collect()
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
