//! Colours, dashes and marks. Colours are those of Okabe and Ito, which are told apart with the common kinds of
//! colour blindness; a line also has a dash and a mark of its own, so that it can be told apart in grey.

use plotters::style::RGBColor;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
/// Text that matters less.
pub(super) const GREY: RGBColor = RGBColor(102, 102, 102);
/// Lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(226, 226, 226);
/// The noise band.
pub(super) const BAND: RGBColor = RGBColor(120, 120, 120);
/// A known-bad twin, and a cell that is not a number.
pub(super) const TWIN: RGBColor = RGBColor(150, 110, 110);
/// A cell without an error.
pub(super) const EXACT: RGBColor = RGBColor(240, 240, 240);

const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// The sign at a point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A filled circle.
    Disc,
    /// A filled square.
    Square,
    /// A filled triangle.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A circle that is not filled.
    Ring,
    /// An upright cross.
    Plus,
    /// A diagonal cross.
    Cross,
}

const MARKS: [Mark; 7] = [Mark::Disc, Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Ring, Mark::Plus, Mark::Cross];

/// Lengths of dash and gap in units; `None` is a whole line.
const DASHES: [Option<(f64, f64)>; 4] = [None, Some((7.0, 3.0)), Some((2.5, 2.5)), Some((12.0, 4.0))];

/// How one line looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pen {
    /// Its colour.
    pub(super) color: RGBColor,
    /// Its dash.
    pub(super) dash: Option<(f64, f64)>,
    /// Its mark.
    pub(super) mark: Mark,
}

/// The pen of the `n`th candidate of the `report`th report: the same candidate keeps its colour and mark.
pub(super) fn candidate(n: usize, report: usize) -> Pen {
    Pen { color: COLOURS[n % COLOURS.len()], dash: DASHES[(n + report) % DASHES.len()], mark: MARKS[n % MARKS.len()] }
}

/// The pen of the `n`th twin.
pub(super) fn twin(n: usize) -> Pen {
    Pen { color: TWIN, dash: Some((2.5, 2.5)), mark: MARKS[(n + 4) % MARKS.len()] }
}

/// Five points of the scale viridis, which is even to the eye and safe for the common kinds of colour blindness.
const SCALE: [[f64; 3]; 5] =
    [[68.0, 1.0, 84.0], [59.0, 82.0, 139.0], [33.0, 145.0, 140.0], [94.0, 201.0, 98.0], [253.0, 231.0, 37.0]];

/// The colour of a share from 0 to 1 of a scale that goes from dark (small) to bright (large).
pub(super) fn heat(share: f64) -> RGBColor {
    let place = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let below = (place as usize).min(SCALE.len() - 2);
    let mix = |channel: usize| {
        let (a, b) = (SCALE[below][channel], SCALE[below + 1][channel]);
        (a + (b - a) * (place - below as f64)).round() as u8
    };
    RGBColor(mix(0), mix(1), mix(2))
}
