//! The command line as it is typed.
//!
//! Responsible for names, arguments and help texts; the names are fixed, scripts rely on them.
//! Not responsible for what a command means; that is in the file of each command.

pub mod change;
pub mod lab;
pub mod session;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use change::{ElevateArgs, ReplicaAction, RestartArgs, RestoreArgs, ToggleArgs};
use lab::LabAction;
use session::SessionAction;

/// A model server answers fast and wrongly: find which patch, flag or variable is guilty, and which are innocent.
#[derive(Clone, Debug, Parser)]
#[command(name = "patchbench", version, max_term_width = 100, arg_required_else_help = false)]
pub struct Cli {
    /// Case file to open in the workbench; without one: recent sessions, the lab, or `init`
    #[arg(value_name = "CASE")]
    pub case: Option<PathBuf>,
    /// Options that every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do; without one, the workbench opens.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options that every command takes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Print exactly one JSON object; `--json=stream` prints one per line while it runs
    #[arg(long, global = true, value_name = "FORM", num_args = 0..=1, require_equals = true,
          default_missing_value = "object", value_enum)]
    pub json: Option<JsonForm>,
    /// Configuration file to read instead of the one in the configuration folder
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// When to colour text output: `auto`, `always` or `never`
    #[arg(long, global = true, value_name = "WHEN")]
    pub color: Option<String>,
    /// Draw with ASCII characters alone
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Colour theme of the workbench
    #[arg(long, global = true, value_name = "NAME")]
    pub theme: Option<String>,
    /// Layout that the workbench starts with
    #[arg(long, global = true, value_name = "NAME")]
    pub layout: Option<String>,
    /// Shell command to run when a long step ends; it finds what ended in `PATCHBENCH_NOTICE`
    #[arg(long, global = true, value_name = "CMD")]
    pub notify: Option<String>,
    /// What goes into the log file, such as `info` or `patchbench=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
    /// Say nothing about progress on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// How `--json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    /// One object at the end.
    Object,
    /// One object per event, and the report as the last line.
    Stream,
}

/// Every command.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Start the lab and open the workbench on it; headless: investigate and print the verdict
    Demo(DemoArgs),
    /// Look at a host, read-only, and write a commented case file
    Init(InitArgs),
    /// Show the three layers of every flag and variable: declared, effective, observed
    Truth(LookArgs),
    /// Show what changed on the hosts of a case since a time
    Changes(ChangesArgs),
    /// Compare two targets, moments or replicas side by side
    Diff(DiffArgs),
    /// Show the patch risk table, import a diff, or explain a risk
    Patches(PatchesArgs),
    /// Run recall trials, or import a conversation
    ///
    /// The lower bound that it prints counts each trial as independent; trials of one boot share its luck, so
    /// `isolate`, which counts boots, reports a lower one for the same trials.
    Recall(RecallArgs),
    /// Run microtests of the kernels' arithmetic
    Micro(MicroArgs),
    /// Set a patch to a level by restarting its targets, with proof
    Toggle(ToggleArgs),
    /// Restart a target, with proof
    Restart(RestartArgs),
    /// Put targets back to their own configuration
    Restore(RestoreArgs),
    /// Allow changes of a production target for a stated time
    Elevate(ElevateArgs),
    /// Manage a second deployment for arms that production must not see
    Replica {
        /// What to do with the replica.
        #[command(subcommand)]
        action: ReplicaAction,
    },
    /// Find the guilty patch, acquit the others, print the verdict
    ///
    /// The boot is the unit: the lower bound of the symptom is taken on counts that are deflated for the luck that
    /// trials of one boot share.
    Isolate(IsolateArgs),
    /// Record or compare golden logprobs
    Reference {
        /// What to do with the reference.
        #[command(subcommand)]
        action: ReferenceAction,
    },
    /// Record real client conversations for replay as trials
    Proxy(CaseArgs),
    /// List, show, resume, verify and otherwise handle sessions
    Session {
        /// What to do with sessions.
        #[command(subcommand)]
        action: SessionAction,
    },
    /// Look on at a session that runs elsewhere, and propose
    Watch(SessionArg),
    /// Take a session back whose terminal was lost
    Attach(SessionArg),
    /// Write the report of a session
    Report(ReportArgs),
    /// Check a deployment against a snapshot; made for cron
    Check(CheckArgs),
    /// The lab: a small model server with sealed faults
    Lab {
        /// What to do with the lab.
        #[command(subcommand)]
        action: LabAction,
    },
    /// Say what works here: terminal, folders, ssh, GPU, lab checkpoint
    Doctor(DoctorArgs),
    /// Print every key of the workbench
    ///
    /// Keys are changed in `keymap.toml` in the configuration folder, or in the file that the setting `keymap` names.
    /// `unbind = ["t"]` takes keys away; each `[[bind]]` has `keys = "g r"` (keys one after another, with spaces
    /// between) and `run = "layout recall"` (a line as it is typed in the palette). Keys are written `j`, `R`,
    /// `ctrl-d`, `alt-x`, `shift-left`, `pagedown`, `space`, `f5`, `esc`. `docs/keymap.md` says more.
    Keys(KeysArgs),
    /// Print every action of the workbench
    Commands,
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
    /// Print every setting with its value and where it comes from
    Config,
    /// Print the JSON schema of a report, or list the reports
    Schema(SchemaArgs),
}

