//! Attention of one layer: window, sparse keys by indexer score, and a sink.
//!
//! Responsible for a whole prompt at once, positions counted from zero. Not responsible for key
//! caches, pages or chunks: this is what they must agree with.

use crate::kernel::matrix::Matrix;
use crate::kernel::oracle::rms;

/// Query heads; there is one shared key and one shared value head.
pub const HEADS: usize = 4;
/// Width of a head.
pub const HEAD: usize = 32;
/// Dimensions of a head that are rotated in window layers: the last ones.
pub const ROTARY: usize = 16;
/// A token sees itself and the `WINDOW - 1` before it.
pub const WINDOW: usize = 128;
/// Keys before the window that a sparse layer keeps.
pub const TOP_K: usize = 64;

const BASE: f64 = 10_000.0;

/// Weights of the attention of one layer; matrices are `[outputs, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Queries, 4 heads of 32.
    pub wq: Matrix<f64>,
    /// The key head.
    pub wk: Matrix<f64>,
    /// The value head.
    pub wv: Matrix<f64>,
    /// Output, from the concatenated heads.
    pub wo: Matrix<f64>,
    /// Norm of each query head.
    pub qn: Vec<f64>,
    /// Norm of the key.
    pub kn: Vec<f64>,
    /// One more logit per head, in the denominator only.
    pub sink: [f64; HEADS],
    /// The indexer of a sparse layer; `None` in a window layer.
    pub indexer: Option<Indexer>,
}

/// Weights of an indexer.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Index queries, 4 heads of 32.
    pub queries: Matrix<f64>,
    /// Index keys.
    pub keys: Matrix<f64>,
    /// Weight of each head.
    pub weights: Matrix<f64>,
}

/// The output of the attention for the normed inputs `h` (`[tokens, width]`), same shape.
///
/// Keys enter the softmax in ascending order of position.
pub fn attend(layer: &Attention, h: &[f64], tokens: usize) -> Vec<f64> {
    let mut q = rms(&layer.wq.times(h), &layer.qn);
    let mut k = rms(&layer.wk.times(h), &layer.kn);
    let v = layer.wv.times(h);
    if layer.indexer.is_none() {
        rotate(&mut q, HEADS);
        rotate(&mut k, 1);
    }
    let kept = layer.indexer.as_ref().map(|indexer| select(indexer, h, tokens));
    let mut heads = vec![0.0; tokens * HEADS * HEAD];
    let mut visible = Vec::new();
    for t in 0..tokens {
        visible.clear();
        if let Some(kept) = &kept {
            visible.extend_from_slice(&kept[t]);
        }
        visible.extend((t + 1).saturating_sub(WINDOW)..=t);
        for head in 0..HEADS {
            let at = (t * HEADS + head) * HEAD;
            let out = &mut heads[at..at + HEAD];
            softmax_with_sink(&q[at..at + HEAD], &k, &v, &visible, layer.sink[head], out);
        }
    }
    layer.wo.times(&heads)
}

/// `out = sum_s e^(l_s - m) v_s / (sum_s e^(l_s - m) + e^(sink - m))`, `l_s = q . k_s / sqrt(32)`.
fn softmax_with_sink(q: &[f64], k: &[f64], v: &[f64], visible: &[usize], sink: f64, out: &mut [f64]) {
    let logit = |s: &usize| dot(q, &k[s * HEAD..][..HEAD]) / (HEAD as f64).sqrt();
    let logits: Vec<f64> = visible.iter().map(logit).collect();
    let top = logits.iter().copied().fold(sink, f64::max);
    let mut denominator = 0.0;
    for (s, logit) in visible.iter().zip(&logits) {
        let weight = (logit - top).exp();
        denominator += weight;
        out.iter_mut().zip(&v[s * HEAD..][..HEAD]).for_each(|(o, v)| *o += weight * v);
    }
    denominator += (sink - top).exp();
    for o in out.iter_mut() {
        *o /= denominator;
    }
}

/// For each token the positions before its window that it keeps, ascending.
///
/// The score is `sum_h w_h relu(iq_h . ik_s) / sqrt(4 * 32)`; of equal scores the earlier position
/// is kept.
pub fn select(indexer: &Indexer, h: &[f64], tokens: usize) -> Vec<Vec<usize>> {
    let (queries, keys) = (indexer.queries.times(h), indexer.keys.times(h));
    let weights = indexer.weights.times(h);
    let score = |t: usize, s: usize| -> f64 {
        let key = &keys[s * HEAD..][..HEAD];
        let sum: f64 = (0..HEADS)
            .map(|i| weights[t * HEADS + i] * dot(&queries[(t * HEADS + i) * HEAD..][..HEAD], key).max(0.0))
            .sum();
        sum / ((HEADS * HEAD) as f64).sqrt()
    };
    (0..tokens)
        .map(|t| {
            let before = (t + 1).saturating_sub(WINDOW);
            if before <= TOP_K {
                return (0..before).collect();
            }
            let mut scored: Vec<(f64, usize)> = (0..before).map(|s| (score(t, s), s)).collect();
            scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut kept: Vec<usize> = scored[..TOP_K].iter().map(|(_, s)| *s).collect();
            kept.sort_unstable();
            kept
        })
        .collect()
}

