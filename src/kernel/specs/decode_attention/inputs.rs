//! Inputs of the microtest of sparse attention: synthetic ones at the published width, and the lab
//! model's own.
//!
//! Responsible for cases, labels and where they come from. Not responsible for any arithmetic.

use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{Cache, Case, Row};
use crate::kernel::config::ModelConfig;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::attention::{HEAD, HEADS, TOP_K, WINDOW, select};
use crate::kernel::oracle::model::{Model, site_label};
use crate::kernel::oracle::pages::LatentLayout;
use crate::kernel::oracle::rms;
use crate::kernel::oracle::rotary::{Rotary, Turn, Yarn};
use crate::kernel::specs::activations::{dice, lab_site_inputs, normals};
use crate::kernel::specs::indexer::spread;
use crate::kernel::specs::paged::shuffled;

/// Heads of a synthetic case; the model has 64, which all do the same arithmetic.
const CUT_HEADS: usize = 8;

/// Queries of a lab case.
const LAB_ROWS: usize = 8;

/// Compressed keys that may be chosen from, for each one that is.
const CHOICE: usize = 2;

/// A layer as a synthetic case needs it.
struct Layer {
    label: String,
    /// Tokens behind a compressed key; `None` in a layer with a window alone.
    ratio: Option<usize>,
    /// Compressed keys that are seen.
    compressed: usize,
    /// Uncompressed keys that are seen.
    window: usize,
    rows: usize,
}

/// Four cases: a query that sees one key, as the first of a sequence does; a layer with a window
/// alone; one with 128 tokens behind a compressed key; and one with 4 tokens behind a compressed key
/// and as many of them as the indexer keeps.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let (window, keep) = (config.sliding_window, config.index_topk);
    let layer = |label: &str, ratio, compressed, window, rows| Layer {
        label: match window + compressed {
            1 => format!("{label}, 1 key"),
            keys => format!("{label}, {keys} keys"),
        },
        ratio,
        compressed,
        window,
        rows,
    };
    let layers = [
        layer("window of the first token", None, 0, 1, 4),
        layer("window", None, 0, window, 4),
        layer("window and ratio 128", Some(128), 40, window, 4),
        layer("window and ratio 4", Some(4), keep, window, 4),
    ];
    let cases = layers.iter().enumerate().map(|(i, layer)| one(config, &mut dice(seed, i as u64), layer)).collect();
    Cases {
        labels: layers.iter().map(|l| l.label.clone()).collect(),
        cases,
        shape: format!(
            "{CUT_HEADS} of {} heads x {}, 1 to {} keys, 4 queries a case, pages of {} tokens",
            config.num_attention_heads,
            config.head_dim,
            window + keep,
            LatentLayout::DEEPSEEK_V4.tokens
        ),
        provenance: format!(
            "synthetic, seed {seed}: normed latents in bf16 with two outlier channels (20 to 60 times larger) and one \
             token with massive activations; each head looks for three of its keys, more or less, and its sink takes \
             a share of the weight"
        ),
    }
}

fn one(config: &ModelConfig, dice: &mut Pcg64, layer: &Layer) -> Case {
    let width = config.head_dim;
    let layout = LatentLayout { plain: width - config.qk_rope_head_dim, ..LatentLayout::DEEPSEEK_V4 };
    let (base, yarn) = match layer.ratio {
        Some(_) => (config.compress_rope_theta, Some(Yarn::DEEPSEEK_V4)),
        None => (config.rope_theta, None),
    };
    let rotary = Rotary::new(config.qk_rope_head_dim, base, yarn);
    // Entries: compressed keys, of which some are chosen, then the last tokens, of which a window is seen.
    let compressed = layer.compressed * CHOICE;
    let tokens = layer.window + 2 * layout.tokens;
    let last = (compressed * layer.ratio.unwrap_or(0)).max(tokens) - 1;
    let position_of = |entry: usize| match layer.ratio {
        Some(ratio) if entry < compressed => entry * ratio,
        _ => last + 1 - tokens + (entry - compressed),
    };
    let drawn = latents(dice, compressed + tokens, width, &rotary, position_of);
    let rows = (0..layer.rows)
        .map(|row| {
            let position = last - row;
            let mut seen = shuffled(dice, compressed);
            seen.truncate(layer.compressed);
            seen.sort_unstable();
            let end = compressed + tokens - row;
            seen.extend(end - layer.window..end);
            Row { position, queries: queries(dice, &drawn, width, &seen, &rotary, position), seen }
        })
        .collect();
    let typical = ((layer.window + layer.compressed) as f64).ln() + 2.0;
    let sinks = normals(dice, CUT_HEADS, 0.5).iter().map(|x| x + typical).collect();
    let table = shuffled(dice, (compressed + tokens).div_ceil(layout.tokens));
    Case {
        rows,
        sinks,
        scale: (width as f64).sqrt().recip(),
        cache: Cache::of_latents(layout, drawn.latents, rotary, table),
    }
}

