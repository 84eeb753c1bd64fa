//! How the errors of the elements are spread: one line for each power of ten, one column for each candidate.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::view::Settings;
use crate::kernel::figure::{Histogram, bin_name};
use crate::ui::pane::View;
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::bar;

/// Width of the names of the bins.
const BIN: usize = 6;
/// Least width of a column: a short bar and a share.
const COLUMN: usize = 15;

/// Draws the histogram, large errors on top; candidates that have no room are counted.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &View<'_>,
    histogram: &Histogram,
    (settings, chosen): (&Settings, Option<&str>),
) {
    let lines = lines(view, histogram, settings, chosen, (usize::from(area.width), usize::from(area.height)));
    for (i, line) in lines.iter().take(usize::from(area.height)).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, line, area.width);
    }
}

fn lines(
    view: &View<'_>,
    histogram: &Histogram,
    settings: &Settings,
    chosen: Option<&str>,
    (width, height): (usize, usize),
) -> Vec<Line<'static>> {
    let shown: Vec<usize> = (0..histogram.bars.len()).filter(|i| !settings.hides(&histogram.bars[*i].name)).collect();
    let room = (width.saturating_sub(BIN) / COLUMN).max(1).min(shown.len().max(1));
    // The columns around the chosen one.
    let at = shown.iter().position(|i| Some(histogram.bars[*i].name.as_str()) == chosen).unwrap_or(0);
    let first = (at + 1).saturating_sub(room).min(shown.len() - room.min(shown.len()));
    let columns = &shown[first..(first + room).min(shown.len())];
    let each = (width.saturating_sub(BIN) / room).min(40);
    let bar_width = each.saturating_sub(12);

    let left_out = shown.len() - columns.len();
    let more = if left_out > 0 { format!(", +{left_out} without room") } else { String::new() };
    let mut out = vec![view.line(
        format!("share of the elements of the {} by error over the reference's rms{more}", histogram.part),
        Role::Dim,
    )];
    let mut head = vec![view.span(" ".repeat(BIN), Role::Dim)];
    for i in columns {
        let bars = &histogram.bars[*i];
        let mark = if Some(bars.name.as_str()) == chosen { "▸" } else { " " };
        head.push(view.span(text::fit(&format!("{mark}{}", bars.name), each), Role::Series(*i as u8)));
    }
    out.push(Line::from(head));

    let shares: Vec<Vec<f64>> = columns.iter().map(|i| histogram.bars[*i].shares()).collect();
    let row = |name: String, of: &dyn Fn(&[f64]) -> f64| -> Line<'static> {
        let mut spans: Vec<Span<'static>> = vec![view.span(text::fit(&name, BIN), Role::Dim)];
        for (shares, i) in shares.iter().zip(columns) {
            let share = of(shares);
            let full = bar::filled(share, bar_width, view.look.ascii);
            spans.push(view.span(text::fit_right(&percent(share), 9), Role::Text));
            spans.push(view.span(text::fit(&format!(" {full}"), each - 9), Role::Series(*i as u8)));
        }
        Line::from(spans)
    };
    // Without room for all bins, the smallest errors stand together.
    let bins = histogram.decades.len();
    let lines = height.saturating_sub(out.len()).max(1).min(bins);
    let together = bins - lines + 1;
    for bin in (together..bins).rev() {
        out.push(row(bin_name(histogram.decades[bin]), &|s: &[f64]| s[bin]));
    }
    let name = match together {
        1 => bin_name(histogram.decades[0]),
        n => format!("≤{}", bin_name(histogram.decades[n - 1])),
    };
    out.push(row(name, &|s: &[f64]| s[..together].iter().sum()));
    out
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "-".into(),
        p if p < 0.01 => "<0.01 %".into(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_small_share_is_not_none() {
        let check = |share: f64, expect: &str| assert_eq!(percent(share), expect);
        check(0.0, "-");
        check(1e-7, "<0.01 %");
        check(0.0002, "0.02 %");
        check(0.5, "50.0 %");
        check(1.0, "100.0 %");
    }
}
