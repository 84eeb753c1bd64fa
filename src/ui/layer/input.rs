//! A line or a text to type: a filter, a note, the name of a snapshot.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use ratatui_textarea::TextArea;

use super::{Outcome, closes, frame, middle};
use crate::ui::pane::{PaneId, View};
use crate::ui::theme::Role;

/// What is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A filter of a pane; it works while it is typed.
    Filter {
        /// The pane.
        pane: PaneId,
        /// The filter before, for a change of mind.
        before: String,
    },
    /// A note.
    Note,
    /// The name of a snapshot.
    Snapshot,
    /// The rest of a command.
    Argument {
        /// What is asked.
        title: String,
        /// The command and its first arguments.
        lead: String,
    },
}

/// The input.
#[derive(Clone, Debug)]
pub struct Input {
    what: What,
    area: TextArea<'static>,
    /// What stands there is a suggestion: the first character that is typed takes its place.
    suggested: bool,
}

impl Input {
    /// An input that begins with this text.
    pub fn new(what: What, text: &str) -> Self {
        let mut area = TextArea::from(text.lines());
        area.move_cursor(ratatui_textarea::CursorMove::End);
        let suggested = matches!(what, What::Snapshot | What::Argument { .. }) && !text.is_empty();
        if suggested {
            area.select_all();
        }
        Self { what, area, suggested }
    }

    /// The keys that work here.
    pub fn hint(&self) -> &'static str {
        match self.what {
            What::Filter { .. } => "enter keep  esc as before  a leading ! inverts",
            What::Note => "enter save  alt-enter new line  esc drop",
            What::Snapshot => "enter save  typing replaces the name  esc drop",
            What::Argument { .. } if self.suggested => "enter go on  typing replaces what stands there  esc drop",
            What::Argument { .. } => "enter go on  esc drop",
        }
    }

    /// Whether it is a filter, which stands on one line instead of in a box.
    pub fn is_filter(&self) -> bool {
        matches!(self.what, What::Filter { .. })
    }

    fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) -> Outcome {
        if closes(event) {
            return match &self.what {
                What::Filter { pane, before } => Outcome::Filter { pane: *pane, typed: before.clone(), done: true },
                What::Note | What::Snapshot | What::Argument { .. } => Outcome::Close,
            };
        }
        if event.code == KeyCode::Enter {
            if self.what == What::Note && event.modifiers.contains(KeyModifiers::ALT) {
                self.area.insert_newline();
                return Outcome::Stay;
            }
            let typed = self.text();
            return match &self.what {
                What::Filter { pane, .. } => Outcome::Filter { pane: *pane, typed, done: true },
                _ if typed.trim().is_empty() => Outcome::Close,
                What::Note => Outcome::Note(typed),
                What::Snapshot => Outcome::Snapshot(typed.trim().to_owned()),
                What::Argument { lead, .. } => Outcome::Run(format!("{lead} {}", typed.trim())),
            };
        }
        // An arrow or the end of the line keeps the suggestion for editing.
        let types = matches!(event.code, KeyCode::Char(_) | KeyCode::Backspace | KeyCode::Delete);
        if std::mem::take(&mut self.suggested) {
            if types {
                self.area = TextArea::default();
            } else {
                self.area.cancel_selection();
            }
        }
        self.area.input(event);
        self.changed()
    }

    /// Takes pasted text; line breaks become spaces where only a line is wanted.
    pub fn paste(&mut self, pasted: &str) -> Outcome {
        if std::mem::take(&mut self.suggested) {
            self.area = TextArea::default();
        }
        match self.what {
            What::Note => self.area.insert_str(pasted),
            What::Filter { .. } | What::Snapshot | What::Argument { .. } => {
                self.area.insert_str(pasted.replace(['\r', '\n'], " "))
            }
        };
        self.changed()
    }

    fn changed(&self) -> Outcome {
        match &self.what {
            What::Filter { pane, .. } => Outcome::Filter { pane: *pane, typed: self.text(), done: false },
            What::Note | What::Snapshot | What::Argument { .. } => Outcome::Stay,
        }
    }

    /// Draws itself: a filter on the line above the last one, the others in a box.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        self.area.set_cursor_line_style(view.look.style(Role::Text));
        self.area.set_cursor_style(view.look.style(Role::Selected));
        let inside = match &self.what {
            What::Filter { pane, .. } => {
                let line = Rect { y: area.bottom() - 1, height: 1, ..area };
                for x in line.x..line.right() {
                    buffer[(x, line.y)].reset();
                }
                let lead = format!("filter {}: ", pane.name());
                buffer.set_string(line.x, line.y, &lead, view.look.style(Role::Key));
                let used = (lead.len() as u16).min(line.width);
                Rect { x: line.x + used, width: line.width - used, ..line }
            }
            What::Note => frame(buffer, middle(area, 80, 8), view, "Note, kept in the journal", Role::Focus),
            What::Snapshot => frame(buffer, middle(area, 60, 3), view, "Name of this snapshot", Role::Focus),
            What::Argument { title, .. } => frame(buffer, middle(area, 80, 3), view, title, Role::Focus),
        };
        (&self.area).render(inside, buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[KeyCode]) -> String {
        let mut input = Input::new(What::Snapshot, "snapshot-1");
        for key in keys {
            input.key(KeyEvent::new(*key, KeyModifiers::NONE));
        }
        input.text()
    }

    #[test]
    fn a_name_that_was_typed_was_added_to_the_suggestion() {
        assert_eq!(typed(&[KeyCode::Char('a'), KeyCode::Char('b')]), "ab");
        assert_eq!(typed(&[KeyCode::End, KeyCode::Char('a')]), "snapshot-1a");
        assert_eq!(typed(&[KeyCode::Backspace]), "");
        assert_eq!(typed(&[]), "snapshot-1");
    }
}
