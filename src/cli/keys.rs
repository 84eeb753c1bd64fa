//! `patchbench keys` and `patchbench commands`: the command table, printed.
//!
//! The table itself is `engine::table`; nothing about an action is said here a second time.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::table::{Entry, Scope, TABLE};

/// Every key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeysReport {
    /// One row per key, in the order of the command table.
    pub keys: Vec<KeyRow>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeyRow {
    /// The key, or keys one after another with spaces between.
    pub key: String,
    /// Name of the action.
    pub command: String,
    /// What it does.
    pub doc: String,
    /// Where it works.
    pub scope: ScopeName,
}

/// Every action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommandsReport {
    /// One row per action, in the order of the command table.
    pub commands: Vec<CommandRow>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommandRow {
    /// Name, as typed in the palette and in a keymap.
    pub name: String,
    /// Arguments, in order.
    pub args: Vec<String>,
    /// What it does.
    pub doc: String,
    /// Default keys.
    pub keys: Vec<String>,
    /// Whether it changes something outside this program.
    pub destructive: bool,
    /// Where its keys work.
    pub scope: ScopeName,
}

/// Where keys work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeName {
    /// Everywhere outside a text input.
    Global,
    /// In lists and tables.
    List,
}

impl Report for KeysReport {
    const NAME: &'static str = "keys";
}

impl Report for CommandsReport {
    const NAME: &'static str = "commands";
}

impl From<Scope> for ScopeName {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Global => Self::Global,
            Scope::List => Self::List,
        }
    }
}

/// Every key of `entries`.
pub fn keys_report(entries: &[Entry]) -> KeysReport {
    let rows = |entry: &Entry| {
        let (command, doc, scope) = (entry.name.to_owned(), entry.doc.to_owned(), entry.scope.into());
        let row =
            move |key: &&str| KeyRow { key: (*key).to_owned(), command: command.clone(), doc: doc.clone(), scope };
        entry.keys.iter().map(row).collect::<Vec<_>>()
    };
    KeysReport { keys: entries.iter().flat_map(rows).collect() }
}

/// Every action of `entries`.
pub fn commands_report(entries: &[Entry]) -> CommandsReport {
    let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let row = |entry: &Entry| CommandRow {
        name: entry.name.to_owned(),
        args: owned(entry.args),
        doc: entry.doc.to_owned(),
        keys: owned(entry.keys),
        destructive: entry.destructive,
        scope: entry.scope.into(),
    };
    CommandsReport { commands: entries.iter().map(row).collect() }
}

/// The key table as Markdown: one row per action that has keys. The README holds it.
pub fn markdown(entries: &[Entry]) -> String {
    let mut out = String::from("| key | action | what it does |\n|---|---|---|\n");
    for entry in entries.iter().filter(|e| !e.keys.is_empty()) {
        let keys = entry.keys.iter().map(|key| code(key)).collect::<Vec<_>>().join(" ");
        let mark = if entry.destructive { " (asks first)" } else { "" };
        let _ = writeln!(out, "| {keys} | {} | {}{mark} |", code(entry.name), entry.doc.replace('|', "\\|"));
    }
    out
}

/// Answers `patchbench keys`.
pub fn keys(as_markdown: bool, style: Style) -> Answer {
    let report = keys_report(TABLE);
    let text = if as_markdown { markdown(TABLE).trim_end().to_owned() } else { keys_text(&report, style) };
    Answer::new(&report, Status::Done, text)
}

/// Answers `patchbench commands`.
pub fn commands(style: Style) -> Answer {
    let report = commands_report(TABLE);
    let text = commands_text(&report, style);
    Answer::new(&report, Status::Done, text)
}

/// Code in a Markdown table: a bar has to be escaped even there.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn keys_text(report: &KeysReport, style: Style) -> String {
    let row = |k: &KeyRow| {
        let place = if k.scope == ScopeName::List { "lists" } else { "" };
        vec![k.key.clone().into(), k.command.clone().into(), k.doc.clone().into(), Cell::marked(place, Mark::Dim)]
    };
    let rows: Vec<Vec<Cell>> = report.keys.iter().map(row).collect();
    table(&["key", "action", "what it does", "where"], &[], &rows, style)
}

fn commands_text(report: &CommandsReport, style: Style) -> String {
    let row = |c: &CommandRow| {
        let name = std::iter::once(c.name.clone()).chain(c.args.iter().cloned()).collect::<Vec<_>>().join(" ");
        let mark = if c.destructive { Cell::marked("changes a host", Mark::Warning) } else { Cell::default() };
        vec![name.into(), c.keys.join(", ").into(), c.doc.clone().into(), mark]
    };
    let rows: Vec<Vec<Cell>> = report.commands.iter().map(row).collect();
    table(&["action", "keys", "what it does", ""], &[], &rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: &[Entry] = &[
        Entry {
            name: "toggle",
            args: &["PATCH[@TARGET]", "LEVEL"],
            doc: "set a patch | level",
            keys: &["t"],
            destructive: true,
            scope: Scope::List,
        },
        Entry {
            name: "top",
            args: &[],
            doc: "go to the first row",
            keys: &["g g", "home"],
            destructive: false,
            scope: Scope::List,
        },
        Entry { name: "note", args: &["TEXT"], doc: "note", keys: &[], destructive: false, scope: Scope::Global },
    ];

    #[test]
    fn every_key_has_a_row() {
        let keys: Vec<String> = keys_report(ENTRIES).keys.into_iter().map(|k| k.key).collect();
        assert_eq!(keys, ["t", "g g", "home"]);
        assert_eq!(commands_report(ENTRIES).commands.len(), 3);
    }

    #[test]
    fn markdown_escapes_bars_and_marks_what_asks_first() {
        assert_eq!(
            markdown(ENTRIES),
            "| key | action | what it does |\n|---|---|---|\n\
             | `t` | `toggle` | set a patch \\| level (asks first) |\n\
             | `g g` `home` | `top` | go to the first row |\n"
        );
    }

    #[test]
    fn text_names_arguments_and_danger() {
        insta::assert_snapshot!(commands_text(&commands_report(ENTRIES), Style::PLAIN), @r"
        action                       keys       what it does
        toggle PATCH[@TARGET] LEVEL  t          set a patch | level  changes a host
        top                          g g, home  go to the first row
        note TEXT                               note
        ");
    }

    #[test]
    fn names_and_keys_of_the_real_table_are_unique() {
        let mut names: Vec<&str> = TABLE.iter().map(|e| e.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        let mut keys: Vec<(&str, bool)> =
            TABLE.iter().flat_map(|e| e.keys.iter().map(|k| (*k, e.scope == Scope::List))).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all, "a key has two actions in one scope");
    }
}
