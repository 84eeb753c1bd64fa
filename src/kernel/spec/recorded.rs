//! Microtests on recorded activations.
//!
//! Responsible for which microtest takes what of a recording with which weights, and for what its report says of it. Not
//! responsible for choosing and checking tensors, which is [`crate::kernel::recorded`].

use std::path::Path;

use super::{Doer, Pace, Reports, mhc_mix_from, real_size};
use crate::engine::procedure::Failure;
use crate::kernel::checkpoint::Checkpoint;
use crate::kernel::config::ModelConfig;
use crate::kernel::inputs::{self, CheckpointSites, Inputs, SEED};
use crate::kernel::mhc::{self, site::SiteCase};
use crate::kernel::microtest::{Cases, Microtest, SpecInfo};
use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::oracle::model::{Model, WIDTH};
use crate::kernel::recorded::{Found, Recording, Sizes, TAKING, Taken, spots};
use crate::kernel::report::{MicroReport, Recorded, recorded};
use crate::kernel::sites::Sites;
use crate::kernel::sites::recorded::RecordedSites;
use crate::kernel::sites::synthetic::Synthetic;
use crate::kernel::specs::norm::{self, Norm};
use crate::kernel::specs::quantise::{self, Quantise};
use crate::kernel::specs::router::{self, Router};
use crate::kernel::sweep::Cancelled;

/// The most tokens of a recording that pass through the lab model.
const LAB_TOKENS: usize = 256;

/// Opens a recording for a microtest.
///
/// # Errors
/// The microtest takes none, or there is none.
pub(super) fn open(spec: &SpecInfo, place: &Path) -> Result<Recording, Failure> {
    if !TAKING.contains(&spec.name) {
        return Err(Failure::new(format!("microtest `{}` takes no recorded activations", spec.name))
            .hint(format!("{} do; leave `--activations` out for the others", TAKING.join(", "))));
    }
    Recording::open(place)
}

/// Measures a microtest on a recording.
///
/// # Errors
/// Nothing of it fits, weights cannot be read, or somebody cancelled.
pub(super) fn reports(spec: &str, inputs: &Inputs, recording: &Recording, doer: &Doer<'_>) -> Result<Reports, Failure> {
    let sizes = match inputs {
        // It has no part in the lab model.
        Inputs::Lab { .. } if spec == quantise::INFO.name => Sizes::of(&ModelConfig::flash()),
        Inputs::Lab { .. } => Sizes::LAB,
        Inputs::Real { config, .. } | Inputs::Synthetic(config) => Sizes::of(config),
    };
    let found = recording.at(spec, &spots(spec, &sizes), sizes.layers)?;
    let took = |[most, rows]: [usize; 2]| recording.take_some(&found, most, rows);
    match spec {
        mhc::SPEC => mixing(inputs, recording, &found, doer),
        "router" => {
            let taken = took(router::RECORDED)?;
            let cases = match inputs {
                Inputs::Lab { model, .. } => router::recorded_in_lab(model, &taken),
                Inputs::Real { config, .. } | Inputs::Synthetic(config) => router::recorded(config, SEED, &taken),
            };
            measure(&Router, cases, &taken, &found, doer)
        }
        "norm" => {
            let taken = took(norm::RECORDED)?;
            let cases = match inputs {
                Inputs::Lab { model, .. } => norm::recorded_in_lab(model, &taken),
                Inputs::Real { config, .. } | Inputs::Synthetic(config) => norm::recorded(config, SEED, &taken),
            };
            measure(&Norm, cases, &taken, &found, doer)
        }
        "quantise" => {
            let taken = took(quantise::RECORDED)?;
            measure(&Quantise, quantise::recorded(SEED, &taken), &taken, &found, doer)
        }
        other => Err(Failure::new(format!("microtest `{other}` takes no recorded activations"))),
    }
}

/// The reports with the tensors that they rest on.
fn named(reports: Reports, recorded: &[Recorded]) -> Reports {
    let one = |report: MicroReport| MicroReport { recorded: recorded.to_vec(), ..report };
    reports.into_iter().map(|report| report.map(one)).collect()
}

fn measure<M: Microtest>(
    test: &M,
    cases: Cases<M::Case>,
    taken: &[Taken],
    found: &[Found],
    doer: &Doer<'_>,
) -> Result<Reports, Failure> {
    let recorded: Vec<Recorded> = taken.iter().map(|taken| taken.recorded.clone()).collect();
    let some = match found.len() - taken.len() {
        0 => String::new(),
        _ => format!(" ({} of {} tensors, in whole layers spread evenly)", taken.len(), found.len()),
    };
    let provenance = format!("{}{some}; {}", recorded::says(&recorded), cases.provenance);
    Ok(named(doer.measure(test, &Cases { provenance, ..cases })?, &recorded))
}

