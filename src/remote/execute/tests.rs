//! Real processes: a small server is started, changed, proven, broken and brought back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tempfile::TempDir;

use super::*;
use crate::case::{Gate, LevelValue, Manager};
use crate::engine::effect::ChangeWish;
use crate::engine::job::fake;
use crate::engine::live::Live;
use crate::engine::procedure::Purpose;
use crate::remote::host::Hosts;
use crate::remote::lease::Owner;
use crate::remote::local;
use crate::remote::procedures::{self, Folders, Means};

const SERVER: &str = r#"
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("loading weights", flush=True)
if "PB_TITLE" in os.environ and not os.environ.get("SPT_NOENV"):
    # As a title is set: over the block that `/proc` shows.
    import ctypes
    stat = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
    ctypes.memset(int(stat[47]), 0, int(stat[48]) - int(stat[47]))
if args.get("--mode") == "broken":
    print("RuntimeError: boom, HF_TOKEN=hf_secret1", flush=True)
    sys.exit(3)
class H(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/model_info": return self.answer({"model_path": "m"})
        if self.path == "/server_info": return self.answer({"mode": "other" if "PB_LIE" in os.environ else args.get("--mode"), "tp_size": 1, "api_key": "hunter2"})
        if self.path.startswith("/v1/loads"): return self.answer({"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.25, "cache_hit_rate": 0.5}]})
        self.send_error(404)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"text": "!", "meta_info": {}})
server = HTTPServer(("127.0.0.1", int(args["--port"])), H)
if args.get("--mode") != "mute":
    print("The server is fired up and ready to roll!", flush=True)
server.serve_forever()
"#;

/// A folder with a server, its launch script and a case; everything started from it is ended when dropped.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) case: Case,
    pub(crate) means: Means,
    pub(crate) port: u16,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let here = self.folder.path().display().to_string();
        for process in local::processes() {
            let cwd = fs_err::read_link(format!("/proc/{}/cwd", process.key.pid)).unwrap_or_default();
            if cwd.starts_with(&here) {
                let pid = rustix::process::Pid::from_raw(process.key.pid as i32).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    fs_err::write(folder.path().join("server.py"), SERVER).unwrap();
    let script = format!(
        "#!/bin/bash\n# the launch script\nset -e\nexport HF_TOKEN=hf_secret1\nexport PB_X=1 # on\ncd \"$(dirname \"$0\")\"\n\
         exec python3 server.py \\\n  --port {port} \\\n  --mode fp32\n"
    );
    fs_err::write(folder.path().join("serve.sh"), script).unwrap();
    let text = format!(
        "name = \"test\"\n[[target]]\nname = \"lab\"\nurl = \"http://127.0.0.1:{port}\"\n\
         manager = {{ script = \"serve.sh\", log = \"serve.log\" }}\n\
         [[patch]]\nid = \"x\"\ngate = {{ env = \"PB_X\", levels = {{ on = 1, off = {{ unset = true }} }} }}\n\
         [[patch]]\nid = \"mode\"\nsuspect = \"bf16\"\n\
         gate = {{ flag = \"--mode\", levels = {{ fp32 = \"fp32\", bf16 = \"bf16\", broken = \"broken\", mute = \"mute\" }} }}\n\
         [[patch]]\nid = \"lie\"\ngate = {{ env = \"PB_LIE\", levels = {{ on = 1, off = {{ unset = true }} }} }}\n\
         [[patch]]\nid = \"source\"\ngate = \"none\"\n"
    );
    let path = folder.path().join("case.toml");
    fs_err::write(&path, text).unwrap();
    let (case, remarks) = crate::case::read_file(&path);
    let case = case.unwrap_or_else(|| panic!("{remarks:?}"));
    let means = Means {
        hosts: Hosts::default(),
        folders: Folders { overrides: folder.path().join("state/overrides") },
        owner: somebody("ann"),
    };
    Bench { folder, case, means, port }
}

/// A session of its own; its program runs, since it is this one.
pub(crate) fn somebody(name: &str) -> Owner {
    let me = local::process(std::process::id()).unwrap().key;
    let program = format!("{} {} {}", me.pid, me.start_ticks, local::boot_id().unwrap());
    Owner { token: format!("token-of-{name}"), who: format!("{name}@test"), session: "a session".into(), program }
}

/// Whether anybody listens on a port.
pub(crate) fn listens(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// What came of a procedure.
struct Outcome {
    result: Result<(), Failure>,
    boots: Vec<Arc<BootProof>>,
    reports: Vec<String>,
    live: Vec<Live>,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn context(&self) -> (JobContext, fake::Ends) {
        fake::context(&self.path("blobs")).unwrap()
    }

    async fn plan(&self, wish: &ChangeWish) -> Result<Procedure, Failure> {
        let (ctx, _ends) = self.context();
        procedures::plan(&self.means, &self.case, "lab", wish, &ctx).await
    }

    async fn run(&self, procedure: &Procedure, phase: Phase, from: usize) -> Outcome {
        let (ctx, mut ends) = self.context();
        let live = ctx.clone();
        let collect = tokio::spawn(async move {
            let (mut boots, mut reports) = (Vec::new(), Vec::new());
            while let Some(report) = ends.next().await {
                reports.push(match report {
                    JobReport::StepStarted { step, phase, .. } => format!("{phase:?} {step} started"),
                    JobReport::StepDone { step, phase, evidence, .. } => {
                        let already =
                            if evidence.iter().any(|e| e.seen.raw() == "already done") { " already" } else { "" };
                        format!("{phase:?} {step} done{already}")
                    }
                    JobReport::StepFailed { step, phase, .. } => format!("{phase:?} {step} failed"),
                    JobReport::BootProven { proof, .. } => {
                        boots.push(proof);
                        "boot".into()
                    }
                    other => format!("{other:?}"),
                });
            }
            let mut live = Vec::new();
            while let Ok(message) = ends.live.try_recv() {
                live.push(message);
            }
            (boots, reports, live)
        });
        let result = run(&self.means, &self.case, procedure, Part { phase, from, anyway: false }, &ctx).await;
        drop((ctx, live));
        let (boots, reports, live) = collect.await.unwrap();
        Outcome { result, boots, reports, live }
    }

    /// The server that runs, as a reading meets it.
    pub(crate) async fn met(&self) -> Option<BootProof> {
        let (ctx, _ends) = self.context();
        let Means { hosts, folders, .. } = &self.means;
        crate::truth::read::probe_in(hosts, folders, &self.case, "lab", &ctx).await.unwrap().met
    }

    pub(crate) async fn change(&self, wish: ChangeWish) -> Arc<BootProof> {
        let procedure = self.plan(&wish).await.unwrap();
        let outcome = self.run(&procedure, Phase::Do, 0).await;
        outcome.result.unwrap();
        outcome.boots.into_iter().next().unwrap()
    }
}

pub(crate) fn running(levels: &[(&str, &str)]) -> ChangeWish {
    ChangeWish::Running(levels.iter().map(|(p, l)| ((*p).to_owned(), (*l).to_owned())).collect())
}

fn check_levels(proof: &BootProof, expect: &[(&str, &str)]) {
    let expect: BTreeMap<String, String> = expect.iter().map(|(p, l)| ((*p).to_owned(), (*l).to_owned())).collect();
    assert_eq!(proof.levels, expect);
    assert_eq!(proof.unverified.keys().collect::<Vec<_>>(), ["source"]);
}

#[tokio::test]
async fn a_server_is_started_changed_and_put_back() {
    let bench = bench();
    let script = fs_err::read(bench.path("serve.sh")).unwrap();
    let first = bench.change(running(&[])).await;
    check_levels(&first, &[("x", "on"), ("mode", "fp32"), ("lie", "off")]);
    let about: Vec<&str> = first.evidence.iter().map(|e| e.about.as_str()).collect();
    for part in ["pid", "port-owner", "ready-line", "identity", "first-token", "level:x", "level:mode"] {
        assert!(about.contains(&part), "{part} is missing in {about:?}");
    }
    let second = bench.change(running(&[("x", "off"), ("mode", "bf16")])).await;
    check_levels(&second, &[("x", "off"), ("mode", "bf16"), ("lie", "off")]);
    assert_ne!(first.process, second.process);
    assert!(!local::runs(first.process) && local::runs(second.process));
    assert!(second.process.start_ticks >= first.process.start_ticks);
    // A level that is not named stays as the running server has it.
    let third = bench.change(running(&[("mode", "fp32")])).await;
    check_levels(&third, &[("x", "off"), ("mode", "fp32"), ("lie", "off")]);
    let back = bench.change(ChangeWish::Original).await;
    check_levels(&back, &[("x", "on"), ("mode", "fp32"), ("lie", "off")]);
    assert_eq!(fs_err::read(bench.path("serve.sh")).unwrap(), script, "the user's script was changed");
    let stop = bench.plan(&ChangeWish::Stopped).await.unwrap();
    bench.run(&stop, Phase::Do, 0).await.result.unwrap();
    assert!(!local::runs(back.process));
    assert!(bench.plan(&ChangeWish::Stopped).await.unwrap().steps.is_empty());
}

#[tokio::test]
async fn a_server_that_overwrites_its_environment_can_be_started_so_that_it_does_not() {
    let mut bench = bench();
    let script = fs_err::read_to_string(bench.path("serve.sh")).unwrap();
    fs_err::write(bench.path("serve.sh"), script.replace("set -e", "set -e\nexport PB_TITLE=1")).unwrap();
    let first = bench.change(running(&[])).await;
    assert!(first.unverified["x"].contains("overwritten") && !first.readable_env, "{first:?}");
    let plan = bench.plan(&running(&[])).await.unwrap();
    let [note] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert!(note.contains("wrote their title over their environment") && note.contains("`--readable-env`"), "{note}");

    bench.case.targets[0].readable_env = true;
    let plan = bench.plan(&running(&[])).await.unwrap();
    assert!(plan.notes[0].starts_with("`lab` is started with `SPT_NOENV=1`"), "{:?}", plan.notes);
    let Action::Shell { script: shown, .. } = &plan.steps[1].apply else { panic!("{:?}", plan.steps) };
    assert!(plan.steps[1].name == "write-override" && shown.contains("export SPT_NOENV=1"), "{shown}");
    let second = bench.change(running(&[])).await;
    check_levels(&second, &[("x", "on"), ("mode", "fp32"), ("lie", "off")]);
    assert!(second.readable_env);

    // It stays with what runs, and goes with the way back.
    bench.case.targets[0].readable_env = false;
    let third = bench.change(running(&[("mode", "bf16")])).await;
    check_levels(&third, &[("x", "on"), ("mode", "bf16"), ("lie", "off")]);
    let back = bench.change(ChangeWish::Original).await;
    assert!(third.readable_env && !back.readable_env && back.unverified.contains_key("x"), "{back:?}");

    // A script that says so itself needs no copy.
    let own = script.replace("set -e", "set -e\nexport PB_TITLE=1 SPT_NOENV=1");
    fs_err::write(bench.path("serve.sh"), own).unwrap();
    bench.case.targets[0].readable_env = true;
    let plan = bench.plan(&running(&[])).await.unwrap();
    assert!(!plan.steps.iter().any(|s| s.name == "write-override"), "{:?}", plan.steps);
}

#[tokio::test]
async fn what_is_journaled_shows_no_secret_and_only_the_change() {
    let bench = bench();
    let procedure = bench.plan(&running(&[("x", "off")])).await.unwrap();
    let json = serde_json::to_string(&procedure).unwrap();
    assert!(!json.contains("hf_secret1"));
    assert!(json.contains("unset PB_X"));
    let names: Vec<&str> = procedure.steps.iter().map(|s| s.name.as_str()).collect();
    assert_eq!((names, procedure.purpose), (vec!["lease", "write-override", "start", "prove"], Purpose::Start));
    assert_eq!(serde_json::from_str::<Procedure>(&json).unwrap(), procedure);
    assert!(!bench.means.folders.overrides.exists(), "planning has changed the host");
}

#[tokio::test]
async fn a_server_that_dies_while_loading_is_noticed_and_taken_back() {
    let bench = bench();
    let before = bench.change(running(&[])).await;
    let procedure = bench.plan(&running(&[("mode", "broken")])).await.unwrap();
    let begun = Instant::now();
    let outcome = bench.run(&procedure, Phase::Do, 0).await;
    let failure = outcome.result.unwrap_err();
    assert!(
        failure.message.contains("with status 3; last log lines: loading weights ⏎ RuntimeError: boom"),
        "{}",
        failure.message
    );
    assert!(!failure.message.contains("hf_secret1"));
    assert!(begun.elapsed().as_secs_f64() < 20.0);
    assert!(
        outcome
            .live
            .iter()
            .any(|l| matches!(l, Live::ServerLog { line, .. } if line.raw().contains("loading weights")))
    );
    assert_eq!(outcome.reports.last().unwrap(), "Do 4 failed");
    let back = bench.run(&procedure, Phase::Undo, 4).await;
    back.result.unwrap();
    check_levels(&back.boots[0], &[("x", "on"), ("mode", "fp32"), ("lie", "off")]);
    assert!(back.boots[0].process != before.process);
    let ours: Vec<String> = files(&bench.means.folders.overrides);
    assert!(ours.iter().all(|f| Path::new(f).extension() != Some("sh".as_ref())), "an override is left: {ours:?}");
}

fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_server_that_never_says_ready_times_out_with_its_log() {
    let bench = bench();
    let mut procedure = bench.plan(&running(&[("mode", "mute")])).await.unwrap();
    let last = procedure.steps.len() - 1;
    let Action::ProveBoot { timeout_s, .. } = &mut procedure.steps[last].proof else { panic!() };
    *timeout_s = 2.5;
    let outcome = bench.run(&procedure, Phase::Do, 0).await;
    let failure = outcome.result.unwrap_err();
    assert!(
        failure.message.contains("was not ready within 2.5 s; last log lines: loading weights"),
        "{}",
        failure.message
    );
    let back = bench.run(&procedure, Phase::Undo, last).await;
    back.result.unwrap();
    assert!(!listens(bench.port), "the mute server is left");
}

#[tokio::test]
async fn a_half_done_procedure_is_finished_from_its_last_step() {
    let bench = bench();
    let before = bench.change(running(&[])).await;
    let mut procedure = bench.plan(&running(&[("x", "off")])).await.unwrap();
    let proof = procedure.steps.pop().unwrap();
    // Killed after `start`: what has run is known by its checks.
    bench.run(&procedure, Phase::Do, 0).await.result.unwrap();
    procedure.steps.push(proof);
    let outcome = bench.run(&procedure, Phase::Do, 2).await;
    outcome.result.unwrap();
    let expect =
        ["Do 2 started", "Do 2 done already", "Do 3 started", "Do 3 done already", "Do 4 started", "boot", "Do 4 done"];
    assert_eq!(outcome.reports, expect);
    assert_ne!(outcome.boots[0].process, before.process);
    assert_eq!(outcome.boots[0].levels["x"], "off");
}

#[tokio::test]
async fn a_start_that_is_still_loading_is_not_doubled_and_can_be_stopped() {
    let bench = bench();
    fs_err::write(bench.path("serve.sh"), "#!/bin/bash\nsleep 60\nexec python3 server.py --port 1\n").unwrap();
    let mut procedure = bench.plan(&running(&[])).await.unwrap();
    procedure.steps.pop();
    bench.run(&procedure, Phase::Do, 0).await.result.unwrap();
    let failure = bench.plan(&running(&[])).await.unwrap_err();
    assert!(failure.message.contains("is still loading"), "{}", failure.message);
    let stop = bench.plan(&ChangeWish::Stopped).await.unwrap();
    bench.run(&stop, Phase::Do, 0).await.result.unwrap();
    assert!(bench.plan(&running(&[])).await.is_ok());
}

#[tokio::test]
async fn a_target_of_the_same_name_in_another_case_is_left_alone() {
    let first = bench();
    let mut second = bench();
    second.means.folders = first.means.folders.clone();
    fs_err::write(first.path("serve.sh"), "#!/bin/bash\nsleep 60\nexec python3 server.py --port 1\n").unwrap();
    let mut procedure = first.plan(&running(&[])).await.unwrap();
    procedure.steps.pop();
    first.run(&procedure, Phase::Do, 0).await.result.unwrap();
    assert!(second.plan(&running(&[])).await.is_ok(), "the other one's start is not ours");
    assert_eq!(second.plan(&ChangeWish::Stopped).await.unwrap().steps, [], "and there is nothing of ours to stop");
    assert!(first.plan(&running(&[])).await.unwrap_err().message.contains("is still loading"));
}

#[tokio::test]
async fn a_level_that_something_else_decides_is_not_proven() {
    let bench = bench();
    // The script itself sets the variable again behind the place that an override can reach.
    let script = fs_err::read_to_string(bench.path("serve.sh")).unwrap();
    fs_err::write(bench.path("serve.sh"), script.replace("exec python3", "exec ./run.sh python3")).unwrap();
    fs_err::write(bench.path("run.sh"), "#!/bin/bash\nexport PB_X=1\nexec \"$@\"\n").unwrap();
    std::process::Command::new("chmod").arg("+x").arg(bench.path("run.sh")).status().unwrap();
    let procedure = bench.plan(&running(&[("x", "off")])).await.unwrap();
    let failure = bench.run(&procedure, Phase::Do, 0).await.result.unwrap_err();
    assert!(failure.message.contains("`x` was asked to be `off` and the new process has `on`"), "{}", failure.message);
}

#[tokio::test]
async fn a_flag_that_the_server_reports_otherwise_is_unverified() {
    let bench = bench();
    let proof = bench.change(running(&[("lie", "on")])).await;
    assert!(!proof.levels.contains_key("mode"));
    assert!(proof.unverified["mode"].contains("says `other`"), "{:?}", proof.unverified);
}

#[tokio::test]
async fn an_absent_flag_that_the_server_reports_as_set_is_unverified() {
    let mut bench = bench();
    let levels = [("on", LevelValue::Set("1".into())), ("off", LevelValue::Unset)];
    let levels = levels.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    bench.case.patches[1].gate = Gate::Flag { flag: "--tp-size".into(), levels };
    let proof = bench.change(running(&[])).await;
    assert!(!proof.levels.contains_key("mode"), "{:?}", proof.levels);
    let why = &proof.unverified["mode"];
    assert!(why.contains("`--tp-size is absent`") && why.contains("says `1`"), "{why}");
}

#[tokio::test]
async fn a_server_of_somebody_is_adopted_and_restarted() {
    let bench = bench();
    assert_eq!(bench.met().await, None);
    let log = fs_err::File::create(bench.path("serve.log")).unwrap();
    let mut child = std::process::Command::new("bash")
        .arg("serve.sh")
        .current_dir(bench.folder.path())
        .stdout(log.into_parts().0)
        .spawn()
        .unwrap();
    let met = loop {
        match bench.met().await {
            Some(proof) => break proof,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    check_levels(&met, &[("x", "on"), ("mode", "fp32"), ("lie", "off")]);
    assert_eq!(met.process.pid, child.id());
    let proof = bench.change(running(&[("x", "off")])).await;
    assert_ne!(proof.process, met.process);
    child.wait().unwrap();
}

#[tokio::test]
async fn a_stranger_on_the_port_is_named_and_left_alone() {
    let bench = bench();
    let socket = std::net::TcpListener::bind(("127.0.0.1", bench.port)).unwrap();
    let failure = bench.plan(&running(&[])).await.unwrap_err();
    let pid = format!("pid {}", std::process::id());
    assert!(
        failure.message.contains("is owned by another process") && failure.message.contains(&pid),
        "{}",
        failure.message
    );
    assert!(failure.hint.is_some() && !bench.means.folders.overrides.exists());
    assert_eq!(bench.met().await, None);
    drop(socket);
}

#[tokio::test]
async fn a_stranger_who_comes_while_the_server_starts_is_named() {
    let bench = bench();
    let procedure = bench.plan(&running(&[])).await.unwrap();
    let _socket = std::net::TcpListener::bind(("127.0.0.1", bench.port)).unwrap();
    let outcome = bench.run(&procedure, Phase::Do, 0).await;
    let failure = outcome.result.unwrap_err();
    assert!(failure.message.contains(&format!("port {} is in use", bench.port)), "{}", failure.message);
    assert_eq!(outcome.reports[2..], ["Do 1 started", "Do 1 failed"], "nothing was started into a port that is taken");
}

#[tokio::test]
async fn what_cannot_be_planned_is_said_in_one_sentence() {
    let change = |edit: fn(&mut Bench)| {
        let mut bench = bench();
        edit(&mut bench);
        bench
    };
    let log = |bench: &mut Bench, path: &str| {
        let Manager::Script { log, .. } = &mut bench.case.targets[0].manager else { panic!() };
        path.clone_into(log);
    };
    let mut no_folder = bench();
    log(&mut no_folder, "/nowhere/at/all/serve.log");
    let mut no_file = bench();
    log(&mut no_file, "/proc");
    for (bench, wish, expect) in [
        (change(|b| fs_err::remove_file(b.path("serve.sh")).unwrap()), running(&[]), "does not exist"),
        (change(|b| fs_err::write(b.path("serve.sh"), [0xff, 0xfe]).unwrap()), running(&[]), "is no text"),
        (
            change(|b| fs_err::write(b.path("serve.sh"), "#!/usr/bin/perl\n").unwrap()),
            running(&[]),
            "is not a bash script",
        ),
        (
            change(|b| fs_err::write(b.path("serve.sh"), "echo hi\n").unwrap()),
            running(&[("x", "off")]),
            "no command with flags",
        ),
        (
            change(|b| b.case.targets[0].manager = Manager::Docker { docker: "d".into() }),
            running(&[]),
            "cannot tell how `d` runs",
        ),
        (change(|b| b.case.targets[0].host = "gpu".into()), running(&[]), "cannot be reached"),
        (no_folder, running(&[]), "the folder of the log"),
        (no_file, running(&[]), "cannot be written"),
        (bench(), running(&[("y", "on")]), "has no patch `y`"),
        (bench(), running(&[("x", "maybe")]), "has no level `maybe`"),
        (bench(), running(&[("source", "off")]), "has no gate, so that no restart could switch it"),
    ] {
        let failure = bench.plan(&wish).await.unwrap_err();
        assert!(failure.message.contains(expect), "{}", failure.message);
        assert!(!failure.message.ends_with('.') && !bench.means.folders.overrides.exists());
    }
}

#[tokio::test]
async fn cancelling_stops_between_steps_and_in_waits() {
    let bench = bench();
    let procedure = bench.plan(&running(&[("mode", "mute")])).await.unwrap();
    let (ctx, mut ends) = bench.context();
    let cancel = ctx.cancel.clone();
    let collect = tokio::spawn(async move {
        while let Some(report) = ends.next().await {
            if matches!(report, JobReport::StepStarted { step: 3, .. }) {
                cancel.cancel();
            }
        }
    });
    let failure = run(&bench.means, &bench.case, &procedure, Part { phase: Phase::Do, from: 0, anyway: false }, &ctx)
        .await
        .unwrap_err();
    assert!(failure.message.contains("cancelled"), "{}", failure.message);
    let again = run(&bench.means, &bench.case, &procedure, Part { phase: Phase::Do, from: 0, anyway: false }, &ctx)
        .await
        .unwrap_err();
    assert!(again.message.contains("cancelled before step"), "{}", again.message);
    drop(ctx);
    collect.await.unwrap();
    bench.run(&procedure, Phase::Undo, 3).await.result.unwrap();
}

/// A server that somebody started by hand, with variables of their own.
async fn by_hand(bench: &Bench, variables: &[(&str, &str)]) -> (std::process::Child, Arc<BootProof>) {
    let log = fs_err::File::create(bench.path("serve.log")).unwrap();
    let child = std::process::Command::new("bash")
        .arg("serve.sh")
        .current_dir(bench.folder.path())
        .envs(variables.iter().copied())
        .stdout(log.into_parts().0)
        .spawn()
        .unwrap();
    loop {
        match bench.met().await {
            Some(proof) => return (child, Arc::new(proof)),
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn variable(proof: &BootProof, name: &str) -> Option<String> {
    local::environ(proof.process.pid).unwrap().get(name).map(str::to_owned)
}

#[tokio::test]
async fn what_was_set_by_hand_before_the_start_is_kept_by_every_start_of_ours() {
    let bench = bench();
    let (mut child, met) = by_hand(&bench, &[("PB_LIE", "1"), ("PB_HAND", "it's 1")]).await;
    assert_eq!(met.levels["lie"], "on");
    let second = bench.change(running(&[("x", "off")])).await;
    child.wait().unwrap();
    assert_eq!(variable(&second, "PB_HAND").as_deref(), Some("it's 1"));
    assert_eq!((second.levels["x"].as_str(), second.levels["lie"].as_str()), ("off", "on"));
    let third = bench.change(running(&[("lie", "off")])).await;
    assert_eq!((variable(&third, "PB_HAND").as_deref(), variable(&third, "PB_LIE")), (Some("it's 1"), None));
    // The original is what somebody had started, not what the script alone says.
    let back = bench.change(ChangeWish::Original).await;
    assert_eq!((back.levels["x"].as_str(), back.levels["lie"].as_str()), ("on", "on"));
    assert_eq!(variable(&back, "PB_HAND").as_deref(), Some("it's 1"));
    let left = files(&bench.means.folders.overrides.join("runs"));
    assert!(
        left.iter().all(|f| f.starts_with(&left[0][..left[0].len() - 8])),
        "traces of old starts are left: {left:?}"
    );
}

#[tokio::test]
async fn undoing_a_stop_brings_back_the_levels_that_ran_with_proof() {
    let bench = bench();
    let (mut child, met) = by_hand(&bench, &[("PB_LIE", "1")]).await;
    let stop = bench.plan(&ChangeWish::Stopped).await.unwrap();
    bench.run(&stop, Phase::Do, 0).await.result.unwrap();
    child.wait().unwrap();
    assert!(!listens(bench.port));
    let back = bench.run(&stop, Phase::Undo, 1).await;
    back.result.unwrap();
    assert_eq!(back.boots[0].levels, met.levels);
    // Without what was set by hand the undo would be another server, and must not pass.
    let stop = bench.plan(&ChangeWish::Stopped).await.unwrap();
    bench.run(&stop, Phase::Do, 0).await.result.unwrap();
    let mut wrong = stop.clone();
    let Some(Action::Shell { script, .. }) = &mut wrong.steps[1].undo else { panic!() };
    assert!(script.contains("'PB_LIE=1' "), "{script}");
    *script = script.replace("'PB_LIE=1' ", "");
    let failure = bench.run(&wrong, Phase::Undo, 1).await.result.unwrap_err();
    assert!(failure.message.contains("`lie` was asked to be `on`"), "{}", failure.message);
}

#[tokio::test]
async fn a_secret_that_this_shell_lacks_is_refused_and_never_written() {
    let bench = bench();
    let (mut child, _) = by_hand(&bench, &[("PB_API_KEY", "sk-0123456789abcdef")]).await;
    let failure = bench.plan(&running(&[("x", "off")])).await.unwrap_err();
    assert!(failure.message.contains("`PB_API_KEY`") && failure.hint.is_some(), "{}", failure.message);
    let stop = bench.plan(&ChangeWish::Stopped).await.unwrap();
    let json = serde_json::to_string(&stop).unwrap();
    assert!(!json.contains("sk-0123456789abcdef") && json.contains("PB_API_KEY"), "{json}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_script_that_leaves_its_session_is_followed() {
    let bench = bench();
    let script = fs_err::read_to_string(bench.path("serve.sh")).unwrap();
    let script = script.replace("exec python3", "setsid nohup python3").replace("--mode fp32\n", "--mode fp32 &\n");
    fs_err::write(bench.path("serve.sh"), script).unwrap();
    let first = bench.change(running(&[])).await;
    let procedure = bench.plan(&running(&[("x", "off")])).await.unwrap();
    let outcome = bench.run(&procedure, Phase::Do, 0).await;
    outcome.result.unwrap();
    let second = &outcome.boots[0];
    assert!(second.process != first.process && second.levels["x"] == "off");
    // The shell that led the start is gone, and yet the start is not made a second time.
    let again = bench.run(&procedure, Phase::Do, 3).await;
    assert_eq!(again.reports[..2], ["Do 3 started", "Do 3 done already"]);
    bench.run(&procedure, Phase::Undo, 4).await.result.unwrap();
    assert!(!local::runs(second.process), "the server that left its session was not ended");
}

#[test]
fn the_copy_was_taken_away_although_somebody_had_pruned_the_container() {
    let folder = tempfile::tempdir().unwrap();
    let (tool, calls) = (folder.path().join("tool"), folder.path().join("calls"));
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{}\ncase $1 in container) exit 1 ;; ps) echo own.patchbench-1 ;; esac\n",
        calls.display()
    );
    fs_err::write(&tool, script).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = super::super::container_text::put_back(
        &format!("sh {}", tool.display()),
        "own",
        &path("jobs/own-"),
        &path("logs"),
        true,
    )
    .unwrap();
    let end = std::process::Command::new("sh").arg("-c").arg(text).output().unwrap();
    assert!(!end.status.success());
    let said = String::from_utf8_lossy(&end.stderr).into_owned();
    assert!(said.contains("its copy was left running"), "{said}");
    assert!(!fs_err::read_to_string(&calls).unwrap().contains("rm"), "something was taken away");
}
