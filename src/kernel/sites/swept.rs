//! The whole test at real size: candidates, twins, causes, noise band and chains, as a report.
//!
//! Responsible for what is run on how many tokens, and for the form that [`crate::kernel::judge`]
//! reads. Not responsible for arithmetic or for judging.

use half::bf16;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::{Accumulate, Candidate, Order};
use crate::kernel::format::Rounding;
use crate::kernel::judge::{self, Through, Whole};
use crate::kernel::microtest::{Cases, SpecInfo};
use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::report::{Heat, KernelRun, MicroReport, Row};
use crate::kernel::sites::alone::{Alone, ArithmeticErrors, Inputs, PARTS, alone};
use crate::kernel::sites::compounded::{Compounded, compounded, first_streams};
use crate::kernel::sites::group::GROUP;
use crate::kernel::sites::sums::PartSums;
use crate::kernel::sites::{Activations, Sites, checked, outside, site_labels};
use crate::kernel::sweep::{self, BandMember, Measured, PartErrors, SPLITS, Swept, Tried, pieces, three_digits};
use crate::kernel::task::Outside;

/// Its vocabulary: that of the test on the lab's model, with one part more.
pub static INFO: SpecInfo = SpecInfo {
    parts: &PARTS,
    does_not_show: "decisions, for there is no model around the sites, nor what sublayers make of a changed input, \
                    nor split, Sinkhorn, combination or the head's mixing in another arithmetic, nor a fault in how \
                    the kernel addresses memory",
    ..crate::kernel::mhc::INFO
};

/// On how many tokens each thing is measured, each a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Causes, inputs that moved, and split-k.
    pub causes: usize,
    /// Other orders of sums, which are made term by term.
    pub orders: usize,
    /// Chains.
    pub compounded: usize,
}

impl Default for Extent {
    fn default() -> Self {
        Self { causes: 64, orders: 8, compounded: 32 }
    }
}

/// Runs the test; gives the report, and what kernels did at the first site. Candidates with a fault are
/// known-bad twins, those with kernels or a command are run by `outside`. `tick` is told when a site of a phase
/// is done, and may end the test; there are [`PHASES`] times as many ticks as sites.
///
/// # Errors
/// Weights cannot be read or have another shape, or `tick` fails.
pub fn run(
    sites: &dyn Sites,
    activations: &dyn Activations,
    provenance: String,
    candidates: &[Candidate],
    extent: Extent,
    outside: Option<&dyn Outside>,
    tick: &(dyn Fn(&str) -> Result<(), Failure> + Sync),
) -> Result<(MicroReport, Vec<KernelRun>), Failure> {
    let labels = site_labels(sites);
    let good: Vec<Candidate> = candidates.iter().filter(|c| c.fault.is_none()).cloned().collect();
    let mut swept = swept(sites, activations, &labels, candidates, extent, outside, tick)?;
    let chains = compounded(sites, &First::of(activations, extent.compounded), &good, outside, &|| tick("compounded"))?;
    let kernels = std::mem::take(&mut swept.kernels);
    let cases = Cases {
        shape: format!(
            "{} tokens ({} for causes and the noise band, {} compounded), 4 streams of {}, {} sites, `fn` [24, {}]",
            activations.tokens(),
            extent.causes.min(activations.tokens()),
            extent.compounded.min(activations.tokens()),
            sites.width(),
            sites.count(),
            4 * sites.width()
        ),
        labels,
        cases: Vec::<()>::new(),
        provenance,
    };
    Ok((judge::report(&INFO, &cases, &swept, Some(&through(&chains))), kernels))
}

/// Phases of a test, each of which passes once through all sites.
pub const PHASES: u64 = 4;

/// Everything but the chains.
fn swept(
    sites: &dyn Sites,
    activations: &dyn Activations,
    labels: &[String],
    candidates: &[Candidate],
    extent: Extent,
    outside: Option<&dyn Outside>,
    tick: &(dyn Fn(&str) -> Result<(), Failure> + Sync),
) -> Result<Swept, Failure> {
    let whole = alone(sites, activations, candidates, Inputs::Still, outside, &|| tick("candidates"))?;
    let alone_in: Vec<Vec<(String, String, Candidate)>> = candidates.iter().map(pieces).collect();
    let splits = SPLITS.map(|(name, says, runs)| (name, says, sums(Accumulate::f32(runs))));
    let mut some: Vec<Candidate> = alone_in.iter().flatten().map(|(_, _, piece)| piece.clone()).collect();
    some.extend(splits.iter().map(|(_, _, candidate)| candidate.clone()));
    let few = First::of(activations, extent.causes);
    let causes = alone(sites, &few, &some, Inputs::Moved(1), None, &|| tick("causes and noise band"))?;
    let orders = ORDERS.map(|(name, says, order)| (name, says, sums(Accumulate { order, ..Accumulate::f32(1) })));
    let fewer = First::of(activations, extent.orders);
    let ordered =
        alone(sites, &fewer, &orders.each_ref().map(|o| o.2.clone()), Inputs::Still, None, &|| tick("orders of sums"))?;

    let mut band = vec![
        member("stored", "the reference's own streams, stored in bf16", &stored(&whole)),
        member(
            "input-ulp",
            "one activation in eight moved by one unit in the last place of bf16",
            &ArithmeticErrors { parts: causes.moved.clone(), tokens: Vec::new() },
        ),
    ];
    let mut made = causes.arithmetics.into_iter();
    let mut tried = Vec::new();
    for ((candidate, errors), alone_in) in candidates.iter().zip(whole.arithmetics).zip(alone_in) {
        let name = &candidate.name;
        let alone = alone_in.into_iter().zip(made.by_ref()).map(|((point, rounding, _), errors)| sweep::Alone {
            point,
            rounding,
            measured: measured(name, &errors),
        });
        let alone = alone.collect();
        let heat = heat(name, &errors.tokens, labels);
        let measured = measured(name, &errors);
        tried.push(Tried { measured, spreads: Vec::new(), heat, alone, candidate: candidate.clone() });
    }
    let orders = orders.iter().map(|(name, says, _)| (*name, *says)).zip(ordered.arithmetics);
    let splits = splits.iter().map(|(name, says, _)| (*name, *says)).zip(made);
    band.extend(orders.chain(splits).map(|((name, says), errors)| member(name, says, &errors)));
    let kernels = kernels(sites, activations, candidates, outside, &labels[0])?;
    let (twins, candidates) = tried.into_iter().partition(|t| t.candidate.fault.is_some());
    Ok(Swept { kept: None, band, candidates, twins, kernels, failed: Vec::new(), astray: Vec::new() })
}

