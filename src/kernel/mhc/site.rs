//! One site of the hyper-connections under a candidate's arithmetic.
//!
//! Responsible for the mixing with a candidate's rounding points, and for its known-bad twins. Not
//! responsible for what comes of it through a whole model, which is [`crate::kernel::mhc::chain`].
//!
//! A candidate rounds in the mixing product alone; split, Sinkhorn and combination stay in f64, so
//! that its curve shows this product and nothing else.

use crate::kernel::candidate::Candidate;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::{Microtest, Outcome, PartValues, SpecInfo};
use crate::kernel::oracle::hyper::{self, Coefficients, MIXES, STREAMS, Site, combine, site_input, split, transpose};
use crate::kernel::oracle::{EPS, inverse_rms};
use crate::kernel::specs::activations::{dice, moved};
use crate::kernel::specs::product::product;
use crate::kernel::task::{Scratch, Task};
use crate::kernel::tensors::{Slot, Tensor};

/// Name of the spec.
pub const SPEC: &str = "mhc-mix";

/// The mixing of the hyper-connections.
#[derive(Clone, Copy, Debug)]
pub struct MhcMix;

/// What enters one site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteCase {
    /// Its weights.
    pub site: Site,
    /// Streams, `[tokens, 4, width]`.
    pub streams: Vec<f64>,
    /// Output of the sublayer, `[tokens, width]`, the same for every candidate.
    pub output: Vec<f64>,
}

/// Its vocabulary.
pub static INFO: SpecInfo = SpecInfo {
    name: SPEC,
    says: "how far does the mixing of the hyper-connections stray in bf16 and tf32, per site and compounded",
    parts: &["mixes", "site-input", "streams"],
    stored: Rounding::Bf16,
    points: &[
        ("weight", "`fn` before the product"),
        ("streams", "the streams before the product"),
        ("output", "the product before it is divided by the root mean square"),
    ],
    choices: &[],
    faults: &[
        ("transposed", "the combination sums over the second index"),
        ("post-factor-forgotten", "`post` lacks its factor 2"),
        ("scale-twice", "the scales are applied twice"),
        ("eps-misplaced", "eps is added to the root, not under it"),
        ("one-stream-copied", "the first stream stands in for all four in the product"),
    ],
    candidates: include_str!("../../../kernels/candidates/mhc-mix.toml"),
    does_not_show: "split, Sinkhorn, combination or the head's mixing in another arithmetic, nor lengths beyond this \
                    prompt, nor a fault in how the kernel addresses memory",
};

impl Microtest for MhcMix {
    type Case = SiteCase;

    fn spec(&self) -> &'static SpecInfo {
        &INFO
    }

    fn reference(&self, case: &SiteCase) -> Outcome {
        let mixes = hyper::mixes(&case.site, &case.streams);
        let coefficients: Vec<Coefficients> =
            mixes.iter().map(|m| split(m, case.site.scale, &case.site.base)).collect();
        outcome(case, &mixes, &coefficients)
    }

    fn run(&self, case: &SiteCase, candidate: &Candidate) -> Outcome {
        let mixes = mixes(candidate, &case.site, &case.streams);
        let coefficients = coefficients(candidate, &case.site, &mixes);
        outcome(case, &mixes, &coefficients)
    }

    fn task(&self, case: &SiteCase) -> Option<Task> {
        let inner = case.site.rows.len() / MIXES;
        let tokens = case.streams.len() / inner;
        let weight = Tensor::whole("weight", &[MIXES, inner], &case.site.rows);
        Some(task(weight, Tensor::rows("streams", &[tokens, inner], &case.streams)))
    }

    fn read(&self, case: &SiteCase, candidate: &Candidate, outputs: &[Tensor]) -> Outcome {
        let mixes = mixes_of(outputs);
        let coefficients = coefficients(candidate, &case.site, &mixes);
        outcome(case, &mixes, &coefficients)
    }

    fn flipped(&self, case: &SiteCase, seed: u64) -> SiteCase {
        SiteCase { streams: moved(&case.streams, &mut dice(seed, 0)), ..case.clone() }
    }
}

