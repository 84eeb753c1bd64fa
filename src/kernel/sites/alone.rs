//! Each site alone: every arithmetic with the reference's streams and the reference's output.
//!
//! Responsible for the chain of reference streams, the errors of all arithmetics at each site, and
//! the floor. Not responsible for what the numbers mean.
//!
//! Tokens are shared out in blocks whose sums are added in the order of the tokens, so that the
//! number of threads changes no bit.

use half::bf16;
use pulp::Arch;
use rayon::prelude::*;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::oracle::hyper::{MIXES, STREAMS};
use crate::kernel::sites::advance::Advance;
use crate::kernel::sites::block::Packed;
use crate::kernel::sites::coefficients::{Affine, Mixed, coefficients, mixes};
use crate::kernel::sites::compounded::first_streams;
use crate::kernel::sites::gram::{Gram, dot};
use crate::kernel::sites::group::{GROUP, Lanes, vectorised};
use crate::kernel::sites::moved::Moved;
use crate::kernel::sites::outside::{self, Groups};
use crate::kernel::sites::plan::Plan;
use crate::kernel::sites::sublayer::sublayer;
use crate::kernel::sites::sums::{PartLanes, PartSums};
use crate::kernel::sites::{Activations, SiteWeights, Sites, checked};
use crate::kernel::task::Outside;

/// What is compared, in the order of the arithmetic; the last is the main part.
pub const PARTS: [&str; 4] = ["mixes", "comb", "site-input", "streams"];

/// Groups of a block: so many tokens share one pass over a stretch of weights.
const BLOCK: usize = 4;

/// Errors at every site.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// Those of each arithmetic, in the order that they were given.
    pub arithmetics: Vec<ArithmeticErrors>,
    /// The floor: the new streams of the reference, rounded to bf16, by site.
    pub stored: Vec<PartSums>,
    /// The reference on streams of which one value in eight moved by one unit in the last place of
    /// bf16, by site, each of [`PARTS`]; empty where that was not asked for.
    pub moved: Vec<[PartSums; PARTS.len()]>,
}

/// Whether the reference is also run on inputs that moved by one unit in the last place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// As they are alone.
    Still,
    /// Also moved, by this seed.
    Moved(u64),
}

/// Errors of one arithmetic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArithmeticErrors {
    /// By site, each of [`PARTS`].
    pub parts: Vec<[PartSums; PARTS.len()]>,
    /// Relative error of the new streams by site and token.
    pub tokens: Vec<Vec<f32>>,
}

/// Measures arithmetics at every site, those with kernels or a command by `outside`; `tick` is told when
/// a site is done and may end the sweep.
///
/// # Errors
/// Weights cannot be read or have another shape, what runs outside failed, or `tick` fails.
pub fn alone(
    sites: &dyn Sites,
    activations: &dyn Activations,
    arithmetics: &[Candidate],
    inputs: Inputs,
    outside: Option<&dyn Outside>,
    tick: &dyn Fn() -> Result<(), Failure>,
) -> Result<Alone, Failure> {
    let inner = STREAMS * sites.width();
    let plan = Plan::new(arithmetics, true);
    let mut packed = Packed::new(&plan, sites.width());
    let mut streams = first_streams(activations, inner);
    let none = vec![ArithmeticErrors::default(); arithmetics.len()];
    let mut found = Alone { arithmetics: none, stored: Vec::new(), moved: Vec::new() };
    for site in 0..sites.count() {
        let weights = checked(sites, site)?;
        packed.fill(&weights.mixing);
        activations.at_site(site)?;
        let groups = streams.par_chunks_mut(inner * GROUP).enumerate();
        groups.for_each(|(group, streams)| {
            activations.entering(group * GROUP, streams);
        });
        let made = made_outside(outside, arithmetics, &weights.mixing, &streams)?;
        let (affine, made) = (affine(&weights), made.as_slice());
        let at = At { site, affine, packed: &packed, plan: &plan, activations, arithmetics, inputs, made };
        let blocks: Vec<BlockErrors> = streams
            .par_chunks_mut(BLOCK * inner * GROUP)
            .enumerate()
            .map(|(block, streams)| at.block(block * BLOCK * GROUP, streams))
            .collect();
        add(&mut found, &blocks);
        tick()?;
    }
    Ok(found)
}

/// The products of those that are not made here; `None` for all others.
fn made_outside(
    outside: Option<&dyn Outside>,
    arithmetics: &[Candidate],
    mixing: &[f32],
    streams: &[bf16],
) -> Result<Vec<Option<Groups>>, Failure> {
    let Some(outside) = outside.filter(|_| arithmetics.iter().any(Candidate::is_outside)) else {
        return Ok(vec![None; arithmetics.len()]);
    };
    let site = outside::handed(mixing, streams);
    let one = |candidate: &Candidate| {
        candidate.is_outside().then(|| outside::products(outside, candidate, &site)).transpose()
    };
    arithmetics.iter().map(one).collect()
}

