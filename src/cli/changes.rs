//! `patchbench changes`: what changed on the hosts of a case since a time, and what cannot be told. Pure.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ZonedDateTime, civil};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::Failure;
use crate::redact;
use crate::truth::changes::{Change, Gap, History, Kind};
use crate::untrusted::Untrusted;

/// Characters of a change that the text form shows.
const SHOWN: usize = 160;

/// What changed since a time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangesReport {
    /// The time that was looked back to.
    pub since: String,
    /// The hosts that were asked.
    pub hosts: Vec<HostRow>,
    /// What changed, the newest first; what has no time stands last.
    pub changes: Vec<Change>,
    /// What cannot be told: that no change is listed of it says nothing.
    pub gaps: Vec<Gap>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostRow {
    /// Its name in the case.
    pub host: String,
    /// The targets of the case on it.
    pub targets: Vec<String>,
    /// Whether it answered.
    pub answered: bool,
    /// When it booted; `null` is not known.
    pub booted_at: Option<String>,
    /// The kernel that runs; `null` is not known.
    pub kernel: Option<String>,
    /// The graphics driver that is loaded, `none` where there is none; `null` is not known.
    pub driver: Option<String>,
}

impl Report for ChangesReport {
    const NAME: &'static str = "changes";
}

/// What one host said, or why it said nothing.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its name in the case.
    pub host: String,
    /// The targets of the case on it.
    pub targets: Vec<String>,
    /// Its past.
    pub history: Result<History, Failure>,
}

/// The time that a word names: RFC 3339, `2026-05-01 10:00` or `2026-05-01` in the zone of `now`, or `2h` before `now`.
///
/// # Errors
/// The word is no time, or one that has not come.
pub fn since(word: &str, now: &ZonedDateTime) -> Result<Timestamp, Failed> {
    let text = word.trim();
    let hint = "give RFC 3339 such as `2026-05-01T10:00:00Z`, local time such as `2026-05-01 10:00`, or a span such as `45min`, `2h`, `3d`";
    let wrong = |message: String| Failed::usage(ErrorCode::Usage, message).hint(hint);
    let shown = Untrusted::from(text).visible(60);
    let at = moment(text, now.time_zone()).or_else(|| before(text, now));
    match at {
        None => Err(wrong(format!("`{shown}` is no time to look back to"))),
        Some(at) if at > now.timestamp() => Err(wrong(format!("`{shown}` has not come yet"))),
        // Files and logs are dated in whole seconds.
        Some(at) => Ok(Timestamp::from_second(at.as_second()).unwrap_or(at)),
    }
}

fn moment(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    // A time that names its zone is no local time.
    if text.contains('[') {
        return text.parse::<ZonedDateTime>().ok().map(|at| at.timestamp());
    }
    let local: civil::DateTime = text.parse().ok()?;
    Some(local.to_zoned_datetime(zone.clone()).ok()?.timestamp())
}

fn before(text: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let span: Span = text.parse().ok()?;
    // `2h` and `2h ago` are the same here.
    (!span.is_zero()).then(|| now.checked_sub(span.abs()).ok()).flatten().map(|at| at.timestamp())
}

/// Answers `changes` once every host was asked.
pub fn answer(since: Timestamp, asked: Vec<Asked>, style: Style) -> Answer {
    let answered = asked.iter().all(|a| a.history.is_ok());
    let failures: Vec<String> = asked.iter().filter_map(|a| Some(a.history.as_ref().err()?.message.clone())).collect();
    let hint = asked.iter().find_map(|a| a.history.as_ref().err()?.hint.clone());
    let remarks: Vec<Diagnostic> = asked.iter().flat_map(remarks).collect();
    let report = report(since, asked);
    // A finding stands whoever else was silent; without one, a silent host leaves the question open.
    let status = match (report.changes.is_empty(), answered) {
        (false, _) => Status::Finding,
        (true, true) => Status::Done,
        (true, false) => Status::World,
    };
    let answer = Answer::new(&report, status, text(&report, style)).diagnostics(remarks);
    if answered {
        return answer;
    }
    let message = format!("not every host of the case answered: {}", failures.join("; "));
    answer.error(ErrorCode::Unreachable, message, hint)
}

