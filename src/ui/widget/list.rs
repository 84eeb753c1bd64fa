//! What a person has set in a list: selection, filter, marks, scroll.
//!
//! Rows are found by key, not by index, so that the selection stays on its row when rows come and go.
//! Not responsible for drawing.

use std::collections::BTreeSet;

use super::table::Source;

/// A filter on the text of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Looked for in lower case; empty matches everything.
    pub text: String,
    /// Show the rows that do not match.
    pub inverted: bool,
}

impl Filter {
    /// Reads what was typed; a leading `!` inverts.
    pub fn parse(typed: &str) -> Self {
        match typed.strip_prefix('!') {
            Some(rest) => Self { text: rest.to_lowercase(), inverted: true },
            None => Self { text: typed.to_lowercase(), inverted: false },
        }
    }

    /// As it is typed.
    pub fn typed(&self) -> String {
        if self.inverted { format!("!{}", self.text) } else { self.text.clone() }
    }

    /// Whether a row with this text is shown.
    pub fn shows(&self, text: &str) -> bool {
        self.text.is_empty() || text.to_lowercase().contains(&self.text) != self.inverted
    }
}

/// Selection, filter, marks and scroll of one list.
#[derive(Clone, Debug, Default)]
pub struct ListView {
    selected: Option<String>,
    /// Index of the selected row among the shown ones, as last known.
    at: usize,
    /// Index of the first drawn row among the shown ones.
    pub offset: usize,
    /// Rows that fit, as last drawn.
    pub page: usize,
    filter: Filter,
    marks: BTreeSet<String>,
    matches: Matches,
}

/// The rows that a filter shows; kept as long as nothing changed.
#[derive(Clone, Debug, Default)]
struct Matches {
    filter: Filter,
    version: u64,
    scanned: usize,
    rows: Vec<usize>,
}

impl ListView {
    /// Brings the view up to date with the rows; `version` changes whenever the rows may have.
    pub fn refresh(&mut self, rows: &dyn Source, version: u64) {
        if !self.filter.text.is_empty() {
            let m = &mut self.matches;
            let grown = rows.append_only() && m.filter == self.filter && m.scanned <= rows.len();
            let same = m.filter == self.filter && m.version == version && m.scanned == rows.len();
            if !grown && !same {
                *m = Matches { filter: self.filter.clone(), ..Matches::default() };
            }
            if !same {
                m.rows.extend((m.scanned..rows.len()).filter(|i| self.filter.shows(&rows.text(*i))));
            }
            m.scanned = rows.len();
            m.version = version;
        }
        let len = self.len(rows);
        self.at = match &self.selected {
            None if rows.follow_tail() => len.saturating_sub(1),
            None => 0,
            Some(key) => {
                let here = |i: usize| self.row(i, rows).is_some_and(|r| rows.key(r) == *key);
                if here(self.at) {
                    self.at
                } else {
                    (0..len).find(|i| here(*i)).unwrap_or_else(|| self.at.min(len.saturating_sub(1)))
                }
            }
        };
    }

    /// Number of rows shown.
    pub fn len(&self, rows: &dyn Source) -> usize {
        if self.filter.text.is_empty() { rows.len() } else { self.matches.rows.len() }
    }

    /// Index in the source of the shown row `i`.
    pub fn row(&self, i: usize, rows: &dyn Source) -> Option<usize> {
        if self.filter.text.is_empty() { (i < rows.len()).then_some(i) } else { self.matches.rows.get(i).copied() }
    }

    /// Index among the shown rows of the selected one.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Key of the selected row.
    pub fn selected_key(&self, rows: &dyn Source) -> Option<String> {
        self.row(self.at, rows).map(|r| rows.key(r))
    }

    /// Selects the shown row `i`; the last row of a list that follows its tail goes on following.
    pub fn select(&mut self, i: usize, rows: &dyn Source) {
        let len = self.len(rows);
        self.at = i.min(len.saturating_sub(1));
        self.selected = if rows.follow_tail() && self.at + 1 >= len { None } else { self.selected_key(rows) };
    }

    /// Moves the selection by `by` rows, stopping at the ends.
    pub fn step(&mut self, by: isize, rows: &dyn Source) {
        self.select(self.at.saturating_add_signed(by), rows);
    }

    /// Moves to the next or previous shown row, going round at the ends.
    pub fn step_round(&mut self, forward: bool, rows: &dyn Source) {
        let len = self.len(rows);
        if len == 0 {
            return;
        }
        let to = if forward { (self.at + 1) % len } else { (self.at + len - 1) % len };
        self.select(to, rows);
    }

    /// The filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Sets the filter; the selection stays on its row if that is still shown.
    pub fn set_filter(&mut self, filter: Filter, rows: &dyn Source, version: u64) {
        if self.selected.is_none() && !rows.follow_tail() {
            self.selected = self.selected_key(rows);
        }
        self.filter = filter;
        self.matches = Matches::default();
        self.refresh(rows, version);
    }

