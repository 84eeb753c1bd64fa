//! A table of rows that are made only when they are drawn.
//!
//! Columns that do not fit are left out by priority; the row mark and the selection need two cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::list::ListView;
use crate::ui::text;
use crate::ui::theme::{Look, Role};

/// Rows of a pane.
pub trait Source {
    /// How many.
    fn len(&self) -> usize;
    /// What names row `i` for ever.
    fn key(&self, i: usize) -> String;
    /// The text of row `i` that filters look at.
    fn text(&self, i: usize) -> String;
    /// The columns.
    fn columns(&self) -> Vec<Column>;
    /// The cells of row `i`, one for each column.
    fn cells(&self, i: usize) -> Vec<Cell>;
    /// Rows are only ever added at the end, and never change.
    fn append_only(&self) -> bool {
        false
    }
    /// Show the end unless something is selected.
    fn follow_tail(&self) -> bool {
        false
    }
    /// Whether the column titles are drawn.
    fn titled(&self) -> bool {
        true
    }
    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Title.
    pub title: &'static str,
    /// Smallest useful width.
    pub min: u16,
    /// Width it takes when there is room.
    pub ideal: u16,
    /// 1 stays longest when there is none.
    pub priority: u8,
    /// Numbers stand at the right edge.
    pub right: bool,
}

impl Column {
    /// A column of a fixed width.
    pub const fn fixed(title: &'static str, width: u16, priority: u8) -> Self {
        Self { title, min: width, ideal: width, priority, right: false }
    }

    /// A column of numbers of a fixed width.
    pub const fn number(title: &'static str, width: u16, priority: u8) -> Self {
        Self { title, min: width, ideal: width, priority, right: true }
    }

    /// A column that takes what is left.
    pub const fn grow(title: &'static str, min: u16, priority: u8) -> Self {
        Self { title, min, ideal: u16::MAX, priority, right: false }
    }

    /// A column that takes up to `ideal` cells.
    pub const fn upto(title: &'static str, min: u16, ideal: u16, priority: u8) -> Self {
        Self { title, min, ideal, priority, right: false }
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its text, already visible.
    pub text: String,
    /// What it means.
    pub role: Role,
}

impl Cell {
    /// Ordinary text.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), role: Role::Text }
    }

    /// Text that means something.
    pub fn of(text: impl Into<String>, role: Role) -> Self {
        Self { text: text.into(), role }
    }
}

/// Width of each column, 0 for those that are left out.
pub fn widths(columns: &[Column], total: u16) -> Vec<u16> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|i| columns[*i].priority);
    let mut out = vec![0u16; columns.len()];
    let mut used = 0u32;
    for i in &order {
        let gap = u32::from(used > 0);
        if used + gap + u32::from(columns[*i].min) <= u32::from(total) {
            out[*i] = columns[*i].min;
            used += gap + u32::from(columns[*i].min);
        }
    }
    let mut left = u32::from(total).saturating_sub(used);
    for bounded in [true, false] {
        for i in &order {
            if out[*i] > 0 && (columns[*i].ideal < u16::MAX) == bounded {
                let more = u32::from(columns[*i].ideal - out[*i]).min(left);
                out[*i] += more as u16;
                left -= more;
            }
        }
    }
    out
}

