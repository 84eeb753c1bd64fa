//! Error curves over the noise band, and the values under the cursor.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::view::{Settings, letter};
use crate::kernel::figure::{Figure, drawable, is_above, short};
use crate::ui::pane::View;
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::curve::{self, Band, Chart};

/// Least height of the plot.
const LEAST_PLOT: u16 = 5;
/// Width of the column of values beside the plot.
const BESIDE: u16 = 52;

/// One line of the legend: a curve, drawn or hidden.
struct Entry<'a> {
    letter: char,
    role: Role,
    series: &'a crate::kernel::figure::Series,
    hidden: bool,
    chosen: bool,
}

/// Draws the figure and the values at its point `cursor`.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &View<'_>,
    figure: &Figure,
    (settings, chosen): (&Settings, Option<&str>),
    cursor: usize,
) {
    let entries = entries(figure, settings, chosen);
    let beside = area.width >= 96;
    // Below the plot, curves stand two a line, so that all of them are named on a small screen.
    let columns = if !beside && area.width >= 60 { 2 } else { 1 };
    // A line is kept for values that cannot be drawn.
    let room = (columns, usize::from(if beside { BESIDE - 1 } else { area.width }));
    let lines = legend(view, figure, &entries, (cursor, 1), room).len() as u16;
    let legend_height = if beside { 0 } else { lines.min(area.height.saturating_sub(LEAST_PLOT)) };
    let plot = Rect {
        width: if beside { area.width - BESIDE } else { area.width },
        height: area.height - legend_height,
        ..area
    };
    let window = settings.window(figure.points(), cursor);
    let lost = curve::draw(buffer, plot, &chart(figure, &entries, &window, cursor), view.look);
    let at = if beside {
        Rect { x: plot.right() + 1, width: BESIDE - 1, ..plot }
    } else {
        Rect { y: plot.bottom(), height: legend_height, ..area }
    };
    let legend = legend(view, figure, &entries, (cursor, lost), room);
    for (i, line) in legend.iter().take(at.height as usize).enumerate() {
        buffer.set_line(at.x, at.y + i as u16, line, at.width);
    }
}

fn entries<'a>(figure: &'a Figure, settings: &Settings, chosen: Option<&str>) -> Vec<Entry<'a>> {
    let mut names: Vec<&str> = Vec::new();
    let entry = |(n, series): (usize, &'a crate::kernel::figure::Series)| {
        // A candidate keeps its colour in every run that is laid over.
        let place = names.iter().position(|n| *n == series.candidate).unwrap_or_else(|| {
            names.push(&series.candidate);
            names.len() - 1
        });
        Entry {
            letter: letter(n),
            role: Role::Series(place as u8),
            series,
            hidden: settings.hides(&series.candidate),
            chosen: Some(series.candidate.as_str()) == chosen,
        }
    };
    figure.series.iter().enumerate().map(entry).collect()
}

fn chart(figure: &Figure, entries: &[Entry<'_>], window: &std::ops::Range<usize>, cursor: usize) -> Chart {
    let cut = figure.window(window);
    // The chosen one last, so that it lies on top.
    let mut shown: Vec<usize> = (0..entries.len()).filter(|i| !entries[*i].hidden).collect();
    shown.sort_by_key(|i| entries[*i].chosen);
    let series = shown.into_iter().map(|i| curve::Series {
        letter: entries[i].letter,
        role: entries[i].role,
        values: cut.series[i].values.clone(),
        dashed: cut.series[i].report > 0,
    });
    let bands = cut.bands.iter().map(|b| Band { low: b.low.clone(), high: b.high.clone() });
    let end = |at: usize| figure.x_labels.get(at).map_or_else(String::new, |l| format!("{} {l}", at + 1));
    let ends = match window.len() {
        0 => Default::default(),
        1 => [end(window.start), String::new()],
        _ => [end(window.start), end(window.end - 1)],
    };
    Chart { series: series.collect(), bands: bands.collect(), cursor: cursor.saturating_sub(window.start), ends }
}

/// The point under the cursor, the edges of the band there, and the value of each curve, in one or two columns.
fn legend(
    view: &View<'_>,
    figure: &Figure,
    entries: &[Entry<'_>],
    (cursor, lost): (usize, usize),
    (columns, width): (usize, usize),
) -> Vec<Line<'static>> {
    let label = figure.x_labels.get(cursor).cloned().unwrap_or_default();
    let point = view.span(format!("{} {label}", cursor + 1), Role::Strong);
    let mut bands = Vec::new();
    for band in &figure.bands {
        let Some(high) = band.high.get(cursor) else { continue };
        let low = band.low.get(cursor).copied().filter(|v| drawable(*v));
        let from = low.map_or_else(String::new, |v| format!("{} ", short(v)));
        bands.push(view.span(format!("  {} {from}to {}", band.name, short(*high)), Role::Dim));
    }
    let mut out = Vec::new();
    if columns > 1 && bands.len() < 2 {
        out.push(Line::from(std::iter::once(point).chain(bands).collect::<Vec<_>>()));
    } else {
        out.push(Line::from(point));
        out.extend(bands.into_iter().map(Line::from));
    }
    let each = width / columns;
    let name_width = each.saturating_sub(23);
    let explained = if figure.bands.is_empty() { "" } else { "^ above the band" };
    let head = format!("   {} {:>8} {:>9}", text::fit(explained, name_width), "rel L2", "calc_diff");
    out.push(view.line(head, Role::Dim));
    let entry = |e: &Entry<'_>| {
        let value = e.series.values.get(cursor).copied();
        let edge = figure.band_of(e.series).and_then(|b| b.high.get(cursor)).copied();
        let above = value.zip(edge).is_some_and(|(v, edge)| is_above(v, edge));
        let mark = if above { "^" } else { " " };
        let diff = e.series.calc_diff.get(cursor).copied().map_or_else(|| "-".into(), short);
        let value = if e.hidden { "hidden".into() } else { value.map_or_else(|| "-".into(), short) };
        let (name, number) = if e.hidden { (Role::Dim, Role::Dim) } else { (Role::Text, Role::Strong) };
        [
            view.span(if e.chosen { "▸" } else { " " }, Role::Strong),
            view.span(format!("{} ", e.letter), e.role),
            view.span(text::fit(&e.series.name, name_width), name),
            view.span(format!(" {value:>8}"), number),
            view.span(mark, Role::Warn),
            view.span(format!("{diff:>9} "), Role::Dim),
        ]
    };
    out.extend(entries.chunks(columns).map(|row| Line::from(row.iter().flat_map(entry).collect::<Vec<_>>())));
    if lost > 0 {
        let what = text::counted(lost, "value");
        out.push(view.line(format!("{what} not drawn: zero, infinite or no number"), Role::Warn));
    }
    out.extend(figure.notes.iter().filter(|n| n.ends_with("is not drawn")).map(|n| view.line(n.clone(), Role::Warn)));
    out
}
