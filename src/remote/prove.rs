//! The proof of a start: new process, port, ready line, first token, levels read back.
//!
//! Reads only. What cannot be read back is said to be unverified, never assumed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::host::reach;
use super::http;
use super::levels::LevelReading;
use super::machine::Machine;
use super::probe::types::{PortOwners, Probe};
use super::probe::{self, Ask, Wanted, container};
use super::proc::{Cmdline, Unknown};
use super::procedures::{Means, folder_of};
use super::router::ready;
use super::source::imported::{self, Evidences};
use super::source::look::Source;
use super::source::{self, tree};
use super::watch::{self, Contained, Look};
use crate::case::{Case, Gate, LevelValue, Manager, Patch, Role, Target};
use crate::engine::job::JobContext;
use crate::engine::live::Live;
use crate::engine::procedure::{BootExpectation, BootProof, Evidence, Failure, ProcessKey};
use crate::redact;
use crate::serving::client::Client;
use crate::serving::load_phase::Loading;
pub use crate::serving::load_phase::ready_line;
use crate::truth::{flags, service};
use crate::untrusted::Untrusted;

/// Log lines that a failure shows.
const LAST_LINES: usize = 12;
/// Between two looks at this machine, and at another.
const POLL: Duration = Duration::from_millis(100);
const POLL_AFAR: Duration = Duration::from_secs(1);
/// How often what fails over a link is tried again.
const TRIES_AFAR: u32 = 20;

/// Waits until a start is proven.
///
/// # Errors
/// The server ended or was not ready in time (with its last log lines), a stranger owns the port, a level
/// is not the one that was asked for, or the job was cancelled.
pub async fn prove(
    means: &Means,
    case: &Case,
    target: &Target,
    expect: &BootExpectation,
    timeout_s: f64,
    ctx: &JobContext,
) -> Result<BootProof, Failure> {
    let machine = Machine::of(&means.hosts, target)?.patient();
    let asked = Asked { means, case, target, machine: &machine, ctx };
    let mut watch = Watch::new(target, expect);
    ctx.live(Live::Loading { target: target.name.clone(), loading: watch.loading.clone() });
    let mut evidence = Vec::new();
    if let Some(old) = expect.old {
        if runs(&machine, old, ctx).await? {
            return Err(Failure::new(format!("the process before, pid {}, still runs", old.pid)));
        }
        evidence.push(seen(
            "old-process",
            &format!("pid {} started at tick {} is gone", old.pid, old.start_ticks),
            format!("/proc/{}", old.pid),
        ));
    }
    let (near, endpoint) = asked.endpoint().await?;
    let limit = tokio::time::sleep(Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX));
    let ready = async {
        loop {
            if let Some(pid) = watch.look(&asked, &endpoint).await? {
                return Ok::<u32, Failure>(pid);
            }
            tokio::time::sleep(if target.is_local() { POLL } else { POLL_AFAR }).await;
        }
    };
    let pid = tokio::select! {
        ready = ready => ready?,
        () = limit => {
            let why = watch.waiting.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            return Err(watch.failure(format!("`{}` was not ready within {timeout_s} s{why}", target.name)));
        }
        () = ctx.cancel.cancelled() => return Err(Failure::new("cancelled while waiting for the server")),
    };
    evidence.append(&mut watch.evidence);
    let source = asked.source().await;
    let modules = source.as_ref().map(imported::wanted).unwrap_or_default();
    let answer = asked.probe(&modules).await?;
    let key = key_of(&answer, pid)?;
    if expect.old.is_some_and(|old| old.pid == key.pid || key.start_ticks < old.start_ticks) {
        return Err(Failure::new(format!("pid {} is not newer than the process before", key.pid)));
    }
    evidence.insert(
        evidence.len().min(1),
        seen("pid", &format!("pid {pid} started at tick {}", key.start_ticks), format!("/proc/{pid}/stat")),
    );
    let seen_source = source.as_ref().map(|source| (source, &watch, &modules[..]));
    let proof = asked.gather(&answer, key, &near, &endpoint, seen_source, evidence).await?;
    for wanted in &expect.readback {
        let imported = format!("imported:{}", wanted.patch);
        // What the checkout itself gives may have changed while the server loaded: that is read and is nobody's failure.
        let left = |level: &str| level == source::OUT && !proof.evidence.iter().any(|e| e.about == imported);
        let is_source = case.patch(&wanted.patch).is_some_and(|p| matches!(p.gate, Gate::Reverse { .. }));
        if let Some(level) = proof.levels.get(&wanted.patch).filter(|l| **l != wanted.level && !(is_source && left(l)))
        {
            let message =
                format!("`{}` was asked to be `{}` and the new process has `{level}`", wanted.patch, wanted.level);
            return Err(Failure::new(message).hint("something between the script and the server sets it again"));
        }
    }
    Ok(proof)
}

