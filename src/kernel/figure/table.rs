//! The tables of a report: every cell is ready to print.

use super::{band_edge, is_above, mode_name, mode_words, short};
use crate::kernel::outside::Unit;
use crate::kernel::report::{Curve, CurveMode, Decisions, MicroReport, PeerCopy, Sets};

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What stands above it, in one line.
    pub title: String,
    /// Headings of the columns.
    pub heading: Vec<&'static str>,
    /// Columns of numbers, which are aligned to the right.
    pub right: Vec<usize>,
    /// The rows; each has as many cells as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// All tables that have a row: errors of each mode and of the other parts, spread of the elements, causes, sets,
/// decisions, the card and its kernels.
pub fn tables(report: &MicroReport) -> Vec<Table> {
    let errors = super::MODES.map(|mode| errors(report, mode));
    let more = [parts(report), growths(report), spreads(report), causes(report)];
    let all = errors.into_iter().chain(more).chain(sets(report)).chain([decisions(report)]);
    let of_card = [card(report), kernels(report)];
    all.chain(of_card).filter(|t| !t.rows.is_empty()).collect()
}

/// What each kernel did: registers, time, the share of what the card's measured ceilings allow, and its bits.
pub fn kernels(report: &MicroReport) -> Table {
    let kernels = report.card.iter().flat_map(|card| &card.kernels);
    let case = kernels.clone().next().map_or("", |k| k.case.as_str());
    let rows = kernels.clone().map(|k| {
        let batches: Vec<String> = k.other_batches.iter().map(u64::to_string).collect();
        let bits = match k.other_bits {
            0 => format!("same in {}", k.runs),
            other => format!("OTHER in {other}/{}", k.runs),
        };
        let batches = match (k.batches.is_empty(), batches.is_empty()) {
            (true, _) => dash(),
            (_, true) => "same".into(),
            (_, false) => format!("OTHER at {}", batches.join(" ")),
        };
        vec![
            k.candidate.clone(),
            k.registers.to_string(),
            k.local.to_string(),
            format!("{:.1}", 1e6 * k.seconds),
            if k.share > 0.0 { format!("{:.1} %", 100.0 * k.share) } else { dash() },
            if k.bound.is_empty() { dash() } else { k.bound.clone() },
            bits,
            batches,
        ]
    });
    Table {
        title: format!("kernels at {case}: time with empty caches, share of the measured ceiling, bits"),
        heading: vec!["candidate", "regs", "local", "us", "ceiling", "of", "bits", "batches"],
        right: vec![1, 2, 3, 4],
        rows: rows.collect(),
    }
}

/// The card, and whether it keeps what it is given.
pub fn card(report: &MicroReport) -> Table {
    let Some(card) = &report.card else { return Table::default() };
    let row = |what: &str, says: String| vec![what.to_owned(), says];
    let counted = |count: Option<u64>| count.map_or_else(|| "cannot be read".into(), |c| c.to_string());
    let check = &card.check;
    let (mib, right) = (check.bytes >> 20, check.round_trips - check.bad_round_trips);
    let mut rows = vec![
        row("driver", card.driver.clone()),
        row("compiler", card.compiler.clone()),
        row("round trips", format!("{right} of {} with {mib} MiB came back right", check.round_trips)),
        row(
            "memory errors",
            format!("not corrected: {}; corrected: {}", counted(check.uncorrected), counted(check.corrected)),
        ),
        row("Xid in the log", counted(check.xids)),
        row("copy", format!("{:.0} GB/s", card.ceilings.bytes_per_second / 1e9)),
    ];
    let peer = |p: &PeerCopy| {
        let way = if p.direct { "directly" } else { "through the host" };
        let says = match &p.failed {
            Some(why) => why.clone(),
            None => format!("{} of {} came out right, {way}", p.copies - p.bad, p.copies),
        };
        row(&format!("to {}", p.to), says)
    };
    rows.extend(check.peers.iter().map(peer));
    let unit = |(unit, rate): &(Unit, f64)| row(unit.word(), format!("{:.1} TFLOP/s", rate / 1e12));
    rows.extend(card.ceilings.flops.iter().map(unit));
    rows.extend(check.faults().into_iter().map(|fault| row("FAULT", fault)));
    Table {
        title: format!("{}: {} ({}), {}", report.device, card.name, card.arch, card.uuid),
        heading: vec!["card", ""],
        right: vec![],
        rows,
    }
}

