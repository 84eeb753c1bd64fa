//! What a probe holds for the layers of a target: declarations of units and scripts, log, checkpoint, cards. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::case::{Manager, Target};
use crate::engine::procedure::Failure;
use crate::redact;
use crate::remote::probe::types::{FileRead, FileUnread, Probe, Unit};
use crate::remote::probe::{self, files};
use crate::remote::proc::Unknown;
use crate::remote::script;
use crate::truth::declared::systemd::{self, UnitFiles};
use crate::truth::declared::{Declared, FileText, Files, Text, chain, docker};
use crate::truth::knowledge::names;

/// What could not be read: code, why, and place.
pub(super) type Said = (&'static str, Failure, String);

/// What the target's own files declare, and what of them could not be read.
pub(super) fn declared(answer: &Probe, target: &Target) -> (Option<Declared>, Vec<Said>) {
    let mut said = Vec::new();
    let declared = match &target.manager {
        Manager::Systemd { .. } => of_unit(answer, target, &mut said),
        Manager::Docker { .. } => of_container(answer, target, &mut said),
        Manager::Script { .. } | Manager::Unknown => of_launch_script(answer, target, &mut said),
    };
    (declared, said)
}

/// The launch script of a target, whoever runs it.
pub(super) fn script_path(target: &Target) -> Option<&str> {
    match &target.manager {
        Manager::Script { script, .. } => Some(script),
        Manager::Systemd { .. } | Manager::Docker { .. } | Manager::Unknown => target.launch_script.as_deref(),
    }
}

fn of_unit(answer: &Probe, target: &Target, said: &mut Vec<Said>) -> Option<Declared> {
    let Some(unit) = &answer.unit else {
        said.push(("unit-unread", Failure::new("the unit was not read"), target.host.clone()));
        return of_launch_script(answer, target, said);
    };
    let files = match &unit.files {
        Ok(files) if !files.is_empty() => files,
        other => {
            let why = other.as_ref().err().map_or("it has no file", |Unknown(why)| why.as_str());
            let failure = Failure::new(format!("the files of `{}` cannot be read: {why}", unit.name));
            said.push(("unit-unread", failure, unit.name.clone()));
            return of_launch_script(answer, target, said);
        }
    };
    let read = systemd::read(&unit_files(unit, files, answer), target.port());
    let outer: BTreeMap<String, Text> =
        read.declared.variables.iter().filter_map(|(n, v)| Some((n.clone(), v.value.clone()?))).collect();
    let script = read.facts.script.as_ref().and_then(|s| s.value.known().map(str::to_owned));
    let path = script.or_else(|| target.launch_script.clone());
    let inner = path.and_then(|path| of_script(answer, &path, target.port(), &outer, said));
    Some(match inner {
        Some(inner) => chain::chain(read.declared, inner),
        None => read.declared,
    })
}

/// What runs in a container was made from what the host says of it, whatever started it.
fn of_container(answer: &Probe, target: &Target, said: &mut Vec<Said>) -> Option<Declared> {
    match answer.container.as_ref().map(|c| (&c.name, &c.current)) {
        Some((_, Ok(current))) => Some(docker::inspected(current, target.port())),
        Some((name, Err(Unknown(why)))) => {
            let failure = Failure::new(format!("the container cannot be read: {why}"));
            said.push((
                "container-unread",
                failure.hint("correct its name in the case, or give the target a `become`"),
                name.clone(),
            ));
            of_launch_script(answer, target, said)
        }
        None => of_launch_script(answer, target, said),
    }
}

/// The texts of a unit, the first of `files` being the unit itself.
pub(crate) fn unit_files(unit: &Unit, files: &[(String, String)], answer: &Probe) -> UnitFiles {
    // The first file is the unit, what follows are its drop-ins; a template is named by its instance.
    let (main, drop_ins) = (files[0].clone(), files[1..].to_vec());
    let mut named = Files::default();
    for (path, file) in &answer.files {
        let text = match &file.bytes {
            Ok(bytes) => FileText::Read(String::from_utf8_lossy(bytes).into_owned()),
            Err(FileUnread::Absent) => FileText::Absent,
            Err(other) => FileText::Unread(other.to_string()),
        };
        named = named.with(path, text);
    }
    UnitFiles { name: unit.name.clone(), main, drop_ins, named }
}

fn of_launch_script(answer: &Probe, target: &Target, said: &mut Vec<Said>) -> Option<Declared> {
    of_script(answer, script_path(target)?, target.port(), &BTreeMap::new(), said)
}

/// What a script declares that is started with these variables.
pub(super) fn of_script(
    answer: &Probe,
    path: &str,
    port: Option<u16>,
    outer: &BTreeMap<String, Text>,
    said: &mut Vec<Said>,
) -> Option<Declared> {
    match files::script_text(answer, path).and_then(|text| script::parse_in(&text, outer)) {
        Ok(script) => Some(script::declared(&script, path, port)),
        Err(failure) => {
            said.push(("script-unread", failure, path.to_owned()));
            None
        }
    }
}

/// The log of a target as the probe brought it: where it stands, its text, and what it lacks.
pub(super) fn log(answer: &Probe, target: &Target) -> Result<(String, String), Said> {
    match &target.manager {
        Manager::Script { log, .. } => match answer.logs.get(log).map(|l| &l.bytes) {
            Some(Ok(bytes)) => Ok((log.clone(), String::from_utf8_lossy(bytes).into_owned())),
            Some(Err(why)) => Err(("log-unread", Failure::new(format!("the log cannot be read: {why}")), log.clone())),
            None => Err(("log-unread", Failure::new("the log was not read"), log.clone())),
        },
        Manager::Systemd { systemd } => {
            let source = format!("journal of {systemd}");
            match answer.unit.as_ref().map(|u| &u.journal) {
                Some(Ok(text)) if text.text.trim().is_empty() => {
                    let why = "the journal has no record of this start, or may not be read";
                    let failure = Failure::new(why).hint("reach the host as a user of the group `systemd-journal`");
                    Err(("log-unread", failure, source))
                }
                Some(Ok(text)) => Ok((source, journal(&text.text))),
                Some(Err(Unknown(why))) => Err(("log-unread", Failure::new(why.clone()), source)),
                None => Err(("log-unread", Failure::new("the unit was not read"), source)),
            }
        }
        Manager::Docker { docker } => match answer.container.as_ref().map(|c| &c.log) {
            Some(Ok(text)) => Ok((format!("log of container {docker}"), text.text.clone())),
            Some(Err(Unknown(why))) => Err(("log-unread", Failure::new(why.clone()), docker.clone())),
            None => Err(("log-unread", Failure::new("the container was not read"), docker.clone())),
        },
        Manager::Unknown => {
            Err(("log-unread", Failure::new("nobody said where the server logs to"), target.name.clone()))
        }
    }
}

/// The messages of journal records, one JSON object a line. A message that journald cut is put together again, one
/// that is no UTF-8 comes as its bytes.
pub(super) fn journal(records: &str) -> String {
    let mut out = String::new();
    for record in records.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        match &record["MESSAGE"] {
            Value::String(text) => out.push_str(text),
            Value::Array(bytes) => {
                let bytes: Vec<u8> = bytes.iter().filter_map(|b| u8::try_from(b.as_u64()?).ok()).collect();
                out.push_str(&String::from_utf8_lossy(&bytes));
            }
            // Longer than what the journal gives out, or without a text.
            _ => out.push_str("(a message that the journal does not give out)"),
        }
        if record["_LINE_BREAK"].as_str() != Some("line-max") {
            out.push('\n');
        }
    }
    out
}

