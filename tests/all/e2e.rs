//! The real binary on a real lab: read, ask, toggle with proof, and a kill in the middle of a change.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{kill_in, program};
use patchbench::lab::install;
use patchbench::lab::scenario::named;
use patchbench::session::store;
use serde_json::Value;

/// A lab in a folder of its own; its server is stopped when the test is over.
struct Lab {
    root: tempfile::TempDir,
    case: PathBuf,
    script: PathBuf,
    port: u16,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for pid in self.servers() {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

impl Lab {
    fn new(scenario: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let made = install(&root.path().join("lab"), &named(scenario).unwrap(), 1, port, &program()).unwrap();
        Self { case: made.case, script: made.script, port, root }
    }

    /// Lets every start take at least this long, so that there is a middle to be killed in.
    fn load_for(&self, seconds: f64) {
        let text = fs_err::read_to_string(&self.script).unwrap();
        let port = format!("--port {}", self.port);
        assert!(text.contains(&port), "{text}");
        fs_err::write(&self.script, text.replace(&port, &format!("{port} --load-seconds {seconds}"))).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        let root = self.root.path();
        command.args(args).env("PATCHBENCH_SESSIONS", root.join("sessions"));
        command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command with `--json`; returns its status and its one object.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).arg("--json").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text.lines().count(), 1, "one object: {text}\n{error}");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{error}"));
        let status = output.status.code().unwrap();
        assert_eq!(value["exit"], status, "{value}");
        self.check_schema(&value);
        (status, value)
    }

    fn check_schema(&self, value: &Value) {
        let name = value["schema"].as_str().unwrap().strip_prefix("patchbench.").unwrap();
        let name = name.strip_suffix("/1").unwrap();
        let schema = self.command(&["schema", name]).output().unwrap();
        let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
        if let Err(error) = jsonschema::validate(&schema, value) {
            panic!("`{name}`: {error} at {}", error.instance_path);
        }
    }

    fn case(&self) -> &str {
        self.case.to_str().unwrap()
    }

    /// Processes that run our lab's server.
    fn servers(&self) -> Vec<i32> {
        let here = self.root.path().join("lab").join("lab.deployment");
        let here = here.to_str().unwrap().as_bytes().to_vec();
        let entries = fs_err::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                let line = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|b| *b == 0).any(|word| word == here)
            })
            .collect()
    }

    /// Whether the one running server has the indexer's variable.
    fn indexer_is_on(&self) -> bool {
        let [pid] = self.servers()[..] else { panic!("not one server: {:?}", self.servers()) };
        let environ = fs_err::read(format!("/proc/{pid}/environ")).unwrap();
        environ.split(|b| *b == 0).any(|pair| pair == b"SGLANG_SM120_TRITON_INDEXER=1")
    }

    /// Kills a command in a step; returns the journal of its session, and what it held when the command was dead.
    fn kill_in(&self, args: &[&str], step: &str) -> (PathBuf, Vec<u8>) {
        let session = kill_in(self.command(args), &self.root.path().join("sessions"), step);
        let journal = store::journal_path(&session);
        let bytes = fs_err::read(&journal).unwrap();
        (journal, bytes)
    }
}

#[test]
fn a_toggle_is_shown_then_proven_and_the_script_stays_as_it_was() {
    let lab = Lab::new("incident");
    let script = fs_err::read(&lab.script).unwrap();

    let (status, plan) = lab.json(&["restart", lab.case(), "lab", "--plan"]);
    assert_eq!((status, plan["outcomes"][0].as_str()), (0, Some("discarded")), "{plan}");
    assert_eq!(lab.servers(), [0; 0], "a plan runs nothing");

    let (status, refused) = lab.json(&["restart", lab.case(), "lab"]);
    assert_eq!((status, refused["error"]["code"].as_str()), (2, Some("refused")), "{refused}");

    let (status, start) = lab.json(&["restart", lab.case(), "lab", "--yes"]);
    assert_eq!((status, start["outcomes"][0].as_str()), (0, Some("completed")), "{start}");
    assert!(lab.indexer_is_on());

    let (_, truth) = lab.json(&["truth", lab.case()]);
    let row = truth["rows"].as_array().unwrap().iter().find(|r| r["name"] == "SGLANG_SM120_TRITON_INDEXER").unwrap();
    assert_eq!(
        (row["declared"]["value"].as_str(), row["effective"]["value"].as_str()),
        (Some("1"), Some("1")),
        "{row}"
    );

    let (status, toggled) = lab.json(&["toggle", lab.case(), "triton-indexer", "off", "--yes"]);
    assert_eq!((status, toggled["outcomes"][0].as_str()), (0, Some("completed")), "{toggled}");
    assert!(!lab.indexer_is_on());
    let proof = toggled["proofs"].as_array().unwrap().last().unwrap();
    assert_eq!(proof["levels"]["triton-indexer"], "off", "{proof}");
    for about in ["pid", "port", "ready", "token"] {
        let seen = proof["evidence"].as_array().unwrap().iter().any(|e| e["about"].as_str().unwrap().contains(about));
        assert!(seen, "no evidence of `{about}`: {proof}");
    }
    assert_eq!(fs_err::read(&lab.script).unwrap(), script);

    let (status, recall) = lab.json(&["recall", lab.case()]);
    assert_eq!(status, 0, "with the indexer off the model remembers: {}", recall["symptom"]);
    let session = recall["session"].as_str().unwrap();
    let (_, shown) = lab.json(&["session", "show", session]);
    let [window] = &shown["windows"].as_array().unwrap()[..] else { panic!("not one batch: {}", shown["windows"]) };
    assert_eq!((window["target"].as_str(), window["unread"].as_str()), (Some("lab"), None), "{window}");
    assert!(window["readings"].as_u64().unwrap() > 1, "{window}");
    assert!(window["values"]["kv_usage"]["max"].as_f64().unwrap() > 0.0, "{window}");
    assert_eq!(window["values"]["cache_hit_rate"]["max"], 0.0, "a cold batch takes nothing from the cache: {window}");
    let (status, verified) = lab.json(&["session", "verify", session]);
    assert_eq!((status, verified["problems"].as_array().unwrap().len()), (0, 0), "{verified}");
}

