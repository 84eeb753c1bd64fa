//! A heat map below the curves: points along x as there, rows of tokens downwards.

use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::HPos;

use super::canvas::{Canvas, Drawn};
use super::curves::{entry_text, frame, x_axis};
use super::layout::{self, Entry, Panel, Rect};
use super::palette::{self, Mark};
use crate::kernel::figure::{HeatMap, drawable, table};

/// Height of the plot.
pub(super) const HEIGHT: f64 = 200.0;

/// Shades of the scale.
const SHADES: i32 = 40;
/// Most cells in one direction: more cannot be told apart.
const MOST: usize = 160;

/// What the legend says below its scale.
pub(super) fn legend(map: &HeatMap) -> Vec<Entry> {
    let mut out = vec![Entry::new("relative L2 error of a row", "")];
    if map.values.iter().flatten().flatten().any(|v| !v.is_finite()) {
        out.push(Entry::new("not finite", ""));
    }
    if map.values.iter().flatten().flatten().any(|v| *v == 0.0) {
        out.push(Entry::new("exactly zero", ""));
    }
    out
}

/// Draws the panel.
pub(super) fn draw<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, map: &HeatMap, panel: &Panel) -> Drawn<DB> {
    let plot = panel.plot;
    let decades = map.decades().unwrap_or((-1, 0));
    let grid = map.grid(&(0..map.values.len()), MOST, MOST);
    let columns = grid.first().map_or(0, Vec::len);
    let (wide, high) =
        ((plot.right - plot.left) / columns.max(1) as f64, (plot.bottom - plot.top) / grid.len().max(1) as f64);
    for column in 0..columns {
        let shade = |line: usize| Shade::of(grid[line][column], decades);
        let mut line = 0;
        while line < grid.len() {
            // Neighbours of one shade are one rectangle.
            let end = (line..grid.len()).find(|l| shade(*l) != shade(line)).unwrap_or(grid.len());
            let (left, top) = (plot.left + wide * column as f64, plot.top + high * line as f64);
            let cell = Rect { left, top, right: left + wide, bottom: plot.top + high * end as f64 };
            fill(canvas, cell, shade(line))?;
            line = end;
        }
    }
    frame(canvas, plot)?;
    x_axis(canvas, plot, &map.points)?;
    y_axis(canvas, plot, map)?;
    scale(canvas, map, panel, decades)
}

/// How a cell is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shade {
    Level(i32),
    Zero,
    NotFinite,
    Absent,
}

impl Shade {
    fn of(value: Option<f64>, (low, high): (i32, i32)) -> Self {
        let Some(value) = value else { return Self::Absent };
        if value == 0.0 {
            return Self::Zero;
        }
        if !drawable(value) {
            return Self::NotFinite;
        }
        let share = (value.log10() - f64::from(low)) / f64::from(high - low);
        Self::Level((share.clamp(0.0, 1.0) * f64::from(SHADES - 1)).round() as i32)
    }
}

fn fill<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, cell: Rect, shade: Shade) -> Drawn<DB> {
    let (from, to) = ((cell.left, cell.top), (cell.right, cell.bottom));
    match shade {
        Shade::Level(level) => canvas.rect(from, to, palette::heat(f64::from(level) / f64::from(SHADES - 1))),
        Shade::Absent => Ok(()),
        Shade::Zero => canvas.rect(from, to, palette::EXACT),
        Shade::NotFinite => {
            canvas.rect(from, to, plotters::style::WHITE)?;
            canvas.line(&[from, to], palette::TWIN, 1.0)?;
            canvas.line(&[(cell.left, cell.bottom), (cell.right, cell.top)], palette::TWIN, 1.0)
        }
    }
}

fn y_axis<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, plot: Rect, map: &HeatMap) -> Drawn<DB> {
    let rows = map.rows.len();
    let even = [8, 6, 5, 4].into_iter().find(|n| rows.is_multiple_of(*n)).unwrap_or(6);
    let lines = even.min(rows);
    for (i, row) in map.grid_rows(lines).iter().enumerate() {
        let y = plot.top + (plot.bottom - plot.top) * i as f64 / lines as f64 + 6.0;
        canvas.placed((plot.left - 7.0, y), &row.to_string(), layout::SMALL, palette::INK, HPos::Right)?;
    }
    let middle = f64::midpoint(plot.top, plot.bottom);
    canvas.upright((layout::MARGIN + 6.0, middle), &table::spaced(&map.row), layout::SMALL, palette::GREY)
}

/// The scale of shades with its decades, and what the other fillings mean.
fn scale<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    map: &HeatMap,
    panel: &Panel,
    (low, high): (i32, i32),
) -> Drawn<DB> {
    let (x, y) = panel.legend;
    let entries = legend(map);
    canvas.text((x, y + layout::LABEL_LINE / 2.0), &entries[0].name, layout::LABEL, palette::INK)?;
    let (top, bottom) = (y + layout::LABEL_LINE + 6.0, panel.plot.bottom - 52.0);
    let step = (bottom - top) / f64::from(SHADES);
    for level in 0..SHADES {
        let from = bottom - step * f64::from(level + 1);
        canvas.rect((x, from), (x + 18.0, from + step), palette::heat(f64::from(level) / f64::from(SHADES - 1)))?;
    }
    for exponent in low..=high {
        let y = bottom - (bottom - top) * f64::from(exponent - low) / f64::from(high - low);
        canvas.line(&[(x + 18.0, y), (x + 22.0, y)], palette::INK, 1.0)?;
        canvas.text((x + 26.0, y), &format!("1e{exponent}"), layout::SMALL, palette::INK)?;
    }
    let mut y = bottom + 14.0;
    for entry in &entries[1..] {
        let middle = y + layout::LABEL_LINE / 2.0;
        let cell = Rect { left: x, top: middle - 6.0, right: x + 18.0, bottom: middle + 6.0 };
        if entry.name == "exactly zero" {
            canvas.mark((x + 9.0, middle), Mark::Square, palette::EXACT, 6.5)?;
        } else {
            fill(canvas, cell, Shade::NotFinite)?;
        }
        entry_text(canvas, (x, y), entry)?;
        y += entry.height();
    }
    Ok(())
}