/// Whether exactly this process runs on a host; a zombie does not.
///
/// # Errors
/// The host cannot be asked.
pub async fn runs(machine: &Machine, key: ProcessKey, ctx: &JobContext) -> Result<bool, Failure> {
    let text = super::shell_text::runs(key);
    let end = machine.read(&text, 20.0, &ctx.cancel).await.map_err(super::machine::ShellFailure::failure)?;
    match end.out.trim() {
        "runs" => Ok(true),
        "gone" => Ok(false),
        _ => Err(Failure::new(format!("cannot tell whether pid {} runs: {}", key.pid, end.last_line()))),
    }
}

fn key_of(answer: &Probe, pid: u32) -> Result<ProcessKey, Failure> {
    match answer.processes.get(&pid).map(|p| &p.stat) {
        Some(Ok(stat)) if stat.runs() => Ok(stat.key),
        Some(Err(Unknown(why))) => Err(Failure::new(why.clone())),
        Some(Ok(_)) | None => Err(Failure::new(format!("pid {pid} ended while it was being proven"))),
    }
}

/// A URL as the case has it, whatever port stands for it here.
fn far(near: &Target, target: &Target, url: &str) -> String {
    url.replace(near.url.trim_end_matches('/'), target.url.trim_end_matches('/'))
}

/// One thing that was seen, its secrets taken out.
pub(crate) fn seen(about: &str, what: &str, source: impl Into<String>) -> Evidence {
    Evidence { about: about.into(), seen: Untrusted::from(redact::text(what)), source: source.into() }
}

/// What is watched while a server loads.
struct Watch<'a> {
    target: &'a Target,
    expect: &'a BootExpectation,
    question: watch::Question,
    last: Vec<String>,
    ready: Option<String>,
    began: bool,
    /// Why a router cannot serve yet, in its own words.
    waiting: Option<String>,
    /// Lines of the log that name a copy of ours of the source.
    copies: Vec<String>,
    evidence: Vec<Evidence>,
    loading: Loading,
}

impl<'a> Watch<'a> {
    fn new(target: &'a Target, expect: &'a BootExpectation) -> Self {
        let run = expect.pid_file.as_deref().and_then(|f| f.strip_suffix(".pid")).map(str::to_owned);
        let unit = expect.unit.as_ref().map(|u| (u.name.clone(), String::new()));
        let container = expect.container.as_ref().map(|c| (c.name.clone(), String::new()));
        let file = unit.is_none() && container.is_none();
        let log = file.then(|| (expect.log.clone(), expect.log_offset));
        let question = watch::Question { port: expect.port, run, log, unit, container };
        Self {
            target,
            expect,
            question,
            last: Vec::new(),
            ready: None,
            began: false,
            waiting: None,
            copies: Vec::new(),
            evidence: Vec::new(),
            loading: Loading::new(target.engine, Timestamp::now()),
        }
    }

