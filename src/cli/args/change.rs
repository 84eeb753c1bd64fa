//! Arguments of the commands that change a deployment.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::CaseArgs;

/// How a change is confirmed on the command line.
#[derive(Clone, Debug, Args)]
pub struct ConfirmArgs {
    /// Print the exact commands that would run, and run nothing
    #[arg(long)]
    pub plan: bool,
    /// Confirm; a production target must be named
    #[arg(long, value_name = "TARGET", num_args = 0..=1, default_missing_value = "", conflicts_with = "plan")]
    pub yes: Option<String>,
}

/// Arguments of `toggle`.
#[derive(Clone, Debug, Args)]
pub struct ToggleArgs {
    /// Case file
    pub case: PathBuf,
    /// Patch id; `PATCH@TARGET` is that target alone
    #[arg(value_name = "PATCH[@TARGET]")]
    pub patch: String,
    /// Level of the patch, such as `off`
    pub level: String,
    /// Start the server with `SPT_NOENV=1`, so that each of its processes shows its environment
    #[arg(long)]
    pub readable_env: bool,
    /// Plan or confirmation.
    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

/// Arguments of `restart`.
#[derive(Clone, Debug, Args)]
pub struct RestartArgs {
    /// Case file
    pub case: PathBuf,
    /// Target name
    pub target: String,
    /// Finish a restart that was cut off
    #[arg(long, conflicts_with = "undo")]
    pub resume: bool,
    /// Take a restart back that was cut off
    #[arg(long)]
    pub undo: bool,
    /// Start the server with `SPT_NOENV=1`, so that each of its processes shows its environment
    #[arg(long)]
    pub readable_env: bool,
    /// Plan or confirmation.
    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    /// Case file, or a host whose lease tells what to restore
    #[arg(value_name = "CASE|HOST")]
    pub what: String,
    /// Words that gain rights on a host, such as `sudo -n`; a case names its own
    #[arg(long = "become", value_name = "WORDS")]
    pub become_with: Option<String>,
    /// Plan or confirmation.
    #[command(flatten)]
    pub confirm: ConfirmArgs,
}

/// Arguments of `elevate`.
#[derive(Clone, Debug, Args)]
pub struct ElevateArgs {
    /// Case file
    pub case: PathBuf,
    /// Target name
    pub target: String,
    /// Minutes after which the target is read-only again
    #[arg(long = "for", value_name = "MIN")]
    pub minutes: f64,
}

/// What to do with a replica.
#[derive(Clone, Debug, Subcommand)]
pub enum ReplicaAction {
    /// Start the replica
    Up(CaseArgs),
    /// Stop the replica
    Down(CaseArgs),
    /// List replicas
    List(CaseArgs),
}
