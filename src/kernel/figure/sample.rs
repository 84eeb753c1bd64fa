//! A report in which everything happened once, for tests of what is drawn and written.

use crate::kernel::report::{
    Band, Bin, CandidateVerdict, Cause, Control, Curve, CurveMode, Decisions, ErrorClass, Growth, Heat, Member,
    MicroReport, PartCurve, Row, Sets, Spread,
};

/// Points of each curve.
pub(crate) const SITES: usize = 12;

fn labels() -> Vec<String> {
    (0..SITES).map(|i| format!("layer {} {}", i / 2, if i % 2 == 0 { "attention" } else { "experts" })).collect()
}

/// An error near `base` at each point, which grows by the factor from point to point.
fn errors(base: f64, growth: f64) -> Vec<f64> {
    (0..SITES).map(|i| base * growth.powi(i as i32) * (1.0 + 0.25 * ((i * 7 % 5) as f64 - 2.0) / 2.0)).collect()
}

fn curve(candidate: &str, mode: CurveMode, rel_l2: Vec<f64>, growth: Option<Growth>) -> Curve {
    let calc_diff = rel_l2.iter().map(|e| e * e / 2.0).collect();
    Curve { candidate: candidate.into(), mode, labels: labels(), rel_l2, calc_diff, growth }
}

fn band(part: &str, mode: CurveMode, base: f64, growth: f64) -> Band {
    let member = |name: &str, says: &str, rms: f64| Member { name: name.into(), says: says.into(), rms };
    Band {
        part: part.into(),
        mode,
        labels: labels(),
        low: errors(base * 0.35, growth),
        high: errors(base, growth),
        members: vec![
            member("bf16-output", "the streams are rounded to bf16", base),
            member("input-ulp", "one activation in eight is moved by one ulp", base * 0.5),
            member("batch-17", "17 rows at once", base * 0.4),
        ],
    }
}

fn spread(candidate: &str, part: &str, size: i32, ratio: Option<f64>) -> Spread {
    let shares = [2, 40, 300, 500, 150, 8];
    let bins = shares.iter().enumerate().map(|(i, n)| Bin { decade: Some(size - 3 + i as i32), count: n * 1000 });
    let unit = 10f64.powi(size);
    Spread {
        candidate: candidate.into(),
        part: part.into(),
        elements: 1_050_000,
        max_abs: Some(unit * 40.0),
        rms: Some(unit),
        quantiles: [unit * 0.3, unit * 2.0, unit * 8.0, unit * 21.0],
        ratio,
        histogram: std::iter::once(Bin { decade: None, count: 50_000 }).chain(bins).collect(),
    }
}

fn heat(candidate: &str, base: f64) -> Heat {
    let row = |site: usize| {
        let value = |token: usize| {
            let hot = if token == 5 || (site > 6 && token > 50) { 12.0 } else { 1.0 };
            base * hot * (1.0 + 0.15 * site as f64) * (1.0 + 0.4 * ((token * 13 + site * 5) % 7) as f64)
        };
        Row((0..64).map(value).collect())
    };
    let mut values: Vec<Row> = (0..SITES).map(row).collect();
    values[3].0[20] = f64::NAN;
    values[0].0[0] = 0.0;
    Heat {
        candidate: candidate.into(),
        lines: labels(),
        column: "token".into(),
        columns: (0..64).map(|i| i * 4).collect(),
        values,
    }
}

fn sets(candidate: &str, overlap: f64, changed: u64, beyond: u64, kept: u64) -> Sets {
    Sets {
        candidate: candidate.into(),
        kind: "keys".into(),
        rows: 256,
        keep: 64,
        overlap,
        least_overlap: overlap - 0.05,
        rows_changed: changed,
        rows_beyond_floor: beyond,
        median_margin: Some(3.1e-3),
        planted: Some(32),
        planted_kept: Some(kept),
    }
}

fn decisions(candidate: &str, flips: u64, beyond: u64) -> Decisions {
    Decisions {
        candidate: candidate.into(),
        positions: 224,
        flips,
        flips_beyond_floor: beyond,
        widest_flipped: (flips > 0).then_some(0.0125),
        largest_shift: Some(0.1),
        expert_choices: 1344,
        expert_flips: flips,
    }
}

