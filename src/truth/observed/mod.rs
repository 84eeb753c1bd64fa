//! What a running server and its log say: the third of the three layers of truth.
//!
//! The readers are pure: text or JSON in, statements out. Sources may disagree, so all of what they say is kept,
//! strongest first; `truth::compare` judges. Secrets are taken out here, before anything else sees a value.

pub mod endpoints;
pub mod log;
pub mod metrics;
mod remarks;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::flags;
use crate::redact;
use crate::untrusted::Untrusted;

/// Which kind of source a statement comes from; an earlier kind counts before a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// `internal_states` of `/server_info`: after the decisions of the server.
    InternalState,
    /// A configuration answer: the top level of `/server_info`, `/props`.
    Configuration,
    /// The engine's configuration as its log prints it.
    EngineConfig,
    /// Sizes that the log prints once they are settled.
    Figures,
    /// A choice that the log announces.
    Decision,
    /// `/model_info` and `/v1/models`.
    Identity,
    /// `/v1/loads`.
    Load,
    /// `/metrics`.
    Metrics,
    /// The arguments line of the log: the request, before later choices.
    Arguments,
    /// The arguments line of `vLLM`, which leaves defaults out.
    NonDefaultArguments,
    /// The top level of `/server_info` where an internal state says otherwise.
    Asked,
}

impl SourceKind {
    /// Whether the source tells what is in effect, not what was asked for.
    pub fn is_resolved(self) -> bool {
        !matches!(self, Self::Arguments | Self::NonDefaultArguments | Self::Asked)
    }

    /// What this kind of source can never show.
    pub fn blind_to(self) -> &'static str {
        match self {
            Self::InternalState | Self::Configuration => "the environment",
            Self::Asked => "what the server decided later, and the environment",
            Self::EngineConfig | Self::Figures => "what changed after the start, and lines that the log lost",
            Self::Decision => "decisions without a line, and lines that the log lost",
            Self::Identity => "how the model is served",
            Self::Load | Self::Metrics => "the configuration",
            Self::NonDefaultArguments => {
                "flags given with their default, later choices, the environment, and lost lines"
            }
            Self::Arguments => "later automatic choices, the environment, and lines that the log lost",
        }
    }
}

/// One statement of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// The value, secrets taken out and bounded; foreign text, which only `Untrusted` may show.
    pub value: Value,
    /// Which kind of source it is.
    pub kind: SourceKind,
    /// URL or path.
    pub source: String,
    /// Line in the source, counted from 1.
    pub line: Option<u32>,
    /// What this source can never show.
    pub blind_to: String,
    /// When it was said, as the source writes it.
    pub when: Option<String>,
}

/// A choice that the server made by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// What it is about, in the words of a flag where there is one.
    pub name: String,
    /// What the arguments line has for it, which may hold the decision already; `None` where it does not speak of it.
    pub asked: Option<Value>,
    /// What was chosen.
    pub decided: Untrusted,
    /// Path of the log.
    pub source: String,
    /// Line of the announcement.
    pub line: u32,
}

/// One start that the log shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StartSeen {
    /// Process id, where the log tells it.
    pub pid: Option<u32>,
    /// Time as written.
    pub time: Option<String>,
    /// Line of the arguments; 0 where the log has none.
    pub line: u32,
    /// Whether the ready line came.
    pub ready: bool,
    /// Arguments that differ from the start before.
    pub changes: Vec<Change>,
}

/// One argument that two starts differ in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the argument.
    pub name: String,
    /// Its value before; `None` where the line did not speak of it.
    pub before: Option<Value>,
    /// Its value now; `None` where the line does not speak of it.
    pub now: Option<Value>,
}

/// What the batch lines of the current start tell together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BatchSummary {
    /// Tokens of a whole prefill chunk: the longest part of a prompt that took several.
    pub chunk_tokens: Option<u64>,
    /// Prompts that could be followed, as tokens and how many of them came from the cache.
    pub prompts: Vec<(u64, u64)>,
    /// Share of prompt tokens from the cache, health probes left out.
    pub cached_share: Option<f64>,
    /// Prefill lines, health probes left out.
    pub prefills: usize,
    /// One-token prompts of a health check.
    pub health_probes: usize,
    /// Decode lines.
    pub decodes: usize,
    /// Accepted share of each speculative window, oldest first.
    pub acceptance: Vec<f64>,
    /// Accepted share by place, for each window that tells it.
    pub per_position: Vec<Vec<f64>>,
    /// Windows in which every draft was rejected.
    pub all_rejected: usize,
    /// Whether two windows in a row accepted every draft, as a text that repeats itself does.
    pub looks_like_a_loop: bool,
    /// Requests that were taken back for want of memory, the largest number of a line.
    pub retracted: u64,
}

