//! Whose process owns a target's port: the target's own server, or a stranger. The rule alone; `probe::owner` applies it
//! to what a probe read.

use super::MARK;
use super::argv::{self, Word};
use super::proc::{Cmdline, Environ, Unknown};
use crate::engine::procedure::Failure;
use crate::redact;
use crate::untrusted::Untrusted;

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

/// A process as its owner is told from it: of this machine or of a probe.
#[derive(Clone, Debug)]
pub struct Kin {
    /// Arguments or title.
    pub cmdline: Result<Cmdline, Unknown>,
    /// Environment at its last `exec`.
    pub environ: Result<Environ, Unknown>,
    /// Its working folder.
    pub folder: Option<String>,
    /// Its session; `None` is not known.
    pub session: Option<u32>,
}

/// How a target's own process is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The script that it was started from, as far as its ancestors tell.
    pub started_from: Option<String>,
    /// Place in the lineage of the shell that runs that script.
    pub shell: Option<usize>,
}

/// Whether a process is the target's own; `lineage` is the process and what started it, and `text` reads an override.
/// Pure, but for `text`.
pub fn recognise(
    target: &str,
    lineage: &[Kin],
    marks: &Marks<'_>,
    text: &dyn Fn(&str) -> Option<String>,
) -> Option<Known> {
    for (place, kin) in lineage.iter().enumerate() {
        if let Some(file) = script_of(target, kin, marks, text) {
            return Some(Known { started_from: Some(file), shell: Some(place) });
        }
    }
    let server = lineage.first()?;
    // A server that rewrote its arguments may still be started by one that did not, in the same session.
    let mut session =
        lineage.iter().filter(|k| std::ptr::eq(*k, server) || (k.session.is_some() && k.session == server.session));
    let own = marked(target, marks, server) || session.any(|k| !is_shell(&k.cmdline) && looks_declared(k, marks.argv));
    own.then_some(Known { started_from: None, shell: None })
}

/// What is said of a port that somebody else owns.
pub fn stranger(target: &str, port: u16, who: &str) -> Failure {
    Failure::new(format!("port {port} of `{target}` is owned by another process: {who}"))
        .hint("stop that process yourself, or correct the target's url or script in the case")
}

/// Pid and redacted command line, for a message.
pub fn described(pid: u32, cmdline: &Result<Cmdline, Unknown>) -> String {
    format!("pid {pid}, `{}`", shown(cmdline).visible(160))
}

/// A command line or title with its secrets taken out, or why there is none.
pub fn shown(cmdline: &Result<Cmdline, Unknown>) -> Untrusted {
    match cmdline {
        Ok(Cmdline::Words(words)) => redact::argv(words).join(" "),
        Ok(Cmdline::Title(title)) => redact::text(title),
        Err(Unknown(why)) => why.clone(),
    }
    .into()
}

/// The launch script or an override of it that a shell runs.
fn script_of(target: &str, kin: &Kin, marks: &Marks<'_>, text: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let words = kin.cmdline.as_ref().ok()?.words().ok().filter(|_| is_shell(&kin.cmdline))?;
    words[1..].iter().filter_map(|word| resolved(kin, word)).find(|path| {
        let ours = path.strip_suffix(".sh").is_some_and(|p| p.starts_with(&format!("{}/", marks.overrides)));
        path == marks.script || (ours && (overrides(text(path), marks.script) || marked(target, marks, kin)))
    })
}

/// Whether a command line is that of a shell, which runs a launch script or waits for one.
pub fn is_shell(cmdline: &Result<Cmdline, Unknown>) -> bool {
    let words = cmdline.as_ref().ok().and_then(|c| c.words().ok());
    let program = words.and_then(|w| w.first()).map(|w| argv::base_name(w).trim_start_matches('-'));
    matches!(program, Some("bash" | "sh" | "dash" | "zsh" | "ash" | "busybox" | "fish"))
}

