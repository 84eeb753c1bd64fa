//! From key sequences to actions: a trie, made from the command table and the user's `keymap.toml`.
//!
//! A binding runs one line in the palette's spelling, so that keys, palette and scripts say the same.
//! Not responsible for what a line means; see `action`.

use std::collections::BTreeMap;
use std::ops::Range;

use crokey::KeyCombination;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;
use toml::Spanned;

use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::table::{self, Scope, TABLE};

/// One key as the trie knows it: code and modifiers, with the shift of symbols taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Key {
    /// The key of a terminal event.
    ///
    /// Some terminals say shift with a symbol such as `?` and some do not; the symbol says it already.
    pub fn of(event: KeyEvent) -> Self {
        Self::from_combination(KeyCombination::from(event))
    }

    fn from_combination(combination: KeyCombination) -> Self {
        let code = *combination.codes.first();
        let mut modifiers = combination.modifiers;
        if matches!(code, KeyCode::Char(c) if !c.is_alphabetic()) || code == KeyCode::BackTab {
            modifiers.remove(KeyModifiers::SHIFT);
        }
        Self { code, modifiers }
    }

    /// Reads one key as it is written in the table: `j`, `R`, `ctrl-d`, `pagedown`, `?`.
    fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return Some(Self::of(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
        }
        let combination = crokey::parse(text).ok()?;
        if !combination.is_ansi_compatible() {
            return None;
        }
        Some(Self::from_combination(combination))
    }

    /// The key as it is written in the table and shown in the last line.
    pub fn spelled(self) -> String {
        let mut out = String::new();
        if self.modifiers.contains(KeyModifiers::CONTROL) {
            out.push_str("ctrl-");
        }
        if self.modifiers.contains(KeyModifiers::ALT) {
            out.push_str("alt-");
        }
        let letter = matches!(self.code, KeyCode::Char(c) if c.is_alphabetic());
        if self.modifiers.contains(KeyModifiers::SHIFT) && !letter {
            out.push_str("shift-");
        }
        match self.code {
            KeyCode::Char(' ') => out.push_str("space"),
            KeyCode::Char(c) => out.push(c),
            KeyCode::PageUp => out.push_str("pageup"),
            KeyCode::PageDown => out.push_str("pagedown"),
            KeyCode::F(n) => out = format!("{out}f{n}"),
            other => out = format!("{out}{other:?}").to_lowercase(),
        }
        out
    }
}

/// A line that a key sequence runs, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The sequence as written.
    pub keys: String,
    /// The line: `toggle`, `focus 3`, `layout recall`.
    pub run: String,
    /// Where the key works.
    pub scope: Scope,
    /// The user's keymap said it.
    pub from_user: bool,
}

/// What a sequence of keys means so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// It is bound.
    Bound(&'a Binding),
    /// It is the beginning of bound sequences.
    Pending,
    /// It means nothing.
    Nothing,
}

/// The trie, flat: a sequence is a path from node to node.
#[derive(Clone, Debug, Default)]
pub struct Keymap {
    nodes: Vec<Node>,
    bindings: Vec<Binding>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    next: Vec<(Key, usize)>,
    binding: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    bind: Vec<Spanned<FileBind>>,
    #[serde(default)]
    unbind: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBind {
    keys: Spanned<String>,
    run: Spanned<String>,
}

/// Why a sequence cannot be bound.
enum Clash {
    /// It is the beginning of another.
    Prefix(String),
    /// Another is the beginning of it.
    Hidden(String),
}

impl Keymap {
    /// The keys of the command table.
    pub fn from_table() -> Self {
        let mut map = Self { nodes: vec![Node::default()], bindings: Vec::new() };
        for entry in TABLE {
            for keys in entry.keys {
                let Some(path) = parse_sequence(keys) else { continue };
                let digit = keys.len() == 1 && keys.as_bytes()[0].is_ascii_digit();
                let run = if digit { format!("{} {keys}", entry.name) } else { entry.name.to_owned() };
                // The table is tested to be free of clashes.
                let _ =
                    map.insert(&path, Binding { keys: (*keys).to_owned(), run, scope: entry.scope, from_user: false });
            }
        }
        map
    }

