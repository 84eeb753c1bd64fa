//! The mixing through the whole lab model: compounded, and injected at one site.
//!
//! Responsible for running reference, floor and candidates through all sites, and for what becomes
//! of the choices. Not responsible for a site by itself, which is [`crate::kernel::mhc::site`].

use rayon::prelude::*;

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::judge::{FLOOR, Through, Whole};
use crate::kernel::measure::{Choice, choices, rel_l2};
use crate::kernel::mhc::site::{coefficients, mixes};
use crate::kernel::oracle::experts::Chosen;
use crate::kernel::oracle::hyper::{Coefficients, STREAMS};
use crate::kernel::oracle::model::{Model, SITES, Step, VOCABULARY, WIDTH};
use crate::kernel::report::Decisions;
use crate::kernel::specs::activations;
use crate::kernel::sweep::{Cancelled, PointError, Ticker};

/// The forward pass in f64, with everything that a site is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Streams `[tokens, 4, width]` before the first site.
    pub first: Vec<f64>,
    /// What each site made.
    pub sites: Vec<Step>,
    /// Logits `[tokens, vocabulary]`.
    pub logits: Vec<f64>,
}

impl Reference {
    /// Streams that enter a site.
    pub fn entering(&self, site: usize) -> &[f64] {
        if site == 0 { &self.first } else { &self.sites[site - 1].streams }
    }
}

/// One pass through all sites, every site fed with what came before.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Errors of the streams after each site.
    pub streams: Vec<PointError>,
    /// Tokens that took other experts than in the reference, by site.
    pub other_experts: Vec<u64>,
    /// The top choice at each position.
    pub choices: Vec<Choice>,
}

/// Runs the reference from the streams before the first site on, such as those of [`Model::embed`].
///
/// # Errors
/// Somebody cancelled.
pub fn reference(model: &Model, first: Vec<f64>, ticker: &Ticker<'_>) -> Result<Reference, Cancelled> {
    let mut reference = Reference { first, sites: Vec::with_capacity(SITES), logits: Vec::new() };
    for site in 0..SITES {
        let (_, coefficients) = model.coefficients(site, reference.entering(site));
        let step = model.step(site, reference.entering(site), &coefficients);
        reference.sites.push(step);
        ticker.tick("reference")?;
    }
    reference.logits = model.logits(reference.entering(SITES));
    Ok(reference)
}

/// Site steps that [`through`] ticks off.
pub fn ticks(candidates: usize) -> u64 {
    (2 * SITES + candidates * (SITES + SITES * (SITES + 1) / 2)) as u64
}

/// Runs floor and candidates through the model.
///
/// The floor is the greater, at each site, of two right arithmetics: the reference with its streams
/// stored in bf16 after every site, and the reference on an embedding of which one value in eight
/// moved by one unit in the last place of bf16. Its decisions are those of the first.
///
/// # Errors
/// Somebody cancelled.
pub fn through(
    model: &Model,
    reference: &Reference,
    candidates: &[Candidate],
    ticker: &Ticker<'_>,
) -> Result<Through, Cancelled> {
    let stored = pass(model, reference, &reference.first, Arithmetic::Stored, ticker)?;
    let first = activations::moved(&reference.first, &mut activations::dice(1, 0));
    let moved = pass(model, reference, &first, Arithmetic::Exact, ticker)?;
    let top = stored.streams.iter().zip(&moved.streams).map(|(a, b)| Ok((*a)?.max((*b)?)));
    let floor = Whole {
        compounded: top.collect(),
        injected: Vec::new(),
        decisions: Some(decisions(FLOOR, &stored, &stored, reference)),
    };
    let candidates =
        candidates
            .par_iter()
            .map(|candidate| {
                let got = pass(model, reference, &reference.first, Arithmetic::Candidate(candidate), ticker)?;
                Ok(Whole {
                    decisions: Some(decisions(&candidate.name, &got, &stored, reference)),
                    injected: (0..SITES)
                        .map(|site| injected(model, reference, candidate, site, ticker))
                        .collect::<Result<_, Cancelled>>()?,
                    compounded: got.streams,
                })
            })
            .collect::<Result<_, Cancelled>>()?;
    Ok(Through { candidates, floor })
}