/// A case file.
#[derive(Clone, Debug, Args)]
pub struct CaseArgs {
    /// Case file
    pub case: PathBuf,
}

/// A case file to look at.
#[derive(Clone, Debug, Args)]
pub struct LookArgs {
    /// Case file
    pub case: PathBuf,
    /// Keep what was read as a session; without it, nothing is left behind
    #[arg(long)]
    pub session: bool,
}

/// A session.
#[derive(Clone, Debug, Args)]
pub struct SessionArg {
    /// Name or path of a session
    pub session: String,
}

/// Arguments of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Sealed deployment to investigate; `patchbench lab scenarios` lists them
    #[arg(long, value_name = "NAME", default_value = "incident")]
    pub scenario: String,
    /// Investigate without the workbench, and print the verdict
    #[arg(long)]
    pub headless: bool,
    /// Seed of the lab's luck and of every prompt
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Let every start of the lab take at least this long, as that of a large model does
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub load_seconds: f64,
}

/// Arguments of `init`.
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    /// A name that ssh knows, or `local`
    pub host: String,
    /// Where the case goes; `-` prints it
    #[arg(long, value_name = "FILE", default_value = "case.toml")]
    pub out: PathBuf,
    /// Prefix that gains rights on the host, such as `sudo -n`
    #[arg(long = "become", value_name = "PREFIX")]
    pub become_with: Option<String>,
    /// Nobody depends on the servers: the case may change them
    #[arg(long)]
    pub not_production: bool,
    /// Replace a case file that is there
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `changes`.
#[derive(Clone, Debug, Args)]
pub struct ChangesArgs {
    /// Case file
    pub case: PathBuf,
    /// Time to look back to, such as `2026-05-01T10:00Z` or `2h`
    #[arg(long, value_name = "TIME")]
    pub since: String,
}

/// Arguments of `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// `CASE@TARGET`, read now, or `SESSION@TARGET`, as it was read then; the target may be left out if it is the only one
    pub a: String,
    /// Another one
    pub b: String,
}

/// Arguments of `patches`.
#[derive(Clone, Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct PatchesArgs {
    /// Case file
    #[arg(required = true)]
    pub case: Option<PathBuf>,
    /// Keep what was read as a session; without it, nothing is left behind
    #[arg(long)]
    pub session: bool,
    /// Another thing to do than to show the table.
    #[command(subcommand)]
    pub action: Option<PatchesAction>,
}

/// What else to do with patches.
#[derive(Clone, Debug, Subcommand)]
pub enum PatchesAction {
    /// Turn a diff into patch entries
    Import(ImportArgs),
    /// Print a diff that puts what a patch changes under one variable, for review; nothing is applied
    ///
    /// With the variable unset the patched statements run, as they do now; with `0`, those that stood there before.
    /// Only Python is read. What a variable cannot switch is refused, with its place.
    Guard(GuardArgs),
    /// Show the sum behind a risk, term by term
    Explain {
        /// Id of a patch or factor
        id: String,
        /// Case file, whose targets are read; without one, the newest session that knows the id
        #[arg(long, value_name = "CASE", conflicts_with = "session")]
        case: Option<PathBuf>,
        /// Session, by name or folder
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
    },
}

