//! The risk table: each patch and factor with its risk, its gate, the level that really runs, its evidence and its
//! verdict.

use ratatui::text::Line;

use super::patch_order::{self, Arrangement};
use super::{FACT, Heading, PaneState, View, fact, patch_diff, patch_facts};
use crate::case::{LevelValue, Patch};
use crate::isolate::verdict::{Finding, SubjectKind, Verdict};
use crate::kernel::report::ErrorClass;
use crate::patch::belief::{self, Belief, THE_SEARCH};
use crate::patch::risk::{Kind, Ranked, Tier};
use crate::ui::derived::{Count, level_of};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{Cell, Column, Source};
use crate::untrusted::Untrusted;

/// Levels are stale after this many seconds: a full probe comes every minute.
const STALE_S: i64 = 180;

/// The rows: patches and factors in the order that was chosen.
pub struct Rows<'a> {
    view: View<'a>,
    by: Arrangement,
    /// Places in the ranking.
    order: Vec<usize>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>, by: Arrangement) -> Self {
        Self { order: patch_order::arranged(&view, by), view, by }
    }

    fn ranked(&self, i: usize) -> &'a Ranked {
        &self.view.derived.ranked[self.order[i]]
    }

    fn patch(&self, ranked: &Ranked) -> Option<&'a Patch> {
        self.view.state.case.as_ref().filter(|_| ranked.kind == Kind::Patch).and_then(|c| c.patch(&ranked.id))
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn key(&self, i: usize) -> String {
        self.ranked(i).id.clone()
    }

    fn text(&self, i: usize) -> String {
        self.cells(i).into_iter().map(|c| c.text).collect::<Vec<_>>().join(" ")
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::upto("patch", 14, 24, 1), Column::upto("risk", 11, 11, 3)];
        let group = self.by.grouping.column();
        if let Some((title, min)) = group {
            columns.insert(1, Column::upto(title, min, 28, 2));
        }
        // Beside a group, the risk says more than the level.
        let runs = if group.is_some() { 4 } else { 2 };
        columns.extend([
            Column::upto("runs", 6, 9, runs),
            Column::number("suspect", 7, 5),
            Column::number("else", 5, 6),
            Column::upto("verdict", 9, 14, 4),
            Column::upto("microtest", 10, 16, 6),
            Column::upto("phases", 7, 14, 7),
            Column::upto("gate", 12, 40, 8),
            Column::grow("title", 16, 9),
        ]);
        columns
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        let ranked = self.ranked(i);
        let (name, risk) = (Cell::of(ranked.id.clone(), Role::Strong), risk_cell(ranked));
        let mut cells = match self.patch(ranked) {
            None => self.without_case(ranked, name, risk),
            Some(p) => self.of_case(p, name, risk),
        };
        if self.by.grouping.column().is_some() {
            let group = patch_order::group_of(&self.view, ranked, self.by.grouping);
            // The name of a file says more than the folders before it.
            let short = group.rsplit('/').next().unwrap_or(&group);
            cells.insert(1, Cell::of(Untrusted::from(short).visible(60), Role::Text));
        }
        cells
    }
}

impl Rows<'_> {
    fn of_case(&self, p: &Patch, name: Cell, risk: Cell) -> Vec<Cell> {
        let (suspect, other) = counts(&self.view, p);
        vec![
            name,
            risk,
            running(&self.view, p),
            evidence(&suspect),
            evidence(&other),
            verdict_cell(verdict_of(&self.view, &p.id)),
            micro_cell(&self.view, p),
            patch_facts::phases_cell(&self.view, &p.id),
            Cell::of(p.gate.switch_name(), Role::Dim),
            Cell::of(p.title.clone(), Role::Dim),
        ]
    }

    /// A factor, or an imported patch that the case does not name: nothing switches it with a restart from here.
    fn without_case(&self, ranked: &Ranked, name: Cell, risk: Cell) -> Vec<Cell> {
        let dash = || Cell::of("-", Role::Dim);
        let (phases, gate) = match ranked.kind {
            Kind::Factor => (dash(), "no restart"),
            Kind::Patch => (patch_facts::phases_cell(&self.view, &ranked.id), "not in the case"),
        };
        let title = Cell::of(Untrusted::from(ranked.title.as_str()).visible(200), Role::Dim);
        vec![name, risk, dash(), dash(), dash(), dash(), dash(), phases, Cell::of(gate, Role::Dim), title]
    }
}

