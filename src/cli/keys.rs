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
    /// The line that the key runs, as it is typed in the palette.
    pub run: String,
    /// What it does.
    pub doc: String,
    /// Where it works.
    pub scope: ScopeName,
    /// Whether the user's keymap says it.
    pub from_user: bool,
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

/// A key that is bound: the key, the line that it runs, whether the user's keymap says it.
pub type Bound = (String, String, bool);

/// Every key of `entries`, as the command table has it.
fn bound_by_table(entries: &[Entry]) -> Vec<Bound> {
    let rows = |entry: &Entry| {
        let name = entry.name.to_owned();
        entry.keys.iter().map(move |key| {
            let digit = key.len() == 1 && key.as_bytes()[0].is_ascii_digit();
            ((*key).to_owned(), if digit { format!("{name} {key}") } else { name.clone() }, false)
        })
    };
    entries.iter().flat_map(rows).collect()
}

/// The keys that are bound, in the order of `entries`.
pub fn keys_report(entries: &[Entry], bound: &[Bound]) -> KeysReport {
    let rows = |entry: &Entry| {
        let (name, doc, scope) = (entry.name, entry.doc, entry.scope.into());
        let of_entry = bound.iter().filter(move |(_, run, _)| run.split_whitespace().next() == Some(name));
        let row = move |(key, run, from_user): &Bound| KeyRow {
            key: key.clone(),
            command: name.to_owned(),
            run: run.clone(),
            doc: doc.to_owned(),
            scope,
            from_user: *from_user,
        };
        of_entry.map(row).collect::<Vec<_>>()
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

/// Answers `patchbench keys`: the keys that are bound, those of the table where no keymap is known.
///
/// The Markdown table is always that of the defaults: it is what documents show.
pub fn keys(bound: Option<Vec<Bound>>, as_markdown: bool, style: Style) -> Answer {
    let report = keys_report(TABLE, &bound.unwrap_or_else(|| bound_by_table(TABLE)));
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
        let own = if k.from_user { Cell::marked("yours", Mark::Good) } else { Cell::default() };
        vec![k.key.clone().into(), k.run.clone().into(), k.doc.clone().into(), Cell::marked(place, Mark::Dim), own]
    };
    let rows: Vec<Vec<Cell>> = report.keys.iter().map(row).collect();
    table(&["key", "runs", "what it does", "where", ""], &[], &rows, style)
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
        let keys: Vec<String> =
            keys_report(ENTRIES, &bound_by_table(ENTRIES)).keys.into_iter().map(|k| k.key).collect();
        assert_eq!(keys, ["t", "g g", "home"]);
        assert_eq!(commands_report(ENTRIES).commands.len(), 3);
    }

    #[test]
    fn the_keymap_of_the_user_was_not_printed() {
        let bound =
            vec![("x".to_owned(), "toggle a off".to_owned(), true), ("home".to_owned(), "top".to_owned(), false)];
        let report = keys_report(ENTRIES, &bound);
        let rows: Vec<_> = report.keys.iter().map(|k| (k.key.as_str(), k.run.as_str(), k.from_user)).collect();
        assert_eq!(rows, [("x", "toggle a off", true), ("home", "top", false)]);
        assert!(keys_text(&report, Style::PLAIN).contains("yours"));
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
