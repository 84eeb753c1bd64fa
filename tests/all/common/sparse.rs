//! A checkpoint of DeepSeek-V4-Flash on disk that is large by its layout alone: 46 shards with every tensor of the
//! published files at its true type and size, of which only the hyper-connections hold data.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use patchbench::kernel::checkpoint::layout::{Described, Experts, Widths, hc_tensors, tensors};
use patchbench::kernel::config::ModelConfig;
use serde_json::{Map, Value, json};

/// What was written.
pub struct Sparse {
    /// Bytes of the index.
    pub index: u64,
    /// Bytes of the headers with their lengths, of those shards that hold a tensor of the hyper-connections.
    pub headers: u64,
    /// The same of those shards that hold a layer.
    pub layer_headers: u64,
    /// The tensors of the hyper-connections.
    pub hc: Vec<Described>,
    /// Bytes of all tensors.
    pub data: u64,
}

impl Sparse {
    /// The names of the hyper-connections' tensors.
    pub fn names(&self) -> Vec<&str> {
        self.hc.iter().map(|tensor| tensor.name.as_str()).collect()
    }

    /// Bytes of the hyper-connections' tensors.
    pub fn hc_bytes(&self) -> u64 {
        self.hc.iter().map(bytes_of).sum()
    }
}

impl Sparse {
    /// Bytes of the tensors that mix around the sublayers of the layers, which are not all of the hyper-connections.
    pub fn site_bytes(&self) -> u64 {
        self.hc.iter().filter(|tensor| tensor.name.starts_with("layers.")).map(bytes_of).sum()
    }
}

/// Bytes of a tensor.
pub fn bytes_of(tensor: &Described) -> u64 {
    tensor.shape.iter().product::<usize>() as u64 * tensor.dtype.bitsize() as u64 / 8
}

/// What the tensor with this number among the hyper-connections holds: no two hold the same, and all are about as large
/// as those of a model, so that a microtest can be run on them.
pub fn content(number: usize, length: u64) -> Vec<u8> {
    // Scales and offsets are about 1, a row of `fn` has about the norm 1.
    let large = if length <= 96 { 1.0 } else { 1.0 / 64.0 };
    // A prime number of values, so that no two rows are alike.
    let block: Vec<u8> = (0..4_099_u32).flat_map(|at| (large * scattered(number as u32, at)).to_le_bytes()).collect();
    let mut bytes = block.repeat((length as usize).div_ceil(block.len()));
    bytes.truncate(length as usize);
    bytes
}

/// A number from -1 to 1 that looks like no other.
fn scattered(number: u32, at: u32) -> f32 {
    let mut bits = number.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x85eb_ca6b);
    for factor in [0x7feb_352d_u32, 0x846c_a68b] {
        bits = (bits ^ (bits >> 16)).wrapping_mul(factor);
    }
    ((bits ^ (bits >> 16)) >> 8) as f32 / 8_388_608.0 - 1.0
}

/// Writes the configuration of the model beside its shards; gives its bytes.
pub fn write_config(folder: &Path) -> u64 {
    let config = ModelConfig::flash();
    let text = json!({
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "head_dim": config.head_dim,
        "qk_rope_head_dim": config.qk_rope_head_dim,
        "q_lora_rank": config.q_lora_rank,
        "hc_mult": config.hc_mult,
        "hc_sinkhorn_iters": config.hc_sinkhorn_iters,
        "hc_eps": config.hc_eps,
        "rms_norm_eps": config.rms_norm_eps,
        "index_n_heads": config.index_n_heads,
        "index_head_dim": config.index_head_dim,
        "index_topk": config.index_topk,
        "n_routed_experts": config.n_routed_experts,
        "num_experts_per_tok": config.num_experts_per_tok,
        "num_hash_layers": config.num_hash_layers,
        "routed_scaling_factor": config.routed_scaling_factor,
        "swiglu_limit": config.swiglu_limit,
        "sliding_window": config.sliding_window,
        "rope_theta": config.rope_theta,
        "compress_rope_theta": config.compress_rope_theta,
        "compress_ratios": config.compress_ratios,
        "vocab_size": config.vocab_size,
    })
    .to_string();
    fs_err::write(folder.join("config.json"), &text).unwrap();
    text.len() as u64
}

/// Writes it.
pub fn write_flash(folder: &Path) -> Sparse {
    let config = ModelConfig::flash();
    let hc = hc_tensors(&config);
    let numbers: BTreeMap<&str, usize> = hc.iter().enumerate().map(|(at, t)| (t.name.as_str(), at)).collect();
    let mut shards: BTreeMap<usize, Vec<Described>> = BTreeMap::new();
    for tensor in tensors(&config, Widths::FLASH, Experts::Nvfp4) {
        shards.entry(shard_of(&tensor.name)).or_default().push(tensor);
    }
    assert_eq!(shards.len(), 46);
    let (mut map, mut headers, mut layer_headers, mut data) = (Map::new(), 0, 0, 0);
    for (number, tensors) in &shards {
        let name = format!("model-{number:05}-of-00046.safetensors");
        let header = write_shard(&folder.join(&name), tensors, &numbers);
        if tensors.iter().any(|tensor| numbers.contains_key(tensor.name.as_str())) {
            headers += header;
        }
        if tensors.iter().any(|tensor| tensor.name.starts_with("layers.")) {
            layer_headers += header;
        }
        data += tensors.iter().map(bytes_of).sum::<u64>();
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), Value::from(name.as_str()))));
    }
    let index = serde_json::to_string_pretty(&json!({"metadata": {"total_size": data}, "weight_map": map})).unwrap();
    fs_err::write(folder.join("model.safetensors.index.json"), &index).unwrap();
    Sparse { index: index.len() as u64, headers, layer_headers, hc, data }
}

/// Embedding, each layer, what comes after the layers, and the layer that predicts a further token.
fn shard_of(name: &str) -> usize {
    match name.strip_prefix("layers.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok()) {
        Some(layer) => layer + 2,
        None if name.starts_with("embed.") => 1,
        None if name.starts_with("mtp.") => 46,
        None => 45,
    }
}

/// Bytes of its header with the length before it.
fn write_shard(path: &Path, tensors: &[Described], numbers: &BTreeMap<&str, usize>) -> u64 {
    let (mut entries, mut end) = (Map::new(), 0);
    let mut filled = Vec::new();
    for tensor in tensors {
        let start = end;
        end += bytes_of(tensor);
        let entry = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]});
        entries.insert(tensor.name.clone(), entry);
        filled.extend(numbers.get(tensor.name.as_str()).map(|number| (*number, start, end - start)));
    }
    let mut header = serde_json::to_vec(&entries).unwrap();
    header.resize(header.len().next_multiple_of(8), b' ');
    let begin = 8 + header.len() as u64;
    let file = fs_err::File::create(path).unwrap();
    file.set_len(begin + end).unwrap();
    file.file().write_all_at(&(header.len() as u64).to_le_bytes(), 0).unwrap();
    file.file().write_all_at(&header, 8).unwrap();
    for (number, start, length) in filled {
        file.file().write_all_at(&content(number, length), begin + start).unwrap();
    }
    begin
}
