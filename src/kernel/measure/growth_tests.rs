//! Walks, drifts and steps.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

/// Many, as in a tensor: in few, a walk strays from the root of its number of steps.
const DIMENSIONS: usize = 256;

/// A random direction; its length is nearly always the same.
fn noise(random: &mut Pcg64) -> Vec<f64> {
    (0..DIMENSIONS).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// The lengths of the sums of steps.
fn walk(steps: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
    let mut at = vec![0.0; DIMENSIONS];
    steps
        .map(|step| {
            at.iter_mut().zip(step).for_each(|(a, s)| *a += s);
            at.iter().map(|a| a * a).sum::<f64>().sqrt()
        })
        .collect()
}

fn noisy(seed: u64, points: usize) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(seed);
    walk((0..points).map(|_| noise(&mut random)))
}

fn power(points: usize, exponent: f64) -> Vec<f64> {
    (1..=points).map(|n| 1e-3 * (n as f64).powf(exponent)).collect()
}

fn exponent(growth: Option<Growth>) -> f64 {
    match growth {
        Some(Growth::NoiseLike { exponent } | Growth::Coherent { exponent }) => exponent,
        other => panic!("{other:?}"),
    }
}

fn break_at(growth: Option<Growth>) -> Option<usize> {
    match growth {
        Some(Growth::Break { at, .. }) => Some(at),
        _ => None,
    }
}

#[test]
fn a_power_is_found_again() {
    for wanted in [0.0, 0.25, 0.5, 0.74, 0.76, 1.0, 1.5, 2.0] {
        for points in [4, 10, 86, 500] {
            let got = growth(&power(points, wanted));
            assert!((exponent(got) - wanted).abs() < 1e-9, "{wanted} {got:?}");
            assert_eq!(matches!(got, Some(Growth::Coherent { .. })), wanted > 0.75, "{wanted}");
        }
    }
}

#[test]
fn too_little_says_nothing() {
    let check = |errors: &[f64]| assert_eq!(growth(errors), None, "{errors:?}");
    check(&[]);
    check(&[1.0]);
    check(&[1.0, 1.4, 1.7]);
    check(&[0.0; 20]);
    check(&[f64::NAN, 1.0, 2.0, 3.0, 4.0]);
    check(&[f64::INFINITY; 5]);
}

#[test]
fn what_is_no_number_is_a_break() {
    let mut errors = power(20, 0.5);
    errors[7] = f64::INFINITY;
    assert_eq!(growth(&errors), Some(Growth::Break { at: 7, factor: f64::INFINITY }));
    errors[5] = f64::NAN;
    let Some(Growth::Break { at: 5, factor }) = growth(&errors) else { panic!("{:?}", growth(&errors)) };
    assert!(factor.is_nan());
    assert_eq!(break_at(growth(&[0.0, f64::NAN])), Some(1));
}

#[test]
fn a_break_before_a_nan_is_the_one_that_counts() {
    let mut errors = power(20, 0.5);
    errors[6..].iter_mut().for_each(|e| *e = 1.0);
    errors[15] = f64::NAN;
    assert_eq!(break_at(growth(&errors)), Some(6));
}

#[test]
fn the_first_of_two_breaks_counts() {
    let mut errors = power(40, 0.5);
    errors[10..].iter_mut().for_each(|e| *e = 0.5);
    errors[25..].iter_mut().for_each(|e| *e = 50.0);
    assert_eq!(break_at(growth(&errors)), Some(10));
}

#[test]
fn an_error_out_of_nothing_that_stays_is_a_break() {
    let from_nothing = |at, count| Some(Growth::Break { at, factor: f64::INFINITY }).filter(|_| count > 0);
    let mut errors = vec![0.0; 30];
    errors[12..].iter_mut().for_each(|e| *e = 0.2);
    assert_eq!(growth(&errors), from_nothing(12, 1));
    assert_eq!(growth(&[0.0, 0.0, 0.0, 0.1]), from_nothing(3, 1));
}

#[test]
fn points_that_cannot_err_before_those_that_do_are_not_a_break() {
    let check = |errors: Vec<f64>, wanted: f64| {
        let got = growth(&errors);
        assert!((exponent(got) - wanted).abs() < 0.1, "{got:?}");
    };
    check([vec![0.0; 5], power(60, 0.5)].concat(), 0.5);
    check([vec![0.0; 5], power(60, 1.0)].concat(), 1.0);
    check([power(5, 0.5).iter().map(|e| e * 1e-3).collect(), power(60, 0.5)].concat(), 0.5);
}

#[test]
fn layers_that_err_in_every_fourth_site_are_noise() {
    // The error rises in steps, each as large as the first.
    let errors: Vec<f64> = (0..84).map(|i| 1e-2 * ((1 + i / 4) as f64).sqrt()).collect();
    assert!(matches!(growth(&errors), Some(Growth::NoiseLike { .. })), "{:?}", growth(&errors));
    let after_rest = [vec![1e-5; 4], errors].concat();
    assert!(matches!(growth(&after_rest), Some(Growth::NoiseLike { .. })), "{:?}", growth(&after_rest));
}

