//! Bars by power of ten, those of the candidates beside each other in the order of the legend.

use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, Drawn};
use super::curves::{entry_text, frame, x_axis, y_axis};
use super::layout::{self, Entry, Panel};
use super::palette::{self, Mark};
use crate::kernel::figure::{Histogram, Style};

/// Least height of the plot.
pub(super) const HEIGHT: f64 = 170.0;

/// The least share that the axis shows.
const LEAST: i32 = -7;

/// What the legend says, in order.
pub(super) fn legend(histogram: &Histogram) -> Vec<Entry> {
    let order = Entry::new("from left to right", "");
    let bars = histogram.bars.iter().map(|b| {
        let class = match b.style {
            Style::Candidate(Some(class)) => format!("{}, ", class.word()),
            Style::Twin => "known-bad twin, ".into(),
            Style::Candidate(None) | Style::Floor => String::new(),
        };
        Entry::new(&b.name, &format!("{class}{} elements", b.elements))
    });
    std::iter::once(order).chain(bars).collect()
}

/// Draws the panel; the axis of shares is logarithmic, so that a tail is seen.
pub(super) fn draw<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, histogram: &Histogram, panel: &Panel) -> Drawn<DB> {
    let plot = panel.plot;
    let shares: Vec<Vec<f64>> = histogram.bars.iter().map(crate::kernel::figure::Bars::shares).collect();
    let low = crate::kernel::figure::decades(shares.iter().flatten().copied()).map_or(-1, |(low, _)| low);
    // A bar of the least decade must still have a height.
    let decades = (low.clamp(LEAST, -1), 0);
    y_axis(canvas, plot, decades, "share of the elements")?;
    let bins = histogram.decades.len();
    let column = (plot.right - plot.left) / bins.max(1) as f64;
    let width = column * 0.82 / histogram.bars.len().max(1) as f64;
    for (n, bar) in shares.iter().enumerate() {
        let pen = palette::candidate(n, 0);
        for (bin, share) in bar.iter().enumerate().filter(|(_, s)| **s > 0.0) {
            let left = plot.left + column * (bin as f64 + 0.09) + width * n as f64;
            let top = plot.y_log(*share, decades).min(plot.bottom - 1.5);
            canvas.rect((left, top), (left + (width - 0.8).max(0.8), plot.bottom), pen.color)?;
        }
    }
    frame(canvas, plot)?;
    x_axis(canvas, plot, &histogram.bin_names())?;
    let below = (f64::midpoint(plot.left, plot.right), plot.bottom + 28.0);
    canvas.placed(below, &histogram.x_label, layout::SMALL, palette::GREY, HPos::Center)?;
    let (x, mut y) = panel.legend;
    for (i, entry) in legend(histogram).iter().enumerate() {
        if let Some(n) = i.checked_sub(1) {
            canvas.mark((x + 14.0, y + layout::LABEL_LINE / 2.0), Mark::Square, palette::candidate(n, 0).color, 6.0)?;
        }
        entry_text(canvas, (x, y), entry)?;
        y += entry.height();
    }
    Ok(())
}
