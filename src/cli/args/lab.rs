//! Arguments of `patchbench lab`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::lab::ServeArgs;

/// What to do with the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabAction {
    /// Run the lab server in the foreground
    Serve(Box<ServeArgs>),
    /// List the scenarios by name
    Scenarios,
    /// Show the sealed answer of a deployment: the newest, unless one is named
    Reveal {
        /// Deployment folder
        #[arg(long, value_name = "PATH")]
        deployment: Option<PathBuf>,
    },
}
