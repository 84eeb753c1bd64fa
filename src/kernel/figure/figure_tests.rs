use proptest::prelude::*;

use super::*;
use crate::kernel::report::{Curve, Row};

fn report() -> MicroReport {
    sample::report()
}

fn curve(mode: CurveMode, rel_l2: &[f64]) -> Curve {
    let labels = (0..rel_l2.len()).map(|i| format!("site {i}")).collect();
    Curve { candidate: "bf16".into(), mode, labels, rel_l2: rel_l2.to_vec(), ..Curve::default() }
}

#[test]
fn the_band_of_the_main_part_stands_behind_the_candidates() {
    let [alone, whole, single] = figures(&report());
    assert_eq!(alone.title, "mhc-mix on cpu, each site alone");
    assert_eq!(alone.y_label, "relative L2 error of the new streams");
    assert_eq!(alone.series[0].style, Style::Candidate(Some(ErrorClass::AboveFloor)));
    assert_eq!((alone.bands.len(), whole.bands.len(), single.series.len()), (1, 1, 0));
    assert_eq!(alone.bands[0].members, ["bf16-output", "input-ulp", "batch-17"]);
    assert!(alone.bands[0].low[0] < alone.bands[0].high[0]);
    assert_eq!(alone.decades(), Some((-4, -1)));
}

#[test]
fn an_older_report_has_its_floor_as_an_edge_without_a_lower_one() {
    let old = MicroReport {
        curves: vec![curve(CurveMode::PerSite, &[3e-4, 4e-4])],
        floor: vec![curve(CurveMode::PerSite, &[1.6e-3, 1.7e-3])],
        ..MicroReport::default()
    };
    let figure = figure(&old, CurveMode::PerSite, false);
    assert_eq!(figure.bands[0].high, [1.6e-3, 1.7e-3]);
    assert!(figure.bands[0].low.iter().all(|v| v.is_nan()));
    assert_eq!((figure.above(&figure.series[0]), figure.y_label.as_str()), (Some(0), "relative L2 error"));
    assert_eq!((figure.decades(), main_part(&old)), (Some((-4, -2)), ""));
}

#[test]
fn points_that_no_logarithm_has_are_gaps_and_said() {
    let report =
        MicroReport { curves: vec![curve(CurveMode::Compounded, &[0.0, f64::NAN, 1e-3])], ..MicroReport::default() };
    let whole = figure(&report, CurveMode::Compounded, false);
    assert_eq!([0, 1, 2, 3].map(|i| whole.series[0].point(i)), [None, None, Some(1e-3), None]);
    assert_eq!(whole.notes, ["bf16: points not drawn: 1 exactly zero, 1 not finite"]);
    assert_eq!(whole.above(&whole.series[0]), None);
}

#[test]
fn twins_come_only_when_wanted_and_a_missed_one_is_said_before_all_verdicts() {
    let mut report = report();
    assert_eq!(figure(&report, CurveMode::PerSite, false).series.len(), 3);
    let with = figure(&report, CurveMode::PerSite, true);
    assert_eq!((with.series[3].style, with.decades()), (Style::Twin, Some((-4, 1))));
    assert!(report_notes(&report)[0].starts_with("bf16: above floor."));
    report.controls[0].caught = false;
    assert!(report_notes(&report)[0].starts_with("worthless: the test missed its known-bad twin transposed"));
}

#[test]
fn above_the_band_means_what_the_verdicts_mean() {
    let check = |error: f64, expect: bool| assert_eq!(is_above(error, 1e-3), expect, "{error}");
    check(1.005e-3, false);
    check(1.02e-3, true);
    check(f64::NAN, true);
    check(f64::INFINITY, true);
    check(0.0, false);
}

#[test]
fn an_overlay_names_what_tells_the_reports_apart() {
    let (first, mut gpu, mut later) = (report(), report(), report());
    gpu.device = "cuda:0".into();
    later.at = "2026-05-02T08:30:00Z".parse().unwrap();
    let names = |reports: &[&MicroReport]| -> Vec<String> {
        overlay(reports, CurveMode::PerSite, false).series.into_iter().map(|s| s.name).collect()
    };
    assert_eq!(names(&[&first])[0], "bf16");
    let two = names(&[&first, &gpu]);
    assert_eq!((two.len(), two[0].as_str(), two[3].as_str()), (6, "bf16 (cpu)", "bf16 (cuda:0)"));
    assert_eq!(names(&[&first, &later])[3], "bf16 (cpu, 05-02 08:30)");
    let figure = overlay(&[&first, &gpu], CurveMode::PerSite, false);
    assert_eq!((figure.bands.len(), figure.series[4].report), (2, 1));
    assert_eq!(figure.band_of(&figure.series[4]).unwrap().report, 1);
}

#[test]
fn a_report_of_other_points_is_not_laid_over_and_that_is_said() {
    let (first, mut other) = (report(), report());
    other.device = "cuda:0".into();
    other.curves.iter_mut().for_each(|c| c.labels[0] = "elsewhere".into());
    let figure = overlay(&[&first, &other], CurveMode::PerSite, false);
    assert_eq!((figure.series.len(), figure.bands.len()), (3, 1));
    assert!(figure.notes.contains(&"(cuda:0) has other points and is not drawn".to_owned()), "{:?}", figure.notes);
}

