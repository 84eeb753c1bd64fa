//! Keys typed into the app: what is asked of the engine, and what is on the screen then.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sample::{UNICODE, app, case, feed, now, procedure, rich, screen, setup, with_procedure};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::case::{Case, Gate};
use patchbench::engine::command::{Command, EndState};
use patchbench::engine::ids::{JobId, ProcedureId};
use patchbench::engine::input::ActorRole;
use patchbench::engine::procedure::{Action, Failure, Load, RoutedWorker, RouterAsk, Step};
use patchbench::engine::state::{ProcedureStatus, Refusal, State};
use patchbench::recall::trial::ProbeForm;
use patchbench::ui::app::{App, Mode, Request};
use patchbench::ui::keymap::Keymap;
use patchbench::ui::pane::PaneId;

/// Types keys: characters as they are, names in `<…>`.
fn type_keys(app: &mut App, keys: &str) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let (event, len) = match rest.strip_prefix('<').and_then(|r| r.split_once('>')) {
            Some((name, _)) => (named(name), name.len() + 2),
            None => (KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), c.len_utf8()),
        };
        rest = &rest[len..];
        requests.extend(app.handle_key(event));
    }
    requests
}

fn named(name: &str) -> KeyEvent {
    let none = KeyModifiers::NONE;
    match name {
        "esc" => KeyEvent::new(KeyCode::Esc, none),
        "ret" => KeyEvent::new(KeyCode::Enter, none),
        "tab" => KeyEvent::new(KeyCode::Tab, none),
        "down" => KeyEvent::new(KeyCode::Down, none),
        "s-tab" => KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT),
        "s-right" => KeyEvent::new(KeyCode::Right, KeyModifiers::SHIFT),
        "s-left" => KeyEvent::new(KeyCode::Left, KeyModifiers::SHIFT),
        "c-c" => KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
        "back" => KeyEvent::new(KeyCode::Backspace, none),
        other => panic!("no key {other}"),
    }
}

fn commands(requests: Vec<Request>) -> Vec<Command> {
    requests
        .into_iter()
        .filter_map(|r| match r {
            Request::Command(c) => Some(c),
            _ => None,
        })
        .collect()
}

fn check(keys: &str, expect: &[Command]) {
    let mut app = app(rich(), UNICODE);
    assert_eq!(commands(type_keys(&mut app, keys)), expect, "{keys}");
}

fn toggle(patch: &str, target: Option<&str>, level: &str) -> Command {
    Command::Toggle { patch: patch.into(), target: target.map(str::to_owned), level: level.into() }
}

fn message(app: &App) -> String {
    app.message().map_or_else(String::new, |m| format!("{} {}", m.text, m.hint.as_deref().unwrap_or("")))
}

#[test]
fn toggle_takes_the_next_level_of_the_selected_patch() {
    check("t", &[toggle("triton-indexer", None, "on")]);
    check("jjjt", &[toggle("mma-decode", None, "off")]);
    // The targets differ, so the level is not known: the innocent one.
    check("jjt", &[toggle("bf16-indexer", None, "off")]);
    // Three levels go round in the order of their names.
    check("jjjjt", &[toggle("mhc-bf16", None, "fp32")]);
}

#[test]
fn a_patch_without_a_gate_cannot_be_toggled_and_says_why() {
    // One that only its diff switches is asked for; whether the source can be switched is for the engine to say.
    check("jt", &[toggle("routed-scaling", None, "off")]);
    let mut state = rich();
    let mut case = Case::clone(state.case.as_ref().unwrap());
    case.patches.iter_mut().find(|p| p.id == "routed-scaling").unwrap().gate = Gate::None;
    state.case = Some(Arc::new(case));
    let mut app = app(state, UNICODE);
    assert_eq!(type_keys(&mut app, "jt"), []);
    assert!(message(&app).contains("cannot be switched"), "{}", message(&app));
}

#[test]
fn marked_patches_are_toggled_by_one_restart_a_target() {
    let levels =
        BTreeMap::from([("triton-indexer".to_owned(), "on".to_owned()), ("mma-decode".to_owned(), "off".to_owned())]);
    let restart = |target: &str| Command::Restart { target: target.into(), levels: levels.clone() };
    check(" jj t", &[restart("decode"), restart("prefill")]);
}

