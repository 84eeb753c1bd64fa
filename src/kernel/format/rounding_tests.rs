//! Every rule against exact arithmetic, and golden values.

use proptest::prelude::*;

use super::*;

#[test]
fn bf16_golden_values() {
    let check = |x: f32, bits: u16| assert_eq!(bf16::from_f32(x).to_bits(), bits, "{x}");
    check(1.0 + 0.5_f32.powi(8), 0x3f80);
    check(std::f32::consts::PI, 0x4049);
    check(0.1, 0x3dcd);
    check(f32::MAX, 0x7f80);
}

/// Nearest, ties to even, by exact arithmetic on the two neighbours of the format.
fn nearest_even(x: f32, kept: u32) -> f32 {
    let dropped = 23 - kept;
    let low = f32::from_bits(x.to_bits() >> dropped << dropped);
    let step = 1_u32 << dropped;
    let high = f32::from_bits(low.to_bits() + step);
    // Above the largest finite value the neighbour is 2^128, which f64 can hold.
    let high_exact = if high.is_infinite() { 2_f64.powi(128).copysign(f64::from(x)) } else { f64::from(high) };
    let (below, above) = ((f64::from(x) - f64::from(low)).abs(), (high_exact - f64::from(x)).abs());
    match below.total_cmp(&above) {
        std::cmp::Ordering::Less => low,
        std::cmp::Ordering::Equal if (low.to_bits() >> dropped) & 1 == 0 => low,
        std::cmp::Ordering::Greater | std::cmp::Ordering::Equal => high,
    }
}

/// Mantissas around every point where the rule can change its mind.
fn edge_mantissas() -> Vec<u32> {
    let mut all = Vec::new();
    for kept in [0_u32, 1, 2, 3, 0x155, 0x2aa, 0x3fe, 0x3ff] {
        for rest in [0_u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x0800, 0x1800] {
            all.push(kept << 13 | rest);
        }
    }
    all
}

#[test]
fn tf32_is_nearest_even_for_every_exponent() {
    for sign in [0_u32, 1] {
        for exponent in 0..255_u32 {
            for mantissa in edge_mantissas() {
                let x = f32::from_bits(sign << 31 | exponent << 23 | mantissa);
                assert_eq!(round_tf32(x).to_bits(), nearest_even(x, 10).to_bits(), "{:#x}", x.to_bits());
            }
        }
    }
}

#[test]
fn bf16_is_nearest_even_for_every_exponent() {
    for exponent in 0..255_u32 {
        for mantissa in edge_mantissas() {
            let x = f32::from_bits(exponent << 23 | mantissa);
            assert_eq!(round_bf16(x).to_bits(), nearest_even(x, 7).to_bits(), "{:#x}", x.to_bits());
        }
    }
}

#[test]
fn tf32_ties_go_to_even() {
    let ulp = 0.5_f32.powi(10);
    assert_eq!(round_tf32(1.0 + ulp / 2.0), 1.0);
    assert_eq!(round_tf32(1.0 + 1.5 * ulp), 1.0 + 2.0 * ulp);
    assert_eq!(round_tf32(-1.0 - ulp / 2.0), -1.0);
}

#[test]
fn tf32_keeps_specials_and_subnormals() {
    assert!(round_tf32(f32::NAN).is_nan());
    // A NaN whose payload sits in the dropped bits must not become infinite.
    assert!(round_tf32(f32::from_bits(0x7f80_0001)).is_nan());
    assert_eq!(round_tf32(f32::INFINITY), f32::INFINITY);
    assert_eq!(round_tf32(f32::NEG_INFINITY), f32::NEG_INFINITY);
    assert_eq!(round_tf32(f32::MAX), f32::INFINITY);
    assert_eq!(round_tf32(-0.0).to_bits(), (-0.0_f32).to_bits());
    assert_eq!(round_tf32(f32::from_bits(0x2000)), f32::from_bits(0x2000));
    assert_eq!(round_tf32(f32::from_bits(0x1000)), 0.0);
    assert_eq!(round_tf32(f32::from_bits(0x1001)), f32::from_bits(0x2000));
}

