//! The search: the symptom, where it stands, the verdicts with their reasons, and the arms tried so far.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::patches::finding_words;
use super::{Heading, PaneId, PaneState, View, draw_empty, draw_lines, empty_text, fact, source, split_bottom};
use crate::isolate::verdict::{ArmCount, Finding, SubjectKind, Verdict};
use crate::recall::matrix::wilson;
use crate::ui::derived::{Count, arm_key};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{self, Cell, Column, Source};

enum Entry<'a> {
    Verdict(&'a Verdict),
    Arm(usize, &'a Count),
}

/// The rows: verdicts, then arms.
pub struct Rows<'a> {
    view: View<'a>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        let mut entries: Vec<Entry<'a>> = view.state.verdicts.iter().map(|v| Entry::Verdict(v)).collect();
        entries.sort_by_key(|e| match e {
            Entry::Verdict(v) => finding_order(v.verdict),
            Entry::Arm(..) => u8::MAX,
        });
        entries.extend(view.derived.arms.iter().enumerate().map(|(i, (_, count))| Entry::Arm(i, count)));
        Self { view, entries }
    }
}

fn finding_order(finding: Finding) -> u8 {
    match finding {
        Finding::Guilty => 0,
        Finding::NotSeparable => 1,
        Finding::NotShown => 2,
        Finding::Inconclusive => 3,
        Finding::Acquitted => 4,
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, i: usize) -> String {
        match &self.entries[i] {
            Entry::Verdict(v) => format!("verdict {}", v.subject.id),
            Entry::Arm(n, _) => format!("arm {n}"),
        }
    }

    fn text(&self, i: usize) -> String {
        let words = self.cells(i).into_iter().map(|c| c.text).collect::<Vec<_>>().join(" ");
        match &self.entries[i] {
            Entry::Verdict(v) => format!("{words} {}", v.why),
            Entry::Arm(..) => words,
        }
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::upto("verdict", 9, 13, 2),
            Column::upto("patch or arm", 18, 40, 1),
            Column::number("on", 6, 3),
            Column::number("off", 6, 4),
            Column::number("boots", 5, 5),
            Column::grow("why", 24, 6),
        ]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        match &self.entries[i] {
            Entry::Verdict(v) => {
                let (words, role) = finding_words(v.verdict);
                vec![
                    Cell::of(words, role),
                    Cell::of(v.subject.id.clone(), Role::Strong),
                    Cell::plain(arm_fraction(&v.on)),
                    Cell::plain(arm_fraction(&v.off)),
                    Cell::of(format!("{}+{}", v.on.boots, v.off.boots), Role::Dim),
                    Cell::of(v.why.clone(), Role::Dim),
                ]
            }
            Entry::Arm(n, count) => {
                let (arm, _) = &self.view.derived.arms[*n];
                vec![
                    Cell::of("arm", Role::Dim),
                    Cell::plain(self.view.derived.arm_text(arm)),
                    Cell::plain(count.fraction()),
                    Cell::of("", Role::Dim),
                    Cell::of(count.boots.len().to_string(), Role::Dim),
                    Cell::of(arm_interval(count), Role::Dim),
                ]
            }
        }
    }
}

fn arm_fraction(arm: &ArmCount) -> String {
    if arm.n == 0 { "-".into() } else { format!("{}/{}", arm.fail, arm.n) }
}

fn arm_interval(count: &Count) -> String {
    if count.n == 0 {
        return format!("{} void", count.void);
    }
    let Some((low, high)) = wilson(count.fail, count.n) else { return "no trial counts".into() };
    let void = if count.void > 0 { format!(", {} void", count.void) } else { String::new() };
    format!("over trials 95 % between {:.0} and {:.0} %{void}", low * 100.0, high * 100.0)
}

/// The title line.
pub fn heading(view: &View<'_>) -> Heading {
    let mut counts = Vec::new();
    for (finding, word) in [(Finding::Guilty, "guilty"), (Finding::Acquitted, "acquitted")] {
        let n = view.state.verdicts.iter().filter(|v| v.verdict == finding).count();
        if n > 0 {
            counts.push(format!("{n} {word}"));
        }
    }
    Heading { summary: counts.join(", "), at: view.state.trials.last().map(|t| t.trial.at), stale_after_s: None }
}

