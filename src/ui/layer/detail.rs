//! Everything about one row, scrolled; it follows the state while it is open.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Outcome, Scroll, closes, frame, middle};
use crate::ui::pane::{self, PaneId, View, wrap_lines};
use crate::ui::theme::Role;

/// The detail of a row.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The pane of the row.
    pub pane: PaneId,
    /// The key of the row.
    pub key: String,
    scroll: Scroll,
}

impl Detail {
    /// The detail of this row.
    pub fn new(pane: PaneId, key: String) -> Self {
        Self { pane, key, scroll: Scroll::default() }
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
        let mut lines = wrap_lines(&pane::detail(self.pane, view, &self.key), width.saturating_sub(4) as usize);
        if lines.is_empty() {
            lines.push(view.line("this row is gone", Role::Dim));
        }
        let height = (lines.len() as u16 + 2).min(area.height.saturating_sub(2));
        let inside = frame(buffer, middle(area, width, height), view, self.pane.title(), Role::Focus);
        self.scroll.draw(buffer, inside, view, &lines);
    }
}
