//! The pane of the microtests: its views, its zoom, what is hidden and what is laid over.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::engine::state::State;
use patchbench::kernel::report::{CurveMode, MicroReport};
use patchbench::ui::app::App;
use patchbench::ui::theme::Look;

use crate::sample::{ASCII, UNICODE, ago, app, micro, rich, screen, styles};

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        app.handle_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}

fn kernels_of(state: State, look: Look) -> App {
    let mut app = app(state, look);
    // The layout of the patches does not have the pane, which is then shown alone.
    app.run_line("focus kernels");
    // A key takes the message away.
    app.handle_key(KeyEvent::new(KeyCode::F(12), KeyModifiers::NONE));
    app
}

fn kernels(look: Look) -> App {
    kernels_of(rich(), look)
}

fn with(reports: Vec<MicroReport>) -> State {
    State { micro: reports.into_iter().map(Arc::new).collect(), ..rich() }
}

fn said(app: &App) -> String {
    app.message().map_or_else(String::new, |m| m.text.clone())
}

const VIEWS: [&str; 5] = ["per-site", "compounded", "histogram", "heat", "tables"];

#[test]
fn every_view_at_every_size() {
    for (w, h) in [(80, 24), (120, 40)] {
        for name in VIEWS {
            let mut app = kernels(UNICODE);
            app.run_line(&format!("view {name}"));
            press(&mut app, "lll");
            insta::assert_snapshot!(format!("{name}_{w}x{h}"), screen(&mut app, w, h));
        }
    }
}

#[test]
fn every_view_is_ascii_and_without_colour_where_that_is_asked_for() {
    for name in VIEWS {
        let mut app = kernels(ASCII);
        app.run_line(&format!("view {name}"));
        press(&mut app, "l");
        let text = screen(&mut app, 80, 24);
        assert!(text.is_ascii(), "{name}: {text}");
        let body: Vec<&str> = text.lines().skip(2).take(20).collect();
        assert!(!body.iter().any(|l| l.contains('?')), "a sign without an ASCII form in {name}: {text}");
        assert!(!styles(&mut app, 80, 24).contains(" fg "), "{name}");
        if name == "heat" || name == "per-site" {
            insta::assert_snapshot!(format!("{name}_ascii"), text);
        }
    }
}

#[test]
fn every_view_survives_every_size() {
    for name in VIEWS {
        let mut app = kernels(UNICODE);
        app.run_line(&format!("view {name}"));
        for (w, h) in [(60, 15), (61, 16), (79, 17), (95, 15), (96, 20), (97, 60), (300, 100)] {
            let text = screen(&mut app, w, h);
            assert!(text.contains("mhc-mix on cpu"), "{name} {w}x{h}\n{text}");
        }
    }
}

#[test]
fn one_key_goes_through_the_views_and_the_title_names_them() {
    let mut app = kernels(UNICODE);
    let title = |app: &mut App| screen(app, 120, 40).lines().nth(1).unwrap().to_owned();
    assert!(title(&mut app).contains("mhc-mix on cpu: each site alone"), "{}", title(&mut app));
    for words in ["compounded over the sites", "histogram", "heat map", "tables", "each site alone"] {
        press(&mut app, "w");
        assert!(title(&mut app).contains(words), "{}", title(&mut app));
        assert_eq!(said(&app), words);
    }
    app.run_line("view single-injection");
    assert_eq!(said(&app), "mhc-mix has nothing for the view `single-injection`");
    app.run_line("view pie");
    assert_eq!(said(&app), "there is no view `pie`");
}

#[test]
fn the_cursor_reads_values_the_metric_and_the_band() {
    let mut app = kernels(UNICODE);
    press(&mut app, "lll");
    let text = screen(&mut app, 120, 40);
    for words in ["4 layer 1 mlp", "noise band 6.18e-4 to 1.85e-3", "rel L2", "calc_diff", "2.06e-3^", "2.12e-6"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(!text.contains("2.58e-4^"), "{text}");
    press(&mut app, "w");
    press(&mut app, "ll");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("NaN^") && text.contains("1 value not drawn"), "{text}");
    assert!(text.contains("bf16 coherent (n^0.97)"), "{text}");
}

#[test]
fn a_zoom_shows_fewer_points_and_keeps_the_cursor() {
    let mut app = kernels(UNICODE);
    press(&mut app, "lllllll");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("1 layer 0 attention") && text.contains("8 layer 3 mlp"), "{text}");
    press(&mut app, "+");
    assert_eq!(said(&app), "6 of 12 points");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("5 layer 2 attention") && text.contains("10 layer 4 mlp"), "{text}");
    press(&mut app, "llll");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("7 layer 3 attention") && text.contains("12 layer 5 mlp"), "{text}");
    press(&mut app, "=");
    press(&mut app, "+");
    assert_eq!(said(&app), "4 points are the fewest that are shown");
    press(&mut app, "---");
    assert_eq!(said(&app), "12 points are the most that are shown");
    press(&mut app, "w+");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("7 layer 3 attention"), "a zoom holds in every view: {text}");
}

