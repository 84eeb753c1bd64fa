//! The fields of a model's `config.json` that its arithmetic depends on.
//!
//! Responsible for the two published configurations, for reading a file, and for what follows from the fields by
//! counting: which layers have which attention, how many hyper-connection sites there are. Not responsible for
//! weights; see `kernel::checkpoint`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::engine::procedure::Failure;

/// Sizes and constants of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Width of one residual stream.
    pub hidden_size: usize,
    /// Layers, without the one that predicts a further token.
    pub num_hidden_layers: usize,
    /// Heads of the main attention.
    pub num_attention_heads: usize,
    /// Width of one head, and of the latent that is key and value at once.
    pub head_dim: usize,
    /// How many of the last dimensions of a head are rotated by position.
    pub qk_rope_head_dim: usize,
    /// Rank of the query's low-rank projection.
    pub q_lora_rank: usize,
    /// Residual streams of the hyper-connections.
    pub hc_mult: usize,
    /// Rounds of the Sinkhorn normalisation; the first is the softmax with one column division.
    pub hc_sinkhorn_iters: usize,
    /// What the hyper-connections add where they would divide by nothing.
    pub hc_eps: f64,
    /// What the root mean square adds to the mean.
    pub rms_norm_eps: f64,
    /// Heads of the indexer.
    pub index_n_heads: usize,
    /// Width of one head of the indexer.
    pub index_head_dim: usize,
    /// Compressed keys that the indexer keeps for a query.
    pub index_topk: usize,
    /// Experts of a layer that tokens are routed to.
    pub n_routed_experts: usize,
    /// Experts that one token is routed to.
    pub num_experts_per_tok: usize,
    /// Layers from the first on whose experts follow from the token id.
    pub num_hash_layers: usize,
    /// What the routed experts' weights are multiplied with, exactly once.
    pub routed_scaling_factor: f64,
    /// Bound of the gated activation.
    pub swiglu_limit: f64,
    /// How many of the last tokens every layer sees uncompressed.
    pub sliding_window: usize,
    /// Base of the rotation in layers without compression.
    pub rope_theta: f64,
    /// Base of the rotation in layers with compression.
    pub compress_rope_theta: f64,
    /// Tokens behind one compressed key, by layer, 0 without compression; the last entry is the layer that predicts a
    /// further token.
    pub compress_ratios: Vec<usize>,
    /// Number of tokens.
    pub vocab_size: usize,
}

/// How one layer attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// The last tokens alone.
    Window,
    /// The last tokens, and those compressed keys of 4 tokens each that the indexer keeps.
    Indexed,
    /// The last tokens, and all compressed keys of so many tokens each.
    Compressed(usize),
}

/// Why a configuration could not be read.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// It is no JSON object.
    #[error("the model's configuration is not a JSON object: {0}")]
    NotAnObject(String),
    /// A field that is needed is not there.
    #[error("the model's configuration has no `{0}`")]
    Missing(&'static str),
    /// A field has a value of another kind.
    #[error("`{field}` of the model's configuration: {why}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// What was expected and found.
        why: String,
    },
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let hint = match &error {
            ConfigError::NotAnObject(_) => "give the `config.json` that stands beside the checkpoint's shards",
            ConfigError::Missing(_) | ConfigError::Wrong { .. } => {
                "the microtests need a DeepSeek-V4 configuration: compare it with the one that was published"
            }
        };
        Self::new(error.to_string()).hint(hint)
    }
}

/// Tokens behind one compressed key of a layer with an indexer.
const INDEXED_RATIO: usize = 4;

impl ModelConfig {
    /// DeepSeek-V4-Flash as published.
    pub fn flash() -> Self {
        // 0, 0, 4, 128, 4, 128, ..., 4 for the 43 layers, then 0 for the layer that predicts a further token.
        let body = (2..43).map(|layer| if layer % 2 == 0 { 4 } else { 128 });
        Self {
            hidden_size: 4096,
            num_hidden_layers: 43,
            num_attention_heads: 64,
            head_dim: 512,
            qk_rope_head_dim: 64,
            q_lora_rank: 1024,
            hc_mult: 4,
            hc_sinkhorn_iters: 20,
            hc_eps: 1e-6,
            rms_norm_eps: 1e-6,
            index_n_heads: 64,
            index_head_dim: 128,
            index_topk: 512,
            n_routed_experts: 256,
            num_experts_per_tok: 6,
            num_hash_layers: 3,
            routed_scaling_factor: 1.5,
            swiglu_limit: 10.0,
            sliding_window: 128,
            rope_theta: 10_000.0,
            compress_rope_theta: 160_000.0,
            compress_ratios: [0, 0].into_iter().chain(body).chain([0]).collect(),
            vocab_size: 129_280,
        }
    }

