//! Finds the command of a script that starts the server.

use super::{Command, Script, ScriptWord};
use crate::engine::procedure::Failure;
use crate::remote::argv::{self, Word};

/// Programs that carry flags in launch scripts and are no servers.
const UTILITIES: &[&str] = &[
    "echo",
    "printf",
    "curl",
    "wget",
    "sleep",
    "mkdir",
    "cd",
    "rm",
    "cp",
    "mv",
    "ls",
    "cat",
    "grep",
    "sed",
    "awk",
    "tail",
    "head",
    "tee",
    "kill",
    "pkill",
    "pgrep",
    "nvidia-smi",
    "pip",
    "pip3",
    "git",
    "source",
    ".",
    "set",
    "ulimit",
    "wait",
    "trap",
    "test",
    "[",
    "chmod",
    "chown",
    "find",
    "date",
    "conda",
    "mamba",
    "module",
    "hf",
    "huggingface-cli",
    "sysctl",
    "modprobe",
    "apt",
    "apt-get",
    "tar",
    "rsync",
    "ln",
    "touch",
    "which",
    "type",
    "lsof",
    "ss",
    "netstat",
    "fuser",
    "jq",
    "bc",
    "getopt",
    "shopt",
    "read",
    "exit",
    "return",
    "local",
    "sync",
    "numastat",
    "nvidia-cuda-mps-control",
    "diff",
];

/// The command that starts the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server<'s> {
    /// The command.
    pub command: &'s Command,
    /// Its words; those of the array where the command is one.
    pub words: &'s [ScriptWord],
}

impl Server<'_> {
    /// The words for `remote::argv`.
    pub fn argv(&self) -> Vec<Word> {
        self.words.iter().map(|w| w.value.known().map(str::to_owned)).collect()
    }
}

/// The server's command: the one that is `exec`ed, else the last one that carries flags.
///
/// Where several could be meant, the one whose `--port` is `port` is taken.
///
/// # Errors
/// There is none, or several could be meant.
pub(super) fn find(script: &Script, port: Option<u16>) -> Result<Server<'_>, Failure> {
    let pool = candidates(script);
    if let [only] = &pool[..] {
        return Ok(only.clone());
    }
    let has_port = |c: &&Server<'_>| {
        let value = argv::flag_value(&c.argv(), "--port", true).ok().flatten();
        port.is_some() && value.and_then(|v| v.parse().ok()) == port
    };
    if let [only] = pool.iter().filter(has_port).collect::<Vec<_>>()[..] {
        return Ok(only.clone());
    }
    let serves = |c: &&Server<'_>| c.words.iter().any(|w| w.value.known().is_some_and(|t| t.contains("serve")));
    let serving: Vec<&Server<'_>> = pool.iter().filter(serves).collect();
    if let [only] = serving[..] {
        return Ok(only.clone());
    }
    let lines: Vec<String> = pool.iter().map(|c| c.command.line.to_string()).collect();
    if pool.is_empty() {
        return Err(Failure::new("the launch script has no command with flags that could be the server")
            .hint("the server must be started by the script itself, with its flags on the command"));
    }
    Err(Failure::new(format!("the launch script starts several programs with flags, on lines {}", lines.join(", ")))
        .hint("give the server's own `--port` on its command, or a script that starts one server"))
}

/// Every command that could start a server, in order; only those that are `exec`ed where there are such.
pub(super) fn candidates(script: &Script) -> Vec<Server<'_>> {
    let candidates: Vec<Server<'_>> = script.commands.iter().filter_map(|c| candidate(script, c)).collect();
    let replaced: Vec<Server<'_>> = candidates.iter().filter(|c| program_word(c, 0) == Some("exec")).cloned().collect();
    if replaced.is_empty() { candidates } else { replaced }
}

/// Whether a shell is given a text that carries flags: `bash -c 'server --flag'`.
fn inline(argv: &[Word], program: usize) -> bool {
    let shell = argv.get(program).and_then(|w| w.as_deref()).map(argv::base_name);
    matches!(shell, Some("bash" | "sh" | "dash" | "zsh"))
        && argv[program + 1..].iter().flatten().any(|w| w.contains(" -"))
        && argv[program + 1..].iter().flatten().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('c'))
}

fn candidate<'s>(script: &'s Script, command: &'s Command) -> Option<Server<'s>> {
    let words = match &command.words[..] {
        [only] => array_of(script, only).unwrap_or(&command.words),
        _ => &command.words,
    };
    let server = Server { command, words };
    let argv = server.argv();
    let at = argv::program(&argv);
    let program = argv.get(at)?.as_deref().unwrap_or_default();
    let carries = inline(&argv, at) || argv::flags(&argv).iter().any(|f| f.name.starts_with("--") || f.name.len() == 2);
    let is_server = !UTILITIES.contains(&argv::base_name(program)) && !script.functions.contains(program);
    (carries && is_server).then_some(server)
}

/// The elements of an array, where a word is `"${NAME[@]}"`.
fn array_of<'s>(script: &'s Script, word: &ScriptWord) -> Option<&'s [ScriptWord]> {
    let raw = &script.text[word.at.clone()];
    let name = raw.trim_matches('"').strip_prefix("${")?.strip_suffix("[@]}")?;
    script.arrays.get(name).map(Vec::as_slice)
}

fn program_word<'s>(server: &Server<'s>, at: usize) -> Option<&'s str> {
    server.words.get(at)?.value.known()
}
