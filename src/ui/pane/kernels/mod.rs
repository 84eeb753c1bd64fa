//! The newest run of each microtest and device: curves over the noise band, histogram, heat map, tables, and what they mean.

mod curves;
mod heat;
mod histogram;
mod tables;
pub mod view;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::patches::class_words;
use super::{FACT, Heading, PaneId, PaneState, View, draw_empty, draw_lines, empty_text, fact, source, wrap_lines};
use crate::engine::state::Job;
use crate::kernel::figure::{self, Figure};
use crate::kernel::report::{CurveMode, MicroReport};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{Cell, Column, Source};
use view::{Act, Shown, names};

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

/// Most runs that are laid over one: more cannot be told apart.
const MOST_OVER: usize = 3;

/// Other runs of the same test, the newest first: other devices, and earlier runs on the same.
fn others<'a>(view: &View<'a>, report: &MicroReport) -> Vec<&'a MicroReport> {
    let same = view.state.micro.iter().rev().map(AsRef::as_ref).filter(|r| r.spec == report.spec);
    same.filter(|r| (&r.device, r.at) != (&report.device, report.at)).take(MOST_OVER).collect()
}

/// The curves that are shown of a report; those of the first way of measuring where no curves are.
fn figure_of(view: &View<'_>, st: &PaneState, report: &MicroReport) -> Figure {
    let mode = st.kernels.shown(report).mode().unwrap_or(CurveMode::PerSite);
    let mut reports = vec![report];
    if st.kernels.laid_over {
        reports.extend(others(view, report));
    }
    figure::overlay(&reports, mode, false)
}

/// Number of points on the x axis of the selected report.
pub fn points(view: &View<'_>, st: &PaneState) -> usize {
    selected(view, st).map_or(0, |report| points_of(view, st, report))
}

fn points_of(view: &View<'_>, st: &PaneState, report: &MicroReport) -> usize {
    match st.kernels.shown(report) {
        Shown::Heat => map_of(st, report).map_or(0, |m| m.values.len()),
        _ => figure_of(view, st, report).points(),
    }
}

/// The map of the chosen candidate, or the first there is.
fn map_of(st: &PaneState, report: &MicroReport) -> Option<figure::HeatMap> {
    let chosen = st.kernels.chosen(report).and_then(|name| figure::heat_map(report, name));
    chosen.or_else(|| figure::heat_map(report, &report.heats.first()?.candidate))
}

/// Does what was asked with what is shown; says what happened, or why nothing did.
///
/// # Errors
/// There is no report, or it does not have what was asked for.
pub fn act(view: &View<'_>, st: &mut PaneState, act: Act) -> Result<String, String> {
    let report = selected(view, st).ok_or("there is no microtest to show")?;
    let (points, others) = (points_of(view, st, report), others(view, report).len());
    st.kernels.act(act, report, points, others)
}

/// Microtests that run now, each with how far it is and what it does.
fn running(view: &View<'_>) -> Vec<String> {
    let jobs = view.state.running_jobs().filter(|job| job.title.starts_with("micro "));
    let one = |job: &Job| match view.live.progress.get(&job.id) {
        Some(p) => match p.total.filter(|total| *total > 0) {
            Some(total) => format!("{} {} %, {}", job.title, 100 * p.done.min(total) / total, p.phase),
            None => format!("{} {}", job.title, p.phase),
        },
        None => job.title.clone(),
    };
    jobs.map(one).collect()
}

/// The title line.
pub fn heading(view: &View<'_>, st: &PaneState) -> Heading {
    let runs = running(view).into_iter().next();
    let Some(report) = selected(view, st) else {
        return Heading { summary: runs.unwrap_or_default(), ..Heading::default() };
    };
    if let Some(summary) = runs {
        return Heading { summary, at: None, stale_after_s: None };
    }
    let others = Rows::new(*view).len() - 1;
    let more = if others > 0 { format!(", +{others}") } else { String::new() };
    let hidden = names(report).iter().filter(|n| st.kernels.hides(n)).count();
    let hidden = if hidden > 0 { format!(", {hidden} hidden") } else { String::new() };
    let shown = st.kernels.shown(report).words();
    let summary = format!("{} on {}{more}: {shown}{hidden}", report.spec, report.device);
    Heading { summary, at: Some(report.at), stale_after_s: None }
}

