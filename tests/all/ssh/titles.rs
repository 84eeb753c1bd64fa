//! Servers that overwrite their own environment, as setproctitle does.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::served::{Served, room};
use super::skipped;

/// A launcher that owns the port, changes a variable and spawns a scheduler, as `SGLang` does; with
/// `--own-title`, the owner of the port sets a title too.
const SERVER: &str = r#"
import json, multiprocessing, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

class H(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        known = {"/model_info": {"model_path": "m"}, "/server_info": {"tp_size": 1}}
        if self.path not in known: return self.send_error(404)
        body = json.dumps(known[self.path]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)

def scheduler(started):
    import setproctitle
    setproctitle.setproctitle("sglang::scheduler_TP0")
    started.set()
    time.sleep(600)

if __name__ == "__main__":
    os.environ["PB_CHANGED"] = "by-python"
    os.environ["PB_NOISE"] = "x"
    if "--no-children" not in sys.argv:
        context = multiprocessing.get_context("spawn")
        started = context.Event()
        child = context.Process(target=scheduler, args=(started,), daemon=True)
        child.start()
        started.wait()
    if "--own-title" in sys.argv:
        import setproctitle
        setproctitle.setproctitle("sglang::server")
    HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), H).serve_forever()
"#;

const PATCHES: &str = r#"
[[patch]]
id = "changed"
gate = { env = "PB_CHANGED", levels = { on = "by-python", off = "by-script" } }
[[patch]]
id = "given"
gate = { env = "PB_GIVEN", levels = { on = "1", off = { unset = true } } }
[[patch]]
id = "absent"
gate = { env = "PB_ABSENT", levels = { on = "1", off = { unset = true } } }
"#;

struct Titled {
    truth: Value,
    _served: Served,
}

/// Where `scripts/test` puts the Python modules that the tests need.
fn modules() -> String {
    format!("{}/target/scripts/tools", env!("CARGO_MANIFEST_DIR"))
}

fn cannot_run(name: &str) -> bool {
    if skipped("ssh").is_some() {
        return true;
    }
    let mut python = Command::new("python3");
    python.args(["-c", "import setproctitle"]).env("PYTHONPATH", modules()).stderr(Stdio::null());
    let there = python.status().is_ok_and(|s| s.success());
    if !there {
        println!("SKIP {name}: Python's setproctitle is not there; scripts/test installs it");
    }
    !there
}

/// Starts the server with these flags and reads it over ssh.
fn served(flags: &str, launcher: &str) -> Titled {
    let (root, port) = room();
    fs_err::write(root.path().join("server.py"), SERVER).unwrap();
    let script = format!(
        "#!/bin/bash\nexport PB_CHANGED=by-script\nexport PB_GIVEN=1\nexport PYTHONPATH={}\n\
         exec {launcher}python3 {}/server.py --port {port}{flags}\n",
        modules(),
        root.path().display(),
    );
    let served = Served::start((root, port), &script, "", PATCHES);
    Titled { truth: served.truth().1, _served: served }
}

impl Titled {
    fn row(&self, component: &str, name: &str) -> &Value {
        let rows = self.truth["rows"].as_array().unwrap();
        rows.iter()
            .find(|r| r["component"] == component && r["name"] == name)
            .unwrap_or_else(|| panic!("no row {component} {name}: {}", self.truth))
    }

    fn processes(&self) -> &Vec<Value> {
        self.truth["targets"][0]["processes"].as_array().unwrap()
    }

    fn process(&self, role: &str) -> &Value {
        self.processes()
            .iter()
            .find(|p| p["role"] == role)
            .unwrap_or_else(|| panic!("no {role}: {:?}", self.processes()))
    }
}

#[test]
fn a_variable_that_the_server_changed_itself_is_seen_in_its_tracker() {
    if cannot_run("ssh_setproctitle") {
        return;
    }
    let served = served("", "");
    let scheduler = served.process("scheduler");
    assert_eq!(scheduler["ranks"], serde_json::json!(["TP0"]));
    assert_eq!(scheduler["environ"]["kind"], "unknown", "{scheduler}");
    assert!(scheduler["environ"]["because"].as_str().unwrap().contains("overwritten"), "{scheduler}");
    assert!(scheduler["started_at"].is_string());
    assert_eq!(served.process("resource_tracker")["environ"]["kind"], "yes");
    assert_eq!(served.processes()[0]["role"], "server");

    let started = served.row("server", "PB_CHANGED");
    assert_eq!(started["effective"]["value"], "by-script", "{started}");
    let changed = served.row("resource_tracker", "PB_CHANGED");
    assert_eq!(
        (changed["effective"]["value"].as_str(), changed["status"].as_str()),
        (Some("by-python"), Some("differs"))
    );
    assert!(changed["effective"]["source"].as_str().unwrap().contains("resource tracker"), "{changed}");
    assert_eq!(served.row("resource_tracker", "PB_NOISE")["status"], "one-source");
}

#[test]
fn an_overwritten_environment_is_read_from_the_tracker() {
    if cannot_run("ssh_setproctitle") {
        return;
    }
    let served = served(" --own-title", "");
    let row = served.row("server", "PB_CHANGED");
    assert_eq!(row["effective"]["value"], "by-python", "{row}");
    assert!(row["effective"]["source"].as_str().unwrap().contains("resource tracker"), "{row}");
    assert_eq!(served.row("server", "PB_GIVEN")["effective"]["value"], "1");
    assert_eq!(served.row("server", "PB_ABSENT")["effective"]["known"], "yes");
    let said = served.truth["diagnostics"].as_array().unwrap().iter().find(|d| d["code"] == "process-unread").unwrap();
    assert!(said["message"].as_str().unwrap().contains("overwritten"), "{said}");
}

#[test]
fn an_overwritten_environment_without_a_witness_is_unknown() {
    if cannot_run("ssh_setproctitle") {
        return;
    }
    let served = served(" --own-title --no-children", "");
    for name in ["PB_CHANGED", "PB_GIVEN", "PB_ABSENT"] {
        let row = served.row("server", name);
        assert_eq!(row["effective"]["known"], "unknown", "{row}");
        assert_eq!(row["effective"]["value"], Value::Null, "{row}");
    }
    let said = served.truth["diagnostics"].as_array().unwrap().iter().find(|d| d["code"] == "port-alone").unwrap();
    assert!(said["message"].as_str().unwrap().contains("sglang::server"), "{said}");
}

#[test]
fn what_a_launcher_does_not_show_is_unknown_and_not_unset() {
    if cannot_run("ssh_setproctitle") {
        return;
    }
    // `timeout` stays above the server in its session and is no shell.
    let served = served(" --own-title --no-children", "timeout 600 ");
    let given = served.row("server", "PB_GIVEN");
    assert_eq!(given["effective"]["value"], "1", "{given}");
    assert!(given["effective"]["source"].as_str().unwrap().contains("started the server"), "{given}");
    let absent = served.row("server", "PB_ABSENT");
    assert_eq!(
        (absent["effective"]["known"].as_str(), absent["status"].as_str()),
        (Some("unknown"), Some("unknown-because"))
    );
}