/// Errors of the main part: the floor first, then each candidate. `band to` and `calc_diff` are those of the point
/// with the largest error, whose number is in the last column; `above` counts points above the band.
pub fn errors(report: &MicroReport, mode: CurveMode) -> Table {
    let row = |curve: &Curve, floor: bool| {
        let worst = worst(&curve.rel_l2);
        let high = |at: usize| band_edge(report, mode, at);
        let above = curve.rel_l2.iter().enumerate().filter(|(at, v)| high(*at).is_some_and(|h| is_above(**v, h)));
        let banded = high(0).is_some();
        vec![
            curve.candidate.clone(),
            root_mean_square(&curve.rel_l2).map_or_else(dash, short),
            worst.map_or_else(dash, |(_, v)| short(v)),
            worst.and_then(|(at, _)| high(at)).map_or_else(dash, short),
            worst.and_then(|(at, _)| curve.calc_diff.get(at).copied()).map_or_else(dash, short),
            if floor || !banded { dash() } else { format!("{}/{}", above.count(), curve.rel_l2.len()) },
            worst.map_or_else(dash, |(at, _)| (at + 1).to_string()),
        ]
    };
    let floor = report.floor.iter().filter(|c| c.mode == mode).map(|c| row(c, true));
    let curves = report.curves.iter().filter(|c| c.mode == mode).map(|c| row(c, false));
    Table {
        title: format!("relative L2 error, {}", mode_words(mode)),
        heading: vec!["candidate", "rms", "largest", "band to", "calc_diff", "above", "at"],
        right: vec![1, 2, 3, 4, 5, 6],
        rows: floor.chain(curves).collect(),
    }
}

/// Errors of the other parts, with the reference's input.
pub fn parts(report: &MicroReport) -> Table {
    let rows = report.parts.iter().map(|p| {
        let worst = worst(&p.curve.rel_l2);
        vec![
            spaced(&p.part),
            p.curve.candidate.clone(),
            root_mean_square(&p.curve.rel_l2).map_or_else(dash, short),
            worst.map_or_else(dash, |(_, v)| short(v)),
            worst.map_or_else(dash, |(at, _)| (at + 1).to_string()),
        ]
    });
    Table {
        title: "relative L2 error of the other parts, each site alone".into(),
        heading: vec!["part", "candidate", "rms", "largest", "at"],
        right: vec![2, 3, 4],
        rows: rows.collect(),
    }
}

/// How the curves grow from point to point, where that was fitted.
pub fn growths(report: &MicroReport) -> Table {
    let all = report.floor.iter().chain(&report.curves);
    let rows = all.filter_map(|c| Some(vec![c.candidate.clone(), mode_name(c.mode).to_owned(), c.growth?.to_string()]));
    Table {
        title: "growth from point to point".into(),
        heading: vec!["candidate", "measured", "growth"],
        right: vec![],
        rows: rows.collect(),
    }
}

/// How the errors of the elements of the main part are spread, and whether one factor explains most of them.
pub fn spreads(report: &MicroReport) -> Table {
    let part = super::main_part(report);
    let rows = report.spreads.iter().filter(|s| s.part == part).map(|s| {
        vec![
            s.candidate.clone(),
            short(s.quantiles[0]),
            short(s.quantiles[2]),
            short(s.quantiles[3]),
            s.max_abs.map_or_else(|| short(f64::NAN), short),
            s.ratio.map_or_else(|| "no".into(), |r| format!("{r:.4}")),
        ]
    });
    Table {
        title: "elements: quantiles over the reference's rms, greatest error, one factor".into(),
        heading: vec!["candidate", "half", "99 %", "99.9 %", "max abs", "factor"],
        right: vec![1, 2, 3, 4, 5],
        rows: rows.collect(),
    }
}

/// Causes with a smaller share of the squared error are left out of the table.
const LEAST_SHARE: f64 = 0.005;