/// Whether a text is an override of this script, and not of another target's.
fn overrides(text: Option<String>, script: &str) -> bool {
    let header = super::script::header(script).ok();
    header.zip(text).is_some_and(|(header, text)| text.starts_with(&header))
}

/// Whether a process carries the mark of one of our starts of this target.
fn marked(target: &str, marks: &Marks<'_>, kin: &Kin) -> bool {
    let stem = format!("{}/runs/{}-", marks.overrides, run_stem(target, marks.script));
    kin.environ.as_ref().is_ok_and(|e| e.get(MARK).is_some_and(|run| run.starts_with(&stem)))
}

/// What names the starts of one target: its name alone is that of other targets in other cases.
pub fn run_stem(target: &str, script: &str) -> String {
    let hash = blake3::hash(script.as_bytes()).to_hex();
    format!("{}-{}", file_name(target), &hash[..8])
}

/// A name that can stand in a path.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// A path as the process means it.
fn resolved(kin: &Kin, word: &str) -> Option<String> {
    if word.starts_with('/') {
        return Some(word.to_owned());
    }
    Some(format!("{}/{}", kin.folder.as_deref()?.trim_end_matches('/'), word.trim_start_matches("./")))
}

/// Whether a process is the program that the script declares, for a server that replaced its shell.
fn looks_declared(kin: &Kin, declared: &[Word]) -> bool {
    let Some(words) = kin.cmdline.as_ref().ok().and_then(|c| c.words().ok()) else { return false };
    let words = argv::known(words);
    if contradicts(&words, declared) {
        return false;
    }
    if let Some(should) = argv::identity(declared) {
        return argv::identity(&words) == Some(should);
    }
    // The script takes the program from a variable: what stands between it and the first flag decides.
    let (is, should) = (operands(&words), operands(declared));
    !should.is_empty() && should.iter().all(Option::is_some) && is == should
}

/// Flags that say which server it is, whatever levels it has.
const IDENTIFYING: &[&str] = &["--port", "-p", "--model-path", "--model", "-m", "--served-model-name", "--alias"];

/// Whether a process serves another model, or on another port, than the script declares.
fn contradicts(words: &[Word], declared: &[Word]) -> bool {
    IDENTIFYING.iter().any(|flag| {
        let value = |words: &[Word]| argv::flag_value(words, flag, true).ok().flatten();
        value(declared).zip(value(words)).is_some_and(|(should, is)| should != is)
    })
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
    fn a_process_is_known_by_its_program() {
        let words = ["/x/python", "-m", "srv", "--port", "1"].map(str::to_owned).to_vec();
        let kin =
            Kin { cmdline: Ok(Cmdline::Words(words)), environ: Ok(Environ::default()), folder: None, session: None };
        assert!(looks_declared(&kin, &argv::known(&["/x/python", "-m", "srv", "--port", "1"])));
        assert!(!looks_declared(&kin, &argv::known(&["python", "-m", "other", "--port", "1"])));
        assert!(!looks_declared(&kin, &[None, Some("--port".into())]));
    }

    #[test]
    fn the_same_program_with_another_model_is_a_stranger() {
        let declared = argv::known(&["python", "-m", "srv", "--model-path", "/m/a", "--port", "1", "--tp", "4"]);
        for (line, expect) in [
            (&["python", "-m", "srv", "--model-path", "/m/a", "--port=1", "--tp", "8"][..], false),
            (&["python", "-m", "srv", "--model-path", "/m/b", "--port", "1"], true),
            (&["python", "-m", "srv", "--model-path", "/m/a", "--port", "2"], true),
            (&["python", "-m", "srv"], false),
        ] {
            assert_eq!(contradicts(&argv::known(line), &declared), expect, "{line:?}");
        }
    }

    #[test]
    fn an_override_of_another_script_is_a_stranger() {
        let text = Some(format!("{}srv --port 1\n", crate::remote::script::header("/a/serve.sh").unwrap()));
        assert!(overrides(text.clone(), "/a/serve.sh"));
        assert!(!overrides(text, "/b/serve.sh") && !overrides(None, "/a/serve.sh"));
    }
}
