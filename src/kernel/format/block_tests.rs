//! Scales, grids and ends, and the faults that a scale can have.

use proptest::prelude::*;

use super::*;

const ROW: Span = Span::Of(1);
const FP8: BlockFormat = BlockFormat::fp8(ROW, Span::Of(128), ScaleRule::F32);
const FP8_POWER: BlockFormat = BlockFormat::fp8(ROW, Span::Of(128), ScaleRule::Ue8m0);
const MXFP4: BlockFormat = BlockFormat::mxfp4(Element::E2m1, Floor::SmallestNormal);
const MXFP4_DEEPGEMM: BlockFormat = BlockFormat::mxfp4(Element::E2m1Strict, Floor::TenThousandth);

fn stored(format: BlockFormat, values: &[f64], columns: usize) -> Vec<f64> {
    dequantise(&quantise(format, values, columns))
}

fn exponents(tensor: &Quantised) -> Vec<i32> {
    match &tensor.scales {
        Scales::Ue8m0(codes) => codes.iter().map(|code| i32::from(*code) - 127).collect(),
        Scales::F32(_) | Scales::E4m3 { .. } => panic!("no powers of two"),
    }
}

fn numbers(tensor: &Quantised) -> Vec<f32> {
    match &tensor.scales {
        Scales::F32(numbers) => numbers.clone(),
        Scales::Ue8m0(_) | Scales::E4m3 { .. } => panic!("no numbers"),
    }
}

/// One value at the place, zeros elsewhere.
fn spike(count: usize, at: usize, value: f64) -> Vec<f64> {
    (0..count).map(|i| if i == at { value } else { 0.0 }).collect()
}

#[test]
fn mxfp4_exponents_golden_values() {
    let check = |amax: f64, exponent: i32| {
        for format in [MXFP4, MXFP4_DEEPGEMM] {
            assert_eq!(exponents(&quantise(format, &spike(32, 5, amax), 32)), [exponent], "{amax}");
        }
    };
    check(6.0, 0);
    check(-6.0, 0);
    check(6.01, 1);
    check(1e-3, -12);
    check(f64::from(6.0_f32.next_up()), 1);
    check(f64::from(6.0_f32.next_down()), 0);
    check(12.0, 1);
}

#[test]
fn the_floors_of_mxfp4_differ_in_small_blocks_only() {
    let exponent = |format, amax| exponents(&quantise(format, &spike(32, 0, amax), 32))[0];
    assert_eq!((exponent(MXFP4, 0.0), exponent(MXFP4_DEEPGEMM, 0.0)), (-126, -15));
    assert_eq!((exponent(MXFP4, 1e-7), exponent(MXFP4_DEEPGEMM, 1e-7)), (-25, -15));
    assert_eq!((exponent(MXFP4, 2e-4), exponent(MXFP4_DEEPGEMM, 2e-4)), (-14, -14));
    // The larger floor loses what the smaller keeps.
    assert_eq!(stored(MXFP4_DEEPGEMM, &spike(32, 0, 1e-6), 32)[0], 0.0);
    assert!((stored(MXFP4, &spike(32, 0, 1e-6), 32)[0] - 1e-6).abs() < 3e-7);
}

#[test]
fn an_fp8_scale_is_amax_over_448_with_a_floor() {
    let check = |amax: f64, scale: f32, power: i32| {
        assert_eq!(numbers(&quantise(FP8, &spike(128, 9, amax), 128)), [scale], "{amax}");
        assert_eq!(exponents(&quantise(FP8_POWER, &spike(128, 9, amax), 128)), [power], "{amax}");
    };
    check(448.0, 1.0, 0);
    check(-896.0, 2.0, 1);
    check(f64::from(448.0_f32.next_up()), 448.0_f32.next_up() / 448.0, 1);
    check(1.0, 1.0 / 448.0, -8);
    check(1e-5, 1e-4 / 448.0, -22);
    check(0.0, 1e-4 / 448.0, -22);
}

