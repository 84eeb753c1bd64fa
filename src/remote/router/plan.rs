//! How the router in front of a target takes part in a change: which worker the target is, the steps that drain it and
//! bring it back, and what whoever confirms the change is told about it. Pure.
//!
//! Not responsible for asking a router, which is the module above, nor for the text that runs on a host.

use super::text::{self, WayBack};
use crate::case::{Case, Role, Target, port_of};
use crate::engine::procedure::{Action, Failure, Load, Procedure, Purpose, RoutedWorker, RouterAsk, Step};
use crate::serving::workers::Worker;

/// Seconds that a router may take to forget a worker.
const REMOVE_S: f64 = 60.0;
/// Seconds that a router may take to know a running worker again, and to see it live.
const ADD_S: f64 = 180.0;
/// The same where the worker may have to load first.
const ADD_LOADING_S: f64 = 1800.0;
/// Seconds for a whole request.
const ENTRY_S: f64 = 120.0;
/// Step after which a target is as it must be.
const PROVE: &str = "prove";

/// How one router of the case stands to a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Routed {
    /// The router.
    pub(crate) router: String,
    /// What it does for the target.
    pub(crate) place: Place,
    /// Whether a request through it meets every other part that it needs, so that one can be asked afterwards.
    pub(crate) whole: bool,
    /// Why the host of the target could not bring the worker back by itself; `None` where it could.
    pub(crate) way_back: WayBack,
}

/// What a router does for a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// It sends requests to it, and can stop doing so.
    Listed {
        /// The worker that the target is.
        worker: RoutedWorker,
        /// Other workers of its kind that are seen to live.
        others: usize,
    },
    /// It does not know it, and an earlier change of ours took it out.
    Missing(RoutedWorker),
    /// It does not know it.
    Strange,
    /// It does not answer, so that no request comes through it.
    Silent(String),
    /// It cannot be told to stop, in one clause.
    Cannot(String),
}

/// The worker that a target is in the list of a router.
///
/// # Errors
/// Several could be it, or what could be it computes something else: in one clause.
pub(crate) fn pick<'w>(workers: &'w [Worker], router: &Target, target: &Target) -> Result<Option<&'w Worker>, String> {
    let own = |w: &&Worker| port_of(&w.url).is_some() && port_of(&w.url) == target.port() && may_be(w, router, target);
    let mut found: Vec<&Worker> = workers.iter().filter(own).collect();
    if found.len() > 1 {
        let exact: Vec<&Worker> = found
            .iter()
            .copied()
            .filter(|w| host_of(&w.url) == host_of(&target.url) || host_of(&w.url) == Some(&target.host))
            .collect();
        if exact.len() == 1 {
            found = exact;
        }
    }
    match found[..] {
        [] => Ok(None),
        [worker] if worker.role == Some(target.role) => Ok(Some(worker)),
        [worker] => Err(format!(
            "it takes `{}` for a worker of another kind than the case does",
            crate::untrusted::Untrusted::from(worker.url.as_str()).visible(80)
        )),
        _ => Err(format!("it has {} workers that could be `{}`", found.len(), target.name)),
    }
}

/// Whether a worker's address can be the target's: a loopback address is that of the router's own host.
fn may_be(worker: &Worker, router: &Target, target: &Target) -> bool {
    let (Some(at), Some(own)) = (host_of(&worker.url), host_of(&target.url)) else { return false };
    if is_loopback(at) {
        return router.host == target.host;
    }
    is_loopback(own) || own == at || at == target.host
}

pub(super) fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (host, _) = rest.split(['/', '?', '#']).next()?.rsplit_once(':')?;
    Some(host)
}

pub(super) fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "[::1]" | "0.0.0.0" | "[::]") || host.starts_with("127.")
}

/// Whether workers other than `target` let a request through: of a divided deployment, the other half lives.
pub(crate) fn is_whole(workers: &[Worker], target: &Target) -> bool {
    let lives = |role: Role| workers.iter().any(|w| w.role == Some(role) && w.healthy != Some(false));
    match target.role {
        Role::Prefill => lives(Role::Decode),
        Role::Decode => lives(Role::Prefill),
        Role::Monolithic => true,
        Role::Router => false,
    }
}

