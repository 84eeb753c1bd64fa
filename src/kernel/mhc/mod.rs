//! The microtest `mhc-mix`: mixing of the hyper-connections on a checkpoint of the lab model.
//!
//! Responsible for the report: activations, sweep, judgement. Not responsible for devices other
//! than the CPU.

pub mod judge;
pub mod sweep;

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use rayon::prelude::*;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::{Candidate, candidates, twins};
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::mhc::judge::{control, decisions, verdict};
use crate::kernel::mhc::sweep::{
    Alone, Cancelled, Reference, SiteError, Ticker, Whole, alone, floor_alone, reference, whole,
};
use crate::kernel::oracle::model::{Model, SITES, WIDTH, site_label};
use crate::kernel::report::{Curve, CurveMode, MicroReport, PartCurve};

/// Both ways of measuring one arithmetic.
pub type Both = (Alone, Whole);

/// Name of the spec.
pub const SPEC: &str = "mhc-mix";
/// What the curves of the reference's own rounding are called.
pub const FLOOR: &str = "floor";

/// The lab's golden prompt, as the conversation and its ids.
const GOLDEN: &str = include_str!("../../../lab/golden.json");

/// Runs the sweep on these weights. `progress` is told sites done, sites in all, and the phase.
///
/// # Errors
/// Weights are missing or misshapen, or somebody cancelled.
pub fn run(
    checkpoint: &Checkpoint,
    progress: &(dyn Fn(u64, u64, &str) + Sync),
    cancelled: &(dyn Fn() -> bool + Sync),
    now: Timestamp,
) -> Result<MicroReport, Failure> {
    let begun = Instant::now();
    let ids = golden_ids()?;
    let model = Model::load(checkpoint)?;
    let report = sweep_all(&model, &ids, checkpoint.place(), progress, cancelled)
        .map_err(|Cancelled| Failure::new("the microtest was cancelled before it ended"))?;
    let took = begun.elapsed();
    let at = now.checked_add(SignedDuration::try_from(took).unwrap_or_default()).unwrap_or(now);
    Ok(MicroReport { at, seconds: took.as_secs_f64(), ..report })
}

/// Ids of the golden prompt.
///
/// # Errors
/// The program was built with a damaged `lab/golden.json`.
pub fn golden_ids() -> Result<Vec<u16>, Failure> {
    #[derive(serde::Deserialize)]
    struct Golden {
        prompt_ids: Vec<u16>,
    }
    let golden: Golden = serde_json::from_str(GOLDEN)
        .map_err(|e| Failure::new(format!("the built-in golden prompt is damaged: {e}")))?;
    Ok(golden.prompt_ids)
}