/// The tier in a word with the sum.
fn risk_cell(ranked: &Ranked) -> Cell {
    // What a verdict decides needs no tenths.
    let score =
        if ranked.score.abs() < 10.0 { format!("{:+.1}", ranked.score) } else { format!("{:+.0}", ranked.score) };
    Cell::of(format!("{} {score}", ranked.tier.word()), tier_role(ranked.tier))
}

fn tier_role(tier: Tier) -> Role {
    match tier {
        Tier::High => Role::Bad,
        Tier::Medium => Role::Warn,
        Tier::Low => Role::Dim,
    }
}

/// The sum behind a risk and the states that it rests on.
fn risk_lines(view: &View<'_>, ranked: &Ranked) -> Vec<Line<'static>> {
    let mut out = vec![fact(
        view,
        "risk",
        format!("{} {:+.2}; it orders patches and is no probability", ranked.tier.word(), ranked.score),
        tier_role(ranked.tier),
    )];
    for term in &ranked.terms {
        let source = Untrusted::from(term.source.as_str()).visible(120);
        let said = Untrusted::from(term.fact.as_str()).visible(240);
        out.push(fact(view, "", format!("{:+6.2} {}: {said} [{source}]", term.weight, term.rule), Role::Text));
    }
    for state in &ranked.states {
        let because = Untrusted::from(state.because.as_str()).visible(240);
        out.push(fact(view, "acts", format!("{} on {}: {because}", state.state.word(), state.target), Role::Dim));
    }
    for open in &ranked.open {
        let (unknown, how) = (Untrusted::from(open.unknown.as_str()), Untrusted::from(open.how.as_str()));
        let said = format!("{} ({:+.2} to {:+.2}): {}", unknown.visible(160), open.down, open.up, how.visible(160));
        out.push(fact(view, "not known", said, Role::Unknown));
    }
    out
}

/// What is believed of a patch or factor now, and how often that changed.
fn belief_lines(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let all = belief::history(&view.state.beliefs, key);
    let (held, ended): (Vec<&Belief>, Vec<&Belief>) = all.iter().partition(|b| b.ended.is_none());
    let mut out: Vec<Line<'static>> = held
        .iter()
        // The verdict stands in its own line.
        .filter(|b| b.by != THE_SEARCH)
        .map(|b| {
            let says = Untrusted::from(b.says.as_str()).visible(240);
            fact(view, "believed", format!("{says}, by {}", Untrusted::from(b.by.as_str()).visible(60)), Role::Text)
        })
        .collect();
    if !ended.is_empty() {
        let said =
            format!("{} held no more; `patchbench patches explain {key}` tells", text::counted(ended.len(), "belief"));
        out.push(fact(view, "", said, Role::Dim));
    }
    out
}

/// The title line.
pub fn heading(view: &View<'_>, st: &PaneState) -> Heading {
    let patches = view.state.case.as_ref().map_or(0, |c| c.patches.len());
    let guilty = view.state.verdicts.iter().filter(|v| v.verdict == Finding::Guilty).count();
    let by = st.arrangement.words();
    let summary = match (patches, guilty) {
        (0, _) if view.derived.ranked.is_empty() => String::new(),
        (0, _) => by,
        // The columns `suspect` and `else` have no room to say what they count.
        (n, 0) => format!("{n}, {by}; failed/tried"),
        (n, g) => format!("{n}, {g} guilty, {by}; failed/tried"),
    };
    let at = view.state.targets.values().filter_map(|t| t.truth.as_ref()).map(|t| t.at).min();
    Heading { summary, at, stale_after_s: Some(STALE_S) }
}

/// The level of a patch on each of its targets; `None` is unknown.
pub fn levels_of<'a>(view: &View<'a>, patch: &Patch) -> Vec<(&'a str, Option<&'a str>)> {
    let Some(case) = &view.state.case else { return Vec::new() };
    case.targets
        .iter()
        .filter(|t| patch.targets_in(case).any(|p| p.name == t.name))
        .map(|t| (t.name.as_str(), level_of(view.state, &t.name, &patch.id).0))
        .collect()
}