#[test]
fn a_dip_is_not_followed_by_a_break() {
    let mut errors = power(50, 0.5);
    errors[20] /= 100.0;
    assert!(break_at(growth(&errors)).is_none(), "{:?}", growth(&errors));
    errors[30] = 0.0;
    assert!(break_at(growth(&errors)).is_none(), "{:?}", growth(&errors));
}

#[test]
fn a_rough_curve_needs_a_higher_jump() {
    // Errors that scatter by a factor of two either way, and then one of four times the greatest.
    let rough: Vec<f64> = (0..20).map(|i| if i % 2 == 0 { 1e-3 } else { 4e-3 }).collect();
    let with = |last: f64| growth(&[&rough[..], &[last; 6]].concat());
    assert!(break_at(with(16e-3)).is_none(), "{:?}", with(16e-3));
    assert_eq!(break_at(with(160e-3)), Some(20));
    let smooth = [2e-3; 20];
    assert_eq!(break_at(growth(&[&smooth[..], &[8e-3; 6]].concat())), Some(20));
}

#[test]
fn growth_by_a_constant_factor_is_coherent_and_no_break() {
    let errors: Vec<f64> = (0..60).map(|i| 1e-6 * 1.2_f64.powi(i)).collect();
    assert!(matches!(growth(&errors), Some(Growth::Coherent { .. })), "{:?}", growth(&errors));
}

#[test]
fn a_break_that_is_amplified_afterwards_is_still_one() {
    // 1e-3 before, 0.3 at the break, then 1.2 at the end.
    let mut errors = power(86, 0.5);
    for (n, error) in errors[20..].iter_mut().enumerate() {
        *error = 0.3 * ((n + 1) as f64).powf(0.33);
    }
    assert_eq!(break_at(growth(&errors)), Some(20));
}

#[test]
fn the_factor_is_the_error_over_the_one_before() {
    let mut errors = vec![1e-3; 10];
    errors[4..].iter_mut().for_each(|e| *e = 0.5);
    assert_eq!(growth(&errors), Some(Growth::Break { at: 4, factor: 500.0 }));
}

proptest! {
    #[test]
    fn a_random_walk_is_noise_like(seed in any::<u64>(), points in 8_usize..120) {
        let got = growth(&noisy(seed, points));
        prop_assert!(matches!(got, Some(Growth::NoiseLike { exponent }) if exponent > 0.2), "{:?}", got);
    }

    #[test]
    fn a_walk_with_steps_of_unlike_sizes_is_noise_like(seed in any::<u64>(), points in 20_usize..120) {
        // Attention and experts take turns, one with twice the error of the other.
        let mut random = Pcg64::seed_from_u64(seed);
        let steps = (0..points).map(|i| {
            let size = if i % 2 == 0 { 1.0 } else { 2.0 };
            noise(&mut random).into_iter().map(|v| v * size).collect()
        });
        let got = growth(&walk(steps));
        prop_assert!(matches!(got, Some(Growth::NoiseLike { .. })), "{:?}", got);
    }

    #[test]
    fn steps_in_one_direction_are_coherent(seed in any::<u64>(), points in 8_usize..120, share in 0.0_f64..0.3) {
        let mut random = Pcg64::seed_from_u64(seed);
        let direction = noise(&mut random);
        let steps = (0..points).map(|_| {
            direction.iter().zip(noise(&mut random)).map(|(d, n)| d + share * n).collect()
        });
        let got = growth(&walk(steps));
        prop_assert!(matches!(got, Some(Growth::Coherent { .. })), "{:?}", got);
    }

    #[test]
    fn a_step_is_a_break_where_it_is(
        seed in any::<u64>(), points in 8_usize..120, place in 0.0_f64..1.0, size in 8.0_f64..1e4, drifts in any::<bool>(),
    ) {
        let at = 1 + (place * (points - 1) as f64) as usize;
        let mut random = Pcg64::seed_from_u64(seed);
        let direction = noise(&mut random);
        // As large as so many times all that came before it.
        let so_far = if drifts { at as f64 } else { (at as f64).sqrt() };
        let steps = (0..points).map(|i| {
            let step = if drifts { direction.clone() } else { noise(&mut random) };
            if i == at { noise(&mut random).into_iter().map(|v| v * size * so_far).collect() } else { step }
        });
        let got = growth(&walk(steps));
        // What drifts on for long enough outgrows a step, and is then both.
        prop_assume!(!drifts || (points - at) as f64 <= size * so_far / 4.0);
        prop_assert_eq!(break_at(got), Some(at), "{:?}", got);
    }

    #[test]
    fn nothing_makes_it_panic(errors in prop::collection::vec(prop_oneof![
        any::<f64>(), Just(0.0), Just(f64::NAN), Just(f64::INFINITY), 0.0_f64..1.0, Just(f64::MIN_POSITIVE), Just(f64::MAX),
    ], 0..40)) {
        if let Some(Growth::Break { at, .. }) = growth(&errors) {
            prop_assert!(at > 0 && at < errors.len());
        }
    }

    #[test]
    fn the_unit_of_the_error_does_not_matter(seed in any::<u64>(), scale in -100_i32..100) {
        let errors = noisy(seed, 60);
        let scaled: Vec<f64> = errors.iter().map(|e| e * 2_f64.powi(scale)).collect();
        prop_assert!((exponent(growth(&errors)) - exponent(growth(&scaled))).abs() < 1e-9);
    }
}