#[test]
fn the_largest_magnitude_of_a_block_is_kept() {
    let values = [3.0, -7.5, 0.1];
    for format in [FP8, FP8_POWER, BlockFormat::fp8(ROW, Span::Whole, ScaleRule::F32)] {
        let got = stored(format, &values, 3);
        assert!((got[1] + 7.5).abs() <= 7.5 / 16.0, "{format:?} {got:?}");
    }
    assert!((stored(FP8, &values, 3)[1] + 7.5).abs() < 1e-6);
}

#[test]
fn blocks_lie_where_the_format_says() {
    // 3 rows of 5, blocks of 2 by 2: the right blocks have one column, the lower ones one row.
    let values: Vec<f64> = (1..=15).map(f64::from).collect();
    let format = BlockFormat::fp8(Span::Of(2), Span::Of(2), ScaleRule::F32);
    let amax = [7.0, 9.0, 10.0, 12.0, 14.0, 15.0_f32];
    assert_eq!(numbers(&quantise(format, &values, 5)), amax.map(|a| a / 448.0));
    let row = BlockFormat::fp8(ROW, Span::Whole, ScaleRule::F32);
    assert_eq!(numbers(&quantise(row, &values, 5)), [5.0, 10.0, 15.0_f32].map(|a| a / 448.0));
    let tensor = BlockFormat::fp8(Span::Whole, Span::Whole, ScaleRule::F32);
    assert_eq!(numbers(&quantise(tensor, &values, 5)), [15.0_f32 / 448.0]);
}

#[test]
fn a_short_last_row_and_no_columns() {
    assert_eq!(numbers(&quantise(FP8, &[1.0, 2.0, 4.0], 2)), [2.0_f32 / 448.0, 4.0 / 448.0]);
    assert_eq!(numbers(&quantise(FP8, &[1.0, 2.0, 4.0], 0)), [4.0_f32 / 448.0]);
    for format in [FP8, MXFP4, BlockFormat::NVFP4] {
        assert_eq!(stored(format, &[], 4), Vec::<f64>::new());
        assert_eq!(stored(format, &[], 0), Vec::<f64>::new());
    }
    assert_eq!(numbers(&quantise(BlockFormat::fp8(Span::Of(0), Span::Of(0), ScaleRule::F32), &[1.0, 2.0], 2)).len(), 2);
}

#[test]
fn an_end_is_scaled_as_if_zeros_followed() {
    let values: Vec<f64> = (0..2 * 40).map(|i| f64::from((i as f32 * 0.7).sin())).collect();
    for format in [FP8, FP8_POWER, MXFP4, BlockFormat::NVFP4] {
        let padded: Vec<f64> =
            values.chunks(40).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, 88))).collect();
        let got = stored(format, &values, 40);
        let expect = stored(format, &padded, 128);
        let rows = expect.chunks(128).flat_map(|row| &row[..40]);
        assert!(got.iter().eq(rows), "{format:?}");
    }
}

#[test]
fn an_infinity_or_nan_spoils_its_block_and_no_other() {
    let late = BlockFormat::fp8(ROW, Span::Of(128), ScaleRule::Ue8m0Late);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        for (format, width) in [(FP8, 128), (FP8_POWER, 128), (late, 128), (MXFP4, 32), (MXFP4_DEEPGEMM, 32)] {
            let mut values = vec![1.0; 2 * width];
            values[3] = bad;
            let got = stored(format, &values, 2 * width);
            assert!(got[..width].iter().all(|v| v.is_nan()), "{format:?} {bad}");
            assert!(got[width..].iter().all(|v| v.is_finite()), "{format:?} {bad}");
        }
        // The tensor's scale carries it into every block.
        let mut values = vec![6.0; 64];
        values[3] = bad;
        assert!(stored(BlockFormat::NVFP4, &values, 64).iter().all(|v| v.is_nan()), "{bad}");
        // One from elsewhere does not.
        let got = dequantise(&quantise_scaled(BlockFormat::NVFP4, &values, 64, 1.0));
        assert!(got[..16].iter().all(|v| v.is_nan()) && got[16..].iter().all(|v| *v == 6.0), "{bad} {got:?}");
    }
}

