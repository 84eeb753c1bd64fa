//! What changed on a host since a time: one question, one framed answer.
//!
//! `types` says what comes out, `parse`, `host` and `target` read it out of the answer and are pure. Not
//! responsible for what a change means, nor for what the servers say of themselves.

mod host;
pub mod parse;
#[cfg(test)]
mod real_tests;
mod target;
#[cfg(test)]
mod tests;
pub mod types;

use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::case::{Case, Manager, Target};
use crate::engine::procedure::Failure;
use crate::remote::host::{HostError, Hosts, Limits, Place, run};
use crate::remote::probe::frame;
pub use types::{Change, Gap, History, Kind, Starter, Subject};

/// The script, which is the same for every host and every question.
pub const SCRIPT: &str = concat!(
    include_str!("../../remote/probe/frame.sh"),
    include_str!("../../remote/probe/sockets.sh"),
    include_str!("history.sh")
);
/// How long a host may take to answer.
pub const TIME: Duration = Duration::from_mins(4);

/// What a host is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name of the host in the case.
    pub host: String,
    /// The time to look back to.
    pub since: Timestamp,
    /// The targets on the host.
    pub subjects: Vec<Subject>,
}

impl Question {
    /// The words for the script.
    pub fn words(&self, nonce: &str) -> Vec<String> {
        let mut words = vec![nonce.to_owned(), self.since.as_second().to_string()];
        let mut say = |key: &str, value: &str| words.extend([key.to_owned(), value.to_owned()]);
        for subject in &self.subjects {
            say("target", &subject.name);
            if let Starter::Unit(unit) = &subject.starter {
                say("unit", unit);
            }
            say("process", &subject.port.unwrap_or_default().to_string());
            let places =
                [("script", &subject.script), ("checkout", &subject.checkout), ("checkpoint", &subject.checkpoint)];
            places
                .into_iter()
                .filter_map(|(key, path)| Some((key, path.as_ref()?)))
                .for_each(|(key, path)| say(key, path));
            subject.modules.iter().for_each(|module| say("module", module));
        }
        words
    }
}

/// What is asked about a target of a case.
pub fn subject(case: &Case, target: &Target) -> Subject {
    let (starter, script) = match &target.manager {
        Manager::Systemd { systemd } => (Starter::Unit(systemd.clone()), target.launch_script.clone()),
        Manager::Script { script, .. } => (Starter::Script, Some(script.clone())),
        Manager::Docker { .. } => (Starter::Container, target.launch_script.clone()),
        Manager::Unknown => (Starter::Unknown, target.launch_script.clone()),
    };
    let mut modules: Vec<String> =
        case.patches_of(&target.name).filter_map(|p| p.site.as_deref().map(|site| file_of(site).to_owned())).collect();
    modules.sort();
    modules.dedup();
    Subject {
        name: target.name.clone(),
        port: target.port(),
        starter,
        script,
        checkout: target.checkout.clone(),
        checkpoint: target.checkpoint.clone(),
        modules,
    }
}

/// The file of a site, which may end in a line or in lines.
fn file_of(site: &str) -> &str {
    match site.rsplit_once(':') {
        Some((file, lines)) if !lines.is_empty() && lines.chars().all(|c| c.is_ascii_digit() || c == '-') => file,
        _ => site,
    }
}

/// Asks a host once.
///
/// # Errors
/// The host cannot be reached, the link breaks, or what comes back is no answer.
pub async fn ask(
    hosts: &Hosts,
    place: &Place,
    question: &Question,
    cancel: &CancellationToken,
) -> Result<History, Failure> {
    let nonce = uuid::Uuid::now_v7().simple().to_string();
    let limits = Limits { time: TIME, bytes: frame::MOST_BYTES };
    let before = Timestamp::now();
    let output =
        run(hosts, place, SCRIPT, &question.words(&nonce), &limits, cancel).await.map_err(HostError::failure)?;
    let after = Timestamp::now();
    let mut history = parse::parse(&output.out, question, &nonce).map_err(|error| {
        Failure::new(format!("`{}`: {error}", place.host.name()))
            .hint("the host needs a POSIX `sh`, `/proc` and coreutils; a target's `become` must gain its rights without a question")
    })?;
    // The host read its clock somewhere between: only what lies outside is certain.
    history.facts.ahead = history.facts.time.clone().map(|time| {
        let nearest = time.clamp(before, after);
        time.duration_since(nearest)
    });
    Ok(history)
}
