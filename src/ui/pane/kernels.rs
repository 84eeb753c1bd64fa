//! Error curves of the newest run of each microtest, with the floor that rounding makes anyway.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::patches::class_words;
use super::{FACT, Heading, PaneId, PaneState, View, draw_empty, draw_lines, empty_text, fact, source};
use crate::kernel::report::{CurveMode, MicroReport};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::curve::{self, Series};
use crate::ui::widget::table::{Cell, Column, Source};

/// The rows: microtests, newest run of each spec and device, in the order of their first run.
pub struct Rows<'a> {
    reports: Vec<&'a MicroReport>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        let mut reports: Vec<&MicroReport> = Vec::new();
        for report in &view.state.micro {
            match reports.iter_mut().find(|r| r.spec == report.spec && r.device == report.device) {
                Some(old) => *old = report,
                None => reports.push(report),
            }
        }
        Self { reports }
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.reports.len()
    }

    fn key(&self, i: usize) -> String {
        format!("{} {}", self.reports[i].spec, self.reports[i].device)
    }

    fn text(&self, i: usize) -> String {
        let r = self.reports[i];
        format!("{} {} {}", r.spec, r.device, r.provenance)
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::upto("microtest", 8, 20, 1), Column::upto("device", 5, 10, 2), Column::grow("shape", 10, 3)]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        let r = self.reports[i];
        vec![
            Cell::of(r.spec.clone(), Role::Strong),
            Cell::plain(r.device.clone()),
            Cell::of(r.shape.clone(), Role::Dim),
        ]
    }
}

fn selected<'a>(view: &View<'a>, st: &PaneState) -> Option<&'a MicroReport> {
    let rows = Rows::new(*view);
    let position = st.list.position().min(rows.len().checked_sub(1)?);
    rows.reports.get(position).copied()
}

/// Number of points on the x axis of the selected report.
pub fn points(view: &View<'_>, st: &PaneState) -> usize {
    selected(view, st).map_or(0, |r| r.curves.iter().map(|c| c.rel_l2.len()).max().unwrap_or(0))
}

/// The title line.
pub fn heading(view: &View<'_>, st: &PaneState) -> Heading {
    let Some(report) = selected(view, st) else { return Heading::default() };
    let others = Rows::new(*view).len() - 1;
    let more = if others > 0 { format!(", +{others}") } else { String::new() };
    Heading { summary: format!("{} on {}{more}", report.spec, report.device), at: Some(report.at), stale_after_s: None }
}

fn series(report: &MicroReport) -> Vec<Series> {
    let mut colours: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for (floor, curve) in report.floor.iter().map(|c| (true, c)).chain(report.curves.iter().map(|c| (false, c))) {
        let mode = curve.mode.word();
        let colour = colours.iter().position(|c| *c == curve.candidate).unwrap_or_else(|| {
            colours.push(&curve.candidate);
            colours.len() - 1
        });
        let letter = char::from(b'a' + (out.len() % 26) as u8);
        let name =
            if floor { format!("{} floor, {mode}", curve.candidate) } else { format!("{}, {mode}", curve.candidate) };
        out.push(Series {
            name,
            letter,
            role: if floor { Role::Dim } else { Role::Series(colour as u8) },
            values: curve.rel_l2.clone(),
            dashed: curve.mode == CurveMode::PerSite,
        });
    }
    out
}

/// Least height of the plot.
const LEAST_PLOT: u16 = 4;