/// The newest verdict about a patch.
pub fn verdict_of<'a>(view: &View<'a>, patch: &str) -> Option<&'a Verdict> {
    let mut all = view.state.verdicts.iter();
    all.rfind(|v| v.subject.kind == SubjectKind::Patch && v.subject.id == patch).map(|v| &**v)
}

/// A finding in words, and what it means for the colour.
pub fn finding_words(finding: Finding) -> (&'static str, Role) {
    match finding {
        Finding::Guilty => ("GUILTY", Role::Bad),
        Finding::Acquitted => ("acquitted", Role::Good),
        Finding::NotShown => ("not shown", Role::Warn),
        Finding::NotSeparable => ("not separable", Role::Warn),
        Finding::Inconclusive => ("inconclusive", Role::Unknown),
    }
}

fn verdict_cell(verdict: Option<&Verdict>) -> Cell {
    verdict.map_or(Cell::of("-", Role::Dim), |v| {
        let (words, role) = finding_words(v.verdict);
        Cell::of(words, role)
    })
}

fn running(view: &View<'_>, patch: &Patch) -> Cell {
    let levels = levels_of(view, patch);
    let word = |l: Option<&str>| l.unwrap_or("?").to_owned();
    let Some((_, first)) = levels.first() else { return Cell::of("?", Role::Unknown) };
    let text = if levels.iter().all(|(_, l)| l == first) {
        word(*first)
    } else {
        levels.iter().map(|(_, l)| word(*l)).collect::<Vec<_>>().join("|")
    };
    let role = match first {
        _ if levels.iter().any(|(_, l)| l.is_none()) => Role::Unknown,
        Some(level) if *level == patch.suspect => Role::Warn,
        _ => Role::Text,
    };
    Cell::of(text, role)
}

/// Counts at the suspect level and at all others.
fn counts(view: &View<'_>, patch: &Patch) -> (Count, Count) {
    let mut suspect = Count::default();
    let mut other = Count::default();
    for ((_, level), count) in
        view.derived.levels.range((patch.id.clone(), String::new())..).take_while(|((id, _), _)| *id == patch.id)
    {
        let sum = if *level == patch.suspect { &mut suspect } else { &mut other };
        sum.fail += count.fail;
        sum.n += count.n;
        sum.void += count.void;
        sum.boots.extend(&count.boots);
    }
    (suspect, other)
}

fn evidence(count: &Count) -> Cell {
    let role = match count.rate() {
        None => Role::Dim,
        Some(rate) if rate >= 0.5 => Role::Bad,
        Some(_) => Role::Text,
    };
    Cell::of(count.fraction(), role)
}

/// An error class in words.
pub fn class_words(class: ErrorClass) -> (&'static str, Role) {
    match class {
        ErrorClass::BelowFloor => ("below floor", Role::Good),
        ErrorClass::AboveFloor => ("above floor", Role::Warn),
        ErrorClass::FlipsDecisions => ("flips", Role::Bad),
        ErrorClass::Broken => ("BROKEN", Role::Bad),
    }
}

fn micro_cell(view: &View<'_>, patch: &Patch) -> Cell {
    let Some((spec, _)) = patch.measured_by() else { return Cell::of("none", Role::Dim) };
    let Some(report) = view.state.micro.iter().rfind(|r| r.spec == spec) else {
        return Cell::of("not run", Role::Dim);
    };
    patch.verdict_in(report).map_or(Cell::of("no verdict", Role::Unknown), |verdict| {
        let (words, role) = class_words(verdict.class);
        Cell::of(words, role)
    })
}

