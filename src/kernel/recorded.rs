//! Recorded activations as inputs of microtests.
//!
//! Responsible for which tensors a microtest takes, by name and shape, and for refusing those that no error may be
//! measured on. Not responsible for reading files, which is [`crate::kernel::dump`], nor for what a microtest makes of
//! the values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use crate::engine::procedure::Failure;
use crate::kernel::config::ModelConfig;
use crate::kernel::dump::Dump;
use crate::kernel::oracle::attention::{HEAD, HEADS};
use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::oracle::model::{LAYERS, WIDTH};
use crate::kernel::report::Recorded;

/// The most values of one tensor that are taken at once.
const VALUES: usize = 1 << 17;

/// The microtests that take recorded activations.
pub const TAKING: [&str; 4] = ["mhc-mix", "router", "norm", "quantise"];

/// The sizes of a model that activations have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Layers.
    pub layers: usize,
    /// Width of one stream.
    pub hidden: usize,
    /// Rank of the query's low-rank projection, where there is one.
    pub rank: Option<usize>,
    /// Heads of the attention.
    pub heads: usize,
    /// Width of a head, and of the latent key.
    pub head: usize,
    /// Whether the model itself makes the outputs of its sublayers.
    pub whole: bool,
}

impl Sizes {
    /// Those of the lab model.
    pub const LAB: Self = Self { layers: LAYERS, hidden: WIDTH, rank: None, heads: HEADS, head: HEAD, whole: true };

    /// Those of a configuration.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            layers: config.num_hidden_layers,
            hidden: config.hidden_size,
            rank: Some(config.q_lora_rank),
            heads: config.num_attention_heads,
            head: config.head_dim,
            whole: false,
        }
    }
}

/// A place in every layer at which activations can be recorded, as tensors `layers.N.NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The last part of the tensor's name.
    pub name: &'static str,
    /// What stands there, such as `attention`.
    pub says: &'static str,
    row: Row,
}

/// Extents of one row, behind those that count rows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    /// These, or their product.
    Of(Vec<usize>),
    /// One, a multiple of so much.
    MultipleOf(usize),
}

impl Spot {
    fn new(name: &'static str, says: &'static str, row: &[usize]) -> Self {
        Self { name, says, row: Row::Of(row.to_vec()) }
    }

    fn any(name: &'static str, says: &'static str) -> Self {
        Self { name, says, row: Row::MultipleOf(128) }
    }

    /// The shape that is needed, in words.
    fn shape(&self) -> String {
        match &self.row {
            Row::Of(row) => format!("[tokens, {}]", row.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
            Row::MultipleOf(most) => format!("[tokens, a multiple of {most}]"),
        }
    }

    /// Rows of a tensor of this shape and values in each; `None` where the shape does not fit.
    fn fit(&self, shape: &[usize]) -> Option<[usize; 2]> {
        let ends: Vec<usize> = match &self.row {
            Row::Of(row) if shape.ends_with(row) => row.clone(),
            Row::Of(row) if shape.last() == Some(&row.iter().product()) => vec![row.iter().product()],
            Row::MultipleOf(of) => {
                shape.last().copied().filter(|w| *w > 0 && w.is_multiple_of(*of)).into_iter().collect()
            }
            Row::Of(_) => Vec::new(),
        };
        let before = shape.len().checked_sub(ends.len()).filter(|before| *before > 0 && !ends.is_empty())?;
        Some([shape[..before].iter().product(), ends.iter().product()])
    }
}

/// What a microtest takes of a recording; nothing if it takes none.
///
/// Where the model itself makes the outputs of its sublayers they are not taken.
pub fn spots(spec: &str, sizes: &Sizes) -> Vec<Spot> {
    let Sizes { hidden, heads, head, .. } = *sizes;
    match spec {
        "mhc-mix" => {
            let mut spots = vec![
                Spot::new("hc_attn_input", "streams before attention", &[STREAMS, hidden]),
                Spot::new("hc_ffn_input", "streams before ffn", &[STREAMS, hidden]),
            ];
            if !sizes.whole {
                spots.push(Spot::new("attn_output", "output of attention", &[hidden]));
                spots.push(Spot::new("ffn_output", "output of ffn", &[hidden]));
            }
            spots
        }
        "norm" => {
            let mut spots = vec![
                Spot::new("attn_norm_input", "attention", &[hidden]),
                Spot::new("ffn_norm_input", "ffn", &[hidden]),
                Spot::new("q_heads_input", "query heads", &[heads, head]),
                Spot::new("kv_norm_input", "latent key", &[head]),
            ];
            spots.extend(sizes.rank.map(|rank| Spot::new("q_norm_input", "low-rank query", &[rank])));
            spots
        }
        "router" => vec![Spot::new("ffn_input", "router", &[hidden])],
        "quantise" => vec![Spot::any("ffn_input", "into experts"), Spot::any("down_input", "out of experts")],
        _ => Vec::new(),
    }
}

/// A tensor of a recording that stands at a spot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The layer.
    pub layer: usize,
    /// The last part of its name.
    pub name: &'static str,
    /// What stands there.
    pub says: &'static str,
    /// Its whole name.
    pub tensor: String,
    /// Its rows.
    pub rows: usize,
    /// Values in a row.
    pub width: usize,
}

