//! Made-up services, written as the frame of a probe.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::remote::argv::Word;
use crate::remote::owner::Marks;
use crate::remote::probe::types::PortOwners;
use crate::remote::probe::{Ask, parse};

/// Pid, relation, parent, session, arguments or title, environment.
type Line = (u32, &'static str, u32, u32, &'static [u8], &'static [u8]);

const BASH: Line = (10, "ancestor", 1, 10, b"bash\0/srv/serve.sh\0", b"A=1\0");
const LAUNCHER: Line = (11, "owner", 10, 10, b"python3\0-m\0srv\0--port\x007\0", b"A=1\0B=old\0KEY_TOKEN=s1\0");
const BLANKED: Line = (11, "owner", 10, 10, b"srv::server\0\0\0\0\0", b"\0\0\0\0");
const TRACKER: Line = (
    12,
    "descendant",
    11,
    10,
    b"python3\0-c\0from multiprocessing.resource_tracker import main\0",
    b"B=new\0C=2\0KEY_TOKEN=s2\0",
);
const SCHEDULER: Line = (13, "descendant", 11, 10, b"sglang::scheduler_DP1_TP0\0\0\0\0\0", b"\0\0\0\0");
const PYTHON: Line = (10, "ancestor", 1, 10, b"python3\0run.py\0", b"A=1\0");
const STRANGER: Line = (99, "session", 1, 10, b"vim\0notes\0", b"A=1\0");

fn probe(lines: &[Line]) -> Probe {
    let mut frame = String::from("patchbench-probe 1 n\n");
    let mut count = 0;
    let mut add = |name: &str, bytes: &[u8]| {
        let text = STANDARD.encode(bytes);
        let _ = write!(frame, "section {name} {} base64 whole\n{text}\n", text.len());
        count += 1;
    };
    add("host.btime", b"1000");
    add("host.ticks", b"100\n");
    add("tcp", b"head\n");
    add("tcp6", b"head\n");
    let owners: Vec<&Line> = lines.iter().filter(|l| l.1 == "owner").collect();
    let mut said = String::from("hidden 0");
    for owner in owners {
        let _ = write!(said, "\nlisten 5\nowner 5 {}", owner.0);
    }
    add("port.7", said.as_bytes());
    for (pid, relation, parent, session, cmdline, environ) in lines {
        let zeros = "0 ".repeat(15);
        let stat = format!("{pid} (x y) S {parent} 1 {session} {zeros}{pid}00 0 0");
        add(&format!("proc.{pid}.relation"), relation.as_bytes());
        add(&format!("proc.{pid}.stat"), stat.as_bytes());
        add(&format!("proc.{pid}.cmdline"), cmdline);
        add(&format!("proc.{pid}.environ"), environ);
        add(&format!("proc.{pid}.cwd"), b"/srv\n");
    }
    let _ = writeln!(frame, "end n {count}");
    let ask = Ask { ports: vec![7], ..Ask::default() };
    parse::parse(frame.as_bytes(), &ask, "n").unwrap()
}

fn check(lines: &[Line], pid: u32, origin: &Origin, name: &str, expect: Result<Option<&str>, &str>) {
    let evidence = evidence(&probe(lines), 11);
    assert_eq!((evidence.pid, &evidence.origin), (pid, origin), "{evidence:?}");
    match (evidence.get(name), expect) {
        (Ok(value), Ok(expect)) => assert_eq!(value, expect),
        (Err(Unknown(why)), Err(part)) => assert!(why.contains(part), "{why}"),
        (value, expect) => panic!("{value:?} instead of {expect:?}"),
    }
}

#[test]
fn the_nearest_witness_of_the_environment_is_heard() {
    check(&[BASH, LAUNCHER, TRACKER], 11, &Origin::Own, "B", Ok(Some("old")));
    check(&[BASH, LAUNCHER], 11, &Origin::Own, "C", Ok(None));
    check(&[BASH, BLANKED, TRACKER], 12, &Origin::Tracker, "B", Ok(Some("new")));
    check(&[BASH, BLANKED, TRACKER], 12, &Origin::Tracker, "A", Ok(None));
    check(&[PYTHON, BLANKED], 10, &Origin::Launcher, "A", Ok(Some("1")));
    check(&[PYTHON, BLANKED], 10, &Origin::Launcher, "B", Err("may have set it later"));
    check(&[BASH, BLANKED], 11, &Origin::Own, "A", Err("overwritten"));
    check(&[BLANKED, STRANGER], 11, &Origin::Own, "A", Err("overwritten"));
}

#[test]
fn what_belongs_to_a_service_is_named_with_role_and_rank() {
    let found = processes(&probe(&[BASH, LAUNCHER, TRACKER, SCHEDULER, STRANGER]), 11);
    let seen: Vec<(u32, &str, String)> = found.iter().map(|p| (p.pid, p.role.as_str(), p.ranks.join(" "))).collect();
    let expect = [(11, "server", ""), (10, "shell", ""), (12, "resource_tracker", ""), (13, "scheduler", "DP1 TP0")];
    assert_eq!(seen, expect.map(|(p, r, k)| (p, r, k.to_owned())));
    assert_eq!(found[0].started_at.unwrap().as_second(), 1011);
    assert_eq!(found[0].environ, Known::Yes);
    assert!(matches!(found[3].environ, Known::Unknown { .. }));
}

#[test]
fn only_what_matters_is_a_disagreement() {
    let probe = probe(&[BASH, LAUNCHER, TRACKER]);
    let own = probe.processes[&11].environ.clone().unwrap();
    let tracker = tracker(&probe, 11).unwrap();
    let rows = changed_since_start("lab", &own, &tracker, |name| name == "B");
    let seen: Vec<(&str, RowStatus)> = rows.iter().map(|r| (r.name.as_str(), r.status)).collect();
    let one = RowStatus::OneSource;
    assert_eq!(seen, [("A", one), ("B", RowStatus::Differs), ("C", one), ("KEY_TOKEN", one)]);
    assert_eq!(rows[1].note, "the server changed it after its start: started with `old`, now `new`");
    assert!(!format!("{rows:?}").contains("s1") && !format!("{rows:?}").contains("s2"), "{rows:?}");
}

#[test]
fn a_port_is_owned_by_the_target_a_stranger_or_nobody() {
    let words = |words: &[&str]| -> Vec<Word> { words.iter().map(|w| Some((*w).to_owned())).collect() };
    let check = |lines: &[Line], script: &str, argv: &[&str], expect: Result<Option<Option<&str>>, &str>| {
        let (probe, argv) = (probe(lines), words(argv));
        let marks = Marks { script, overrides: "/state/overrides", argv: &argv };
        match (owner::running(&probe, "lab", 7, &marks), expect) {
            (Ok(own), Ok(expect)) => {
                let own = own.map(|o| o.started_from);
                assert_eq!(own, expect.map(|e| e.map(str::to_owned)));
            }
            (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{}", failure.message),
            (own, expect) => panic!("{own:?} instead of {expect:?}"),
        }
    };
    const OURS: Line = (10, "ancestor", 1, 10, b"bash\0/state/overrides/lab.sh\0", b"A=1\0");
    const RELATIVE: Line = (10, "ancestor", 1, 10, b"/bin/bash\0./serve.sh\0", b"A=1\0");
    check(&[BASH, LAUNCHER], "/srv/serve.sh", &["x", "--y"], Ok(Some(Some("/srv/serve.sh"))));
    check(&[RELATIVE, LAUNCHER], "/srv/serve.sh", &["x", "--y"], Ok(Some(Some("/srv/serve.sh"))));
    // An override that is not known to be one of this script may be another target's.
    check(&[OURS, LAUNCHER], "/srv/serve.sh", &["x", "--y"], Err("owned by another process"));
    check(&[LAUNCHER], "/srv/serve.sh", &["python3", "-m", "srv", "--port", "7"], Ok(Some(None)));
    check(&[LAUNCHER], "/srv/serve.sh", &[], Ok(Some(None)));
    check(&[LAUNCHER], "/srv/serve.sh", &["other", "--y"], Err("owned by another process: pid 11, `python3 -m srv"));
    check(&[BASH], "/srv/serve.sh", &[], Ok(None));
    const ABOVE: Line = (10, "ancestor", 1, 10, b"timeout\x009\0python3\0-m\0srv\0--port\x007\0", b"A=1\0");
    check(&[ABOVE, BLANKED], "/srv/serve.sh", &["python3", "-m", "srv", "--port", "7"], Ok(Some(None)));
    let titled = words(&["python3", "-m", "srv", "--port", "7"]);
    let marks = Marks { script: "/srv/serve.sh", overrides: "", argv: &titled };
    let own = owner::running(&probe(&[BLANKED]), "lab", 7, &marks).unwrap().unwrap();
    assert_eq!(own.by_port_alone.as_deref(), Some("srv::server"));
    let mut unknown = probe(&[BASH]);
    unknown.ports.insert(7, PortOwners::Unknown(Unknown("no rights".into())));
    let marks = Marks { script: "", overrides: "", argv: &[] };
    assert!(owner::running(&unknown, "lab", 7, &marks).unwrap_err().message.contains("no rights"));
}
