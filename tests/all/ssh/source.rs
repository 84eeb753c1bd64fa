//! A patch that its diff alone switches, on a git checkout behind sshd with a Python server that imports it: taken out
//! in a copy, proven, put back, and every step broken; the checkout stays bit for bit as it was.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::served::{Served, room};
use super::sshd::Sshd;
use super::{case_on, json, patchbench, skipped};
use crate::common::kill_in;

/// Every step of a toggle that takes a diff out.
const STEPS: [&str; 6] = ["lease", "copy-source", "write-override", "stop", "start", "prove"];

const LAUNCH: &str = r#"
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from miniserve.deep import arith

class H(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        known = {"/model_info": {"model_path": "m"}, "/server_info": {"tp_size": 1}}
        if self.path not in known: return self.send_error(404)
        self.answer(known[self.path])
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer({"text": f" scaled by {arith.scale()}", "meta_info": {}})

class Server(HTTPServer):
    allow_reuse_address = True

server = Server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), H)
print("The server is fired up and ready to roll!", flush=True)
server.serve_forever()
"#;

const CLEAN: &str = "\"\"\"Arithmetic.\"\"\"\n\n\ndef scale():\n    # Once.\n    return 1\n";
const PATCHED: &str = "\"\"\"Arithmetic.\"\"\"\n\n\ndef scale():\n    # Twice, as the kernel wants it.\n    return 2\n";

const PATCH: &str = r#"
[[patch]]
id = "scale-twice"
site = "python/miniserve/deep/arith.py"
gate = { reverse = "scale.diff" }
suspect = "on"
"#;

/// A checkout with a patch, its diff, a server that runs it, and an sshd in front.
struct Fork {
    served: Served,
    sshd: Sshd,
    case: PathBuf,
    before: String,
}

fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.fsmonitor=false"]).args(args);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Fork {
    /// `more` are lines of the launch script before the server.
    fn up(more: &str) -> Self {
        let (root, port) = room();
        let repo = root.path().join("fork");
        let deep = repo.join("python/miniserve/deep");
        fs_err::create_dir_all(&deep).unwrap();
        fs_err::write(repo.join("python/miniserve/__init__.py"), "").unwrap();
        fs_err::write(repo.join("python/miniserve/launch.py"), LAUNCH).unwrap();
        fs_err::write(deep.join("__init__.py"), "").unwrap();
        fs_err::write(deep.join("arith.py"), CLEAN).unwrap();
        fs_err::write(repo.join(".gitignore"), "__pycache__\n").unwrap();
        git(&repo, &["init", "-q"]);
        git(&repo, &["add", "-A"]);
        git(&repo, &["commit", "-qm", "upstream"]);
        fs_err::write(deep.join("arith.py"), PATCHED).unwrap();
        git(&repo, &["commit", "-qam", "scale twice"]);
        fs_err::write(root.path().join("scale.diff"), git(&repo, &["diff", "HEAD~1", "HEAD"])).unwrap();
        let here = root.path().display().to_string();
        let script = format!(
            "#!/bin/bash\nexport PYTHONPATH={here}/fork/python\n{}exec python3 -m miniserve.launch --port {port}\n",
            more.replace("HERE", &here)
        );
        let served = Served::start((root, port), &script, &format!("checkout = \"{here}/fork\""), PATCH);
        // What the host keeps of ours lies in a home of the test.
        let home = served.root.path().join("home");
        fs_err::create_dir(&home).unwrap();
        let sshd = Sshd::start(&format!("SetEnv HOME={}", home.display()));
        let case = case_on(&served.case(), "lab", "");
        let fork = Self { served, sshd, case, before: String::new() };
        Self { before: fork.checkout(), ..fork }
    }

    fn root(&self) -> &Path {
        self.served.root.path()
    }

    /// Every file of the checkout with its text, size and date, and what git says of it.
    fn checkout(&self) -> String {
        let repo = self.root().join("fork");
        let list = "find . -path ./.git -prune -o -name __pycache__ -prune -o -type f -print0 | sort -z | xargs -0 stat -c '%n %s %y %a'; \
             find . -path ./.git -prune -o -name __pycache__ -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";
        let output = Command::new("sh").args(["-c", list]).current_dir(&repo).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &git(&repo, &["status", "--porcelain"])
    }

    fn run(&self, args: &[&str]) -> (i32, Value) {
        json(self.root(), Some(&self.sshd), args)
    }

    fn change(&self, args: &[&str]) -> (i32, Value) {
        let case = self.case.to_str().unwrap();
        self.run(&[&args[..1], &[case], &args[1..], &["--yes"]].concat())
    }

    fn ours(&self) -> PathBuf {
        self.root().join("home/.local/state/patchbench/overrides")
    }

    fn copies(&self) -> usize {
        fs_err::read_dir(self.ours().join("trees")).map_or(0, Iterator::count)
    }

    /// The target as it was found: its server imports the checkout, which nobody touched, and nothing of ours is left.
    fn is_original(&self, when: &str) {
        assert_eq!(self.checkout(), self.before, "{when}");
        assert_eq!(self.copies(), 0, "{when}: a copy is left");
        let leases = fs_err::read_dir(self.ours().join("leases")).map_or(0, Iterator::count);
        assert_eq!(leases, 0, "{when}: a lease is left");
        let (_, truth) = self.run(&["truth", self.case.to_str().unwrap()]);
        assert_eq!(truth["targets"][0]["status"], "ready", "{when}: {truth:#}");
        assert_eq!(self.level(), (Value::from("on"), Value::from("live")), "{when}");
    }

    /// The level of the patch, and whether it acts, as they are read now.
    fn level(&self) -> (Value, Value) {
        let (_, patches) = self.run(&["patches", self.case.to_str().unwrap()]);
        let all = patches["patches"].as_array().unwrap();
        let state = &all.iter().find(|p| p["id"] == "scale-twice").unwrap()["state"][0];
        (state["level"].clone(), state["state"].clone())
    }
}