#[test]
fn a_scale_rounded_up_late_is_one_factor_for_the_block() {
    let values: Vec<f64> = (0..128).map(|i| f64::from((i as f32 * 0.37).sin())).collect();
    let late = BlockFormat::fp8(ROW, Span::Of(128), ScaleRule::Ue8m0Late);
    let exact = quantise(FP8, &values, 128);
    let wrong = quantise(late, &values, 128);
    assert_eq!(exact.codes, wrong.codes);
    let factor = 2_f64.powi(exponents(&wrong)[0]) / f64::from(numbers(&exact)[0]);
    assert!(factor > 1.0 && factor < 2.0, "{factor}");
    for (right, got) in dequantise(&exact).iter().zip(dequantise(&wrong)) {
        assert!((got - right * factor).abs() <= 1e-15 * right.abs(), "{got} {right}");
    }
    // Rounded up in time, the scale costs a bit of range and no factor.
    let off = |got: &[f64]| {
        let dot: f64 = got.iter().zip(&values).map(|(a, b)| a * b).sum();
        dot / values.iter().map(|v| v * v).sum::<f64>() - 1.0
    };
    assert!(off(&stored(FP8_POWER, &values, 128)).abs() < 0.01);
    assert!((off(&stored(late, &values, 128)) - (factor - 1.0)).abs() < 0.01);
}

#[test]
fn nvfp4_has_two_scales() {
    let mut values = vec![1.0; 32];
    values[0] = 2688.0;
    let tensor = quantise(BlockFormat::NVFP4, &values, 32);
    let Scales::E4m3 { blocks, tensor: scale } = &tensor.scales else { panic!("{tensor:?}") };
    assert_eq!(*scale, 1.0);
    // 448, and 1/6 rounded to e4m3: 0.171875.
    assert_eq!(blocks.iter().map(|b| fp8::decode_e4m3(*b)).collect::<Vec<_>>(), [448.0, 0.171_875]);
    let got = dequantise(&tensor);
    assert_eq!((got[0], got[1], got[16]), (2688.0, 0.0, 6.0 * 0.171_875));
}

#[test]
fn nvfp4_loses_a_block_that_is_too_small_beside_the_tensor() {
    let mut values = vec![1e-3; 32];
    values[0] = 2688.0;
    assert_eq!(stored(BlockFormat::NVFP4, &values, 32)[16..], [0.0; 16]);
    assert_eq!(stored(BlockFormat::NVFP4, &[0.0; 20], 20), [0.0; 20]);
}

#[test]
fn an_input_scale_that_is_too_small_cuts_large_values() {
    let values = spike(16, 2, 10_000.0);
    let got = dequantise(&quantise_scaled(BlockFormat::NVFP4, &values, 16, 1.0));
    assert_eq!(got[2], 2688.0);
    assert_eq!(stored(BlockFormat::NVFP4, &values, 16)[2], f64::from(10_000.0_f32 / 2688.0) * 2688.0);
}

#[test]
fn quantising_mxfp4_afresh_as_nvfp4_loses() {
    // The largest magnitude of this block is 4 in units of its scale.
    let values = [4.0, 3.0, 1.0, 0.5].repeat(8);
    assert_eq!(stored(MXFP4, &values, 32), values);
    assert_ne!(stored(BlockFormat::NVFP4, &values, 32), values);
    assert_eq!(dequantise(&nvfp4_of_mxfp4(&quantise(MXFP4, &values, 32)).unwrap()), values);
}

#[test]
fn mxfp4_has_no_lossless_nvfp4_beyond_17_powers_of_two() {
    let check = |exponent: i32, fits: bool| {
        let mut values = spike(64, 0, 6.0);
        values[32] = 6.0 * 2_f64.powi(exponent);
        let mxfp4 = quantise(MXFP4, &values, 64);
        assert_eq!(exponents(&mxfp4), [0, exponent]);
        let nvfp4 = nvfp4_of_mxfp4(&mxfp4);
        assert_eq!(nvfp4.is_some(), fits, "{exponent}");
        assert!(nvfp4.is_none_or(|tensor| dequantise(&tensor) == values));
    };
    check(17, true);
    check(-17, true);
    check(18, false);
    check(-18, false);
}