/// What of the log was not read, in one clause: lines of the start may be there.
pub(super) fn log_is_cut(answer: &Probe, target: &Target) -> Option<String> {
    match &target.manager {
        Manager::Systemd { .. } => {
            let text = answer.unit.as_ref()?.journal.as_ref().ok()?;
            let records = text.text.lines().count();
            let cut = text.truncated || records >= probe::JOURNAL_RECORDS;
            cut.then(|| format!("only the last {records} records of the journal were read"))
        }
        Manager::Script { log, .. } => {
            let file = answer.logs.get(log)?;
            let (size, read) = (file.stat.as_ref().ok()?.size, file.bytes.as_ref().ok()?.len() as u64);
            (read < size).then(|| format!("only the last {read} of {size} bytes of the log were read"))
        }
        Manager::Docker { .. } => {
            let text = answer.container.as_ref()?.log.as_ref().ok()?;
            let lines = text.text.lines().count();
            let cut = text.truncated || lines >= probe::JOURNAL_RECORDS;
            cut.then(|| format!("only the last {lines} lines of the container's log were read"))
        }
        Manager::Unknown => None,
    }
}

/// What systemd says of a unit whose files were changed behind its back.
pub(super) fn needs_reload(answer: &Probe) -> Option<Said> {
    let unit = answer.unit.as_ref()?;
    let says = unit.properties.as_ref().ok()?.get("NeedDaemonReload")?.raw().trim() == "yes";
    says.then(|| {
        let message = "its files were changed after systemd read them: what runs was started from the older ones";
        let failure = Failure::new(message).hint("`systemctl daemon-reload`, and then a restart, would take the newer");
        ("unit-reload", failure, unit.name.clone())
    })
}

