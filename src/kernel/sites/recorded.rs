//! Recorded activations at the real size, with those that are made up where nothing was recorded.
//!
//! Responsible for having the tensors of one site in memory at a time, eight tokens side by side. Not responsible for
//! which tensors those are, which is [`crate::kernel::recorded`].

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use half::bf16;

use crate::engine::procedure::Failure;
use crate::kernel::recorded::{Found, Recording};
use crate::kernel::report::Recorded;
use crate::kernel::sites::Activations;
use crate::kernel::sites::group::{GROUP, Stored};

/// The most tokens that are taken of a recording.
const TOKENS: usize = 256;

/// Activations out of a recording.
#[derive(Debug)]
pub struct RecordedSites<'a, A> {
    recording: &'a Recording,
    made: A,
    tokens: usize,
    streams: BTreeMap<usize, Known>,
    outputs: BTreeMap<usize, Known>,
    first: Option<Vec<bf16>>,
    now: RwLock<Now>,
}

/// A tensor that was looked through once.
#[derive(Clone, Debug)]
struct Known {
    found: Found,
    recorded: Recorded,
}

/// The tensors of the site that is worked on, each `[groups][channels][8]`.
#[derive(Debug, Default)]
struct Now {
    streams: Option<Vec<bf16>>,
    output: Option<Vec<bf16>>,
}

impl<'a, A: Activations> RecordedSites<'a, A> {
    /// Looks through all tensors; `make` makes up that many tokens of whatever else is needed.
    ///
    /// # Errors
    /// There are fewer than eight tokens, or a tensor is nothing that an error may be measured on.
    pub fn new(
        recording: &'a Recording,
        found: &[Found],
        make: impl FnOnce(usize) -> A,
        tick: &dyn Fn() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let few = found.iter().min_by_key(|found| found.rows);
        let rows = few.map_or(0, |found| found.rows);
        let tokens = rows.min(TOKENS) / GROUP * GROUP;
        if tokens == 0 {
            let tensor = few.map_or("", |found| &found.tensor);
            let message = format!("tensor `{tensor}` has {rows} tokens, and the mixing is measured on eight at a time");
            return Err(Failure::new(message).hint("record a prompt of eight tokens or more"));
        }
        let now = RwLock::default();
        let (streams, outputs) = (BTreeMap::new(), BTreeMap::new());
        let mut all = Self { recording, made: make(tokens), tokens, streams, outputs, first: None, now };
        for found in found {
            tick()?;
            let (values, recorded) = all.read(found)?;
            let site = 2 * found.layer + usize::from(found.name.contains("ffn"));
            let known = Known { found: found.clone(), recorded };
            if found.name.starts_with("hc_") {
                all.streams.insert(site, known);
                all.first = if site == 0 { Some(values) } else { all.first };
            } else {
                all.outputs.insert(site, known);
            }
        }
        Ok(all)
    }

    /// What was taken, in the order of the sites.
    pub fn taken(&self) -> Vec<Recorded> {
        let mut all: Vec<(usize, &Known)> =
            self.streams.iter().chain(&self.outputs).map(|(site, known)| (*site, known)).collect();
        all.sort_by_key(|(site, _)| *site);
        all.into_iter().map(|(_, known)| known.recorded.clone()).collect()
    }

    /// What stands in where nothing was recorded.
    pub fn made(&self) -> &A {
        &self.made
    }

    /// How much of what so many sites need is recorded, in one clause.
    pub fn says(&self, sites: usize) -> String {
        let [streams, outputs] = [&self.streams, &self.outputs].map(BTreeMap::len);
        let all = self.streams.values().chain(self.outputs.values());
        let rounded =
            if all.into_iter().all(|known| known.recorded.dtype == "BF16") { "" } else { ", rounded to bf16" };
        format!("streams at {streams} of {sites} sites and outputs of {outputs} sublayers{rounded}")
    }

    /// What so many sites need and was not recorded, in one clause; `None` where that is nothing.
    pub fn lacks(&self, sites: usize) -> Option<String> {
        let first = self.first.is_none().then(|| "streams before the first site".to_owned());
        let others = sites.saturating_sub(self.outputs.len());
        let outputs = (others > 0).then(|| format!("outputs of {others} sublayers"));
        let lacking: Vec<String> = first.into_iter().chain(outputs).collect();
        (!lacking.is_empty()).then(|| lacking.join(" and "))
    }

    /// The first tokens of a tensor, eight side by side, in bf16.
    fn read(&self, found: &Found) -> Result<(Vec<bf16>, Recorded), Failure> {
        let taken = self.recording.take(found, self.tokens)?;
        let mut grouped = vec![bf16::ZERO; taken.values.len()];
        let groups = grouped.chunks_exact_mut(found.width * GROUP).zip(taken.values.chunks_exact(found.width * GROUP));
        for (to, from) in groups {
            for (lane, token) in from.chunks_exact(found.width).enumerate() {
                to.iter_mut().skip(lane).step_by(GROUP).zip(token).for_each(|(to, from)| *to = Stored::keep(*from));
            }
        }
        if grouped.iter().any(|value| !value.is_finite()) {
            let message = format!("tensor `{}` of `{}` has values beyond bf16", found.tensor, taken.recorded.file);
            return Err(
                Failure::new(message).hint("streams and outputs of sublayers are stored in bf16: record them so")
            );
        }
        Ok((grouped, taken.recorded))
    }

    fn again(&self, known: Option<&Known>) -> Result<Option<Vec<bf16>>, Failure> {
        let Some(known) = known else { return Ok(None) };
        let (values, recorded) = self.read(&known.found)?;
        if recorded != known.recorded {
            let message = format!("tensor `{}` of `{}` changed while it was measured", recorded.tensor, recorded.file);
            return Err(Failure::new(message).hint("wait until nothing writes there, then measure again"));
        }
        Ok(Some(values))
    }
}

impl<A: Activations> Activations for RecordedSites<'_, A> {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn at_site(&self, site: usize) -> Result<(), Failure> {
        self.made.at_site(site)?;
        let now = Now { streams: self.again(self.streams.get(&site))?, output: self.again(self.outputs.get(&site))? };
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    fn first(&self, token: usize, streams: &mut [f64]) {
        let Some(first) = &self.first else { return self.made.first(token, streams) };
        let from = &first[token / GROUP * streams.len()..][..streams.len()];
        streams.iter_mut().zip(from).for_each(|(to, from)| *to = from.wide());
    }

    fn entering(&self, token: usize, streams: &mut [bf16]) -> bool {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let Some(recorded) = &now.streams else { return false };
        let from = &recorded[token / GROUP * streams.len()..][..streams.len()];
        streams.copy_from_slice(from);
        true
    }

    fn output(&self, site: usize, token: usize, channel: usize, mean: &[f64], output: &mut [f64]) {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let Some(recorded) = &now.output else { return self.made.output(site, token, channel, mean, output) };
        let width = recorded.len() / self.tokens;
        let from = &recorded[(token / GROUP * width + channel) * GROUP..][..output.len()];
        output.iter_mut().zip(from).for_each(|(to, from)| *to = from.wide());
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
