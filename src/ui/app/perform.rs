//! The acts of the screen.

use super::{App, Request};
use crate::engine::command::{Command, EndState};
use crate::engine::procedure::Failure;
use crate::engine::state::ProcedureStatus;
use crate::isolate::verdict::Finding;
use crate::ui::action::Screen;
use crate::ui::layer::Layer;
use crate::ui::layer::detail::Detail;
use crate::ui::layer::help::Help;
use crate::ui::layer::input::{Input, What};
use crate::ui::layer::palette::Palette;
use crate::ui::layer::quit::{Leave, Quit};
use crate::ui::layout::solve::neighbour;
use crate::ui::pane::kernels::view::Act;
use crate::ui::pane::patch_order::Arrangement;
use crate::ui::pane::{self, PaneId};
use crate::ui::widget::list::Filter;

impl App {
    pub(super) fn screen(&mut self, act: Screen) -> Vec<Request> {
        match act {
            Screen::Help => self.layers.push(Layer::Help(Help::new(self.focus))),
            Screen::Palette => {
                self.layers.push(Layer::Palette(Palette::new("")));
                self.refresh_palette();
            }
            Screen::FocusNumber(n) => match self.numbered().get(n.wrapping_sub(1)) {
                Some(pane) => self.focus_on(*pane),
                None => self.say(&format!("this layout has no pane {n}"), None),
            },
            Screen::FocusPane(pane) => {
                self.focus_on(pane);
                // A pane that the layout does not have can only be shown alone.
                if !self.numbered().contains(&pane) {
                    self.zoomed = true;
                }
            }
            Screen::FocusStep { forward } => {
                let panes = self.numbered();
                let len = panes.len().max(1);
                let at = panes.iter().position(|p| *p == self.focus).unwrap_or(0);
                let to = if forward { (at + 1) % len } else { (at + len - 1) % len };
                if let Some(pane) = panes.get(to) {
                    self.focus_on(*pane);
                }
            }
            Screen::FocusTowards(direction) => {
                if let Some(pane) = neighbour(&self.solved, self.focus, direction) {
                    self.focus_on(pane);
                }
            }
            Screen::Zoom => self.zoomed = !self.zoomed,
            Screen::NextLayout => self.show_layout((self.layout + 1) % self.layouts.len().max(1)),
            Screen::Layout(name) => {
                if let Some(i) = self.layouts.iter().position(|l| l.name == name) {
                    self.show_layout(i);
                } else {
                    let known: Vec<_> = self.layouts.iter().map(|l| l.name.as_str()).collect();
                    let hint = format!("layouts are {}", known.join(", "));
                    self.fail(Failure::new(format!("there is no layout `{name}`")).hint(hint));
                }
            }
            Screen::Theme(theme) => {
                self.look.theme = theme.unwrap_or_else(|| self.look.theme.next());
                self.say(&format!("theme {}", self.look.theme.name()), None);
            }
            Screen::Freeze => {
                if self.held.is_some() {
                    return self.thaw();
                }
                self.held = Some(self.state.clone());
            }
            Screen::Redraw => return vec![Request::Redraw],
            Screen::Quit => return self.quit(),
            Screen::Back => self.back(),
            Screen::Step(by) => self.move_selection(by),
            Screen::Page(by) => {
                let page = self.panes.get(&self.focus).map_or(1, |st| st.list.page.max(1));
                self.move_selection(by * page as isize);
            }
            Screen::First => self.move_selection(isize::MIN / 2),
            Screen::Last => self.move_selection(isize::MAX / 2),
            Screen::Cursor(by) => self.move_cursor(by),
            Screen::Open => self.open(),
            Screen::Transcript => return self.transcript(),
            Screen::Mark => {
                self.with_list(self.focus, |st, rows, _| {
                    st.list.toggle_mark(rows);
                    st.list.step(1, rows);
                });
            }
            Screen::Filter => {
                let before = self.panes.get(&self.focus).map_or(String::new(), |st| st.list.filter().typed());
                let what = What::Filter { pane: self.focus, before: before.clone() };
                self.layers.push(Layer::Input(Input::new(what, &before)));
            }
            Screen::FilterInvert => {
                let mut filter = self.panes.get(&self.focus).map(|st| st.list.filter().clone()).unwrap_or_default();
                if filter.text.is_empty() {
                    self.say("no filter to invert", Some("`/` sets one".into()));
                } else {
                    filter.inverted = !filter.inverted;
                    self.set_filter(self.focus, &filter);
                }
            }
            Screen::Match { forward } => {
                if self.panes.get(&self.focus).is_none_or(|st| st.list.filter().text.is_empty()) {
                    self.say("no filter, so there are no matches", Some("`/` sets one".into()));
                } else {
                    self.with_list(self.focus, |st, rows, _| st.list.step_round(forward, rows));
                }
            }
            Screen::Copy => return self.copy(),
            Screen::Unfold => self.say("nothing is folded here", Some("the question about a change folds".into())),
            Screen::Scope => {
                let st = self.panes.entry(PaneId::Recall).or_default();
                st.scope_all = !st.scope_all;
            }
            Screen::Kernels(act) => self.kernels(act),
            Screen::Sort(order) => self.arrange(|by| by.order = order.unwrap_or_else(|| by.order.next())),
            Screen::Group(grouping) => self.arrange(|by| by.grouping = grouping.unwrap_or_else(|| by.grouping.next())),
            Screen::Ask { title, lead, suggestion } => {
                self.layers.push(Layer::Input(Input::new(What::Argument { title, lead }, &suggestion)));
            }
            Screen::AskNote => self.layers.push(Layer::Input(Input::new(What::Note, ""))),
            Screen::AskSnapshot => {
                let name = format!("snapshot-{}", self.state.snapshots.len() + 1);
                self.layers.push(Layer::Input(Input::new(What::Snapshot, &name)));
            }
        }
        Vec::new()
    }

