//! At how many places of a forward pass a change acts, from the model's own configuration. Pure.

use crate::patch::context::ModelFacts;
use crate::patch::types::{Entry, Phase};

/// How places are counted.
#[derive(Clone, Copy)]
enum Counted {
    /// Two a layer, attention and feed-forward, where the model has several streams.
    HyperConnections,
    /// Layers that keep compressed keys at this ratio, or at any where `None`.
    Compressed(Option<u32>),
    /// Layers whose experts are chosen by a table.
    HashLayers,
    /// One a layer.
    Layers,
    /// One.
    Once,
}

/// Parts of paths, symbols and kernels, and what is counted; the first that fits a name counts for that name.
const KNOWN: &[(&[&str], Counted, &str)] = &[
    (&["hc_", "mhc", "hyper"], Counted::HyperConnections, "sites of hyper-connections, two a layer"),
    (&["indexer", "mqa_logits"], Counted::Compressed(Some(4)), "layers with a sparse indexer (compression ratio 4)"),
    (&["compressor"], Counted::Compressed(None), "layers with compressed keys"),
    (&["hash_topk", "hashtopk"], Counted::HashLayers, "layers that route by hash"),
    (&["/moe/", "moe_", "experts", "fused_moe"], Counted::Layers, "layers with experts"),
    (&["attention", "flash_mla", "flashmla", "attn"], Counted::Layers, "layers with attention"),
    (&["lm_head", "logits_processor", "embed"], Counted::Once, "at the start or the end of the model"),
];

/// Places and the words for them; `None` where neither the names nor the model tell, or where no pass is made.
///
/// The largest count of all names: knowing one more name never makes it smaller.
pub(super) fn sites(entry: &Entry, model: &ModelFacts) -> Option<(u32, String)> {
    let passes = [Phase::Extend, Phase::Decode];
    if !entry.phases.is_empty() && !passes.iter().any(|p| entry.phases.contains_key(p)) {
        return None;
    }
    let files = entry.files.iter().map(|f| f.path.as_str());
    let named = entry.symbols.iter().chain(&entry.kernels).map(|f| f.value.as_str());
    let counts = files.chain(named).filter_map(|name| of_name(&name.to_ascii_lowercase(), model));
    let (count, words) = counts.max_by_key(|(count, _)| *count)?;
    Some((count, format!("acts {count} times in a forward pass: {words}")))
}

fn of_name(name: &str, model: &ModelFacts) -> Option<(u32, &'static str)> {
    let (_, counted, words) = KNOWN.iter().find(|(parts, ..)| parts.iter().any(|p| name.contains(p)))?;
    let count = match counted {
        Counted::HyperConnections => match model.hyper_streams {
            Some(0 | 1) => return None,
            Some(_) => model.layers?.checked_mul(2)?,
            None => return Some((model.layers?, "layers, and maybe more, since the streams are not known")),
        },
        Counted::Compressed(ratio) => {
            let has = |r: &&u32| ratio.map_or(**r > 0, |wanted| **r == wanted);
            let layers = model.compress_ratios.iter().take(model.layers? as usize);
            layers.filter(has).count() as u32
        }
        Counted::HashLayers => model.hash_layers?,
        Counted::Layers => model.layers?,
        Counted::Once => 1,
    };
    (count > 0).then_some((count, *words))
}