fn head_lines(view: &View<'_>) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if let Some(s) = &view.state.symptom {
        let floor = crate::isolate::exit::floor(view.state);
        let (words, role) = if s.lower > floor { ("SYMPTOM", Role::Bad) } else { ("no symptom", Role::Good) };
        out.push(Line::from(vec![
            view.span(words, role),
            view.span(
                format!(
                    "  {:.0} % fail, at least {:.0} % (95 %, over boots), floor {:.0} %, {}",
                    s.rate * 100.0,
                    s.lower * 100.0,
                    floor * 100.0,
                    text::counted(s.trials as usize, "trial")
                ),
                Role::Text,
            ),
        ]));
    }
    if let Some(search) = &view.state.search {
        let line = view.derived.search.clone().unwrap_or_else(|| search.headline());
        out.push(view.line(line, Role::Text));
    }
    out
}

/// The symptom, the search, the table, the reason of the selected verdict.
pub fn draw(buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, focused: bool) {
    let rows = source(PaneId::Isolation, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    let head = head_lines(view);
    if rows.is_empty() && head.is_empty() {
        draw_empty(buffer, area, view, &empty_text(PaneId::Isolation, view));
        return;
    }
    let head: Vec<_> = super::wrap_lines(&head, area.width as usize);
    let head_height = (head.len() as u16).min(area.height);
    for (i, line) in head.iter().take(head_height as usize).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, line, area.width);
    }
    let rest = Rect { y: area.y + head_height, height: area.height - head_height, ..area };
    if rest.height == 0 || rows.is_empty() {
        return;
    }
    let (list, below) = split_bottom(rest, if rest.height >= 8 { 4 } else { 0 });
    table::draw(buffer, list, rows.as_ref(), &mut st.list, view.look, focused);
    if let (Some(below), Some(key)) = (below, st.list.selected_key(rows.as_ref())) {
        draw_lines(buffer, below, view, &detail(view, &key));
    }
}

/// Everything about one verdict or arm.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    if let Some(n) = key.strip_prefix("arm ").and_then(|n| n.parse::<usize>().ok()) {
        let Some((arm, count)) = view.derived.arms.get(n) else { return Vec::new() };
        let boots: Vec<_> = count.boots.iter().map(ToString::to_string).collect();
        let mut out = vec![
            fact(view, "arm", view.derived.arm_text(arm), Role::Strong),
            fact(view, "failed", format!("{}, {}", count.fraction(), arm_interval(count)), Role::Text),
            fact(view, "boots", boots.join(" "), Role::Text),
        ];
        out.extend(
            arm.iter()
                .map(|(key, level)| fact(view, "level", format!("{} = {level}", arm_key(view.state, key)), Role::Dim)),
        );
        return out;
    }
    let id = key.strip_prefix("verdict ").unwrap_or(key);
    let Some(v) = view.state.verdicts.iter().find(|v| v.subject.id == id) else { return Vec::new() };
    let (words, role) = finding_words(v.verdict);
    let kind = match v.subject.kind {
        SubjectKind::Patch => "patch",
        SubjectKind::Factor => "factor",
    };
    let side = |arm: &ArmCount| {
        let void = if arm.void > 0 { format!(", {} void", arm.void) } else { String::new() };
        format!("{} failed over {}{void}", arm_fraction(arm), text::counted(arm.boots as usize, "boot"))
    };
    let mut out = vec![
        Line::from(vec![view.span(words, role), view.span(format!("  {kind} {id}"), Role::Strong)]),
        view.line(v.why.clone(), Role::Text),
        fact(view, "on", side(&v.on), Role::Text),
        fact(view, "off", side(&v.off), Role::Text),
    ];
    if let Some(bound) = v.bound {
        let what = match v.verdict {
            Finding::Guilty => format!("p = {bound:.4} over the boots"),
            _ => format!("at most {:.1} points more failures than all-off (95 %)", bound * 100.0),
        };
        out.push(fact(view, "bound", what, Role::Text));
    }
    let lines: Vec<_> = v.evidence.iter().map(ToString::to_string).collect();
    out.push(fact(view, "rests on", format!("journal lines {}", lines.join(" ")), Role::Dim));
    out
}