/// Where a checkpoint's own configuration stands.
pub(super) fn config_path(target: &Target) -> Option<String> {
    Some(format!("{}/config.json", target.checkpoint.as_deref()?.trim_end_matches('/')))
}

/// Where an engine's source lists its variables, in a checkout.
pub(super) fn environ_path(target: &Target) -> Option<String> {
    Some(format!("{}/python/sglang/srt/environ.py", target.checkout.as_deref()?.trim_end_matches('/')))
}

/// The checkpoint's configuration; an error is said where there is one to be said.
pub(super) fn checkpoint(answer: &Probe, target: &Target) -> Result<Option<(String, Value)>, Said> {
    let Some(path) = config_path(target) else { return Ok(None) };
    let unread = |why: String| ("checkpoint-unread", Failure::new(why), path.clone());
    let bytes = bytes(answer.files.get(&path))
        .map_err(|why| unread(format!("the checkpoint's config cannot be read: {why}")))?;
    match serde_json::from_slice(bytes) {
        Ok(mut value) => {
            redact::json(&mut value);
            Ok(Some((path, value)))
        }
        Err(_) => Err(unread("the checkpoint's config is no JSON".into())),
    }
}

fn bytes(file: Option<&FileRead>) -> Result<&[u8], String> {
    match file.map(|f| &f.bytes) {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(why)) => Err(why.to_string()),
        None => Err("it was not read".into()),
    }
}

/// The variables that the installed engine knows, by its own source.
pub(super) fn installed(answer: &Probe, target: &Target) -> Option<(String, BTreeSet<String>)> {
    let path = environ_path(target)?;
    let text = String::from_utf8_lossy(bytes(answer.files.get(&path)).ok()?).into_owned();
    Some((path, names::in_source(&text)))
}

/// The compute capability of the host's cards, such as 120 for 12.0, where they all have the same.
pub(super) fn capability(answer: &Probe) -> Option<u32> {
    let cards = answer.gpus.as_ref()?.list.as_ref().ok()?;
    let one = |row: &Vec<crate::untrusted::Untrusted>| {
        let (major, minor) = row.get(8)?.raw().trim().split_once('.')?;
        Some(major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?)
    };
    let all: Option<BTreeSet<u32>> = cards.iter().map(one).collect();
    let all = all?;
    (all.len() == 1).then(|| all.first().copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_records_become_lines_again() {
        let records = concat!(
            r#"{"MESSAGE":"one","_PID":"1"}"#,
            "\n",
            r#"{"MESSAGE":"a long ","_LINE_BREAK":"line-max"}"#,
            "\n",
            r#"{"MESSAGE":"line"}"#,
            "\n",
            r#"{"MESSAGE":[104,105,255]}"#,
            "\nnot json\n",
            r#"{"MESSAGE":null}"#,
            "\n"
        );
        assert_eq!(journal(records), "one\na long line\nhi\u{fffd}\n(a message that the journal does not give out)\n");
    }
}