    fn log_name(&self) -> String {
        match &self.expect.unit {
            Some(unit) => format!("journal of {}", unit.name),
            None => self.expect.log.clone(),
        }
    }

    fn failure(&self, message: String) -> Failure {
        let log = self.log_name();
        if self.last.is_empty() {
            return Failure::new(message).hint(format!("its log `{log}` got no new line"));
        }
        let lines = self.last.join("\n");
        let shown: Vec<String> = lines.lines().map(|l| Untrusted::from(l).visible(200)).collect();
        let see = self
            .expect
            .unit
            .as_ref()
            .map_or_else(|| format!("see `{log}`"), |u| format!("see `journalctl -u {}`", u.name));
        Failure::new(format!("{message}; last log lines: {}", shown.join(" ⏎ "))).hint(see)
    }

    fn take_lines(&mut self, lines: Vec<String>, ctx: &JobContext) {
        for line in lines {
            let line = redact::text(&line);
            ctx.live(Live::ServerLog { target: self.target.name.clone(), line: Untrusted::from(line.as_str()) });
            if self.ready.is_none() && line.contains(ready_line(self.target.engine, self.target.role)) {
                self.ready = Some(line.clone());
            }
            if line.contains(tree::MARK) {
                self.copies.push(line.clone());
            }
            if self.loading.take(&line, Timestamp::now()) {
                ctx.live(Live::Loading { target: self.target.name.clone(), loading: self.loading.clone() });
            }
            self.last.push(line);
        }
        let surplus = self.last.len().saturating_sub(LAST_LINES);
        self.last.drain(..surplus);
    }

    /// One look; the pid of the server once it is ready.
    async fn look(&mut self, asked: &Asked<'_>, endpoint: &Client) -> Result<Option<u32>, Failure> {
        let ctx = asked.ctx;
        let look = loop {
            let mut look = watch::look(asked.machine, &self.question, &ctx.cancel).await?;
            self.question = look.next.clone();
            // What the server before wrote after the planning does not count either.
            if !std::mem::replace(&mut self.began, true)
                && let (Some((_, offset)), Some(at)) =
                    (&mut self.question.log, look.start.as_ref().and_then(|s| s.offset))
            {
                *offset = at.max(self.expect.log_offset);
                continue;
            }
            self.take_lines(std::mem::take(&mut look.lines), ctx);
            if !look.more {
                break look;
            }
        };
        if let Some(status) = look.start.as_ref().and_then(watch::Start::ended) {
            return Err(
                self.failure(format!("`{}` ended while it was loading, with status {status}", self.target.name))
            );
        }
        if let Some(container) = &look.container {
            self.container_runs(container)?;
        }
        if let Some(unit) = &look.unit
            && !self.unit_runs(unit)?
        {
            ctx.progress(0, None, "waiting for systemd");
            return Ok(None);
        }
        let pids = match &look.owners {
            PortOwners::Processes(pids) => pids,
            PortOwners::Nobody | PortOwners::Unknown(_) => {
                ctx.progress(0, None, "loading");
                return Ok(None);
            }
        };
        let Some(pid) = pids.first().copied() else { return Ok(None) };
        if let Some(why) = stranger(&look, pid) {
            return Err(
                self.failure(format!("port {} is owned by another process: pid {pid}, {why}", self.expect.port))
            );
        }
        if self.target.role == Role::Router {
            match ready::routes(self.target, endpoint).await {
                ready::Routes::Ready(evidence) => {
                    self.evidence.extend([
                        seen("port-owner", &format!("pid {pid}"), format!("/proc/net/tcp, port {}", self.expect.port)),
                        evidence,
                    ]);
                    return Ok(Some(pid));
                }
                ready::Routes::NotYet(why) => {
                    ctx.progress(0, None, format!("waiting for the router: {why}"));
                    self.waiting = Some(why);
                    return Ok(None);
                }
                ready::Routes::Silent => {}
            }
        }
        // A server that is met may have said so long ago.
        let met = self.expect.unit.as_ref().is_some_and(|u| u.old_invocation.is_none())
            || self.expect.container.as_ref().is_some_and(|c| c.met);
        if self.ready.is_none() && !met {
            ctx.progress(0, None, "waiting for the ready line");
            return Ok(None);
        }
        let Ok((url, _)) = endpoint.identity().await else {
            ctx.progress(0, None, "waiting for the first answer");
            return Ok(None);
        };
        let near = endpoint.base();
        self.evidence.extend([
            seen("port-owner", &format!("pid {pid}"), format!("/proc/net/tcp, port {}", self.expect.port)),
            seen(
                "identity",
                "answered",
                url.replace(near.trim_end_matches('/'), self.target.url.trim_end_matches('/')),
            ),
        ]);
        self.evidence.extend(self.ready.as_ref().map(|line| seen("ready-line", line, self.log_name())));
        self.evidence.extend(self.loading.evidence(&self.log_name()));
        Ok(Some(pid))
    }

