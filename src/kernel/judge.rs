//! What the errors of a candidate mean, in classes and sentences.
//!
//! Pure. Responsible for the rules by which a candidate is classed and for the report. Not
//! responsible for measuring.
//!
//! In this order: **broken** if a value is not a number, if all values are alike, or if at one point
//! it strays further than its declared rounding explains; **flips decisions** if a set changed or a
//! top choice turned by more than the noise band moves any; **above the floor** if a point of a
//! curve of the main part lies above the noise band; else **below the floor**.
//!
//! What the declared rounding **explains** is measured, not assumed: each of its points is run
//! alone, and four times the root of the sum of their squared errors is allowed, for they are
//! independent or nearly so.

use crate::kernel::measure::{self, MemberErrors, Unfit};
use crate::kernel::microtest::{Cases, SpecInfo};
use crate::kernel::report::{
    Band, CandidateVerdict, Cause, Control, Curve, CurveMode, Decisions, ErrorClass, MicroReport, PartCurve, Sets,
};
use crate::kernel::sweep::{Measured, PartErrors, PointError, Swept, Tried};

/// What the top of the noise band is called.
pub const FLOOR: &str = "floor";

/// How many times what its rounding points do alone a candidate may stray.
pub const EXPLAINED: f64 = 4.0;

/// A point lies above the floor where it is more than this times as large: what stores its result as a
/// right implementation does differs from the floor by the noise of its sums alone.
pub const SLACK: f64 = 1.01;

/// Errors below this are those of f64 itself, and of a reference that sums in another order.
const NOISE_OF_F64: f64 = 1e-10;

/// What was measured beside single points: whole passes through the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Through {
    /// Compounded curve of each candidate, in their order.
    pub candidates: Vec<Whole>,
    /// The top of the noise band.
    pub floor: Whole,
}

/// One whole pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Whole {
    /// Errors of the main part after each point, every point fed with what came before.
    pub compounded: Vec<PointError>,
    /// Errors of the main part after the last point, with the candidate at one point alone.
    pub injected: Vec<PointError>,
    /// What became of the decisions; `None` where the model as a whole is not there.
    pub decisions: Option<Decisions>,
}

/// The report of a sweep, without time and device.
pub fn report<C>(spec: &SpecInfo, cases: &Cases<C>, swept: &Swept, through: Option<&Through>) -> MicroReport {
    let labels = &cases.labels;
    let main = spec.parts.len().saturating_sub(1);
    // A shift that is not known is one without bound.
    let shifts = swept.band.iter().map(|m| m.measured.largest_shift);
    let reach = shifts.fold(0.0, |a: f64, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) });
    let mut report = MicroReport {
        spec: spec.name.into(),
        provenance: cases.provenance.clone(),
        shape: cases.shape.clone(),
        ..MicroReport::default()
    };
    for (part, name) in spec.parts.iter().enumerate() {
        let of_part: Vec<&PartErrors> = swept.band.iter().filter_map(|m| m.measured.parts.get(part)).collect();
        report.bands.push(band(name, labels, swept, &of_part));
    }
    let top: Vec<PointError> = report.bands[main].high.iter().map(|e| Ok(*e)).collect();
    report.floor.push(curve(FLOOR, CurveMode::PerSite, labels, &top, &[]));
    let floor_sets = swept.band.iter().filter_map(|m| changed_sets(FLOOR, swept, &m.measured, reach));
    report.sets.extend(floor_sets.min_by(|a, b| a.overlap.total_cmp(&b.overlap)));
    if let Some(through) = through {
        report.floor.extend(through_curves(FLOOR, labels, &through.floor));
        report.decisions.extend(through.floor.decisions.clone());
    }
    for (at, tried) in swept.candidates.iter().enumerate() {
        let name = &tried.candidate.name;
        for (part, errors) in tried.measured.parts.iter().enumerate() {
            let curve = curve(name, CurveMode::PerSite, labels, &errors.rel_l2, &errors.calc_diff);
            if part == main {
                report.curves.push(curve);
            } else {
                report.parts.push(PartCurve { part: errors.name.into(), curve });
            }
        }
        let whole = through.and_then(|t| t.candidates.get(at));
        if let Some(whole) = whole {
            report.curves.extend(through_curves(name, labels, whole));
            report.decisions.extend(whole.decisions.clone());
        }
        let sets = changed_sets(name, swept, &tried.measured, reach);
        report.verdicts.push(verdict(spec, tried, &report.bands[main], (whole, through), sets.as_ref(), labels));
        report.spreads.extend(tried.spreads.iter().cloned());
        report.causes.extend(causes(tried));
        report.heats.push(tried.heat.clone());
        report.sets.extend(sets);
    }
    for twin in &swept.twins {
        let sets = changed_sets(&twin.candidate.name, swept, &twin.measured, reach);
        report.controls.push(control(twin, sets.as_ref(), labels));
    }
    report
}

