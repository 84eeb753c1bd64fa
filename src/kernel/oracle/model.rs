//! The lab model as a whole: its weights, one site, a whole forward pass.
//!
//! Responsible for the order of the parts. Not responsible for the mixing's arithmetic where a
//! candidate replaces it: `step` is given the coefficients.

use crate::kernel::checkpoint::{Checkpoint, CheckpointError};
use crate::kernel::matrix::Matrix;
use crate::kernel::oracle::attention::{Attention, HEAD, HEADS, Indexer, attend};
use crate::kernel::oracle::experts::{self, Chosen, EXPERTS, Expert, Experts};
use crate::kernel::oracle::hyper::{Coefficients, MIXES, STREAMS, Site, combine, mixes, site_input, split};
use crate::kernel::oracle::{EPS, inverse_rms, rms, sigmoid};

/// Width of a stream.
pub const WIDTH: usize = 128;
/// Layers.
pub const LAYERS: usize = 6;
/// Hyper-connection sites: two a layer.
pub const SITES: usize = 2 * LAYERS;
/// Token ids.
pub const VOCABULARY: usize = 264;

const INNER: usize = 128;
const SPARSE: [usize; 2] = [2, 4];

/// Weights of the model, in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Embedding, `[vocabulary, width]`.
    pub embedding: Vec<f64>,
    /// The blocks.
    pub blocks: Vec<Block>,
    /// The head.
    pub head: Head,
}

/// Weights of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Mixing at the attention site, then at the experts' site.
    pub sites: [Site; 2],
    /// Norm before the attention, then before the experts.
    pub norms: [Vec<f64>; 2],
    /// Attention.
    pub attention: Attention,
    /// Experts.
    pub experts: Experts,
}

/// Weights of the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Mixing, `[4, 4 * width]`.
    pub mixer: Matrix<f64>,
    /// Scale of the mixing.
    pub scale: f64,
    /// Offsets of the mixing.
    pub base: [f64; STREAMS],
    /// Norm before the vocabulary.
    pub norm: Vec<f64>,
    /// Vocabulary, `[vocabulary, width]`.
    pub vocabulary: Matrix<f64>,
}

/// What one site did.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Site input, `[tokens, width]`, before its norm.
    pub input: Vec<f64>,
    /// Output of the sublayer, `[tokens, width]`.
    pub output: Vec<f64>,
    /// Experts of each token; empty at an attention site.
    pub chosen: Vec<Chosen>,
    /// New streams, `[tokens, 4, width]`.
    pub streams: Vec<f64>,
}

/// The site's name, such as `layer 0 attention`.
pub fn site_label(site: usize) -> String {
    format!("layer {} {}", site / 2, if site.is_multiple_of(2) { "attention" } else { "experts" })
}

impl Model {
    /// Reads all weights.
    ///
    /// # Errors
    /// A tensor is missing, misshapen or unreadable.
    pub fn load(from: &Checkpoint) -> Result<Self, CheckpointError> {
        let head = Head {
            mixer: matrix(from, "hh.fn", STREAMS, STREAMS * WIDTH)?,
            scale: array::<1>(from, "hh.scale")?[0],
            base: array(from, "hh.base")?,
            norm: vector(from, "norm", WIDTH)?,
            vocabulary: matrix(from, "head.weight", VOCABULARY, WIDTH)?,
        };
        Ok(Self {
            embedding: from.tensor("emb.weight", &[VOCABULARY, WIDTH])?.values,
            blocks: (0..LAYERS).map(|layer| Block::load(from, layer)).collect::<Result<_, _>>()?,
            head,
        })
    }

    /// Mixing weights of a site, counted over all layers.
    pub fn site(&self, site: usize) -> &Site {
        &self.blocks[site / 2].sites[site % 2]
    }

    /// Streams `[tokens, 4, width]` before the first site: the embedding, four times. Ids must lie
    /// within the vocabulary.
    pub fn embed(&self, ids: &[u16]) -> Vec<f64> {
        ids.iter().flat_map(|id| self.embedding[*id as usize * WIDTH..][..WIDTH].repeat(STREAMS)).collect()
    }

    /// The coefficients of a site, as the model defines them, and the mixes they come from.
    pub fn coefficients(&self, site: usize, streams: &[f64]) -> (Vec<[f64; MIXES]>, Vec<Coefficients>) {
        let weights = self.site(site);
        let mixes = mixes(weights, streams);
        let coefficients = mixes.iter().map(|m| split(m, weights.scale, &weights.base)).collect();
        (mixes, coefficients)
    }