fn remarks(asked: &Asked) -> Vec<Diagnostic> {
    let Ok(history) = &asked.history else { return Vec::new() };
    let mut remarks = history.remarks.clone();
    remarks.extend(history.facts.skew(&asked.host));
    remarks
}

fn report(since: Timestamp, asked: Vec<Asked>) -> ChangesReport {
    let mut report =
        ChangesReport { since: since.to_string(), hosts: Vec::new(), changes: Vec::new(), gaps: Vec::new() };
    for Asked { host, targets, history } in asked {
        let mut row = HostRow {
            host: host.clone(),
            targets,
            answered: history.is_ok(),
            booted_at: None,
            kernel: None,
            driver: None,
        };
        match history {
            Ok(history) => {
                row.booted_at = history.facts.booted_at.ok().map(|at| at.to_string());
                row.kernel = history.facts.kernel.ok().map(|k| k.visible(SHOWN));
                row.driver = history.driver.ok().map(|d| d.map_or_else(|| "none".to_owned(), |d| d.visible(SHOWN)));
                report.changes.extend(history.changes);
                report.gaps.extend(history.gaps);
            }
            Err(failure) => report.gaps.push(Gap {
                host,
                target: None,
                what: "everything".into(),
                because: redact::text(&failure.message),
            }),
        }
        report.hosts.push(row);
    }
    // Stable, so that what one host tells of one moment keeps its order; no time sorts before every time.
    report.changes.sort_by_key(|c| std::cmp::Reverse(c.at));
    report
}

fn text(report: &ChangesReport, style: Style) -> String {
    let mut parts = Vec::new();
    let mut head = vec![format!("since {}", report.since)];
    head.extend(report.hosts.iter().map(|host| {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        if !host.answered {
            return format!("{}: {}", host.host, style.error("no answer"));
        }
        let (booted, kernel, driver) = (known(&host.booted_at), known(&host.kernel), known(&host.driver));
        format!("{}: booted {booted}, kernel {kernel}, graphics driver {driver}", host.host)
    }));
    parts.push(head.join("\n"));
    if report.changes.is_empty() {
        parts.push("no change is known of".to_owned());
    } else {
        let rows: Vec<Vec<Cell>> = report.changes.iter().map(row).collect();
        parts.push(table(&["time", "kind", "where", "what", "source"], &[], &rows, style));
    }
    if !report.gaps.is_empty() {
        let mut lines =
            vec![format!("{} things cannot be told; that nothing is listed of them says nothing:", report.gaps.len())];
        let rows: Vec<Vec<Cell>> = report
            .gaps
            .iter()
            .map(|gap| {
                vec![
                    place(&gap.host, gap.target.as_deref()).into(),
                    gap.what.as_str().into(),
                    gap.because.as_str().into(),
                ]
            })
            .collect();
        lines.push(table(&["where", "not known", "because"], &[], &rows, style));
        parts.push(lines.join("\n"));
    }
    parts.join("\n\n")
}

fn row(change: &Change) -> Vec<Cell> {
    let kind = serde_json::to_value(change.kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let mark = match change.kind {
        Kind::GpuError | Kind::HardwareError | Kind::ServiceFailure => Mark::Bad,
        Kind::Reboot | Kind::Kernel | Kind::Driver => Mark::Warning,
        _ => Mark::Plain,
    };
    let at = change.at.map_or_else(|| "unknown".to_owned(), |at| format!("{at:.0}"));
    vec![
        at.into(),
        Cell::marked(kind, mark),
        place(&change.host, change.target.as_deref()).into(),
        change.what.visible(SHOWN).into(),
        Cell::marked(change.source.as_str(), Mark::Dim),
    ]
}

fn place(host: &str, target: Option<&str>) -> String {
    match target {
        Some(target) => format!("{host}/{target}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
