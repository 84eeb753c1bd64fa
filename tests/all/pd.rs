//! Prefill, decode and router as real processes: one side toggled, trials through the router, a fault of the hand-over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use patchbench::case::{Case, read_file};
use patchbench::engine::state::State;
use patchbench::lab::install;
use patchbench::lab::scenario::{Scenario, Shape, named};
use patchbench::recall::trial::Trial;
use patchbench::session::format::{ChainHash, decode};
use patchbench::session::replay::replay;
use patchbench::session::store;
use serde_json::Value;

use crate::common::{kill_in, program};

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

    fn healthy() -> Self {
        Self::new(&Scenario { shape: Shape::Disaggregated, ..named("clean").unwrap() })
    }

    fn command(&self, args: &[&str]) -> Command {
        let root = self.root.path();
        let mut command = Command::new(program());
        command.args(args).arg("--json").env("PATCHBENCH_SESSIONS", root.join("sessions"));
        command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command with `--json`; returns its status and its one object.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).output().unwrap();
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
            let evidence = proof["evidence"].as_array().unwrap();
            assert!(evidence.iter().any(is_first_token), "{proof}");
            // A router is ready by its own word; it writes its line before it can serve.
            let word = evidence.iter().find(|e| e["about"] == "readiness");
            assert_eq!(word.is_some(), target == "router", "{proof}");
            assert!(word.is_none_or(|e| e["seen"] == "ready, 2 of 2 workers live"), "{proof}");
        }
    }

    fn case(&self) -> &str {
        self.case.to_str().unwrap()
    }

    fn port(&self, target: &str) -> u16 {
        targets(&self.case).target(target).unwrap().port().unwrap()
    }

    /// Lets every start of a target take at least this long.
    fn load_for(&self, target: &str, seconds: f64) {
        let script = self.case.with_file_name(format!("serve_{target}.sh"));
        let (text, port) = (fs_err::read_to_string(&script).unwrap(), format!("--port {}", self.port(target)));
        fs_err::write(&script, text.replace(&port, &format!("{port} --load-seconds {seconds}"))).unwrap();
    }

    /// Whether the router lists the decode server and sees it live; `None` where it does not list it.
    fn routed(&self) -> Option<bool> {
        let list: Value = serde_json::from_str(&get(self.port("router"), "/workers").1).unwrap();
        let worker = list["workers"].as_array().unwrap().iter().find(|w| w["worker_type"] == "decode")?;
        worker["is_healthy"].as_bool()
    }

    /// Sends a long request through the router, and returns once the decode server works at it.
    fn long_request(&self, tokens: u32) -> std::thread::JoinHandle<(u16, String)> {
        let (router, decode) = (self.port("router"), self.port("decode"));
        let body = format!(
            "{{\"text\":\"Hello\",\"sampling_params\":{{\"max_new_tokens\":{tokens},\"temperature\":0,\"ignore_eos\":true}}}}"
        );
        let asked = std::thread::spawn(move || http(router, "POST", "/generate", &body));
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let load: Value = serde_json::from_str(&get(decode, "/v1/loads").1).unwrap();
            if load["loads"][0]["num_running_reqs"] == 1 {
                return asked;
            }
            assert!(Instant::now() < until && !asked.is_finished(), "the request never ran: {load}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts a command and kills it once its journal says that this step has begun; returns its session.
    fn kill_in(&self, args: &[&str], step: &str) -> PathBuf {
        kill_in(self.command(args), &self.root.path().join("sessions"), step)
    }
}

/// A variable of a process; `None` is not set.
fn variable(pid: u64, name: &str) -> Option<String> {
    let block = fs_err::read(format!("/proc/{pid}/environ")).unwrap();
    let mut pairs = block.split(|b| *b == 0).map(String::from_utf8_lossy);
    pairs.find_map(|p| Some(p.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

/// Status and body of an answer.
fn http(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut text = String::new();
    // A server that is killed cuts its answers off.
    let _ = stream.read_to_string(&mut text);
    let status = text.split_whitespace().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn get(port: u16, path: &str) -> (u16, String) {
    http(port, "GET", path, "")
}

/// What a change saw about one thing.
fn seen<'v>(report: &'v Value, about: &str) -> Vec<&'v str> {
    let steps = report["routed"].as_array().unwrap().iter().flat_map(|s| s["evidence"].as_array().unwrap());
    steps.filter(|e| e["about"] == about).filter_map(|e| e["seen"].as_str()).collect()
}

fn steps(report: &Value) -> Vec<&str> {
    let steps = report["procedures"][0]["steps"].as_array().unwrap();
    steps.iter().filter_map(|s| s["name"].as_str()).collect()
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
    let lab = Lab::healthy();
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

#[test]
fn a_request_that_runs_is_let_run_to_its_end_before_its_server_is_restarted() {
    let lab = Lab::healthy();
    lab.start();
    let tokens = 1500;
    let asked = lab.long_request(tokens);
    let (status, done) = lab.json(&["toggle", lab.case(), "triton-indexer@decode", "off", "--readable-env", "--yes"]);
    assert_eq!((status, done["outcomes"][0].as_str()), (0, Some("completed")), "{done}");
    let (answered, body) = asked.join().unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{answered} {e}: {body}"));
    assert_eq!(
        (answered, &answer["meta_info"]["completion_tokens"]),
        (200, &tokens.into()),
        "it was cut off: {answer}"
    );

    let expect = ["lease", "write-override", "keep-worker", "drain", "stop", "start", "prove", "re-add", "prove-entry"];
    assert_eq!(steps(&done), expect);
    assert_eq!(seen(&done, "drained"), ["no request runs or waits"], "{}", done["routed"]);
    let [out, back, has] = seen(&done, "router")[..] else { panic!("{}", done["routed"]) };
    assert!(out.ends_with("does not route to it any more") && back.ends_with("routes to it again"), "{out}, {back}");
    assert!(has.ends_with("sees it live"), "{has}");
    assert_eq!(seen(&done, "entry-token").len(), 1, "{}", done["routed"]);
    assert_eq!(lab.routed(), Some(true));
    let notes = done["procedures"][0]["notes"].to_string();
    assert!(notes.contains("no other decode worker") && notes.contains("SPT_NOENV=1"), "{notes}");
    let costs = done["costs"].to_string();
    assert!(costs.contains("`router` and `prefill` must do without `decode`"), "{costs}");

    let pid = |report: &Value| report["proofs"].as_array().unwrap().last().unwrap()["process"]["pid"].as_u64().unwrap();
    assert_eq!(variable(pid(&done), "SPT_NOENV").as_deref(), Some("1"));
    // What a change set stays with the next one, and goes with the way back.
    let next = lab.json(&["toggle", lab.case(), "triton-indexer@decode", "on", "--yes"]).1;
    assert_eq!(variable(pid(&next), "SPT_NOENV").as_deref(), Some("1"), "{next}");
    let (status, back) = lab.json(&["restore", lab.case(), "--yes"]);
    assert_eq!(status, 0, "{back}");
    let restored = back["proofs"].as_array().unwrap().iter().find(|p| p["target"] == "decode").unwrap();
    assert_eq!(variable(restored["process"]["pid"].as_u64().unwrap(), "SPT_NOENV"), None);
    assert_eq!(lab.routed(), Some(true));
}

#[test]
fn requests_that_do_not_end_in_time_stop_the_change_unless_it_is_said_that_they_may_be_cut_off() {
    let lab = Lab::healthy();
    let case = fs_err::read_to_string(&lab.case).unwrap();
    fs_err::write(&lab.case, format!("{case}\n[budget]\ndrain_s = 1\n")).unwrap();
    lab.start();
    let asked = lab.long_request(20_000);
    let toggle = ["toggle", lab.case(), "triton-indexer@decode", "off"];
    let (status, stopped) = lab.json(&[&toggle[..], &["--yes"]].concat());
    assert_eq!((status, stopped["outcomes"][0].as_str()), (3, Some("undone")), "{stopped}");
    let message = stopped["error"]["message"].as_str().unwrap();
    let expect = "1 request still runs at `decode` after 1 s; nothing was stopped, and `router` routes to it again";
    assert_eq!(message, expect, "{stopped}");
    assert!(stopped["error"]["hint"].as_str().unwrap().contains("`decode anyway`"), "{stopped}");
    assert_eq!((lab.routed(), asked.is_finished()), (Some(true), false), "the request was cut off");

    let (status, done) = lab.json(&[&toggle[..], &["--yes", "decode anyway"]].concat());
    assert_eq!((status, done["outcomes"][0].as_str()), (0, Some("completed")), "{done}");
    assert_eq!(seen(&done, "drained"), ["1 request still runs at `decode` after 1 s; they are cut off"]);
    assert_eq!(lab.routed(), Some(true));
    asked.join().unwrap();
}

#[test]
fn a_program_that_died_between_drain_and_return_left_the_router_without_its_worker() {
    let lab = Lab::healthy();
    lab.start();
    lab.load_for("decode", 2.0);
    let toggle = ["toggle", lab.case(), "triton-indexer@decode", "off", "--yes"];
    let session = lab.kill_in(&toggle, "prove");
    assert_eq!(lab.routed(), None);
    let (status, undone) = lab.json(&["session", "resume", session.to_str().unwrap(), "--undo"]);
    assert_eq!((status, undone["half_done"][0]["now"].as_str()), (0, Some("undone")), "{undone}");
    assert_eq!(lab.routed(), Some(true));

    // Finishing brings it back too.
    let session = lab.kill_in(&toggle, "prove");
    let (status, done) = lab.json(&["session", "resume", session.to_str().unwrap(), "--finish"]);
    assert_eq!((status, done["half_done"][0]["now"].as_str()), (0, Some("completed")), "{done}");
    assert_eq!(lab.routed(), Some(true));

    // So does the host by itself, without any session.
    lab.kill_in(&["toggle", lab.case(), "triton-indexer@decode", "on", "--yes"], "prove");
    assert_eq!(lab.routed(), None);
    let leases = fs_err::read_dir(lab.root.path().join("state/patchbench/overrides/leases")).unwrap();
    let of_decode = |path: &PathBuf| path.join("router.sh").exists();
    let lease = leases.map(|e| e.unwrap().path()).find(of_decode).unwrap();
    let mut way_back = Command::new("sh");
    way_back.arg(lease.join("restore.sh"));
    crate::common::without_secrets(&mut way_back);
    let way_back = way_back.output().unwrap();
    let said = String::from_utf8_lossy(&way_back.stdout).into_owned();
    assert!(way_back.status.success() && said.contains("router was told to bring http://127.0.0.1"), "{way_back:?}");
    let until = Instant::now() + Duration::from_secs(20);
    while lab.routed() != Some(true) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(lab.routed(), Some(true));

    // A new session finds what an earlier one took out, whatever it is asked for.
    lab.kill_in(&toggle, "prove");
    assert_eq!(lab.routed(), None);
    let until = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", lab.port("decode"))).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (status, next) = lab.json(&["restart", lab.case(), "decode", "--yes"]);
    let expect = ["lease", "write-override", "keep-worker", "stop", "start", "prove", "re-add", "prove-entry"];
    assert_eq!((status, steps(&next)), (0, expect.to_vec()), "{next}");
    assert_eq!(lab.routed(), Some(true));
}
