//! What a script declares: the environment and the flags of the server, with their lines.

use super::{Effect, Script, ScriptWord, Server, Text, server};
use crate::engine::diagnostic::Diagnostic;
use crate::truth::declared::command::{self, Reading};
use crate::truth::declared::container::Container;
use crate::truth::declared::words::PlacedWord;
use crate::truth::declared::{Declared, Files, Place, remarks};

/// Reads what a script declares. `port` tells servers apart where the script starts several.
pub fn declared(script: &Script, path: &str, port: Option<u16>) -> Declared {
    let files = Files::default();
    let mut out = declared_at(script, &|line| Place::new(path, line), Reading::new(port, &files));
    remarks::add(&mut out, None);
    out
}

/// Reads what every server of a script is started with, in order.
pub fn all_declared(script: &Script, path: &str) -> Vec<Declared> {
    let files = Files::default();
    let read = |server| of_server(script, &|line| Place::new(path, line), Some(server), Reading::new(None, &files)).0;
    server::candidates(script).into_iter().map(read).collect()
}

/// The containers that a script starts, in order.
pub fn containers(script: &Script, path: &str) -> Vec<Container> {
    let files = Files::default();
    let read = |server| of_server(script, &|line| Place::new(path, line), Some(server), Reading::new(None, &files)).1;
    server::candidates(script).into_iter().filter_map(read).collect()
}

/// The same as `declared` for a script that stands in another file; `place` tells where a line of it is.
pub fn declared_at(script: &Script, place: &dyn Fn(u32) -> Place, reading: Reading<'_>) -> Declared {
    match server::find(script, reading.port) {
        Ok(server) => {
            let (mut out, _) = of_server(script, place, Some(server.clone()), reading);
            let others: Vec<String> = server::candidates(script)
                .iter()
                .filter(|c| c.command.at != server.command.at)
                .map(|c| place(c.command.line).line.to_string())
                .collect();
            if !others.is_empty() {
                let at = place(server.command.line);
                let message = format!(
                    "the server on line {} is meant; others are started on lines {}",
                    at.line,
                    others.join(", ")
                );
                let mut remark = Diagnostic::warning("other-servers", message).at(at.file);
                remark.severity = crate::engine::diagnostic::Severity::Info;
                out.diagnostics.push(remark);
            }
            out
        }
        Err(failure) => {
            let (mut out, _) = of_server(script, place, None, reading);
            let mut remark = Diagnostic::warning("script-server", failure.message).at(place(1).file);
            remark.hint = failure.hint;
            out.diagnostics.push(remark);
            out
        }
    }
}

fn of_server(
    script: &Script,
    place: &dyn Fn(u32) -> Place,
    server: Option<Server<'_>>,
    reading: Reading<'_>,
) -> (Declared, Option<Container>) {
    let mut out = Declared::default();
    for range in &script.errors {
        let at = place(script.line(range.start));
        let at = format!("{}:{}", at.file, at.line);
        out.diagnostics.push(Diagnostic::warning("script-syntax", "this part of the script is not read").at(at));
    }
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
                because: format!("line {} sets it only in some runs", place(assign.line).line),
            }),
        };
        out.assign(&assign.name, place(assign.line), value);
    }
    let opaque: Vec<String> =
        script.opaque.iter().filter(|(at, _)| *at < end).map(|(_, l)| place(*l).line.to_string()).collect();
    if !opaque.is_empty() {
        out.blind_to = Some(format!("what lines {} bring in", opaque.join(", ")));
    }
    if let Some(server) = server {
        let words = server.words.iter().map(|w| placed(script, w, place)).collect();
        let container = command::declare(&mut out, words, reading);
        return (out, container);
    }
    (out, None)
}

fn placed(script: &Script, word: &ScriptWord, place: &dyn Fn(u32) -> Place) -> PlacedWord {
    let raw = &script.text[word.at.clone()];
    let all = raw.contains("[@]");
    let splits = word.value.known().is_none() && (all || (raw.contains(['$', '`']) && !raw.contains('"')));
    let last_line = place(script.line(word.at.end)).line;
    PlacedWord { text: word.value.clone(), place: place(word.line), last_line, splits }
}
