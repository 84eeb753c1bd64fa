//! Notes of people, named points of the session, and remarks of the program, in the order of time.

use jiff::Timestamp;
use ratatui::text::Line;

use super::{Heading, View, fact};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::state::{NamedPoint, Note};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{Cell, Column, Source};
use crate::untrusted::Untrusted;

const MAX_CHARS: usize = 2000;

enum Entry<'a> {
    Note(usize, &'a Note),
    Point(usize, &'a NamedPoint),
    Remark(usize, &'a Diagnostic),
}

/// The rows: notes and points by time, then remarks, which carry no time of their own.
pub struct Rows<'a> {
    entries: Vec<Entry<'a>>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        let mut dated: Vec<(Timestamp, Entry<'a>)> = Vec::new();
        dated.extend(view.state.notes.iter().enumerate().map(|(i, n)| (n.at, Entry::Note(i, n))));
        dated.extend(view.state.snapshots.iter().enumerate().map(|(i, p)| (p.at, Entry::Point(i, p))));
        dated.sort_by_key(|(at, _)| *at);
        let mut entries: Vec<_> = view.state.diagnostics.iter().enumerate().map(|(i, d)| Entry::Remark(i, d)).collect();
        entries.extend(dated.into_iter().map(|(_, e)| e));
        Self { entries }
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, i: usize) -> String {
        match &self.entries[i] {
            Entry::Note(n, _) => format!("note {n}"),
            Entry::Point(n, _) => format!("point {n}"),
            Entry::Remark(n, _) => format!("remark {n}"),
        }
    }

    fn text(&self, i: usize) -> String {
        self.cells(i).into_iter().map(|c| c.text).collect::<Vec<_>>().join(" ")
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::fixed("time", 8, 3), Column::upto("by", 8, 12, 2), Column::grow("note", 12, 1)]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        match &self.entries[i] {
            Entry::Note(_, n) => vec![
                Cell::of(text::clock(n.at), Role::Dim),
                Cell::of(shown(&n.by.name), Role::Strong),
                Cell::plain(shown(&n.text)),
            ],
            Entry::Point(_, p) => vec![
                Cell::of(text::clock(p.at), Role::Dim),
                Cell::of("snapshot", Role::Dim),
                Cell::of(shown(&p.name), Role::Strong),
            ],
            Entry::Remark(_, d) => {
                let (word, role) = severity(d.severity);
                vec![Cell::of("", Role::Dim), Cell::of(word, role), Cell::plain(shown(&d.message))]
            }
        }
    }

    fn follow_tail(&self) -> bool {
        true
    }

    fn titled(&self) -> bool {
        false
    }
}

fn shown(text: &str) -> String {
    Untrusted::from(text).visible(MAX_CHARS)
}

/// A severity in words.
pub fn severity(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Info => ("info", Role::Dim),
        Severity::Warning => ("warning", Role::Warn),
        Severity::Error => ("error", Role::Bad),
    }
}

/// The title line.
pub fn heading(view: &View<'_>) -> Heading {
    let (notes, remarks) = (view.state.notes.len(), view.state.diagnostics.len());
    let mut words = Vec::new();
    if notes > 0 {
        words.push(text::counted(notes, "note"));
    }
    if remarks > 0 {
        words.push(text::counted(remarks, "remark"));
    }
    Heading { summary: words.join(", "), at: view.state.notes.last().map(|n| n.at), stale_after_s: None }
}

/// Everything about one row.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let Some((kind, i)) = key.split_once(' ').and_then(|(k, i)| Some((k, i.parse::<usize>().ok()?))) else {
        return Vec::new();
    };
    let when = |at: Timestamp| fact(view, "when", format!("{} UTC", at.strftime("%Y-%m-%d %H:%M:%S")), Role::Dim);
    match kind {
        "note" => view.state.notes.get(i).map_or_else(Vec::new, |n| {
            vec![view.line(shown(&n.text), Role::Text), when(n.at), fact(view, "by", shown(&n.by.name), Role::Dim)]
        }),
        "point" => view.state.snapshots.get(i).map_or_else(Vec::new, |p| {
            vec![
                fact(view, "snapshot", shown(&p.name), Role::Strong),
                when(p.at),
                fact(view, "journal", format!("line {}", p.seq), Role::Dim),
            ]
        }),
        _ => view.state.diagnostics.get(i).map_or_else(Vec::new, |d| remark_lines(view, d)),
    }
}

/// A remark with its place and hint.
pub fn remark_lines(view: &View<'_>, d: &Diagnostic) -> Vec<Line<'static>> {
    let (word, role) = severity(d.severity);
    let mut out =
        vec![Line::from(vec![view.span(format!("{word}: "), role), view.span(shown(&d.message), Role::Text)])];
    if let Some(place) = &d.place {
        out.push(fact(view, "at", shown(place), Role::Dim));
    }
    if let Some(hint) = &d.hint {
        out.push(fact(view, "hint", shown(hint), Role::Text));
    }
    out
}
