//! The script, run for real on this machine, over a folder with a checkout and a Python of its own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::remote::host::Host;
use crate::remote::probe::frame::{Section, take_apart};

const SECRET: &str = "hunter2-in-a-file";
const OWNER: &str = "import socket, time\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
                     print(s.getsockname()[1], flush=True)\ntime.sleep(600)\n";

struct Real {
    question: Question,
    answer: Vec<u8>,
    folder: tempfile::TempDir,
    pid: u32,
    /// Whether the index of the checkout was left as it was.
    index_kept: bool,
}

fn write(path: &Path, text: &str) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, text).unwrap();
}

fn git(folder: &Path, words: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=A", "-c", "user.email=a@example.invalid", "-c", "init.defaultBranch=main"])
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "git {words:?}");
}

fn shell(words: Vec<String>, dir: &Path) -> Vec<u8> {
    let mut sh = Command::new("sh")
        .args(["-s", "--"])
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut sh.stdin.take().unwrap(), SCRIPT.as_bytes()).unwrap();
    sh.wait_with_output().unwrap().stdout
}

static REAL: LazyLock<Real> = LazyLock::new(|| {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let path = |name: &str| root.join(name);
    // SHA-256 of nothing.
    const EMPTY: &str = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
    let site = path("venv/lib/python3.99/site-packages");
    write(&site.join("old_pkg-1.0.dist-info/RECORD"), &format!("pkg/same.py,{EMPTY},0\npkg/patched.py,{EMPTY},0\n"));
    write(&site.join("pkg/same.py"), "");
    write(&site.join("pkg/patched.py"), "");
    write(&path("run.sh"), &format!("export HF_TOKEN={SECRET}\n"));
    write(&path("model/config.json"), &format!("{{\"x\": \"{SECRET}\"}}"));
    write(&path("model/old.bin"), "");
    let src = path("src tree");
    for (name, text) in [
        ("kept.py", "1"),
        ("later.py", "1"),
        ("gone.py", "1"),
        ("a.bin", "1"),
        (".gitattributes", "*.bin filter=evil\n"),
    ] {
        write(&src.join(name), text);
    }
    git(&src, &["init", "-q"]);
    git(&src, &["add", "."]);
    git(&src, &["commit", "-q", "-m", "first"]);
    // Dates are in whole seconds, and the kernel's lag a little.
    std::thread::sleep(Duration::from_millis(1100));
    let since = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    write(&site.join("new_pkg-2.5.dist-info/METADATA"), SECRET);
    write(&site.join("pkg/patched.py"), SECRET);
    write(&path("run.sh"), &format!("export HF_TOKEN={SECRET}2\n"));
    write(&path("model/config.json"), &format!("{{\"y\": \"{SECRET}\"}}"));
    git(&src, &["-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "second"]);
    write(&src.join("later.py"), SECRET);
    write(&src.join("a.bin"), SECRET);
    write(&src.join("untracked \u{1b}[31m.py"), SECRET);
    write(&src.join("ext.so"), SECRET);
    fs_err::remove_file(src.join("gone.py")).unwrap();
    // Git itself runs such a filter when it commits, so that the traps are set last.
    for (key, value) in [
        ("filter.evil.clean", format!("touch '{}'; cat", path("ran-filter").display())),
        ("filter.evil.required", "true".into()),
        ("core.fsmonitor", format!("touch '{}'; false", path("ran-monitor").display())),
        ("gpg.program", format!("touch '{}'", path("ran-gpg").display())),
        ("log.showSignature", "true".into()),
    ] {
        git(&src, &["config", key, &value]);
    }

    // A wrapper that stands for Python would start another program than the one of this folder.
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    fs_err::create_dir_all(path("venv/bin")).unwrap();
    let program = path("venv/bin/python3");
    std::os::unix::fs::symlink(String::from_utf8(python.stdout).unwrap().trim(), &program).unwrap();
    // The start of a process is known to a second.
    std::thread::sleep(Duration::from_millis(1100));
    let mut child = Command::new(&program).args(["-c", OWNER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let text = |name: &str| path(name).display().to_string();
    let subject = Subject {
        name: "decode".into(),
        port: Some(line.trim().parse().unwrap()),
        starter: Starter::Unit("patchbench-none.service".into()),
        script: Some(text("run.sh")),
        checkout: Some(text("src tree")),
        checkpoint: Some(text("model")),
        modules: ["python/pkg/same.py", "python/pkg/patched.py", "later.py", "nowhere/x.py"].map(str::to_owned).into(),
    };
    let question = Question { host: "local".into(), since, subjects: vec![subject] };
    let index = || fs_err::read(src.join(".git/index")).unwrap();
    let before = index();
    let answer = shell(question.words("n1"), &root);
    let index_kept = before == index();
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    Real { question, answer, folder, pid, index_kept }
});

fn real() -> History {
    parse::parse(&REAL.answer, &REAL.question, "n1").unwrap()
}

/// Kind and text of what the target's changes say, with the folder left out.
fn told(history: &History) -> Vec<(Kind, String)> {
    let root = format!("{}/", REAL.folder.path().display());
    let mine = history.changes.iter().filter(|c| c.target.is_some());
    mine.map(|c| (c.kind, c.what.raw().replace(&root, ""))).collect()
}

#[test]
fn what_changed_here_is_told_and_what_did_not_is_not() {
    let history = real();
    let told = told(&history);
    let has = |kind: Kind, part: &str| told.iter().any(|(k, what)| *k == kind && what.contains(part));
    for (kind, part) in [
        (Kind::LaunchScript, "run.sh: changed"),
        (Kind::Checkpoint, "model/config.json: changed"),
        (Kind::Checkout, "commit: second, to "),
        (Kind::DirtyFile, "later.py differs from the commit"),
        (Kind::DirtyFile, "a.bin differs from the commit"),
        (Kind::BuiltExtension, "src tree/ext.so: changed"),
        (Kind::PythonPackage, "new_pkg 2.5 was installed"),
        (Kind::PythonPackage, "site-packages: an entry was added, removed or renamed"),
        (Kind::Module, "python/pkg/patched.py: changed; it is not as its wheel has it"),
        (Kind::Module, "later.py: changed"),
        (Kind::ServiceStart, &format!("process {} started", REAL.pid)),
    ] {
        assert!(has(kind, part), "no {kind:?} `{part}` in {told:#?}");
    }
    for part in ["old_pkg", "same.py", "old.bin", "first", "kept.py"] {
        assert!(!told.iter().any(|(_, what)| what.contains(part)), "`{part}` in {told:#?}");
    }
    assert!(history.changes.is_sorted_by_key(|c| c.at));
    assert!(history.changes.iter().all(|c| c.at.is_none_or(|at| at >= REAL.question.since)));
    let gaps: Vec<String> = history.gaps.iter().map(|g| format!("{}: {}", g.what, g.because)).collect();
    for gap in [
        "the module nowhere/x.py: the host could not read it: it was not found",
        "when gone.py changed",
        "go through a filter",
    ] {
        assert!(gaps.iter().any(|g| g.contains(gap)), "no `{gap}` in {gaps:#?}");
    }
}

#[test]
fn the_checkout_runs_nothing_of_its_own_and_stays_as_it_was() {
    assert!(REAL.index_kept);
    for name in ["ran-filter", "ran-monitor", "ran-gpg"] {
        assert!(!REAL.folder.path().join(name).exists(), "{name}");
    }
    assert!(!REAL.folder.path().join("src tree/.git/index.lock").exists());
}

#[test]
fn what_stands_in_files_does_not_leave_the_host() {
    let frame = take_apart(&REAL.answer, "n1").unwrap();
    assert!(frame.whole && frame.diagnostics.is_empty(), "{:?}", frame.diagnostics);
    for (name, section) in &frame.sections {
        if let Section::Read { bytes, .. } = section {
            assert!(!String::from_utf8_lossy(bytes).contains(SECRET), "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_torn_answer_has_gaps_where_changes_are_lost(share in 0.0..1.0_f64) {
        let cut = (REAL.answer.len() as f64 * share) as usize;
        let whole = real();
        if let Ok(torn) = parse::parse(&REAL.answer[..cut], &REAL.question, "n1") {
            prop_assert!(torn.gaps.iter().any(|g| g.because == "the answer broke off"));
            for change in &torn.changes {
                let known = whole.changes.iter().any(|c| (c.kind, c.at, &c.source) == (change.kind, change.at, &change.source));
                prop_assert!(known, "{:?} is only in the torn answer", change);
            }
            // What the whole answer tells of a kind and the torn one does not is named by a gap that the whole has not.
            if torn.changes.len() < whole.changes.len() {
                prop_assert!(torn.gaps.iter().filter(|g| !whole.gaps.contains(g)).count() > 1);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..2000), at in any::<prop::sample::Index>()) {
        let _ = parse::parse(&bytes, &REAL.question, "n1");
        let mut answer = REAL.answer.clone();
        let at = at.index(answer.len());
        answer.splice(at..(at + bytes.len().min(3)).min(REAL.answer.len()), bytes.into_iter().take(3));
        let _ = parse::parse(&answer, &REAL.question, "n1");
    }
}

#[tokio::test]
async fn this_machine_is_asked_by_the_same_script() {
    let place = Place { host: Host::Local, become_with: Vec::new() };
    let question = Question { host: "local".into(), since: Timestamp::now(), subjects: Vec::new() };
    let history = ask(&Hosts::default(), &place, &question, &CancellationToken::new()).await.unwrap();
    assert!(history.facts.booted_at.is_ok());
    assert!(history.facts.ahead.unwrap().as_secs().abs() < 60);
    let mute = Place { become_with: vec!["true".into()], ..place };
    let failure = ask(&Hosts::default(), &mute, &question, &CancellationToken::new()).await.unwrap_err();
    assert!(failure.message.contains("gave no answer"), "{}", failure.message);
}

#[test]
fn a_host_without_the_programs_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs_err::create_dir(&bin).unwrap();
    for tool in ["sh", "base64", "head", "tail", "tr", "cat", "readlink", "stat", "date", "uname", "id", "ls"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        std::os::unix::fs::symlink(String::from_utf8(found.stdout).unwrap().trim(), bin.join(tool)).unwrap();
    }
    // The script adds the usual folders to the path; here they would bring the programs back.
    let script = SCRIPT.replace(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "");
    assert_ne!(script, SCRIPT);
    let mut sh = Command::new(bin.join("sh"))
        .args(["-s", "--"])
        .args(REAL.question.words("n2"))
        .env("PATH", &bin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut sh.stdin.take().unwrap(), script.as_bytes()).unwrap();
    let answer = sh.wait_with_output().unwrap().stdout;
    let history = parse::parse(&answer, &REAL.question, "n2").unwrap();
    let gaps: Vec<String> = history.gaps.iter().map(|g| format!("{}: {}", g.what, g.because)).collect();
    for what in [
        "in the journal",
        "moves of the checkout",
        "compiled files in the checkout",
        "what `timeout` would show",
        "messages of the kernel",
    ] {
        let said = gaps.iter().any(|g| g.contains(what) && g.ends_with("is not on the host"));
        assert!(said, "no `{what}` in {gaps:#?}");
    }
    assert!(history.changes.iter().any(|c| c.kind == Kind::LaunchScript), "coreutils are enough for files");
}
