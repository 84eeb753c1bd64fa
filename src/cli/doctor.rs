//! `patchbench doctor`: what works on this machine.
//!
//! Responsible for looking and saying; it changes nothing that stays, and mends nothing.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
#[cfg(feature = "tui")]
use crate::engine::diagnostic::Diagnostic;
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::cuda::nvrtc::{self, Nvrtc};
use crate::kernel::cuda::{self, CardInfo, busy};
use crate::paths::Paths;

/// Free space below which a session may not fit.
const LEAST_FREE: u64 = 1 << 30;

/// What works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoctorReport {
    /// One per thing that was looked at.
    pub checks: Vec<Check>,
}

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub status: CheckStatus,
    /// What was seen, in one sentence.
    pub says: String,
    /// What the user can do.
    pub hint: Option<String>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStatus {
    /// It works.
    Ok,
    /// Something that uses it will not work.
    Warning,
    /// Nothing will work without it.
    Bad,
    /// This version does not look at it.
    NotLookedAt,
}

impl Report for DoctorReport {
    const NAME: &'static str = "doctor";
}

/// Answers `doctor`: something that is bad is a finding.
pub fn doctor(context: &Context) -> Answer {
    let mut checks = look(&context.paths);
    checks.extend(settings(context));
    let report = DoctorReport { checks };
    let bad = report.checks.iter().any(|c| c.status == CheckStatus::Bad);
    let text = text(&report, context.style);
    Answer::new(&report, if bad { Status::Finding } else { Status::Done }, text)
}

fn look(paths: &Paths) -> Vec<Check> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let term = std::env::var("TERM").unwrap_or_default();
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
        .unwrap_or_default();
    let mut checks = vec![
        terminal(std::io::stdout().is_terminal(), &term),
        characters(&locale),
        folder("sessions folder", &paths.sessions),
        folder("state folder", &paths.state),
        space(&paths.sessions),
    ];
    for (program, purpose) in PROGRAMS {
        checks.push(program_check(program, purpose, &search));
    }
    checks.push(lab_checkpoint());
    checks.extend(gpus());
    checks
}

/// Cards, their driver, and the compiler: what is missing keeps microtests from running on cards, and nothing else.
fn gpus() -> Vec<Check> {
    let mut checks = match cuda::cards() {
        Err(failure) => vec![check("gpu", CheckStatus::Warning, failure.message, failure.hint.as_deref())],
        Ok(cards) => cards.iter().map(gpu).collect(),
    };
    let places = nvrtc::places(&|name| std::env::var(name).ok());
    checks.push(match Nvrtc::load(&places) {
        Ok(found) => {
            let (major, minor) = found.version;
            check("nvrtc", CheckStatus::Ok, format!("{major}.{minor} at `{}`", found.place), None)
        }
        Err(failure) => {
            let says = format!("{}: built-in kernels come as PTX, which the driver compiles", failure.message);
            check("nvrtc", CheckStatus::Warning, says, failure.hint.as_deref())
        }
    });
    checks
}

/// One card, and whether somebody else computes on it.
fn gpu(card: &CardInfo) -> Check {
    let (device, memory) = (card.device(), busy::gib(card.memory));
    let capability = card.capability;
    let says = format!("{device}: {} (sm_{capability}), {memory}, driver {}", card.name, card.driver);
    match busy::free(card, &busy::ask(card)) {
        Ok(()) => check("gpu", CheckStatus::Ok, says, None),
        Err(failure) => {
            check("gpu", CheckStatus::Warning, format!("{says}; {}", failure.message), failure.hint.as_deref())
        }
    }
}

/// Configuration, theme, layouts and keymap.
fn settings(context: &Context) -> Vec<Check> {
    let file = context.config_file.display();
    let mut checks = vec![match &context.config_remark {
        Some(remark) => check("configuration", CheckStatus::Warning, remark.message.clone(), remark.hint.as_deref()),
        None if context.config_file.is_file() => {
            check("configuration", CheckStatus::Ok, format!("`{file}` can be read"), None)
        }
        None => check("configuration", CheckStatus::Ok, format!("`{file}` is not there: the defaults hold"), None),
    }];
    checks.push(check("theme", CheckStatus::Ok, format!("`{}`", context.config.text("theme")), None));
    checks.extend(of_the_screen(context));
    checks
}

