//! Changes of a real systemd unit over ssh: proof, the way back, and every step broken in three ways.
//!
//! `scripts/test --long` boots the host and names its ssh config in `PATCHBENCH_SYSTEMD_HOST`.

mod user;

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::start_until;
use crate::systemd_host::{Host, UNIT, WRAPPER};

/// Every step of a toggle whose variable a wrapper exports.
const STEPS: [&str; 5] = ["lease", "write-override", "write-drop-in", "restart", "prove"];

const CASE: &str = r#"
name = "unit"
[[target]]
name = "lab"
host = "pbhost"
url = "http://127.0.0.1:30117"
manager = { systemd = "sglang-lab.service" }
production = true
[[patch]]
id = "triton-indexer"
gate = { env = "SGLANG_SM120_TRITON_INDEXER", levels = { on = "1", off = { unset = true } } }
suspect = "on"
[[patch]]
id = "mhc-bf16"
gate = { flag = "--mhc-gemm", levels = { on = "bf16", off = "fp32" } }
suspect = "on"
[budget]
downtime_min = 30
"#;

/// A unit that runs as its owner wrote it, and a case that may change it.
struct Unit {
    host: Host,
    case: PathBuf,
    /// Hashes of everything that belongs to its owner.
    owners: String,
}

impl Unit {
    fn up() -> Option<Self> {
        let host = Host::up()?;
        // Many more starts than the default limit allows are made here.
        host.write(
            "/etc/systemd/system/sglang-lab.service",
            &UNIT.replace("[Service]\n", "[Service]\nRestart=on-failure\n"),
        );
        host.sh(
            "rm -rf /run/patchbench /run/systemd/system/sglang-lab.service.d; systemctl stop 'patchbench-restore*'",
        );
        host.start();
        let case = host.folder().join("case.toml");
        fs_err::write(&case, CASE).unwrap();
        let mut unit = Self { host, case, owners: String::new() };
        unit.owners = unit.hashes();
        assert_eq!(unit.run(&["elevate", "lab", "--for", "60"]).0, 0);
        Some(unit)
    }

    fn hashes(&self) -> String {
        self.host.sh("cd /; find etc/systemd/system etc/default srv/lab/serve.sh -type f -exec sha256sum {} + | sort")
    }

    /// `patchbench WORD CASE REST…`.
    fn run(&self, args: &[&str]) -> (i32, Value) {
        let whole: Vec<&str> =
            [args[0], self.case.to_str().unwrap()].into_iter().chain(args[1..].iter().copied()).collect();
        self.host.patchbench(&whole)
    }

    fn toggle(&self, level: &str) -> (i32, Value) {
        self.run(&["toggle", "triton-indexer", level, "--yes", "lab"])
    }

    /// The variable that the server was really started with.
    fn indexer(&self) -> String {
        let read = "tr '\\0' '\\n' </proc/$(systemctl show -P MainPID sglang-lab)/environ | grep ^SGLANG_SM120_TRITON_INDEXER= || echo absent";
        self.host.sh(read).trim().to_owned()
    }

    fn wait_ready(&self) {
        let ready = "for i in $(seq 150); do journalctl -q -u sglang-lab --no-pager -o cat \
                     _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID sglang-lab) | grep -q 'ready to roll' \
                     && exit 0; sleep 0.2; done; exit 1";
        self.host.sh(ready);
    }

    /// Everything is as its owner left it, nothing of ours stands or runs there, and the server has its own levels.
    #[track_caller]
    fn is_original(&self) {
        assert_eq!(self.hashes(), self.owners, "a file of the owner was changed");
        let left = self.host.sh("ls -d /run/patchbench/leases/* /run/patchbench/*.sh /run/systemd/system/sglang-lab.service.d 2>/dev/null || true");
        assert_eq!(left, "", "something of ours is left");
        // The shell that put it back ends a moment after it has said so.
        let units = self.host.sh(
            "for i in $(seq 50); do [ -z \"$(systemctl list-units --no-legend --plain 'patchbench*')\" ] && break; \
             sleep 0.1; done; systemctl list-units --no-legend --plain 'patchbench*'",
        );
        assert_eq!(units.trim(), "", "a timer of ours still runs");
        assert_eq!(self.host.sh("systemctl show -P DropInPaths,NeedDaemonReload sglang-lab").trim(), "no");
        self.wait_ready();
        assert_eq!(self.indexer(), "SGLANG_SM120_TRITON_INDEXER=1");
    }