/// Rotates the last 16 of every head by its position: with halves b1, b2 of 8 and the angle
/// `a = pos * 10000^(-2i/16)`, they become `b1 cos a - b2 sin a` and `b1 sin a + b2 cos a`.
fn rotate(values: &mut [f64], heads: usize) {
    const HALF: usize = ROTARY / 2;
    let frequencies: [f64; HALF] = std::array::from_fn(|i| BASE.powf(-2.0 * i as f64 / ROTARY as f64));
    for (position, token) in values.chunks_exact_mut(heads * HEAD).enumerate() {
        let turns = frequencies.map(|f| (position as f64 * f).sin_cos());
        for head in token.chunks_exact_mut(HEAD) {
            let (b1, b2) = head[HEAD - ROTARY..].split_at_mut(HALF);
            for ((x, y), (sin, cos)) in b1.iter_mut().zip(b2).zip(turns) {
                (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One dimension carries the values of domain knowledge: scores are given through `k`.
    fn attend_scores(scores: &[f64], values: &[f64], sink: f64) -> f64 {
        let root = (HEAD as f64).sqrt();
        let mut q = [0.0; HEAD];
        q[0] = 1.0;
        let spread = |numbers: &[f64], factor: f64| -> Vec<f64> {
            numbers
                .iter()
                .flat_map(|n| std::array::from_fn::<f64, HEAD, _>(|d| if d == 0 { n * factor } else { 0.0 }))
                .collect()
        };
        let visible: Vec<usize> = (0..scores.len()).collect();
        let mut out = [0.0; HEAD];
        softmax_with_sink(&q, &spread(scores, root), &spread(values, 1.0), &visible, sink, &mut out);
        out[0]
    }

    #[test]
    fn softmax_golden_values() {
        let (scores, values) = ([0.5, -1.0, 2.0, 0.0], [1.0, 2.0, 3.0, 4.0]);
        let check = |sink: f64, expect: f64| {
            let got = attend_scores(&scores, &values, sink);
            assert!((got - expect).abs() < 1e-11, "{got} where {expect} is known");
        };
        check(f64::NEG_INFINITY, 2.743_858_361_751);
        check(0.7, 2.298_953_779_391);
    }

    #[test]
    fn rotation_keeps_lengths_and_the_first_half() {
        let mut values: Vec<f64> = (0..3 * HEAD).map(|i| i as f64 / 7.0).collect();
        let before = values.clone();
        rotate(&mut values, 1);
        assert_eq!(values[..HEAD], before[..HEAD]);
        assert_eq!(values[HEAD..HEAD + ROTARY], before[HEAD..HEAD + ROTARY]);
        let length = |v: &[f64]| v[2 * HEAD..].iter().map(|x| x * x).sum::<f64>();
        assert!((length(&values) - length(&before)).abs() < 1e-9);
        assert!(
            (values[HEAD + 16] - (before[HEAD + 16] * 1_f64.cos() - before[HEAD + 24] * 1_f64.sin())).abs() < 1e-12
        );
    }

    #[test]
    fn the_indexer_keeps_the_best_before_the_window() {
        // Width 1: query and weight are 1, the key of a token is its input.
        let ones = Matrix::pack(&[1.0; HEADS * HEAD], HEADS * HEAD, 1);
        let mut first = [0.0; HEAD];
        first[0] = 1.0;
        let indexer = Indexer {
            queries: ones,
            keys: Matrix::pack(&first, HEAD, 1),
            weights: Matrix::pack(&[1.0; HEADS], HEADS, 1),
        };
        let tokens = WINDOW + TOP_K + 3;
        let h: Vec<f64> = (0..tokens).map(|t| if t == 2 || t == 5 { 0.25 } else { 1.0 }).collect();
        let kept = select(&indexer, &h, tokens);
        assert!(kept[WINDOW - 1].is_empty());
        assert_eq!(kept[WINDOW], [0]);
        let last: Vec<usize> = (0..TOP_K + 3).filter(|s| *s != 2 && *s != 5).take(TOP_K).collect();
        assert_eq!(kept[tokens - 1], last);
    }
}
