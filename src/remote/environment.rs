//! The environment that a server's launch script was started in, against the one that a start from here would give it.
//!
//! A restart must change the asked levels and nothing else: what somebody had exported by hand before starting the
//! server is kept, what only this program's own shell has is taken away. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::MARK;
use super::probe::owner::Own;
use super::probe::types::Probe;
use super::proc::{Environ, Unknown};
use crate::redact;

/// What a start must set or unset, and what its reader must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Name and value; `None` is unset.
    pub changes: Vec<(String, Option<String>)>,
    /// Names of secrets that the server was started with and that this shell does not have, or has otherwise.
    pub secrets: Vec<String>,
    /// Why the environment is not known; `None` where it was read.
    pub unknown: Option<String>,
}

/// What a start must change so that the script finds what it found when the server of `own` was started. `shell` is the
/// environment that a shell of ours has on the host.
///
/// `assigned` are the names that the script or its override assigns: where the shell became the server, what it was
/// started with shows only beside them.
pub fn of(probe: &Probe, own: &Own, shell: &Environ, assigned: &BTreeSet<String>) -> Difference {
    let ours: BTreeMap<String, String> = shell.pairs.iter().cloned().collect();
    let block = |pid: u32| {
        let process = probe.processes.get(&pid).ok_or_else(|| Unknown(format!("process {pid} was not read")))?;
        process.environ.clone()
    };
    if let Some(Ok(environ)) = own.launcher.map(|l| block(l.pid)) {
        return against(&environ, &ours, &BTreeSet::new());
    }
    match block(own.key.pid) {
        Ok(environ) => against(&environ, &ours, assigned),
        Err(Unknown(why)) => Difference { unknown: Some(why), ..Difference::default() },
    }
}

fn against(environ: &Environ, own: &BTreeMap<String, String>, assigned: &BTreeSet<String>) -> Difference {
    let mut was: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in &environ.pairs {
        // The first entry of a name counts.
        was.entry(name).or_insert(value);
    }
    let mut out = Difference::default();
    let names: BTreeSet<&str> = was.keys().copied().chain(own.keys().map(String::as_str)).collect();
    for name in names.into_iter().filter(|n| matters(n) && !assigned.contains(*n)) {
        match (was.get(name), own.get(name)) {
            (Some(was), Some(own)) if was == own => {}
            (Some(was), _) if redact::value(name, was) != **was => out.secrets.push(name.to_owned()),
            (Some(was), _) => out.changes.push((name.to_owned(), Some((*was).to_owned()))),
            (None, _) => out.changes.push((name.to_owned(), None)),
        }
    }
    out
}

/// Names that belong to a login, a terminal or a shell, and to no server.
const OF_A_SHELL: &[&str] = &[
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "TERM",
    "COLORTERM",
    "LS_COLORS",
    "LESSOPEN",
    "LESSCLOSE",
    "STY",
    "WINDOW",
    "WINDOWID",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
    "MAIL",
    "HOSTNAME",
    "LINES",
    "COLUMNS",
    "PS1",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "NO_COLOR",
    "CLICOLOR",
    "SHELL",
    "HISTFILE",
    "HISTSIZE",
    "HISTCONTROL",
    "XDG_RUNTIME_DIR",
    "XDG_SEAT",
    "XDG_VTNR",
    "XDG_CURRENT_DESKTOP",
];
const OF_A_SHELL_BEGIN: &[&str] =
    &["SSH_", "XDG_SESSION_", "TMUX", "TERM_PROGRAM", "SUDO_", "PATCHBENCH_", "BASH_FUNC_", "CARGO_", "NEXTEST"];

fn matters(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    let shells = OF_A_SHELL.contains(&name) || OF_A_SHELL_BEGIN.iter().any(|p| name.starts_with(p));
    plain && name != MARK && !shells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        text.split_whitespace().filter_map(|p| p.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    }

    fn check(was: &str, own: &str, assigned: &[&str], expect: &str) {
        let environ = Environ { pairs: pairs(was), odd: 0 };
        let assigned = assigned.iter().map(|n| (*n).to_owned()).collect();
        let found = against(&environ, &pairs(own).into_iter().collect(), &assigned);
        let shown: Vec<String> = found
            .changes
            .iter()
            .map(|(n, v)| v.as_ref().map_or_else(|| format!("-{n}"), |v| format!("{n}={v}")))
            .chain(found.secrets.iter().map(|n| format!("!{n}")))
            .collect();
        assert_eq!(shown.join(" "), expect, "{was} against {own}");
    }

    #[test]
    fn what_was_set_by_hand_is_kept_and_what_is_only_here_is_not_given() {
        for (was, own, assigned, expect) in [
            ("A=1 B=2", "A=1 B=2", &[][..], ""),
            ("A=1", "A=2", &[], "A=1"),
            ("A=1", "", &[], "A=1"),
            ("", "A=1", &[], "-A"),
            ("A=1", "A=2", &["A"], ""),
            ("A=1 A=3", "A=1", &[], ""),
            ("SHLVL=2 TERM=x SSH_TTY=y PATCHBENCH_RUN=z", "SHLVL=1", &[], ""),
            ("HF_TOKEN=hf_abcdefghijkl", "", &[], "!HF_TOKEN"),
            ("HF_TOKEN=hf_abcdefghijkl", "HF_TOKEN=hf_abcdefghijkl", &[], ""),
            ("", "HF_TOKEN=hf_abcdefghijkl", &[], "-HF_TOKEN"),
            ("BASH_FUNC_x%%=1 A-B=1 1A=1", "", &[], ""),
            ("XDG_CACHE_HOME=/nvme RUST_LOG=debug XDG_SESSION_ID=3", "", &[], "RUST_LOG=debug XDG_CACHE_HOME=/nvme"),
        ] {
            check(was, own, assigned, expect);
        }
    }
}
