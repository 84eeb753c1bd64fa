//! The sweep over sites against the plain microtest of one site, and its own invariants.

use super::*;
use crate::kernel::candidate::{self, Accumulate, Order};
use crate::kernel::matrix::Matrix;
use crate::kernel::measure;
use crate::kernel::mhc::site::{INFO, MhcMix, SiteCase};
use crate::kernel::microtest::Microtest as _;
use crate::kernel::oracle::hyper::{self, Site};
use crate::kernel::sites::group::row;
use crate::kernel::sites::swept::First;
use crate::kernel::sites::synthetic::Synthetic;

const WIDTH: usize = 96;

fn all() -> Vec<Candidate> {
    candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).unwrap()
}

fn parsed(text: &str) -> Candidate {
    toml::from_str(&format!("spec = \"mhc-mix\"\nname = \"n\"\n{text}")).unwrap()
}

fn inputs() -> Synthetic {
    Synthetic::new(3, WIDTH, 48, 5)
}

const QUIET: &dyn Fn() -> Result<(), Failure> = &|| Ok(());

/// The reference's chain in plain loops: the case of each site.
fn cases(inputs: &Synthetic) -> Vec<SiteCase> {
    let inner = STREAMS * WIDTH;
    let rows = |groups: &[Vec<f64>]| -> Vec<f64> {
        groups.iter().flat_map(|group| (0..GROUP).flat_map(|lane| row(group, lane)).collect::<Vec<_>>()).collect()
    };
    let groups = inputs.tokens() / GROUP;
    let mut first: Vec<Vec<f64>> = vec![vec![0.0; inner * GROUP]; groups];
    for (g, group) in first.iter_mut().enumerate() {
        inputs.first(g * GROUP, group);
        *group = group.iter().map(|v| bf16::from_f32(*v as f32).to_f64()).collect();
    }
    let mut streams = rows(&first);
    let mut cases = Vec::new();
    for site in 0..inputs.count() {
        let weights = inputs.weights(site).unwrap();
        let mixing: Vec<f64> = weights.mixing.iter().map(|w| f64::from(*w)).collect();
        let affine = affine(&weights);
        let site_weights =
            Site { matrix: Matrix::pack(&mixing, MIXES, inner), rows: mixing, scale: affine.scale, base: affine.base };
        let mut outputs = Vec::new();
        for g in 0..groups {
            let mut mean = vec![0.0; WIDTH * GROUP];
            for d in 0..WIDTH {
                for lane in 0..GROUP {
                    let token = &streams[(g * GROUP + lane) * inner..][..inner];
                    mean[d * GROUP + lane] =
                        (token[d] + token[WIDTH + d] + token[2 * WIDTH + d] + token[3 * WIDTH + d]) / 4.0;
                }
            }
            let mut output = vec![0.0; WIDTH * GROUP];
            inputs.output(site, g * GROUP, 0, &mean, &mut output);
            outputs.push(output);
        }
        let case = SiteCase { site: site_weights, streams: streams.clone(), output: rows(&outputs) };
        let coefficients: Vec<_> = hyper::mixes(&case.site, &case.streams)
            .iter()
            .map(|m| hyper::split(m, case.site.scale, &case.site.base))
            .collect();
        let new = hyper::combine(&coefficients, &case.output, &case.streams, WIDTH);
        streams = new.iter().map(|v| bf16::from_f32(*v as f32).to_f64()).collect();
        cases.push(case);
    }
    cases
}

/// Every error of every arithmetic is what the plain microtest of one site finds.
fn check(arithmetics: &[Candidate]) {
    let inputs = inputs();
    let got = alone(&inputs, &inputs, arithmetics, Inputs::Still, None, QUIET).unwrap();
    for (site, case) in cases(&inputs).iter().enumerate() {
        let right = MhcMix.reference(case);
        for (candidate, errors) in arithmetics.iter().zip(&got.arithmetics) {
            let plain = MhcMix.run(case, candidate);
            for (name, part) in PARTS.iter().zip(&errors.parts[site]) {
                let Some(at) = right.parts.iter().position(|p| p.name == *name) else { continue };
                let (plain, right) = (&plain.parts[at].values, &right.parts[at].values);
                let expect = measure::rel_l2(plain, right).unwrap();
                let found = part.rel_l2().unwrap();
                let near = (found - expect).abs() <= 1e-6 * expect + 1e-15;
                assert!(near, "{} {} at site {site}: {found} where {expect} is right", candidate.name, name);
            }
        }
        let streams = &right.parts.last().unwrap().values;
        let stored: Vec<f64> = streams.iter().map(|v| bf16::from_f32(*v as f32).to_f64()).collect();
        let expect = measure::rel_l2(&stored, streams).unwrap();
        assert!((got.stored[site].rel_l2().unwrap() - expect).abs() < 1e-12, "floor at site {site}");
    }
}

#[test]
fn candidates_and_twins_have_the_errors_of_the_plain_microtest() {
    check(&all());
}

