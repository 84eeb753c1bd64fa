//! The pane of the patches: its order and groups, and the lines of a patch in its detail.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::engine::command::Command;
use patchbench::engine::input::{Body, JobReport};
use patchbench::engine::state::State;
use patchbench::patch::edit::Edit;
use patchbench::patch::import::imported;
use patchbench::patch::inventory::By;
use patchbench::patch::types::{Entry, Phase, Piece};
use patchbench::ui::app::{App, Request};
use patchbench::untrusted::MAX_BYTES;

use crate::common::after;
use crate::sample::{UNICODE, app, rich, screen, styles};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        app.handle_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}

fn key(app: &mut App, code: KeyCode) {
    app.handle_key(KeyEvent::new(code, KeyModifiers::NONE));
}

/// The rich session with a diff imported, of which one patch is one of the case.
fn with_import() -> State {
    let text: &[u8] = include_bytes!("../artefacts/A38_patch_inventory.diff");
    let entries = imported(text, None, "a.diff").entries;
    State { entries: entries.into_iter().map(Arc::new).collect(), ..rich() }
}

/// The ids of the rows, in order, and the selected one.
fn rows(app: &mut App) -> (Vec<String>, String) {
    let text = screen(app, 200, 60);
    let title = text.lines().position(|l| l.contains("patch ") && l.contains("risk")).unwrap();
    let rows = text.lines().skip(title + 1).take_while(|l| !l.starts_with('·'));
    let mut selected = String::new();
    let mut ids = Vec::new();
    for row in rows.filter(|row| !row.trim().is_empty()) {
        let id = row.trim_start_matches(['▸', '●', ' ']).split_whitespace().next().unwrap().to_owned();
        if row.starts_with('▸') {
            selected.clone_from(&id);
        }
        ids.push(id);
    }
    (ids, selected)
}

fn title(app: &mut App, width: u16) -> String {
    screen(app, width, 24).lines().nth(1).unwrap().to_owned()
}

#[test]
fn the_selection_stays_on_its_row_whatever_the_order() {
    let mut app = app(with_import(), UNICODE);
    press(&mut app, "z");
    let (by_risk, first) = rows(&mut app);
    assert_eq!(by_risk[0], first);
    press(&mut app, "S");
    let (by_id, selected) = rows(&mut app);
    let mut sorted = by_risk.clone();
    sorted.sort();
    assert_eq!(by_id, sorted);
    assert_eq!(selected, first, "what was first is not first any more");
    press(&mut app, "S");
    let (by_verdict, selected) = rows(&mut app);
    assert_eq!((by_verdict[0].as_str(), by_verdict.last().unwrap().as_str()), ("triton-indexer", "mhc-bf16"));
    assert_eq!(selected, first);
    press(&mut app, "SS");
    assert_eq!(rows(&mut app), (by_risk, first));
}

#[test]
fn a_filter_shows_its_rows_in_every_order() {
    let mut app = app(with_import(), UNICODE);
    press(&mut app, "z/indexer");
    key(&mut app, KeyCode::Enter);
    let (mut before, _) = rows(&mut app);
    press(&mut app, "S");
    let (after, _) = rows(&mut app);
    before.sort();
    assert_eq!(after, before);
    assert!(after.iter().all(|id| id.contains("indexer")), "{after:?}");
}

#[test]
fn groups_stand_by_their_most_suspect_member_and_the_title_names_them() {
    let mut app = app(with_import(), UNICODE);
    assert!(title(&mut app, 80).contains("1 guilty, by risk"), "{}", title(&mut app, 80));
    app.run_line("group gate");
    app.run_line("zoom");
    assert!(title(&mut app, 120).contains("by gate, risk"), "{}", title(&mut app, 120));
    let text = screen(&mut app, 200, 60);
    let switches: Vec<&str> = text
        .lines()
        .skip_while(|l| !l.contains("switch "))
        .skip(1)
        .take_while(|l| !l.starts_with('·'))
        .filter_map(|l| {
            let rest = l.trim_start_matches(['▸', '●', ' ']);
            rest.split_once(' ').and_then(|(_, rest)| rest.trim().split("  ").next())
        })
        .collect();
    let mut groups = switches.clone();
    groups.dedup();
    let mut once = groups.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(groups.len(), once.len(), "each group stands together: {switches:?}\n{text}");
    app.run_line("sort nothing");
    assert_eq!(app.message().unwrap().text, "there is no order `nothing`");
}

