//! What the servers really run with: a line for each target, its load, the rows of the three layers with
//! disagreements first, and the end of the log.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{FACT, Heading, PaneId, PaneState, View, draw_empty, draw_lines, empty_text, fact, source, split_bottom};
use crate::engine::live::LinkState;
use crate::serving::load_phase;
use crate::truth::{Claim, Known, Row, RowKind, RowStatus, ServerStatus, matters};
use crate::ui::derived::{changed_levels, loading, proven_after_reading, silence};
use crate::ui::live::Silence;
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::bar::sparkline;
use crate::ui::widget::table::{self, Cell, Column, Source};
use crate::untrusted::Untrusted;

const STALE_S: i64 = 180;
const VALUE_CHARS: usize = 200;
/// Loads that are shares: their sparkline ends at 1.
const SHARES: [&str; 3] = ["kv_usage", "cache_hit_rate", "accept_rate"];

/// The rows of all targets, those that matter first.
pub struct Rows<'a> {
    rows: Vec<&'a Row>,
    targets: usize,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        let truths = view.state.targets.values().filter_map(|t| t.truth.as_ref());
        let mut rows: Vec<&Row> = truths.flat_map(|t| &t.rows).collect();
        // The sort is stable: within a status the reader's order stays.
        rows.sort_by_key(|r| r.status);
        Self { rows, targets: view.state.targets.len() }
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn key(&self, i: usize) -> String {
        let r = self.rows[i];
        format!("{}\u{1f}{}\u{1f}{}\u{1f}{:?}", r.target, r.component, r.name, r.kind)
    }

    fn text(&self, i: usize) -> String {
        let r = self.rows[i];
        let claims = [&r.declared, &r.effective, &r.observed].map(|c| claim_cell(c.as_ref()).text).join(" ");
        format!("{} {} {} {claims} {}", r.target, r.name, status_words(r.status).0, r.note)
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![
            Column::upto("name", 14, 34, 1),
            Column::upto("declared", 7, 16, 4),
            Column::upto("effective", 7, 16, 2),
            Column::upto("observed", 7, 16, 5),
            Column::upto("status", 7, 10, 3),
            Column::grow("note", 20, 7),
        ];
        if self.targets > 1 {
            columns.insert(0, Column::upto("target", 7, 12, 6));
        }
        columns
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        let r = self.rows[i];
        let (word, role) = status_words(r.status);
        let mut cells = vec![
            Cell::of(r.name.clone(), if matters(r) { Role::Strong } else { Role::Text }),
            claim_cell(r.declared.as_ref()),
            claim_cell(r.effective.as_ref()),
            claim_cell(r.observed.as_ref()),
            Cell::of(word, role),
            Cell::of(r.note.clone(), Role::Dim),
        ];
        if self.targets > 1 {
            cells.insert(0, Cell::of(r.target.clone(), Role::Dim));
        }
        cells
    }
}

/// A layer in one cell: a value, `-` absent, `?` not readable, blank where the layer does not speak of it.
fn claim_cell(claim: Option<&Claim>) -> Cell {
    match claim {
        None => Cell::of("", Role::Dim),
        Some(Claim { known: Known::Unknown { .. }, .. }) => Cell::of("?", Role::Unknown),
        Some(Claim { value: None, .. }) => Cell::of("-", Role::Dim),
        Some(Claim { value: Some(v), .. }) if v.is_empty() => Cell::of("\"\"", Role::Text),
        Some(Claim { value: Some(v), .. }) => Cell::plain(v.visible(VALUE_CHARS)),
    }
}

fn status_words(status: RowStatus) -> (&'static str, Role) {
    match status {
        RowStatus::Differs => ("DIFFERS", Role::Bad),
        RowStatus::ConflictsWith => ("CONFLICTS", Role::Bad),
        RowStatus::AcceptedButOff => ("no effect", Role::Warn),
        RowStatus::LooksMisspelt => ("misspelt?", Role::Warn),
        RowStatus::UnknownToThisVersion => ("not read", Role::Warn),
        RowStatus::OverriddenBy => ("overridden", Role::Warn),
        RowStatus::GivenTwice => ("twice", Role::Warn),
        RowStatus::UnknownBecause => ("unknown", Role::Unknown),
        RowStatus::OneSource => ("one source", Role::Dim),
        RowStatus::DefaultInEffect => ("default", Role::Dim),
        RowStatus::Agrees => ("agrees", Role::Good),
    }
}

