//! The palette: a command line with suggestions from the command table.
//!
//! The name is found by fuzzy match over names, then in the docs; after the name, arguments are completed from
//! the case and the session.

use crossterm::event::{KeyCode, KeyEvent};
use nucleo_matcher::pattern::{AtomKind, CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget;
use ratatui_textarea::{CursorMove, TextArea};

use super::{Outcome, closes, frame};
use crate::engine::table::{self, Entry, TABLE};
use crate::ui::action::{self, Context};
use crate::ui::pane::View;
use crate::ui::text;
use crate::ui::theme::Role;

/// The palette.
#[derive(Clone, Debug)]
pub struct Palette {
    area: TextArea<'static>,
    selected: usize,
    suggestions: Vec<Suggestion>,
}

/// A line that could be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The line that it would put into the input.
    pub line: String,
    /// Arguments that are still to come.
    pub args: String,
    /// What it does.
    pub doc: String,
    /// Whether it changes something outside.
    pub destructive: bool,
}

impl Palette {
    /// A palette that begins with this line.
    pub fn new(line: &str) -> Self {
        let mut area = TextArea::from([line]);
        area.move_cursor(CursorMove::End);
        Self { area, selected: 0, suggestions: Vec::new() }
    }

    /// What was typed.
    pub fn line(&self) -> String {
        self.area.lines().join(" ")
    }

    /// Works the suggestions out again; called after each change.
    pub fn refresh(&mut self, context: &Context<'_>, layouts: &[String]) {
        self.suggestions = suggest(&self.line(), context, layouts);
        self.selected = self.selected.min(self.suggestions.len().saturating_sub(1));
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) -> Outcome {
        match event.code {
            _ if closes(event) => return Outcome::Close,
            KeyCode::Enter => return self.enter(),
            KeyCode::Down => self.selected = (self.selected + 1).min(self.suggestions.len().saturating_sub(1)),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Tab => {
                if let Some(s) = self.suggestions.get(self.selected).cloned() {
                    self.set_line(&format!("{} ", s.line));
                }
            }
            _ => {
                if self.area.input(event) {
                    self.selected = 0;
                }
            }
        }
        Outcome::Stay
    }

    /// A whole command is run as typed; else the suggestion is taken, and run if it needs nothing more.
    fn enter(&mut self) -> Outcome {
        let typed = self.line().trim().to_owned();
        let name = typed.split_whitespace().next().unwrap_or("");
        let suggestion = self.suggestions.get(self.selected).cloned();
        if table::entry(name).is_some() && (typed.contains(' ') || self.selected == 0) {
            let needs = table::entry(name).is_some_and(|e| e.args.iter().any(|a| !a.starts_with('[')));
            if !needs || typed.contains(' ') {
                return Outcome::Run(typed);
            }
        }
        let Some(s) = suggestion else {
            return if typed.is_empty() { Outcome::Close } else { Outcome::Run(typed) };
        };
        if s.args.is_empty() || s.args.starts_with('[') {
            return Outcome::Run(s.line);
        }
        self.set_line(&format!("{} ", s.line));
        Outcome::Stay
    }

    /// Takes pasted text; line breaks become spaces.
    pub fn paste(&mut self, pasted: &str) -> Outcome {
        self.area.insert_str(pasted.replace(['\r', '\n'], " "));
        Outcome::Stay
    }

    fn set_line(&mut self, line: &str) {
        *self = Self { suggestions: std::mem::take(&mut self.suggestions), ..Self::new(line) };
    }

    /// Draws itself at the top.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        let width = area.width.saturating_sub(4).min(100);
        let room = area.height.saturating_sub(5).min(14);
        let rows = (self.suggestions.len() as u16).clamp(1, room.max(1));
        let at = Rect { x: area.x + (area.width - width) / 2, y: area.y + 1, width, height: rows + 3 };
        let inside = frame(buffer, at.intersection(area), view, "Command", Role::Focus);
        if inside.height < 2 {
            return;
        }
        buffer.set_string(inside.x, inside.y, ":", view.look.style(Role::Key));
        self.area.set_cursor_line_style(view.look.style(Role::Text));
        self.area.set_cursor_style(view.look.style(Role::Selected));
        let line = Rect { x: inside.x + 1, width: inside.width.saturating_sub(1), height: 1, ..inside };
        (&self.area).render(line, buffer);
        let list = Rect { y: inside.y + 1, height: inside.height - 1, ..inside };
        if self.suggestions.is_empty() {
            buffer.set_stringn(
                list.x,
                list.y,
                "enter runs the line as it is",
                list.width as usize,
                view.look.style(Role::Dim),
            );
        }
        let page = list.height as usize;
        let usage_width = (list.width as usize / 2).min(40);
        let doc = (list.width as usize).saturating_sub(usage_width + 13);
        let offset = (self.selected + 1).saturating_sub(page);
        for (i, s) in self.suggestions.iter().enumerate().skip(offset).take(page) {
            let y = list.y + (i - offset) as u16;
            let usage = format!("{} {}", s.line, s.args);
            let key = view.keys.key_for(&s.line).unwrap_or("");
            let mark = if s.destructive { "!" } else { " " };
            let line = Line::from(vec![
                view.span(mark, Role::Warn),
                view.span(text::fit(usage.trim(), usage_width), Role::Strong),
                view.span(text::fit(&format!(" {key}"), 12), Role::Key),
                view.span(text::cut(&s.doc, doc), Role::Dim),
            ]);
            buffer.set_line(list.x, y, &line, list.width);
            if i == self.selected {
                let row = Rect { y, height: 1, ..list };
                buffer.set_style(row, view.look.style(Role::Selected));
            }
        }
    }
}

/// The commands that could be meant, the best first; after a name, its arguments.
pub fn suggest(line: &str, context: &Context<'_>, layouts: &[String]) -> Vec<Suggestion> {
    if let Some((name, _)) = line.split_once(' ') {
        let Some(entry) = table::entry(name) else { return Vec::new() };
        return action::completions(line, context, layouts)
            .into_iter()
            .map(|line| {
                let given = line.split_whitespace().count().saturating_sub(1);
                Suggestion {
                    args: entry.args.get(given..).map_or(String::new(), |a| a.join(" ")),
                    line,
                    doc: entry.doc.into(),
                    destructive: entry.destructive,
                }
            })
            .collect();
    }
    let mut matcher = Matcher::new(Config::DEFAULT);
    let pattern = Pattern::new(line, CaseMatching::Ignore, Normalization::Smart, AtomKind::Fuzzy);
    let mut buffer = Vec::new();
    let mut score = |text: &str| pattern.score(Utf32Str::new(text, &mut buffer), &mut matcher);
    let mut found: Vec<(u32, usize, &Entry)> = TABLE
        .iter()
        .enumerate()
        .filter_map(|(i, e)| {
            // A match in the name counts more than any in the doc.
            let by_name = score(e.name).map(|s| s + 1);
            let by_doc = (line.len() > 2 && e.doc.contains(&line.to_lowercase())).then_some(0);
            by_name.or(by_doc).map(|s| (s, i, e))
        })
        .collect();
    found.sort_by_key(|(s, i, e)| (e.name != line, std::cmp::Reverse(*s), *i));
    found
        .into_iter()
        .map(|(_, _, e)| Suggestion {
            line: e.name.into(),
            args: e.args.join(" "),
            doc: e.doc.into(),
            destructive: e.destructive,
        })
        .collect()
}
