//! Whose process owns a target's port: the target's own server, or a stranger.

use super::argv::{self, Word};
use super::local::{self, PortOwner};
use super::proc::{Cmdline, ProcessInfo, Unknown};
use crate::engine::procedure::Failure;
use crate::redact;

/// The server process of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The process that owns the port.
    pub process: ProcessInfo,
    /// The script that it was started from, as far as its ancestors tell; `None` where they do not.
    pub started_from: Option<String>,
}

/// What tells a target's own process from a stranger.
#[derive(Clone, Debug)]
pub struct Marks<'a> {
    /// The launch script.
    pub script: &'a str,
    /// Folder of our overrides.
    pub overrides: &'a str,
    /// The server's command as the script declares it; empty where it was not found.
    pub argv: &'a [Word],
}

/// The target's server; `None` where nobody owns the port.
///
/// # Errors
/// The port is owned by a process that is not this target's, or that cannot be named.
pub fn running(target: &str, port: u16, marks: &Marks<'_>) -> Result<Option<Running>, Failure> {
    let process = match local::port_owner(port) {
        PortOwner::Nobody => return Ok(None),
        PortOwner::Process(process) => process,
        PortOwner::Unknown(Unknown(why)) => {
            return Err(Failure::new(format!("cannot tell who owns port {port} of `{target}`: {why}"))
                .hint("run as the user who runs the server, or with more rights"));
        }
    };
    let started_from = started_from(process.key.pid, marks);
    let same = started_from.is_some() || looks_declared(process.key.pid, marks.argv);
    if same {
        return Ok(Some(Running { process, started_from }));
    }
    Err(Failure::new(format!("port {port} of `{target}` is owned by another process: {}", describe(process.key.pid)))
        .hint("stop that process yourself, or correct the target's url or script in the case"))
}

/// Pid and redacted command line, for a message.
pub fn describe(pid: u32) -> String {
    let line = match local::cmdline(pid) {
        Ok(Cmdline::Words(words)) => redact::argv(&words).join(" "),
        Ok(Cmdline::Title(title)) => title,
        Err(Unknown(why)) => why,
    };
    let shown = crate::untrusted::Untrusted::from(line).visible(160);
    format!("pid {pid}, `{shown}`")
}

/// The launch script or override that a shell among the process and its ancestors runs.
fn started_from(pid: u32, marks: &Marks<'_>) -> Option<String> {
    local::lineage(pid).iter().find_map(|p| {
        let line = local::cmdline(p.key.pid).ok()?;
        let words = line.words().ok()?;
        let program = argv::base_name(words.first()?);
        if !matches!(program, "bash" | "sh" | "dash") {
            return None;
        }
        words[1..].iter().find_map(|word| {
            let path = resolved(p.key.pid, word);
            let ours = path.strip_suffix(".sh").is_some_and(|p| p.starts_with(&format!("{}/", marks.overrides)));
            (ours || path == marks.script).then_some(path)
        })
    })
}

/// A path as the process means it.
fn resolved(pid: u32, word: &str) -> String {
    if word.starts_with('/') {
        return word.to_owned();
    }
    let folder = fs_err::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    folder.join(word.trim_start_matches("./")).display().to_string()
}

/// Whether a process is the program that the script declares, for a server that replaced its shell.
fn looks_declared(pid: u32, declared: &[Word]) -> bool {
    let Ok(line) = local::cmdline(pid) else { return false };
    let Ok(words) = line.words() else { return false };
    let words = argv::known(words);
    if let Some(should) = argv::identity(declared) {
        return argv::identity(&words) == Some(should);
    }
    // The script takes the program from a variable: what stands between it and the first flag decides.
    let (is, should) = (operands(&words), operands(declared));
    !should.is_empty() && should.iter().all(Option::is_some) && is == should
}

fn operands(words: &[Word]) -> &[Word] {
    let after = words.get(argv::program(words) + 1..).unwrap_or_default();
    let end = after.iter().position(|w| w.as_ref().is_some_and(|w| w.starts_with("--"))).unwrap_or(after.len());
    &after[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_stand_between_program_and_flags() {
        let words = argv::known(&["nohup", "/x/bin", "lab", "serve", "--port", "1", "x"]);
        assert_eq!(operands(&words), &argv::known(&["lab", "serve"])[..]);
        assert!(operands(&[]).is_empty());
    }

    #[test]
    fn this_process_is_known_by_its_program() {
        let line = local::cmdline(std::process::id()).unwrap();
        let mine = argv::known(line.words().unwrap());
        assert!(looks_declared(std::process::id(), &mine));
        assert!(!looks_declared(std::process::id(), &argv::known(&["python", "-m", "srv", "--port", "1"])));
        assert!(!looks_declared(std::process::id(), &[None, Some("--port".into())]));
    }
}