/// The state of a server in words.
pub fn server_words(status: ServerStatus) -> (&'static str, Role) {
    match status {
        ServerStatus::Unknown => ("unknown", Role::Unknown),
        ServerStatus::Down => ("DOWN", Role::Bad),
        ServerStatus::Loading => ("loading", Role::Warn),
        ServerStatus::Ready => ("ready", Role::Good),
    }
}

/// The title line.
pub fn heading(view: &View<'_>) -> Heading {
    let truths: Vec<_> = view.state.targets.values().filter_map(|t| t.truth.as_ref()).collect();
    let all: usize = truths.iter().map(|t| t.rows.len()).sum();
    let matter = truths.iter().flat_map(|t| &t.rows).filter(|r| matters(r)).count();
    let summary = if truths.is_empty() { String::new() } else { format!("{matter} of {all} matter") };
    Heading { summary, at: truths.iter().map(|t| t.at).min(), stale_after_s: Some(STALE_S) }
}

/// Targets, loads, rows, log.
pub fn draw(buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, focused: bool) {
    let head = target_lines(view, area.width as usize, area.height >= 9);
    if head.is_empty() {
        draw_empty(buffer, area, view, &empty_text(PaneId::Server, view));
        return;
    }
    let head_height = (head.len() as u16).min(area.height);
    for (i, line) in head.iter().take(head_height as usize).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, line, area.width);
    }
    let rest = Rect { y: area.y + head_height, height: area.height - head_height, ..area };
    if rest.height < 2 {
        return;
    }
    let rows = source(PaneId::Server, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    if rows.is_empty() {
        draw_empty(buffer, rest, view, &empty_text(PaneId::Server, view));
        return;
    }
    let (rest, log) = split_bottom(rest, log_height(view, rest.height));
    let (list, below) = split_bottom(rest, if rest.height >= 12 { 6 } else { 0 });
    table::draw(buffer, list, rows.as_ref(), &mut st.list, view.look, focused);
    if let (Some(below), Some(key)) = (below, st.list.selected_key(rows.as_ref())) {
        draw_lines(buffer, below, view, &detail(view, &key));
    }
    if let Some(log) = log {
        draw_log(buffer, log, view);
    }
}

fn log_height(view: &View<'_>, room: u16) -> u16 {
    if view.live.server_logs.is_empty() || room < 10 { 0 } else { (room / 4).clamp(3, 10) }
}

fn draw_log(buffer: &mut Buffer, area: Rect, view: &View<'_>) {
    let dim = view.look.style(Role::Dim);
    let dropped: u64 = view.live.server_logs.values().map(|l| l.dropped).sum();
    let lost = if view.live.lost > 0 { format!(", {} lost", view.live.lost) } else { String::new() };
    let older = if dropped > 0 { format!(", {dropped} older not kept") } else { String::new() };
    buffer.set_stringn(area.x, area.y, "·".repeat(area.width as usize), area.width as usize, dim);
    buffer.set_stringn(area.x, area.y, format!("log{older}{lost} "), area.width as usize, dim);
    let room = area.height as usize - 1;
    let several = view.live.server_logs.len() > 1;
    // The newest lines of each target, in the order of the targets; times stand in the lines themselves.
    let each = room / view.live.server_logs.len().max(1);
    let mut lines: Vec<String> = Vec::new();
    for (target, log) in &view.live.server_logs {
        for line in log.lines.iter().rev().take(each.max(1)).collect::<Vec<_>>().into_iter().rev() {
            let shown = line.visible(area.width as usize * 2);
            lines.push(if several { format!("{target}: {shown}") } else { shown });
        }
    }
    for (i, line) in lines.iter().rev().take(room).rev().enumerate() {
        let shown = text::cut(line, area.width as usize);
        buffer.set_string(area.x, area.y + 1 + i as u16, shown, view.look.style(Role::Text));
    }
}