    /// # Errors
    /// The container ended.
    fn container_runs(&mut self, container: &Result<Contained, Unknown>) -> Result<(), Failure> {
        let (Some(expect), Ok(is)) = (&self.expect.container, container) else { return Ok(()) };
        let name = &expect.name;
        if !is.running {
            let why =
                if is.out_of_memory { "was out of memory".into() } else { format!("ended with status {}", is.exit) };
            return Err(self.failure(format!("container `{name}` {why} while its server was loading")));
        }
        if !self.evidence.iter().any(|e| e.about == "container") {
            self.evidence.push(seen("container", &format!("{name} runs, id {}", is.id), "container inspect"));
        }
        Ok(())
    }

    /// Whether the unit runs a new invocation.
    ///
    /// # Errors
    /// It failed, or systemd restarted it by itself.
    fn unit_runs(&mut self, properties: &Result<BTreeMap<String, Untrusted>, Unknown>) -> Result<bool, Failure> {
        let Some(expect) = &self.expect.unit else { return Ok(true) };
        let Ok(properties) = properties else { return Ok(false) };
        let text = |name: &str| properties.get(name).map_or("", Untrusted::raw);
        let (state, result, invocation) = (text("ActiveState"), text("Result"), text("InvocationID"));
        let name = &expect.name;
        if result == "start-limit-hit" {
            return Err(self
                .failure(format!("systemd refuses to start `{name}` again: it was started too often"))
                .hint(format!("`systemctl reset-failed {name}` lets it start again")));
        }
        if expect.old_invocation.as_deref() == Some(invocation) {
            return Ok(false);
        }
        if state == "failed" {
            return Err(self.failure(format!("`{name}` failed while it was loading: {result}")));
        }
        let restarts: Option<u32> = text("NRestarts").parse().ok();
        if let (Some(before), Some(now)) = (expect.restarts, restarts)
            && now > before
        {
            return Err(
                self.failure(format!("`{name}` crashed and was restarted by systemd ({before} to {now} restarts)"))
            );
        }
        if state != "active" && state != "activating" {
            return Ok(false);
        }
        if !self.evidence.iter().any(|e| e.about == "invocation") {
            let source = format!("systemctl show {name}");
            let old = expect.old_invocation.as_deref().unwrap_or("none");
            self.evidence.push(seen("invocation", &format!("{invocation}, before it {old}"), source));
        }
        Ok(true)
    }
}

