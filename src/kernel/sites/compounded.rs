//! Every arithmetic with a chain of its own streams through all sites.
//!
//! Responsible for the chains and for their distance from the reference's after each site. Not
//! responsible for what the numbers mean.
//!
//! The **reference** is f64 throughout, its streams are never rounded. The **floor** is the same
//! arithmetic with streams stored in bf16 after every site, as the model does. A candidate runs
//! twice: with streams that are not rounded, which shows its own error and nothing else, and with
//! streams stored in bf16, which shows what a server would have. The second varies by as much as the
//! floor is high, whatever the candidate: one stream value that is rounded the other way changes all
//! that come after.
//!
//! Streams that were recorded at a later site enter no chain: a chain has the first ones and what comes of them.
//!
//! All chains are given the output that the sublayer makes of the *reference's* streams: an error
//! does not pass through the sublayers, neither damped nor amplified.

use half::bf16;
use pulp::Arch;
use rayon::prelude::*;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::oracle::hyper::{MIXES, STREAMS};
use crate::kernel::sites::advance::Advance;
use crate::kernel::sites::alone::affine;
use crate::kernel::sites::block::Packed;
use crate::kernel::sites::coefficients::{Affine, Mixed, coefficients, mixes};
use crate::kernel::sites::group::{GROUP, Lanes, Stored, vectorised};
use crate::kernel::sites::outside::{self, Groups};
use crate::kernel::sites::plan::Plan;
use crate::kernel::sites::sublayer::sublayer;
use crate::kernel::sites::sums::PartSums;
use crate::kernel::sites::{Activations, Sites, checked};
use crate::kernel::task::Outside;

/// Errors of the streams after each site.
#[derive(Clone, Debug, PartialEq)]
pub struct Compounded {
    /// Those of the floor.
    pub floor: Vec<PartSums>,
    /// Those of each arithmetic with streams that are not rounded, in the order that they were given.
    pub exact: Vec<Vec<PartSums>>,
    /// Those of each arithmetic with streams stored in bf16.
    pub stored: Vec<Vec<PartSums>>,
}

/// Runs all chains, those with kernels or a command by `outside`; `tick` is told when a site is done and
/// may end the sweep.
///
/// # Errors
/// Weights cannot be read or have another shape, what runs outside failed, or `tick` fails.
pub fn compounded(
    sites: &dyn Sites,
    activations: &dyn Activations,
    arithmetics: &[Candidate],
    outside: Option<&dyn Outside>,
    tick: &dyn Fn() -> Result<(), Failure>,
) -> Result<Compounded, Failure> {
    let inner = STREAMS * sites.width();
    let plans = [Plan::new(arithmetics, false), Plan::new(arithmetics, true)];
    let mut packed = plans.each_ref().map(|plan| Packed::new(plan, sites.width()));
    let first = first_streams(activations, inner);
    let mut reference: Vec<f64> = first.iter().map(|v| v.wide()).collect();
    let mut outputs = vec![0.0; reference.len() / STREAMS];
    let mut chains: Vec<Chain> = vec![Chain::new(None, Streams::Bf16(first.clone()))];
    chains.extend((0..arithmetics.len()).map(|a| Chain::new(Some(a), Streams::F64(reference.clone()))));
    chains.extend((0..arithmetics.len()).map(|a| Chain::new(Some(a), Streams::Bf16(first.clone()))));

    for site in 0..sites.count() {
        let weights = checked(sites, site)?;
        activations.at_site(site)?;
        for packed in &mut packed {
            packed.fill(&weights.mixing);
        }
        let affine = affine(&weights);
        let exact = Candidate::default();
        let groups = reference.par_chunks_mut(inner * GROUP).zip(outputs.par_chunks_mut(inner / STREAMS * GROUP));
        groups.enumerate().for_each(|(group, (streams, output))| {
            sublayer(activations, site, group * GROUP, streams, output);
            step(&packed[0], 0, None, &exact, &affine, streams, output);
        });
        for chain in &mut chains {
            chain.made = chain.made_outside(outside, arithmetics, &weights.mixing)?;
        }
        chains.par_iter_mut().for_each(|chain| {
            let candidate = chain.arithmetic.map_or(&exact, |a| &arithmetics[a]);
            let key = |plan: &Plan| chain.arithmetic.map_or(0, |a| plan.of[a]);
            let made = chain.made.as_deref();
            let found = match &mut chain.streams {
                Streams::F64(streams) => {
                    step(&packed[0], key(&plans[0]), made, candidate, &affine, streams, &outputs);
                    distance(streams, &reference)
                }
                Streams::Bf16(streams) => {
                    step(&packed[1], key(&plans[1]), made, candidate, &affine, streams, &outputs);
                    distance(streams, &reference)
                }
            };
            chain.errors.push(found);
        });
        tick()?;
    }
    let mut errors = chains.into_iter().map(|chain| chain.errors);
    let floor = errors.next().unwrap_or_default();
    let exact = errors.by_ref().take(arithmetics.len()).collect();
    Ok(Compounded { floor, exact, stored: errors.collect() })
}

