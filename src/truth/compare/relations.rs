//! Rows together: settings that do not go together, flags without effect beside another one, and variables that a
//! flag beats. Pure.
//!
//! A relation is found only where every value in it is known.

use super::judge::{join, show};
use super::view::View;
use crate::truth::knowledge::{self, Condition, Span};
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, flags};

/// Judges the rows again, now together.
pub(super) fn apply(rows: &mut [Row], view: &View<'_>) {
    let Some(tables) = view.tables() else { return };
    let holds = |since: &Option<String>, until: &Option<String>| {
        Span { since: since.clone(), until: until.clone() }.covers(view.version.as_deref()) != Some(false)
    };
    for conflict in tables.conflicts.iter().filter(|c| holds(&c.since, &c.until)) {
        let all: Option<Vec<usize>> = conflict.when.iter().map(|c| find(rows, view, c)).collect();
        let Some(all) = all else { continue };
        for at in &all {
            let others: Vec<String> = all.iter().filter(|o| *o != at).map(|o| rows[*o].name.clone()).collect();
            let note = format!("conflicts with `{}`: {} ({})", others.join("`, `"), conflict.note, conflict.source);
            mark(&mut rows[*at], RowStatus::ConflictsWith, &note);
        }
    }
    for idle in tables.idle.iter().filter(|i| holds(&i.since, &i.until)) {
        if find(rows, view, &idle.because).is_none() {
            continue;
        }
        for row in rows.iter_mut().filter(|r| r.kind == RowKind::Flag && idle.flags.contains(&view.spelled(&r.name).0))
        {
            let note = format!("without effect: `{}` is `{}`", idle.because.name, idle.because.is);
            match is_given(row) {
                true => mark(row, RowStatus::AcceptedButOff, &note),
                // Nobody asked for it.
                false if row.observed.is_some() => row.note = join(std::mem::take(&mut row.note), &note),
                false => {}
            }
        }
    }
    let beaten: Vec<(usize, String)> =
        rows.iter().enumerate().filter_map(|(at, row)| beaten(rows, view, at, row)).collect();
    for (at, note) in beaten {
        mark(&mut rows[at], RowStatus::OverriddenBy, &note);
    }
}

/// A row becomes graver, never less grave, and what could not be read stays unknown.
fn mark(row: &mut Row, status: RowStatus, note: &str) {
    if row.status != RowStatus::UnknownBecause {
        row.status = row.status.min(status);
    }
    row.note = join(std::mem::take(&mut row.note), note);
}

fn value(claim: Option<&Claim>) -> Option<&str> {
    let claim = claim.filter(|c| c.known == Known::Yes)?;
    claim.value.as_ref().map(crate::untrusted::Untrusted::raw)
}

fn is_given(row: &Row) -> bool {
    match &row.effective {
        Some(claim) if claim.known == Known::Yes => claim.value.is_some(),
        _ => value(row.declared.as_ref()).is_some(),
    }
}

/// The value in effect: observed, else what the process has, else what the files say while no process tells otherwise.
fn current(row: &Row) -> Option<&str> {
    if let Some(observed) = value(row.observed.as_ref()) {
        return Some(observed);
    }
    match &row.effective {
        Some(claim) => value(Some(claim)),
        None => value(row.declared.as_ref()),
    }
}

/// The row that meets a condition.
fn find(rows: &[Row], view: &View<'_>, condition: &Condition) -> Option<usize> {
    rows.iter().position(|row| {
        let named = match row.kind {
            RowKind::Env => row.name == condition.name,
            RowKind::Flag | RowKind::Config => view.spelled(&row.name).0 == condition.name,
        };
        named && row.component == "server" && current(row).is_some_and(|text| means(row.kind, text, &condition.is))
    })
}

/// Whether a text means a value; a flag without a value is on.
fn means(kind: RowKind, text: &str, is: &str) -> bool {
    let truth = |t: &str| match t {
        "" if kind != RowKind::Env => Some(true),
        "null" | "None" => None,
        other => knowledge::boolean(other),
    };
    flags::same_text(text, is) || (knowledge::boolean(is).is_some() && truth(text) == knowledge::boolean(is))
}

/// A variable that counts only where its flag is not given.
fn beaten(rows: &[Row], view: &View<'_>, at: usize, row: &Row) -> Option<(usize, String)> {
    let key = view.tables()?.beaten_by(&row.name).filter(|_| row.kind == RowKind::Env)?;
    let own = current(row)?;
    let flag = rows.iter().find(|r| r.kind == RowKind::Flag && is_given(r) && view.spelled(&r.name).0 == key)?;
    let given = match &flag.effective {
        Some(claim) => value(Some(claim))?,
        None => value(flag.declared.as_ref())?,
    };
    let note = format!("`{}` on the command line wins: `{}`", flag.name, show(&flag.name, given));
    (!flags::same_text(own, given)).then_some((at, note))
}
