//! Inputs of the indexer's microtest: synthetic ones at the published size, and the lab model's own.
//!
//! Responsible for cases, labels and where they come from. Not responsible for any arithmetic.

use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{Case, PAGE, Row};
use crate::kernel::config::ModelConfig;
use crate::kernel::format::Rounding;
use crate::kernel::microtest::Cases;
use crate::kernel::oracle::attention::{HEAD, HEADS, TOP_K, WINDOW};
use crate::kernel::oracle::model::{Model, site_label};
use crate::kernel::oracle::pages::{self, Pages, index_layout};
use crate::kernel::oracle::rotary::{Rotary, Turn, Yarn};
use crate::kernel::oracle::{indexer, rms};
use crate::kernel::specs::activations::{dice, lab_site_inputs, normals};
use crate::kernel::specs::paged::shuffled;

/// Tokens of a chunk of the prefill in the synthetic cases; servers have 8,192 of them.
const CHUNK_TOKENS: usize = 2048;

/// How many standard deviations of a row's scores its planted key lies above the first dropped one.
const PLANTED: f64 = 1.0;

/// Queries of a lab case.
const LAB_ROWS: usize = 8;

/// Four lengths of one model: a little more keys than are kept, and 2, 4 and 8 times as many; the
/// length in tokens has the remainders 0, 1, 2 and 3 modulo 4.
///
/// Two queries each, the last token and one 97 tokens before it, and only the last for the longest.
pub fn synthetic(config: &ModelConfig, seed: u64) -> Cases<Case> {
    let keep = config.index_topk;
    let lengths = [keep + keep / 6 + 3, 2 * keep, 4 * keep, 8 * keep];
    let (mut labels, mut cases) = (Vec::new(), Vec::new());
    for (remainder, count) in lengths.into_iter().enumerate() {
        labels.push(format!("{count} keys, length mod 4 = {remainder}"));
        let back: &[usize] = if remainder == 3 { &[0] } else { &[0, 97] };
        cases.push(one(config, &mut dice(seed, remainder as u64), indexer::RATIO * count + remainder, back));
    }
    let (heads, dim) = (config.index_n_heads, config.index_head_dim);
    Cases {
        labels,
        cases,
        shape: format!(
            "{heads} heads x {dim}, top {keep} of {} to {} compressed keys, 7 queries, pages of {PAGE} keys, \
             chunks of {} keys",
            lengths[0],
            lengths[3],
            CHUNK_TOKENS / indexer::RATIO
        ),
        provenance: format!(
            "synthetic, seed {seed}: normed keys in bf16 with one outlier channel (20 to 60 times larger and nearly \
             constant) and two tokens with massive activations; each row has one planted key, {PLANTED} standard \
             deviation of its scores above the first dropped one"
        ),
    }
}

/// One sequence of so many tokens; queries lie so many tokens before its last one.
fn one(config: &ModelConfig, dice: &mut Pcg64, tokens: usize, back: &[usize]) -> Case {
    let (heads, dim) = (config.index_n_heads, config.index_head_dim);
    let count = tokens / indexer::RATIO;
    let rotary = Rotary::new(config.qk_rope_head_dim, config.compress_rope_theta, Some(Yarn::DEEPSEEK_V4));
    let keys = keys(dice, count, dim);
    let table = shuffled(dice, count.div_ceil(PAGE));
    let mut case = Case {
        heads,
        dim,
        keep: config.index_topk,
        chunk: CHUNK_TOKENS / indexer::RATIO,
        rows: Vec::new(),
        keys,
        rotary: Some(rotary),
        pages: Some(Pages::zeros(index_layout(PAGE, dim), table)),
    };
    case.rows = back.iter().map(|back| query(dice, &case, tokens - 1 - back)).collect();
    let mut case = case.cached();
    for row in 0..case.rows.len() {
        // Different places, in different chunks and pages; no row plants over another's key.
        let from = case.rows[row].visible * (2 * row + 1) / 5;
        case = plant(case, row, from);
    }
    case
}

/// Keys after their norm: `[count, dim]` in bf16, root mean square 1.
fn keys(dice: &mut Pcg64, count: usize, dim: usize) -> Vec<f64> {
    let (channel, height) = (dice.random_range(0..dim), dice.random_range(20.0..60.0));
    let massive = [0, dice.random_range(1..count)];
    let mut keys = Vec::with_capacity(count * dim);
    for index in 0..count {
        let mut key = normals(dice, dim, 1.0);
        key[channel] = height * (1.0 + 0.1 * key[channel]);
        if massive.contains(&index) {
            key.iter_mut().step_by(dim / 3).for_each(|x| *x *= 100.0);
        }
        keys.extend(to_bf16(&rms(&key, &vec![1.0; dim])));
    }
    keys
}

/// A query: heads in bf16 that share a direction, weights of both signs.
fn query(dice: &mut Pcg64, case: &Case, position: usize) -> Row {
    let shared = normals(dice, case.dim, 1.0);
    let mut queries = Vec::with_capacity(case.heads * case.dim);
    for _ in 0..case.heads {
        let pull = dice.random_range(-0.5..1.0);
        let own = normals(dice, case.dim, 1.0);
        let head: Vec<f64> = own.iter().zip(&shared).map(|(own, shared)| own + pull * shared).collect();
        queries.extend(to_bf16(&head));
    }
    let weights: Vec<f64> = normals(dice, case.heads, 1.0).iter().map(|w| w + 0.5).collect();
    Row { position, visible: indexer::visible(position), queries, weights: to_bf16(&weights), planted: None }
}

