use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::types::{FileUnread, PortOwners, Relation};
use super::*;
use crate::remote::host::Host;
use crate::remote::proc::Cmdline;

const NONCE: &str = "n1";

/// A process that owns a port, with arguments and variables that a frame could trip over, and its answer.
struct Real {
    ask: Ask,
    answer: Vec<u8>,
    folder: tempfile::TempDir,
    pid: u32,
    port: u16,
}

const OWNER: &str = "import socket, sys, time\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
                     print(s.getsockname()[1], flush=True)\ntime.sleep(600)\n";

static REAL: LazyLock<Real> = LazyLock::new(|| {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut child = std::process::Command::new("python3")
        .args(["-c", OWNER, "section a 3 text whole\nx", "", "end n1 1"])
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("PB_LINES", "one\nend n1 0\nsection b 1 text whole\n")
        .env("PB_ODD", "\u{1b}[31m é = x")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().parse().unwrap();
    fs_err::write(path("a file"), b"text \0 with zero\n").unwrap();
    fs_err::write(path("log"), "x".repeat(50) + "\nlast\n").unwrap();
    fs_err::create_dir(path("folder")).unwrap();
    let ask = Ask {
        ports: vec![port, 1],
        files: vec![path("a file"), path("none"), path("folder")],
        logs: vec![(path("log"), 10)],
        unit: Some("patchbench-none.service".into()),
        overrides: Some("/nowhere".into()),
        gpus: true,
        ..Ask::default()
    };
    let mut sh = std::process::Command::new("sh");
    sh.args(["-s", "--"]).args(ask.words(NONCE)).stdin(std::process::Stdio::piped());
    let mut sh = sh.stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut sh.stdin.take().unwrap(), SCRIPT.as_bytes()).unwrap();
    let answer = sh.wait_with_output().unwrap().stdout;
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    Real { ask, answer, folder, pid, port }
});

fn real() -> Probe {
    parse::parse(&REAL.answer, &REAL.ask, NONCE).unwrap()
}

#[test]
fn a_real_answer_is_read_whole() {
    let probe = real();
    assert!(probe.whole && probe.diagnostics.is_empty(), "{:?}", probe.diagnostics);
    assert_eq!((probe.round_trips, probe.left_out), (1, 0));
    assert!(probe.host.booted_at.is_ok() && probe.host.kernel.is_ok() && probe.host.boot_id.is_ok());
    assert_eq!(probe.host.ticks_per_second, Ok(100));
    assert_eq!(probe.ports[&REAL.port], PortOwners::Processes(vec![REAL.pid]));
    assert_eq!(probe.ports[&1], PortOwners::Nobody);
    assert!(probe.listeners.as_ref().unwrap().iter().any(|l| l.port == REAL.port));

    let owner = &probe.processes[&REAL.pid];
    assert_eq!(owner.relation, Relation::Owner);
    let Ok(Cmdline::Words(words)) = &owner.cmdline else { panic!("{:?}", owner.cmdline) };
    assert_eq!(words[3..], ["section a 3 text whole\nx", "", "end n1 1"]);
    let environ = owner.environ.as_ref().unwrap();
    assert_eq!(environ.get("PB_LINES"), Some("one\nend n1 0\nsection b 1 text whole\n"));
    assert_eq!(environ.get("PB_ODD"), Some("\u{1b}[31m é = x"));
    let key = owner.stat.as_ref().unwrap().key;
    assert!(probe.host.started_at(key).unwrap() > probe.host.booted_at.clone().unwrap());
    assert_eq!(owner.cwd.as_deref(), Ok(std::env::current_dir().unwrap().to_str().unwrap()));
    assert_eq!(owner.uid, Ok(rustix::process::getuid().as_raw()));
    assert!(probe.processes.values().any(|p| p.relation == Relation::Ancestor));
}

