//! What the model remembers: failures by length and depth, the trials, and the first wrong character.

use std::collections::{BTreeMap, BTreeSet};

use imbl::Vector;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{FACT, Heading, PaneId, PaneState, View, draw_empty, draw_lines, empty_text, fact, source, split_bottom};
use crate::engine::ids::TrialId;
use crate::engine::state::{State, TrialEntry};
use crate::recall::matrix::{depth_permille, wilson};
use crate::recall::transcript::{Transcript, render_with_caret};
use crate::recall::trial::{FailKind, Outcome, ProbeForm, Trial};
use crate::ui::derived::{CellKey, Count, arm_key};
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::table::{self, Cell, Column, Source};
use crate::untrusted::{Untrusted, visible_lines};

const TEXT_CHARS: usize = 2000;
/// Cells of one column of the matrix without and with the interval.
const NARROW: usize = 7;
const WIDE: usize = 14;
const LABEL: usize = 11;
/// Least height of the pane at which its legend is drawn.
const LEGEND_FROM: u16 = 12;
/// Characters of an answer beside the marked place.
const MARKED: usize = 100;

/// The rows: trials, in the order in which they ended.
pub struct Rows<'a> {
    view: View<'a>,
    trials: &'a Vector<TrialEntry>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        Self { view, trials: &view.state.trials }
    }
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.trials.len()
    }

    fn key(&self, i: usize) -> String {
        self.trials.get(i).map_or(String::new(), |t| t.trial.id.to_string())
    }

    fn text(&self, i: usize) -> String {
        let Some(t) = self.trials.get(i).map(|t| &t.trial) else { return String::new() };
        let boots: Vec<_> = t.boots.iter().map(ToString::to_string).collect();
        format!(
            "{} {} {} {} {} {}",
            t.id,
            form_words(t.key.form),
            t.key.length,
            outcome_words(&t.outcome).0,
            boots.join("+"),
            t.got.visible(TEXT_CHARS)
        )
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::upto("id", 4, 6, 4),
            Column::upto("outcome", 10, 18, 1),
            Column::number("tokens", 6, 3),
            Column::number("depth", 5, 2),
            Column::fixed("form", 10, 5),
            Column::upto("boots", 5, 8, 6),
            Column::grow("answer", 24, 7),
            Column::number("s", 5, 8),
        ]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        let Some(t) = self.trials.get(i).map(|t| &t.trial) else { return Vec::new() };
        let (word, role) = outcome_words(&t.outcome);
        let boots: Vec<_> = t.boots.iter().map(ToString::to_string).collect();
        let running = t.boots.iter().all(|b| self.view.state.targets.values().any(|s| s.boot == Some(*b)));
        let tokens = t.prompt_tokens.map_or_else(|| format!("~{}", t.key.length), |n| n.to_string());
        vec![
            Cell::of(t.id.to_string(), Role::Dim),
            Cell::of(word, role),
            Cell::plain(tokens),
            Cell::plain(percent(t.key.depth)),
            Cell::of(form_words(t.key.form), Role::Dim),
            Cell::of(boots.join("+"), if running { Role::Text } else { Role::Dim }),
            Cell::plain(t.got.visible(200)),
            Cell::of(format!("{:.1}", t.seconds), Role::Dim),
        ]
    }

    fn append_only(&self) -> bool {
        true
    }

    fn follow_tail(&self) -> bool {
        true
    }
}

/// A form in words.
pub fn form_words(form: ProbeForm) -> &'static str {
    match form {
        ProbeForm::MultiTurn => "multi-turn",
        ProbeForm::Needle => "needle",
    }
}

/// An outcome in words.
pub fn outcome_words(outcome: &Outcome) -> (String, Role) {
    match outcome {
        Outcome::Pass => ("pass".into(), Role::Good),
        Outcome::Fail { how } => {
            let words = match how {
                FailKind::NearMiss => "NEAR MISS",
                FailKind::Wrong => "WRONG",
                FailKind::NoEarlierContext => "NO CONTEXT",
                FailKind::Loop => "LOOP",
                FailKind::Empty => "EMPTY",
            };
            (words.into(), Role::Bad)
        }
        Outcome::Void { .. } => ("void".into(), Role::Unknown),
    }
}

fn percent(depth: f64) -> String {
    format!("{:.0}%", depth * 100.0)
}

