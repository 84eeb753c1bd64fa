//! Text tables for standard output.
//!
//! Columns are as wide as their widest cell; nothing is cut, since the output may be read by a script.
//! What a cell shows may be foreign: it is made visible when the cell is made, and stays on one line.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::style::Style;
use crate::untrusted::Untrusted;

/// How a cell is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing special.
    #[default]
    Plain,
    /// Matters less.
    Dim,
    /// Is well.
    Good,
    /// Asks for attention.
    Warning,
    /// Failed.
    Bad,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    mark: Mark,
}

impl Cell {
    /// A cell with a mark; control characters in the text are spelled out.
    pub fn marked(text: impl Into<String>, mark: Mark) -> Self {
        Self { text: Untrusted::new(text).visible(usize::MAX), mark }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::marked(text, Mark::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::marked(text, Mark::Plain)
    }
}

/// A table with a heading; the columns listed in `right` are aligned to the right.
pub fn table(heading: &[&str], right: &[usize], rows: &[Vec<Cell>], style: Style) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(heading.len());
    let mut widths = vec![0; columns];
    for (width, text) in widths.iter_mut().zip(heading) {
        *width = text.width();
    }
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.width());
        }
    }
    let mut lines = Vec::with_capacity(rows.len() + 1);
    if !heading.is_empty() {
        let cells: Vec<Cell> = heading.iter().map(|text| Cell::marked(*text, Mark::Dim)).collect();
        lines.push(line(&cells, &widths, right, style));
    }
    lines.extend(rows.iter().map(|row| line(row, &widths, right, style)));
    lines.join("\n")
}

fn line(cells: &[Cell], widths: &[usize], right: &[usize], style: Style) -> String {
    let mut out = String::new();
    // Blanks are written only before a visible cell, so that no line ends in them.
    let mut blanks = 0;
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let gap = width.saturating_sub(cell.text.width());
        let (before, after) = if right.contains(&column) { (gap, 0) } else { (0, gap) };
        if cell.text.is_empty() {
            blanks += width + 2;
            continue;
        }
        out.push_str(&" ".repeat(blanks + before));
        out.push_str(&paint(cell, style));
        blanks = after + 2;
    }
    out
}

fn paint(cell: &Cell, style: Style) -> String {
    match cell.mark {
        Mark::Plain => cell.text.clone(),
        Mark::Dim => style.dim(&cell.text),
        Mark::Good => style.good(&cell.text),
        Mark::Warning => style.warning(&cell.text),
        Mark::Bad => style.error(&cell.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heading: &[&str], right: &[usize], rows: &[&[&str]], expect: &str) {
        let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().map(|text| Cell::from(*text)).collect()).collect();
        assert_eq!(table(heading, right, &rows, Style::PLAIN), expect);
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        check(
            &["name", "n", "note"],
            &[1],
            &[&["a", "10", "x"], &["long name", "7", ""]],
            "name        n  note\na          10  x\nlong name   7",
        );
    }

    #[test]
    fn wide_characters_count_as_two() {
        check(&["a", "b"], &[], &[&["漢", "x"], &["yy", "z"]], "a   b\n漢  x\nyy  z");
    }

    #[test]
    fn a_cell_with_escapes_steered_the_terminal() {
        check(&["a"], &[], &[&["x\u{1b}]0;title\u{7}\ny"]], "a\nx␛]0;title␇⏎y");
    }

    #[test]
    fn an_empty_cell_keeps_the_place_of_the_next() {
        check(&[], &[], &[&["a", "b", "c"], &["", "", "d"]], "a  b  c\n      d");
    }
}
