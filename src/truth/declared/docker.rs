//! `docker run` and its like: the tool's own options, the image, and the command of the container.
//!
//! Pure.

use super::command::{self, Reading, set};
use super::container::Container;
use super::words::PlacedWord;
use super::{Declared, FileText, Files, Place, Setting, Text, remark, remarks};
use crate::remote::probe::container::Inspect;

/// Long options without a value.
const SWITCHES: &[&str] = &[
    "detach",
    "interactive",
    "tty",
    "rm",
    "privileged",
    "init",
    "publish-all",
    "read-only",
    "no-healthcheck",
    "oom-kill-disable",
    "disable-content-trust",
    "sig-proxy",
    "quiet",
    "help",
    "replace",
    "rmi",
    "tls-verify",
    "no-hosts",
    "no-hostname",
    "env-host",
    "http-proxy",
    "debug",
    "tls",
    "tlsverify",
    "remote",
    "rootfs",
    "read-only-tmpfs",
];
/// Short options without a value; they can stand together.
const SHORT_SWITCHES: &str = "ditPqD";
/// Options with a value that launch lines use: they tell a variable with options from one with the image.
const VALUED: &[&str] = &[
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "-p",
    "--publish",
    "--name",
    "--gpus",
    "--network",
    "--net",
    "--ipc",
    "--shm-size",
    "--ulimit",
    "--runtime",
    "--device",
    "--restart",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "--cap-add",
    "--security-opt",
    "--group-add",
    "--pid",
    "-h",
    "--hostname",
    "-l",
    "--label",
    "-m",
    "--memory",
    "--cpus",
    "--log-driver",
    "--log-opt",
    "--add-host",
    "--pull",
    "--platform",
    "--cpuset-cpus",
    "--cpuset-mems",
    "--memory-swap",
];

/// What a container was made with, as `docker container inspect` says it: the image's own settings are among it.
pub fn inspected(container: &Inspect, port: Option<u16>) -> Declared {
    let place = Place::new(&format!("container {}", container.name), 1);
    let mut declared = Declared::default();
    for one in &container.env {
        match one.split_once('=') {
            Some((name, value)) => declared.assign(name, place.clone(), Some(Text::Known(value.to_owned()))),
            None => declared.assign(one, place.clone(), None),
        }
    }
    let words = container.argv.iter().map(|w| PlacedWord::new(Text::Known(w.clone()), place.clone())).collect();
    command::declare(&mut declared, words, Reading::new(port, &Files::default()));
    declared
}

/// Reads `docker run …`; `words[0]` is the tool, `shell` what the shell around it declares.
///
/// `None` where the tool does not start a container. The variables of the shell do not reach the container, so that
/// `shell` afterwards holds what the container declares.
pub(super) fn run(shell: &mut Declared, words: &[PlacedWord], reading: Reading<'_>) -> Option<Container> {
    let mut at = 1;
    loop {
        let word = words.get(at)?.known()?;
        at += match word {
            "run" | "create" => break,
            "container" => 1,
            _ if word.starts_with('-') => 1 + usize::from(!is_switch(word) && !word.contains('=')),
            _ => return None,
        };
    }
    at += 1;
    let mut container = Container::new(words[0].place.clone());
    container.declared.diagnostics = std::mem::take(&mut shell.diagnostics);
    let mut variables: Vec<(Text, Place)> = Vec::new();
    let mut entrypoint = Vec::new();
    while let Some(word) = words.get(at) {
        if word.known().is_none() && !option_of_unknown(word) {
            // A variable that is split may hold options: then an option of the tool follows it.
            if !(word.splits && words.get(at + 1).is_some_and(is_option)) {
                break;
            }
            container.declared.blind(&format!("the options in {}", raw(word)));
            at += 1;
            continue;
        }
        let text = raw(word).trim_start_matches('"').to_owned();
        if !text.starts_with('-') {
            break;
        }
        at += 1;
        if text == "--" {
            break;
        }
        if is_switch(&text) {
            continue;
        }
        let (name, value) = if let Some((name, value)) = joined(&text) {
            let value = match &word.text {
                Text::Known(_) => Text::Known(value),
                Text::Unresolved { because, .. } => {
                    Text::Unresolved { raw: value.trim_end_matches('"').to_owned(), because: because.clone() }
                }
            };
            (name, PlacedWord { text: value, ..word.clone() })
        } else {
            let Some(value) = words.get(at) else { break };
            at += 1;
            (text, value.clone())
        };
        let setting = Setting { value: value.text.clone(), place: value.place.clone() };
        match name.as_str() {
            "-e" | "--env" => variables.push((value.text, value.place)),
            "--env-file" => env_file(&mut container.declared, shell, &setting, reading),
            "--name" => container.name = Some(setting),
            "--network" | "--net" => container.network = Some(setting),
            "--gpus" | "--device" => container.gpus = Some(setting),
            "-p" | "--publish" => container.ports.push(setting),
            "--entrypoint" => {
                entrypoint = vec![value];
                container.entrypoint = Some(setting);
            }
            _ => {}
        }
    }
    // What is given one by one beats a file, wherever it stands.
    for (value, place) in variables {
        set(&mut container.declared, shell, &value, place, "the container");
    }
    let image = words.get(at);
    container.image = image.map(|w| Setting { value: w.text.clone(), place: w.place.clone() });
    if image.is_none() {
        container.declared.diagnostics.push(remark("no-image", "this command names no image", &words[0].place));
    }
    let arguments = words.get(at + 1..).unwrap_or_default().to_vec();
    container.command(entrypoint, arguments, reading);
    remarks::add(&mut container.declared, container.image.as_ref().and_then(|i| i.value.known()));
    *shell = container.declared.clone();
    Some(container)
}

