//! Surveys over probes as a host would give them.

use std::collections::BTreeMap;

use super::draft::{Production, draft};
use super::recognise;
use super::*;
use crate::case;
use crate::remote::probe::types::{Gpus, HostFacts, PortOwners, Process, Relation};
use crate::remote::proc::{self, ProcessInfo};
use crate::untrusted::Untrusted;

fn unread() -> Unknown {
    Unknown("not asked".into())
}

fn probe() -> Probe {
    Probe {
        host: HostFacts {
            boot_id: Err(unread()),
            booted_at: Err(unread()),
            ticks_per_second: Err(unread()),
            time: Err(unread()),
            ahead: Err(unread()),
            kernel: Err(unread()),
            name: Err(unread()),
            uid: Err(unread()),
        },
        listeners: Err(unread()),
        ports: BTreeMap::new(),
        processes: BTreeMap::new(),
        left_out: 0,
        unit: None,
        container: None,
        files: BTreeMap::new(),
        logs: BTreeMap::new(),
        overrides: None,
        gpus: None,
        imports: None,
        round_trips: 1,
        whole: true,
        diagnostics: Vec::new(),
    }
}

fn add(probe: &mut Probe, pid: u32, parent: u32, line: &str, cgroup: &str, out: &str) {
    let bytes: Vec<u8> = if line.contains("::") {
        format!("{line}\0\0\0\0").into_bytes()
    } else {
        line.split(' ').flat_map(|w| format!("{w}\0").into_bytes()).collect()
    };
    let stat = format!("{pid} (x) S {parent} {pid} 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 0");
    let info: ProcessInfo = proc::stat(stat.as_bytes()).unwrap();
    let process = Process {
        relation: Relation::Owner,
        stat: Ok(info),
        cmdline: proc::cmdline(&bytes),
        environ: proc::environ(b"A=1\0"),
        cwd: Ok("/root/run".into()),
        exe: Err(unread()),
        cgroup: Ok(Untrusted::from(format!("0::{cgroup}\n"))),
        uid: Ok(0),
        out: Ok(out.into()),
    };
    probe.processes.insert(pid, process);
}

fn owner(probe: &mut Probe, port: u16, pid: u32) {
    probe.ports.insert(port, PortOwners::Processes(vec![pid]));
}

/// Prefill and decode behind a router, a database, and a port whose owner is hidden.
fn deployment() -> Probe {
    let mut probe = probe();
    add(&mut probe, 1, 0, "/sbin/init", "/init.scope", "/dev/null");
    add(&mut probe, 10, 1, "bash /root/serve_decode.sh", "/system.slice/decode.service", "socket:[1]");
    let line = "python -m sglang.launch_server --model-path /root/m --disaggregation-mode decode --port 30002 --api-key sk-verysecret1";
    add(&mut probe, 11, 10, line, "/system.slice/decode.service", "socket:[1]");
    add(&mut probe, 20, 1, "bash serve_prefill.sh", "/user.slice/session-3.scope", "/dev/pts/0");
    let line = "python3 -m sglang.launch_server --model-path=/root/m --disaggregation-mode prefill --port 30001";
    add(&mut probe, 21, 20, line, "/user.slice/session-3.scope", "/root/run/prefill.log");
    let line = "python -m sglang_router.launch_router --pd-disaggregation --prefill http://127.0.0.1:30001 8998 \
                --decode http://other-box:30002 --port 30000";
    add(&mut probe, 30, 1, line, "/system.slice/ssh.service", "/dev/null");
    add(&mut probe, 40, 1, "postgres -D /var/lib", "/system.slice/postgresql.service", "/dev/null");
    for (port, pid) in [(30002, 11), (40005, 11), (30001, 21), (30000, 30), (5432, 40)] {
        owner(&mut probe, port, pid);
    }
    probe.ports.insert(9000, PortOwners::Unknown(Unknown("open files cannot be read".into())));
    probe.gpus = Some(Gpus {
        list: Ok(vec![
            ["4", "GPU-a", "NVIDIA RTX PRO 6000", "580.1", "97887", "90000", "0", "40", "12.0"]
                .map(Untrusted::from)
                .to_vec(),
        ]),
        apps: Ok(vec![["11", "GPU-a", "90000"].map(Untrusted::from).to_vec()]),
    });
    probe
}

