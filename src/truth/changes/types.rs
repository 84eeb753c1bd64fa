//! What changed on a host and what cannot be told, as plain data. Pure.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::diagnostic::Diagnostic;
use crate::remote::probe::types::{HostFacts, Reading};
use crate::untrusted::Untrusted;

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// When, by the host's clock; `None` where only that it happened since then is known.
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
    /// What kind of thing it is.
    pub kind: Kind,
    /// The host, as the case calls it.
    pub host: String,
    /// The target that it touches; `None` is the whole host.
    pub target: Option<String>,
    /// What happened, redacted.
    pub what: Untrusted,
    /// Where it was read: a path, a log, a command.
    pub source: String,
}

/// Kinds of changes; a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The service or its process started.
    ServiceStart,
    /// The service stopped.
    ServiceStop,
    /// The service failed, was killed, or was to be restarted because of that.
    ServiceFailure,
    /// The service read its configuration again.
    ServiceReload,
    /// The host booted.
    Reboot,
    /// Another kernel ran.
    Kernel,
    /// Another graphics driver was loaded.
    Driver,
    /// A card or its driver reported an error.
    GpuError,
    /// The memory or another part of the host reported an error.
    HardwareError,
    /// The checkout moved to another commit.
    Checkout,
    /// A file of the checkout differs from its commit.
    DirtyFile,
    /// A compiled file in the checkout.
    BuiltExtension,
    /// The launch script.
    LaunchScript,
    /// A unit file, a drop-in or their folder.
    UnitFile,
    /// A file of variables that the unit reads.
    EnvironmentFile,
    /// A file of the model.
    Checkpoint,
    /// A module that a patch is in.
    Module,
    /// A package of the server's Python.
    PythonPackage,
    /// A package of the host.
    SystemPackage,
}

/// Something that cannot be told: that nothing is listed of it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The host, as the case calls it.
    pub host: String,
    /// The target; `None` is the whole host.
    pub target: Option<String>,
    /// What is not known.
    pub what: String,
    /// Why, in one clause.
    pub because: String,
}

/// The past of one host, as far as it keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What the host says of itself now.
    pub facts: HostFacts,
    /// The graphics driver that is loaded; `None` is none.
    pub driver: Reading<Option<Untrusted>>,
    /// What changed, the eldest first; what has no time stands before all.
    pub changes: Vec<Change>,
    /// What cannot be told.
    pub gaps: Vec<Gap>,
    /// What is worth knowing besides.
    pub remarks: Vec<Diagnostic>,
}

/// A target whose past is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Its name in the case.
    pub name: String,
    /// Its port.
    pub port: Option<u16>,
    /// What starts it.
    pub starter: Starter,
    /// The script that starts it.
    pub script: Option<String>,
    /// The source tree of the fork.
    pub checkout: Option<String>,
    /// Folder of the model.
    pub checkpoint: Option<String>,
    /// Files that patches are in, relative to a source tree or absolute.
    pub modules: Vec<String>,
}

/// What starts a target, as far as its past can be read there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Starter {
    /// A systemd unit.
    Unit(String),
    /// A script, which keeps no record.
    Script,
    /// A container.
    Container,
    /// Nobody said.
    #[default]
    Unknown,
}
