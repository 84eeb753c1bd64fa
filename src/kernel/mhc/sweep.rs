//! The measurements of `mhc-mix`.
//!
//! Responsible for running reference, floor, candidates and twins through the model and for their
//! errors. Not responsible for what the errors mean.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::candidate::{self, Candidate};
use crate::kernel::format::Rounding;
use crate::kernel::measure::{Choice, Unfit, choices, rel_l2};
use crate::kernel::oracle::experts::Chosen;
use crate::kernel::oracle::hyper::{Coefficients, MIXES, combine, site_input};
use crate::kernel::oracle::model::{Model, SITES, Step, VOCABULARY, WIDTH};

/// The relative L2 error at one site, or why there is none.
pub type SiteError = Result<f64, Unfit>;

/// Somebody cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Counts sites, tells the progress, and asks whether to go on.
#[expect(missing_debug_implementations, reason = "it holds the caller's functions")]
pub struct Ticker<'a> {
    done: AtomicU64,
    total: u64,
    progress: &'a (dyn Fn(u64, u64, &str) + Sync),
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Ticker<'a> {
    /// A ticker that expects `total` sites.
    pub fn new(
        total: u64,
        progress: &'a (dyn Fn(u64, u64, &str) + Sync),
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { done: AtomicU64::new(0), total, progress, cancelled }
    }

    /// One more site of this phase is done.
    ///
    /// # Errors
    /// Somebody cancelled.
    pub fn tick(&self, phase: &str) -> Result<(), Cancelled> {
        if (self.cancelled)() {
            return Err(Cancelled);
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(done, self.total, phase);
        Ok(())
    }
}

/// The forward pass in f64, with everything that a site is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Streams `[tokens, 4, width]` before the first site.
    pub first: Vec<f64>,
    /// What each site made.
    pub sites: Vec<ReferenceSite>,
    /// Logits `[tokens, vocabulary]`.
    pub logits: Vec<f64>,
}

/// One site of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceSite {
    /// Mixes of each token.
    pub mixes: Vec<[f64; MIXES]>,
    /// Input, sublayer's output, experts and new streams.
    pub step: Step,
}

impl Reference {
    /// Streams that enter a site.
    pub fn entering(&self, site: usize) -> &[f64] {
        if site == 0 { &self.first } else { &self.sites[site - 1].step.streams }
    }
}

/// Each site alone, fed with the reference's streams and with the reference's sublayer output, so
/// that it shows the mixing and no expert that changed its mind.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// Errors of the mixes.
    pub mixes: Vec<SiteError>,
    /// Errors of the site input.
    pub input: Vec<SiteError>,
    /// Errors of the new streams.
    pub streams: Vec<SiteError>,
}

/// The whole forward pass, every site fed with what came before.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// Errors of the streams after each site.
    pub streams: Vec<SiteError>,
    /// Tokens that took other experts than in the reference, by site.
    pub other_experts: Vec<u64>,
    /// The top choice at each position.
    pub choices: Vec<Choice>,
}

/// Runs the reference over a prompt.
///
/// # Errors
/// Somebody cancelled.
pub fn reference(model: &Model, ids: &[u16], ticker: &Ticker<'_>) -> Result<Reference, Cancelled> {
    let mut reference = Reference { first: model.embed(ids), sites: Vec::with_capacity(SITES), logits: Vec::new() };
    for site in 0..SITES {
        let (mixes, coefficients) = model.coefficients(site, reference.entering(site));
        let step = model.step(site, reference.entering(site), &coefficients);
        reference.sites.push(ReferenceSite { mixes, step });
        ticker.tick("reference")?;
    }
    reference.logits = model.logits(reference.entering(SITES));
    Ok(reference)
}

/// Measures each site of a candidate alone.
///
/// # Errors
/// Somebody cancelled.
pub fn alone(
    model: &Model,
    reference: &Reference,
    candidate: &Candidate,
    ticker: &Ticker<'_>,
) -> Result<Alone, Cancelled> {
    let mut errors = Alone { mixes: Vec::new(), input: Vec::new(), streams: Vec::new() };
    for (site, right) in reference.sites.iter().enumerate() {
        let streams = reference.entering(site);
        let mixes = candidate::mixes(candidate, model.site(site), streams);
        let coefficients = candidate::coefficients(candidate, model.site(site), &mixes);
        let input = site_input(coefficients.iter().map(|c| c.pre), streams, WIDTH);
        let mixed = combine(&coefficients, &right.step.output, streams, WIDTH);
        errors.mixes.push(rel_l2(mixes.as_flattened(), right.mixes.as_flattened()));
        errors.input.push(rel_l2(&input, &right.step.input));
        errors.streams.push(rel_l2(&mixed, &right.step.streams));
        ticker.tick(&candidate.name)?;
    }
    Ok(errors)
}