    /// One site with these coefficients; streams are `[tokens, 4, width]`.
    pub fn step(&self, site: usize, streams: &[f64], coefficients: &[Coefficients]) -> Step {
        let input = site_input(coefficients.iter().map(|c| c.pre), streams, WIDTH);
        let (output, chosen) = self.sublayer(site, &input);
        let streams = combine(coefficients, &output, streams, WIDTH);
        Step { input, output, chosen, streams }
    }

    /// Attention or experts on the normed site input `y` (`[tokens, width]`), same shape, and the
    /// experts that each token took (none at an attention site).
    fn sublayer(&self, site: usize, y: &[f64]) -> (Vec<f64>, Vec<Chosen>) {
        let (block, part) = (&self.blocks[site / 2], site % 2);
        let h = rms(y, &block.norms[part]);
        let tokens = y.len() / WIDTH;
        if part == 0 {
            (attend(&block.attention, &h, tokens), Vec::new())
        } else {
            experts::run(&block.experts, &h, tokens)
        }
    }

    /// How much of each stream enters the vocabulary's norm, for every token of `streams`
    /// (`[tokens, 4, width]`).
    pub fn head_coefficients(&self, streams: &[f64]) -> Vec<[f64; STREAMS]> {
        let products = self.head.mixer.times(streams);
        let (products, _) = products.as_chunks::<STREAMS>();
        let tokens = products.iter().zip(streams.chunks_exact(STREAMS * WIDTH));
        let pre = tokens.map(|(product, token)| {
            let r = inverse_rms(token);
            std::array::from_fn(|i| sigmoid(product[i] * r * self.head.scale + self.head.base[i]) + EPS)
        });
        pre.collect()
    }

    /// Logits `[tokens, vocabulary]` of the streams after the last site.
    pub fn logits(&self, streams: &[f64]) -> Vec<f64> {
        let y = site_input(self.head_coefficients(streams).into_iter(), streams, WIDTH);
        self.head.vocabulary.times(&rms(&y, &self.head.norm))
    }
}

impl Block {
    fn load(from: &Checkpoint, layer: usize) -> Result<Self, CheckpointError> {
        let name = |part: &str| format!("blocks.{layer}.{part}");
        Ok(Self {
            sites: [site(from, &name("ha"))?, site(from, &name("hf"))?],
            norms: [vector(from, &name("na"), WIDTH)?, vector(from, &name("nf"), WIDTH)?],
            attention: attention(from, &name("attn"), SPARSE.contains(&layer))?,
            experts: experts(from, &name("ffn"))?,
        })
    }
}

fn site(from: &Checkpoint, name: &str) -> Result<Site, CheckpointError> {
    let rows = from.tensor(&format!("{name}.fn"), &[MIXES, STREAMS * WIDTH])?.values;
    Ok(Site {
        matrix: Matrix::pack(&rows, MIXES, STREAMS * WIDTH),
        rows,
        scale: array(from, &format!("{name}.scale"))?,
        base: array(from, &format!("{name}.base"))?,
    })
}

fn attention(from: &Checkpoint, name: &str, sparse: bool) -> Result<Attention, CheckpointError> {
    let weight = |part: &str, outputs: usize| matrix(from, &format!("{name}.{part}.weight"), outputs, WIDTH);
    let indexer = if sparse {
        Some(Indexer { queries: weight("iq", HEADS * HEAD)?, keys: weight("ik", HEAD)?, weights: weight("iw", HEADS)? })
    } else {
        None
    };
    Ok(Attention {
        wq: weight("wq", HEADS * HEAD)?,
        wk: weight("wk", HEAD)?,
        wv: weight("wv", HEAD)?,
        wo: weight("wo", WIDTH)?,
        qn: vector(from, &format!("{name}.qn"), HEAD)?,
        kn: vector(from, &format!("{name}.kn"), HEAD)?,
        sink: array(from, &format!("{name}.sink"))?,
        indexer,
    })
}

