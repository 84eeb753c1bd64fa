//! A service unit with its drop-ins and files of variables, read by systemd's own rules.
//!
//! Pure. Not responsible for the script that a unit starts: `chain` puts the two together.
//! The rules are those of `systemd.syntax`, `systemd.unit`, `systemd.service` and `systemd.exec`.

mod dropin;
mod env_file;
mod exec;
pub(super) mod syntax;
mod words;

pub use env_file::assign as env_file;

use super::command::{self, Reading};
use super::container::Container;
use super::words::PlacedWord;
use super::{Declared, FileText, Files, Place, Setting, Text, remark, remarks};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::remote::argv::{self, base_name};
use syntax::{Assignment, Lines};

/// The texts of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFiles {
    /// Name with its suffix, and the instance where there is one.
    pub name: String,
    /// Path and text of the unit file.
    pub main: (String, String),
    /// Path and text of every file in every folder of drop-ins, in any order.
    pub drop_ins: Vec<(String, String)>,
    /// Files of variables by the path that the unit names.
    pub named: Files,
}

/// How a unit starts and restarts its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// `Type=`.
    pub kind: Option<Setting>,
    /// `User=`.
    pub user: Option<Setting>,
    /// `Group=`.
    pub group: Option<Setting>,
    /// `WorkingDirectory=`.
    pub working_directory: Option<Setting>,
    /// `Restart=`.
    pub restart: Option<Setting>,
    /// `RestartSec=`.
    pub restart_after: Option<Setting>,
    /// `StartLimitIntervalSec=`: within it, only so many starts.
    pub start_limit_interval: Option<Setting>,
    /// `StartLimitBurst=`: so many.
    pub start_limit_burst: Option<Setting>,
    /// Words of the command, with what systemd puts in place of its variables.
    pub command: Vec<Text>,
    /// First word of the command.
    pub program: Option<Setting>,
    /// Characters in front of the command.
    pub exec_prefix: String,
    /// The script that the command runs, to be read and chained.
    pub script: Option<Setting>,
    /// Files of variables that were named, with the `-` of those that may be missing.
    pub env_files: Vec<Setting>,
}

/// A unit, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// What it declares about the process that it starts.
    pub declared: Declared,
    /// How it starts it.
    pub facts: UnitFacts,
    /// The container that it starts, if its command is that of a container tool.
    pub container: Option<Container>,
}

/// Settings of `[Unit]` that are looked for, and of `[Service]`; the same name elsewhere does nothing.
const PLACES: &[(&str, &str)] = &[
    ("StartLimitIntervalSec", "Unit"),
    ("Type", "Service"),
    ("User", "Service"),
    ("Group", "Service"),
    ("WorkingDirectory", "Service"),
    ("Restart", "Service"),
    ("RestartSec", "Service"),
    ("ExecStart", "Service"),
    ("Environment", "Service"),
    ("EnvironmentFile", "Service"),
    ("PassEnvironment", "Service"),
    ("UnsetEnvironment", "Service"),
];

/// Reads a unit. `port` tells servers apart where its command starts several.
pub fn read(files: &UnitFiles, port: Option<u16>) -> Unit {
    let mut unit = Unit::default();
    let settings = settings(files, &mut unit.declared);
    misplaced(&settings, &mut unit.declared);
    unit.facts = facts(&settings);
    variables(&settings, files, &mut unit);
    let commands = exec_start(&settings, files, &mut unit.declared);
    let oneshot = unit.facts.kind.as_ref().and_then(|k| k.value.known()) == Some("oneshot");
    let command = match &commands[..] {
        [] => None,
        [only] => Some(only),
        // A unit of this kind runs one after another: the last one stays or is the last word.
        [.., last] if oneshot => Some(last),
        [.., last] => {
            let message = format!(
                "the unit has {} `ExecStart=` commands, and only `Type=oneshot` may: systemd refuses it",
                commands.len()
            );
            let mut remark = remark("unit-exec-twice", &message, &last.place);
            remark.severity = Severity::Error;
            unit.declared
                .diagnostics
                .push(remark.hint("an empty `ExecStart=` in front of the last one takes the others away"));
            None
        }
    };
    match command {
        None if commands.is_empty() => {
            let place = Place::new(&files.main.0, 1);
            unit.declared.diagnostics.push(remark("unit-exec", "the unit has no `ExecStart=`", &place));
        }
        None => {}
        Some(command) => {
            let words = exec::substitute(command, &unit.declared);
            unit.facts.program = words.first().map(|w| Setting { value: w.text.clone(), place: w.place.clone() });
            unit.facts.command = words.iter().map(|w| w.text.clone()).collect();
            unit.facts.exec_prefix.clone_from(&command.prefix);
            unit.facts.script = script_of(&words);
            unit.container = command::declare(&mut unit.declared, words, Reading::new(port, &files.named));
        }
    }
    unused(&settings, &mut unit.declared);
    let image = unit.container.as_ref().and_then(|c| c.image.as_ref()).and_then(|i| i.value.known());
    if image.is_none() {
        remarks::add(&mut unit.declared, None);
    }
    unit
}

