//! Whole screens, as text and as styles.

use std::sync::Arc;

use crate::sample::{ASCII, UNICODE, app, case, feed, now, procedure, rich, screen, setup, styles, with_procedure};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::engine::diagnostic::Diagnostic;
use patchbench::engine::ids::{JobId, ProcedureId};
use patchbench::engine::input::ActorRole;
use patchbench::engine::state::{ProcedureStatus, State};
use patchbench::recall::window::{LoadWindow, Series};
use patchbench::ui::app::{App, Mode};
use patchbench::ui::theme::{Look, Palette, Theme};

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        app.handle_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}

fn rich_app(look: Look) -> App {
    let mut app = app(rich(), look);
    feed(&mut app);
    app
}

fn in_layout(name: &str, look: Look) -> App {
    let mut app = rich_app(look);
    app.run_line(&format!("layout {name}"));
    // A key takes the message away, so that the next step is seen.
    app.handle_key(KeyEvent::new(KeyCode::F(12), KeyModifiers::NONE));
    app
}

/// A plan arrives for a change that was asked for with a key.
fn asked(production: bool) -> App {
    let mut state = rich();
    state.case = Some(Arc::new(case(production)));
    let mut app = app(state.clone(), UNICODE);
    app.run_line("toggle triton-indexer@decode on");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    app
}

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
const LAYOUTS: [&str; 3] = ["overview", "recall", "kernels"];

#[test]
fn every_layout_at_every_size() {
    for layout in LAYOUTS {
        for (w, h) in SIZES {
            let mut app = in_layout(layout, UNICODE);
            insta::assert_snapshot!(format!("{layout}_{w}x{h}"), screen(&mut app, w, h));
        }
    }
}

#[test]
fn smallest_and_too_small() {
    let mut app = rich_app(UNICODE);
    insta::assert_snapshot!("smallest_60x15", screen(&mut app, 60, 15));
    insta::assert_snapshot!("too_small_40x10", screen(&mut app, 40, 10));
    let narrow = screen(&mut app, 59, 40);
    assert!(narrow.split_whitespace().collect::<Vec<_>>().join(" ").contains("make it larger"), "{narrow}");
    let back = screen(&mut app, 80, 24);
    assert!(back.contains("Patches"), "everything returns");
    for (w, h) in [(1, 1), (3, 2), (60, 1), (1, 60)] {
        screen(&mut app, w, h);
    }
}

#[test]
fn ascii_and_no_colour() {
    for layout in LAYOUTS {
        let mut app = in_layout(layout, ASCII);
        let text = screen(&mut app, 120, 40);
        assert!(text.is_ascii(), "{layout}");
        assert!(!styles(&mut app, 120, 40).contains(" fg "), "no colour in {layout}");
        insta::assert_snapshot!(format!("{layout}_ascii"), text);
    }
}

#[test]
fn empty_panes_say_which_key_fills_them() {
    let mut without_case = app(State::default(), UNICODE);
    insta::assert_snapshot!("empty_no_case", screen(&mut without_case, 80, 24));
    for layout in LAYOUTS {
        let mut app = app(State { case: Some(Arc::new(case(false))), ..State::default() }, UNICODE);
        app.run_line(&format!("layout {layout}"));
        insta::assert_snapshot!(format!("empty_{layout}"), screen(&mut app, 120, 40));
    }
}

#[test]
fn layers() {
    let mut app = rich_app(UNICODE);
    press(&mut app, "?");
    insta::assert_snapshot!("help", screen(&mut app, 120, 40));
    insta::assert_snapshot!("help_small", screen(&mut app, 80, 24));
    press(&mut app, "q:");
    insta::assert_snapshot!("palette", screen(&mut app, 80, 24));
    press(&mut app, "tog");
    insta::assert_snapshot!("palette_fuzzy", screen(&mut app, 80, 24));
    app.handle_key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE));
    press(&mut app, "index");
    insta::assert_snapshot!("palette_arguments", screen(&mut app, 80, 24));
}

#[test]
fn filter_note_detail_and_frozen() {
    let mut app = rich_app(UNICODE);
    press(&mut app, "/!index");
    insta::assert_snapshot!("filter", screen(&mut app, 80, 24));
    app.handle_key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    press(&mut app, "Nseen twice");
    insta::assert_snapshot!("note", screen(&mut app, 80, 24));
    app.handle_key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    insta::assert_snapshot!("detail_patch", screen(&mut app, 80, 24));
    press(&mut app, "qp");
    let mut newer = rich();
    newer.seq += 5;
    app.update_state(Arc::new(newer));
    let text = screen(&mut app, 120, 24);
    assert!(text.contains("FROZEN, 5 events behind"), "{text}");
}

