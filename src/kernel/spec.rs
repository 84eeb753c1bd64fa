//! The microtests by name, and the one door through which they are run.
//!
//! Responsible for names, devices, candidates and inputs of a run. Not responsible for any test
//! itself, nor for runs on recorded activations, which are `recorded`.

mod recorded;

use std::path::Path;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use crate::engine::procedure::Failure;
use crate::kernel::candidate::{self, Candidate};
use crate::kernel::config::ModelConfig;
use crate::kernel::inputs::{self, CheckpointSites, Inputs, cases};
use crate::kernel::judge;
use crate::kernel::mhc;
use crate::kernel::microtest::{Cases, Microtest, SpecInfo};
use crate::kernel::oracle::model::{Model, SITES};
use crate::kernel::report::MicroReport;
use crate::kernel::sites::synthetic::Synthetic;
use crate::kernel::sites::{Activations, Sites, swept};
use crate::kernel::specs::compressor::{self, CompressorTest};
use crate::kernel::specs::decode_attention::{self, DecodeAttention};
use crate::kernel::specs::indexer::{self, Indexer};
use crate::kernel::specs::norm::{self, Norm};
use crate::kernel::specs::quantise::{self, Quantise};
use crate::kernel::specs::router::{self, Router};
use crate::kernel::sweep::{self, Cancelled, Ticker};

/// All microtests of this version.
pub fn specs() -> &'static [&'static SpecInfo] {
    static ALL: [&SpecInfo; 7] = [
        &mhc::INFO,
        &indexer::INFO,
        &decode_attention::INFO,
        &compressor::INFO,
        &router::INFO,
        &norm::INFO,
        &quantise::INFO,
    ];
    &ALL
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the microtest.
    pub spec: &'a str,
    /// Device, such as `cpu`.
    pub device: &'a str,
    /// A folder, a file, one on a host (`ssh:HOST:/FOLDER`), or made up (`synthetic:flash`); `None` is the lab's.
    pub checkpoint: Option<&'a Path>,
    /// A file with more candidates; `None` leaves it at the built-in ones.
    pub candidates: Option<&'a Path>,
    /// A file or folder of recorded activations; `None` takes those of the lab's own pass, or made-up ones.
    pub activations: Option<&'a Path>,
    /// The time at the start.
    pub now: Timestamp,
}

/// Told steps done, steps in all and the phase, from several threads.
type Progress<'a> = dyn Fn(u64, u64, &str) + Sync + 'a;

