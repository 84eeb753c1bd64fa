//! `ExecStart=`: its prefixes, its words, and the variables that systemd puts in. Pure.

use super::super::words::PlacedWord;
use super::super::{Declared, Place, Text, remark};
use super::syntax::Lines;
use super::words::{self, Word};

/// One command of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Characters in front of the program: `@`, `-`, `:`, `+`, `!`.
    pub(super) prefix: String,
    /// Its words, specifiers put in and variables not yet.
    pub(super) words: Vec<PlacedWord>,
    /// Where it begins.
    pub(super) place: Place,
}

/// The commands of a setting; more than one where a `;` stands alone.
pub(super) fn read(setting: &Lines, file: &str, unit: &str, out: &mut Declared) -> Vec<Command> {
    let place = Place::new(file, setting.line(0));
    let (split, trouble) = words::split(&setting.text, true);
    if let Some(why) = trouble {
        let message = format!("this command has {why} and is ignored");
        out.diagnostics.push(remark("unit-command", &message, &place));
        return Vec::new();
    }
    split
        .split(|w| w.text == ";" && !w.quoted)
        .filter(|part| !part.is_empty())
        .map(|part| command(part, setting, file, unit))
        .collect()
}

fn command(part: &[Word], setting: &Lines, file: &str, unit: &str) -> Command {
    let first = &part[0].text;
    let program = first.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let prefix = first[..first.len() - program.len()].to_owned();
    let mut words: Vec<PlacedWord> = part
        .iter()
        .enumerate()
        .map(|(i, w)| {
            let text = if i == 0 { program } else { &w.text };
            // `\;` is a semicolon of the command.
            let text = if text == "\\;" { ";" } else { text };
            PlacedWord::new(words::specifiers(text, unit), Place::new(file, setting.line(w.at)))
        })
        .collect();
    if prefix.contains('@') && words.len() > 1 {
        // The second word is only the name that the program is told.
        words.remove(1);
    }
    let place = Place::new(file, setting.line(part[0].at));
    Command { prefix, words, place }
}

/// Whether a command names a variable, as `$NAME` or `${NAME}`; `$$` is a dollar.
pub(super) fn uses(command: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    command.replace("$$", " ").split('$').skip(1).any(|rest| match rest.strip_prefix('{') {
        Some(braced) => braced.split('}').next() == Some(name),
        None => rest.split(|c| !is_name(c)).next() == Some(name),
    })
}

/// The words with the variables that the unit sets: `$NAME` alone is split into words, `${NAME}` never.
pub(super) fn substitute(command: &Command, variables: &Declared) -> Vec<PlacedWord> {
    if command.prefix.contains(':') {
        return command.words.clone();
    }
    let mut out = Vec::new();
    for (i, word) in command.words.iter().enumerate() {
        let Some(text) = word.known().filter(|t| i > 0 && t.contains('$')) else {
            out.push(word.clone());
            continue;
        };
        let alone = text.strip_prefix('$').filter(|n| !n.starts_with(['{', '$']));
        let Some(name) = alone else {
            out.push(PlacedWord { text: braces(text, variables), ..word.clone() });
            continue;
        };
        match value(name, variables) {
            Text::Known(value) => {
                let (words, _) = words::split(&value, true);
                out.extend(words.into_iter().map(|w| PlacedWord { text: Text::Known(w.text), ..word.clone() }));
            }
            Text::Unresolved { because, .. } => {
                let text = Text::Unresolved { raw: text.to_owned(), because };
                out.push(PlacedWord { text, splits: true, ..word.clone() });
            }
        }
    }
    out
}

fn value(name: &str, variables: &Declared) -> Text {
    match variables.variables.get(name).map(|v| &v.value) {
        Some(Some(text)) => text.clone(),
        Some(None) => Text::Known(String::new()),
        None => Text::Unresolved {
            raw: format!("${name}"),
            because: format!("`{name}` is set by no file of the unit, and the service manager may set it"),
        },
    }
}

/// `${NAME}` within a word; `$$` is a dollar, and a `$` in front of anything else stays.
fn braces(text: &str, variables: &Declared) -> Text {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let named = rest.strip_prefix('{').and_then(|r| r.split_once('}'));
        let Some((name, after)) = named.filter(|(n, _)| super::env_file::is_name(n)) else {
            out.push('$');
            continue;
        };
        match value(name, variables) {
            Text::Known(value) => out.push_str(&value),
            Text::Unresolved { because, .. } => return Text::Unresolved { raw: text.to_owned(), because },
        }
        rest = after;
    }
    out.push_str(rest);
    Text::Known(out)
}