fn sweep_all(
    model: &Model,
    ids: &[u16],
    place: &str,
    progress: &(dyn Fn(u64, u64, &str) + Sync),
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<MicroReport, Cancelled> {
    let (candidates, twins) = (candidates(), twins());
    // The reference and the floor pass once through all sites, a candidate twice, a twin once.
    let passes = 2 + 2 * candidates.len() + twins.len();
    let ticker = Ticker::new((passes * SITES) as u64, progress, cancelled);
    let reference = reference(model, ids, &ticker)?;
    let (floor, (measured, caught)) = rayon::join(
        || Ok((floor_alone(&reference), whole(model, &reference, None, &ticker)?)),
        || {
            rayon::join(
                || candidates.par_iter().map(|c| measure(model, &reference, c, &ticker)).collect::<Result<Vec<_>, _>>(),
                || twins.par_iter().map(|c| alone(model, &reference, c, &ticker)).collect::<Result<Vec<_>, _>>(),
            )
        },
    );
    let (floor, measured, caught): (Both, _, _) = (floor?, measured?, caught?);

    let mut report = MicroReport {
        spec: SPEC.into(),
        device: "cpu".into(),
        provenance: provenance(model, ids, place),
        shape: format!("{} tokens, 4 streams of {WIDTH}, {SITES} sites, `fn` [24, {}]", ids.len(), 4 * WIDTH),
        floor: both_curves(FLOOR, &floor),
        decisions: vec![decisions(FLOOR, &floor.1, &floor.1, &reference)],
        ..MicroReport::default()
    };
    for (candidate, both) in candidates.iter().zip(&measured) {
        let name = &candidate.name;
        let changed = decisions(name, &both.1, &floor.1, &reference);
        report.curves.extend(both_curves(name, both));
        for (part, errors) in [("mixes", &both.0.mixes), ("site-input", &both.0.input)] {
            report.parts.push(PartCurve { part: part.into(), curve: curve(name, CurveMode::PerSite, errors) });
        }
        report.verdicts.push(verdict(candidate, both, &floor, &changed));
        report.decisions.push(changed);
    }
    for (twin, alone) in twins.iter().zip(&caught) {
        report.controls.push(control(twin, alone, vec![curve(&twin.name, CurveMode::PerSite, &alone.streams)]));
    }
    Ok(report)
}

fn measure(
    model: &Model,
    reference: &Reference,
    candidate: &Candidate,
    ticker: &Ticker<'_>,
) -> Result<Both, Cancelled> {
    Ok((alone(model, reference, candidate, ticker)?, whole(model, reference, Some(candidate), ticker)?))
}

fn both_curves(name: &str, (alone, whole): &Both) -> Vec<Curve> {
    vec![curve(name, CurveMode::PerSite, &alone.streams), curve(name, CurveMode::Compounded, &whole.streams)]
}

fn curve(candidate: &str, mode: CurveMode, errors: &[SiteError]) -> Curve {
    Curve {
        candidate: candidate.into(),
        mode,
        labels: (0..SITES).map(site_label).collect(),
        rel_l2: errors.iter().map(|e| e.unwrap_or(f64::NAN)).collect(),
        ..Curve::default()
    }
}

/// Says where weights and activations came from; the hash is that of the mixing weights as f64.
fn provenance(model: &Model, ids: &[u16], place: &str) -> String {
    let mut hash = blake3::Hasher::new();
    for site in 0..SITES {
        model.site(site).rows.iter().for_each(|w| {
            hash.update(&w.to_le_bytes());
        });
    }
    format!(
        "weights of {place} (mixing weights blake3 {}); streams of an f64 forward pass over the lab's golden prompt, {} tokens",
        &hash.finalize().to_hex()[..12],
        ids.len()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::kernel::report::ErrorClass;

    fn mean_square_root(values: &[f64]) -> f64 {
        (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn the_lab_report_orders_the_candidates_against_the_floor() {
        let report = run(&Checkpoint::lab().unwrap(), &|_, _, _| {}, &|| false, Timestamp::UNIX_EPOCH).unwrap();
        let of = |name: &str, mode: CurveMode| {
            let all = report.curves.iter().chain(&report.floor);
            all.filter(|c| c.mode == mode && c.candidate == name).map(|c| c.rel_l2.clone()).next().unwrap()
        };
        let site = |name: &str| mean_square_root(&of(name, CurveMode::PerSite));
        assert!(site("fp32") < site("tf32") / 30.0 && site("tf32") < site("bf16-weights") / 3.0);
        assert!(site("bf16-weights") < site("bf16") / 3.0);
        // bfloat16 of any smooth value errs by 1.65e-3 on average, whatever the model.
        assert!((site(FLOOR) - 1.65e-3).abs() < 0.05e-3);
        assert!((0.4..1.0).contains(&(site("bf16") / site(FLOOR))), "{}", site("bf16"));
        let class = |name: &str| report.verdicts.iter().find(|v| v.candidate == name).unwrap().class;
        assert_eq!([class("fp32"), class("tf32"), class("bf16-weights")], [ErrorClass::BelowFloor; 3]);
        assert_eq!(class("bf16"), ErrorClass::AboveFloor);
        assert!(report.controls.len() == 4 && report.controls.iter().all(|c| c.caught));
        assert!(report.decisions.iter().all(|d| d.positions == 224 && d.flips_beyond_floor == 0));
    }

    #[test]
    fn twins_are_caught_within_bf16_too_and_a_misplaced_eps_cannot_be() {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let ticker = Ticker::new(1, &|_, _, _| {}, &|| false);
        let reference = reference(&model, &golden_ids().unwrap(), &ticker).unwrap();
        let bf16 = candidates().into_iter().find(|c| c.name == "bf16").unwrap();
        for twin in twins() {
            let noisy = Candidate { fault: twin.fault, ..bf16.clone() };
            let caught = control(&noisy, &alone(&model, &reference, &noisy, &ticker).unwrap(), Vec::new()).caught;
            assert_eq!(caught, twin.name != "eps-misplaced", "{}", twin.name);
        }
    }

    #[test]
    fn an_older_report_without_the_newer_fields_still_loads() {
        let old = r#"{"spec":"mhc-mix","device":"cpu","at":"2026-01-01T00:00:00Z","provenance":"p","shape":"s",
            "curves":[],"floor":[],"verdicts":[],"seconds":1.0}"#;
        assert!(serde_json::from_str::<MicroReport>(old).unwrap().controls.is_empty());
    }

    #[test]
    fn progress_ends_at_its_total_and_the_report_survives_its_own_json() {
        let seen = Mutex::new(Vec::new());
        let note = |done: u64, total: u64, _: &str| seen.lock().unwrap().push((done, total));
        let report = run(&Checkpoint::lab().unwrap(), &note, &|| false, Timestamp::UNIX_EPOCH).unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.iter().map(|(done, _)| *done).max(), Some(seen[0].1));
        assert_eq!(seen.len() as u64, seen[0].1);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<MicroReport>(&text).unwrap(), report);
    }

    #[test]
    fn a_cancelled_sweep_says_so() {
        let failure = run(&Checkpoint::lab().unwrap(), &|_, _, _| {}, &|| true, Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(failure.message.contains("cancelled"));
    }
}
