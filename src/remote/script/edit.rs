//! Makes an override: the script's text with the asked levels, everything else as it was.

use std::ops::Range;

use super::server::{self, Server};
use super::{Assign, Effect, Script, ScriptWord, bash_options, parse};
use crate::engine::procedure::Failure;
use crate::remote::argv::{self, BARRIERS, FlagUse, FlagValue};

/// One wish: a variable or a flag, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Variable name, or flag with its dashes.
    pub switch: String,
    /// The value; `None` is absent, and for a flag the empty text is present without a value.
    pub value: Option<String>,
    /// Whether the flag is followed by a value; of no meaning for a variable.
    pub takes_value: bool,
}

/// A change of the script's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bytes that are replaced; empty where text is only put in.
    pub at: Range<usize>,
    /// What stands there instead.
    pub text: String,
}

/// A script in which only the asked levels differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// What stands in front of the script's text.
    pub header: String,
    /// Changes of the script's text, in order, without overlap.
    pub edits: Vec<Edit>,
    /// Whether anything that was asked differs from the script by itself.
    pub changes: bool,
    /// Header and changed text.
    pub text: String,
    /// Options of the script's first line, for `bash`.
    pub options: Vec<String>,
}

/// Makes an override of the script at `path`. `port` tells servers apart where it starts several.
///
/// # Errors
/// The script is not bash, or a wish cannot be placed exactly.
pub fn make_override(text: &str, path: &str, asks: &[Ask], port: Option<u16>) -> Result<Override, Failure> {
    let options = bash_options(text, path)?;
    let script = parse(text)?;
    if let Some(line) = script.strange_references.first() {
        return Err(Failure::new(format!(
            "line {line} of `{path}` uses `BASH_SOURCE` in a way that a copy cannot keep"
        ))
        .hint("use `$0` or `${BASH_SOURCE[0]}` there"));
    }
    // In a copy, `$0` is kept by the header while `BASH_SOURCE` would be the copy's own path.
    let mut edits: Vec<Edit> =
        script.self_references.iter().map(|at| Edit { at: at.clone(), text: "0".into() }).collect();
    if !asks.is_empty() {
        let server = server::find(&script, port)?;
        check_place(&script, &server, path)?;
        for ask in asks {
            if ask.switch.starts_with('-') {
                flag(&script, &server, ask, &mut edits)?;
            } else {
                variable(&script, &server, ask, &mut edits)?;
            }
        }
    }
    let changes = edits.len() > script.self_references.len();
    edits.sort_by_key(|e| (e.at.start, e.at.end));
    if let Some(pair) = edits.windows(2).find(|p| p[1].at.start < p[0].at.end) {
        let line = script.line(pair[1].at.start);
        return Err(Failure::new(format!("two changes meet on line {line} of `{path}`")));
    }
    let header = header(path)?;
    let mut out = header.clone();
    let mut at = 0;
    for edit in &edits {
        out.push_str(&text[at..edit.at.start]);
        out.push_str(&edit.text);
        at = edit.at.end;
    }
    out.push_str(&text[at..]);
    Ok(Override { header, edits, changes, text: out, options })
}

/// What every override of the script at `path` begins with.
///
/// # Errors
/// The path holds a NUL byte.
pub fn header(path: &str) -> Result<String, Failure> {
    let shown = one_line(path);
    Ok(format!("# made by patchbench from {shown}; the script itself is as it was\nBASH_ARGV0={}\n", quote(path)?))
}

fn one_line(path: &str) -> String {
    path.replace(|c: char| c.is_control(), "?")
}

fn quote(text: &str) -> Result<String, Failure> {
    shlex::try_quote(text)
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Failure::new("a NUL byte cannot stand in a script"))
}

/// Refuses commands in which a change could end up elsewhere than at the server.
fn check_place(script: &Script, server: &Server<'_>, path: &str) -> Result<(), Failure> {
    let line = server.command.line;
    let argv = server.argv();
    let program = argv.get(argv::program(&argv)).and_then(|w| w.as_deref()).unwrap_or_default();
    if BARRIERS.contains(&argv::base_name(program)) {
        return Err(Failure::new(format!("line {line} of `{path}` starts the server through `{program}`"))
            .hint("name the manager that really starts it"));
    }
    if server.command.tangled {
        return Err(Failure::new(format!("line {line} of `{path}` has arguments after a redirection"))
            .hint("put the redirection at the end of the command"));
    }
    let statement = server.command.statement..server.command.at.end;
    if let Some(error) = script.errors.iter().find(|e| e.start < statement.end && statement.start <= e.end) {
        let line = script.line(error.start);
        return Err(Failure::new(format!("line {line} of `{path}` cannot be read as bash")));
    }
    Ok(())
}

