//! The proof of a start: new process, port, ready line, first token, levels read back.
//!
//! Reads only. What cannot be read back is said to be unverified, never assumed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::http;
use super::levels::{self, LevelReading};
use super::local::{self, PortOwner};
use super::owner::{self, Marks};
use super::proc::{Cmdline, ProcessInfo, Unknown};
use super::script;
use crate::case::{Case, Gate, LevelValue, Manager, Patch, ServingEngine, Target};
use crate::engine::job::JobContext;
use crate::engine::live::Live;
use crate::engine::procedure::{BootExpectation, BootProof, Evidence, Failure, ProcessKey};
use crate::redact;
use crate::serving::client::Client;
use crate::truth::flags;
use crate::truth::survey::recognise::is_server_command;
use crate::untrusted::Untrusted;

/// Log lines that a failure shows.
const LAST_LINES: usize = 12;
const POLL: Duration = Duration::from_millis(100);

/// Waits until a start is proven.
///
/// # Errors
/// The server ended or was not ready in time (with its last log lines), a stranger owns the port, a level
/// is not the one that was asked for, or the job was cancelled.
pub async fn prove(
    case: &Case,
    target: &Target,
    expect: &BootExpectation,
    timeout_s: f64,
    ctx: &JobContext,
) -> Result<BootProof, Failure> {
    let mut watch = Watch::new(target, expect);
    let mut evidence = Vec::new();
    if let Some(old) = expect.old {
        if local::runs(old) {
            return Err(Failure::new(format!("the process before, pid {}, still runs", old.pid)));
        }
        evidence.push(seen(
            "old-process",
            &format!("pid {} started at tick {} is gone", old.pid, old.start_ticks),
            format!("/proc/{}", old.pid),
        ));
    }
    let endpoint = http::endpoint(target).await?;
    let limit = tokio::time::sleep(Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX));
    let ready = async {
        loop {
            if let Some(ready) = watch.look(&endpoint, ctx).await? {
                return Ok::<Ready, Failure>(ready);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let ready = tokio::select! {
        ready = ready => ready?,
        () = limit => return Err(watch.failure(format!("`{}` was not ready within {timeout_s} s", target.name))),
        () = ctx.cancel.cancelled() => return Err(Failure::new("cancelled while waiting for the server")),
    };
    let key = ready.process.key;
    if expect.old.is_some_and(|old| old.pid == key.pid || key.start_ticks < old.start_ticks) {
        return Err(Failure::new(format!("pid {} is not newer than the process before", key.pid)));
    }
    evidence.extend(ready.evidence);
    let proof = gather(case, target, &ready.process, &endpoint, evidence, ctx).await?;
    for wanted in &expect.readback {
        if let Some(level) = proof.levels.get(&wanted.patch).filter(|l| **l != wanted.level) {
            let message =
                format!("`{}` was asked to be `{}` and the new process has `{level}`", wanted.patch, wanted.level);
            return Err(Failure::new(message).hint("something between the script and the server sets it again"));
        }
    }
    Ok(proof)
}

/// Proves a server that runs already, whoever started it; `None` where nobody owns the port.
///
/// # Errors
/// The port is a stranger's, or the server does not answer.
pub async fn adopt(case: &Case, target: &str, ctx: &JobContext) -> Result<Option<BootProof>, Failure> {
    let folders = super::procedures::Folders::standard()?;
    adopt_in(&folders, case, target, ctx).await
}

/// [`adopt`] with our files in the given folder.
///
/// # Errors
/// See [`adopt`].
pub async fn adopt_in(
    folders: &super::procedures::Folders,
    case: &Case,
    target: &str,
    ctx: &JobContext,
) -> Result<Option<BootProof>, Failure> {
    let target = case.target(target).ok_or_else(|| Failure::new(format!("the case has no target `{target}`")))?;
    if !target.is_local() {
        return Err(Failure::new(format!(
            "`{}` runs on `{}`, and only this machine can be read yet",
            target.name, target.host
        )));
    }
    let port = target.port().ok_or_else(|| Failure::new(format!("the url of `{}` has no port", target.name)))?;
    let Some(process) = target_process(target, port, &folders.overrides.display().to_string())? else {
        return Ok(None);
    };
    let endpoint = http::endpoint(target).await?;
    let (url, _) = endpoint.identity().await.map_err(|e| {
        Failure::new(format!("pid {} owns port {port} and does not serve yet: {e}", process.key.pid))
            .hint("wait until it is ready")
    })?;
    let evidence = vec![
        seen("port-owner", &owner::describe(process.key.pid), format!("/proc/net/tcp, port {port}")),
        seen("identity", "answered", url),
    ];
    gather(case, target, &process, &endpoint, evidence, ctx).await.map(Some)
}

/// The target's own process on its port. A target without a readable script is taken at its port's word.
pub(crate) fn target_process(target: &Target, port: u16, overrides: &str) -> Result<Option<ProcessInfo>, Failure> {
    let path = match &target.manager {
        Manager::Script { script, .. } => Some(script.as_str()),
        Manager::Systemd { .. } | Manager::Docker { .. } | Manager::Unknown => None,
    };
    if let Some(path) = path
        && let Ok(text) = super::procedures::read_script(path)
    {
        let declared = script::declared(&script::parse(&text)?, path, Some(port));
        let marks = Marks { script: path, overrides, argv: &declared.argv };
        return Ok(owner::running(&target.name, port, &marks)?.map(|r| r.process));
    }
    match local::port_owner(port) {
        PortOwner::Nobody => Ok(None),
        PortOwner::Process(process) => {
            // A forwarder, such as docker's, owns ports too, and its environment is not the server's.
            let pid = process.key.pid;
            let line = local::cmdline(pid);
            let words = line.as_ref().ok().and_then(|l| l.words().ok());
            if words.is_some_and(|w| is_server_command(&super::argv::known(w))) {
                return Ok(Some(process));
            }
            let who = owner::describe(pid);
            Err(Failure::new(format!("port {port} of `{}` is owned by no known model server: {who}", target.name))
                .hint("name the target's `launch_script`, so that its server can be told from others"))
        }
        PortOwner::Unknown(Unknown(why)) => Err(Failure::new(why)),
    }
}

fn seen(about: &str, what: &str, source: impl Into<String>) -> Evidence {
    Evidence { about: about.into(), seen: Untrusted::from(redact::text(what)), source: source.into() }
}

/// The line that says that an engine is ready.
pub fn ready_line(engine: ServingEngine) -> &'static str {
    match engine {
        ServingEngine::Sglang => "The server is fired up and ready to roll!",
        ServingEngine::Vllm => "Application startup complete",
        ServingEngine::LlamaServer => "server is listening",
    }
}

struct Ready {
    process: ProcessInfo,
    evidence: Vec<Evidence>,
}

/// What is watched while a server loads.
struct Watch<'a> {
    target: &'a Target,
    expect: &'a BootExpectation,
    offset: u64,
    last: Vec<String>,
    ready: Option<String>,
}

