//! Connections and scripts over ssh: the user's own `ssh`, with its config, agent and jump hosts.
//!
//! Host keys are checked strictly and nothing is ever asked. Not responsible for keeping connections,
//! which is `links`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder, Stdio};
use tokio_util::sync::CancellationToken;

use super::links::Settings;
use super::{HostError, Limits, Output, error, local};

/// A program that was killed with us leaves its connection for so long at most.
const IDLE_SECONDS: usize = 15 * 60;
/// How often ssh asks a silent host whether it is there; three times without an answer end the link.
const ALIVE: Duration = Duration::from_secs(5);
/// How long the check of a link may take; it asks a local process.
const CHECK: Duration = Duration::from_secs(5);

/// Makes a connection.
///
/// # Errors
/// There is none, and why.
pub(super) async fn connect(settings: &Settings, host: &str) -> Result<Session, HostError> {
    let mut builder = SessionBuilder::default();
    builder.known_hosts_check(KnownHosts::Strict).connect_timeout(settings.connect).server_alive_interval(ALIVE);
    if let Some(idle) = std::num::NonZeroUsize::new(IDLE_SECONDS) {
        builder.control_persist(ControlPersist::IdleFor(idle));
    }
    if let Some(config) = &settings.config {
        builder.config_file(config);
    }
    let folder = control_folder();
    builder.control_directory(&folder);
    // ssh ends by itself when the connection does not come about in time; a host that accepts and stays
    // silent afterwards is ended here.
    let limit = settings.connect + Duration::from_secs(10);
    match tokio::time::timeout(limit, builder.connect(host)).await {
        Err(_) => Err(HostError::Timeout { host: host.into(), seconds: limit.as_secs() }),
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(no_connection(host, &error)),
    }
}

/// Sockets have short names, so that they cannot lie deep in a home folder.
fn control_folder() -> std::path::PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
    let usable = |path: &Path| path.is_absolute() && path.is_dir() && path.as_os_str().len() < 60;
    runtime.filter(|p| usable(p)).or_else(|| Some(std::env::temp_dir()).filter(|p| usable(p))).unwrap_or("/tmp".into())
}

fn no_connection(host: &str, error: &openssh::Error) -> HostError {
    match error {
        openssh::Error::Connect(io) if io.kind() == std::io::ErrorKind::NotFound => {
            HostError::NoSsh { why: "the program `ssh` is not here".into() }
        }
        openssh::Error::Connect(io) => error::refused(host, &io.to_string()),
        openssh::Error::Master(io) => HostError::NoSsh { why: io.to_string() },
        other => HostError::Unreachable { host: host.into(), why: other.to_string() },
    }
}

/// Whether a link stands.
pub(super) async fn stands(session: &Session) -> bool {
    matches!(tokio::time::timeout(CHECK, session.check()).await, Ok(Ok(())))
}

/// Runs a script over a link.
///
/// # Errors
/// The link broke, it took too long, or the shell is not there.
pub(super) async fn run(
    host: &str,
    session: &Arc<Session>,
    words: &[String],
    script: &str,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<Output, HostError> {
    let (program, args) = words.split_first().map_or(("sh", &[][..]), |(p, a)| (p.as_str(), a));
    let mut command = session.clone().arc_command(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let no_ssh = |e: openssh::Error| HostError::NoSsh { why: e.to_string() };
    let mut child = command.spawn().await.map_err(no_ssh)?;
    let (input, out, err) = (child.stdin().take(), child.stdout().take(), child.stderr().take());
    let work = async {
        let (out, err) = local::talk(script, input, out, err, limits.bytes).await;
        (child.wait().await, out, err)
    };
    let (end, out, err) = tokio::select! {
        done = work => done,
        () = tokio::time::sleep(limits.time) => {
            let host = host.to_owned();
            return Err(if stands(session).await {
                HostError::Timeout { host, seconds: limits.time.as_secs() }
            } else {
                HostError::LinkLost { host }
            });
        }
        () = cancel.cancelled() => return Err(HostError::Cancelled),
    };
    match end {
        Ok(status) => Ok(Output { status: status.code(), out, err }),
        // ssh says the same of a link that broke and of a script that a signal ended.
        Err(openssh::Error::RemoteProcessTerminated | openssh::Error::Disconnected) => {
            if stands(session).await {
                Ok(Output { status: None, out, err })
            } else {
                Err(HostError::LinkLost { host: host.into() })
            }
        }
        Err(openssh::Error::Remote(_)) => {
            let said = err.raw().lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("not found").to_owned();
            let why = crate::untrusted::Untrusted::from(said).visible(160);
            Err(HostError::Program { host: host.into(), program: program.into(), why })
        }
        Err(other) => Err(no_ssh(other)),
    }
}