fn variable(script: &Script, server: &Server<'_>, ask: &Ask, edits: &mut Vec<Edit>) -> Result<(), Failure> {
    let name = &ask.switch;
    let place = server.command.statement;
    let cannot = |line: u32, why: &str| Failure::new(format!("cannot set `{name}`: line {line} {why}"));
    wrapper_environment(server, ask)?;
    let mine = |a: &&Assign| a.name == *name;
    let mut prefixes = server.command.prefix.iter().filter(mine);
    if let Some(prefix) = prefixes.next() {
        if prefixes.next().is_some() || prefix.effect == Effect::Maybe {
            return Err(cannot(prefix.line, "sets it in front of the command in a way that cannot be replaced"));
        }
        return prefix_edit(script, server, prefix, ask, edits);
    }
    let before: Vec<&Assign> =
        script.assigns.iter().filter(mine).filter(|a| a.at.start < server.command.at.start).collect();
    if let Some(a) = before.iter().find(|a| a.at.start >= place) {
        return Err(cannot(a.line, "sets it within the statement that starts the server"));
    }
    if let Some(a) = before.iter().find(|a| a.effect == Effect::ReadOnly) {
        return Err(cannot(a.line, "makes it read-only"));
    }
    let Some(value) = &ask.value else {
        let already =
            before.last().is_some_and(|a| a.effect == Effect::Unset) && !opaque_after(script, before.last(), place);
        if !already {
            edits.push(insertion(script, place, &format!("unset {name}")));
        }
        return Ok(());
    };
    let last = before.last().copied();
    let plain = last.filter(|a| a.effect == Effect::Set && script.reaches_environment(a));
    if let Some(assign) = plain
        && assign.value.known() != Some(value)
    {
        edits.push(Edit { at: assign.value_at.clone(), text: quote(value)? });
    }
    if plain.is_none() || opaque_after(script, before.last(), place) {
        edits.push(insertion(script, place, &format!("export {name}={}", quote(value)?)));
    }
    Ok(())
}

/// Whether something unseen may change the variable between its last assignment and the server.
fn opaque_after(script: &Script, last: Option<&&Assign>, place: usize) -> bool {
    let from = last.map_or(0, |a| a.at.end);
    script.opaque.iter().any(|(at, _)| (from..place).contains(at))
}

/// `X=1 server …`: the value in front of the command beats every export.
fn prefix_edit(
    script: &Script,
    server: &Server<'_>,
    prefix: &Assign,
    ask: &Ask,
    edits: &mut Vec<Edit>,
) -> Result<(), Failure> {
    if let Some(value) = &ask.value {
        if prefix.value.known() != Some(value) {
            edits.push(Edit { at: prefix.value_at.clone(), text: quote(value)? });
        }
        return Ok(());
    }
    // Up to the next part of the command, continuation included.
    let next = server.command.prefix.iter().map(|p| p.at.start).chain(server.command.words.iter().map(|w| w.at.start));
    let end = next.filter(|s| *s >= prefix.at.end).min().unwrap_or(prefix.at.end);
    edits.push(Edit { at: prefix.at.start..end, text: String::new() });
    edits.push(insertion(script, server.command.statement, &format!("unset {}", ask.switch)));
    Ok(())
}

/// Refuses an `env` in front of the server that has a say in the variable.
fn wrapper_environment(server: &Server<'_>, ask: &Ask) -> Result<(), Failure> {
    let argv = server.argv();
    let wrappers = &argv[..argv::program(&argv)];
    if !wrappers.iter().flatten().any(|w| argv::base_name(w) == "env") {
        return Ok(());
    }
    let clashes = wrappers.iter().flatten().any(|w| {
        *w == ask.switch
            || w.starts_with(&format!("{}=", ask.switch))
            || matches!(w.as_str(), "-i" | "-" | "--ignore-environment")
    });
    if clashes {
        let line = server.command.line;
        return Err(Failure::new(format!("cannot set `{}`: the `env` on line {line} decides about it", ask.switch))
            .hint("export it in the script instead"));
    }
    Ok(())
}

