//! The tensors of a DeepSeek-V4 checkpoint by name, type and shape.
//!
//! Responsible for the names as published (servers rename them while loading) and for what the hyper-connections need of
//! them. Not responsible for reading.
//!
//! Types and shapes of experts, scales and hyper-connections are those of the published files; the few that are
//! documented nowhere (norms, compressor) are as the published reference holds them.

use safetensors::Dtype;

use crate::kernel::config::{LayerKind, ModelConfig};

/// A tensor that a checkpoint has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Name.
    pub name: String,
    /// Stored type.
    pub dtype: Dtype,
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
}

/// How the routed experts are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// As published: e2m1 in pairs, one E8M0 scale for 32 values.
    Mxfp4,
    /// As NVIDIA recast them: e2m1 in pairs, one E4M3 scale for 16 values, one F32 scale for the tensor, one for its
    /// input. The layer that predicts a further token keeps the published form.
    Nvfp4,
}

/// Sizes that the checkpoint has and the microtests do not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Width of one expert.
    pub moe_intermediate_size: usize,
    /// Rank of the output's low-rank projection, for each group.
    pub o_lora_rank: usize,
    /// Groups of heads in that projection.
    pub o_groups: usize,
}

impl Widths {
    /// Those of DeepSeek-V4-Flash.
    pub const FLASH: Self = Self { moe_intermediate_size: 2048, o_lora_rank: 1024, o_groups: 8 };
    /// Those of DeepSeek-V4-Pro.
    pub const PRO: Self = Self { moe_intermediate_size: 3072, o_lora_rank: 1024, o_groups: 16 };
}

/// Where hyper-connections mix the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HcKind {
    /// Around attention or feed-forward: mixes into the sublayer and back.
    Site,
    /// Before the last norm: mixes the streams into one.
    Head,
}

/// One place where hyper-connections mix the streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcPart {
    /// What the names of its three tensors begin with, such as `layers.3.hc_attn_`.
    pub prefix: String,
    /// What it mixes.
    pub kind: HcKind,
}

impl HcPart {
    /// Its `fn` (rows, streams times width), `base` (rows) and `scale` (3 or 1), all F32.
    pub fn tensors(&self, config: &ModelConfig) -> [Described; 3] {
        let streams = config.hc_mult;
        let (rows, scales) = match self.kind {
            HcKind::Site => ((2 + streams) * streams, 3),
            HcKind::Head => (streams, 1),
        };
        let f32 = |name: &str, shape: &[usize]| Described {
            name: format!("{}{name}", self.prefix),
            dtype: Dtype::F32,
            shape: shape.to_vec(),
        };
        [f32("fn", &[rows, streams * config.hidden_size]), f32("base", &[rows]), f32("scale", &[scales])]
    }
}

/// Every place where hyper-connections mix: attention and feed-forward of each layer in order, the head, then the same
/// for the layer that predicts a further token.
pub fn hc_parts(config: &ModelConfig) -> Vec<HcPart> {
    let of_layer = |layer: &str| [site(&format!("{layer}.hc_attn_")), site(&format!("{layer}.hc_ffn_"))];
    let mut parts: Vec<HcPart> = (0..config.num_hidden_layers).flat_map(|n| of_layer(&format!("layers.{n}"))).collect();
    parts.push(head("hc_head_"));
    parts.extend(of_layer("mtp.0"));
    parts.push(head("mtp.0.hc_head_"));
    parts
}

fn site(prefix: &str) -> HcPart {
    HcPart { prefix: prefix.to_owned(), kind: HcKind::Site }
}

fn head(prefix: &str) -> HcPart {
    HcPart { prefix: prefix.to_owned(), kind: HcKind::Head }
}

/// The tensors that the hyper-connections of a checkpoint consist of: 270 for Flash.
pub fn hc_tensors(config: &ModelConfig) -> Vec<Described> {
    hc_parts(config).iter().flat_map(|part| part.tensors(config)).collect()
}

/// Every tensor of a checkpoint, layer by layer: 135,235 for Flash with experts in NVFP4.
pub fn tensors(config: &ModelConfig, widths: Widths, experts: Experts) -> Vec<Described> {
    let mut list = List { config, widths, found: Vec::new() };
    let (hidden, vocabulary) = (config.hidden_size, config.vocab_size);
    list.add("embed.weight", Dtype::BF16, &[vocabulary, hidden]);
    for (n, kind) in config.layers().into_iter().enumerate() {
        let routing = if n < config.num_hash_layers { Routing::Hash } else { Routing::Scores };
        list.layer(&format!("layers.{n}."), kind, routing, experts);
    }
    list.add("norm.weight", Dtype::BF16, &[hidden]);
    list.add("head.weight", Dtype::BF16, &[vocabulary, hidden]);
    list.hc(&head("hc_head_"));
    list.layer("mtp.0.", LayerKind::Window, Routing::Scores, Experts::Mxfp4);
    for name in ["e_proj", "h_proj"] {
        list.fp8(&format!("mtp.0.{name}"), hidden, hidden);
    }
    for name in ["enorm", "hnorm", "norm"] {
        list.add(&format!("mtp.0.{name}.weight"), Dtype::BF16, &[hidden]);
    }
    list.hc(&head("mtp.0.hc_head_"));
    list.found
}

