//! A host that really runs systemd, reached over ssh: a lab server behind a unit, a drop-in, a file of variables and a
//! wrapper, with disagreements that were planted, and without.
//!
//! `scripts/test --long` boots the host and names its ssh config in `PATCHBENCH_SYSTEMD_HOST`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::program;
use patchbench::lab::install;
use patchbench::lab::scenario::named;
use serde_json::Value;

const PORT: u16 = 30117;
const SECRET: &str = "hf_plantedsecret0123456789";

pub(crate) const UNIT: &str = "[Unit]\nDescription=lab server\nStartLimitIntervalSec=0\n\n[Service]\n\
    Environment=SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1 SGLANG_DEFAULT_THINKING=0\n\
    Environment=HF_TOKEN=hf_plantedsecret0123456789\nEnvironmentFile=/etc/default/lab\n\
    ExecStart=/bin/bash /srv/lab/serve.sh\n";

pub(crate) const WRAPPER: &str = "#!/bin/bash\n# lab server behind a unit\nexport SGLANG_SM120_MMA_FLASHMLA=1\n\
    export SGLANG_SM120_TRITON_INDEXER=1\nexec /srv/lab/patchbench lab serve \\\n\
    \x20 --deployment /srv/lab/lab.deployment --checkpoint /srv/lab/model \\\n\
    \x20 --served-model-name patchbench-lab --host 127.0.0.1 --port 30117 \\\n\
    \x20 --mhc-gemm bf16 --routed-scaling topk --chunked-prefill-size 256 --context-length 32768 \\\n\
    \x20 --enable-cache-report --enable-metrics\n";

pub(crate) struct Host {
    config: PathBuf,
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// There is one host, and one test at a time has it.
static ALONE: Mutex<()> = Mutex::new(());

impl Host {
    /// The host with a lab on it; `None` where none was booted.
    pub(crate) fn up() -> Option<Self> {
        let config = PathBuf::from(std::env::var_os("PATCHBENCH_SYSTEMD_HOST")?);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let host = Self { config, folder: tempfile::tempdir().unwrap(), _alone: alone };
        let made = install::install(host.folder.path(), &named("clean").unwrap(), 1, PORT, &program());
        made.unwrap();
        host.sh("rm -rf /etc/systemd/system/sglang-lab.service.d; mkdir -p /srv/lab/model");
        host.put(&program(), "/srv/lab/patchbench");
        host.put(&host.folder.path().join("lab.deployment"), "/srv/lab/lab.deployment");
        host.put(&host.folder.path().join("model/model.safetensors"), "/srv/lab/model/model.safetensors");
        host.sh("chmod +x /srv/lab/patchbench");
        host.write("/srv/lab/serve.sh", WRAPPER);
        host.write("/etc/systemd/system/sglang-lab.service", UNIT);
        host.write("/etc/default/lab", "SGLANG_LOG_MS=0\n");
        Some(host)
    }

    /// Lets an ordinary user in as well, by the same key; ssh knows the host as that user under the user's name.
    pub(crate) fn let_in(&mut self, user: &str) {
        self.sh(&format!(
            "id -u {user} >/dev/null 2>&1 || useradd -m -s /bin/sh {user}; usermod -p '*' {user}; \
             install -d -m 700 -o {user} -g {user} /home/{user}/.ssh; \
             install -m 600 -o {user} -g {user} /root/.ssh/authorized_keys /home/{user}/.ssh/authorized_keys"
        ));
        let text = fs_err::read_to_string(&self.config).unwrap();
        let other =
            text.replace("Host pbhost\n", &format!("Host {user}\n")).replace("User root\n", &format!("User {user}\n"));
        assert!(text != other && other.contains(&format!("User {user}\n")), "{text}");
        self.config = self.folder.path().join("ssh_config");
        fs_err::write(&self.config, format!("{text}\n{other}")).unwrap();
    }

    fn ssh(&self, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(&self.config).args(["-o", "BatchMode=yes", "pbhost", command]);
        ssh
    }

    pub(crate) fn sh(&self, command: &str) -> String {
        let end = self.ssh(command).stdin(Stdio::null()).output().unwrap();
        assert!(end.status.success(), "{command}: {}", String::from_utf8_lossy(&end.stderr));
        String::from_utf8_lossy(&end.stdout).into_owned()
    }

    fn feed(&self, input: Stdio, path: &str) {
        // Another file under the name, so that a program that runs is no hindrance.
        let command = format!("cat >{path}.new && mv {path}.new {path}");
        assert!(self.ssh(&command).stdin(input).status().unwrap().success(), "{path}");
    }

    fn put(&self, file: &Path, path: &str) {
        self.feed(fs_err::File::open(file).unwrap().into_parts().0.into(), path);
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let file = self.folder.path().join("text");
        fs_err::write(&file, text).unwrap();
        self.put(&file, path);
    }

    pub(crate) fn start(&self) {
        self.sh("systemctl daemon-reload; systemctl restart sglang-lab");
        let ready = "for i in $(seq 100); do journalctl -q -u sglang-lab -n 3 --no-pager -o cat \
                     _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID sglang-lab) | grep -q 'ready to roll' \
                     && exit 0; sleep 0.2; done; exit 1";
        self.sh(ready);
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let (mut command, root) = (Command::new(program()), self.folder.path());
        command.args(args).env("PATCHBENCH_SESSIONS", root.join("sessions"));
        command.env("XDG_STATE_HOME", root.join("state")).env("PATCHBENCH_SSH_CONFIG", &self.config);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn patchbench(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command(args).args(["--json", "--quiet"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), value)
    }
}

#[track_caller]
fn row<'v>(truth: &'v Value, name: &str) -> &'v Value {
    let rows = truth["rows"].as_array().unwrap();
    rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("no row {name}"))
}

