//! Arguments of `patchbench lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::lab::ServeArgs;

/// What to do with the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabAction {
    /// Run the lab server in the foreground
    Serve(Box<ServeArgs>),
    /// Write a lab into a folder: launch scripts, case, checkpoint and sealed deployment
    Install(InstallArgs),
    /// List the scenarios by name
    Scenarios,
    /// Show the sealed answer of a deployment: the newest, unless one is named
    Reveal {
        /// Deployment folder
        #[arg(long, value_name = "PATH")]
        deployment: Option<PathBuf>,
    },
}

/// Arguments of `lab install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArgs {
    /// Folder of the lab; it is created
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Sealed deployment to install; `patchbench lab scenarios` lists them
    #[arg(long, value_name = "NAME", default_value = "incident")]
    pub scenario: String,
    /// Seed of the lab's luck
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Port of the server that clients talk to
    #[arg(long, default_value_t = 30_000)]
    pub port: u16,
    /// Let the servers read their arithmetic from a checkout with two patches that have no gate
    #[arg(long)]
    pub source: bool,
}