/// Why the owner of the port is not of this start; `None` where it is.
fn stranger(look: &Look, pid: u32) -> Option<String> {
    if let Some(start) = &look.start {
        let ours = start.leader == Some(pid) || start.members.contains(&pid);
        return (start.made && !ours).then(|| "which does not belong to the start".to_owned());
    }
    if let Some(container) = &look.container {
        let (Ok(container), Some(own)) = (container, look.cgroups.get(&pid)) else {
            return Some("whose container cannot be read".to_owned());
        };
        let own = Untrusted::from(own.trim());
        return (!container::holds(&container.id, &own))
            .then(|| format!("which is in `{}` and not in the container", own.visible(80)));
    }
    let properties = look.unit.as_ref()?;
    let group = properties.as_ref().ok().and_then(|p| Some(p.get("ControlGroup")?.raw().to_owned()));
    let (Some(group), Some(own)) = (group, look.cgroups.get(&pid)) else {
        return Some("whose control group cannot be read".to_owned());
    };
    let within = own.lines().any(|l| {
        let path = l.rsplit_once(':').map_or(l, |(_, path)| path);
        // In a container of its own, the host's path stands in front.
        !group.is_empty() && (path.ends_with(&group) || path.contains(&format!("{group}/")))
    });
    (!within).then(|| format!("which is in `{}` and not in `{group}`", Untrusted::from(own.trim()).visible(80)))
}

/// What a proof asks with.
struct Asked<'a> {
    means: &'a Means,
    case: &'a Case,
    target: &'a Target,
    machine: &'a Machine,
    ctx: &'a JobContext,
}

impl Asked<'_> {
    /// How often what fails over a link is tried again.
    fn tries(&self) -> u32 {
        if self.target.is_local() { 0 } else { TRIES_AFAR }
    }

    /// Waits a moment for another try: the link may have broken in the middle, and is made anew meanwhile.
    async fn once_more(&self, left: &mut u32) -> bool {
        if *left == 0 || self.ctx.cancel.is_cancelled() {
            return false;
        }
        *left -= 1;
        tokio::time::sleep(POLL_AFAR).await;
        true
    }

    /// The target as this machine reaches it, and the client that asks it.
    async fn endpoint(&self) -> Result<(Target, Client), Failure> {
        let mut left = self.tries();
        loop {
            let failure = match reach(&self.means.hosts, self.target).await {
                Ok(near) => return Ok((near.clone(), http::endpoint(&near).await?)),
                Err(failure) => failure,
            };
            if !self.once_more(&mut left).await {
                return Err(failure);
            }
        }
    }

    /// The source of the patches that it alone switches.
    async fn source(&self) -> Option<Source> {
        let Self { case, target, machine, means, ctx } = *self;
        let patches: Vec<&Patch> = case.patches_of(&target.name).collect();
        let (folder, _) = folder_of(&means.folders, target);
        source::look::look(machine, target, &patches, &folder, &ctx.cancel).await
    }

    async fn probe(&self, modules: &[Wanted]) -> Result<Probe, Failure> {
        let mut ask = Ask {
            modules: modules.to_vec(),
            ports: self.target.port().into_iter().collect(),
            overrides: Some(folder_of(&self.means.folders, self.target).0),
            ..Ask::default()
        };
        match &self.target.manager {
            Manager::Script { script, .. } => ask.files.push(script.clone()),
            Manager::Systemd { systemd } => ask.unit = Some(systemd.clone()),
            Manager::Docker { docker } => {
                ask.container = Some(container::Asked { name: docker.clone(), changed: false });
            }
            Manager::Unknown => {}
        }
        let mut left = self.tries();
        loop {
            let failure = match probe::ask(&self.means.hosts, self.machine.place(), &ask, &self.ctx.cancel).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !self.once_more(&mut left).await {
                return Err(failure);
            }
        }
    }

    /// First token and levels of a server that answers.
    async fn gather(
        &self,
        answer: &Probe,
        process: ProcessKey,
        near: &Target,
        endpoint: &Client,
        source: Option<(&Source, &Watch<'_>, &[Wanted])>,
        mut evidence: Vec<Evidence>,
    ) -> Result<BootProof, Failure> {
        let Self { case, target, machine, ctx, .. } = *self;
        ctx.progress(0, None, "asking for the first token");
        let mut left = self.tries();
        let (url, text) = loop {
            let token = tokio::select! {
                // What a router passes on is computed by two servers.
                token = endpoint.whole_request(), if target.role == Role::Router => token,
                token = endpoint.one_token(), if target.role != Role::Router => token,
                () = ctx.cancel.cancelled() => return Err(Failure::new("cancelled while waiting for the first token")),
            };
            match token {
                Ok(token) => break token,
                Err(_) if self.once_more(&mut left).await => {}
                Err(e) => return Err(Failure::new(format!("`{}` gives no first token: {e}", target.name))),
            }
        };
        let text = text.map_or_else(|| "an answer without text".into(), |t| format!("{:?}", t.raw()));
        evidence.push(seen("first-token", &text, far(near, target, &url)));
        ctx.progress(0, None, "reading the levels back");
        let pid = process.pid;
        let patches: Vec<&Patch> = case.patches_of(&target.name).collect();
        let mut readings = service::levels(answer, pid, &patches);
        if let Ok((url, said)) = endpoint.configuration().await
            && let Some(process) = answer.processes.get(&pid)
        {
            contradict(case, &mut readings, &process.cmdline, &flags::observed(&said), &far(near, target, &url));
        }
        if !runs(machine, process, ctx).await? {
            return Err(Failure::new(format!("pid {pid} ended while it was being proven")));
        }
        let started_at = answer.host.started_at(process).map_err(|Unknown(why)| Failure::new(why))?;
        if let Some((source, watch, modules)) = source {
            let (log, lines) = (watch.log_name(), &watch.copies);
            let from = Evidences { machine, probe: answer, process, modules, lines, log: &log };
            evidence.extend(imported::confirm(source, &mut readings, &from, &ctx.cancel).await?);
        }
        let mut proof = BootProof {
            target: target.name.clone(),
            process,
            started_at,
            proven_at: Timestamp::now(),
            levels: BTreeMap::new(),
            unverified: BTreeMap::new(),
            readable_env: service::keeps_environment(&service::evidence(answer, pid)).unwrap_or(false),
            evidence,
        };
        take_levels(&mut proof, readings);
        Ok(proof)
    }
}

