//! The real server over a checkout: patches that no gate switches, in it and taken out of a copy.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use patchbench::lab::source::{PACKAGE, checkout};
use serde_json::Value;

use crate::common::{end_all_in, program};

/// A lab with sources in a folder of its own; its server is stopped when the test is over.
struct Lab {
    root: tempfile::TempDir,
    case: String,
    checkout: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        end_all_in(self.root.path());
    }
}

impl Lab {
    fn installed() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut lab = Self { root, case: String::new(), checkout: PathBuf::new() };
        let (folder, port) = (lab.root.path().join("lab"), free_port());
        let args = ["lab", "install", folder.to_str().unwrap(), "--scenario", "clean", "--source", "--port", &port];
        let (status, made) = lab.json(&args);
        assert_eq!(status, 0, "{made}");
        made["case"].as_str().unwrap().clone_into(&mut lab.case);
        // The shorter prompts show both, and in half the time.
        let text = fs_err::read_to_string(&lab.case).unwrap();
        assert!(text.contains("lengths = [1024, 2048]"), "{text}");
        fs_err::write(&lab.case, text.replace("lengths = [1024, 2048]", "lengths = [1024]")).unwrap();
        lab.checkout = PathBuf::from(made["checkout"].as_str().unwrap());
        lab
    }

    fn folder(&self) -> &Path {
        self.checkout.parent().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let root = self.root.path();
        let mut command = Command::new(program());
        command.args(args).env("PATCHBENCH_SESSIONS", root.join("sessions")).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", root.join("state")).env("XDG_CONFIG_HOME", root.join("config"));
        command
    }

    /// Runs a command with `--json`; returns its status and its one object.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).arg("--json").output().unwrap();
        let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"));
        (output.status.code().unwrap(), value)
    }

    /// Starts the server anew; returns what its log says that it read.
    fn restart(&self) -> Vec<String> {
        let log = self.folder().join("serve_lab.log");
        let before = fs_err::read_to_string(&log).unwrap_or_default().len();
        let (status, done) = self.json(&["restart", &self.case, "lab", "--yes"]);
        assert_eq!((status, done["outcomes"][0].as_str()), (0, Some("completed")), "{done}");
        let text = fs_err::read_to_string(&log).unwrap();
        let new = text.get(before..).unwrap_or(&text);
        new.lines().filter_map(|l| Some(l.split_once("] Loaded arithmetic from ")?.1.to_owned())).collect()
    }

    /// What the server says of itself, without what differs between two starts.
    fn server_info(&self) -> Value {
        let (case, _) = patchbench::case::read_file(Path::new(&self.case));
        let url = format!("{}/server_info", case.unwrap().targets[0].url);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let http = patchbench::serving::client::plain_http(reqwest::Client::builder().no_proxy()).unwrap();
        let answer = runtime.block_on(async { http.get(url).send().await.unwrap().text().await.unwrap() });
        serde_json::from_str(&answer).unwrap()
    }

    /// The text and the date of every file of the checkout.
    fn sources(&self) -> Vec<(String, std::time::SystemTime)> {
        let read = |path: &String| {
            (fs_err::read_to_string(path).unwrap(), fs_err::metadata(path).unwrap().modified().unwrap())
        };
        files(&self.checkout).iter().map(read).collect()
    }

    /// Starts a server from a tree that it cannot run.
    fn serve_broken(&self, tree: &Path) -> Output {
        let mut command = self.command(&["lab", "serve", "--port", &free_port()]);
        command.env("PYTHONPATH", tree.join(checkout::SEARCHED)).output().unwrap()
    }
}

fn free_port() -> String {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string()
}

fn file(tree: &Path, name: &str) -> PathBuf {
    tree.join(checkout::SEARCHED).join(PACKAGE).join(name)
}

fn files(tree: &Path) -> Vec<String> {
    ["indexer.py", "mhc.py", "moe.py", "cache.py"].map(|name| file(tree, name).display().to_string()).to_vec()
}

