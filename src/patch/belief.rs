//! What was believed about patches, since when, on what evidence, and what replaced it. Pure; nothing is deleted.
//!
//! A conclusion that turns out wrong stays in the log with the one that replaced it, so that a reader of an old report
//! can see what is held now and why. Not responsible for verdicts: a verdict is one kind of evidence here.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::context::Evidence;

/// Who holds what a verdict says.
pub const THE_SEARCH: &str = "the search";

/// Number of a belief in its log, from 0.
pub type BeliefId = u32;

/// One thing that is or was believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Belief {
    /// Its number.
    pub id: BeliefId,
    /// Id of the patch or factor that it is about.
    pub subject: String,
    /// What is believed, in one sentence.
    pub says: String,
    /// Who holds it: a person, a rule, a document.
    pub by: String,
    /// Since when.
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// The beliefs that it replaced.
    pub replaces: Vec<BeliefId>,
    /// How it ended; `None` while it is held.
    pub ended: Option<Ended>,
}

/// How a belief ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Why, in one sentence.
    pub why: String,
    /// What took its place; `None` where nothing is believed instead.
    pub by: Option<BeliefId>,
}

/// A change of what is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// Something is believed from now on, maybe in place of something else.
    Hold {
        /// Id of the patch or factor.
        subject: String,
        /// What is believed.
        says: String,
        /// Who holds it.
        by: String,
        /// When.
        #[schemars(with = "String")]
        at: Timestamp,
        /// What it rests on; at least one.
        evidence: Vec<Evidence>,
        /// What it replaces.
        replaces: Vec<BeliefId>,
        /// Why that is held no more; needed where something is replaced.
        why: Option<String>,
    },
    /// Something is believed no more, and nothing instead.
    Withdraw {
        /// The belief.
        belief: BeliefId,
        /// When.
        #[schemars(with = "String")]
        at: Timestamp,
        /// Why.
        why: String,
    },
}

/// Why a change was not taken into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Refusal {
    /// It has no evidence.
    NoEvidence,
    /// It replaces something and does not say why.
    NoReason,
    /// There is no such belief.
    NoSuch {
        /// The number.
        belief: BeliefId,
    },
    /// That belief has ended already.
    EndedAlready {
        /// The number.
        belief: BeliefId,
    },
    /// That belief is about something else.
    OtherSubject {
        /// The number.
        belief: BeliefId,
    },
    /// It would end before it began.
    TooEarly {
        /// The number.
        belief: BeliefId,
    },
}

/// Everything that was ever believed, in the order in which it was written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Log(Vec<Belief>);

impl Log {
    /// All beliefs, ended ones as well.
    pub fn all(&self) -> &[Belief] {
        &self.0
    }

    /// The belief of a number.
    pub fn get(&self, id: BeliefId) -> Option<&Belief> {
        self.0.get(id as usize)
    }
}

/// The log with a change.
///
/// # Errors
/// The change has no evidence or no reason, or names a belief that it cannot end; the log stays as it was.
pub fn apply(log: &Log, change: &Change) -> Result<Log, Refusal> {
    let mut next = log.clone();
    match change {
        Change::Hold { subject, says, by, at, evidence, replaces, why } => {
            if evidence.is_empty() {
                return Err(Refusal::NoEvidence);
            }
            let id = next.0.len() as BeliefId;
            let mut replaces = replaces.clone();
            replaces.sort_unstable();
            replaces.dedup();
            for old in &replaces {
                let why = why.clone().filter(|w| !w.trim().is_empty()).ok_or(Refusal::NoReason)?;
                end(&mut next, *old, Some(subject), Ended { at: *at, why, by: Some(id) })?;
            }
            next.0.push(Belief {
                id,
                subject: subject.clone(),
                says: says.clone(),
                by: by.clone(),
                since: *at,
                evidence: evidence.clone(),
                replaces,
                ended: None,
            });
        }
        Change::Withdraw { belief, at, why } => {
            if why.trim().is_empty() {
                return Err(Refusal::NoReason);
            }
            end(&mut next, *belief, None, Ended { at: *at, why: why.clone(), by: None })?;
        }
    }
    Ok(next)
}

fn end(log: &mut Log, id: BeliefId, subject: Option<&String>, ended: Ended) -> Result<(), Refusal> {
    let belief = log.0.get_mut(id as usize).ok_or(Refusal::NoSuch { belief: id })?;
    if belief.ended.is_some() {
        return Err(Refusal::EndedAlready { belief: id });
    }
    if subject.is_some_and(|subject| *subject != belief.subject) {
        return Err(Refusal::OtherSubject { belief: id });
    }
    if ended.at < belief.since {
        return Err(Refusal::TooEarly { belief: id });
    }
    belief.ended = Some(ended);
    Ok(())
}

/// What was believed about a subject at a moment, in the order of the log. What ends at that moment is held no more.
pub fn as_of<'a>(log: &'a Log, subject: &'a str, at: Timestamp) -> impl Iterator<Item = &'a Belief> {
    let held = move |b: &&Belief| b.since <= at && b.ended.as_ref().is_none_or(|e| e.at > at);
    log.0.iter().filter(move |b| b.subject == subject).filter(held)
}

/// Everything that was ever believed about a subject, oldest first.
pub fn history<'a>(log: &'a Log, subject: &str) -> Vec<&'a Belief> {
    let mut all: Vec<&Belief> = log.0.iter().filter(|b| b.subject == subject).collect();
    all.sort_by_key(|b| (b.since, b.id));
    all
}

/// What is held now in place of a belief: the last ones of the chain that replaced it; itself where it is held.
pub fn now(log: &Log, id: BeliefId) -> Option<&Belief> {
    let mut belief = log.get(id)?;
    // A replacement is always younger, so that the chain ends.
    while let Some(next) = belief.ended.as_ref().and_then(|e| e.by).filter(|by| *by > belief.id) {
        belief = log.get(next)?;
    }
    belief.ended.is_none().then_some(belief)
}

#[cfg(test)]
#[path = "belief_tests.rs"]
mod tests;
