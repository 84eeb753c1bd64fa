//! Whether a card keeps what it is given: copies with checksums, and the faults that were counted.
//!
//! Responsible for silent corruption, which a microtest on a broken card would take for a kernel's
//! fault. Not responsible for stressing a card: this takes a second.

use cudarc::driver::{CudaContext, DriverError};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::engine::procedure::Failure;
use crate::kernel::cuda::busy::{self, Use};
use crate::kernel::cuda::card::OnCard;
use crate::kernel::cuda::found::CardInfo;
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
        let failed = on_card.failed(&format!("a copy to {}", peer.device()));
        let mut copy = PeerCopy { to: peer.device(), copies: COPIES, bad: 0 };
        let there = CudaContext::new(peer.ordinal as usize).and_then(|c| c.new_stream()).map_err(&failed)?;
        for (pattern, buffer) in &sent {
            let over = || -> Result<Vec<u8>, DriverError> {
                let mut arrived = there.alloc_zeros::<u8>(BYTES)?;
                there.memcpy_dtod(buffer, &mut arrived)?;
                let bytes = there.clone_dtoh(&arrived)?;
                there.synchronize()?;
                Ok(bytes)
            };
            copy.bad += u32::from(over().map_err(&failed)? != *pattern);
        }
        check.peers.push(copy);
    }
    Ok(check)
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut dice = Pcg64::seed_from_u64(seed);
    let mut bytes = vec![0; BYTES];
    dice.fill(bytes.as_mut_slice());
    bytes
}

/// The same with the faults that were counted.
pub(super) fn with_counts(check: CardCheck, seen: Option<&Use>) -> CardCheck {
    CardCheck {
        uncorrected: seen.and_then(|s| s.uncorrected),
        corrected: seen.and_then(|s| s.corrected),
        xids: busy::xids(seen.and_then(|s| s.bus.as_deref())),
        ..check
    }
}
