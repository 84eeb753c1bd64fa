//! Reads layout files and explains what is wrong in them by file, line and key.
//!
//! Built-in layouts are part of the program; a folder may replace or add some.
//! A broken file never takes a layout away: the built-in one of that name stays, and the mistake is said.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::{Axis, Group, Layout, Slot};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::ui::pane::PaneId;

/// The layouts that are part of the program: name and text, in the order of the layout key.
pub const BUILT_IN: [(&str, &str); 3] = [
    ("overview", include_str!("../../../layouts/overview.toml")),
    ("recall", include_str!("../../../layouts/recall.toml")),
    ("kernels", include_str!("../../../layouts/kernels.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    doc: String,
    #[serde(default)]
    column: Vec<Spanned<FileGroup>>,
    #[serde(default)]
    row: Vec<Spanned<FileGroup>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileGroup {
    #[serde(default = "one")]
    ratio: Spanned<u16>,
    pane: Vec<FileSlot>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSlot {
    show: Spanned<String>,
    #[serde(default = "one")]
    ratio: Spanned<u16>,
    #[serde(default = "smallest")]
    min: Spanned<(u16, u16)>,
    #[serde(default = "middle")]
    priority: u8,
}

fn one() -> Spanned<u16> {
    Spanned::new(0..0, 1)
}

fn smallest() -> Spanned<(u16, u16)> {
    Spanned::new(0..0, (30, 4))
}

fn middle() -> u8 {
    5
}

/// Reads one layout file; `place` is its path for the remarks.
///
/// # Errors
/// One remark that names file, line and key.
pub fn parse(name: &str, text: &str, place: &str) -> Result<Layout, Diagnostic> {
    let wrong = |span: &Range<usize>, message: String| {
        let line = text.as_bytes().iter().take(span.start).filter(|b| **b == b'\n').count() + 1;
        let mut d = Diagnostic::warning("layout-broken", message).at(format!("{place}:{line}"));
        d.severity = Severity::Warning;
        d.hint("the built-in layouts show the form; `L` goes on to the next layout")
    };
    let file: File = toml::from_str(text).map_err(|e| {
        wrong(&e.span().unwrap_or(0..0), format!("layout `{name}` is not used: {}", e.message().trim()))
    })?;
    let (axis, groups) = match (file.column.is_empty(), file.row.is_empty()) {
        (false, true) => (Axis::Columns, file.column),
        (true, false) => (Axis::Rows, file.row),
        (true, true) => {
            return Err(wrong(
                &(0..0),
                format!("layout `{name}` is not used: it has neither `[[column]]` nor `[[row]]`"),
            ));
        }
        (false, false) => {
            let span = file.row.first().map_or(0..0, Spanned::span);
            return Err(wrong(&span, format!("layout `{name}` is not used: it has both `[[column]]` and `[[row]]`")));
        }
    };
    let mut seen: Vec<PaneId> = Vec::new();
    let mut out = Vec::new();
    for group in groups {
        let group_span = group.span();
        let group = group.into_inner();
        if *group.ratio.get_ref() == 0 {
            return Err(wrong(&group.ratio.span(), format!("layout `{name}` is not used: `ratio` must be at least 1")));
        }
        if group.pane.is_empty() {
            return Err(wrong(&group_span, format!("layout `{name}` is not used: a group has no `pane`")));
        }
        let mut slots = Vec::new();
        for slot in group.pane {
            let shown = slot.show.get_ref();
            let Some(pane) = PaneId::parse(shown) else {
                let known = PaneId::ALL.map(PaneId::name).join(", ");
                return Err(wrong(
                    &slot.show.span(),
                    format!("layout `{name}` is not used: `show` names `{shown}`; panes are {known}"),
                ));
            };
            if seen.contains(&pane) {
                return Err(wrong(
                    &slot.show.span(),
                    format!("layout `{name}` is not used: `show` names `{shown}` twice"),
                ));
            }
            if *slot.ratio.get_ref() == 0 {
                return Err(wrong(
                    &slot.ratio.span(),
                    format!("layout `{name}` is not used: `ratio` must be at least 1"),
                ));
            }
            let min = *slot.min.get_ref();
            if min.0 < 10 || min.1 < 2 {
                return Err(wrong(
                    &slot.min.span(),
                    format!("layout `{name}` is not used: `min` must be at least [10, 2], columns and lines"),
                ));
            }
            seen.push(pane);
            slots.push(Slot { pane, ratio: *slot.ratio.get_ref(), min, priority: slot.priority });
        }
        out.push(Group { ratio: *group.ratio.get_ref(), slots });
    }
    Ok(Layout { name: name.to_owned(), doc: file.doc, axis, groups: out })
}

/// The built-in layouts.
pub fn built_in() -> Vec<Layout> {
    // A test reads each; one that could not be read would be missing here, not break the program.
    BUILT_IN.iter().filter_map(|(name, text)| parse(name, text, name).ok()).collect()
}

/// The built-in layouts with those of `folder` over and after them, and what is wrong in the folder.
///
/// A folder that is not there is no mistake.
pub fn with_folder(folder: &Path) -> (Vec<Layout>, Vec<Diagnostic>) {
    let mut layouts = built_in();
    let mut remarks = Vec::new();
    let Ok(entries) = fs_err::read_dir(folder) else { return (layouts, remarks) };
    let mut paths: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    for path in paths {
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let place = path.display().to_string();
        let read = fs_err::read_to_string(&path)
            .map_err(|e| Diagnostic::warning("layout-unreadable", e.to_string()).at(place.clone()))
            .and_then(|text| parse(&name, &text, &place));
        match read {
            Ok(layout) => match layouts.iter_mut().find(|l| l.name == name) {
                Some(old) => *old = layout,
                None => layouts.push(layout),
            },
            Err(remark) => remarks.push(remark),
        }
    }
    (layouts, remarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, line: usize, word: &str) {
        let error = parse("mine", text, "mine.toml").unwrap_err();
        assert_eq!(error.place, Some(format!("mine.toml:{line}")), "{}", error.message);
        assert!(error.message.contains(word), "{}", error.message);
    }

    #[test]
    fn every_built_in_layout_reads() {
        for (name, text) in BUILT_IN {
            let layout = parse(name, text, name).unwrap();
            assert!(layout.panes().count() >= 4, "{name}");
            assert!(!layout.doc.is_empty());
        }
    }

    #[test]
    fn mistakes_name_line_and_key() {
        check("doc = \"x\"\n", 1, "[[column]]");
        check("doc = \"x\"\n[[column]]\npane = [\n { show = \"pitches\" },\n]\n", 4, "`show` names `pitches`");
        check("doc = \"x\"\n[[column]]\nratio = 0\npane = [{ show = \"patches\" }]\n", 3, "`ratio`");
        check("doc = \"x\"\n[[column]]\npane = [{ show = \"jobs\" }, { show = \"jobs\" }]\n", 3, "twice");
        check("doc = \"x\"\n[[column]]\npane = [{ show = \"jobs\", min = [1, 1] }]\n", 3, "`min`");
        check("doc = \"x\"\n[[column]]\npane = [{ show = \"jobs\", rati = 1 }]\n", 3, "rati");
        check("doc = \"x\"\n[[column]]\npane = []\n", 2, "no `pane`");
        check("doc = \"x\"\n[[column]\n", 2, "not used");
        check(
            "doc = \"x\"\n[[column]]\npane = [{ show = \"jobs\" }]\n[[row]]\npane = [{ show = \"notes\" }]\n",
            4,
            "both",
        );
    }

    #[test]
    fn a_broken_user_layout_leaves_the_built_in_one_and_is_said() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("overview.toml"), "doc = 1").unwrap();
        fs_err::write(dir.path().join("mine.toml"), "doc = \"x\"\n[[row]]\npane = [{ show = \"jobs\" }]\n").unwrap();
        let (layouts, remarks) = with_folder(dir.path());
        assert_eq!(
            layouts.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(),
            ["overview", "recall", "kernels", "mine"]
        );
        assert_eq!(layouts[0], built_in()[0]);
        assert_eq!(remarks.len(), 1);
        assert!(remarks[0].place.as_deref().is_some_and(|p| p.ends_with("overview.toml:1")));
    }

    #[test]
    fn a_missing_folder_is_no_mistake() {
        let (layouts, remarks) = with_folder(Path::new("/nowhere/at/all"));
        assert_eq!((layouts.len(), remarks.len()), (3, 0));
    }
}
