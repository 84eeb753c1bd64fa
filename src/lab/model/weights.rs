//! The checkpoint: read from safetensors, checked, widened and packed.

use half::bf16;
use pulp::Arch;
use safetensors::tensor::{Dtype, SafeTensors};

use super::experts::Experts;
use super::hc::Site;
use super::linear::Linear;
use super::{Arithmetic, EXPERTS, FLAT, HEAD, HEADS, LAYERS, STREAMS, VOCAB, WIDTH, sparse_index};

/// The lab's checkpoint, part of the program so that it needs no files.
pub static EMBEDDED: &[u8] = include_bytes!("../../../lab/model.safetensors");

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no safetensors file.
    #[error("the checkpoint is not a readable safetensors file: {0}")]
    Format(String),
    /// A tensor is not there.
    #[error("the checkpoint has no tensor `{0}`")]
    Missing(String),
    /// A tensor has another shape than the model.
    #[error("tensor `{name}` has shape {found:?}, the lab model needs {wanted:?}")]
    Shape {
        /// Tensor name.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape of the model.
        wanted: Vec<usize>,
    },
    /// A tensor has a type that the lab does not read.
    #[error("tensor `{name}` has type {found}, the lab reads F32 and BF16")]
    Type {
        /// Tensor name.
        name: String,
        /// Type in the file.
        found: String,
    },
    /// A tensor holds NaN or infinity.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
}

/// Weights of one block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) attention_site: Site,
    pub(super) attention_norm: Vec<f32>,
    /// `wq`, `wk`, `wv`, and in sparse layers `iq`, `ik`, `iw`, one above the other.
    pub(super) project: Linear,
    pub(super) query_norm: Vec<f32>,
    pub(super) key_norm: Vec<f32>,
    pub(super) sink: [f32; HEADS],
    pub(super) output: Linear,
    pub(super) expert_site: Site,
    pub(super) expert_norm: Vec<f32>,
    pub(super) experts: Experts,
}

/// The model, ready to run with one arithmetic.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) arch: Arch,
    pub(super) arithmetic: Arithmetic,
    pub(super) embedding: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) head_mix: Linear,
    pub(super) head_scale: f32,
    pub(super) head_base: [f32; STREAMS],
    pub(super) norm: Vec<f32>,
    pub(super) head: Linear,
}

impl Model {
    /// Reads a checkpoint.
    ///
    /// # Errors
    /// When the bytes are not the lab model's checkpoint.
    pub fn load(bytes: &[u8], arithmetic: Arithmetic) -> Result<Self, LoadError> {
        let file = SafeTensors::deserialize(bytes).map_err(|e| LoadError::Format(e.to_string()))?;
        let t = Reader { file };
        let blocks = (0..LAYERS).map(|l| block(&t, l, arithmetic)).collect::<Result<_, _>>()?;
        Ok(Self {
            arch: Arch::new(),
            arithmetic,
            embedding: t.get("emb.weight", &[VOCAB, WIDTH])?,
            blocks,
            head_mix: Linear::pack(&t.get("hh.fn", &[STREAMS, FLAT])?, STREAMS, FLAT),
            head_scale: t.get("hh.scale", &[1])?[0],
            head_base: t.array("hh.base")?,
            norm: t.get("norm", &[WIDTH])?,
            head: Linear::pack(&t.get("head.weight", &[VOCAB, WIDTH])?, VOCAB, WIDTH),
        })
    }

    /// The arithmetic it was loaded for.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The attention site of a block, for measuring its mixing product alone.
    pub fn attention_site(&self, layer: usize) -> Option<&Site> {
        self.blocks.get(layer).map(|b| &b.attention_site)
    }
}