#[test]
fn a_block_of_zeros_does_not_stand_in_the_way_and_nan_stays() {
    let zeros = nvfp4_of_mxfp4(&quantise(MXFP4, &spike(64, 0, 6.0), 64)).unwrap();
    assert_eq!(dequantise(&zeros), spike(64, 0, 6.0));
    let mut values = spike(64, 0, 6.0);
    values[40] = f64::NAN;
    let got = dequantise(&nvfp4_of_mxfp4(&quantise(MXFP4, &values, 64)).unwrap());
    assert!(got[..32] == values[..32] && got[32..].iter().all(|v| v.is_nan()));
    assert!(nvfp4_of_mxfp4(&quantise(FP8_POWER, &values, 64)).is_none());
    assert!(nvfp4_of_mxfp4(&quantise(BlockFormat::NVFP4, &values, 64)).is_none());
}

proptest! {
    #[test]
    fn mxfp4_as_nvfp4_is_lossless_while_its_scales_are_in_range(
        codes in prop::collection::vec(0_u8..16, 1..200),
        columns in 1_usize..90,
        top in -100_i32..100,
        below in prop::collection::vec(0_i32..=17, 200),
    ) {
        let grid = Grid::new(MXFP4, codes.len(), columns);
        let scales = below[..grid.blocks].iter().map(|b| (top - b + 127) as u8).collect();
        let mxfp4 = Quantised { format: MXFP4, columns, codes, scales: Scales::Ue8m0(scales) };
        let nvfp4 = nvfp4_of_mxfp4(&mxfp4).unwrap();
        prop_assert_eq!(nvfp4.format, BlockFormat::NVFP4);
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        prop_assert!(dequantise(&mxfp4).iter().zip(&dequantise(&nvfp4)).all(same));
    }

    #[test]
    fn an_error_stays_within_half_a_step_of_the_block(
        values in prop::collection::vec(-100.0_f64..100.0, 1..300), columns in 1_usize..140,
    ) {
        // The widest gap between neighbours, in units of the scale, halved; and a power of two that
        // was rounded up makes it at most twice as wide.
        let half_step = |format: BlockFormat| if format.element == Element::E4m3 { 16.0 } else { 1.0 };
        for format in [FP8, FP8_POWER, MXFP4, MXFP4_DEEPGEMM] {
            let tensor = quantise(format, &values, columns);
            let got = dequantise(&tensor);
            let grid = Grid::new(format, values.len(), columns);
            for (block, run) in grid.runs(values.len()) {
                let scale = scale_of(&tensor.scales, block);
                for (a, b) in got[run.clone()].iter().zip(&values[run]) {
                    prop_assert!((a - b).abs() <= half_step(format) * scale * (1.0 + 1e-6), "{:?} {} {}", format, a, b);
                }
            }
        }
    }

    #[test]
    fn a_power_of_two_scale_never_saturates(values in prop::collection::vec(-1e4_f64..1e4, 1..300)) {
        for format in [FP8_POWER, MXFP4] {
            let tensor = quantise(format, &values, values.len());
            let grid = Grid::new(format, values.len(), values.len());
            for (block, run) in grid.runs(values.len()) {
                let largest = f64::from(format.element.largest()) * scale_of(&tensor.scales, block);
                prop_assert!(values[run].iter().all(|v| f64::from(*v as f32).abs() <= largest));
            }
        }
    }

    #[test]
    fn runs_cover_every_element_once(
        count in 0_usize..200, columns in 0_usize..30, rows in 0_usize..5, width in 0_usize..40,
    ) {
        let grid = Grid::new(BlockFormat::fp8(Span::Of(rows), Span::Of(width), ScaleRule::F32), count, columns);
        let mut seen = vec![0; count];
        for (block, run) in grid.runs(count) {
            prop_assert!(block < grid.blocks);
            run.for_each(|i| seen[i] += 1);
        }
        prop_assert!(seen.iter().all(|times| *times == 1));
    }
}
