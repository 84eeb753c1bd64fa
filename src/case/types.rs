//! What a case file says, as plain data.
//!
//! Not responsible for reading or checking it; see `case::read`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::report::{CandidateVerdict, MicroReport};

/// One incident: targets, patches under suspicion, how the client speaks, budgets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Short name of the incident.
    pub name: String,
    /// The target that clients talk to; `None` means the only one.
    pub entry: Option<String>,
    /// The server processes.
    pub targets: Vec<Target>,
    /// Changes that may be guilty, in the order in which the investigator suspects them.
    pub patches: Vec<Patch>,
    /// How recall is measured.
    pub recall: RecallSpec,
    /// How the failing client speaks.
    pub client: ClientSpec,
    /// What the investigation may cost.
    pub budget: Budget,
}

impl Case {
    /// The target that trials are sent to; `None` in a case without one.
    pub fn entry_target(&self) -> Option<&Target> {
        match &self.entry {
            Some(name) => self.target(name),
            None => self.targets.first(),
        }
    }

    /// The patches that a target has, in the order of the case.
    pub fn patches_of<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a Patch> {
        self.patches.iter().filter(move |p| p.targets_in(self).any(|t| t.name == target))
    }

    /// The targets that a request can meet: all that compute, and the router that it is sent to.
    pub fn met_targets(&self) -> impl Iterator<Item = &Target> {
        let entry = self.entry_target().map(|t| t.name.as_str());
        self.targets.iter().filter(move |t| t.role != Role::Router || entry == Some(t.name.as_str()))
    }

    /// The target that shows how a request to the entry is read: a router passes it on to one that computes prompts.
    pub fn reading_target(&self) -> Option<&Target> {
        let entry = self.entry_target()?;
        if entry.role != Role::Router {
            return Some(entry);
        }
        let of = |role| self.targets.iter().find(move |t| t.role == role);
        of(Role::Prefill).or_else(|| of(Role::Monolithic)).or_else(|| of(Role::Decode)).or(Some(entry))
    }

    /// The target of that name.
    pub fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|t| t.name == name)
    }

    /// The patch of that id.
    pub fn patch(&self, id: &str) -> Option<&Patch> {
        self.patches.iter().find(|p| p.id == id)
    }
}

/// One server process with a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Name within the case.
    pub name: String,
    /// What it does for the deployment.
    pub role: Role,
    /// Which server program it is.
    pub engine: ServingEngine,
    /// A name that ssh knows, or `local`.
    pub host: String,
    /// Prefix that gains rights on the host, such as `sudo -n`.
    #[serde(rename = "become")]
    pub become_with: Option<String>,
    /// Base URL as the host sees it.
    pub url: String,
    /// Where the API key is found; never the key itself.
    pub api_key: Option<KeySource>,
    /// What starts and stops it.
    pub manager: Manager,
    /// The script that sets its environment and starts it.
    pub launch_script: Option<String>,
    /// Folder of the model's weights.
    pub checkpoint: Option<String>,
    /// The source tree of the fork, if there is one.
    pub checkout: Option<String>,
    /// Whether people depend on it: read-only until elevated.
    pub production: bool,
    /// Whether every start of ours sets `SPT_NOENV`, so that process titles leave each rank's environment readable.
    #[serde(default)]
    pub readable_env: bool,
}

impl Target {
    /// The port of its URL; `None` in a target that was not read from a checked case.
    pub fn port(&self) -> Option<u16> {
        port_of(&self.url)
    }

    /// Whether it runs on this machine.
    pub fn is_local(&self) -> bool {
        self.host == "local"
    }
}

/// The port that an URL states.
pub(crate) fn port_of(url: &str) -> Option<u16> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_, port) = authority.rsplit_once(':')?;
    port.parse().ok().filter(|p| *p != 0)
}

/// What a target does in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Computes the prompt.
    Prefill,
    /// Generates tokens.
    Decode,
    /// Does both.
    Monolithic,
    /// Spreads requests over the others.
    Router,
}

