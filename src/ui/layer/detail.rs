//! Everything about one row, scrolled; it follows the state while it is open.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{Outcome, Scroll, closes, frame, middle};
use crate::ui::pane::{self, PaneId, View, wrap_lines};
use crate::ui::theme::Role;

/// The detail of a row.
#[derive(Clone, Debug)]
pub struct Detail {
    shows: Shows,
    scroll: Scroll,
}

/// What is shown.
#[derive(Clone, Debug)]
enum Shows {
    /// A row of a pane, as the state has it.
    Row { pane: PaneId, key: String },
    /// A text that was read once.
    Text { title: String, lines: Vec<Line<'static>> },
}

impl Detail {
    /// The detail of this row.
    pub fn new(pane: PaneId, key: String) -> Self {
        Self { shows: Shows::Row { pane, key }, scroll: Scroll::default() }
    }

    /// A text that does not follow the state.
    pub fn of_text(title: String, lines: Vec<Line<'static>>) -> Self {
        Self { shows: Shows::Text { title, lines }, scroll: Scroll::default() }
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) -> Outcome {
        if closes(event) || matches!(event.code, KeyCode::Char('q') | KeyCode::Enter) {
            return Outcome::Close;
        }
        self.scroll.key(event);
        Outcome::Stay
    }

    /// Draws itself.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        let width = area.width.saturating_sub(4).min(140);
        let (title, lines) = match &self.shows {
            Shows::Row { pane, key } => (pane.title(), pane::detail(*pane, view, key)),
            Shows::Text { title, lines } => (title.as_str(), lines.clone()),
        };
        let mut lines = wrap_lines(&lines, width.saturating_sub(4) as usize);
        if lines.is_empty() {
            lines.push(view.line("this row is gone", Role::Dim));
        }
        let height = (lines.len() as u16 + 2).min(area.height.saturating_sub(2));
        let inside = frame(buffer, middle(area, width, height), view, title, Role::Focus);
        self.scroll.draw(buffer, inside, view, &lines);
    }
}
