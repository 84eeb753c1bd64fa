//! The whole screen: title bar, panes, the line of messages and the line of keys, layers over all.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{App, Mode};
use crate::engine::diagnostic::Severity;
use crate::engine::input::ActorRole;
use crate::engine::state::State;
use crate::ui::derived::silence;
use crate::ui::layer::Layer;
use crate::ui::layer::input::Input;
use crate::ui::layout::solve::{Placed, Solved, solve};
use crate::ui::pane::{self, PaneId, View};
use crate::ui::text;
use crate::ui::theme::{Role, to_ascii};

/// Smallest screen that is drawn.
pub(super) const SMALLEST: (u16, u16) = (60, 15);

impl App {
    /// Draws everything; `now` is the time for ages, `next` the cheapest next step.
    pub fn draw(&mut self, frame: &mut Frame<'_>, now: Timestamp, next: &str) {
        self.now = now;
        let area = frame.area();
        let buffer = frame.buffer_mut();
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            too_small(buffer, area);
        } else {
            self.draw_all(buffer, area, next);
        }
        if self.look.ascii {
            to_ascii(buffer);
        }
    }

    fn draw_all(&mut self, buffer: &mut Buffer, area: Rect, next: &str) {
        let body = Rect { y: area.y + 1, height: area.height - 3, ..area };
        self.solved = self.place(body);
        let solved = self.solved.clone();
        self.draw_title(buffer, Rect { height: 1, ..area }, solved.hidden.len());
        for placed in &solved.placed {
            self.draw_pane(buffer, placed);
        }
        let view = self.view();
        for line in &solved.separators {
            for y in line.y..line.bottom() {
                buffer.set_string(line.x, y, "│", view.look.style(Role::Dim));
            }
        }
        self.draw_next(buffer, Rect { y: area.bottom() - 2, height: 1, ..area }, next);
        self.draw_keys(buffer, Rect { y: area.bottom() - 1, height: 1, ..area });
        let mut layers = std::mem::take(&mut self.layers);
        for layer in &mut layers {
            // A filter stands on the line of messages, the others over the panes.
            let over = Rect { height: area.height - 1, ..area };
            let over = if is_line(layer) { over } else { body };
            layer.draw(buffer, over, &self.view());
        }
        self.layers = layers;
    }

    fn place(&self, body: Rect) -> Solved {
        let layout = self.layouts.get(self.layout);
        let number = layout.and_then(|l| l.panes().position(|p| p == self.focus)).map_or(0, |i| i + 1);
        match layout {
            Some(layout) if !self.zoomed => solve(layout, body, self.focus),
            _ => Solved {
                placed: vec![Placed { pane: self.focus, number, rect: body, folded: false }],
                ..Solved::default()
            },
        }
    }

    fn draw_title(&self, buffer: &mut Buffer, area: Rect, hidden: usize) {
        let bar = self.view().look.style(Role::Bar);
        buffer.set_string(area.x, area.y, " ".repeat(area.width as usize), bar);
        // What matters less is left out first.
        let fit = [Title::Full, Title::Short, Title::Least]
            .into_iter()
            .map(|title| (title, Line::from(self.title_left(title)), Line::from(self.title_right(title, hidden))));
        let mut fit = fit.skip_while(|(title, left, right)| {
            *title != Title::Least && left.width() + right.width() > area.width as usize
        });
        let Some((_, left, right)) = fit.next() else { return };
        let right_width = (right.width() as u16).min(area.width);
        buffer.set_line(area.x, area.y, &left, area.width - right_width);
        buffer.set_line(area.right() - right_width, area.y, &right, right_width);
    }

    fn title_left(&self, title: Title) -> Vec<Span<'static>> {
        let (view, state) = (self.view(), &self.state);
        let bar = view.look.style(Role::Bar);
        let case = state.case.as_ref().map_or("no case", |c| c.name.as_str());
        let mut left: Vec<Span<'static>> = Vec::new();
        if title != Title::Least {
            left.push(Span::styled(" patchbench ", bar));
        }
        left.push(Span::styled(format!(" {case}"), bar));
        if title == Title::Full && !state.session.name.is_empty() && state.session.name != case {
            left.push(Span::styled(format!("  {}", state.session.name), bar));
        }
        left.push(Span::styled(" ", bar));
        let targets = state.case.iter().flat_map(|c| &c.targets);
        let production: Vec<&str> = targets.filter(|t| t.production).map(|t| t.name.as_str()).collect();
        if !production.is_empty() {
            left.push(view.span(format!(" {} ", production_words(state, &production, view.now)), Role::Production));
        }
        left
    }

    fn title_right(&self, title: Title, hidden: usize) -> Vec<Span<'static>> {
        let (view, state) = (self.view(), &self.state);
        let bar = view.look.style(Role::Bar);
        let mut right: Vec<Span<'static>> = Vec::new();
        let targets = state.case.iter().flat_map(|c| &c.targets);
        for target in targets {
            let Some(silence) = silence(state, view.live, &target.name) else { continue };
            let words = match title {
                Title::Full => format!(" {}: no answer since {} ", target.name, text::clock(silence.since)),
                Title::Short | Title::Least => {
                    format!(" {} silent {} ", target.name, text::age(view.now, silence.since))
                }
            };
            right.push(view.span(words, Role::Bad));
        }
        if let Some(changed) = state.targets.values().filter_map(|t| t.changed.as_ref()).min_by_key(|c| c.since) {
            let since = text::age(view.now, changed.since);
            let key = view.key("restore");
            let key = key.trim_matches('`');
            let words = match title {
                Title::Full => format!(" CHANGED {since} by {}, {key} undoes ", changed.by.name),
                Title::Short | Title::Least => format!(" CHANGED {since}, {key} undoes "),
            };
            right.push(view.span(words, Role::Changed));
        }
        if let Some(held) = &self.held {
            let behind = held.seq.saturating_sub(state.seq);
            let words = if behind > 0 { format!(" FROZEN, {behind} events behind ") } else { " FROZEN ".into() };
            right.push(view.span(words, Role::Held));
        }
        if self.live.lost > 0 {
            right.push(Span::styled(format!(" {} messages lost ", self.live.lost), bar));
        }
        if hidden > 0 && title != Title::Least {
            right.push(Span::styled(format!(" +{hidden} hidden "), bar));
        }
        match self.mode {
            Mode::Past => right.push(view.span(" PAST ", Role::Held)),
            Mode::Live(ActorRole::Driver) if title == Title::Least => {}
            Mode::Live(role) => right.push(Span::styled(format!(" {} ", role_word(role)), bar)),
        }
        right
    }

    fn draw_pane(&mut self, buffer: &mut Buffer, placed: &Placed) {
        let mut st = self.panes.remove(&placed.pane).unwrap_or_default();
        let focused = placed.pane == self.focus;
        let view = self.view();
        draw_heading(buffer, placed, &view, &st, focused, self.zoomed);
        if !placed.folded {
            let inside = Rect { y: placed.rect.y + 1, height: placed.rect.height - 1, ..placed.rect };
            pane::draw(placed.pane, buffer, inside, &view, &mut st, focused);
        }
        self.panes.insert(placed.pane, st);
    }

    fn draw_next(&self, buffer: &mut Buffer, area: Rect, next: &str) {
        let view = self.view();
        let line = match &self.message {
            Some(m) => {
                let role = match m.severity {
                    Severity::Info => Role::Strong,
                    Severity::Warning => Role::Warn,
                    Severity::Error => Role::Bad,
                };
                let word = match m.severity {
                    Severity::Info => "",
                    Severity::Warning => "warning: ",
                    Severity::Error => "error: ",
                };
                let hint = m.hint.as_ref().map_or(String::new(), |h| format!("; {h}"));
                Line::from(vec![
                    view.span(format!("{word}{}", clean(&m.text)), role),
                    view.span(clean(&hint), Role::Text),
                ])
            }
            None if self.silent_target().is_some() => {
                let words = self.silent_target().map_or_else(String::new, |name| {
                    format!("{name} does not answer: {} reads it anew and says whether it is down", view.key("probe"))
                });
                Line::from(vec![view.span("next: ", Role::Dim), view.span(words, Role::Text)])
            }
            None if next.is_empty() => Line::default(),
            None => Line::from(vec![view.span("next: ", Role::Dim), view.span(next.to_owned(), Role::Text)]),
        };
        buffer.set_line(area.x, area.y, &line, area.width);
    }

    fn silent_target(&self) -> Option<&str> {
        let targets = self.state.case.iter().flat_map(|c| &c.targets);
        targets.map(|t| t.name.as_str()).find(|name| silence(&self.state, &self.live, name).is_some())
    }

    fn draw_keys(&self, buffer: &mut Buffer, area: Rect) {
        let view = self.view();
        if !self.pending.is_empty() {
            let typed: Vec<_> = self.pending.iter().map(|k| k.spelled()).collect();
            let mut spans = vec![view.span(format!("{} … ", typed.join(" ")), Role::Key)];
            for (rest, run) in self.keymap.continuations(&self.pending) {
                spans.push(view.span(format!(" {rest}"), Role::Key));
                spans.push(view.span(format!(" {run}"), Role::Dim));
            }
            buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
            return;
        }
        if let Some(layer) = self.layers.last() {
            buffer.set_stringn(area.x, area.y, layer.hint(), area.width as usize, view.look.style(Role::Dim));
            return;
        }
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut used = 0;
        for (run, word) in keys_of(self.focus) {
            let Some(key) = self.keymap.key_for(run) else { continue };
            let width = text::width(key) + text::width(word) + 3;
            if used + width > area.width as usize + 2 {
                break;
            }
            used += width;
            spans.push(view.span(key.to_owned(), Role::Key));
            spans.push(view.span(format!(" {word}  "), Role::Dim));
        }
        buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
    }
}