    /// Starts a toggle and returns once its journal says that this step has begun.
    fn toggle_until(&self, step: &str) -> (Child, PathBuf) {
        let sessions = self.host.folder().join("sessions");
        let args =
            ["toggle", self.case.to_str().unwrap(), "triton-indexer", "off", "--yes", "lab", "--quiet", "--json"];
        let mut command = self.host.command(&args);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        start_until(command, &sessions, step)
    }
}

/// What the program answered.
fn answer(child: Child) -> (i32, Value) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

fn not_run() {
    println!("not run: `scripts/test --long` boots the host");
}

#[test]
fn a_unit_is_toggled_with_proof_and_put_back_bit_for_bit() {
    let Some(unit) = Unit::up() else { return not_run() };
    let (status, planned) = unit.run(&["toggle", "triton-indexer", "off", "--plan"]);
    assert_eq!((status, unit.hashes()), (0, unit.owners.clone()), "{planned:#}");
    unit.is_original();

    let (status, off) = unit.toggle("off");
    assert_eq!((status, unit.indexer().as_str()), (0, "absent"), "{off:#}");
    let proof = &off["proofs"][0];
    assert_eq!(proof["levels"]["triton-indexer"], "off");
    let about: Vec<&str> = proof["evidence"].as_array().unwrap().iter().map(|e| e["about"].as_str().unwrap()).collect();
    for part in ["old-process", "pid", "invocation", "port-owner", "ready-line", "first-token", "level:mhc-bf16"] {
        assert!(about.contains(&part), "{part} is missing in {about:?}");
    }
    // A second change keeps the first, and the owner's files are still as they were.
    let (status, both) = unit.run(&["toggle", "mhc-bf16", "off", "--yes", "lab"]);
    assert_eq!(status, 0, "{both:#}");
    assert_eq!(both["proofs"][0]["levels"], serde_json::json!({"triton-indexer": "off", "mhc-bf16": "off"}));
    let (status, on) = unit.toggle("on");
    assert_eq!((status, unit.indexer().as_str()), (0, "SGLANG_SM120_TRITON_INDEXER=1"), "{on:#}");
    assert_eq!(unit.hashes(), unit.owners);

    let (status, back) = unit.run(&["restore", "--yes", "lab"]);
    assert_eq!(status, 0, "{back:#}");
    unit.is_original();
}

#[test]
fn a_program_that_is_killed_in_any_step_leaves_a_way_back() {
    let Some(unit) = Unit::up() else { return not_run() };
    for step in STEPS {
        // By `restore`, without the session.
        let (mut child, _) = unit.toggle_until(step);
        child.kill().unwrap();
        child.wait().unwrap();
        let (status, back) = unit.run(&["restore", "--yes", "lab"]);
        assert_eq!(status, 0, "{step}: {back:#}");
        unit.is_original();

        // By the session itself, which says what was half done.
        let (mut child, session) = unit.toggle_until(step);
        child.kill().unwrap();
        child.wait().unwrap();
        let (status, undone) = unit.host.patchbench(&["session", "resume", session.to_str().unwrap(), "--undo"]);
        assert_eq!((status, &undone["half_done"][0]["now"]), (0, &Value::from("undone")), "{step}: {undone:#}");
        unit.is_original();

        // By the host alone, once nobody renews the lease.
        let (mut child, _) = unit.toggle_until(step);
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        unit.host.sh("cd /run/patchbench/leases/* 2>/dev/null || exit 0; echo 1 >until; \
             for i in $(seq 300); do [ -e restored ] && break; sleep 0.1; done; cat restored log; rm -rf \"$PWD\"");
        unit.is_original();
    }
}

