//! The sparse indexer: which compressed keys a query keeps.
//!
//! Responsible for scores, for what a query may see and for what it keeps. Not responsible for
//! rotation ([`crate::kernel::oracle::rotary`], [`crate::kernel::oracle::hadamard`]) and for how
//! keys lie in a cache ([`crate::kernel::oracle::pages`]).

/// Tokens behind one compressed key.
pub const RATIO: usize = 4;

/// `sum_h w_h relu(q_h . k)`: `q` is `[heads, k.len()]`, `weights` is `[heads]`.
///
/// The products are those of rotated queries and keys; `weights` hold all factors.
pub fn score(q: &[f64], k: &[f64], weights: &[f64]) -> f64 {
    let mut sum = 0.0;
    for (head, weight) in q.chunks_exact(k.len()).zip(weights) {
        let mut dot = 0.0;
        for (x, y) in head.iter().zip(k) {
            dot += x * y;
        }
        sum += weight * relu(dot);
    }
    sum
}

/// `max(x, 0)`; NaN stays NaN.
pub fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// What the projected weight of a head is multiplied with: `dim^-0.5 heads^-0.5`.
pub fn factor(heads: usize, dim: usize) -> f64 {
    ((heads * dim) as f64).sqrt().recip()
}

/// How many compressed keys the token at `position` may see: key `t` if `t < (position + 1) / 4`,
/// rounded down, so no key of which a token lies after it.
pub fn visible(position: usize) -> usize {
    (position + 1) / RATIO
}

/// The indices of the `count` largest scores, ascending; all of them if there are no more.
///
/// Of equal scores the lower index is kept; NaN counts as larger than every number, as it does to a
/// kernel that sorts by bits. The set is what counts: the order in which a kernel returns it is free.
pub fn keep(scores: &[f64], count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    if scores.len() > count {
        order.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
        order.truncate(count);
        order.sort_unstable();
    }
    order
}

/// The last kept score less the first dropped one; `None` if nothing is dropped.
pub fn margin(scores: &[f64], count: usize) -> Option<f64> {
    if scores.len() <= count || count == 0 {
        return None;
    }
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    Some(sorted[count - 1] - sorted[count])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_scores() {
        let (q, weights) = ([1.0, -2.0, 0.5, 1.5], [0.3, 0.9]);
        let check = |key: [f64; 2], expect: f64| assert!((score(&q, &key, &weights) - expect).abs() < 1e-12);
        check([1.0, 1.0], 1.80);
        check([-1.0, 2.0], 2.25);
        check([0.0, -3.0], 1.80);
    }

    #[test]
    fn a_window_is_visible_once_its_last_token_is_there() {
        let got: Vec<usize> = (0..9).map(visible).collect();
        assert_eq!(got, [0, 0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(visible(2047), 512);
    }

    #[test]
    fn the_factor_is_that_of_both_widths() {
        assert!((factor(64, 128) - 128_f64.powf(-0.5) * 64_f64.powf(-0.5)).abs() < 1e-16);
    }

    #[test]
    fn of_equal_scores_the_lower_index_is_kept() {
        assert_eq!(keep(&[1.0, 3.0, 2.0, 2.0, 2.0], 3), [1, 2, 3]);
        assert_eq!(keep(&[0.0; 6], 2), [0, 1]);
        assert_eq!(keep(&[2.0, 1.0], 5), [0, 1]);
        assert_eq!(keep(&[1.0, f64::NAN, 5.0], 1), [1]);
        assert_eq!(keep(&[], 3), [] as [u32; 0]);
    }

    #[test]
    fn the_margin_is_between_the_last_kept_and_the_first_dropped() {
        assert_eq!(margin(&[1.0, 4.0, 2.5], 2), Some(1.5));
        assert_eq!(margin(&[1.0, 4.0], 2), None);
        assert!(relu(f64::NAN).is_nan());
    }

    proptest! {
        #[test]
        fn nothing_that_is_dropped_is_larger_than_what_is_kept(
            scores in prop::collection::vec(-9.0_f64..9.0, 0..60), count in 0_usize..60,
        ) {
            let kept = keep(&scores, count);
            prop_assert_eq!(kept.len(), count.min(scores.len()));
            prop_assert!(kept.is_sorted_by(|a, b| a < b));
            let least = kept.iter().map(|i| scores[*i as usize]).fold(f64::INFINITY, f64::min);
            for (i, score) in scores.iter().enumerate() {
                prop_assert!(kept.contains(&(i as u32)) || *score <= least);
            }
        }
    }
}