/// How much of the title bar there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    Full,
    Short,
    Least,
}

/// How long a leave that has ended is still spoken of, in seconds.
const ENDED_S: i64 = 3600;

/// `PRODUCTION`, and until when which of its targets may be changed; a target is named where there are several.
fn production_words(state: &State, production: &[&str], now: Timestamp) -> String {
    let mut words = vec!["PRODUCTION".to_owned()];
    for name in production {
        let Some(until) = state.targets.get(*name).and_then(|t| t.elevated_until) else { continue };
        let name = if production.len() > 1 { format!("{name} ") } else { String::new() };
        let at = until.strftime("%H:%M");
        let over = now.duration_since(until).as_secs();
        if over < 0 {
            words.push(format!("{name}elevated until {at} UTC"));
        } else if over < ENDED_S {
            words.push(format!("{name}elevation ended {at} UTC"));
        }
    }
    words.join(" ")
}

fn is_line(layer: &Layer) -> bool {
    matches!(layer, Layer::Input(input) if Input::is_filter(input))
}

fn clean(text: &str) -> String {
    crate::untrusted::Untrusted::from(text).visible(500)
}

fn role_word(role: ActorRole) -> &'static str {
    match role {
        ActorRole::Driver => "driver",
        ActorRole::Watcher => "watcher",
        ActorRole::Program => "program",
    }
}