#[test]
fn absent_and_unreadable_are_two_things() {
    let probe = real();
    let path = |name: &str| REAL.folder.path().join(name).display().to_string();
    assert_eq!(probe.files[&path("a file")].bytes.as_deref(), Ok(&b"text \0 with zero\n"[..]));
    assert_eq!(probe.files[&path("a file")].stat.as_ref().unwrap().size, 17);
    assert_eq!(probe.files[&path("none")].bytes, Err(FileUnread::Absent));
    assert!(matches!(probe.files[&path("folder")].bytes, Err(FileUnread::Unknown(_))));
    let log = &probe.logs[&path("log")];
    assert_eq!((log.bytes.as_deref(), log.stat.as_ref().unwrap().size), (Ok(&b"xxxx\nlast\n"[..]), 56));
    let unit = probe.unit.unwrap();
    if let Ok(properties) = &unit.properties {
        assert_eq!(properties["LoadState"].raw(), "not-found");
    }
}

/// Everything that an answer can say to be absent.
fn absences(probe: &Probe) -> BTreeMap<String, bool> {
    let ports = probe.ports.iter().map(|(p, o)| (p.to_string(), *o == PortOwners::Nobody));
    let files = probe.files.iter().map(|(p, f)| (p.clone(), f.bytes == Err(FileUnread::Absent)));
    ports.chain(files).collect()
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse::parse(&bytes, &REAL.ask, NONCE);
        let mut headed = b"patchbench-probe 1 n1\n".to_vec();
        headed.extend(bytes);
        let _ = parse::parse(&headed, &REAL.ask, NONCE);
    }

    #[test]
    fn a_torn_answer_never_reads_as_absent(share in 0.0..1.0_f64) {
        let cut = (REAL.answer.len() as f64 * share) as usize;
        let whole = absences(&real());
        match parse::parse(&REAL.answer[..cut], &REAL.ask, NONCE) {
            Err(error) => prop_assert!(error.to_string().contains("no answer")),
            Ok(torn) => {
                prop_assert!(!torn.whole && torn.diagnostics.iter().any(|d| d.code == "probe-torn"));
                for (name, absent) in absences(&torn) {
                    prop_assert!(!absent || whole[&name], "{} reads as absent", name);
                }
                let owner = &torn.ports[&REAL.port];
                prop_assert!(*owner != PortOwners::Nobody);
                let same = torn.processes.iter().all(|(pid, p)| p.environ.as_ref().map_or(true, |e| real().processes[pid].environ.as_ref() == Ok(e)));
                prop_assert!(same);
            }
        }
    }

    #[test]
    fn a_damaged_answer_never_breaks_the_reader(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut answer = REAL.answer.clone();
        let at = at.index(answer.len());
        answer[at] = byte;
        if let Ok(probe) = parse::parse(&answer, &REAL.ask, NONCE) {
            prop_assert!(probe.ports.len() == 2);
        }
    }
}

#[tokio::test]
async fn this_machine_is_asked_by_the_same_script() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let place = Place { host: Host::Local, become_with: Vec::new() };
    let question = Ask { ports: vec![port], ..Ask::default() };
    let cancel = CancellationToken::new();
    let probe = ask(&Hosts::default(), &place, &question, &cancel).await.unwrap();
    assert_eq!(probe.ports[&port], PortOwners::Processes(vec![std::process::id()]));
    assert!(probe.host.ahead.unwrap().as_secs().abs() < 60);
    let mute = Place { become_with: vec!["true".into()], ..place };
    let failure = ask(&Hosts::default(), &mute, &question, &cancel).await.unwrap_err();
    assert!(
        failure.message.contains("gave no answer") && failure.hint.unwrap().contains("become"),
        "{}",
        failure.message
    );
}

#[test]
fn unit_files_are_told_apart() {
    let text = "# /lib/systemd/system/a.service\n[Service]\n# /not/a.path here\nExecStart=/x\n\n\
                # /etc/systemd/system/a.service.d/10.conf\n[Service]\nEnvironment=A=1\n";
    let files = parse::unit_files(text);
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(
        files[0],
        ("/lib/systemd/system/a.service".into(), "[Service]\n# /not/a.path here\nExecStart=/x\n".into())
    );
    assert_eq!(files[1].0, "/etc/systemd/system/a.service.d/10.conf");
}
