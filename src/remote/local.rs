//! Access to this machine: processes, ports, logs, shell texts.
//!
//! Responsible for reading; what the bytes mean stands in `remote::proc`. Nothing here changes the
//! host, apart from [`shell`], which runs the text that it is given.

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::MARK;
use super::proc::{self, Cmdline, Environ, ProcessInfo, Unknown};
use crate::engine::procedure::ProcessKey;

/// The most bytes of a log that are read at once.
pub const TAIL_BYTES: u64 = 256 * 1024;

/// Every process that can be seen.
pub fn processes() -> Vec<ProcessInfo> {
    let Ok(entries) = fs_err::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| process(e.file_name().to_str()?.parse().ok()?)).collect()
}

/// The process with this pid; `None` where there is none.
pub fn process(pid: u32) -> Option<ProcessInfo> {
    proc::stat(&fs_err::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether exactly this process runs; a zombie does not.
pub fn runs(key: ProcessKey) -> bool {
    process(key.pid).is_some_and(|p| p.key == key && p.runs())
}

/// The environment of a process at its last `exec`.
///
/// # Errors
/// It cannot be read, or is overwritten.
pub fn environ(pid: u32) -> Result<Environ, Unknown> {
    proc::environ(&read_proc(pid, "environ")?)
}

/// The command line of a process.
///
/// # Errors
/// It cannot be read, or is empty.
pub fn cmdline(pid: u32) -> Result<Cmdline, Unknown> {
    proc::cmdline(&read_proc(pid, "cmdline")?)
}

fn read_proc(pid: u32, name: &str) -> Result<Vec<u8>, Unknown> {
    let path = format!("/proc/{pid}/{name}");
    fs_err::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Unknown(format!("permission denied for {path}")),
        std::io::ErrorKind::NotFound => Unknown(format!("process {pid} is gone")),
        _ => Unknown(error.to_string()),
    })
}

/// Who listens on a TCP port of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// Nobody.
    Nobody,
    /// This process; where a socket is shared, the eldest of its owners.
    Process(ProcessInfo),
    /// Somebody who cannot be named, and why.
    Unknown(Unknown),
}

/// Who listens on this port.
pub fn port_owner(port: u16) -> PortOwner {
    let mut inodes = Vec::new();
    let mut unread = None;
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs_err::read_to_string(path) {
            Ok(text) => inodes.extend(proc::listeners(&text).into_iter().filter(|l| l.port == port).map(|l| l.inode)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => unread = Some(error.to_string()),
        }
    }
    if inodes.is_empty() {
        return unread.map_or(PortOwner::Nobody, |why| PortOwner::Unknown(Unknown(why)));
    }
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut hidden = 0_usize;
    let mut owners = Vec::new();
    for info in processes() {
        match fs_err::read_dir(format!("/proc/{}/fd", info.key.pid)) {
            Ok(entries) => {
                let mut targets = entries.flatten().filter_map(|e| fs_err::read_link(e.path()).ok());
                if targets.any(|t| links.iter().any(|l| t.as_os_str() == l.as_str())) {
                    owners.push(info);
                }
            }
            Err(_) if info.runs() => hidden += 1,
            Err(_) => {}
        }
    }
    let eldest = owners.iter().find(|o| !owners.iter().any(|other| other.key.pid == o.ppid)).or(owners.first());
    match eldest {
        Some(owner) => PortOwner::Process(owner.clone()),
        None => PortOwner::Unknown(Unknown(format!(
            "port {port} is in use, and the open files of {hidden} processes cannot be read"
        ))),
    }
}

/// The processes from `pid` up to the first one, `pid` itself first.
pub fn lineage(pid: u32) -> Vec<ProcessInfo> {
    let mut out: Vec<ProcessInfo> = Vec::new();
    let mut next = pid;
    while next != 0 && !out.iter().any(|p| p.key.pid == next) {
        let Some(info) = process(next) else { break };
        next = info.ppid;
        out.push(info);
    }
    out
}

/// The value that a variable had when a process was started; `None` where it had none or none can be read.
fn started_with(pid: u32, name: &str) -> Option<String> {
    environ(pid).ok()?.get(name).map(str::to_owned)
}

