//! Curves on a logarithmic scale over noise bands, in braille or in ASCII.
//!
//! A cell belongs to the last curve drawn through it; each curve also has a letter, so that nothing
//! rests on its colour. A band is a grid of dots with a line along its upper edge, and lies behind all
//! curves. Values that are no positive numbers are not drawn, and are counted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::kernel::figure::{decades, drawable};
use crate::ui::text;
use crate::ui::theme::{Look, Role};

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Letter that stands for it.
    pub letter: char,
    /// Colour.
    pub role: Role,
    /// One value for each point of the x axis.
    pub values: Vec<f64>,
    /// Every other dot only: a line that can be told apart without colour.
    pub dashed: bool,
}

/// An area behind the curves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// Lower edge at each point; what is not drawable reaches down to the axis.
    pub low: Vec<f64>,
    /// Upper edge at each point.
    pub high: Vec<f64>,
}

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// The curves; the last is on top.
    pub series: Vec<Series>,
    /// The areas behind them.
    pub bands: Vec<Band>,
    /// The point of the cursor.
    pub cursor: usize,
    /// What stands below the left and the right end of the x axis; both empty leave that line out.
    pub ends: [String; 2],
}

/// Width of the labels of the y axis.
pub const AXIS: u16 = 6;

/// Draws curves, axis labels and a cursor; returns the number of values not drawn.
pub fn draw(buffer: &mut Buffer, area: Rect, chart: &Chart, look: Look) -> usize {
    let values = || chart.series.iter().flat_map(|s| &s.values).copied();
    let lost = values().filter(|v| !drawable(*v)).count();
    let edges = chart.bands.iter().flat_map(|b| b.low.iter().chain(&b.high)).copied();
    let Some(decades) = decades(values().chain(edges)) else { return lost };
    let points = chart.series.iter().map(|s| s.values.len()).chain(chart.bands.iter().map(|b| b.high.len()));
    let points = points.max().unwrap_or(0);
    let foot = u16::from(chart.ends.iter().any(|e| !e.is_empty()) && area.height > 4);
    if area.width <= AXIS + 1 || area.height < 2 + foot || points == 0 {
        return lost;
    }
    let cells = Rect { x: area.x + AXIS, width: area.width - AXIS, height: area.height - foot, ..area };
    let plot = Plot { cells, decades, points };
    axis(buffer, area.x, &plot, look);
    for band in &chart.bands {
        draw_band(buffer, &plot, band, look);
    }
    let cursor_x = cells.x + (plot.to_x(chart.cursor.min(points - 1)) / 2) as u16;
    for y in cells.y..cells.bottom() {
        buffer[(cursor_x, y)].set_char('│').set_style(look.style(Role::Dim));
    }
    for s in &chart.series {
        let mut dots = plot.dots();
        plot.path(&s.values, s.dashed, |x, y| dots.set(x, y));
        dots.draw(buffer, &plot, s.letter, s.role, look);
    }
    // The letters last, at the end of each curve, so that no curve hides another's name.
    for s in &chart.series {
        if let Some((i, v)) = s.values.iter().enumerate().rfind(|(_, v)| drawable(**v)) {
            let (x, y) = (cells.x + (plot.to_x(i) / 2) as u16, cells.y + (plot.to_y(*v) / 4) as u16);
            buffer[(x, y)].set_char(s.letter).set_style(look.style(s.role));
        }
    }
    if foot == 1 {
        ends(buffer, Rect { y: cells.bottom(), height: 1, ..cells }, &chart.ends, look);
    }
    lost
}

/// Where points and values stand, in dots: two a cell across, four a cell down.
struct Plot {
    cells: Rect,
    decades: (i32, i32),
    points: usize,
}

impl Plot {
    fn width(&self) -> usize {
        usize::from(self.cells.width) * 2
    }

    fn height(&self) -> usize {
        usize::from(self.cells.height) * 4
    }

    fn to_x(&self, point: usize) -> usize {
        if self.points == 1 { 0 } else { point * (self.width() - 1) / (self.points - 1) }
    }

    fn to_y(&self, value: f64) -> usize {
        let (low, high) = self.decades;
        let share = (value.log10() - f64::from(low)) / f64::from(high - low);
        ((1.0 - share) * (self.height() - 1) as f64).round() as usize
    }