fn verdict(candidate: &str, class: ErrorClass, says: &str) -> CandidateVerdict {
    CandidateVerdict {
        candidate: candidate.into(),
        class,
        says: says.into(),
        does_not_show: "it does not show what lengths beyond this prompt do, nor how the kernel addresses memory"
            .into(),
    }
}

/// The report.
pub(crate) fn report() -> MicroReport {
    use CurveMode::{Compounded, PerSite};
    let noise = Some(Growth::NoiseLike { exponent: 0.48 });
    let mut broken = errors(3.0e-3, 1.2);
    broken[5] = f64::NAN;
    let cause = |point: &str, rounding: &str, rel_l2: f64, share: f64| Cause {
        candidate: "bf16".into(),
        point: point.into(),
        rounding: rounding.into(),
        rel_l2,
        share,
    };
    MicroReport {
        card: None,
        left_out: Vec::new(),
        spec: "mhc-mix".into(),
        device: "cpu".into(),
        at: "2026-05-01T12:00:00Z".parse().unwrap(),
        provenance: "weights of the lab; streams of an f64 forward pass over the lab's golden prompt".into(),
        recorded: Vec::new(),
        shape: "256 tokens, 4 streams of 256, 12 sites".into(),
        curves: vec![
            curve("bf16", PerSite, errors(1.2e-3, 1.01), None),
            curve("tf32", PerSite, errors(2.5e-4, 1.01), None),
            curve("scale-twice", PerSite, errors(8e-3, 1.05), None),
            curve("bf16", Compounded, broken, Some(Growth::Break { at: 5, factor: 40.0 })),
            curve("tf32", Compounded, errors(2.5e-4, 1.1), noise),
            curve("scale-twice", Compounded, errors(8e-3, 1.3), Some(Growth::Coherent { exponent: 1.1 })),
        ],
        floor: vec![
            curve("floor", PerSite, errors(1.8e-3, 1.0), None),
            curve("floor", Compounded, errors(1.8e-3, 1.15), noise),
        ],
        bands: vec![
            band("mixes", PerSite, 4e-4, 1.0),
            band("new-streams", PerSite, 1.8e-3, 1.0),
            band("new-streams", Compounded, 1.8e-3, 1.15),
        ],
        parts: ["bf16", "tf32"]
            .iter()
            .map(|c| PartCurve { part: "mixes".into(), curve: curve(c, PerSite, errors(5e-4, 1.0), None) })
            .collect(),
        spreads: vec![
            spread("bf16", "mixes", -4, None),
            spread("bf16", "new-streams", -3, None),
            spread("tf32", "new-streams", -4, None),
            spread("scale-twice", "new-streams", -2, Some(1.0312)),
        ],
        causes: vec![
            cause("weight", "bf16", 9.1e-4, 0.62),
            cause("output", "bf16", 6.0e-4, 0.27),
            cause("sums", "f32, 4 splits", 3.7e-4, 0.11),
        ],
        heats: vec![heat("bf16", 3e-4), heat("scale-twice", 3e-3)],
        decisions: vec![decisions("floor", 1, 0), decisions("bf16", 2, 0), decisions("scale-twice", 9, 3)],
        sets: vec![
            sets("floor", 0.998, 3, 0, 32),
            sets("bf16", 0.996, 6, 0, 32),
            sets("scale-twice", 0.91, 80, 44, 30),
        ],
        controls: vec![Control {
            name: "transposed".into(),
            caught: true,
            says: "caught, the mixing matrix is read by columns: at one site alone the error is 1.41".into(),
            curves: vec![curve("transposed", PerSite, errors(1.2, 1.0), None)],
        }],
        verdicts: vec![
            verdict("bf16", ErrorClass::AboveFloor, "compounded, 1.1 times the band at the last site; no choice flips"),
            verdict("tf32", ErrorClass::BelowFloor, "8 times below the band at every site"),
            verdict(
                "scale-twice",
                ErrorClass::FlipsDecisions,
                "44 of 256 rows lose a key beyond the reach of the band",
            ),
        ],
        seconds: 1.9,
    }
}
