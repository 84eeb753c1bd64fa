//! A candidate's arithmetic of sparse attention, and its faults.
//!
//! Responsible for the order of its rounding points. Not responsible for what is right.
//!
//! `accumulate.splits` cuts the **keys**, as a split-K kernel does, and not the sums: each split has
//! its own largest score, and splits are merged by their logarithms. Sums within a split, over the
//! dimensions of a product and over keys, are made in the stated type and order.

use std::f64::consts::{LN_2, LOG2_E};
use std::ops::Range;

use super::{Cache, Case, Row, outcome};
use crate::kernel::candidate::{Accumulate, Candidate};
use crate::kernel::format::Storage;
use crate::kernel::microtest::Outcome;
use crate::kernel::oracle::pages::{self, LatentLayout, Pages};
use crate::kernel::oracle::rotary::Turn;
use crate::kernel::specs::paged::{self, Addressing};
use crate::kernel::specs::points::rule;

/// How a cache that the model does not quantise is stored for faults that lie in the bytes.
const PLAIN_LAYOUT: LatentLayout = LatentLayout { plain: 32, rotated: 0, block: 16, tokens: 64 };

/// Keys and values that a row sees.
struct Seen {
    /// `[keys, width]`.
    keys: Vec<f64>,
    /// `[width, keys]`.
    values: Vec<f64>,
    count: usize,
}

/// What a split of the keys gives.
struct Part {
    out: Vec<f64>,
    lse: f64,
}

/// What the candidate makes of the case.
pub(super) fn run(case: &Case, candidate: &Candidate) -> Outcome {
    let (keys, values) = cache(case, candidate);
    let width = case.width();
    let (mut lse, mut output) = (Vec::new(), Vec::new());
    for row in &case.rows {
        let seen = seen(row, width, &keys, &values);
        for (q, sink) in queries(case, candidate, row).chunks_exact(width).zip(&case.sinks) {
            let (head_lse, mut out) = head(candidate, case.scale, q, *sink, &seen);
            if let Cache::Latent { rotary, .. } = &case.cache
                && !candidate.has_fault("rope-not-back")
            {
                rotary.turn(&mut out, row.position, Turn::Back);
            }
            let rounded = rule(candidate, "output");
            lse.push(head_lse);
            output.extend(out.iter().map(|x| rounded(*x)));
        }
    }
    outcome(case, lse, output)
}

fn queries(case: &Case, candidate: &Candidate, row: &Row) -> Vec<f64> {
    match candidate.at("query") {
        own if own == Storage::default() => case.own_queries(row),
        storage => storage.store(&case.prepared(row), case.width()),
    }
}

/// All keys and values as the candidate reads them, `[entries, width]` each.
fn cache(case: &Case, candidate: &Candidate) -> (Vec<f64>, Vec<f64>) {
    let storage = candidate.at("cache");
    let page_off = candidate.has_fault("page-off");
    let interleaved = candidate.has_fault("layout-interleaved");
    let neighbour = candidate.has_fault("neighbour-scale");
    let addressing = Addressing { pages_off: usize::from(page_off), interleaved };
    let read = |pages: &Pages, layout: LatentLayout, entries: usize| -> Vec<f64> {
        let blocks = layout.plain.div_ceil(layout.block);
        let latent = |token| {
            let (data, scales) = paged::bytes(pages, token, addressing);
            let mut scales = scales.to_vec();
            if neighbour {
                scales[..blocks].rotate_left(1);
            }
            pages::latent(layout, data, &scales)
        };
        (0..entries).flat_map(latent).collect()
    };
    match &case.cache {
        Cache::Latent { layout, pages, .. } if storage == Storage::default() => {
            let latents = read(pages, *layout, case.entries());
            (latents.clone(), latents)
        }
        Cache::Latent { latents, layout, .. } => {
            let stored = storage.store(latents, layout.width());
            (stored.clone(), stored)
        }
        Cache::Plain { keys, values, width } if interleaved || neighbour => {
            let paged = |rows: &[f64]| {
                let table = (0..case.entries().div_ceil(PLAIN_LAYOUT.tokens)).collect();
                let mut pages = Pages::zeros(PLAIN_LAYOUT.page(), table);
                for (token, row) in rows.chunks_exact(*width).enumerate() {
                    pages::write_latent(&mut pages, PLAIN_LAYOUT, token, row);
                }
                read(&pages, PLAIN_LAYOUT, case.entries())
            };
            (paged(keys), paged(values))
        }
        Cache::Plain { keys, values, width } => {
            let moved = |rows: &[f64]| {
                let mut rows = storage.store(rows, *width);
                if page_off {
                    let shift = PLAIN_LAYOUT.tokens * width % rows.len().max(1);
                    rows.rotate_left(shift);
                }
                rows
            };
            (moved(keys), moved(values))
        }
    }
}

fn seen(row: &Row, width: usize, keys: &[f64], values: &[f64]) -> Seen {
    let count = row.seen.len();
    let mut seen = Seen { keys: Vec::with_capacity(count * width), values: vec![0.0; count * width], count };
    for (i, entry) in row.seen.iter().enumerate() {
        seen.keys.extend_from_slice(&keys[entry * width..][..width]);
        for (d, value) in values[entry * width..][..width].iter().enumerate() {
            seen.values[d * count + i] = *value;
        }
    }
    seen
}