#[test]
fn a_window_cuts_everything_alike() {
    let figure = figure(&report(), CurveMode::Compounded, false).window(&(4..7));
    assert_eq!((figure.points(), figure.x_labels.len(), figure.bands[0].low.len()), (3, 3, 3));
    assert_eq!(figure.x_labels[0], "layer 2 attention");
    assert!(figure.series[0].values[1].is_nan());
    assert_eq!(figure.window(&(9..20)).points(), 0);
}

#[test]
fn the_bins_of_a_histogram_have_no_hole() {
    let histogram = histogram(&report(), "new-streams").unwrap();
    assert_eq!(histogram.bin_names(), ["exact", "1e-7", "1e-6", "1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "1e0"]);
    assert_eq!(histogram.bars.len(), 3);
    assert!((histogram.bars[0].shares().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(super::histogram(&report(), "nothing"), None);
}

#[test]
fn elements_that_are_in_no_bin_are_said() {
    let mut report = report();
    report.spreads[1].elements += 7;
    let histogram = histogram(&report, "new-streams").unwrap();
    assert_eq!(histogram.notes, ["bf16: 7 elements in no bin: not a number"]);
}

#[test]
fn a_cell_without_a_row_is_not_one_that_is_not_a_number() {
    let mut report = report();
    // The error of point 3 is a number, so its NaN is a row that is not there.
    assert_eq!(heat_map(&report, "bf16").unwrap().values[3][20], None);
    report.curves[0].rel_l2[3] = f64::NAN;
    let map = heat_map(&report, "bf16").unwrap();
    assert!(map.values[3][20].unwrap().is_nan());
    assert_eq!(map.notes, ["each cell is the greatest error of 4 tokens", "cells that are not finite, crossed out: 1"]);
    assert!(map.hottest(3).unwrap().error.is_nan());
    let hottest = map.hottest(0).unwrap();
    assert_eq!(hottest.row, 20);
    assert!(hottest.error > 9.0 * hottest.median, "{hottest:?}");
}

#[test]
fn a_coarse_cell_keeps_the_worst_of_what_it_covers() {
    let mut report = report();
    report.heats[0].values = vec![Row(vec![1.0, 9.0, 2.0, f64::NAN]), Row(vec![3.0, 4.0, 5.0, f64::NAN])];
    report.heats[0].columns = vec![0, 4, 8, 12];
    let map = heat_map(&report, "bf16").unwrap();
    assert_eq!(map.grid(&(0..2), 9, 2), [[Some(9.0), Some(4.0)], [Some(2.0), Some(5.0)]]);
    assert_eq!(map.grid(&(0..2), 1, 1), [[Some(9.0)]]);
    assert_eq!(map.grid(&(1..2), 9, 4)[3], [None]);
    assert_eq!(map.grid_rows(2), [0, 8]);
    report.curves.clear();
    let map = heat_map(&report, "bf16").unwrap();
    assert!(map.grid(&(0..2), 1, 2)[1][0].unwrap().is_nan());
}

#[test]
fn an_empty_report_has_no_picture_and_no_table() {
    let empty = MicroReport::default();
    assert_eq!((pictures(&empty).len(), sheet(&empty).len(), table::tables(&empty).len()), (0, 0, 0));
    assert_eq!(figure(&empty, CurveMode::PerSite, true).decades(), None);
}

#[test]
fn every_picture_of_a_report_has_its_own_file() {
    let stems: Vec<String> = pictures(&report()).iter().map(Picture::file_stem).collect();
    let expect = [
        "per-site",
        "compounded",
        "part-mixes",
        "histogram-mixes",
        "histogram-new-streams",
        "heat-bf16",
        "heat-scale-twice",
    ];
    assert_eq!(stems, expect);
    assert_eq!(plain("../a b"), "a-b");
}

#[test]
fn a_sheet_shows_the_heat_map_of_the_worst_candidate() {
    let stems: Vec<String> = sheet(&report()).iter().map(Picture::file_stem).collect();
    assert_eq!(stems, ["per-site", "compounded", "histogram-new-streams", "heat-scale-twice"]);
}

#[test]
fn tables_keep_what_is_not_a_number_and_what_is_unknown() {
    let tables = table::tables(&report());
    for t in &tables {
        assert!(t.rows.iter().all(|r| r.len() == t.heading.len()), "{}", t.title);
    }
    let whole = table::errors(&report(), CurveMode::Compounded);
    assert_eq!(whole.rows[1], ["bf16", "NaN", "NaN", "2.72e-3", "NaN", "12/12", "6"]);
    let mut bare = report();
    bare.bands.clear();
    bare.floor.clear();
    bare.curves[0].calc_diff.clear();
    assert_eq!(table::errors(&bare, CurveMode::PerSite).rows[0][3..6], ["-", "-", "-"]);
    let sets = table::sets(&report());
    assert_eq!(sets[0].title, "sets: 64 keys kept by each of 256 rows, median margin at the cut 3.10e-3");
    assert_eq!(sets[0].rows[2], ["scale-twice", "91.00 %", "86.00 %", "80/256", "44", "30/32"]);
}

#[test]
fn causes_without_a_visible_share_are_left_out_and_unknown_ones_are_not() {
    let mut report = report();
    report.causes[1].share = 0.004;
    report.causes[2].share = f64::NAN;
    let rows = table::causes(&report).rows;
    assert_eq!(rows.iter().map(|r| r[4].as_str()).collect::<Vec<_>>(), ["62 %", "unknown"]);
}

proptest! {
    #[test]
    fn decades_hold_every_drawable_value(values in prop::collection::vec(prop::num::f64::ANY, 0..20)) {
        let found = decades(values.iter().copied());
        prop_assert_eq!(found.is_some(), values.iter().any(|v| drawable(*v)));
        if let Some((low, high)) = found {
            prop_assert!(low < high);
            for v in values.into_iter().filter(|v| drawable(*v)) {
                prop_assert!(v.log10() >= f64::from(low) && v.log10() <= f64::from(high));
            }
        }
    }

    #[test]
    fn every_cell_of_a_map_is_in_one_cell_of_its_grid(points in 1usize..9, rows in 1usize..9, w in 1usize..12, h in 1usize..12) {
        let mut report = MicroReport::default();
        let value = |p: usize, r: usize| (p * 100 + r + 1) as f64;
        report.heats.push(crate::kernel::report::Heat {
            candidate: "c".into(),
            lines: vec![String::new(); points],
            column: "row".into(),
            columns: (0..rows as u64).collect(),
            values: (0..points).map(|p| Row((0..rows).map(|r| value(p, r)).collect())).collect(),
        });
        let map = heat_map(&report, "c").unwrap();
        let grid = map.grid(&(0..points), w, h);
        prop_assert_eq!((grid.len(), grid[0].len()), (h.min(rows), w.min(points)));
        let greatest = grid.iter().flatten().flatten().copied().fold(0.0, f64::max);
        prop_assert_eq!(greatest, value(points - 1, rows - 1));
        if w >= points && h >= rows {
            prop_assert_eq!(grid[0][0], Some(1.0));
        }
    }
}

#[test]
fn a_card_and_its_kernels_are_tables_and_what_is_wrong_stands_out() {
    use crate::kernel::outside::Unit;
    use crate::kernel::report::{CardCheck, CardReport, Ceilings, KernelRun, PeerCopy};
    let run = KernelRun {
        candidate: "fp32".into(),
        case: "layer 0".into(),
        registers: 40,
        runs: 20,
        batches: vec![1, 4],
        seconds: 12.34e-6,
        share: 0.5,
        bound: "memory".into(),
        ..KernelRun::default()
    };
    let restless = KernelRun {
        candidate: "odd".into(),
        other_bits: 3,
        other_batches: vec![4],
        share: 0.0,
        bound: String::new(),
        ..run.clone()
    };
    let check = CardCheck {
        bytes: 64 << 20,
        round_trips: 3,
        peers: vec![PeerCopy { to: "cuda:1".into(), copies: 3, bad: 1, ..PeerCopy::default() }],
        corrected: Some(2),
        ..CardCheck::default()
    };
    let card = CardReport {
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        ceilings: Ceilings { bytes_per_second: 4.3e12, flops: vec![(Unit::Bf16, 7.9e14)] },
        check,
        kernels: vec![run, restless],
        ..CardReport::default()
    };
    let report = MicroReport { device: "cuda:0".into(), card: Some(card), ..sample::report() };
    let text = |row: &Vec<String>| row.join(" | ");
    let kernels: Vec<String> = table::kernels(&report).rows.iter().map(text).collect();
    assert_eq!(
        kernels,
        [
            "fp32 | 40 | 0 | 12.3 | 50.0 % | memory | same in 20 | same",
            "odd | 40 | 0 | 12.3 | - | - | OTHER in 3/20 | OTHER at 4"
        ]
    );
    let card: Vec<String> = table::card(&report).rows.iter().map(text).collect();
    assert!(card.contains(&"memory errors | not corrected: cannot be read; corrected: 2".to_owned()), "{card:?}");
    assert!(card.contains(&"FAULT | 1 of 3 copies to cuda:1 came out with other bytes".to_owned()), "{card:?}");
    assert!(card.contains(&"bf16 tensor cores | 790.0 TFLOP/s".to_owned()), "{card:?}");
    let spoiled = report.spoiled();
    assert!(spoiled.iter().any(|s| s.starts_with("the card cuda:0 is not to be trusted: ")), "{spoiled:?}");
    assert!(spoiled.iter().any(|s| s.starts_with("`odd` gave other bits in 3 of 20 runs")), "{spoiled:?}");
    assert_eq!(table::card(&sample::report()), table::Table::default());
}