/// Turns a key towards what the row's heads with positive weights look for, as far as it takes to
/// lie [`PLANTED`] standard deviations above the first key that is dropped. It is the first key from
/// `from` on that would not be kept otherwise.
fn plant(mut case: Case, row: usize, from: usize) -> Case {
    let keys = case.own_keys();
    let (query, dim) = (&case.rows[row], case.dim);
    let scores = case.scores(query, &keys);
    let mut sorted = scores.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    // With the planted key above it, the last of those that are kept now will be dropped first.
    let cut = sorted[case.keep - 1];
    let Some(index) = (from..scores.len()).find(|index| scores[*index] < cut) else { return case };
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let deviation = (scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / scores.len() as f64).sqrt();
    let wanted = cut + PLANTED * deviation;
    let mut target = vec![0.0; dim];
    for (head, weight) in query.queries.chunks_exact(dim).zip(&query.weights) {
        target.iter_mut().zip(head).for_each(|(t, x)| *t += weight.max(0.0) * x);
    }
    // Both will be rotated: what the query looks for at the place of the key is turned by the distance.
    if let Some(rotary) = &case.rotary {
        rotary.turn(&mut target, query.position, Turn::There);
        rotary.turn(&mut target, index * indexer::RATIO, Turn::Back);
    }
    let target = rms(&target, &vec![1.0; dim]);
    let before = case.keys[index * dim..][..dim].to_vec();
    let score_with = |case: &mut Case, share: f64| {
        let mixed: Vec<f64> = before.iter().zip(&target).map(|(b, t)| (1.0 - share) * b + share * t).collect();
        case.keys[index * dim..][..dim].copy_from_slice(&to_bf16(&rms(&mixed, &vec![1.0; dim])));
        let mut key = case.key(index);
        if let Some(pages) = &mut case.pages {
            pages::write_index_key(pages, index, &key);
            key = pages::read_index_key(pages, index);
        }
        case.scores(&case.rows[row], &key)[0]
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..12 {
        let share = f64::midpoint(low, high);
        if score_with(&mut case, share) < wanted {
            low = share;
        } else {
            high = share;
        }
    }
    score_with(&mut case, high);
    case.rows[row].planted = Some(index as u32);
    case
}

/// The sparse layers of the lab model on a prompt: up to eight queries each, evenly spaced over those
/// for which the top 64 cuts.
///
/// Where the prompt is so short that nothing is cut, the queries are the last ones, and the
/// provenance says so.
pub fn lab(model: &Model, ids: &[u16]) -> Cases<Case> {
    let tokens = ids.len();
    let (inputs, _) = lab_site_inputs(model, ids);
    // Before the window of the token at position t lie t + 1 - WINDOW keys.
    let cutting: Vec<usize> = (WINDOW + TOP_K..tokens).collect();
    let (candidates, cut) = match cutting.as_slice() {
        [] => (
            (WINDOW..tokens).collect(),
            format!("; nothing is cut, because no token has more than {TOP_K} keys before its window"),
        ),
        _ => (cutting, String::new()),
    };
    let positions = spread(&candidates, LAB_ROWS);
    let (mut labels, mut cases) = (Vec::new(), Vec::new());
    for (layer, block) in model.blocks.iter().enumerate() {
        let Some(weights) = &block.attention.indexer else { continue };
        let h = rms(&inputs[2 * layer], &block.norms[0]);
        let (queries, head_weights) = (weights.queries.times(&h), weights.weights.times(&h));
        let row = |position: &usize| Row {
            position: *position,
            visible: position + 1 - WINDOW,
            queries: queries[position * HEADS * HEAD..][..HEADS * HEAD].to_vec(),
            weights: head_weights[position * HEADS..][..HEADS].to_vec(),
            planted: None,
        };
        labels.push(site_label(2 * layer));
        cases.push(Case {
            heads: HEADS,
            dim: HEAD,
            keep: TOP_K,
            chunk: PAGE,
            rows: positions.iter().map(row).collect(),
            keys: weights.keys.times(&h),
            rotary: None,
            pages: None,
        });
    }
    Cases {
        labels,
        cases,
        shape: format!(
            "{HEADS} heads x {HEAD}, top {TOP_K} of the keys before the window of {WINDOW}, {} queries a layer, \
             {tokens} tokens",
            positions.len()
        ),
        provenance: format!("the lab model's own f64 forward pass over {tokens} tokens{cut}"),
    }
}

/// Up to `count` of the positions, evenly spaced, the last one among them.
pub(crate) fn spread(positions: &[usize], count: usize) -> Vec<usize> {
    let taken = count.min(positions.len());
    (1..=taken).map(|i| positions[i * positions.len() / taken - 1]).collect()
}

fn to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| Rounding::Bf16.round(*x)).collect()
}
