//! How the errors of the elements of one part are spread, side by side for the candidates.

use std::collections::BTreeSet;

use super::{Style, class_of, table};
use crate::kernel::report::{MicroReport, Spread};

/// Bars by power of ten.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// What it shows, in one line.
    pub title: String,
    /// Which part.
    pub part: String,
    /// What x is.
    pub x_label: String,
    /// The bins from left to right without a hole: `None` the exact elements, else errors from 10 to this power up to
    /// ten times as much.
    pub decades: Vec<Option<i32>>,
    /// One for each candidate.
    pub bars: Vec<Bars>,
    /// What a reader must know: elements in no bin.
    pub notes: Vec<String>,
}

/// The bars of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Candidate name.
    pub name: String,
    /// What kind of arithmetic it is.
    pub style: Style,
    /// Elements in each bin.
    pub counts: Vec<u64>,
    /// Elements that were compared.
    pub elements: u64,
}

impl Bars {
    /// The share of the elements in each bin, from 0 to 1.
    pub fn shares(&self) -> Vec<f64> {
        self.counts.iter().map(|c| if self.elements == 0 { 0.0 } else { *c as f64 / self.elements as f64 }).collect()
    }
}

/// The name of a bin: `exact`, `1e-4`.
pub fn bin_name(decade: Option<i32>) -> String {
    decade.map_or_else(|| "exact".to_owned(), |d| format!("1e{d}"))
}

impl Histogram {
    /// The name of each bin.
    pub fn bin_names(&self) -> Vec<String> {
        self.decades.iter().map(|d| bin_name(*d)).collect()
    }
}

/// The histogram of one part; `None` where nothing was counted.
pub fn histogram(report: &MicroReport, part: &str) -> Option<Histogram> {
    let spreads: Vec<&Spread> = report.spreads.iter().filter(|s| s.part == part).collect();
    let powers: BTreeSet<i32> = spreads.iter().flat_map(|s| &s.histogram).filter_map(|b| b.decade).collect();
    let exact = spreads.iter().flat_map(|s| &s.histogram).any(|b| b.decade.is_none());
    let range = powers.first().zip(powers.last()).map(|(low, high)| *low..=*high);
    let decades: Vec<Option<i32>> =
        exact.then_some(None).into_iter().chain(range.into_iter().flatten().map(Some)).collect();
    if decades.is_empty() {
        return None;
    }
    let bars: Vec<Bars> = spreads.iter().map(|s| bars(report, s, &decades)).collect();
    let lost = |b: &Bars| b.elements.saturating_sub(b.counts.iter().sum());
    let notes = bars.iter().filter(|b| lost(b) > 0);
    Some(Histogram {
        title: format!("{} on {}, errors of the elements of the {}", report.spec, report.device, table::spaced(part)),
        part: part.into(),
        x_label: "absolute error over the reference's root mean square, from 10 to this power".into(),
        notes: notes.map(|b| format!("{}: {} elements in no bin: not a number", b.name, lost(b))).collect(),
        decades,
        bars,
    })
}

/// The histograms of all parts, in the order of the report.
pub fn histograms(report: &MicroReport) -> Vec<Histogram> {
    let mut parts: Vec<&str> = Vec::new();
    for spread in &report.spreads {
        if !parts.contains(&spread.part.as_str()) {
            parts.push(&spread.part);
        }
    }
    parts.into_iter().filter_map(|part| histogram(report, part)).collect()
}

fn bars(report: &MicroReport, spread: &Spread, decades: &[Option<i32>]) -> Bars {
    let count = |decade: &Option<i32>| spread.histogram.iter().filter(|b| b.decade == *decade).map(|b| b.count).sum();
    let judged = class_of(report, &spread.candidate);
    let known = report.curves.iter().any(|c| c.candidate == spread.candidate) || judged.is_some();
    let twin = report.controls.iter().any(|c| c.name == spread.candidate);
    let style = match (known, twin) {
        (true, _) => Style::Candidate(judged),
        (false, true) => Style::Twin,
        (false, false) => Style::Floor,
    };
    Bars {
        name: spread.candidate.clone(),
        style,
        counts: decades.iter().map(count).collect(),
        elements: spread.elements,
    }
}
