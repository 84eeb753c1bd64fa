//! Where the candidates of a run are run: in this program and by commands, or on cards.
//!
//! Responsible for telling devices apart, for opening cards, and for what a report says of a card. Not
//! responsible for what is run there.

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::command::Commands;
use crate::kernel::cuda::busy::{self, Use};
use crate::kernel::cuda::card::{Card, unsuited};
use crate::kernel::cuda::check::counted;
use crate::kernel::cuda::found::{self, CardInfo};
use crate::kernel::cuda::lease::{self, Lease};
use crate::kernel::cuda::source;
use crate::kernel::outside::Cuda;
use crate::kernel::report::{CardReport, KernelRun, MicroReport};
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::Tensor;
use crate::remote::host::{Hosts, Settings};

/// What a word for a device means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// This program.
    Cpu,
    /// Cards: `cuda:N`, several with commas between them, or `all`.
    Cards(String),
}

impl Device {
    /// Reads the word.
    ///
    /// # Errors
    /// It is no device.
    pub(super) fn read(word: &str) -> Result<Self, Failure> {
        let is_card = |word: &str| word.trim().strip_prefix("cuda:").is_some_and(|n| n.parse::<u32>().is_ok());
        match word {
            "cpu" => Ok(Self::Cpu),
            "all" => Ok(Self::Cards(word.into())),
            _ if word.split(',').all(is_card) => Ok(Self::Cards(word.into())),
            _ => Err(Failure::new(format!("there is no device `{word}`"))
                .hint("it is `cpu`, `cuda:0`, several such as `cuda:0,cuda:2`, or `all` for every card")),
        }
    }

    /// Whether a candidate belongs to it: kernels to cards, arithmetic and commands to the CPU.
    pub(super) fn takes(&self, candidate: &Candidate) -> bool {
        match self {
            Self::Cpu => candidate.cuda.is_none(),
            Self::Cards(_) => candidate.cuda.is_some(),
        }
    }

    /// Opens what it names; one card that cannot be used does not keep the others from being used.
    ///
    /// All cards are looked at before any is opened, and only those that were opened take part in each other's checks.
    ///
    /// # Errors
    /// There is no driver or no card of that number.
    pub(super) fn open<'a>(
        &self,
        force: bool,
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Result<Place<'a>, Failure>>, Failure> {
        let Self::Cards(word) = self else {
            let commands = Commands::new(Hosts::new(Settings::from_environment()), cancelled)?;
            return Ok(vec![Ok(Place { device: "cpu".into(), runs: Runs::Here(commands) })]);
        };
        let chosen = found::named(word, found::cards()?)?;
        let leases: Vec<_> = chosen.iter().map(|info| lease::take(&info.uuid, cancelled)).collect();
        let seen: Vec<Seen> = chosen.iter().map(busy::ask).collect();
        let free = |info: &CardInfo, lease: Result<Lease, Failure>, seen: &Seen| {
            let lease = lease?;
            if !force {
                busy::free(info, seen)?;
            }
            Ok(Held { card: Card::open(info.clone(), cancelled)?, _lease: lease })
        };
        let looked_at = chosen.iter().zip(leases).zip(&seen);
        let opened: Vec<Result<Held<'_>, Failure>> =
            looked_at.map(|((info, lease), seen)| free(info, lease, seen)).collect();
        let peers: Vec<CardInfo> = opened.iter().flatten().map(|held| held.card.info.clone()).collect();
        let ready = |opened: Result<Held<'a>, Failure>, seen: &Seen| {
            let held = opened?;
            let (card, info, seen) = (&held.card, &held.card.info, seen.as_ref().ok());
            let own = seen.and_then(|s| s.driver.clone());
            let about = CardReport {
                name: info.name.clone(),
                uuid: info.uuid.clone(),
                arch: source::arch(&Cuda::default(), info.capability),
                driver: own.map_or_else(|| info.driver.clone(), |own| format!("{own}, {}", info.driver)),
                compiler: card.compiler.clone(),
                check: card.check(&peers, seen)?,
                ceilings: card.ceilings.clone(),
                ..CardReport::default()
            };
            Ok(Place { device: info.device(), runs: Runs::OnCard { about: Box::new(about), held: Box::new(held) } })
        };
        // All cards at once: each has its own thread, and what is waited for is the card.
        Ok(std::thread::scope(|scope| {
            let ready = &ready;
            let starting = opened.into_iter().zip(&seen);
            let waiting: Vec<_> = starting.map(|(opened, seen)| scope.spawn(move || ready(opened, seen))).collect();
            waiting.into_iter().map(|card| card.join().unwrap_or_else(|_| Err(broke()))).collect()
        }))
    }

    /// The candidates that are built in for it.
    ///
    /// # Errors
    /// A built-in source is damaged.
    pub(super) fn built_in(&self, spec: &crate::kernel::microtest::SpecInfo) -> Result<Vec<Candidate>, Failure> {
        match self {
            Self::Cpu => crate::kernel::candidate::parse(spec.candidates, "the built-in candidates", &[spec]),
            Self::Cards(_) => match source::of(spec.name) {
                Some(source) => source::candidates(source.text, source.file, spec),
                None => Ok(Vec::new()),
            },
        }
    }
}

