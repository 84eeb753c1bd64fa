//! Errors of one candidate by point and row, as signs on a background, so that nothing rests on colour.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::view::Settings;
use crate::kernel::figure::{HeatMap, drawable, short, table};
use crate::ui::pane::View;
use crate::ui::text;
use crate::ui::theme::Role;

/// The signs of the five levels, the smallest first.
const SIGNS: [char; 5] = ['.', ':', '+', '*', '#'];
/// Width of the numbers of rows.
const AXIS: u16 = 6;

/// Draws the map, its scale, and the greatest error at the point of the cursor.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    view: &View<'_>,
    map: &HeatMap,
    settings: &Settings,
    cursor: usize,
) {
    let foot = 3;
    if area.height < foot + 2 || area.width < AXIS + 8 {
        return;
    }
    let cells = Rect { x: area.x + AXIS, width: area.width - AXIS, y: area.y + 1, height: area.height - foot - 1 };
    let window = settings.window(map.values.len(), cursor);
    let grid = map.grid(&window, usize::from(cells.width), usize::from(cells.height));
    let columns = grid.first().map_or(0, Vec::len).max(1);
    let decades = map.decades().unwrap_or((-1, 0));
    let left = |column: usize| cells.x + (column * usize::from(cells.width) / columns) as u16;
    for (line, (row, first)) in grid.iter().zip(map.grid_rows(grid.len())).enumerate() {
        let y = cells.y + line as u16;
        buffer.set_string(area.x, y, text::fit_right(&first.to_string(), 5), view.look.style(Role::Dim));
        for (column, value) in row.iter().enumerate() {
            let (sign, role) = cell(*value, decades);
            for x in left(column)..left(column + 1) {
                buffer[(x, y)].set_char(sign).set_style(view.look.style(role));
            }
        }
    }
    let at = cursor.saturating_sub(window.start) * columns / window.len().max(1);
    let from = left(at);
    let over = "▼".repeat(usize::from(left(at + 1) - from).max(1));
    buffer.set_string(area.x, area.y, text::fit_right(&table::spaced(&map.row), 5), view.look.style(Role::Dim));
    buffer.set_string(from, area.y, over, view.look.style(Role::Strong));
    let lines = foot_lines(view, map, decades, cursor);
    for (i, line) in lines.iter().enumerate() {
        buffer.set_line(area.x, cells.y + grid.len() as u16 + i as u16, line, area.width);
    }
}

/// The sign and the role of a cell: blank where there is no row, `=` where the error is exactly zero.
fn cell(value: Option<f64>, (low, high): (i32, i32)) -> (char, Role) {
    let Some(value) = value else { return (' ', Role::Dim) };
    if value == 0.0 {
        return ('=', Role::Dim);
    }
    if !drawable(value) {
        return ('x', Role::Bad);
    }
    let share = (value.log10() - f64::from(low)) / f64::from(high - low);
    let level = ((share * SIGNS.len() as f64) as usize).min(SIGNS.len() - 1);
    (SIGNS[level], Role::Heat(level as u8))
}

fn foot_lines(view: &View<'_>, map: &HeatMap, (low, high): (i32, i32), cursor: usize) -> Vec<Line<'static>> {
    let label = map.points.get(cursor).cloned().unwrap_or_default();
    let said = match map.hottest(cursor) {
        None => "  no row".to_owned(),
        Some(hot) => {
            let row = table::spaced(&map.row);
            format!("  greatest {} at {row} {}, median {}", short(hot.error), hot.row, short(hot.median))
        }
    };
    let point =
        Line::from(vec![view.span(format!("{} {label}", cursor + 1), Role::Strong), view.span(said, Role::Text)]);
    let mut scale = vec![view.span(format!("{} ", map.candidate), Role::Strong)];
    let step = f64::from(high - low) / SIGNS.len() as f64;
    for (level, sign) in SIGNS.iter().enumerate() {
        let from = 10f64.powf(f64::from(low) + step * level as f64);
        scale.push(view.span(format!(" {sign} "), Role::Heat(level as u8)));
        scale.push(view.span(format!(" {from:.0e} "), Role::Dim));
    }
    scale.push(view.span(format!("to 1e{high}"), Role::Dim));
    let any = |is: fn(f64) -> bool| map.values.iter().flatten().flatten().any(|v| is(*v));
    if any(|v| v == 0.0) {
        scale.push(view.span(" = zero", Role::Dim));
    }
    if any(|v| !v.is_finite()) {
        scale.push(view.span(" x no number", Role::Dim));
    }
    vec![point, Line::from(scale)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_says_what_the_colour_says() {
        let check = |value: Option<f64>, sign: char, role: Role| {
            assert_eq!(cell(value, (-5, 0)), (sign, role), "{value:?}");
        };
        check(None, ' ', Role::Dim);
        check(Some(0.0), '=', Role::Dim);
        check(Some(f64::NAN), 'x', Role::Bad);
        check(Some(f64::INFINITY), 'x', Role::Bad);
        check(Some(2e-5), '.', Role::Heat(0));
        check(Some(2e-4), ':', Role::Heat(1));
        check(Some(0.5), '#', Role::Heat(4));
        check(Some(1.0), '#', Role::Heat(4));
    }
}