/// The keys named in the last line, the most useful in each pane first.
fn keys_of(pane: PaneId) -> Vec<(&'static str, &'static str)> {
    let mut keys = match pane {
        PaneId::Patches => vec![
            ("toggle", "toggle"),
            ("isolate", "isolate"),
            ("micro", "microtest"),
            ("open", "detail"),
            ("mark", "mark"),
        ],
        PaneId::Server => vec![("probe", "probe"), ("restart", "restart"), ("open", "detail"), ("restore", "restore")],
        PaneId::Recall => {
            vec![("recall", "recall"), ("open", "detail"), ("transcript", "transcript"), ("scope", "scope")]
        }
        PaneId::Kernels => vec![
            ("micro", "microtest"),
            ("left", "left"),
            ("right", "right"),
            ("view", "view"),
            ("closer", "closer"),
            ("wider", "wider"),
            ("candidate", "candidate"),
            ("hide", "hide"),
            ("open", "detail"),
        ],
        PaneId::Isolation => vec![("isolate", "isolate"), ("open", "why")],
        PaneId::Timeline => vec![("open", "detail"), ("last", "follow")],
        PaneId::Jobs => vec![("open", "detail"), ("cancel", "cancel")],
        PaneId::Notes => vec![("note", "note"), ("snapshot", "snapshot"), ("open", "detail")],
    };
    let rest = [
        ("help", "help"),
        ("palette", "command"),
        ("quit", "quit"),
        ("filter", "filter"),
        ("zoom", "zoom"),
        ("next-layout", "layout"),
        ("recall", "recall"),
        ("freeze", "freeze"),
        ("note", "note"),
        ("snapshot", "snapshot"),
        ("copy", "copy"),
    ];
    for key in rest {
        if !keys.iter().any(|(run, _)| *run == key.0) {
            keys.push(key);
        }
        // On a narrow screen the help is worth more than these.
        if pane == PaneId::Patches && key.0 == "palette" {
            keys.extend([("sort", "sort"), ("group", "group")]);
        }
    }
    keys
}