/// The lse, in base e, and the output of one head before it is rotated back.
fn head(candidate: &Candidate, scale: f64, q: &[f64], sink: f64, seen: &Seen) -> (f64, Vec<f64>) {
    let base = Base::of(candidate);
    let splits = candidate.accumulate.splits.max(1);
    let sums = Accumulate { splits: 1, ..candidate.accumulate };
    let logits = logits(candidate, base, scale, q, seen, sums);
    let sink = base.of_natural(sink);
    let in_splits = candidate.has_fault("sink-in-every-split");
    let parts: Vec<Part> = (0..splits)
        .map(|split| {
            let run = split * seen.count / splits..(split + 1) * seen.count / splits;
            part(candidate, base, &logits, run, in_splits.then_some(sink), seen, sums)
        })
        .collect();
    let mut whole = merge(candidate, base, &parts, sums);
    if !in_splits && !candidate.has_fault("sink-forgotten") {
        let divisor = 1.0 + base.exp(sink - whole.lse);
        whole.out.iter_mut().for_each(|o| *o /= divisor);
    }
    (base.to_natural(whole.lse), whole.out)
}

fn logits(candidate: &Candidate, base: Base, scale: f64, q: &[f64], seen: &Seen, sums: Accumulate) -> Vec<f64> {
    let (scaled_rule, score_rule) = (rule(candidate, "scaled-query"), rule(candidate, "score"));
    let factor = match candidate.fault.as_deref() {
        Some("scale-twice") => scale * scale,
        Some("scale-forgotten") => 1.0,
        _ => scale,
    };
    let scaled: Vec<f64> = q.iter().map(|x| scaled_rule(x * factor)).collect();
    let keys = seen.keys.chunks_exact(q.len());
    keys.map(|key| {
        let score = score_rule(sums.dot(&scaled, key));
        match base {
            Base::E => score,
            Base::Two | Base::Mixed => score_rule(score * LOG2_E),
        }
    })
    .collect()
}

/// One split of the keys, with a sink in its denominator if one is given.
fn part(
    candidate: &Candidate,
    base: Base,
    logits: &[f64],
    run: Range<usize>,
    sink: Option<f64>,
    seen: &Seen,
    sums: Accumulate,
) -> Part {
    let width = seen.values.len() / seen.count.max(1);
    if run.is_empty() && sink.is_none() {
        return Part { out: vec![0.0; width], lse: f64::NEG_INFINITY };
    }
    let (probability, partial, lse_rule) =
        (rule(candidate, "probability"), rule(candidate, "partial"), rule(candidate, "lse"));
    let most = logits[run.clone()].iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let exact: Vec<f64> = logits[run.clone()].iter().map(|l| base.exp(l - most)).collect();
    let weights: Vec<f64> = exact.iter().map(|p| probability(*p)).collect();
    let summed = if candidate.chooses("denominator", "rounded") { &weights } else { &exact };
    let sum = sums.sum(summed) + sink.map_or(0.0, |sink| base.exp(sink - most));
    let column = |d: usize| &seen.values[d * seen.count..][run.clone()];
    let out = (0..width).map(|d| partial(sums.dot(&weights, column(d)) / sum)).collect();
    Part { out, lse: lse_rule(most + base.log(sum)) }
}

fn merge(candidate: &Candidate, base: Base, parts: &[Part], sums: Accumulate) -> Part {
    let most = parts.iter().map(|p| p.lse).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = match candidate.fault.as_deref() {
        Some("plain-mean-merge") => vec![1.0; parts.len()],
        _ if most == f64::NEG_INFINITY => vec![0.0; parts.len()],
        _ => parts.iter().map(|p| base.merging_exp(p.lse - most)).collect(),
    };
    let sum = sums.sum(&weights);
    let column = |d: usize| parts.iter().map(|p| p.out[d]).collect::<Vec<f64>>();
    let divisor = if sum == 0.0 { 1.0 } else { sum };
    let out = (0..parts[0].out.len()).map(|d| sums.dot(&weights, &column(d)) / divisor).collect();
    Part { out, lse: most + base.log(sum) }
}

/// In which base a kernel takes its exponentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// Scores as they are.
    E,
    /// Scores times log2(e), which is what the hardware's exponential takes.
    Two,
    /// Like `Two`, but splits are merged as if their logarithms were natural ones.
    Mixed,
}

impl Base {
    fn of(candidate: &Candidate) -> Self {
        if candidate.has_fault("lse-base-mixed") {
            Self::Mixed
        } else if candidate.chooses("exponential", "base-2") {
            Self::Two
        } else {
            Self::E
        }
    }

    fn exp(self, x: f64) -> f64 {
        match self {
            Self::E => x.exp(),
            Self::Two | Self::Mixed => x.exp2(),
        }
    }

    fn merging_exp(self, x: f64) -> f64 {
        match self {
            Self::E | Self::Mixed => x.exp(),
            Self::Two => x.exp2(),
        }
    }

    fn log(self, x: f64) -> f64 {
        match self {
            Self::E => x.ln(),
            Self::Two | Self::Mixed => x.log2(),
        }
    }

    fn of_natural(self, x: f64) -> f64 {
        match self {
            Self::E => x,
            Self::Two | Self::Mixed => x * LOG2_E,
        }
    }

    fn to_natural(self, x: f64) -> f64 {
        match self {
            Self::E => x,
            Self::Two | Self::Mixed => x * LN_2,
        }
    }
}