/// Makes the products of all arithmetics at every site on the streams before the first, and nothing
/// else: for benches, what the sweep costs at least. Gives how many distinct products there are, and
/// the sum of all, so that none can be left out.
///
/// # Errors
/// Weights cannot be read or have another shape.
pub fn products_alone(
    sites: &dyn Sites,
    activations: &dyn Activations,
    arithmetics: &[Candidate],
) -> Result<(usize, f64), Failure> {
    let inner = STREAMS * sites.width();
    let plan = Plan::new(arithmetics, true);
    let mut packed = Packed::new(&plan, sites.width());
    let streams = first_streams(activations, inner);
    let mut sum = 0.0;
    for site in 0..sites.count() {
        packed.fill(&checked(sites, site)?.mixing);
        let blocks = streams.par_chunks(BLOCK * inner * GROUP);
        let made: Vec<f64> = blocks
            .map(|streams| {
                let products = packed.products(streams, &plan.all()).made;
                products.iter().flatten().map(|group| group.as_flattened().iter().sum::<f64>()).sum()
            })
            .collect();
        sum += made.iter().sum::<f64>();
    }
    Ok((plan.keys.len(), sum))
}

/// Scales and offsets in f64.
pub(super) fn affine(weights: &SiteWeights) -> Affine {
    Affine { scale: weights.scale.map(f64::from), base: weights.base.map(f64::from) }
}

fn add(found: &mut Alone, blocks: &[BlockErrors]) {
    for (a, errors) in found.arithmetics.iter_mut().enumerate() {
        let mut parts = [PartSums::default(); PARTS.len()];
        let mut tokens = Vec::new();
        for block in blocks {
            parts.iter_mut().zip(&block.parts[a]).for_each(|(sum, part)| sum.add(part));
            tokens.extend_from_slice(&block.tokens[a]);
        }
        errors.parts.push(parts);
        errors.tokens.push(tokens);
    }
    let mut stored = PartSums::default();
    for block in blocks {
        stored.add(&block.stored);
    }
    found.stored.push(stored);
    let moved: Vec<&[PartSums; PARTS.len()]> = blocks.iter().filter_map(|block| block.moved.as_ref()).collect();
    if !moved.is_empty() {
        let mut parts = [PartSums::default(); PARTS.len()];
        for block in moved {
            parts.iter_mut().zip(block).for_each(|(sum, part)| sum.add(part));
        }
        found.moved.push(parts);
    }
}

/// What a block of tokens found at a site.
struct BlockErrors {
    parts: Vec<[PartSums; PARTS.len()]>,
    tokens: Vec<Vec<f32>>,
    stored: PartSums,
    moved: Option<[PartSums; PARTS.len()]>,
}

/// One site.
struct At<'a> {
    site: usize,
    affine: Affine,
    packed: &'a Packed,
    plan: &'a Plan,
    activations: &'a dyn Activations,
    arithmetics: &'a [Candidate],
    inputs: Inputs,
    /// Products that were made outside.
    made: &'a [Option<Groups>],
}

/// The reference's part of a comparison, and the Gram matrices.
pub(super) struct Right {
    mixes: [Lanes; MIXES],
    mixed: Mixed,
    gram: Gram,
    /// G c of the site input and of each new stream.
    input: [Lanes; 1 + STREAMS],
    new: [[Lanes; 1 + STREAMS]; STREAMS],
}

impl At<'_> {
    fn block(&self, token: usize, streams: &mut [bf16]) -> BlockErrors {
        let arch = Arch::new();
        let inner = self.packed.inner();
        let products = self.packed.products(streams, &self.plan.all());
        let mut found = BlockErrors {
            parts: vec![[PartSums::default(); PARTS.len()]; self.arithmetics.len()],
            tokens: vec![Vec::with_capacity(BLOCK * GROUP); self.arithmetics.len()],
            stored: PartSums::default(),
            moved: None,
        };
        let moved = match self.inputs {
            Inputs::Still => None,
            Inputs::Moved(seed) => Some(Moved::new(self.packed, streams, seed, (self.site, token))),
        };
        let mut output = vec![0.0; inner / STREAMS * GROUP];
        for (g, streams) in streams.chunks_exact_mut(inner * GROUP).enumerate() {
            let first = token + g * GROUP;
            let gram = sublayer(self.activations, self.site, first, streams, &mut output);
            let (squares, affine) = (&products.squares[g], &self.affine);
            let right = arch.dispatch(MakeRight { product: &products.made[0][g], squares, inner, affine, gram: &gram });
            for (a, candidate) in self.arithmetics.iter().enumerate() {
                let product = match &self.made[a] {
                    Some(groups) => &groups[first / GROUP],
                    None => &products.made[self.plan.of[a]][g],
                };
                let parts = &mut found.parts[a];
                let right = &right;
                let errors =
                    arch.dispatch(Compare { right, product, squares, affine, candidate, token: first, inner, parts });
                found.tokens[a].extend((0..GROUP).map(|lane| errors.relative(lane) as f32));
            }
            if let Some(moved) = &moved {
                let parts = found.moved.get_or_insert_default();
                moved.compare(g, streams, &output, affine, (&right.mixes, &right.mixed), parts);
            }
            let stored = arch.dispatch(Advance { streams, output: &output, mixed: &right.mixed });
            found.stored.add_lanes(&stored);
        }
        found
    }
}