fn mixing(inputs: &Inputs, recording: &Recording, found: &[Found], doer: &Doer<'_>) -> Result<Reports, Failure> {
    match inputs {
        Inputs::Lab { model, place } => mixing_in_lab(model, place, recording, found, doer),
        Inputs::Synthetic(config) => {
            let activations = activations(config, recording, found, doer)?;
            let weights = format!("weights made up, {}", activations.made().says());
            Ok(mixing_at_real_size(activations.made(), &weights, &activations, " as well", doer))
        }
        Inputs::Real { checkpoint, config } => {
            let activations = activations(config, recording, found, doer)?;
            mixing_of_checkpoint(checkpoint, config, &activations, doer)
        }
    }
}

fn mixing_of_checkpoint(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    activations: &RecordedSites<'_, Synthetic>,
    doer: &Doer<'_>,
) -> Result<Reports, Failure> {
    let weights = CheckpointSites::fetch(checkpoint, config, doer.progress, doer.cancelled)?;
    let (says, made) = (format!("weights of {}", checkpoint.summary()), format!(": {}", activations.made().says()));
    Ok(mixing_at_real_size(&weights, &says, activations, &made, doer))
}

fn activations<'a>(
    config: &ModelConfig,
    recording: &'a Recording,
    found: &[Found],
    doer: &Doer<'_>,
) -> Result<RecordedSites<'a, Synthetic>, Failure> {
    let make = |tokens| Synthetic::new(2 * config.num_hidden_layers, config.hidden_size, tokens, inputs::SEED);
    RecordedSites::new(recording, found, make, &|| {
        if (doer.cancelled)() { Err(Cancelled.into()) } else { Ok(()) }
    })
}

/// `made` goes on from "made up", where something is.
fn mixing_at_real_size(
    sites: &dyn Sites,
    weights: &str,
    activations: &RecordedSites<'_, Synthetic>,
    made: &str,
    doer: &Doer<'_>,
) -> Reports {
    let recorded = activations.taken();
    let lacks = activations.lacks(sites.count()).map(|lacks| format!("; {lacks} made up{made}")).unwrap_or_default();
    let provenance = format!("{weights}; {}; {}{lacks}", recorded::says(&recorded), activations.says(sites.count()));
    // Recorded activations hold the tensors of one site, and two cards are never at the same one.
    named(real_size(sites, activations, &provenance, Pace::InTurn, doer), &recorded)
}

/// The lab model from its recorded first streams on, or else from its own prompt; each site with recorded streams is
/// measured on these. The outputs of its sublayers are its own.
fn mixing_in_lab(
    model: &Model,
    place: &str,
    recording: &Recording,
    found: &[Found],
    doer: &Doer<'_>,
) -> Result<Reports, Failure> {
    let taken: Vec<Taken> = found.iter().map(|found| recording.take(found, LAB_TOKENS)).collect::<Result<_, _>>()?;
    let site = |taken: &Taken| 2 * taken.found.layer + usize::from(taken.found.name == "hc_ffn_input");
    let recorded: Vec<Recorded> = taken.iter().map(|taken| taken.recorded.clone()).collect();
    let first = taken.iter().find(|taken| site(taken) == 0).map(|taken| taken.values.clone());
    let through = if first.is_some() { "those recorded before the first site" } else { "the lab's golden prompt" };
    let says = recorded::says(&recorded);
    let first = match first {
        Some(first) => first,
        None => model.embed(&mhc::golden_ids()?),
    };
    let cases = |reference: &mhc::chain::Reference| {
        let mut cases = mhc::cases(model, reference, place);
        for taken in &taken {
            let (site, streams) = (site(taken), taken.values.clone());
            let (_, coefficients) = model.coefficients(site, &streams);
            let output = model.step(site, &streams, &coefficients).output;
            cases.cases[site] = SiteCase { site: model.site(site).clone(), streams, output };
        }
        let rows = taken.iter().map(|taken| taken.recorded.rows).max().unwrap_or(0);
        cases.shape = format!(
            "{} of {} sites on recorded streams, at most {rows} tokens; {} tokens through the model, 4 streams of {WIDTH}",
            taken.len(),
            cases.cases.len(),
            reference.first.len() / (STREAMS * WIDTH)
        );
        cases.provenance = format!(
            "{says}; weights of {place}; all other streams, and those that pass through the model, of an f64 forward pass \
             over {through}"
        );
        cases
    };
    Ok(named(mhc_mix_from(model, first, cases, doer)?, &recorded))
}
