//! What a log says, as plain data. Pure.

use super::Level;
use crate::serving::python_literal::PyValue;

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The server is ready.
    Ready,
    /// The resolved arguments of a start.
    ServerArgs(ServerArgs),
    /// The configuration that an engine of `vLLM` starts with, and its version.
    EngineConfig(ServerArgs, Option<String>),
    /// One step of prefill or decode.
    Batch(Batch),
    /// How a draft fared.
    Speculation(Speculation),
    /// Load of an engine, as name and value.
    Load(Vec<(String, String)>),
    /// Values that the server chose by itself, as name and value.
    Decided(Vec<(String, String)>),
    /// Numbers, such as sizes of memory pools: what they are about, then name and value.
    Figures(String, Vec<(String, String)>),
    /// systemd restarts the unit; the restart counter.
    Restarting(u32),
    /// systemd does not understand a line of a unit.
    UnitWarning(String),
    /// Nothing that this grammar knows.
    Other,
    /// A known kind of line whose content is broken.
    Damaged,
}

/// One line with what stands before its message.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Time of the server's own prefix, as written.
    pub time: Option<String>,
    /// Ranks of the prefix, such as `TP` 2.
    pub ranks: Vec<(String, u32)>,
    /// Process id of the journal's prefix: the process that opened the stream, the same for all ranks.
    pub pid: Option<u32>,
    /// Process of `vLLM` that speaks, such as `EngineCore`, and its own pid.
    pub component: Option<(String, u32)>,
    /// How grave the writer holds it.
    pub level: Level,
    /// What it says.
    pub said: Said,
}

/// What an arguments line shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgsForm {
    /// Every argument, as `SGLang` prints it.
    #[default]
    All,
    /// Only what differs from its default, as `vLLM` prints it: a name that is missing may have been given.
    NonDefault,
}

/// How a draft fared in one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speculation {
    /// Mean tokens a step, the bonus token included.
    pub mean_length: Option<f64>,
    /// Drafted tokens that were accepted.
    pub accepted: Option<u64>,
    /// Drafted tokens.
    pub drafted: Option<u64>,
    /// Share of accepted tokens by place in the draft.
    pub per_position: Vec<f64>,
    /// Accepted share as the line states it.
    pub stated: Option<f64>,
}

impl Speculation {
    /// Accepted share of the drafted tokens: as stated, else from the counts.
    pub fn acceptance(&self) -> Option<f64> {
        let counted = match (self.accepted, self.drafted) {
            (Some(accepted), Some(drafted)) if drafted > 0 => Some(accepted as f64 / drafted as f64),
            _ => None,
        };
        self.stated.or(counted)
    }

    /// Whether every place was accepted always.
    pub fn accepts_everything(&self) -> bool {
        self.per_position.len() > 1 && self.per_position.iter().all(|p| *p >= 1.0)
    }
}

/// Resolved arguments of one start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerArgs {
    /// Name and value, in the order of the line; secrets are taken out.
    pub values: Vec<(String, PyValue)>,
    /// Names of secrets that were set.
    pub withheld: Vec<String>,
    /// Whether the line was whole.
    pub complete: bool,
    /// What the line shows.
    pub form: ArgsForm,
}

impl ServerArgs {
    /// The value of that name; `None` is *the line does not speak of it*.
    pub fn get(&self, name: &str) -> Option<&PyValue> {
        self.values.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// Which kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// One chunk of prompts.
    Prefill,
    /// A sample of the decode steps.
    Decode,
}

/// One batch line.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Which kind of step.
    pub kind: BatchKind,
    /// Name and value, in the order of the line.
    pub fields: Vec<(String, String)>,
    /// Data-parallel rank that wrote it, where there are several.
    pub dp: Option<u32>,
}