fn draw_heading(
    buffer: &mut Buffer,
    placed: &Placed,
    view: &View<'_>,
    st: &pane::PaneState,
    focused: bool,
    zoomed: bool,
) {
    let rect = placed.rect;
    let heading = pane::heading(placed.pane, view, st);
    let rule = if focused { "━" } else { "─" };
    let role = if focused { Role::Focus } else { Role::Title };
    let style = view.look.style(role);
    buffer.set_string(rect.x, rect.y, rule.repeat(rect.width as usize), style);
    let number = if placed.number > 0 { format!("{} ", placed.number) } else { String::new() };
    let mut name = format!(" {number}{} ", placed.pane.title());
    if placed.folded {
        name.push_str("(folded) ");
    }
    if zoomed {
        name.push_str("(zoomed) ");
    }
    let filter = st.list.filter();
    if !filter.text.is_empty() {
        name = format!("{name}/{} ", filter.typed());
    }
    let age = heading.at.map(|at| {
        let stale = heading.stale_after_s.is_some_and(|s| view.now.duration_since(at).as_secs() > s);
        let words = format!(" {} ago ", text::age(view.now, at));
        if stale { view.span(format!(" stale,{words}"), Role::Warn) } else { view.span(words, Role::Dim) }
    });
    let room = rect.width.saturating_sub(2) as usize;
    let name = text::cut(&name, room);
    let mut x = rect.x + 1;
    buffer.set_string(x, rect.y, &name, style);
    x += text::width(&name) as u16;
    let age_width = age.as_ref().map_or(0, Span::width) as u16;
    let left = (rect.right().saturating_sub(x + 1)).saturating_sub(age_width) as usize;
    if !heading.summary.is_empty() && left > 8 {
        let summary = text::cut(&format!(" {} ", heading.summary), left);
        buffer.set_string(x + 1, rect.y, &summary, view.look.style(Role::Text));
    }
    if let Some(age) = age
        && x + age_width < rect.right()
    {
        buffer.set_line(rect.right() - age_width, rect.y, &Line::from(age), age_width);
    }
}

fn too_small(buffer: &mut Buffer, area: Rect) {
    let sentence = format!(
        "this terminal is {}x{}, patchbench needs {}x{}; make it larger and all is back",
        area.width, area.height, SMALLEST.0, SMALLEST.1
    );
    let lines = text::wrap(&sentence, area.width as usize);
    let top = area.y + area.height.saturating_sub(lines.len() as u16) / 2;
    for (i, line) in lines.iter().enumerate().take(area.height as usize) {
        let x = area.x + (area.width.saturating_sub(text::width(line) as u16)) / 2;
        buffer.set_stringn(x, top + i as u16, line, area.width as usize, ratatui::style::Style::new());
    }
}
