//! What was moved, and how long the rest will take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What reading a checkpoint has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes of the checkpoint's files that were read from its place.
    pub bytes: u64,
    /// Reads of a file, or questions to a host.
    pub requests: u64,
    /// Bytes that were taken from the cache instead.
    pub cached: u64,
    /// Entries of the cache that were not what was put there, and so were fetched anew.
    pub refetched: u64,
}

/// The same, while it grows.
#[derive(Debug, Default)]
pub(super) struct Counter {
    bytes: AtomicU64,
    requests: AtomicU64,
    cached: AtomicU64,
    refetched: AtomicU64,
}

impl Counter {
    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn taken(&self, bytes: u64) {
        self.cached.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn was_damaged(&self) {
        self.refetched.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Transfer {
        Transfer {
            bytes: self.bytes.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
            refetched: self.refetched.load(Ordering::Relaxed),
        }
    }
}

/// How long the rest takes if it goes on as it went; `None` before anything was moved.
pub fn remaining(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || elapsed.is_zero() {
        return None;
    }
    let rest = all.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * rest).ok()
}

/// Progress for people: what is moved, how fast, and how long the rest takes.
pub(super) fn says(from: &str, done: u64, all: u64, elapsed: Duration) -> String {
    let moved = format!("reading {} of {} from {from}", size(done), size(all));
    let Some(rest) = remaining(done, all, elapsed) else { return moved };
    let speed = size((done as f64 / elapsed.as_secs_f64()) as u64);
    format!("{moved}, {speed}/s, about {:.0} s left", rest.as_secs_f64())
}

/// A number of bytes for people, in powers of ten.
pub fn size(bytes: u64) -> String {
    let scaled = |unit: f64| bytes as f64 / unit;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", scaled(1e3)),
        1_000_000..1_000_000_000 => format!("{:.1} MB", scaled(1e6)),
        _ => format!("{:.1} GB", scaled(1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_went_before() {
        let check = |done, all, seconds: f64, expect: Option<f64>| {
            let found = remaining(done, all, Duration::from_secs_f64(seconds));
            assert_eq!(found, expect.map(Duration::from_secs_f64));
        };
        check(25, 100, 2.0, Some(6.0));
        check(100, 100, 2.0, Some(0.0));
        check(200, 100, 2.0, Some(0.0));
        check(0, 100, 2.0, None);
        check(1, 100, 0.0, None);
        check(1, u64::MAX, 1e6, None);
    }

    #[test]
    fn progress_is_said_in_one_line() {
        let two = Duration::from_secs(2);
        assert_eq!(says("gpu1", 0, 1_500, two), "reading 0 B of 1.5 kB from gpu1");
        let expect = "reading 20.0 MB of 137.4 MB from gpu1, 10.0 MB/s, about 12 s left";
        assert_eq!(says("gpu1", 20_000_000, 137_400_000, two), expect);
        assert_eq!(size(168_000_000_000), "168.0 GB");
    }
}
