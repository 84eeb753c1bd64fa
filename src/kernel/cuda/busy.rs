//! Who else uses a card, and what it has counted of its own faults.
//!
//! Responsible for asking NVIDIA's management library and the kernel's log, which only read. Not
//! responsible for what is done about it.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::engine::procedure::Failure;
use crate::kernel::cuda::found::CardInfo;

/// Memory of a card that a driver takes for itself, at most, in bytes.
const OWN: u64 = 1 << 30;

/// What the management library says of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Processes that compute on it, but this one.
    pub others: Vec<OtherProcess>,
    /// Bytes in use, by whomever.
    pub used: u64,
    /// Memory errors that could not be corrected; `None` where it is not told.
    pub uncorrected: Option<u64>,
    /// Memory errors that were corrected; `None` where it is not told.
    pub corrected: Option<u64>,
    /// Its address on the bus, as the kernel's log writes it.
    pub bus: Option<String>,
    /// The driver's own version, such as `580.95`.
    pub driver: Option<String>,
}

/// A process that computes on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    /// Its number; of another namespace if the card is shared with one.
    pub pid: u32,
    /// Bytes of the card's memory; `None` where it is not told.
    pub used: Option<u64>,
}

/// Asks the management library about a card.
///
/// # Errors
/// There is no such library, or it does not know the card.
pub fn ask(card: &CardInfo) -> Result<Use, String> {
    let nvml = Nvml::init().map_err(|e| format!("NVIDIA's management library cannot be used: {e}"))?;
    let device = nvml.device_by_uuid(card.uuid.as_str()).map_err(|e| format!("it does not know this card: {e}"))?;
    let processes = device.running_compute_processes().map_err(|e| format!("it does not name its processes: {e}"))?;
    let memory = device.memory_info().map_err(|e| format!("it does not say what is in use: {e}"))?;
    let own = std::process::id();
    let used_by = |used: &UsedGpuMemory| match used {
        UsedGpuMemory::Used(bytes) => *bytes,
        UsedGpuMemory::Unavailable => 0,
    };
    // Another microtest of this process may just be giving its memory back.
    let of_own: u64 = processes.iter().filter(|p| p.pid == own).map(|p| used_by(&p.used_gpu_memory)).sum();
    let others = processes.into_iter().filter(|p| p.pid != own).map(|p| OtherProcess {
        pid: p.pid,
        used: match p.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    });
    Ok(Use {
        others: others.collect(),
        used: memory.used.saturating_sub(of_own),
        uncorrected: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        corrected: device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).ok(),
        bus: device.pci_info().ok().map(|p| p.bus_id),
        driver: nvml.sys_driver_version().ok(),
    })
}

/// Refuses a card that somebody else computes on, or of which that cannot be told.
///
/// # Errors
/// Somebody does, seems to, or it is not known.
pub fn free(card: &CardInfo, seen: &Result<Use, String>) -> Result<(), Failure> {
    let device = card.device();
    let refuse = |message: String| Err(Failure::new(message).hint("`--force-device` runs there all the same"));
    match seen {
        Err(why) => refuse(format!("it is not known whether somebody else computes on {device}: {why}")),
        Ok(seen) if !seen.others.is_empty() => {
            let one = |p: &OtherProcess| match p.used {
                Some(bytes) => format!("pid {} with {}", p.pid, gib(bytes)),
                None => format!("pid {}", p.pid),
            };
            let names: Vec<String> = seen.others.iter().map(one).collect();
            refuse(format!("{device} is in use: {}", names.join(", ")))
        }
        Ok(seen) if seen.used > OWN => {
            refuse(format!("{} of {device} are in use by processes that cannot be seen from here", gib(seen.used)))
        }
        Ok(_) => Ok(()),
    }
}

/// So many bytes in GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Faults of a card in the kernel's log; `None` where the log cannot be read or the card's address is not known.
pub fn xids(bus: Option<&str>) -> Option<u64> {
    let bus = bus?;
    let output = std::process::Command::new("dmesg").output().ok()?;
    output.status.success().then(|| count_xids(&String::from_utf8_lossy(&output.stdout), bus))
}

/// Lines that name a hardware fault of this card; the log writes the address in lower case and without a function.
fn count_xids(log: &str, bus: &str) -> u64 {
    let lower = bus.to_lowercase();
    let without_function = lower.split('.').next().unwrap_or(&lower);
    // The management library writes the domain with eight digits, the kernel with four.
    let short = match without_function.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
        _ => without_function.to_owned(),
    };
    let is_hardware = |line: &str| {
        let code = line.split("): ").nth(1).and_then(|rest| rest.split([',', ' ']).next()?.parse().ok());
        code.is_some_and(|code: u32| HARDWARE.contains(&code))
    };
    let of_card = log.lines().filter(|line| line.contains("NVRM: Xid") && line.to_lowercase().contains(&short));
    of_card.filter(|line| is_hardware(line)).count() as u64
}

/// Codes that NVIDIA's list of Xid errors gives to memory, bus and links; others are a program's own faults.
const HARDWARE: [u32; 11] = [48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_free_only_if_that_is_known() {
        let card = CardInfo { ordinal: 3, ..CardInfo::default() };
        let check = |seen: Result<Use, String>, expect: Option<&str>| {
            let got = free(&card, &seen).err().map(|f| f.message);
            assert_eq!(got.as_deref(), expect);
        };
        check(Ok(Use::default()), None);
        check(Err("no library".into()), Some("it is not known whether somebody else computes on cuda:3: no library"));
        let others = vec![OtherProcess { pid: 7, used: Some(3 << 30) }, OtherProcess { pid: 9, used: None }];
        check(Ok(Use { others, used: 4 << 30, ..Use::default() }), Some("cuda:3 is in use: pid 7 with 3.0 GiB, pid 9"));
        check(
            Ok(Use { used: 5 << 30, ..Use::default() }),
            Some("5.0 GiB of cuda:3 are in use by processes that cannot be seen from here"),
        );
    }

    #[test]
    fn faults_of_one_card_are_counted() {
        let log = "[1.0] NVRM: Xid (PCI:0000:3b:00): 48, pid=7\n[2.0] NVRM: Xid (PCI:0000:86:00): 79\n\
                   [3.0] NVRM: loading\n[4.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=9\n[5.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=9\n";
        let check = |bus: &str, expect| assert_eq!(count_xids(log, bus), expect, "{bus}");
        check("00000000:3B:00.0", 2);
        check("0000:86:00.0", 1);
        check("0000:01:00.0", 0);
        assert_eq!(xids(None), None);
    }
}
