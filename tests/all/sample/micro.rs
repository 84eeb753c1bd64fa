//! A microtest in which everything was measured.

use patchbench::kernel::report::{
    Band, Bin, CandidateVerdict, Cause, Control, Curve, CurveMode, Decisions, ErrorClass, Growth, Heat, Member,
    MicroReport, Row, Sets, Spread,
};

use super::ago;

const SITES: i32 = 12;

fn labels() -> Vec<String> {
    (0..SITES).map(|i| format!("layer {} {}", i / 2, if i % 2 == 0 { "attention" } else { "mlp" })).collect()
}

fn errors(base: f64, growth: f64) -> Vec<f64> {
    (0..SITES).map(|i| base * growth.powi(i) * (1.0 + 0.3 * f64::from(i % 3))).collect()
}

fn curve(candidate: &str, mode: CurveMode, base: f64, growth: f64) -> Curve {
    let rel_l2 = errors(base, growth);
    let calc_diff = rel_l2.iter().map(|e| e * e / 2.0).collect();
    Curve { candidate: candidate.into(), mode, labels: labels(), rel_l2, calc_diff, growth: None }
}

fn band(mode: CurveMode, growth: f64) -> Band {
    let member = |name: &str, says: &str| Member { name: name.into(), says: says.into(), rms: 1.7e-3 };
    Band {
        part: "streams".into(),
        mode,
        labels: labels(),
        low: errors(6.0e-4, growth),
        high: errors(1.8e-3, growth),
        members: vec![
            member("stored", "the streams are rounded to bf16"),
            member("input-ulp", "one activation in eight is moved by one ulp"),
        ],
    }
}

fn spread(candidate: &str, size: i32) -> Spread {
    let counts = [(Some(size - 2), 10), (Some(size - 1), 400), (Some(size), 500), (Some(size + 1), 89)];
    let bin = |(decade, count): (Option<i32>, u64)| Bin { decade, count };
    Spread {
        candidate: candidate.into(),
        part: "streams".into(),
        elements: 1000,
        max_abs: Some(10f64.powi(size + 1)),
        rms: Some(10f64.powi(size)),
        quantiles: [10f64.powi(size), 10f64.powi(size + 1), 2.0 * 10f64.powi(size + 1), 4.0 * 10f64.powi(size + 1)],
        ratio: None,
        histogram: counts.map(bin).into_iter().chain([bin((None, 1))]).collect(),
    }
}

fn heat(candidate: &str, base: f64) -> Heat {
    let row = |site: i32| {
        let value = |token: i32| base * f64::from(1 + site) * if token == 9 { 40.0 } else { f64::from(1 + token % 5) };
        Row((0..32).map(value).collect())
    };
    Heat {
        candidate: candidate.into(),
        lines: labels(),
        column: "token".into(),
        columns: (0..32).map(|i| i * 8).collect(),
        values: (0..SITES).map(row).collect(),
    }
}

fn sets(candidate: &str, overlap: f64, changed: u64, beyond: u64) -> Sets {
    Sets {
        candidate: candidate.into(),
        kind: "experts".into(),
        rows: 1536,
        keep: 2,
        overlap,
        least_overlap: 0.5,
        rows_changed: changed,
        rows_beyond_floor: beyond,
        median_margin: Some(0.21),
        planted: Some(64),
        planted_kept: Some(64 - beyond),
    }
}

fn cause(candidate: &str, point: &str, rel_l2: f64, share: f64) -> Cause {
    Cause { candidate: candidate.into(), point: point.into(), rounding: "bf16".into(), rel_l2, share }
}

/// `mhc-mix` on the CPU, five minutes ago.
pub fn report() -> MicroReport {
    use CurveMode::{Compounded, PerSite};
    let mut broken = curve("bf16", Compounded, 2.0e-3, 1.25);
    broken.rel_l2[5] = f64::NAN;
    broken.growth = Some(Growth::Coherent { exponent: 0.97 });
    let mut noise = curve("tf32", Compounded, 2.5e-4, 1.2);
    noise.growth = Some(Growth::NoiseLike { exponent: 0.46 });
    MicroReport {
        spec: "mhc-mix".into(),
        device: "cpu".into(),
        at: ago(300),
        provenance: "weights of the lab checkpoint, activations of 256 tokens of filler".into(),
        shape: "12 sites, 256 tokens, width 256, 4 streams".into(),
        curves: vec![curve("bf16", PerSite, 2.0e-3, 1.01), broken, curve("tf32", PerSite, 2.5e-4, 1.01), noise],
        floor: vec![curve("floor", PerSite, 1.8e-3, 1.01), curve("floor", Compounded, 1.8e-3, 1.22)],
        bands: vec![band(PerSite, 1.01), band(Compounded, 1.22)],
        spreads: vec![spread("bf16", -3), spread("tf32", -5)],
        causes: vec![cause("bf16", "weight", 1.6e-3, 0.71), cause("bf16", "output", 1.0e-3, 0.29)],
        heats: vec![heat("bf16", 1e-4), heat("tf32", 1e-5)],
        sets: vec![sets("floor", 0.999, 3, 0), sets("bf16", 0.998, 6, 1), sets("tf32", 1.0, 0, 0)],
        decisions: vec![Decisions {
            candidate: "bf16".into(),
            positions: 256,
            flips: 2,
            flips_beyond_floor: 0,
            widest_flipped: Some(0.01),
            largest_shift: Some(0.04),
            expert_choices: 1536,
            expert_flips: 3,
        }],
        controls: vec![Control {
            name: "transposed".into(),
            caught: true,
            says: "error 1.4 at every site".into(),
            curves: Vec::new(),
        }],
        verdicts: vec![
            CandidateVerdict {
                candidate: "bf16".into(),
                class: ErrorClass::AboveFloor,
                says: "1.1 times the floor at the last site; no routing decision flips in 256 tokens".into(),
                does_not_show: "what long contexts do to it".into(),
            },
            CandidateVerdict {
                candidate: "tf32".into(),
                class: ErrorClass::BelowFloor,
                says: "8 times below the floor at every site".into(),
                does_not_show: "kernels of other shapes".into(),
            },
        ],
        seconds: 1.9,
        ..MicroReport::default()
    }
}
