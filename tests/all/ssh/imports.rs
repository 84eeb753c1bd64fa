//! Which file of a patched module a server imported: told from outside, and compared with what the server's own
//! interpreter says.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::served::{Served, room};
use super::skipped;

/// Imports a module, writes down where from, and serves.
const SERVER: &str = r#"
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pbsite.deep import kernel

with open(os.environ["PB_SAYS"], "w") as out: out.write(os.path.realpath(kernel.__file__))

class H(BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        known = {"/model_info": {"model_path": "m"}, "/server_info": {"tp_size": 1}}
        if self.path not in known: return self.send_error(404)
        body = json.dumps(known[self.path]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), H).serve_forever()
"#;

const SITE: &str = "python/pbsite/deep/kernel.py";

const PATCH: &str = r#"
[[patch]]
id = "kernel"
site = "python/pbsite/deep/kernel.py:12"
gate = { env = "PB_KERNEL", levels = { on = "1", off = { unset = true } } }
"#;

fn package(root: &Path, text: &str) {
    fs_err::create_dir_all(root.join("pbsite/deep")).unwrap();
    fs_err::write(root.join("pbsite/__init__.py"), "").unwrap();
    fs_err::write(root.join("pbsite/deep/__init__.py"), "").unwrap();
    fs_err::write(root.join("pbsite/deep/kernel.py"), text).unwrap();
}

/// A virtual environment, and its folder of packages.
fn environment(root: &Path) -> std::path::PathBuf {
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(root.join("venv")).status();
    assert!(made.unwrap().success());
    let mut found = fs_err::read_dir(root.join("venv/lib")).unwrap();
    found.next().unwrap().unwrap().path().join("site-packages")
}

/// Starts a server in a prepared folder; `how` is what stands between `exec` and the port.
fn served(prepare: impl FnOnce(&Path, &Path), before: &str, how: &str) -> Served {
    let (root, port) = room();
    let here = root.path().display().to_string();
    fs_err::write(root.path().join("server.py"), SERVER).unwrap();
    package(&root.path().join("fork/python"), "OURS = 1\n");
    let packages = environment(root.path());
    prepare(root.path(), &packages);
    let script = format!(
        "#!/bin/bash\nexport PB_SAYS={here}/says\n{}exec {} --port {port}\n",
        before.replace("HERE", &here),
        how.replace("HERE", &here)
    );
    Served::start((root, port), &script, &format!("checkout = \"{here}/fork\""), PATCH)
}

fn row(truth: &Value) -> &Value {
    let rows = truth["rows"].as_array().unwrap();
    let all: Vec<&Value> = rows.iter().filter(|r| r["component"] == "imports").collect();
    let [row] = all[..] else { panic!("{} rows: {all:#?}", all.len()) };
    assert_eq!((row["name"].as_str(), row["kind"].as_str()), (Some(SITE), Some("config")));
    row
}

fn checked(served: &Served, status: &str, note: &str) {
    let (_, truth) = served.truth();
    let row = row(&truth);
    let says = fs_err::read_to_string(served.root.path().join("says")).unwrap();
    assert_eq!(row["effective"]["value"], says, "the interpreter itself says otherwise: {row:#}");
    assert_eq!(row["status"], status, "{row:#}");
    assert!(row["note"].as_str().unwrap().contains(note), "{note} is not in {row:#}");
    let fork = fs_err::canonicalize(served.root.path().join("fork").join(SITE)).unwrap();
    assert_eq!(row["declared"]["value"].as_str().unwrap(), fork.to_str().unwrap());
}

const IN_VENV: &str = "HERE/venv/bin/python HERE/server.py";

