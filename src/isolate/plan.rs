//! The next step of the search, as a pure function of what was seen. Filled by the next change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the search stands; kept in the engine's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Patches to try, in order.
    pub patches: Vec<String>,
}

impl Search {
    /// Where the search stands, in one line.
    pub fn headline(&self) -> String {
        format!("search over {} patches", self.patches.len())
    }
}
