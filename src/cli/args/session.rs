//! Arguments of `patchbench session`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SessionArg;

/// What to do with sessions.
#[derive(Clone, Debug, Subcommand)]
pub enum SessionAction {
    /// List sessions, the newest first
    List,
    /// Show a session: verdicts, servers, timeline
    Show(SessionArg),
    /// Open a session again; names half-done changes and finishes or undoes them
    Resume(ResumeArgs),
    /// Name this point of a session
    Snapshot {
        /// Name or path of a session
        session: String,
        /// Name of the point
        name: String,
    },
    /// Rename a session
    Name {
        /// Name or path of a session
        session: String,
        /// New name
        name: String,
    },
    /// Tag a session
    Tag {
        /// Name or path of a session
        session: String,
        /// Tag
        tag: String,
    },
    /// Check the hash chain, the blobs and the replay of a session
    Verify(SessionArg),
    /// Repair a session whose journal is damaged
    Repair(SessionArg),
    /// Play a session back
    Replay(SessionArg),
    /// Compare two sessions
    Diff {
        /// Name or path of a session
        a: String,
        /// Name or path of another one
        b: String,
    },
    /// Write a session, redacted, into one file
    Export {
        /// Name or path of a session
        session: String,
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Read a session from an exported file
    Import {
        /// The exported file
        file: PathBuf,
    },
}

/// Arguments of `session resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// Name or path of a session
    pub session: String,
    /// Finish half-done changes without the workbench, and print what was done
    #[arg(long, conflicts_with = "undo")]
    pub finish: bool,
    /// Take half-done changes back without the workbench, and print what was done
    #[arg(long)]
    pub undo: bool,
}