    /// Marks or unmarks the selected row.
    pub fn toggle_mark(&mut self, rows: &dyn Source) {
        if let Some(key) = self.selected_key(rows)
            && !self.marks.remove(&key)
        {
            self.marks.insert(key);
        }
    }

    /// Keys of the marked rows that still exist, in the order of the rows.
    pub fn marked(&self, rows: &dyn Source) -> Vec<String> {
        if self.marks.is_empty() {
            return Vec::new();
        }
        (0..rows.len()).map(|i| rows.key(i)).filter(|k| self.marks.contains(k)).collect()
    }

    /// Whether a row is marked.
    pub fn is_marked(&self, key: &str) -> bool {
        self.marks.contains(key)
    }

    /// Takes all marks away; whether there were any.
    pub fn clear_marks(&mut self) -> bool {
        let any = !self.marks.is_empty();
        self.marks.clear();
        any
    }

    /// Scrolls so that the selected row is on a page of `page` rows.
    pub fn scroll_to_selection(&mut self, page: usize, len: usize) {
        self.page = page.max(1);
        let last = len.saturating_sub(self.page);
        if self.at < self.offset {
            self.offset = self.at;
        } else if self.at >= self.offset + self.page {
            self.offset = self.at + 1 - self.page;
        }
        self.offset = self.offset.min(last);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::table::{Cell, Column};
    use super::*;

    /// Rows that are their own keys.
    pub(crate) struct Words(pub(crate) Vec<&'static str>, pub(crate) bool);

    impl Source for Words {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn key(&self, i: usize) -> String {
            self.0[i].into()
        }
        fn text(&self, i: usize) -> String {
            self.0[i].into()
        }
        fn columns(&self) -> Vec<Column> {
            vec![Column::grow("word", 4, 1)]
        }
        fn cells(&self, i: usize) -> Vec<Cell> {
            vec![Cell::plain(self.0[i])]
        }
        fn follow_tail(&self) -> bool {
            self.1
        }
    }

    fn check(typed: &str, text: &str, expect: bool) {
        assert_eq!(Filter::parse(typed).shows(text), expect, "{typed} on {text}");
    }

    #[test]
    fn filters_ignore_case_and_invert() {
        check("index", "Triton-INDEXER", true);
        check("!index", "Triton-INDEXER", false);
        check("!index", "mhc", true);
        check("", "anything", true);
        check("!", "anything", true);
        assert_eq!(Filter::parse("!ab").typed(), "!ab");
    }

    #[test]
    fn the_selection_stays_on_its_row_when_rows_come_and_go() {
        let mut view = ListView::default();
        let rows = Words(vec!["a", "b", "c"], false);
        view.refresh(&rows, 1);
        view.step(1, &rows);
        let more = Words(vec!["x", "a", "b", "c"], false);
        view.refresh(&more, 2);
        assert_eq!(view.selected_key(&more).as_deref(), Some("b"));
        let fewer = Words(vec!["x"], false);
        view.refresh(&fewer, 3);
        assert_eq!(view.selected_key(&fewer).as_deref(), Some("x"));
    }

    #[test]
    fn a_tail_is_followed_until_one_moves_up() {
        let mut view = ListView::default();
        view.refresh(&Words(vec!["a", "b"], true), 1);
        let three = Words(vec!["a", "b", "c"], true);
        view.refresh(&three, 2);
        assert_eq!(view.selected_key(&three).as_deref(), Some("c"));
        view.step(-1, &three);
        view.refresh(&Words(vec!["a", "b", "c", "d"], true), 3);
        assert_eq!(view.position(), 1);
    }

    #[test]
    fn matches_go_round_and_marks_survive_a_filter() {
        let rows = Words(vec!["ax", "b", "cx"], false);
        let mut view = ListView::default();
        view.refresh(&rows, 1);
        view.toggle_mark(&rows);
        view.set_filter(Filter::parse("x"), &rows, 1);
        assert_eq!(view.len(&rows), 2);
        view.step_round(true, &rows);
        assert_eq!(view.selected_key(&rows).as_deref(), Some("cx"));
        view.step_round(true, &rows);
        assert_eq!(view.selected_key(&rows).as_deref(), Some("ax"));
        view.step_round(false, &rows);
        assert_eq!(view.selected_key(&rows).as_deref(), Some("cx"));
        assert_eq!(view.marked(&rows), ["ax"]);
    }

    #[test]
    fn an_empty_list_has_no_selection() {
        let rows = Words(vec![], false);
        let mut view = ListView::default();
        view.refresh(&rows, 1);
        view.step(1, &rows);
        view.step_round(true, &rows);
        assert_eq!(view.selected_key(&rows), None);
    }
}
