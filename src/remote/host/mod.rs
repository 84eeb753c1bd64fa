//! The way to a host: this machine or one that ssh knows, and shell scripts that run there.
//!
//! `ssh` makes and judges connections, `links` keeps one per host, `error` says what went wrong, `forward`
//! reaches a server's port. Not responsible for what a script says; the probe's is `remote::probe`.

pub mod blocking;
mod error;
mod forward;
mod links;
mod local;
mod ssh;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::case::Target;
use crate::untrusted::Untrusted;
pub use error::HostError;
pub use forward::{reach, reach_all};
pub use links::{Hosts, Settings, back_off};

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// This one.
    Local,
    /// One that the user's ssh knows under this name.
    Ssh(String),
}

impl Host {
    /// The machine that a case calls so.
    ///
    /// # Errors
    /// ssh would take the name for an option, or it is no name.
    pub fn named(name: &str) -> Result<Self, HostError> {
        if name == "local" {
            return Ok(Self::Local);
        }
        let plain = |c: char| c.is_ascii_graphic() && !"'\"`$;&|<>(){}\\*?!#".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(HostError::Name { name: Untrusted::from(name).visible(60) });
        }
        Ok(Self::Ssh(name.to_owned()))
    }

    /// Its name in a case.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Ssh(name) => name,
        }
    }
}

/// A machine, and the prefix that gains rights on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The machine.
    pub host: Host,
    /// Words before each command, such as `sudo -n`; none as a rule.
    pub become_with: Vec<String>,
}

impl Place {
    /// Where a target runs.
    ///
    /// # Errors
    /// Its host is no name, or its `become` no command.
    pub fn of(target: &Target) -> Result<Self, HostError> {
        Self::new(Host::named(&target.host)?, target.become_with.as_deref().unwrap_or_default())
    }

    /// A machine and the prefix, as one line of words, that gains rights on it.
    ///
    /// # Errors
    /// The prefix is no command.
    pub fn new(host: Host, prefix: &str) -> Result<Self, HostError> {
        let become_with = shlex::split(prefix).ok_or_else(|| HostError::Become { text: prefix.to_owned() })?;
        Ok(Self { host, become_with })
    }

    /// The program and its arguments that run a script from standard input.
    fn shell(&self, args: &[String]) -> Vec<String> {
        let shell = ["sh", "-s", "--"].map(str::to_owned);
        self.become_with.iter().cloned().chain(shell).chain(args.iter().cloned()).collect()
    }
}

/// What a script may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take, the connection not counted.
    pub time: Duration,
    /// The most bytes of its output that are read.
    pub bytes: usize,
}

/// What a script wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// Its output, up to the limit.
    pub out: Vec<u8>,
    /// The start of its complaints.
    pub err: Untrusted,
}

/// Runs a POSIX shell script on a host, fed on its standard input: one round trip once the link stands.
///
/// # Errors
/// The host cannot be reached, the link breaks, or the script takes too long. What an unfinished script
/// wrote is dropped.
pub async fn run(
    hosts: &Hosts,
    place: &Place,
    script: &str,
    args: &[String],
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Output, HostError> {
    let words = place.shell(args);
    match &place.host {
        Host::Local => local::run(&words, script, limits, cancel).await,
        Host::Ssh(name) => {
            let session = tokio::select! {
                session = hosts.session(name) => session?,
                () = cancel.cancelled() => return Err(HostError::Cancelled),
            };
            let result = ssh::run(name, &session, &words, script, limits, cancel).await;
            if let Err(HostError::LinkLost { .. }) = &result {
                hosts.lost(name, &session).await;
            }
            result
        }
    }
}