/// What the last proof of a change saw about one thing.
fn evidence<'v>(done: &'v Value, about: &str) -> Option<&'v str> {
    let all = done["proofs"].as_array()?.last()?["evidence"].as_array()?;
    all.iter().find(|e| e["about"] == about)?["seen"].as_str()
}

#[test]
fn a_patch_without_a_gate_loses_the_prompt_until_its_diff_is_taken_out_of_a_copy() {
    let lab = Lab::installed();
    assert_eq!(lab.restart(), files(&lab.checkout));
    let (status, recall) = lab.json(&["recall", &lab.case]);
    assert_eq!(status, 1, "{}", recall["symptom"]);
    let told = lab.server_info().to_string();
    assert!(!told.contains(PACKAGE) && !told.contains("fp8"), "{told}");

    // The diff is taken out of a copy for this server alone, then that of the harmless patch as well.
    let before = lab.sources();
    let (status, off) = lab.json(&["toggle", &lab.case, "index-page", "off", "--yes"]);
    assert_eq!((status, off["outcomes"][0].as_str()), (0, Some("completed")), "{off}");
    let imported = evidence(&off, "imported:index-page").unwrap();
    assert!(imported.contains("the log of the start names") && imported.contains("~index-page/patchlab"), "{imported}");
    let (status, recall) = lab.json(&["recall", &lab.case]);
    assert_eq!(status, 0, "the other patch of the tree is harmless: {}", recall["symptom"]);
    assert_eq!(recall["trials"][0]["arm"]["index-page@lab"], "off");
    let (status, both) = lab.json(&["toggle", &lab.case, "kv-fp8", "off", "--yes"]);
    let levels = &both["proofs"][0]["levels"];
    assert_eq!((status, &levels["index-page"], &levels["kv-fp8"]), (0, &"off".into(), &"off".into()), "{both}");
    assert!(evidence(&both, "imported:kv-fp8").unwrap().contains("~index-page~kv-fp8/"), "{both}");
    let (status, back) = lab.json(&["restore", &lab.case, "--yes"]);
    let levels = &back["proofs"][0]["levels"];
    assert_eq!((status, &levels["index-page"], &levels["kv-fp8"]), (0, &"on".into(), &"on".into()), "{back}");
    assert_eq!(lab.sources(), before);
    let copies = lab.root.path().join("state/patchbench/overrides/trees");
    assert_eq!(fs_err::read_dir(copies).map_or(0, Iterator::count), 0, "a copy is left");

    let broken = file(&lab.checkout, "indexer.py");
    let text = fs_err::read_to_string(&broken).unwrap();
    fs_err::write(&broken, format!("{text}PAGE_OFFSET = 1\n")).unwrap();
    let output = lab.serve_broken(&lab.checkout);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    let line = text.lines().count() + 1;
    let sentence = format!("cannot run `{}`, line {line}: `PAGE_OFFSET` is set again, after line 6", broken.display());
    assert!(error.contains(&sentence), "{error}");
}

#[test]
fn the_search_convicts_the_diff_and_acquits_every_other_patch() {
    if std::env::var_os("PATCHBENCH_LONG").is_none() {
        println!("SKIP source_search: a whole search runs in `scripts/test --long`, which sets PATCHBENCH_LONG");
        return;
    }
    let lab = Lab::installed();
    lab.restart();
    let before = lab.sources();
    let (status, found) = lab.json(&["isolate", &lab.case, "--yes", "lab"]);
    assert_eq!(status, 1, "{found:#}");
    let of = |verdict: &str| -> Vec<&str> {
        let all = found["verdicts"].as_array().unwrap().iter().filter(|v| v["verdict"] == verdict);
        all.filter_map(|v| v["subject"]["id"].as_str()).collect()
    };
    assert_eq!(of("guilty"), ["index-page"], "{found:#}");
    assert!(of("acquitted").contains(&"kv-fp8") && of("acquitted").len() == 6, "{found:#}");
    assert_eq!(lab.sources(), before);
}
