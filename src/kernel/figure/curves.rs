//! Error curves of one report, or of several laid over each other.

use std::ops::Range;

use super::{MODES, Style, class_of, decades, drawable, is_above, main_part, mode_name, mode_words, table};
use crate::kernel::report::{Curve, CurveMode, Growth, MicroReport};

/// A line chart over named points with a logarithmic y axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// What it shows, in one line.
    pub title: String,
    /// A name for its file.
    pub stem: String,
    /// What each point along x is.
    pub x_labels: Vec<String>,
    /// What y is.
    pub y_label: String,
    /// Candidates, in the report's order, then twins; further reports after the first.
    pub series: Vec<Series>,
    /// What a right arithmetic makes anyway: one for each report that has it.
    pub bands: Vec<Area>,
    /// What a reader must know: points that cannot be drawn, reports that do not fit.
    pub notes: Vec<String>,
}

/// One line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name for the legend.
    pub name: String,
    /// The candidate, without what tells one report from another.
    pub candidate: String,
    /// What kind of line it is.
    pub style: Style,
    /// Which of the reports it is from; 0 is the one that is asked for.
    pub report: usize,
    /// One relative L2 error for each x label, as measured; what is not drawable is a gap.
    pub values: Vec<f64>,
    /// The difference metric at each x label; empty where the report has none.
    pub calc_diff: Vec<f64>,
    /// How it grows, if it is compounded and was fitted.
    pub growth: Option<Growth>,
}

/// The noise band of one report.
#[derive(Clone, Debug, PartialEq)]
pub struct Area {
    /// Name for the legend.
    pub name: String,
    /// Which of the reports it is from.
    pub report: usize,
    /// The lower edge; NaN where only the upper one is known, so that it reaches down to the axis.
    pub low: Vec<f64>,
    /// The upper edge.
    pub high: Vec<f64>,
    /// What was varied, by name.
    pub members: Vec<String>,
}

impl Figure {
    /// The least and the greatest power of ten between which every point and edge lies; `None` without points.
    pub fn decades(&self) -> Option<(i32, i32)> {
        let edges = self.bands.iter().flat_map(|b| b.low.iter().chain(&b.high));
        decades(self.series.iter().flat_map(|s| &s.values).chain(edges).copied())
    }

    /// Number of points along x.
    pub fn points(&self) -> usize {
        let edges = self.bands.iter().map(|b| b.high.len());
        self.series.iter().map(|s| s.values.len()).chain(edges).max().unwrap_or(0)
    }

    /// The band that a series is compared with.
    pub fn band_of(&self, series: &Series) -> Option<&Area> {
        self.bands.iter().find(|b| b.report == series.report)
    }

    /// At how many points a series lies above its band; `None` without a band. NaN and infinity lie above.
    pub fn above(&self, series: &Series) -> Option<usize> {
        let band = self.band_of(series)?;
        Some(series.values.iter().zip(&band.high).filter(|(v, high)| is_above(**v, **high)).count())
    }

    /// The same figure of these points alone, for a zoom.
    #[must_use]
    pub fn window(&self, points: &Range<usize>) -> Self {
        fn cut<T: Clone>(all: &[T], points: &Range<usize>) -> Vec<T> {
            all.get(points.start.min(all.len())..points.end.min(all.len())).unwrap_or_default().to_vec()
        }
        let series = self.series.iter().map(|s| Series {
            values: cut(&s.values, points),
            calc_diff: cut(&s.calc_diff, points),
            ..s.clone()
        });
        let bands =
            self.bands.iter().map(|b| Area { low: cut(&b.low, points), high: cut(&b.high, points), ..b.clone() });
        Self { series: series.collect(), bands: bands.collect(), x_labels: cut(&self.x_labels, points), ..self.clone() }
    }
}

impl Series {
    /// The value at a point if a logarithmic axis can show it.
    pub fn point(&self, at: usize) -> Option<f64> {
        self.values.get(at).copied().filter(|v| drawable(*v))
    }
}

/// The figure of one way of measuring, with twins if they were measured that way and are wanted.
pub fn figure(report: &MicroReport, mode: CurveMode, with_twins: bool) -> Figure {
    overlay(&[report], mode, with_twins)
}

/// The figures of all ways of measuring without twins; one that was not measured has no series.
pub fn figures(report: &MicroReport) -> [Figure; 3] {
    MODES.map(|mode| figure(report, mode, false))
}

