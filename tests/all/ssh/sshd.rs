//! A real sshd on a loopback port, with keys and files of its own; nothing of the user's is touched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the tests need and may not find: sshd and the client's tools.
pub(crate) fn missing() -> Option<&'static str> {
    let there = |name: &str| {
        let folders = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        folders.split(':').any(|f| Path::new(f).join(name).is_file())
    };
    ["sshd", "ssh", "ssh-keygen"].into_iter().find(|name| !there(name))
}

/// A running sshd; it is ended with all its sessions when dropped.
pub(crate) struct Sshd {
    pub(crate) root: tempfile::TempDir,
    pub(crate) port: u16,
    child: Child,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.cut();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// Starts one, with more lines for its config.
    pub(crate) fn start(more: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for key in ["host", "other_host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path(key));
            assert!(keygen.stdin(Stdio::null()).status().unwrap().success());
        }
        fs_err::copy(path("user.pub"), path("authorized_keys")).unwrap();
        let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {keys}\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nPrintMotd no\nLogLevel VERBOSE\n{more}\n",
            host = path("host").display(),
            keys = path("authorized_keys").display(),
        );
        fs_err::write(path("sshd_config"), config).unwrap();
        if rustix::process::getuid().is_root() {
            // Without this empty folder sshd refuses to start as root.
            fs_err::create_dir_all("/run/sshd").unwrap();
        }
        let program = ["/usr/sbin/sshd", "/usr/bin/sshd", "/sbin/sshd"].into_iter().find(|p| Path::new(p).exists());
        let child = Command::new(program.expect("sshd is there"))
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stdin(Stdio::null())
            .stderr(fs_err::File::create(path("log")).unwrap().into_file())
            .spawn()
            .unwrap();
        let sshd = Self { root, port, child };
        sshd.write_client_files();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "sshd does not come up: {}", sshd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write_client_files(&self) {
        let port = self.port;
        let known = |key: &str, file: &str| {
            let public = fs_err::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
            fs_err::write(self.path(file), format!("[127.0.0.1]:{port} {public}")).unwrap();
        };
        known("host", "known");
        known("other_host", "known_otherwise");
        fs_err::write(self.path("known_nothing"), "").unwrap();
        let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let host = |name: &str, key: &str, known: &str, port: u16, more: &str| {
            format!(
                "Host {name}\n HostName 127.0.0.1\n Port {port}\n User {}\n IdentityFile {}\n UserKnownHostsFile {}\n{more}\n",
                user.trim(),
                self.path(key).display(),
                self.path(known).display(),
            )
        };
        let config = [
            host("lab", "user", "known", port, ""),
            host("behind", "user", "known", port, " ProxyJump lab\n"),
            host("wrong-key", "stranger", "known", port, ""),
            host("changed", "user", "known_otherwise", port, ""),
            host("unknown", "user", "known_nothing", port, ""),
            host("closed", "user", "known", closed, ""),
            "Host *\n GlobalKnownHostsFile /dev/null\n IdentitiesOnly yes\n IdentityAgent none\n".into(),
        ]
        .concat();
        fs_err::write(self.client_config(), config).unwrap();
    }

    /// The ssh config with the hosts `lab`, `behind`, `wrong-key`, `changed`, `unknown` and `closed`.
    pub(crate) fn client_config(&self) -> PathBuf {
        self.path("ssh_config")
    }

    pub(crate) fn log(&self) -> String {
        fs_err::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// How many commands were run over all links since it started.
    pub(crate) fn commands(&self) -> usize {
        self.log().matches("Starting session: command").count()
            + self.log().matches("Starting session: forced-command").count()
    }

    /// Ends every connection without a word, as a cut cable does after a while.
    pub(crate) fn cut(&self) {
        for pid in descendants(self.child.id()) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn descendants(root: u32) -> Vec<u32> {
    use patchbench::remote::local;
    let all = local::processes();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(all.iter().filter(|p| p.ppid == parent).map(|p| p.key.pid));
        next += 1;
    }
    family.split_off(1)
}