/// Reads the value of an `Environment=` setting that stands in a command.
pub(super) fn environment_setting(out: &mut Declared, value: &str, place: &Place) {
    environment(out, &Lines::single(value, place.line), &place.file, "");
}

/// The assignments of an `Environment=` setting.
pub(super) fn environment_lines(out: &mut Declared, value: &Lines, file: &str, unit: &str) {
    environment(out, value, file, unit);
}

/// A text with the specifiers that the name of the unit tells.
pub(super) fn with_specifiers(text: &str, unit: &str) -> Text {
    words::specifiers(text, unit)
}

/// The words of a setting that is a command without prefixes and variables.
pub(super) fn command_words(value: &Lines, file: &str, unit: &str, out: &mut Declared) -> Vec<PlacedWord> {
    let (split, trouble) = words::split(&value.text, true);
    if let Some(why) = trouble {
        let message = format!("this command has {why} and is not read");
        out.diagnostics.push(remark("unit-command", &message, &Place::new(file, value.line(0))));
        return Vec::new();
    }
    let place = |at: usize| Place::new(file, value.line(at));
    split.into_iter().map(|w| PlacedWord::new(words::specifiers(&w.text, unit), place(w.at))).collect()
}

/// All assignments in the order in which they count.
fn settings(files: &UnitFiles, out: &mut Declared) -> Vec<Assignment> {
    let mut settings = syntax::read(&files.main.1, &files.main.0, out);
    let (count, shadowed) = dropin::order(&files.name, &files.drop_ins);
    for (path, text) in count {
        settings.extend(syntax::read(text, path, out));
    }
    for path in shadowed {
        let message = if dropin::is_drop_in(path) {
            "this file is not read: one of the same name in a stronger folder is"
        } else {
            "this file is not read: its name does not end in `.conf`"
        };
        out.diagnostics.push(remark("drop-in-shadowed", message, &Place::new(path, 1)));
    }
    settings
}

fn misplaced(settings: &[Assignment], out: &mut Declared) {
    for a in settings {
        let known = PLACES.iter().find(|(key, _)| *key == a.key);
        if let Some((key, section)) = known.filter(|(_, section)| *section != a.section) {
            let message = format!("`{key}` belongs into [{section}] and is ignored in [{}]", a.section);
            out.diagnostics.push(remark("unit-section", &message, &a.place()));
        }
    }
}

fn of_service<'s>(settings: &'s [Assignment], key: &str) -> impl Iterator<Item = &'s Assignment> {
    settings.iter().filter(move |a| a.section == "Service" && a.key == key)
}

