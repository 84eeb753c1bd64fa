//! The forward pass over rows of any mix of sequences: prefill chunks and decode steps alike.
//!
//! Responsible for the order of the parts, for writing keys to the cache, and for spreading blocks of
//! rows over threads. A row's result does not depend on the rows beside it.

use pulp::Arch;
use rayon::prelude::*;

use super::attention::{Attend, Split};
use super::hc::{self, Mix};
use super::indexer::{self, Keys, Queries};
use super::math::{rms_norm, sigmoid};
use super::weights::Block;
use super::{
    EPS, FLAT, Faults, HEAD, HEADS, KvDtype, Model, ROTARY, STREAMS, VOCAB, WIDTH, WINDOW, round, sparse_index,
};
use crate::lab::cache::{PAGE, PageId, Pool};

/// Rows that one thread takes at a time.
const BLOCK_ROWS: usize = 64;

/// One token to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index into [`Step::sequences`].
    pub sequence: usize,
    /// Position in its sequence.
    pub position: usize,
    /// Token id, below 264.
    pub token: u16,
}

/// Where a sequence's keys are, and what is broken for it.
#[derive(Clone, Copy, Debug)]
pub struct SeqView<'a> {
    /// Page table; it must cover every row's position.
    pub pages: &'a [PageId],
    /// Faults of this sequence.
    pub faults: &'a Faults,
}

/// One pass.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Tokens; those of one sequence stand together, in ascending position.
    pub rows: &'a [Row],
    /// The sequences they belong to.
    pub sequences: &'a [SeqView<'a>],
    /// Rows whose logits are wanted.
    pub wanted: &'a [usize],
}

/// Intermediate values, for comparing with a reference.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Streams after each block, `[rows, 4, 128]`.
    pub blocks: Vec<Vec<f32>>,
    /// Coefficients of block 0's attention site.
    pub mixes: Vec<Mix>,
    /// Input of block 0's attention site, `[rows, 128]`.
    pub inputs: Vec<f32>,
}

struct Projected {
    mixes: Vec<Mix>,
    /// `[rows, outputs]` as in [`Block::project`]; queries and keys are normed and rotated.
    values: Vec<f32>,
}

/// Runs the model over the rows of `step` and returns the logits of the wanted rows, `[wanted, 264]`.
///
/// Every row's keys are written to `pool` before any row reads them, so a row sees the rows of its
/// own sequence that stand before it in the same pass.
pub fn forward(model: &Model, pool: &mut Pool, step: &Step<'_>, mut trace: Option<&mut Trace>) -> Vec<f32> {
    let mut streams = Vec::with_capacity(step.rows.len() * FLAT);
    for row in step.rows {
        let at = usize::from(row.token) * WIDTH;
        for _ in 0..STREAMS {
            streams.extend_from_slice(&model.embedding[at..at + WIDTH]);
        }
    }
    for (layer, block) in model.blocks.iter().enumerate() {
        let parts: Vec<Projected> = map_blocks(step.rows, &streams, |rows, x| project(model, block, layer, rows, x));
        if let (0, Some(trace)) = (layer, trace.as_deref_mut()) {
            trace.mixes = parts.iter().flat_map(|p| p.mixes.iter().copied()).collect();
            trace.inputs = hc::gather(model.arch, &streams, |t| trace.mixes[t].pre);
        }
        for (rows, part) in step.rows.chunks(BLOCK_ROWS).zip(&parts) {
            store(model, block, layer, pool, step, rows, part);
        }
        let pool = &*pool;
        let gathered = gathered_keys(model, layer, pool, step);
        let work = |((rows, part), x): ((&[Row], &Projected), &mut [f32])| {
            finish(model, block, layer, pool, step, &gathered, rows, part, x);
        };
        let blocks = step.rows.len().div_ceil(BLOCK_ROWS);
        if blocks > 1 {
            let rows = step.rows.par_chunks(BLOCK_ROWS).zip(parts.par_iter());
            rows.zip(streams.par_chunks_mut(BLOCK_ROWS * FLAT)).for_each(work);
        } else {
            let rows = step.rows.chunks(BLOCK_ROWS).zip(parts.iter());
            rows.zip(streams.chunks_mut(BLOCK_ROWS * FLAT)).for_each(work);
        }
        if let Some(trace) = trace.as_deref_mut() {
            trace.blocks.push(streams.clone());
        }
    }
    logits(model, &streams, step.wanted)
}

fn map_blocks<T: Send>(rows: &[Row], streams: &[f32], work: impl Fn(&[Row], &[f32]) -> T + Sync) -> Vec<T> {
    if rows.len() <= BLOCK_ROWS {
        return rows.chunks(BLOCK_ROWS).map(|r| work(r, streams)).collect();
    }
    let blocks = rows.par_chunks(BLOCK_ROWS).zip(streams.par_chunks(BLOCK_ROWS * FLAT));
    blocks.map(|(r, x)| work(r, x)).collect()
}

