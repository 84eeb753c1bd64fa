//! Gets hold of the changes of a fork: a diff file, or a range of commits on this machine or on a target's host, where
//! git only reads; or, where there is no git, the files of an installation that are not as its wheel had them.
//!
//! Not responsible for what the changes say; see `inventory`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::diff::{self, Diff};
use super::installed;
use super::inventory::{self, Inventory};
use super::types::Entry;
use crate::case::{Case, Target};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::job::JobContext;
use crate::engine::procedure::Failure;
use crate::redact;
use crate::remote::host::{self, Host, HostError, Hosts, Limits, Output, Place};
use crate::untrusted::Untrusted;

/// The longest diff that is read, in bytes.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How long git may take.
const TIME: Duration = Duration::from_mins(5);

/// Where changes are read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ImportFrom {
    /// A diff on this machine, and the folder whose files it leads to, where that is there.
    File {
        /// Path of the diff.
        path: String,
        /// Folder of the tree after the change.
        tree: Option<String>,
    },
    /// Commits of a checkout.
    Range {
        /// The target on whose host it is; `None` is this machine.
        target: Option<String>,
        /// The checkout; `None` is that of the target, or the current folder.
        folder: Option<String>,
        /// `A..B`, or a revision up to which all commits since `A` count, as git reads it.
        range: String,
    },
    /// The files of an installation that are not as its wheel had them.
    Installed {
        /// The target on whose host it is; `None` is this machine.
        target: Option<String>,
        /// Its `NAME-VERSION.dist-info` folder.
        folder: String,
    },
}

impl ImportFrom {
    /// What a word names: the record of an installation, a range of commits, else a diff file.
    pub fn named(word: &str, target: Option<&str>, folder: Option<String>) -> Self {
        let target = target.map(str::to_owned);
        if word.trim_end_matches('/').ends_with(installed::DIST_INFO) {
            return Self::Installed { target, folder: word.to_owned() };
        }
        // A path may go up, and a range never does.
        if target.is_some() || (word.contains("..") && !word.contains("../")) {
            return Self::Range { target, folder, range: word.to_owned() };
        }
        Self::File { path: word.to_owned(), tree: folder }
    }

    /// The folder of the files after the change, where the diff is not that of a checkout.
    pub fn tree(&self) -> Option<&str> {
        match self {
            Self::File { tree, .. } => tree.as_deref(),
            Self::Range { .. } | Self::Installed { .. } => None,
        }
    }

    /// One line for people.
    pub fn spelling(&self) -> String {
        match self {
            Self::File { path, .. } => path.clone(),
            Self::Range { target: Some(target), range, .. } => format!("{range} on {target}"),
            Self::Range { target: None, range, .. } => range.clone(),
            Self::Installed { target: Some(target), folder } => format!("{folder} on {target}"),
            Self::Installed { target: None, folder } => folder.clone(),
        }
    }
}

/// Changes that were read.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The patches.
    pub entries: Vec<Entry>,
    /// What could not be read of the diff.
    pub remarks: Vec<Diagnostic>,
}

/// Reads changes; `case` tells the host and checkout of a target.
///
/// # Errors
/// The file or checkout cannot be read, git refuses, or there is more than is read.
pub async fn read(
    hosts: &Hosts,
    case: Option<&Case>,
    from: &ImportFrom,
    ctx: &JobContext,
) -> Result<Imported, Failure> {
    if let ImportFrom::Installed { target, folder } = from {
        ctx.progress(0, None, "hashing the installed files");
        let (entries, remarks) = installed(hosts, case, target.as_deref(), folder, &ctx.cancel).await?;
        return Ok(Imported { entries, remarks });
    }
    ctx.progress(0, Some(2), "reading the diff");
    let bytes = bytes(hosts, case, from, &ctx.cancel).await?;
    let tree = from.tree().map(str::to_owned);
    ctx.progress(1, Some(2), "reading what it changes");
    let name = from.spelling();
    let work = tokio::task::spawn_blocking(move || imported(&bytes, tree.as_deref(), &name));
    tokio::select! {
        done = work => done.map_err(|e| Failure::new(format!("the reader of diffs itself broke: {e}"))),
        () = ctx.cancel.cancelled() => Err(Failure::new("cancelled while the diff was read")),
    }
}

