//! Chains of their own against plain loops, and what must hold between them.

use super::*;
use crate::kernel::candidate;
use crate::kernel::matrix::Matrix;
use crate::kernel::measure;
use crate::kernel::mhc::site::{self, INFO};
use crate::kernel::oracle::hyper::{self, Site};
use crate::kernel::sites::group::row;
use crate::kernel::sites::synthetic::Synthetic;

const WIDTH: usize = 80;

fn all() -> Vec<Candidate> {
    let all = candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).unwrap();
    all.into_iter().filter(|c| c.fault.is_none()).collect()
}

fn rows(groups: &[f64], inner: usize) -> Vec<f64> {
    groups.chunks_exact(inner * GROUP).flat_map(|g| (0..GROUP).flat_map(move |lane| row(g, lane))).collect()
}

#[derive(Clone, Copy)]
enum Kept {
    Exact,
    Bf16,
}

/// Errors of one chain in plain loops over `hyper` and the microtest of one site.
fn plain(inputs: &Synthetic, candidate: &Candidate, kept: Kept) -> Vec<f64> {
    let inner = STREAMS * WIDTH;
    let mut groups: Vec<f64> = first_streams(inputs, inner).iter().map(|v| v.wide()).collect();
    let mut own = rows(&groups, inner);
    let mut errors = Vec::new();
    for s in 0..inputs.count() {
        let weights = inputs.weights(s).unwrap();
        let mixing: Vec<f64> = weights.mixing.iter().map(|w| f64::from(*w)).collect();
        let affine = affine(&weights);
        let site =
            Site { matrix: Matrix::pack(&mixing, MIXES, inner), rows: mixing, scale: affine.scale, base: affine.base };
        let reference = rows(&groups, inner);
        let mut outputs = vec![0.0; groups.len() / STREAMS];
        let both = groups.chunks_exact(inner * GROUP).zip(outputs.chunks_exact_mut(WIDTH * GROUP));
        both.enumerate().for_each(|(g, (streams, output))| {
            sublayer(inputs, s, g * GROUP, streams, output);
        });
        let outputs = rows(&outputs, WIDTH);
        let right: Vec<_> =
            hyper::mixes(&site, &reference).iter().map(|m| hyper::split(m, site.scale, &site.base)).collect();
        let right = hyper::combine(&right, &outputs, &reference, WIDTH);
        let mixes = site::mixes(candidate, &site, &own);
        own = hyper::combine(&site::coefficients(candidate, &site, &mixes), &outputs, &own, WIDTH);
        if matches!(kept, Kept::Bf16) {
            own = own.iter().map(|v| bf16::from_f32(*v as f32).to_f64()).collect();
        }
        errors.push(measure::rel_l2(&own, &right).unwrap());
        // Back into groups of eight.
        for (g, group) in groups.chunks_exact_mut(inner * GROUP).enumerate() {
            for (i, value) in group.iter_mut().enumerate() {
                *value = right[(g * GROUP + i % GROUP) * inner + i / GROUP];
            }
        }
    }
    errors
}

#[test]
fn chains_are_those_of_plain_loops() {
    let inputs = Synthetic::new(4, WIDTH, 16, 9);
    let all = all();
    let got = compounded(&inputs, &inputs, &all, None, &|| Ok(())).unwrap();
    let check = |got: &[PartSums], expect: &[f64], name: &str| {
        for (site, (got, expect)) in got.iter().zip(expect).enumerate() {
            let got = got.rel_l2().unwrap();
            assert!(
                (got - expect).abs() <= 1e-6 * expect + 1e-15,
                "{name} at site {site}: {got} where {expect} is right"
            );
        }
    };
    check(&got.floor, &plain(&inputs, &Candidate::exact("mhc-mix"), Kept::Bf16), "floor");
    for (a, candidate) in all.iter().enumerate() {
        check(&got.exact[a], &plain(&inputs, candidate, Kept::Exact), &candidate.name);
        check(&got.stored[a], &plain(&inputs, candidate, Kept::Bf16), &candidate.name);
    }
}

#[test]
fn exact_arithmetic_stays_on_the_reference_and_stored_it_is_the_floor() {
    let inputs = Synthetic::new(5, WIDTH, 16, 2);
    let got = compounded(&inputs, &inputs, &[Candidate::exact("mhc-mix")], None, &|| Ok(())).unwrap();
    assert!(got.exact[0].iter().all(|e| e.rel_l2() == Ok(0.0)));
    assert_eq!(got.stored[0], got.floor);
    assert!(got.floor.iter().all(|e| e.rel_l2().unwrap() > 1e-3));
}

#[test]
fn threads_change_no_bit() {
    let inputs = Synthetic::new(3, WIDTH, 40, 3);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| compounded(&inputs, &inputs, &all(), None, &|| Ok(())).unwrap())
    };
    assert_eq!(run(1), run(3));
}