fn block(t: &Reader<'_>, layer: usize, arithmetic: Arithmetic) -> Result<Block, LoadError> {
    let name = |rest: &str| format!("blocks.{layer}.{rest}");
    let mut project = t.get(&name("attn.wq.weight"), &[WIDTH, WIDTH])?;
    project.extend(t.get(&name("attn.wk.weight"), &[HEAD, WIDTH])?);
    project.extend(t.get(&name("attn.wv.weight"), &[HEAD, WIDTH])?);
    if sparse_index(layer).is_some() {
        project.extend(t.get(&name("attn.iq.weight"), &[WIDTH, WIDTH])?);
        project.extend(t.get(&name("attn.ik.weight"), &[HEAD, WIDTH])?);
        project.extend(t.get(&name("attn.iw.weight"), &[HEADS, WIDTH])?);
    }
    let project = Linear::pack(&project, project.len() / WIDTH, WIDTH);
    let site = |which: &str| -> Result<Site, LoadError> {
        let weight = t.get(&name(&format!("{which}.fn")), &[24, FLAT])?;
        let scale = t.array(&name(&format!("{which}.scale")))?;
        Ok(Site::new(&weight, scale, t.array(&name(&format!("{which}.base")))?, arithmetic.mhc))
    };
    let experts = [EXPERTS + 1, WIDTH, WIDTH];
    let w1 = t.get(&name("ffn.w1"), &experts)?;
    let w2 = t.get(&name("ffn.w2"), &experts)?;
    let w3 = t.get(&name("ffn.w3"), &experts)?;
    let one = WIDTH * WIDTH;
    let up = (0..=EXPERTS).map(|e| {
        let both = [&w1[e * one..(e + 1) * one], &w3[e * one..(e + 1) * one]].concat();
        Linear::pack(&both, 2 * WIDTH, WIDTH)
    });
    let down = (0..=EXPERTS).map(|e| Linear::pack(&w2[e * one..(e + 1) * one], WIDTH, WIDTH));
    Ok(Block {
        attention_site: site("ha")?,
        attention_norm: t.get(&name("na"), &[WIDTH])?,
        project,
        query_norm: t.get(&name("attn.qn"), &[HEAD])?,
        key_norm: t.get(&name("attn.kn"), &[HEAD])?,
        sink: t.array(&name("attn.sink"))?,
        output: Linear::pack(&t.get(&name("attn.wo.weight"), &[WIDTH, WIDTH])?, WIDTH, WIDTH),
        expert_site: site("hf")?,
        expert_norm: t.get(&name("nf"), &[WIDTH])?,
        experts: Experts {
            gate: Linear::pack(&t.get(&name("ffn.gate"), &[EXPERTS, WIDTH])?, EXPERTS, WIDTH),
            bias: t.array(&name("ffn.bias"))?,
            up: up.collect(),
            down: down.collect(),
        },
    })
}

struct Reader<'a> {
    file: SafeTensors<'a>,
}

impl Reader<'_> {
    fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let view = self.file.tensor(name).map_err(|_| LoadError::Missing(name.into()))?;
        if view.shape() != shape {
            let (found, wanted) = (view.shape().to_vec(), shape.to_vec());
            return Err(LoadError::Shape { name: name.into(), found, wanted });
        }
        let bytes = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            Dtype::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            other => return Err(LoadError::Type { name: name.into(), found: format!("{other:?}") }),
        };
        if values.iter().any(|v| !v.is_finite()) {
            return Err(LoadError::NotFinite(name.into()));
        }
        Ok(values)
    }

    fn array<const N: usize>(&self, name: &str) -> Result<[f32; N], LoadError> {
        let values = self.get(name, &[N])?;
        Ok(std::array::from_fn(|i| values[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_checkpoint_loads() {
        assert!(Model::load(EMBEDDED, Arithmetic::default()).is_ok());
    }

    #[test]
    fn a_cut_checkpoint_is_refused() {
        let error = Model::load(&EMBEDDED[..EMBEDDED.len() / 2], Arithmetic::default()).unwrap_err();
        assert!(error.to_string().contains("safetensors"), "{error}");
        assert!(Model::load(b"", Arithmetic::default()).is_err());
    }
}