/// Adds to a change what its routers must do: drain before anything is stopped, bring back and ask a whole request after
/// the proof. `running` is whether the target runs now; `drain_s` are the seconds that requests get, 0 is none.
///
/// # Errors
/// A path cannot stand in a shell text.
pub(crate) fn weave(
    procedure: &mut Procedure,
    case: &Case,
    routed: &[Routed],
    running: bool,
    drain_s: f64,
) -> Result<(), Failure> {
    let Some(target) = case.target(&procedure.target) else { return Ok(()) };
    let stops = running && procedure.stops();
    let listed = |r: &&Routed| matches!(r.place, Place::Listed { .. }) && stops && drain_s > 0.0;
    let drained: Vec<&Routed> = routed.iter().filter(listed).collect();
    let back: Vec<&Routed> = match procedure.purpose {
        Purpose::Stop => Vec::new(),
        _ => routed.iter().filter(|r| matches!(r.place, Place::Missing(_)) || drained.contains(r)).collect(),
    };
    for r in routed {
        procedure.notes.extend(note(r, target, (stops, procedure.purpose), procedure.load, drain_s));
    }
    let kept: Vec<&Routed> =
        routed.iter().filter(|r| matches!(r.place, Place::Missing(_)) || drained.contains(r)).collect();
    // A target that is put back already and only misses in its router needs no lease.
    let bare = procedure.steps.is_empty();
    if bare && !back.is_empty() {
        procedure.lease = None;
    }
    if let Some(lease) = procedure.lease.as_ref().filter(|_| !bare && !kept.is_empty()) {
        let workers: Vec<(&RoutedWorker, &WayBack)> =
            kept.iter().filter_map(|r| Some((r.worker()?, &r.way_back))).collect();
        let keep = keep(&lease.path, target, &workers)?;
        let at = before_anything(procedure);
        let drains = drain(&drained, procedure.purpose, drain_s);
        procedure.steps.splice(at..at, std::iter::once(keep).chain(drains));
    }
    let proven = procedure.steps.iter().rposition(|s| s.name == PROVE).map_or(procedure.steps.len(), |i| i + 1);
    let mut after: Vec<Step> = back.iter().filter_map(|r| r.worker()).map(|w| re_add(w, drain_s)).collect();
    if procedure.purpose != Purpose::Stop && (!bare || !after.is_empty()) {
        after.extend(entry(case, target, routed));
    }
    procedure.steps.splice(proven..proven, after);
    Ok(())
}

impl Routed {
    fn worker(&self) -> Option<&RoutedWorker> {
        match &self.place {
            Place::Listed { worker, .. } | Place::Missing(worker) => Some(worker),
            Place::Strange | Place::Silent(_) | Place::Cannot(_) => None,
        }
    }
}

/// After the lease and what merely lies there, before whatever stops the server, be it by its undo.
fn before_anything(procedure: &Procedure) -> usize {
    let harmless = |step: &&Step| matches!(step.name.as_str(), "lease" | "write-override" | "copy-container");
    procedure.steps.iter().take_while(harmless).count()
}

/// Writes what brings the workers back beside the way back of the target, so that the host does it too.
fn keep(lease: &str, target: &Target, workers: &[(&RoutedWorker, &WayBack)]) -> Result<Step, Failure> {
    let shell = |script: String| Action::Shell { script, timeout_s: 10.0 };
    let all: Vec<&RoutedWorker> = workers.iter().map(|(w, _)| *w).collect();
    let record =
        serde_json::to_string(&all).map_err(|e| Failure::new(format!("a worker cannot be written down: {e}")))?;
    let script = text::bring_back(target, workers)?;
    Ok(Step {
        name: "keep-worker".into(),
        check: shell(text::is_kept(lease, &record)?),
        apply: shell(text::keep(lease, &record, &script)?),
        // It does nothing while the router has the worker, and goes with the lease.
        undo: None,
        undo_proof: None,
        proof: shell(text::is_kept(lease, &record)?),
    })
}

/// Takes the worker out of every router, and waits once it is out of the last one.
fn drain(routed: &[&Routed], purpose: Purpose, drain_s: f64) -> Vec<Step> {
    let last = routed.len().saturating_sub(1);
    let one = |(i, worker): (usize, &RoutedWorker)| {
        let ask = |ask, timeout_s| Action::Router { ask, worker: worker.clone(), timeout_s };
        Step {
            name: "drain".into(),
            check: ask(RouterAsk::Lacks, 0.0),
            apply: ask(RouterAsk::Remove, REMOVE_S),
            undo: Some(ask(RouterAsk::Add, ADD_LOADING_S)),
            undo_proof: Some(ask(RouterAsk::Has, 0.0)),
            proof: if i == last {
                ask(RouterAsk::Idle { anyway: purpose == Purpose::Restore }, drain_s)
            } else {
                ask(RouterAsk::Lacks, 0.0)
            },
        }
    };
    routed.iter().filter_map(|r| r.worker()).enumerate().map(one).collect()
}