impl<'a> Watch<'a> {
    fn new(target: &'a Target, expect: &'a BootExpectation) -> Self {
        // What the server before wrote after the planning does not count either.
        let run = expect.pid_file.as_deref().and_then(|f| f.strip_suffix(".pid"));
        let at_start = run.and_then(|r| trace(r, "offset")?.trim().parse().ok());
        let offset = expect.log_offset.max(at_start.unwrap_or(0));
        Self { target, expect, offset, last: Vec::new(), ready: None }
    }

    fn failure(&self, message: String) -> Failure {
        if self.last.is_empty() {
            return Failure::new(message).hint(format!("its log `{}` got no new line", self.expect.log));
        }
        let lines = self.last.join("\n");
        let shown: Vec<String> = lines.lines().map(|l| Untrusted::from(l).visible(200)).collect();
        Failure::new(format!("{message}; last log lines: {}", shown.join(" ⏎ ")))
            .hint(format!("see `{}`", self.expect.log))
    }

    fn follow_log(&mut self, ctx: &JobContext) {
        while let Ok(tail) = local::tail(&self.expect.log, self.offset)
            && tail.offset != self.offset
        {
            self.take_lines(tail, ctx);
        }
    }

    fn take_lines(&mut self, tail: local::Tail, ctx: &JobContext) {
        self.offset = tail.offset;
        for line in tail.lines {
            let line = redact::text(&line);
            ctx.live(Live::ServerLog { target: self.target.name.clone(), line: Untrusted::from(line.as_str()) });
            if self.ready.is_none() && line.contains(ready_line(self.target.engine)) {
                self.ready = Some(line.clone());
            }
            self.last.push(line);
        }
        let surplus = self.last.len().saturating_sub(LAST_LINES);
        self.last.drain(..surplus);
    }

