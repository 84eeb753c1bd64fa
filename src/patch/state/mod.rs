//! The state of a patch on a target: whether what it changes acts there, with the evidence. Pure.
//!
//! What is shown to be dead is dead by the first of: another text was imported, no path leads there, nothing reads
//! its switch, its switch is off. What could not be read is `unknown`, never `off`.
//! Not responsible for how much a state weighs; see `risk`.

mod gates;
mod reach;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::gates::Switched;
use self::reach::Reached;
use super::context::{Evidence, Import, Level, Running};
use super::types::{Entry, Touch};

/// Whether a patch acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum State {
    /// It acts.
    Live,
    /// Its switch is at a level without it.
    Off,
    /// Nothing of this deployment leads to it.
    Inert {
        /// What is in the way.
        by: Obstacle,
    },
    /// Its variable is set, and no code of the checkout reads it.
    SetButNotRead,
    /// The process has another text of its files.
    NotImported,
    /// It cannot be told.
    Unknown,
}

/// What keeps a process from coming to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// Another back end runs.
    Backend,
    /// Another model, or another format of its weights, is served.
    Model,
    /// The card is another one.
    Architecture,
    /// A setting that it needs is off.
    Setting,
    /// No server runs such a file, or no line of it was changed.
    NotRun,
}

/// The state of a patch on one target, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Target name.
    pub target: String,
    /// The state.
    pub state: State,
    /// Why, in one clause.
    pub because: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What was taken for granted, each in one clause.
    pub assumes: Vec<String>,
}

impl State {
    /// The state in one word, as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Off => "off",
            Self::Inert { .. } => "inert",
            Self::SetButNotRead => "set-but-not-read",
            Self::NotImported => "not-imported",
            Self::Unknown => "unknown",
        }
    }

    /// Whether something shows that it does not act.
    pub fn is_dead(&self) -> bool {
        !matches!(self, Self::Live | Self::Unknown)
    }
}

/// The state of a change on one target; `level` is what the case and the truth know of its switch.
pub fn state(entry: &Entry, level: Option<&Level>, running: &Running) -> Found {
    let found = |state, because: String, evidence, assumes| Found {
        target: running.target.clone(),
        state,
        because,
        evidence,
        assumes,
    };
    let imports = imports(entry, running);
    if let Imports::Other { because, evidence } = imports {
        return found(State::NotImported, because, evidence, Vec::new());
    }
    let reached = reach::reach(entry, running);
    if let Reached::No { by, because, evidence } = reached {
        return found(State::Inert { by }, because, evidence, Vec::new());
    }
    if let Some(why) = &running.unread {
        return found(State::Unknown, why.clone(), Vec::new(), Vec::new());
    }
    let switched = gates::switched(entry, level, running);
    let (mut evidence, mut assumes) = match &imports {
        Imports::Same(evidence) => (evidence.clone(), Vec::new()),
        Imports::Unknown(why) => (Vec::new(), vec![why.clone()]),
        Imports::Other { .. } => (Vec::new(), Vec::new()),
    };
    match switched {
        Switched::NotRead { because, evidence: more } => {
            evidence.extend(more);
            found(State::SetButNotRead, because, evidence, assumes)
        }
        Switched::No { by: Some(by), because, evidence } => found(State::Inert { by }, because, evidence, Vec::new()),
        Switched::No { by: None, because, evidence: more } => {
            evidence.extend(more);
            // What a diff changes outside of the switch is not seen here.
            if level.is_none() || entry.added + entry.removed > 0 {
                assumes.push("everything that it changes stands behind its switch".into());
            }
            found(State::Off, because, evidence, assumes)
        }
        Switched::Unknown { because, evidence: more } => {
            evidence.extend(more);
            found(State::Unknown, because, evidence, assumes)
        }
        Switched::Yes { because, evidence: more, assumes: taken } => {
            evidence.extend(more);
            assumes.extend(taken);
            match reached {
                Reached::Unknown { because, evidence: more } => {
                    evidence.extend(more);
                    found(State::Unknown, because, evidence, assumes)
                }
                Reached::Yes { because: path, evidence: more, remarks } => {
                    evidence.extend(more);
                    assumes.extend(remarks);
                    let because = path.map_or(because.clone(), |path| format!("{because}; {path}"));
                    found(State::Live, because, evidence, assumes)
                }
                Reached::No { because, .. } => found(State::Unknown, because, evidence, assumes),
            }
        }
    }
}

/// The state that counts for a whole deployment: the most alive of those of its targets.
pub fn most_alive(states: &[Found]) -> Option<&Found> {
    let rank = |found: &Found| match found.state {
        State::Live => 0,
        State::Unknown => 1,
        _ => 2,
    };
    states.iter().min_by_key(|found| rank(found))
}

enum Imports {
    Same(Vec<Evidence>),
    Other { because: String, evidence: Vec<Evidence> },
    Unknown(String),
}

/// Whether the process has the entry's files: it has not where every file with changed lines is another one there.
fn imports(entry: &Entry, running: &Running) -> Imports {
    let changed = entry.files.iter().filter(|f| !matches!(f.how, Touch::Mode { .. } | Touch::Deleted));
    let (mut same, mut other, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for file in changed {
        match running.imports.get(&file.path) {
            Some(Import::Imported { source }) => {
                same.push(Evidence { fact: format!("the process imported `{}`", file.path), source: source.clone() });
            }
            Some(Import::Other { why, source }) => {
                other.push(Evidence { fact: format!("`{}`: {why}", file.path), source: source.clone() });
            }
            Some(Import::Unknown { why }) => unknown.push(format!("`{}`: {why}", file.path)),
            None => unknown.push(format!("`{}`: nobody looked", file.path)),
        }
    }
    match (unknown.first(), other.first()) {
        (None, Some(first)) if same.is_empty() => {
            Imports::Other { because: format!("the process does not run this text: {}", first.fact), evidence: other }
        }
        (None, Some(first)) => Imports::Unknown(format!(
            "the process has the files in which it acts, though it lacks some: {}",
            first.fact
        )),
        (Some(why), _) => Imports::Unknown(format!("the process imported the changed file ({why})")),
        (None, None) => Imports::Same(same),
    }
}

#[cfg(test)]
mod tests;
