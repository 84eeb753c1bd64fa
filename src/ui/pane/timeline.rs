//! The journal, one line per event, newest at the end.

use imbl::Vector;
use ratatui::text::Line;

use super::{Heading, View, fact};
use crate::engine::state::{Mark, TimelineEntry};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{Cell, Column, Source};
use crate::untrusted::Untrusted;

const MAX_CHARS: usize = 400;

/// The rows: events.
pub struct Rows<'a> {
    entries: &'a Vector<TimelineEntry>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        Self { entries: &view.state.timeline }
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, i: usize) -> String {
        self.entries.get(i).map_or(String::new(), |e| e.seq.to_string())
    }

    fn text(&self, i: usize) -> String {
        self.entries
            .get(i)
            .map_or(String::new(), |e| format!("{} {} {} {}", text::clock(e.at), mark(e.mark).0, e.by, e.text))
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::fixed("time", 8, 2),
            Column::fixed("", 7, 3),
            Column::upto("by", 6, 12, 5),
            Column::number("seq", 6, 4),
            Column::grow("what", 20, 1),
        ]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        let Some(e) = self.entries.get(i) else { return Vec::new() };
        let (word, role) = mark(e.mark);
        vec![
            Cell::of(text::clock(e.at), Role::Dim),
            Cell::of(word, role),
            Cell::of(shown(&e.by), Role::Dim),
            Cell::of(e.seq.to_string(), Role::Dim),
            Cell::plain(shown(&e.text)),
        ]
    }

    fn append_only(&self) -> bool {
        true
    }

    fn follow_tail(&self) -> bool {
        true
    }

    fn titled(&self) -> bool {
        false
    }
}

/// The texts of events may quote foreign text.
fn shown(text: &str) -> String {
    Untrusted::from(text).visible(MAX_CHARS)
}

fn mark(mark: Mark) -> (&'static str, Role) {
    match mark {
        Mark::Plain => ("", Role::Dim),
        Mark::Change => ("change", Role::Warn),
        Mark::Proof => ("proof", Role::Good),
        Mark::Failure => ("failure", Role::Bad),
        Mark::Verdict => ("verdict", Role::Strong),
    }
}

/// The title line.
pub fn heading(view: &View<'_>) -> Heading {
    let last = view.state.timeline.last();
    let summary = if last.is_some() { text::counted(view.state.timeline.len(), "event") } else { String::new() };
    Heading { summary, at: last.map(|e| e.at), stale_after_s: None }
}

/// Everything about one event.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let Ok(seq) = key.parse::<u64>() else { return Vec::new() };
    let Some(e) = view.state.timeline.iter().find(|e| e.seq == seq) else { return Vec::new() };
    vec![
        fact(view, "what", shown(&e.text), Role::Text),
        fact(
            view,
            "when",
            format!("{} UTC, {} ago", e.at.strftime("%Y-%m-%d %H:%M:%S"), text::age(view.now, e.at)),
            Role::Text,
        ),
        fact(view, "by", shown(&e.by), Role::Text),
        fact(view, "journal", format!("line {}", e.seq), Role::Dim),
    ]
}