/// A thread that ended without a word.
pub(super) fn broke() -> Failure {
    Failure::new("a thread of the microtest broke")
}

/// One place, which makes one report.
pub(super) struct Place<'a> {
    /// Its name, such as `cpu` or `cuda:0`.
    pub(super) device: String,
    runs: Runs<'a>,
}

/// What runs there.
enum Runs<'a> {
    /// This program, and commands.
    Here(Commands<'a>),
    /// Kernels; nobody else's microtest runs on the card meanwhile.
    OnCard { held: Box<Held<'a>>, about: Box<CardReport> },
}

/// A card that is ours until this is dropped.
struct Held<'a> {
    card: Card<'a>,
    _lease: Lease,
}

/// What was seen of a card's use, or why nothing was.
type Seen = Result<Use, String>;

impl Place<'_> {
    /// Why it cannot run a candidate; `None` where it can.
    pub(super) fn unsuited(&self, candidate: &Candidate) -> Option<String> {
        match &self.runs {
            Runs::Here(_) => None,
            Runs::OnCard { held, .. } => unsuited(candidate, &held.card.info),
        }
    }

    /// The report with what is said of the card, and with the faults that it has counted up to now.
    pub(super) fn signed(&self, report: MicroReport, kernels: Vec<KernelRun>, astray: Vec<String>) -> MicroReport {
        let device = self.device.clone();
        let Runs::OnCard { held, about } = &self.runs else { return MicroReport { device, ..report } };
        let check = counted(about.check.clone(), busy::ask(&held.card.info).ok().as_ref());
        let card = CardReport { check, kernels, astray, ..CardReport::clone(about) };
        MicroReport { device, card: Some(card), ..report }
    }
}

impl Outside for Place<'_> {
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        match &self.runs {
            Runs::Here(commands) => commands.run(candidate, task),
            Runs::OnCard { held, .. } => held.card.run(candidate, task),
        }
    }

    fn run_all(&self, candidate: &Candidate, tasks: &[Task]) -> Result<Vec<Vec<Tensor>>, Failure> {
        match &self.runs {
            Runs::Here(commands) => commands.run_all(candidate, tasks),
            Runs::OnCard { held, .. } => held.card.run_all(candidate, tasks),
        }
    }

    fn measure(&self, candidate: &Candidate, task: &Task) -> Result<Option<KernelRun>, Failure> {
        match &self.runs {
            Runs::Here(_) => Ok(None),
            Runs::OnCard { held, .. } => held.card.measure(candidate, task),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_device_or_refused() {
        let check = |word: &str, expect: Option<Device>| assert_eq!(Device::read(word).ok(), expect, "{word}");
        let cards = |word: &str| Some(Device::Cards(word.into()));
        check("cpu", Some(Device::Cpu));
        check("all", cards("all"));
        check("cuda:3", cards("cuda:3"));
        check("cuda:0,cuda:12", cards("cuda:0,cuda:12"));
        check("cuda", None);
        check("cuda:x", None);
        check("cuda:0,cpu", None);
        check("tpu", None);
    }
}