fn facts(settings: &[Assignment]) -> UnitFacts {
    let last = |places: &[(&str, &str)]| {
        let found = settings.iter().rev().find(|a| places.contains(&(a.section.as_str(), a.key.as_str())))?;
        let value = Text::Known(found.value.text.clone());
        (!found.value.text.is_empty()).then(|| Setting { value, place: found.place() })
    };
    let service = |key| last(&[("Service", key)]);
    UnitFacts {
        kind: service("Type"),
        user: service("User"),
        group: service("Group"),
        working_directory: service("WorkingDirectory"),
        restart: service("Restart"),
        restart_after: service("RestartSec"),
        // The names without `Sec` and those in [Service] are older and still read.
        start_limit_interval: last(&[
            ("Unit", "StartLimitIntervalSec"),
            ("Unit", "StartLimitInterval"),
            ("Service", "StartLimitInterval"),
        ]),
        start_limit_burst: last(&[("Unit", "StartLimitBurst"), ("Service", "StartLimitBurst")]),
        command: Vec::new(),
        program: None,
        exec_prefix: String::new(),
        script: None,
        env_files: Vec::new(),
    }
}

/// `PassEnvironment`, then `Environment`, then `EnvironmentFile`, and last `UnsetEnvironment`.
fn variables(settings: &[Assignment], files: &UnitFiles, unit: &mut Unit) {
    let out = &mut unit.declared;
    for a in since_reset(settings, "PassEnvironment") {
        for (name, place) in names(a, &files.name, out) {
            let because = "it is passed on from the service manager".to_owned();
            out.assign(&name, place, Some(Text::Unresolved { raw: name.clone(), because }));
        }
    }
    for a in since_reset(settings, "Environment") {
        environment(out, &a.value, &a.file, &files.name);
    }
    for a in since_reset(settings, "EnvironmentFile") {
        let place = a.place();
        let path = words::specifiers(&a.value.text, &files.name);
        unit.facts.env_files.push(Setting { value: path.clone(), place: place.clone() });
        environment_file(out, &path, &place, &files.named);
    }
    for a in since_reset(settings, "UnsetEnvironment") {
        for (name, place) in names(a, &files.name, out) {
            match name.split_once('=') {
                None => out.assign(&name, place, None),
                Some((name, value)) => {
                    let current = out.variables.get(name).and_then(|v| v.value.clone());
                    match current {
                        Some(Text::Known(text)) if text == value => out.assign(name, place, None),
                        Some(Text::Unresolved { raw, .. }) => {
                            let because =
                                "it is taken away if it has the value that `UnsetEnvironment=` names".to_owned();
                            out.assign(name, place, Some(Text::Unresolved { raw, because }));
                        }
                        Some(Text::Known(_)) | None => {}
                    }
                }
            }
        }
    }
}

/// The settings of a list after its last empty assignment.
fn since_reset<'s>(settings: &'s [Assignment], key: &str) -> Vec<&'s Assignment> {
    let all: Vec<&Assignment> = of_service(settings, key).collect();
    let from = all.iter().rposition(|a| a.value.text.is_empty()).map_or(0, |i| i + 1);
    all[from..].to_vec()
}

fn names(a: &Assignment, unit: &str, out: &mut Declared) -> Vec<(String, Place)> {
    let (words, trouble) = words::split(&a.value.text, false);
    if let Some(why) = trouble {
        out.diagnostics.push(remark("unit-value", &format!("`{}=` has {why}; the rest is ignored", a.key), &a.place()));
    }
    let mut found = Vec::new();
    for word in words {
        if let Text::Known(name) = words::specifiers(&word.text, unit) {
            found.push((name, Place::new(&a.file, a.value.line(word.at))));
        }
    }
    found
}

fn environment(out: &mut Declared, value: &Lines, file: &str, unit: &str) {
    let (words, trouble) = words::split(&value.text, false);
    if let Some(why) = trouble {
        let message = format!("`Environment=` has {why}; the rest is ignored");
        out.diagnostics.push(remark("unit-value", &message, &Place::new(file, value.line(0))));
    }
    for word in words {
        let place = Place::new(file, value.line(word.at));
        let Some((name, text)) = word.text.split_once('=').filter(|(n, _)| env_file::is_name(n)) else {
            let message = format!("`{}` is no assignment and is ignored", word.text);
            out.diagnostics
                .push(remark("unit-environment", &message, &place).hint("put the whole assignment in quotes"));
            continue;
        };
        out.assign(name, place, Some(words::specifiers(text, unit)));
    }
}