/// What the rounding points do alone that make a visible share of the error.
pub fn causes(report: &MicroReport) -> Table {
    let seen = report.causes.iter().filter(|c| c.share.is_nan() || c.share >= LEAST_SHARE);
    let rows = seen.map(|c| {
        vec![
            c.candidate.clone(),
            c.point.clone(),
            c.rounding.clone(),
            short(c.rel_l2),
            if c.share.is_finite() { format!("{:.0} %", 100.0 * c.share) } else { unknown() },
        ]
    });
    Table {
        title: "causes: each rounding point alone; share of the squared error".into(),
        heading: vec!["candidate", "point", "rounding", "rms", "share"],
        right: vec![3, 4],
        rows: rows.collect(),
    }
}

/// What changed in the sets that were kept: one table for each kind and size.
pub fn sets(report: &MicroReport) -> Vec<Table> {
    let mut kinds: Vec<(&str, u64, u64)> = Vec::new();
    for s in &report.sets {
        if !kinds.contains(&(&s.kind, s.keep, s.rows)) {
            kinds.push((&s.kind, s.keep, s.rows));
        }
    }
    let table = |(kind, keep, rows): (&str, u64, u64)| {
        let of_kind = || report.sets.iter().filter(|s| (s.kind.as_str(), s.keep, s.rows) == (kind, keep, rows));
        let margin = of_kind().find_map(|s| s.median_margin);
        let margin = margin.map_or_else(String::new, |m| format!(", median margin at the cut {}", short(m)));
        Table {
            title: format!("sets: {keep} {kind} kept by each of {rows} rows{margin}"),
            heading: vec!["candidate", "overlap", "least", "changed", "beyond band", "planted"],
            right: vec![1, 2, 3, 4, 5],
            rows: of_kind().map(set_row).collect(),
        }
    };
    kinds.into_iter().map(table).collect()
}

fn set_row(s: &Sets) -> Vec<String> {
    let percent = |v: f64| if v.is_finite() { format!("{:.2} %", 100.0 * v) } else { unknown() };
    let planted = match (s.planted, s.planted_kept) {
        (Some(all), Some(kept)) => format!("{kept}/{all}"),
        (Some(all), None) => format!("?/{all}"),
        (None, _) => dash(),
    };
    vec![
        s.candidate.clone(),
        percent(s.overlap),
        percent(s.least_overlap),
        format!("{}/{}", s.rows_changed, s.rows),
        s.rows_beyond_floor.to_string(),
        planted,
    ]
}

/// What changed in the decisions of the whole model.
pub fn decisions(report: &MicroReport) -> Table {
    let nats = |v: Option<f64>| v.map_or_else(dash, |m| format!("{m:.3}"));
    let row = |d: &Decisions| {
        vec![
            d.candidate.clone(),
            format!("{}/{}", d.flips, d.positions),
            d.flips_beyond_floor.to_string(),
            nats(d.widest_flipped),
            d.largest_shift.map_or_else(unknown, |m| format!("{m:.3}")),
            format!("{}/{}", d.expert_flips, d.expert_choices),
        ]
    };
    Table {
        title: "decisions of the whole model, margins in nats".into(),
        heading: vec!["candidate", "flips", "beyond band", "widest", "shift", "experts"],
        right: vec![1, 2, 3, 4, 5],
        rows: report.decisions.iter().map(row).collect(),
    }
}

/// The other parts that have curves, each once.
pub fn other_parts(report: &MicroReport) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for p in &report.parts {
        if !parts.contains(&p.part.as_str()) {
            parts.push(&p.part);
        }
    }
    parts
}

/// A name as words.
pub fn spaced(name: &str) -> String {
    name.replace('-', " ")
}

fn dash() -> String {
    "-".into()
}

fn unknown() -> String {
    "unknown".into()
}

/// `None` without values; NaN as soon as one of them is.
pub fn root_mean_square(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt())
}

/// Place and size of the largest; NaN is larger than every number, so that it cannot hide behind one.
pub fn worst(values: &[f64]) -> Option<(usize, f64)> {
    let worse = |a: (usize, f64), b: (usize, f64)| if a.1.is_nan() || a.1 >= b.1 { a } else { b };
    values.iter().copied().enumerate().reduce(worse)
}
