//! Where the candidates of a run are run: in this program, or on cards; and commands in either case.
//!
//! Responsible for telling devices apart, for opening cards, and for what a report says of a card. Not
//! responsible for what is run there.

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::command::Commands;
use crate::kernel::cuda::card::{Card, unsuited};
use crate::kernel::cuda::found::{self, CardInfo};
use crate::kernel::cuda::{busy, source};
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

    /// Whether a candidate belongs to it: kernels to cards, arithmetic to the CPU, commands to both.
    pub(super) fn takes(&self, candidate: &Candidate) -> bool {
        match self {
            Self::Cpu => candidate.cuda.is_none(),
            Self::Cards(_) => candidate.is_outside(),
        }
    }

    /// Opens what it names; one card that cannot be used does not keep the others from being used.
    ///
    /// # Errors
    /// There is no driver or no card of that number.
    pub(super) fn open<'a>(
        &self,
        force: bool,
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Result<Place<'a>, Failure>>, Failure> {
        let commands = || Commands::new(Hosts::new(Settings::from_environment()), cancelled);
        let Self::Cards(word) = self else {
            return Ok(vec![Ok(Place { device: "cpu".into(), commands: commands(), card: None, about: None })]);
        };
        let chosen = found::named(word, found::cards()?)?;
        let open = |info: &CardInfo| {
            let seen = busy::ask(info);
            if !force {
                busy::free(info, &seen)?;
            }
            let card = Card::open(info.clone(), cancelled)?;
            let check = card.check(&chosen, seen.as_ref().ok())?;
            let own = seen.as_ref().ok().and_then(|s| s.driver.clone());
            let about = CardReport {
                name: info.name.clone(),
                uuid: info.uuid.clone(),
                arch: format!("sm_{}", info.capability),
                driver: own.map_or_else(|| info.driver.clone(), |own| format!("{own}, {}", info.driver)),
                compiler: card.compiler.clone(),
                ceilings: card.ceilings()?,
                check,
                ..CardReport::default()
            };
            Ok(Place { device: info.device(), commands: commands(), card: Some(card), about: Some(about) })
        };
        // All cards at once: each has its own thread, and what is waited for is the card.
        Ok(std::thread::scope(|scope| {
            let opening: Vec<_> = chosen.iter().map(|info| scope.spawn(move || open(info))).collect();
            opening.into_iter().map(|card| card.join().unwrap_or_else(|_| Err(broke()))).collect()
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
    card: Option<Card<'a>>,
    commands: Commands<'a>,
    about: Option<CardReport>,
}

impl Place<'_> {
    /// Why it cannot run a candidate; `None` where it can.
    pub(super) fn unsuited(&self, candidate: &Candidate) -> Option<String> {
        self.card.as_ref().and_then(|card| unsuited(candidate, &card.info))
    }

    /// The report with what is said of the card.
    pub(super) fn signed(&self, report: MicroReport, kernels: Vec<KernelRun>, left_out: Vec<String>) -> MicroReport {
        let card = self.about.clone().map(|about| CardReport { kernels, left_out, ..about });
        MicroReport { device: self.device.clone(), card, ..report }
    }
}

impl Outside for Place<'_> {
    fn run(&self, candidate: &Candidate, task: &Task) -> Result<Vec<Tensor>, Failure> {
        match &self.card {
            Some(card) if candidate.cuda.is_some() => card.run(candidate, task),
            _ => self.commands.run(candidate, task),
        }
    }

    fn run_all(&self, candidate: &Candidate, tasks: &[Task]) -> Result<Vec<Vec<Tensor>>, Failure> {
        match &self.card {
            Some(card) if candidate.cuda.is_some() => card.run_all(candidate, tasks),
            _ => self.commands.run_all(candidate, tasks),
        }
    }

    fn measure(&self, candidate: &Candidate, task: &Task) -> Result<Option<KernelRun>, Failure> {
        self.card.as_ref().map_or(Ok(None), |card| card.measure(candidate, task))
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