/// The mixing of one site as tensors: `weight` is `[24, inner]`, `streams` is `[tokens, inner]`.
pub fn task(weight: Tensor, streams: Tensor) -> Task {
    let (tokens, inner) = (streams.shape[0], streams.shape[1]);
    Task {
        rows: tokens,
        outputs: vec![Slot::rows("products", &[tokens, MIXES]), Slot::rows("inverse_rms", &[tokens])],
        ints: vec![("inner", inner)],
        floats: vec![("eps", EPS as f32)],
        // 24 products and one sum of squares, in rows of 32 numbers.
        scratch: Scratch { row_and_split: 32 * 4, ..Scratch::default() },
        unread: 0,
        flops: 2.0 * (MIXES * tokens * inner) as f64,
        inputs: vec![weight, streams],
    }
}

/// The mixes out of products and inverse root mean squares.
fn mixes_of(outputs: &[Tensor]) -> Vec<[f64; MIXES]> {
    let (products, inverse) = (outputs[0].numbers(), outputs[1].numbers());
    let (products, _) = products.as_chunks::<MIXES>();
    products.iter().zip(inverse).map(|(product, scale)| product.map(|p| p * scale)).collect()
}

fn outcome(case: &SiteCase, mixes: &[[f64; MIXES]], coefficients: &[Coefficients]) -> Outcome {
    let width = case.site.rows.len() / MIXES / STREAMS;
    let input = site_input(coefficients.iter().map(|c| c.pre), &case.streams, width);
    let streams = combine(coefficients, &case.output, &case.streams, width);
    let parts = vec![
        PartValues { name: "mixes", columns: MIXES, values: mixes.as_flattened().to_vec() },
        PartValues { name: "site-input", columns: width, values: input },
        PartValues { name: "streams", columns: STREAMS * width, values: streams },
    ];
    Outcome { parts, sets: None }
}

/// The mixes of every token of `streams` (`[tokens, 4 * width]`) by the candidate's arithmetic.
pub fn mixes(candidate: &Candidate, site: &Site, streams: &[f64]) -> Vec<[f64; MIXES]> {
    let width = site.rows.len() / MIXES;
    let weights = candidate.at("weight").store(&site.rows, width);
    let mut inputs = candidate.at("streams").store(streams, width);
    if candidate.has_fault("one-stream-copied") {
        for token in inputs.chunks_exact_mut(width) {
            let (first, others) = token.split_at_mut(width / STREAMS);
            others.chunks_exact_mut(width / STREAMS).for_each(|other| other.copy_from_slice(first));
        }
    }
    let products = product(candidate.accumulate, &weights, &inputs, width);
    let products = candidate.at("output").store(&products, MIXES);
    let (products, _) = products.as_chunks::<MIXES>();
    products
        .iter()
        .zip(streams.chunks_exact(width))
        .map(|(product, token)| {
            let scale =
                if candidate.has_fault("eps-misplaced") { misplaced_inverse_rms(token) } else { inverse_rms(token) };
            product.map(|p| p * scale)
        })
        .collect()
}

/// The coefficients that a candidate makes of its mixes.
pub fn coefficients(candidate: &Candidate, site: &Site, mixes: &[[f64; MIXES]]) -> Vec<Coefficients> {
    let scale = if candidate.has_fault("scale-twice") { site.scale.map(|s| s * s) } else { site.scale };
    mixes
        .iter()
        .map(|m| {
            let right = split(m, scale, &site.base);
            match candidate.fault.as_deref() {
                Some("transposed") => Coefficients { comb: transpose(&right.comb), ..right },
                Some("post-factor-forgotten") => Coefficients { post: right.post.map(|p| p / 2.0), ..right },
                _ => right,
            }
        })
        .collect()
}