/// A warning or an error of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warned {
    /// Path of the log.
    pub source: String,
    /// Line.
    pub line: u32,
    /// Whether it is an error.
    pub is_error: bool,
    /// Its text.
    pub text: Untrusted,
}

/// What could not be read of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Damage {
    /// URL or path.
    pub source: String,
    /// How many lines.
    pub count: usize,
    /// The first of them.
    pub lines: Vec<u32>,
}

/// Everything that a running server and its log say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Observed {
    /// What each source says, by the key of the flag or fact; strongest source first.
    pub values: BTreeMap<String, Vec<Seen>>,
    /// Choices of the current start.
    pub decisions: Vec<Decision>,
    /// Starts, oldest first; the last one is the current one.
    pub starts: Vec<StartSeen>,
    /// Batch lines of the current start.
    pub batches: BatchSummary,
    /// Warnings and errors of the current start.
    pub warnings: Vec<Warned>,
    /// What could not be read.
    pub damaged: Vec<Damage>,
    /// Highest restart counter of systemd.
    pub restarts: Option<u32>,
    /// Lines of units that systemd does not understand.
    pub unit_warnings: Vec<Untrusted>,
    /// Names of secrets that were set and taken out.
    pub withheld: Vec<String>,
}

/// Where a statement stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From<'a> {
    pub(crate) kind: SourceKind,
    pub(crate) source: &'a str,
    pub(crate) line: Option<u32>,
    pub(crate) when: Option<&'a str>,
}

impl Observed {
    /// Adds a statement; the same one of the same source is kept once.
    pub(crate) fn say(&mut self, name: &str, mut value: Value, from: From<'_>) {
        redact::json(&mut value);
        if let Value::String(text) = &mut value {
            *text = String::from(Untrusted::from(redact::value(name, text)));
        }
        let seen = Seen {
            value,
            kind: from.kind,
            source: redact::text(from.source),
            line: from.line,
            blind_to: from.kind.blind_to().to_owned(),
            when: from.when.map(str::to_owned),
        };
        let all = self.values.entry(flags::key(name)).or_default();
        if all.iter().any(|s| s.kind == seen.kind && s.source == seen.source && s.value == seen.value) {
            return;
        }
        // Of one kind, what was said last counts first.
        let at = all.iter().position(|s| s.kind >= seen.kind).unwrap_or(all.len());
        all.insert(at, seen);
    }

    /// Names a secret that is set; its value is the mark.
    pub(crate) fn withhold(&mut self, name: &str, from: From<'_>) {
        if !self.withheld.iter().any(|n| n == name) {
            self.withheld.push(name.to_owned());
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        if last == name || name.starts_with("internal_states.") {
            self.say(last, Value::from(redact::MARK), from);
        }
    }

    /// All that is said of a name; empty is *no source speaks of it*, which is not "unset".
    pub fn all(&self, name: &str) -> &[Seen] {
        self.values.get(&flags::key(name)).map_or(&[], Vec::as_slice)
    }

    /// What counts: the strongest source that tells what is in effect, else what was asked for.
    pub fn value(&self, name: &str) -> Option<&Seen> {
        self.all(name).first()
    }

    /// The value that counts, as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|s| flags::shown(&s.value))
    }

    /// What was asked for, where a source tells it apart from what is in effect.
    pub fn asked(&self, name: &str) -> Option<&Seen> {
        self.all(name).iter().rev().find(|s| !s.kind.is_resolved())
    }

    /// A second source that tells what is in effect and has another value than the first.
    pub fn contradiction(&self, name: &str) -> Option<(&Seen, &Seen)> {
        let mut resolved = self.all(name).iter().filter(|s| s.kind.is_resolved());
        let first = resolved.next()?;
        resolved.find(|s| !flags::same_value(&first.value, &s.value)).map(|other| (first, other))
    }

    /// The announcement that explains a value, newest first.
    pub fn decision(&self, name: &str) -> Option<&Decision> {
        let key = flags::key(name);
        self.decisions.iter().rev().find(|d| flags::key(&d.name) == key)
    }

    /// The version that the server tells.
    pub fn version(&self) -> Option<String> {
        self.text("version").or_else(|| self.text("build_info"))
    }
}

/// A line number as claims carry it.
pub(crate) fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "artefact_tests.rs"]
mod artefact_tests;
#[cfg(test)]
mod tests;
