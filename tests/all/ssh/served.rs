//! A Python server behind a launch script, with a case that names both.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::sshd::Sshd;
use super::{case_on, end_all_in, json};
use crate::common::without_secrets;

/// A server that runs; it ends with all its children when dropped.
pub(crate) struct Served {
    pub(crate) root: tempfile::TempDir,
    child: Child,
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server leads its session; its children are killed with it, whatever their titles say.
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        end_all_in(self.root.path());
        let _ = self.child.wait();
    }
}

/// A folder and a free port, before anything runs in them.
pub(crate) fn room() -> (tempfile::TempDir, u16) {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    (tempfile::tempdir().unwrap(), port)
}

impl Served {
    /// Runs a script in a session of its own, its output appended to `log`, and waits for the port. `target` is more
    /// of the case's target, `patches` what comes after it.
    pub(crate) fn start((root, port): (tempfile::TempDir, u16), script: &str, target: &str, patches: &str) -> Self {
        let path = |name: &str| root.path().join(name);
        let here = root.path().display();
        fs_err::write(path("serve.sh"), script).unwrap();
        let case = format!(
            "name = \"served\"\n[[target]]\nname = \"lab\"\nrole = \"monolithic\"\nengine = \"sglang\"\n\
             host = \"local\"\nurl = \"http://127.0.0.1:{port}\"\n\
             manager = {{ script = \"{here}/serve.sh\", log = \"{here}/log\" }}\n{target}\n{patches}"
        );
        fs_err::write(path("case.toml"), case).unwrap();
        let log = fs_err::OpenOptions::new().create(true).append(true).open(path("log")).unwrap().into_file();
        let mut command = Command::new("setsid");
        command.args(["bash", path("serve.sh").to_str().unwrap()]).stdin(Stdio::null());
        command.stdout(log).stderr(Stdio::inherit());
        without_secrets(&mut command);
        let mut served = Self { child: command.spawn().unwrap(), root };
        let until = Instant::now() + Duration::from_mins(1);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "the server does not come up");
            assert!(served.child.try_wait().unwrap().is_none(), "the server broke");
            std::thread::sleep(Duration::from_millis(50));
        }
        served
    }

    pub(crate) fn case(&self) -> PathBuf {
        self.root.path().join("case.toml")
    }

    /// What is read of it over ssh: the exit status and the report.
    pub(crate) fn truth(&self) -> (i32, Value) {
        let sshd = Sshd::start("");
        let far = case_on(&self.case(), "lab", "");
        json(self.root.path(), Some(&sshd), &["truth", far.to_str().unwrap()])
    }
}