#[test]
fn a_wheel_beside_the_checkout_was_taken_for_it() {
    if skipped("ssh").is_some() {
        return;
    }
    let wheel = |_: &Path, packages: &Path| package(packages, "THEIRS = 1\n");
    checked(&served(wheel, "", IN_VENV), "differs", "another file with another text than the checkout's: installed in");
    let same = |_: &Path, packages: &Path| package(packages, "OURS = 1\n");
    checked(&served(same, "", IN_VENV), "agrees", "another file with the same text: installed in");
    // The variable comes before the installed packages, and an empty part of it is the working folder.
    let before = "export PYTHONPATH=HERE/nothing:\ncd HERE/fork/python\n";
    checked(&served(wheel, before, IN_VENV), "agrees", "by `PYTHONPATH`");
}

#[test]
fn an_editable_installation_is_followed_to_the_checkout() {
    if skipped("ssh").is_some() {
        return;
    }
    let path = |root: &Path, packages: &Path| {
        fs_err::write(packages.join("__editable__.pbsite-1.pth"), format!("{}/fork/python\n", root.display())).unwrap();
    };
    checked(&served(path, "", IN_VENV), "agrees", "editable, by");
    // As setuptools writes it for a package that is not where its name says.
    let finder = |root: &Path, packages: &Path| {
        let mapped = format!("{}/fork/python/pbsite", root.display());
        let text = format!(
            "import sys\nfrom importlib.util import spec_from_file_location\nfrom pathlib import Path\n\
             MAPPING: dict[str, str] = {{'pbsite': '{mapped}'}}\n\
             class F:\n    @classmethod\n    def find_spec(cls, name, path=None, target=None):\n\
             \x20       if name in MAPPING:\n            where = MAPPING[name]\n\
             \x20           return spec_from_file_location(name, where + '/__init__.py', submodule_search_locations=[where])\n\
             def install(): sys.meta_path.append(F)\n"
        );
        fs_err::write(packages.join("__editable___pbsite_1_finder.py"), text).unwrap();
        let line = "import __editable___pbsite_1_finder; __editable___pbsite_1_finder.install()\n";
        fs_err::write(packages.join("__editable__.pbsite-1.pth"), line).unwrap();
    };
    checked(&served(finder, "", IN_VENV), "agrees", "_finder.py`");
}

#[test]
fn the_folder_of_the_start_comes_first() {
    if skipped("ssh").is_some() {
        return;
    }
    let wheel = |root: &Path, packages: &Path| {
        package(packages, "THEIRS = 1\n");
        fs_err::copy(root.join("server.py"), root.join("fork/python/server.py")).unwrap();
    };
    let beside = served(wheel, "", "HERE/venv/bin/python -u HERE/fork/python/server.py");
    checked(&beside, "agrees", "in the folder of its script");
    let module = served(wheel, "cd HERE/fork/python\nPATH=HERE/venv/bin:$PATH\n", "python -X dev -um server");
    checked(&module, "agrees", "in the folder of its script or its working folder");
    let isolated = served(wheel, "cd HERE/fork/python\n", "HERE/venv/bin/python -I HERE/server.py");
    checked(&isolated, "differs", "installed in");
}

#[test]
fn a_file_that_was_changed_after_the_start_is_not_what_runs() {
    if skipped("ssh").is_some() {
        return;
    }
    let served = served(|_, _| {}, "export PYTHONPATH=HERE/fork/python\n", IN_VENV);
    checked(&served, "agrees", "by `PYTHONPATH`");
    let file = served.root.path().join("fork").join(SITE);
    let touch = |date: &str| {
        let done = Command::new("touch").args(["-d", date]).arg(&file).stdin(Stdio::null()).status();
        assert!(done.unwrap().success());
    };
    touch("+1 hour");
    checked(&served, "differs", "after the start: the process does not run what the file says; by `PYTHONPATH`");
    touch("+1 minute");
    checked(&served, "unknown-because", "so that it was imported before or after that");
    // An older file that is copied over it keeps its date, and only its change of status tells.
    std::thread::sleep(std::time::Duration::from_secs(3));
    touch("2020-01-01");
    checked(&served, "unknown-because", "with the date of an older text");
}