    /// Puts the patches into another order; the selection stays on its row.
    fn arrange(&mut self, change: impl FnOnce(&mut Arrangement)) {
        let filter = self.with_list(PaneId::Patches, |st, rows, _| {
            st.list.select(st.list.position(), rows);
            change(&mut st.arrangement);
            st.list.filter().clone()
        });
        // The rows that a filter shows are kept by their place.
        self.set_filter(PaneId::Patches, &filter);
        let words = self.panes.get(&PaneId::Patches).map_or_else(String::new, |st| st.arrangement.words());
        self.say(&format!("patches {words}"), None);
    }

    /// The panes of the layout by number.
    fn numbered(&self) -> Vec<PaneId> {
        self.layouts.get(self.layout).map_or_else(Vec::new, |l| l.panes().collect())
    }

    fn focus_on(&mut self, pane: PaneId) {
        self.focus = pane;
    }

    fn show_layout(&mut self, i: usize) {
        self.layout = i;
        self.zoomed = false;
        let panes = self.numbered();
        if !panes.contains(&self.focus)
            && let Some(first) = panes.first()
        {
            self.focus = *first;
        }
        if let Some(layout) = self.layouts.get(i) {
            let text = format!("layout {}: {}", layout.name, layout.doc);
            self.say(&text, None);
        }
    }

    fn back(&mut self) {
        if self.zoomed {
            self.zoomed = false;
            if !self.numbered().contains(&self.focus)
                && let Some(first) = self.numbered().first()
            {
                self.focus = *first;
            }
            return;
        }
        let Some(st) = self.panes.get(&self.focus) else { return };
        if st.list.filter().text.is_empty() {
            self.panes.entry(self.focus).or_default().list.clear_marks();
        } else {
            self.set_filter(self.focus, &Filter::default());
        }
    }

    fn move_selection(&mut self, by: isize) {
        self.with_list(self.focus, |st, rows, _| st.list.step(by, rows));
    }

