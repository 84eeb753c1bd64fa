//! Figures and tables of a microtest, as plain data.
//!
//! Pure. Responsible for which lines a figure has and what it must say beside them; the terminal
//! and a file format only draw it. Not responsible for colours, sizes or glyphs.

use crate::kernel::report::{CandidateVerdict, Curve, CurveMode, Decisions, ErrorClass, MicroReport};

/// A line chart over named points.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows, in one line.
    pub title: String,
    /// What each point along x is.
    pub x_labels: Vec<String>,
    /// What y is.
    pub y_label: String,
    /// The y axis is logarithmic.
    pub y_log: bool,
    /// Candidates, in the report's order, then twins.
    pub series: Vec<Series>,
    /// What the reference's own rounding makes, drawn beside them.
    pub floor: Vec<Series>,
    /// What a reader must know: verdicts, points that cannot be drawn, provenance.
    pub notes: Vec<String>,
}

/// One line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name for the legend.
    pub name: String,
    /// What kind of line it is.
    pub style: Style,
    /// One value for each x label; `None` where there is none that a logarithmic axis can show.
    pub points: Vec<Option<f64>>,
}

/// What kind of line; the drawer chooses marks and colours, never colours alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A candidate and its class, if it was judged.
    Candidate(Option<ErrorClass>),
    /// A known-bad twin.
    Twin,
    /// The floor.
    Floor,
}

impl Figure {
    /// The least and the greatest power of ten between which every point lies; `None` without points.
    pub fn decades(&self) -> Option<(i32, i32)> {
        let points = || self.series.iter().chain(&self.floor).flat_map(|s| s.points.iter().flatten().copied());
        let (low, high) = (points().reduce(f64::min)?, points().reduce(f64::max)?);
        let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        Some((low, high.max(low + 1)))
    }
}

/// The figure of one way of measuring, with twins if they were measured that way and are wanted.
pub fn figure(report: &MicroReport, mode: CurveMode, with_twins: bool) -> Figure {
    let class = |name: &str| report.verdicts.iter().find(|v| v.candidate == name).map(|v| v.class);
    let of_mode = |curve: &&Curve| curve.mode == mode;
    let candidates = report.curves.iter().filter(of_mode).map(|c| series(c, Style::Candidate(class(&c.candidate))));
    let twins = report.controls.iter().filter(|_| with_twins).flat_map(|c| &c.curves).filter(of_mode);
    let series_of_all: Vec<Series> = candidates.chain(twins.map(|c| series(c, Style::Twin))).collect();
    let floor: Vec<Series> = report.floor.iter().filter(of_mode).map(|c| series(c, Style::Floor)).collect();
    let mut notes: Vec<String> = report.verdicts.iter().map(verdict_line).collect();
    notes.extend(report.curves.iter().chain(&report.floor).filter(of_mode).filter_map(undrawn));
    notes.extend(report.controls.iter().filter(|c| !c.caught).map(|c| format!("{}: {}", c.name, c.says)));
    notes.push(report.provenance.clone());
    Figure {
        title: format!("{} on {}, {}", report.spec, report.device, mode_words(mode)),
        x_labels: report.curves.iter().chain(&report.floor).find(of_mode).map_or_else(Vec::new, |c| c.labels.clone()),
        y_label: "relative L2 error of the streams".into(),
        y_log: true,
        series: series_of_all,
        floor,
        notes,
    }
}

/// Both figures without twins: each site alone, then compounded.
pub fn figures(report: &MicroReport) -> [Figure; 2] {
    [CurveMode::PerSite, CurveMode::Compounded].map(|mode| figure(report, mode, false))
}

/// One row for each candidate and the floor, under a row of headings; every cell is ready to print.
pub fn table(report: &MicroReport) -> Vec<Vec<String>> {
    let heading = [
        "arithmetic",
        "site alone, rms",
        "largest",
        "compounded, largest",
        "after the last",
        "flips",
        "widest",
        "class",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let names = report.floor.iter().chain(&report.curves).filter(|c| c.mode == CurveMode::PerSite);
    for name in names.map(|c| c.candidate.as_str()) {
        let errors = |mode: CurveMode| {
            let mut all = report.floor.iter().chain(&report.curves);
            all.find(|c| c.mode == mode && c.candidate == name).map_or(&[][..], |c| &c.rel_l2)
        };
        let (alone, whole) = (errors(CurveMode::PerSite), errors(CurveMode::Compounded));
        let changed = report.decisions.iter().find(|d| d.candidate == name);
        let class = report.verdicts.iter().find(|v| v.candidate == name).map_or("floor", |v| class_word(v.class));
        rows.push(vec![
            name.to_owned(),
            number(root_mean_square(alone)),
            number(largest(alone)),
            number(largest(whole)),
            number(whole.last().copied()),
            changed.map_or_else(unknown, |d| format!("{}/{}", d.flips, d.positions)),
            changed.map_or_else(unknown, widest),
            class.to_owned(),
        ]);
    }
    rows
}

/// The class as it is written on disk and on screen.
pub fn class_word(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::BelowFloor => "below-floor",
        ErrorClass::AboveFloor => "above-floor",
        ErrorClass::FlipsDecisions => "flips-decisions",
        ErrorClass::Broken => "broken",
    }
}

fn mode_words(mode: CurveMode) -> &'static str {
    match mode {
        CurveMode::PerSite => "each site alone",
        CurveMode::Compounded => "compounded over the sites",
        CurveMode::SingleInjection => "at one site, measured at the end",
    }
}