/// Draws titles and the rows around the selection.
pub fn draw(buffer: &mut Buffer, area: Rect, rows: &dyn Source, view: &mut ListView, look: Look, focused: bool) {
    if area.is_empty() {
        return;
    }
    let len = view.len(rows);
    let titled = rows.titled() && area.height > 3;
    let page = usize::from(area.height - u16::from(titled));
    view.scroll_to_selection(page, len);
    let shown: Vec<(usize, usize, Vec<Cell>)> = (view.offset..(view.offset + page).min(len))
        .filter_map(|i| view.row(i, rows).map(|row| (i, row, rows.cells(row))))
        .collect();
    let mut columns = rows.columns();
    if !rows.append_only() {
        shrink(&mut columns, &shown);
    }
    let widths = widths(&columns, area.width.saturating_sub(2));
    let mut y = area.y;
    if titled {
        let mut x = area.x + 2;
        for (column, w) in columns.iter().zip(&widths).filter(|(_, w)| **w > 0) {
            let title = align(column.title, *w, column.right);
            buffer.set_string(x, y, title, look.style(Role::Dim));
            x += w + 1;
        }
        y += 1;
    }
    if len == 0 {
        let sentence = format!("no row matches `{}`", view.filter().typed());
        buffer.set_stringn(area.x + 2, y, sentence, area.width.saturating_sub(2) as usize, look.style(Role::Dim));
        return;
    }
    for (i, row, cells) in shown {
        let selected = i == view.position();
        let marked = view.is_marked(&rows.key(row));
        let lead = match (selected, marked) {
            (true, true) => "▸●",
            (true, false) => "▸ ",
            (false, true) => " ●",
            (false, false) => "  ",
        };
        buffer.set_string(area.x, y, lead, look.style(if marked { Role::Warn } else { Role::Strong }));
        let mut x = area.x + 2;
        for ((cell, column), w) in cells.iter().zip(&columns).zip(&widths).filter(|(_, w)| **w > 0) {
            buffer.set_string(x, y, align(&cell.text, *w, column.right), look.style(cell.role));
            x += w + 1;
        }
        if selected {
            let role = if focused { Role::Selected } else { Role::SelectedDim };
            let patch: Style = look.style(role);
            buffer.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, patch);
        }
        y += 1;
    }
}

/// No column is wider than its title and its cells need; lists that scroll all the time keep their widths.
fn shrink(columns: &mut [Column], shown: &[(usize, usize, Vec<Cell>)]) {
    for (i, column) in columns.iter_mut().enumerate() {
        let cells = shown.iter().filter_map(|(_, _, cells)| cells.get(i)).map(|c| text::width(&c.text));
        let natural = cells.max().unwrap_or(0).max(text::width(column.title)).max(1) as u16;
        column.min = column.min.min(natural);
        column.ideal = column.ideal.min(natural);
    }
}

fn align(text: &str, width: u16, right: bool) -> String {
    if right { text::fit_right(text, width as usize) } else { text::fit(text, width as usize) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::list::tests::Words;
    use super::*;
    use crate::ui::theme::{Palette, Theme};

    #[test]
    fn columns_go_by_priority() {
        let columns = [Column::fixed("a", 10, 2), Column::grow("b", 10, 1), Column::number("c", 6, 3)];
        assert_eq!(widths(&columns, 40), [10, 22, 6]);
        assert_eq!(widths(&columns, 25), [10, 14, 0]);
        assert_eq!(widths(&columns, 12), [0, 12, 0]);
        assert_eq!(widths(&columns, 3), [0, 0, 0]);
    }

    proptest! {
        #[test]
        fn columns_never_exceed_the_width(
            specs in prop::collection::vec((1u16..20, 0u16..30, 1u8..5, any::<bool>()), 1..6), total in 0u16..120
        ) {
            let columns: Vec<_> = specs
                .iter()
                .map(|(min, more, priority, grow)| Column {
                    title: "x",
                    min: *min,
                    ideal: if *grow { u16::MAX } else { min + more },
                    priority: *priority,
                    right: false,
                })
                .collect();
            let w = widths(&columns, total);
            let shown = w.iter().filter(|w| **w > 0).count() as u16;
            prop_assert!(w.iter().sum::<u16>() + shown.saturating_sub(1) <= total);
        }
    }

    #[test]
    fn selection_and_filter_are_drawn() {
        let look = Look { theme: Theme::Mono, palette: Palette::None, ascii: false };
        let rows = Words(vec!["one", "two", "three"], false);
        let mut view = ListView::default();
        view.refresh(&rows, 1);
        view.step(2, &rows);
        view.toggle_mark(&rows);
        let mut buffer = Buffer::empty(Rect::new(0, 0, 9, 3));
        let area = buffer.area;
        draw(&mut buffer, area, &rows, &mut view, look, true);
        let plain: Vec<String> =
            (0..3).map(|y| (0..9).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>()).collect();
        assert_eq!(plain, ["  one    ", "  two    ", "▸●three  "]);
    }
}