#[track_caller]
fn check(truth: &Value, name: &str, status: &str, parts: &[&str]) {
    let row = row(truth, name);
    assert_eq!(row["status"], status, "{row:#}");
    let text = row.to_string();
    for part in parts {
        assert!(text.contains(part), "{part} is missing in {row:#}");
    }
}

fn disagreements(truth: &Value) -> Vec<String> {
    const BAD: [&str; 6] =
        ["differs", "conflicts-with", "accepted-but-off", "looks-misspelt", "unknown-to-this-version", "given-twice"];
    let rows = truth["rows"].as_array().unwrap().iter();
    rows.filter(|r| BAD.contains(&r["status"].as_str().unwrap())).map(|r| r["name"].to_string()).collect()
}

#[test]
fn a_unit_is_found_read_and_its_planted_disagreements_are_named() {
    let Some(host) = Host::up() else {
        println!("not run: `scripts/test --long` boots the host");
        return;
    };
    host.start();

    // What `init` writes is read without an edit, and a clean deployment has no disagreement.
    let case = host.folder.path().join("found.toml");
    let (status, init) = host.patchbench(&["init", "pbhost", "--out", case.to_str().unwrap()]);
    assert_eq!(status, 0, "{init:#}");
    let text = fs_err::read_to_string(&case).unwrap();
    assert!(text.contains("manager = { systemd = \"sglang-lab.service\" }"), "{text}");
    assert!(text.contains("production = true"), "{text}");
    let case = case.to_str().unwrap();
    let (status, clean) = host.patchbench(&["truth", case]);
    assert_eq!((status, disagreements(&clean)), (0, Vec::<String>::new()), "{clean:#}");
    assert_eq!(clean["targets"][0]["status"], "ready");
    check(&clean, "SGLANG_SM120_MMA_FLASHMLA", "agrees", &["/srv/lab/serve.sh", "/environ"]);
    check(&clean, "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH", "agrees", &["sglang-lab.service"]);
    check(&clean, "SGLANG_LOG_MS", "agrees", &["/etc/default/lab"]);
    check(&clean, "--mhc-gemm", "agrees", &["/srv/lab/serve.sh", "server_info"]);

    // Planted: a drop-in that loses to the wrapper, a file that beats the unit, a name that nothing reads, more requests
    // than the server's cache holds, a line of the log that the server's answer denies, and a wrapper that was changed
    // after the start.
    host.sh("mkdir -p /etc/systemd/system/sglang-lab.service.d");
    let drop_in = "[Service]\nEnvironment=SGLANG_SM120_TRITON_INDEXER=0 SGLANG_OPT_USE_TOKP_V2=1\n";
    host.write("/etc/systemd/system/sglang-lab.service.d/10-ab.conf", drop_in);
    host.write("/etc/default/lab", "SGLANG_DEFAULT_THINKING=1\n");
    let asking = WRAPPER
        .replace("exec /srv", "echo 'Setting page size to 32 for this card.'\nexec /srv")
        .replace("--enable-metrics", "--enable-metrics --max-total-tokens 4096 --max-running-requests 128");
    host.write("/srv/lab/serve.sh", &asking);
    host.start();
    let later = asking.replace("MMA_FLASHMLA=1", "MMA_FLASHMLA=0").replace("--mhc-gemm bf16", "--mhc-gemm fp32");
    host.write("/srv/lab/serve.sh", &later);
    let connections = "journalctl -q -u ssh -o cat --no-pager | grep -c 'Accepted publickey'";
    let before: u32 = host.sh(connections).trim().parse().unwrap();
    let (status, truth) = host.patchbench(&["truth", case]);
    let after: u32 = host.sh(connections).trim().parse().unwrap();
    assert_eq!(status, 1, "{truth:#}");
    assert_eq!(after - before, 2, "one connection for the truth, and one for this count");
    check(&truth, "SGLANG_SM120_TRITON_INDEXER", "given-twice", &["10-ab.conf:2", "/srv/lab/serve.sh"]);
    check(&truth, "SGLANG_DEFAULT_THINKING", "given-twice", &["/etc/default/lab", "sglang-lab.service:6"]);
    check(&truth, "SGLANG_SM120_MMA_FLASHMLA", "differs", &["\"0\"", "\"1\""]);
    check(&truth, "--mhc-gemm", "differs", &["fp32", "bf16"]);
    check(&truth, "SGLANG_OPT_USE_TOKP_V2", "looks-misspelt", &["SGLANG_OPT_USE_TOPK_V2"]);
    check(&truth, "--max-running-requests", "differs", &["\"128\"", "\"64\"", "/server_info"]);
    check(&truth, "--page-size", "differs", &["/server_info says `64`", "journal of sglang-lab.service line", "`32`"]);
    let mut planted = disagreements(&truth);
    planted.sort();
    assert_eq!(planted.len(), 7, "{planted:?}");

    // What changed since the first start: the unit was started again, and files are newer.
    let (status, changes) = host.patchbench(&["changes", case, "--since", "5min"]);
    assert_eq!(status, 1, "{changes:#}");
    let text = changes.to_string();
    for part in ["10-ab.conf", "/etc/default/lab", "/srv/lab/serve.sh"] {
        assert!(text.contains(part), "{part} is missing in {changes:#}");
    }

    // No secret of the unit is in anything that was written or answered.
    for value in [&init, &clean, &truth, &changes] {
        assert!(!value.to_string().contains(SECRET));
    }
    let written = Command::new("grep").args(["-rlF", SECRET]).arg(host.folder.path()).output().unwrap();
    let found = String::from_utf8_lossy(&written.stdout).into_owned();
    assert!(found.lines().all(|f| f.ends_with("/text")), "a secret was written: {found}");
}
