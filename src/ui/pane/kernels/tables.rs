//! Tables of a microtest as lines of text.

use ratatui::text::Line;

use crate::kernel::figure::table::{Table, tables};
use crate::kernel::report::MicroReport;
use crate::ui::pane::View;
use crate::ui::text;
use crate::ui::theme::Role;

/// The tables, each under its title; those about decisions first, errors last. Of the causes only those of `chosen` if
/// one is named. Rows of candidates that `hides` says yes to are left out.
pub(super) fn lines(
    view: &View<'_>,
    report: &MicroReport,
    chosen: Option<&str>,
    hides: &dyn Fn(&str) -> bool,
) -> Vec<Line<'static>> {
    let mut all = tables(report);
    // What people look for first: what the errors do, then what makes them.
    all.sort_by_key(|t| match t.title.split([' ', ':']).next().unwrap_or("") {
        "sets" => 0,
        "decisions" => 1,
        "causes" => 2,
        "growth" => 3,
        "elements" => 4,
        _ => 5,
    });
    let mut out = Vec::new();
    for mut t in all {
        let candidate = t.heading.iter().position(|h| *h == "candidate").unwrap_or(0);
        let only = chosen.filter(|_| t.title.starts_with("causes"));
        t.rows.retain(|r| !hides(&r[candidate]) && only.is_none_or(|name| name == r[candidate]));
        if t.rows.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(Line::default());
        }
        out.extend(one(view, &t, chosen));
    }
    out
}

fn one(view: &View<'_>, t: &Table, chosen: Option<&str>) -> Vec<Line<'static>> {
    let widths: Vec<usize> = (0..t.heading.len())
        .map(|c| t.rows.iter().map(|r| text::width(&r[c])).chain([text::width(t.heading[c])]).max().unwrap_or(0))
        .collect();
    let cells = |row: &mut dyn Iterator<Item = &str>| -> String {
        let cell = |(c, text): (usize, &str)| {
            if t.right.contains(&c) { text::fit_right(text, widths[c]) } else { text::fit(text, widths[c]) }
        };
        row.enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut out = vec![view.line(t.title.clone(), Role::Strong)];
    out.push(view.line(format!("  {}", cells(&mut t.heading.iter().copied())), Role::Dim));
    for row in &t.rows {
        let is_chosen = row.iter().any(|c| Some(c.as_str()) == chosen);
        let mark = if is_chosen { "▸ " } else { "  " };
        let role = if is_chosen { Role::Strong } else { Role::Text };
        out.push(view.line(format!("{mark}{}", cells(&mut row.iter().map(String::as_str))), role));
    }
    out
}