/// The server program behind a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServingEngine {
    /// `SGLang`, and the lab, which speaks its endpoints.
    Sglang,
    /// `vLLM`.
    Vllm,
    /// llama.cpp's server.
    LlamaServer,
}

/// Where a key is read from at the moment it is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KeySource {
    /// An environment variable of this process.
    Env(String),
    /// The output of a local command.
    Command(String),
}

/// What starts and stops a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum Manager {
    /// A bash launch script, started detached, writing to `log`.
    Script {
        /// Path of the script on the host.
        script: String,
        /// Path of the log on the host.
        log: String,
    },
    /// A systemd unit.
    Systemd {
        /// Unit name.
        systemd: String,
    },
    /// A docker container.
    Docker {
        /// Container name.
        docker: String,
    },
    /// Nobody said: the target can be read, not started or stopped.
    Unknown,
}

/// A change that may be guilty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patch {
    /// Id within the case, kebab-case.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// File, or file and line, of the change.
    pub site: Option<String>,
    /// Targets it is in; empty means all.
    pub targets: Vec<String>,
    /// Phases it can reach: `extend`, `decode`.
    pub phases: Vec<String>,
    /// Layers it can reach, in the model's own words.
    pub layers: Option<String>,
    /// How it is switched.
    pub gate: Gate,
    /// The level that is under suspicion.
    pub suspect: String,
    /// What it changes: `kernel`, `dtype`, ….
    pub changes: BTreeMap<String, String>,
    /// The microtest that measures its arithmetic: `SPEC`, or `SPEC/CANDIDATE` where one candidate stands for it.
    pub microtest: Option<String>,
    /// Patches that must be on with it.
    pub requires: Vec<String>,
    /// Patches that cannot be on with it.
    pub excludes: Vec<String>,
}

impl Patch {
    /// The level that stands for "the change is not there": `off` if there is one, else the first
    /// level that is not the suspect one; `None` where the gate has a single level or none.
    pub fn innocent_level(&self) -> Option<&str> {
        let levels = self.gate.levels()?;
        if self.suspect != "off" && levels.contains_key("off") {
            return Some("off");
        }
        levels.keys().map(String::as_str).find(|l| *l != self.suspect)
    }

    /// The microtest that measures it, and the candidate that stands for it if one does.
    pub fn measured_by(&self) -> Option<(&str, Option<&str>)> {
        let named = self.microtest.as_deref()?;
        Some(named.split_once('/').map_or((named, None), |(spec, candidate)| (spec, Some(candidate))))
    }

    /// What a report says of it: its candidate's verdict, or that of the worst where none is named; `None` where
    /// the report is of another microtest, has no such candidate, or is worthless.
    pub fn verdict_in<'a>(&self, report: &'a MicroReport) -> Option<&'a CandidateVerdict> {
        let (spec, candidate) = self.measured_by()?;
        // A report that proves nothing says nothing of a patch either.
        if report.spec != spec || !report.spoiled().is_empty() {
            return None;
        }
        match candidate {
            Some(name) => report.verdicts.iter().find(|v| v.candidate == name),
            None => report.worst(),
        }
    }

    /// The targets of `case` that this patch is in.
    pub fn targets_in<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Target> {
        case.targets
            .iter()
            .filter(|t| t.role != Role::Router)
            .filter(|t| self.targets.is_empty() || self.targets.contains(&t.name))
    }
}

/// How a patch is switched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Gate {
    /// An environment variable of the server process.
    Env {
        /// Variable name.
        name: String,
        /// Level name to value.
        levels: BTreeMap<String, LevelValue>,
    },
    /// A command-line flag of the server process.
    Flag {
        /// Flag with its dashes.
        flag: String,
        /// Level name to value.
        levels: BTreeMap<String, LevelValue>,
    },
    /// The diff that is taken out of the source.
    Reverse {
        /// Path of the diff.
        diff: String,
    },
    /// There is no way to switch it.
    None,
}

