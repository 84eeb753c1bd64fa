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

/// Bytes of a tensor.
pub fn bytes_of(tensor: &Described) -> u64 {
    tensor.shape.iter().product::<usize>() as u64 * tensor.dtype.bitsize() as u64 / 8
}

/// What the tensor with this number among the hyper-connections holds: no two hold the same.
pub fn content(number: usize, length: u64) -> Vec<u8> {
    let block: Vec<u8> = (0..1024_u32).flat_map(|at| ((number as f32) + at as f32 / 1024.0).to_le_bytes()).collect();
    let mut bytes = block.repeat((length as usize).div_ceil(block.len()));
    bytes.truncate(length as usize);
    bytes
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
    let (mut map, mut headers, mut data) = (Map::new(), 0, 0);
    for (number, tensors) in &shards {
        let name = format!("model-{number:05}-of-00046.safetensors");
        let header = write_shard(&folder.join(&name), tensors, &numbers);
        if tensors.iter().any(|tensor| numbers.contains_key(tensor.name.as_str())) {
            headers += header;
        }
        data += tensors.iter().map(bytes_of).sum::<u64>();
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), Value::from(name.as_str()))));
    }
    let index = serde_json::to_string_pretty(&json!({"metadata": {"total_size": data}, "weight_map": map})).unwrap();
    fs_err::write(folder.join("model.safetensors.index.json"), &index).unwrap();
    Sparse { index: index.len() as u64, headers, hc, data }
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
