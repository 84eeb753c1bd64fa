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
use crate::kernel::command;
use crate::kernel::config::ModelConfig;
use crate::kernel::cuda::source;
use crate::kernel::inputs::{self, CheckpointSites, Inputs, cases};
use crate::kernel::judge;
use crate::kernel::mhc;
use crate::kernel::microtest::{Cases, Microtest, SpecInfo};
use crate::kernel::oracle::model::{Model, SITES};
use crate::kernel::places::{Device, Place, broke};
use crate::kernel::report::{KernelRun, MicroReport};
use crate::kernel::sites::synthetic::Synthetic;
use crate::kernel::sites::{Activations, Sites, swept};
use crate::kernel::specs::compressor::{self, CompressorTest};
use crate::kernel::specs::decode_attention::{self, DecodeAttention};
use crate::kernel::specs::indexer::{self, Indexer};
use crate::kernel::specs::norm::{self, Norm};
use crate::kernel::specs::quantise::{self, Quantise};
use crate::kernel::specs::router::{self, Router};
use crate::kernel::sweep::{self, Swept, Ticker};

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

/// The microtests that a device has something for: cards those with kernels of their own.
pub fn specs_of(device: &str) -> Vec<&'static str> {
    let all = specs().iter().map(|s| s.name);
    if device == "cpu" { all.collect() } else { all.filter(|name| source::of(name).is_some()).collect() }
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the microtest.
    pub spec: &'a str,
    /// Device: `cpu`, `cuda:0`, several with commas between them, or `all` for every card.
    pub device: &'a str,
    /// Whether a card is used that somebody else computes on.
    pub force_device: bool,
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

/// A report of each device, or why there is none.
pub type Reports = Vec<Result<MicroReport, Failure>>;

/// What a run will start outside this program, one sentence a command, to be shown before it does.
///
/// # Errors
/// There is no such spec or device, or a candidate is wrong.
pub fn commands(request: &Request<'_>) -> Result<Vec<String>, Failure> {
    let (all, _) = candidates(find(request.spec)?, &Device::read(request.device)?, request.candidates)?;
    Ok(all.iter().filter_map(command_words).collect())
}

/// Runs a microtest on all devices at once.
///
/// # Errors
/// There is no such spec or device, a candidate is wrong, the checkpoint does not fit, or somebody
/// cancelled.
pub fn run(
    request: &Request<'_>,
    progress: &Progress<'_>,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Reports, Failure> {
    let begun = Instant::now();
    let spec = find(request.spec)?;
    let device = Device::read(request.device)?;
    let (candidates, dropped) = candidates(spec, &device, request.candidates)?;
    if candidates.is_empty() {
        return Err(Failure::new(format!("`{}` has no kernels of its own", spec.name))
            .hint("run it with `--device cpu`, or name a source in `--candidates FILE`"));
    }
    let mut reports = Vec::new();
    let mut places = Vec::new();
    for place in device.open(request.force_device, cancelled)? {
        match place {
            Ok(place) => places.push(place),
            Err(failure) => reports.push(Err(failure)),
        }
    }
    if places.is_empty() {
        return Ok(reports);
    }
    let recording = request.activations.map(|place| recorded::open(spec, place)).transpose()?;
    let doer = Doer { candidates: &candidates, dropped: &dropped, places: &places, progress, cancelled };
    let inputs = Inputs::of(request.checkpoint, progress, cancelled)?;
    let measured = match &recording {
        Some(recording) => recorded::reports(spec.name, &inputs, recording, &doer)?,
        None => on_own_inputs(spec.name, &inputs, &doer)?,
    };
    let took = begun.elapsed();
    let at = request.now.checked_add(SignedDuration::try_from(took).unwrap_or_default()).unwrap_or(request.now);
    let timed = |report: MicroReport| MicroReport { at, seconds: took.as_secs_f64(), ..report };
    reports.extend(measured.into_iter().map(|report| report.map(timed)));
    Ok(reports)
}

/// A microtest on what the inputs give, recorded by nobody.
fn on_own_inputs(spec: &str, inputs: &Inputs, doer: &Doer<'_>) -> Result<Reports, Failure> {
    match spec {
        mhc::SPEC => mhc_mix(inputs, doer),
        "indexer" => doer.measure(&Indexer, &cases(inputs, indexer::synthetic, Some(indexer::lab))?),
        "decode-attention" => {
            doer.measure(&DecodeAttention, &cases(inputs, decode_attention::synthetic, Some(decode_attention::lab))?)
        }
        "compressor" => doer.measure(&CompressorTest, &cases(inputs, compressor::synthetic, None)?),
        "router" => doer.measure(&Router, &cases(inputs, router::synthetic, Some(router::lab))?),
        "norm" => doer.measure(&Norm, &cases(inputs, norm::synthetic, Some(norm::lab))?),
        "quantise" => doer.measure(&Quantise, &cases(inputs, quantise::synthetic, None)?),
        other => Err(Failure::new(format!("microtest `{other}` has no inputs"))),
    }
}

