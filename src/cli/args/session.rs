//! Arguments of `patchbench session`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SessionArg;

/// What to do with sessions.
#[derive(Clone, Debug, Subcommand)]
pub enum SessionAction {
    /// List sessions, the newest first
    List,
    /// Show a session: verdicts, servers, timeline; or the conversation of one trial
    Show(ShowArgs),
    /// Open a session again; names half-done changes and finishes or undoes them
    Resume(ResumeArgs),
    /// Name the end of a session, as it is now
    Snapshot {
        /// Name or path of a session
        session: String,
        /// Name of the point
        name: String,
    },
    /// Rename a session; its journal keeps the name that it began with
    Name {
        /// Name or path of a session
        session: String,
        /// New name
        name: String,
    },
    /// Tag a session; `session list` shows tags, which are no part of the journal
    Tag {
        /// Name or path of a session
        session: String,
        /// One word
        tag: String,
        /// Take the tag away
        #[arg(long)]
        remove: bool,
    },
    /// Check the hash chain, the blobs and the replay of a session
    Verify(SessionArg),
    /// Repair a session whose journal is damaged
    Repair(SessionArg),
    /// Play a session back: what was known after each event, or after the events that are named
    Replay(ReplayArgs),
    /// Compare two sessions; not in this version
    Diff {
        /// Name or path of a session
        a: String,
        /// Name or path of another one
        b: String,
    },
    /// Write a session into one file, `tar` in `zstd`; transcripts are withheld, and the copy still verifies
    Export {
        /// Name or path of a session
        session: String,
        /// File to write; it must not be there yet
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Put the transcripts in as well: whole conversations, as they were recorded
        #[arg(long)]
        with_transcripts: bool,
    },
    /// Read a session from an exported file
    Import {
        /// The exported file
        file: PathBuf,
        /// Name of the session here; that within the file when not given
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

/// Arguments of `session show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// Name or path of a session
    pub session: String,
    /// Show the whole conversation of this trial, such as `t24`, with the first wrong character marked
    #[arg(long, value_name = "TRIAL", value_parser = trial)]
    pub transcript: Option<u64>,
}

/// Arguments of `session replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Name or path of a session
    pub session: String,
    /// Number of an event; may be given several times
    #[arg(long, value_name = "EVENT")]
    pub at: Vec<u64>,
}

fn trial(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix('t').unwrap_or(text);
    digits.parse().map_err(|_| "give the number of a trial, such as `t24`".to_owned())
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