    /// One look; the server once it is ready.
    async fn look(&mut self, endpoint: &Client, ctx: &JobContext) -> Result<Option<Ready>, Failure> {
        let run = self.expect.pid_file.as_deref().and_then(|f| f.strip_suffix(".pid"));
        let session = run.and_then(leader);
        let ended = run.zip(session).and_then(|(run, session)| ended(run, session));
        self.follow_log(ctx);
        if let Some(status) = ended {
            return Err(
                self.failure(format!("`{}` ended while it was loading, with status {status}", self.target.name))
            );
        }
        let process = match local::port_owner(self.expect.port) {
            PortOwner::Process(process) => process,
            PortOwner::Nobody | PortOwner::Unknown(_) => {
                ctx.progress(0, None, "loading");
                return Ok(None);
            }
        };
        let pid = process.key.pid;
        if let Some((run, session)) = run.zip(session)
            && process.session != session.pid
            && !local::members(run, Some(session)).iter().any(|p| p.key == process.key)
        {
            let owner = owner::describe(pid);
            return Err(self.failure(format!("port {} is owned by another process: {owner}", self.expect.port)));
        }
        let Some(line) = self.ready.clone() else {
            ctx.progress(0, None, "waiting for the ready line");
            return Ok(None);
        };
        let Ok((url, _)) = endpoint.identity().await else {
            ctx.progress(0, None, "waiting for the first answer");
            return Ok(None);
        };
        let evidence = vec![
            seen("pid", &format!("pid {pid} started at tick {}", process.key.start_ticks), format!("/proc/{pid}/stat")),
            seen("port-owner", &owner::describe(pid), format!("/proc/net/tcp, port {}", self.expect.port)),
            seen("ready-line", &line, self.expect.log.clone()),
            seen("identity", "answered", url),
        ];
        Ok(Some(Ready { process, evidence }))
    }
}

/// The shell that leads a start, from its traces; `None` where there are none of this boot of the host.
pub(super) fn leader(run: &str) -> Option<ProcessKey> {
    let text = fs_err::read_to_string(format!("{run}.pid")).ok()?;
    let mut words = text.split_whitespace();
    let key = ProcessKey { pid: words.next()?.parse().ok()?, start_ticks: words.next()?.parse().ok()? };
    (words.next().map(str::to_owned) == local::boot_id()).then_some(key)
}

/// The text of a trace of a start.
fn trace(run: &str, ending: &str) -> Option<String> {
    fs_err::read_to_string(format!("{run}.{ending}")).ok()
}

/// The exit status of a start whose every process is gone.
fn ended(run: &str, leader: ProcessKey) -> Option<String> {
    let status = trace(run, "exit");
    if status.is_none() && local::runs(leader) {
        return None;
    }
    // A script may leave its server in the background, in a session of its own, and end.
    let left = !local::members(run, Some(leader)).is_empty();
    (!left).then(|| status.map_or_else(|| "unknown".into(), |s| s.trim().to_owned()))
}

/// First token and levels of a server that answers.
async fn gather(
    case: &Case,
    target: &Target,
    process: &ProcessInfo,
    endpoint: &Client,
    mut evidence: Vec<Evidence>,
    ctx: &JobContext,
) -> Result<BootProof, Failure> {
    ctx.progress(0, None, "asking for the first token");
    let token = tokio::select! {
        token = endpoint.one_token() => token,
        () = ctx.cancel.cancelled() => return Err(Failure::new("cancelled while waiting for the first token")),
    };
    let (url, text) = token.map_err(|e| Failure::new(format!("`{}` gives no first token: {e}", target.name)))?;
    let text = text.map_or_else(|| "an answer without text".into(), |t| format!("{:?}", t.raw()));
    evidence.push(seen("first-token", &text, url));
    ctx.progress(0, None, "reading the levels back");
    let pid = process.key.pid;
    let (environ, cmdline) = (local::environ(pid), local::cmdline(pid));
    let patches = case.patches.iter().filter(|p| p.targets_in(case).any(|t| t.name == target.name));
    let mut readings = levels::read(patches, pid, &environ, &cmdline);
    if let Ok((url, said)) = endpoint.configuration().await {
        contradict(case, &mut readings, &cmdline, &said, &url);
    }
    if !local::runs(process.key) {
        return Err(Failure::new(format!("pid {pid} ended while it was being proven")));
    }
    let mut proof = BootProof {
        target: target.name.clone(),
        process: process.key,
        started_at: local::started_at(process.key.start_ticks).map_err(|Unknown(why)| Failure::new(why))?,
        proven_at: Timestamp::now(),
        levels: BTreeMap::new(),
        unverified: BTreeMap::new(),
        evidence,
    };
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
    Ok(proof)
}

/// Takes back the level of a flag that the server itself reports otherwise.
fn contradict(
    case: &Case,
    readings: &mut BTreeMap<String, LevelReading>,
    cmdline: &Result<Cmdline, Unknown>,
    said: &Value,
    url: &str,
) {
    let Ok(Ok(words)) = cmdline.as_ref().map(Cmdline::words) else { return };
    let words = super::argv::known(words);
    let said = flags::observed(said);
    for (id, reading) in readings.iter_mut().filter(|(_, r)| r.level.is_ok()) {
        let Some(Gate::Flag { flag, levels }) = case.patch(id).map(|p: &Patch| &p.gate) else { continue };
        let given = super::argv::flag_value(&words, flag, levels::takes_value(levels)).ok().flatten();
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