/// Paths of the traces of our starts of which any process still lives, by the mark that each of them carries.
pub fn living_runs() -> BTreeSet<String> {
    let mine: BTreeSet<u32> = lineage(std::process::id()).iter().map(|p| p.key.pid).collect();
    let others = processes().into_iter().filter(|p| p.runs() && !p.has_terminal && !mine.contains(&p.key.pid));
    others.filter_map(|p| started_with(p.key.pid, MARK)).collect()
}

/// The live processes of a start, but for the shell that leads it: its session, what carries its mark, and
/// their children. A process may leave its session or overwrite its environment; it seldom does both and leaves
/// its parent too.
pub fn members(run: &str, leader: Option<ProcessKey>) -> Vec<ProcessInfo> {
    let all = processes();
    // Once its leader is gone, a session's number may be that of somebody else's; the mark alone counts then.
    let session = leader.filter(|l| process(l.pid).is_some_and(|p| p.key == *l)).map(|l| l.pid);
    let marked = |p: &ProcessInfo| !p.has_terminal && started_with(p.key.pid, MARK).as_deref() == Some(run);
    let own = |p: &ProcessInfo| Some(p.session) == session || marked(p);
    let mut ours: BTreeSet<u32> = all.iter().filter(|p| own(p)).map(|p| p.key.pid).collect();
    loop {
        let children: Vec<u32> =
            all.iter().filter(|p| ours.contains(&p.ppid)).map(|p| p.key.pid).filter(|p| !ours.contains(p)).collect();
        if children.is_empty() {
            break;
        }
        ours.extend(children);
    }
    let is_leader = |p: &ProcessInfo| leader.is_some_and(|l| l == p.key);
    // This program itself may have been started from within a server's environment.
    for own in lineage(std::process::id()) {
        ours.remove(&own.key.pid);
    }
    all.into_iter().filter(|p| ours.contains(&p.key.pid) && p.runs() && !is_leader(p)).collect()
}