/// Runs a microtest.
///
/// # Errors
/// There is no such spec or device, a candidate is wrong, the checkpoint does not fit, or somebody
/// cancelled.
pub fn run(
    request: &Request<'_>,
    progress: &Progress<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<MicroReport, Failure> {
    let begun = Instant::now();
    let spec = find(request.spec)?;
    check_device(request.device)?;
    let candidates = candidates(spec, request.candidates)?;
    let doer = Doer { candidates: &candidates, progress, cancelled };
    let recording = request.activations.map(|place| recorded::open(spec, request.device, place)).transpose()?;
    let inputs = Inputs::of(request.checkpoint, progress, cancelled)?;
    if let Some(recording) = &recording {
        return Ok(ended(request, begun, recorded::report(spec.name, &inputs, recording, &doer)?));
    }
    let report = match spec.name {
        mhc::SPEC => mhc_mix(&inputs, &doer)?,
        "indexer" => doer.measure(&Indexer, &cases(&inputs, indexer::synthetic, Some(indexer::lab))?)?,
        "decode-attention" => {
            doer.measure(&DecodeAttention, &cases(&inputs, decode_attention::synthetic, Some(decode_attention::lab))?)?
        }
        "compressor" => doer.measure(&CompressorTest, &cases(&inputs, compressor::synthetic, None)?)?,
        "router" => doer.measure(&Router, &cases(&inputs, router::synthetic, Some(router::lab))?)?,
        "norm" => doer.measure(&Norm, &cases(&inputs, norm::synthetic, Some(norm::lab))?)?,
        "quantise" => doer.measure(&Quantise, &cases(&inputs, quantise::synthetic, None)?)?,
        other => return Err(Failure::new(format!("microtest `{other}` has no inputs"))),
    };
    Ok(ended(request, begun, report))
}

/// A report with device and times.
fn ended(request: &Request<'_>, begun: Instant, report: MicroReport) -> MicroReport {
    let took = begun.elapsed();
    let at = request.now.checked_add(SignedDuration::try_from(took).unwrap_or_default()).unwrap_or(request.now);
    MicroReport { at, device: request.device.into(), seconds: took.as_secs_f64(), ..report }
}

/// What every run needs.
struct Doer<'a> {
    candidates: &'a [Candidate],
    progress: &'a Progress<'a>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Doer<'_> {
    /// Sweeps and judges; a twin whose fault cannot show in any of these cases is left out, and said.
    fn measure<M: Microtest>(&self, test: &M, cases: &Cases<M::Case>) -> Result<MicroReport, Failure> {
        let shows = |c: &&Candidate| cases.cases.iter().any(|case| test.applies(case, c));
        let (able, unable): (Vec<&Candidate>, Vec<&Candidate>) = self.candidates.iter().partition(shows);
        let able: Vec<Candidate> = able.into_iter().cloned().collect();
        let ticker = Ticker::new(sweep::ticks(cases.cases.len(), &able), self.progress, self.cancelled);
        let swept = sweep::sweep(test, cases, &able, &ticker).map_err(stopped)?;
        let mut report = judge::report(test.spec(), cases, &swept, None);
        if !unable.is_empty() {
            let names: Vec<&str> = unable.iter().map(|c| c.name.as_str()).collect();
            report.provenance = format!("{}; cannot show here: {}", report.provenance, names.join(", "));
        }
        Ok(report)
    }
}

fn mhc_mix(inputs: &Inputs, doer: &Doer<'_>) -> Result<MicroReport, Failure> {
    match inputs {
        Inputs::Lab { model, place } => mhc_mix_of_lab(model, place, doer),
        Inputs::Synthetic(config) => {
            let made = synthetic_sites(config);
            let says = made.says();
            real_size(&made, &made, says, doer)
        }
        Inputs::Real { checkpoint, config } => {
            let weights = CheckpointSites::fetch(checkpoint, config, doer.progress, doer.cancelled)?;
            let made = synthetic_sites(config);
            let says = format!("weights of {}; streams and sublayer outputs: {}", checkpoint.summary(), made.says());
            real_size(&weights, &made, says, doer)
        }
    }
}

/// Two sites a layer of this width, and activations for 256 tokens.
fn synthetic_sites(config: &ModelConfig) -> Synthetic {
    Synthetic::new(2 * config.num_hidden_layers, config.hidden_size, 256, inputs::SEED)
}

fn real_size(
    sites: &dyn Sites,
    activations: &dyn Activations,
    provenance: String,
    doer: &Doer<'_>,
) -> Result<MicroReport, Failure> {
    let ticker = Ticker::new(swept::PHASES * sites.count() as u64, doer.progress, doer.cancelled);
    let tick = |phase: &str| ticker.tick(phase).map_err(stopped);
    swept::run(sites, activations, provenance, doer.candidates, swept::Extent::default(), &tick)
}

fn mhc_mix_of_lab(model: &Model, place: &str, doer: &Doer<'_>) -> Result<MicroReport, Failure> {
    let first = model.embed(&mhc::golden_ids()?);
    mhc_mix_from(model, first, |reference| mhc::cases(model, reference, place), doer)
}