fn experts(from: &Checkpoint, name: &str) -> Result<Experts, CheckpointError> {
    let stack = |part: &str, outputs: usize, inputs: usize| -> Result<Vec<Matrix<f64>>, CheckpointError> {
        let all = from.tensor(&format!("{name}.{part}"), &[EXPERTS + 1, outputs, inputs])?.values;
        Ok(all.chunks_exact(outputs * inputs).map(|one| Matrix::pack(one, outputs, inputs)).collect())
    };
    let (w1, w2, w3) = (stack("w1", INNER, WIDTH)?, stack("w2", WIDTH, INNER)?, stack("w3", INNER, WIDTH)?);
    let experts = w1.into_iter().zip(w2).zip(w3).map(|((w1, w2), w3)| Expert { w1, w2, w3 }).collect();
    Ok(Experts {
        gate: matrix(from, &format!("{name}.gate"), EXPERTS, WIDTH)?,
        bias: array(from, &format!("{name}.bias"))?,
        experts,
    })
}

fn matrix(from: &Checkpoint, name: &str, outputs: usize, inputs: usize) -> Result<Matrix<f64>, CheckpointError> {
    Ok(Matrix::pack(&from.tensor(name, &[outputs, inputs])?.values, outputs, inputs))
}

fn vector(from: &Checkpoint, name: &str, length: usize) -> Result<Vec<f64>, CheckpointError> {
    Ok(from.tensor(name, &[length])?.values)
}

fn array<const N: usize>(from: &Checkpoint, name: &str) -> Result<[f64; N], CheckpointError> {
    let values = vector(from, name, N)?;
    Ok(std::array::from_fn(|i| values[i]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn golden(name: &str, shape: &[usize]) -> Vec<f64> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/golden.safetensors");
        Checkpoint::open(&path).unwrap().tensor(name, shape).unwrap().values
    }

    fn ids() -> Vec<u16> {
        golden("ids", &[224]).iter().map(|id| *id as u16).collect()
    }

    #[test]
    fn the_built_in_prompt_is_the_golden_one() {
        assert_eq!(crate::kernel::mhc::golden_ids().unwrap(), ids());
    }

    fn furthest(got: &[f64], expect: &[f64]) -> f64 {
        assert_eq!(got.len(), expect.len());
        got.iter().zip(expect).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn the_first_site_agrees_with_the_golden_values() {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let streams = model.embed(&ids());
        let (_, coefficients) = model.coefficients(0, &streams);
        let y = site_input(coefficients.iter().map(|c| c.pre), &streams, WIDTH);
        let post: Vec<f64> = coefficients.iter().flat_map(|c| c.post).collect();
        let comb: Vec<f64> = coefficients.iter().flat_map(|c| c.comb.into_iter().flatten()).collect();
        assert!(furthest(&y, &golden("block0.attn_hc.y", &[224, 128])) < 1e-5);
        assert!(furthest(&post, &golden("block0.attn_hc.post", &[224, 4])) < 1e-5);
        assert!(furthest(&comb, &golden("block0.attn_hc.comb", &[224, 4, 4])) < 1e-5);
    }

    #[test]
    fn the_whole_pass_agrees_with_the_golden_values() {
        let model = Model::load(&Checkpoint::lab().unwrap()).unwrap();
        let mut streams = model.embed(&ids());
        for site in 0..SITES {
            let (_, coefficients) = model.coefficients(site, &streams);
            streams = model.step(site, &streams, &coefficients).streams;
            if site % 2 == 1 {
                let name = format!("block{}", site / 2);
                let off = furthest(&streams, &golden(&name, &[224, 4, 128]));
                assert!(off < 1e-3, "{name} is off by {off}");
            }
        }
        let (logits, expect) = (model.logits(&streams), golden("logits", &[224, 264]));
        assert!(furthest(&logits, &expect) < 1e-3);
        let best = |row: &[f64]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        for (got, wanted) in logits.chunks_exact(VOCABULARY).zip(expect.chunks_exact(VOCABULARY)) {
            assert_eq!(best(got), best(wanted));
        }
    }

    #[test]
    fn another_models_checkpoint_is_refused_with_its_first_missing_tensor() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/golden.safetensors");
        let error = Model::load(&Checkpoint::open(&path).unwrap()).unwrap_err();
        assert!(matches!(error, CheckpointError::Missing { name, .. } if name == "hh.fn"));
    }

    #[test]
    fn sites_are_labelled_by_layer_and_part() {
        assert_eq!(site_label(0), "layer 0 attention");
        assert_eq!(site_label(11), "layer 5 experts");
    }
}