/// The arithmetic of a pass.
#[derive(Clone, Copy, Debug)]
pub enum Arithmetic<'a> {
    /// That of the reference.
    Exact,
    /// That of the reference, with its streams stored in bf16 after every site.
    Stored,
    /// A candidate's, at every site.
    Candidate(&'a Candidate),
}

/// One pass through all sites.
///
/// # Errors
/// Somebody cancelled.
pub fn pass(
    model: &Model,
    reference: &Reference,
    first: &[f64],
    arithmetic: Arithmetic<'_>,
    ticker: &Ticker<'_>,
) -> Result<Pass, Cancelled> {
    let (mut errors, mut other_experts) = (Vec::new(), Vec::new());
    let mut streams = first.to_vec();
    for (site, right) in reference.sites.iter().enumerate() {
        let step = model.step(site, &streams, &coefficients_by(model, site, &streams, arithmetic));
        streams = if matches!(arithmetic, Arithmetic::Stored) { to_bf16(&step.streams) } else { step.streams };
        errors.push(rel_l2(&streams, &right.streams));
        other_experts.push(differing(&step.chosen, &right.chosen));
        ticker.tick("whole model")?;
    }
    let choices = choices(&model.logits(&streams), &reference.logits, VOCABULARY);
    Ok(Pass { streams: errors, other_experts, choices })
}

/// Tokens from the beginning on which one site alone is injected: nothing looks ahead, so that what comes of the first
/// tokens is the same without the others, and there are as many passes as pairs of sites.
const INJECTED: usize = 64;

/// The error of the last streams of the first tokens, with the candidate at one site alone.
fn injected(
    model: &Model,
    reference: &Reference,
    candidate: &Candidate,
    at: usize,
    ticker: &Ticker<'_>,
) -> Result<PointError, Cancelled> {
    let first = |streams: &[f64]| streams[..streams.len().min(INJECTED * STREAMS * WIDTH)].to_vec();
    let mut streams = first(reference.entering(at));
    for site in at..SITES {
        let arithmetic = if site == at { Arithmetic::Candidate(candidate) } else { Arithmetic::Exact };
        streams = model.step(site, &streams, &coefficients_by(model, site, &streams, arithmetic)).streams;
        ticker.tick("one site in the whole model")?;
    }
    Ok(rel_l2(&streams, &first(reference.entering(SITES))))
}

fn coefficients_by(model: &Model, site: usize, streams: &[f64], arithmetic: Arithmetic<'_>) -> Vec<Coefficients> {
    let Arithmetic::Candidate(candidate) = arithmetic else { return model.coefficients(site, streams).1 };
    coefficients(candidate, model.site(site), &mixes(candidate, model.site(site), streams))
}

/// What changed in the decisions of a whole pass; the floor is judged against itself.
pub fn decisions(name: &str, got: &Pass, floor: &Pass, reference: &Reference) -> Decisions {
    let reach = largest_shift(floor).unwrap_or(f64::INFINITY);
    let flipped = || got.choices.iter().filter(|c| c.flipped).map(|c| c.margin);
    Decisions {
        candidate: name.into(),
        positions: got.choices.len() as u64,
        flips: flipped().count() as u64,
        flips_beyond_floor: flipped().filter(|margin| *margin > reach).count() as u64,
        widest_flipped: flipped().reduce(f64::max),
        largest_shift: largest_shift(got),
        expert_choices: reference.sites.iter().map(|s| s.chosen.len() as u64).sum(),
        expert_flips: got.other_experts.iter().sum(),
    }
}

fn largest_shift(pass: &Pass) -> Option<f64> {
    let shifts = pass.choices.iter().map(|c| (c.margin_got - c.margin).abs());
    let finite = pass.choices.iter().all(|c| c.margin_got.is_finite());
    shifts.reduce(|a, b| if a >= b { a } else { b }).filter(|s| s.is_finite() && finite)
}

fn differing(got: &[Chosen], right: &[Chosen]) -> u64 {
    got.iter().zip(right).filter(|(a, b)| a != b).count() as u64
}

