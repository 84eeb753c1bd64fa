//! Changes of containers that docker and podman really run: a copy with another level, its proof, the way back.
//!
//! `scripts/test --long` starts docker and names the tools that run here in `PATCHBENCH_CONTAINERS`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use patchbench::lab::install;
use patchbench::lab::scenario::named;
use serde_json::Value;

use crate::common::{kill_in, program};

const PORT: u16 = 30127;
const NAME: &str = "pb-lab";
const IMAGE: &str = "localhost/patchbench-lab:test";
const SECRET: &str = "hf_plantedsecret0123456789";
const STEPS: [&str; 5] = ["lease", "copy-container", "stop", "start", "prove"];

const CASE: &str = r#"
name = "container"
[[target]]
name = "lab"
url = "http://127.0.0.1:30127"
manager = { docker = "pb-lab" }
[[patch]]
id = "triton-indexer"
gate = { env = "SGLANG_SM120_TRITON_INDEXER", levels = { on = "1", off = { unset = true } } }
suspect = "on"
[[patch]]
id = "mhc-bf16"
gate = { flag = "--mhc-gemm", levels = { on = "bf16", off = "fp32" } }
suspect = "on"
"#;

/// There is one port, and one test at a time has it.
static ALONE: Mutex<()> = Mutex::new(());

/// A lab server in a container.
struct Contained {
    tool: String,
    folder: tempfile::TempDir,
    /// What the tool says of the container, but for how it runs.
    made: String,
    _alone: MutexGuard<'static, ()>,
}

fn tools() -> Vec<String> {
    let Some(named) = std::env::var_os("PATCHBENCH_CONTAINERS") else {
        println!("not run: `scripts/test --long` starts docker and podman");
        return Vec::new();
    };
    named.to_str().unwrap().split_whitespace().map(str::to_owned).collect()
}

fn sh(text: &str) -> String {
    let end = Command::new("sh").args(["-c", text]).stdin(Stdio::null()).output().unwrap();
    let all = [end.stdout, end.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(end.status.success(), "{text}: {all}");
    all
}

/// The indexer's variable in the server that owns the port's process, by the kernel.
fn indexer() -> String {
    sh("tr '\\0' '\\n' </proc/$(pgrep -nf '^/srv/patchbench lab serve')/environ | grep ^SGLANG_SM120_TRITON_INDEXER= || echo absent")
        .trim()
        .to_owned()
}

/// Takes away what a test left; other containers of the machine are not ours.
fn clean(tool: &str) -> String {
    format!("for c in $({tool} ps -a --format '{{{{.Names}}}}' | grep ^{NAME}); do {tool} rm -f $c; done")
}

impl Contained {
    /// A container with these options of the tool, and this before the server's own words.
    fn up(tool: &str, options: &str, before: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        install::install(folder.path(), &named("clean").unwrap(), 1, PORT, &program()).unwrap();
        fs_err::write(folder.path().join("case.toml"), CASE).unwrap();
        for one in tools() {
            sh(&clean(&one));
        }
        let path = folder.path().display();
        sh(&format!(
            "{tool} run -d --name {NAME} {options} -v {path}:/srv/lab -v {program}:/srv/patchbench:ro --shm-size 128m \
             -e SGLANG_SM120_TRITON_INDEXER=1 -e SGLANG_SM120_MMA_FLASHMLA=1 -e HF_TOKEN={SECRET} -e 'SPACED=a b' \
             --stop-timeout 20 --restart unless-stopped -l owner=ann -w /srv/lab {IMAGE} {before} /srv/patchbench lab serve \
             --deployment /srv/lab/lab.deployment --checkpoint /srv/lab/model --served-model-name patchbench-lab \
             --host 0.0.0.0 --port {PORT} --mhc-gemm bf16 --routed-scaling topk --chunked-prefill-size 256 \
             --context-length 32768 --enable-cache-report --enable-metrics",
            program = program().display()
        ));
        let mut contained = Self { tool: tool.to_owned(), folder, made: String::new(), _alone: alone };
        contained.wait_ready(NAME);
        contained.made = contained.inspected();
        contained
    }

    /// How the container was made.
    fn inspected(&self) -> String {
        let text = sh(&format!("{} container inspect {NAME}", self.tool));
        let all: Value = serde_json::from_str(&text).unwrap();
        let own = &all[0];
        serde_json::json!([own["Id"], own["Image"], own["Config"], own["HostConfig"], own["Path"], own["Args"]])
            .to_string()
    }

    fn wait_ready(&self, name: &str) {
        let tool = &self.tool;
        sh(&format!(
            "for i in $(seq 150); do {tool} logs {name} 2>&1 | grep -q 'ready to roll' && exit 0; sleep 0.2; done; {tool} logs {name}; exit 1"
        ));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(args).env("PATCHBENCH_SESSIONS", self.path("sessions")).env("XDG_STATE_HOME", self.path("state"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, word: &str, rest: &[&str]) -> (i32, Value) {
        let case = self.path("case.toml");
        let args = [&[word, case.to_str().unwrap()][..], rest, &["--json", "--quiet"]].concat();
        self.answer(&args)
    }

    fn answer(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains(SECRET), "a secret was printed");
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), value)
    }

    /// The container is the one that its owner made, runs with its own levels, and nothing of ours is left.
    #[track_caller]
    fn is_original(&self) {
        let names = sh(&format!("{} ps -a --format '{{{{.Names}}}}'", self.tool));
        assert_eq!(names.trim(), NAME, "a copy is left");
        assert_eq!(self.inspected(), self.made, "the container was changed");
        let running = sh(&format!("{} container inspect --format '{{{{.State.Running}}}}' {NAME}", self.tool));
        assert_eq!(running.trim(), "true");
        let leases = self.path("state/patchbench/overrides/leases");
        assert_eq!(fs_err::read_dir(leases).map_or(0, Iterator::count), 0, "a lease is left");
        self.wait_ready(NAME);
        sh("for i in $(seq 100); do grep -q ':75AF .* 0A ' /proc/net/tcp && exit 0; sleep 0.1; done; exit 1");
        assert_eq!(indexer(), "SGLANG_SM120_TRITON_INDEXER=1");
    }

    /// Kills a toggle as soon as its journal says that this step has begun.
    fn kill_toggle_in(&self, step: &str) -> PathBuf {
        let case = self.path("case.toml");
        let args = ["toggle", case.to_str().unwrap(), "triton-indexer", "off", "--yes", "lab", "--quiet", "--json"];
        kill_in(self.command(&args), &self.path("sessions"), step)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let tool = &self.tool;
        drop(Command::new("sh").args(["-c", &clean(tool)]).output());
    }
}

