//! The microtest `mhc-mix` on a checkpoint of the lab model.
//!
//! Responsible for its inputs and for its passes through the whole model. Not responsible for the
//! sites of a real checkpoint, nor for devices other than the CPU.

pub mod chain;
pub mod site;

use crate::engine::procedure::Failure;
use crate::kernel::mhc::chain::Reference;
use crate::kernel::mhc::site::SiteCase;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::model::{Model, SITES, WIDTH, site_label};

pub use site::{INFO, MhcMix, SPEC};

/// The lab's golden prompt, as the conversation and its ids.
const GOLDEN: &str = include_str!("../../../lab/golden.json");

/// Ids of the golden prompt.
///
/// # Errors
/// The program was built with a damaged `lab/golden.json`.
pub fn golden_ids() -> Result<Vec<u16>, Failure> {
    #[derive(serde::Deserialize)]
    struct Golden {
        prompt_ids: Vec<u16>,
    }
    let golden: Golden = serde_json::from_str(GOLDEN)
        .map_err(|e| Failure::new(format!("the built-in golden prompt is damaged: {e}")))?;
    Ok(golden.prompt_ids)
}

/// All sites of the lab model, each with the reference's streams and sublayer output.
pub fn cases(model: &Model, reference: &Reference, place: &str) -> Cases<SiteCase> {
    let case = |site: usize| SiteCase {
        site: model.site(site).clone(),
        streams: reference.entering(site).to_vec(),
        output: reference.sites[site].output.clone(),
    };
    let tokens = reference.first.len() / (4 * WIDTH);
    Cases {
        labels: (0..SITES).map(site_label).collect(),
        cases: (0..SITES).map(case).collect(),
        shape: format!("{tokens} tokens, 4 streams of {WIDTH}, {SITES} sites, `fn` [24, {}]", 4 * WIDTH),
        provenance: provenance(model, tokens, place),
    }
}

/// Says where weights and activations came from; the hash is that of the mixing weights as f64.
fn provenance(model: &Model, tokens: usize, place: &str) -> String {
    let mut hash = blake3::Hasher::new();
    for site in 0..SITES {
        model.site(site).rows.iter().for_each(|w| {
            hash.update(&w.to_le_bytes());
        });
    }
    format!(
        "weights of {place} (mixing weights blake3 {}); streams of an f64 forward pass over the lab's golden prompt, {tokens} tokens",
        &hash.finalize().to_hex()[..12],
    )
}
