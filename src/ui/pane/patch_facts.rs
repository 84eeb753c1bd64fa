//! What is known of a patch besides its risk: the phases that it reaches and who said so, notes on it, and of an
//! imported one what was read of its lines.
//!
//! Not responsible for the lines themselves; see `patch_diff`.

use ratatui::text::Line;

use super::{View, fact};
use crate::case::gate::spelling;
use crate::patch::edit::{self, Said};
use crate::patch::types::{Entry, GateDefault, GateRead, Phase, Place};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::Cell;
use crate::untrusted::Untrusted;

/// The most of each kind of fact that is shown; a patch of a thousand functions is told by its first.
const MOST: usize = 6;

fn said<'a>(view: &View<'a>, id: &str) -> impl DoubleEndedIterator<Item = &'a Said> {
    view.state.edits.get(id).into_iter().flatten()
}

fn words(phases: impl IntoIterator<Item = Phase>) -> String {
    phases.into_iter().map(Phase::word).collect::<Vec<_>>().join("+")
}

/// The phases that were read or that the case names.
fn read(view: &View<'_>, id: &str) -> String {
    if let Some(patch) = view.state.case.as_ref().and_then(|c| c.patch(id)).filter(|p| !p.phases.is_empty()) {
        return Untrusted::from(patch.phases.join("+")).visible(80);
    }
    view.derived.imported.get(id).map_or_else(String::new, |entry| words(entry.phases.keys().copied()))
}

/// The cell of the phases: what a person said, which stands out, else what was read.
pub fn phases_cell(view: &View<'_>, id: &str) -> Cell {
    if let Some((phases, _)) = edit::phases(said(view, id)) {
        return Cell::of(words(phases.iter().copied()), Role::Warn);
    }
    let read = read(view, id);
    if read.is_empty() { Cell::of("?", Role::Unknown) } else { Cell::of(read, Role::Dim) }
}

/// The phases and layers that a patch reaches, and who says so.
pub fn reach_lines(view: &View<'_>, id: &str) -> Vec<Line<'static>> {
    let read = read(view, id);
    let layers = view.state.case.as_ref().and_then(|c| c.patch(id)).and_then(|p| p.layers.clone());
    let layers = layers.map(|l| format!("layers {}", Untrusted::from(l).visible(80)));
    let Some((phases, by)) = edit::phases(said(view, id)) else {
        let reach: Vec<String> = Some(read).filter(|r| !r.is_empty()).into_iter().chain(layers).collect();
        let unknown =
            || fact(view, "reaches", format!("unknown phases; {} says which", view.key("phases")), Role::Unknown);
        return vec![if reach.is_empty() { unknown() } else { fact(view, "reaches", reach.join(", "), Role::Dim) }];
    };
    let read = if read.is_empty() { "unknown".to_owned() } else { read };
    let mut words = format!("{}, {}; as read: {read}", words(phases.iter().copied()), who(view, by));
    if let Some(layers) = layers {
        words = format!("{words}; {layers}");
    }
    vec![fact(view, "reaches", words, Role::Text)]
}

/// Who said how a patch is switched, where somebody did; else which key does.
pub fn gate_lines(view: &View<'_>, id: &str) -> Vec<Line<'static>> {
    let words = match edit::gate(said(view, id)) {
        Some((_, read, by)) => {
            let read = Untrusted::from(spelling(read)).visible(120);
            format!("{}; the case file says {read}", who(view, by))
        }
        None => format!("as the case file says; {} says another for this session", view.key("gate")),
    };
    vec![fact(view, "gate said", words, Role::Dim)]
}

/// The note on a patch, and how often something was said of it before.
pub fn note_lines(view: &View<'_>, id: &str) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if let Some((text, by)) = edit::note(said(view, id)) {
        let text = Untrusted::from(text).visible(400);
        out.push(fact(view, "note", format!("{text}, {}", who(view, by)), Role::Text));
    }
    let held = usize::from(!out.is_empty())
        + usize::from(edit::phases(said(view, id)).is_some())
        + usize::from(edit::gate(said(view, id)).is_some());
    let before = said(view, id).count().saturating_sub(held);
    if before > 0 {
        let said = format!("{} before; the timeline has them", text::counted(before, "edit"));
        out.push(fact(view, "", said, Role::Dim));
    }
    out
}

fn who(view: &View<'_>, said: &Said) -> String {
    let by = Untrusted::from(said.by.as_str()).visible(60);
    format!("said by {by} {} ago", text::age(view.now, said.at))
}

/// What was read of the lines of an imported patch that the case does not name.
pub fn imported_lines(view: &View<'_>, id: &str) -> Vec<Line<'static>> {
    let Some(entry) = view.derived.imported.get(id) else { return Vec::new() };
    let mut out = bounded(view, "changes", entry.files.iter().map(|f| visible(&f.path)));
    out.extend(bounded(view, "in", entry.symbols.iter().map(|s| visible(&s.value))));
    let gates: Vec<Line<'static>> = bounded(view, "gate", entry.gates.iter().map(gate));
    if gates.is_empty() {
        out.push(fact(view, "gate", "none: nothing that was read switches it", Role::Warn));
    }
    out.extend(gates);
    let how = "to switch it, put it into the case: `patchbench patches import … --toml` prints its `[[patch]]`";
    out.push(fact(view, "", how, Role::Dim));
    out.extend(reach_lines(view, id));
    out.extend(bounded(view, "kernels", entry.kernels.iter().map(|k| visible(&k.value))));
    out.extend(bounded(
        view,
        "asserts",
        entry.asserts.iter().map(|a| format!("{} [{}]", visible(&a.value), at(&a.place))),
    ));
    out.extend(dtypes(view, entry));
    out
}

fn dtypes(view: &View<'_>, entry: &Entry) -> Vec<Line<'static>> {
    let side = |name: &Option<String>| name.as_deref().map_or_else(|| "unsaid".to_owned(), visible);
    let said =
        entry.dtypes.iter().map(|d| format!("{} to {} [{}]", side(&d.value.from), side(&d.value.to), at(&d.place)));
    bounded(view, "dtype", said)
}

fn gate(read: &GateRead) -> String {
    let default = match &read.default {
        GateDefault::Written(text) => format!("`{}` where nobody sets it", visible(text)),
        GateDefault::Unset => "absent where nobody sets it".to_owned(),
        GateDefault::Required => "an error where nobody sets it".to_owned(),
        GateDefault::Unknown => "its default is not known".to_owned(),
    };
    format!("{}, {default} [{}]", visible(&read.name), at(&read.place))
}

fn at(place: &Place) -> String {
    let line = place.line.map(|l| format!(":{l}")).unwrap_or_default();
    format!("{}{line}", visible(&place.path))
}

fn visible(text: &str) -> String {
    Untrusted::from(text).visible(160)
}

/// A line for each of the first few, and how many there are more.
fn bounded(view: &View<'_>, name: &str, all: impl ExactSizeIterator<Item = String>) -> Vec<Line<'static>> {
    let more = all.len().saturating_sub(MOST);
    let mut out: Vec<Line<'static>> = all
        .take(MOST)
        .enumerate()
        .map(|(i, said)| fact(view, if i == 0 { name } else { "" }, said, Role::Text))
        .collect();
    if more > 0 {
        out.push(fact(view, "", format!("and {more} more"), Role::Dim));
    }
    out
}