fn no_secret_within(folder: &Path) {
    let found = Command::new("grep").args(["-rl", SECRET]).arg(folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "a secret is in a file");
}

#[test]
fn a_container_is_toggled_with_proof_and_put_back_as_it_was() {
    for tool in tools() {
        let networks: &[&str] =
            if tool == "docker" { &["--network host", "-p 30127:30127"] } else { &["--network host"] };
        for network in networks {
            let one = Contained::up(&tool, network, "");
            let (status, truth) = one.run("truth", &[]);
            assert_eq!(truth["targets"][0]["status"], "ready", "{tool} {network} {status}: {truth:#}");
            let rows = truth["rows"].as_array().unwrap();
            let row = rows.iter().find(|r| r["name"] == "SGLANG_SM120_TRITON_INDEXER").unwrap();
            assert_eq!((&row["status"], &row["declared"]["value"]), (&"agrees".into(), &"1".into()), "{row:#}");

            let (status, planned) = one.run("toggle", &["triton-indexer", "off", "--plan"]);
            assert_eq!(status, 0, "{tool} {network}: {planned:#}");
            one.is_original();

            let (status, off) = one.run("toggle", &["triton-indexer", "off", "--yes", "lab"]);
            assert_eq!((status, indexer().as_str()), (0, "absent"), "{tool} {network}: {off:#}");
            let proof = &off["proofs"][0];
            assert_eq!(proof["levels"], serde_json::json!({"triton-indexer": "off", "mhc-bf16": "on"}), "{off:#}");
            let about: Vec<&str> =
                proof["evidence"].as_array().unwrap().iter().map(|e| e["about"].as_str().unwrap()).collect();
            for part in ["old-process", "pid", "container", "port-owner", "ready-line", "first-token", "level:mhc-bf16"]
            {
                assert!(about.contains(&part), "{part} is missing in {about:?}");
            }
            assert_eq!(one.inspected(), one.made);
            // A second change keeps the first.
            let (status, both) = one.run("toggle", &["mhc-bf16", "off", "--yes", "lab"]);
            assert_eq!(status, 0, "{tool} {network}: {both:#}");
            let levels = serde_json::json!({"triton-indexer": "off", "mhc-bf16": "off"});
            assert_eq!(both["proofs"][0]["levels"], levels, "{both:#}");
            let (status, back) = one.run("restore", &["--yes", "lab"]);
            assert_eq!(status, 0, "{tool} {network}: {back:#}");
            one.is_original();
            no_secret_within(&one.path("sessions"));
            no_secret_within(&one.path("state"));
        }
    }
}