fn to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| Rounding::Bf16.round(*v)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::kernel::candidate::Accumulate;
    use crate::kernel::checkpoint::Checkpoint;
    use crate::kernel::format::Storage;
    use crate::kernel::measure::Unfit;
    use crate::kernel::mhc::SPEC;

    fn small() -> (Model, Reference) {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let ids: Vec<u16> = b"the key is QX7".iter().map(|b| u16::from(*b)).collect();
        let reference = reference(&model, model.embed(&ids), &quiet()).unwrap();
        (model, reference)
    }

    fn quiet() -> Ticker<'static> {
        Ticker::new(1, &|_, _, _| {}, &|| false)
    }

    fn run(model: &Model, reference: &Reference, candidate: &Candidate) -> Pass {
        pass(model, reference, &reference.first, Arithmetic::Candidate(candidate), &quiet()).unwrap()
    }

    #[test]
    fn exact_arithmetic_has_no_error_anywhere() {
        let (model, reference) = small();
        let candidate = Candidate::exact(SPEC);
        let errors = run(&model, &reference, &candidate);
        assert_eq!(errors.streams, vec![Ok(0.0); SITES]);
        assert!(errors.choices.iter().all(|c| !c.flipped && c.margin == c.margin_got));
        assert_eq!(injected(&model, &reference, &candidate, 3, &quiet()).unwrap(), Ok(0.0));
    }

    #[test]
    fn an_error_at_one_site_reaches_the_end_and_is_less_than_at_all_sites() {
        let (model, reference) = small();
        let candidate =
            Candidate { round: [("weight".into(), Storage::Element(Rounding::Bf16))].into(), ..Candidate::exact(SPEC) };
        let whole = run(&model, &reference, &candidate).streams[SITES - 1].unwrap();
        let alone = injected(&model, &reference, &candidate, 5, &quiet()).unwrap().unwrap();
        assert!(alone > 0.0 && alone < whole, "{alone} {whole}");
    }

    #[test]
    fn what_comes_of_the_first_tokens_is_the_same_without_the_others() {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let ids: Vec<u16> = (0..INJECTED + 40).map(|i| (i * 7 % 256) as u16).collect();
        let reference = reference(&model, model.embed(&ids), &quiet()).unwrap();
        assert_eq!(injected(&model, &reference, &Candidate::exact(SPEC), 0, &quiet()).unwrap(), Ok(0.0));
    }

    #[test]
    fn weights_that_are_no_numbers_reach_the_curve_and_stop_nothing() {
        let (mut model, reference) = small();
        // The ninth row mixes the first entry of the combination matrix.
        model.blocks[1].sites[0].rows[8 * 512 + 5] = f64::NAN;
        let candidate = Candidate { accumulate: Accumulate::f32(1), ..Candidate::exact(SPEC) };
        let errors = run(&model, &reference, &candidate);
        assert!(errors.streams[1].is_ok() && errors.streams[11].is_err());
        assert!(matches!(errors.streams[2], Err(Unfit::NotANumber { .. })));
        assert!(errors.choices.iter().all(|c| c.flipped));
    }

    #[test]
    fn cancelling_stops_within_one_site() {
        let (model, reference) = small();
        let count = AtomicU64::new(0);
        let cancelled = || count.fetch_add(1, Ordering::Relaxed) >= 3;
        let ticker = Ticker::new(12, &|_, _, _| {}, &cancelled);
        assert_eq!(pass(&model, &reference, &reference.first, Arithmetic::Exact, &ticker), Err(Cancelled));
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_flip_counts_beyond_the_floors_reach_only() {
        let choice = |margin: f64, got: f64, flipped: bool| Choice { margin, margin_got: got, flipped };
        let whole = |choices: Vec<Choice>| Pass { streams: Vec::new(), other_experts: vec![1, 2], choices };
        let floor = whole(vec![choice(0.1, -0.2, true), choice(5.0, 5.1, false)]);
        let got = whole(vec![choice(0.25, -0.1, true), choice(0.35, -0.1, true)]);
        let reference = Reference { first: Vec::new(), sites: Vec::new(), logits: Vec::new() };
        let changed = decisions("x", &got, &floor, &reference);
        assert_eq!((changed.flips, changed.flips_beyond_floor, changed.expert_flips), (2, 1, 3));
        assert_eq!(changed.widest_flipped, Some(0.35));
        let broken = whole(vec![choice(0.1, f64::NAN, true)]);
        assert_eq!(decisions("x", &broken, &floor, &reference).largest_shift, None);
    }
}