    /// Lays the user's `keymap.toml` over the table's keys; what is wrong in it is said and left out.
    ///
    /// `name` is the file's name for the remarks.
    pub fn with_user(text: &str, name: &str) -> (Self, Vec<Diagnostic>) {
        let mut map = Self::from_table();
        let mut remarks = Vec::new();
        let file = match toml::from_str::<File>(text) {
            Ok(file) => file,
            Err(error) => {
                let line = error.span().map_or(1, |s| line_of(text, &s));
                remarks.push(
                    remark("keymap-unreadable", format!("the keymap is not used: {}", error.message()), name, line)
                        .hint("a binding is `[[bind]]` with `keys = \"g g\"` and `run = \"first\"`"),
                );
                return (map, remarks);
            }
        };
        for spanned in &file.unbind {
            let line = line_of(text, &spanned.span());
            match parse_sequence(spanned.get_ref()) {
                Some(path) if map.remove(&path) => {}
                Some(_) => remarks.push(remark(
                    "keymap-not-bound",
                    format!("`unbind` names `{}`, which is not bound", spanned.get_ref()),
                    name,
                    line,
                )),
                None => remarks.push(bad_key(spanned.get_ref(), "unbind", name, line)),
            }
        }
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for spanned in &file.bind {
            let bind = spanned.get_ref();
            let (keys, run) = (bind.keys.get_ref(), bind.run.get_ref());
            let line = line_of(text, &bind.keys.span());
            let Some(path) = parse_sequence(keys) else {
                remarks.push(bad_key(keys, "keys", name, line));
                continue;
            };
            let command = run.split_whitespace().next().unwrap_or("");
            let Some(entry) = table::entry(command) else {
                remarks.push(
                    remark(
                        "keymap-unknown-command",
                        format!("`run` names `{command}`, which is no command"),
                        name,
                        line_of(text, &bind.run.span()),
                    )
                    .hint("`patchbench commands` lists them"),
                );
                continue;
            };
            let spelled = path.iter().map(|k| k.spelled()).collect::<Vec<_>>().join(" ");
            if let Some(first) = seen.insert(spelled, line) {
                remarks.push(remark(
                    "keymap-bound-twice",
                    format!("`{keys}` was bound at line {first} already; this line counts"),
                    name,
                    line,
                ));
            }
            map.remove(&path);
            let binding = Binding { keys: keys.clone(), run: run.clone(), scope: entry.scope, from_user: true };
            if let Err(clash) = map.insert(&path, binding) {
                let message = match clash {
                    Clash::Prefix(other) => format!("`{keys}` is not bound: it is the beginning of `{other}`"),
                    Clash::Hidden(other) => format!("`{keys}` is not bound: `{other}` is its beginning"),
                };
                remarks.push(remark("keymap-conflict", message, name, line).hint("take the other away with `unbind`"));
            }
        }
        (map, remarks)
    }

    /// What `keys` mean so far.
    pub fn lookup(&self, keys: &[Key]) -> Lookup<'_> {
        match self.walk(keys) {
            None => Lookup::Nothing,
            Some(node) => match self.nodes[node].binding {
                Some(binding) => Lookup::Bound(&self.bindings[binding]),
                None if self.nodes[node].next.is_empty() => Lookup::Nothing,
                None => Lookup::Pending,
            },
        }
    }

