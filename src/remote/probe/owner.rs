//! Whose process owns a target's port, told from a probe. Pure.
//!
//! The rule is that of `remote::owner`.

use super::container;
use super::types::{PortOwners, Probe, Process};
use crate::engine::procedure::{Failure, ProcessKey};
use crate::redact;
use crate::remote::owner::{self, Kin, Marks};
use crate::remote::proc::{Cmdline, Unknown};
use crate::untrusted::Untrusted;

/// The server process of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Pid and start time.
    pub key: ProcessKey,
    /// The script that it was started from, as far as its ancestors tell; `None` where they do not.
    pub started_from: Option<String>,
    /// The shell that runs that script, where it still does.
    pub launcher: Option<ProcessKey>,
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
    let lineage = lineage(probe, pid);
    let kin: Vec<Kin> = lineage.iter().map(|(_, p)| kin(p)).collect();
    let text = |file: &str| {
        let bytes = probe.files.get(file)?.bytes.as_ref().ok()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let own = |started_from, by_port_alone| Ok(Some(Own { key, started_from, launcher: None, by_port_alone }));
    match owner::recognise(target, &kin, marks, &text) {
        Some(known) => {
            // A shell that became the server is no launcher any more.
            let shell = known.shell.filter(|place| *place > 0).and_then(|place| lineage[place].1.stat.as_ref().ok());
            let launcher = shell.map(|stat| stat.key);
            return Ok(Some(Own { key, started_from: known.started_from, launcher, by_port_alone: None }));
        }
        None if in_unit(probe, process) || in_container(probe, process) => return own(None, None),
        None if marks.argv.is_empty() => return own(None, Some(owner::shown(&process.cmdline).visible(80))),
        None => {}
    }
    match &process.cmdline {
        // A title hides what the process was started as, so that it cannot be told from the declared program either.
        Ok(Cmdline::Title(title)) => own(None, Some(redact::text(title))),
        _ => Err(owner::stranger(target, port, &owner::described(pid, &process.cmdline))),
    }
}

fn kin(process: &Process) -> Kin {
    Kin {
        cmdline: process.cmdline.clone(),
        environ: process.environ.clone(),
        folder: process.cwd.as_ref().ok().cloned(),
        session: process.stat.as_ref().ok().map(|s| s.session),
    }
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

/// Whether a process is a shell that runs a script or waits for one.
pub fn is_shell(process: &Process) -> bool {
    owner::is_shell(&process.cmdline)
}

/// Whether a process is in the container that was asked for.
fn in_container(probe: &Probe, process: &Process) -> bool {
    let current = probe.container.as_ref().and_then(|c| c.current.as_ref().ok());
    let (Some(current), Ok(own)) = (current, &process.cgroup) else { return false };
    container::holds(&current.id, own)
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
