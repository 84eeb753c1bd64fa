//! Hosts over a real sshd: the truth of a server from afar, and every way in which a link can fail.

mod checkpoint;
mod imports;
mod reports;
mod served;
mod source;
mod sshd;
mod titles;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{end_all_in, program};
use patchbench::engine::live::LinkState;
use patchbench::lab::install;
use patchbench::lab::scenario::named;
use patchbench::remote::host::{self, Host, HostError, Hosts, Limits, Place, Settings, reach};
use patchbench::remote::probe::{self, Ask, types::PortOwners};
use serde_json::Value;
use sshd::{Sshd, missing};
use tokio_util::sync::CancellationToken;

/// Says that a test cannot run here; `None` where it can.
fn skipped(name: &str) -> Option<()> {
    let tool = missing()?;
    println!("SKIP {name}: `{tool}` is not there");
    Some(())
}

/// A command of the real program with folders of its own, and the ssh config of a test.
fn patchbench(root: &Path, sshd: Option<&Sshd>, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("PATCHBENCH_SESSIONS", root.join("sessions"));
    command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
    command.env("XDG_CACHE_HOME", root.join("cache"));
    if let Some(sshd) = sshd {
        command.env("PATCHBENCH_SSH_CONFIG", sshd.client_config());
    }
    command.stdin(Stdio::null());
    command
}

/// Its status and its one object.
fn json(root: &Path, sshd: Option<&Sshd>, args: &[&str]) -> (i32, Value) {
    let output = patchbench(root, sshd, args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), value)
}

/// A copy of a case whose target is on another host.
fn case_on(case: &Path, host: &str, become_with: &str) -> PathBuf {
    let text = fs_err::read_to_string(case).unwrap();
    assert!(text.contains("host = \"local\""), "{text}");
    let other = case.with_file_name(format!("case-{host}-{}.toml", become_with.len()));
    let prefix = if become_with.is_empty() { String::new() } else { format!("\nbecome = '''{become_with}'''") };
    fs_err::write(&other, text.replace("host = \"local\"", &format!("host = \"{host}\"{prefix}"))).unwrap();
    other
}

fn remark<'v>(value: &'v Value, code: &str) -> &'v Value {
    let all = value["diagnostics"].as_array().unwrap();
    all.iter().find(|d| d["code"] == code).unwrap_or_else(|| panic!("no remark `{code}`: {value}"))
}

/// A lab with a running server, which is stopped when the test is over.
struct Lab {
    root: tempfile::TempDir,
    case: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        end_all_in(self.root.path());
    }
}

impl Lab {
    fn running() -> Self {
        Self::running_with("")
    }

    /// With more flags on the server's own command line.
    fn running_with(flags: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let made = install(&root.path().join("lab"), &named("incident").unwrap(), 1, port, &program()).unwrap();
        let script = fs_err::read_to_string(&made.script).unwrap();
        let flag = "--enable-cache-report";
        assert!(script.contains(flag), "{script}");
        fs_err::write(&made.script, script.replace(flag, &format!("{flag} {flags}"))).unwrap();
        let lab = Self { case: made.case, root };
        let (status, started) = json(lab.root.path(), None, &["restart", lab.case.to_str().unwrap(), "lab", "--yes"]);
        assert_eq!(status, 0, "{started}");
        lab
    }

    fn truth(&self, sshd: Option<&Sshd>, case: &Path) -> (i32, Value) {
        json(self.root.path(), sshd, &["truth", case.to_str().unwrap()])
    }
}

#[test]
fn the_truth_over_ssh_is_the_local_truth_in_one_round_trip() {
    if skipped("ssh").is_some() {
        return;
    }
    let (lab, sshd) = (Lab::running(), Sshd::start(""));
    let (_, near) = lab.truth(None, &lab.case);
    assert_eq!(near["targets"][0]["status"], "ready", "{near}");
    for host in ["lab", "behind"] {
        let before = sshd.commands();
        let (_, far) = lab.truth(Some(&sshd), &case_on(&lab.case, host, ""));
        assert_eq!(sshd.commands() - before, 1, "{}", sshd.log());
        assert_eq!(far["targets"][0]["status"], "ready", "{far}");
        assert_eq!(far["targets"][0]["pid"], near["targets"][0]["pid"]);
        assert_eq!(far["targets"][0]["processes"], near["targets"][0]["processes"]);
        let (rows, same) = (far["rows"].as_array().unwrap(), near["rows"].as_array().unwrap());
        assert!(rows.len() > 10);
        for (row, same) in rows.iter().zip(same) {
            assert_eq!(row, same);
        }
        assert_eq!(rows.len(), same.len());
    }
}