    /// How a pending sequence can go on: the rest of the keys and the line they run.
    pub fn continuations(&self, keys: &[Key]) -> Vec<(String, &str)> {
        let Some(node) = self.walk(keys) else { return Vec::new() };
        let mut out = Vec::new();
        let mut open = vec![(node, String::new())];
        while let Some((node, so_far)) = open.pop() {
            for (key, next) in &self.nodes[node].next {
                let spelled = format!("{so_far}{}", key.spelled());
                if let Some(binding) = self.nodes[*next].binding {
                    out.push((spelled, self.bindings[binding].run.as_str()));
                } else {
                    open.push((*next, format!("{spelled} ")));
                }
            }
        }
        out.sort();
        out
    }

    /// The first key sequence that runs `run`, the user's before the table's.
    pub fn key_for(&self, run: &str) -> Option<&str> {
        let mut bound: Vec<_> = self.bound().filter(|b| b.run == run).collect();
        bound.sort_by_key(|b| !b.from_user);
        bound.first().map(|b| b.keys.as_str())
    }

    /// Every binding that is in force.
    pub fn bound(&self) -> impl Iterator<Item = &Binding> {
        self.nodes.iter().filter_map(|n| n.binding).map(|i| &self.bindings[i])
    }

    fn walk(&self, keys: &[Key]) -> Option<usize> {
        let mut node = 0;
        for key in keys {
            node = self.nodes[node].next.iter().find(|(k, _)| k == key)?.1;
        }
        Some(node)
    }

    fn insert(&mut self, path: &[Key], binding: Binding) -> Result<(), Clash> {
        let mut node = 0;
        for (i, key) in path.iter().enumerate() {
            if let Some(above) = self.nodes[node].binding
                && i > 0
            {
                return Err(Clash::Hidden(self.bindings[above].keys.clone()));
            }
            node = if let Some((_, next)) = self.nodes[node].next.iter().find(|(k, _)| k == key) {
                *next
            } else {
                self.nodes.push(Node::default());
                let next = self.nodes.len() - 1;
                self.nodes[node].next.push((*key, next));
                next
            };
        }
        let below = self.continuations(path);
        if let Some((rest, _)) = below.first() {
            return Err(Clash::Prefix(format!("{} {rest}", binding.keys)));
        }
        self.bindings.push(binding);
        self.nodes[node].binding = Some(self.bindings.len() - 1);
        Ok(())
    }

    fn remove(&mut self, path: &[Key]) -> bool {
        self.walk(path).is_some_and(|node| self.nodes[node].binding.take().is_some())
    }
}

fn parse_sequence(keys: &str) -> Option<Vec<Key>> {
    let path: Option<Vec<Key>> = keys.split_whitespace().map(Key::parse).collect();
    path.filter(|p| !p.is_empty())
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes().iter().take(span.start).filter(|b| **b == b'\n').count() + 1
}

fn remark(code: &str, message: String, name: &str, line: usize) -> Diagnostic {
    let mut d = Diagnostic::warning(code, message).at(format!("{name}:{line}"));
    d.severity = Severity::Warning;
    d
}

