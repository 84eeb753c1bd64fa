//! `elevate`: a production target may be changed for a stated time, by the commands and the workbench of this user.
//!
//! The leave is kept in the state folder, so that the commands that follow find it; each of them journals it in its own
//! session. Not responsible for what a change needs beside it, which the engine decides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::cli::Context;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::change::ElevateArgs;
use crate::cli::connect::case_file;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::engine::command::Command;

/// Most minutes at once, as the engine has it.
const MOST_MINUTES: f64 = 240.0;

/// A leave that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ElevateReport {
    /// The target.
    pub target: String,
    /// Until when it may be changed.
    #[schemars(with = "String")]
    pub until: Timestamp,
}

impl Report for ElevateReport {
    const NAME: &'static str = "elevate";
}

/// The leaves of a user: case file and target to their end.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Leaves(BTreeMap<String, Timestamp>);

/// Answers `elevate CASE TARGET --for MIN`.
///
/// # Errors
/// The case or the target is wrong, the target is not production, or the leave cannot be kept.
pub fn elevate(context: &Context, args: &ElevateArgs) -> Result<Answer, Failed> {
    let (case, remarks) = case_file(&args.case)?;
    let Some(target) = case.target(&args.target) else {
        let names: Vec<&str> = case.targets.iter().map(|t| t.name.as_str()).collect();
        return Err(Failed::usage(ErrorCode::Case, format!("the case has no target `{}`", args.target))
            .hint(format!("it has {}", names.join(", "))));
    };
    if !target.production {
        return Err(Failed::usage(ErrorCode::Usage, format!("`{}` is not production and needs no leave", target.name))
            .hint("`toggle` and `restart` change it as it is"));
    }
    if !(args.minutes > 0.0 && args.minutes <= MOST_MINUTES) {
        return Err(Failed::usage(ErrorCode::Usage, format!("`--for` takes 1 to {MOST_MINUTES} minutes"))
            .hint("state the minutes that the next steps need"));
    }
    let until = Timestamp::now() + SignedDuration::from_secs_f64(args.minutes * 60.0);
    let file = file(context);
    let mut leaves = read(&file);
    leaves.0.retain(|_, end| *end > Timestamp::now());
    leaves.0.insert(key(&args.case, &target.name), until);
    fs_err::create_dir_all(&context.paths.state)?;
    fs_err::write(&file, serde_json::to_string(&leaves).map_err(|e| Failed::world(ErrorCode::Io, e.to_string()))?)?;
    let text =
        format!("`{}` may be changed until {until}; each change is still shown and confirmed by its name", target.name);
    Ok(Answer::new(&ElevateReport { target: target.name.clone(), until }, Status::Done, text).diagnostics(remarks))
}

/// The commands that give a session the leaves of this user for a case.
pub fn granted(context: &Context, path: &Path, case: &Case) -> Vec<Command> {
    let (leaves, now) = (read(&file(context)), Timestamp::now());
    let left = |name: &str| {
        let until = leaves.0.get(&key(path, name))?;
        u32::try_from(until.duration_since(now).as_secs()).ok().filter(|s| *s > 0)
    };
    case.targets
        .iter()
        .filter(|t| t.production)
        .filter_map(|t| Some(Command::Elevate { target: t.name.clone(), seconds: left(&t.name)? }))
        .collect()
}

fn file(context: &Context) -> PathBuf {
    context.paths.state.join("elevated.json")
}

/// A file that cannot be read gives no leave.
fn read(file: &Path) -> Leaves {
    let text = fs_err::read_to_string(file).ok();
    text.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default()
}

fn key(case: &Path, target: &str) -> String {
    let whole = fs_err::canonicalize(case).unwrap_or_else(|_| case.to_owned());
    format!("{}#{target}", whole.display())
}
