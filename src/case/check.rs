//! What a case must satisfy beyond the form of its parts: names that exist, names that are unique.

use super::fields::{Remarks, Section, nearest};
use super::types::{Case, Gate, Role, port_of};
use crate::engine::diagnostic::Severity;
use crate::kernel;

/// Adds a remark for everything in the case that contradicts itself.
pub(super) fn check(remarks: &mut Remarks<'_>, root: &Section<'_, '_>, case: &Case) {
    let targets = remarks.sections(root, "target");
    let patches = remarks.sections(root, "patch");
    if targets.is_empty() && root.find("target").is_none() {
        let hint = "add a [[target]] with name, url and manager";
        remarks.error("case-no-target", &root.at, "the case names no target".into(), hint);
    }
    duplicates(remarks, &targets, "name");
    duplicates(remarks, &patches, "id");
    entry(remarks, root, case);
    for (sections, key) in [(&targets, "name"), (&patches, "id")] {
        for section in sections {
            plain_name(remarks, section, key);
        }
    }
    unused(remarks, root);
    for section in &patches {
        let Some(id) = section.find("id").and_then(|f| f.value.as_str().map(str::to_owned)) else { continue };
        patch(remarks, section, case, &id);
    }
    let production: Vec<&str> = case.targets.iter().filter(|t| t.production).map(|t| t.name.as_str()).collect();
    let stated = remarks.section(root, "budget").is_some_and(|b| b.find("downtime_min").is_some());
    if !production.is_empty() && !stated {
        let message = format!("no downtime is allowed for production: {} cannot be restarted", production.join(", "));
        let hint = "state `budget.downtime_min` once you know how many minutes are allowed";
        remarks.add(Severity::Info, "case-production-downtime", 0, message, Some(hint.into()));
    }
}

/// Says whether an URL lacks its scheme or its port.
pub(super) fn url(remarks: &mut Remarks<'_>, target: &Section<'_, '_>, url: &str) {
    let (at, name) = (target.place_of("url"), target.full_name("url"));
    let hint = "write scheme, host and port, as http://127.0.0.1:30000";
    if !url.starts_with("http://") && !url.starts_with("https://") {
        remarks.error("case-url", &at, format!("`{name}` must begin with http:// or https://, not `{url}`"), hint);
    } else if port_of(url).is_none() {
        remarks.error("case-url", &at, format!("`{name}` has no port: `{url}`"), hint);
    }
}

fn duplicates(remarks: &mut Remarks<'_>, sections: &[Section<'_, '_>], key: &str) {
    for (i, section) in sections.iter().enumerate() {
        let Some(found) = section.find(key) else { continue };
        let Some(name) = found.value.as_str() else { continue };
        let same = |s: &&Section<'_, '_>| s.find(key).is_some_and(|f| f.value.as_str() == Some(name));
        if let Some(first) = sections[..i].iter().find(same) {
            let line = remarks.line(first.place_of(key).start);
            let message = format!("`{}` is `{name}`, as on line {line}", found.name);
            remarks.error("case-duplicate", &found.at, message, "each needs a name of its own");
        }
    }
}

/// `patch@target` names a level, so neither part may hold an `@`.
fn plain_name(remarks: &mut Remarks<'_>, section: &Section<'_, '_>, key: &str) {
    let Some(found) = section.find(key) else { return };
    if found.value.as_str().is_some_and(|name| name.contains('@')) {
        let message = format!("`{}` holds an `@`", found.name);
        remarks.error("case-name", &found.at, message, "`PATCH@TARGET` is how a level is named; use another character");
    }
}

/// What this version reads and does not use is said, so that nobody counts on it.
fn unused(remarks: &mut Remarks<'_>, root: &Section<'_, '_>) {
    for key in ["temperature", "tools"] {
        let Some(client) = remarks.section(root, "client") else { return };
        if client.find(key).is_some() {
            let message = format!("`client.{key}` is not used yet: trials send temperature 0 and tools of their own");
            let at = client.place_of(key).start;
            remarks.add(Severity::Info, "case-unused", at, message, None);
        }
    }
}

fn entry(remarks: &mut Remarks<'_>, root: &Section<'_, '_>, case: &Case) {
    let names: Vec<&str> = case.targets.iter().map(|t| t.name.as_str()).collect();
    match &case.entry {
        Some(entry) => {
            unknown(remarks, &root.place_of("entry"), "entry", "target", entry, &names);
        }
        None if names.len() > 1 && !remarks.has_errors() => {
            let hint = format!("add entry = \"…\", one of: {}", names.join(", "));
            remarks.error("case-entry", &root.at, "`entry` is missing: there are several targets".into(), hint);
        }
        None => {}
    }
}

fn patch(remarks: &mut Remarks<'_>, section: &Section<'_, '_>, case: &Case, id: &str) {
    let targets: Vec<&str> = case.targets.iter().map(|t| t.name.as_str()).collect();
    let ids: Vec<&str> = case.patches.iter().map(|p| p.id.as_str()).filter(|p| *p != id).collect();
    let Some(patch) = case.patch(id) else { return };
    for name in &patch.targets {
        let (at, key) = (section.place_of("targets"), section.full_name("targets"));
        if unknown(remarks, &at, &key, "target", name, &targets) {
            continue;
        }
        if case.target(name).is_some_and(|t| t.role == Role::Router) {
            let message = format!("`{key}` names `{name}`, which is a router and runs no model code");
            remarks.add(Severity::Warning, "case-router-patch", at.start, message, None);
        }
    }
    // A file with more candidates may have what is not built in, so that this is no error.
    if let Some(failure) = patch.microtest.as_deref().and_then(|name| kernel::check_name(name).err()) {
        let at = section.place_of("microtest").start;
        remarks.add(Severity::Warning, "case-microtest", at, failure.message, failure.hint);
    }
    for (key, names) in [("requires", &patch.requires), ("excludes", &patch.excludes)] {
        for name in names {
            unknown(remarks, &section.place_of(key), &section.full_name(key), "patch", name, &ids);
        }
    }
    if let Gate::Env { levels, .. } | Gate::Flag { levels, .. } = &patch.gate
        && !levels.is_empty()
        && !levels.contains_key(&patch.suspect)
    {
        let names: Vec<&str> = levels.keys().map(String::as_str).collect();
        let key = section.full_name("suspect");
        let message = format!("`{key}` is `{}`, which is no level of the gate", patch.suspect);
        remarks.error("case-suspect", &section.place_of("suspect"), message, format!("levels: {}", names.join(", ")));
    }
}

fn unknown(
    remarks: &mut Remarks<'_>,
    at: &std::ops::Range<usize>,
    key: &str,
    what: &str,
    name: &str,
    known: &[&str],
) -> bool {
    if known.contains(&name) {
        return false;
    }
    let hint = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("there is no other {what}"),
        None => format!("known: {}", known.join(", ")),
    };
    remarks.error("case-unknown-name", at, format!("`{key}` names the {what} `{name}`, which does not exist"), hint);
    true
}