#[test]
fn a_link_that_breaks_in_any_step_is_mended_and_the_change_completed() {
    let Some(unit) = Unit::up() else { return not_run() };
    for step in STEPS {
        let (child, _) = unit.toggle_until(step);
        unit.host.sh("pkill -f 'sshd: [r]oot' -o || true");
        let (status, end) = answer(child);
        assert_eq!((status, unit.indexer().as_str()), (0, "absent"), "{step}: {end:#}");
        let (status, back) = unit.run(&["restore", "--yes", "lab"]);
        assert_eq!(status, 0, "{step}: {back:#}");
        unit.is_original();
    }
}

#[test]
fn a_server_that_is_killed_in_any_step_ends_in_one_of_two_known_states() {
    let Some(unit) = Unit::up() else { return not_run() };
    for step in STEPS {
        let (child, _) = unit.toggle_until(step);
        unit.host.sh("systemctl kill -s KILL sglang-lab");
        let (status, end) = answer(child);
        match status {
            0 => {
                assert_eq!((&end["outcomes"][0], unit.indexer().as_str()), (&Value::from("completed"), "absent"));
                assert_eq!(unit.run(&["restore", "--yes", "lab"]).0, 0);
            }
            _ => assert_eq!(end["outcomes"][0], "undone", "{step}: {end:#}"),
        }
        unit.is_original();
    }
}

#[test]
fn a_wrapper_that_another_user_runs_was_copied_for_root_alone() {
    let Some(unit) = Unit::up() else { return not_run() };
    let other = UNIT.replace("[Service]\n", "[Service]\nUser=daemon\nRestart=on-failure\n");
    unit.host.write("/etc/systemd/system/sglang-lab.service", &other);
    unit.host.sh("chmod 777 /srv/lab; chmod 644 /srv/lab/lab.deployment; chmod 666 /srv/lab/lab.boots; chmod 755 /srv/lab/serve.sh");
    unit.host.start();
    let unit = Unit { owners: unit.hashes(), ..unit };
    let (status, off) = unit.toggle("off");
    assert_eq!((status, unit.indexer().as_str()), (0, "absent"), "{off:#}");
    assert_eq!(unit.run(&["restore", "--yes", "lab"]).0, 0);
    unit.is_original();
    unit.host.sh("rm -f /srv/lab/lab.boots");
}

#[test]
fn a_script_that_the_host_put_back_by_itself_goes_on() {
    let Some(unit) = Unit::up() else { return not_run() };
    unit.host
        .sh("systemctl stop sglang-lab; cd /srv/lab; setsid nohup bash /srv/lab/serve.sh >serve.log 2>&1 </dev/null &");
    let case = CASE.replace(
        "{ systemd = \"sglang-lab.service\" }",
        "{ script = \"/srv/lab/serve.sh\", log = \"/srv/lab/serve.log\" }",
    );
    fs_err::write(&unit.case, case).unwrap();
    let serves = "for i in $(seq 100); do grep -q ':75A5 .* 0A ' /proc/net/tcp && exit 0; sleep 0.1; done; exit 1";
    unit.host.sh(serves);
    let indexer = "tr '\\0' '\\n' </proc/$(pgrep -nf 'served-model-name [p]atchbench-lab')/environ | grep ^SGLANG_SM120_TRITON_INDEXER= || echo absent";
    let mut tries = 0;
    let (status, off) = loop {
        let end = unit.toggle("off");
        tries += 1;
        if end.0 == 0 || tries == 3 {
            break end;
        }
    };
    assert_eq!((status, unit.host.sh(indexer).trim()), (0, "absent"), "{off:#}");
    unit.host.sh("cd /root/.local/state/patchbench/overrides/leases/*; echo 1 >until; \
         for i in $(seq 300); do [ -e restored ] && break; sleep 0.1; done; grep -q '^0 ' restored && [ ! -e until ]");
    unit.host.sh(serves);
    unit.host.sh("sleep 2");
    unit.host.sh(serves);
    assert_eq!(unit.host.sh(indexer).trim(), "SGLANG_SM120_TRITON_INDEXER=1");
    // What stands on the host is found without a case, and putting back what is back changes nothing.
    let (status, held) = unit.host.patchbench(&["restore", "pbhost", "--plan"]);
    assert_eq!((status, held["leases"].as_array().map(Vec::len)), (0, Some(1)), "{held:#}");
    let (status, back) = unit.host.patchbench(&["restore", "pbhost", "--yes", "pbhost"]);
    assert_eq!(status, 0, "{back:#}");
    assert_eq!(unit.host.patchbench(&["restore", "pbhost", "--plan"]).1["leases"], serde_json::json!([]));
    unit.host.sh("pkill -f 'served-model-name [p]atchbench-lab'; rm -rf /root/.local/state/patchbench");
    unit.host.start();
}