#[test]
fn typed_commands_mean_what_scripts_mean() {
    check(":toggle triton-indexer off<ret>", &[toggle("triton-indexer", None, "off")]);
    check(":toggle triton-indexer@decode off<ret>", &[toggle("triton-indexer", Some("decode"), "off")]);
    check(":stop decode<ret>", &[Command::Stop { target: "decode".into() }]);
    check(":probe<ret>", &[Command::Probe { target: None }]);
    check(
        ":isolate mhc-bf16,mma-decode<ret>:isolate mhc-bf16,mma-decode<ret>",
        &[Command::Isolate { patches: vec!["mhc-bf16".into(), "mma-decode".into()] }],
    );
    check(":end-state best-known<ret>", &[Command::ChooseEndState { end_state: EndState::BestKnown }]);
    check(":undo-procedure p2<ret>", &[Command::UndoProcedure { procedure: ProcedureId(2) }]);
    check(
        ":micro mhc-mix --device cpu<ret>",
        &[Command::Micro {
            spec: "mhc-mix".into(),
            device: "cpu".into(),
            force_device: false,
            checkpoint: None,
            candidates: None,
            activations: None,
        }],
    );
    check("i", &[]);
    check("ii", &[Command::Isolate { patches: vec![] }]);
    check("U", &[Command::Restore { target: None }]);
}

#[test]
fn the_spelling_of_a_command_reads_back_as_the_command() {
    let levels = BTreeMap::from([("mhc-bf16".to_owned(), "tf32".to_owned())]);
    for command in [
        toggle("mhc-bf16", None, "tf32"),
        toggle("mhc-bf16", Some("decode"), "tf32"),
        Command::Restart { target: "decode".into(), levels: levels.clone() },
        Command::Stop { target: "decode".into() },
        Command::Restore { target: Some("decode".into()) },
        Command::Discard { procedure: ProcedureId(3) },
        Command::StopIsolation,
        Command::Isolate { patches: vec!["mhc-bf16".into()] },
        Command::Cancel { job: JobId(4) },
        Command::Snapshot { name: "before".into() },
        Command::ChooseEndState { end_state: EndState::Stated { levels } },
        Command::ChooseEndState { end_state: EndState::Original },
        Command::Propose { command: Box::new(Command::StopIsolation) },
    ] {
        let mut app = app(rich(), UNICODE);
        if matches!(command, Command::Isolate { .. }) {
            assert_eq!(app.run_line(&command.spelling()), [], "a search is asked for twice");
        }
        assert_eq!(commands(app.run_line(&command.spelling())), [command]);
    }
}

#[test]
fn palette_completes_names_and_arguments() {
    check(":togg<tab>mma<tab>off<ret>", &[toggle("mma-decode", None, "off")]);
    check(":snaps<ret>", &[]);
    let mut app = app(rich(), UNICODE);
    type_keys(&mut app, ":nonsense<ret>");
    assert!(message(&app).contains("there is no command `nonsense`"));
    type_keys(&mut app, ":toggle mhc-bf16 fp64<ret>");
    assert!(message(&app).contains("its levels are bf16, fp32, tf32"), "{}", message(&app));
}

#[test]
fn recall_uses_the_suite_and_fresh_conversations_for_the_same_boots() {
    let mut app = app(rich(), UNICODE);
    let sent = commands(type_keys(&mut app, "r"));
    let [Command::Recall { plan }] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(plan.forms, [ProbeForm::MultiTurn, ProbeForm::Needle]);
    assert_eq!((plan.lengths.as_slice(), plan.repeats), ([1024, 2048].as_slice(), 1));
    assert_eq!(plan.seed, 7 + 3, "three questions were asked of a cell of the running boots already");
    let sent = commands(type_keys(&mut app, ":recall --lengths 512 --repeats 4<ret>"));
    assert!(matches!(&sent[..], [Command::Recall { plan }] if plan.lengths == [512] && plan.repeats == 4));
}

#[test]
fn confirm_needs_to_be_seen_before_it_can_be_answered() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    type_keys(&mut app, "t");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state.clone()));
    assert_eq!(type_keys(&mut app, "y"), [], "it was not drawn yet");
    screen(&mut app, 80, 24);
    let confirm = Command::Confirm { procedure: ProcedureId(3), typed: None };
    assert_eq!(commands(type_keys(&mut app, "y")), [confirm]);
    assert!(app.layers().is_empty());
}

