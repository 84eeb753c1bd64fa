//! Sparse attention of one query head over the keys that it sees.
//!
//! Responsible for the softmax, for merging splits of the keys, for the sink and for the norm of a
//! query head. Not responsible for which keys are seen ([`crate::kernel::oracle::indexer`]), nor for
//! caches ([`crate::kernel::oracle::pages`]).

use crate::kernel::oracle::EPS;

/// The attention over some of the keys, before the sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// Weighted mean of the values; zero without keys.
    pub out: Vec<f64>,
    /// `ln sum_s e^(l_s)`; minus infinity without keys.
    pub lse: f64,
}

/// Attention over all keys that are given, one logit a key: `l_s = scale q . k_s`.
///
/// `m` is the largest logit; the output is `sum_s e^(l_s - m) v_s / sum_s e^(l_s - m)`. `width` is
/// that of the values.
pub fn attend<'a>(
    q: &[f64],
    keys: impl Iterator<Item = &'a [f64]>,
    values: impl Iterator<Item = &'a [f64]>,
    width: usize,
    scale: f64,
) -> Partial {
    let mut logits = Vec::new();
    for key in keys {
        let mut dot = 0.0;
        for (x, y) in q.iter().zip(key) {
            dot += x * y;
        }
        logits.push(dot * scale);
    }
    softmax(&logits, values, width)
}

/// The same with given logits.
pub fn softmax<'a>(logits: &[f64], values: impl Iterator<Item = &'a [f64]>, width: usize) -> Partial {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut out = vec![0.0; width];
    let mut sum = 0.0;
    for (logit, value) in logits.iter().zip(values) {
        let weight = (logit - most).exp();
        sum += weight;
        for (o, v) in out.iter_mut().zip(value) {
            *o += weight * v;
        }
    }
    if logits.is_empty() {
        return Partial { out, lse: f64::NEG_INFINITY };
    }
    for o in &mut out {
        *o /= sum;
    }
    Partial { out, lse: most + sum.ln() }
}

/// Merges splits of the keys: with `M = max lse_i` and `w_i = e^(lse_i - M)` the output is
/// `sum w_i o_i / sum w_i` and its lse is `M + ln sum w_i`. Empty splits weigh nothing.
///
/// `parts` must not be empty, and their outputs must be equally wide.
pub fn merge(parts: &[Partial]) -> Partial {
    let most = parts.iter().map(|p| p.lse).fold(f64::NEG_INFINITY, f64::max);
    let mut out = vec![0.0; parts[0].out.len()];
    if most == f64::NEG_INFINITY {
        return Partial { out, lse: most };
    }
    let mut sum = 0.0;
    for part in parts {
        let weight = (part.lse - most).exp();
        sum += weight;
        for (o, v) in out.iter_mut().zip(&part.out) {
            *o += weight * v;
        }
    }
    for o in &mut out {
        *o /= sum;
    }
    Partial { out, lse: most + sum.ln() }
}

/// The output with the sink, which has a logit in the denominator and no value: `o / (1 + e^(sink - lse))`.
///
/// It belongs once to the whole row, after splits are merged. A row without keys stays zero.
pub fn with_sink(whole: &Partial, sink: f64) -> Vec<f64> {
    if whole.lse == f64::NEG_INFINITY {
        return vec![0.0; whole.out.len()];
    }
    let divisor = 1.0 + (sink - whole.lse).exp();
    whole.out.iter().map(|o| o / divisor).collect()
}

/// The lse as kernels report it for a whole row: plus infinity for a row without keys.
pub fn reported_lse(whole: &Partial) -> f64 {
    if whole.lse == f64::NEG_INFINITY { f64::INFINITY } else { whole.lse }
}

