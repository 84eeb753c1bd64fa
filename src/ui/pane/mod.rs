//! The panes: what each shows, row by row, and what it says when there is nothing to show.
//!
//! A pane reads the state and never changes it; keys are handled by `app`.

pub mod isolation;
pub mod jobs;
pub mod kernels;
pub mod notes;
pub mod patch_diff;
pub mod patch_facts;
pub mod patch_order;
pub mod patches;
pub mod recall;
pub mod server;
pub mod timeline;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::engine::state::State;
use crate::ui::derived::Derived;
use crate::ui::keymap::Keymap;
use crate::ui::live::LiveRings;
use crate::ui::text;
use crate::ui::theme::{Look, Role};
use crate::ui::widget::list::ListView;
use crate::ui::widget::table::{self, Source};

/// A pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PaneId {
    /// Patches under suspicion.
    Patches,
    /// What the servers really run with.
    Server,
    /// What the model remembers.
    Recall,
    /// Error curves.
    Kernels,
    /// The search and its verdicts.
    Isolation,
    /// The journal.
    Timeline,
    /// Jobs and remote changes.
    Jobs,
    /// Notes, named points and remarks.
    Notes,
}

impl PaneId {
    /// All panes.
    pub const ALL: [Self; 8] = [
        Self::Patches,
        Self::Server,
        Self::Recall,
        Self::Kernels,
        Self::Isolation,
        Self::Timeline,
        Self::Jobs,
        Self::Notes,
    ];

    /// Its name in layouts and in the palette.
    pub fn name(self) -> &'static str {
        match self {
            Self::Patches => "patches",
            Self::Server => "server",
            Self::Recall => "recall",
            Self::Kernels => "kernels",
            Self::Isolation => "isolation",
            Self::Timeline => "timeline",
            Self::Jobs => "jobs",
            Self::Notes => "notes",
        }
    }

    /// Its title on the screen.
    pub fn title(self) -> &'static str {
        match self {
            Self::Patches => "Patches",
            Self::Server => "Server",
            Self::Recall => "Recall",
            Self::Kernels => "Kernels",
            Self::Isolation => "Isolation",
            Self::Timeline => "Timeline",
            Self::Jobs => "Jobs",
            Self::Notes => "Notes",
        }
    }

    /// The pane of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// What it is for, in one sentence, for the help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Patches => {
                "Every change under suspicion: the level that really runs, failed/tried over all trials at the suspect \
                 level and at the others (`else`), its microtest, its verdict."
            }
            Self::Server => {
                "Each variable and flag in three layers: declared (script), effective (process), observed (server). \
                 Rows that matter come first; `?` is could not be read, `-` is known to be absent."
            }
            Self::Recall => {
                "Failures by prompt length and depth of the fact, with the 95 % Wilson interval; below, each trial \
                 with the first wrong character marked."
            }
            Self::Kernels => {
                "Relative error of each candidate at each point against the fp64 oracle, on a log scale, over the dotted \
                 band that right arithmetics make anyway; further views are a histogram, a heat map and tables."
            }
            Self::Isolation => "The symptom, the arms tried so far, and the verdicts with what they rest on.",
            Self::Timeline => "Every event of the session, in the order of the journal.",
            Self::Jobs => "What runs now, and remote changes that wait, run, failed or were left half done.",
            Self::Notes => "Notes, named points of the session, and remarks of the program.",
        }
    }
}

/// What a pane may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is known.
    pub state: &'a State,
    /// Counts over it.
    pub derived: &'a Derived,
    /// What is worth seeing now.
    pub live: &'a LiveRings,
    /// Colours and characters.
    pub look: Look,
    /// Keys, for the hints of empty panes.
    pub keys: &'a Keymap,
    /// The time for ages.
    pub now: Timestamp,
}

impl View<'_> {
    /// The key that runs `run`, in back-quotes, or the palette's way to it.
    pub fn key(&self, run: &str) -> String {
        self.keys.key_for(run).map_or_else(|| format!("`:{run}`"), |k| format!("`{k}`"))
    }

    /// A piece of text in a role.
    pub fn span(&self, text: impl Into<String>, role: Role) -> Span<'static> {
        Span::styled(text.into(), self.look.style(role))
    }

    /// A line in one role.
    pub fn line(&self, text: impl Into<String>, role: Role) -> Line<'static> {
        Line::from(self.span(text, role))
    }
}

/// What a person has set in one pane.
#[derive(Clone, Debug, Default)]
pub struct PaneState {
    /// Selection, filter, marks.
    pub list: ListView,
    /// The point under the cursor of the curves.
    pub cursor: usize,
    /// What is shown of a microtest.
    pub kernels: kernels::view::Settings,
    /// Count all trials, not only those of the running boots.
    pub scope_all: bool,
    /// In which order the patches stand.
    pub arrangement: patch_order::Arrangement,
}

