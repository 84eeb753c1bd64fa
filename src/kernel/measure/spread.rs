//! How the errors of single elements are spread.
//!
//! Responsible for the greatest, the quantiles, the histogram and the one factor that may explain
//! them. Not responsible for which elements are compared: whoever has several points joins them.

use std::collections::BTreeMap;

use crate::kernel::report::{Bin, Spread};

/// The quantiles that a report holds.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// The share of the squared error that one factor must explain to be named.
const EXPLAINED: f64 = 0.9;

/// Fewer elements than these are explained by a factor too easily: two by half, on average.
const FEWEST: usize = 8;

/// How the errors of `got` are spread.
///
/// A value that is missing on one side, or is not finite, has an error that is not a number: then
/// `max_abs`, `rms` and `ratio` are `None`, the histogram leaves it out, and it counts as greater
/// than every number in the quantiles, which may so be NaN. Where the reference is zero throughout,
/// an error over its root mean square is infinite. A quantile is the least error that at least so
/// large a share of the elements does not exceed; without elements it is NaN.
pub fn spread(candidate: &str, part: &str, got: &[f64], reference: &[f64]) -> Spread {
    let count = got.len().max(reference.len());
    let absolute: Vec<f64> = (0..count).map(|i| error_at(got, reference, i)).collect();
    let known = got.len() == reference.len() && absolute.iter().all(|e| e.is_finite());
    let size = root_mean_square(reference);
    let mut errors: Vec<f64> = absolute.iter().map(|e| if *e == 0.0 { 0.0 } else { e / size }).collect();
    Spread {
        candidate: candidate.into(),
        part: part.into(),
        elements: count as u64,
        max_abs: known.then(|| absolute.iter().copied().fold(0.0, f64::max)),
        rms: Some(root_mean_square(&absolute)).filter(|rms| known && rms.is_finite()),
        ratio: if known { one_factor(got, reference) } else { None },
        histogram: histogram(&errors),
        quantiles: QUANTILES.map(|share| quantile(&mut errors, share)),
    }
}

fn error_at(got: &[f64], reference: &[f64], i: usize) -> f64 {
    match (got.get(i), reference.get(i)) {
        (Some(got), Some(reference)) => (got - reference).abs(),
        _ => f64::NAN,
    }
}

/// 0 for no values.
fn root_mean_square(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|v| v * v).sum();
    (squares / values.len().max(1) as f64).sqrt()
}

fn quantile(errors: &mut [f64], share: f64) -> f64 {
    if errors.is_empty() {
        return f64::NAN;
    }
    let index = ((share * errors.len() as f64).ceil() as usize).clamp(1, errors.len()) - 1;
    *errors.select_nth_unstable_by(index, f64::total_cmp).1
}

fn histogram(errors: &[f64]) -> Vec<Bin> {
    let mut counts: BTreeMap<Option<i32>, u64> = BTreeMap::new();
    for error in errors.iter().filter(|e| e.is_finite()) {
        let decade = (*error != 0.0).then(|| error.log10().floor() as i32);
        *counts.entry(decade).or_default() += 1;
    }
    counts.into_iter().map(|(decade, count)| Bin { decade, count }).collect()
}