/// What one run of the case's suite costs, in words.
pub fn cost(state: &State) -> String {
    let Some(case) = &state.case else { return "the suite".into() };
    let spec = &case.recall;
    let cells = spec.lengths.len() * spec.depths.len() * 2;
    let tokens: u64 = spec.lengths.iter().map(|l| u64::from(*l)).sum::<u64>() * spec.depths.len() as u64 * 2;
    let seconds: Vec<f64> = state.trials.iter().rev().take(20).map(|t| t.trial.seconds).collect();
    let time = if seconds.is_empty() {
        String::new()
    } else {
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        format!(", about {}", text::short_duration(std::time::Duration::from_secs_f64((mean * cells as f64).max(1.0))))
    };
    format!(
        "{cells} questions of {} to {} tokens, {tokens} in all{time}; nothing is changed",
        least(&spec.lengths),
        most(&spec.lengths)
    )
}

fn least(lengths: &[u32]) -> u32 {
    lengths.iter().copied().min().unwrap_or(0)
}

fn most(lengths: &[u32]) -> u32 {
    lengths.iter().copied().max().unwrap_or(0)
}

/// The title line.
pub fn heading(view: &View<'_>, st: &PaneState) -> Heading {
    let mut summary = String::new();
    if !view.state.trials.is_empty() {
        let (cells, scope) = scoped(view, st);
        let count = total(cells);
        summary = format!("{} failed, {scope}", count.fraction());
    }
    Heading { summary, at: view.state.trials.last().map(|t| t.trial.at), stale_after_s: None }
}

fn total(cells: Option<&BTreeMap<CellKey, Count>>) -> Count {
    let mut sum = Count::default();
    for c in cells.into_iter().flat_map(BTreeMap::values) {
        sum.fail += c.fail;
        sum.n += c.n;
        sum.void += c.void;
        sum.boots.extend(&c.boots);
    }
    sum
}

/// The matrix that is shown, and in words which trials it counts.
fn scoped<'a>(view: &View<'a>, st: &PaneState) -> (Option<&'a BTreeMap<CellKey, Count>>, String) {
    if st.scope_all {
        return (Some(&view.derived.all), "all trials".into());
    }
    let now = view.derived.now(view.state);
    let boots: Vec<_> = total(now).boots.iter().map(ToString::to_string).collect();
    let words = if boots.is_empty() { "running now".into() } else { format!("running now ({})", boots.join("+")) };
    (now, words)
}

/// Matrix, trials, transcript.
pub fn draw(buffer: &mut Buffer, area: Rect, view: &View<'_>, st: &mut PaneState, focused: bool) {
    if view.state.trials.is_empty() {
        draw_empty(buffer, area, view, &empty_text(PaneId::Recall, view));
        return;
    }
    let rows = source(PaneId::Recall, *view, st);
    st.list.refresh(rows.as_ref(), view.state.seq);
    let selected = st.list.row(st.list.position(), rows.as_ref()).and_then(|i| view.state.trials.get(i));
    let mut lines = matrix(view, st, area.width as usize, selected.map(|t| &*t.trial));
    if !st.scope_all {
        // The first sentence is the rate, which the title line says already.
        let room = usize::from(area.height / 6);
        let said: Vec<_> = view.derived.remarks.iter().skip(1).map(|r| view.line(r.clone(), Role::Dim)).collect();
        lines.extend(super::wrap_lines(&said, area.width as usize).into_iter().take(room));
    }
    if area.height >= LEGEND_FROM {
        let legend = "a cell is failed/tried; ▸ is the cell of the selected trial";
        lines.insert(0, view.line(text::cut(legend, area.width as usize), Role::Dim));
    }
    let matrix_height = (lines.len() as u16).min(area.height);
    for (i, line) in lines.iter().take(matrix_height as usize).enumerate() {
        buffer.set_line(area.x, area.y + i as u16, line, area.width);
    }
    let rest = Rect { y: area.y + matrix_height, height: area.height - matrix_height, ..area };
    if rest.height < 2 {
        return;
    }
    let (list, below) = split_bottom(
        rest,
        if rest.height >= 10 {
            (rest.height / 2).min(9)
        } else if rest.height >= 7 {
            4
        } else {
            0
        },
    );
    table::draw(buffer, list, rows.as_ref(), &mut st.list, view.look, focused);
    if let (Some(below), Some(trial)) = (below, selected) {
        draw_lines(buffer, below, view, &snippet(view, &trial.trial, below.width as usize));
    }
}