#[test]
fn a_lab_server_that_was_asked_for_more_than_its_cache_holds_is_one_row() {
    if skipped("ssh").is_some() {
        return;
    }
    let (lab, sshd) = (Lab::running_with("--max-total-tokens 1024 --max-running-requests 32"), Sshd::start(""));
    let (status, truth) = lab.truth(Some(&sshd), &case_on(&lab.case, "lab", ""));
    let rows = truth["rows"].as_array().unwrap();
    let differ: Vec<&Value> = rows.iter().filter(|r| r["status"] == "differs").collect();
    let [row] = differ[..] else { panic!("{} rows differ: {differ:#?}", differ.len()) };
    assert_eq!((status, row["name"].as_str()), (1, Some("--max-running-requests")));
    assert_eq!((row["effective"]["value"].as_str(), row["observed"]["value"].as_str()), (Some("32"), Some("16")));
    // The lab is no Python, so that no file is claimed to be imported.
    let said = remark(&truth, "imports-not-applicable")["message"].as_str().unwrap();
    assert!(said.contains("is no Python"), "{said}");
    assert!(rows.iter().all(|r| r["component"] != "imports"));
    let note = "started with `32`, the server says `16`";
    assert_eq!(row["note"], note, "{row:#}");
    assert!(row["observed"]["source"].as_str().unwrap().ends_with("/server_info"), "{row:#}");
}

#[test]
fn a_host_that_cannot_be_reached_is_one_sentence_with_a_hint() {
    if skipped("ssh").is_some() {
        return;
    }
    let sshd = Sshd::start("");
    let root = tempfile::tempdir().unwrap();
    let made = install(&root.path().join("lab"), &named("clean").unwrap(), 1, 9, &program()).unwrap();
    for (host, message, hint) in [
        ("wrong-key", "accepts none of our keys", "ssh-add"),
        ("changed", "is not the one that is known", "ssh-keygen -R"),
        ("unknown", "is not known", "compare the fingerprint"),
        ("closed", "cannot be reached: connect to host 127.0.0.1 port", "ssh closed true"),
        ("-oProxyCommand=touch x", "is no name of a host", "a name that `ssh` knows"),
    ] {
        let case = case_on(&made.case, host, "");
        let (status, truth) = json(root.path(), Some(&sshd), &["truth", case.to_str().unwrap()]);
        assert_eq!((status, truth["targets"][0]["status"].as_str()), (3, Some("unknown")), "{truth}");
        let said = remark(&truth, "host-unread");
        assert!(said["message"].as_str().unwrap().contains(message), "{said}");
        assert!(said["hint"].as_str().unwrap().contains(hint), "{said}");
        for row in truth["rows"].as_array().unwrap() {
            assert!(row["effective"].is_null() && row["observed"].is_null(), "{row}");
        }
    }
}

#[test]
fn what_another_user_may_not_see_is_unknown() {
    if skipped("ssh").is_some() {
        return;
    }
    if !rustix::process::getuid().is_root() {
        println!("SKIP ssh_nobody: only root can become another user");
        return;
    }
    let (lab, sshd) = (Lab::running(), Sshd::start(""));
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs_err::set_permissions(lab.case.parent().unwrap(), closed).unwrap();
    let (_, truth) =
        lab.truth(Some(&sshd), &case_on(&lab.case, "lab", "setpriv --reuid=65534 --regid=65534 --clear-groups"));
    let said = remark(&truth, "port-owner");
    assert!(said["message"].as_str().unwrap().contains("cannot tell who owns port"), "{said}");
    assert!(said["hint"].as_str().unwrap().contains("become"), "{said}");
    let script = remark(&truth, "script-unread");
    assert!(script["message"].as_str().unwrap().contains("cannot be read"), "{script}");
    assert_eq!(truth["targets"][0]["pid"], Value::Null);
    for row in truth["rows"].as_array().unwrap() {
        assert!(row["effective"].is_null(), "nothing is claimed of a process that was not read: {row}");
    }
}

#[test]
fn a_login_shell_that_talks_does_no_harm() {
    if skipped("ssh").is_some() {
        return;
    }
    let sshd = Sshd::start(
        "ForceCommand echo 'Welcome to section x 5 text whole'; echo oops >&2; sh -c \"$SSH_ORIGINAL_COMMAND\"",
    );
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let found = block_on(async {
        let place = Place { host: Host::Ssh("lab".into()), become_with: Vec::new() };
        let question = Ask { ports: vec![port], files: vec!["/nowhere/a b's".into()], ..Ask::default() };
        probe::ask(&hosts(&sshd), &place, &question, &CancellationToken::new()).await.unwrap()
    });
    assert_eq!(found.ports[&port], PortOwners::Processes(vec![std::process::id()]));
    assert!(found.whole && found.diagnostics.iter().any(|d| d.code == "probe-noise"), "{:?}", found.diagnostics);
    assert_eq!((found.round_trips, sshd.commands()), (1, 1));
}

