//! Whole screens, as text and as styles.

use std::sync::Arc;

use crate::sample::{ASCII, UNICODE, app, case, feed, now, procedure, rich, screen, setup, styles, with_procedure};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::case::ServingEngine;
use patchbench::engine::command::Command;
use patchbench::engine::diagnostic::Diagnostic;
use patchbench::engine::ids::{JobId, ProcedureId, QueuedId};
use patchbench::engine::input::{Actor, ActorRole};
use patchbench::engine::live::Live;
use patchbench::engine::procedure::{Action, Evidence, Load, Phase};
use patchbench::engine::queue::{Dropped, Queued};
use patchbench::engine::state::{ProcedureStatus, State};
use patchbench::recall::window::{LoadWindow, Series};
use patchbench::serving::load_phase::Loading;
use patchbench::ui::app::{App, Mode, Request};
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
    for line in ["umask 077", "kill -TERM 4242", "exec ./serve_decode.sh", "decode on gpu-box"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    insta::assert_snapshot!("confirm", text);
    insta::assert_snapshot!("confirm_small", screen(&mut app, 80, 24));
    app.handle_key(KeyEvent::new(KeyCode::Char('e'), KeyModifiers::CONTROL));
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("rm -f ~/.patchbench/decode.env"), "{text}");
    insta::assert_snapshot!("confirm_unfolded", text);
    let mut app = asked(true);
    press(&mut app, "dec");
    screen(&mut app, 120, 40);
    press(&mut app, "dec");
    insta::assert_snapshot!("confirm_production", screen(&mut app, 120, 40));
}

/// The same change with a lease, as every real one has.
fn leased(production: bool) -> App {
    let mut state = rich();
    state.case = Some(Arc::new(case(production)));
    let mut app = app(state.clone(), UNICODE);
    app.run_line("toggle triton-indexer@decode on");
    let mut planned = procedure(3, "decode");
    let mut lease = planned.steps[0].clone();
    lease.name = "lease".into();
    let text: Vec<String> = (0..100).map(|i| format!("line {i} of the way back")).collect();
    lease.apply = Action::Shell { script: text.join("\n"), timeout_s: 20.0 };
    planned.steps.insert(0, lease);
    planned.load = Some(Load { running: 2, waiting: 1 });
    with_procedure(&mut state, planned, ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    app
}

#[test]
fn a_question_shows_first_what_changes_the_server_and_unfolds_the_rest() {
    let ctrl_e = KeyEvent::new(KeyCode::Char('e'), KeyModifiers::CONTROL);
    for production in [false, true] {
        let mut app = leased(production);
        let folded = screen(&mut app, 80, 24);
        for line in ["decode on gpu-box", "2 requests run and 1 wait", "umask 077", "kill -TERM 4242"] {
            assert!(folded.contains(line), "{line} in\n{folded}");
        }
        assert!(!folded.contains("of the way back"), "{folded}");
        assert!(folded.contains("ctrl-e: 103 lines"), "{folded}");
        if !production {
            insta::assert_snapshot!("confirm_leased", folded);
        }
        app.handle_key(ctrl_e);
        let mut seen = screen(&mut app, 80, 24);
        for _ in 0..20 {
            app.handle_key(KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE));
            seen.push_str(&screen(&mut app, 80, 24));
        }
        for i in 0..100 {
            assert!(seen.contains(&format!("line {i} of the way back")), "line {i}");
        }
        for line in ["kill -TERM 4242", "rm -f ~/.patchbench/decode.env", "test -f ~/.patchbench/decode.env"] {
            assert!(seen.contains(line), "{line}");
        }
        app.handle_key(ctrl_e);
        assert!(!screen(&mut app, 80, 24).contains("of the way back"));
    }
}

#[test]
fn a_start_that_was_only_met_says_nothing_about_how_long_one_takes() {
    let mut app = leased(false);
    let seen = screen(&mut app, 120, 40);
    assert!(seen.contains("its last start took 14 s"), "{seen}");
    let mut state = rich();
    for boot in [3, 4] {
        let id = patchbench::engine::ids::BootId(boot);
        let mut met = state.boots[&id].as_ref().clone();
        met.procedure = None;
        state.boots.insert(id, Arc::new(met));
    }
    let mut app = crate::sample::app(state.clone(), UNICODE);
    app.run_line("toggle triton-indexer@decode on");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    let seen = screen(&mut app, 120, 40);
    assert!(seen.contains("no start was seen yet") && !seen.contains("last start took"), "{seen}");
}

#[test]
fn the_title_says_until_when_production_may_be_changed() {
    let title = |minutes: i64, width: u16| {
        let mut state = rich();
        state.case = Some(Arc::new(case(true)));
        let mut entry = state.targets["decode"].clone();
        let until = jiff::Timestamp::from_second(now().as_second() + 60 * minutes).unwrap();
        entry.elevated_until = Some(until);
        state.targets.insert("decode".into(), entry);
        let mut app = app(state, UNICODE);
        screen(&mut app, width, 24).lines().next().unwrap().to_owned()
    };
    for width in [80, 120] {
        let text = title(12, width);
        assert!(text.contains("PRODUCTION elevated until 14:32 UTC") && text.contains("CHANGED 10m"), "{text}");
        let text = title(-5, width);
        assert!(text.contains("PRODUCTION elevation ended 14:15 UTC") && text.contains("undoes"), "{text}");
        let text = title(-61, width);
        assert!(text.contains("PRODUCTION") && !text.contains("elevation"), "{text}");
    }
    insta::assert_snapshot!("title_elevated", title(12, 80));
}