    /// DeepSeek-V4-Pro as published.
    pub fn pro() -> Self {
        // 128, 128, 4, 128, ..., 4 for the 61 layers, then 0.
        let body = (2..61).map(|layer| if layer % 2 == 0 { 4 } else { 128 });
        Self {
            hidden_size: 7168,
            num_hidden_layers: 61,
            num_attention_heads: 128,
            q_lora_rank: 1536,
            index_topk: 1024,
            n_routed_experts: 384,
            routed_scaling_factor: 2.5,
            compress_ratios: [128, 128].into_iter().chain(body).chain([0]).collect(),
            ..Self::flash()
        }
    }

    /// Reads a `config.json`. Fields that are not used here may be anything.
    ///
    /// # Errors
    /// It is no JSON object, a field is missing or of another kind, or there is not one compression ratio for each
    /// layer and one more.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        let object: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| ConfigError::NotAnObject(error.to_string()))?;
        let config = Self {
            hidden_size: field(&object, "hidden_size")?,
            num_hidden_layers: field(&object, "num_hidden_layers")?,
            num_attention_heads: field(&object, "num_attention_heads")?,
            head_dim: field(&object, "head_dim")?,
            qk_rope_head_dim: field(&object, "qk_rope_head_dim")?,
            q_lora_rank: field(&object, "q_lora_rank")?,
            hc_mult: field(&object, "hc_mult")?,
            hc_sinkhorn_iters: field(&object, "hc_sinkhorn_iters")?,
            hc_eps: field(&object, "hc_eps")?,
            rms_norm_eps: field(&object, "rms_norm_eps")?,
            index_n_heads: field(&object, "index_n_heads")?,
            index_head_dim: field(&object, "index_head_dim")?,
            index_topk: field(&object, "index_topk")?,
            n_routed_experts: field(&object, "n_routed_experts")?,
            num_experts_per_tok: field(&object, "num_experts_per_tok")?,
            num_hash_layers: field(&object, "num_hash_layers")?,
            routed_scaling_factor: field(&object, "routed_scaling_factor")?,
            swiglu_limit: field(&object, "swiglu_limit")?,
            sliding_window: field(&object, "sliding_window")?,
            rope_theta: field(&object, "rope_theta")?,
            compress_rope_theta: field(&object, "compress_rope_theta")?,
            compress_ratios: field(&object, "compress_ratios")?,
            vocab_size: field(&object, "vocab_size")?,
        };
        let (found, layers) = (config.compress_ratios.len(), config.num_hidden_layers);
        if layers.checked_add(1) != Some(found) {
            return Err(ConfigError::Wrong {
                field: "compress_ratios",
                why: format!("{found} entries, where {layers} layers need one each and one more"),
            });
        }
        Ok(config)
    }

    /// How each layer attends; the layer that predicts a further token is not among them.
    pub fn layers(&self) -> Vec<LayerKind> {
        let ratios = self.compress_ratios.iter().take(self.num_hidden_layers);
        ratios
            .map(|ratio| match *ratio {
                0 => LayerKind::Window,
                INDEXED_RATIO => LayerKind::Indexed,
                other => LayerKind::Compressed(other),
            })
            .collect()
    }

    /// Hyper-connection sites: attention and feed-forward of every layer; the head is not counted.
    pub fn hc_sites(&self) -> usize {
        2 * self.num_hidden_layers
    }

    /// Up to so many tokens the indexer keeps every compressed key, so that its arithmetic cannot matter.
    pub fn indexer_matters_above(&self) -> usize {
        INDEXED_RATIO * self.index_topk
    }
}

