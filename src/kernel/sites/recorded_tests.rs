//! Recorded activations at the real size against the plain microtest of one site.

use safetensors::Dtype;

use super::*;
use crate::kernel::candidate::{self, Candidate};
use crate::kernel::matrix::Matrix;
use crate::kernel::measure::rel_l2;
use crate::kernel::mhc::site::{INFO, MhcMix, SiteCase};
use crate::kernel::microtest::Microtest as _;
use crate::kernel::oracle::hyper::{self, MIXES, STREAMS, Site};
use crate::kernel::recorded::tests::{Written, tensor, write};
use crate::kernel::recorded::{Sizes, spots};
use crate::kernel::sites::Sites as _;
use crate::kernel::sites::alone::{Alone, Inputs, alone};
use crate::kernel::sites::compounded::compounded;
use crate::kernel::sites::synthetic::Synthetic;

const WIDTH: usize = 96;
const LAYERS: usize = 2;
const TOKENS: usize = 16;
const SITES: usize = 2 * LAYERS;

fn made(tokens: usize) -> Synthetic {
    Synthetic::new(SITES, WIDTH, tokens, 3)
}

const QUIET: &dyn Fn() -> Result<(), Failure> = &|| Ok(());

fn all() -> Vec<Candidate> {
    candidate::parse(INFO.candidates, "the built-in file", &[&INFO]).unwrap()
}

/// A file of these tensors, opened, with what is found in it.
struct Opened {
    folder: tempfile::TempDir,
    recording: Recording,
    found: Vec<Found>,
}

impl Opened {
    fn new(tensors: &[Written<'_>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "d.safetensors", tensors);
        let recording = Recording::open(folder.path()).unwrap();
        let sizes = Sizes { layers: LAYERS, hidden: WIDTH, rank: None, heads: 1, head: 1, whole: false };
        let found = recording.at("mhc-mix", &spots("mhc-mix", &sizes), LAYERS).unwrap();
        Self { folder, recording, found }
    }

    fn sites(&self) -> Result<RecordedSites<'_, Synthetic>, Failure> {
        RecordedSites::new(&self.recording, &self.found, made, QUIET)
    }
}

fn measured(activations: &dyn Activations) -> Alone {
    alone(&made(8), activations, &all(), Inputs::Still, None, QUIET).unwrap()
}

fn bf16_of(value: f64) -> f64 {
    bf16::from_f32(value as f32).to_f64()
}

fn wave(number: usize, count: usize) -> Vec<f64> {
    (0..count).map(|i| bf16_of(((number * 7919 + i) as f64 * 0.377).sin() * 2.0)).collect()
}

/// A tensor of a site: `layers.N.hc_attn_input`, `layers.N.ffn_output` and the like.
fn name(site: usize, what: &str) -> String {
    let part = if site.is_multiple_of(2) { "attn" } else { "ffn" };
    format!("layers.{}.{}", site / 2, what.replace("PART", part))
}

const STREAMS_OF: &str = "hc_PART_input";
const OUTPUT_OF: &str = "PART_output";

/// What the recording has of a site, with the site's made-up weights.
fn case(site: usize, streams: Vec<f64>) -> SiteCase {
    let weights = made(8).weights(site).unwrap();
    let rows: Vec<f64> = weights.mixing.iter().map(|w| f64::from(*w)).collect();
    let site_weights = Site {
        matrix: Matrix::pack(&rows, MIXES, STREAMS * WIDTH),
        rows,
        scale: weights.scale.map(f64::from),
        base: weights.base.map(f64::from),
    };
    SiteCase { site: site_weights, streams, output: wave(10 + site, TOKENS * WIDTH) }
}

/// The streams that come out of a site, as they are stored.
fn after(case: &SiteCase) -> Vec<f64> {
    let coefficients: Vec<_> = hyper::mixes(&case.site, &case.streams)
        .iter()
        .map(|m| hyper::split(m, case.site.scale, &case.site.base))
        .collect();
    hyper::combine(&coefficients, &case.output, &case.streams, WIDTH).into_iter().map(bf16_of).collect()
}

fn check(got: &Alone, cases: &[SiteCase]) {
    for (site, case) in cases.iter().enumerate() {
        let right = MhcMix.reference(case).parts[2].values.clone();
        for (candidate, errors) in all().iter().zip(&got.arithmetics) {
            let plain = MhcMix.run(case, candidate).parts[2].values.clone();
            let (expect, found) = (rel_l2(&plain, &right).unwrap(), errors.parts[site][3].rel_l2().unwrap());
            let near = (found - expect).abs() <= 1e-6 * expect + 1e-15;
            assert!(near, "{} at site {site}: {found} where {expect} is right", candidate.name);
        }
    }
}

