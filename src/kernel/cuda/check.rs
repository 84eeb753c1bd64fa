//! Whether a card keeps what it is given: copies with checksums, and the faults that were counted.
//!
//! Responsible for silent corruption, which a microtest on a broken card would take for a kernel's
//! fault. Not responsible for stressing a card: this takes a second.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, CudaSlice, sys};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::engine::procedure::Failure;
use crate::kernel::cuda::busy::{self, Use};
use crate::kernel::cuda::card::OnCard;
use crate::kernel::cuda::found::{CardInfo, words};
use crate::kernel::report::{CardCheck, PeerCopy};

/// Bytes of one copy.
const BYTES: usize = 64 << 20;
/// Copies of each kind, each with other bytes.
const COPIES: u32 = 3;

/// Round trips with the host, and copies to each of these other cards and back to the host from there.
///
/// # Errors
/// A copy fails, which is more than coming out with other bytes.
pub(super) fn copies(on_card: &OnCard, peers: &[CardInfo]) -> Result<CardCheck, Failure> {
    let failed = on_card.failed("a round trip with the host");
    let mut check = CardCheck { bytes: BYTES as u64, round_trips: COPIES, ..CardCheck::default() };
    let mut sent = Vec::new();
    for round in 0..COPIES {
        let pattern = pattern(u64::from(round));
        let there = on_card.stream.clone_htod(&pattern).map_err(&failed)?;
        // A second place on the card, so that what is read back was both written and read there.
        let moved = on_card.stream.clone_dtod(&there).map_err(&failed)?;
        let back = on_card.stream.clone_dtoh(&moved).map_err(&failed)?;
        on_card.stream.synchronize().map_err(&failed)?;
        check.bad_round_trips += u32::from(back != pattern);
        sent.push((pattern, there));
    }
    for peer in peers {
        let (to, direct) = (peer.device(), direct(&on_card.info, peer));
        let copied = copied_to(peer, &sent);
        let failed = copied.as_ref().err().map(|e| format!("no copy could be made: {}", words(*e)));
        let (copies, bad) = copied.unwrap_or_default();
        check.peers.push(PeerCopy { to, copies, bad, direct, failed });
    }
    Ok(check)
}

/// Copies what lies on one card to another, and reads it there; how many, and how many came out with other bytes.
fn copied_to(peer: &CardInfo, sent: &[(Vec<u8>, CudaSlice<u8>)]) -> Result<(u32, u32), DriverError> {
    let there = CudaContext::new(peer.ordinal as usize)?.new_stream()?;
    let mut bad = 0;
    for (pattern, buffer) in sent {
        let mut arrived = there.alloc_zeros::<u8>(BYTES)?;
        there.memcpy_dtod(buffer, &mut arrived)?;
        let bytes = there.clone_dtoh(&arrived)?;
        there.synchronize()?;
        bad += u32::from(bytes != *pattern);
    }
    Ok((sent.len() as u32, bad))
}

/// Whether the driver lets two cards reach one another without the host.
#[expect(unsafe_code, reason = "functions of the CUDA driver are called")]
fn direct(from: &CardInfo, to: &CardInfo) -> bool {
    let device = |card: &CardInfo| result::device::get(card.ordinal as i32).ok();
    let (Some(from), Some(to)) = (device(from), device(to)) else { return false };
    let mut can = 0;
    // SAFETY: both devices were given by the driver, and it writes one number.
    let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, to, from) }.result();
    asked.is_ok() && can != 0
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut dice = Pcg64::seed_from_u64(seed);
    let mut bytes = vec![0; BYTES];
    dice.fill(bytes.as_mut_slice());
    bytes
}

/// The same with the faults that were counted up to now.
pub(in crate::kernel) fn counted(check: CardCheck, seen: Option<&Use>) -> CardCheck {
    CardCheck {
        uncorrected: seen.and_then(|s| s.uncorrected),
        corrected: seen.and_then(|s| s.corrected),
        xids: busy::xids(seen.and_then(|s| s.bus.as_deref())),
        ..check
    }
}
