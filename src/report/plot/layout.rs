//! Where everything stands on a sheet. All numbers are units; the sheet is as high as it must be.

use super::{Sheet, curves, font, heat, histogram};
use crate::kernel::figure::Picture;

/// Width of every sheet.
const WIDTH: f64 = 960.0;
/// Blank on all sides.
pub(super) const MARGIN: f64 = 22.0;
/// Room for the texts of the y axis.
const AXIS: f64 = 64.0;
/// Width of the column of legends.
const LEGEND: f64 = 236.0;
/// Between plot and legend.
const GAP: f64 = 16.0;
/// Room for the texts of the x axis.
const FOOT: f64 = 26.0;
/// Below a panel.
const BELOW: f64 = 22.0;

/// Em of the sheet's title.
pub(super) const TITLE: f64 = 17.0;
/// Em of a panel's title.
pub(super) const HEADING: f64 = 13.5;
/// Em of texts in the legend.
pub(super) const LABEL: f64 = 11.5;
/// Em of ticks and of notes of a panel.
pub(super) const SMALL: f64 = 10.0;
/// Em of the notes below all.
pub(super) const NOTE: f64 = 11.0;
/// Height of a line of these sizes.
pub(super) const LABEL_LINE: f64 = 17.0;
pub(super) const SMALL_LINE: f64 = 14.0;
pub(super) const NOTE_LINE: f64 = 16.0;

/// Where a sheet's parts stand.
pub(super) struct Layout {
    height: f64,
    /// Middle of the line of the title.
    pub(super) title_y: f64,
    /// One for each picture.
    pub(super) panels: Vec<Panel>,
    /// The lines below all.
    pub(super) notes: Vec<String>,
    /// Middle of their first line.
    pub(super) notes_y: f64,
}

/// Where one picture stands.
pub(super) struct Panel {
    /// Middle of the line of its title.
    pub(super) top: f64,
    /// Left, top, right, bottom of the plot.
    pub(super) plot: Rect,
    /// Left edge and top of the legend.
    pub(super) legend: (f64, f64),
    /// What is said below it alone.
    pub(super) notes: Vec<String>,
    /// Middle of their first line.
    pub(super) notes_y: f64,
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// One entry of a legend: its name, and lines below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) details: Vec<String>,
}

impl Entry {
    /// An entry whose details are broken to the width of the legend.
    pub(super) fn new(name: &str, detail: &str) -> Self {
        let room = LEGEND - SAMPLE;
        let name = font::wrap(name, LABEL, room).join(" ");
        Self { name, details: font::wrap(detail, SMALL, room) }
    }

    /// Its height.
    pub(super) fn height(&self) -> f64 {
        LABEL_LINE + self.details.len() as f64 * SMALL_LINE + 4.0
    }
}

/// Width of the sample of a line in the legend.
pub(super) const SAMPLE: f64 = 36.0;

impl Layout {
    /// The layout of a sheet.
    pub(super) fn of(sheet: &Sheet) -> Self {
        let title_y = MARGIN + TITLE / 2.0;
        let mut y = title_y + TITLE / 2.0 + 18.0;
        let mut panels = Vec::new();
        for picture in &sheet.pictures {
            let (least, entries) = match picture {
                Picture::Curves(figure) => (curves::HEIGHT, curves::legend(figure)),
                Picture::Histogram(h) => (histogram::HEIGHT, histogram::legend(h)),
                Picture::Heat(map) => (heat::HEIGHT, heat::legend(map)),
            };
            let needs: f64 = entries.iter().map(Entry::height).sum();
            let top = y + 18.0;
            let (left, right) = (MARGIN + AXIS, WIDTH - MARGIN - LEGEND - GAP);
            let plot = Rect { left, top, right, bottom: top + least.max(needs - FOOT) };
            let notes: Vec<String> =
                picture.notes().iter().flat_map(|n| font::wrap(n, SMALL, WIDTH - 2.0 * MARGIN)).collect();
            let foot = if matches!(picture, Picture::Histogram(_)) { FOOT + 12.0 } else { FOOT };
            let notes_y = plot.bottom + foot + SMALL_LINE;
            let under = if notes.is_empty() { 0.0 } else { notes.len() as f64 * SMALL_LINE + 4.0 };
            panels.push(Panel { top: y, plot, legend: (right + GAP, top), notes, notes_y });
            y = plot.bottom + foot + under + BELOW;
        }
        let notes: Vec<String> = sheet.notes.iter().flat_map(|n| font::wrap(n, NOTE, WIDTH - 2.0 * MARGIN)).collect();
        let height = y + notes.len() as f64 * NOTE_LINE + MARGIN - 6.0;
        Self { height, title_y, panels, notes, notes_y: y + 2.0 }
    }

    /// Width and height of the sheet in units.
    pub(super) fn size(&self) -> (u32, u32) {
        (WIDTH as u32, self.height.ceil() as u32)
    }
}

impl Rect {
    /// The middle of the column of one of so many points.
    pub(super) fn x(&self, point: usize, points: usize) -> f64 {
        self.left + (self.right - self.left) * (point as f64 + 0.5) / points.max(1) as f64
    }

    /// The place of a value on a logarithmic axis between two powers of ten.
    pub(super) fn y_log(&self, value: f64, (low, high): (i32, i32)) -> f64 {
        let share = (value.log10() - f64::from(low)) / f64::from(high - low);
        self.bottom - (self.bottom - self.top) * share.clamp(0.0, 1.0)
    }
}

/// Which of the texts can stand below an axis without touching: the first, and then each whose number is a multiple of
/// the least step that leaves room.
pub(super) fn tick_step(texts: &[String], room: f64) -> usize {
    let widest = texts.iter().map(|t| font::width(t, SMALL)).fold(0.0, f64::max) + 10.0;
    let each = room / texts.len().max(1) as f64;
    ((widest / each).ceil() as usize).max(1)
}