/// Bits and times of the kernels at the first site.
fn kernels(
    sites: &dyn Sites,
    activations: &dyn Activations,
    candidates: &[Candidate],
    outside: Option<&dyn Outside>,
    label: &str,
) -> Result<Vec<KernelRun>, Failure> {
    let good = candidates.iter().filter(|c| c.cuda.is_some() && c.fault.is_none());
    let Some(outside) = outside.filter(|_| sites.count() > 0) else { return Ok(Vec::new()) };
    let streams = first_streams(activations, STREAMS * sites.width());
    let task = outside::handed(&checked(sites, 0)?.mixing, &streams).task;
    let mut kernels = Vec::new();
    for candidate in good {
        let run = outside.measure(candidate, &task)?;
        kernels.extend(run.map(|run| KernelRun { case: label.to_owned(), ..run }));
    }
    Ok(kernels)
}

const ORDERS: [(&str, &str, Order); 2] = [
    ("descending", "f32 sums from the last term to the first, of the first tokens", Order::Descending),
    ("pairwise", "f32 sums by halves, of the first tokens", Order::Pairwise),
];

fn sums(accumulate: Accumulate) -> Candidate {
    debug_assert_eq!(accumulate.dtype, Rounding::F32);
    Candidate { accumulate, ..Candidate::exact(INFO.name) }
}

/// The floor as an arithmetic: only its streams err.
fn stored(whole: &Alone) -> ArithmeticErrors {
    let parts = whole.stored.iter().map(|streams| {
        let exact = PartSums { right: 1.0, got: 1.0, ..PartSums::default() };
        [exact, exact, exact, *streams]
    });
    ArithmeticErrors { parts: parts.collect(), tokens: Vec::new() }
}

fn member(name: &str, says: &str, errors: &ArithmeticErrors) -> BandMember {
    BandMember { says: says.into(), measured: measured(name, errors) }
}

fn measured(name: &str, errors: &ArithmeticErrors) -> Measured {
    let part = |(at, name): (usize, &&'static str)| PartErrors {
        name,
        rel_l2: errors.parts.iter().map(|site| site[at].rel_l2()).collect(),
        calc_diff: errors.parts.iter().map(|site| site[at].calc_diff()).collect(),
    };
    Measured { name: name.into(), parts: PARTS.iter().enumerate().map(part).collect(), kept: None, largest_shift: 0.0 }
}

/// Sites by groups of eight tokens, the greatest error of each.
fn heat(name: &str, tokens: &[Vec<f32>], labels: &[String]) -> Heat {
    // NaN stands for itself: it must not vanish beside a number.
    let worst = |group: &[f32]| group.iter().copied().reduce(|a, b| if a.is_nan() || a > b { a } else { b });
    let line =
        |site: &Vec<f32>| Row(site.chunks(GROUP).filter_map(worst).map(|e| three_digits(f64::from(e))).collect());
    Heat {
        candidate: name.into(),
        lines: labels[..tokens.len()].to_vec(),
        column: "token".into(),
        columns: (0..tokens.first().map_or(0, Vec::len)).step_by(GROUP).map(|token| token as u64).collect(),
        values: tokens.iter().map(line).collect(),
    }
}

/// The chains without rounded streams, as in the test on the lab's model.
fn through(chains: &Compounded) -> Through {
    let whole = |errors: &Vec<PartSums>| Whole {
        compounded: errors.iter().map(PartSums::rel_l2).collect(),
        ..Whole::default()
    };
    Through { candidates: chains.exact.iter().map(whole).collect(), floor: whole(&chains.floor) }
}

/// The first tokens of larger inputs.
pub(super) struct First<'a> {
    inner: &'a dyn Activations,
    tokens: usize,
}

impl<'a> First<'a> {
    /// At most so many, in whole groups.
    pub(super) fn of(inner: &'a dyn Activations, tokens: usize) -> Self {
        Self { inner, tokens: tokens.min(inner.tokens()).next_multiple_of(GROUP) }
    }
}

impl Activations for First<'_> {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn at_site(&self, site: usize) -> Result<(), Failure> {
        self.inner.at_site(site)
    }

    fn entering(&self, token: usize, streams: &mut [bf16]) -> bool {
        self.inner.entering(token, streams)
    }

    fn first(&self, token: usize, streams: &mut [f64]) {
        self.inner.first(token, streams);
    }

    fn output(&self, site: usize, token: usize, channel: usize, mean: &[f64], output: &mut [f64]) {
        self.inner.output(site, token, channel, mean, output);
    }
}

#[cfg(test)]
#[path = "swept_tests.rs"]
mod tests;
