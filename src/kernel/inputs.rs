//! Where the inputs of a microtest come from: the lab model, a checkpoint, or made up.
//!
//! Responsible for telling places apart and for the weights of a real checkpoint, one site at a
//! time. Not responsible for reading files, nor for what a spec makes of its inputs.

use std::path::Path;

use crate::engine::procedure::Failure;
use crate::kernel::checkpoint::{Checkpoint, Progress, Stop, open_place};
use crate::kernel::config::ModelConfig;
use crate::kernel::mhc;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::hyper::MIXES;
use crate::kernel::oracle::model::Model;
use crate::kernel::sites::{SiteWeights, Sites, tensor_names};

/// Seed of synthetic inputs.
pub(super) const SEED: u64 = 1;

/// Where the inputs come from.
pub(super) enum Inputs {
    /// A checkpoint of the lab model.
    Lab { model: Box<Model>, place: String },
    /// A checkpoint of DeepSeek-V4.
    Real { checkpoint: Box<Checkpoint>, config: Box<ModelConfig> },
    /// Made up, with the sizes of a model.
    Synthetic(Box<ModelConfig>),
}

impl Inputs {
    /// The inputs at a place; see [`crate::kernel::Request`].
    ///
    /// # Errors
    /// The place is no such place, cannot be read or does not fit, or somebody cancelled.
    pub(super) fn of(place: Option<&Path>, progress: Progress<'_>, stop: Stop<'_>) -> Result<Self, Failure> {
        let Some(place) = place else { return Self::of_lab(&Checkpoint::lab()?) };
        let Some(place) = place.to_str() else {
            return Err(Failure::new(format!("`{}` is no text", place.display())).hint("rename the folder"));
        };
        match place.strip_prefix("synthetic:") {
            Some("flash") => return Ok(Self::Synthetic(Box::new(ModelConfig::flash()))),
            Some("pro") => return Ok(Self::Synthetic(Box::new(ModelConfig::pro()))),
            Some(other) => {
                return Err(Failure::new(format!("there are no sizes of a model `{other}`"))
                    .hint("it is `synthetic:flash` or `synthetic:pro`"));
            }
            None => {}
        }
        let checkpoint = open_place(place, progress, stop)?;
        if checkpoint.totals().hc_tensors == 0 {
            return Self::of_lab(&checkpoint);
        }
        let config = checkpoint.config(stop)?.ok_or_else(|| {
            Failure::new(format!("`{place}` has no config.json"))
                .hint("copy it beside the checkpoint: it has the sizes")
        })?;
        Ok(Self::Real { checkpoint: Box::new(checkpoint), config: Box::new(config) })
    }

    fn of_lab(checkpoint: &Checkpoint) -> Result<Self, Failure> {
        Ok(Self::Lab { model: Box::new(Model::load(checkpoint)?), place: checkpoint.place().to_owned() })
    }
}

/// Makes the cases of a spec out of the lab model's own pass over a prompt.
type OfLab<C> = fn(&Model, &[u16]) -> Cases<C>;

/// The cases of a spec with these inputs; one without a part in the lab model has Flash sizes there.
pub(super) fn cases<C>(
    inputs: &Inputs,
    synthetic: fn(&ModelConfig, u64) -> Cases<C>,
    lab: Option<OfLab<C>>,
) -> Result<Cases<C>, Failure> {
    match (inputs, lab) {
        (Inputs::Lab { model, .. }, Some(lab)) => Ok(lab(model, &long_ids()?)),
        (Inputs::Lab { .. }, None) => Ok(synthetic(&ModelConfig::flash(), SEED)),
        (Inputs::Synthetic(config) | Inputs::Real { config, .. }, _) => Ok(synthetic(config, SEED)),
    }
}

/// The golden prompt three times over, so that the lab model's indexer has keys to leave out.
fn long_ids() -> Result<Vec<u16>, Failure> {
    Ok(mhc::golden_ids()?.repeat(3))
}

/// The mixing weights of a real checkpoint; one site is in memory at a time.
pub(super) struct CheckpointSites<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a ModelConfig,
}

impl<'a> CheckpointSites<'a> {
    /// Makes the weights ready: of a host only their bytes are moved, and only once.
    ///
    /// # Errors
    /// A tensor is missing or its shard is not whole, the host cannot be asked, or somebody cancelled.
    pub(super) fn fetch(
        checkpoint: &'a Checkpoint,
        config: &'a ModelConfig,
        progress: Progress<'_>,
        stop: Stop<'_>,
    ) -> Result<Self, Failure> {
        let sites = Self { checkpoint, config };
        let names: Vec<String> = (0..sites.count()).flat_map(tensor_names).collect();
        checkpoint.fetch(&names, progress, stop)?;
        Ok(sites)
    }
}

impl Sites for CheckpointSites<'_> {
    fn count(&self) -> usize {
        2 * self.config.num_hidden_layers
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    fn weights(&self, site: usize) -> Result<SiteWeights, Failure> {
        let [mixing, scale, base] = tensor_names(site);
        let numbers = |name: &str, shape: &[usize]| -> Result<Vec<f32>, Failure> {
            let tensor = self.checkpoint.tensor(name, shape)?;
            Ok(tensor.values.into_iter().map(|v| v as f32).collect())
        };
        Ok(SiteWeights {
            mixing: numbers(&mixing, &[MIXES, self.config.hc_mult * self.config.hidden_size])?,
            scale: fixed(&numbers(&scale, &[3])?),
            base: fixed(&numbers(&base, &[MIXES])?),
        })
    }
}

fn fixed<const N: usize>(values: &[f32]) -> [f32; N] {
    std::array::from_fn(|i| values[i])
}
