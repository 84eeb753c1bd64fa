//! Every code, every midpoint and their neighbours, against exact arithmetic.

use proptest::prelude::*;

use super::*;

/// The value of a code by the definition of the format: bits of mantissa, and bias of the exponent.
fn by_definition(code: u8, mantissa_bits: u32, bias: i32) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((code & 0x7f) >> mantissa_bits);
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1));
    let one = 2_f64.powi(mantissa_bits as i32);
    let magnitude = match exponent {
        0 => mantissa / one * 2_f64.powi(1 - bias),
        _ => (one + mantissa) / one * 2_f64.powi(exponent - bias),
    };
    sign * magnitude
}

fn e4m3_by_definition(code: u8) -> f64 {
    if code & 0x7f == 0x7f { f64::NAN } else { by_definition(code, 3, 7) }
}

fn e5m2_by_definition(code: u8) -> f64 {
    match code & 0x7f {
        0x7c => f64::INFINITY.copysign(if code & 0x80 == 0 { 1.0 } else { -1.0 }),
        0x7d.. => f64::NAN,
        _ => by_definition(code, 2, 15),
    }
}

fn same(a: f64, b: f64) -> bool {
    a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits()
}

#[test]
fn every_code_decodes_to_its_definition() {
    for code in 0..=255 {
        assert!(same(f64::from(decode_e4m3(code)), e4m3_by_definition(code)), "e4m3 {code:#x}");
        assert!(same(f64::from(decode_e5m2(code)), e5m2_by_definition(code)), "e5m2 {code:#x}");
    }
}

#[test]
fn every_number_encodes_to_its_code() {
    for code in 0..=255 {
        for overflow in [Overflow::Saturate, Overflow::Special] {
            if !decode_e4m3(code).is_nan() {
                assert_eq!(encode_e4m3(decode_e4m3(code), overflow), code);
            }
            if decode_e5m2(code).is_finite() {
                assert_eq!(encode_e5m2(decode_e5m2(code), overflow), code);
            }
        }
    }
}

/// Checks a midpoint and its neighbours; `low` is the code below it, and all codes lie in order.
fn check_midpoint(low: u8, middle: f32, encode: fn(f32) -> u8) {
    let even = low + (low & 1);
    for (sign, bit) in [(1.0, 0), (-1.0, 0x80)] {
        assert_eq!(encode(sign * middle), bit | even, "tie {}", sign * middle);
        assert_eq!(encode(sign * middle.next_down()), bit | low, "below {}", sign * middle);
        assert_eq!(encode(sign * middle.next_up()), bit | (low + 1), "above {}", sign * middle);
    }
}

#[test]
fn e4m3_is_nearest_even_at_every_midpoint() {
    for low in 0..0x7e {
        let middle = f32::midpoint(decode_e4m3(low), decode_e4m3(low + 1));
        check_midpoint(low, middle, |x| encode_e4m3(x, Overflow::Saturate));
        check_midpoint(low, middle, |x| encode_e4m3(x, Overflow::Special));
    }
    check_midpoint(0x7e, E4M3_TIE, |x| encode_e4m3(x, Overflow::Special));
}

#[test]
fn e5m2_is_nearest_even_at_every_midpoint() {
    for low in 0..0x7b {
        let middle = f32::midpoint(decode_e5m2(low), decode_e5m2(low + 1));
        check_midpoint(low, middle, |x| encode_e5m2(x, Overflow::Saturate));
        check_midpoint(low, middle, |x| encode_e5m2(x, Overflow::Special));
    }
    check_midpoint(0x7b, E5M2_TIE, |x| encode_e5m2(x, Overflow::Special));
}

#[test]
fn a_neighbour_of_a_number_is_that_number() {
    for code in 1..0x7e {
        for x in [decode_e4m3(code).next_up(), decode_e4m3(code).next_down()] {
            assert_eq!(encode_e4m3(x, Overflow::Special), code, "{x}");
        }
    }
    for code in 1..0x7b {
        for x in [decode_e5m2(code).next_up(), decode_e5m2(code).next_down()] {
            assert_eq!(encode_e5m2(x, Overflow::Special), code, "{x}");
        }
    }
}