/// What every run needs.
struct Doer<'a> {
    candidates: &'a [Candidate],
    /// Candidates of the file that belong to another device, each with the reason.
    dropped: &'a [String],
    places: &'a [Place<'a>],
    progress: &'a Progress<'a>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Doer<'_> {
    /// Sweeps and judges in every place; a twin whose fault cannot show in any of these cases is left out, and said.
    fn measure<M: Microtest>(&self, test: &M, cases: &Cases<M::Case>) -> Result<Reports, Failure> {
        let shows = |c: &&Candidate| cases.cases.iter().any(|case| test.applies(case, c));
        let (able, unable): (Vec<&Candidate>, Vec<&Candidate>) = self.candidates.iter().partition(shows);
        let able: Vec<Candidate> = able.into_iter().filter(|c| self.suits_somewhere(c)).cloned().collect();
        let ticks = sweep::ticks(cases.cases.len(), &able, self.places.len());
        let ticker = Ticker::new(ticks, self.progress, self.cancelled);
        let shared = sweep::shared(test, cases, &able, &ticker)?;
        Ok(self.in_every_place(Pace::AtOnce, |place| {
            let swept = shared.tried(Some(place), &|c| place.unsuited(c).is_none(), &ticker)?;
            let mut report = judge::report(test.spec(), cases, &swept, None);
            if !unable.is_empty() {
                let names: Vec<&str> = unable.iter().map(|c| c.name.as_str()).collect();
                report.provenance = format!("{}; cannot show here: {}", report.provenance, names.join(", "));
            }
            Ok(Done::of(report, swept))
        }))
    }

    fn suits_somewhere(&self, candidate: &Candidate) -> bool {
        self.places.iter().any(|place| place.unsuited(candidate).is_none())
    }

    /// Does something in every place, and signs what comes of it.
    fn in_every_place(&self, pace: Pace, work: impl Fn(&Place<'_>) -> Result<Done, Failure> + Sync) -> Reports {
        let one = |place: &Place<'_>| {
            let mut good = self.candidates.iter().filter(|c| c.fault.is_none()).peekable();
            if good.peek().is_some() && good.all(|c| place.unsuited(c).is_some()) {
                let why: Vec<String> = self.candidates.iter().filter_map(|c| place.unsuited(c)).take(2).collect();
                let message = format!("{} can run none of the kernels: {}", place.device, why.join("; "));
                return Err(Failure::new(message).hint("use `--device cpu`"));
            }
            let done = work(place)?;
            let unsuited = self.candidates.iter().filter_map(|c| place.unsuited(c));
            let left_out = self.dropped.iter().cloned().chain(unsuited).chain(done.failed).collect();
            let commands: Vec<String> = self.candidates.iter().filter_map(command_words).collect();
            let mut report = place.signed(MicroReport { left_out, ..done.report }, done.kernels, done.astray);
            if !commands.is_empty() {
                report.provenance = format!("{}; {}", report.provenance, commands.join("; "));
            }
            Ok(report)
        };
        if pace == Pace::InTurn || self.places.len() == 1 {
            return self.places.iter().map(one).collect();
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = self.places.iter().map(|place| scope.spawn(|| one(place))).collect();
            running.into_iter().map(|place| place.join().unwrap_or_else(|_| Err(broke()))).collect()
        })
    }
}

/// Whether several places are at work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// All at once.
    AtOnce,
    /// One after another, because the inputs are those of one site at a time.
    InTurn,
}

/// What came of a microtest in one place.
struct Done {
    report: MicroReport,
    kernels: Vec<KernelRun>,
    failed: Vec<String>,
    astray: Vec<String>,
}

impl Done {
    fn of(report: MicroReport, swept: Swept) -> Self {
        Self { report, kernels: swept.kernels, failed: swept.failed, astray: swept.astray }
    }
}

/// Which command a candidate is.
fn command_words(candidate: &Candidate) -> Option<String> {
    let command = candidate.command.as_ref()?;
    Some(format!("`{}` is `{}`", candidate.name, command::says(command)))
}

