use proptest::prelude::*;

use super::*;

#[test]
fn e4m3_golden_values() {
    let check = |x: f64, expect: f64| assert_eq!(round(Element::E4m3, x), expect, "{x}");
    check(0.1, 0.101_562_5);
    check(17.0, 16.0);
    check(1.1875, 1.25);
    check(2_f64.powi(-9), 2_f64.powi(-9));
    check(2_f64.powi(-10), 0.0);
    check(-300.0, -288.0);
    check(464.0, 448.0);
    check(465.0, 448.0);
    check(-1e9, -448.0);
    assert_eq!(encode(Element::E4m3, &ladder(Element::E4m3), 0.1), 0x1d);
    assert!(round(Element::E4m3, f64::NAN).is_nan());
}

#[test]
fn e2m1_golden_values() {
    let check = |x: f64, expect: f64| {
        assert_eq!(round(Element::E2m1, x), expect, "{x}");
        assert_eq!(round(Element::E2m1, -x), -expect, "{x}");
    };
    for (x, expect) in [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)] {
        check(x, expect);
    }
    check(5.01, 6.0);
    check(7.0, 6.0);
}

#[test]
fn every_code_comes_back_as_itself() {
    for element in [Element::E4m3, Element::E5m2, Element::E2m1] {
        let ladder = ladder(element);
        assert!(ladder.windows(2).all(|w| w[0] < w[1]));
        for (code, value) in ladder.iter().enumerate() {
            assert_eq!(encode(element, &ladder, *value), code as u8);
        }
    }
    assert_eq!(ladder(Element::E4m3).last(), Some(&448.0));
    assert_eq!(ladder(Element::E5m2).last(), Some(&57_344.0));
}

#[test]
fn mxfp4_exponents() {
    let check = |amax: f64, exponent: i32| {
        let rule = Rule::named("mxfp4").unwrap();
        assert_eq!(quantise(&[amax, 0.0], 2, rule).scales, [2_f64.powi(exponent)], "{amax}");
    };
    check(6.0, 0);
    check(6.01, 1);
    check(1e-3, -12);
    check(0.0, -126);
}

#[test]
fn a_power_of_two_is_rounded_up_and_stays_if_it_is_one() {
    assert_eq!(round_up_to_power_of_two(1.0), 1.0);
    assert_eq!(round_up_to_power_of_two(1.000_001), 2.0);
    assert_eq!(round_up_to_power_of_two(0.75), 1.0);
}

#[test]
fn blocks_at_the_edge_have_scales_of_their_own() {
    let rule = Rule { element: Element::E4m3, scales: Scales::F32, rows: 2, columns: 2 };
    let values = [1.0, 2.0, 30.0, 4.0, 5.0, 60.0, 700.0, 8.0, 9000.0];
    let got = quantise(&values, 3, rule);
    assert_eq!(got.across, 2);
    let expect = [5.0, 60.0, 700.0, 9000.0].map(|amax: f64| f32_of(amax / 448.0));
    assert_eq!(got.scales, [expect[0], expect[1], f32_of(700.0 / 448.0), expect[3]]);
    assert_eq!(got.blocks(3).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 1, 2, 2, 3]);
}

#[test]
fn nvfp4_has_two_scales_and_a_silent_block_stays_silent() {
    let rule = Rule::named("nvfp4").unwrap();
    let mut values = vec![0.0; 32];
    values[0] = 6.0 * 448.0;
    values[3] = 448.0;
    let got = quantise(&values, 32, rule);
    assert_eq!((got.second, got.scales.as_slice()), (1.0, [448.0, 0.0].as_slice()));
    assert_eq!(got.dequantise(), values);
    assert!(quantise(&[0.0; 16], 16, rule).dequantise().iter().all(|v| *v == 0.0));
}

#[test]
fn a_nan_reaches_its_block_and_no_other() {
    for word in ["fp8-1x128", "fp8-1x128-ue8m0", "mxfp4"] {
        let mut values = vec![1.0; 256];
        values[3] = f64::NAN;
        let got = quantise(&values, 256, Rule::named(word).unwrap()).dequantise();
        assert!(got[..4].iter().all(|v| v.is_nan()), "{word}");
        assert!(got[128..].iter().all(|v| (v - 1.0).abs() < 1e-6), "{word}");
    }
}

const WORDS: [&str; 6] = ["fp8-1x128", "fp8-1x128-ue8m0", "fp8-128x128", "fp8-128x128-ue8m0", "mxfp4", "nvfp4"];

proptest! {
    #[test]
    fn what_comes_back_is_within_half_a_step(values in prop::collection::vec(-50.0_f64..50.0, 256), word in 0_usize..6) {
        let rule = Rule::named(WORDS[word]).unwrap();
        let got = quantise(&values, 128, rule);
        let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        for ((block, x), y) in got.blocks(2).zip(&values).zip(got.dequantise()) {
            let scale = got.scales[block] * got.second;
            let step = match rule.element { Element::E2m1 => 2.0, Element::E4m3 | Element::E5m2 => 32.0 };
            prop_assert!((x - y).abs() <= scale * step / 2.0 + largest * 0.04, "{x} {y}");
            prop_assert!(x * y >= 0.0);
        }
    }

    #[test]
    fn what_was_quantised_once_does_not_change_again(values in prop::collection::vec(-50.0_f64..50.0, 128)) {
        for word in ["fp8-1x128-ue8m0", "mxfp4"] {
            let rule = Rule::named(word).unwrap();
            let once = quantise(&values, 128, rule).dequantise();
            prop_assert_eq!(quantise(&once, 128, rule).dequantise(), once);
        }
    }
}