/// Rotated latents, and the channels in which they are much larger than in others.
struct Drawn {
    latents: Vec<f64>,
    outliers: Vec<usize>,
}

/// Latents after norm and rotation, `[entries, width]` in bf16.
fn latents(
    dice: &mut Pcg64,
    entries: usize,
    width: usize,
    rotary: &Rotary,
    position_of: impl Fn(usize) -> usize,
) -> Drawn {
    let plain = width - rotary.dims();
    let outliers = vec![dice.random_range(0..plain / 2), dice.random_range(plain / 2..plain)];
    let gains: Vec<f64> = outliers.iter().map(|_| dice.random_range(20.0..60.0)).collect();
    let massive = dice.random_range(0..entries);
    let mut latents = Vec::with_capacity(entries * width);
    for entry in 0..entries {
        let mut latent = normals(dice, width, 1.0);
        for (channel, gain) in outliers.iter().zip(&gains) {
            latent[*channel] *= gain;
        }
        if entry == massive {
            latent.iter_mut().step_by(width / 3).for_each(|x| *x *= 100.0);
        }
        let mut latent = to_bf16(&rms(&latent, &vec![1.0; width]));
        rotary.turn(&mut latent, position_of(entry), Turn::There);
        latents.extend(to_bf16(&latent));
    }
    Drawn { latents, outliers }
}

/// Heads before norm and rotation, in bf16: noise, and three keys that are seen, but for their outliers.
fn queries(
    dice: &mut Pcg64,
    drawn: &Drawn,
    width: usize,
    seen: &[usize],
    rotary: &Rotary,
    position: usize,
) -> Vec<f64> {
    let mut queries = Vec::new();
    for _ in 0..CUT_HEADS {
        let mut head = normals(dice, width, 1.0);
        for _ in 0..3 {
            let mut wanted = drawn.latents[seen[dice.random_range(0..seen.len())] * width..][..width].to_vec();
            rotary.turn(&mut wanted, position, Turn::Back);
            drawn.outliers.iter().for_each(|channel| wanted[*channel] = 0.0);
            let share = dice.random_range(0.0..2.0);
            head.iter_mut().zip(&wanted).for_each(|(x, w)| *x += share * w);
        }
        queries.extend(to_bf16(&head));
    }
    queries
}

/// The sparse layers of the lab model on a prompt: up to eight queries each, evenly spaced over those
/// for which the indexer leaves keys out.
///
/// Where the prompt is so short that nothing is left out, the queries are evenly spaced over all
/// tokens, and the provenance says so.
pub fn lab(model: &Model, ids: &[u16]) -> Cases<Case> {
    let tokens = ids.len();
    let (inputs, _) = lab_site_inputs(model, ids);
    let cutting: Vec<usize> = (WINDOW + TOP_K..tokens).collect();
    let (candidates, cut) = match cutting.as_slice() {
        [] => (
            (0..tokens).collect(),
            format!("; no key is left out, because no token has more than {TOP_K} keys before its window"),
        ),
        _ => (cutting, String::new()),
    };
    let positions = spread(&candidates, LAB_ROWS);
    let (mut labels, mut cases) = (Vec::new(), Vec::new());
    for (layer, block) in model.blocks.iter().enumerate() {
        let attention = &block.attention;
        let Some(indexer) = &attention.indexer else { continue };
        let h = rms(&inputs[2 * layer], &block.norms[0]);
        let queries = rms(&attention.wq.times(&h), &attention.qn);
        let kept = select(indexer, &h, tokens);
        let row = |position: &usize| {
            let window = (position + 1).saturating_sub(WINDOW)..position + 1;
            Row {
                position: *position,
                queries: queries[position * HEADS * HEAD..][..HEADS * HEAD].to_vec(),
                seen: kept[*position].iter().copied().chain(window).collect(),
            }
        };
        labels.push(site_label(2 * layer));
        cases.push(Case {
            rows: positions.iter().map(row).collect(),
            sinks: attention.sink.to_vec(),
            scale: (HEAD as f64).sqrt().recip(),
            cache: Cache::Plain {
                keys: rms(&attention.wk.times(&h), &attention.kn),
                values: attention.wv.times(&h),
                width: HEAD,
            },
        });
    }
    Cases {
        labels,
        cases,
        shape: format!(
            "{HEADS} heads x {HEAD}, window {WINDOW} and top {TOP_K} of the keys before it, {} queries a layer, \
             {tokens} tokens",
            positions.len()
        ),
        provenance: format!("the lab model's own f64 forward pass over {tokens} tokens{cut}"),
    }
}

fn to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| Rounding::Bf16.round(*x)).collect()
}