#[cfg(feature = "tui")]
fn of_the_screen(context: &Context) -> Vec<Check> {
    let folder = context.paths.config.join("layouts");
    let (layouts, wrong) = crate::ui::layout::read::with_folder(&folder);
    let mut checks: Vec<Check> = wrong.iter().map(|d| of_remark("layouts", d)).collect();
    let wanted = context.config.text("layout");
    let names: Vec<&str> = layouts.iter().map(|l| l.name.as_str()).collect();
    checks.push(if names.contains(&wanted) {
        check("layout", CheckStatus::Ok, format!("`{wanted}` of {}", names.join(", ")), None)
    } else {
        let hint = format!("there are {}", names.join(", "));
        check("layout", CheckStatus::Warning, format!("there is no layout `{wanted}`"), Some(&hint))
    });
    match crate::cli::keymap::of_user(context) {
        Ok((_, wrong)) if wrong.is_empty() => {
            let path = crate::cli::keymap::path(context);
            let says = if path.is_file() {
                format!("every line of `{}` is used", path.display())
            } else {
                format!("`{}` is not there: the default keys hold", path.display())
            };
            checks.push(check("keymap", CheckStatus::Ok, says, None));
        }
        Ok((_, wrong)) => checks.extend(wrong.iter().map(|d| of_remark("keymap", d))),
        Err(failed) => {
            checks.push(check("keymap", CheckStatus::Warning, failed.error.message, failed.error.hint.as_deref()));
        }
    }
    checks
}

#[cfg(not(feature = "tui"))]
fn of_the_screen(_: &Context) -> Vec<Check> {
    vec![check("keymap", CheckStatus::NotLookedAt, "this program was built without a screen", None)]
}

#[cfg(feature = "tui")]
fn of_remark(name: &str, remark: &Diagnostic) -> Check {
    let says = match &remark.place {
        Some(place) => format!("{place}: {}", remark.message),
        None => remark.message.clone(),
    };
    check(name, CheckStatus::Warning, says, remark.hint.as_deref())
}

/// Programs that are started, and what does not work without them.
const PROGRAMS: &[(&str, &str)] = &[
    ("bash", "the lab and its launch scripts"),
    ("setsid", "starting a server that outlives this program"),
    ("ssh", "targets on other hosts"),
];

fn check(name: &str, status: CheckStatus, says: impl Into<String>, hint: Option<&str>) -> Check {
    Check { name: name.into(), status, says: says.into(), hint: hint.map(str::to_owned) }
}

fn terminal(is_terminal: bool, term: &str) -> Check {
    match (is_terminal, term) {
        (false, _) => check(
            "terminal",
            CheckStatus::Warning,
            "standard output is no terminal: the workbench cannot open here",
            Some("subcommands and `--headless` work without one"),
        ),
        (true, "" | "dumb") => check(
            "terminal",
            CheckStatus::Warning,
            format!("`TERM` is `{term}`: the workbench may not draw"),
            Some("set `TERM`, for example to `xterm-256color`"),
        ),
        (true, term) => check("terminal", CheckStatus::Ok, format!("a terminal of kind `{term}`"), None),
    }
}

fn characters(locale: &str) -> Check {
    let upper = locale.to_uppercase();
    if upper.contains("UTF-8") || upper.contains("UTF8") {
        return check("characters", CheckStatus::Ok, format!("the locale is `{locale}`"), None);
    }
    let says = format!("the locale `{locale}` does not say UTF-8");
    check("characters", CheckStatus::Warning, says, Some("set `LANG=C.UTF-8`, or use `--ascii`"))
}

/// Whether a file can be made in `path`, or in the nearest folder above it that exists.
fn folder(name: &str, path: &Path) -> Check {
    let place = nearest_existing(path);
    match tempfile::tempfile_in(&place) {
        Ok(_) => check(name, CheckStatus::Ok, format!("`{}` can be written", path.display()), None),
        Err(error) => check(
            name,
            CheckStatus::Bad,
            format!("`{}` cannot be written: {error}", place.display()),
            Some("set `PATCHBENCH_SESSIONS` or `XDG_STATE_HOME` to a folder of yours"),
        ),
    }
}

fn space(path: &Path) -> Check {
    let place = nearest_existing(path);
    match rustix::fs::statvfs(&place) {
        Err(error) => check("disk space", CheckStatus::Warning, format!("cannot be told: {error}"), None),
        Ok(stat) => space_check(stat.f_bavail.saturating_mul(stat.f_frsize)),
    }
}

fn space_check(free: u64) -> Check {
    let says = format!("{:.1} GiB free for sessions", free as f64 / f64::from(1 << 30));
    if free < LEAST_FREE {
        return check("disk space", CheckStatus::Warning, says, Some("free some space before a long investigation"));
    }
    check("disk space", CheckStatus::Ok, says, None)
}

fn program_check(program: &str, purpose: &str, search: &OsStr) -> Check {
    match find_program(program, search) {
        Some(path) => check(program, CheckStatus::Ok, format!("`{}`", path.display()), None),
        None => check(
            program,
            CheckStatus::Warning,
            format!("not found: {purpose} will not work"),
            Some("install it, or put its folder into `PATH`"),
        ),
    }
}

fn lab_checkpoint() -> Check {
    match Checkpoint::lab() {
        Ok(checkpoint) => {
            let says = format!("built in, {} tensors", checkpoint.names().len());
            check("lab checkpoint", CheckStatus::Ok, says, None)
        }
        Err(error) => check(
            "lab checkpoint",
            CheckStatus::Bad,
            format!("the built-in checkpoint is damaged: {error}"),
            Some("build the program from a clean checkout"),
        ),
    }
}