/// Everything about one patch.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let ranked = view.derived.ranked.iter().find(|r| r.id == key);
    let patch = view.state.case.as_ref().and_then(|c| c.patch(key));
    let Some(title) = patch.map(|p| &p.title).or_else(|| ranked.map(|r| &r.title)) else { return Vec::new() };
    let mut out = vec![Line::from(vec![
        view.span(key.to_owned(), Role::Strong),
        view.span(format!("  {}", Untrusted::from(title.as_str()).visible(200)), Role::Text),
    ])];
    let risk = ranked.map(|r| risk_lines(view, r)).unwrap_or_default();
    out.extend(belief_lines(view, key));
    out.extend(patch_facts::note_lines(view, key));
    let diff = view.derived.imported.get(key).map(|entry| patch_diff::lines(view, entry)).unwrap_or_default();
    let Some(patch) = patch else {
        return [out, patch_facts::imported_lines(view, key), risk, diff].concat();
    };
    match verdict_of(view, key) {
        Some(v) => {
            let (words, role) = finding_words(v.verdict);
            out.push(Line::from(vec![
                view.span(text::fit("verdict", FACT), Role::Dim),
                view.span(words, role),
                view.span(format!("  {}", v.why), Role::Text),
            ]));
        }
        None => out.push(fact(view, "verdict", format!("none yet; {} looks for one", view.key("isolate")), Role::Dim)),
    }
    for (target, level) in levels_of(view, patch) {
        let (_, source) = level_of(view.state, target, key);
        let (word, role) = match level {
            Some(l) => (l.to_owned(), if l == patch.suspect { Role::Warn } else { Role::Text }),
            None => ("unknown".into(), Role::Unknown),
        };
        out.push(Line::from(vec![
            view.span(text::fit("runs", FACT), Role::Dim),
            view.span(word, role),
            view.span(
                if level.is_some() {
                    format!(" on {target}, from {source}")
                } else {
                    format!(" on {target}: {source}")
                },
                Role::Dim,
            ),
        ]));
    }
    let levels = patch.gate.levels().map_or_else(String::new, |levels| {
        let words = levels.iter().map(|(name, value)| match value {
            LevelValue::Set(v) if v.is_empty() => format!("{name}: given"),
            LevelValue::Set(v) => format!("{name}: {v}"),
            LevelValue::Unset => format!("{name}: absent"),
            LevelValue::In => format!("{name}: in the source"),
            LevelValue::Out => format!("{name}: taken out of a copy"),
        });
        format!("  ({})", words.collect::<Vec<_>>().join(", "))
    });
    out.push(fact(
        view,
        "gate",
        format!("{}{levels}, suspect {}", patch.gate.switch_name(), patch.suspect),
        Role::Text,
    ));
    for ((_, level), count) in
        view.derived.levels.range((key.to_owned(), String::new())..).take_while(|((id, _), _)| id == key)
    {
        let void = if count.void > 0 { format!(", {} void", count.void) } else { String::new() };
        let said =
            format!("{} failed at {level}, {}{void}", count.fraction(), text::counted(count.boots.len(), "boot"));
        out.push(fact(view, "trials", said, Role::Text));
    }
    if let Some(site) = &patch.site {
        out.push(fact(view, "site", site.clone(), Role::Dim));
    }
    out.extend(risk);
    out.extend(patch_facts::reach_lines(view, key));
    for (what, how) in &patch.changes {
        out.push(fact(view, "changes", format!("{what}: {how}"), Role::Dim));
    }
    match &patch.microtest {
        Some(spec) => out.push(fact(view, "microtest", format!("{spec}, {}", micro_cell(view, patch).text), Role::Dim)),
        None => out.push(fact(view, "microtest", "none named in the case", Role::Dim)),
    }
    for (name, list) in [("requires", &patch.requires), ("excludes", &patch.excludes)] {
        if !list.is_empty() {
            out.push(fact(view, name, list.join(", "), Role::Dim));
        }
    }
    out.extend(patch_facts::gate_lines(view, key));
    out.extend(diff);
    out
}
