//! Every code, every midpoint and their neighbours, and the order of nibbles.

use proptest::prelude::*;

use super::*;

#[test]
fn every_code_decodes_to_its_definition() {
    for code in 0..16_u8 {
        let (exponent, mantissa) = (i32::from(code >> 1 & 3), f64::from(code & 1));
        let magnitude = match exponent {
            0 => mantissa / 2.0,
            _ => (1.0 + mantissa / 2.0) * 2_f64.powi(exponent - 1),
        };
        let value = if code & 8 == 0 { magnitude } else { -magnitude };
        assert_eq!(f64::from(decode_e2m1(code)).to_bits(), value.to_bits(), "{code:#x}");
        assert_eq!(F4E2M1::from_bits(code).to_f64().to_bits(), value.to_bits(), "float4 {code:#x}");
    }
}

#[test]
fn every_number_encodes_to_its_code() {
    for code in 0..16 {
        assert_eq!(encode_e2m1(decode_e2m1(code), Ties::Even), code);
        let without_negative_zero = if code == 8 { 0 } else { code };
        assert_eq!(encode_e2m1(decode_e2m1(code), Ties::TowardZero), without_negative_zero);
    }
}

#[test]
fn midpoints_lie_half_way() {
    for low in 0..7_u8 {
        assert_eq!(MIDPOINTS[usize::from(low)], f32::midpoint(decode_e2m1(low), decode_e2m1(low + 1)));
    }
}

#[test]
fn both_rules_at_every_midpoint_and_its_neighbours() {
    for low in 0..7_u8 {
        let middle = MIDPOINTS[usize::from(low)];
        let negative = |code: u8| code | 8;
        for (ties, tie) in [(Ties::Even, low + (low & 1)), (Ties::TowardZero, low)] {
            let check = |x: f32, code: u8| {
                assert_eq!(encode_e2m1(x, ties), code, "{ties:?} {x}");
                let mirrored = if code == 0 && ties == Ties::TowardZero { 0 } else { negative(code) };
                assert_eq!(encode_e2m1(-x, ties), mirrored, "{ties:?} {}", -x);
            };
            check(middle, tie);
            check(middle.next_down(), low);
            check(middle.next_up(), low + 1);
            check(decode_e2m1(low + 1).next_down(), low + 1);
            check(decode_e2m1(low + 1).next_up(), low + 1);
        }
    }
}

#[test]
fn e2m1_golden_values() {
    let cases = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.01];
    let check = |ties: Ties, expect: [f32; 8]| {
        assert_eq!(cases.map(|x| decode_e2m1(encode_e2m1(x, ties))), expect, "{ties:?}");
    };
    check(Ties::Even, [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0]);
    check(Ties::TowardZero, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
}

#[test]
fn the_rules_differ_at_three_ties_and_at_negative_zero_only() {
    let differ: Vec<f32> =
        MIDPOINTS.into_iter().filter(|x| encode_e2m1(*x, Ties::Even) != encode_e2m1(*x, Ties::TowardZero)).collect();
    assert_eq!(differ, [0.75, 1.75, 3.5]);
    assert_eq!((encode_e2m1(-0.0, Ties::Even), encode_e2m1(-0.0, Ties::TowardZero)), (8, 0));
    assert_eq!((encode_e2m1(-0.1, Ties::Even), encode_e2m1(-0.1, Ties::TowardZero)), (8, 0));
}

#[test]
fn what_has_no_code() {
    for ties in [Ties::Even, Ties::TowardZero] {
        let check = |x: f32, code: u8| assert_eq!(encode_e2m1(x, ties), code, "{ties:?} {x}");
        check(1e30, 7);
        check(f32::INFINITY, 7);
        check(f32::NEG_INFINITY, 15);
        check(f32::NAN, 7);
        check(-f32::NAN, 7);
    }
}

#[test]
fn the_low_nibble_comes_first() {
    assert_eq!(pack_nibbles(&[0x1, 0xf, 0x7]), [0xf1, 0x07]);
    assert_eq!(unpack_nibbles(&[0xf1, 0x07], 3), [0x1, 0xf, 0x7]);
    assert_eq!(unpack_nibbles(&[0xf1], 9), [0x1, 0xf]);
    let values = unpack_nibbles(&[0x52], 2).into_iter().map(decode_e2m1);
    assert_eq!(values.collect::<Vec<_>>(), [1.0, 3.0]);
}

#[test]
fn float4_packs_the_same_way() {
    for byte in 0..=255_u8 {
        let pair = float4::F4E2M1x2::from_bits(byte);
        assert_eq!(unpack_nibbles(&[byte], 2), [pair.lo().to_bits(), pair.hi().to_bits()]);
    }
}

proptest! {
    #[test]
    fn packing_and_unpacking_is_nothing(codes in prop::collection::vec(0_u8..16, 0..40)) {
        let bytes = pack_nibbles(&codes);
        prop_assert_eq!(bytes.len(), codes.len().div_ceil(2));
        prop_assert_eq!(unpack_nibbles(&bytes, codes.len()), codes);
    }

    #[test]
    fn any_number_goes_to_a_nearest_code(bits in any::<u32>(), small in -8.0_f32..8.0) {
        for x in [f32::from_bits(bits), small] {
            prop_assume!(!x.is_nan());
            let off = |code: u8| (f64::from(decode_e2m1(code)) - f64::from(x).clamp(-100.0, 100.0)).abs();
            let least = (0..16).map(off).fold(f64::INFINITY, f64::min);
            for ties in [Ties::Even, Ties::TowardZero] {
                prop_assert_eq!(off(encode_e2m1(x, ties)), least, "{:?} {}", ties, x);
            }
        }
    }
}