#[test]
fn e4m3_golden_values() {
    let check = |x: f64, expect: f64| {
        assert_eq!(f64::from(decode_e4m3(encode_e4m3(x as f32, Overflow::Saturate))), expect, "{x}");
    };
    check(0.1, 0.101_562_5);
    check(17.0, 16.0);
    check(1.1875, 1.25);
    check(2_f64.powi(-9), 2_f64.powi(-9));
    check(2_f64.powi(-10), 0.0);
    check(-300.0, -288.0);
    assert_eq!(encode_e4m3(0.1, Overflow::Saturate), 0x1d);
    assert_eq!(encode_e4m3(2_f32.powi(-9), Overflow::Saturate), 0x01);
}

#[test]
fn a_cast_that_does_not_saturate_turns_465_into_nan() {
    let check = |x: f32, saturated: u8, special: u8| {
        assert_eq!(encode_e4m3(x, Overflow::Saturate), saturated, "{x}");
        assert_eq!(encode_e4m3(x, Overflow::Special), special, "{x}");
    };
    check(448.0, 0x7e, 0x7e);
    check(464.0, 0x7e, 0x7e);
    check(464.0_f32.next_up(), 0x7e, 0x7f);
    check(465.0, 0x7e, 0x7f);
    check(-465.0, 0xfe, 0xff);
    check(f32::INFINITY, 0x7e, 0x7f);
    check(f32::NEG_INFINITY, 0xfe, 0xff);
    check(f32::MAX, 0x7e, 0x7f);
}

#[test]
fn e5m2_overflows_into_infinity_or_its_largest_number() {
    let check = |x: f32, saturated: u8, special: u8| {
        assert_eq!(encode_e5m2(x, Overflow::Saturate), saturated, "{x}");
        assert_eq!(encode_e5m2(x, Overflow::Special), special, "{x}");
    };
    check(57_344.0, 0x7b, 0x7b);
    check(61_440.0_f32.next_down(), 0x7b, 0x7b);
    check(61_440.0, 0x7b, 0x7c);
    check(-1e9, 0xfb, 0xfc);
    check(f32::INFINITY, 0x7b, 0x7c);
}

#[test]
fn nan_stays_nan_and_zero_keeps_its_sign() {
    for overflow in [Overflow::Saturate, Overflow::Special] {
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
            assert!(decode_e4m3(encode_e4m3(nan, overflow)).is_nan());
            assert!(decode_e5m2(encode_e5m2(nan, overflow)).is_nan());
        }
        assert_eq!((encode_e4m3(-0.0, overflow), encode_e5m2(-0.0, overflow)), (0x80, 0x80));
        assert_eq!((encode_e4m3(-1e-30, overflow), encode_e5m2(-1e-30, overflow)), (0x80, 0x80));
        assert_eq!((encode_e4m3(f32::from_bits(1), overflow), encode_e5m2(f32::from_bits(1), overflow)), (0, 0));
    }
}

/// The nearest code by trying all of them, ties to the even one.
fn by_search(x: f32, largest: u8, value: fn(u8) -> f64) -> u8 {
    // Beyond both formats, where f64 could still tell the neighbours apart.
    let magnitude = f64::from(x.abs()).min(1e6);
    let nearest = (0..=largest)
        .min_by(|a, b| {
            let off = |code: u8| (value(code) - magnitude).abs();
            off(*a).total_cmp(&off(*b)).then((a & 1).cmp(&(b & 1)))
        })
        .unwrap();
    nearest | if x.is_sign_negative() { 0x80 } else { 0 }
}

proptest! {
    #[test]
    fn any_number_goes_to_the_nearest_code(bits in any::<u32>(), mantissa in -2.0_f32..2.0, exponent in -20_i32..20) {
        for x in [f32::from_bits(bits), mantissa * 2_f32.powi(exponent)] {
            prop_assume!(!x.is_nan());
            prop_assert_eq!(encode_e4m3(x, Overflow::Saturate), by_search(x, 0x7e, e4m3_by_definition), "{}", x);
            prop_assert_eq!(encode_e5m2(x, Overflow::Saturate), by_search(x, 0x7b, e5m2_by_definition), "{}", x);
        }
    }
}
