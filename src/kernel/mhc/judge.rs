//! What the errors of `mhc-mix` mean, in classes and sentences.
//!
//! Pure. Responsible for the rules by which a candidate is classed. Not responsible for measuring.
//!
//! In this order: **broken** if a value is not a number, or if one site alone strays further than
//! the rounding that the candidate declares can explain; **flips decisions** if a top choice turned
//! whose margin is wider than the floor moves any margin; **above the floor** if any point of its
//! two curves lies above the floor's; else **below the floor**.

use crate::kernel::candidate::Candidate;
use crate::kernel::measure::Unfit;
use crate::kernel::mhc::Both;
use crate::kernel::mhc::sweep::{Alone, Reference, SiteError, Whole};
use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::oracle::model::{WIDTH, site_label};
use crate::kernel::report::{CandidateVerdict, Control, Curve, Decisions, ErrorClass};

/// How many times the declared unit one site may stray and still be called rounding.
///
/// Good candidates stay below once the unit; products that cancel lose a few bits more.
pub const EXPLAINED: f64 = 8.0;

const DOES_NOT_SHOW: &str = "it does not show split, Sinkhorn, combination or the head's mixing in \
    another arithmetic, nor lengths beyond this prompt, nor a fault in how the kernel addresses memory; \
    only an A/B on the server does";

/// Judges a candidate against the floor.
pub fn verdict(candidate: &Candidate, got: &Both, floor: &Both, changed: &Decisions) -> CandidateVerdict {
    let (class, says) = if let Some(why) = not_the_function(candidate, &got.0) {
        (ErrorClass::Broken, why)
    } else if let Some(why) = unfit(&got.1.streams) {
        (ErrorClass::Broken, format!("compounded, {why}"))
    } else {
        let above = points_above(&got.0.streams, &floor.0.streams) + points_above(&got.1.streams, &floor.1.streams);
        let class = match (changed.flips_beyond_floor, above) {
            (1.., _) => ErrorClass::FlipsDecisions,
            (0, 1..) => ErrorClass::AboveFloor,
            (0, 0) => ErrorClass::BelowFloor,
        };
        (class, numbers(got, floor, changed))
    };
    CandidateVerdict { candidate: candidate.name.clone(), class, says, does_not_show: DOES_NOT_SHOW.into() }
}

/// Says whether a known-bad twin was caught.
pub fn control(twin: &Candidate, got: &Alone, curves: Vec<Curve>) -> Control {
    let found = not_the_function(twin, got);
    Control {
        name: twin.name.clone(),
        caught: found.is_some(),
        says: match found {
            Some(why) => format!("caught, {}: {why}", twin.says),
            None => format!("missed, {}: this report proves nothing", twin.says),
        },
        curves,
    }
}

/// What changed in the decisions of a whole pass; the floor is judged against itself.
pub fn decisions(name: &str, got: &Whole, floor: &Whole, reference: &Reference) -> Decisions {
    let reach = largest_shift(floor).unwrap_or(f64::INFINITY);
    let flipped = || got.choices.iter().filter(|c| c.flipped).map(|c| c.margin);
    Decisions {
        candidate: name.into(),
        positions: got.choices.len() as u64,
        flips: flipped().count() as u64,
        flips_beyond_floor: flipped().filter(|margin| *margin > reach).count() as u64,
        widest_flipped: flipped().reduce(f64::max),
        largest_shift: largest_shift(got),
        expert_choices: reference.sites.iter().map(|s| s.step.chosen.len() as u64).sum(),
        expert_flips: got.other_experts.iter().sum(),
    }
}

fn largest_shift(whole: &Whole) -> Option<f64> {
    let shifts = whole.choices.iter().map(|c| (c.margin_got - c.margin).abs());
    shifts.reduce(|a, b| if a >= b { a } else { b }).filter(|s| s.is_finite() && all_finite(whole))
}

fn all_finite(whole: &Whole) -> bool {
    whole.choices.iter().all(|c| c.margin_got.is_finite())
}

/// Why this is not the declared function, if it is not.
fn not_the_function(candidate: &Candidate, got: &Alone) -> Option<String> {
    let parts = [("mixes", &got.mixes), ("site input", &got.input), ("new streams", &got.streams)];
    if let Some((part, why)) = parts.iter().find_map(|(part, errors)| Some((part, unfit(errors)?))) {
        return Some(format!("in the {part}, {why}"));
    }
    let bound = EXPLAINED * candidate.declared_unit(STREAMS * WIDTH);
    let (part, (site, error)) = parts
        .iter()
        .filter_map(|(part, errors)| Some((part, largest(errors)?)))
        .max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    (error > bound).then(|| {
        format!(
            "at one site alone the error of the {part} is {error:.2e} ({}), where the declared rounding explains {bound:.1e}",
            site_label(site)
        )
    })
}

fn unfit(errors: &[SiteError]) -> Option<String> {
    let (site, why): (usize, &Unfit) =
        errors.iter().enumerate().find_map(|(site, e)| Some((site, e.as_ref().err()?)))?;
    Some(format!("{why} ({})", site_label(site)))
}

