//! Whose process owns a target's port, told from a probe. Pure.
//!
//! The rules are those of `remote::owner`, which reads this machine while a change goes on.

use super::types::{PortOwners, Probe, Process};
use crate::engine::procedure::{Failure, ProcessKey};
use crate::redact;
use crate::remote::argv::{self, Word};
use crate::remote::owner::Marks;
use crate::remote::proc::{Cmdline, Unknown};
use crate::untrusted::Untrusted;

/// The server process of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Pid and start time.
    pub key: ProcessKey,
    /// The script that it was started from, as far as its ancestors tell; `None` where they do not.
    pub started_from: Option<String>,
    /// The title that stands in place of its arguments, where the port alone tells that it is the target's.
    pub by_port_alone: Option<String>,
}

/// The target's server; `None` where nobody owns the port.
///
/// # Errors
/// The port is owned by a process that is not this target's, or that cannot be named.
pub fn running(probe: &Probe, target: &str, port: u16, marks: &Marks<'_>) -> Result<Option<Own>, Failure> {
    let unknown = |why: &str| {
        Failure::new(format!("cannot tell who owns port {port} of `{target}`: {why}"))
            .hint("reach the host as the user who runs the server, or give the target a `become`")
    };
    let pids = match probe.ports.get(&port) {
        Some(PortOwners::Nobody) => return Ok(None),
        Some(PortOwners::Processes(pids)) => pids,
        Some(PortOwners::Unknown(Unknown(why))) => return Err(unknown(why)),
        None => return Err(unknown("the host was not asked")),
    };
    let Some(pid) = pids.first().copied() else { return Err(unknown("no process is named")) };
    let Some(process) = probe.processes.get(&pid) else { return Err(unknown("the process was not read")) };
    let key = process.stat.as_ref().map_err(|Unknown(why)| unknown(why))?.key;
    let started_from = started_from(probe, pid, marks);
    // Without a script that declares a server, the port's word is all there is.
    let same = marks.argv.is_empty()
        || started_from.is_some()
        || in_unit(probe, process)
        || own_session(probe, pid).any(|p| looks_declared(p, marks.argv));
    // A title hides what the process was started as, so that it cannot be told from the declared program either.
    let title = match &process.cmdline {
        Ok(Cmdline::Title(title)) if !same => Some(redact::text(title)),
        _ => None,
    };
    if same || title.is_some() {
        return Ok(Some(Own { key, started_from, by_port_alone: title }));
    }
    Err(Failure::new(format!("port {port} of `{target}` is owned by another process: {}", describe(pid, process)))
        .hint("stop that process yourself, or correct the target's url or script in the case"))
}

/// Pid and redacted command line, for a message.
pub fn describe(pid: u32, process: &Process) -> String {
    format!("pid {pid}, `{}`", shown(process).visible(160))
}

/// The redacted command line or title of a process, or why there is none.
pub fn shown(process: &Process) -> Untrusted {
    match &process.cmdline {
        Ok(Cmdline::Words(words)) => redact::argv(words).join(" "),
        Ok(Cmdline::Title(title)) => redact::text(title),
        Err(Unknown(why)) => why.clone(),
    }
    .into()
}

/// The process and what started it, `pid` itself first, as far as it was read.
pub fn lineage(probe: &Probe, pid: u32) -> Vec<(u32, &Process)> {
    let mut out: Vec<(u32, &Process)> = Vec::new();
    let mut next = pid;
    while let Some(process) = probe.processes.get(&next).filter(|_| !out.iter().any(|(p, _)| *p == next)) {
        out.push((next, process));
        let Ok(stat) = &process.stat else { break };
        next = stat.ppid;
    }
    out
}

/// The process and those of its ancestors that are in its session, the shells left out.
fn own_session(probe: &Probe, pid: u32) -> impl Iterator<Item = &Process> {
    let session = |process: &Process| process.stat.as_ref().ok().map(|s| s.session);
    let lineage = lineage(probe, pid);
    let own = lineage.first().and_then(|(_, p)| session(p));
    lineage.into_iter().map(|(_, p)| p).filter(move |p| session(p) == own && !is_shell(p))
}

/// Whether a process is a shell that runs a script or waits for one.
pub fn is_shell(process: &Process) -> bool {
    let words = process.cmdline.as_ref().ok().and_then(|c| c.words().ok());
    let program = words.and_then(|w| w.first()).map(|w| argv::base_name(w).trim_start_matches('-'));
    matches!(program, Some("bash" | "sh" | "dash" | "zsh" | "ash" | "busybox" | "fish"))
}

/// The launch script or override that a shell among the process and its ancestors runs.
fn started_from(probe: &Probe, pid: u32, marks: &Marks<'_>) -> Option<String> {
    lineage(probe, pid).into_iter().filter(|(_, p)| is_shell(p)).find_map(|(_, process)| {
        let words = process.cmdline.as_ref().ok()?.words().ok()?;
        words.get(1..)?.iter().find_map(|word| {
            let path = resolved(process, word)?;
            let ours = path.strip_suffix(".sh").is_some_and(|p| p.starts_with(&format!("{}/", marks.overrides)));
            (ours || path == marks.script).then_some(path)
        })
    })
}

/// A path as the process means it.
fn resolved(process: &Process, word: &str) -> Option<String> {
    if word.starts_with('/') {
        return Some(word.to_owned());
    }
    let folder = process.cwd.as_ref().ok()?;
    Some(format!("{}/{}", folder.trim_end_matches('/'), word.trim_start_matches("./")))
}

/// Whether a process is the program that the script declares, for a server that replaced its shell.
fn looks_declared(process: &Process, declared: &[Word]) -> bool {
    let Some(words) = process.cmdline.as_ref().ok().and_then(|c| c.words().ok()) else { return false };
    let words = argv::known(words);
    if let Some(should) = argv::identity(declared) {
        return argv::identity(&words) == Some(should);
    }
    // The script takes the program from a variable: what stands between it and the first flag decides.
    let (is, should) = (operands(&words), operands(declared));
    !should.is_empty() && should.iter().all(Option::is_some) && is == should
}

fn operands(words: &[Word]) -> &[Word] {
    let after = words.get(argv::program(words) + 1..).unwrap_or_default();
    let end = after.iter().position(|w| w.as_ref().is_some_and(|w| w.starts_with("--"))).unwrap_or(after.len());
    &after[..end]
}

/// Whether a process is in the control group of the unit that was asked for.
fn in_unit(probe: &Probe, process: &Process) -> bool {
    let group = probe.unit.as_ref().and_then(|u| u.properties.as_ref().ok()?.get("ControlGroup"));
    let Some(group) = group.map(Untrusted::raw).filter(|g| g.len() > 1) else { return false };
    let Ok(own) = &process.cgroup else { return false };
    own.raw()
        .lines()
        .filter_map(|l| l.rsplit_once(':'))
        .any(|(_, path)| path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}