#[test]
fn f16_golden_values() {
    let check = |x: f32, expect: f32| assert_eq!(round_f16(x), expect, "{x}");
    check(65_519.0, 65_504.0);
    check(65_520.0, f32::INFINITY);
    check(0.5_f32.powi(25), 0.0);
    check(0.5_f32.powi(24), 0.5_f32.powi(24));
    check(1.0 + 0.5_f32.powi(11), 1.0);
}

#[test]
fn exact_leaves_a_value_alone() {
    assert_eq!(Rounding::Exact.round(std::f64::consts::PI), std::f64::consts::PI);
    assert!(Rounding::Bf16.round(f64::NAN).is_nan());
}

proptest! {
    #[test]
    fn rounding_twice_is_rounding_once(x in -1e30_f64..1e30) {
        for rule in [Rounding::Exact, Rounding::F32, Rounding::Tf32, Rounding::Bf16, Rounding::F16] {
            let once = rule.round(x);
            prop_assert_eq!(rule.round(once).to_bits(), once.to_bits());
        }
    }

    #[test]
    fn the_error_stays_within_the_unit(mantissa in 1.0_f32..2.0, exponent in -120_i32..120) {
        let x = f64::from(mantissa) * 2_f64.powi(exponent);
        for rule in [Rounding::F32, Rounding::Tf32, Rounding::Bf16] {
            prop_assert!((rule.round(x) - x).abs() <= rule.unit() * x.abs());
        }
    }

    #[test]
    fn rounding_keeps_order_and_sign(x in any::<f32>(), y in any::<f32>()) {
        let (a, b) = (x.min(y), x.max(y));
        for rule in [round_tf32, round_bf16, round_f16] {
            prop_assert!(rule(a) <= rule(b));
            prop_assert_eq!(rule(-a).to_bits(), (-rule(a)).to_bits());
        }
    }
}

#[test]
fn narrow_rules_golden_values() {
    let check = |rule: Rounding, x: f64, expect: f64| {
        let got = rule.round(x);
        assert!(got == expect || got.is_nan() && expect.is_nan(), "{} of {x} is {got}", rule.word());
    };
    check(Rounding::E4m3, 0.1, 0.101_562_5);
    check(Rounding::E4m3, 465.0, 448.0);
    check(Rounding::E4m3, f64::NEG_INFINITY, -448.0);
    check(Rounding::E4m3Unsaturated, 464.0, 448.0);
    check(Rounding::E4m3Unsaturated, 465.0, f64::NAN);
    check(Rounding::E5m2, 1e9, 57_344.0);
    check(Rounding::E5m2, 1.125, 1.0);
    check(Rounding::E2m1, 0.75, 1.0);
    check(Rounding::E2m1Strict, 0.75, 0.5);
    check(Rounding::E2m1, -100.0, -6.0);
}

#[test]
fn nan_stays_nan_even_where_no_code_holds_it() {
    for rule in Rounding::ALL {
        assert!(rule.round(f64::NAN).is_nan(), "{}", rule.word());
    }
}

proptest! {
    #[test]
    fn narrow_rounding_twice_is_rounding_once(x in -1000.0_f64..1000.0) {
        for rule in Rounding::ALL {
            let once = rule.round(x);
            prop_assert!(rule.round(once) == once || once.is_nan(), "{} {}", rule.word(), x);
        }
    }

    #[test]
    fn the_error_of_a_narrow_rule_stays_within_its_unit(x in 1.0_f64..6.0) {
        for rule in Rounding::ALL {
            // One f32 rounding comes first.
            let bound = (rule.unit() + Rounding::F32.unit()) * x;
            prop_assert!((rule.round(x) - x).abs() <= bound, "{} {}", rule.word(), x);
        }
    }
}
