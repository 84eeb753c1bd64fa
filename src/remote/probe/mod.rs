//! One look at a host: a fixed script goes there, one framed answer comes back.
//!
//! `frame` and `parse` are pure and read the answer, `types` says what it holds. This file asks. Not
//! responsible for the way to the host, which is `remote::host`, nor for what the values mean for a target.

pub mod container;
pub mod files;
pub mod frame;
pub mod imports;
pub mod owner;
pub mod parse;
#[cfg(test)]
mod tests;
pub mod types;

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::host::{self, HostError, Hosts, Limits, Place};
use crate::engine::procedure::Failure;
pub use types::{Probe, Reading};

/// The script, which is the same for every host and every question.
pub const SCRIPT: &str = concat!(
    include_str!("frame.sh"),
    include_str!("sockets.sh"),
    include_str!("container.sh"),
    include_str!("imports.sh"),
    include_str!("probe.sh")
);
/// How long a host may take to answer.
pub const TIME: Duration = Duration::from_mins(1);

/// How many of a unit's last journal records come with a probe.
pub const JOURNAL_RECORDS: usize = 400;

/// What a host is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Ports whose owners are wanted.
    pub ports: Vec<u16>,
    /// Processes that are wanted with everything that belongs to them.
    pub pids: Vec<u32>,
    /// Files whose text is wanted.
    pub files: Vec<String>,
    /// Logs whose last bytes are wanted, and how many.
    pub logs: Vec<(String, u64)>,
    /// A systemd unit, with its files, its processes and its journal.
    pub unit: Option<String>,
    /// A container of docker or podman, with its log and its processes.
    pub container: Option<container::Asked>,
    /// Folder of our overrides, `~/` in front being the home of whoever asks: those that a server was started from are
    /// read too.
    pub overrides: Option<String>,
    /// Whether graphics cards are wanted.
    pub gpus: bool,
    /// Python modules of which is wanted where the server imported them from.
    pub modules: Vec<Wanted>,
}

/// A Python module of which is wanted where a server imported it from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its file below an entry of the search path, such as `sglang/srt/models/deepseek_v4.py`.
    pub path: String,
    /// Its file in the checkout, where there is one.
    pub source: Option<String>,
}

impl Ask {
    /// The words for the script.
    pub fn words(&self, nonce: &str) -> Vec<String> {
        let mut words = vec![nonce.to_owned()];
        let mut say = |what: &[&str]| words.extend(what.iter().map(|w| (*w).to_owned()));
        self.ports.iter().for_each(|p| say(&["port", &p.to_string()]));
        self.pids.iter().for_each(|p| say(&["pid", &p.to_string()]));
        self.files.iter().for_each(|f| say(&["file", f]));
        self.logs.iter().for_each(|(log, bytes)| say(&["log", log, &bytes.to_string()]));
        if let Some(unit) = &self.unit {
            say(&["unit", unit, &JOURNAL_RECORDS.to_string()]);
        }
        if let Some(container::Asked { name, changed }) = &self.container {
            say(&["container", name, &JOURNAL_RECORDS.to_string(), if *changed { "yes" } else { "no" }]);
        }
        if let Some(folder) = self.overrides.as_deref().filter(|f| !f.is_empty()) {
            say(&["overrides", folder]);
        }
        if self.gpus {
            say(&["gpus", "yes"]);
        }
        self.modules.iter().for_each(|m| say(&["module", &m.path, m.source.as_deref().unwrap_or_default()]));
        words
    }
}

/// Asks a host once.
///
/// # Errors
/// The host cannot be reached, the link breaks, or what comes back is no answer.
pub async fn ask(hosts: &Hosts, place: &Place, ask: &Ask, cancel: &CancellationToken) -> Result<Probe, Failure> {
    let nonce = uuid::Uuid::now_v7().simple().to_string();
    let limits = Limits { time: TIME, bytes: frame::MOST_BYTES };
    let before = Timestamp::now();
    let output =
        host::run(hosts, place, SCRIPT, &ask.words(&nonce), &limits, cancel).await.map_err(HostError::failure)?;
    let after = Timestamp::now();
    let mut probe = parse::parse(&output.out, ask, &nonce).map_err(|error| {
        let said = output.err.raw().lines().rev().find(|l| !l.trim().is_empty());
        let why =
            said.map(|l| format!(" (`{}`)", crate::untrusted::Untrusted::from(crate::redact::text(l)).visible(160)));
        let hint = match &place.become_with[..] {
            [] => "the host needs a POSIX `sh`, `/proc` and coreutils, and a login shell that runs what ssh asks for",
            _ => "check the target's `become`: it must gain its rights without a question",
        };
        Failure::new(format!("`{}`: {error}{}", place.host.name(), why.unwrap_or_default())).hint(hint)
    })?;
    let middle = before + (after.duration_since(before) / 2);
    probe.host.ahead = probe.host.time.clone().map(|time| time.duration_since(middle));
    Ok(probe)
}