/// The text of the diff that changes are read from.
///
/// # Errors
/// The file or checkout cannot be read, git refuses, or there is more than is read.
pub async fn bytes(
    hosts: &Hosts,
    case: Option<&Case>,
    from: &ImportFrom,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, Failure> {
    match from {
        ImportFrom::File { path, .. } => file(Path::new(path)),
        ImportFrom::Range { target, folder, range } => {
            log(hosts, case, target.as_deref(), folder.as_deref(), range, cancel).await
        }
        ImportFrom::Installed { .. } => Err(Failure::new("an installation has no diff: its record holds hashes alone")
            .hint("import a range of commits, or a diff against the sources of the same version")),
    }
}

/// Everything that a diff tells; `tree` is the folder of the files that it leads to.
pub fn inventory_of(diff: &Diff, tree: Option<&str>) -> Inventory {
    let texts = tree.map(|folder| texts(diff, Path::new(folder))).unwrap_or_default();
    inventory::take(diff, &texts)
}

/// The patches of a diff; `tree` is the folder of the files that it leads to.
pub fn imported(bytes: &[u8], tree: Option<&str>, name: &str) -> Imported {
    let diff = diff::read_bytes(bytes);
    let mut taken = inventory_of(&diff, tree);
    inventory::keep(bytes, &diff, &taken.groups, &mut taken.entries);
    let remark = |r: &diff::Remark| {
        Diagnostic::warning("diff", Untrusted::from(r.text.as_str()).visible(300)).at(format!("{name}:{}", r.line))
    };
    Imported { remarks: taken.remarks.iter().map(remark).collect(), entries: taken.entries }
}

/// The whole new files, as far as the tree has them.
fn texts(diff: &Diff, folder: &Path) -> BTreeMap<String, String> {
    let paths = diff.files.iter().map(diff::FileDiff::path).filter(|path| is_within(path));
    paths.filter_map(|path| Some((path.to_owned(), fs_err::read_to_string(folder.join(path)).ok()?))).collect()
}

/// Whether a path of a diff leads nowhere out of the folder that it is joined to.
pub fn is_within(path: &str) -> bool {
    Path::new(path).components().all(|c| matches!(c, std::path::Component::Normal(_)))
}

/// The bytes of a diff file.
///
/// # Errors
/// It cannot be read, or is too long.
fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let unread = |e: std::io::Error| {
        Failure::new(format!("the diff cannot be read: {e}")).hint("name a diff file, or a range of commits as `A..B`")
    };
    let long = fs_err::metadata(path).map_err(unread)?.len() > MOST_BYTES as u64;
    if long {
        return Err(too_long());
    }
    fs_err::read(path).map_err(unread)
}

fn too_long() -> Failure {
    Failure::new(format!("the diff is longer than {} MiB", MOST_BYTES / 1024 / 1024))
        .hint("leave out folders that no server runs, such as with `git diff A..B -- python`")
}

/// What git is asked; nothing that a repository or user configured is run, and nothing is written.
const LOG: &str = "cd -- \"$1\" || exit 1\n\
    GIT_OPTIONAL_LOCKS=0 GIT_PAGER=cat GIT_TERMINAL_PROMPT=0 LC_ALL=C\n\
    # What a partial clone lacks is not fetched: that would run programs of its configuration, and write.\n\
    GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none\n\
    export GIT_OPTIONAL_LOCKS GIT_PAGER GIT_TERMINAL_PROMPT LC_ALL GIT_NO_LAZY_FETCH GIT_ALLOW_PROTOCOL\n\
    git -c core.fsmonitor=false -c core.quotePath=true -c log.showSignature=false --no-replace-objects log --reverse \\\n\
    \x20 --no-color --no-ext-diff --no-textconv --no-notes --no-decorate --format=medium --date=iso-strict -m --first-parent \\\n\
    \x20 -p -M --src-prefix=a/ --dst-prefix=b/ --end-of-options \"$2\" --\n";

