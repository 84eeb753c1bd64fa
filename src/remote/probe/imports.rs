//! Where a server would import the wanted modules from, as a probe lists it. Pure.
//!
//! The host lists every entry of the search path that has a module's package; which of them the process took is
//! told by `truth::imports`.

use jiff::Timestamp;

use super::frame::Frame;
use super::parse::{line, missing, odd, text};
use super::types::Reading;
use crate::remote::proc::Unknown;

/// The wanted modules of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Imports {
    /// The process that was looked at.
    pub pid: Reading<u32>,
    /// Whether it sees the same files as the probe does; not so in a container.
    pub same_files: Reading<bool>,
    /// The interpreter under the name that it was started under; unknown where the process is no Python.
    pub started: Reading<String>,
    /// Whether that name leads to the program that runs.
    pub name_is_sure: bool,
    /// Version of the interpreter as its folders are called, such as `3.11`.
    pub version: Reading<String>,
    /// Text of `pyvenv.cfg`; `None` outside of a virtual environment.
    pub venv: Option<String>,
    /// Whether the whole search path was listed.
    pub complete: bool,
    /// One for each wanted module, in the order of the question.
    pub modules: Vec<Module>,
}

/// One wanted module.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Its file in the checkout; `None` where there is no checkout.
    pub source: Option<FileAt>,
    /// Entries of the search path that have its package, in the order of the search.
    pub found: Vec<Found>,
}

/// One entry of the search path that has a module's package.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What kind of entry it is.
    pub entry: Entry,
    /// What stands there.
    pub what: What,
    /// The entry, or the folder that an editable installation maps the package to.
    pub folder: String,
    /// What added the entry: `PYTHONPATH`, a `.pth` file, a finder; empty where it stands in the path by itself.
    pub by: String,
    /// The module's own file there.
    pub file: FileAt,
    /// What `direct_url.json` says of the installation, where there is one.
    pub origin: Option<String>,
}

/// How an entry came into the search path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The folder of the script, or the working folder.
    Folder,
    /// `PYTHONPATH`.
    Variable,
    /// Packages of the virtual environment.
    Environment,
    /// Packages of the user.
    User,
    /// Packages of the interpreter.
    Base,
}

/// What an entry has of a module's package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A package, or the module itself.
    Package,
    /// A folder of its name without `__init__.py`, which counts only where no entry has a package.
    Namespace,
    /// A finder that is asked after the whole path.
    Finder,
}

/// A file by its canonical path.
#[derive(Clone, Debug, PartialEq)]
pub struct FileAt {
    /// The path without symbolic links.
    pub path: Reading<String>,
    /// Size and times; `None` is *there is no such file*.
    pub times: Reading<Option<Times>>,
    /// POSIX `cksum` of its text.
    pub sum: Reading<String>,
}

/// Size and times of a file, exact to a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Bytes.
    pub size: u64,
    /// Last change of the content; a copy may keep an older one.
    pub modified: Timestamp,
    /// Last change of content, name or rights.
    pub changed: Timestamp,
}

/// Reads what an answer says of `modules` modules, those with a `true` having a file in the checkout.
pub(super) fn read(frame: &Frame, with_source: &[bool]) -> Imports {
    let has = |name: &str| frame.sections.contains_key(name);
    let space = |name: &str| line(frame, name);
    let modules = with_source.iter().enumerate().map(|(number, source)| Module {
        source: source.then(|| file(frame, &format!("import.{number}.source"))),
        found: (0..).map_while(|at| found(frame, &format!("import.{number}.{at}"))).collect(),
    });
    Imports {
        pid: line(frame, "import.pid").and_then(|t| t.parse().map_err(|_| odd("import.pid", &t))),
        same_files: space("import.space").and_then(|there| Ok(there == space("import.own_space")?)),
        started: line(frame, "import.started"),
        name_is_sure: frame.whole && !has("import.unknown_name"),
        version: match line(frame, "import.unknown_version") {
            Ok(base) => Err(Unknown(format!("the version of the interpreter of `{base}` cannot be told"))),
            Err(_) => line(frame, "import.version"),
        },
        venv: text(frame, "import.venv").ok(),
        complete: has("import.end"),
        modules: modules.collect(),
    }
}

fn found(frame: &Frame, name: &str) -> Option<Found> {
    let part = |what: &str| line(frame, &format!("{name}.{what}"));
    let kind = part("kind").ok()?;
    let (entry, what) = kind.split_once(' ')?;
    Some(Found {
        entry: match entry {
            "folder" => Entry::Folder,
            "variable" => Entry::Variable,
            "environment" => Entry::Environment,
            "user" => Entry::User,
            "base" => Entry::Base,
            _ => return None,
        },
        what: match what {
            "package" => What::Package,
            "namespace" => What::Namespace,
            "finder" => What::Finder,
            _ => return None,
        },
        folder: part("folder").ok()?,
        by: part("by").ok()?,
        file: file(frame, name),
        origin: text(frame, &format!("{name}.origin")).ok(),
    })
}

fn file(frame: &Frame, name: &str) -> FileAt {
    let stat = format!("{name}.stat");
    let times = match frame.sections.get(&stat) {
        None => Err(missing(frame, &stat)),
        Some(super::frame::Section::Unread(super::frame::Unread::Gone(_))) => Ok(None),
        Some(_) => line(frame, &stat).and_then(|l| times(&l).map(Some).ok_or_else(|| odd(&stat, &l))),
    };
    FileAt { path: line(frame, &format!("{name}.file")), times, sum: line(frame, &format!("{name}.sum")) }
}

fn times(line: &str) -> Option<Times> {
    let mut words = line.split(' ').map(str::parse::<i64>);
    let mut next = || words.next()?.ok();
    let size = u64::try_from(next()?).ok()?;
    let mut time = || Timestamp::from_second(next()?).ok();
    Some(Times { size, modified: time()?, changed: time()? })
}
