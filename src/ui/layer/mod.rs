//! What lies over the panes: help, palette, questions, inputs, details.
//!
//! The topmost layer gets every key first; a layer never changes the state, it only answers with an
//! [`Outcome`].

pub mod confirm;
pub mod detail;
pub mod help;
pub mod input;
pub mod palette;
pub mod quit;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::engine::ids::ProcedureId;
use crate::ui::pane::{PaneId, View};
use crate::ui::text;
use crate::ui::theme::Role;

/// A layer.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Keys and commands of where one is.
    Help(help::Help),
    /// A command line with suggestions.
    Palette(palette::Palette),
    /// A planned change, and the question whether to run it.
    Confirm(confirm::Confirm),
    /// A line or a text to type.
    Input(input::Input),
    /// The question what stays, on leaving.
    Quit(quit::Quit),
    /// Everything about one row.
    Detail(detail::Detail),
}

/// What a key did to a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The layer stays.
    Stay,
    /// The layer closes.
    Close,
    /// The layer closes, and this line is run.
    Run(String),
    /// The filter of a pane changed; the layer closes if `done`.
    Filter {
        /// The pane.
        pane: PaneId,
        /// What was typed.
        typed: String,
        /// The layer closes.
        done: bool,
    },
    /// The change is confirmed.
    Confirm {
        /// The change.
        procedure: ProcedureId,
        /// What was typed.
        typed: Option<String>,
    },
    /// The change is dropped.
    Discard(ProcedureId),
    /// The note was written.
    Note(String),
    /// The snapshot was named.
    Snapshot(String),
    /// What stays on leaving.
    Leave(quit::Leave),
}

impl Layer {
    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent, view: &View<'_>) -> Outcome {
        match self {
            Self::Help(l) => l.key(event),
            Self::Palette(l) => l.key(event),
            Self::Confirm(l) => l.key(event, view),
            Self::Input(l) => l.key(event),
            Self::Quit(l) => l.key(event),
            Self::Detail(l) => l.key(event),
        }
    }

    /// Takes pasted text; only inputs want it.
    pub fn paste(&mut self, pasted: &str) -> Outcome {
        match self {
            Self::Palette(l) => l.paste(pasted),
            Self::Input(l) => l.paste(pasted),
            Self::Confirm(_) | Self::Help(_) | Self::Quit(_) | Self::Detail(_) => Outcome::Stay,
        }
    }

    /// Draws itself over the panes.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        match self {
            Self::Help(l) => l.draw(buffer, area, view),
            Self::Palette(l) => l.draw(buffer, area, view),
            Self::Confirm(l) => l.draw(buffer, area, view),
            Self::Input(l) => l.draw(buffer, area, view),
            Self::Quit(l) => l.draw(buffer, area, view),
            Self::Detail(l) => l.draw(buffer, area, view),
        }
    }

    /// The keys that work in it, for the last line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Help(_) | Self::Detail(_) => "j k scroll  esc close",
            Self::Palette(_) => "enter run  tab complete  up down choose  esc close",
            Self::Confirm(l) => l.hint(),
            Self::Input(l) => l.hint(),
            Self::Quit(l) => l.hint(),
        }
    }

    /// Whether keys are text in it.
    pub fn takes_text(&self) -> bool {
        matches!(self, Self::Palette(_) | Self::Input(_)) || matches!(self, Self::Confirm(l) if l.wants_name())
    }
}

/// Whether the key closes any layer.
pub fn closes(event: KeyEvent) -> bool {
    event.code == KeyCode::Esc || (event.code == KeyCode::Char('c') && event.modifiers.contains(KeyModifiers::CONTROL))
}

/// Lines that can be scrolled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    /// First line that is drawn.
    pub top: usize,
    page: usize,
    lines: usize,
}

impl Scroll {
    /// Takes a scroll key; whether it was one.
    pub fn key(&mut self, event: KeyEvent) -> bool {
        let page = self.page.max(1) as isize;
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let by = match event.code {
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::PageDown | KeyCode::Char(' ') => page,
            KeyCode::Char('d') if control => page,
            KeyCode::PageUp => -page,
            KeyCode::Char('u') if control => -page,
            KeyCode::Home => isize::MIN / 2,
            KeyCode::End | KeyCode::Char('G') => isize::MAX / 2,
            _ => return false,
        };
        self.top = self.top.saturating_add_signed(by).min(self.lines.saturating_sub(self.page));
        true
    }

    /// Draws the lines from the first one on, and at the lower right how many are below.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>, lines: &[Line<'static>]) {
        self.page = area.height as usize;
        self.lines = lines.len();
        self.top = self.top.min(lines.len().saturating_sub(self.page));
        for (i, line) in lines.iter().skip(self.top).take(self.page).enumerate() {
            buffer.set_line(area.x, area.y + i as u16, line, area.width);
        }
        let below = lines.len().saturating_sub(self.top + self.page);
        if below > 0 {
            let word = format!(" {below} more below ");
            let x = area.right().saturating_sub(text::width(&word) as u16).max(area.x);
            buffer.set_stringn(x, area.bottom(), word, area.width as usize, view.look.style(Role::Warn));
        }
    }
}

/// Draws an empty box with a title and gives its inside.
pub fn frame(buffer: &mut Buffer, area: Rect, view: &View<'_>, title: &str, role: Role) -> Rect {
    let style = view.look.style(role);
    for y in area.y..area.bottom() {
        for x in area.x..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let inner_width = area.width.saturating_sub(2) as usize;
    buffer.set_string(area.x, area.y, format!("╭{}╮", "─".repeat(inner_width)), style);
    buffer.set_string(area.x, area.bottom() - 1, format!("╰{}╯", "─".repeat(inner_width)), style);
    for y in area.y + 1..area.bottom() - 1 {
        buffer.set_string(area.x, y, "│", style);
        buffer.set_string(area.right() - 1, y, "│", style);
    }
    let title = text::cut(&format!(" {title} "), inner_width.saturating_sub(2));
    buffer.set_string(area.x + 2, area.y, title, style);
    Rect { x: area.x + 2, y: area.y + 1, width: area.width.saturating_sub(4), height: area.height.saturating_sub(2) }
}

/// A box of at most this size in the middle.
pub fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
