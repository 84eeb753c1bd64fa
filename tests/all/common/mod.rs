//! What several test files share.

#![allow(dead_code, unreachable_pub, reason = "without the terminal not everything is used")]

pub mod sparse;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use patchbench::case::{Case, Gate, LevelValue, Manager, Patch, Role, ServingEngine, Target};
use patchbench::engine::event::Happened;
use patchbench::engine::ids::InputId;
use patchbench::engine::input::{Actor, Body, Input};
use patchbench::engine::state::State;
use patchbench::engine::update::{Outcome, update};
use patchbench::session::format::{ChainHash, decode};
use patchbench::session::store;

/// The program under test: the one that `PATCHBENCH_BIN` names, else the one that this test was built with.
pub fn program() -> PathBuf {
    std::env::var_os("PATCHBENCH_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_patchbench")), PathBuf::from)
}

/// A case with one target `lab` and these patches, each with an env gate of levels `on` and `off`.
pub fn case(patches: &[&str]) -> Case {
    let target = Target {
        name: "lab".into(),
        role: Role::Monolithic,
        engine: ServingEngine::Sglang,
        host: "local".into(),
        become_with: None,
        url: "http://127.0.0.1:30002".into(),
        api_key: None,
        manager: Manager::Script { script: "serve_lab.sh".into(), log: "server.log".into() },
        launch_script: Some("serve_lab.sh".into()),
        checkpoint: None,
        checkout: None,
        production: false,
        readable_env: false,
    };
    Case {
        name: "lab-context-loss".into(),
        targets: vec![target],
        patches: patches.iter().map(|id| patch(id)).collect(),
        ..Case::default()
    }
}

/// A patch with an env gate of levels `on` and `off`.
pub fn patch(id: &str) -> Patch {
    let levels =
        BTreeMap::from([("on".to_owned(), LevelValue::Set("1".into())), ("off".to_owned(), LevelValue::Unset)]);
    Patch {
        id: id.into(),
        title: format!("the {id} change"),
        site: Some("indexer.py".into()),
        targets: Vec::new(),
        phases: vec!["extend".into(), "decode".into()],
        layers: None,
        gate: Gate::Env { name: format!("SGLANG_{}", id.to_uppercase().replace('-', "_")), levels },
        suspect: "on".into(),
        changes: BTreeMap::new(),
        microtest: None,
        requires: Vec::new(),
        excludes: Vec::new(),
    }
}

/// What comes of an input: a command of ann's, or a report of the program's.
pub fn step(state: &State, body: Body) -> Outcome {
    let actor = match &body {
        Body::Command(_) => Actor::driver("ann"),
        Body::Report(_) => Actor::program(),
    };
    update(state, &Input { id: InputId(1), at: Timestamp::UNIX_EPOCH, actor, body })
}

/// The state after inputs, one after the other.
pub fn after(state: &State, bodies: impl IntoIterator<Item = Body>) -> State {
    bodies.into_iter().fold(state.clone(), |state, body| step(&state, body).state)
}

/// The folders of the sessions that are there.
pub fn sessions_in(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs_err::read_dir(root) else { return Vec::new() };
    entries.flatten().map(|e| e.path()).collect()
}

/// Keeps the secrets of whoever runs the tests from a server that this command starts: a later restart over ssh
/// could not give them to it, and would be refused.
pub fn without_secrets(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_none_or(patchbench::redact::is_secret_name) {
            command.env_remove(name);
        }
    }
}

/// Starts a command and waits until the journal of its session says that this step has begun.
///
/// A session is known by its folder: while its journal is empty, a list by time puts it last.
pub fn start_until(mut command: Command, sessions: &Path, step: &str) -> (Child, PathBuf) {
    let known = sessions_in(sessions);
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < Duration::from_mins(1), "`{step}` never began");
        let new = sessions_in(sessions).into_iter().find(|s| !known.contains(s));
        if let Some(session) = new.filter(|s| begun(s).as_deref() == Some(step)) {
            return (child, session);
        }
        if let Some(end) = child.try_wait().unwrap() {
            let new = sessions_in(sessions).into_iter().find(|s| !known.contains(s));
            let journal = new.and_then(|s| fs_err::read_to_string(store::journal_path(&s)).ok()).unwrap_or_default();
            let last: Vec<&str> = journal.lines().rev().take(6).collect();
            panic!("the command ended before `{step}` began, {end}; newest events first:\n{}", last.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a command and kills it without warning once its session says that this step has begun.
pub fn kill_in(mut command: Command, sessions: &Path, step: &str) -> PathBuf {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, session) = start_until(command, sessions, step);
    child.kill().unwrap();
    child.wait().unwrap();
    session
}

/// The step that began last, by what is acknowledged in the journal.
fn begun(session: &Path) -> Option<String> {
    let bytes = fs_err::read(store::journal_path(session)).ok()?;
    let events = decode(&bytes, 0, ChainHash::start()).ok()?.events;
    let mut steps = Vec::new();
    let mut last = None;
    for event in &events {
        match &event.what {
            Happened::ProcedurePlanned { procedure } => {
                steps = procedure.steps.iter().map(|s| s.name.clone()).collect();
            }
            Happened::StepStarted { step, .. } => last = steps.get(*step).cloned(),
            _ => {}
        }
    }
    last
}

/// Ends every process that was started with a word under this folder.
pub fn end_all_in(root: &Path) {
    let root = root.to_str().unwrap().as_bytes();
    for process in patchbench::remote::local::processes() {
        let line = fs_err::read(format!("/proc/{}/cmdline", process.key.pid)).unwrap_or_default();
        if line.split(|b| *b == 0).any(|word| word.starts_with(root)) {
            let pid = rustix::process::Pid::from_raw(process.key.pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