/// One line for each target, and one for its load where there is room.
fn target_lines(view: &View<'_>, width: usize, with_load: bool) -> Vec<Line<'static>> {
    let Some(case) = &view.state.case else { return Vec::new() };
    let narrow = width < 44;
    let mut out = Vec::new();
    for target in &case.targets {
        let state = view.state.targets.get(&target.name);
        let truth = state.and_then(|s| s.truth.as_ref());
        let mut spans = vec![view.span(text::fit(&target.name, 8), Role::Strong), Span::raw(" ")];
        let proven = proven_after_reading(view.state, &target.name);
        let silent = silence(view.state, view.live, &target.name);
        let loads = loading(view.state, view.live, &target.name);
        match truth {
            _ if loads.is_some() => {
                let words = loads.map_or_else(String::new, |l| {
                    let left = l.left(&load_phase::earlier(view.state, &target.name), view.now);
                    l.line(left)
                });
                spans.push(view.span(words, Role::Warn));
            }
            _ if silent.is_some() => {
                let words = silent
                    .as_ref()
                    .map_or_else(String::new, |s| silence_words(s, truth.map(|t| t.at), view.now, narrow));
                spans.push(view.span(words, Role::Bad));
            }
            _ if view.state.running_procedure(&target.name).is_some() => {
                spans.push(view.span("being changed", Role::Warn));
            }
            _ if proven.is_some() => {
                let pid = proven.map_or(0, |b| b.proof.process.pid);
                spans.push(view.span("started", Role::Good));
                let lead = if narrow { "  " } else { "  pid " };
                spans.push(view.span(format!("{lead}{pid}"), Role::Text));
            }
            None => spans.push(view.span("not read yet", Role::Unknown)),
            Some(t) => {
                let (word, role) = server_words(t.status);
                spans.push(view.span(word, role));
                if let Some(p) = t.process {
                    let lead = if narrow { "  " } else { "  pid " };
                    spans.push(view.span(format!("{lead}{}", p.pid), Role::Text));
                }
            }
        }
        // A link that is broken comes first, one that stands last.
        let link = (!target.is_local()).then(|| link_words(view.live.links.get(&target.host), view.now));
        let (first, last) = match link {
            Some(link) if link.1 == Role::Bad => (Some(link), None),
            link => (None, link),
        };
        spans.extend(first.map(|(words, role)| view.span(format!("  {words}"), role)));
        if let Some(boot) = state.and_then(|s| s.boot) {
            let up = view
                .state
                .boots
                .get(&boot)
                // Whether a silent server is still up is not known.
                .filter(|_| silent.is_none())
                .map_or(String::new(), |b| format!(" up {}", text::age(view.now, b.proof.started_at)));
            let words = if narrow { format!("  {boot}{up}") } else { format!("  boot {boot}{up}") };
            spans.push(view.span(words, Role::Text));
        } else if truth.is_some_and(|t| t.status == ServerStatus::Ready)
            && silent.is_none()
            && view.state.running_procedure(&target.name).is_none()
        {
            spans.push(view.span("  boot not proven", Role::Unknown));
        }
        if state.is_some_and(|s| s.changed.is_some()) {
            let levels = changed_levels(view.state, &target.name);
            spans.push(view.span(format!("  changed: {}", levels.join(" ")), Role::Warn));
        }
        if target.production {
            spans.push(view.span("  PRODUCTION", Role::Production));
        }
        spans.extend(last.map(|(words, role)| view.span(format!("  {words}"), role)));
        out.push(Line::from(spans));
        if with_load {
            out.extend(load_line(view, &target.name, width));
        }
    }
    out
}

/// A server that does not answer, in words: since when and why, and how old the last reading is.
fn silence_words(silence: &Silence, read: Option<Timestamp>, now: Timestamp, narrow: bool) -> String {
    let since = text::clock(silence.since);
    if narrow {
        return format!("NO ANSWER {}", text::age(now, silence.since));
    }
    let why = Untrusted::from(silence.why.as_str()).visible(60);
    let read = read.map_or_else(String::new, |at| format!(", read {} ago", text::age(now, at)));
    format!("NO ANSWER since {since} ({why}){read}")
}

/// The link to the host of a target, in words.
fn link_words(link: Option<&LinkState>, now: Timestamp) -> (String, Role) {
    match link {
        None => ("no link yet".into(), Role::Unknown),
        Some(LinkState::Connecting) => ("connecting".into(), Role::Warn),
        Some(LinkState::Up { since }) => (format!("link up {}", text::age(now, *since)), Role::Dim),
        Some(LinkState::Reconnecting { attempt, next }) => {
            let wait = next.duration_since(now).as_secs().max(0);
            (format!("LINK LOST, attempt {attempt} in {wait}s"), Role::Bad)
        }
        Some(LinkState::Down { why }) => {
            (format!("LINK DOWN: {}", Untrusted::from(why.as_str()).visible(60)), Role::Bad)
        }
    }
}

/// The load now, else that of the last batch of trials.
fn load_line(view: &View<'_>, target: &str, width: usize) -> Option<Line<'static>> {
    let mut spans = vec![Span::raw(" ".repeat(9))];
    let values: Vec<(&String, Vec<f64>)> = if let Some(load) = view.live.loads.get(target) {
        load.values.iter().map(|(name, samples)| (name, samples.iter().copied().collect())).collect()
    } else {
        let window = view.state.windows.iter().rev().find(|w| w.target == target && !w.values.is_empty())?;
        spans.push(view.span(format!("batch {} ago  ", text::age(view.now, window.to)), Role::Dim));
        window.values.iter().map(|(name, series)| (name, series.samples.clone())).collect()
    };
    let lead = spans.len();
    let mut used: usize = spans.iter().map(Span::width).sum();
    for (name, samples) in &values {
        let Some(last) = samples.last() else { continue };
        let top = if SHARES.contains(&name.as_str()) {
            1.0
        } else {
            samples.iter().copied().filter(|v| v.is_finite()).fold(1.0, f64::max)
        };
        let number = if last.fract() == 0.0 { format!("{last}") } else { format!("{last:.2}") };
        let piece = format!("{name} {number} {}  ", sparkline(samples.iter(), top, 10, view.look.ascii));
        let w = text::width(&piece);
        if used + w > width {
            break;
        }
        used += w;
        spans.push(view.span(piece, Role::Dim));
    }
    (spans.len() > lead).then(|| Line::from(spans))
}

/// Everything about one row: each layer with its source, and what that source can never show.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let rows = Rows::new(*view);
    let Some(row) = (0..rows.len()).find(|i| rows.key(*i) == key).map(|i| rows.rows[i]) else { return Vec::new() };
    let kind = match row.kind {
        RowKind::Env => "variable",
        RowKind::Flag => "flag",
        RowKind::Config => "configuration",
    };
    let (word, role) = status_words(row.status);
    let mut out = vec![Line::from(vec![
        view.span(row.name.clone(), Role::Strong),
        view.span(format!("  {kind} of {} on {}  ", row.component, row.target), Role::Dim),
        view.span(word, role),
    ])];
    if !row.note.is_empty() {
        out.push(view.line(row.note.clone(), Role::Text));
    }
    for (layer, claim) in [("declared", &row.declared), ("effective", &row.effective), ("observed", &row.observed)] {
        let Some(claim) = claim else {
            out.push(fact(view, layer, "says nothing of it", Role::Dim));
            continue;
        };
        let line = claim.line.map_or(String::new(), |l| format!(":{l}"));
        let (value, role) = match (&claim.known, &claim.value) {
            (Known::Unknown { because }, _) => (format!("unknown: {because}"), Role::Unknown),
            (Known::Yes, None) => ("absent".into(), Role::Text),
            (Known::Yes, Some(v)) => (v.visible(VALUE_CHARS), Role::Text),
        };
        let blind = claim.blind_to.as_ref().map_or(String::new(), |b| format!("; never shows {b}"));
        out.push(Line::from(vec![
            view.span(text::fit(layer, FACT), Role::Dim),
            view.span(value, role),
            view.span(format!("  {}{line}{blind}", claim.source), Role::Dim),
        ]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_always_in_words() {
        let now: Timestamp = "2026-06-18T11:02:15Z".parse().unwrap();
        let later = "2026-06-18T11:02:19Z".parse().unwrap();
        for (link, expect) in [
            (None, "no link yet"),
            (Some(LinkState::Connecting), "connecting"),
            (Some(LinkState::Up { since: now }), "link up 0s"),
            (Some(LinkState::Reconnecting { attempt: 2, next: later }), "LINK LOST, attempt 2 in 4s"),
            (Some(LinkState::Down { why: "host key\u{1b}".into() }), "LINK DOWN: host key␛"),
        ] {
            let (words, role) = link_words(link.as_ref(), now);
            assert_eq!(words, expect);
            assert_eq!(role == Role::Bad, expect.starts_with("LINK"), "{expect}");
        }
    }
}