/// Mixing, norm, projections, query and key norms, rotation.
fn project(model: &Model, block: &Block, layer: usize, rows: &[Row], streams: &[f32]) -> Projected {
    let arch = model.arch;
    let mixes = block.attention_site.mix(arch, streams);
    let h = normed(arch, streams, &mixes, &block.attention_norm);
    let mut values = block.project.apply(arch, &h);
    let rotate_heads = sparse_index(layer).is_none();
    let outputs = block.project.outputs();
    arch.dispatch(
        #[inline(always)]
        || {
            for (row, v) in rows.iter().zip(values.chunks_exact_mut(outputs)) {
                let angles = if rotate_heads { Some(angles(row.position)) } else { None };
                for (i, head) in v[..WIDTH + HEAD].chunks_exact_mut(HEAD).enumerate() {
                    rms_norm(head, if i < HEADS { &block.query_norm } else { &block.key_norm });
                    if let Some(angles) = &angles {
                        rotate(head, angles);
                    }
                }
            }
        },
    );
    Projected { mixes, values }
}

fn normed(arch: Arch, streams: &[f32], mixes: &[Mix], weight: &[f32]) -> Vec<f32> {
    let mut h = hc::gather(arch, streams, |t| mixes[t].pre);
    arch.dispatch(
        #[inline(always)]
        || h.chunks_exact_mut(WIDTH).for_each(|y| rms_norm(y, weight)),
    );
    h
}

/// Sine and cosine of every rotary pair at a position, computed in f64.
fn angles(position: usize) -> [(f32, f32); ROTARY / 2] {
    std::array::from_fn(|i| {
        let frequency = 10_000_f64.powf(-2.0 * i as f64 / ROTARY as f64);
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        (sin as f32, cos as f32)
    })
}

fn rotate(head: &mut [f32], angles: &[(f32, f32); ROTARY / 2]) {
    let (first, second) = head[HEAD - ROTARY..].split_at_mut(ROTARY / 2);
    for ((a, b), (sin, cos)) in first.iter_mut().zip(second).zip(angles) {
        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
    }
}

/// Writes keys, values and indexer keys of a block of rows to the cache.
fn store(model: &Model, block: &Block, layer: usize, pool: &mut Pool, step: &Step<'_>, rows: &[Row], part: &Projected) {
    for (row, v) in rows.iter().zip(part.values.chunks_exact(block.project.outputs())) {
        let sequence = &step.sequences[row.sequence];
        let (page, slot) = (sequence.pages[row.position / PAGE], row.position % PAGE);
        let mut key: [f32; HEAD] = std::array::from_fn(|d| v[WIDTH + d]);
        let mut value: [f32; HEAD] = std::array::from_fn(|d| v[WIDTH + HEAD + d]);
        if model.arithmetic.kv == KvDtype::Fp8E4m3 {
            round::e4m3_scaled(&mut key);
            round::e4m3_scaled(&mut value);
        }
        if sequence.faults.kv_int4 {
            round::int4_scaled(&mut key);
            round::int4_scaled(&mut value);
        }
        pool.write(page, layer, slot, &key, &value);
        if let Some(sparse) = sparse_index(layer) {
            let at = 2 * WIDTH + 2 * HEAD;
            pool.write_index(page, sparse, slot, &v[at..at + HEAD]);
        }
    }
}

/// For each sequence the gathered indexer keys, where the gathered path needs them.
fn gathered_keys(model: &Model, layer: usize, pool: &Pool, step: &Step<'_>) -> Vec<Vec<f32>> {
    let Some(sparse) = sparse_index(layer) else { return Vec::new() };
    if model.arithmetic.paged_indexer {
        return Vec::new();
    }
    let mut ends = vec![0; step.sequences.len()];
    for row in step.rows {
        ends[row.sequence] = row.position / PAGE + 1;
    }
    let gather = |(sequence, end): (&SeqView<'_>, &usize)| {
        if *end * PAGE <= WINDOW + super::TOP_K {
            return Vec::new();
        }
        indexer::gather(pool, &sequence.pages[..*end], sparse, sequence.faults)
    };
    step.sequences.iter().zip(&ends).map(gather).collect()
}

/// Attention, its output product, new streams, and the expert site.
#[expect(clippy::too_many_arguments, reason = "called from one place; a struct would only rename them")]
fn finish(
    model: &Model,
    block: &Block,
    layer: usize,
    pool: &Pool,
    step: &Step<'_>,
    gathered: &[Vec<f32>],
    rows: &[Row],
    part: &Projected,
    streams: &mut [f32],
) {
    let arch = model.arch;
    let attended = attend(model, block, layer, pool, step, gathered, rows, part);
    let f = block.output.apply(arch, &attended);
    hc::scatter(arch, streams, &part.mixes, &f);
    let mixes = block.expert_site.mix(arch, streams);
    let h = normed(arch, streams, &mixes, &block.expert_norm);
    let factor = |t: usize| step.sequences[rows[t].sequence].faults.routed_factor;
    let f = block.experts.apply(arch, &h, model.arithmetic.routed_scaling, factor);
    hc::scatter(arch, streams, &mixes, &f);
}

