//! What a target's own files say it is started with: the first of the three layers of truth.
//!
//! The types here are plain data and the readers are pure: text in, declaration out. Nothing is run and nothing is
//! guessed; what only the host can tell is *unresolved*.

pub mod chain;
pub mod command;
pub mod compose;
pub mod config;
pub mod container;
pub mod docker;
mod interpolate;
pub mod kubernetes;
pub mod quadlet;
pub mod remarks;
pub mod systemd;
pub mod words;
pub mod yaml;

use std::collections::BTreeMap;

use crate::engine::diagnostic::Diagnostic;
use crate::redact;
use crate::remote::argv;
use crate::truth::flags;

/// The text of a value as far as its file alone tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Known.
    Known(String),
    /// Not known without running something on the host.
    Unresolved {
        /// As it stands in the file.
        raw: String,
        /// Why, in one clause.
        because: String,
    },
}

impl Text {
    /// The text, if it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unresolved { .. } => None,
        }
    }
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Path of the file on its host.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
}

impl Place {
    /// A line of a file.
    pub fn new(file: &str, line: u32) -> Self {
        Self { file: file.to_owned(), line }
    }
}

/// What files declare about one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Variables that reach the server, by name.
    pub variables: BTreeMap<String, DeclaredVariable>,
    /// Flags of the server, in order of their first use.
    pub flags: Vec<DeclaredFlag>,
    /// The words of the server's command; empty where it was not found.
    pub argv: Vec<argv::Word>,
    /// What could not be followed.
    pub diagnostics: Vec<Diagnostic>,
    /// What the files cannot show, in one clause; `None` where they show everything that they do.
    pub blind_to: Option<String>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredVariable {
    /// The value that counts; `None` is unset.
    pub value: Option<Text>,
    /// Where it stands.
    pub place: Place,
    /// Every assignment with its place, in order; the last one counts.
    pub all: Vec<(Place, Option<Text>)>,
}

/// One flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredFlag {
    /// Flag with its dashes.
    pub name: String,
    /// The words that follow it, joined by spaces; the empty text where none does. The last use counts.
    pub value: Text,
    /// Where it stands.
    pub place: Place,
    /// Every use with its place, in order.
    pub all: Vec<(Place, Text)>,
}

impl Declared {
    /// Adds an assignment, which counts from now on; `None` unsets.
    pub fn assign(&mut self, name: &str, place: Place, value: Option<Text>) {
        let value = value.map(|v| without_secret_reason(name, v));
        let variable = self.variables.entry(name.to_owned()).or_insert_with(|| DeclaredVariable {
            value: None,
            place: place.clone(),
            all: Vec::new(),
        });
        variable.all.push((place.clone(), value.clone()));
        (variable.value, variable.place) = (value, place);
    }

    /// Adds a use of a flag, which counts from now on.
    pub fn give(&mut self, name: &str, place: Place, value: Text) {
        let value = without_secret_reason(name, value);
        if let Some(before) = self.flags.iter_mut().find(|f| f.name == name) {
            before.all.push((place.clone(), value.clone()));
            (before.value, before.place) = (value, place);
            return;
        }
        let all = vec![(place.clone(), value.clone())];
        self.flags.push(DeclaredFlag { name: name.to_owned(), value, place, all });
    }
}

impl Declared {
    /// Adds something that the files cannot show.
    pub fn blind(&mut self, to: &str) {
        let to = redact::text(to);
        match &mut self.blind_to {
            Some(before) if !before.contains(&to) => *before = format!("{before}, and {to}"),
            Some(_) => {}
            None => self.blind_to = Some(to),
        }
    }

    /// The last use of a flag, whichever of its spellings was used.
    pub fn flag(&self, name: &str) -> Option<&DeclaredFlag> {
        let key = flags::key(name);
        self.flags.iter().rev().find(|f| f.name == name || flags::key(&f.name) == key)
    }
}

/// The reason why a value is not known can quote its text or its default, which for a secret is a secret: of such a
/// reason only names are kept.
fn without_secret_reason(name: &str, value: Text) -> Text {
    let Text::Unresolved { raw, because } = value else { return value };
    if !redact::is_secret_name(name) {
        return Text::Unresolved { raw, because: redact::text(&because) };
    }
    let ground = because.split("; `").next().unwrap_or_default();
    let plain = ground.chars().all(|c| c.is_ascii_alphanumeric() || " `_:.,/-".contains(c));
    let because = if plain { ground.to_owned() } else { "it comes from the host".to_owned() };
    Text::Unresolved { raw, because }
}

/// One setting with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What is set.
    pub value: Text,
    /// Where.
    pub place: Place,
}

/// A file that another one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileText {
    /// Its text.
    Read(String),
    /// It does not exist.
    Absent,
    /// It could not be read, and why, in one clause.
    Unread(String),
}

/// Files that were read for their sake, by path as it stands in the naming file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<String, FileText>);

impl Files {
    /// The files with one more.
    #[must_use]
    pub fn with(mut self, path: &str, text: FileText) -> Self {
        self.0.insert(path.to_owned(), text);
        self
    }

    /// A file; one that was never asked for is not read.
    pub fn get(&self, path: &str) -> FileText {
        self.0.get(path).cloned().unwrap_or_else(|| FileText::Unread(format!("`{path}` was not read")))
    }
}

/// A warning about a place, without the secrets that its sentence might quote.
pub(crate) fn remark(code: &str, message: &str, place: &Place) -> Diagnostic {
    Diagnostic::warning(code, redact::text(message)).at(format!("{}:{}", place.file, place.line))
}

#[cfg(test)]
mod artefact_tests;
#[cfg(test)]
mod container_tests;