/// The user that a process runs as; `None` where it is gone.
pub fn user(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    Some(fs_err::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// What tells one boot of this machine from another; `None` where `/proc` does not say.
pub fn boot_id() -> Option<String> {
    Some(fs_err::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// When a process started, from its start ticks; exact to a second, since the host's boot time is.
///
/// # Errors
/// `/proc` does not tell the boot time or the length of a tick.
pub fn started_at(start_ticks: u64) -> Result<Timestamp, Unknown> {
    let boot = fs_err::read_to_string("/proc/stat").ok().and_then(|s| proc::boot_time(&s));
    let rate = fs_err::read("/proc/self/auxv").ok().and_then(|b| proc::ticks_per_second(&b));
    let (Some(boot), Some(rate)) = (boot, rate) else {
        return Err(Unknown("the boot time of the host cannot be read".into()));
    };
    let millis = boot * 1000 + (start_ticks * 1000 / rate) as i64;
    Timestamp::from_millisecond(millis).map_err(|e| Unknown(e.to_string()))
}

/// Length of a file in bytes; 0 where there is none.
pub fn file_len(path: &str) -> u64 {
    fs_err::metadata(path).map_or(0, |m| m.len())
}

/// New text of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Whole lines after the offset.
    pub lines: Vec<String>,
    /// Where to go on: after the last whole line.
    pub offset: u64,
}

/// The next whole lines of a file after an offset, at most some hundred kilobytes; ask again for more.
/// A file that became shorter is read from its start.
///
/// # Errors
/// The file cannot be opened or read.
pub fn tail(path: &str, offset: u64) -> std::io::Result<Tail> {
    let mut file = fs_err::File::open(path)?;
    let len = file.metadata()?.len();
    let start = if len < offset { 0 } else { offset };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let mut whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    if whole == 0 && bytes.len() as u64 == TAIL_BYTES {
        // A line without an end must not stop everything behind it.
        whole = bytes.len();
    }
    let lines = String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned).collect();
    Ok(Tail { lines, offset: start + whole as u64 })
}

/// How a shell text ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellEnd {
    /// Exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

impl ShellEnd {
    /// Whether it ended with status 0.
    pub fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// The last line that it wrote, errors first, for a message.
    pub fn last_line(&self) -> String {
        let last = |text: &str| text.lines().rev().find(|l| !l.trim().is_empty()).map(str::to_owned);
        last(&self.err).or_else(|| last(&self.out)).unwrap_or_else(|| match self.status {
            Some(status) => format!("ended with status {status}"),
            None => "was ended by a signal".into(),
        })
    }
}

/// Why a shell text has no end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ShellFailure {
    /// It could not be started.
    #[error("cannot run `sh`: {0}")]
    Start(String),
    /// It took too long and was ended.
    #[error("did not end within {0} s")]
    Timeout(f64),
    /// The job was cancelled and the text was ended.
    #[error("cancelled")]
    Cancelled,
}

/// Runs a POSIX shell text exactly as given, with an empty standard input.
///
/// # Errors
/// It could not be started, took too long, or was cancelled; its whole process group is ended then.
pub async fn shell(script: &str, timeout_s: f64, cancel: &CancellationToken) -> Result<ShellEnd, ShellFailure> {
    let child = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(script)
        .env_remove(MARK)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| ShellFailure::Start(e.to_string()))?;
    let group = child.id();
    let limit = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
    let failure = tokio::select! {
        end = child.wait_with_output() => {
            let end = end.map_err(|e| ShellFailure::Start(e.to_string()))?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Ok(ShellEnd { status: end.status.code(), out: text(&end.stdout), err: text(&end.stderr) });
        }
        () = tokio::time::sleep(limit) => ShellFailure::Timeout(timeout_s),
        () = cancel.cancelled() => ShellFailure::Cancelled,
    };
    if let Some(group) = group.and_then(|g| i32::try_from(g).ok()).and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself in the meantime.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let me = process(std::process::id()).unwrap();
        assert!(runs(me.key) && me.runs());
        assert!(!runs(ProcessKey { start_ticks: me.key.start_ticks + 1, ..me.key }));
        let age = Timestamp::now().duration_since(started_at(me.key.start_ticks).unwrap()).as_secs_f64();
        assert!((-2.0..3600.0).contains(&age), "{age}");
        assert!(environ(me.key.pid).unwrap().get("PATH").is_some());
        assert!(!cmdline(me.key.pid).unwrap().words().unwrap().is_empty());
        assert_eq!(lineage(me.key.pid)[1].key.pid, me.ppid);
        assert!(processes().contains(&me) || !processes().is_empty());
    }

    #[test]
    fn the_owner_of_a_port_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let PortOwner::Process(owner) = port_owner(port) else { panic!("nobody owns {port}") };
        assert_eq!(owner.key.pid, std::process::id());
        drop(socket);
        assert_eq!(port_owner(port), PortOwner::Nobody);
    }

    #[test]
    fn a_log_is_followed_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log").display().to_string();
        fs_err::write(&path, "one\ntwo\nthr").unwrap();
        let first = tail(&path, 4).unwrap();
        assert_eq!((first.lines.clone(), first.offset), (vec!["two".to_owned()], 8));
        fs_err::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, first.offset).unwrap().lines, ["three"]);
        fs_err::write(&path, "new\n").unwrap();
        assert_eq!(tail(&path, 14).unwrap().lines, ["new"]);
        assert!(tail(&format!("{path}-none"), 0).is_err());
        assert_eq!(file_len(&format!("{path}-none")), 0);
        fs_err::write(&path, "x\n".repeat(200_000)).unwrap();
        assert_eq!(tail(&path, 0).unwrap().offset, TAIL_BYTES, "a long line is read in pieces, nothing is left out");
    }

    #[tokio::test]
    async fn shell_texts_end_or_are_ended() {
        let cancel = CancellationToken::new();
        let end = shell("echo out; echo err >&2; exit 3", 5.0, &cancel).await.unwrap();
        assert_eq!((end.status, end.out.as_str(), end.last_line().as_str()), (Some(3), "out\n", "err"));
        assert_eq!(shell("sleep 60 & sleep 60", 0.1, &cancel).await, Err(ShellFailure::Timeout(0.1)));
        cancel.cancel();
        assert_eq!(shell("sleep 60", 5.0, &cancel).await, Err(ShellFailure::Cancelled));
    }
}