fn band(part: &str, labels: &[String], swept: &Swept, members: &[&PartErrors]) -> Band {
    let errors: Vec<Vec<f64>> = members.iter().map(|m| numbers(&m.rel_l2)).collect();
    let members: Vec<MemberErrors<'_>> = swept
        .band
        .iter()
        .zip(&errors)
        .map(|(member, errors)| MemberErrors { name: &member.measured.name, says: &member.says, errors })
        .collect();
    measure::band(part, CurveMode::PerSite, labels, &members)
}

/// What is no number becomes NaN.
fn numbers(errors: &[PointError]) -> Vec<f64> {
    errors.iter().map(|e| e.unwrap_or(f64::NAN)).collect()
}

fn curve(candidate: &str, mode: CurveMode, labels: &[String], errors: &[PointError], calc_diff: &[f64]) -> Curve {
    let rel_l2 = numbers(errors);
    let growth = if mode == CurveMode::Compounded { measure::growth(&rel_l2) } else { None };
    Curve { candidate: candidate.into(), mode, labels: labels.to_vec(), rel_l2, calc_diff: calc_diff.to_vec(), growth }
}

fn through_curves(name: &str, labels: &[String], whole: &Whole) -> Vec<Curve> {
    let modes = [(CurveMode::Compounded, &whole.compounded), (CurveMode::SingleInjection, &whole.injected)];
    let there = modes.iter().filter(|(_, errors)| !errors.is_empty());
    there.map(|(mode, errors)| curve(name, *mode, labels, errors, &[])).collect()
}

fn changed_sets(name: &str, swept: &Swept, measured: &Measured, reach: f64) -> Option<Sets> {
    Some(measure::sets(name, measured.kept.as_ref()?, swept.kept.as_ref()?, reach))
}

fn causes(tried: &Tried) -> Vec<Cause> {
    let errors: Vec<f64> = tried.alone.iter().map(|a| root_mean_square(a.measured.main())).collect();
    let all: f64 = errors.iter().map(|e| e * e).sum();
    let cause = |(alone, rel_l2): (&crate::kernel::sweep::Alone, &f64)| Cause {
        candidate: tried.candidate.name.clone(),
        point: alone.point.clone(),
        rounding: alone.rounding.clone(),
        rel_l2: *rel_l2,
        share: if all > 0.0 { rel_l2 * rel_l2 / all } else { 0.0 },
    };
    tried.alone.iter().zip(&errors).map(cause).collect()
}

/// Judges a candidate against the noise band and against what its rounding explains.
fn verdict(
    spec: &SpecInfo,
    tried: &Tried,
    band: &Band,
    (whole, through): (Option<&Whole>, Option<&Through>),
    sets: Option<&Sets>,
    labels: &[String],
) -> CandidateVerdict {
    let floor: Vec<PointError> = band.high.iter().map(|e| Ok(*e)).collect();
    let (got, compounded) = (tried.measured.main(), whole.map(|w| &w.compounded[..]).unwrap_or_default());
    let (class, says) = if let Some(why) = not_the_function(tried, labels) {
        (ErrorClass::Broken, why)
    } else if let Some(why) = unfit(compounded, labels) {
        (ErrorClass::Broken, format!("compounded, {why}"))
    } else {
        let whole_floor = through.map(|t| &t.floor.compounded[..]).unwrap_or_default();
        let above = points_above(got, &floor) + points_above(compounded, whole_floor);
        let flips = whole.and_then(|w| w.decisions.as_ref()).map_or(0, |d| d.flips_beyond_floor);
        let class = if flips > 0 || sets.is_some_and(decided_otherwise) {
            ErrorClass::FlipsDecisions
        } else if above > 0 {
            ErrorClass::AboveFloor
        } else {
            ErrorClass::BelowFloor
        };
        let mut says = vec![format!("one point alone {}", against(got, &floor, labels))];
        if let (Some(whole), Some(through)) = (whole, through) {
            says.push(format!("compounded {}", against(&whole.compounded, &through.floor.compounded, labels)));
            says.extend(whole.decisions.as_ref().map(decided));
        }
        says.extend(sets.map(kept));
        (class, says.join("; "))
    };
    let does_not_show = format!("it does not show {}; only an A/B on the server does", spec.does_not_show);
    CandidateVerdict { candidate: tried.candidate.name.clone(), class, says, does_not_show }
}