#[test]
fn production_wants_the_name_of_the_target() {
    let mut state = rich();
    state.case = Some(Arc::new(case(true)));
    let mut app = app(state.clone(), UNICODE);
    type_keys(&mut app, "t");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    screen(&mut app, 80, 24);
    assert_eq!(type_keys(&mut app, "y<ret>"), []);
    let typed = type_keys(&mut app, "<back>decode<ret>");
    let confirm = Command::Confirm { procedure: ProcedureId(3), typed: Some("decode".into()) };
    assert_eq!(commands(typed), [confirm]);
}

/// The question about a change with this load, and with a drain before it.
fn asked_busy(production: bool, drains: bool) -> (App, String) {
    let mut state = rich();
    state.case = Some(Arc::new(case(production)));
    let mut app = app(state.clone(), UNICODE);
    type_keys(&mut app, "t");
    let mut change = procedure(3, "decode");
    change.load = Some(Load { running: 3, waiting: 1 });
    if drains {
        let url = "http://127.0.0.1:30002".to_owned();
        let worker = RoutedWorker { router: "router".into(), body: serde_json::json!({ "url": url }), url };
        let idle = Action::Router { ask: RouterAsk::Idle { anyway: false }, worker, timeout_s: 300.0 };
        change.steps.insert(1, Step { name: "drain".into(), proof: idle, ..change.steps[1].clone() });
        change.notes.push("requests that run at `decode` get 300 s to run to their end".into());
    }
    with_procedure(&mut state, change, ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    let text = screen(&mut app, 140, 60);
    (app, text)
}

#[test]
fn a_replica_that_is_busy_is_stopped_by_choice_with_the_numbers_in_sight() {
    let (mut app, text) = asked_busy(false, false);
    assert!(text.contains("3 requests run and 1 wait when this was planned"), "{text}");
    assert!(text.contains("y or enter cuts off 4 requests, esc drops the change"), "{text}");
    let confirm = Command::Confirm { procedure: ProcedureId(3), typed: None };
    assert_eq!(commands(type_keys(&mut app, "y")), [confirm]);
}

#[test]
fn where_requests_get_time_to_end_cutting_them_off_is_a_key_or_a_word_of_its_own() {
    let (mut app, text) = asked_busy(false, true);
    assert!(!text.contains("cuts off 4 requests") && text.contains("a also cuts off what does not end"), "{text}");
    assert!(
        text.contains("get 300 s to run to their end") && text.contains("wait up to 300 s until no request"),
        "{text}"
    );
    let plain = Command::Confirm { procedure: ProcedureId(3), typed: None };
    let anyway = Command::Confirm { procedure: ProcedureId(3), typed: Some("decode anyway".into()) };
    assert_eq!(commands(type_keys(&mut app, "y")), [plain]);
    let (mut app, _) = asked_busy(false, true);
    assert_eq!(commands(type_keys(&mut app, "a")), std::slice::from_ref(&anyway));
    let (mut app, _) = asked_busy(true, true);
    assert_eq!(commands(type_keys(&mut app, "decode anyway<ret>")), [anyway]);
    let (mut app, _) = asked_busy(true, true);
    let named = Command::Confirm { procedure: ProcedureId(3), typed: Some("decode".into()) };
    assert_eq!(commands(type_keys(&mut app, "decode<ret>")), [named]);
}

#[test]
fn escape_drops_the_change() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    type_keys(&mut app, "t");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    assert_eq!(commands(type_keys(&mut app, "<esc>")), [Command::Discard { procedure: ProcedureId(3) }]);
}

#[test]
fn a_plan_never_lands_under_typing_fingers() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    type_keys(&mut app, "tNyes");
    with_procedure(&mut state, procedure(3, "decode"), ProcedureStatus::Planned);
    app.update_state(Arc::new(state));
    screen(&mut app, 80, 24);
    let sent = commands(type_keys(&mut app, " y<ret>"));
    assert_eq!(sent, [Command::Note { text: "yes y".into() }]);
    assert!(screen(&mut app, 120, 40).contains("run this?"), "the question comes after the note");
}

