//! The processes of one service, and which of them shows the environment. Pure, over a probe.
//!
//! A process that sets its title destroys its own `/proc/PID/environ`, and a program that changes its own
//! variables leaves the block of its start as it was. The helper that Python's multiprocessing starts,
//! its resource tracker, inherits the changed variables and keeps its block; it is read beside the server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Claim, Known, Row, RowKind, RowStatus};
use crate::case::{Gate, Patch};
use crate::redact;
use crate::remote::levels::{self, LevelReading};
use crate::remote::owner::shown;
use crate::remote::probe::owner::{self, lineage};
use crate::remote::probe::types::{Probe, Process, Relation};
use crate::remote::proc::{self, Cmdline, Environ, Unknown};
use crate::remote::source::SEARCH_PATH;
use crate::untrusted::Untrusted;

/// One process of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceProcess {
    /// Process id.
    pub pid: u32,
    /// Redacted command line, or the title that stands in its place.
    pub title: Untrusted,
    /// `server` for the owner of the port, else what its title or program says: `scheduler`, `resource_tracker`, ….
    pub role: String,
    /// Its place in each parallel dimension, such as `TP0`.
    pub ranks: Vec<String>,
    /// When it started, by the host's clock; `None` where the host does not tell.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// Whether its environment could be read.
    pub environ: Known,
}

/// Where the environment of a server was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The server's own block.
    Own,
    /// The block of its resource tracker, which started later than the server.
    Tracker,
    /// The block of the process that started the server: what is not in it may still have been set since.
    Launcher,
}

/// The environment of a server with where it was read.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The process whose block it is.
    pub pid: u32,
    /// Whose block that is.
    pub origin: Origin,
    /// The variables, or why they are not known.
    pub environ: Result<Environ, Unknown>,
}

impl Evidence {
    /// The source as a claim names it.
    pub fn source(&self) -> String {
        let path = format!("/proc/{}/environ", self.pid);
        match self.origin {
            Origin::Own => path,
            Origin::Tracker => format!("{path} (resource tracker of the server)"),
            Origin::Launcher => format!("{path} (the process that started the server)"),
        }
    }

    /// What the source can never show.
    pub fn blind_to(&self) -> &'static str {
        match self.origin {
            Origin::Own => "what the process set by itself after its start",
            Origin::Tracker => "what the server set after it started its tracker",
            Origin::Launcher => "what was set after the launcher's own start",
        }
    }

    /// The value of a variable; `None` is absent.
    ///
    /// # Errors
    /// The block cannot be read, or cannot tell that a variable is absent.
    pub fn get(&self, name: &str) -> Result<Option<&str>, Unknown> {
        let value = self.environ.as_ref().map_err(Clone::clone)?.get(name);
        match (value, &self.origin) {
            (None, Origin::Launcher) => Err(not_shown_by_launcher(self.pid)),
            (value, _) => Ok(value),
        }
    }
}

fn not_shown_by_launcher(pid: u32) -> Unknown {
    Unknown(format!("the server's own block is overwritten, and what started it (pid {pid}) may have set it later"))
}

/// The environment of the server: its own block, else its tracker's, else its launcher's.
pub fn evidence(probe: &Probe, server: u32) -> Evidence {
    let own = environ_of(probe, server);
    if own.is_ok() {
        return Evidence { pid: server, origin: Origin::Own, environ: own };
    }
    if let Some(tracker) = tracker(probe, server) {
        return tracker;
    }
    let session = session_of(probe, server);
    let above = lineage(probe, server).into_iter().skip(1);
    // A shell exports variables after its own start, so that its block says nothing about its children's.
    let launcher = above
        .take_while(|(_, p)| p.stat.as_ref().is_ok_and(|s| Some(s.session) == session))
        .find(|(_, p)| !owner::is_shell(p) && p.environ.is_ok());
    match launcher {
        Some((pid, process)) => Evidence { pid, origin: Origin::Launcher, environ: process.environ.clone() },
        None => Evidence { pid: server, origin: Origin::Own, environ: own },
    }
}

/// The variable that keeps process titles from overwriting the environment, as `setproctitle` reads it.
pub const KEEPS_ENVIRONMENT: &str = "SPT_NOENV";

/// Whether the server was started so that titles leave the environment of its processes readable.
///
/// # Errors
/// Its own environment cannot be read, which says nothing.
pub fn keeps_environment(evidence: &Evidence) -> Result<bool, Unknown> {
    Ok(evidence.get(KEEPS_ENVIRONMENT)?.is_some_and(|v| !v.is_empty()))
}