/// The mixing of the lab model from these streams on; the sites alone are given these cases.
fn mhc_mix_from(
    model: &Model,
    first: Vec<f64>,
    cases: impl FnOnce(&mhc::chain::Reference) -> Cases<mhc::site::SiteCase>,
    doer: &Doer<'_>,
) -> Result<MicroReport, Failure> {
    let good: Vec<Candidate> = doer.candidates.iter().filter(|c| c.fault.is_none()).cloned().collect();
    let total = sweep::ticks(SITES, doer.candidates) + SITES as u64 + mhc::chain::ticks(good.len());
    let ticker = Ticker::new(total, doer.progress, doer.cancelled);
    let reference = mhc::chain::reference(model, first, &ticker).map_err(stopped)?;
    let through = mhc::chain::through(model, &reference, &good, &ticker).map_err(stopped)?;
    let cases = cases(&reference);
    let swept = sweep::sweep(&mhc::MhcMix, &cases, doer.candidates, &ticker).map_err(stopped)?;
    Ok(judge::report(&mhc::INFO, &cases, &swept, Some(&through)))
}

fn stopped(Cancelled: Cancelled) -> Failure {
    Failure::new("the microtest was cancelled before it ended")
}

/// The microtest of that name.
///
/// # Errors
/// There is none; the hint names those that there are.
fn find(name: &str) -> Result<&'static SpecInfo, Failure> {
    specs().iter().find(|s| s.name == name).copied().ok_or_else(|| {
        let names: Vec<String> = specs().iter().map(|s| format!("`{}`", s.name)).collect();
        Failure::new(format!("there is no microtest `{name}`")).hint(format!("there is {}", names.join(", ")))
    })
}

/// Checks what a case calls a microtest: `SPEC`, or `SPEC/CANDIDATE` with a built-in candidate.
///
/// # Errors
/// There is no such spec or candidate; the hint names those that there are.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let (spec, candidate) = name.split_once('/').map_or((name, None), |(spec, of)| (spec, Some(of)));
    let spec = find(spec)?;
    let Some(candidate) = candidate else { return Ok(()) };
    let known = candidates(spec, None)?;
    let good: Vec<&str> = known.iter().filter(|c| c.fault.is_none()).map(|c| c.name.as_str()).collect();
    if good.contains(&candidate) {
        return Ok(());
    }
    Err(Failure::new(format!("microtest `{}` has no candidate `{candidate}` of its own", spec.name))
        .hint(format!("there is {}", good.join(", "))))
}

/// The built-in candidates of a spec, then those of the file for it.
///
/// # Errors
/// The file cannot be read, or a candidate of it is wrong or has a name that is taken.
fn candidates(spec: &SpecInfo, file: Option<&Path>) -> Result<Vec<Candidate>, Failure> {
    let mut all = candidate::parse(spec.candidates, "the built-in candidates", &[spec])?;
    let Some(file) = file else { return Ok(all) };
    let text = fs_err::read_to_string(file)
        .map_err(|e| Failure::new(e.to_string()).hint("give a TOML file with `[[candidate]]` tables"))?;
    let more = candidate::parse(&text, &file.display().to_string(), specs())?;
    for candidate in more.into_iter().filter(|c| c.spec == spec.name) {
        if all.iter().any(|c| c.name == candidate.name) {
            return Err(Failure::new(format!("there is a candidate `{}` of `{}` already", candidate.name, spec.name))
                .hint("give it another name"));
        }
        all.push(candidate);
    }
    Ok(all)
}

fn check_device(device: &str) -> Result<(), Failure> {
    let gpu = device.strip_prefix("cuda:").is_some_and(|n| n.parse::<u32>().is_ok());
    match device {
        "cpu" => Ok(()),
        "all" => Err(Failure::new("GPUs are not in this version, so `all` is not either").hint("use `cpu`")),
        _ if gpu => Err(Failure::new(format!("device `{device}` is not in this version")).hint("use `cpu`")),
        _ => Err(Failure::new(format!("there is no device `{device}`")).hint("use `cpu`")),
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
