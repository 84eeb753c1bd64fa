//! Numbers that name things within one session.
//!
//! They are handed out by `update` from counters in the state, so that replay gives the same ones.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// An input to the engine.
    InputId, "i"
);
id!(
    /// A background job.
    JobId, "j"
);
id!(
    /// A remote change.
    ProcedureId, "p"
);
id!(
    /// One proven start of one target.
    BootId, "b"
);
id!(
    /// One trial.
    TrialId, "t"
);
id!(
    /// A command that waits for a change to be over.
    QueuedId, "q"
);
id!(
    /// A command that a watcher proposes.
    ProposalId, "w"
);