#[test]
fn confirm_shows_every_command() {
    let mut app = asked(false);
    let text = screen(&mut app, 120, 40);
    for line in ["umask 077", "kill -TERM 4242", "rm -f ~/.patchbench/decode.env", "decode on gpu-box"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    insta::assert_snapshot!("confirm", text);
    insta::assert_snapshot!("confirm_small", screen(&mut app, 80, 24));
    let mut app = asked(true);
    press(&mut app, "dec");
    screen(&mut app, 120, 40);
    press(&mut app, "dec");
    insta::assert_snapshot!("confirm_production", screen(&mut app, 120, 40));
}

#[test]
fn quitting_while_a_server_is_changed_asks() {
    let mut app = rich_app(UNICODE);
    press(&mut app, "q");
    insta::assert_snapshot!("quit", screen(&mut app, 80, 24));
}

#[test]
fn details_of_each_pane() {
    for (pane, w, h) in [("jobs", 120, 40), ("server", 120, 40), ("recall", 120, 40), ("isolation", 120, 40)] {
        let mut app = rich_app(UNICODE);
        app.run_line(&format!("focus {pane}"));
        if pane == "jobs" {
            press(&mut app, "j");
        }
        app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        insta::assert_snapshot!(format!("detail_{pane}"), screen(&mut app, w, h));
    }
}

#[test]
fn the_load_of_a_finished_batch_stays_with_its_trials() {
    let mut state = rich();
    let at = |s: i64| jiff::Timestamp::from_second(now().as_second() - s).unwrap();
    let series = Series { min: 0.0, mean: 0.5, max: 1.0, samples: vec![0.0, 0.5, 1.0] };
    state.windows.push_back(Arc::new(LoadWindow {
        job: JobId(3),
        target: "decode".into(),
        from: at(1000),
        to: at(300),
        source: "http://gpu-box:30002/metrics".into(),
        readings: 3,
        unread: None,
        values: std::collections::BTreeMap::from([("kv_usage".into(), series)]),
    }));
    let mut app = app(state, UNICODE);
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("batch 5m ago  kv_usage 1 ▁▅█"), "{text}");
    app.run_line("focus recall");
    app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("decode during j3: kv_usage 0.500 (0.000 to 1.000)"), "{text}");
    // What is seen now counts before what was.
    feed(&mut app);
    assert!(!screen(&mut app, 120, 40).contains("batch 5m ago"));
}

#[test]
fn roles_and_the_past_are_named() {
    let mut s = setup(UNICODE);
    s.mode = Mode::Past;
    let mut app = App::new(s, Arc::new(rich()), now());
    assert!(screen(&mut app, 120, 24).lines().next().unwrap().contains("PAST"));
    let mut s = setup(UNICODE);
    s.mode = Mode::Live(ActorRole::Watcher);
    s.remarks = vec![Diagnostic::warning("layout-broken", "layout `mine` is not used: no `pane`").at("mine.toml:3")];
    let mut state = rich();
    state.case = Some(Arc::new(case(true)));
    let mut app = App::new(s, Arc::new(state), now());
    let text = screen(&mut app, 120, 24);
    assert!(text.lines().next().unwrap().contains("watcher"));
    assert!(text.lines().next().unwrap().contains("PRODUCTION"));
    assert!(text.contains("mine.toml:3: layout `mine` is not used"), "a broken layout is said:\n{text}");
}

#[test]
fn colours_by_palette() {
    for (name, theme, palette) in [
        ("dark_256", Theme::Dark, Palette::Indexed),
        ("light_256", Theme::Light, Palette::Indexed),
        ("dark_16", Theme::Dark, Palette::Ansi),
        ("mono", Theme::Mono, Palette::Indexed),
    ] {
        let mut app = rich_app(Look { theme, palette, ascii: false });
        insta::assert_snapshot!(format!("styles_{name}"), styles(&mut app, 120, 40));
    }
}

#[test]
fn control_characters_never_reach_the_screen() {
    let mut app = rich_app(UNICODE);
    for pane in ["server", "recall", "jobs", "timeline"] {
        app.run_line(&format!("focus {pane}"));
        app.run_line("zoom");
        let text = screen(&mut app, 200, 60);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{pane}");
        app.run_line("zoom");
    }
    app.run_line("focus recall");
    assert!(screen(&mut app, 200, 60).contains("日本␇"));
}

#[test]
fn a_plan_that_nobody_here_asked_for_opens_no_question() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    with_procedure(&mut state, procedure(9, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    assert!(app.layers().is_empty());
    app.run_line("focus jobs");
    press(&mut app, "gg");
    while !screen(&mut app, 120, 40).contains("▸ p9") {
        press(&mut app, "j");
    }
    app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    assert!(screen(&mut app, 120, 40).contains("run this?"));
    let _ = ProcedureId(9);
}