fn raw(word: &PlacedWord) -> &str {
    match &word.text {
        Text::Known(text) => text,
        Text::Unresolved { raw, .. } => raw,
    }
}

/// `--env=X=$Y` is an option although its text is not known as a whole.
fn option_of_unknown(word: &PlacedWord) -> bool {
    let raw = raw(word).trim_start_matches('"');
    raw.starts_with("--") && raw.contains('=') || raw.starts_with("-e") || raw.starts_with("-v")
}

fn is_option(word: &PlacedWord) -> bool {
    let raw = raw(word);
    let name = raw.split('=').next().unwrap_or_default();
    raw.starts_with('-') && (VALUED.contains(&name) || is_switch(raw)) || (word.known().is_none() && word.splits)
}

fn is_switch(text: &str) -> bool {
    match text.strip_prefix("--") {
        Some(long) => SWITCHES.contains(&long.split('=').next().unwrap_or_default()),
        None => text.strip_prefix('-').is_some_and(|s| !s.is_empty() && s.chars().all(|c| SHORT_SWITCHES.contains(c))),
    }
}

/// `--name=value` and `-nvalue`.
fn joined(text: &str) -> Option<(String, String)> {
    if text.starts_with("--") {
        return text.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
    }
    let mut chars = text.char_indices();
    let cut = chars.nth(2)?.0;
    let value = &text[cut..];
    Some((text[..cut].to_owned(), value.strip_prefix('=').unwrap_or(value).to_owned()))
}

fn env_file(out: &mut Declared, shell: &Declared, path: &Setting, reading: Reading<'_>) {
    let Some(name) = path.value.known() else {
        out.blind("what a file of variables sets");
        return;
    };
    match reading.files.get(name) {
        FileText::Read(text) => env_file_text(out, shell, name, &text),
        FileText::Absent => {
            out.diagnostics.push(remark(
                "env-file",
                &format!("`{name}` does not exist: the container does not start"),
                &path.place,
            ));
        }
        FileText::Unread(why) => {
            out.diagnostics.push(remark("env-file", &why, &path.place));
            out.blind(&format!("what `{name}` sets"));
        }
    }
}

/// The lines of an `--env-file`: nothing is unquoted, `NAME` alone is taken from the shell, `#` begins a comment line.
pub(super) fn env_file_text(out: &mut Declared, shell: &Declared, file: &str, text: &str) {
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = Place::new(file, number);
        let name = line.split('=').next().unwrap_or_default();
        if name.is_empty() || name.contains([' ', '\t']) {
            out.diagnostics.push(remark("env-file-line", "this line is no assignment", &place));
            continue;
        }
        set(out, shell, &Text::Known(line.to_owned()), place, "the container");
    }
}