impl Batch {
    /// The text of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A field as number; a percentage is divided by 100.
    pub fn number(&self, name: &str) -> Option<f64> {
        let text = self.field(name)?;
        match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|x| x / 100.0),
            None => text.parse().ok(),
        }
    }

    /// A field as whole number.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Whether it is the one-token prompt of a health check.
    pub fn is_health_probe(&self) -> bool {
        self.kind == BatchKind::Prefill
            && self.count("#new-seq") == Some(1)
            && self.count("#new-token") == Some(1)
            && self.count("#cached-token") == Some(0)
    }

    /// Whether every drafted token was rejected: speculation that only costs.
    pub fn rejects_every_draft(&self) -> bool {
        self.number("accept rate") == Some(0.0)
    }
}

/// A prompt as the prefill lines show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSeen {
    /// Tokens that were computed, chunk by chunk.
    pub chunks: Vec<u64>,
    /// Tokens taken from the prefix cache.
    pub cached: u64,
}

impl PromptSeen {
    /// Prompt length in tokens.
    pub fn tokens(&self) -> u64 {
        self.chunks.iter().fold(self.cached, |sum, chunk| sum.saturating_add(*chunk))
    }
}

/// Numbers that one line of a start tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Line number.
    pub line: usize,
    /// Ranks of the prefix.
    pub ranks: Vec<(String, u32)>,
    /// What they are about; empty where the line does not say.
    pub about: String,
    /// Name and value.
    pub pairs: Vec<(String, String)>,
}

/// One start of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// Process id of the journal, where there is one.
    pub pid: Option<u32>,
    /// Line number of the arguments, counted from 1.
    pub line: usize,
    /// Time of the arguments line, as written.
    pub time: Option<String>,
    /// Resolved arguments.
    pub args: ServerArgs,
    /// The engine's own configuration (`vLLM`) and the number of its line.
    pub config: Option<(ServerArgs, usize)>,
    /// Version of the server, where the log tells it.
    pub version: Option<String>,
    /// What the server chose by itself: name, value, line number.
    pub decided: Vec<(String, String, usize)>,
    /// Numbers, such as sizes of memory pools.
    pub figures: Vec<Figures>,
    /// Whether the ready line came.
    pub ready: bool,
}

/// A log as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogReading {
    /// Starts, oldest first; the last one is the current one.
    pub starts: Vec<Start>,
    /// Batches with their line number.
    pub batches: Vec<(usize, Batch)>,
    /// How drafts fared, with the line number.
    pub speculation: Vec<(usize, Speculation)>,
    /// The newest load of an engine, with the line number.
    pub load: Option<(usize, Vec<(String, String)>)>,
    /// Warnings and errors with their line number, secrets taken out; the first ones of many.
    pub warnings: Vec<(usize, Level, String)>,
    /// Warnings and errors in all.
    pub warnings_in_all: usize,
    /// Highest restart counter of systemd.
    pub restarts: Option<u32>,
    /// Lines of units that systemd does not understand.
    pub unit_warnings: Vec<String>,
    /// Numbers of lines that are of a known kind and broken.
    pub damaged: Vec<usize>,
    /// Lines in all.
    pub lines: usize,
}

impl LogReading {
    /// The start that runs now, as far as the log tells.
    pub fn current(&self) -> Option<&Start> {
        self.starts.last()
    }

    /// The number of the first line that may belong to the current start: after the last batch and the last
    /// arguments of what ran before.
    pub fn current_from(&self) -> usize {
        let Some(current) = self.current() else { return 0 };
        let decided = current.decided.iter().map(|(_, _, line)| *line).min();
        let begins = if current.line > 0 { current.line } else { decided.unwrap_or(0) };
        let batches = self.batches.iter().map(|(line, _)| *line);
        let earlier = self.starts.iter().rev().skip(1).map(|s| s.line);
        batches.chain(earlier).filter(|line| *line < begins).max().map_or(0, |line| line + 1)
    }
}

impl Speculation {
    /// Whether it is a line that tells the places and nothing else.
    pub(super) fn is_only_positions(&self) -> bool {
        self.mean_length.is_none() && self.accepted.is_none() && self.stated.is_none() && !self.per_position.is_empty()
    }
}
