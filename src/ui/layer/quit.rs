//! The question on leaving while a server is changed: what stays?

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{Outcome, closes, frame, middle};
use crate::ui::derived::changed_levels;
use crate::ui::pane::{View, wrap_lines};
use crate::ui::text;
use crate::ui::theme::Role;

/// What stays on leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Every server as it was found.
    Original,
    /// The guilty patches off, everything else as found.
    BestKnown,
    /// Every server as it is now.
    Keep,
}

/// The question.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quit {
    /// Whether a patch is guilty, so that a configuration is known to be better than the original one.
    pub better_known: bool,
}

impl Quit {
    /// The keys that work here.
    pub fn hint(self) -> &'static str {
        if self.better_known { "o original  b best known  k keep  esc stay" } else { "o original  k keep  esc stay" }
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) -> Outcome {
        match event.code {
            _ if closes(event) => Outcome::Close,
            KeyCode::Char('o') => Outcome::Leave(Leave::Original),
            KeyCode::Char('b') if self.better_known => Outcome::Leave(Leave::BestKnown),
            KeyCode::Char('k') => Outcome::Leave(Leave::Keep),
            _ => Outcome::Stay,
        }
    }

    /// Draws itself.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        let mut lines = Vec::new();
        for (name, target) in &view.state.targets {
            let Some(changed) = &target.changed else { continue };
            let levels = changed_levels(view.state, name);
            lines.push(Line::from(vec![
                view.span(format!("{name} "), Role::Strong),
                view.span(
                    format!(
                        "was changed {} ago by {}: {}",
                        text::age(view.now, changed.since),
                        changed.by.name,
                        levels.join(" ")
                    ),
                    Role::Text,
                ),
            ]));
            let newest =
                view.state.procedures.values().rev().find(|p| p.procedure.target == *name && p.confirmed_by.is_some());
            if let Some(minutes) = newest.and_then(|p| p.procedure.lease.as_ref()?.minutes) {
                let words =
                    format!("kept, its host puts it back by itself {minutes} minutes after this program is gone");
                lines.push(Line::from(view.span(words, Role::Warn)));
            }
        }
        lines.push(Line::default());
        for (key, words) in [
            ("o", "original: put every server back as it was found, then leave"),
            ("b", "best known: leave the guilty patches off, everything else as found, then leave"),
            ("k", "keep: leave every server as it is now (a demo stops its own lab); the session knows the way back"),
            ("esc", "stay"),
        ] {
            if key == "b" && !self.better_known {
                continue;
            }
            lines.push(Line::from(vec![view.span(text::fit(key, 5), Role::Key), view.span(words, Role::Text)]));
        }
        let width = 84.min(area.width.saturating_sub(4));
        let lines = wrap_lines(&lines, width.saturating_sub(4) as usize);
        let at = middle(area, width, lines.len() as u16 + 2);
        let inside = frame(buffer, at, view, "A server is changed: what stays?", Role::Warn);
        for (i, line) in lines.iter().take(inside.height as usize).enumerate() {
            buffer.set_line(inside.x, inside.y + i as u16, line, inside.width);
        }
    }
}