fn re_add(worker: &RoutedWorker, drain_s: f64) -> Step {
    let ask = |ask, timeout_s| Action::Router { ask, worker: worker.clone(), timeout_s };
    Step {
        name: "re-add".into(),
        check: ask(RouterAsk::Has, 0.0),
        apply: ask(RouterAsk::Add, ADD_S),
        undo: Some(ask(RouterAsk::Remove, REMOVE_S)),
        undo_proof: Some(ask(RouterAsk::Idle { anyway: true }, drain_s)),
        proof: ask(RouterAsk::Has, 0.0),
    }
}

/// Asks a whole request of the entry, where it is a router that leads to the target and everything else that a request
/// needs is there.
fn entry(case: &Case, target: &Target, routed: &[Routed]) -> Option<Step> {
    let entry = case.entry_target().filter(|e| e.role == Role::Router && e.name != target.name)?;
    let leads = |r: &Routed| match r.place {
        Place::Listed { .. } | Place::Missing(_) | Place::Cannot(_) => r.whole,
        Place::Strange | Place::Silent(_) => false,
    };
    routed.iter().find(|r| r.router == entry.name && leads(r))?;
    Some(Step {
        name: "prove-entry".into(),
        check: Action::Nothing,
        apply: Action::Nothing,
        undo: None,
        undo_proof: None,
        proof: Action::EntryToken { entry: entry.name.clone(), timeout_s: ENTRY_S },
    })
}

/// What whoever confirms is told about one router.
fn note(
    routed: &Routed,
    target: &Target,
    (stops, purpose): (bool, Purpose),
    load: Option<Load>,
    drain_s: f64,
) -> Vec<String> {
    let (router, name) = (&routed.router, &target.name);
    let cut = match load {
        Some(load) if load.is_busy() => format!("{load} now and are cut off"),
        Some(_) => "no request runs now, and those that come until then are cut off".to_owned(),
        None => "how many requests are cut off is not known".to_owned(),
    };
    let back = match &routed.way_back {
        Ok(_) => format!("should the host put `{name}` back by itself, it tells `{router}` too"),
        Err(why) => {
            format!("should the host put `{name}` back by itself, it cannot bring it back into `{router}`: {why}")
        }
    };
    match &routed.place {
        Place::Listed { .. } if !stops => Vec::new(),
        Place::Listed { .. } if drain_s <= 0.0 => {
            vec![format!("the case lets no request run to its end (`drain_s = 0`): {cut}")]
        }
        Place::Listed { others, .. } => {
            let role = role_word(target.role);
            let meanwhile = match others {
                0 => format!(
                    "`{router}` has no other {role} worker: new requests through it fail from the drain on until `{name}` is back"
                ),
                1 => format!("meanwhile `{router}` sends new requests to its other {role} worker"),
                n => format!("meanwhile `{router}` sends new requests to its {n} other {role} workers"),
            };
            let end = match purpose {
                Purpose::Restore => "then they are cut off".to_owned(),
                _ => format!(
                    "then the change stops there and `{name}` is routed to again, unless `{name} anyway` was typed"
                ),
            };
            let mut out =
                vec![format!("requests that run at `{name}` get {drain_s} s to run to their end; {end}"), meanwhile];
            if purpose == Purpose::Stop {
                out.push(format!("`{router}` gets `{name}` back when it is started again from here, or restored"));
            }
            out.push(back);
            out
        }
        Place::Missing(_) if purpose == Purpose::Stop => Vec::new(),
        Place::Missing(_) => {
            vec![format!("an earlier change took `{name}` out of `{router}`, and this one brings it back"), back]
        }
        Place::Strange if stops => {
            vec![format!("`{router}` does not list `{name}` among its workers, so nothing is drained there")]
        }
        Place::Silent(why) if stops => {
            vec![format!("`{router}` does not answer, so that nothing is drained there ({why})")]
        }
        Place::Cannot(why) if stops => vec![format!("nothing can be drained at `{router}`: {why}; {cut}")],
        Place::Strange | Place::Silent(_) | Place::Cannot(_) => Vec::new(),
    }
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Monolithic => "serving",
        Role::Router => "router",
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
