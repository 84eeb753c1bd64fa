//! What the words of a command declare: wrappers with their environment, a shell's inline text, a container, the
//! server and its flags.
//!
//! Pure. The words may come from a script, a unit or a manifest.

use std::ops::Range;

use super::container::Container;
use super::words::{PlacedWord, argv_of};
use super::{Declared, Files, Place, Text, chain, docker, remark};
use crate::redact;
use crate::remote::argv::{self, FlagValue, base_name};
use crate::remote::script;

/// How many commands may stand within one another.
const MAX_DEPTH: usize = 8;

/// Flags that take any number of words.
const LISTS: &[&str] = &[
    "--cuda-graph-bs",
    "--cuda-graph-capture-sizes",
    "--cudagraph-capture-sizes",
    "--compilation-sizes",
    "--lora-paths",
    "--lora-modules",
    "--lora-target-modules",
    "--allowed-origins",
    "--middleware",
    "--prefill",
    "--decode",
    "--worker-urls",
    "--bucket-time-to-first-token",
    "--bucket-e2e-request-latency",
    "--bucket-inter-token-latency",
    "--prompt-tokens-buckets",
    "--generation-tokens-buckets",
    "--tool-server",
];

/// What a command is read with.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Port that tells servers apart where a text starts several.
    pub port: Option<u16>,
    /// Texts of files that the command names.
    pub files: &'a Files,
    depth: usize,
}

impl<'a> Reading<'a> {
    /// A reading of a command that stands by itself.
    pub fn new(port: Option<u16>, files: &'a Files) -> Self {
        Self { port, files, depth: 0 }
    }