/// The first rows of one, with where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// What it is.
    pub found: Found,
    /// `[rows, width]`.
    pub values: Vec<f64>,
    /// Where it comes from.
    pub recorded: Recorded,
}

/// A recording.
#[derive(Debug)]
pub struct Recording {
    dump: Dump,
    place: PathBuf,
}

impl Recording {
    /// Opens a file, or a folder with files.
    ///
    /// # Errors
    /// Nothing is there, or a file is not whole or a pickle.
    pub fn open(place: &Path) -> Result<Self, Failure> {
        Ok(Self { dump: Dump::open(&[place.to_owned()])?, place: place.to_owned() })
    }

    /// The microtests that tensors of the recording are named for, whatever their shapes.
    ///
    /// # Errors
    /// There is none.
    pub fn specs(&self) -> Result<Vec<String>, Failure> {
        // The names are the same for every model, but for those that the lab model lacks.
        let sizes = Sizes::of(&ModelConfig::flash());
        let named = |spec: &&str| {
            let spots = spots(spec, &sizes);
            self.dump.recorded().keys().any(|name| spot_of(name, &spots).is_some())
        };
        let specs: Vec<String> = TAKING.into_iter().filter(named).map(str::to_owned).collect();
        if specs.is_empty() {
            let all: Vec<Spot> = TAKING.iter().flat_map(|spec| spots(spec, &sizes)).collect();
            let names: BTreeSet<String> = all.iter().map(|spot| format!("`layers.N.{}`", spot.name)).collect();
            let message = format!("no tensor of `{}` is named as a microtest takes it", self.place.display());
            let names: Vec<String> = names.into_iter().collect();
            return Err(Failure::new(message).hint(self.hint(&names.join(", "))));
        }
        Ok(specs)
    }

    /// The tensors at these spots, by layer.
    ///
    /// # Errors
    /// There is none, or one has another shape, another type, no rows, or a layer that the model does not have.
    pub fn at(&self, spec: &str, spots: &[Spot], layers: usize) -> Result<Vec<Found>, Failure> {
        let mut all = Vec::new();
        for (tensor, recorded) in self.dump.recorded() {
            let Some((layer, spot)) = spot_of(tensor, spots) else { continue };
            let file = self.dump.file(recorded).display();
            let of_other = "the sizes are those of `--checkpoint`, without it those of the lab's model";
            if layer >= layers {
                let message =
                    format!("tensor `{tensor}` of `{file}` is of a layer that is not among the model's {layers}");
                return Err(Failure::new(message).hint(of_other));
            }
            if ![Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F64].iter().any(|d| d.to_string() == recorded.dtype) {
                let message =
                    format!("tensor `{tensor}` of `{file}` is stored as {}, which no activations are", recorded.dtype);
                return Err(Failure::new(message).hint("BF16, F16, F32 and F64 are taken"));
            }
            let Some([rows, width]) = spot.fit(&recorded.shape) else {
                let (shape, needed) = (&recorded.shape, spot.shape());
                let message = format!("tensor `{tensor}` of `{file}` has shape {shape:?} where {needed} is needed");
                return Err(Failure::new(message).hint(of_other));
            };
            if rows == 0 {
                let failure = Failure::new(format!("tensor `{tensor}` of `{file}` holds no token"));
                return Err(failure.hint("record a prompt, or leave it out"));
            }
            all.push(Found { layer, name: spot.name, says: spot.says, tensor: tensor.clone(), rows, width });
        }
        if all.is_empty() {
            let needed: Vec<String> =
                spots.iter().map(|spot| format!("`layers.N.{}` {}", spot.name, spot.shape())).collect();
            let message = format!("`{}` has no tensor that microtest `{spec}` takes", self.place.display());
            return Err(Failure::new(message).hint(self.hint(&needed.join(", "))));
        }
        let order = |name: &str| spots.iter().position(|spot| spot.name == name);
        all.sort_by_key(|found| (found.layer, order(found.name)));
        Ok(all)
    }