/// Arguments of `patches import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// A diff file, a range of commits as git reads it, such as `upstream/main..HEAD`, or without git the
    /// `NAME-VERSION.dist-info` folder of an installation, whose files are compared with the hashes of its wheel
    pub source: String,
    /// Checkout of the range, or the tree that the diff leads to; default: the target's, or the current folder
    #[arg(long, value_name = "FOLDER")]
    pub checkout: Option<PathBuf>,
    /// Case file: its targets are read, and what is imported is kept with the session
    #[arg(long, value_name = "CASE")]
    pub case: Option<PathBuf>,
    /// Target on whose host the checkout is; git only reads there
    #[arg(long, value_name = "TARGET", requires = "case")]
    pub target: Option<String>,
    /// Print `[[patch]]` entries for a case file instead of the table
    #[arg(long)]
    pub toml: bool,
    /// Write each patch into this folder as a diff of its own; with `--toml`, what no variable switches gets it as gate
    #[arg(long, value_name = "DIR")]
    pub diffs: Option<PathBuf>,
}

/// Arguments of `patches guard`.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// Id of a patch, as `patches import` prints it
    pub id: String,
    /// The diff file that the patch is part of, or a range of commits, such as `upstream/main..HEAD`
    #[arg(long, value_name = "DIFF|RANGE")]
    pub of: String,
    /// Folder that has the patched files; for a range, the checkout
    #[arg(long, value_name = "FOLDER")]
    pub checkout: PathBuf,
    /// Variable that switches it; default: `PATCHBENCH_` and the id in capitals
    #[arg(long, value_name = "NAME")]
    pub variable: Option<String>,
}

/// Arguments of `recall`.
#[derive(Clone, Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct RecallArgs {
    /// Case file
    #[arg(required = true)]
    pub case: Option<PathBuf>,
    /// Suite to run instead of the one in the case
    #[arg(long, value_name = "NAME")]
    pub suite: Option<String>,
    /// Another thing to do than to run a suite.
    #[command(subcommand)]
    pub action: Option<RecallAction>,
}

/// What else to do with recall.
#[derive(Clone, Debug, Subcommand)]
pub enum RecallAction {
    /// Import a conversation
    Import {
        /// A curl command, a request as JSON, or a client's export
        file: PathBuf,
    },
}

/// Arguments of `micro`.
#[derive(Clone, Debug, Args)]
pub struct MicroArgs {
    /// Microtests to run, such as `mhc-mix`; all when none is named
    #[arg(value_name = "SPEC")]
    pub specs: Vec<String>,
    /// Device: `cpu`, `cuda:N`, several such as `cuda:0,cuda:2`, or `all` for every card
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: String,
    /// Use a card even if somebody else computes on it
    #[arg(long)]
    pub force_device: bool,
    /// Checkpoint: a folder, a file, or `ssh:HOST:/FOLDER`; the lab's when not given
    #[arg(long, value_name = "PLACE")]
    pub checkpoint: Option<PathBuf>,
    /// TOML file with more candidates: `[[candidate]]` with spec, name, and what is rounded where
    #[arg(long, value_name = "FILE")]
    pub candidates: Option<PathBuf>,
    /// Recorded activations, a safetensors file or a folder of them, in place of made-up ones: tensors `layers.N.NAME`
    /// as the README lists them. Without SPEC, the microtests that they are for
    #[arg(long, value_name = "PATH")]
    pub activations: Option<PathBuf>,
    /// Draw what was measured: FILE.svg or FILE.png holds all of one microtest; DIR gets a file for each picture,
    /// in both formats. May be given several times
    #[arg(long, value_name = "FILE|DIR")]
    pub figure: Vec<PathBuf>,
    /// Write every point of every curve as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Keep what was measured as a session; without it, nothing is left behind
    #[arg(long)]
    pub session: bool,
}

/// Arguments of `isolate`.
#[derive(Clone, Debug, Args)]
pub struct IsolateArgs {
    /// Case file
    #[arg(required_unless_present = "simulate")]
    pub case: Option<PathBuf>,
    /// Print the arms, boots and minutes that a search would spend, and restart nothing
    #[arg(long)]
    pub plan: bool,
    /// Minutes after which the search stops; trials and verdicts so far stay
    #[arg(long, value_name = "MIN", value_parser = minutes)]
    pub budget: Option<f64>,
    /// Print the self-test table of the search, on simulated servers
    #[arg(long, conflicts_with_all = ["case", "plan", "budget", "yes"])]
    pub simulate: bool,
    /// Searches in each simulated world
    #[arg(long, value_name = "N", default_value_t = 20, requires = "simulate",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Start the servers of every arm with `SPT_NOENV=1`, so that each of their processes shows its environment
    #[arg(long)]
    pub readable_env: bool,
    /// Confirm the restarts of this target; each target of the case must be named
    #[arg(long, value_name = "TARGET")]
    pub yes: Vec<String>,
}