    fn dots(&self) -> Dots {
        let columns = usize::from(self.cells.width);
        Dots { columns, bits: vec![0; columns * usize::from(self.cells.height)] }
    }

    /// Every dot of a line through these values; what is not drawable is a gap.
    fn path(&self, values: &[f64], dashed: bool, mut set: impl FnMut(usize, usize)) {
        let mut before: Option<(usize, usize)> = None;
        for (i, v) in values.iter().enumerate() {
            if !drawable(*v) {
                before = None;
                continue;
            }
            let here = (self.to_x(i), self.to_y(*v));
            line(before.unwrap_or(here), here, dashed, &mut set);
            before = Some(here);
        }
    }
}

/// The dots of one thing, as the bits of braille characters.
struct Dots {
    columns: usize,
    bits: Vec<u8>,
}

const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Dots {
    fn set(&mut self, x: usize, y: usize) {
        if let Some(cell) = self.bits.get_mut((y / 4) * self.columns + x / 2) {
            *cell |= BITS[y % 4][x % 2];
        }
    }

    fn draw(&self, buffer: &mut Buffer, plot: &Plot, letter: char, role: Role, look: Look) {
        for (i, bits) in self.bits.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            let x = plot.cells.x + (i % self.columns) as u16;
            let y = plot.cells.y + (i / self.columns) as u16;
            let braille = char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(letter);
            buffer[(x, y)].set_char(if look.ascii { letter } else { braille }).set_style(look.style(role));
        }
    }
}

/// Labels and lines of the decades, as many as have a line of their own.
fn axis(buffer: &mut Buffer, x: u16, plot: &Plot, look: Look) {
    let (low, high) = plot.decades;
    let step = (high - low + 1).div_euclid(i32::from(plot.cells.height).max(1)) + 1;
    let step = if high - low < i32::from(plot.cells.height) { 1 } else { step };
    for exponent in (low..=high).step_by(step as usize) {
        let y = plot.cells.y + (plot.to_y(10f64.powi(exponent)) / 4) as u16;
        buffer.set_string(x, y, text::fit_right(&format!("1e{exponent}"), 5), look.style(Role::Dim));
        for x in plot.cells.x..plot.cells.right() {
            if (x - plot.cells.x).is_multiple_of(4) {
                buffer[(x, y)].set_char('·').set_style(look.style(Role::Dim));
            }
        }
    }
}

fn draw_band(buffer: &mut Buffer, plot: &Plot, band: &Band, look: Look) {
    // The edges at each column of dots: the least and the greatest, where a steep edge has several.
    let edge = |values: &[f64]| {
        let mut rows: Vec<Option<usize>> = vec![None; plot.width()];
        plot.path(values, false, |x, y| rows[x] = Some(rows[x].map_or(y, |r| r.min(y))));
        rows
    };
    let (high, low) = (edge(&band.high), edge(&band.low));
    let mut dots = plot.dots();
    for (x, top) in high.iter().enumerate() {
        let Some(top) = *top else { continue };
        let bottom = low[x].unwrap_or(plot.height() - 1);
        let inside = (top + 1..=bottom).filter(|y| x % 2 == 0 && y % 2 == 1);
        inside.for_each(|y| dots.set(x, y));
        dots.set(x, top);
    }
    dots.draw(buffer, plot, ':', Role::Dim, look);
}

fn ends(buffer: &mut Buffer, area: Rect, ends: &[String; 2], look: Look) {
    let width = usize::from(area.width);
    let left = text::cut(&ends[0], width / 2);
    let right = text::cut(&ends[1], width.saturating_sub(text::width(&left) + 2));
    let style = look.style(Role::Dim);
    buffer.set_string(area.x, area.y, &left, style);
    buffer.set_string(area.right() - text::width(&right) as u16, area.y, &right, style);
}

