//! The driver and the cards of this machine.
//!
//! Responsible for whether they are there, and why not. Not responsible for whether a card is free.

#![expect(unsafe_code, reason = "functions of the CUDA driver are called")]

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute};

use crate::engine::procedure::Failure;

/// The oldest driver interface that is used, as CUDA counts it: 12.0.
const LEAST_DRIVER: i32 = 12_000;

/// One card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardInfo {
    /// Its number, as the driver counts.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its identity, `GPU-…`.
    pub uuid: String,
    /// Its compute capability, such as 90 for 9.0.
    pub capability: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// The driver's interface, such as `CUDA 13.0`.
    pub driver: String,
}

impl CardInfo {
    /// What it is called on the command line.
    pub fn device(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }
}

/// What the driver calls an error.
pub(super) fn words(error: DriverError) -> String {
    let says = error.error_string().map(|s| s.to_string_lossy().into_owned());
    says.unwrap_or_else(|_| format!("{error:?}"))
}

/// Whether the driver's library can be loaded; every other call panics where it cannot.
fn library_is_there() -> bool {
    // SAFETY: it loads a library of NVIDIA's, whose initialisers have no conditions.
    unsafe { sys::is_culib_present() }
}

/// The cards of this machine, in the driver's order.
///
/// # Errors
/// There is no driver, it is too old, or there is no card; why, in one sentence.
pub fn cards() -> Result<Vec<CardInfo>, Failure> {
    if !library_is_there() {
        return Err(Failure::new("there is no NVIDIA driver here: `libcuda.so` was not found")
            .hint("use `--device cpu`, or run where a card is; in a container, start it with access to the card"));
    }
    let mut version = 0;
    // SAFETY: it writes one number, and may be called before the driver is initialised.
    let status = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    status.map_err(|e| Failure::new(format!("the driver does not say its version: {}", words(e))))?;
    let driver = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < LEAST_DRIVER {
        return Err(Failure::new(format!("the driver is too old: it knows {driver}, and CUDA 12.0 is needed"))
            .hint("update the driver to 525 or newer"));
    }
    result::init().map_err(|e| no_card(e, &driver))?;
    let count = result::device::get_count().map_err(|e| no_card(e, &driver))?;
    if count == 0 {
        return Err(Failure::new(format!("the driver ({driver}) sees no card"))
            .hint("`nvidia-smi -L` lists them; CUDA_VISIBLE_DEVICES may hide them"));
    }
    (0..count).map(|ordinal| card(ordinal, &driver)).collect()
}

fn no_card(error: DriverError, driver: &str) -> Failure {
    Failure::new(format!("the driver ({driver}) cannot be used: {}", words(error)))
        .hint("`nvidia-smi` says more; CUDA_VISIBLE_DEVICES may hide the cards")
}

fn card(ordinal: i32, driver: &str) -> Result<CardInfo, Failure> {
    let wrong = |e| Failure::new(format!("cuda:{ordinal} does not answer: {}", words(e)));
    let device = result::device::get(ordinal).map_err(wrong)?;
    // SAFETY: the device was given by the driver.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) }.map_err(wrong);
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    // SAFETY: the device was given by the driver.
    let memory = unsafe { result::device::total_mem(device) }.map_err(wrong)?;
    let uuid = result::device::get_uuid(device).map_err(wrong)?;
    Ok(CardInfo {
        ordinal: ordinal as u32,
        name: result::device::get_name(device).map_err(wrong)?,
        uuid: uuid_words(&uuid.bytes.map(|b| b as u8)),
        capability: (10 * major + minor) as u32,
        memory: memory as u64,
        driver: driver.to_owned(),
    })
}

fn uuid_words(bytes: &[u8; 16]) -> String {
    format!("GPU-{}", uuid::Uuid::from_bytes(*bytes).hyphenated())
}

/// The cards that a word names: `cuda:N`, several with commas between them, or `all`.
///
/// # Errors
/// There is none, or none of that number.
pub fn named(word: &str, cards: Vec<CardInfo>) -> Result<Vec<CardInfo>, Failure> {
    if word == "all" {
        return Ok(cards);
    }
    let mut chosen: Vec<CardInfo> = Vec::new();
    for device in word.split(',').map(str::trim) {
        let Some(card) = cards.iter().find(|c| c.device() == device) else {
            let there: Vec<String> = cards.iter().map(CardInfo::device).collect();
            return Err(Failure::new(format!("there is no device `{device}`"))
                .hint(format!("there is {}, and `all` is all of them", there.join(", "))));
        };
        if !chosen.contains(card) {
            chosen.push(card.clone());
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_cards() {
        let two = || (0..2).map(|ordinal| CardInfo { ordinal, ..CardInfo::default() }).collect::<Vec<_>>();
        let check = |word: &str, expect: &[u32]| {
            let got: Vec<u32> = named(word, two()).unwrap().iter().map(|c| c.ordinal).collect();
            assert_eq!(got, expect, "{word}");
        };
        check("all", &[0, 1]);
        check("cuda:1", &[1]);
        check("cuda:1, cuda:0,cuda:1", &[1, 0]);
        let failure = named("cuda:2", two()).unwrap_err();
        assert_eq!(failure.message, "there is no device `cuda:2`");
        assert_eq!(failure.hint.unwrap(), "there is cuda:0, cuda:1, and `all` is all of them");
    }

    #[test]
    fn an_identity_is_written_as_nvidia_does() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid_words(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