fn largest(errors: &[SiteError]) -> Option<(usize, f64)> {
    errors.iter().enumerate().filter_map(|(site, e)| Some((site, e.ok()?))).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn points_above(got: &[SiteError], floor: &[SiteError]) -> usize {
    got.iter().zip(floor).filter(|(g, f)| matches!((g, f), (Ok(g), Ok(f)) if g > f)).count()
}

fn root_mean_square(errors: &[SiteError]) -> f64 {
    (errors.iter().flatten().map(|e| e * e).sum::<f64>() / errors.len().max(1) as f64).sqrt()
}

fn numbers(got: &Both, floor: &Both, changed: &Decisions) -> String {
    let side = |got: &[SiteError], floor: &[SiteError]| {
        let above = points_above(got, floor);
        let (site, worst) = largest(got).unwrap_or_default();
        format!(
            "{:.2e} rms against {:.2e} of the floor, largest {worst:.2e} ({}), above it at {above} of {} sites",
            root_mean_square(got),
            root_mean_square(floor),
            site_label(site),
            got.len()
        )
    };
    let last = |errors: &[SiteError]| errors.last().and_then(|e| e.ok()).unwrap_or(f64::NAN);
    format!(
        "one site alone {}; compounded {}, {:.2e} against {:.2e} after the last; {}",
        side(&got.0.streams, &floor.0.streams),
        side(&got.1.streams, &floor.1.streams),
        last(&got.1.streams),
        last(&floor.1.streams),
        decided(changed)
    )
}

fn decided(changed: &Decisions) -> String {
    let flips = match changed.widest_flipped {
        None => format!("none of {} top choices flips", changed.positions),
        Some(margin) => format!(
            "{} of {} top choices flip, the widest by a margin of {margin:.3} nats, {} beyond the floor's reach",
            changed.flips, changed.positions, changed.flips_beyond_floor
        ),
    };
    let shift = changed.largest_shift.map_or("unknown".to_owned(), |s| format!("{s:.3} nats"));
    format!(
        "{flips}; the largest change of a margin is {shift}; {} of {} choices of experts differ",
        changed.expert_flips, changed.expert_choices
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::candidate::candidates;
    use crate::kernel::measure::Choice;

    fn both(alone: f64, whole: f64) -> Both {
        let steady = |error: f64| vec![Ok(error); 12];
        (
            Alone { mixes: steady(alone), input: steady(alone), streams: steady(alone) },
            Whole { streams: steady(whole), other_experts: vec![0; 12], choices: Vec::new() },
        )
    }

    fn changed(flips_beyond_floor: u64) -> Decisions {
        Decisions {
            candidate: "bf16".into(),
            positions: 224,
            flips: flips_beyond_floor + 1,
            flips_beyond_floor,
            widest_flipped: Some(0.5),
            largest_shift: Some(0.7),
            expert_choices: 1344,
            expert_flips: 2,
        }
    }

    fn bf16() -> Candidate {
        candidates().into_iter().find(|c| c.name == "bf16").unwrap()
    }

    fn check(got: &Both, flips: u64, expect: ErrorClass) -> String {
        let verdict = verdict(&bf16(), got, &both(1.65e-3, 4e-3), &changed(flips));
        assert_eq!(verdict.class, expect, "{}", verdict.says);
        assert!(!verdict.does_not_show.is_empty());
        verdict.says
    }

    #[test]
    fn classes_follow_the_numbers() {
        check(&both(1.2e-3, 3e-3), 0, ErrorClass::BelowFloor);
        check(&both(1.65e-3, 4e-3), 0, ErrorClass::BelowFloor);
        check(&both(1.7e-3, 3e-3), 0, ErrorClass::AboveFloor);
        check(&both(1.2e-3, 5e-3), 0, ErrorClass::AboveFloor);
        check(&both(1.2e-3, 3e-3), 1, ErrorClass::FlipsDecisions);
        check(&both(0.2, 0.2), 1, ErrorClass::Broken);
    }

    #[test]
    fn one_point_above_the_floor_is_named() {
        let mut got = both(1.2e-3, 3e-3);
        got.1.streams[3] = Ok(1.66e-2);
        let says = check(&got, 0, ErrorClass::AboveFloor);
        assert!(says.contains("largest 1.66e-2 (layer 1 experts), above it at 1 of 12 sites"), "{says}");
    }

    #[test]
    fn a_value_that_is_no_number_is_broken_wherever_it_is() {
        let bad = Err(Unfit::NotANumber { count: 3, first: 7 });
        let mut got = both(1.2e-3, 3e-3);
        got.0.input[4] = bad;
        assert!(check(&got, 0, ErrorClass::Broken).contains("in the site input, 3 values are not numbers"));
        let mut got = both(1.2e-3, 3e-3);
        got.1.streams[11] = bad;
        assert!(check(&got, 0, ErrorClass::Broken).contains("compounded"));
    }

    #[test]
    fn a_twin_that_strays_by_rounding_only_is_missed_and_said() {
        assert!(!control(&bf16(), &both(5e-3, 0.0).0, Vec::new()).caught);
        let caught = control(&bf16(), &both(0.06, 0.0).0, Vec::new());
        assert!(caught.caught && caught.says.contains("6.00e-2"), "{}", caught.says);
    }

    #[test]
    fn a_flip_counts_beyond_the_floors_reach_only() {
        let choice = |margin: f64, got: f64, flipped: bool| Choice { margin, margin_got: got, flipped };
        let whole = |choices: Vec<Choice>| Whole { streams: Vec::new(), other_experts: vec![1, 2], choices };
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