fn environment_file(out: &mut Declared, path: &Text, place: &Place, files: &Files) {
    let unread = |out: &mut Declared, path: &str, why: &str| {
        out.diagnostics.push(remark("env-file", why, place));
        out.blind(&format!("what `{path}` sets"));
        let before: Vec<(String, Text)> =
            out.variables.iter().filter_map(|(n, v)| Some((n.clone(), v.value.clone()?))).collect();
        for (name, value) in before {
            let raw = match value {
                Text::Known(text) | Text::Unresolved { raw: text, .. } => text,
            };
            let because = format!("`{path}` was not read and may replace it");
            out.assign(&name, place.clone(), Some(Text::Unresolved { raw, because }));
        }
    };
    let whole = match path {
        Text::Known(path) => path,
        Text::Unresolved { raw, because } => return unread(out, raw, because),
    };
    let path = whole.strip_prefix('-').unwrap_or(whole);
    if path.contains(['*', '?', '[']) {
        return unread(out, path, &format!("`{path}` is matched against files of the host"));
    }
    match files.get(path) {
        FileText::Read(text) => env_file::assign(out, path, &text),
        FileText::Absent if whole.starts_with('-') => {}
        FileText::Absent => {
            let mut remark = remark("env-file", &format!("`{path}` does not exist: the unit does not start"), place);
            remark.severity = Severity::Error;
            out.diagnostics.push(remark.hint("a `-` in front of the path lets it start without"));
        }
        FileText::Unread(why) => unread(out, path, &why),
    }
}

fn exec_start(settings: &[Assignment], files: &UnitFiles, out: &mut Declared) -> Vec<exec::Command> {
    let mut commands = Vec::new();
    for a in since_reset(settings, "ExecStart") {
        commands.extend(exec::read(&a.value, &a.file, &files.name, out));
    }
    commands
}

/// Says of each variable that only a command used which a later file took away: it has no effect through the unit any
/// more, whatever its value.
fn unused(settings: &[Assignment], out: &mut Declared) {
    let all: Vec<&Assignment> = of_service(settings, "ExecStart").collect();
    let from = all.iter().rposition(|a| a.value.text.is_empty()).map_or(0, |i| i + 1);
    let gone = &all[..from];
    let stays = |name: &str| {
        let mut commands = settings.iter().filter(|a| a.section == "Service" && a.key.starts_with("Exec"));
        commands.any(|a| !gone.iter().any(|g| std::ptr::eq(*g, a)) && exec::uses(&a.value.text, name))
    };
    let mut found = Vec::new();
    for (name, variable) in &out.variables {
        let using = |a: &&&Assignment| exec::uses(&a.value.text, name);
        if let Some(command) = gone.iter().rfind(using).filter(|_| !stays(name)) {
            let at = command.place();
            let message = format!(
                "`{name}` is used by no command of the unit any more: the `ExecStart=` of {}:{} was taken away",
                at.file, at.line
            );
            found.push(Diagnostic { severity: Severity::Info, ..remark("unused-variable", &message, &variable.place) });
        }
    }
    out.diagnostics.extend(found);
}

fn is_script_name(path: &str) -> bool {
    base_name(path).rsplit_once('.').is_some_and(|(_, suffix)| matches!(suffix, "sh" | "bash"))
}

/// The script that a command runs: `/x/serve.sh`, `bash /x/serve.sh`.
fn script_of(words: &[PlacedWord]) -> Option<Setting> {
    let words = &words[argv::program(&super::words::argv_of(words)).min(words.len())..];
    let program = words.first()?;
    let shell = matches!(base_name(program.known()?), "bash" | "sh" | "dash");
    let script = if shell {
        words[1..].iter().find(|w| w.known().is_none_or(|t| !t.starts_with('-')))?
    } else {
        Some(program).filter(|p| p.known().is_some_and(is_script_name))?
    };
    let inline = shell
        && words[1..]
            .iter()
            .any(|w| w.known().is_some_and(|t| t.starts_with('-') && !t.starts_with("--") && t.contains('c')));
    (!inline).then(|| Setting { value: script.text.clone(), place: script.place.clone() })
}

#[cfg(test)]
mod tests;
