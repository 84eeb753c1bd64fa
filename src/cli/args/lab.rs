//! Arguments of `patchbench lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What to do with the lab.
#[derive(Clone, Debug, Subcommand)]
pub enum LabAction {
    /// Run the lab server in the foreground
    Serve(ServeArgs),
    /// List the scenarios by name
    Scenarios,
    /// Show the sealed answer of a deployment: the newest, unless one is named
    Reveal {
        /// Deployment folder
        #[arg(long, value_name = "PATH")]
        deployment: Option<PathBuf>,
    },
}

/// Arguments of `lab serve`.
///
/// The launch script adds the flags of the patches after these; the server reads those itself.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Sealed deployment folder
    #[arg(long, value_name = "PATH")]
    pub deployment: PathBuf,
    /// What the server does for its deployment
    #[arg(long, value_enum, default_value_t = LabRole::Monolithic)]
    pub role: LabRole,
    /// Port on the loopback address; 0 lets the system choose
    #[arg(long, default_value_t = 30000)]
    pub port: u16,
    /// Server flags, as in the launch script
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub flags: Vec<String>,
}

/// Role of a lab server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LabRole {
    /// Computes the prompt.
    Prefill,
    /// Generates tokens.
    Decode,
    /// Does both.
    Monolithic,
    /// Spreads requests over the others.
    Router,
}