fn mhc_mix(inputs: &Inputs, doer: &Doer<'_>) -> Result<Reports, Failure> {
    match inputs {
        Inputs::Lab { model, place } => mhc_mix_of_lab(model, place, doer),
        Inputs::Synthetic(config) => {
            let made = synthetic_sites(config);
            let says = made.says();
            Ok(real_size(&made, &made, &says, Pace::AtOnce, doer))
        }
        Inputs::Real { checkpoint, config } => {
            let weights = CheckpointSites::fetch(checkpoint, config, doer.progress, doer.cancelled)?;
            let made = synthetic_sites(config);
            let says = format!("weights of {}; streams and sublayer outputs: {}", checkpoint.summary(), made.says());
            Ok(real_size(&weights, &made, &says, Pace::AtOnce, doer))
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
    provenance: &str,
    pace: Pace,
    doer: &Doer<'_>,
) -> Reports {
    let total = swept::PHASES * (sites.count() * doer.places.len()) as u64;
    let ticker = Ticker::new(total, doer.progress, doer.cancelled);
    let tick = |phase: &str| ticker.tick(phase).map_err(Failure::from);
    doer.in_every_place(pace, |place| {
        let suited: Vec<Candidate> = doer.candidates.iter().filter(|c| place.unsuited(c).is_none()).cloned().collect();
        let (report, kernels) = swept::run(
            sites,
            activations,
            provenance.to_owned(),
            &suited,
            swept::Extent::default(),
            Some(place),
            &tick,
        )?;
        Ok(Done { report, kernels, failed: Vec::new(), astray: Vec::new() })
    })
}

fn mhc_mix_of_lab(model: &Model, place: &str, doer: &Doer<'_>) -> Result<Reports, Failure> {
    let first = model.embed(&mhc::golden_ids()?);
    mhc_mix_from(model, first, |reference| mhc::cases(model, reference, place), doer)
}

/// The mixing of the lab model from these streams on; the sites alone are given these cases.
///
/// Passes through the whole model are those of emulated arithmetic: a kernel is judged by its sites.
fn mhc_mix_from(
    model: &Model,
    first: Vec<f64>,
    cases: impl FnOnce(&mhc::chain::Reference) -> Cases<mhc::site::SiteCase>,
    doer: &Doer<'_>,
) -> Result<Reports, Failure> {
    let good = |c: &&Candidate| c.fault.is_none() && !c.is_outside();
    let emulated: Vec<Candidate> = doer.candidates.iter().filter(good).cloned().collect();
    let able: Vec<Candidate> = doer.candidates.iter().filter(|c| doer.suits_somewhere(c)).cloned().collect();
    let passes = if emulated.is_empty() { 0 } else { mhc::chain::ticks(emulated.len()) };
    let total = sweep::ticks(SITES, &able, doer.places.len()) + SITES as u64 + passes;
    let ticker = Ticker::new(total, doer.progress, doer.cancelled);
    let reference = mhc::chain::reference(model, first, &ticker)?;
    let through = match emulated.as_slice() {
        [] => None,
        emulated => Some(mhc::chain::through(model, &reference, emulated, &ticker)?),
    };
    let cases = cases(&reference);
    let shared = sweep::shared(&mhc::MhcMix, &cases, &able, &ticker)?;
    Ok(doer.in_every_place(Pace::AtOnce, |place| {
        let swept = shared.tried(Some(place), &|c| place.unsuited(c).is_none(), &ticker)?;
        Ok(Done::of(judge::report(&mhc::INFO, &cases, &swept, through.as_ref()), swept))
    }))
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
    let (known, _) = candidates(spec, &Device::Cpu, None)?;
    let good: Vec<&str> = known.iter().filter(|c| c.fault.is_none()).map(|c| c.name.as_str()).collect();
    if good.contains(&candidate) {
        return Ok(());
    }
    Err(Failure::new(format!("microtest `{}` has no candidate `{candidate}` of its own", spec.name))
        .hint(format!("there is {}", good.join(", "))))
}

/// The built-in candidates of a spec for a device, then those of the file; and which of the file were dropped, with
/// the reason, because they belong to another device.
///
/// # Errors
/// The file cannot be read, a candidate of it is wrong or has a name that is taken, or all of them belong elsewhere.
fn candidates(spec: &SpecInfo, device: &Device, file: Option<&Path>) -> Result<(Vec<Candidate>, Vec<String>), Failure> {
    let mut all = device.built_in(spec)?;
    let Some(file) = file else { return Ok((all, Vec::new())) };
    let text = fs_err::read_to_string(file)
        .map_err(|e| Failure::new(e.to_string()).hint("give a TOML file with `[[candidate]]` tables"))?;
    let more = candidate::parse(&text, &file.display().to_string(), specs())?;
    let beside = file.parent().unwrap_or(Path::new("."));
    let (takes, others): (Vec<Candidate>, Vec<Candidate>) =
        more.into_iter().filter(|c| c.spec == spec.name).partition(|c| device.takes(c));
    let elsewhere = match device {
        Device::Cpu => "it has kernels for a card: use `--device cuda:0`",
        Device::Cards(_) => "it has no kernels: use `--device cpu`",
    };
    let dropped: Vec<String> = others.iter().map(|c| format!("{}: {elsewhere}", c.name)).collect();
    if let ([], [first, ..]) = (takes.as_slice(), dropped.as_slice()) {
        return Err(Failure::new(format!("no candidate of the file runs there; {first}")));
    }
    for mut candidate in takes {
        candidate.cuda = candidate.cuda.map(|cuda| cuda.beside(beside));
        if all.iter().any(|c| c.name == candidate.name) {
            return Err(Failure::new(format!("there is a candidate `{}` of `{}` already", candidate.name, spec.name))
                .hint("give it another name"));
        }
        all.push(candidate);
    }
    Ok((all, dropped))
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