#[test]
fn a_program_that_is_killed_in_any_step_leaves_a_way_back_to_the_container() {
    for tool in tools() {
        let one = Contained::up(&tool, "--network host", "");
        for step in STEPS {
            one.kill_toggle_in(step);
            let (status, back) = one.run("restore", &["--yes", "lab"]);
            assert_eq!(status, 0, "{tool} {step}: {back:#}");
            one.is_original();

            let session = one.kill_toggle_in(step);
            let (status, undone) = one.answer(&["session", "resume", session.to_str().unwrap(), "--undo", "--json"]);
            assert_eq!(
                (status, &undone["half_done"][0]["now"]),
                (0, &Value::from("undone")),
                "{tool} {step}: {undone:#}"
            );
            one.is_original();

            let session = one.kill_toggle_in(step);
            let (status, done) = one.answer(&["session", "resume", session.to_str().unwrap(), "--finish", "--json"]);
            assert_eq!((status, indexer().as_str()), (0, "absent"), "{tool} {step}: {done:#}");
            assert_eq!(one.run("restore", &["--yes", "lab"]).0, 0);
            one.is_original();
        }
    }
}

#[test]
fn what_a_person_changed_in_a_container_is_in_its_copy() {
    for tool in tools() {
        let one = Contained::up(&tool, "--network host", "");
        sh(&format!("{tool} exec {NAME} sh -c 'mkdir -p /opt/fork && echo patched >/opt/fork/indexer.py'"));
        let (status, off) = one.run("toggle", &["triton-indexer", "off", "--yes", "lab"]);
        assert_eq!((status, indexer().as_str()), (0, "absent"), "{tool}: {off:#}");
        let file = "cat /proc/$(pgrep -nf '^/srv/patchbench lab serve')/root/opt/fork/indexer.py";
        assert_eq!(sh(file), "patched\n");
        assert_eq!(one.run("restore", &["--yes", "lab"]).0, 0);
        one.is_original();
        let images = sh(&format!("{tool} images --format '{{{{.Repository}}}}'"));
        assert!(!images.contains(&format!("{NAME}.patchbench")), "an image of ours is left: {images}");
    }
}

#[test]
fn a_container_whose_command_exports_the_variable_is_toggled_in_its_text() {
    for tool in tools() {
        let one = Contained::up(&tool, "--network host", "");
        sh(&format!("{tool} rm -f {NAME}"));
        let path = one.folder.path().display();
        sh(&format!(
            "{tool} run -d --name {NAME} --network host -v {path}:/srv/lab -v {program}:/srv/patchbench:ro {IMAGE} bash -c \
             'export SGLANG_SM120_TRITON_INDEXER=1; exec /srv/patchbench lab serve --deployment /srv/lab/lab.deployment \
             --checkpoint /srv/lab/model --host 0.0.0.0 --port {PORT} --mhc-gemm bf16'",
            program = program().display()
        ));
        one.wait_ready(NAME);
        let (status, off) = one.run("toggle", &["triton-indexer", "off", "--yes", "lab"]);
        assert_eq!((status, indexer().as_str()), (0, "absent"), "{tool}: {off:#}");
        let (status, flag) = one.run("toggle", &["mhc-bf16", "off", "--yes", "lab"]);
        assert_eq!((status, &flag["proofs"][0]["levels"]["mhc-bf16"]), (0, &"off".into()), "{tool}: {flag:#}");
        assert_eq!(one.run("restore", &["--yes", "lab"]).0, 0);
        assert_eq!(indexer(), "SGLANG_SM120_TRITON_INDEXER=1");
    }
}

#[test]
fn what_a_container_does_not_allow_is_one_sentence_and_changes_nothing() {
    for tool in tools() {
        let one = Contained::up(&tool, "--network host", "");
        let refused = |part: &str| {
            let (status, end) = one.run("toggle", &["triton-indexer", "off", "--yes", "lab"]);
            let message = end["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(status != 0 && message.contains(part), "{tool} {part}: {end:#}");
            assert!(end["error"]["hint"].is_string(), "{end:#}");
        };
        sh(&format!("{tool} pause {NAME}"));
        refused("paused");
        sh(&format!("{tool} unpause {NAME}"));
        one.is_original();
        sh(&format!("{tool} stop {NAME}"));
        let mut stranger = Command::new("python3")
            .args(["-m", "http.server", &PORT.to_string(), "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sh("for i in $(seq 100); do grep -q ':75AF .* 0A ' /proc/net/tcp && exit 0; sleep 0.1; done; exit 1");
        refused("does not belong to `pb-lab`");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        sh(&format!("{tool} rm -f {NAME}"));
        refused("cannot tell how `pb-lab` runs");
        sh(&format!("{tool} run -d --rm --name {NAME} --network host {IMAGE} sleep 1000"));
        refused("--rm");
        sh(&format!(
            "{tool} rm -f {NAME}; {tool} run -d --name {NAME} -l PODMAN_SYSTEMD_UNIT=lab.service --network host {IMAGE} sleep 1000"
        ));
        refused("run by systemd");
    }
}
