//! Candidates that are commands: the fork's own function in the server's own Python, here or on a host.
//!
//! Responsible for handing a task to a command and for taking its answer apart. Not responsible for
//! the way to the host, nor for what the command does there.
//!
//! The command reads safetensors files from its standard input, each behind its length in eight bytes,
//! and writes as many to its standard output, so that nothing is left on the host. `kernels/external.py` is a template for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::outside::ExternalCommand;
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::{Kind, Tensor, from_file, to_file};
use crate::remote::host::blocking::Blocking;
use crate::remote::host::{self, Host, Hosts, Limits, Place};
use crate::untrusted::Untrusted;

/// Bytes beside the tensors that an answer may have.
const SLACK: usize = 1 << 20;
/// What ends the inputs in the text that a shell is given; base64 has no such line.
const END: &str = "_end_of_inputs_";

/// Runs commands.
#[expect(missing_debug_implementations, reason = "it holds the caller's function")]
pub struct Commands<'a> {
    hosts: Hosts,
    runtime: Blocking,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Commands<'a> {
    /// Over these links; `cancelled` is asked while a command runs.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(hosts: Hosts, cancelled: &'a (dyn Fn() -> bool + Sync)) -> Result<Self, Failure> {
        let runtime = Blocking::new().map_err(|e| Failure::new(e.to_string()))?;
        Ok(Self { hosts, runtime, cancelled })
    }
}

impl Outside for Commands<'_> {
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        let mut all = self.run_all(candidate, std::slice::from_ref(task))?;
        all.pop().ok_or_else(|| Failure::new("there was nothing to run"))
    }

    /// All cases go to one process: a server's Python takes longer to start than a kernel to run.
    fn run_all(&self, candidate: &Candidate, tasks: &[Task]) -> Result<Vec<Vec<Tensor>>, Failure> {
        let Some(command) = &candidate.command else {
            return Err(Failure::new(format!("candidate `{}` has no command", candidate.name)));
        };
        let about = |f: Failure| Failure { message: format!("candidate `{}`: {}", candidate.name, f.message), ..f };
        let mut inputs = Vec::new();
        for task in tasks {
            let file = to_file(&task.inputs, notes(candidate, task))?;
            inputs.extend((file.len() as u64).to_le_bytes());
            inputs.extend(file);
        }
        let bytes = tasks.iter().map(Task::bytes).sum::<usize>() + SLACK;
        let output = script(command, &inputs).and_then(|text| self.shell(command, &text, bytes)).map_err(about)?;
        let last = || {
            let line = output.err.raw().lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
            Untrusted::from(crate::redact::text(line)).visible(160)
        };
        if output.status != Some(0) {
            let how = output.status.map_or_else(|| "by a signal".into(), |s| format!("with status {s}"));
            return Err(about(
                Failure::new(format!("`{}` ended {how}: {}", says(command), last()))
                    .hint("`kernels/external.py` is a template of what it must do"),
            ));
        }
        let mut left = output.out.as_slice();
        let one = |task: &Task| from_file(frame(&mut left)?, &task.outputs);
        let answers = tasks.iter().map(one).collect::<Result<Vec<_>, Failure>>();
        answers.map_err(|f| {
            about(Failure {
                message: format!("`{}` answered with {} (its last words: {})", says(command), f.message, last()),
                hint: f.hint.or_else(|| {
                    Some("its standard output must be the answers and nothing else; see `kernels/external.py`".into())
                }),
            })
        })
    }
}

/// The next file: its length in eight bytes, little-endian, and its bytes.
fn frame<'a>(left: &mut &'a [u8]) -> Result<&'a [u8], Failure> {
    let short = || Failure::new("too few bytes");
    let (length, rest) = left.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (file, rest) = rest.split_at_checked(length).ok_or_else(short)?;
    *left = rest;
    Ok(file)
}

impl Commands<'_> {
    fn shell(&self, command: &ExternalCommand, text: &str, bytes: usize) -> Result<host::Output, Failure> {
        let host = Host::named(&command.host).map_err(host::HostError::failure)?;
        let place = Place::new(host, &command.r#become).map_err(host::HostError::failure)?;
        let limits = Limits { time: Duration::from_secs(command.timeout_s), bytes };
        let end = self.runtime.run(&self.hosts, &place, text, &[], &limits, self.cancelled);
        end.map_err(host::HostError::failure)
    }
}

/// The command as a person would type it, with the host in front and without secrets.
pub fn says(command: &ExternalCommand) -> String {
    let words = shlex::try_join(command.argv.iter().map(String::as_str)).unwrap_or_else(|_| command.argv.join(" "));
    let place = if command.host == "local" { String::new() } else { format!("{}: ", command.host) };
    let before = if command.r#become.is_empty() { String::new() } else { format!("{} ", command.r#become) };
    crate::redact::text(&format!("{place}{before}{words}"))
}

/// Feeds the inputs to the command. The shell would read bytes itself, so that they are in base64.
fn script(command: &ExternalCommand, inputs: &[u8]) -> Result<String, Failure> {
    let words = shlex::try_join(command.argv.iter().map(String::as_str));
    let words = words.map_err(|e| Failure::new(format!("its words are no command line: {e}")))?;
    let mut text = format!("base64 -d <<'{END}' | {words}\n");
    let encoded = STANDARD.encode(inputs);
    for line in encoded.as_bytes().chunks(76) {
        let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
    }
    let _ = writeln!(text, "{END}");
    Ok(text)
}

/// What a command is told beside the tensors.
fn notes(candidate: &Candidate, task: &Task) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::from([
        ("spec".into(), candidate.spec.clone()),
        ("candidate".into(), candidate.name.clone()),
        ("rows".into(), task.rows.to_string()),
        ("splits".into(), candidate.accumulate.splits.to_string()),
    ]);
    notes.extend(task.ints.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
    notes.extend(task.floats.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
    let outputs = task.outputs.iter().map(|slot| {
        let kind = match slot.kind {
            Kind::F32 => "f32",
            Kind::I32 => "i32",
        };
        let shape: Vec<String> = slot.shape.iter().map(usize::to_string).collect();
        format!("{}:{kind}:{}", slot.name, shape.join("x"))
    });
    notes.insert("outputs".into(), outputs.collect::<Vec<_>>().join(" "));
    notes
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