#[test]
fn the_pane_by_file_at_every_size() {
    for (w, h) in SIZES {
        let mut app = app(with_import(), UNICODE);
        press(&mut app, "BBB");
        key(&mut app, KeyCode::F(12));
        insta::assert_snapshot!(format!("by_file_{w}x{h}"), screen(&mut app, w, h));
    }
}

#[test]
fn the_lines_of_a_patch_stand_at_the_end_of_its_detail() {
    for (w, h) in SIZES {
        let mut app = app(with_import(), UNICODE);
        key(&mut app, KeyCode::Enter);
        // The first drawing tells how far there is to scroll.
        screen(&mut app, w, h);
        press(&mut app, "G");
        insta::assert_snapshot!(format!("diff_{w}x{h}"), screen(&mut app, w, h));
    }
    let mut app = app(with_import(), UNICODE);
    key(&mut app, KeyCode::Enter);
    screen(&mut app, 120, 40);
    press(&mut app, "G");
    insta::assert_snapshot!("diff_styles", styles(&mut app, 120, 40));
}

/// The end of the detail of a patch whose lines are these.
fn end_of_detail(change: impl Fn(&mut Entry)) -> String {
    let mut state = with_import();
    let entry = |e: &Arc<Entry>| {
        let mut entry = Entry::clone(e);
        change(&mut entry);
        Arc::new(entry)
    };
    state.entries = state.entries.iter().map(entry).collect();
    let mut app = app(state, UNICODE);
    key(&mut app, KeyCode::Enter);
    screen(&mut app, 120, 40);
    press(&mut app, "G");
    screen(&mut app, 120, 40)
}

#[test]
fn lines_that_were_not_kept_are_said_with_where_they_are() {
    let bytes = 2 * MAX_BYTES as u64;
    let long = end_of_detail(|e| e.piece = Some(Piece::TooLong { bytes }));
    assert!(long.contains("its 128 KiB are more than a session keeps of one patch"), "{long}");
    assert!(long.contains("the diff that was imported has them"), "{long}");
    let none = end_of_detail(|e| e.piece = None);
    assert!(none.contains("its lines were not kept when it was imported"), "{none}");
    let many = end_of_detail(|e| {
        let text = format!("@@ -0,0 +1,500 @@\n{}", "+x\n".repeat(500));
        e.piece = Some(Piece::Kept { text: text.into() });
    });
    assert!(many.contains("301 lines more; the diff that was imported has them"), "{many}");
}

/// Types into what is open and gives what is asked of the engine then.
fn asked(app: &mut App, typed: &str) -> Vec<Command> {
    press(app, typed);
    let requests = app.handle_key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let command = |request| match request {
        Request::Command(command) => Some(command),
        _ => None,
    };
    requests.into_iter().filter_map(command).collect()
}

/// Selects the row of this id.
fn go_to(app: &mut App, id: &str) {
    press(app, "gg");
    while rows(app).1 != id {
        press(app, "j");
    }
}

#[test]
fn marked_patches_are_put_together_under_a_title_that_is_asked_for() {
    let mut app = app(with_import(), UNICODE);
    press(&mut app, "zM");
    assert_eq!(app.message().unwrap().text, "mark the patches first");
    for id in ["perf", "hash-topk-forward"] {
        go_to(&mut app, id);
        press(&mut app, " ");
    }
    press(&mut app, "M");
    insta::assert_snapshot!("merge_80x24", screen(&mut app, 80, 24));
    let patches = vec!["hash-topk-forward".to_owned(), "perf".to_owned()];
    assert_eq!(asked(&mut app, "top k"), [Command::MergePatches { patches, title: "top k".into() }]);
}

#[test]
fn a_patch_is_divided_by_what_is_typed() {
    let mut app = app(with_import(), UNICODE);
    press(&mut app, "z");
    go_to(&mut app, "perf");
    press(&mut app, "D");
    assert!(screen(&mut app, 80, 24).contains("Divide perf by: file, function or hunk"));
    let split = |by| [Command::SplitPatch { patch: "perf".into(), by }];
    assert_eq!(asked(&mut app, ""), split(By::Function), "what stands there is taken");
    press(&mut app, "D");
    assert_eq!(asked(&mut app, "hunk"), split(By::Hunk));
    press(&mut app, "D");
    assert_eq!(asked(&mut app, "line"), []);
    assert_eq!(app.message().unwrap().text, "there is no division `line`");
}