impl Gate {
    /// The levels it can be set to; `None` where it has no named levels.
    pub fn levels(&self) -> Option<&BTreeMap<String, LevelValue>> {
        match self {
            Self::Env { levels, .. } | Self::Flag { levels, .. } => Some(levels),
            Self::Reverse { .. } => Some(&IN_OR_OUT),
            Self::None => None,
        }
    }

    /// The variable or flag, as written on the screen.
    pub fn switch_name(&self) -> &str {
        match self {
            Self::Reverse { diff } => diff,
            Self::Env { .. } | Self::Flag { .. } | Self::None => self.switch().unwrap_or("none"),
        }
    }

    /// The variable or flag; `None` where there is neither.
    pub fn switch(&self) -> Option<&str> {
        match self {
            Self::Env { name, .. } => Some(name),
            Self::Flag { flag, .. } => Some(flag),
            Self::Reverse { .. } | Self::None => None,
        }
    }

    /// The variable; `None` where something else switches it, or nothing.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Env { name, .. } => Some(name),
            Self::Flag { .. } | Self::Reverse { .. } | Self::None => None,
        }
    }
}

/// The levels of a diff: the source has it, or it is taken out.
static IN_OR_OUT: LazyLock<BTreeMap<String, LevelValue>> =
    LazyLock::new(|| BTreeMap::from([("on".to_owned(), LevelValue::In), ("off".to_owned(), LevelValue::Out)]));

/// What a level means for its variable, flag or diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LevelValue {
    /// Present with this value; for a flag without a value, the empty string.
    Set(String),
    /// Absent.
    Unset,
    /// The source has the diff.
    In,
    /// The diff is taken out of the source.
    Out,
}

/// How recall is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecallSpec {
    /// Name of the suite.
    pub suite: String,
    /// A symptom exists when the lower Wilson bound of the failure rate is above this.
    pub floor: f64,
    /// Prompt lengths in server tokens.
    pub lengths: Vec<u32>,
    /// Depths of the fact, as a fraction of the prompt.
    pub depths: Vec<f64>,
}

impl Default for RecallSpec {
    fn default() -> Self {
        Self { suite: "default".into(), floor: 0.15, lengths: vec![1024, 2048], depths: vec![0.1, 0.5, 0.9] }
    }
}

/// How the failing client speaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientSpec {
    /// Sampling temperature; trials send 0 unless told.
    pub temperature: Option<f64>,
    /// Path of a JSON file with tool definitions.
    pub tools: Option<String>,
}

/// What the investigation may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Requests in flight at once.
    pub concurrency: u32,
    /// Prompt tokens a run may send; `None` is no limit.
    pub prompt_tokens: Option<u64>,
    /// Pause while the server is busier than this.
    pub pause_when: Option<PauseWhen>,
    /// Minutes of production downtime allowed; 0 is none until stated.
    pub downtime_min: f64,
    /// Minutes after which a host puts a changed target back by itself unless the session renews its lease; 0 is never.
    #[serde(default = "restore_after_min")]
    pub restore_after_min: u32,
    /// Seconds that running requests get to end before a target behind a router is stopped; 0 cuts them off.
    #[serde(default = "drain_s")]
    pub drain_s: u32,
}

/// Half an hour: longer than a large model loads, shorter than a night.
fn restore_after_min() -> u32 {
    30
}

/// Long answers of a large model take minutes.
fn drain_s() -> u32 {
    300
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            concurrency: 1,
            prompt_tokens: None,
            pause_when: None,
            downtime_min: 0.0,
            restore_after_min: restore_after_min(),
            drain_s: drain_s(),
        }
    }
}

/// Load above which trials wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseWhen {
    /// Waiting requests.
    pub waiting: Option<u32>,
    /// Share of the key cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
}
