//! Help for where one is: the pane, the keys that work in it, the keys that work everywhere, and the
//! commands without a key. All of it comes from the command table and the keymap.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{Outcome, Scroll, closes, frame, middle};
use crate::engine::table::{Entry, Scope, TABLE};
use crate::ui::pane::{PaneId, View, wrap_lines};
use crate::ui::text;
use crate::ui::theme::Role;

/// The help.
#[derive(Clone, Debug)]
pub struct Help {
    /// The pane it speaks of.
    pub pane: PaneId,
    scroll: Scroll,
}

impl Help {
    /// The help of a pane.
    pub fn new(pane: PaneId) -> Self {
        Self { pane, scroll: Scroll::default() }
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) -> Outcome {
        if closes(event) || matches!(event.code, KeyCode::Char('q' | '?')) {
            return Outcome::Close;
        }
        self.scroll.key(event);
        Outcome::Stay
    }

    /// Draws itself.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        let at = middle(area, 100, area.height.saturating_sub(2));
        let inside = frame(buffer, at, view, &format!("Help: {}", self.pane.title()), Role::Focus);
        let lines = wrap_lines(&lines(self.pane, view, inside.width < 90), inside.width as usize);
        self.scroll.draw(buffer, inside, view, &lines);
    }
}

/// Whether an action of lists does something in this pane.
fn works_in(entry: &Entry, pane: PaneId) -> bool {
    match entry.name {
        "left" | "right" | "view" | "candidate" | "hide" | "show-all" | "closer" | "wider" | "overlay" => {
            pane == PaneId::Kernels
        }
        "scope" | "transcript" => pane == PaneId::Recall,
        "sort" | "group" | "merge-patches" | "split-patch" | "phases" | "gate" | "patch-note" => {
            pane == PaneId::Patches
        }
        _ => entry.scope == Scope::List,
    }
}

fn lines(pane: PaneId, view: &View<'_>, narrow: bool) -> Vec<Line<'static>> {
    let mut out = vec![view.line(pane.about(), Role::Text), Line::default()];
    let mut group = |title: &str, entries: &mut dyn Iterator<Item = &'static Entry>| {
        out.push(view.line(title.to_owned(), Role::Title));
        for entry in entries {
            out.push(entry_line(view, entry, narrow));
        }
        out.push(Line::default());
    };
    group("changes something outside (shown first, then asked)", &mut TABLE.iter().filter(|e| e.destructive));
    group("in this pane", &mut TABLE.iter().filter(|e| works_in(e, pane)));
    let everywhere = |e: &&Entry| e.scope == Scope::Global && !e.destructive;
    group("everywhere", &mut TABLE.iter().filter(everywhere));
    out.push(view.line("keys are changed in `keymap.toml`; `patchbench keys` prints them", Role::Dim));
    out
}

fn entry_line(view: &View<'_>, entry: &Entry, narrow: bool) -> Line<'static> {
    let mut keys: Vec<&str> = view
        .keys
        .bound()
        .filter(|b| b.run.split_whitespace().next() == Some(entry.name))
        .map(|b| b.keys.as_str())
        .collect();
    if entry.name == "focus" && keys.len() > 2 {
        keys = vec!["1", "…", "9"];
    }
    // Without room for the arguments the palette still shows them.
    let usage = if narrow { entry.name.to_owned() } else { format!("{} {}", entry.name, entry.args.join(" ")) };
    let (key_width, usage_width) = if narrow { (10, 17) } else { (16, 32) };
    Line::from(vec![
        view.span(text::fit(&keys.join(" "), key_width), Role::Key),
        view.span(text::fit(usage.trim(), usage_width), Role::Strong),
        view.span(format!(" {}", entry.doc), Role::Text),
    ])
}