    fn inner(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

/// Adds what a command declares to the environment that it is run in; says the container that it starts, if any.
///
/// What a container or another account does not inherit is taken out of the variables.
pub fn declare(out: &mut Declared, words: Vec<PlacedWord>, reading: Reading<'_>) -> Option<Container> {
    if reading.depth > MAX_DEPTH {
        if let Some(word) = words.first() {
            let message = format!("more than {MAX_DEPTH} commands within one another are not read");
            out.diagnostics.push(remark("nested-commands", &message, &word.place));
        }
        return None;
    }
    let mut words = words;
    loop {
        let at = argv::program(&argv_of(&words));
        environment(out, &words[..at]);
        let program = words.get(at).and_then(PlacedWord::known).map(base_name).unwrap_or_default().to_owned();
        let rest = match program.as_str() {
            "sudo" | "doas" => sudo(out, &words[at..]),
            "systemd-run" => systemd_run(out, &words[at..]),
            "docker" | "podman" | "nerdctl" => {
                let run = docker::run(out, &words[at..], reading.inner());
                if run.is_some() {
                    return run;
                }
                break;
            }
            "bash" | "sh" | "dash" | "zsh" | "ash" => match inline_text(&words[at..]) {
                Some(text) => {
                    inline(out, &text, reading.inner());
                    return None;
                }
                None => break,
            },
            _ => break,
        };
        words.drain(..at + rest);
    }
    server(out, &words);
    None
}

/// What `env` and its like change in front of the program.
fn environment(out: &mut Declared, wrappers: &[PlacedWord]) {
    let mut in_env = false;
    let mut unsets = false;
    for word in wrappers {
        let Some(text) = word.known() else { continue };
        if std::mem::take(&mut unsets) {
            out.assign(text, word.place.clone(), None);
        } else if base_name(text) == "env" {
            in_env = true;
        } else if !in_env {
        } else if matches!(text, "-i" | "-" | "--ignore-environment") {
            clear(out, &word.place);
        } else if matches!(text, "-u" | "--unset") {
            unsets = true;
        } else if let Some(name) = text.strip_prefix("--unset=").or_else(|| text.strip_prefix("-u")) {
            out.assign(name, word.place.clone(), None);
        } else if let Some((name, value)) = text.split_once('=').filter(|_| argv::is_assignment(text)) {
            out.assign(name, word.place.clone(), Some(Text::Known(value.to_owned())));
        }
    }
}

/// Everything that was set so far is taken away.
fn clear(out: &mut Declared, place: &Place) {
    let names: Vec<String> = out.variables.keys().cloned().collect();
    for name in names {
        out.assign(&name, place.clone(), None);
    }
}

/// `sudo [options] [NAME=value] program`: how many words stand before the program.
fn sudo(out: &mut Declared, words: &[PlacedWord]) -> usize {
    let mut at = 1;
    let mut keeps = false;
    let mut set: Vec<(String, String, Place)> = Vec::new();
    while let Some(word) = words.get(at).and_then(PlacedWord::known) {
        if matches!(word, "-u" | "-g" | "-h" | "-p" | "-C" | "-T" | "-R" | "-D" | "-U" | "-r" | "-t") {
            at += 2;
        } else if word.starts_with('-') {
            keeps |= word.starts_with("--preserve-env") || (!word.starts_with("--") && word.contains('E'));
            at += 1;
        } else if let Some((name, value)) = word.split_once('=').filter(|_| argv::is_assignment(word)) {
            set.push((name.to_owned(), value.to_owned(), words[at].place.clone()));
            at += 1;
        } else {
            break;
        }
    }
    let place = &words[0].place;
    let because = if keeps {
        "the rules of `sudo` decide whether it passes"
    } else {
        "`sudo` passes it only where its rules say so"
    };
    let names: Vec<(String, String)> = out
        .variables
        .iter()
        .filter_map(|(n, v)| match v.value.as_ref()? {
            Text::Known(text) => Some((n.clone(), text.clone())),
            Text::Unresolved { raw, .. } => Some((n.clone(), raw.clone())),
        })
        .collect();
    for (name, raw) in names {
        out.assign(&name, place.clone(), Some(Text::Unresolved { raw, because: because.into() }));
    }
    for (name, value, place) in set {
        out.assign(&name, place, Some(Text::Known(value)));
    }
    at.min(words.len())
}

/// Options of `systemd-run` without a value.
const RUN_SWITCHES: &[&str] = &[
    "--scope",
    "--user",
    "--system",
    "-t",
    "--pty",
    "-P",
    "--pipe",
    "-q",
    "--quiet",
    "-d",
    "--same-dir",
    "-S",
    "--shell",
    "-r",
    "--remain-after-exit",
    "--wait",
    "-G",
    "--collect",
    "--no-block",
    "--send-sighup",
    "--no-ask-password",
    "--slice-inherit",
];

/// `systemd-run [options] program`: how many words stand before the program.
fn systemd_run(out: &mut Declared, words: &[PlacedWord]) -> usize {
    let mut at = 1;
    let mut scope = false;
    let mut options: Vec<(String, Text, Place)> = Vec::new();
    while let Some(word) = words.get(at) {
        let text = match &word.text {
            Text::Known(text) => text.as_str(),
            Text::Unresolved { raw, .. } => raw.trim_matches('"'),
        };
        if !text.starts_with('-') {
            break;
        }
        let place = word.place.clone();
        scope |= text == "--scope";
        at += 1;
        if RUN_SWITCHES.contains(&text) {
            continue;
        }
        let joined = if text.starts_with("--") {
            text.split_once('=')
        } else {
            text.split_at_checked(2).filter(|(_, v)| !v.is_empty())
        };
        if let Some((name, value)) = joined {
            let value = match &word.text {
                Text::Known(_) => Text::Known(value.to_owned()),
                Text::Unresolved { because, .. } => {
                    Text::Unresolved { raw: value.to_owned(), because: because.clone() }
                }
            };
            options.push((name.to_owned(), value, place));
        } else if let Some(value) = words.get(at) {
            options.push((text.to_owned(), value.text.clone(), value.place.clone()));
            at += 1;
        }
    }
    let shell = if scope { Declared::default() } else { std::mem::take(out) };
    if !scope {
        out.diagnostics.clone_from(&shell.diagnostics);
    }
    for (name, value, place) in options {
        match name.as_str() {
            "-E" | "--setenv" => set(out, &shell, &value, place, "`systemd-run`"),
            "-p" | "--property" => match &value {
                Text::Known(text) if text.starts_with("Environment=") => {
                    super::systemd::environment_setting(out, &text["Environment=".len()..], &place);
                }
                Text::Known(text) if text.starts_with("EnvironmentFile=") => {
                    out.blind(&format!("what `{}` sets", text["EnvironmentFile=".len()..].trim_start_matches('-')));
                }
                Text::Unresolved { raw, .. } if raw.contains("Environment") => {
                    out.blind("what an unknown `--property` sets");
                }
                Text::Known(_) | Text::Unresolved { .. } => {}
            },
            _ => {}
        }
    }
    at.min(words.len())
}

/// `-e NAME=value`, or `-e NAME` for a variable of the shell around.
pub(super) fn set(out: &mut Declared, shell: &Declared, given: &Text, place: Place, by: &str) {
    match given {
        Text::Known(text) => {
            if let Some((name, value)) = text.split_once('=') {
                out.assign(name, place, Some(Text::Known(value.to_owned())));
            } else {
                let of_shell = shell.variables.get(text.as_str()).and_then(|v| v.value.clone());
                let because = format!("`{text}` comes from the shell that runs {by}");
                let value = of_shell.unwrap_or(Text::Unresolved { raw: text.clone(), because });
                out.assign(text, place, Some(value));
            }
        }
        Text::Unresolved { raw, because } => {
            let raw = raw.trim_matches(['"', '\'']);
            match raw.split_once('=').filter(|_| argv::is_assignment(raw)) {
                Some((name, value)) => {
                    let value = Text::Unresolved { raw: value.to_owned(), because: because.clone() };
                    out.assign(name, place, Some(value));
                }
                None => out.blind(&format!("what `{raw}` sets")),
            }
        }
    }
}

/// The text that a shell is given to run: `bash -lc 'text'`.
fn inline_text(words: &[PlacedWord]) -> Option<PlacedWord> {
    let mut at = 1;
    loop {
        let option = words.get(at)?.known()?;
        if !option.starts_with(['-', '+']) || option == "--" {
            return None;
        }
        if matches!(option, "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file") {
            at += 2;
        } else if !option.starts_with("--") && option.contains('c') {
            // More options may follow the `c`.
            let text = words[at + 1..].iter().find(|w| w.known().is_none_or(|t| !t.starts_with(['-', '+'])));
            return text.cloned();
        } else {
            at += 1;
        }
    }
}

fn inline(out: &mut Declared, word: &PlacedWord, reading: Reading<'_>) {
    let text = match &word.text {
        Text::Known(text) => text,
        Text::Unresolved { because, .. } => {
            out.diagnostics.push(remark(
                "inline-script",
                &format!("the text that a shell runs is not known: {because}"),
                &word.place,
            ));
            out.blind("what a shell's text does");
            return;
        }
    };
    let environment = out.variables.iter().filter_map(|(n, v)| Some((n.clone(), v.value.clone()?))).collect();
    let read = script::parse_in(text, &environment);
    let script = match read {
        Ok(script) => script,
        Err(failure) => {
            out.diagnostics.push(remark("inline-script", &failure.message, &word.place));
            return;
        }
    };
    let place = |line: u32| {
        let line = word.place.line.saturating_add(line.saturating_sub(1)).min(word.last_line.max(word.place.line));
        Place::new(&word.place.file, line)
    };
    let inner = script::declared_at(&script, &place, reading);
    *out = chain::chain(std::mem::take(out), inner);
}

/// The server itself and its flags.
fn server(out: &mut Declared, words: &[PlacedWord]) {
    // `--flag=$X` is a flag whose value is not known.
    let joined: Vec<Option<(String, Text)>> = words.iter().map(joined_unknown).collect();
    let mut argv = argv_of(words);
    let mut seen = argv.clone();
    for (word, joined) in seen.iter_mut().zip(&joined) {
        if let Some((name, _)) = joined {
            *word = Some(format!("{name}="));
        }
    }
    for flag in argv::flags(&seen) {
        let place = words[flag.word].place.clone();
        let value = match flag.value {
            FlagValue::None => Text::Known(String::new()),
            FlagValue::Joined(value) => joined[flag.word].clone().map_or(Text::Known(value), |(_, v)| v),
            FlagValue::Words(range) => join(&words[own_words(&flag.name, range, words)]),
        };
        out.give(&flag.name, place, value);
    }
    for (word, _) in words.iter().zip(&joined).filter(|(w, joined)| w.splits && joined.is_none()) {
        if let Text::Unresolved { raw, because } = &word.text {
            out.diagnostics.push(remark(
                "hidden-flags",
                &format!("`{raw}` may bring further flags: {because}"),
                &word.place,
            ));
        }
    }
    let hidden: Vec<&PlacedWord> = words.iter().filter(|w| w.known().is_none()).collect();
    if let Some(first) = hidden.first() {
        let lines: Vec<String> = hidden.iter().map(|w| w.place.line.to_string()).collect();
        let message =
            format!("words of the server's command on lines {} are not known from the file", lines.join(", "));
        out.diagnostics
            .push(crate::engine::diagnostic::Diagnostic::warning("script-unresolved", message).at(&first.place.file));
    }
    std::mem::swap(&mut out.argv, &mut argv);
}

fn joined_unknown(word: &PlacedWord) -> Option<(String, Text)> {
    let Text::Unresolved { raw, because } = &word.text else { return None };
    let (name, value) = raw.trim_matches('"').split_once('=')?;
    let plain =
        name.starts_with("--") && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    plain.then(|| (name.to_owned(), Text::Unresolved { raw: value.to_owned(), because: because.clone() }))
}

/// The words of a flag's value; a word that may be flags of its own ends it, unless the flag takes a list.
fn own_words(name: &str, range: Range<usize>, words: &[PlacedWord]) -> Range<usize> {
    if LISTS.contains(&name) {
        return range;
    }
    let end = (range.start + 1..range.end).find(|i| words[*i].splits).unwrap_or(range.end);
    range.start..end
}

fn join(words: &[PlacedWord]) -> Text {
    let mut out: Vec<&str> = Vec::new();
    for word in words {
        match &word.text {
            Text::Known(text) => out.push(text),
            unresolved @ Text::Unresolved { .. } => return unresolved.clone(),
        }
    }
    Text::Known(out.join(" "))
}

/// The model that a server is started with: its flag, or the operand of `serve`.
pub fn model(declared: &Declared) -> Option<Text> {
    let named = ["--model-path", "--model"].iter().find_map(|n| declared.flags.iter().find(|f| f.name == *n));
    if let Some(flag) = named {
        return Some(flag.value.clone());
    }
    let serve = declared.argv.iter().position(|w| w.as_deref() == Some("serve"))?;
    match declared.argv.get(serve + 1)? {
        Some(word) if word.starts_with('-') => None,
        Some(word) => Some(Text::Known(word.clone())),
        None => Some(Text::Unresolved { raw: String::new(), because: "the operand of `serve` is not known".into() }),
    }
}

/// A command line with its secrets taken out, for a screen or a report; `…` stands for what is not known.
pub fn shown(declared: &Declared) -> Vec<String> {
    let words: Vec<&str> = declared.argv.iter().map(|w| w.as_deref().unwrap_or("…")).collect();
    redact::argv(&words)
}
