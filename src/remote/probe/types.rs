//! What a probe found on a host, as plain data.
//!
//! Every value is a reading: the value, or why it is unknown. Nothing here is redacted; a text is redacted
//! when it becomes part of a claim.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::container::Container;
use super::imports::Imports;
use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::ProcessKey;
use crate::remote::proc::{Cmdline, Environ, Listener, ProcessInfo, Unknown};
use crate::untrusted::Untrusted;

/// A value, or why it is not known.
pub type Reading<T> = Result<T, Unknown>;

/// Everything that one probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The host itself.
    pub host: HostFacts,
    /// Every TCP socket that listens.
    pub listeners: Reading<Vec<Listener>>,
    /// Who owns each port that was asked for.
    pub ports: BTreeMap<u16, PortOwners>,
    /// The processes that matter, by pid.
    pub processes: BTreeMap<u32, Process>,
    /// Processes that matter and are left out because there are too many.
    pub left_out: u64,
    /// The systemd unit; `None` where none was asked for.
    pub unit: Option<Unit>,
    /// The container; `None` where none was asked for.
    pub container: Option<Container>,
    /// Files by path: those asked for, environment files of the unit, overrides that a process was started from.
    pub files: BTreeMap<String, FileRead>,
    /// Ends of logs by path.
    pub logs: BTreeMap<String, FileRead>,
    /// Folder of our files as a whole path; `None` where it was not asked for or did not come.
    pub overrides: Option<String>,
    /// Graphics cards; `None` where they were not asked for.
    pub gpus: Option<Gpus>,
    /// Where the server would import the wanted modules from; `None` where none was asked for.
    pub imports: Option<Imports>,
    /// How often the host was asked for this.
    pub round_trips: u32,
    /// Whether the whole answer came.
    pub whole: bool,
    /// What is odd about the answer.
    pub diagnostics: Vec<Diagnostic>,
}

/// What a host says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct HostFacts {
    /// Changes with every boot.
    pub boot_id: Reading<Untrusted>,
    /// When it booted, exact to a second.
    pub booted_at: Reading<Timestamp>,
    /// Clock ticks in a second.
    pub ticks_per_second: Reading<u64>,
    /// Its clock when the probe began.
    pub time: Reading<Timestamp>,
    /// How far its clock is ahead of ours; known to half of the round trip. Set by `probe::ask`.
    pub ahead: Reading<SignedDuration>,
    /// System, release and machine.
    pub kernel: Reading<Untrusted>,
    /// Its own name.
    pub name: Reading<Untrusted>,
    /// User that the probe ran as.
    pub uid: Reading<u32>,
}

/// A clock that is further off than this is said, in seconds.
const SKEW_S: i64 = 5;

impl HostFacts {
    /// That the clock of this host is not ours; `None` where it is, or where that is not known.
    pub fn skew(&self, host: &str) -> Option<Diagnostic> {
        let seconds = self.ahead.as_ref().ok()?.as_secs();
        let way = if seconds > 0 { "ahead of" } else { "behind" };
        let message = format!("the clock of the host is {} s {way} ours; times are the host's", seconds.abs());
        (seconds.abs() > SKEW_S).then(|| Diagnostic::warning("clock-skew", message).at(host))
    }

    /// When a process started, by the host's clock.
    ///
    /// # Errors
    /// The host does not tell its boot time or the length of a tick.
    pub fn started_at(&self, key: ProcessKey) -> Reading<Timestamp> {
        let (booted, rate) = (self.booted_at.clone()?, self.ticks_per_second.clone()?);
        let since = i64::try_from(u128::from(key.start_ticks) * 1000 / u128::from(rate.max(1)));
        let at = since.ok().and_then(|ms| Timestamp::from_millisecond(booted.as_millisecond().checked_add(ms)?).ok());
        at.ok_or_else(|| Unknown("the start time of the process is out of range".into()))
    }
}

/// Who owns a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortOwners {
    /// Nothing listens on it.
    Nobody,
    /// These processes have its socket open, the eldest first.
    Processes(Vec<u32>),
    /// It is in use or cannot be told, and why the owner is not known.
    Unknown(Unknown),
}

/// How a process came to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// It has a wanted port open.
    Owner,
    /// Its pid was asked for, by us or by the unit.
    Named,
    /// It started one of the above, directly or not.
    Ancestor,
    /// One of the above started it, directly or not.
    Descendant,
    /// It is in the same service or container.
    Group,
    /// It is in the same session.
    Session,
}

/// One process.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Why it was read.
    pub relation: Relation,
    /// Pid, start time, parent, session, state, short name.
    pub stat: Reading<ProcessInfo>,
    /// Arguments or title.
    pub cmdline: Reading<Cmdline>,
    /// Environment at its last `exec`.
    pub environ: Reading<Environ>,
    /// Its working folder.
    pub cwd: Reading<String>,
    /// Its program.
    pub exe: Reading<String>,
    /// Its control groups, one a line.
    pub cgroup: Reading<Untrusted>,
    /// Its user.
    pub uid: Reading<u32>,
    /// Where its standard output goes: a path, or what the kernel calls a pipe or socket.
    pub out: Reading<String>,
}

/// A systemd unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Properties by name, as `systemctl show` prints them.
    pub properties: Reading<BTreeMap<String, Untrusted>>,
    /// Its files in the order in which they count: path and text.
    pub files: Reading<Vec<(String, String)>>,
    /// Last records of the running invocation, oldest first, one JSON object a line.
    pub journal: Reading<Text>,
}

/// A text as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The text; what is no UTF-8 is replaced.
    pub text: String,
    /// Whether there is more than was read.
    pub truncated: bool,
}

/// A file, or the end of one.
#[derive(Clone, Debug, PartialEq)]
pub struct FileRead {
    /// Length, time and inode.
    pub stat: Reading<FileStat>,
    /// The bytes.
    pub bytes: Result<Vec<u8>, FileUnread>,
    /// Whether there is more than was read.
    pub truncated: bool,
}

/// Why a file has no bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileUnread {
    /// The host says that there is none.
    #[error("there is no such file")]
    Absent,
    /// The host does not let us.
    #[error("permission denied")]
    Permission,
    /// Not known.
    #[error("{0}")]
    Unknown(Unknown),
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Inode; another file under the same name has another.
    pub inode: u64,
}

/// Graphics cards and what runs on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpus {
    /// Index, UUID, name, driver, memory in MiB (all, used), load in percent, degrees Celsius, compute capability.
    pub list: Reading<Vec<Vec<Untrusted>>>,
    /// Pid, UUID of the card, memory used in MiB.
    pub apps: Reading<Vec<Vec<Untrusted>>>,
}