fn nearest_existing(path: &Path) -> PathBuf {
    // What exists may be a file: then nothing can be made there, and trying says so.
    path.ancestors().find(|p| p.exists()).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn find_program(program: &str, search: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search).map(|dir| dir.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs_err::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn text(report: &DoctorReport, style: Style) -> String {
    let cells = |check: &Check| {
        let (word, mark) = match check.status {
            CheckStatus::Ok => ("ok", Mark::Good),
            CheckStatus::Warning => ("warning", Mark::Warning),
            CheckStatus::Bad => ("bad", Mark::Bad),
            CheckStatus::NotLookedAt => ("not looked at", Mark::Dim),
        };
        vec![Cell::marked(word, mark), check.name.clone().into(), check.says.clone().into()]
    };
    let rows: Vec<Vec<Cell>> = report.checks.iter().map(cells).collect();
    let hints = report.checks.iter().filter_map(|c| Some((c.name.as_str(), c.hint.as_deref()?)));
    let hints = hints.map(|(name, hint)| format!("{} {name}: {hint}", style.hint("hint:")));
    std::iter::once(table(&[], &[], &rows, style)).chain(hints).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_yet_can_be_written_if_its_parent_can() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(folder("f", &dir.path().join("a/b")).status, CheckStatus::Ok);
        assert!(!dir.path().join("a").exists(), "looking made a folder");
    }

    #[test]
    fn a_folder_under_a_file_system_of_the_kernel_cannot_be_written() {
        let check = folder("f", Path::new("/proc/self/none"));
        assert_eq!(check.status, CheckStatus::Bad);
        assert!(check.hint.is_some());
    }

    #[test]
    fn a_folder_under_a_file_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("file"), "").unwrap();
        assert_eq!(folder("f", &dir.path().join("file/state")).status, CheckStatus::Bad);
    }

    #[test]
    fn terminals_are_told_apart() {
        assert_eq!(terminal(true, "xterm").status, CheckStatus::Ok);
        assert_eq!(terminal(true, "dumb").status, CheckStatus::Warning);
        assert_eq!(terminal(false, "xterm").status, CheckStatus::Warning);
        assert_eq!(characters("de_DE.utf8").status, CheckStatus::Ok);
        assert_eq!(characters("POSIX").status, CheckStatus::Warning);
    }

    #[test]
    fn a_program_is_found_only_if_it_can_be_run() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("ssh"), "").unwrap();
        assert_eq!(program_check("ssh", "x", dir.path().as_os_str()).status, CheckStatus::Warning);
        assert_eq!(program_check("sh", "x", OsStr::new("/nowhere:/bin")).status, CheckStatus::Ok);
    }

    #[test]
    fn little_space_is_a_warning() {
        assert_eq!(space_check(1 << 20).status, CheckStatus::Warning);
        assert_eq!(space_check(1 << 34).status, CheckStatus::Ok);
    }

    #[test]
    fn the_report_is_valid_and_says_what_there_is_of_cards() {
        let dir = tempfile::tempdir().unwrap();
        let answer = doctor(&context(dir.path(), crate::config::Config::default()));
        assert_eq!(answer.status, Status::Done);
        assert!(answer.text.contains("gpu") && answer.text.contains("nvrtc"), "{}", answer.text);
    }

    fn context(dir: &Path, config: crate::config::Config) -> Context {
        let paths = Paths::within(dir, dir, None);
        let config_file = paths.config_file();
        Context { config, paths, config_file, json: None, quiet: true, style: Style::PLAIN, config_remark: None }
    }

    #[cfg(feature = "tui")]
    #[test]
    fn broken_keymaps_layouts_and_names_were_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let env = [("PATCHBENCH_LAYOUT".to_owned(), "nosuch".to_owned())];
        let mut context = context(dir.path(), crate::config::Config::layered(None, env, []).unwrap());
        let layouts = context.paths.config.join("layouts");
        fs_err::create_dir_all(&layouts).unwrap();
        fs_err::write(layouts.join("mine.toml"), "doc = 3\n").unwrap();
        fs_err::write(context.paths.config.join("keymap.toml"), "[[bind]]\nkeys = \"x\"\nrun = \"no\"\n").unwrap();
        context.config_remark = Some(Diagnostic::warning("config", "config.toml:3: there is no setting `x`"));
        let checks = settings(&context);
        for name in ["configuration", "layouts", "layout", "keymap"] {
            let found = checks.iter().find(|c| c.name == name).unwrap();
            assert_eq!(found.status, CheckStatus::Warning, "{name}: {}", found.says);
        }
        assert!(checks.iter().any(|c| c.says.contains("keymap.toml:3")));
    }
}