/// Several reports of one spec in one figure, the first being the one that is asked for. A report of other points is
/// left out, and that is noted. Empty without reports.
pub fn overlay(reports: &[&MicroReport], mode: CurveMode, with_twins: bool) -> Figure {
    let Some(first) = reports.first() else { return Figure::default() };
    let part = main_part(first);
    let mut out = Figure {
        title: format!("{} on {}, {}", first.spec, first.device, mode_words(mode)),
        stem: mode_name(mode).into(),
        x_labels: labels(first, mode),
        y_label: y_label(part),
        ..Figure::default()
    };
    let names = tags(reports);
    for (i, (report, tag)) in reports.iter().zip(&names).enumerate() {
        if labels(report, mode) != out.x_labels {
            out.notes.push(format!("{tag} has other points and is not drawn"));
            continue;
        }
        let named = |name: &str| if tag.is_empty() { name.to_owned() } else { format!("{name} {tag}") };
        let of_mode = |curve: &&Curve| curve.mode == mode;
        let candidates = report.curves.iter().filter(of_mode).map(|c| (c, candidate_style(report, c)));
        let twins = report.controls.iter().filter(|_| with_twins).flat_map(|c| &c.curves).filter(of_mode);
        let all = candidates.chain(twins.map(|c| (c, Style::Twin)));
        out.series.extend(all.map(|(c, style)| series(c, named(&c.candidate), style, i)));
        out.bands.extend(band(report, mode, part, i, named("noise band")));
    }
    out.notes.extend(out.series.iter().filter_map(undrawn));
    out
}

/// The errors of another part than the main one.
pub fn part_figure(report: &MicroReport, part: &str) -> Figure {
    let curves: Vec<&Curve> = report.parts.iter().filter(|p| p.part == part).map(|p| &p.curve).collect();
    let mode = curves.first().map_or(CurveMode::PerSite, |c| c.mode);
    let of_mode = curves.iter().filter(|c| c.mode == mode);
    let series: Vec<Series> = of_mode.map(|c| series(c, c.candidate.clone(), candidate_style(report, c), 0)).collect();
    let band = report.bands.iter().find(|b| b.part == part && b.mode == mode);
    Figure {
        title: format!("{} on {}, {part}, {}", report.spec, report.device, mode_words(mode)),
        stem: format!("part-{}", super::plain(part)),
        x_labels: curves.first().map_or_else(Vec::new, |c| c.labels.clone()),
        y_label: y_label(part),
        notes: series.iter().filter_map(undrawn).collect(),
        series,
        bands: band.map(|b| area(b, "noise band".into(), 0)).into_iter().collect(),
    }
}

fn y_label(part: &str) -> String {
    let of = if part.is_empty() { String::new() } else { format!(" of the {}", table::spaced(part)) };
    format!("relative L2 error{of}")
}

fn labels(report: &MicroReport, mode: CurveMode) -> Vec<String> {
    let of_mode = |curve: &&Curve| curve.mode == mode;
    report.curves.iter().chain(&report.floor).find(of_mode).map_or_else(Vec::new, |c| c.labels.clone())
}

/// What tells each report from the others: nothing for one alone, the device where devices differ, else the time.
fn tags(reports: &[&MicroReport]) -> Vec<String> {
    let tag = |report: &&MicroReport| {
        let same = reports.iter().filter(|r| r.device == report.device).count();
        match (reports.len(), same) {
            (..=1, _) => String::new(),
            (_, 1) => format!("({})", report.device),
            _ => format!("({}, {})", report.device, report.at.strftime("%m-%d %H:%M")),
        }
    };
    reports.iter().map(tag).collect()
}

fn candidate_style(report: &MicroReport, curve: &Curve) -> Style {
    Style::Candidate(class_of(report, &curve.candidate))
}

fn series(curve: &Curve, name: String, style: Style, report: usize) -> Series {
    Series {
        name,
        candidate: curve.candidate.clone(),
        style,
        report,
        values: curve.rel_l2.clone(),
        calc_diff: curve.calc_diff.clone(),
        growth: curve.growth,
    }
}

/// The band of the main part; where a report only has its upper edge, the floor, the lower edge is unknown.
fn band(report: &MicroReport, mode: CurveMode, part: &str, index: usize, name: String) -> Option<Area> {
    if let Some(band) = report.bands.iter().find(|b| b.mode == mode && b.part == part) {
        return Some(area(band, name, index));
    }
    let floor = report.floor.iter().find(|c| c.mode == mode)?;
    let low = vec![f64::NAN; floor.rel_l2.len()];
    Some(Area { name, report: index, low, high: floor.rel_l2.clone(), members: Vec::new() })
}

fn area(band: &crate::kernel::report::Band, name: String, report: usize) -> Area {
    let members = band.members.iter().map(|m| m.name.clone()).collect();
    Area { name, report, low: band.low.clone(), high: band.high.clone(), members }
}

fn undrawn(series: &Series) -> Option<String> {
    let zero = series.values.iter().filter(|e| **e == 0.0).count();
    let bad = series.values.iter().filter(|e| !e.is_finite()).count();
    let words = match (zero, bad) {
        (0, 0) => return None,
        (_, 0) => format!("{zero} exactly zero"),
        (0, _) => format!("{bad} not finite"),
        _ => format!("{zero} exactly zero, {bad} not finite"),
    };
    Some(format!("{}: points not drawn: {words}", series.name))
}