/// How a layer chooses its experts.
#[derive(Clone, Copy)]
enum Routing {
    /// By a table of token ids.
    Hash,
    /// By scores and a bias.
    Scores,
}

struct List<'c> {
    config: &'c ModelConfig,
    widths: Widths,
    found: Vec<Described>,
}

impl List<'_> {
    fn add(&mut self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.found.push(Described { name: name.to_owned(), dtype, shape: shape.to_vec() });
    }

    /// A matrix in E4M3 with one E8M0 scale for 128 times 128 values.
    fn fp8(&mut self, name: &str, rows: usize, columns: usize) {
        self.add(&format!("{name}.weight"), Dtype::F8_E4M3, &[rows, columns]);
        self.add(&format!("{name}.scale"), Dtype::F8_E8M0, &[rows.div_ceil(128), columns.div_ceil(128)]);
    }

    fn hc(&mut self, part: &HcPart) {
        self.found.extend(part.tensors(self.config));
    }

    fn layer(&mut self, at: &str, kind: LayerKind, routing: Routing, experts: Experts) {
        let ModelConfig { hidden_size: hidden, n_routed_experts: routed, .. } = *self.config;
        self.attention(&format!("{at}attn."), kind);
        for name in ["attn_norm", "ffn_norm"] {
            self.add(&format!("{at}{name}.weight"), Dtype::BF16, &[hidden]);
        }
        self.add(&format!("{at}ffn.gate.weight"), Dtype::BF16, &[routed, hidden]);
        match routing {
            Routing::Scores => self.add(&format!("{at}ffn.gate.bias"), Dtype::F32, &[routed]),
            Routing::Hash => {
                let shape = [self.config.vocab_size, self.config.num_experts_per_tok];
                self.add(&format!("{at}ffn.gate.tid2eid"), Dtype::I32, &shape);
            }
        }
        for expert in 0..routed {
            self.expert(&format!("{at}ffn.experts.{expert}."), experts);
        }
        let wide = self.widths.moe_intermediate_size;
        for (name, rows, columns) in [("w1", wide, hidden), ("w2", hidden, wide), ("w3", wide, hidden)] {
            self.fp8(&format!("{at}ffn.shared_experts.{name}"), rows, columns);
        }
        self.hc(&site(&format!("{at}hc_attn_")));
        self.hc(&site(&format!("{at}hc_ffn_")));
    }

    fn attention(&mut self, at: &str, kind: LayerKind) {
        let ModelConfig { hidden_size: hidden, num_attention_heads: heads, head_dim, q_lora_rank: rank, .. } =
            *self.config;
        let Widths { o_lora_rank, o_groups, .. } = self.widths;
        self.fp8(&format!("{at}wq_a"), rank, hidden);
        self.fp8(&format!("{at}wq_b"), heads * head_dim, rank);
        self.fp8(&format!("{at}wkv"), head_dim, hidden);
        self.fp8(&format!("{at}wo_a"), o_groups * o_lora_rank, heads * head_dim / o_groups);
        self.fp8(&format!("{at}wo_b"), hidden, o_groups * o_lora_rank);
        self.add(&format!("{at}q_norm.weight"), Dtype::BF16, &[rank]);
        self.add(&format!("{at}kv_norm.weight"), Dtype::BF16, &[head_dim]);
        self.add(&format!("{at}attn_sink"), Dtype::F32, &[heads]);
        match kind {
            LayerKind::Window => {}
            LayerKind::Compressed(ratio) => self.compressor(&format!("{at}compressor."), ratio, head_dim),
            LayerKind::Indexed => {
                let (index_heads, index_dim) = (self.config.index_n_heads, self.config.index_head_dim);
                self.compressor(&format!("{at}compressor."), 4, 2 * head_dim);
                self.fp8(&format!("{at}indexer.wq_b"), index_heads * index_dim, rank);
                self.add(&format!("{at}indexer.weights_proj.weight"), Dtype::BF16, &[index_heads, hidden]);
                self.compressor(&format!("{at}indexer.compressor."), 4, 2 * index_dim);
            }
        }
    }

    /// `width` is that of one projected token: twice a key's where windows overlap.
    fn compressor(&mut self, at: &str, ratio: usize, width: usize) {
        let overlap = if ratio == 4 { 2 } else { 1 };
        self.add(&format!("{at}ape"), Dtype::F32, &[ratio, width]);
        self.add(&format!("{at}wkv.weight"), Dtype::F32, &[width, self.config.hidden_size]);
        self.add(&format!("{at}wgate.weight"), Dtype::F32, &[width, self.config.hidden_size]);
        self.add(&format!("{at}norm.weight"), Dtype::BF16, &[width / overlap]);
    }

    fn expert(&mut self, at: &str, experts: Experts) {
        let (hidden, wide) = (self.config.hidden_size, self.widths.moe_intermediate_size);
        for (name, rows, columns) in [("w1", wide, hidden), ("w2", hidden, wide), ("w3", wide, hidden)] {
            let of = |what: &str| format!("{at}{name}.{what}");
            match experts {
                Experts::Mxfp4 => {
                    self.add(&of("weight"), Dtype::I8, &[rows, columns / 2]);
                    self.add(&of("scale"), Dtype::F8_E8M0, &[rows, columns / 32]);
                }
                Experts::Nvfp4 => {
                    self.add(&of("weight"), Dtype::U8, &[rows, columns / 2]);
                    self.add(&of("weight_scale"), Dtype::F8_E4M3, &[rows, columns / 16]);
                    self.add(&of("weight_scale_2"), Dtype::F32, &[]);
                    self.add(&of("input_scale"), Dtype::F32, &[]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    fn flash() -> Vec<Described> {
        tensors(&ModelConfig::flash(), Widths::FLASH, Experts::Nvfp4)
    }

    #[test]
    fn the_counts_of_the_recast_flash_are_those_of_the_published_files() {
        let all = flash();
        assert_eq!(43 * 256 * 3 * 4 + 256 * 3 * 2 + 1603, 135_235);
        assert_eq!(all.len(), 135_235);
        let names: BTreeSet<&str> = all.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names.len(), all.len(), "every name stands there once");
        assert_eq!(names.iter().filter(|name| name.contains("hc_")).count(), 270);
        assert_eq!(names.iter().filter(|name| !name.contains(".experts.")).count(), 1603);
    }

    #[test]
    fn the_hyper_connections_are_270_tensors_of_the_list() {
        let config = ModelConfig::flash();
        let (all, hc) = (flash(), hc_tensors(&config));
        assert_eq!((hc.len(), 43 * 6 + 6 + 3 + 3), (270, 270));
        let known: HashMap<&str, &Described> = all.iter().map(|t| (t.name.as_str(), t)).collect();
        assert!(hc.iter().all(|tensor| known.get(tensor.name.as_str()) == Some(&tensor)));
        let parts = hc_parts(&config);
        let sites = parts.iter().filter(|p| p.kind == HcKind::Site && p.prefix.starts_with("layers."));
        assert_eq!((sites.count(), parts.len()), (config.hc_sites(), 90));
        let shapes = |at: usize| parts[at].tensors(&config).map(|t| t.shape);
        assert_eq!(parts[7].prefix, "layers.3.hc_ffn_");
        assert_eq!(shapes(7), [vec![24, 16384], vec![24], vec![3]]);
        assert_eq!((parts[86].prefix.as_str(), shapes(86)), ("hc_head_", [vec![4, 16384], vec![4], vec![1]]));
    }

    #[test]
    fn known_tensors_have_their_type_and_shape() {
        let check = |experts: Experts, name: &str, dtype: Dtype, shape: &[usize]| {
            let all = tensors(&ModelConfig::flash(), Widths::FLASH, experts);
            let found = all.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((found.dtype, found.shape.as_slice()), (dtype, shape), "{name}");
        };
        check(Experts::Nvfp4, "layers.3.ffn.experts.0.w1.weight", Dtype::U8, &[2048, 2048]);
        check(Experts::Nvfp4, "layers.3.ffn.experts.0.w1.weight_scale", Dtype::F8_E4M3, &[2048, 256]);
        check(Experts::Nvfp4, "layers.3.ffn.experts.0.w1.weight_scale_2", Dtype::F32, &[]);
        check(Experts::Nvfp4, "mtp.0.ffn.experts.255.w3.scale", Dtype::F8_E8M0, &[2048, 128]);
        check(Experts::Mxfp4, "layers.3.ffn.experts.0.w1.weight", Dtype::I8, &[2048, 2048]);
        check(Experts::Mxfp4, "layers.3.ffn.experts.0.w1.scale", Dtype::F8_E8M0, &[2048, 128]);
        check(Experts::Mxfp4, "layers.2.ffn.gate.tid2eid", Dtype::I32, &[129_280, 6]);
        check(Experts::Mxfp4, "layers.2.attn.compressor.norm.weight", Dtype::BF16, &[512]);
        check(Experts::Mxfp4, "layers.3.attn.compressor.ape", Dtype::F32, &[128, 512]);
    }

    #[test]
    fn only_layers_that_compress_have_what_compresses() {
        let all = flash();
        let layers = |part: &str| all.iter().filter(|t| t.name.ends_with(part)).count();
        assert_eq!(layers(".attn.compressor.ape"), 41);
        assert_eq!(layers(".attn.indexer.weights_proj.weight"), 21);
        assert_eq!((layers(".ffn.gate.tid2eid"), layers(".ffn.gate.bias")), (3, 41));
    }
}
