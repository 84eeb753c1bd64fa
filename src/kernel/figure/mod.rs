//! Pictures and tables of a microtest, as plain data.
//!
//! Pure. Responsible for which lines, bars and cells a picture has and what it must say beside them;
//! the terminal and a file format only draw it. Not responsible for colours, sizes or glyphs.

mod curves;
mod heat;
mod histogram;
#[cfg(test)]
pub(crate) mod sample;
pub mod table;

pub use curves::{Area, Figure, Series, figure, figures, overlay, part_figure};
pub use heat::{HeatMap, Hottest, heat_map, heat_maps};
pub use histogram::{Bars, Histogram, bin_name, histogram, histograms};

use crate::kernel::judge::SLACK;
use crate::kernel::report::{CandidateVerdict, CurveMode, ErrorClass, MicroReport};

/// One picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Error curves.
    Curves(Figure),
    /// How the errors of the elements are spread.
    Histogram(Histogram),
    /// Errors by point and row.
    Heat(HeatMap),
}

impl Picture {
    /// What it shows, in one line.
    pub fn title(&self) -> &str {
        match self {
            Self::Curves(f) => &f.title,
            Self::Histogram(h) => &h.title,
            Self::Heat(h) => &h.title,
        }
    }

    /// What a reader must know of this picture alone.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Curves(f) => &f.notes,
            Self::Histogram(h) => &h.notes,
            Self::Heat(h) => &h.notes,
        }
    }

    /// A name for a file that holds it alone: `per-site`, `part-mixes`, `histogram-streams`, `heat-bf16`.
    pub fn file_stem(&self) -> String {
        match self {
            Self::Curves(f) => f.stem.clone(),
            Self::Histogram(h) => format!("histogram-{}", plain(&h.part)),
            Self::Heat(h) => format!("heat-{}", plain(&h.candidate)),
        }
    }
}

/// What kind of line; the drawer chooses marks and colours, never colours alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A candidate and its class, if it was judged.
    Candidate(Option<ErrorClass>),
    /// A known-bad twin.
    Twin,
    /// The noise band, where it has bars of its own.
    Floor,
}

/// Every picture of a report that has something to show: curves of each mode, other parts, histograms, heat maps.
pub fn pictures(report: &MicroReport) -> Vec<Picture> {
    let parts = table::other_parts(report).into_iter().map(|part| part_figure(report, part));
    let curves = figures(report).into_iter().chain(parts).filter(|f| !f.series.is_empty());
    let bars = histograms(report).into_iter().map(Picture::Histogram);
    curves.map(Picture::Curves).chain(bars).chain(heat_maps(report).into_iter().map(Picture::Heat)).collect()
}

/// The pictures that stand together on one sheet: curves of each mode, the histogram of the main part, and the heat
/// map of the candidate that strays furthest.
pub fn sheet(report: &MicroReport) -> Vec<Picture> {
    let curves = figures(report).into_iter().filter(|f| !f.series.is_empty()).map(Picture::Curves);
    let bars = histogram(report, main_part(report)).map(Picture::Histogram);
    let worst = report.worst().map(|v| v.candidate.as_str());
    let heat = worst.and_then(|name| heat_map(report, name)).or_else(|| heat_maps(report).into_iter().next());
    curves.chain(bars).chain(heat.map(Picture::Heat)).collect()
}

/// What a reader must know of the whole report: missed twins first, then verdicts, then where the numbers come from.
pub fn report_notes(report: &MicroReport) -> Vec<String> {
    let missed = report.controls.iter().filter(|c| !c.caught);
    let missed = missed.map(|c| format!("worthless: the test missed its known-bad twin {}: {}", c.name, c.says));
    let mut notes: Vec<String> = missed.collect();
    notes.extend(report.verdicts.iter().map(verdict_line));
    if let Some(verdict) = report.verdicts.first() {
        notes.push(verdict.does_not_show.clone());
    }
    notes.push(format!("{}; {}", report.shape, report.provenance));
    notes.retain(|n| !n.trim_matches([' ', ';']).is_empty());
    notes
}

/// The part whose errors the curves of the report are: the one that has a band or a spread, and no curves among the
/// other parts. Empty where an older report does not say it.
pub fn main_part(report: &MicroReport) -> &str {
    let named = report.bands.iter().map(|b| b.part.as_str()).chain(report.spreads.iter().map(|s| s.part.as_str()));
    let other = |part: &&str| report.parts.iter().any(|p| p.part == *part);
    named.into_iter().find(|part| !other(part)).unwrap_or("")
}

/// The upper edge of the main part's noise band at a point; `None` where the report has no band there.
pub fn band_edge(report: &MicroReport, mode: CurveMode, point: usize) -> Option<f64> {
    let part = main_part(report);
    let band = report.bands.iter().find(|b| b.mode == mode && b.part == part).map(|b| &b.high);
    let floor = || report.floor.iter().find(|c| c.mode == mode).map(|c| &c.rel_l2);
    band.or_else(floor)?.get(point).copied()
}

/// The class of a candidate, if it was judged.
pub fn class_of(report: &MicroReport, candidate: &str) -> Option<ErrorClass> {
    report.verdicts.iter().find(|v| v.candidate == candidate).map(|v| v.class)
}

/// All ways of measuring, in the order in which they are shown.
pub const MODES: [CurveMode; 3] = [CurveMode::PerSite, CurveMode::Compounded, CurveMode::SingleInjection];

/// A way of measuring as it is written in files and commands.
pub fn mode_name(mode: CurveMode) -> &'static str {
    match mode {
        CurveMode::PerSite => "per-site",
        CurveMode::Compounded => "compounded",
        CurveMode::SingleInjection => "single-injection",
    }
}

/// How a way of measuring is written in a title.
pub fn mode_words(mode: CurveMode) -> &'static str {
    match mode {
        CurveMode::PerSite => "each site alone",
        CurveMode::Compounded => "compounded over the sites",
        CurveMode::SingleInjection => "at one site, measured at the end",
    }
}

/// An error as it is written: `1.25e-3`, `0`, `not a number`, `infinite`.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        "not a number".into()
    } else if value.is_infinite() {
        "infinite".into()
    } else if value == 0.0 {
        "0".into()
    } else {
        format!("{value:.2e}")
    }
}

/// The same for a narrow column: `NaN`, `inf`.
pub fn short(value: f64) -> String {
    if value.is_finite() { number(value) } else { value.to_string() }
}

/// Whether an error lies above an edge of a noise band, by the rule of the verdicts. NaN does.
pub fn is_above(error: f64, edge: f64) -> bool {
    error.is_nan() || error > edge * SLACK
}

/// Whether a value can stand on a logarithmic axis.
pub fn drawable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The least and the greatest power of ten between which all drawable values lie, at least one decade apart; `None`
/// without any.
pub fn decades(values: impl Iterator<Item = f64>) -> Option<(i32, i32)> {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for v in values.filter(|v| drawable(*v)) {
        (low, high) = (low.min(v), high.max(v));
    }
    if high == 0.0 {
        return None;
    }
    let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    Some((low, high.max(low + 1)))
}

fn verdict_line(verdict: &CandidateVerdict) -> String {
    format!("{}: {}. {}", verdict.candidate, verdict.class.word(), verdict.says)
}

/// The name with everything but letters, digits and points made a hyphen, for a file name.
fn plain(name: &str) -> String {
    let kept = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    kept.collect::<String>().trim_matches(['-', '.']).to_owned()
}

#[cfg(test)]
#[path = "figure_tests.rs"]
mod tests;
