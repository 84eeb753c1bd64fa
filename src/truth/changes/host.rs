//! What an answer tells of the whole host: boots, kernel, driver, errors of the hardware, packages. Pure.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use regex::Regex;

use super::parse::{Found, Record, records, seconds};
use super::types::Kind;
use crate::remote::probe::frame::{Section, Unread};
use crate::remote::probe::parse as section;
use crate::remote::probe::types::{HostFacts, Reading};
use crate::remote::proc::Unknown;
use crate::untrusted::Untrusted;

type Pattern = LazyLock<Option<Regex>>;

static BOOT: Pattern = LazyLock::new(|| {
    Regex::new(r"^\s*-?\d+\s+([0-9a-f]{32})\s+(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC").ok()
});
static KERNEL: Pattern = LazyLock::new(|| Regex::new(r"Linux version (\S+)").ok());
static DRIVER: Pattern = LazyLock::new(|| Regex::new(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)").ok());
static MEMORY: Pattern = LazyLock::new(|| Regex::new(r"EDAC .*\b\d+ [CU]E\b|Hardware Error").ok());
static RING: Pattern = LazyLock::new(|| Regex::new(r"^(?:<\d+>)?\[\s*(\d+)\.\d+\](?:\[[^\]]*\])?\s?(.*)$").ok());

/// Messages of the kernel that are kept of one kind; more say no more.
const MOST_ERRORS: usize = 200;

/// Reads what is the host's; gives the driver that is loaded now.
pub(super) fn read(found: &mut Found<'_>, facts: &HostFacts) -> Reading<Option<Untrusted>> {
    let driver = match found.section("host.driver") {
        // The kernel shows this file whenever the driver is loaded.
        Some(Section::Unread(Unread::Gone(_))) => Ok(None),
        _ => section::line(found.frame, "host.driver").map(|l| Some(group(&DRIVER, &l).unwrap_or(l).into())),
    };
    if let Err(Unknown(why)) = &driver {
        found.gap("the graphics driver", why);
    }
    let begins = journal_begins(found);
    boots(found, facts, begins);
    kernel(found, facts, begins);
    if matches!(&driver, Ok(Some(_)) | Err(_)) {
        card_errors(found, facts);
    }
    packages(found);
    driver
}

fn group(pattern: &Pattern, text: &str) -> Option<String> {
    Some(pattern.as_ref()?.captures(text)?.get(1)?.as_str().to_owned())
}

/// Where the journal begins; `None` where it holds nothing that can be read.
fn journal_begins(found: &mut Found<'_>) -> Option<Timestamp> {
    const WHAT: &str = "starts of services, boots and kernel messages in the journal";
    let lines = found.lines("host.oldest", WHAT)?;
    let (all, complaints) = records(&lines);
    found.complaints(WHAT, &complaints);
    let Some(oldest) = all.first() else {
        found.gap(WHAT, "the journal holds nothing that we may read");
        return None;
    };
    if oldest.at > found.since {
        let kept = match found.word("host.journal").as_deref() {
            Some("volatile") => "it is kept in memory and lost with every boot",
            Some("persistent") => "what was older is rotated away",
            _ => "how it is kept is not known",
        };
        let what = "starts of services, boots and kernel messages before the journal begins";
        found.gap(what, format!("it begins at {}: {kept}", oldest.at));
    }
    Some(oldest.at)
}

fn boots(found: &mut Found<'_>, facts: &HostFacts, begins: Option<Timestamp>) {
    match &facts.booted_at {
        // The running boot reaches back further, so that there was no other since.
        Ok(booted) if *booted < found.since => return,
        Ok(booted) => found.change(*booted, Kind::Reboot, "the host booted; it runs since", "/proc/stat"),
        Err(Unknown(why)) => found.gap("when the host booted", why),
    }
    if begins.is_none() {
        return found.gap("earlier boots", "there is no journal to read them from");
    }
    let Some(lines) = found.lines("host.boots", "earlier boots") else { return };
    let listed: Vec<(String, Timestamp)> = lines.iter().filter_map(|l| boot(l)).collect();
    if listed.is_empty() {
        return found.gap("earlier boots", "the list of boots cannot be read");
    }
    let running = facts.boot_id.as_ref().map(|id| id.raw().replace('-', "")).unwrap_or_default();
    for (number, (id, first)) in listed.iter().enumerate() {
        if *id == running || *first < found.since {
            continue;
        }
        if number == 0 {
            // What the journal shows first of its oldest boot need not be the boot.
            found.gap(format!("whether the host booted at {first}"), "the journal begins there");
        } else {
            found.change(*first, Kind::Reboot, "the host booted", &format!("journal, boot {}", &id[..8]));
        }
    }
}

/// Id and first record of a boot, in any of the forms of `journalctl --list-boots`.
fn boot(line: &str) -> Option<(String, Timestamp)> {
    let parts = BOOT.as_ref()?.captures(line)?;
    let at = format!("{}T{}Z", parts.get(2)?.as_str(), parts.get(3)?.as_str()).parse().ok()?;
    Some((parts.get(1)?.as_str().to_owned(), at))
}

fn kernel(found: &mut Found<'_>, facts: &HostFacts, begins: Option<Timestamp>) {
    let (messages, source) = match begins {
        Some(_) => (logged(found), "kernel log"),
        None => (ring(found, facts), "kernel ring buffer (times by uptime)"),
    };
    let Some(messages) = messages else { return };
    errors(found, &messages, source);
    let before = found.word("host.kernel_before").unwrap_or_default();
    let lines: Vec<String> = before.lines().map(str::to_owned).collect();
    let (before, _) = records(&lines);
    let rebooted = !facts.booted_at.as_ref().is_ok_and(|at| *at < found.since);
    versions(found, Kind::Kernel, (&before, &messages), (&KERNEL, "Linux version", "kernel"), source);
    let unnamed = |words: &str| !before.iter().any(|r| r.message.contains(words));
    if rebooted && unnamed("Linux version") {
        found.gap("the kernel before the last boots", "nothing tells which one ran before that time");
    }
    let loaded =
        versions(found, Kind::Driver, (&before, &messages), (&DRIVER, "NVRM: loading", "NVIDIA driver"), source);
    if loaded && unnamed("NVRM: loading") {
        found.gap(
            "the graphics driver before it was loaded again",
            "nothing tells which one was loaded before that time",
        );
    }
}

/// Notes each version that is not the one before it; says whether any was named.
fn versions(
    found: &mut Found<'_>,
    kind: Kind,
    (before, messages): (&[Record], &[Record]),
    (pattern, words, name): (&Pattern, &str, &str),
    source: &str,
) -> bool {
    let named = |records: &[Record]| -> Vec<(Timestamp, String, String)> {
        let told = records.iter().filter(|r| r.message.contains(words));
        told.filter_map(|r| Some((r.at, group(pattern, &r.message)?, r.message.clone()))).collect()
    };
    let all = named(messages);
    let mut last = named(before).pop();
    for (at, version, text) in &all {
        match &last {
            Some((_, was, _)) if was != version => {
                found.change(*at, kind, &format!("{name} {was} became {version}"), source);
            }
            Some((_, _, said)) if said != text => {
                found.change(*at, kind, &format!("{name} {version}, another build: {text}"), source);
            }
            _ => {}
        }
        last = Some((*at, version.clone(), text.clone()));
    }
    !all.is_empty()
}

/// What the kernel said since, from the journal, the eldest first.
fn logged(found: &mut Found<'_>) -> Option<Vec<Record>> {
    let lines = found.lines("host.kernel_log", "messages of the kernel")?;
    let lines = ended(found, lines);
    let (mut all, complaints) = records(&lines);
    found.complaints("messages of the kernel", &complaints);
    all.reverse();
    Some(all)
}

/// The lines without the one that says how the program ended; a gap where it did not end well.
fn ended(found: &mut Found<'_>, lines: Vec<String>) -> Vec<String> {
    let (said, lines): (Vec<String>, Vec<String>) = lines.into_iter().partition(|l| l.starts_with("ended "));
    match said.first().map(String::as_str) {
        Some("ended 0") => {}
        Some("ended 124") => found.gap("all messages of the kernel", "reading them took too long"),
        _ => found.gap("all messages of the kernel", "the program that reads them did not end well"),
    }
    lines
}

/// What the kernel said since it booted, as far as its buffer holds it.
fn ring(found: &mut Found<'_>, facts: &HostFacts) -> Option<Vec<Record>> {
    let lines = found.lines("host.dmesg", "messages of the kernel")?;
    let lines = ended(found, lines);
    let booted = match &facts.booted_at {
        Ok(booted) => *booted,
        Err(Unknown(why)) => {
            found.gap("when the kernel said something", why);
            return None;
        }
    };
    let since = found.since;
    let (mut records, mut begins, mut odd) = (Vec::new(), None, Vec::new());
    for line in &lines {
        let (line, first) = line.strip_prefix("first ").map_or((line.as_str(), false), |l| (l, true));
        match ring_line(line, booted) {
            Some((at, _)) if first => begins = Some(at),
            Some((at, message)) => records.push(Record { at, message, id: String::new() }),
            None if first && line.trim().is_empty() => {}
            None => odd.push(line),
        }
    }
    found.complaints("messages of the kernel", &odd);
    match begins {
        None => found.gap("messages of the kernel", "its buffer shows nothing that we may read"),
        // The first message of a boot comes in its first second.
        Some(at) if at > booted + SignedDuration::from_secs(2) && at > since => {
            found.gap("messages of the kernel before its buffer begins", format!("it begins at {at}"));
        }
        Some(_) => {}
    }
    if booted > since {
        found.gap(
            "messages of the kernel before the last boot",
            "its buffer holds one boot, and the journal cannot be read",
        );
    }
    records.retain(|r| r.at >= since);
    Some(records)
}

fn ring_line(line: &str, booted: Timestamp) -> Option<(Timestamp, String)> {
    let parts = RING.as_ref()?.captures(line)?;
    let at = booted.checked_add(SignedDuration::from_secs(parts.get(1)?.as_str().parse().ok()?)).ok()?;
    Some((at, parts.get(2)?.as_str().to_owned()))
}

fn errors(found: &mut Found<'_>, messages: &[Record], source: &str) {
    let memory = |text: &str| MEMORY.as_ref().is_some_and(|p| p.is_match(text));
    let kind = |text: &str| match text {
        text if text.contains("NVRM: Xid") => Some(Kind::GpuError),
        text if memory(text) => Some(Kind::HardwareError),
        _ => None,
    };
    let all: Vec<(&Record, Kind)> = messages.iter().filter_map(|r| Some((r, kind(&r.message)?))).collect();
    for (record, kind) in all.iter().take(MOST_ERRORS) {
        found.change(record.at, *kind, &record.message, source);
    }
    if all.len() > MOST_ERRORS {
        let more = all.len() - MOST_ERRORS;
        found.gap("the rest of the errors that the kernel reported", format!("{more} more are not listed"));
    }
}

/// Counters of the cards: they run since the driver was loaded and have no times.
fn card_errors(found: &mut Found<'_>, facts: &HostFacts) {
    let Some(lines) = found.lines("host.ecc", "counters of memory errors of the cards") else { return };
    let since_boot = facts.booted_at.as_ref().is_ok_and(|at| *at >= found.since);
    for line in &lines {
        let parts: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, bus, _, corrected, uncorrected] = parts[..] else {
            found.gap("counters of memory errors of the cards", line);
            continue;
        };
        let card = format!("card {index} ({bus})");
        match (corrected.parse::<u64>(), uncorrected.parse::<u64>()) {
            (Ok(0), Ok(0)) => {}
            (Ok(corrected), Ok(uncorrected)) => {
                let errors = format!("{uncorrected} uncorrected and {corrected} corrected memory errors of {card}");
                if since_boot {
                    found.undated(Kind::GpuError, &format!("{errors} since the driver was loaded"), "nvidia-smi");
                } else {
                    found.gap(format!("when the {errors} happened"), "the counter runs since before that time");
                }
            }
            _ => {
                found
                    .gap(format!("memory errors of {card}"), format!("nvidia-smi says `{corrected}`, `{uncorrected}`"));
            }
        }
    }
}

