//! Keeps the leases of this session's changes while it runs, so that a host puts a target back by itself only once the
//! session is gone. Not responsible for taking or giving back a lease; those are steps of a procedure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::command::{Command, EndState};
use crate::engine::ids::ProcedureId;
use crate::engine::input::Actor;
use crate::engine::procedure::Lease;
use crate::engine::runtime::EngineHandle;
use crate::engine::state::{ProcedureStatus, State};
use crate::remote::host::Hosts;
use crate::remote::lease::{Owner, renew, stay};
use crate::remote::local;
use crate::remote::machine::Machine;

/// How often the leases are renewed: well within a minute, which is the shortest that one lasts.
const EVERY: Duration = Duration::from_secs(15);

/// Whose changes those of a session are; the same after the session is resumed.
pub fn owner(name: &str, session: &Path) -> Owner {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let whole = fs_err::canonicalize(session).unwrap_or_else(|_| session.to_owned());
    let token = blake3::hash(format!("{machine}:{}", whole.display()).as_bytes()).to_hex()[..24].to_owned();
    let whole_machine = fs_err::read_to_string("/etc/machine-id").ok().map(|id| id.trim().to_owned());
    let space = fs_err::read_link("/proc/self/ns/pid").ok().map(|path| path.display().to_string());
    let program = match (local::process(std::process::id()), local::boot_id(), whole_machine, space) {
        (Some(me), Some(boot), Some(id), Some(space)) if !id.is_empty() => {
            format!("{} {} {boot} {id} {space}", me.key.pid, me.key.start_ticks)
        }
        // A program that cannot tell who it is counts as one that runs.
        _ => String::new(),
    };
    Owner { token, who: format!("{name}@{machine}"), session: whole.display().to_string(), program }
}

/// Renews what is held, until the engine ends. A target that its host has put back is said once and read anew.
pub async fn leases(hosts: Hosts, owner: Owner, handle: EngineHandle, actor: Actor) {
    let mut told: BTreeSet<ProcedureId> = BTreeSet::new();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut state = handle.state.clone();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            changed = state.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        let now = state.borrow_and_update().clone();
        for (target, (procedure, lease)) in held(&now) {
            let said = renewed(&hosts, &owner, &now, &target, &lease).await;
            let text = match said.as_deref() {
                Some("restored") => "the host has put it back by itself: its lease was not renewed in time",
                Some("failed") => "the host tried to put it back by itself and could not",
                _ => continue,
            };
            if !told.insert(procedure) {
                continue;
            }
            let text = format!("`{target}`: {text}");
            for command in [Command::Note { text }, Command::Probe { target: Some(target.clone()) }] {
                if handle.send(actor.clone(), command).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The leases with an end that changes of this session took and have not given back.
fn held(state: &State) -> BTreeMap<String, (ProcedureId, Lease)> {
    let mut held: BTreeMap<String, (ProcedureId, Lease)> = BTreeMap::new();
    for (id, entry) in &state.procedures {
        let Some(lease) = entry.procedure.lease.clone().filter(|l| l.minutes.is_some()) else { continue };
        let target = entry.procedure.target.clone();
        match entry.status {
            ProcedureStatus::Planned | ProcedureStatus::Discarded => {}
            ProcedureStatus::Completed if gives_back(entry) => {
                held.remove(&target);
            }
            _ => {
                held.insert(target, (*id, lease));
            }
        }
    }
    held
}

fn gives_back(entry: &crate::engine::state::ProcedureState) -> bool {
    entry.procedure.steps.iter().any(|s| s.name == "give-lease-back")
}

async fn renewed(hosts: &Hosts, owner: &Owner, state: &State, target: &str, lease: &Lease) -> Option<String> {
    let busy = state.open_procedure(target).is_some();
    let target = state.case.as_ref()?.target(target)?;
    let machine = Machine::of(hosts, target).ok()?;
    let chosen = matches!(state.end_state, Some(EndState::BestKnown | EndState::Stated { .. }));
    // What a person chose as the end stays when this program is gone.
    let text =
        if chosen && !busy { stay(&lease.path, &lease.token) } else { renew(&lease.path, owner, lease.minutes?) };
    let text = text.ok()?;
    let end = machine.read(&text, 30.0, &CancellationToken::new()).await.ok()?;
    Some(end.out.trim().to_owned())
}