#[test]
fn phases_and_notes_are_typed_for_the_selected_or_the_marked() {
    let mut app = app(with_import(), UNICODE);
    press(&mut app, "ze");
    insta::assert_snapshot!("phases_80x24", screen(&mut app, 80, 24));
    let of = |patch: &str, phases: &[Phase]| Command::EditPatch {
        patch: patch.into(),
        edit: Edit::Phases { phases: phases.iter().copied().collect() },
    };
    assert_eq!(asked(&mut app, "prefill, decode"), [of("triton-indexer", &[Phase::Extend, Phase::Decode])]);
    press(&mut app, "e");
    assert_eq!(asked(&mut app, "never"), []);
    assert_eq!(app.message().unwrap().text, "there is no phase `never`");
    press(&mut app, "  e");
    let both = asked(&mut app, "none");
    assert_eq!(both.len(), 2, "{both:?}");
    press(&mut app, "E");
    assert!(app.message().unwrap().text.starts_with("several patches are marked"));
    key(&mut app, KeyCode::Esc);
    let patch = "mma-decode".to_owned();
    let note = |text: &str| Command::EditPatch { patch: patch.clone(), edit: Edit::Note { text: text.into() } };
    let typed = |app: &mut App, line: &str| match &app.run_line(line)[..] {
        [Request::Command(command)] => command.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(typed(&mut app, "patch-note mma-decode asked the author"), note("asked the author"));
    assert_eq!(typed(&mut app, "patch-note mma-decode none"), note(""));
    let other = "{ env = \"OTHER\", levels = { on = \"1\", off = { unset = true } } }";
    let gate = match typed(&mut app, &format!("gate mma-decode {other}")) {
        Command::EditPatch { edit: Edit::Gate { gate, read }, .. } => {
            assert_ne!(gate, read);
            gate
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(gate.switch(), Some("OTHER"));
    let mut app = self::app(with_import(), UNICODE);
    press(&mut app, "W");
    assert!(screen(&mut app, 120, 40).contains("is switched; as-read takes it back"), "{}", screen(&mut app, 120, 40));
    assert_eq!(asked(&mut app, "{ env = }"), []);
    assert!(app.message().unwrap().text.contains("is no gate"));
}

#[test]
fn what_a_person_said_stands_in_the_pane_with_their_name() {
    let say = |edit| Body::Command(Command::EditPatch { patch: "triton-indexer".into(), edit });
    let state = after(
        &with_import(),
        [
            say(Edit::Phases { phases: [Phase::Load].into() }),
            say(Edit::Phases { phases: [Phase::Decode].into() }),
            say(Edit::Note { text: "the author says it is decode alone".into() }),
        ],
    );
    for (w, h) in SIZES {
        let mut app = app(state.clone(), UNICODE);
        key(&mut app, KeyCode::Enter);
        insta::assert_snapshot!(format!("said_{w}x{h}"), screen(&mut app, w, h));
    }
    let mut app = app(state, UNICODE);
    key(&mut app, KeyCode::Enter);
    let text = screen(&mut app, 120, 60);
    assert!(text.contains("the author says it is decode alone, said by ann"), "{text}");
    assert!(text.contains("decode, said by ann"), "{text}");
    assert!(text.contains("1 edit before; the timeline has them"), "{text}");
    assert!(text.contains("as the case file says; `W` says another"), "{text}");
}

#[test]
fn a_patch_that_the_case_does_not_name_tells_what_was_read_of_it() {
    for (w, h) in SIZES {
        let mut app = app(with_import(), UNICODE);
        press(&mut app, "z");
        go_to(&mut app, "hash-topk-forward");
        key(&mut app, KeyCode::Enter);
        insta::assert_snapshot!(format!("imported_{w}x{h}"), screen(&mut app, w, h));
    }
}

#[test]
fn marks_and_the_selection_live_through_an_import() {
    let text: &[u8] = include_bytes!("../artefacts/A38_patch_inventory.diff");
    let entries = imported(text, None, "a.diff").entries.into_iter().map(Arc::new).collect();
    let read = Body::Report(JobReport::PatchesRead { source: "a.diff".into(), entries });
    let mut app = app(rich(), UNICODE);
    press(&mut app, "zj");
    let (_, selected) = rows(&mut app);
    app.update_state(Arc::new(after(&rich(), [read])));
    assert_eq!(rows(&mut app).1, selected);
}