#[test]
fn a_watcher_proposes_instead_of_acting() {
    let mut s = setup(UNICODE);
    s.mode = Mode::Live(ActorRole::Watcher);
    let mut app = App::new(s, Arc::new(rich()), now());
    let proposed = Command::Propose { command: Box::new(toggle("triton-indexer", None, "on")) };
    assert_eq!(commands(type_keys(&mut app, "t")), [proposed]);
    assert_eq!(type_keys(&mut app, "q"), [Request::Quit], "leaving is not a watcher's worry");
}

#[test]
fn a_recorded_session_changes_nothing() {
    let mut s = setup(UNICODE);
    s.mode = Mode::Past;
    let mut app = App::new(s, Arc::new(rich()), now());
    assert_eq!(type_keys(&mut app, "trRi"), []);
    assert!(message(&app).contains("recorded session"));
}

#[test]
fn leaving_asks_what_stays() {
    let mut app = app(rich(), UNICODE);
    assert_eq!(type_keys(&mut app, "q<esc>"), []);
    let original = Command::ChooseEndState { end_state: EndState::Original };
    assert_eq!(type_keys(&mut app, "qo"), [Request::Command(original)]);
    // The restore runs; then nothing is changed, and the screen closes by itself.
    let mut state = rich();
    let mut busy = procedure(4, "decode");
    busy.title = "restore decode".into();
    with_procedure(&mut state, busy, ProcedureStatus::Running { phase: patchbench::engine::procedure::Phase::Do });
    assert_eq!(app.update_state(Arc::new(state.clone())), []);
    for job in state.jobs.clone().keys() {
        if let Some(j) = state.jobs.get_mut(job) {
            j.outcome = Some(patchbench::engine::input::JobOutcome::Done);
        }
    }
    if let Some(p) = state.procedures.get_mut(&ProcedureId(4)) {
        p.status = ProcedureStatus::Completed;
    }
    if let Some(t) = state.targets.get_mut("decode") {
        t.changed = None;
    }
    state.end_state = Some(EndState::Original);
    let requests = app.update_state(Arc::new(state));
    assert!(requests.contains(&Request::Quit), "{requests:?}");
}

#[test]
fn without_a_changed_server_leaving_is_one_key() {
    let mut app = app(State::default(), UNICODE);
    assert_eq!(type_keys(&mut app, "q"), [Request::Quit]);
    assert_eq!(type_keys(&mut app, "<c-c>"), [Request::Quit]);
}

#[test]
fn refusals_and_failures_are_said() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    state.seq += 1;
    state.refusal = Some(Refusal {
        seq: state.seq,
        command: "toggle x off".into(),
        failure: Failure::new("the case has no patch `x`").hint("it has mhc-bf16"),
    });
    app.update_state(Arc::new(state));
    let text = screen(&mut app, 120, 24);
    assert!(text.contains("error: refused `toggle x off`: the case has no patch `x`; it has mhc-bf16"), "{text}");
}

#[test]
fn a_long_command_that_was_refused_pushed_its_reason_off_the_line() {
    let mut state = rich();
    let mut app = app(state.clone(), UNICODE);
    state.seq += 1;
    state.refusal = Some(Refusal {
        seq: state.seq,
        command: "gate mhc-bf16 { flag = \"--mhc-gemm\", levels = { \"off\" = { unset = true }, \"on\" = { set = \"bf16\" } } }".into(),
        failure: Failure::new("`lab` runs changed"),
    });
    app.update_state(Arc::new(state));
    let text = screen(&mut app, 80, 24);
    assert!(text.contains("refused `gate mhc-bf16 {") && text.contains("…`: `lab` runs changed"), "{text}");
}

#[test]
fn focus_moves_by_number_order_and_place() {
    let mut app = app(rich(), UNICODE);
    screen(&mut app, 120, 40);
    for (keys, pane) in [
        ("3", PaneId::Server),
        ("<tab>", PaneId::Isolation),
        ("<s-tab><s-tab>", PaneId::Recall),
        ("1<s-right>", PaneId::Server),
        ("<s-left>", PaneId::Patches),
        ("L", PaneId::Patches),
        (":focus timeline<ret>", PaneId::Timeline),
        ("<esc>", PaneId::Recall),
    ] {
        type_keys(&mut app, keys);
        assert_eq!(app.focus(), pane, "{keys}");
    }
}

