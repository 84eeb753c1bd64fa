//! Which model servers a host runs, found without being told: what `init` writes a case from.
//!
//! `recognise` and `draft` are pure. This file asks the host, reading only, a few times: once for what listens, once
//! for who owns it, and once for each unit or script that started a server.

pub mod draft;
pub mod recognise;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use tokio_util::sync::CancellationToken;

use crate::case::{Role, ServingEngine};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::Failure;
use crate::remote::host::{Hosts, Place};
use crate::remote::probe::types::Probe;
use crate::remote::probe::{self, Ask};
use crate::remote::proc::Unknown;

/// The most ports whose owners are asked for; a host with more runs something else than model servers.
const MOST_PORTS: usize = 64;

/// A value and where it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// Where: a path, a command line, a table of the kernel.
    pub source: String,
}

impl<T> Fact<T> {
    /// A value with its source.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }
}

/// What starts and stops a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A systemd unit.
    Unit(String),
    /// A bash script; its log where the server's output goes to a file.
    Script {
        /// Path of the script.
        script: String,
        /// Path of the log.
        log: Option<String>,
    },
    /// A container, by the id that its control group shows.
    Container(String),
}

/// One model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Process that owns the port.
    pub pid: u32,
    /// The port.
    pub port: u16,
    /// The server program.
    pub engine: Fact<ServingEngine>,
    /// What it does.
    pub role: Fact<Role>,
    /// What starts it; `None` is not known.
    pub keeper: Option<Fact<Keeper>>,
    /// The script that a unit runs, or that the server was started from.
    pub script: Option<Fact<String>>,
    /// Folder or name of the model.
    pub model: Option<Fact<String>>,
    /// Source tree that it runs from.
    pub checkout: Option<Fact<String>>,
    /// Whether it was given an API key.
    pub has_key: bool,
    /// URLs of other servers that a router was given, with their role.
    pub links: Vec<(Role, String)>,
    /// Graphics cards that its processes use: index and name.
    pub cards: Vec<String>,
}

/// What was found on a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// The host's name in the case.
    pub host: String,
    /// Prefix that gained rights.
    pub become_with: Vec<String>,
    /// Servers by port.
    pub servers: Vec<Server>,
    /// Every graphics card.
    pub cards: Vec<String>,
    /// Ports that listen and whose owner could not be told, with the reason.
    pub unknown: Vec<(u16, String)>,
    /// Questions that the host was asked.
    pub round_trips: u32,
    /// What could not be read.
    pub diagnostics: Vec<Diagnostic>,
}

/// Looks for model servers on a host.
///
/// # Errors
/// The host cannot be reached, or does not show what listens.
pub async fn find(
    hosts: &Hosts,
    place: &Place,
    progress: &(dyn Fn(&str) + Sync),
    cancel: &CancellationToken,
) -> Result<Survey, Failure> {
    progress("what listens");
    let first = probe::ask(hosts, place, &Ask { gpus: true, ..Ask::default() }, cancel).await?;
    let listening = first
        .listeners
        .as_ref()
        .map_err(|Unknown(why)| Failure::new(format!("`{}` does not show what listens: {why}", place.host.name())))?;
    let ports: BTreeSet<u16> = listening.iter().map(|l| l.port).collect();
    let mut survey = Survey {
        host: place.host.name().to_owned(),
        become_with: place.become_with.clone(),
        cards: recognise::cards(&first),
        round_trips: first.round_trips,
        diagnostics: first.diagnostics.clone(),
        ..Survey::default()
    };
    if ports.len() > MOST_PORTS {
        let message = format!("{} ports listen, and only the first {MOST_PORTS} are looked at", ports.len());
        survey.diagnostics.push(Diagnostic::warning("many-ports", message).at(survey.host.clone()));
    }
    let ports: Vec<u16> = ports.into_iter().take(MOST_PORTS).collect();
    progress("who owns it");
    let owners = probe::ask(hosts, place, &Ask { ports, gpus: true, ..Ask::default() }, cancel).await?;
    survey.round_trips += owners.round_trips;
    survey.unknown = recognise::unknown_owners(&owners);
    survey.servers = recognise::servers(&owners);
    for place_of in 0..survey.servers.len() {
        progress("what started it");
        let question = follow_up(&survey.servers[place_of], &owners);
        if question == Ask::default() {
            continue;
        }
        match probe::ask(hosts, place, &question, cancel).await {
            Ok(answer) => {
                survey.round_trips += answer.round_trips;
                recognise::complete(&mut survey.servers[place_of], &answer);
            }
            Err(failure) => {
                let remark = Diagnostic::warning("host-unread", failure.message).at(survey.host.clone());
                survey.diagnostics.push(remark);
            }
        }
    }
    Ok(survey)
}

/// What else must be asked to say what started a server.
fn follow_up(server: &Server, owners: &Probe) -> Ask {
    let mut ask = Ask::default();
    if let Some(Fact { value: Keeper::Unit(unit), .. }) = &server.keeper {
        ask.unit = Some(unit.clone());
        ask.ports.push(server.port);
    }
    ask.files = recognise::checkout_marks(server, owners);
    ask
}
