//! The next step of the search, as a pure function of what was seen. Filled by the next change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::command::Command;
use crate::engine::event::Happened;
use crate::engine::procedure::Failure;
use crate::engine::state::State;

/// Where the search stands; kept in the engine's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Patches to try, in order.
    pub patches: Vec<String>,
}

/// What the search wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Facts to record.
    Record(Vec<Happened>),
    /// Something to be done.
    Do(Command),
    /// Nothing more.
    Finished,
}

/// The next step of the search.
pub fn next(_state: &State) -> Next {
    Next::Finished
}

/// A search over these patches.
///
/// # Errors
/// There is nothing to search.
pub fn begin(_state: &State, _patches: &[String]) -> Result<Search, Failure> {
    Err(Failure::new("the search is not built yet"))
}

impl Search {
    /// Whether it goes on.
    pub fn is_active(&self) -> bool {
        false
    }

    /// The same search, ended by hand.
    #[must_use]
    pub fn stopped(&self) -> Self {
        self.clone()
    }

    /// Where the search stands, in one line.
    pub fn headline(&self) -> String {
        format!("search over {} patches", self.patches.len())
    }
}