/// How many processes of a service overwrote their environment, and how many it has.
pub fn overwritten(probe: &Probe, server: u32) -> (usize, usize) {
    let all = processes(probe, server);
    let gone = |p: &&ServiceProcess| {
        probe.processes.get(&p.pid).is_some_and(|p| p.environ.as_ref().is_err_and(proc::is_overwritten))
    };
    (all.iter().filter(gone).count(), all.len())
}

/// The block of the server's resource tracker, where it has one that can be read.
pub fn tracker(probe: &Probe, server: u32) -> Option<Evidence> {
    let below = |pid: u32, above: u32| lineage(probe, pid).iter().any(|(p, _)| *p == above);
    let all: Vec<(&u32, &Process)> = probe.processes.iter().filter(|(_, p)| is_tracker(p)).collect();
    let root = root(probe, server);
    let own = all.iter().find(|(pid, _)| below(**pid, server));
    // One launcher may start several servers, each with a tracker: beside the server, only a single one is surely its.
    let near: Vec<_> = all.iter().filter(|(pid, _)| below(**pid, root)).collect();
    let (pid, process) = own.or(match near[..] {
        [only] => Some(only),
        _ => None,
    })?;
    process.environ.as_ref().ok()?;
    Some(Evidence { pid: **pid, origin: Origin::Tracker, environ: process.environ.clone() })
}

/// The level of each patch of a server, read where its switch shows: a variable in the newest block that can be read, a
/// flag in the server's command line. The source names the block.
pub fn levels(probe: &Probe, server: u32, patches: &[&Patch]) -> BTreeMap<String, LevelReading> {
    let evidence = evidence(probe, server);
    let tracker = tracker(probe, server).filter(|_| evidence.origin == Origin::Own && evidence.environ.is_ok());
    let not_read = || Unknown(format!("process {server} was not read"));
    let cmdline = probe.processes.get(&server).map_or_else(|| Err(not_read()), |p| p.cmdline.clone());
    patches
        .iter()
        .filter_map(|patch| {
            let shown = match &patch.gate {
                Gate::Env { name, .. } => Some((later(&evidence, tracker.as_ref(), name), name.as_str())),
                Gate::Reverse { .. } => Some((later(&evidence, tracker.as_ref(), SEARCH_PATH), SEARCH_PATH)),
                Gate::Flag { .. } | Gate::None => None,
            };
            let environ = match shown {
                Some((block, name)) => block.get(name).and_then(|_| block.environ.clone()),
                None => Err(not_read()),
            };
            let pid = shown.map_or(server, |(block, _)| block.pid);
            let mut reading = levels::read([*patch], pid, &environ, &cmdline).into_values().next()?;
            if let Some((block, _)) = shown {
                reading.source = block.source();
            }
            Some((patch.id.clone(), reading))
        })
        .collect()
}

/// The block that tells of a variable: the tracker's where the server changed it, else the one that was read.
fn later<'e>(evidence: &'e Evidence, tracker: Option<&'e Evidence>, name: &str) -> &'e Evidence {
    let changed = tracker.filter(|t| match (&t.environ, &evidence.environ) {
        (Ok(later), Ok(own)) => later.get(name) != own.get(name),
        _ => false,
    });
    changed.unwrap_or(evidence)
}

fn is_tracker(process: &Process) -> bool {
    let words = process.cmdline.as_ref().ok().and_then(|c| c.words().ok()).unwrap_or_default();
    words.iter().any(|w| w.contains("multiprocessing.resource_tracker"))
}

fn environ_of(probe: &Probe, pid: u32) -> Result<Environ, Unknown> {
    let process = probe.processes.get(&pid).ok_or_else(|| Unknown(format!("process {pid} was not read")))?;
    process.environ.clone()
}

fn session_of(probe: &Probe, pid: u32) -> Option<u32> {
    Some(probe.processes.get(&pid)?.stat.as_ref().ok()?.session)
}

/// The first process of the service that is no shell: the topmost of the server's session.
fn root(probe: &Probe, server: u32) -> u32 {
    let session = session_of(probe, server);
    let same = |p: &Process| p.stat.as_ref().is_ok_and(|s| Some(s.session) == session);
    let above = lineage(probe, server).into_iter().take_while(|(_, p)| same(p)).filter(|(_, p)| !owner::is_shell(p));
    above.last().map_or(server, |(pid, _)| pid)
}