#[test]
fn a_server_that_stops_answering_is_neither_ready_nor_down() {
    let mut app = rich_app(UNICODE);
    let at = |s: i64| jiff::Timestamp::from_second(now().as_second() - s).unwrap();
    let silent = |s| Live::Silent { target: "decode".into(), at: at(s), why: "connection refused".into() };
    // It was read 12 s ago: what failed before that is over.
    app.take_live(silent(30));
    assert!(!screen(&mut app, 120, 40).contains("NO ANSWER"));
    app.take_live(silent(4));
    let wide = screen(&mut app, 160, 40);
    assert!(wide.contains("NO ANSWER since 14:19:48 (connection refused), read 12s ago"), "{wide}");
    assert!(wide.contains("decode does not answer: `P` reads it anew"), "{wide}");
    assert!(!wide.contains("DOWN"));
    assert!(wide.lines().next().unwrap().contains("decode: no answer since 14:19:48"), "{wide}");
    insta::assert_snapshot!("silent_80x24", screen(&mut app, 80, 24));
    feed(&mut app);
    assert!(!screen(&mut app, 120, 40).contains("NO ANSWER"));
}

/// A restart of `decode` whose start is waited for, as its log tells it.
#[test]
fn a_start_that_loads_shows_its_phase_and_what_is_left() {
    let mut state = rich();
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Running { phase: Phase::Do });
    if let Some(p) = state.procedures.get_mut(&ProcedureId(3)) {
        p.steps.iter_mut().for_each(|s| s.started = true);
        p.steps[0].done = true;
        p.steps[1].done = true;
    }
    let at = |s: i64| jiff::Timestamp::from_second(now().as_second() - s).unwrap();
    let job = patchbench::engine::state::Job {
        id: JobId(9),
        title: "restart decode with triton-indexer=on".into(),
        procedure: Some(ProcedureId(3)),
        started_at: at(60),
        ended_at: None,
        cancelling: false,
        outcome: None,
    };
    state.jobs.insert(JobId(9), job);
    let mut loading = Loading::new(ServingEngine::Sglang, at(50));
    loading.take("[2026-03-01 14:19:20 TP0] Load weight begin. avail mem=93.61 GB", at(40));
    let shards = "Loading safetensors checkpoint shards:  25% Completed | 12/48 [00:20<01:00,  1.67s/it]";
    loading.take(shards, at(0));
    let draw = |state: &State, w, h| {
        let mut app = app(state.clone(), UNICODE);
        app.take_live(Live::Loading { target: "decode".into(), loading: loading.clone() });
        app.take_live(Live::Progress { job: JobId(9), done: 0, total: None, phase: "loading".into(), eta_s: None });
        app.run_line("focus jobs");
        app.run_line("zoom");
        let jobs = screen(&mut app, w, h);
        app.run_line("focus server");
        format!("{jobs}{}", screen(&mut app, w, h))
    };
    let seen = draw(&state, 160, 40);
    assert!(seen.contains("2m00s to go in this phase, loading weights 25 % (12/48)"), "{seen}");
    assert_eq!(seen.matches("2m00s to go in this phase, loading weights").count(), 2, "jobs and server:\n{seen}");
    // An earlier start of this session tells the rest.
    let id = patchbench::engine::ids::BootId(4);
    let mut before = state.boots[&id].as_ref().clone();
    let mut proof = before.proof.as_ref().clone();
    for (phase, seen) in [("launch", "9.0 s"), ("weights", "90.0 s"), ("graphs", "30.0 s")] {
        let about = format!("load:{phase}");
        proof.evidence.push(Evidence { about, seen: seen.into(), source: "decode.log".into() });
    }
    before.proof = Arc::new(proof);
    state.boots.insert(id, Arc::new(before));
    let seen = draw(&state, 160, 40);
    assert!(seen.contains("2m30s to go, loading weights 25 % (12/48)"), "{seen}");
    insta::assert_snapshot!("loading_80x24", draw(&state, 80, 24));
}

#[test]
fn what_is_asked_while_a_change_runs_waits_and_is_shown() {
    let mut state = rich();
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Running { phase: Phase::Do });
    let mut app = app(state.clone(), UNICODE);
    let asked = app.run_line("recall --lengths 1024 --repeats 1");
    let [Request::Command(Command::Queue { command })] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(screen(&mut app, 120, 40).contains("waits until the change that runs is over"));
    let asked = Command::clone(command);
    // What waits for nothing is sent as it is.
    let note = app.run_line("note a");
    assert!(matches!(note.as_slice(), [Request::Command(Command::Note { .. })]), "{note:?}");
    state.queue.items.push_back(Queued {
        id: QueuedId(1),
        by: Actor::driver("ana"),
        at: now(),
        command: asked.clone(),
        after: Some(ProcedureId(3)),
    });
    state.seq += 1;
    app.update_state(Arc::new(state.clone()));
    app.run_line("focus jobs");
    press(&mut app, "gg");
    while !screen(&mut app, 120, 40).contains("▸ q1") {
        press(&mut app, "j");
    }
    app.run_line("zoom");
    insta::assert_snapshot!("queued_80x24", screen(&mut app, 80, 24));
    let out = app.handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE));
    assert!(matches!(out.as_slice(), [Request::Command(Command::Unqueue { queued: QueuedId(1) })]), "{out:?}");
    state.queue.items.clear();
    state.queue.dropped = Some(Dropped { seq: 9, command: asked, why: "p3 failed: restart decode".into() });
    state.seq += 1;
    app.update_state(Arc::new(state));
    let seen = screen(&mut app, 120, 40);
    assert!(seen.contains("error: dropped `recall --lengths 1024 --repeats 1`, which waited: p3 failed"), "{seen}");
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