fn misplaced_inverse_rms(v: &[f64]) -> f64 {
    let squares: f64 = v.iter().map(|x| x * x).sum();
    1.0 / ((squares / v.len() as f64).sqrt() + EPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::candidate::{self, Accumulate, Order};
    use crate::kernel::format::round_bf16;
    use crate::kernel::matrix::Matrix;

    fn all() -> Vec<Candidate> {
        candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).unwrap()
    }

    fn case() -> SiteCase {
        let rows: Vec<f64> = (0..MIXES * 16).map(|i| f64::from((i as f32 * 0.37).sin())).collect();
        SiteCase {
            site: Site {
                matrix: Matrix::pack(&rows, MIXES, 16),
                rows,
                scale: [0.7, 0.6, 0.5],
                base: std::array::from_fn(|i| i as f64 / 30.0 - 0.4),
            },
            streams: (0..48).map(|i| f64::from((i as f32 * 0.91).cos())).collect(),
            output: (0..12).map(|i| f64::from((i as f32 * 0.5).sin())).collect(),
        }
    }

    fn exact() -> Candidate {
        Candidate::exact(SPEC)
    }

    #[test]
    fn without_rounding_a_candidate_is_the_reference() {
        let case = case();
        assert_eq!(MhcMix.run(&case, &exact()), MhcMix.reference(&case));
    }

    #[test]
    fn each_rounding_point_shows_alone() {
        let case = case();
        let right = MhcMix.reference(&case);
        for point in ["weight", "streams", "output"] {
            let mut candidate = exact();
            candidate.round.insert(point.into(), crate::kernel::format::Storage::Element(Rounding::Bf16));
            assert_ne!(MhcMix.run(&case, &candidate), right, "{point}");
        }
        let sums = Candidate { accumulate: Accumulate::f32(1), ..exact() };
        assert_ne!(MhcMix.run(&case, &sums), right);
    }

    #[test]
    fn the_output_is_rounded_before_the_root_mean_square() {
        let case = case();
        let mut candidate = exact();
        candidate.round.insert("output".into(), crate::kernel::format::Storage::Element(Rounding::Bf16));
        let got = mixes(&candidate, &case.site, &case.streams);
        let product: f64 = case.site.rows[..16].iter().zip(&case.streams).map(|(w, x)| w * x).sum();
        assert_eq!(got[0][0], Rounding::Bf16.round(product) * inverse_rms(&case.streams[..16]));
    }

    #[test]
    fn every_twin_changes_the_streams() {
        let case = case();
        let main = |outcome: &Outcome| outcome.parts[2].values.clone();
        let right = main(&MhcMix.reference(&case));
        let twins: Vec<Candidate> = all().into_iter().filter(|c| c.fault.is_some()).collect();
        assert_eq!(twins.len(), INFO.faults.len());
        for twin in &twins {
            assert_ne!(main(&MhcMix.run(&case, twin)), right, "{}", twin.name);
        }
    }

    #[test]
    fn orders_of_the_sums_agree_up_to_f32() {
        let case = case();
        let right = MhcMix.reference(&case).parts[0].values.clone();
        for (splits, order) in
            [(1, Order::Ascending), (1, Order::Descending), (3, Order::Ascending), (1, Order::Pairwise)]
        {
            let accumulate = Accumulate { dtype: Rounding::F32, splits, order };
            let got = MhcMix.run(&case, &Candidate { accumulate, ..exact() });
            let error = crate::kernel::measure::rel_l2(&got.parts[0].values, &right).unwrap();
            assert!((1e-9..1e-6).contains(&error), "{error}");
        }
    }

    #[test]
    fn one_value_in_eight_moves_by_one_unit() {
        let values: Vec<f64> = (0..8000).map(|i| f64::from(round_bf16((i as f32 * 0.37).sin()))).collect();
        let flip = |values: &[f64], seed| moved(values, &mut dice(seed, 0));
        let got = flip(&values, 7);
        let moved = values.iter().zip(&got).filter(|(a, b)| a != b).count();
        assert!((800..1200).contains(&moved), "{moved}");
        let far = values.iter().zip(&got).map(|(a, b)| ((a - b) / a).abs()).filter(|e| e.is_finite());
        assert!(far.fold(0.0, f64::max) <= 2_f64.powi(-7));
        assert_eq!(flip(&values, 7), got);
        assert!(flip(&[0.0, f64::NAN, f64::INFINITY], 1)[1].is_nan());
    }
}
