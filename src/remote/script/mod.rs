//! A bash launch script: what it declares, and a copy of it in which only the asked levels differ.
//!
//! Pure. Nothing is run and nothing is guessed: what cannot be placed exactly is a failure.

mod arithmetic;
pub mod claims;
pub mod edit;
mod parse;
mod server;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub use claims::{all_declared, containers, declared, declared_at};
pub use edit::{Ask, Edit, Override, header, make_override};
pub use parse::{parse, parse_in};
pub use server::Server;

use crate::engine::procedure::Failure;
use crate::truth::declared::Text;

/// How an assignment takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It sets the variable, unconditionally, in the script's own shell.
    Set,
    /// It unsets the variable, unconditionally.
    Unset,
    /// Whether or where it takes effect is not known: in a branch, a function, a subshell, with `+=`.
    Maybe,
    /// It makes the variable read-only.
    ReadOnly,
}

/// One assignment of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    /// Variable name.
    pub name: String,
    /// Its text.
    pub value: Text,
    /// Bytes of the value; empty where nothing follows the `=`.
    pub value_at: Range<usize>,
    /// Bytes of the whole assignment.
    pub at: Range<usize>,
    /// Line, counted from 1.
    pub line: u32,
    /// How it takes effect.
    pub effect: Effect,
    /// Whether the statement itself exports.
    pub exports: bool,
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptWord {
    /// Its text.
    pub value: Text,
    /// Its bytes.
    pub at: Range<usize>,
    /// Line, counted from 1.
    pub line: u32,
}

/// A simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Assignments in front of it, which are its own environment.
    pub prefix: Vec<Assign>,
    /// Its words, the name first; a word that is surely empty of words (`"$@"`) is left out.
    pub words: Vec<ScriptWord>,
    /// Where a statement can be inserted that takes effect before it.
    pub statement: usize,
    /// Bytes of the command.
    pub at: Range<usize>,
    /// Line of its name.
    pub line: u32,
    /// Whether a word follows one of its redirections, so that its end is not where it seems.
    pub tangled: bool,
}

/// A script, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The text.
    pub text: String,
    /// Assignments outside of commands, in order.
    pub assigns: Vec<Assign>,
    /// Names that are exported anywhere, and where: `export X` without a value.
    pub exported: BTreeMap<String, usize>,
    /// Commands, in order.
    pub commands: Vec<Command>,
    /// Elements of arrays that are assigned once, as a whole.
    pub arrays: BTreeMap<String, Vec<ScriptWord>>,
    /// Where the environment may change unseen: `source`, `eval`, calls of the script's functions; start and line.
    pub opaque: Vec<(usize, u32)>,
    /// Functions that the script defines.
    pub functions: BTreeSet<String>,
    /// Uses of `BASH_SOURCE` that mean the script itself.
    pub self_references: Vec<Range<usize>>,
    /// Lines with a use of `BASH_SOURCE` that an override cannot stand in for.
    pub strange_references: Vec<u32>,
    /// Bytes that could not be read as bash.
    pub errors: Vec<Range<usize>>,
    /// Whether everything that is assigned is exported (`set -a`), and from where on.
    pub all_exported_from: Option<usize>,
}

impl Script {
    /// Line of a byte offset, counted from 1.
    pub fn line(&self, offset: usize) -> u32 {
        line_of(&self.text, offset)
    }

    /// Whether an assignment reaches the environment of commands.
    pub fn reaches_environment(&self, assign: &Assign) -> bool {
        assign.exports
            || self.exported.contains_key(&assign.name)
            || self.assigns.iter().any(|a| a.name == assign.name && a.exports)
            || self.all_exported_from.is_some_and(|from| from < assign.at.start)
    }
}

/// Line of a byte offset, counted from 1.
pub(super) fn line_of(text: &str, offset: usize) -> u32 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    u32::try_from(before.split(|b| *b == b'\n').count()).unwrap_or(u32::MAX)
}

/// How a script is run: options for `bash` from its first line.
///
/// # Errors
/// The first line names another interpreter.
pub fn bash_options(text: &str, path: &str) -> Result<Vec<String>, Failure> {
    let Some(line) = text.strip_prefix("#!") else { return Ok(Vec::new()) };
    let line = line.lines().next().unwrap_or_default().trim();
    let mut words = line.split_whitespace();
    let mut program = words.next().unwrap_or_default();
    if program.ends_with("/env") {
        program = words.by_ref().find(|w| !w.starts_with('-')).unwrap_or_default();
    }
    if super::argv::base_name(program) != "bash" {
        return Err(Failure::new(format!("`{path}` is not a bash script: its first line asks for `{line}`"))
            .hint("name a bash launch script as the manager's `script`"));
    }
    Ok(words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
