//! The report at a small size, against what is known of the real one.

use super::*;
use crate::kernel::candidate;
use crate::kernel::report::{CurveMode, ErrorClass};
use crate::kernel::sites::synthetic::Synthetic;

fn all() -> Vec<Candidate> {
    candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).unwrap()
}

fn report(sites: usize, width: usize, tokens: usize) -> MicroReport {
    let inputs = Synthetic::new(sites, width, tokens, 3);
    let extent = Extent { causes: 16, orders: 8, compounded: 16 };
    run(&inputs, &inputs, inputs.says(), &all(), extent, None, &|_| Ok(())).unwrap().0
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn good_candidates_pass_and_every_twin_is_caught() {
    let report = report(6, 512, 32);
    assert!(report.verdicts.len() == 5 && report.controls.len() == 5);
    for verdict in &report.verdicts {
        assert!(verdict.class < ErrorClass::FlipsDecisions, "{}: {}", verdict.candidate, verdict.says);
    }
    for control in &report.controls {
        assert!(control.caught, "{}", control.says);
    }
}

/// Measured apart from this program, in numpy, at 256 tokens and 16,384 channels: domain facts.
#[test]
fn errors_are_those_known_of_the_mixing_within_a_fifth() {
    let report = report(12, 1024, 64);
    let of = |candidate: &str, part: &str| {
        let streams = report.curves.iter().filter(|c| c.mode == CurveMode::PerSite).map(|c| ("streams", c));
        let mut all = report.parts.iter().map(|p| (p.part.as_str(), &p.curve)).chain(streams);
        root_mean_square(&all.find(|(p, c)| *p == part && c.candidate == candidate).unwrap().1.rel_l2)
    };
    let check = |candidate: &str, part: &str, known: f64| {
        let got = of(candidate, part);
        assert!((got / known - 1.0).abs() < 0.2, "{candidate} {part}: {got:.2e} where {known:.2e} is known");
    };
    check("tf32", "mixes", 2.1e-4);
    check("tf32", "comb", 1.3e-4);
    check("tf32", "streams", 1.1e-4);
    check("bf16-weights", "mixes", 1.65e-3);
    check("bf16-weights", "comb", 1.1e-3);
    check("bf16-weights", "streams", 0.9e-3);
    check("bf16", "mixes", 2.35e-3);
    check("bf16", "comb", 1.5e-3);
    check("bf16", "streams", 1.2e-3);
    let floor = report.bands.last().unwrap().members.iter().find(|m| m.name == "stored").unwrap();
    assert!((floor.rms / 1.65e-3 - 1.0).abs() < 0.05, "{}", floor.rms);
}

#[test]
fn causes_add_up_and_the_patch_loses_half_by_weights_and_half_by_output() {
    let report = report(6, 512, 32);
    let of = |point: &str| report.causes.iter().find(|c| c.candidate == "bf16" && c.point == point).unwrap();
    assert_eq!(of("streams").rel_l2, 0.0);
    assert!(of("sums").rel_l2 < 1e-5);
    for point in ["weight", "output"] {
        assert!((0.3..0.7).contains(&of(point).share), "{point}: {}", of(point).share);
    }
}

#[test]
fn the_report_has_heat_band_and_chains() {
    let report = report(6, 96, 32);
    let heat = report.heats.iter().find(|h| h.candidate == "bf16").unwrap();
    assert_eq!((heat.lines.len(), heat.columns.as_slice()), (6, &[0, 8, 16, 24][..]));
    assert!(heat.values.iter().all(|row| row.0.len() == 4 && row.0.iter().all(|e| *e > 0.0)));
    let band = report.bands.last().unwrap();
    assert_eq!((band.part.as_str(), band.members.len()), ("streams", 7));
    assert!(band.members.iter().all(|m| m.rms > 0.0), "{:?}", band.members);
    let chains = report.curves.iter().filter(|c| c.mode == CurveMode::Compounded);
    assert_eq!(chains.count(), 5);
    assert!(report.decisions.is_empty() && report.verdicts[0].does_not_show.contains("decisions"));
}

#[test]
fn ticks_are_as_many_as_announced() {
    let inputs = Synthetic::new(3, 64, 16, 3);
    let count = std::sync::atomic::AtomicU64::new(0);
    let tick = |_: &str| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    run(&inputs, &inputs, String::new(), &all(), Extent::default(), None, &tick).unwrap();
    assert_eq!(count.into_inner(), PHASES * 3);
}
