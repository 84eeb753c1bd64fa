//! A planned change with the exact commands of each step, and the question whether to run it.
//!
//! What the steps run stands there at once; how they take the lease, check, prove and undo is folded until it is asked
//! for, so that nothing long stands before what changes the server.
//! It takes no answer before it was drawn once, so that a key typed for something else cannot be one.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Outcome, Scroll, closes, frame, middle};
use crate::engine::coupling;
use crate::engine::ids::ProcedureId;
use crate::engine::procedure::Procedure;
use crate::ui::derived::level_of;
use crate::ui::keymap::{Key, Lookup};
use crate::ui::pane::jobs::{folded_lines, step_lines};
use crate::ui::pane::{View, fact, wrap_lines};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::untrusted::Untrusted;

/// The question.
#[derive(Clone, Debug)]
pub struct Confirm {
    /// The change.
    pub procedure: ProcedureId,
    /// On production: the name that must be typed.
    name: Option<String>,
    typed: String,
    scroll: Scroll,
    unfolded: bool,
    drawn: bool,
}

impl Confirm {
    /// The question about this change; `production` is the name to type, if the target is production.
    pub fn new(procedure: ProcedureId, production: Option<String>) -> Self {
        Self {
            procedure,
            name: production,
            typed: String::new(),
            scroll: Scroll::default(),
            unfolded: false,
            drawn: false,
        }
    }

    /// Whether a name must be typed.
    pub fn wants_name(&self) -> bool {
        self.name.is_some()
    }

    /// The keys that work here.
    pub fn hint(&self) -> &'static str {
        if self.name.is_some() {
            "type the target's name and enter to run  up down scroll  esc drop the change"
        } else {
            "y or enter run  j k scroll  esc drop the change"
        }
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent, view: &View<'_>) -> Outcome {
        if closes(event) {
            return Outcome::Discard(self.procedure);
        }
        if !self.drawn || view.state.procedures.get(&self.procedure).is_none() {
            return Outcome::Stay;
        }
        if unfolds(event, view) {
            self.unfolded = !self.unfolded;
            return Outcome::Stay;
        }
        let Some(name) = &self.name else {
            let change = view.state.procedures.get(&self.procedure).map(|p| &p.procedure);
            let anyway = change.filter(|p| p.drains().is_some()).map(|p| p.word_anyway());
            return match event.code {
                KeyCode::Char('a') if anyway.is_some() => Outcome::Confirm { procedure: self.procedure, typed: anyway },
                KeyCode::Enter | KeyCode::Char('y') => Outcome::Confirm { procedure: self.procedure, typed: None },
                KeyCode::Char('n') => Outcome::Discard(self.procedure),
                _ => {
                    self.scroll.key(event);
                    Outcome::Stay
                }
            };
        };
        match event.code {
            KeyCode::Enter if self.typed == *name || self.typed == format!("{name} anyway") => {
                Outcome::Confirm { procedure: self.procedure, typed: Some(self.typed.clone()) }
            }
            KeyCode::Backspace => {
                self.typed.pop();
                Outcome::Stay
            }
            KeyCode::Char(c) if !event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.typed.push(c);
                Outcome::Stay
            }
            _ => {
                self.scroll.key(event);
                Outcome::Stay
            }
        }
    }

    /// Draws itself.
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, view: &View<'_>) {
        self.drawn = true;
        let Some(entry) = view.state.procedures.get(&self.procedure) else { return };
        let procedure = &entry.procedure;
        let width = area.width.saturating_sub(4).min(140);
        let lines = wrap_lines(&lines(view, procedure, self.unfolded), width.saturating_sub(4) as usize);
        let ask = 2;
        let height = (lines.len() as u16 + 2 + ask).min(area.height);
        let at = middle(area, width, height);
        let role = if self.name.is_some() { Role::Production } else { Role::Warn };
        let title = format!("{}: run this?", procedure.title);
        let inside = frame(buffer, at, view, &title, role);
        let body = Rect { height: inside.height.saturating_sub(ask), ..inside };
        self.scroll.draw(buffer, body, view, &lines);
        let question = match &self.name {
            Some(name) => vec![
                view.span(format!("PRODUCTION: type {name} to run: "), Role::Bad),
                view.span(format!("{}▏", self.typed), Role::Strong),
            ],
            None => ask_plainly(view, procedure),
        };
        buffer.set_line(inside.x, inside.bottom() - 1, &Line::from(question), inside.width);
    }
}

