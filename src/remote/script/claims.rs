//! What a script declares: the environment and the flags of the server, with their lines.

use std::collections::BTreeMap;

use super::{Effect, Script, Text, server};
use crate::engine::diagnostic::Diagnostic;
use crate::remote::argv::{self, FlagValue};

/// What a script declares about its server.
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
    /// What the script cannot show, in one clause; `None` where it shows everything that it does.
    pub blind_to: Option<String>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredVariable {
    /// The value that counts; `None` is unset.
    pub value: Option<Text>,
    /// Line that counts.
    pub line: u32,
    /// Every assignment with its line, in order; the last one counts.
    pub all: Vec<(u32, Option<Text>)>,
}

/// One flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredFlag {
    /// Flag with its dashes.
    pub name: String,
    /// The words that follow it, joined by spaces; the empty text where none does. The last use counts.
    pub value: Text,
    /// Line that counts.
    pub line: u32,
    /// Every use with its line, in order.
    pub all: Vec<(u32, Text)>,
}

/// Reads what a script declares. `port` tells servers apart where the script starts several.
pub fn declared(script: &Script, path: &str, port: Option<u16>) -> Declared {
    let mut out = Declared::default();
    for range in &script.errors {
        let place = format!("{path}:{}", script.line(range.start));
        out.diagnostics.push(Diagnostic::warning("script-syntax", "this part of the script is not read").at(place));
    }
    let server = match server::find(script, port) {
        Ok(server) => Some(server),
        Err(failure) => {
            let mut remark = Diagnostic::warning("script-server", failure.message).at(path);
            remark.hint = failure.hint;
            out.diagnostics.push(remark);
            None
        }
    };
    let end = server.as_ref().map_or(usize::MAX, |s| s.command.at.start);
    let own = server.iter().flat_map(|s| &s.command.prefix).map(|a| (a, true));
    for (assign, is_prefix) in script.assigns.iter().map(|a| (a, false)).chain(own) {
        if assign.at.start > end && !is_prefix {
            continue;
        }
        if !is_prefix && !script.reaches_environment(assign) && assign.effect != Effect::Unset {
            continue;
        }
        let value = match assign.effect {
            Effect::Set | Effect::ReadOnly => Some(assign.value.clone()),
            Effect::Unset => None,
            Effect::Maybe => Some(Text::Unresolved {
                raw: script.text[assign.at.clone()].to_owned(),
                because: format!("line {} sets it only in some runs", assign.line),
            }),
        };
        push_variable(&mut out.variables, &assign.name, assign.line, value);
    }
    if let Some(server) = server {
        let words = server.argv();
        for word in words.iter().take(argv::program(&words)).flatten().filter(|w| argv::is_assignment(w)) {
            if let Some((name, value)) = word.split_once('=') {
                push_variable(&mut out.variables, name, server.command.line, Some(Text::Known(value.to_owned())));
            }
        }
        for flag in argv::flags(&words) {
            let line = server.words[flag.word].line;
            let value = match flag.value {
                FlagValue::None => Text::Known(String::new()),
                FlagValue::Joined(value) => Text::Known(value),
                FlagValue::Words(range) => join(&server.words[range]),
            };
            match out.flags.iter_mut().find(|f| f.name == flag.name) {
                Some(before) => {
                    before.all.push((line, value.clone()));
                    (before.value, before.line) = (value, line);
                }
                None => out.flags.push(DeclaredFlag { name: flag.name, all: vec![(line, value.clone())], value, line }),
            }
        }
        let hidden: Vec<String> =
            server.words.iter().filter(|w| w.value.known().is_none()).map(|w| w.line.to_string()).collect();
        if !hidden.is_empty() {
            let message =
                format!("words of the server's command on lines {} are not known from the script", hidden.join(", "));
            out.diagnostics.push(Diagnostic::warning("script-unresolved", message).at(path));
        }
        out.argv = words;
    }
    let opaque: Vec<String> = script.opaque.iter().filter(|(at, _)| *at < end).map(|(_, l)| l.to_string()).collect();
    if !opaque.is_empty() {
        out.blind_to = Some(format!("what lines {} bring in", opaque.join(", ")));
    }
    out
}

fn push_variable(variables: &mut BTreeMap<String, DeclaredVariable>, name: &str, line: u32, value: Option<Text>) {
    let variable =
        variables.entry(name.to_owned()).or_insert_with(|| DeclaredVariable { value: None, line, all: Vec::new() });
    variable.all.push((line, value.clone()));
    (variable.value, variable.line) = (value, line);
}

fn join(words: &[super::ScriptWord]) -> Text {
    let mut out: Vec<&str> = Vec::new();
    for word in words {
        match &word.value {
            Text::Known(text) => out.push(text),
            unresolved @ Text::Unresolved { .. } => return unresolved.clone(),
        }
    }
    Text::Known(out.join(" "))
}