#[expect(clippy::too_many_arguments, reason = "called from one place; a struct would only rename them")]
fn attend(
    model: &Model,
    block: &Block,
    layer: usize,
    pool: &Pool,
    step: &Step<'_>,
    gathered: &[Vec<f32>],
    rows: &[Row],
    part: &Projected,
) -> Vec<f32> {
    let outputs = block.project.outputs();
    let mut out = vec![0.0; rows.len() * WIDTH];
    let mut chosen_keys = [0.0_f32; PAGE * HEAD];
    let mut chosen_values = [0.0_f32; PAGE * HEAD];
    let mut at = 0;
    for run in rows.chunk_by(|a, b| a.sequence == b.sequence) {
        let sequence = &step.sequences[run[0].sequence];
        let values = &part.values[at * outputs..(at + run.len()) * outputs];
        let window = sequence.faults.window.unwrap_or(WINDOW);
        let chosen = sparse_index(layer).map(|sparse| {
            let keys = match gathered.get(run[0].sequence) {
                Some(all) => Keys::Gathered(all),
                None => Keys::Paged { pool, pages: sequence.pages, sparse },
            };
            choose(model, run, values, outputs, &keys, sequence.faults)
        });
        for (i, (row, v)) in run.iter().zip(values.chunks_exact(outputs)).enumerate() {
            let mut splits = [Split { keys: &[], values: &[], from: 0, to: 0 }; 4];
            let mut used = 0;
            let from = (row.position + 1).saturating_sub(window);
            for page in from / PAGE..=row.position / PAGE {
                let id = sequence.pages[page];
                splits[used] = Split {
                    keys: pool.keys(id, layer),
                    values: pool.values(id, layer),
                    from: from.saturating_sub(page * PAGE),
                    to: (row.position + 1 - page * PAGE).min(PAGE),
                };
                used += 1;
            }
            if let Some(positions) = chosen.as_ref().map(|c| &c[i]).filter(|p| !p.is_empty()) {
                for (slot, position) in positions.iter().enumerate() {
                    let (page, from) = (sequence.pages[*position as usize / PAGE], *position as usize % PAGE);
                    let keys = pool.keys(page, layer);
                    for d in 0..HEAD {
                        chosen_keys[d * PAGE + slot] = keys[d * PAGE + from];
                    }
                    let values = &pool.values(page, layer)[from * HEAD..(from + 1) * HEAD];
                    chosen_values[slot * HEAD..(slot + 1) * HEAD].copy_from_slice(values);
                }
                splits[used] = Split { keys: &chosen_keys, values: &chosen_values, from: 0, to: positions.len() };
                used += 1;
            }
            model.arch.dispatch(Attend {
                query: &v[..WIDTH],
                sink: &block.sink,
                splits: &splits[..used],
                merge: model.arithmetic.mma_attention,
                out: &mut out[(at + i) * WIDTH..(at + i + 1) * WIDTH],
            });
        }
        at += run.len();
    }
    out
}

fn choose(
    model: &Model,
    run: &[Row],
    values: &[f32],
    outputs: usize,
    keys: &Keys<'_>,
    faults: &Faults,
) -> Vec<Vec<u32>> {
    let limits: Vec<usize> = run.iter().map(|r| (r.position + 1).saturating_sub(WINDOW)).collect();
    let at = WIDTH + 2 * HEAD;
    let scale = 1.0 / ((HEADS * HEAD) as f32).sqrt();
    let mut query = Vec::with_capacity(run.len() * WIDTH);
    let mut weight = Vec::with_capacity(run.len() * HEADS);
    for v in values.chunks_exact(outputs) {
        query.extend_from_slice(&v[at..at + WIDTH]);
        weight.extend(v[at + WIDTH + HEAD..].iter().map(|w| w * scale));
    }
    let queries = Queries { query: &query, weight: &weight, limits: &limits, bf16: model.arithmetic.bf16_indexer };
    indexer::select(model.arch, &queries, keys, faults)
}

fn logits(model: &Model, streams: &[f32], wanted: &[usize]) -> Vec<f32> {
    let arch = model.arch;
    let picked: Vec<f32> = wanted.iter().flat_map(|r| &streams[r * FLAT..(r + 1) * FLAT]).copied().collect();
    let mixes = model.head_mix.apply(arch, &picked);
    let pre: Vec<[f32; STREAMS]> = picked
        .chunks_exact(FLAT)
        .zip(mixes.chunks_exact(STREAMS))
        .map(|(x, m)| {
            let r = 1.0 / (super::math::sum_squares(x) / FLAT as f32 + EPS).sqrt();
            std::array::from_fn(|i| sigmoid((m[i] * r).mul_add(model.head_scale, model.head_base[i])) + EPS)
        })
        .collect();
    let mut y = hc::gather(arch, &picked, |t| pre[t]);
    y.chunks_exact_mut(WIDTH).for_each(|y| rms_norm(y, &model.norm));
    let out = model.head.apply(arch, &y);
    debug_assert_eq!(out.len(), wanted.len() * VOCAB);
    out
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
