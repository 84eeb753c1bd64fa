//! The pane of the patches: its order and groups, and the lines of a patch in its detail.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use patchbench::engine::state::State;
use patchbench::patch::import::imported;
use patchbench::patch::types::{Entry, Piece};
use patchbench::ui::app::App;
use patchbench::untrusted::MAX_BYTES;

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