/// Every process of the server's service: the server first, then by pid.
pub fn processes(probe: &Probe, server: u32) -> Vec<ServiceProcess> {
    let root = root(probe, server);
    let session = session_of(probe, server);
    let belongs = |pid: u32, process: &Process| {
        let family = || lineage(probe, pid).iter().any(|(p, _)| *p == root);
        let same_session = process.stat.as_ref().is_ok_and(|s| Some(s.session) == session);
        match process.relation {
            Relation::Owner | Relation::Named | Relation::Group => true,
            Relation::Ancestor => same_session,
            Relation::Descendant => family(),
            Relation::Session => family() || title_of(process).is_some(),
        }
    };
    let mut all: Vec<ServiceProcess> = probe
        .processes
        .iter()
        .filter(|(pid, p)| belongs(**pid, p))
        .map(|(pid, p)| described(probe, *pid, p, *pid == server))
        .collect();
    all.sort_by_key(|p| (p.pid != server, p.pid));
    all
}

fn title_of(process: &Process) -> Option<proc::Title> {
    match process.cmdline.as_ref().ok()? {
        Cmdline::Title(title) => proc::title_parts(title),
        Cmdline::Words(_) => None,
    }
}

fn described(probe: &Probe, pid: u32, process: &Process, server: bool) -> ServiceProcess {
    let title = title_of(process);
    let role = match &title {
        Some(title) => title.role.clone(),
        None if server => "server".to_owned(),
        None if is_tracker(process) => "resource_tracker".to_owned(),
        None if owner::is_shell(process) => "shell".to_owned(),
        None if process.relation == Relation::Ancestor => "launcher".to_owned(),
        None => process
            .stat
            .as_ref()
            .map_or_else(|_| "unknown".to_owned(), |s| Untrusted::from(s.comm.as_str()).visible(16)),
    };
    let ranks = title.iter().flat_map(|t| &t.ranks).map(|(dimension, number)| format!("{dimension}{number}")).collect();
    ServiceProcess {
        pid,
        title: shown(&process.cmdline),
        role,
        ranks,
        started_at: process.stat.as_ref().ok().and_then(|s| probe.host.started_at(s.key).ok()),
        environ: match &process.environ {
            Ok(_) => Known::Yes,
            Err(Unknown(why)) => Known::Unknown { because: redact::text(why) },
        },
    }
}

/// Rewrites rows that were made from another block than the server's own, so that each names its source,
/// and an absence that the source cannot tell reads as unknown.
pub fn relabel(rows: &mut [Row], evidence: &Evidence) {
    if evidence.origin == Origin::Own {
        return;
    }
    for row in rows.iter_mut().filter(|r| r.kind == RowKind::Env) {
        let Some(claim) = &mut row.effective else { continue };
        claim.source = evidence.source();
        claim.blind_to = Some(evidence.blind_to().to_owned());
        if claim.known == Known::Yes && claim.value.is_none() && evidence.origin == Origin::Launcher {
            let Unknown(because) = not_shown_by_launcher(evidence.pid);
            claim.known = Known::Unknown { because: because.clone() };
            row.status = RowStatus::UnknownBecause;
            row.note = because;
        }
    }
}

/// One row for each variable that the tracker has otherwise than the server's own block: the server set it itself.
/// Only those that `matters` names are disagreements; a program sets many variables of no interest.
pub fn changed_since_start(
    target: &str,
    own: &Environ,
    tracker: &Evidence,
    matters: impl Fn(&str) -> bool,
) -> Vec<Row> {
    let Ok(later) = &tracker.environ else { return Vec::new() };
    let mut names: Vec<&str> = own.pairs.iter().chain(&later.pairs).map(|(n, _)| n.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let show = |name: &str, value: Option<&str>| match value {
        Some(value) => format!("`{}`", redact::value(name, value)),
        None => "not set".to_owned(),
    };
    names
        .into_iter()
        .filter(|name| own.get(name) != later.get(name))
        .map(|name| Row {
            target: target.to_owned(),
            component: "resource_tracker".into(),
            name: name.to_owned(),
            kind: RowKind::Env,
            declared: None,
            effective: Some(Claim {
                value: later.get(name).map(|v| Untrusted::from(redact::value(name, v))),
                known: Known::Yes,
                source: tracker.source(),
                line: None,
                blind_to: Some(tracker.blind_to().to_owned()),
            }),
            observed: None,
            status: if matters(name) { RowStatus::Differs } else { RowStatus::OneSource },
            note: format!(
                "the server changed it after its start: started with {}, now {}",
                show(name, own.get(name)),
                show(name, later.get(name))
            ),
        })
        .collect()
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