/// Streams of the sites that are named and outputs of all.
fn opened(streams: &[(usize, Vec<f64>)], dtype: Dtype) -> Opened {
    let names: Vec<[String; 2]> = (0..SITES).map(|site| [STREAMS_OF, OUTPUT_OF].map(|what| name(site, what))).collect();
    let mut tensors = Vec::new();
    for (site, values) in streams {
        tensors.push(tensor(&names[*site][0], dtype, &[TOKENS, STREAMS, WIDTH], values));
    }
    for (site, names) in names.iter().enumerate() {
        tensors.push(tensor(&names[1], dtype, &[1, TOKENS, WIDTH], &wave(10 + site, TOKENS * WIDTH)));
    }
    Opened::new(&tensors)
}

#[test]
fn each_site_is_measured_on_what_was_recorded_there() {
    let streams: Vec<(usize, Vec<f64>)> = (0..SITES).map(|site| (site, wave(site, TOKENS * STREAMS * WIDTH))).collect();
    for dtype in [Dtype::BF16, Dtype::F32] {
        let opened = opened(&streams, dtype);
        let recorded = opened.sites().unwrap();
        let cases: Vec<SiteCase> = streams.iter().map(|(site, streams)| case(*site, streams.clone())).collect();
        check(&measured(&recorded), &cases);
        assert_eq!((recorded.tokens(), recorded.lacks(SITES), recorded.taken().len()), (TOKENS, None, 2 * SITES));
        let rounded = if dtype == Dtype::BF16 { "" } else { ", rounded to bf16" };
        assert_eq!(recorded.says(SITES), format!("streams at 4 of 4 sites and outputs of 4 sublayers{rounded}"));
    }
}

#[test]
fn from_the_first_streams_and_the_outputs_the_reference_comes_by_all_others() {
    let mut cases = vec![case(0, wave(0, TOKENS * STREAMS * WIDTH))];
    for site in 1..SITES {
        cases.push(case(site, after(&cases[site - 1])));
    }
    let one = opened(&[(0, cases[0].streams.clone())], Dtype::BF16);
    let recorded = one.sites().unwrap();
    check(&measured(&recorded), &cases);
    let every = opened(&cases.iter().map(|c| c.streams.clone()).enumerate().collect::<Vec<_>>(), Dtype::BF16);
    let chains = |activations: &dyn Activations| compounded(&made(8), activations, &all()[..1], None, QUIET).unwrap();
    assert_eq!(chains(&recorded), chains(&every.sites().unwrap()), "a chain has the first streams alone");
}

#[test]
fn what_was_not_recorded_is_made_up_and_said() {
    let opened = Opened::new(&[tensor(
        &name(2, STREAMS_OF),
        Dtype::BF16,
        &[TOKENS + 3, STREAMS * WIDTH],
        &wave(2, (TOKENS + 3) * STREAMS * WIDTH),
    )]);
    let recorded = opened.sites().unwrap();
    assert_eq!((recorded.tokens(), recorded.taken()[0].rows), (TOKENS, TOKENS));
    let lacks = recorded.lacks(SITES).unwrap();
    assert_eq!(lacks, "streams before the first site and outputs of 4 sublayers");
    let (got, plain) = (measured(&recorded), measured(&made(TOKENS)));
    let streams = |alone: &Alone, site: usize| alone.arithmetics[0].parts[site][3].rel_l2().unwrap();
    assert_eq!([streams(&got, 0), streams(&got, 1)], [streams(&plain, 0), streams(&plain, 1)]);
    assert!(streams(&got, 2) != streams(&plain, 2) && streams(&got, 3) != streams(&plain, 3));
}

#[test]
fn what_cannot_be_stored_in_bf16_or_changes_meanwhile_is_refused() {
    let few = Opened::new(&[tensor("layers.1.ffn_output", Dtype::BF16, &[7, WIDTH], &wave(1, 7 * WIDTH))]);
    let failure = few.sites().unwrap_err();
    assert!(failure.message.starts_with("tensor `layers.1.ffn_output` has 7 tokens"), "{}", failure.message);

    let mut values = wave(1, TOKENS * WIDTH);
    values[5] = 3.4e38;
    let large = Opened::new(&[tensor("layers.1.ffn_output", Dtype::F32, &[TOKENS, WIDTH], &values)]);
    let failure = large.sites().unwrap_err();
    assert!(failure.message.ends_with("has values beyond bf16"), "{}", failure.message);

    let opened = opened(&[], Dtype::BF16);
    let recorded = opened.sites().unwrap();
    let other = tensor("layers.1.ffn_output", Dtype::BF16, &[TOKENS, WIDTH], &wave(77, TOKENS * WIDTH));
    write(opened.folder.path(), "d.safetensors", &[other]);
    let failure = recorded.at_site(3).unwrap_err();
    assert!(failure.message.ends_with("changed while it was measured"), "{}", failure.message);
    assert!(recorded.at_site(0).is_err(), "its tensor is gone");
}