vectorised! {
    /// What the reference makes of its product.
    MakeRight<'a> { product: &'a [Lanes; MIXES], squares: &'a Lanes, inner: usize, affine: &'a Affine, gram: &'a Gram } |_| -> Right {
        let exact = Candidate::default();
        let mixes = mixes(product, squares, inner, &exact);
        let mixed = coefficients(&mixes, affine, &exact);
        let input = gram.times(&mixed.site_input());
        let new = std::array::from_fn(|k| gram.times(&mixed.new_stream(k)));
        Right { mixes, mixed, gram: *gram, input, new }
    }
}

vectorised! {
    /// What a candidate makes of its product, compared with the reference.
    Compare<'a> {
        right: &'a Right,
        product: &'a [Lanes; MIXES],
        squares: &'a Lanes,
        affine: &'a Affine,
        candidate: &'a Candidate,
        token: usize,
        inner: usize,
        parts: &'a mut [PartSums; PARTS.len()],
    } |_| -> PartLanes {
        let got = mixes(product, squares, inner, candidate);
        let mixed = coefficients(&got, affine, candidate);
        right.compare(&got, &mixed, token, inner / STREAMS, parts)
    }
}

impl Right {
    /// Adds the errors of all parts to `parts`, and gives those of the new streams by token.
    #[inline(always)]
    fn compare(
        &self,
        mixes: &[Lanes; MIXES],
        mixed: &Mixed,
        token: usize,
        width: usize,
        parts: &mut [PartSums; PARTS.len()],
    ) -> PartLanes {
        let [mut of_mixes, mut of_comb, mut of_input, mut of_new] = [PartLanes::default(); PARTS.len()];
        for (got, right) in mixes.iter().zip(&self.mixes) {
            of_mixes.element(got, right);
        }
        for (got, right) in mixed.comb.as_flattened().iter().zip(self.mixed.comb.as_flattened()) {
            of_comb.element(got, right);
        }
        let (got, right) = (mixed.site_input(), self.mixed.site_input());
        self.form(&got, &right, &self.input, &mut of_input);
        for k in 0..STREAMS {
            self.form(&mixed.new_stream(k), &self.mixed.new_stream(k), &self.new[k], &mut of_new);
        }
        for (part, lanes) in parts.iter_mut().zip([&of_mixes, &of_comb, &of_input, &of_new]) {
            part.add_lanes(lanes);
        }
        if [&of_mixes, &of_new, &of_input].iter().any(|p| p.got.iter().any(|g| !g.is_finite())) {
            inspect(mixes, mixed, token, width, parts);
        }
        of_new
    }

    /// Adds the norms of what two sets of coefficients make; `gram_right` is G times the second.
    #[inline(always)]
    fn form(
        &self,
        got: &[Lanes; 1 + STREAMS],
        right: &[Lanes; 1 + STREAMS],
        gram_right: &[Lanes; 1 + STREAMS],
        sums: &mut PartLanes,
    ) {
        let d = std::array::from_fn(|a| std::array::from_fn(|lane| got[a][lane] - right[a][lane]));
        let off = dot(&d, &self.gram.times(&d));
        let whole = dot(right, gram_right);
        let along = dot(&d, gram_right);
        for lane in 0..GROUP {
            sums.off[lane] += off[lane];
            sums.right[lane] += whole[lane];
            sums.got[lane] += whole[lane] + 2.0 * along[lane] + off[lane];
            sums.along[lane] += along[lane];
        }
    }
}

/// Notes which elements are not finite: a coefficient that is not spoils a whole vector.
fn inspect(mixes: &[Lanes; MIXES], mixed: &Mixed, token: usize, width: usize, parts: &mut [PartSums; PARTS.len()]) {
    let worst = |c: [Lanes; 1 + STREAMS], lane: usize| c.iter().map(|c| c[lane]).sum::<f64>();
    for lane in 0..GROUP {
        let token = (token + lane) as u64;
        for (i, mix) in mixes.iter().enumerate() {
            parts[0].inspect(mix[lane], 1, token * MIXES as u64 + i as u64);
        }
        for (i, c) in mixed.comb.as_flattened().iter().enumerate() {
            parts[1].inspect(c[lane], 1, token * (STREAMS * STREAMS) as u64 + i as u64);
        }
        let width = width as u64;
        parts[2].inspect(worst(mixed.site_input(), lane), width, token * width);
        for k in 0..STREAMS {
            let first = (token * STREAMS as u64 + k as u64) * width;
            parts[3].inspect(worst(mixed.new_stream(k), lane), width, first);
        }
    }
}

#[cfg(test)]
#[path = "alone_tests.rs"]
mod tests;