fn proof<'v>(end: &'v Value, about: &str) -> Option<&'v str> {
    let evidence = end["proofs"].as_array()?.last()?["evidence"].as_array()?;
    evidence.iter().find(|e| e["about"] == about)?["seen"].as_str()
}

#[test]
fn a_diff_is_taken_out_of_a_copy_proven_and_put_back() {
    if skipped("ssh").is_some() {
        return;
    }
    // Python shows by what it compiles that it took the file.
    let fork = Fork::up("unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX\n");
    let (status, plan) = fork.run(&["toggle", fork.case.to_str().unwrap(), "scale-twice", "off", "--plan"]);
    assert_eq!((status, &plan["outcomes"][0]), (0, &Value::from("discarded")), "{plan:#}");
    let notes = plan["procedures"][0]["notes"].to_string();
    assert!(notes.contains("is only read") && notes.contains("no kernel"), "{notes}");
    assert_eq!(fork.copies(), 0);

    for _ in 0..2 {
        let (status, off) = fork.change(&["toggle", "scale-twice", "off"]);
        assert_eq!((status, &off["outcomes"][0]), (0, &Value::from("completed")), "{off:#}");
        assert_eq!(proof(&off, "first-token"), Some("\" scaled by 1\""), "{off:#}");
        let imported = proof(&off, "imported:scale-twice").unwrap();
        assert!(imported.contains("miniserve/deep/arith.py") && imported.contains("compiled"), "{imported}");
        assert_eq!((fork.level(), fork.copies()), (("off".into(), "off".into()), 1));
        assert_eq!(fork.checkout(), fork.before);

        let (status, on) = fork.change(&["toggle", "scale-twice", "on"]);
        assert_eq!((status, proof(&on, "first-token")), (0, Some("\" scaled by 2\"")), "{on:#}");
    }
    let (status, back) = fork.change(&["restore"]);
    assert_eq!(status, 0, "{back:#}");
    fork.is_original("at the end");
}

/// Every step is broken only where there is time for that.
fn no_time() -> bool {
    let short = std::env::var_os("PATCHBENCH_LONG").is_none();
    if short {
        println!("SKIP source_steps: every step is broken by `scripts/test --long`, which sets PATCHBENCH_LONG");
    }
    short || skipped("ssh").is_some()
}

/// Kills a toggle in every step; `end` brings it to an end each time, and says so for a failure.
fn killed_in_every_step(end: impl Fn(&Fork, usize, &Path)) {
    let fork = Fork::up("");
    let args = ["toggle", fork.case.to_str().unwrap(), "scale-twice", "off", "--yes", "--quiet", "--json"];
    for (at, step) in STEPS.into_iter().enumerate() {
        let sessions = fork.root().join("sessions");
        let session = kill_in(patchbench(fork.root(), Some(&fork.sshd), &args), &sessions, step);
        end(&fork, at, &session);
        fork.is_original(step);
    }
}

#[test]
fn a_source_toggle_that_was_killed_in_any_step_is_put_back_by_restore() {
    if no_time() {
        return;
    }
    killed_in_every_step(|fork, at, _| {
        let (status, back) = fork.change(&["restore"]);
        assert_eq!(status, 0, "{}: {back:#}", STEPS[at]);
    });
}

#[test]
fn a_source_toggle_that_was_killed_in_any_step_is_undone_or_finished_by_its_session() {
    if no_time() {
        return;
    }
    killed_in_every_step(|fork, at, session| {
        let session = session.to_str().unwrap();
        let (way, now) = if at % 2 == 0 { ("--undo", "undone") } else { ("--finish", "completed") };
        let (status, end) = fork.run(&["session", "resume", session, way]);
        assert_eq!((status, end["half_done"][0]["now"].as_str()), (0, Some(now)), "{}: {end:#}", STEPS[at]);
        if now == "completed" {
            assert_eq!(fork.level().0, "off", "{}", STEPS[at]);
            let (status, back) = fork.change(&["restore"]);
            assert_eq!(status, 0, "{}: {back:#}", STEPS[at]);
        }
    });
}

