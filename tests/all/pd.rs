//! Prefill, decode and router as real processes: one side toggled, trials through the router, a fault of the hand-over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use patchbench::case::{Case, read_file};
use patchbench::engine::state::State;
use patchbench::lab::install;
use patchbench::lab::scenario::{Scenario, Shape, named};
use patchbench::recall::trial::Trial;
use patchbench::session::format::{ChainHash, decode};
use patchbench::session::replay::replay;
use patchbench::session::store;
use serde_json::Value;

use crate::common::program;

/// A divided lab in a folder of its own; its servers are stopped when the test is over.
struct Lab {
    root: tempfile::TempDir,
    case: PathBuf,
    monolithic: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let ports: Vec<String> = [&self.case, &self.monolithic]
            .into_iter()
            .flat_map(|path| targets(path).targets)
            .filter_map(|t| t.port())
            .map(|p| p.to_string())
            .collect();
        for pid in fs_err::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()) {
            let line = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
            let ours = words.windows(2).any(|w| w[0] == "--port" && ports.iter().any(|p| *p == w[1]));
            if ours && words.iter().any(|w| w == "lab") {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn targets(path: &Path) -> Case {
    read_file(path).0.unwrap()
}

impl Lab {
    fn new(scenario: &Scenario) -> Self {
        let root = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let made = install(&root.path().join("lab"), scenario, 1, port, &program()).unwrap();
        Self { case: made.case, monolithic: made.monolithic.unwrap(), root }
    }

    /// Runs a command with `--json`; returns its status and its one object.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let root = self.root.path();
        let mut command = Command::new(program());
        command.args(args).arg("--json").env("PATCHBENCH_SESSIONS", root.join("sessions"));
        command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let value: Value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{args:?}: {e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), value)
    }

    fn change(&self, args: &[&str]) -> Value {
        let (status, done) = self.json(&[args, &["--yes"]].concat());
        assert_eq!((status, done["outcomes"][0].as_str()), (0, Some("completed")), "{args:?}: {done}");
        done["proofs"].as_array().unwrap().last().unwrap().clone()
    }

    /// Starts all three, each with proof.
    fn start(&self) {
        for target in ["prefill", "decode", "router"] {
            let proof = self.change(&["restart", self.case(), target]);
            assert!(proof["evidence"].as_array().unwrap().iter().any(is_first_token), "{proof}");
        }
    }

    fn case(&self) -> &str {
        self.case.to_str().unwrap()
    }
}

fn is_first_token(evidence: &Value) -> bool {
    evidence["about"] == "first-token" && !evidence["seen"].as_str().unwrap_or_default().is_empty()
}

/// Share of trials that failed, of those that count.
fn rate(recall: &Value) -> f64 {
    recall["symptom"]["rate"].as_f64().unwrap()
}

/// The targets of the boots that every trial of a session met; the same for all trials.
fn met(recall: &Value) -> Vec<String> {
    let session = Path::new(recall["session"].as_str().unwrap());
    let journal = fs_err::read(store::journal_path(session)).unwrap();
    let events = decode(&journal, 0, ChainHash::start()).unwrap().events;
    let state = replay(State::default(), &events);
    let of =
        |trial: &Trial| -> Vec<String> { trial.boots.iter().map(|b| state.boots[b].proof.target.clone()).collect() };
    let all: BTreeSet<_> = state.trials.iter().map(|entry| of(&entry.trial)).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

#[test]
fn one_side_is_toggled_trials_record_every_boot_they_met_and_the_fault_is_seen_in_the_pair_only() {
    let lab = Lab::new(&named("pd-state").unwrap());
    lab.start();
    let proof = lab.change(&["toggle", lab.case(), "triton-indexer@decode", "off"]);
    assert_eq!((proof["target"].as_str(), proof["levels"]["triton-indexer"].as_str()), (Some("decode"), Some("off")));

    let (_, truth) = lab.json(&["truth", lab.case()]);
    let statuses: Vec<_> = truth["targets"].as_array().unwrap().iter().map(|t| t["status"].as_str()).collect();
    assert_eq!(statuses, [Some("ready"); 3], "{}", truth["diagnostics"]);
    for target in ["prefill", "decode"] {
        let mode = |r: &&Value| r["target"] == target && r["name"] == "--disaggregation-mode";
        let row = truth["rows"].as_array().unwrap().iter().find(mode).unwrap();
        let said = ["declared", "effective", "observed"].map(|layer| row[layer]["value"].as_str());
        assert_eq!(said, [Some(target); 3], "{row}");
    }

    let (status, divided) = lab.json(&["recall", lab.case()]);
    assert_eq!((status, rate(&divided) > 0.8), (1, true), "{}", divided["symptom"]);
    assert_eq!(met(&divided), ["router", "prefill", "decode"]);
    let arm = &divided["trials"][0]["arm"];
    assert_eq!((&arm["triton-indexer@prefill"], &arm["triton-indexer@decode"]), (&"on".into(), &"off".into()));

    let monolithic = lab.monolithic.to_str().unwrap();
    lab.change(&["restart", monolithic, "lab"]);
    let (status, alone) = lab.json(&["recall", monolithic]);
    assert_eq!((status, rate(&alone) < 0.1), (0, true), "the same checkpoint in one process: {}", alone["symptom"]);
    assert_eq!(met(&alone), ["lab"]);
}

#[test]
fn a_healthy_pair_remembers_as_one_server_does() {
    let lab = Lab::new(&Scenario { shape: Shape::Disaggregated, ..named("clean").unwrap() });
    lab.start();
    let (status, divided) = lab.json(&["recall", lab.case()]);
    assert_eq!((status, rate(&divided)), (0, 0.0), "{}", divided["symptom"]);
    let monolithic = lab.monolithic.to_str().unwrap();
    lab.change(&["restart", monolithic, "lab"]);
    let (_, alone) = lab.json(&["recall", monolithic]);
    let answers = |recall: &Value| -> Vec<Value> {
        recall["trials"].as_array().unwrap().iter().map(|t| t["got"].clone()).collect()
    };
    assert_eq!(answers(&divided), answers(&alone));
    let counted = |recall: &Value| recall["symptom"]["trials"].as_u64().unwrap() as usize;
    assert_eq!(counted(&divided), answers(&divided).len(), "no trial is void");
}