/// The right end of a title line: a summary, and when the data was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heading {
    /// A few words.
    pub summary: String,
    /// When the newest data of the pane was read.
    pub at: Option<Timestamp>,
    /// Age in seconds above which the data is called stale; `None` never.
    pub stale_after_s: Option<i64>,
}

/// The title line of a pane.
pub fn heading(pane: PaneId, view: &View<'_>, st: &PaneState) -> Heading {
    match pane {
        PaneId::Patches => patches::heading(view, st),
        PaneId::Server => server::heading(view),
        PaneId::Recall => recall::heading(view, st),
        PaneId::Kernels => kernels::heading(view, st),
        PaneId::Isolation => isolation::heading(view),
        PaneId::Timeline => timeline::heading(view),
        PaneId::Jobs => jobs::heading(view),
        PaneId::Notes => notes::heading(view),
    }
}

/// The rows of a pane.
pub fn source<'a>(pane: PaneId, view: View<'a>, st: &PaneState) -> Box<dyn Source + 'a> {
    match pane {
        PaneId::Patches => Box::new(patches::Rows::new(view, st.arrangement)),
        PaneId::Server => Box::new(server::Rows::new(view)),
        PaneId::Recall => Box::new(recall::Rows::new(view)),
        PaneId::Kernels => Box::new(kernels::Rows::new(view)),
        PaneId::Isolation => Box::new(isolation::Rows::new(view)),
        PaneId::Timeline => Box::new(timeline::Rows::new(view)),
        PaneId::Jobs => Box::new(jobs::Rows::new(view)),
        PaneId::Notes => Box::new(notes::Rows::new(view)),
    }
}

/// Draws the inside of a pane, below its title line.
pub fn draw(pane: PaneId, buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, focused: bool) {
    if area.is_empty() {
        return;
    }
    match pane {
        PaneId::Server => server::draw(buffer, area, view, st, focused),
        PaneId::Recall => recall::draw(buffer, area, view, st, focused),
        PaneId::Kernels => kernels::draw(buffer, area, view, st, focused),
        PaneId::Isolation => isolation::draw(buffer, area, view, st, focused),
        PaneId::Patches | PaneId::Timeline | PaneId::Jobs | PaneId::Notes => {
            list_with_detail(pane, buffer, area, view, st, focused);
        }
    }
}

/// What to do when a pane has nothing to show: which key fills it, and what that costs.
pub fn empty_text(pane: PaneId, view: &View<'_>) -> String {
    if view.state.case.is_none() {
        return "no case is open; start `patchbench CASE`, or `patchbench demo` for the lab".into();
    }
    match pane {
        PaneId::Patches => "the case names no patch; add `[[patch]]` to it, factors can be tried without one".into(),
        PaneId::Server => {
            format!("no server was read yet; {} reads all (some seconds, changes nothing)", view.key("probe"))
        }
        PaneId::Recall => {
            format!("no trial yet; {} asks {}", view.key("recall"), recall::cost(view.state))
        }
        PaneId::Kernels => {
            format!("no microtest yet; {} runs one (seconds, local only, changes nothing)", view.key("micro"))
        }
        PaneId::Isolation => format!(
            "no search yet; {} measures the symptom and then switches patches one by one (it restarts servers, minutes)",
            view.key("isolate")
        ),
        PaneId::Timeline => "nothing has happened yet".into(),
        PaneId::Jobs => "nothing runs and no change waits".into(),
        PaneId::Notes => format!("no notes; {} writes one into the journal", view.key("note")),
    }
}

/// Everything that is known of one row: for the detail below a list, the detail layer and the clipboard.
pub fn detail(pane: PaneId, view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    match pane {
        PaneId::Patches => patches::detail(view, key),
        PaneId::Server => server::detail(view, key),
        PaneId::Recall => recall::detail(view, key),
        PaneId::Kernels => kernels::detail(view, key),
        PaneId::Isolation => isolation::detail(view, key),
        PaneId::Timeline => timeline::detail(view, key),
        PaneId::Jobs => jobs::detail(view, key),
        PaneId::Notes => notes::detail(view, key),
    }
}