    fn move_cursor(&mut self, by: isize) {
        if self.focus != PaneId::Kernels {
            return;
        }
        let mut st = self.panes.remove(&PaneId::Kernels).unwrap_or_default();
        let last = pane::kernels::points(&self.view(), &st).saturating_sub(1);
        st.cursor = st.cursor.saturating_add_signed(by).min(last);
        self.panes.insert(PaneId::Kernels, st);
    }

    /// Changes what is shown of the selected microtest.
    fn kernels(&mut self, act: Act) {
        if self.focus != PaneId::Kernels {
            self.say("this changes what the kernels show", Some("`:focus kernels` goes there".into()));
            return;
        }
        let mut st = self.panes.remove(&PaneId::Kernels).unwrap_or_default();
        match pane::kernels::act(&self.view(), &mut st, act) {
            Ok(said) => self.say(&said, None),
            Err(why) => self.fail(Failure::new(why)),
        }
        self.panes.insert(PaneId::Kernels, st);
    }

    fn open(&mut self) {
        let Some(key) = self.with_list(self.focus, |st, rows, _| st.list.selected_key(rows)) else { return };
        if self.focus == PaneId::Jobs
            && let Some((id, p)) = self.state.procedures.iter().find(|(id, _)| id.to_string() == key)
            && p.status == ProcedureStatus::Planned
        {
            return self.ask_about(*id);
        }
        self.layers.push(Layer::Detail(Detail::new(self.focus, key)));
    }

    fn transcript(&mut self) -> Vec<Request> {
        let Some(key) = self.with_list(PaneId::Recall, |st, rows, _| st.list.selected_key(rows)) else {
            self.say("no trial is selected", None);
            return Vec::new();
        };
        let trial = self.state.trials.iter().map(|t| &t.trial).find(|t| t.id.to_string() == key);
        if let Some((trial, Some(hash))) = trial.map(|t| (t.id, t.transcript.clone())) {
            return vec![Request::Transcript { trial, hash }];
        }
        self.say(&format!("{key} has no transcript: nothing was sent"), None);
        Vec::new()
    }

    fn copy(&mut self) -> Vec<Request> {
        let pane = self.focus;
        let (marked, selected) = self.with_list(pane, |st, rows, _| (st.list.marked(rows), st.list.selected_key(rows)));
        let keys = if marked.is_empty() { selected.into_iter().collect() } else { marked };
        if keys.is_empty() {
            self.say("nothing to copy", None);
            return Vec::new();
        }
        let view = self.view();
        let texts: Vec<String> = keys
            .iter()
            .map(|key| {
                let lines = pane::detail(pane, &view, key);
                lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            })
            .collect();
        let text = texts.join("\n\n");
        let rows = crate::ui::text::counted(keys.len(), "row");
        self.say(&format!("{rows} copied to the clipboard, {} characters", text.chars().count()), None);
        vec![Request::Copy(text)]
    }

    fn quit(&mut self) -> Vec<Request> {
        // Asked a second time while the servers are still being put back: the session remembers the way.
        if self.leaving {
            return vec![Request::Quit];
        }
        let changed = self.state.targets.values().any(|t| t.changed.is_some());
        let acts = matches!(self.mode, super::Mode::Live(role) if role != crate::engine::input::ActorRole::Watcher);
        if changed && acts {
            let better_known = self.state.verdicts.iter().any(|v| v.verdict == Finding::Guilty);
            self.layers.push(Layer::Quit(Quit { better_known }));
            return Vec::new();
        }
        vec![Request::Quit]
    }

    pub(super) fn leave(&mut self, leave: Leave) -> Vec<Request> {
        let end_state = match leave {
            Leave::Original => Some(EndState::Original),
            Leave::BestKnown => Some(EndState::BestKnown),
            Leave::Keep => self.levels_now(),
        };
        let mut requests: Vec<Request> = Vec::new();
        if let Some(end_state) = end_state {
            requests.extend(self.send(vec![Command::ChooseEndState { end_state }]));
        }
        if leave == Leave::Keep {
            requests.push(Request::Quit);
        } else {
            self.leaving = true;
            self.say("leaving as soon as the servers are in their end state; the same key again leaves at once", None);
        }
        requests
    }
}