/// The floor of each site alone: the reference's own streams, rounded to bf16.
pub fn floor_alone(reference: &Reference) -> Alone {
    let streams = reference.sites.iter().map(|s| rel_l2(&to_bf16(&s.step.streams), &s.step.streams));
    Alone { mixes: Vec::new(), input: Vec::new(), streams: streams.collect() }
}

/// Measures the whole pass with a candidate mixing at every site; without one, the floor: the
/// reference with its streams rounded to bf16 after every site.
///
/// # Errors
/// Somebody cancelled.
pub fn whole(
    model: &Model,
    reference: &Reference,
    candidate: Option<&Candidate>,
    ticker: &Ticker<'_>,
) -> Result<Whole, Cancelled> {
    let phase = candidate.map_or(super::FLOOR, |c| c.name.as_str());
    let (mut errors, mut other_experts) = (Vec::new(), Vec::new());
    let mut streams = reference.first.clone();
    for (site, right) in reference.sites.iter().enumerate() {
        let step = model.step(site, &streams, &coefficients(model, site, &streams, candidate));
        streams = if candidate.is_none() { to_bf16(&step.streams) } else { step.streams };
        errors.push(rel_l2(&streams, &right.step.streams));
        other_experts.push(differing(&step.chosen, &right.step.chosen));
        ticker.tick(phase)?;
    }
    let choices = choices(&model.logits(&streams), &reference.logits, VOCABULARY);
    Ok(Whole { streams: errors, other_experts, choices })
}

fn coefficients(model: &Model, site: usize, streams: &[f64], candidate: Option<&Candidate>) -> Vec<Coefficients> {
    let Some(candidate) = candidate else { return model.coefficients(site, streams).1 };
    let mixes = candidate::mixes(candidate, model.site(site), streams);
    candidate::coefficients(candidate, model.site(site), &mixes)
}

fn differing(got: &[Chosen], right: &[Chosen]) -> u64 {
    got.iter().zip(right).filter(|(a, b)| a != b).count() as u64
}

fn to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| Rounding::Bf16.round(*v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::candidate::{Accumulate, Fault};
    use crate::kernel::checkpoint::Checkpoint;

    fn small() -> (Model, Reference) {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let ids: Vec<u16> = b"the key is QX7".iter().map(|b| u16::from(*b)).collect();
        let reference = reference(&model, &ids, &quiet()).unwrap();
        (model, reference)
    }

    fn quiet() -> Ticker<'static> {
        Ticker::new(1, &|_, _, _| {}, &|| false)
    }

    fn exact() -> Candidate {
        Candidate {
            name: "exact".into(),
            says: String::new(),
            weight: Rounding::Exact,
            activation: Rounding::Exact,
            product_accumulate: Accumulate::F64,
            output: Rounding::Exact,
            fault: Fault::None,
        }
    }

    #[test]
    fn exact_arithmetic_has_no_error_anywhere() {
        let (model, reference) = small();
        let errors = alone(&model, &reference, &exact(), &quiet()).unwrap();
        assert!([&errors.mixes, &errors.input, &errors.streams].iter().all(|e| **e == vec![Ok(0.0); SITES]));
        let errors = whole(&model, &reference, Some(&exact()), &quiet()).unwrap();
        assert_eq!(errors.streams, vec![Ok(0.0); SITES]);
        assert!(errors.choices.iter().all(|c| !c.flipped && c.margin == c.margin_got));
    }

    #[test]
    fn a_site_alone_does_not_inherit_errors_and_a_whole_pass_does() {
        let (model, reference) = small();
        let candidate = Candidate { weight: Rounding::Bf16, ..exact() };
        let alone = alone(&model, &reference, &candidate, &quiet()).unwrap();
        let whole = whole(&model, &reference, Some(&candidate), &quiet()).unwrap();
        assert!(whole.streams[11].unwrap() > alone.streams[11].unwrap());
    }

    #[test]
    fn weights_that_are_no_numbers_reach_the_curve_and_stop_nothing() {
        let (mut model, reference) = small();
        // The ninth row mixes the first entry of the combination matrix.
        model.blocks[1].sites[0].rows[8 * 512 + 5] = f64::NAN;
        let candidate = Candidate { weight: Rounding::F32, ..exact() };
        let errors = alone(&model, &reference, &candidate, &quiet()).unwrap();
        assert!(errors.streams[1].is_ok());
        assert!(matches!(errors.streams[2], Err(Unfit::NotANumber { .. })));
        let errors = whole(&model, &reference, Some(&candidate), &quiet()).unwrap();
        assert!(errors.streams[1].is_ok() && errors.streams[11].is_err());
        assert!(errors.choices.iter().all(|c| c.flipped));
    }

    #[test]
    fn cancelling_stops_within_one_site() {
        let (model, reference) = small();
        let count = AtomicU64::new(0);
        let cancelled = || count.fetch_add(1, Ordering::Relaxed) >= 3;
        let ticker = Ticker::new(12, &|_, _, _| {}, &cancelled);
        assert_eq!(whole(&model, &reference, Some(&exact()), &ticker), Err(Cancelled));
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }
}