fn field<T: DeserializeOwned>(object: &Map<String, Value>, name: &'static str) -> Result<T, ConfigError> {
    let value = object.get(name).ok_or(ConfigError::Missing(name))?;
    T::deserialize(value).map_err(|error| ConfigError::Wrong { field: name, why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published file of Flash, as far as its fields are known, with some that are not read.
    fn flash_json() -> Value {
        let mut ratios = vec![0, 0];
        ratios.extend((0..20).flat_map(|_| [4, 128]));
        ratios.extend([4, 0]);
        serde_json::json!({
            "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 43,
            "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
            "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "hc_mult": 4, "hc_sinkhorn_iters": 20,
            "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6, "moe_intermediate_size": 2048,
            "num_hash_layers": 3, "scoring_func": "sqrtsoftplus", "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
            "sliding_window": 128, "rope_theta": 10000, "compress_rope_theta": 160_000,
            "rope_scaling": {"type": "yarn", "factor": 16}, "compress_ratios": ratios, "vocab_size": 129_280,
            "num_nextn_predict_layers": 1,
        })
    }

    #[test]
    fn the_published_file_of_flash_reads_as_flash() {
        assert_eq!(ModelConfig::parse(&flash_json().to_string()), Ok(ModelConfig::flash()));
    }

    #[test]
    fn layers_of_flash_and_pro_are_counted() {
        let check = |config: &ModelConfig, window: &[usize], indexed: usize, compressed: usize| {
            let layers = config.layers();
            let found: Vec<usize> = (0..layers.len()).filter(|at| layers[*at] == LayerKind::Window).collect();
            assert_eq!(found, window);
            assert_eq!(layers.iter().filter(|kind| **kind == LayerKind::Indexed).count(), indexed);
            assert_eq!(layers.iter().filter(|kind| **kind == LayerKind::Compressed(128)).count(), compressed);
            assert_eq!(layers.len(), config.num_hidden_layers);
            assert_eq!(config.compress_ratios.len(), config.num_hidden_layers + 1);
            assert_eq!(config.compress_ratios.last(), Some(&0), "the further token's layer does not compress");
        };
        check(&ModelConfig::flash(), &[0, 1], 21, 20);
        check(&ModelConfig::pro(), &[], 30, 31);
        let flash = ModelConfig::flash();
        assert_eq!((flash.hc_sites(), ModelConfig::pro().hc_sites()), (86, 122));
        assert_eq!((flash.indexer_matters_above(), ModelConfig::pro().indexer_matters_above()), (2048, 4096));
        for (at, kind) in flash.layers().into_iter().enumerate().skip(2) {
            let expect = if at % 2 == 0 { LayerKind::Indexed } else { LayerKind::Compressed(128) };
            assert_eq!(kind, expect, "layer {at}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let whole = flash_json();
        let used: Vec<&str> = whole.as_object().unwrap().keys().map(String::as_str).collect();
        let mut needed = 0;
        for name in used {
            let mut without = whole.clone();
            without.as_object_mut().unwrap().remove(name);
            match ModelConfig::parse(&without.to_string()) {
                Ok(config) => assert_eq!(config, ModelConfig::flash(), "{name} is not used"),
                Err(error) => {
                    assert_eq!(error.to_string(), format!("the model's configuration has no `{name}`"));
                    needed += 1;
                }
            }
        }
        assert_eq!(needed, 23, "every field of the struct is needed");
    }

    #[test]
    fn a_wrong_value_is_named() {
        let check = |name: &str, value: Value, part: &str| {
            let mut json = flash_json();
            json[name] = value;
            let failure = Failure::from(ModelConfig::parse(&json.to_string()).unwrap_err());
            assert!(failure.message.contains(part), "{}", failure.message);
            assert!(failure.hint.is_some());
        };
        check("index_topk", Value::from("512"), "`index_topk` of the model's configuration: invalid type: string");
        check("hc_eps", Value::Null, "`hc_eps` of the model's configuration: invalid type: null");
        check(
            "sliding_window",
            Value::from(-1),
            "`sliding_window` of the model's configuration: invalid value: integer `-1`",
        );
        check(
            "num_hidden_layers",
            Value::from(42),
            "`compress_ratios` of the model's configuration: 44 entries, where 42 layers",
        );
        check("num_hidden_layers", Value::from(u64::MAX), "44 entries");
        check("compress_ratios", serde_json::json!([4, 0]), "2 entries");
    }

    #[test]
    fn what_is_no_object_is_said() {
        for text in ["", "[]", "{", "3"] {
            assert!(matches!(ModelConfig::parse(text), Err(ConfigError::NotAnObject(_))), "{text}");
        }
    }
}