#[test]
fn a_link_that_breaks_in_the_middle_is_said_and_made_anew() {
    if skipped("ssh").is_some() {
        return;
    }
    let sshd = Sshd::start("");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    block_on(async {
        let (hosts, cancel) = (hosts(&sshd), CancellationToken::new());
        let place = |words: &[&str]| Place {
            host: Host::Ssh("lab".into()),
            become_with: words.iter().map(|w| (*w).to_owned()).collect(),
        };
        let question = Ask { ports: vec![port], ..Ask::default() };
        let mut target = crate::common::case(&[]).targets.remove(0);
        (target.host, target.url) = ("lab".into(), format!("http://127.0.0.1:{port}/v1"));
        let near = reach(&hosts, &target).await.unwrap();
        assert!(near.url.ends_with("/v1") && near.url != target.url);
        let mut states = hosts.states();
        assert!(matches!(states.borrow_and_update()["lab"], LinkState::Up { .. }));

        let slow = place(&["sh", "-c", "sleep 60; exec \"$@\"", "sh"]);
        let asked = probe::ask(&hosts, &slow, &question, &cancel);
        let before = sshd.commands();
        let cut = async {
            while sshd.commands() == before {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            sshd.cut();
        };
        let (broken, ()) = tokio::join!(asked, cut);
        let lost = HostError::LinkLost { host: "lab".into() };
        assert_eq!(broken.unwrap_err(), lost.failure());
        let again = states.wait_for(|s| matches!(s["lab"], LinkState::Reconnecting { .. })).await.unwrap().clone();
        assert!(matches!(again["lab"], LinkState::Reconnecting { attempt: 1, .. }), "{again:?}");
        let up = tokio::time::timeout(
            Duration::from_secs(30),
            states.wait_for(|s| matches!(s["lab"], LinkState::Up { .. })),
        );
        up.await.expect("the link is made anew by itself").unwrap();

        let found = probe::ask(&hosts, &place(&[]), &question, &cancel).await.unwrap();
        assert_eq!(found.ports[&port], PortOwners::Processes(vec![std::process::id()]));
        assert_eq!(reach(&hosts, &target).await.unwrap().url, near.url, "the forwarded port stays");
        let here: u16 = near.url.rsplit_once(':').unwrap().1.trim_end_matches("/v1").parse().unwrap();
        let _through = tokio::net::TcpStream::connect(("127.0.0.1", here)).await.unwrap();
        let (_came, _) = tokio::task::spawn_blocking(move || server.accept()).await.unwrap().unwrap();

        let connections = sshd.log().matches("Accepted publickey").count();
        let plain = place(&[]);
        let both = tokio::join!(
            probe::ask(&hosts, &plain, &question, &cancel),
            probe::ask(&hosts, &plain, &question, &cancel)
        );
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(sshd.log().matches("Accepted publickey").count(), connections, "one connection is shared");
    });
}

#[test]
fn a_link_that_dies_while_idle_is_seen_by_the_check() {
    if skipped("ssh").is_some() {
        return;
    }
    let sshd = Sshd::start("");
    block_on(async {
        let (hosts, cancel) = (hosts(&sshd), CancellationToken::new());
        let place = Place { host: Host::Ssh("lab".into()), become_with: Vec::new() };
        probe::ask(&hosts, &place, &Ask::default(), &cancel).await.unwrap();
        let limits = Limits { time: Duration::from_millis(300), bytes: 1000 };
        let slow = host::run(&hosts, &place, "sleep 60", &[], &limits, &cancel).await;
        assert!(matches!(slow, Err(HostError::Timeout { .. })), "a slow script is no broken link: {slow:?}");
        let killed =
            host::run(&hosts, &place, "kill -9 $$", &[], &Limits { time: Duration::from_secs(30), ..limits }, &cancel)
                .await;
        assert_eq!(killed.unwrap().status, None, "a killed script is no broken link");
        hosts.check().await;
        assert!(matches!(hosts.states().borrow()["lab"], LinkState::Up { .. }));
        sshd.cut();
        let mut states = hosts.states();
        while matches!(states.borrow_and_update()["lab"], LinkState::Up { .. }) {
            hosts.check().await;
        }
        // A question does not wait for the next attempt.
        probe::ask(&hosts, &place, &Ask::default(), &cancel).await.unwrap();
        assert!(matches!(states.borrow_and_update()["lab"], LinkState::Up { .. }));
    });
}

fn hosts(sshd: &Sshd) -> Hosts {
    Hosts::new(Settings { config: Some(sshd.client_config()), connect: Duration::from_secs(15) })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}