/// Curves, the values under the cursor, the sentences.
pub fn draw(buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, _focused: bool) {
    let rows = source(PaneId::Kernels, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    let Some(report) = selected(view, st) else {
        draw_empty(buffer, area, view, &empty_text(PaneId::Kernels, view));
        return;
    };
    let series = series(report);
    let points = points(view, st);
    st.cursor = st.cursor.min(points.saturating_sub(1));
    let says = verdict_lines(view, report);
    let says_height = if area.height >= 14 { (says.len() as u16 + 2).min(area.height / 3) } else { 0 };
    let beside = area.width >= 90;
    // Below the plot, curves stand two a line, so that all of them are named on a small screen.
    let columns = if !beside && area.width >= 60 { 2 } else { 1 };
    let legend_lines = series.len().div_ceil(columns) as u16 + 2;
    let legend_width = 50;
    // Every curve must be named; the plot gives way, down to the height at which it still shows a slope.
    let legend_height = if beside { 0 } else { legend_lines.min(area.height.saturating_sub(says_height + LEAST_PLOT)) };
    let plot = Rect {
        width: if beside { area.width - legend_width } else { area.width },
        height: area.height - says_height - legend_height,
        ..area
    };
    let lost = curve::draw(buffer, plot, &series, st.cursor, view.look);
    let legend = legend(view, report, &series, (st.cursor, lost), (columns, area.width as usize));
    let at = if beside {
        Rect { x: plot.right() + 1, width: legend_width - 1, ..plot }
    } else {
        Rect { y: plot.bottom(), height: legend_height, ..area }
    };
    for (i, line) in legend.iter().take(at.height as usize).enumerate() {
        buffer.set_line(at.x, at.y + i as u16, line, at.width);
    }
    if says_height > 1 {
        draw_lines(buffer, Rect { y: area.bottom() - says_height, height: says_height, ..area }, view, &says);
    }
}

/// The site under the cursor with the value of each curve there, in one or two columns.
fn legend(
    view: &View<'_>,
    report: &MicroReport,
    series: &[Series],
    (cursor, lost): (usize, usize),
    (columns, width): (usize, usize),
) -> Vec<Line<'static>> {
    let label = report.curves.iter().find_map(|c| c.labels.get(cursor)).cloned().unwrap_or_default();
    let (left, right) = (view.key("left"), view.key("right"));
    let modes = if columns > 1 { "  - - per site  --- compounded" } else { "" };
    let mut out = vec![Line::from(vec![
        view.span(format!("{} {label}", cursor + 1), Role::Strong),
        view.span(format!("  {}{} move{modes}", left.trim_matches('`'), right.trim_matches('`')), Role::Dim),
    ])];
    let name_width = if columns > 1 { (width / columns).saturating_sub(17) } else { 29 };
    let entry = |s: &Series| {
        let value = match s.values.get(cursor) {
            None => "-".into(),
            Some(v) if v.is_nan() => "not a number".into(),
            Some(v) if v.is_infinite() => "infinite".into(),
            Some(v) => format!("{v:.2e}"),
        };
        let value = if columns > 1 { text::fit(&value, 9) } else { value };
        // In two columns the line alone says which mode it is.
        let name = if columns > 1 { s.name.split(", ").next().unwrap_or(&s.name) } else { &s.name };
        let line = if s.dashed { "- -" } else { "---" };
        [
            view.span(format!("{} {line} ", s.letter), s.role),
            view.span(text::fit(name, name_width), Role::Text),
            view.span(format!(" {value}"), Role::Strong),
            view.span(if columns > 1 { " " } else { "" }, Role::Text),
        ]
    };
    out.extend(series.chunks(columns).map(|row| Line::from(row.iter().flat_map(entry).collect::<Vec<_>>())));
    if lost > 0 {
        let what = text::counted(lost, "value");
        out.push(view.line(format!("{what} not drawn: zero, infinite or no number"), Role::Warn));
    }
    out
}

/// A test that misses its known-bad twin proves nothing: that stands above all verdicts.
fn verdict_lines(view: &View<'_>, report: &MicroReport) -> Vec<Line<'static>> {
    let missed = report.controls.iter().filter(|c| !c.caught).map(|c| {
        Line::from(vec![
            view.span("WORTHLESS ", Role::Bad),
            view.span(format!("the test missed its known-bad twin `{}`: {}", c.name, c.says), Role::Text),
        ])
    });
    let verdicts = report.verdicts.iter().map(|v| {
        let (words, role) = class_words(v.class);
        Line::from(vec![
            view.span(format!("{} ", v.candidate), Role::Strong),
            view.span(words, role),
            view.span(format!("  {} ", v.says), Role::Text),
            view.span(format!("({})", v.does_not_show), Role::Dim),
        ])
    });
    missed.chain(verdicts).collect()
}

/// Decisions that flipped, and the known-bad twins.
fn decision_lines(view: &View<'_>, report: &MicroReport) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for d in &report.decisions {
        let said = format!(
            "{}: {} of {} tokens flip, {} beyond the floor; {} of {} expert choices",
            d.candidate, d.flips, d.positions, d.flips_beyond_floor, d.expert_flips, d.expert_choices
        );
        let role = if d.flips_beyond_floor > 0 { Role::Bad } else { Role::Text };
        out.push(fact(view, "decisions", said, role));
    }
    for c in &report.controls {
        let (word, role) = if c.caught { ("caught", Role::Good) } else { ("MISSED", Role::Bad) };
        out.push(Line::from(vec![
            view.span(text::fit("known bad", FACT), Role::Dim),
            view.span(word, role),
            view.span(format!("  {}: {}", c.name, c.says), Role::Text),
        ]));
    }
    out
}

/// Everything about one microtest.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let rows = Rows::new(*view);
    let Some(i) = (0..rows.len()).find(|i| rows.key(*i) == key) else { return Vec::new() };
    let report = rows.reports[i];
    let mut out = verdict_lines(view, report);
    out.extend(decision_lines(view, report));
    out.push(fact(view, "device", report.device.clone(), Role::Text));
    out.push(fact(view, "shape", report.shape.clone(), Role::Text));
    out.push(fact(view, "inputs", report.provenance.clone(), Role::Dim));
    out.push(fact(view, "took", format!("{:.1} s, {} ago", report.seconds, text::age(view.now, report.at)), Role::Dim));
    for s in series(report) {
        let worst = s.values.iter().copied().filter(|v| v.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        let said = if worst.is_finite() { format!("{worst:.2e} at most") } else { "no finite value".into() };
        out.push(Line::from(vec![view.span(text::fit(&s.name, 28), Role::Dim), view.span(said, Role::Text)]));
    }
    out
}