async fn log(
    hosts: &Hosts,
    case: Option<&Case>,
    target: Option<&str>,
    folder: Option<&str>,
    range: &str,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, Failure> {
    if !range.contains("..") {
        return Err(Failure::new(format!("`{range}` is neither a file nor a range of commits"))
            .hint("name a diff file, or a range as git reads it, such as `upstream/main..HEAD`"));
    }
    let (of, place) = place_of(case, target)?;
    let checkout = folder.map(str::to_owned).or_else(|| of.and_then(|t| t.checkout.clone()));
    let folder = match (checkout, of) {
        (Some(folder), _) => folder,
        (None, Some(target)) => {
            return Err(Failure::new(format!("the case names no checkout of `{}`", target.name))
                .hint("give the target a `checkout`, or say `--checkout FOLDER`"));
        }
        (None, None) => ".".to_owned(),
    };
    let here = if of.is_none() { absolute(&folder)? } else { folder.clone() };
    let limits = Limits { time: TIME, bytes: MOST_BYTES };
    let words = [here, range.to_owned()];
    let output = host::run(hosts, &place, LOG, &words, &limits, cancel).await.map_err(HostError::failure)?;
    if output.out.len() >= MOST_BYTES {
        return Err(too_long());
    }
    if output.status != Some(0) {
        let said = last_words(&output);
        return Err(Failure::new(format!("git cannot read `{range}` in `{folder}`: {said}"))
            .hint("check the range and the checkout; of a partial clone, only what it holds is read"));
    }
    Ok(output.out)
}

/// The last line that a failed command wrote, for a message.
fn last_words(output: &Output) -> String {
    let said = output.err.raw().lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it says nothing");
    Untrusted::from(redact::text(said)).visible(200)
}

/// A target of the case with the way to its host; without a name, this machine.
fn place_of<'c>(case: Option<&'c Case>, target: Option<&str>) -> Result<(Option<&'c Target>, Place), Failure> {
    let of = match target {
        Some(name) => Some(
            case.and_then(|c| c.target(name))
                .ok_or_else(|| Failure::new(format!("the case has no target `{name}`")))?,
        ),
        None => None,
    };
    let place = match of {
        Some(target) => Place::of(target),
        None => Host::named("local").and_then(|host| Place::new(host, "")),
    }
    .map_err(HostError::failure)?;
    Ok((of, place))
}

/// Asks for the files of an installation that are not as recorded.
async fn installed(
    hosts: &Hosts,
    case: Option<&Case>,
    target: Option<&str>,
    folder: &str,
    cancel: &CancellationToken,
) -> Result<(Vec<Entry>, Vec<Diagnostic>), Failure> {
    let (of, place) = place_of(case, target)?;
    let here = if of.is_none() { absolute(folder)? } else { folder.to_owned() };
    let limits = Limits { time: TIME, bytes: MOST_BYTES };
    let output =
        host::run(hosts, &place, installed::SCRIPT, &[here], &limits, cancel).await.map_err(HostError::failure)?;
    if output.status != Some(0) {
        let said = last_words(&output);
        return Err(Failure::new(format!("the record of `{folder}` cannot be read: {said}")).hint(
            "name the `NAME-VERSION.dist-info` folder beside the package; `truth` shows from where it is imported",
        ));
    }
    installed::entries(&String::from_utf8_lossy(&output.out), folder)
}

/// The path of a folder on this machine, which a shell of another folder finds as well.
fn absolute(folder: &str) -> Result<String, Failure> {
    let path = fs_err::canonicalize(folder).map_err(|e| Failure::new(format!("the folder cannot be read: {e}")))?;
    Ok(path.display().to_string())
}