fn survey() -> Survey {
    let probe = deployment();
    Survey {
        host: "gpu-box".into(),
        servers: recognise::servers(&probe),
        cards: recognise::cards(&probe),
        unknown: recognise::unknown_owners(&probe),
        ..Survey::default()
    }
}

#[test]
fn servers_are_told_from_everything_else_that_listens() {
    let found = survey().servers;
    let shown: Vec<_> =
        found.iter().map(|s| (s.port, s.pid, s.role.value, s.model.as_ref().map(|m| m.value.as_str()))).collect();
    assert_eq!(
        shown,
        [
            (30000, 30, Role::Router, None),
            (30001, 21, Role::Prefill, Some("/root/m")),
            (30002, 11, Role::Decode, Some("/root/m")),
        ]
    );
    let keepers: Vec<_> = found.iter().map(|s| s.keeper.as_ref().map(|k| k.value.clone())).collect();
    let script =
        Keeper::Script { script: "/root/run/serve_prefill.sh".into(), log: Some("/root/run/prefill.log".into()) };
    assert_eq!(keepers, [None, Some(script), Some(Keeper::Unit("decode.service".into()))]);
    assert_eq!(found[2].script.as_ref().unwrap().value, "/root/serve_decode.sh");
    assert_eq!(found[2].cards, ["4 (NVIDIA RTX PRO 6000)"]);
    assert!(found[2].has_key);
}

#[test]
fn a_draft_reads_without_an_edit_and_shows_no_secret() {
    let text = draft(&survey(), Production::Assumed, "2026-01-01T00:00:00Z");
    assert!(!text.contains("sk-verysecret1"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.toml");
    fs_err::write(&path, &text).unwrap();
    let (case, remarks) = case::read_file(&path);
    let case = case.unwrap_or_else(|| panic!("{remarks:?}\n{text}"));
    assert_eq!(case.entry.as_deref(), Some("router"));
    assert!(case.targets.iter().all(|t| t.production && t.host == "gpu-box"));
    let names: Vec<&str> = case.targets.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["router", "prefill", "decode"]);
    for line in [
        "url = \"http://127.0.0.1:30002\"  # /proc/net/tcp: pid 11 listens",
        "manager = { systemd = \"decode.service\" }  # /proc/11/cgroup",
        "checkpoint = \"/root/m\"  # /proc/11/cmdline",
        "# uses card 4 (NVIDIA RTX PRO 6000)",
        "# sends to prefill at http://127.0.0.1:30001: above or below",
        "# sends to decode at http://other-box:30002: TODO: not on this host, and not looked at",
        "# TODO: port 9000 listens, and its owner is not known: open files cannot be read",
        "# TODO: api_key = { env",
        "production = true  # assumed: nobody said otherwise",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    // Every line that says something says where from.
    let bare = text.lines().filter(|l| l.contains(" = ") && !l.starts_with('#') && !l.contains("  # "));
    assert_eq!(bare.count(), 0, "{text}");
}

#[test]
fn a_title_in_place_of_the_arguments_is_read_from_what_started_it() {
    let mut probe = probe();
    add(&mut probe, 5, 1, "python -m sglang.launch_server --model-path /m --port 1", "/", "/dev/null");
    add(&mut probe, 6, 5, "sglang::http_server", "/", "/dev/null");
    owner(&mut probe, 1, 6);
    let found = recognise::servers(&probe);
    assert_eq!((found[0].pid, found[0].model.as_ref().unwrap().value.as_str()), (6, "/m"));
    assert_eq!(found[0].engine.source, "/proc/5/cmdline");
}

#[test]
fn a_host_without_servers_gives_an_empty_draft_that_says_so() {
    let text = draft(&Survey { host: "box".into(), ..Survey::default() }, Production::No, "now");
    assert!(!text.contains("[[target]]"));
}

#[test]
fn names_that_would_break_the_file_are_quoted() {
    let mut probe = probe();
    add(&mut probe, 5, 1, "llama-server -m /m/\"x\"\\\n#.gguf --port 1", "/system.slice/a\"b.service", "/dev/null");
    owner(&mut probe, 1, 5);
    let survey = Survey { host: "h\"x".into(), servers: recognise::servers(&probe), ..Survey::default() };
    let text = draft(&survey, Production::No, "now");
    let table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let target = &table["target"][0];
    assert_eq!(target["manager"]["systemd"].as_str(), Some("a\"b.service"));
    assert_eq!(target["checkpoint"].as_str(), Some("/m/\"x\"\\\n#.gguf"));
}