fn series(curve: &Curve, style: Style) -> Series {
    let points = curve.rel_l2.iter().map(|e| drawable(*e).then_some(*e)).collect();
    Series { name: curve.candidate.clone(), style, points }
}

fn drawable(error: f64) -> bool {
    error.is_finite() && error > 0.0
}

fn undrawn(curve: &Curve) -> Option<String> {
    let zero = curve.rel_l2.iter().filter(|e| **e == 0.0).count();
    let bad = curve.rel_l2.iter().filter(|e| !e.is_finite()).count();
    let words = match (zero, bad) {
        (0, 0) => return None,
        (_, 0) => format!("{zero} exactly zero"),
        (0, _) => format!("{bad} not finite"),
        _ => format!("{zero} exactly zero, {bad} not finite"),
    };
    Some(format!("{}: points not drawn: {words}", curve.candidate))
}

fn verdict_line(verdict: &CandidateVerdict) -> String {
    format!("{} is {}: {}", verdict.candidate, class_word(verdict.class), verdict.says)
}

fn widest(changed: &Decisions) -> String {
    changed.widest_flipped.map_or_else(|| "-".to_owned(), |margin| format!("{margin:.3} nats"))
}

fn unknown() -> String {
    "unknown".into()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(unknown, |v| format!("{v:.2e}"))
}

/// `None` without values; NaN as soon as one of them is.
fn root_mean_square(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt())
}

/// `None` without values; NaN as soon as one of them is, so that it cannot hide behind a number.
fn largest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(|a, b| if a.is_nan() || a > b { a } else { b })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::report::{Control, PartCurve};

    fn curve(candidate: &str, mode: CurveMode, rel_l2: &[f64]) -> Curve {
        let labels = (0..rel_l2.len()).map(|i| format!("site {i}")).collect();
        Curve { candidate: candidate.into(), mode, labels, rel_l2: rel_l2.to_vec(), ..Curve::default() }
    }

    fn report() -> MicroReport {
        use CurveMode::{Compounded, PerSite};
        MicroReport {
            spec: "mhc-mix".into(),
            device: "cpu".into(),
            provenance: "weights of a test".into(),
            curves: vec![curve("bf16", PerSite, &[3e-4, 4e-4]), curve("bf16", Compounded, &[0.0, f64::NAN])],
            floor: vec![curve("floor", PerSite, &[1.6e-3, 1.7e-3]), curve("floor", Compounded, &[1.6e-3, 2e-3])],
            parts: vec![PartCurve { part: "mixes".into(), curve: curve("bf16", PerSite, &[1e-3, 1e-3]) }],
            decisions: vec![Decisions {
                candidate: "bf16".into(),
                positions: 224,
                flips: 2,
                flips_beyond_floor: 0,
                widest_flipped: Some(0.0125),
                largest_shift: Some(0.1),
                expert_choices: 1344,
                expert_flips: 0,
            }],
            controls: vec![Control {
                name: "transposed".into(),
                caught: false,
                says: "missed".into(),
                curves: vec![curve("transposed", PerSite, &[0.5, 20.0])],
            }],
            verdicts: vec![CandidateVerdict {
                candidate: "bf16".into(),
                class: ErrorClass::BelowFloor,
                says: "numbers".into(),
                does_not_show: "the rest".into(),
            }],
            ..MicroReport::default()
        }
    }

    #[test]
    fn the_floor_stands_beside_the_candidates() {
        let [alone, whole] = figures(&report());
        assert_eq!(alone.title, "mhc-mix on cpu, each site alone");
        assert_eq!(alone.series[0].style, Style::Candidate(Some(ErrorClass::BelowFloor)));
        assert_eq!((alone.floor[0].style, alone.floor[0].points[1]), (Style::Floor, Some(1.7e-3)));
        assert_eq!((alone.x_labels.len(), whole.floor.len()), (2, 1));
        assert_eq!(alone.decades(), Some((-4, -2)));
    }

    #[test]
    fn points_that_no_logarithm_has_are_gaps_and_said() {
        let whole = figure(&report(), CurveMode::Compounded, false);
        assert_eq!(whole.series[0].points, [None, None]);
        let note = "bf16: points not drawn: 1 exactly zero, 1 not finite";
        assert!(whole.notes.iter().any(|n| n == note), "{:?}", whole.notes);
    }

    #[test]
    fn twins_come_only_when_wanted_and_a_missed_one_is_always_said() {
        assert_eq!(figure(&report(), CurveMode::PerSite, false).series.len(), 1);
        let with = figure(&report(), CurveMode::PerSite, true);
        assert_eq!((with.series[1].style, with.decades()), (Style::Twin, Some((-4, 2))));
        assert!(figures(&report())[1].notes.contains(&"transposed: missed".to_owned()));
    }

    #[test]
    fn an_empty_report_has_an_empty_figure() {
        let figure = figure(&MicroReport::default(), CurveMode::PerSite, true);
        assert_eq!((figure.decades(), figure.series.len()), (None, 0));
        assert_eq!(table(&MicroReport::default()).len(), 1);
    }

    #[test]
    fn the_table_keeps_what_is_not_a_number_and_what_is_unknown() {
        let rows = table(&report());
        assert_eq!(rows[1][5], "unknown");
        assert_eq!(rows[2], ["bf16", "3.54e-4", "4.00e-4", "NaN", "NaN", "2/224", "0.013 nats", "below-floor"]);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    }
}