fn bad_key(keys: &str, field: &str, name: &str, line: usize) -> Diagnostic {
    remark("keymap-bad-key", format!("`{field}` says `{keys}`, which is no key"), name, line)
        .hint("keys are written `j`, `R`, `ctrl-d`, `pagedown`; a sequence with spaces, `g g`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(map: &Keymap, keys: &str) -> String {
        match map.lookup(&parse_sequence(keys).unwrap()) {
            Lookup::Bound(b) => b.run.clone(),
            Lookup::Pending => "pending".into(),
            Lookup::Nothing => "nothing".into(),
        }
    }

    fn check(text: &str, expect: &[(&str, &str)]) {
        let (_, remarks) = Keymap::with_user(text, "keymap.toml");
        let got: Vec<_> = remarks.iter().map(|d| (d.code.as_str(), d.place.as_deref().unwrap_or(""))).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn every_key_of_the_table_is_bound_without_clash() {
        let map = Keymap::from_table();
        let wanted: usize = TABLE.iter().map(|e| e.keys.len()).sum();
        assert_eq!(map.bound().count(), wanted);
        for entry in TABLE {
            for keys in entry.keys {
                assert!(run(&map, keys).starts_with(entry.name), "{keys}");
            }
        }
    }

    #[test]
    fn digits_carry_their_argument() {
        assert_eq!(run(&Keymap::from_table(), "3"), "focus 3");
    }

    #[test]
    fn capital_letters_differ_and_symbols_ignore_shift() {
        let map = Keymap::from_table();
        let press = |code, modifiers| Key::of(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('R'), KeyModifiers::SHIFT), press(KeyCode::Char('R'), KeyModifiers::NONE));
        assert_ne!(press(KeyCode::Char('r'), KeyModifiers::NONE), press(KeyCode::Char('R'), KeyModifiers::NONE));
        let shifted = press(KeyCode::Char('?'), KeyModifiers::SHIFT);
        assert!(matches!(map.lookup(&[shifted]), Lookup::Bound(b) if b.run == "help"));
        assert_eq!(run(&map, "shift-left"), "focus-left");
    }

    #[test]
    fn a_sequence_is_pending_until_it_is_whole() {
        let map = Keymap::from_table();
        assert_eq!(run(&map, "g"), "pending");
        assert_eq!(run(&map, "g g"), "first");
        assert_eq!(run(&map, "g x"), "nothing");
        assert_eq!(map.continuations(&parse_sequence("g").unwrap()), vec![("g".to_owned(), "first")]);
    }

    #[test]
    fn keys_are_spelled_as_they_are_written() {
        for keys in ["j", "R", "ctrl-d", "pagedown", "space", "?", "shift-left", "backtab", "esc", "f5", "enter"] {
            assert_eq!(Key::parse(keys).unwrap().spelled(), keys);
        }
    }

    #[test]
    fn user_bindings_replace_and_add() {
        let text = "unbind = [\"t\"]\n[[bind]]\nkeys = \"j\"\nrun = \"page-down\"\n[[bind]]\nkeys = \"g l r\"\nrun = \"layout recall\"\n";
        let (map, remarks) = Keymap::with_user(text, "keymap.toml");
        assert_eq!(remarks, []);
        assert_eq!(run(&map, "t"), "nothing");
        assert_eq!(run(&map, "j"), "page-down");
        assert_eq!(run(&map, "g l r"), "layout recall");
        assert_eq!(run(&map, "g g"), "first");
        assert_eq!(map.key_for("page-down"), Some("j"));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        check("[[bind]]\nkeys = \"x\"\nrun = \"explode now\"\n", &[("keymap-unknown-command", "keymap.toml:3")]);
        check("[[bind]]\nkeys = \"hyper-q\"\nrun = \"quit\"\n", &[("keymap-bad-key", "keymap.toml:2")]);
        check("\nunbind = [\"f9\"]\n", &[("keymap-not-bound", "keymap.toml:2")]);
        check("[[bind]]\nkeys = \"g\"\nrun = \"quit\"\n", &[("keymap-conflict", "keymap.toml:2")]);
        check("[[bind]]\nkeys = \"q q\"\nrun = \"quit\"\n", &[("keymap-conflict", "keymap.toml:2")]);
        check("[[bind]]\nkees = \"q\"\n", &[("keymap-unreadable", "keymap.toml:2")]);
        check("[[bind]\n", &[("keymap-unreadable", "keymap.toml:1")]);
        check(
            "[[bind]]\nkeys = \"x\"\nrun = \"quit\"\n[[bind]]\nkeys = \"x\"\nrun = \"help\"\n",
            &[("keymap-bound-twice", "keymap.toml:5")],
        );
    }

    #[test]
    fn a_broken_keymap_leaves_the_default_keys() {
        let (map, _) = Keymap::with_user("[[bind]\n", "keymap.toml");
        assert_eq!(run(&map, "q"), "quit");
    }
}