/// Puts the levels that were read into a proof, those that were not with the reason.
pub(crate) fn take_levels(proof: &mut BootProof, readings: BTreeMap<String, LevelReading>) {
    for (patch, reading) in readings {
        match reading.level {
            Ok(level) => {
                proof.evidence.push(seen(&format!("level:{patch}"), &reading.seen, reading.source));
                proof.levels.insert(patch, level);
            }
            Err(Unknown(why)) => {
                proof.unverified.insert(patch, format!("{why} ({})", reading.source));
            }
        }
    }
}

/// Takes back the level of a flag that the server itself reports otherwise; `said` are its values by flag.
pub(crate) fn contradict(
    case: &Case,
    readings: &mut BTreeMap<String, LevelReading>,
    cmdline: &Result<Cmdline, Unknown>,
    said: &BTreeMap<String, Value>,
    url: &str,
) {
    let Ok(Ok(words)) = cmdline.as_ref().map(Cmdline::words) else { return };
    let words = super::argv::known(words);
    for (id, reading) in readings.iter_mut().filter(|(_, r)| r.level.is_ok()) {
        let Some(Gate::Flag { flag, levels }) = case.patch(id).map(|p: &Patch| &p.gate) else { continue };
        let given = super::argv::flag_value(&words, flag, super::levels::takes_value(levels)).ok().flatten();
        let Some(value) = said.get(&flags::key(flag)) else { continue };
        let agrees = match &given {
            Some(given) => flags::same(given, value),
            // What a server has by default is not known here; the value of another level is none of it.
            None => !levels.values().any(|l| matches!(l, LevelValue::Set(text) if flags::same(text, value))),
        };
        if !agrees {
            let value = redact::value(flag, &flags::shown(value));
            reading.level = Err(Unknown(format!("the command line says `{}` and {url} says `{value}`", reading.seen)));
        }
    }
}
