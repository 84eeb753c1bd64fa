//! Curves on a logarithmic scale, in braille or in ASCII.
//!
//! A cell belongs to the last curve drawn through it; each curve also has a letter, so that nothing
//! rests on its colour. Values that are no positive numbers are not drawn, and are counted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::text;
use crate::ui::theme::{Look, Role};

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Letter that stands for it.
    pub letter: char,
    /// Colour.
    pub role: Role,
    /// One value for each point of the x axis.
    pub values: Vec<f64>,
    /// Every other dot only: a line that can be told apart without colour.
    pub dashed: bool,
}

/// Range of a logarithmic axis in powers of ten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decades {
    /// Exponent at the bottom.
    pub low: i32,
    /// Exponent at the top.
    pub high: i32,
}

/// The decades that hold every drawable value; at least one decade.
pub fn decades<'a>(series: impl Iterator<Item = &'a Series>) -> Option<Decades> {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for v in series.flat_map(|s| &s.values).filter(|v| drawable(**v)) {
        low = low.min(v.log10());
        high = high.max(v.log10());
    }
    if low > high {
        return None;
    }
    let (low, high) = (low.floor() as i32, high.ceil() as i32);
    Some(Decades { low, high: high.max(low + 1) })
}

/// Whether a value can stand on a logarithmic axis.
pub fn drawable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// Draws curves, axis labels and a cursor at point `cursor`; returns the number of values not drawn.
pub fn draw(buffer: &mut Buffer, area: Rect, series: &[Series], cursor: usize, look: Look) -> usize {
    let lost = series.iter().flat_map(|s| &s.values).filter(|v| !drawable(**v)).count();
    let Some(decades) = decades(series.iter()) else { return lost };
    let points = series.iter().map(|s| s.values.len()).max().unwrap_or(0);
    const AXIS: u16 = 6;
    if area.width < AXIS + 4 || area.height < 2 || points == 0 {
        return lost;
    }
    let plot = Rect { x: area.x + AXIS, width: area.width - AXIS, ..area };
    let (dots_x, dots_y) = (usize::from(plot.width) * 2, usize::from(plot.height) * 4);
    let span = f64::from(decades.high - decades.low);
    let to_y = |v: f64| {
        let share = (v.log10() - f64::from(decades.low)) / span;
        ((1.0 - share) * (dots_y - 1) as f64).round() as usize
    };
    let to_x = |i: usize| if points == 1 { 0 } else { i * (dots_x - 1) / (points - 1) };

    for exponent in decades.low..=decades.high {
        let y = plot.y + (to_y(10f64.powi(exponent)) / 4) as u16;
        buffer.set_string(area.x, y, text::fit_right(&format!("1e{exponent}"), 5), look.style(Role::Dim));
        for x in plot.x..plot.right() {
            if (x - plot.x).is_multiple_of(4) {
                buffer[(x, y)].set_char('·').set_style(look.style(Role::Dim));
            }
        }
    }
    let cursor_x = plot.x + (to_x(cursor.min(points - 1)) / 2) as u16;
    for y in plot.y..plot.bottom() {
        buffer[(cursor_x, y)].set_char('│').set_style(look.style(Role::Dim));
    }

    for s in series {
        let mut dots: Vec<u8> = vec![0; usize::from(plot.width) * usize::from(plot.height)];
        let mut before: Option<(usize, usize)> = None;
        for (i, v) in s.values.iter().enumerate() {
            if !drawable(*v) {
                before = None;
                continue;
            }
            let here = (to_x(i), to_y(*v));
            line(before.unwrap_or(here), here, s.dashed, |x, y| {
                dots[(y / 4) * usize::from(plot.width) + x / 2] |= DOTS[y % 4][x % 2];
            });
            before = Some(here);
        }
        for (i, bits) in dots.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            let (x, y) = (plot.x + (i % usize::from(plot.width)) as u16, plot.y + (i / usize::from(plot.width)) as u16);
            let symbol =
                if look.ascii { s.letter } else { char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(s.letter) };
            buffer[(x, y)].set_char(symbol).set_style(look.style(s.role));
        }
    }
    // The letters last, at the end of each curve, so that no curve hides another's name.
    for s in series {
        if let Some((i, v)) = s.values.iter().enumerate().rfind(|(_, v)| drawable(**v)) {
            let (x, y) = (plot.x + (to_x(i) / 2) as u16, plot.y + (to_y(*v) / 4) as u16);
            buffer[(x, y)].set_char(s.letter).set_style(look.style(s.role));
        }
    }
    lost
}

const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

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
        Series { name: "bf16".into(), letter: 'a', role: Role::Series(0), values: values.to_vec(), dashed: false }
    }

    fn look(ascii: bool) -> Look {
        Look { theme: Theme::Mono, palette: Palette::None, ascii }
    }

    fn drawn(values: &[f64], ascii: bool) -> (String, usize) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 6));
        let area = buffer.area;
        let lost = draw(&mut buffer, area, &[series(values)], 0, look(ascii));
        (buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect(), lost)
    }

    #[test]
    fn decades_hold_all_values() {
        assert_eq!(decades([series(&[2e-4, 3e-2])].iter()), Some(Decades { low: -4, high: -1 }));
        assert_eq!(decades([series(&[1e-3])].iter()), Some(Decades { low: -3, high: -2 }));
        assert_eq!(decades([series(&[f64::NAN, 0.0])].iter()), None);
    }

    #[test]
    fn values_that_cannot_be_drawn_are_counted_not_drawn() {
        let (text, lost) = drawn(&[1e-3, f64::NAN, f64::INFINITY, 0.0, 1e-2], true);
        assert_eq!(lost, 3);
        assert!(text.contains('a'));
        assert_eq!(drawn(&[f64::NAN], false), (" ".repeat(180), 1));
    }

    #[test]
    fn ascii_mode_uses_letters_alone() {
        let (text, _) = drawn(&[1e-3, 5e-3, 1e-2], true);
        assert!(text.chars().all(|c| c.is_ascii() || c == '·' || c == '│'), "{text}");
        let (text, _) = drawn(&[1e-3, 5e-3, 1e-2], false);
        assert!(text.chars().any(|c| ('\u{2800}'..='\u{28ff}').contains(&c)));
    }

    #[test]
    fn the_greatest_value_is_on_top() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 30, 6));
        let area = buffer.area;
        draw(&mut buffer, area, &[series(&[1e-3, 1e-2])], 0, look(true));
        assert_eq!(buffer[(29, 0)].symbol(), "a");
        assert_eq!(buffer[(6, 5)].symbol(), "a");
    }
}
