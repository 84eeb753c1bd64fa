//! What a change must know of its host beside a probe: our own folder, the environment that a start would get, whether
//! the log can be written, starts that still live, and who holds the target.
//!
//! `parse` is pure. Not responsible for what runs on the target's port, which a probe tells.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::machine::Machine;
use super::probe::frame::{Frame, Section, Unread};
use super::probe::parse;
use super::probe::types::Reading;
use super::proc::{self, Environ, Unknown};
use super::{MARK, lease};
use crate::engine::procedure::{Failure, RoutedWorker};
use crate::untrusted::Untrusted;

/// The script, which is the same for every host and every question.
pub const SCRIPT: &str = concat!(include_str!("probe/frame.sh"), include_str!("ground.sh"));

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Folder of our files on the host; `~/` in front is the home of whoever asks.
    pub folder: String,
    /// What names the target there.
    pub stem: String,
    /// What names its lease.
    pub lease: String,
    /// The log that a start would write.
    pub log: Option<String>,
    /// The systemd unit.
    pub unit: Option<String>,
}

/// What a host said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Folder of our files, as a whole path.
    pub folder: String,
    /// User that asks.
    pub uid: Reading<u32>,
    /// The environment that a shell of ours has there.
    pub environ: Reading<Environ>,
    /// The log: its length in bytes, or why it could not be written.
    pub log: Reading<LogPlace>,
    /// Paths of our overrides of this target that stand there.
    pub overrides: BTreeSet<String>,
    /// Paths of copies of its source that stand there.
    pub trees: BTreeSet<String>,
    /// Paths of the traces of our starts of this target of which anything still lives.
    pub runs: BTreeSet<String>,
    /// Who holds the target.
    pub lease: lease::Found,
    /// The workers that a change of ours may have taken out of their routers.
    pub workers: Vec<RoutedWorker>,
    /// How often the unit was started within its start limit's interval; `None` where there is no unit.
    pub starts: Option<Reading<u32>>,
    /// The host's clock.
    pub time: Reading<Timestamp>,
}

/// Whether a log could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// It can, and has so many bytes.
    Writable(u64),
    /// Its folder is not there.
    NoFolder,
    /// It is no file, or may not be written.
    NotWritable,
    /// Its disk is full.
    Full,
}

/// Asks a host.
///
/// # Errors
/// It cannot be reached, or gives no answer.
pub async fn ask(machine: &Machine, question: &Question, cancel: &CancellationToken) -> Result<Ground, Failure> {
    let mut words = vec!["folder".to_owned(), question.folder.clone(), "stem".to_owned(), question.stem.clone()];
    words.extend(["lease".to_owned(), question.lease.clone()]);
    let more = [("log", &question.log), ("unit", &question.unit)];
    words.extend(more.into_iter().filter_map(|(k, v)| Some([k.to_owned(), v.clone()?])).flatten());
    let frame = machine.framed(SCRIPT, &words, cancel).await?;
    if !frame.whole {
        return Err(Failure::new(format!("the answer of `{}` broke off", machine.place().host.name()))
            .hint("nothing was changed; ask again"));
    }
    parse(&frame)
}

/// Reads the answer.
///
/// # Errors
/// It does not say where our folder is.
pub fn parse(frame: &Frame) -> Result<Ground, Failure> {
    let folder = parse::text(frame, "folder").map_err(|Unknown(why)| Failure::new(why))?;
    let lines =
        |name: &str| parse::text(frame, name).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let mark = format!("{MARK}=");
    let facts = parse::host(frame);
    Ok(Ground {
        environ: parse::whole(frame, "environ").and_then(proc::environ),
        log: parse::text(frame, "log").and_then(|text| log_place(text.trim())),
        overrides: lines("overrides").into_iter().collect(),
        trees: lines("trees").into_iter().collect(),
        runs: lines("runs").iter().filter_map(|l| l.strip_prefix(&mark).map(str::to_owned)).collect(),
        lease: lease::read(&lease_files(frame)),
        workers: workers(frame)?,
        starts: frame.sections.contains_key("unit.starts").then(|| starts(frame, &facts.time)),
        uid: facts.uid,
        time: facts.time,
        folder,
    })
}

fn log_place(text: &str) -> Reading<LogPlace> {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("writable", bytes) => Ok(LogPlace::Writable(bytes.trim().parse().unwrap_or(0))),
        ("no-folder", _) => Ok(LogPlace::NoFolder),
        ("not-writable" | "no-file", _) => Ok(LogPlace::NotWritable),
        ("full", _) => Ok(LogPlace::Full),
        _ => Err(Unknown(format!("the host says of the log: `{}`", Untrusted::from(text).visible(60)))),
    }
}

/// The files of the lease, each its text, none, or why it cannot be read.
fn lease_files(frame: &Frame) -> BTreeMap<String, Reading<Option<String>>> {
    let names = ["holder", "token", "until", "restored", "program"];
    let file = |name: &str| match frame.sections.get(name) {
        Some(Section::Unread(Unread::Gone(_))) => Ok(None),
        _ => parse::text(frame, name).map(Some),
    };
    names.iter().map(|name| ((*name).to_owned(), file(&format!("lease.{name}")))).collect()
}

/// The workers that the lease remembers; a record that cannot be read must not be taken for none.
fn workers(frame: &Frame) -> Result<Vec<RoutedWorker>, Failure> {
    let section = frame.sections.get("lease.worker");
    let text = match section {
        None | Some(Section::Unread(Unread::Gone(_))) => return Ok(Vec::new()),
        Some(_) => parse::text(frame, "lease.worker").map_err(|Unknown(why)| why),
    };
    let hint = match section {
        // Our folder is closed to others, whether there is a lease in it or not.
        Some(Section::Unread(Unread::Permission(_))) => {
            "another user changed something here: reach the host as that user, or give the target a `become`"
        }
        _ => "see `worker` in the lease's folder on the host",
    };
    text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string())).map_err(|why| {
        Failure::new(format!("what stands in the lease about the router cannot be read: {why}")).hint(hint)
    })
}

/// How many starts lie within the interval of the start limit; each line begins with seconds since 1970.
fn starts(frame: &Frame, now: &Reading<Timestamp>) -> Reading<u32> {
    let now = now.clone()?;
    let window = parse::text(frame, "unit.window")?;
    let seconds = proc::span_seconds(window.trim())
        .ok_or_else(|| Unknown(format!("`StartLimitIntervalUSec` is `{}`", Untrusted::from(window).visible(40))))?;
    let text = match frame.sections.get("unit.starts") {
        // A journal without such a record ends badly in some versions.
        Some(Section::Unread(Unread::Failed(said))) if said.raw().trim().is_empty() => String::new(),
        _ => parse::text(frame, "unit.starts")?,
    };
    let since = now.as_second() as f64 - seconds;
    let within =
        |line: &&str| line.split_whitespace().next().and_then(|w| w.parse::<f64>().ok()).is_some_and(|at| at >= since);
    Ok(u32::try_from(text.lines().filter(within).count()).unwrap_or(u32::MAX))
}
