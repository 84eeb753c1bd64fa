//! Why a host could not be used, each with what the user can do.

use crate::engine::procedure::Failure;
use crate::untrusted::Untrusted;

/// Why a host could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The name in the case is none.
    #[error("`{name}` is no name of a host")]
    Name {
        /// The name.
        name: String,
    },
    /// The prefix that gains rights is no command.
    #[error("`become = \"{text}\"` cannot be split into words")]
    Become {
        /// The prefix.
        text: String,
    },
    /// ssh itself is not here or cannot work.
    #[error("ssh cannot be run: {why}")]
    NoSsh {
        /// Why.
        why: String,
    },
    /// No connection comes about.
    #[error("`{host}` cannot be reached: {why}")]
    Unreachable {
        /// The host.
        host: String,
        /// In ssh's words.
        why: String,
    },
    /// The host does not take our keys.
    #[error("`{host}` accepts none of our keys")]
    KeyRefused {
        /// The host.
        host: String,
    },
    /// The host shows another key than the known one.
    #[error("the key of `{host}` is not the one that is known: it may be another machine")]
    HostKeyChanged {
        /// The host.
        host: String,
    },
    /// The host's key is not known.
    #[error("the key of `{host}` is not known")]
    HostKeyUnknown {
        /// The host.
        host: String,
    },
    /// The link stood and broke.
    #[error("the link to `{host}` broke in the middle")]
    LinkLost {
        /// The host.
        host: String,
    },
    /// It took too long.
    #[error("`{host}` did not answer within {seconds} s")]
    Timeout {
        /// The host.
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// The shell or the prefix is not on the host.
    #[error("`{host}` cannot run `{program}`: {why}")]
    Program {
        /// The host.
        host: String,
        /// The program.
        program: String,
        /// Why.
        why: String,
    },
    /// A port could not be forwarded.
    #[error("port {port} of `{host}` cannot be forwarded: {why}")]
    Forward {
        /// The host.
        host: String,
        /// The port there.
        port: u16,
        /// In ssh's words.
        why: String,
    },
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl HostError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        let host = match self {
            Self::Cancelled => return None,
            Self::Name { .. } | Self::Become { .. } | Self::NoSsh { .. } => "",
            Self::Unreachable { host, .. }
            | Self::KeyRefused { host }
            | Self::HostKeyChanged { host }
            | Self::HostKeyUnknown { host }
            | Self::LinkLost { host }
            | Self::Timeout { host, .. }
            | Self::Program { host, .. }
            | Self::Forward { host, .. } => host,
        };
        Some(match self {
            Self::Name { .. } => "write a name that `ssh` knows, or `local`".into(),
            Self::Become { .. } => "write the words that gain rights, such as `sudo -n`".into(),
            Self::NoSsh { .. } => "install the OpenSSH client, and see what `patchbench doctor` says".into(),
            Self::Unreachable { .. } => {
                format!("try `ssh {host} true`; name, port and jump hosts come from your ssh config")
            }
            Self::KeyRefused { .. } => {
                format!(
                    "no password is ever asked for: add your key to the agent (`ssh-add`) and try `ssh {host} true`"
                )
            }
            Self::HostKeyChanged { .. } => {
                format!("ask who changed it; once you are sure, `ssh-keygen -R {host}` forgets the old key")
            }
            Self::HostKeyUnknown { .. } => format!("connect once with `ssh {host}`, and compare the fingerprint"),
            Self::LinkLost { .. } => "what was being read is unknown; the link is made anew, ask again".into(),
            Self::Timeout { .. } => format!("the host may be overloaded; try `ssh {host} uptime`"),
            Self::Program { .. } => "check the target's `become`, and that the host has a POSIX `sh`".into(),
            Self::Forward { .. } => "the host's sshd must allow it (`AllowTcpForwarding`)".into(),
            Self::Cancelled => return None,
        })
    }

    /// Whether trying again by itself is of no use: a person has to do something first.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Unreachable { .. } | Self::LinkLost { .. } | Self::Timeout { .. })
    }

    /// The same, for a job.
    pub fn failure(self) -> Failure {
        let hint = self.hint();
        let failure = Failure::new(self.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Reads what ssh said when no connection came about.
pub(super) fn refused(host: &str, said: &str) -> HostError {
    let host = host.to_owned();
    let has = |part: &str| said.contains(part);
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") || has("HOST IDENTIFICATION HAS CHANGED") {
        return HostError::HostKeyChanged { host };
    }
    if has("host key is known for") || has("Host key verification failed") {
        return HostError::HostKeyUnknown { host };
    }
    if has("Permission denied (") || has("Too many authentication failures") || has("No more authentication methods") {
        return HostError::KeyRefused { host };
    }
    let last = said.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or("ssh gives no reason");
    let why = Untrusted::from(crate::redact::text(last)).visible(200);
    if has("too long for Unix domain socket") || has("Bad configuration option") || has("Bad owner or permissions") {
        return HostError::NoSsh { why };
    }
    HostError::Unreachable { host, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_sorted() {
        let check =
            |said: &str, expect: fn(String) -> HostError| assert_eq!(refused("box", said), expect("box".into()));
        check(
            "@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.\n",
            |host| HostError::HostKeyChanged { host },
        );
        check(
            "No ED25519 host key is known for box and you have requested strict checking.\nHost key verification failed.",
            |host| HostError::HostKeyUnknown { host },
        );
        check("me@box: Permission denied (publickey).", |host| HostError::KeyRefused { host });
        check("connect to host box port 22: Connection refused", |host| HostError::Unreachable {
            host,
            why: "connect to host box port 22: Connection refused".into(),
        });
        check("", |host| HostError::Unreachable { host, why: "ssh gives no reason".into() });
        check("a\x1b[31m\n/home/me/.ssh/config: line 3: Bad configuration option: x\u{1b}", |_| HostError::NoSsh {
            why: "/home/me/.ssh/config: line 3: Bad configuration option: x␛".into(),
        });
    }

    #[test]
    fn every_error_but_a_cancel_has_a_hint() {
        let host = || "box".to_owned();
        let why = || "x".to_owned();
        for error in [
            HostError::Name { name: host() },
            HostError::Become { text: why() },
            HostError::NoSsh { why: why() },
            HostError::Unreachable { host: host(), why: why() },
            HostError::KeyRefused { host: host() },
            HostError::HostKeyChanged { host: host() },
            HostError::HostKeyUnknown { host: host() },
            HostError::LinkLost { host: host() },
            HostError::Timeout { host: host(), seconds: 3 },
            HostError::Program { host: host(), program: "sudo".into(), why: why() },
            HostError::Forward { host: host(), port: 3, why: why() },
        ] {
            assert!(error.failure().hint.is_some_and(|h| !h.is_empty()));
        }
        assert!(HostError::Cancelled.hint().is_none());
    }
}