#[test]
fn what_a_unit_does_not_allow_is_one_sentence_and_changes_nothing() {
    let Some(unit) = Unit::up() else { return not_run() };
    let refused = |part: &str| {
        let (status, end) = unit.toggle("off");
        let message = end["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(status != 0 && message.contains(part), "{part}: {end:#}");
        assert!(end["error"]["hint"].is_string(), "{end:#}");
        assert_eq!(unit.hashes(), unit.owners);
    };
    // A start limit that two more starts would reach.
    let limited = UNIT.replace("StartLimitIntervalSec=0", "StartLimitIntervalSec=600\nStartLimitBurst=3");
    unit.host.write(
        "/etc/systemd/system/sglang-lab.service",
        &limited.replace("[Service]\n", "[Service]\nRestart=on-failure\n"),
    );
    unit.host.start();
    let (status, end) = unit.toggle("off");
    let message = end["error"]["message"].as_str().unwrap_or_default();
    assert!(status != 0 && message.contains("start limit"), "{end:#}");
    unit.host.write(
        "/etc/systemd/system/sglang-lab.service",
        &UNIT.replace("[Service]\n", "[Service]\nRestart=on-failure\n"),
    );
    unit.host.sh("systemctl reset-failed sglang-lab; systemctl daemon-reload");
    unit.is_original();
    // Masked.
    let (file, aside) = ("/etc/systemd/system/sglang-lab.service", "/root/sglang-lab.service");
    unit.host.sh(&format!("mv {file} {aside}; ln -s /dev/null {file}; systemctl daemon-reload"));
    let (status, end) = unit.toggle("off");
    unit.host.sh(&format!("mv {aside} {file}; systemctl daemon-reload"));
    assert!(status != 0 && end["error"]["message"].as_str().is_some_and(|m| m.contains("masked")), "{end:#}");
    unit.is_original();
    // Somebody's edit waits for a reload.
    unit.host.sh("sleep 1.1; touch /etc/systemd/system/sglang-lab.service");
    refused("changed and not loaded");
    unit.host.sh("systemctl daemon-reload");
    // The disk of our folder is full: what was begun is taken back.
    unit.host.sh(
        "rm -rf /run/patchbench; mkdir /run/patchbench; mount -t tmpfs -o size=4k,nr_inodes=4 none /run/patchbench",
    );
    let (status, end) = unit.toggle("off");
    unit.host.sh("umount /run/patchbench");
    let message = end["error"]["message"].as_str().unwrap_or_default();
    assert!(status != 0 && (message.contains("No space left") || message.contains("no result")), "{end:#}");
    unit.is_original();
    // A stale process has the port.
    unit.host.sh("systemctl stop sglang-lab");
    unit.host.sh("setsid /srv/lab/patchbench lab serve --deployment /srv/lab/lab.deployment --checkpoint /srv/lab/model --port 30117 --host 127.0.0.1 --served-model-name stale >/dev/null 2>&1 </dev/null & for i in $(seq 50); do grep -q ':75A5 .* 0A ' /proc/net/tcp && exit 0; sleep 0.1; done; exit 1");
    refused("which does not belong to");
    unit.host.sh("pkill -f 'served-model-name [s]tale'; sleep 0.5");
    // No rights.
    fs_err::write(&unit.case, CASE.replace("url =", "become = \"nobody-here -n\"\nurl =")).unwrap();
    assert_eq!(unit.run(&["elevate", "lab", "--for", "60"]).0, 0);
    refused("nobody-here");
    unit.host.start();
    assert_eq!(WRAPPER.lines().next(), Some("#!/bin/bash"));
}