    fn hint(&self, taken: &str) -> String {
        format!(
            "it takes {taken}, layers counted from 0; there are {}; where steps or ranks repeat a name, give the files of \
             one",
            self.dump.some()
        )
    }

    /// The first rows of a tensor, at most so many.
    ///
    /// # Errors
    /// They cannot be read, or are nothing that an error may be measured on: one of them is no number or infinite, or
    /// all are the same.
    pub fn take(&self, found: &Found, rows: usize) -> Result<Taken, Failure> {
        let rows = rows.min(found.rows);
        let stored = self.dump.start(&found.tensor, rows * found.width)?;
        let tensor = &found.tensor;
        let file = self.dump.file(&self.dump.recorded()[tensor]).display().to_string();
        // The type was among those that are converted when the tensor was found.
        let values = stored.values().unwrap_or_default();
        let refused = |what: String| {
            let hint = "record a run whose values are numbers, or leave that tensor out";
            Failure::new(format!("tensor `{tensor}` of `{file}` {what}")).hint(hint)
        };
        if values.len() != rows * found.width {
            return Err(refused("changed while it was read".into()));
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let bad = values.iter().filter(|value| !value.is_finite()).count();
            let (row, column) = (at / found.width, at % found.width);
            let what = if values[at].is_nan() { "no number" } else { "infinite" };
            return Err(refused(format!(
                "is {what} at row {row}, column {column}; {bad} of its values are not finite"
            )));
        }
        if values.iter().all(|value| *value == values[0]) {
            return Err(refused(format!("holds {} alone, on which nothing can be measured", values[0])));
        }
        let recorded = Recorded {
            tensor: tensor.clone(),
            file,
            dtype: stored.dtype.to_string(),
            shape: stored.shape,
            rows,
            hash: blake3::hash(&stored.bytes).to_hex().to_string(),
        };
        Ok(Taken { found: found.clone(), values, recorded })
    }

    /// Takes the first rows of several tensors: of at most so many tensors, in whole layers spread evenly, and of each at
    /// most so many rows, fewer where these are wide.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_some(&self, found: &[Found], most: usize, rows: usize) -> Result<Vec<Taken>, Failure> {
        let bound = |found: &Found| rows.min((VALUES / found.width).max(1));
        spread(found, most).into_iter().map(|found| self.take(found, bound(found))).collect()
    }
}

/// The layer and the spot that a tensor's name means: `layers.N.NAME`.
fn spot_of<'a>(tensor: &str, spots: &'a [Spot]) -> Option<(usize, &'a Spot)> {
    let (layer, name) = tensor.strip_prefix("layers.")?.split_once('.')?;
    let spot = spots.iter().find(|spot| spot.name == name)?;
    Some((layer.parse().ok()?, spot))
}

/// Whole layers, spread evenly, of which at most so many tensors are left, but one layer at least.
fn spread(found: &[Found], most: usize) -> Vec<&Found> {
    let mut layers: BTreeMap<usize, Vec<&Found>> = BTreeMap::new();
    for one in found {
        layers.entry(one.layer).or_default().push(one);
    }
    let of_layer = layers.values().map(Vec::len).max().unwrap_or(1);
    let (there, keep) = (layers.len(), (most / of_layer).max(1));
    let kept: BTreeSet<usize> = if keep >= there {
        (0..there).collect()
    } else {
        (0..keep).map(|at| if keep == 1 { 0 } else { at * (there - 1) / (keep - 1) }).collect()
    };
    layers.into_values().enumerate().filter(|(at, _)| kept.contains(at)).flat_map(|(_, of)| of).collect()
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(in crate::kernel) mod tests;
