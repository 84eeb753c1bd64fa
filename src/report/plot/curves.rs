//! Error curves: the band as a filled area, the lines over it, the legend beside them.

use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, Drawn, Point};
use super::font;
use super::layout::{self, Entry, Panel, Rect};
use super::palette::{self, Mark, Pen};
use crate::kernel::figure::{Area, Figure, Series, Style, drawable, number, table};

/// Least height of the plot.
pub(super) const HEIGHT: f64 = 230.0;

/// More marks than this make a line a caterpillar: each is drawn at some points only.
const MARKS: usize = 24;

/// What the legend says, in order: the bands, then the lines.
pub(super) fn legend(figure: &Figure) -> Vec<Entry> {
    let bands = figure.bands.iter().map(|b| {
        let of = match b.members.as_slice() {
            [] => "what a right arithmetic makes anyway".to_owned(),
            members => format!("what right arithmetics make: {}", members.join(", ")),
        };
        Entry::new(&b.name, &of)
    });
    let lines = figure.series.iter().map(|s| Entry::new(&s.name, &detail(figure, s)));
    bands.chain(lines).collect()
}

fn detail(figure: &Figure, series: &Series) -> String {
    let mut said = Vec::new();
    match series.style {
        Style::Candidate(Some(class)) => said.push(class.word().to_owned()),
        Style::Candidate(None) | Style::Floor => {}
        Style::Twin => said.push("known-bad twin".into()),
    }
    if let Some((_, worst)) = table::worst(&series.values) {
        said.push(format!("largest {}", number(worst)));
    }
    if let Some(above) = figure.above(series) {
        said.push(format!("above the band at {above} of {}", series.values.len()));
    }
    said.extend(series.growth.map(|g| g.to_string()));
    said.join(", ")
}

/// Draws the panel.
pub(super) fn draw<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, figure: &Figure, panel: &Panel) -> Drawn<DB> {
    let plot = panel.plot;
    let points = figure.points();
    let decades = figure.decades().unwrap_or((-1, 0));
    y_axis(canvas, plot, decades, &figure.y_label)?;
    for band in &figure.bands {
        area(canvas, plot, band, points, decades)?;
    }
    let pens = pens(figure);
    for (series, pen) in figure.series.iter().zip(&pens) {
        curve(canvas, plot, series, *pen, points, decades)?;
    }
    frame(canvas, plot)?;
    x_axis(canvas, plot, &figure.x_labels)?;
    let (x, mut y) = panel.legend;
    let samples = figure.bands.iter().map(|_| None).chain(pens.iter().copied().map(Some));
    for (entry, sample) in legend(figure).iter().zip(samples) {
        let middle = y + layout::LABEL_LINE / 2.0;
        if let Some(pen) = sample {
            canvas.pen_line(&[(x, middle), (x + 28.0, middle)], pen, 1.8)?;
            canvas.mark((x + 14.0, middle), pen.mark, pen.color, 3.2)?;
        } else {
            let (top, bottom) = (middle - 6.0, middle + 6.0);
            let corners = [(x, top), (x + 28.0, top), (x + 28.0, bottom), (x, bottom)];
            canvas.fill(&corners, palette::BAND, 0.3)?;
            canvas.line(&corners[..2], palette::BAND, 1.0)?;
        }
        entry_text(canvas, (x, y), entry)?;
        y += entry.height();
    }
    Ok(())
}

/// The name of a legend's entry and its details, right of the sample.
pub(super) fn entry_text<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, (x, y): Point, entry: &Entry) -> Drawn<DB> {
    let x = x + layout::SAMPLE;
    canvas.text((x, y + layout::LABEL_LINE / 2.0), &entry.name, layout::LABEL, palette::INK)?;
    for (i, line) in entry.details.iter().enumerate() {
        let y = y + layout::LABEL_LINE + (i as f64 + 0.4) * layout::SMALL_LINE;
        canvas.text((x, y), line, layout::SMALL, palette::GREY)?;
    }
    Ok(())
}

/// Lines and labels of a logarithmic axis; where there are many decades, not each has a label.
pub(super) fn y_axis<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    plot: Rect,
    decades: (i32, i32),
    label: &str,
) -> Drawn<DB> {
    let step = (f64::from(decades.1 - decades.0) * 16.0 / (plot.bottom - plot.top)).ceil().max(1.0) as i32;
    for exponent in decades.0..=decades.1 {
        let y = plot.y_log(10f64.powi(exponent), decades);
        canvas.line(&[(plot.left, y), (plot.right, y)], palette::GRID, 1.0)?;
        if (exponent - decades.0) % step == 0 {
            let text = format!("1e{exponent}");
            canvas.placed((plot.left - 7.0, y), &text, layout::SMALL, palette::INK, HPos::Right)?;
        }
    }
    let middle = f64::midpoint(plot.top, plot.bottom);
    canvas.upright((layout::MARGIN + 6.0, middle), label, layout::SMALL, palette::GREY)
}