fn packages(found: &mut Found<'_>) {
    const WHAT: &str = "packages of the host";
    match found.word("host.packages").as_deref() {
        Some("dpkg") => dpkg(found),
        Some("rpm") => {
            let Some(lines) = found.lines("host.rpm", WHAT) else { return };
            found.gap(
                "packages that were removed from the host",
                "the package database tells only of those that are there",
            );
            let mut odd = Vec::new();
            for line in &lines {
                match line.split_once(' ').and_then(|(at, name)| Some((seconds(at)?, name))) {
                    Some((at, name)) => {
                        found.change(
                            at,
                            Kind::SystemPackage,
                            &format!("{name} was installed or updated"),
                            "rpm database",
                        );
                    }
                    None => odd.push(line.as_str()),
                }
            }
            found.complaints(WHAT, &odd);
        }
        Some(_) => found.gap(WHAT, "the host keeps no log of packages that this program knows"),
        None => found.gap(WHAT, "the answer does not tell how the host keeps them"),
    }
}

fn dpkg(found: &mut Found<'_>) {
    const LOG: &str = "/var/log/dpkg.log";
    let Some(lines) = found.lines("host.dpkg", "packages of the host") else { return };
    let (mut begins, mut odd) = (None, Vec::new());
    for line in &lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["begins", at] => begins = Some(at.to_owned()),
            [at, verb @ ("install" | "upgrade" | "remove" | "purge"), name, old, new] if seconds(at).is_some() => {
                let what = match (verb, old, new) {
                    ("install", "<none>", new) => format!("install {name} {new}"),
                    ("remove" | "purge", old, _) => format!("{verb} {name} {old}"),
                    _ => format!("{verb} {name} {old} to {new}"),
                };
                if let Some(at) = seconds(at) {
                    found.change(at, Kind::SystemPackage, &what, LOG);
                }
            }
            _ => odd.push(line.as_str()),
        }
    }
    found.complaints("all packages of the host", &odd);
    match begins.as_deref().map(|at| (at, seconds(at))) {
        Some(("before", _)) => {}
        Some((_, Some(at))) if at <= found.since => {}
        Some((_, Some(at))) => found.gap("packages of the host before their log begins", format!("it begins at {at}")),
        Some((_, None)) | None => found.gap("packages of the host", "where their log begins is not known"),
    }
}
