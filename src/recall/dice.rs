//! Seeded choices that stay the same for ever: the stream of `Pcg64` with its own reduction to a range,
//! so that a newer version of a library cannot change a recorded conversation.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// A stream of choices.
pub(super) struct Dice(Pcg64);

impl Dice {
    /// The stream of these numbers for this purpose; other purposes give independent streams.
    pub(super) fn new(purpose: &str, parts: &[u64]) -> Self {
        Self(Pcg64::from_seed(*hash(purpose, parts).as_bytes()))
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        // The high half of a product is even to within n / 2^64.
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// A number in `low..=high`.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items; the default of an empty list.
    pub(super) fn pick<T: Copy + Default>(&mut self, items: &[T]) -> T {
        items.get(self.below(items.len())).copied().unwrap_or_default()
    }

    /// One of the bytes of an ASCII alphabet, `count` times.
    pub(super) fn letters(&mut self, alphabet: &str, count: usize) -> String {
        (0..count).map(|_| char::from(self.pick(alphabet.as_bytes()))).collect()
    }

    /// Puts the items into a random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A number from these numbers for this purpose, below 2^53 so that every reader of JSON keeps it whole.
pub(super) fn mix(purpose: &str, parts: &[u64]) -> u64 {
    let hash = hash(purpose, parts);
    let bytes: [u8; 8] = std::array::from_fn(|i| hash.as_bytes()[i]);
    u64::from_le_bytes(bytes) >> 11
}

fn hash(purpose: &str, parts: &[u64]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(purpose.as_bytes());
    for part in parts {
        hasher.update(&part.to_le_bytes());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_same_for_ever() {
        let mut dice = Dice::new("test", &[1, 2]);
        let first: Vec<usize> = (0..6).map(|_| dice.below(1000)).collect();
        assert_eq!(first, [353, 11, 33, 997, 80, 867]);
        assert_eq!(mix("test", &[1, 2]), 1_473_940_360_809_342);
    }

    #[test]
    fn purposes_and_numbers_give_other_streams() {
        let draw = |purpose: &str, parts: &[u64]| Dice::new(purpose, parts).below(usize::MAX);
        let all = [draw("a", &[1]), draw("b", &[1]), draw("a", &[2]), draw("a", &[1, 0])];
        let set: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(set.len(), all.len());
    }

    #[test]
    fn ranges_are_reached_at_both_ends_and_never_left() {
        let mut dice = Dice::new("range", &[]);
        let seen: std::collections::BTreeSet<usize> = (0..500).map(|_| dice.between(3, 7)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert_eq!(dice.below(0), 0);
        assert_eq!(dice.pick::<u8>(&[]), 0);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Dice::new("shuffle", &[9]).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn mixed_numbers_survive_readers_that_use_floats() {
        for i in 0..200 {
            let n = mix("seed", &[i]);
            assert_eq!(n as f64 as u64, n);
        }
    }
}