#[test]
fn a_source_toggle_that_was_killed_in_any_step_is_put_back_by_the_host_alone() {
    if no_time() {
        return;
    }
    killed_in_every_step(|fork, at, _| {
        // What was sent to the host before the end of the program begins and ends first, also on a busy machine.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let alone = "cd leases/* 2>/dev/null || exit 0; sh restore.sh || exit 1; rm -rf \"$PWD\"";
        let mut sh = Command::new("sh");
        sh.args(["-c", &format!("cd {} || exit 0; {alone}", fork.ours().display())]);
        crate::common::without_secrets(&mut sh);
        let end = sh.stdin(Stdio::null()).output().unwrap();
        assert!(end.status.success(), "{}: {end:?}", STEPS[at]);
    });
}

#[test]
fn a_link_that_is_cut_in_any_step_of_a_source_toggle_is_mended() {
    if no_time() {
        return;
    }
    let fork = Fork::up("");
    let case = fork.case.to_str().unwrap();
    let args = ["toggle", case, "scale-twice", "off", "--yes", "--quiet", "--json"];
    for step in STEPS {
        let mut command = patchbench(fork.root(), Some(&fork.sshd), &args);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let (child, _) = crate::common::start_until(command, &fork.root().join("sessions"), step);
        fork.sshd.cut();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stdout));
        let (status, back) = fork.change(&["restore"]);
        assert_eq!(status, 0, "{step}: {back:#}");
        fork.is_original(step);
    }
}

#[test]
fn a_package_in_the_working_folder_comes_before_the_copy_and_the_change_is_taken_back() {
    if skipped("ssh").is_some() {
        return;
    }
    let fork = Fork::up("cd HERE/fork/python\n");
    let (status, end) = fork.change(&["toggle", "scale-twice", "off"]);
    let message = end["error"]["message"].as_str().unwrap_or_default();
    assert!(status != 0 && message.contains("asked to be `off`") && message.contains("`on`"), "{end:#}");
    assert_eq!(end["outcomes"][0], "undone", "{end:#}");
    let (status, back) = fork.change(&["restore"]);
    assert_eq!(status, 0, "{back:#}");
    fork.is_original("after the undo");
}

#[test]
fn what_cannot_be_taken_out_is_one_sentence_and_changes_nothing() {
    if skipped("ssh").is_some() {
        return;
    }
    let fork = Fork::up("");
    let refused = |part: &str| {
        let (status, end) = fork.change(&["toggle", "scale-twice", "off"]);
        let message = end["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(status != 0 && message.contains(part), "{part}: {end:#}");
        assert!(end["error"]["hint"].is_string(), "{end:#}");
        assert_eq!(fork.copies(), 0, "{part}");
    };
    let diff = fork.root().join("scale.diff");
    let text = fs_err::read_to_string(&diff).unwrap();
    fs_err::write(&diff, text.replace("return 2", "return 3")).unwrap();
    refused("can be neither taken out");
    fs_err::write(&diff, text.replace("deep/arith.py", "deep/kernel.so")).unwrap();
    refused("can be neither taken out");
    fs_err::write(&diff, text.replace("python/miniserve/deep/arith.py", "csrc/arith.cu")).unwrap();
    refused("compiled before the server starts");
    fs_err::write(&diff, "nothing of a diff\n").unwrap();
    refused("the diff of `scale-twice`");
    fs_err::remove_file(&diff).unwrap();
    refused("cannot be read");
    // Lines that stand there with and without it: git would take either.
    let file = fork.root().join("fork/python/miniserve/deep/arith.py");
    let block = |n: u32| format!("def scale():\n    # a\n    # b\n    return {n}\n    # c\n    # d\n    # e\n");
    fs_err::write(&file, format!("x = 0\n{}{}x = 0\n", block(1), block(2))).unwrap();
    let name = "python/miniserve/deep/arith.py";
    let hunk = "@@ -2,7 +2,7 @@\n def scale():\n     # a\n     # b\n-    return 1\n+    return 2\n     # c\n     # d\n     # e\n";
    fs_err::write(&diff, format!("diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n{hunk}")).unwrap();
    refused("its lines stand in more than one place");
    fs_err::write(&diff, &text).unwrap();
    // Somebody changed the file that the diff is of.
    fs_err::write(&file, PATCHED.replace("Twice", "Thrice")).unwrap();
    refused("can be neither taken out");
    // The checkout itself lacks it: that is the level `off`, and `on` is not for us to make.
    fs_err::write(&file, CLEAN).unwrap();
    assert_eq!(fork.level().0, Value::Null, "the file was changed after the start of what runs");
    let (status, end) = fork.change(&["toggle", "scale-twice", "on"]);
    assert!(status != 0 && end["error"]["message"].as_str().unwrap().contains("does not have"), "{end:#}");
    fs_err::remove_dir_all(fork.root().join("fork/python/miniserve")).unwrap();
    refused("is no folder on");
}