#[test]
fn other_orders_formats_and_splits_have_the_errors_of_the_plain_microtest() {
    let mut some = Vec::new();
    for (order, splits) in [(Order::Descending, 1), (Order::Pairwise, 1), (Order::Ascending, 3), (Order::Ascending, 64)]
    {
        for dtype in [crate::kernel::format::Rounding::F32, crate::kernel::format::Rounding::Exact] {
            some.push(Candidate { accumulate: Accumulate { dtype, splits, order }, ..Candidate::exact("mhc-mix") });
        }
    }
    for text in [
        "round = { streams = \"f16\", weight = \"f16\" }\naccumulate = { in = \"f32\", splits = 5 }",
        "round = { streams = \"fp8-1x128\" }",
        "round = { weight = \"fp8-128x128\", output = \"fp8-row\" }\naccumulate = { in = \"f32\" }",
        "round = { streams = \"e4m3\" }\nfault = \"one-stream-copied\"\naccumulate = { in = \"f32\", splits = 7 }",
        "accumulate = { in = \"bf16\" }",
        "accumulate = { in = \"bf16\" }\nfault = \"one-stream-copied\"",
        "round = { output = \"bf16\" }\nfault = \"scale-twice\"",
    ] {
        some.push(parsed(text));
    }
    check(&some);
}

#[test]
fn without_rounding_there_is_no_error_at_all() {
    let inputs = inputs();
    let got = alone(&inputs, &inputs, &[Candidate::exact("mhc-mix")], Inputs::Still, None, QUIET).unwrap();
    for parts in &got.arithmetics[0].parts {
        assert!(parts.iter().all(|part| part.rel_l2() == Ok(0.0) && part.calc_diff() == 0.0), "{parts:?}");
    }
}

#[test]
fn threads_change_no_bit() {
    let inputs = inputs();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| alone(&inputs, &inputs, &all(), Inputs::Still, None, QUIET).unwrap())
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn tokens_know_nothing_of_their_batch() {
    // The first 8 of 48 tokens, alone: their heat is the same, bit by bit.
    let few = Synthetic::new(3, WIDTH, 8, 5);
    let whole = inputs();
    let many = First::of(&whole, 16);
    let all = all();
    let run = |activations: &dyn Activations| alone(&few, activations, &all, Inputs::Still, None, QUIET).unwrap();
    let (one, two) = (run(&First::of(&whole, 8)), run(&many));
    for (one, two) in one.arithmetics.iter().zip(&two.arithmetics) {
        for (one, two) in one.tokens.iter().zip(&two.tokens) {
            assert_eq!(one[..], two[..8]);
        }
    }
}

/// Sites of which one is damaged.
struct Damaged {
    inner: Synthetic,
    damage: fn(&mut SiteWeights),
}

impl Sites for Damaged {
    fn count(&self) -> usize {
        self.inner.count()
    }
    fn width(&self) -> usize {
        self.inner.width()
    }
    fn weights(&self, site: usize) -> Result<SiteWeights, Failure> {
        let mut weights = self.inner.weights(site)?;
        if site == 1 {
            (self.damage)(&mut weights);
        }
        Ok(weights)
    }
}

#[test]
fn a_weight_that_is_no_number_is_found_where_it_is() {
    // Row 9 of `fn` mixes one entry of the combination, which spoils the whole matrix by Sinkhorn.
    let sites = Damaged { inner: inputs(), damage: |w| w.mixing[9 * STREAMS * WIDTH + 4] = f32::NAN };
    let got = alone(&sites, &sites.inner, &all()[..1], Inputs::Still, None, QUIET).unwrap();
    let [mixes, comb, input, streams] = got.arithmetics[0].parts[1];
    assert_eq!((mixes.nan.count, mixes.nan.first), (48, 9));
    assert_eq!((comb.nan.count, comb.nan.first), (48 * 16, 0));
    assert!(input.rel_l2().is_ok());
    assert_eq!((streams.nan.count, streams.nan.first), ((48 * STREAMS * WIDTH) as u64, 0));
    assert!(got.arithmetics[0].tokens[1].iter().all(|t| t.is_nan()));
    assert!(got.arithmetics[0].parts[0].iter().all(|p| p.rel_l2().is_ok()));
}

#[test]
fn misshapen_weights_are_named() {
    let sites = Damaged { inner: inputs(), damage: |w| w.mixing.truncate(7) };
    let failure = alone(&sites, &sites.inner, &all(), Inputs::Still, None, QUIET).unwrap_err();
    assert!(failure.message.starts_with("`fn` of layer 0 ffn has 7 values where 9216"), "{}", failure.message);
    assert!(failure.hint.is_some());
}

#[test]
fn a_tick_that_fails_ends_the_sweep() {
    let inputs = inputs();
    let failure = alone(&inputs, &inputs, &all(), Inputs::Still, None, &|| Err(Failure::new("enough"))).unwrap_err();
    assert_eq!(failure.message, "enough");
}
