//! What was seen of a card while a microtest ran on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::outside::Unit;

/// A card, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CardReport {
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Its identity, which stays when cards are numbered otherwise.
    pub uuid: String,
    /// What its kernels were compiled for, such as `sm_90`.
    pub arch: String,
    /// The driver, as it says its version.
    pub driver: String,
    /// What compiled the kernels.
    pub compiler: String,
    /// What was measured as the most that it does.
    pub ceilings: Ceilings,
    /// Whether it keeps what it is given.
    pub check: CardCheck,
    /// What each kernel did at the largest case.
    pub kernels: Vec<KernelRun>,
    /// Split-k choices of its plain kernel that stray further than f32 explains, each with its error.
    #[serde(default)]
    pub astray: Vec<String>,
}

/// The most that a card does, measured on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceilings {
    /// Bytes a second of a copy within its memory, read and written.
    pub bytes_per_second: f64,
    /// Multiplications and additions a second, by the units that do them.
    pub flops: Vec<(Unit, f64)>,
}

/// Copies with checksums, and what the driver has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CardCheck {
    /// Bytes of each copy.
    pub bytes: u64,
    /// Round trips from the host to the card and back.
    pub round_trips: u32,
    /// Of these, those that came back with other bytes.
    pub bad_round_trips: u32,
    /// Copies to other cards.
    pub peers: Vec<PeerCopy>,
    /// Memory errors that could not be corrected, since the driver was loaded; `None` where it is not told.
    pub uncorrected: Option<u64>,
    /// Memory errors that were corrected, since the driver was loaded; `None` where it is not told.
    pub corrected: Option<u64>,
    /// Hardware faults of this card in the kernel's log (`Xid` of memory, bus or link); `None` where it cannot be read.
    pub xids: Option<u64>,
}

impl CardCheck {
    /// What is wrong with the card, in sentences; empty where nothing was found.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.bad_round_trips > 0 {
            faults.push(format!(
                "{} of {} round trips between host and card came back with other bytes",
                self.bad_round_trips, self.round_trips
            ));
        }
        for peer in self.peers.iter().filter(|p| p.bad > 0) {
            faults.push(format!("{} of {} copies to {} came out with other bytes", peer.bad, peer.copies, peer.to));
        }
        if let Some(count) = self.uncorrected.filter(|count| *count > 0) {
            faults.push(format!("{count} memory errors could not be corrected"));
        }
        if let Some(count) = self.xids.filter(|count| *count > 0) {
            faults.push(format!("{count} faults (Xid) in the kernel's log"));
        }
        faults
    }
}

/// Copies to one other card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerCopy {
    /// The other card, such as `cuda:1`.
    pub to: String,
    /// Copies there.
    pub copies: u32,
    /// Of these, those that came out with other bytes.
    pub bad: u32,
    /// Whether the driver lets the two reach one another without the host.
    #[serde(default)]
    pub direct: bool,
    /// Why there was no copy, if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A kernel at one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelRun {
    /// The candidate.
    pub candidate: String,
    /// The case.
    pub case: String,
    /// Registers of a thread, the most of all launches.
    pub registers: u32,
    /// Bytes of local memory of a thread, arrays and what did not fit into registers, the most of all launches.
    pub local: u32,
    /// Runs with the same inputs.
    pub runs: u32,
    /// Of these, those whose bits differ from those of the first.
    pub other_bits: u32,
    /// Rows that were also run at a time, alone.
    pub batches: Vec<u64>,
    /// Of these, those with which a row came out with other bits.
    pub other_batches: Vec<u64>,
    /// Seconds of all launches, the median over the runs, with empty caches.
    pub seconds: f64,
    /// Bytes of its inputs and outputs as they were handed to it.
    pub bytes: u64,
    /// Multiplications and additions that it must do at least.
    pub flops: f64,
    /// The seconds that the card's measured ceilings allow, divided by its own.
    pub share: f64,
    /// Which ceiling that is: `memory`, or the units.
    pub bound: String,
}

impl Ceilings {
    /// The least seconds for so many bytes and operations, and which ceiling they are of; `None` where these units were
    /// not measured.
    pub fn least(&self, bytes: u64, flops: f64, unit: Unit) -> Option<(f64, String)> {
        let memory = (bytes as f64 / self.bytes_per_second, "memory".to_owned());
        let (_, rate) = self.flops.iter().find(|(known, rate)| *known == unit && *rate > 0.0)?;
        let units = (flops / rate, unit.word().to_owned());
        (self.bytes_per_second > 0.0).then_some(if units.0 > memory.0 { units } else { memory })
    }
}

impl Unit {
    /// The units in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::F32 => "f32 units",
            Self::Tf32 => "tf32 tensor cores",
            Self::Bf16 => "bf16 tensor cores",
            Self::Fp8 => "fp8 tensor cores",
            Self::Fp4 => "fp4 tensor cores",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_the_one_that_takes_longer() {
        let ceilings = Ceilings { bytes_per_second: 1e12, flops: vec![(Unit::F32, 1e13), (Unit::Bf16, 1e14)] };
        let check = |bytes, flops, unit, expect: Option<(f64, &str)>| {
            assert_eq!(ceilings.least(bytes, flops, unit), expect.map(|(s, w)| (s, w.to_owned())), "{bytes} {flops}");
        };
        check(1_000_000_000, 1e9, Unit::F32, Some((1e-3, "memory")));
        check(1_000_000_000, 1e11, Unit::F32, Some((1e-2, "f32 units")));
        check(1_000_000_000, 1e12, Unit::Bf16, Some((1e-2, "bf16 tensor cores")));
        check(1_000_000_000, 1e12, Unit::Fp8, None);
        assert_eq!(Ceilings::default().least(1, 1.0, Unit::F32), None);
    }

    #[test]
    fn a_count_that_cannot_be_read_is_no_fault_and_no_health() {
        let none = CardCheck { round_trips: 3, ..CardCheck::default() };
        assert!(none.faults().is_empty());
        let bad = CardCheck {
            bad_round_trips: 1,
            peers: vec![PeerCopy { to: "cuda:1".into(), copies: 2, bad: 2, ..PeerCopy::default() }],
            uncorrected: Some(4),
            xids: Some(0),
            ..none
        };
        assert_eq!(
            bad.faults(),
            [
                "1 of 3 round trips between host and card came back with other bytes",
                "2 of 2 copies to cuda:1 came out with other bytes",
                "4 memory errors could not be corrected"
            ]
        );
    }
}