#[test]
fn a_restart_killed_while_the_server_loads_is_finished_at_resume() {
    let lab = Lab::new("incident");
    lab.load_for(3.0);
    let (journal, bytes) = lab.kill_in(&["restart", lab.case(), "lab", "--yes"], "prove");
    let session = journal.parent().unwrap().to_str().unwrap();

    let (status, named) = lab.json(&["session", "resume", session]);
    assert_eq!(status, 1, "{named}");
    assert_eq!(named["half_done"][0]["now"], "interrupted");

    let (status, done) = lab.json(&["session", "resume", session, "--finish"]);
    assert_eq!((status, done["half_done"][0]["now"].as_str()), (0, Some("completed")), "{done}");
    assert!(lab.indexer_is_on());
    assert!(fs_err::read(&journal).unwrap().starts_with(&bytes), "what was acknowledged is still there");
    assert_eq!(lab.json(&["session", "verify", session]).0, 0);
}

#[test]
fn a_toggle_killed_in_the_middle_is_taken_back_at_resume() {
    let lab = Lab::new("incident");
    assert_eq!(lab.json(&["restart", lab.case(), "lab", "--yes"]).0, 0);
    assert!(lab.indexer_is_on());
    lab.load_for(2.0);
    let (journal, bytes) = lab.kill_in(&["toggle", lab.case(), "triton-indexer", "off", "--yes"], "prove");
    let session = journal.parent().unwrap().to_str().unwrap();

    let (status, undone) = lab.json(&["session", "resume", session, "--undo"]);
    assert_eq!((status, undone["half_done"][0]["now"].as_str()), (0, Some("undone")), "{undone}");
    assert!(lab.indexer_is_on(), "the level that ran before runs again");
    assert!(fs_err::read(&journal).unwrap().starts_with(&bytes), "what was acknowledged is still there");
    assert_eq!(lab.json(&["session", "verify", session]).0, 0);
}

#[test]
fn a_world_that_cannot_be_used_is_one_sentence_with_a_status() {
    let lab = Lab::new("clean");
    let case = fs_err::read_to_string(&lab.case).unwrap();

    let (status, error) = lab.json(&["recall", lab.case()]);
    assert_eq!(status, 3, "no server runs: {error}");
    assert!(error["error"]["hint"].is_string(), "{error}");

    let taken = std::net::TcpListener::bind(("127.0.0.1", lab.port)).unwrap();
    let (status, error) = lab.json(&["restart", lab.case(), "lab", "--yes"]);
    assert_eq!(status, 3, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains(&std::process::id().to_string()), "{error}");
    drop(taken);

    let broken = lab.root.path().join("broken.toml");
    fs_err::write(&broken, case.replace("[[patch]]", "[[hatch]]")).unwrap();
    let (status, error) = lab.json(&["truth", broken.to_str().unwrap()]);
    assert_eq!((status, error["error"]["code"].as_str()), (2, Some("case")), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("hatch"), "{error}");

    fs_err::remove_file(&lab.script).unwrap();
    let (status, error) = lab.json(&["restart", lab.case(), "lab", "--yes"]);
    assert_eq!(status, 3, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("does not exist"), "{error}");

    let (status, error) = lab.json(&["micro", "mhc-mix", "--checkpoint", "/nowhere"]);
    assert_eq!(status, 3, "{error}");
    let (status, error) = lab.json(&["demo", "--headless", "--scenario", "nobody"]);
    assert_eq!(status, 2, "{error}");
}
