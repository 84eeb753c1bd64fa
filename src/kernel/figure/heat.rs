//! Errors by point and row: which site, at which token.

use std::ops::Range;

use super::{class_of, decades, table};
use crate::kernel::report::{CurveMode, ErrorClass, MicroReport, Row};

/// A heat map with the points of the curves along x, so that it can stand below them, and rows of tokens along y.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// What it shows, in one line.
    pub title: String,
    /// Which candidate.
    pub candidate: String,
    /// Its class, if it was judged.
    pub class: Option<ErrorClass>,
    /// What each point along x is.
    pub points: Vec<String>,
    /// What y is, such as `token`.
    pub row: String,
    /// Number of the first token of each row.
    pub rows: Vec<u64>,
    /// Relative L2 errors, `[points][rows]`; `None` where a point has no such row.
    pub values: Vec<Vec<Option<f64>>>,
    /// What a reader must know: cells without a number.
    pub notes: Vec<String>,
}

/// The greatest error of one point, and where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hottest {
    /// The row's first token.
    pub row: u64,
    /// The error; NaN counts as greater than every number.
    pub error: f64,
    /// The median over the rows that are numbers; NaN without any.
    pub median: f64,
}

impl HeatMap {
    /// The least and the greatest power of ten between which every cell lies; `None` without one that is drawable.
    pub fn decades(&self) -> Option<(i32, i32)> {
        decades(self.values.iter().flatten().flatten().copied())
    }

    /// The map of these points on a grid of at most `columns` by `lines` cells, `[lines][columns]`; a cell of several
    /// keeps the greatest of them, and NaN is greater than every number. `None` where there is no row.
    pub fn grid(&self, points: &Range<usize>, columns: usize, lines: usize) -> Vec<Vec<Option<f64>>> {
        let end = points.end.min(self.values.len());
        let start = points.start.min(end);
        let (columns, lines) = (columns.min(end - start), lines.min(self.rows.len()));
        let cell = |line: usize, column: usize| {
            let of = share(column, columns, end - start);
            let rows = share(line, lines, self.rows.len());
            let values = of.flat_map(|p| rows.clone().map(move |r| (p, r)));
            values.filter_map(|(p, r)| self.values[start + p].get(r).copied().flatten()).reduce(worse)
        };
        (0..lines).map(|line| (0..columns).map(|column| cell(line, column)).collect()).collect()
    }

    /// The token at which each line of a grid of so many lines begins.
    pub fn grid_rows(&self, lines: usize) -> Vec<u64> {
        let lines = lines.min(self.rows.len());
        (0..lines).map(|line| self.rows[share(line, lines, self.rows.len()).start]).collect()
    }

    /// The greatest error at a point; `None` where it has no rows.
    pub fn hottest(&self, point: usize) -> Option<Hottest> {
        let values = self.values.get(point)?;
        let rank = |v: f64| if v.is_nan() { f64::INFINITY } else { v };
        let all = values.iter().enumerate().filter_map(|(at, v)| Some((at, (*v)?)));
        let (at, error) = all.max_by(|a, b| rank(a.1).total_cmp(&rank(b.1)))?;
        let mut sorted: Vec<f64> = values.iter().flatten().copied().filter(|v| !v.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        Some(Hottest { row: self.rows.get(at).copied().unwrap_or(at as u64), error, median })
    }
}

/// The map of one candidate; `None` where the report has none.
pub fn heat_map(report: &MicroReport, candidate: &str) -> Option<HeatMap> {
    let heat = report.heats.iter().find(|h| h.candidate == candidate)?;
    // Where the error of a whole point is a number, so is that of each of its rows: what is NaN there has no row.
    let alone = report.curves.iter().find(|c| c.candidate == candidate && c.mode == CurveMode::PerSite);
    let whole = |point: usize| alone.and_then(|c| c.rel_l2.get(point)).is_some_and(|v| v.is_finite());
    let row = |(point, row): (usize, &Row)| -> Vec<Option<f64>> {
        row.0.iter().map(|v| (!(v.is_nan() && whole(point))).then_some(*v)).collect()
    };
    let values: Vec<Vec<Option<f64>>> = heat.values.iter().enumerate().map(row).collect();
    let bad = values.iter().flatten().flatten().filter(|v| !v.is_finite()).count();
    let class = class_of(report, candidate);
    let said = class.map_or_else(String::new, |c| format!(" ({})", c.word()));
    let span = heat.columns.iter().zip(heat.columns.iter().skip(1)).map(|(a, b)| b - a).max().unwrap_or(1);
    let mut notes = Vec::new();
    if span > 1 {
        notes.push(format!("each cell is the greatest error of {span} {}s", heat.column));
    }
    if bad > 0 {
        notes.push(format!("cells that are not finite, crossed out: {bad}"));
    }
    Some(HeatMap {
        title: format!(
            "{} on {}, {candidate}{said} by point and {}",
            report.spec,
            report.device,
            table::spaced(&heat.column)
        ),
        candidate: candidate.into(),
        class,
        points: heat.lines.clone(),
        row: heat.column.clone(),
        rows: heat.columns.clone(),
        values,
        notes,
    })
}

/// The maps of all candidates, in the order of the report.
pub fn heat_maps(report: &MicroReport) -> Vec<HeatMap> {
    report.heats.iter().filter_map(|h| heat_map(report, &h.candidate)).collect()
}

/// The part of `all` things that falls to one of `parts` equal parts; never empty while there are enough things.
fn share(part: usize, parts: usize, all: usize) -> Range<usize> {
    part * all / parts.max(1)..(part + 1) * all / parts.max(1)
}

fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}