fn ask_plainly(view: &View<'_>, procedure: &Procedure) -> Vec<Span<'static>> {
    let mut out = vec![view.span("y", Role::Key), view.span(" or ", Role::Text), view.span("enter", Role::Key)];
    match procedure.load.filter(|_| procedure.cuts_off()) {
        // What runs there is the first thing to know.
        Some(load) => {
            let all = text::counted((load.running + load.waiting) as usize, "request");
            out.push(view.span(format!(" cuts off {all}, "), Role::Bad));
        }
        None => out.push(view.span(" runs exactly these steps, ", Role::Text)),
    }
    if procedure.drains().is_some() {
        out.extend([view.span("a", Role::Key), view.span(" also cuts off what does not end in time, ", Role::Text)]);
    }
    out.extend([view.span("esc", Role::Key), view.span(" drops the change", Role::Text)]);
    out
}

fn lines(view: &View<'_>, procedure: &Procedure, unfolded: bool) -> Vec<Line<'static>> {
    let target = view.state.case.as_ref().and_then(|c| c.target(&procedure.target));
    let host = target.map_or("unknown host", |t| t.host.as_str());
    let mut out = vec![fact(view, "acts on", format!("{} on {host}", procedure.target), Role::Strong)];
    for (patch, level) in &procedure.levels {
        let (before, _) = level_of(view.state, &procedure.target, patch);
        if before == Some(level) {
            continue;
        }
        let line = format!("{patch}: {} → {level}", before.unwrap_or("unknown"));
        out.push(fact(view, "level", line, Role::Warn));
    }
    if let Some(load) = procedure.load {
        let role = if load.is_busy() { Role::Bad } else { Role::Text };
        out.push(fact(view, "load", format!("{load} when this was planned"), role));
    }
    let names: Vec<&str> = procedure.steps.iter().map(|s| s.name.as_str()).collect();
    if !names.is_empty() {
        out.push(fact(view, "steps", names.join(", "), Role::Text));
    }
    out.push(fact(view, "costs", cost(view, procedure), Role::Text));
    for sentence in coupling::price(view.state, procedure) {
        out.push(fact(view, "coupled", sentence, Role::Text));
    }
    for note in &procedure.notes {
        out.push(fact(view, "note", Untrusted::from(note.as_str()).visible(600), Role::Text));
    }
    let undoable = procedure.steps.iter().filter(|s| s.undo.is_some()).count();
    let undo = format!(
        "{undoable} of {}: `:undo-procedure {}`; {} puts the target back",
        text::counted(procedure.steps.len(), "step"),
        procedure.id,
        view.key("restore")
    );
    out.push(fact(view, "undo", undo, Role::Text));
    if let Some(minutes) = procedure.lease.as_ref().and_then(|l| l.minutes) {
        let back = format!("the host puts it back by itself {minutes} min after the last session that keeps it");
        out.push(fact(view, "way back", back, Role::Text));
    }
    out.push(Line::default());
    if unfolded {
        out.extend(step_lines(view, procedure));
    } else {
        let key = view.key("unfold");
        out.extend(folded_lines(view, procedure, key.trim_matches('`')));
    }
    out
}

/// Whether this is the key of the action `unfold`.
fn unfolds(event: KeyEvent, view: &View<'_>) -> bool {
    matches!(view.keys.lookup(&[Key::of(event)]), Lookup::Bound(binding) if binding.run == "unfold")
}

fn cost(view: &View<'_>, procedure: &Procedure) -> String {
    match coupling::start_seconds(view.state, &procedure.target) {
        Some(s) => format!("requests fail until it is ready; its last start took {s} s"),
        None => "requests fail until it is ready; how long is not known, no start was seen yet".into(),
    }
}