/// The least-squares ratio of `got` to `reference`, where it explains nine tenths of the squared
/// error of eight or more elements.
fn one_factor(got: &[f64], reference: &[f64]) -> Option<f64> {
    if got.len() < FEWEST {
        return None;
    }
    let pairs = || got.iter().zip(reference);
    let whole: f64 = reference.iter().map(|r| r * r).sum();
    let off: f64 = pairs().map(|(g, r)| (g - r) * (g - r)).sum();
    // The ratio less one, which a ratio near one would lose to cancellation.
    let beyond_one = pairs().map(|(g, r)| (g - r) * r).sum::<f64>() / whole;
    let explained = beyond_one * beyond_one * whole / off;
    (explained >= EXPLAINED).then_some(1.0 + beyond_one)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(got: &[f64], reference: &[f64]) -> Spread {
        spread("c", "p", got, reference)
    }

    fn bin(decade: Option<i32>, count: u64) -> Bin {
        Bin { decade, count }
    }

    #[test]
    fn errors_are_counted_over_the_size_of_the_reference() {
        let reference = [2.0, -2.0, 2.0, 2.0];
        let got = of(&[2.0, -2.2, 2.02, 22.0], &reference);
        assert_eq!(got.elements, 4);
        assert_eq!(got.max_abs, Some(20.0));
        assert_eq!(got.histogram, [bin(None, 1), bin(Some(-2), 1), bin(Some(-1), 1), bin(Some(1), 1)]);
        assert!((got.quantiles[0] - 0.01).abs() < 1e-12 && got.quantiles[3] == 10.0, "{:?}", got.quantiles);
        assert!((got.rms.unwrap() - ((400.0 + 0.04 + 0.0004) / 4.0_f64).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn an_exact_result_has_one_bar() {
        let values: Vec<f64> = (0..50).map(f64::from).collect();
        let got = of(&values, &values);
        assert_eq!((got.max_abs, got.rms, got.ratio), (Some(0.0), Some(0.0), None));
        assert_eq!((got.quantiles, got.histogram), ([0.0; 4], vec![bin(None, 50)]));
    }

    #[test]
    fn powers_of_ten_open_their_decade() {
        for decade in -15..15 {
            let error = format!("1e{decade}").parse::<f64>().unwrap();
            assert_eq!(histogram(&[error, 9.99 * error]), [bin(Some(decade), 2)], "{error}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_left_out_in_silence() {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut values = vec![1.0; 1000];
            values[17] = bad;
            let got = of(&values, &[1.0; 1000]);
            assert_eq!((got.max_abs, got.rms, got.ratio), (None, None, None));
            assert_eq!(got.histogram, [bin(None, 999)]);
            assert_eq!(got.quantiles[..3], [0.0; 3]);
            let all = of(&[bad; 10], &[1.0; 10]);
            assert!(all.quantiles.iter().all(|q| !q.is_finite()), "{:?}", all.quantiles);
        }
        let short = of(&[1.0; 4], &[1.0; 10]);
        assert_eq!((short.elements, short.max_abs), (10, None));
        assert!(of(&[], &[]).quantiles.iter().all(|q| q.is_nan()));
    }

    #[test]
    fn an_error_beside_a_zero_reference_is_infinite() {
        let got = of(&[0.0, 1.0], &[0.0, 0.0]);
        assert_eq!((got.max_abs, got.quantiles[0], got.quantiles[3]), (Some(1.0), 0.0, f64::INFINITY));
        assert_eq!(got.histogram, [bin(None, 1)]);
    }

    #[test]
    fn a_factor_is_named_and_noise_is_not() {
        let reference: Vec<f64> = (0..64).map(|i| f64::from((i as f32 * 0.7).sin())).collect();
        let noise: Vec<f64> = (0..64).map(|i| f64::from((i as f32 * 7.3).cos()) * 0.01).collect();
        let with = |factor: f64, noise_factor: f64| -> Vec<f64> {
            reference.iter().zip(&noise).map(|(r, n)| r * factor + n * noise_factor).collect()
        };
        assert!((of(&with(1.5, 1.0), &reference).ratio.unwrap() - 1.5).abs() < 0.01);
        assert!((of(&with(0.5, 0.0), &reference).ratio.unwrap() - 0.5).abs() < 1e-12);
        assert!((of(&with(1.0 + 1e-9, 0.0), &reference).ratio.unwrap() - 1.0 - 1e-9).abs() < 1e-15);
        assert_eq!(of(&with(1.0, 1.0), &reference).ratio, None);
        assert_eq!(of(&with(1.01, 1.0), &reference).ratio, None);
        assert_eq!(of(&with(1.5, 0.0)[..7], &reference[..7]).ratio, None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_that_of_the_sorted_errors(errors in prop::collection::vec(0.0_f64..1.0, 1..300)) {
            let reference = vec![1.0; errors.len()];
            let got: Vec<f64> = errors.iter().map(|e| 1.0 + e).collect();
            let mut sorted: Vec<f64> = got.iter().map(|g| g - 1.0).collect();
            sorted.sort_by(f64::total_cmp);
            let spread = of(&got, &reference);
            for (share, quantile) in QUANTILES.iter().zip(spread.quantiles) {
                let not_above = sorted.iter().filter(|e| **e <= quantile).count() as f64;
                let below = sorted.iter().filter(|e| **e < quantile).count() as f64;
                let whole = sorted.len() as f64;
                prop_assert!(not_above >= share * whole && below < share * whole);
            }
            prop_assert_eq!(spread.histogram.iter().map(|b| b.count).sum::<u64>(), errors.len() as u64);
            prop_assert!(spread.rms.unwrap() <= spread.max_abs.unwrap() * (1.0 + 1e-12));
        }
    }
}