/// The matrix of each form: lengths down, depths across; forms side by side where there is room.
fn matrix(view: &View<'_>, st: &PaneState, width: usize, selected: Option<&Trial>) -> Vec<Line<'static>> {
    let (cells, _) = scoped(view, st);
    let all = &view.derived.all;
    let Some(cells) = cells else {
        let sentence = format!(
            "no trial at the boots that run now; {} asks {}; {} shows all trials",
            view.key("recall"),
            cost(view.state),
            view.key("scope")
        );
        return text::wrap(&sentence, width).into_iter().map(|l| view.line(l, Role::Dim)).collect();
    };
    let forms: BTreeSet<ProbeForm> = all.keys().map(|(f, _, _)| *f).collect();
    // All rows and columns that were ever measured, so that the shape stays when the scope changes.
    let lengths: BTreeSet<u32> = all.keys().map(|(_, l, _)| *l).collect();
    let depths: BTreeSet<u32> = all.keys().map(|(_, _, d)| *d).collect();
    let needed = |cell: usize, forms: usize| forms * (LABEL + depths.len() * cell) + (forms.saturating_sub(1)) * 2;
    let n = forms.len();
    let (cell, beside) = [(WIDE, true), (NARROW, true), (WIDE, false)]
        .into_iter()
        .find(|(cell, beside)| needed(*cell, if *beside { n } else { 1 }) <= width)
        .unwrap_or((NARROW, false));
    let blocks: Vec<Vec<Line<'static>>> = forms
        .iter()
        .map(|form| {
            let mut block = Vec::new();
            let mut head = vec![view.span(text::fit(form_words(*form), LABEL), Role::Strong)];
            for depth in &depths {
                let word = format!("{}% ", depth / 10);
                head.push(view.span(text::fit_right(&word, cell), Role::Dim));
            }
            block.push(Line::from(head));
            for length in &lengths {
                let mut spans =
                    vec![view.span(format!("{} ", text::fit_right(&length.to_string(), LABEL - 1)), Role::Dim)];
                for depth in &depths {
                    let here = selected.is_some_and(|t| {
                        t.key.form == *form && t.key.length == *length && depth_permille(t.key.depth) == *depth
                    });
                    spans.extend(matrix_cell(view, cells.get(&(*form, *length, *depth)), cell, here));
                }
                block.push(Line::from(spans));
            }
            block
        })
        .collect();
    if !beside {
        return blocks.into_iter().flatten().collect();
    }
    let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|i| {
            let mut spans: Vec<Span<'static>> = Vec::new();
            for (b, block) in blocks.iter().enumerate() {
                if b > 0 {
                    spans.push(Span::raw("  "));
                }
                spans.extend(block.get(i).map(|l| l.spans.clone()).unwrap_or_default());
            }
            Line::from(spans)
        })
        .collect()
}

