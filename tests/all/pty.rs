//! The real binary in a real terminal: start, keys, resize, signals, and the terminal given back.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

const ENTER_ALTERNATE: &str = "\x1b[?1049h";
const LEAVE_ALTERNATE: &str = "\x1b[?1049l";

/// The workbench on a case whose server is not there.
struct Session {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn std::io::Write + Send>,
    screen: Arc<Mutex<(vt100::Parser, String)>>,
    _dir: tempfile::TempDir,
}

const CASE: &str = r#"
name = "nobody-home"
[[target]]
name = "lab"
role = "monolithic"
engine = "sglang"
host = "local"
url = "http://127.0.0.1:9"
manager = { script = "serve.sh", log = "server.log" }
[[patch]]
id = "triton-indexer"
title = "Triton kernel"
gate = { env = "SGLANG_SM120_TRITON_INDEXER", levels = { on = "1", off = { unset = true } } }
suspect = "on"
"#;

impl Session {
    fn start(columns: u16, lines: u16) -> Self {
        Self::start_with(columns, lines, &[])
    }

    /// `config` are files of the user's configuration folder.
    fn start_with(columns: u16, lines: u16, config: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in config {
            let path = dir.path().join("config/patchbench").join(name);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
        fs_err::write(dir.path().join("case.toml"), CASE).unwrap();
        fs_err::write(dir.path().join("serve.sh"), "#!/bin/bash\nexec sleep 1\n").unwrap();
        let size = PtySize { rows: lines, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_patchbench"));
        command.arg("case.toml");
        command.cwd(dir.path());
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        command.env("PATCHBENCH_SESSIONS", dir.path().join("sessions"));
        command.env("XDG_CONFIG_HOME", dir.path().join("config"));
        command.env("XDG_STATE_HOME", dir.path().join("state"));
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let size = |n| NonZero::new(n).unwrap();
        let parser = vt100::Parser::new(size(lines), size(columns), 0);
        let screen = Arc::new(Mutex::new((parser, String::new())));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let shared = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n) = reader.read(&mut bytes) {
                if n == 0 {
                    break;
                }
                let mut both = shared.lock().unwrap();
                both.0.process(&bytes[..n]);
                both.1.push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Self { child, master: pair.master, writer, screen, _dir: dir }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().0.screen().contents()
    }

    fn raw(&self) -> String {
        self.screen.lock().unwrap().1.clone()
    }

    fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let seconds = std::env::var("PATCHBENCH_TEST_WAIT_S").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
        let end = Instant::now() + Duration::from_secs(seconds);
        while !done(self) {
            assert!(Instant::now() < end, "{what} never came; the screen is\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn sees(&self, words: &str) {
        self.until(words, |s| s.text().contains(words));
    }

    fn types(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    fn ends(&mut self) -> u32 {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.exit_code();
            }
            assert!(Instant::now() < end, "it did not end; the screen is\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.process_id().unwrap().to_string();
        let done = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(done.success());
    }

    fn gave_the_terminal_back(&self) {
        self.until("the main screen", |s| s.raw().contains(LEAVE_ALTERNATE));
        let raw = self.raw();
        assert!(raw.contains(ENTER_ALTERNATE));
        assert!(raw.contains("\x1b[?2004l"), "bracketed paste is off again");
        assert!(raw.rfind("\x1b[?25h") > raw.rfind("\x1b[?25l"), "the cursor is shown again");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
    }
}

#[test]
fn start_and_quit() {
    let mut s = Session::start(100, 30);
    s.sees("nobody-home");
    s.sees("triton-indexer");
    s.types("q");
    assert_eq!(s.ends(), 0);
    s.gave_the_terminal_back();
}

#[test]
fn help_palette_and_escape() {
    let mut s = Session::start(100, 30);
    s.sees("triton-indexer");
    s.types("?");
    s.sees("Help: Patches");
    s.types("q:");
    s.sees("Command");
    s.types("layout kernels\r");
    s.sees("1 Kernels");
    s.types("q");
    assert_eq!(s.ends(), 0);
}

#[test]
fn resize_shows_and_hides() {
    let mut s = Session::start(100, 30);
    s.sees("triton-indexer");
    let size = |rows, cols| PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
    let set = |s: &Session, rows: u16, cols: u16| {
        s.screen.lock().unwrap().0.screen_mut().set_size(NonZero::new(rows).unwrap(), NonZero::new(cols).unwrap());
        s.master.resize(size(rows, cols)).unwrap();
    };
    set(&s, 10, 40);
    s.sees("make it larger");
    set(&s, 30, 100);
    s.sees("triton-indexer");
    s.types("q");
    assert_eq!(s.ends(), 0);
}

#[test]
fn a_note_survives_in_the_session() {
    let mut s = Session::start(100, 30);
    s.sees("triton-indexer");
    s.types("Nseen on friday\r");
    s.sees("note written");
    s.types(":focus notes\r");
    s.sees("seen on friday");
    s.types("q");
    assert_eq!(s.ends(), 0);
}

#[test]
fn pasted_text_runs_nothing() {
    let mut s = Session::start(100, 30);
    s.sees("triton-indexer");
    s.types("\x1b[200~qqq\r\x1b[201~");
    s.sees("pasted text is taken in inputs only");
    s.types("q");
    assert_eq!(s.ends(), 0);
}

#[test]
fn sigterm_and_sighup_give_the_terminal_back() {
    for name in ["TERM", "HUP"] {
        let mut s = Session::start(100, 30);
        s.sees("triton-indexer");
        s.signal(name);
        s.ends();
        s.gave_the_terminal_back();
    }
}

#[test]
fn a_broken_layout_and_keymap_are_said_and_the_screen_works() {
    let mut s = Session::start_with(140, 40, &[("layouts/overview.toml", "doc = 1\n")]);
    s.sees("overview.toml:1: layout `overview` is not used");
    s.types("q");
    assert_eq!(s.ends(), 0);
    let mut s = Session::start_with(140, 40, &[("keymap.toml", "[[bind]]\nkeys = \"x\"\nrun = \"explode\"\n")]);
    s.sees("keymap.toml:3: `run` names `explode`, which is no command");
    s.types("q");
    assert_eq!(s.ends(), 0);
}