/// A query head over the root of its mean square, without a weight.
pub fn norm_head(head: &[f64]) -> Vec<f64> {
    let mut squares = 0.0;
    for x in head {
        squares += x * x;
    }
    let root = (squares / head.len() as f64 + EPS).sqrt();
    head.iter().map(|x| x / root).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOGITS: [f64; 4] = [0.5, -1.0, 2.0, 0.0];
    const VALUES: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

    fn part(logits: &[f64], values: &[f64]) -> Partial {
        softmax(logits, values.chunks_exact(1), 1)
    }

    fn near(got: f64, expect: f64) {
        assert!((got - expect).abs() < 1e-11, "{got} where {expect} is known");
    }

    #[test]
    fn golden_values_without_and_with_a_sink() {
        let whole = part(&LOGITS, &VALUES);
        near(whole.out[0], 2.743_858_361_751);
        near(whole.lse, 2.342_349_582_390);
        near(with_sink(&whole, 0.7)[0], 2.298_953_779_391);
    }

    #[test]
    fn golden_values_of_two_splits_and_their_merge() {
        let (a, b) = (part(&LOGITS[..2], &VALUES[..2]), part(&LOGITS[2..], &VALUES[2..]));
        near(a.out[0], 1.182_425_523_806);
        near(a.lse, 0.701_413_277_983);
        near(b.out[0], 3.119_202_922_022);
        near(b.lse, 2.126_928_011_043);
        let merged = merge(&[a, b]);
        near(merged.out[0], 2.743_858_361_751);
        near(merged.lse, 2.342_349_582_390);
    }

    #[test]
    fn a_row_without_keys_is_zero_and_an_empty_split_weighs_nothing() {
        let empty = part(&[], &[]);
        assert_eq!((empty.out.clone(), empty.lse), (vec![0.0], f64::NEG_INFINITY));
        assert_eq!(with_sink(&empty, 3.0), [0.0]);
        assert_eq!(reported_lse(&empty), f64::INFINITY);
        assert_eq!(merge(&[empty.clone(), empty.clone()]), empty);
        let full = part(&LOGITS, &VALUES);
        assert_eq!(merge(&[empty, full.clone()]), full);
    }

    #[test]
    fn logits_are_scaled_products() {
        let keys = [1.0, 0.0, 0.0, 2.0];
        let got = attend(&[3.0, 4.0], keys.chunks_exact(2), VALUES[..2].chunks_exact(1), 1, 0.5);
        assert_eq!(got, part(&[1.5, 4.0], &VALUES[..2]));
    }

    #[test]
    fn huge_logits_do_not_overflow() {
        near(part(&[1e4, 1e4], &[1.0, 3.0]).out[0], 2.0);
        assert_eq!(with_sink(&part(&[1e4], &[5.0]), 0.0), [5.0]);
    }

    #[test]
    fn a_normed_head_has_the_mean_square_one() {
        let got = norm_head(&[3.0, 4.0]);
        near(got[0], 3.0 / (12.5_f64 + 1e-6).sqrt());
        assert_eq!(norm_head(&[0.0, 0.0]), [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn any_split_merges_to_the_whole(
            rows in prop::collection::vec((-9.0_f64..9.0, -9.0_f64..9.0), 1..40), cuts in prop::collection::vec(0_usize..40, 0..5),
        ) {
            let (logits, values): (Vec<f64>, Vec<f64>) = rows.into_iter().unzip();
            let mut edges: Vec<usize> = cuts.iter().map(|c| c % (logits.len() + 1)).collect();
            edges.extend([0, logits.len()]);
            edges.sort_unstable();
            let parts: Vec<Partial> = edges.windows(2).map(|e| part(&logits[e[0]..e[1]], &values[e[0]..e[1]])).collect();
            let (merged, whole) = (merge(&parts), part(&logits, &values));
            prop_assert!((merged.out[0] - whole.out[0]).abs() < 1e-11 && (merged.lse - whole.lse).abs() < 1e-11);
        }

        #[test]
        fn the_sink_is_one_more_key_without_value(logits in prop::collection::vec(-9.0_f64..9.0, 1..20), sink in -9.0_f64..9.0) {
            let values: Vec<f64> = logits.iter().map(|l| l.sin()).collect();
            let with = |mut logits: Vec<f64>, mut values: Vec<f64>| { logits.push(sink); values.push(0.0); part(&logits, &values).out[0] };
            let got = with_sink(&part(&logits, &values), sink)[0];
            prop_assert!((got - with(logits, values)).abs() < 1e-12);
        }
    }
}
