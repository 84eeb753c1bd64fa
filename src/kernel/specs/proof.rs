//! What the tests of every spec ask of its candidates, as the judge does.

use crate::kernel::candidate::{self, Candidate};
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::measure::rel_l2;
use crate::kernel::microtest::{Cases, KeptSets, Microtest, Outcome};

/// The candidates in this text, without faults and with.
pub(super) fn parsed<M: Microtest>(test: &M, text: &str) -> (Vec<Candidate>, Vec<Candidate>) {
    let all = candidate::parse(text, "the spec's own candidates", &[test.spec()]).unwrap();
    let (twins, good): (Vec<_>, Vec<_>) = all.into_iter().partition(|c| c.fault.is_some());
    for (fault, _) in test.spec().faults {
        assert!(twins.iter().any(|t| t.has_fault(fault)), "no twin has the fault `{fault}`");
    }
    (good, twins)
}

/// The error of one part at one point; infinite where no norm can be taken.
pub(super) fn error(got: &Outcome, right: &Outcome, part: usize) -> f64 {
    rel_l2(&got.parts[part].values, &right.parts[part].values).unwrap_or(f64::INFINITY)
}

/// The largest factor, over points and parts, by which a candidate strays beyond the root of the
/// sum of the squares of what its rounding points do alone; and where.
pub(super) fn beyond<M: Microtest>(test: &M, cases: &Cases<M::Case>, candidate: &Candidate) -> (f64, String) {
    let mut worst = (0.0, String::new());
    for (label, case) in cases.labels.iter().zip(&cases.cases) {
        let right = test.reference(case);
        let got = test.run(case, candidate);
        let alone: Vec<Outcome> = pieces(candidate).iter().map(|piece| test.run(case, piece)).collect();
        for part in 0..right.parts.len() {
            let squares: f64 = alone.iter().map(|a| error(a, &right, part).powi(2)).sum();
            let times = error(&got, &right, part) / (squares.sqrt() + 2.5e-11);
            if times > worst.0 {
                worst = (times, format!("{label}, {}: {:.2e}", right.parts[part].name, error(&got, &right, part)));
            }
        }
    }
    worst
}

/// The candidate's rounding points and sums, each alone.
fn pieces(candidate: &Candidate) -> Vec<Candidate> {
    let exact = Storage::default();
    let points = candidate.round.iter().filter(|(_, s)| **s != exact).map(|(point, _)| candidate.only(point));
    let sums = (candidate.accumulate.dtype != Rounding::Exact).then(|| candidate.only_sums());
    points.chain(sums).collect()
}

/// The largest error of the main part over all points.
pub(super) fn largest<M: Microtest>(test: &M, cases: &Cases<M::Case>, candidate: &Candidate) -> f64 {
    let main = test.spec().parts.len() - 1;
    let errors = cases.cases.iter().map(|case| error(&test.run(case, candidate), &test.reference(case), main));
    errors.fold(0.0, f64::max)
}

/// Every good candidate strays at most four times as far as its rounding points alone, which is what
/// the judge allows, and every twin further, and further than any good one by this factor.
pub(super) fn good_ones_are_near_and_twins_far<M: Microtest>(
    test: &M,
    cases: &Cases<M::Case>,
    text: &str,
    factor: f64,
) {
    let (good, twins) = parsed(test, text);
    let mut worst = 0.0_f64;
    for candidate in &good {
        let (times, at) = beyond(test, cases, candidate);
        assert!(times < 4.0, "`{}` strays {times:.1} times what its rounding explains: {at}", candidate.name);
        worst = worst.max(largest(test, cases, candidate));
    }
    for twin in &twins {
        let (times, at) = beyond(test, cases, twin);
        assert!(times > 4.0, "`{}` is not caught: {times:.1} times what its rounding explains: {at}", twin.name);
        let far = largest(test, cases, twin);
        assert!(far > factor * worst, "`{}` errs by {far:.2e}, the worst good candidate by {worst:.2e}", twin.name);
    }
}

/// Without rounding and fault the candidate's arithmetic is the reference, whatever it chooses.
pub(super) fn exact_is_the_reference<M: Microtest>(test: &M, cases: &Cases<M::Case>) {
    let spec = test.spec();
    let mut variants = vec![Candidate::exact(spec.name)];
    for (choice, values) in spec.choices {
        let with = |candidate: &Candidate, value: &str| {
            let mut candidate = candidate.clone();
            candidate.choose.insert((*choice).into(), value.into());
            candidate
        };
        variants =
            values.iter().flat_map(|value| variants.iter().map(|c| with(c, value)).collect::<Vec<_>>()).collect();
    }
    for case in &cases.cases {
        let right = test.reference(case);
        let names: Vec<&str> = right.parts.iter().map(|p| p.name).collect();
        assert_eq!(names, spec.parts);
        for candidate in &variants {
            let got = test.run(case, candidate);
            for (part, name) in names.iter().enumerate() {
                let off = error(&got, &right, part);
                assert!(off < 1e-12, "{:?}: {name} is off by {off}", candidate.choose);
            }
            assert_eq!(kept(got.sets.as_ref()), kept(right.sets.as_ref()));
        }
    }
}

fn kept(sets: Option<&KeptSets>) -> Vec<&[u32]> {
    sets.map_or_else(Vec::new, |s| s.rows.iter().map(|r| r.kept.as_slice()).collect())
}

/// The labels fit the cases, and the same seed gives the same bits.
pub(super) fn cases_are_whole<M: Microtest>(test: &M, [first, again]: [&Cases<M::Case>; 2]) {
    assert_eq!(first.labels.len(), first.cases.len());
    assert!(!first.shape.is_empty() && !first.provenance.is_empty());
    for (a, b) in first.cases.iter().zip(&again.cases) {
        assert_eq!(test.reference(a), test.reference(b));
    }
}