/// Every dot of a straight line; dashed lines leave out two of four.
fn line(from: (usize, usize), to: (usize, usize), dashed: bool, mut set: impl FnMut(usize, usize)) {
    let (dx, dy) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
    let steps = dx.abs().max(dy.abs()).max(1.0) as usize;
    for i in 0..=steps {
        if dashed && i % 4 >= 2 {
            continue;
        }
        let share = i as f64 / steps as f64;
        set((from.0 as f64 + dx * share).round() as usize, (from.1 as f64 + dy * share).round() as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::theme::{Palette, Theme};

    fn series(values: &[f64]) -> Series {
        Series { letter: 'a', role: Role::Series(0), values: values.to_vec(), dashed: false }
    }

    fn look(ascii: bool) -> Look {
        Look { theme: Theme::Mono, palette: Palette::None, ascii }
    }

    fn drawn(chart: &Chart, ascii: bool) -> (Vec<String>, usize) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 6));
        let area = buffer.area;
        let lost = draw(&mut buffer, area, chart, look(ascii));
        let symbols: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        (symbols.chunks(30).map(<[&str]>::concat).collect(), lost)
    }

    fn curves(values: &[f64]) -> Chart {
        Chart { series: vec![series(values)], ..Chart::default() }
    }

    #[test]
    fn values_that_cannot_be_drawn_are_counted_not_drawn() {
        let (lines, lost) = drawn(&curves(&[1e-3, f64::NAN, f64::INFINITY, 0.0, 1e-2]), true);
        assert_eq!(lost, 3);
        assert!(lines.concat().contains('a'));
        assert_eq!(drawn(&curves(&[f64::NAN]), false), (vec![" ".repeat(30); 6], 1));
    }

    #[test]
    fn ascii_mode_uses_letters_alone() {
        let (lines, _) = drawn(&curves(&[1e-3, 5e-3, 1e-2]), true);
        let text = lines.concat();
        assert!(text.chars().all(|c| c.is_ascii() || c == '·' || c == '│'), "{text}");
        let (lines, _) = drawn(&curves(&[1e-3, 5e-3, 1e-2]), false);
        assert!(lines.concat().chars().any(|c| ('\u{2800}'..='\u{28ff}').contains(&c)));
    }

    #[test]
    fn the_greatest_value_is_on_top() {
        let (lines, _) = drawn(&curves(&[1e-3, 1e-2]), true);
        assert!(lines[0].ends_with('a') && lines[5].chars().nth(6) == Some('a'), "{lines:?}");
    }

    #[test]
    fn a_band_lies_between_its_edges_and_behind_the_curve() {
        let band = Band { low: vec![1e-3; 3], high: vec![1e-2; 3] };
        let chart = Chart { series: vec![series(&[1e-4, 1e-1, 1e-1])], bands: vec![band], ..Chart::default() };
        let (lines, _) = drawn(&chart, true);
        let column = |x: usize| lines.iter().map(|l| l.chars().nth(x).unwrap()).collect::<String>();
        // The axis goes from 1e-4 to 1e-1: the middle third of each column is band.
        assert_eq!(column(25), "a ::  ", "{lines:?}");
        assert_eq!(column(9), "  ::a ", "{lines:?}");
    }

    #[test]
    fn a_band_without_a_lower_edge_reaches_down_to_the_axis() {
        let band = Band { low: vec![f64::NAN; 2], high: vec![1e-2; 2] };
        let chart = Chart { series: vec![series(&[1e-4, 1e-4])], bands: vec![band], cursor: 1, ..Chart::default() };
        let (lines, _) = drawn(&chart, true);
        let column: String = lines.iter().map(|l| l.chars().nth(20).unwrap()).collect();
        assert_eq!(column, ":::::a");
    }

    #[test]
    fn what_the_ends_of_the_axis_are_stands_below_it() {
        let chart = Chart { ends: ["1 first".into(), "9 last".into()], ..curves(&[1e-3, 1e-2]) };
        let (lines, _) = drawn(&chart, true);
        assert_eq!(lines[5], "      1 first           9 last");
    }

    #[test]
    fn more_decades_than_lines_have_labels_that_do_not_overlap() {
        let (lines, _) = drawn(&curves(&[1e-9, 1e3]), true);
        let labels: Vec<&str> = lines.iter().map(|l| l[..5].trim()).filter(|l| !l.is_empty()).collect();
        assert!((2..=6).contains(&labels.len()), "{labels:?}");
        assert_eq!(labels.last(), Some(&"1e-9"));
    }
}