/// A number of minutes above zero.
fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes > 0.0 && minutes.is_finite() => Ok(minutes),
        _ => Err("give a number of minutes above 0".to_owned()),
    }
}

/// What to do with the reference.
#[derive(Clone, Debug, Subcommand)]
pub enum ReferenceAction {
    /// Record logprobs from a deployment that is trusted
    Record(CaseArgs),
    /// Compare a deployment with the record
    Compare(CaseArgs),
}

/// Arguments of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Name or path of a session
    pub session: String,
    /// Folder to write into
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Arguments of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Case file
    pub case: PathBuf,
    /// Snapshot to compare with
    #[arg(long, value_name = "SNAPSHOT")]
    pub against: String,
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Write a bundle for a bug report
    #[arg(long)]
    pub bundle: bool,
}

/// Arguments of `keys`.
#[derive(Clone, Debug, Args)]
pub struct KeysArgs {
    /// Print the default keys as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `schema`.
#[derive(Clone, Debug, Args)]
pub struct SchemaArgs {
    /// Report name, such as `truth`; all names are listed when none is given
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    fn accepts(line: &str) {
        let words = std::iter::once("patchbench").chain(line.split_whitespace());
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("`{line}`: {error}");
        }
    }

    fn refuses(line: &str) {
        let words = std::iter::once("patchbench").chain(line.split_whitespace());
        assert!(Cli::try_parse_from(words).is_err(), "`{line}` was accepted");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_documented_form_parses() {
        for line in [
            "",
            "case.toml",
            "demo",
            "demo --scenario clean --headless --json",
            "demo --headless --json=stream",
            "--json demo --headless",
            "init gpu-box",
            "truth case.toml",
            "changes case.toml --since 2h",
            "diff prefill decode",
            "patches case.toml",
            "patches import a.diff",
            "patches import a.diff --toml --diffs d",
            "patches guard a --of a.diff --checkout . --variable A",
            "patches explain mhc-bf16",
            "recall case.toml --suite long",
            "recall import curl.txt",
            "micro",
            "micro mhc-mix other --device cuda:0 --checkpoint dir",
            "toggle case.toml mhc-bf16@decode off --plan",
            "toggle case.toml mhc-bf16 off --yes decode",
            "restart case.toml decode",
            "restart case.toml decode --resume",
            "restart case.toml decode --undo",
            "restore case.toml",
            "restore gpu-box",
            "elevate case.toml decode --for 30",
            "replica up case.toml",
            "replica down case.toml",
            "replica list case.toml",
            "isolate case.toml --plan",
            "isolate case.toml --budget 20",
            "isolate --simulate",
            "isolate --simulate --runs 3",
            "truth case.toml --session",
            "session show s --transcript 3",
            "session replay s --at 1 --at 7",
            "session tag s word --remove",
            "session import f --name n",
            "reference record case.toml",
            "reference compare case.toml",
            "proxy case.toml",
            "session list",
            "session show s",
            "session resume s",
            "session snapshot s before",
            "session name s other",
            "session tag s word",
            "session verify s",
            "session repair s",
            "session replay s",
            "session diff a b",
            "session export s --out f",
            "session import f",
            "watch s",
            "attach s",
            "report s --out d",
            "check case.toml --against before",
            "lab serve --deployment d",
            "lab serve --deployment d --role decode --port 1234",
            "lab install d",
            "lab install d --scenario clean --source --port 1234",
            "lab scenarios",
            "lab reveal",
            "doctor",
            "doctor --bundle",
            "keys",
            "commands",
            "completions bash",
            "man",
            "config",
            "schema",
            "schema truth",
        ] {
            accepts(line);
        }
    }

    #[test]
    fn what_is_not_documented_is_refused() {
        for line in [
            "truth",
            "toggle case.toml",
            "restart case.toml decode --resume --undo",
            "isolate",
            "isolate --simulate case.toml",
            "isolate --simulate --plan",
            "isolate case.toml --budget 0",
            "isolate case.toml --budget soon",
            "session",
            "completions klingon",
            "elevate case.toml decode",
            "--json=yaml keys",
        ] {
            refuses(line);
        }
    }

    #[test]
    fn json_before_and_after_the_command_is_the_same() {
        for line in [["patchbench", "--json", "keys"], ["patchbench", "keys", "--json"]] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.global.json, Some(JsonForm::Object));
        }
    }
}
