//! How loaded a server was while one batch of trials ran, as plain data. Pure.
//!
//! A window belongs to one run of trials and one target; `recall::watch` reads the server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ids::JobId;
use crate::truth::observed::metrics::Fact;

/// The most samples of a series that are kept; of more, neighbours are joined to their mean.
pub const MOST_SAMPLES: usize = 64;

/// Names of metrics, and what a window calls them.
const NAMES: &[(&str, &str)] = &[
    ("token_usage", "kv_usage"),
    ("cache_hit_rate", "cache_hit_rate"),
    ("draft_acceptance_rate", "accept_rate"),
    ("accept_length", "accept_length"),
];

/// The load of a server while a batch of trials ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWindow {
    /// The job that ran the trials.
    pub job: JobId,
    /// Target name.
    pub target: String,
    /// When the first reading was asked for.
    #[schemars(with = "String")]
    pub from: Timestamp,
    /// When the last one was answered.
    #[schemars(with = "String")]
    pub to: Timestamp,
    /// Where it was read.
    pub source: String,
    /// Readings that were answered.
    pub readings: u32,
    /// Why the last of the others was not; `None` where all were.
    pub unread: Option<String>,
    /// `kv_usage`, `cache_hit_rate` and `accept_rate` as shares, `accept_length` in tokens. A rate is that of the
    /// window where the server counts, else what its gauge says.
    pub values: BTreeMap<String, Series>,
}

/// What one value did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The least.
    pub min: f64,
    /// The mean over all readings.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
    /// Oldest first, at most [`MOST_SAMPLES`]; each is the mean of equally many readings, the last one of what is left.
    pub samples: Vec<f64>,
}

/// Gathers the readings of one window.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    readings: BTreeMap<&'static str, Vec<f64>>,
    /// Part and whole of each quotient at the reading before.
    before: BTreeMap<&'static str, (f64, f64)>,
}

impl Sampler {
    /// Takes one reading. Of counters, what was counted since the reading before is the sample.
    pub fn take(&mut self, facts: &[Fact]) {
        for (said, name) in NAMES {
            let Some(fact) = facts.iter().find(|f| f.name == *said) else { continue };
            let value = match fact.of {
                None => Some(fact.value),
                Some((part, whole)) => {
                    let before = self.before.insert(name, (part, whole));
                    // A counter that went back is one of another start.
                    before.filter(|b| whole > b.1 && part >= b.0).map(|b| (part - b.0) / (whole - b.1))
                }
            };
            if let Some(value) = value.filter(|v| v.is_finite()) {
                self.readings.entry(name).or_default().push(value);
            }
        }
    }

    /// What each value did.
    pub fn series(&self) -> BTreeMap<String, Series> {
        self.readings.iter().filter_map(|(name, all)| Some(((*name).to_owned(), series(all)?))).collect()
    }
}

fn series(all: &[f64]) -> Option<Series> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let each = all.len().div_ceil(MOST_SAMPLES).max(1);
    (!all.is_empty()).then(|| Series {
        min: all.iter().copied().fold(f64::INFINITY, f64::min),
        mean: mean(all),
        max: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        samples: all.chunks(each).map(mean).collect(),
    })
}

impl LoadWindow {
    /// One clause for each value, for a line of text.
    pub fn words(&self) -> Vec<String> {
        let word = |(name, s): (&String, &Series)| format!("{name} {:.3} ({:.3} to {:.3})", s.mean, s.min, s.max);
        self.values.iter().map(word).collect()
    }

    /// The window in one line.
    pub fn line(&self) -> String {
        let seconds = self.to.duration_since(self.from).as_secs_f64();
        let values = match (&self.values.is_empty(), &self.unread) {
            (false, _) => self.words().join(", "),
            (true, Some(why)) => format!("not known: {why}"),
            (true, None) => "the server tells none of it".to_owned(),
        };
        format!("load of {} during {}: {values}; {} readings in {seconds:.0} s", self.target, self.job, self.readings)
    }

    /// Whether a trial that ended then is of this window.
    pub fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && at <= self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &'static str, value: f64, of: Option<(f64, f64)>) -> Fact {
        Fact { engine: "sglang", name, value, of, line: 1 }
    }

    #[test]
    fn a_rate_is_that_of_the_window_and_not_since_the_start() {
        let mut sampler = Sampler::default();
        for (part, whole) in [(900.0, 1000.0), (900.0, 1100.0), (900.0, 1100.0), (950.0, 1200.0), (1.0, 2.0)] {
            sampler.take(&[fact("cache_hit_rate", part / whole, Some((part, whole))), fact("token_usage", 0.25, None)]);
        }
        let series = sampler.series();
        assert_eq!(series["cache_hit_rate"].samples, [0.0, 0.5], "nothing asked is no sample, nor is another start");
        assert_eq!((series["kv_usage"].min, series["kv_usage"].samples.len()), (0.25, 5));
        assert!(!series.contains_key("accept_rate"));
    }

    #[test]
    fn a_long_window_stays_small_and_keeps_its_extremes() {
        let mut sampler = Sampler::default();
        for i in 0..10_000 {
            sampler.take(&[fact("token_usage", f64::from(i), None), fact("accept_length", f64::NAN, None)]);
        }
        let series = sampler.series();
        let kv = &series["kv_usage"];
        assert_eq!((kv.min, kv.max, kv.mean), (0.0, 9999.0, 4999.5));
        assert!(kv.samples.len() <= MOST_SAMPLES && kv.samples.len() > MOST_SAMPLES / 2 - 1);
        assert!(kv.samples.is_sorted() && !series.contains_key("accept_length"));
    }
}