/// The streams before the first site, in bf16, `[groups][4 * width][8]`.
pub(super) fn first_streams(activations: &dyn Activations, inner: usize) -> Vec<bf16> {
    let mut streams = vec![bf16::ZERO; activations.tokens() * inner];
    streams.par_chunks_mut(inner * GROUP).enumerate().for_each(|(group, streams)| {
        let mut wide = vec![0.0; streams.len()];
        activations.first(group * GROUP, &mut wide);
        streams.iter_mut().zip(wide).for_each(|(to, from)| *to = Stored::keep(from));
    });
    streams
}

/// The streams of one arithmetic, and their errors so far.
struct Chain {
    /// Which arithmetic; `None` is that of the reference.
    arithmetic: Option<usize>,
    streams: Streams,
    /// Its products at the site, if they are made outside.
    made: Option<Groups>,
    errors: Vec<PartSums>,
}

impl Chain {
    fn new(arithmetic: Option<usize>, streams: Streams) -> Self {
        Self { arithmetic, streams, made: None, errors: Vec::new() }
    }

    fn made_outside(
        &self,
        outside: Option<&dyn Outside>,
        arithmetics: &[Candidate],
        mixing: &[f32],
    ) -> Result<Option<Groups>, Failure> {
        let candidate = self.arithmetic.map(|a| &arithmetics[a]).filter(|candidate| candidate.is_outside());
        let (Some(candidate), Some(outside)) = (candidate, outside) else { return Ok(None) };
        let site = match &self.streams {
            Streams::F64(streams) => outside::handed(mixing, streams),
            Streams::Bf16(streams) => outside::handed(mixing, streams),
        };
        outside::products(outside, candidate, &site).map(Some)
    }
}

enum Streams {
    F64(Vec<f64>),
    Bf16(Vec<bf16>),
}

/// Takes the streams of all groups through one site.
fn step<T: Stored>(
    packed: &Packed,
    key: usize,
    made: Option<&[[Lanes; MIXES]]>,
    candidate: &Candidate,
    affine: &Affine,
    streams: &mut [T],
    outputs: &[f64],
) {
    let arch = Arch::new();
    let inner = packed.inner();
    let products = packed.products(streams, &[key]);
    let groups = streams.chunks_exact_mut(inner * GROUP).zip(outputs.chunks_exact(inner / STREAMS * GROUP));
    for (g, (streams, output)) in groups.enumerate() {
        let product = made.map_or(&products.made[key][g], |groups| &groups[g]);
        let squares = &products.squares[g];
        let mixed = arch.dispatch(Mix { product, squares, inner, affine, candidate });
        arch.dispatch(Advance { streams, output, mixed: &mixed });
    }
}

vectorised! {
    /// What an arithmetic makes of its product.
    Mix<'a> {
        product: &'a [Lanes; MIXES],
        squares: &'a Lanes,
        inner: usize,
        affine: &'a Affine,
        candidate: &'a Candidate,
    } |_| -> Mixed {
        coefficients(&mixes(product, squares, inner, candidate), affine, candidate)
    }
}

/// How far streams lie from the reference's.
fn distance<T: Stored>(got: &[T], right: &[f64]) -> PartSums {
    let mut sums = PartSums::default();
    Arch::new().dispatch(Distance { got, right, sums: &mut sums });
    if !sums.got.is_finite() {
        for (i, got) in got.iter().enumerate() {
            sums.inspect(got.wide(), 1, i as u64);
        }
    }
    sums
}

vectorised! {
    /// Sums of the differences, lane by lane.
    Distance<'a, T: Stored> { got: &'a [T], right: &'a [f64], sums: &'a mut PartSums } |_| -> () {
        let (got, _) = got.as_chunks::<GROUP>();
        let (right, _) = right.as_chunks::<GROUP>();
        let [mut off, mut whole, mut of_got, mut along] = [[0.0; GROUP]; 4];
        for (got, right) in got.iter().zip(right) {
            for lane in 0..GROUP {
                let (got, right) = (got[lane].wide(), right[lane]);
                off[lane] += (got - right) * (got - right);
                whole[lane] += right * right;
                of_got[lane] += got * got;
                along[lane] += (got - right) * right;
            }
        }
        sums.off = off.iter().sum();
        sums.right = whole.iter().sum();
        sums.got = of_got.iter().sum();
        sums.along = along.iter().sum();
    }
}

#[cfg(test)]
#[path = "compounded_tests.rs"]
mod tests;