/// A statement in front of the one that starts the server, on a line of its own where that one has one.
fn insertion(script: &Script, place: usize, statement: &str) -> Edit {
    let line_start = script.text[..place].rfind('\n').map_or(0, |i| i + 1);
    let indent = &script.text[line_start..place];
    let text = if indent.trim().is_empty() { format!("{statement}\n{indent}") } else { format!("{statement}; ") };
    Edit { at: place..place, text }
}

fn flag(script: &Script, server: &Server<'_>, ask: &Ask, edits: &mut Vec<Edit>) -> Result<(), Failure> {
    let argv = server.argv();
    let uses: Vec<FlagUse> = argv::flags(&argv).into_iter().filter(|f| f.name == ask.switch).collect();
    let Some(value) = &ask.value else { return remove_flag(script, server, ask, &uses, edits) };
    let Some(last) = uses.last() else {
        let after = server.words.last().map_or(server.command.at.end, |w| w.at.end);
        let text =
            if ask.takes_value { format!(" {} {}", ask.switch, quote(value)?) } else { format!(" {}", ask.switch) };
        edits.push(Edit { at: after..after, text });
        return Ok(());
    };
    let word = &server.words[last.word];
    match &last.value {
        FlagValue::Joined(old) if old != value => {
            let text = if ask.takes_value { quote(&format!("{}={value}", ask.switch))? } else { ask.switch.clone() };
            edits.push(Edit { at: word.at.clone(), text });
        }
        FlagValue::Words(range) if ask.takes_value => {
            one_value(server, ask, range)?;
            let old = &server.words[range.start];
            if old.value.known() != Some(value) {
                edits.push(Edit { at: old.at.clone(), text: quote(value)? });
            }
        }
        FlagValue::None if ask.takes_value => {
            edits.push(Edit { at: word.at.end..word.at.end, text: format!(" {}", quote(value)?) });
        }
        FlagValue::Joined(_) | FlagValue::Words(_) | FlagValue::None => {}
    }
    Ok(())
}

fn one_value(server: &Server<'_>, ask: &Ask, range: &Range<usize>) -> Result<(), Failure> {
    if range.len() == 1 {
        return Ok(());
    }
    let line = server.words[range.start].line;
    Err(Failure::new(format!("cannot set `{}`: several words follow it on line {line}", ask.switch))
        .hint("write it as `--flag=value`, or put it in front of another flag"))
}

/// A word that may bring flags that the script does not show: one that is split into words, or that
/// stands where a flag could.
fn hidden_flags<'s>(script: &Script, server: &Server<'s>) -> Option<&'s ScriptWord> {
    let program = argv::program(&server.argv());
    let after_flag = |i: usize| {
        let before = server.words[i - 1].value.known();
        before.is_some_and(|w| w.starts_with('-') && !w.contains('='))
    };
    server.words.iter().enumerate().skip(program + 1).find_map(|(i, word)| {
        let raw = &script.text[word.at.clone()];
        let value = !raw.contains('@') && after_flag(i);
        (word.value.known().is_none() && !value).then_some(word)
    })
}

fn remove_flag(
    script: &Script,
    server: &Server<'_>,
    ask: &Ask,
    uses: &[FlagUse],
    edits: &mut Vec<Edit>,
) -> Result<(), Failure> {
    if uses.is_empty() {
        if let Some(hidden) = hidden_flags(script, server) {
            return Err(Failure::new(format!(
                "cannot tell whether the word on line {} of the script brings `{}`",
                hidden.line, ask.switch
            )));
        }
        return Ok(());
    }
    for flag in uses {
        let first = server.words[flag.word].at.start;
        let last = match &flag.value {
            FlagValue::Words(range) if ask.takes_value => {
                one_value(server, ask, range)?;
                server.words[range.start].at.end
            }
            _ => server.words[flag.word].at.end,
        };
        edits.push(Edit { at: first..last, text: String::new() });
    }
    Ok(())
}