/// The texts below the plot, as many as have room.
pub(super) fn x_axis<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, plot: Rect, texts: &[String]) -> Drawn<DB> {
    let step = layout::tick_step(texts, plot.right - plot.left);
    for (i, text) in texts.iter().enumerate().step_by(step) {
        let x = plot.x(i, texts.len());
        canvas.line(&[(x, plot.bottom), (x, plot.bottom + 4.0)], palette::INK, 1.0)?;
        // A wide text does not leave the sheet.
        let x = x.max(layout::MARGIN + font::width(text, layout::SMALL) / 2.0);
        canvas.placed((x, plot.bottom + 14.0), text, layout::SMALL, palette::INK, HPos::Center)?;
    }
    Ok(())
}

/// The left and the lower edge.
pub(super) fn frame<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, plot: Rect) -> Drawn<DB> {
    canvas.line(&[(plot.left, plot.top), (plot.left, plot.bottom), (plot.right, plot.bottom)], palette::INK, 1.0)
}

/// A candidate and a twin keep colour and mark in every report.
fn pens(figure: &Figure) -> Vec<Pen> {
    let (mut candidates, mut twins) = (Vec::new(), Vec::new());
    let pen = |series: &Series| match series.style {
        Style::Twin => palette::twin(place(&mut twins, &series.candidate)),
        _ => palette::candidate(place(&mut candidates, &series.candidate), series.report),
    };
    figure.series.iter().map(pen).collect()
}

/// The place of a name in a list of names, which it is put into if it is not there.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    if let Some(at) = names.iter().position(|n| n == name) {
        return at;
    }
    names.push(name.to_owned());
    names.len() - 1
}

/// The band, with a thin line along its edges. A gap of the upper edge is a gap of the area.
fn area<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    plot: Rect,
    band: &Area,
    points: usize,
    decades: (i32, i32),
) -> Drawn<DB> {
    for run in runs(&band.high) {
        let at = |i: usize, v: f64| (plot.x(i, points), plot.y_log(v, decades));
        let high: Vec<Point> = run.clone().map(|i| at(i, band.high[i])).collect();
        let low = |i: usize| band.low.get(i).copied().filter(|v| drawable(*v));
        let low: Vec<Point> = run.map(|i| low(i).map_or((plot.x(i, points), plot.bottom), |v| at(i, v))).collect();
        // One point alone is as wide as its column.
        let half = (plot.right - plot.left) / points.max(1) as f64 / 2.0;
        let widened = |line: &[Point]| match line {
            [(x, y)] => vec![(x - half, *y), (x + half, *y)],
            more => more.to_vec(),
        };
        let (high, low) = (widened(&high), widened(&low));
        let outline: Vec<Point> = high.iter().chain(low.iter().rev()).copied().collect();
        canvas.fill(&outline, palette::BAND, 0.25)?;
        canvas.line(&high, palette::BAND, 1.0)?;
        canvas.line(&low, palette::BAND, 0.6)?;
    }
    Ok(())
}

fn curve<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    plot: Rect,
    series: &Series,
    pen: Pen,
    points: usize,
    decades: (i32, i32),
) -> Drawn<DB> {
    let at = |i: usize| (plot.x(i, points), plot.y_log(series.values[i], decades));
    for run in runs(&series.values) {
        let line: Vec<Point> = run.map(at).collect();
        if line.len() > 1 {
            canvas.pen_line(&line, pen, 1.8)?;
        }
    }
    let step = points.div_ceil(MARKS).max(1);
    for (i, v) in series.values.iter().enumerate() {
        if drawable(*v) {
            let lonely = (i == 0 || series.point(i - 1).is_none()) && series.point(i + 1).is_none();
            if i % step == 0 || lonely {
                canvas.mark(at(i), pen.mark, pen.color, 3.0)?;
            }
        } else if *v != 0.0 {
            // What is not a number stands at the top as a cross, so that the gap is seen.
            canvas.mark((plot.x(i, points), plot.top + 5.0), Mark::Cross, pen.color, 3.6)?;
        }
    }
    Ok(())
}

/// The stretches of neighbouring points that can be drawn.
fn runs(values: &[f64]) -> Vec<std::ops::Range<usize>> {
    let mut out = Vec::new();
    let mut start = None;
    for i in 0..=values.len() {
        let good = values.get(i).is_some_and(|v| drawable(*v));
        match (good, start) {
            (true, None) => start = Some(i),
            (false, Some(from)) => {
                out.push(from..i);
                start = None;
            }
            _ => {}
        }
    }
    out
}