#[test]
fn a_hidden_candidate_stays_in_the_legend_and_comes_back() {
    let mut app = kernels(UNICODE);
    assert!(screen(&mut app, 120, 40).contains("▸a bf16"));
    press(&mut app, "x");
    assert_eq!(said(&app), "bf16 hidden");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("bf16") && text.contains("hidden") && text.contains("1 hidden"), "{text}");
    press(&mut app, "a");
    assert_eq!(said(&app), "tf32");
    assert!(screen(&mut app, 120, 40).contains("▸b tf32"));
    app.run_line("hide bf16");
    assert_eq!(said(&app), "bf16 shown");
    app.run_line("hide fp8");
    assert_eq!(said(&app), "mhc-mix has no candidate `fp8`; there is bf16, tf32");
    press(&mut app, "xX");
    assert_eq!(said(&app), "all candidates shown");
    assert!(!screen(&mut app, 120, 40).contains("hidden"));
}

#[test]
fn the_chosen_candidate_is_the_one_of_the_heat_map() {
    let mut app = kernels(UNICODE);
    app.run_line("view heat");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("greatest 4.00e-3 at token 72, median 3.00e-4"), "{text}");
    press(&mut app, "a");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("greatest 4.00e-4 at token 72, median 3.00e-5"), "{text}");
    assert!(text.contains("tf32"), "{text}");
}

#[test]
fn other_runs_are_laid_over_and_named() {
    let (first, mut gpu, mut other) = (micro::report(), micro::report(), micro::report());
    gpu.device = "cuda:0".into();
    other.device = "cuda:1".into();
    other.curves.iter_mut().for_each(|c| c.labels.truncate(3));
    let mut app = kernels_of(with(vec![first, gpu, other]), UNICODE);
    press(&mut app, "O");
    assert_eq!(said(&app), "other runs laid over it");
    let text = screen(&mut app, 120, 40);
    for words in ["bf16 (cpu)", "bf16 (cuda:0)", "(cuda:1) has other points and is not drawn"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    insta::assert_snapshot!("overlay_80x24", screen(&mut app, 80, 24));
    press(&mut app, "O");
    assert!(!screen(&mut app, 120, 40).contains("cuda:0"));
    let mut alone = kernels(UNICODE);
    press(&mut alone, "O");
    assert_eq!(said(&alone), "there is no other run of mhc-mix to lay over it");
}

#[test]
fn an_earlier_run_on_the_same_device_can_be_laid_over() {
    let (mut early, late) = (micro::report(), micro::report());
    early.at = ago(9000);
    let mut app = kernels_of(with(vec![early, late]), UNICODE);
    press(&mut app, "O");
    let text = screen(&mut app, 160, 40);
    assert_eq!(text.matches("bf16 (cpu, ").count(), 2, "{text}");
}

#[test]
fn a_report_with_little_in_it_is_shown_as_far_as_it_goes() {
    let full = micro::report();
    let bare = MicroReport {
        spec: "router".into(),
        device: "cpu".into(),
        at: full.at,
        curves: full.curves.iter().filter(|c| c.mode == CurveMode::Compounded).cloned().collect(),
        ..MicroReport::default()
    };
    let mut app = kernels_of(with(vec![bare, MicroReport { spec: "empty".into(), ..full.clone() }]), UNICODE);
    let text = screen(&mut app, 80, 24);
    assert!(text.contains("router on cpu, +1: compounded") && !text.contains("noise band"), "{text}");
    press(&mut app, "w");
    assert_eq!(said(&app), "tables");
    let nothing = MicroReport { spec: "none".into(), ..MicroReport::default() };
    let mut app = kernels_of(with(vec![nothing]), UNICODE);
    for key in ["w", "a", "x", "X", "+", "-", "O", "l", "h"] {
        press(&mut app, key);
        screen(&mut app, 80, 24);
    }
}

#[test]
fn keys_of_the_kernels_do_nothing_elsewhere_and_say_so() {
    let mut app = app(rich(), UNICODE);
    app.run_line("focus patches");
    press(&mut app, "x");
    assert_eq!(said(&app), "this changes what the kernels show");
    app.run_line("focus kernels");
    assert!(!screen(&mut app, 120, 40).contains("hidden"));
}

#[test]
fn the_detail_of_a_microtest_has_its_tables_and_what_its_band_is_made_of() {
    let mut app = kernels(UNICODE);
    app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let text = screen(&mut app, 120, 70);
    let words = [
        "stored: the streams are rounded to bf16, 1.70e-3 rms",
        "sets: 2 experts kept by each of 1536 rows",
        "99.80 %",
        "causes: each rounding point alone",
        "71 %",
        "bf16       compounded  coherent (n^0.97)",
        "elements: quantiles",
        "relative L2 error, each site alone",
    ];
    for words in words {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}