/// What is shown, above the sentences about it.
pub fn draw(buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, _focused: bool) {
    let rows = source(PaneId::Kernels, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    let Some(report) = selected(view, st) else {
        let runs = running(view);
        let says = if runs.is_empty() { empty_text(PaneId::Kernels, view) } else { runs.join("\n") };
        draw_empty(buffer, area, view, &says);
        return;
    };
    let shown = st.kernels.shown(report);
    let chosen = st.kernels.chosen(report);
    let hides = |name: &str| st.kernels.hides(name);
    if shown == Shown::Tables {
        let lines = tables::lines(view, report, chosen, &hides);
        draw_lines(buffer, area, view, &lines);
        return;
    }
    let figure = figure_of(view, st, report);
    let says = says(view, report, chosen, shown);
    let wrapped = wrap_lines(&says, usize::from(area.width)).len() as u16;
    let says_height = if area.height >= 14 { (wrapped + 1).min(area.height / 3) } else { 0 };
    let top = Rect { height: area.height - says_height, ..area };
    match shown {
        Shown::Histogram => {
            let histogram = figure::histogram(report, figure::main_part(report));
            let histogram = histogram.or_else(|| figure::histograms(report).into_iter().next());
            match histogram {
                Some(h) => histogram::draw(buffer, top, view, &h, (&st.kernels, chosen)),
                None => draw_empty(buffer, top, view, "no element was counted"),
            }
        }
        Shown::Heat => {
            if let Some(map) = map_of(st, report) {
                st.cursor = st.cursor.min(map.values.len().saturating_sub(1));
                heat::draw(buffer, top, view, &map, &st.kernels, st.cursor);
            }
        }
        _ => {
            st.cursor = st.cursor.min(figure.points().saturating_sub(1));
            curves::draw(buffer, top, view, &figure, (&st.kernels, chosen), st.cursor);
        }
    }
    if says_height > 1 {
        draw_lines(buffer, Rect { y: area.bottom() - says_height, height: says_height, ..area }, view, &says);
    }
}

/// The sentences below a picture: missed twins, then the chosen candidate with its growth, then the others.
fn says(view: &View<'_>, report: &MicroReport, chosen: Option<&str>, shown: Shown) -> Vec<Line<'static>> {
    let mut out = spoiled_lines(view, report);
    let growth = report.curves.iter().filter(|c| Some(c.mode) == shown.mode() && Some(c.candidate.as_str()) == chosen);
    let growth = growth.filter_map(|c| Some((c.candidate.clone(), c.growth?)));
    let mut verdicts: Vec<_> = report.verdicts.iter().collect();
    verdicts.sort_by_key(|v| Some(v.candidate.as_str()) != chosen);
    for (i, verdict) in verdicts.iter().enumerate() {
        out.push(verdict_line(view, verdict));
        if i == 0 {
            out.extend(
                growth.clone().map(|(name, growth)| fact(view, "growth", format!("{name} {growth}"), Role::Text)),
            );
        }
    }
    out
}

/// A test that misses its known-bad twin, or runs on a broken card, proves nothing: that stands above all verdicts.
fn spoiled_lines(view: &View<'_>, report: &MicroReport) -> Vec<Line<'static>> {
    let line = |why: String| Line::from(vec![view.span("WORTHLESS ", Role::Bad), view.span(why, Role::Text)]);
    report.spoiled().into_iter().map(line).collect()
}

fn verdict_line(view: &View<'_>, verdict: &crate::kernel::report::CandidateVerdict) -> Line<'static> {
    let (words, role) = class_words(verdict.class);
    Line::from(vec![
        view.span(format!("{} ", verdict.candidate), Role::Strong),
        view.span(words, role),
        view.span(format!("  {} ", verdict.says), Role::Text),
        view.span(format!("({})", verdict.does_not_show), Role::Dim),
    ])
}

/// The known-bad twins.
fn control_lines(view: &View<'_>, report: &MicroReport) -> Vec<Line<'static>> {
    let line = |c: &crate::kernel::report::Control| {
        let (word, role) = if c.caught { ("caught", Role::Good) } else { ("MISSED", Role::Bad) };
        Line::from(vec![
            view.span(text::fit("known bad", FACT), Role::Dim),
            view.span(word, role),
            view.span(format!("  {}: {}", c.name, c.says), Role::Text),
        ])
    };
    report.controls.iter().map(line).collect()
}

/// What the noise band is made of, once for all parts that are banded alike.
fn member_lines(view: &View<'_>, report: &MicroReport) -> Vec<Line<'static>> {
    let main = figure::main_part(report);
    let band = report.bands.iter().find(|b| b.part == main);
    let line = |m: &crate::kernel::report::Member| {
        fact(view, "band", format!("{}: {}, {} rms", m.name, m.says, figure::number(m.rms)), Role::Text)
    };
    band.map_or_else(Vec::new, |b| b.members.iter().map(line).collect())
}

/// Everything about one microtest.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let rows = Rows::new(*view);
    let Some(i) = (0..rows.len()).find(|i| rows.key(*i) == key) else { return Vec::new() };
    let report = rows.reports[i];
    let mut out = spoiled_lines(view, report);
    out.extend(report.verdicts.iter().map(|v| verdict_line(view, v)));
    out.extend(control_lines(view, report));
    out.push(fact(view, "device", report.device.clone(), Role::Text));
    out.push(fact(view, "shape", report.shape.clone(), Role::Text));
    out.push(fact(view, "inputs", report.provenance.clone(), Role::Dim));
    out.push(fact(view, "took", format!("{:.1} s, {} ago", report.seconds, text::age(view.now, report.at)), Role::Dim));
    out.extend(member_lines(view, report));
    out.push(Line::default());
    out.extend(tables::lines(view, report, None, &|_| false));
    out
}
