//! Layouts: which panes stand where, read from TOML files and solved for a screen.
//!
//! `read` explains mistakes by file, line and key; `solve` is a pure function from layout and area to
//! rectangles that never overlap.

pub mod read;
pub mod solve;

use crate::ui::pane::PaneId;

/// A named arrangement of panes.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Name: that of the file without its ending.
    pub name: String,
    /// One line for people.
    pub doc: String,
    /// How the groups stand.
    pub axis: Axis,
    /// The groups, from left to right or from top to bottom.
    pub groups: Vec<Group>,
}

impl Layout {
    /// The panes in the order of their numbers.
    pub fn panes(&self) -> impl Iterator<Item = PaneId> + '_ {
        self.groups.iter().flat_map(|g| &g.slots).map(|s| s.pane)
    }
}

/// How the groups of a layout stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Side by side; the panes of a group are stacked.
    Columns,
    /// Stacked; the panes of a group stand side by side.
    Rows,
}

/// A column or a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Share of the screen, in relation to the other groups.
    pub ratio: u16,
    /// Its panes.
    pub slots: Vec<Slot>,
}

/// The place of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The pane.
    pub pane: PaneId,
    /// Share of the group, in relation to its other panes.
    pub ratio: u16,
    /// Smallest useful width and height, with the title line.
    pub min: (u16, u16),
    /// Who stays when the screen is too small: 1 stays longest.
    pub priority: u8,
}
