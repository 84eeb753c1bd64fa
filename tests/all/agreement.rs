//! What a microtest says of an arithmetic on the lab's checkpoint, and what a server with that arithmetic answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use patchbench::lab::install;
use patchbench::lab::scenario::named;
use patchbench::lab::source::{PACKAGE, checkout};
use serde_json::Value;

use crate::common::{end_all_in, program};

/// A lab server of its own folder; it is stopped when dropped.
struct Server {
    root: tempfile::TempDir,
    case: PathBuf,
    model: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        end_all_in(self.root.path());
    }
}

/// How a server computes: its flag for the mixing, and the constants of its indexer.
struct Arithmetic {
    mhc_gemm: &'static str,
    page_offset: i8,
    score_sign: i8,
}

const EXACT: Arithmetic = Arithmetic { mhc_gemm: "fp32", page_offset: 0, score_sign: 1 };

impl Server {
    /// A server without any patch, but for this arithmetic.
    fn with(arithmetic: &Arithmetic) -> Self {
        let root = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let made = install(&root.path().join("lab"), &named("clean").unwrap(), 1, port, &program()).unwrap();
        let tree = checkout::write(root.path()).unwrap().join(checkout::SEARCHED);
        edit(
            &tree.join(PACKAGE).join("indexer.py"),
            "PAGE_OFFSET = 1\n",
            &format!("PAGE_OFFSET = {}\n", arithmetic.page_offset),
        );
        edit(
            &tree.join(PACKAGE).join("indexer.py"),
            "SCORE_SIGN = 1\n",
            &format!("SCORE_SIGN = {}\n", arithmetic.score_sign),
        );
        edit(&tree.join(PACKAGE).join("cache.py"), "KV_CACHE_DTYPE = \"fp8_e4m3\"\n", "KV_CACHE_DTYPE = None\n");
        // Every switch of the launch script is turned off, so that nothing is left but the arithmetic in question.
        let flags = format!("--mhc-gemm {} --routed-scaling output", arithmetic.mhc_gemm);
        edit(&made.script, "--mhc-gemm bf16 --routed-scaling topk", &flags);
        edit(&made.script, "=1\n", "=0\n");
        edit(&made.script, "exec ", &format!("export PYTHONPATH={}\nexec ", tree.display()));
        edit(&made.case, "lengths = [1024, 2048]", "lengths = [1024]");
        let model = made.dir.join("model");
        let server = Self { case: made.case, model, root };
        let (status, started) = server.json(&["restart", server.case(), "lab", "--yes"]);
        assert_eq!((status, started["outcomes"][0].as_str()), (0, Some("completed")), "{started}");
        server
    }

    fn case(&self) -> &str {
        self.case.to_str().unwrap()
    }

    fn json(&self, args: &[&str]) -> (i32, Value) {
        let root = self.root.path();
        let mut command = Command::new(program());
        command.args(args).arg("--json").env("PATCHBENCH_SESSIONS", root.join("sessions")).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
        let output = command.output().unwrap();
        let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"));
        (output.status.code().unwrap(), value)
    }

    /// Asks the whole suite: whether there is a symptom, and the answer to every question.
    fn asked(&self) -> (bool, BTreeMap<String, String>) {
        let (status, recall) = self.json(&["recall", self.case()]);
        assert!(status < 2, "{recall:#}");
        let trials = recall["trials"].as_array().unwrap();
        let question = |t: &Value| format!("{} {} {} {}", t["form"], t["depth"], t["seed"], t["expected"]);
        let said = |t: &Value| t["got"].as_str().unwrap_or_default().to_owned();
        (status == 1, trials.iter().map(|t| (question(t), said(t))).collect())
    }

    fn micro(&self, spec: &str) -> Value {
        let (status, found) = self.json(&["micro", spec, "--checkpoint", self.model.to_str().unwrap()]);
        assert!(status < 2, "{found:#}");
        let report = found["reports"][0].clone();
        let provenance = report["provenance"].as_str().unwrap();
        assert!(!provenance.contains("synthetic"), "{spec} is not measured on the lab: {provenance}");
        report
    }
}

/// Replaces every occurrence in a file, of which there is one at least.
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs_err::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from:?} is not in {}: {text}", path.display());
    fs_err::write(path, text.replace(from, to)).unwrap();
}

fn class_of(report: &Value, candidate: &str) -> String {
    let verdicts = report["verdicts"].as_array().unwrap();
    let verdict = verdicts.iter().find(|v| v["candidate"] == candidate).unwrap();
    verdict["class"].as_str().unwrap().to_owned()
}

/// Whether the microtest tells the twin from a right arithmetic.
fn caught(report: &Value, twin: &str) -> bool {
    let controls = report["controls"].as_array().unwrap();
    controls.iter().find(|c| c["name"] == twin).unwrap()["caught"] == true
}

/// How many of the questions have the same answer from both servers.
fn alike(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> usize {
    assert!(one.keys().eq(other.keys()), "other questions were asked: {one:#?} {other:#?}");
    one.iter().filter(|(question, said)| other[*question] == **said).count()
}

#[test]
fn a_server_is_wrong_where_the_microtest_says_broken_and_right_where_it_does_not() {
    let healthy = Server::with(&EXACT);
    let (symptom, right) = healthy.asked();
    assert!(!symptom && right.len() > 8, "{right:#?}");
    let [mixing, indexer, attention] = ["mhc-mix", "indexer", "decode-attention"].map(|spec| healthy.micro(spec));
    drop(healthy);

    // Mixing in bf16: another arithmetic, and the same answers.
    let class = class_of(&mixing, "bf16");
    assert!(["below-floor", "above-floor"].contains(&class.as_str()), "{class}: {mixing:#}");
    assert_eq!(
        mixing["decisions"].as_array().unwrap().iter().find(|d| d["candidate"] == "bf16").unwrap()["flips_beyond_floor"],
        0
    );
    let (symptom, got) = Server::with(&Arithmetic { mhc_gemm: "bf16", ..EXACT }).asked();
    assert!(!symptom, "{got:#?}");
    assert!(alike(&got, &right) + 1 >= right.len(), "{got:#?} {right:#?}");

    // Keys of the neighbouring page, and the lowest scores instead of the highest: caught, and the prompt is lost.
    assert!(caught(&indexer, "page-off") && caught(&attention, "page-off") && caught(&indexer, "sign-wrong"));
    for wrong in [Arithmetic { page_offset: 1, ..EXACT }, Arithmetic { score_sign: -1, ..EXACT }] {
        let (symptom, got) = Server::with(&wrong).asked();
        let alike = alike(&got, &right);
        assert!(symptom && 2 * alike < right.len(), "page {}, sign {}: {got:#?}", wrong.page_offset, wrong.score_sign);
    }

    // No twin is missed in any of the three, and none of their other candidates is another function.
    for report in [&mixing, &indexer, &attention] {
        assert!(report["controls"].as_array().unwrap().iter().all(|c| c["caught"] == true), "{report:#}");
        assert!(report["verdicts"].as_array().unwrap().iter().all(|v| v["class"] != "broken"), "{report:#}");
    }
}
