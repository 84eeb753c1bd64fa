//! What a script declares: the environment and the flags of the server, with their lines.

use super::{Effect, Script, Text, server};
use crate::engine::diagnostic::Diagnostic;
use crate::remote::argv::{self, FlagValue};
use crate::truth::declared::{Declared, Place};

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
        out.assign(&assign.name, Place::new(path, assign.line), value);
    }
    if let Some(server) = server {
        let words = server.argv();
        for word in words.iter().take(argv::program(&words)).flatten().filter(|w| argv::is_assignment(w)) {
            if let Some((name, value)) = word.split_once('=') {
                out.assign(name, Place::new(path, server.command.line), Some(Text::Known(value.to_owned())));
            }
        }
        for flag in argv::flags(&words) {
            let line = server.words[flag.word].line;
            let value = match flag.value {
                FlagValue::None => Text::Known(String::new()),
                FlagValue::Joined(value) => Text::Known(value),
                FlagValue::Words(range) => join(&server.words[range]),
            };
            out.give(&flag.name, Place::new(path, line), value);
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