/// A list, and where there is room the detail of the selected row below it.
pub fn list_with_detail(
    pane: PaneId,
    buffer: &mut Buffer,
    area: Rect,
    view: &View<'_>,
    st: &mut PaneState,
    focused: bool,
) {
    let rows = source(pane, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    if rows.is_empty() {
        draw_empty(buffer, area, view, &empty_text(pane, view));
        return;
    }
    let list_needs = st.list.len(rows.as_ref()) as u16 + 1;
    let detail_height = if pane == PaneId::Timeline || area.height < 9 {
        0
    } else {
        area.height.saturating_sub(list_needs).clamp(area.height * 2 / 5, area.height * 3 / 5)
    };
    let (list, below) = split_bottom(area, detail_height);
    table::draw(buffer, list, rows.as_ref(), &mut st.list, view.look, focused);
    if let (Some(below), Some(key)) = (below, st.list.selected_key(rows.as_ref())) {
        draw_lines(buffer, below, view, &detail(pane, view, &key));
    }
}

/// Divides off `height` lines at the bottom, with a thin line above them; `None` if there is no room.
pub fn split_bottom(area: Rect, height: u16) -> (Rect, Option<Rect>) {
    if height < 2 || area.height < height + 2 {
        return (area, None);
    }
    let top = Rect { height: area.height - height, ..area };
    (top, Some(Rect { y: area.y + top.height, height, ..area }))
}

/// Draws lines under a dim rule, wrapped; what does not fit is said.
pub fn draw_lines(buffer: &mut Buffer, area: Rect, view: &View<'_>, lines: &[Line<'static>]) {
    let rule = "·".repeat(area.width as usize);
    buffer.set_stringn(area.x, area.y, rule, area.width as usize, view.look.style(Role::Dim));
    let inside = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let wrapped = wrap_lines(lines, inside.width as usize);
    let room = inside.height as usize;
    for (i, line) in wrapped.iter().take(room).enumerate() {
        buffer.set_line(inside.x, inside.y + i as u16, line, inside.width);
    }
    if wrapped.len() > room && room > 0 {
        let more = format!(" +{} lines, {} ", wrapped.len() - room, view.key("open").trim_matches('`'));
        let more = text::cut(&more, inside.width as usize);
        let x = inside.right() - text::width(&more) as u16;
        buffer.set_string(x, area.y, more, view.look.style(Role::Dim));
    }
}

/// Cells by which the rest of a wrapped line is indented.
const INDENT: usize = 2;

/// Wraps styled lines; a line that goes on is indented by two cells.
pub fn wrap_lines(lines: &[Line<'static>], width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for line in lines {
        if line.width() <= width {
            out.push(line.clone());
            continue;
        }
        let mut current: Vec<Span<'static>> = Vec::new();
        let mut used = 0;
        for span in &line.spans {
            let mut piece = String::new();
            for word in span.content.split_inclusive(' ') {
                if used > INDENT && used + text::width(word.trim_end()) > width {
                    current.push(Span::styled(std::mem::take(&mut piece), span.style));
                    out.push(Line::from(std::mem::take(&mut current)));
                    piece = String::new();
                    current.push(Span::raw(" ".repeat(INDENT)));
                    used = INDENT;
                }
                for c in word.chars() {
                    let mut bytes = [0; 4];
                    let w = text::width(c.encode_utf8(&mut bytes));
                    if used + w > width && c == ' ' {
                        continue;
                    }
                    if used + w > width {
                        current.push(Span::styled(std::mem::take(&mut piece), span.style));
                        out.push(Line::from(std::mem::take(&mut current)));
                        current.push(Span::raw(" ".repeat(INDENT)));
                        used = INDENT;
                    }
                    piece.push(c);
                    used += w;
                }
            }
            current.push(Span::styled(piece, span.style));
        }
        out.push(Line::from(current));
    }
    out
}

/// Draws the sentence of an empty pane.
pub fn draw_empty(buffer: &mut Buffer, area: Rect, view: &View<'_>, sentence: &str) {
    let width = area.width.saturating_sub(2) as usize;
    for (i, line) in text::wrap(sentence, width).iter().take(area.height as usize).enumerate() {
        buffer.set_stringn(area.x + 1, area.y + i as u16, line, width, view.look.style(Role::Dim));
    }
}

/// Width of the names in a list of facts.
pub const FACT: usize = 11;

/// A line `name  value`, the name padded so that values stand in one column.
pub fn fact(view: &View<'_>, name: &str, value: impl Into<String>, role: Role) -> Line<'static> {
    Line::from(vec![view.span(text::fit(name, FACT), Role::Dim), view.span(value, role)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for pane in PaneId::ALL {
            assert_eq!(PaneId::parse(pane.name()), Some(pane));
        }
        assert_eq!(PaneId::parse("nothing"), None);
    }

    #[test]
    fn wrapped_lines_keep_every_word() {
        let line = Line::from(vec![Span::raw("one two "), Span::raw("three four five")]);
        let wrapped = wrap_lines(&[line], 9);
        let all: Vec<String> = wrapped.iter().map(ToString::to_string).collect();
        assert!(wrapped.iter().all(|l| l.width() <= 9), "{all:?}");
        assert_eq!(all.join(" ").split_whitespace().collect::<Vec<_>>(), ["one", "two", "three", "four", "five"]);
    }

    #[test]
    fn a_word_longer_than_the_line_is_broken() {
        let wrapped = wrap_lines(&[Line::from("aaaaaaaaaaaaaaaaaaaa bb")], 8);
        assert!(wrapped.iter().all(|l| l.width() <= 8));
        let text: String = wrapped.iter().map(ToString::to_string).collect();
        assert_eq!(text.chars().filter(|c| *c == 'a').count(), 20);
    }
}