/// Digits on the colour of the rate, with the interval where it fits; the selected trial's cell is pointed at.
fn matrix_cell(view: &View<'_>, count: Option<&Count>, cell: usize, here: bool) -> Vec<Span<'static>> {
    let inner = cell - 1;
    let Some(rate) = count.and_then(Count::rate) else {
        let words = match count {
            Some(c) if c.void > 0 => format!("{} void", c.void),
            _ => "·".into(),
        };
        return vec![view.span(text::fit_right(&words, inner), Role::Unknown), Span::raw(" ")];
    };
    let c = count.cloned().unwrap_or_default();
    let mut words = c.fraction();
    if inner >= WIDE - 1 {
        let (low, high) = wilson(c.fail, c.n).unwrap_or((0.0, 1.0));
        words = format!("{words} {:.0}-{:.0}%", low * 100.0, high * 100.0);
    }
    let words = text::fit_right(&words, inner - usize::from(here));
    let words = if here { format!("▸{words}") } else { words };
    vec![view.span(words, Role::Heat(heat(rate))), Span::raw(" ")]
}

fn heat(rate: f64) -> u8 {
    match rate {
        r if r <= 0.0 => 0,
        r if r < 0.25 => 1,
        r if r < 0.5 => 2,
        r if r < 0.75 => 3,
        _ => 4,
    }
}

/// Expected and got, one above the other, with a caret under the first wrong character.
pub fn snippet(view: &View<'_>, trial: &Trial, width: usize) -> Vec<Line<'static>> {
    let (word, role) = outcome_words(&trial.outcome);
    let mut head = vec![
        view.span(format!("{} ", trial.id), Role::Dim),
        view.span(word, role),
        view.span(
            format!(
                "  {} at {} of {} tokens",
                form_words(trial.key.form),
                percent(trial.key.depth),
                trial.prompt_tokens.map_or_else(|| "unknown".into(), |n| n.to_string())
            ),
            Role::Dim,
        ),
    ];
    if let Outcome::Void { why } = &trial.outcome {
        head.push(view.span(format!("  {}", Untrusted::from(why.as_str()).visible(200)), Role::Unknown));
    }
    let mut out = vec![Line::from(head)];
    let label = FACT;
    let room = width.saturating_sub(label).max(8);
    let wrong = trial.first_wrong.unwrap_or(usize::MAX);
    // Long answers are shown from shortly before the first wrong character.
    let from = if trial.first_wrong.is_some_and(|w| w + 8 > room) { wrong.saturating_sub(room / 2) } else { 0 };
    let window = |whole: &str| -> (String, Option<usize>) {
        let tail: String = whole.chars().skip(from).collect();
        let lead = if from > 0 { "…" } else { "" };
        let shown = format!("{lead}{}", Untrusted::new(tail).visible(TEXT_CHARS));
        let before: String = whole.chars().skip(from).take(wrong.saturating_sub(from)).collect();
        let caret = (wrong != usize::MAX && whole.chars().count() >= wrong)
            .then(|| text::width(lead) + text::width(&Untrusted::new(before).visible(TEXT_CHARS)));
        (text::cut(&shown, room), caret)
    };
    let (expected, _) = window(&trial.expected);
    let (got, caret) = window(trial.got.raw());
    out.push(fact(view, "expected", expected, Role::Text));
    out.push(if trial.got.is_empty() {
        fact(view, "got", "nothing", Role::Unknown)
    } else {
        fact(view, "got", got, Role::Text)
    });
    if let (Some(caret), Some(wrong)) = (caret, trial.first_wrong)
        && caret < room
    {
        let words = format!("^ first wrong character ({})", wrong + 1);
        out.push(Line::from(view.span(format!("{}{words}", " ".repeat(label + caret)), Role::Bad)));
    }
    out
}

/// The whole conversation of a trial: the messages, the answer, and the first wrong character marked.
pub fn transcript(view: &View<'_>, trial: TrialId, read: &Transcript) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let text = |out: &mut Vec<Line<'static>>, text: &str| {
        out.extend(visible_lines(text).lines().map(|line| view.line(line.to_owned(), Role::Text)));
    };
    let (word, role) = outcome_words(&read.outcome);
    out.push(Line::from(vec![view.span(format!("{trial} "), Role::Dim), view.span(word, role)]));
    let marked = render_with_caret(&read.expected, &read.answer, read.first_wrong, MARKED);
    for line in marked.lines() {
        let role = if line.trim() == "^" { Role::Bad } else { Role::Text };
        out.push(view.line(line.to_owned(), role));
    }
    if let Some(error) = &read.error {
        out.push(view.line(error.visible(TEXT_CHARS), Role::Unknown));
    }
    for (i, message) in read.messages.iter().enumerate() {
        let told = if i == read.told_in { ", tells the fact" } else { "" };
        let role = format!("{:?}", message.role).to_lowercase();
        out.push(Line::default());
        out.push(view.line(format!("[{}] {role}{told}", i + 1), Role::Strong));
        text(&mut out, &message.content);
    }
    for (title, said) in [("reasoning", &read.reasoning), ("answer", &read.answer)] {
        if !said.is_empty() {
            out.push(Line::default());
            out.push(view.line(title, Role::Strong));
            text(&mut out, said.raw());
        }
    }
    out
}

/// Everything about one trial.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    let Some(entry) = view.state.trials.iter().find(|t| t.trial.id.to_string() == key) else { return Vec::new() };
    let t = &entry.trial;
    let mut out = snippet(view, t, 100);
    let boots: Vec<_> = t.boots.iter().map(ToString::to_string).collect();
    out.push(fact(view, "boots", boots.join(" "), Role::Text));
    let cached = t.cached_tokens.map_or_else(|| "unknown".into(), |n| n.to_string());
    let tokens = t.prompt_tokens.map_or_else(|| "unknown".into(), |n| n.to_string());
    out.push(fact(
        view,
        "tokens",
        format!("{tokens} as the server counts, {} aimed at, {cached} from the cache", t.key.length),
        Role::Text,
    ));
    out.push(fact(
        view,
        "took",
        format!("{:.1} s, {} ago, seed {}", t.seconds, text::age(view.now, t.at), t.key.seed),
        Role::Dim,
    ));
    for (key, level) in &t.arm {
        out.push(fact(view, "arm", format!("{} = {level}", arm_key(view.state, key)), Role::Dim));
    }
    for (factor, level) in &t.factors {
        out.push(fact(view, "factor", format!("{factor} = {level}"), Role::Dim));
    }
    for window in view.state.windows.iter().filter(|w| w.covers(t.at) && !w.values.is_empty()) {
        let words = window.words().join(", ");
        out.push(fact(view, "load", format!("{} during {}: {words}", window.target, window.job), Role::Dim));
    }
    let transcript = match &t.transcript {
        Some(hash) => format!("{} shows it; blob {}", view.key("transcript"), hash.0),
        None => "not kept: nothing was sent".into(),
    };
    out.push(fact(view, "transcript", transcript, Role::Dim));
    out.push(fact(view, "journal", format!("line {}", entry.seq), Role::Dim));
    out
}