#[test]
fn every_pane_of_a_layout_can_be_reached_on_a_small_screen() {
    let mut app = app(rich(), UNICODE);
    for n in 1..=6 {
        type_keys(&mut app, &n.to_string());
        let text = screen(&mut app, 60, 15);
        assert!(text.contains(&format!("━ {n} ")), "{n}\n{text}");
    }
}

#[test]
fn filter_works_while_it_is_typed_and_can_be_taken_back() {
    let mut app = app(rich(), UNICODE);
    type_keys(&mut app, "/mhc");
    assert!(!screen(&mut app, 120, 40).contains("▸ triton-indexer"));
    type_keys(&mut app, "<ret>t");
    assert!(screen(&mut app, 120, 40).contains("Patches /mhc"));
    type_keys(&mut app, "!");
    let text = screen(&mut app, 120, 40);
    assert!(text.contains("mma-decode") && !text.contains("  mhc-bf16"), "{text}");
    type_keys(&mut app, "<esc>/zzz<esc>");
    assert!(screen(&mut app, 120, 40).contains("triton-indexer"), "escape puts the filter back");
    type_keys(&mut app, "/indexer<ret>gg");
    assert_eq!(commands(type_keys(&mut app, "nt")), [toggle("bf16-indexer", None, "off")]);
    assert_eq!(commands(type_keys(&mut app, "#t")), [toggle("triton-indexer", None, "on")]);
}

#[test]
fn a_broken_sequence_gives_its_last_key_back() {
    let mut app = app(rich(), UNICODE);
    type_keys(&mut app, "jjg");
    assert!(screen(&mut app, 80, 24).contains("g …"), "the pending key is shown");
    assert_eq!(commands(type_keys(&mut app, "t")).len(), 1, "`g t` is nothing, `t` is toggle");
    type_keys(&mut app, "gg");
    assert_eq!(commands(type_keys(&mut app, "t")), [toggle("triton-indexer", None, "on")]);
}

#[test]
fn frozen_views_stand_still_and_catch_up() {
    let mut app = app(rich(), UNICODE);
    type_keys(&mut app, "p");
    let mut newer = rich();
    newer.seq += 3;
    newer.notes.clear();
    app.update_state(Arc::new(newer));
    assert!(app.frozen());
    assert_eq!(app.state().notes.len(), 1);
    type_keys(&mut app, "p");
    assert_eq!((app.frozen(), app.state().notes.len()), (false, 0));
}

#[test]
fn paste_is_swallowed_outside_inputs() {
    let mut app = app(rich(), UNICODE);
    assert_eq!(app.handle_paste("qqq\ntoggle"), []);
    assert!(app.layers().is_empty());
    type_keys(&mut app, "N");
    app.handle_paste("two\nlines");
    let sent = commands(type_keys(&mut app, "<ret>"));
    assert_eq!(sent, [Command::Note { text: "two\nlines".into() }]);
}

#[test]
fn copy_takes_the_detail_of_the_row() {
    let mut app = app(rich(), UNICODE);
    let requests = type_keys(&mut app, "y");
    assert!(matches!(&requests[..], [Request::Copy(text)] if text.contains("SGLANG_SM120_TRITON_INDEXER")));
}

#[test]
fn jobs_are_cancelled_where_they_stand() {
    check("c", &[Command::Cancel { job: JobId(4) }]);
}

#[test]
fn the_matrix_turns_with_its_scope() {
    let mut app = app(rich(), UNICODE);
    feed(&mut app);
    type_keys(&mut app, ":focus recall<ret>z");
    assert!(screen(&mut app, 120, 40).contains("1/25 failed, running now (b3+b4)"));
    type_keys(&mut app, "v");
    assert!(screen(&mut app, 120, 40).contains("19/49 failed, all trials"));
}

#[test]
fn remapped_keys_work_and_show_in_the_last_line() {
    let (keymap, remarks) =
        Keymap::with_user("[[bind]]\nkeys = \"x\"\nrun = \"toggle mma-decode on\"\n", "keymap.toml");
    assert_eq!(remarks, []);
    let mut s = setup(UNICODE);
    s.keymap = keymap;
    let mut app = App::new(s, Arc::new(rich()), now());
    assert_eq!(commands(type_keys(&mut app, "x")), [toggle("mma-decode", None, "on")]);
}