/// Says whether a known-bad twin was caught: by its error, or by what it keeps.
fn control(twin: &Tried, sets: Option<&Sets>, labels: &[String]) -> Control {
    let found = not_the_function(twin, labels).or_else(|| sets.filter(|s| decided_otherwise(s)).map(kept));
    let says = &twin.candidate.says;
    Control {
        name: twin.candidate.name.clone(),
        caught: found.is_some(),
        says: match found {
            Some(why) => format!("caught, {says}: {why}"),
            None => format!("missed, {says}: this report proves nothing"),
        },
        curves: vec![curve(&twin.candidate.name, CurveMode::PerSite, labels, twin.measured.main(), &[])],
    }
}

fn decided_otherwise(sets: &Sets) -> bool {
    let lost = matches!((sets.planted, sets.planted_kept), (Some(planted), Some(kept)) if kept < planted);
    sets.rows_beyond_floor > 0 || lost
}

/// Why this is not the declared function, if it is not.
pub(super) fn not_the_function(tried: &Tried, labels: &[String]) -> Option<String> {
    let parts = &tried.measured.parts;
    if let Some((part, why)) = parts.iter().find_map(|part| Some((part.name, unfit(&part.rel_l2, labels)?))) {
        return Some(format!("in the {part}, {why}"));
    }
    let over = |(at, part): (usize, &PartErrors)| {
        let points = part.rel_l2.iter().enumerate().filter_map(|(point, e)| Some((point, e.ok()?)));
        let measured = points.map(|(point, error)| {
            let bound = EXPLAINED * explained(tried, at, point) + NOISE_OF_F64;
            (error / bound, part.name, point, error, bound)
        });
        measured.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (times, part, point, error, bound) =
        parts.iter().enumerate().filter_map(over).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let at = labels.get(point).map_or("", String::as_str);
    (times > 1.0).then(|| {
        let ratio = tried.spreads.iter().find(|s| s.part == part).and_then(|s| s.ratio);
        let factor = ratio.map(|r| format!(", nearly all of it the factor {r:.4}")).unwrap_or_default();
        format!(
            "the error of the {part} is {error:.2e} ({at}), where the declared rounding explains {bound:.1e}{factor}"
        )
    })
}

/// The root of the sum of the squared errors that its rounding points make alone.
fn explained(tried: &Tried, part: usize, point: usize) -> f64 {
    let squares = tried.alone.iter().filter_map(|alone| {
        let error = alone.measured.parts.get(part)?.rel_l2.get(point)?.ok()?;
        Some(error * error)
    });
    squares.sum::<f64>().sqrt()
}

fn unfit(errors: &[PointError], labels: &[String]) -> Option<String> {
    let (point, why): (usize, &Unfit) =
        errors.iter().enumerate().find_map(|(point, e)| Some((point, e.as_ref().err()?)))?;
    Some(format!("{why} ({})", labels.get(point).map_or("", String::as_str)))
}

fn points_above(got: &[PointError], floor: &[PointError]) -> usize {
    let above = |got: f64, floor: f64| got > floor * SLACK;
    got.iter().zip(floor).filter(|(g, f)| matches!((g, f), (Ok(g), Ok(f)) if above(*g, *f))).count()
}

/// Root mean square of the errors that are numbers; NaN if none is.
fn root_mean_square(errors: &[PointError]) -> f64 {
    let numbers: Vec<f64> = errors.iter().filter_map(|e| e.ok()).collect();
    if numbers.is_empty() {
        return f64::NAN;
    }
    (numbers.iter().map(|e| e * e).sum::<f64>() / numbers.len() as f64).sqrt()
}

fn against(got: &[PointError], floor: &[PointError], labels: &[String]) -> String {
    let worst = got.iter().enumerate().filter_map(|(point, e)| Some((point, e.ok()?)));
    let (point, worst) = worst.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
    format!(
        "{:.2e} rms against {:.2e} of the floor, largest {worst:.2e} ({}), above it at {} of {}",
        root_mean_square(got),
        root_mean_square(floor),
        labels.get(point).map_or("", String::as_str),
        points_above(got, floor),
        got.len()
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

fn kept(sets: &Sets) -> String {
    let planted = match (sets.planted, sets.planted_kept) {
        (Some(planted), Some(kept)) => format!(", {kept} of {planted} planted {} are kept", sets.kind),
        _ => String::new(),
    };
    format!(
        "{:.2} % of the {} are kept, {} of {} rows differ, {} beyond the floor's reach{planted}",
        100.0 * sets.overlap,
        sets.kind,
        sets.rows_changed,
        sets.rows,
        sets.rows_beyond_floor
    )
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
