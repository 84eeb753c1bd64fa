//! What runs now and how far it is; commands that wait; remote changes that wait, run, failed or were left half done.

use ratatui::text::{Line, Span};

use super::{Heading, View, fact};
use crate::engine::input::JobOutcome;
use crate::engine::procedure::{Action, Phase, Procedure, Step};
use crate::engine::queue::Queued;
use crate::engine::state::{Job, ProcedureState, ProcedureStatus, Proposal};
use crate::serving::load_phase::{self, Loading};
use crate::ui::derived::loading;
use crate::ui::text;
use crate::ui::theme::Role;
use crate::ui::widget::bar::progress;
use crate::ui::widget::table::{Cell, Column, Source};
use crate::untrusted::Untrusted;

const MAX_CHARS: usize = 4000;

enum Entry<'a> {
    Proposal(&'a Proposal),
    Procedure(&'a ProcedureState),
    Queued(&'a Queued),
    Job(&'a Job),
}

/// The rows: what waits for an answer, what runs, then what is over, newest first.
pub struct Rows<'a> {
    view: View<'a>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Rows<'a> {
    /// The rows of this state.
    pub fn new(view: View<'a>) -> Self {
        let mut entries: Vec<Entry<'a>> = Vec::new();
        entries.extend(view.state.proposals.values().filter(|p| p.approved.is_none()).map(Entry::Proposal));
        entries.extend(view.state.procedures.values().filter(|p| open(&p.status)).map(Entry::Procedure));
        entries.extend(view.state.jobs.values().filter(|j| j.outcome.is_none()).map(Entry::Job));
        entries.extend(view.state.queue.items.iter().map(Entry::Queued));
        entries.extend(view.state.jobs.values().rev().filter(|j| j.outcome.is_some()).map(Entry::Job));
        Self { view, entries }
    }
}

/// Whether a change still needs somebody's eye.
pub fn open(status: &ProcedureStatus) -> bool {
    !matches!(status, ProcedureStatus::Completed | ProcedureStatus::Undone | ProcedureStatus::Discarded)
}

impl Source for Rows<'_> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, i: usize) -> String {
        match &self.entries[i] {
            Entry::Proposal(p) => p.id.to_string(),
            Entry::Procedure(p) => p.procedure.id.to_string(),
            Entry::Queued(q) => q.id.to_string(),
            Entry::Job(j) => j.id.to_string(),
        }
    }

    fn text(&self, i: usize) -> String {
        self.cells(i).into_iter().map(|c| c.text).collect::<Vec<_>>().join(" ")
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::upto("id", 3, 5, 3),
            Column::upto("state", 9, 11, 1),
            Column::fixed("progress", 8, 4),
            Column::number("time", 5, 5),
            Column::upto("what", 14, 60, 2),
            Column::grow("now", 12, 6),
        ]
    }

    fn cells(&self, i: usize) -> Vec<Cell> {
        match &self.entries[i] {
            Entry::Proposal(p) => vec![
                Cell::of(p.id.to_string(), Role::Dim),
                Cell::of("PROPOSED", Role::Warn),
                Cell::of("", Role::Dim),
                Cell::of("", Role::Dim),
                Cell::plain(p.command.spelling()),
                Cell::of(format!("by {}", shown(&p.by.name)), Role::Dim),
            ],
            Entry::Procedure(p) => {
                let (word, role) = status_words(&p.status);
                let done = p.steps.iter().filter(|s| s.done).count();
                let share = done as f64 / p.procedure.steps.len().max(1) as f64;
                vec![
                    Cell::of(p.procedure.id.to_string(), Role::Dim),
                    Cell::of(word, role),
                    Cell::of(progress(share, 8, self.view.look.ascii), Role::Dim),
                    Cell::of("", Role::Dim),
                    Cell::plain(shown(&p.procedure.title)),
                    Cell::of(now_words(p), Role::Dim),
                ]
            }
            Entry::Queued(q) => vec![
                Cell::of(q.id.to_string(), Role::Dim),
                Cell::of("queued", Role::Strong),
                Cell::of("", Role::Dim),
                Cell::of(text::age(self.view.now, q.at), Role::Dim),
                Cell::plain(shown(&q.command.spelling())),
                Cell::of(queued_words(q), Role::Dim),
            ],
            Entry::Job(j) => job_cells(&self.view, j),
        }
    }
}

fn job_cells(view: &View<'_>, j: &Job) -> Vec<Cell> {
    let (word, role) = match &j.outcome {
        None if j.cancelling => ("cancelling", Role::Warn),
        None => ("running", Role::Strong),
        Some(JobOutcome::Done) => ("done", Role::Good),
        Some(JobOutcome::Failed { .. }) => ("FAILED", Role::Bad),
        Some(JobOutcome::Cancelled) => ("cancelled", Role::Warn),
        Some(JobOutcome::Lost) => ("lost", Role::Unknown),
    };
    let live = view.live.progress.get(&j.id).filter(|_| j.outcome.is_none());
    let loads = loading_of(view, j);
    let bar = match live {
        _ if loads.is_some() => match loads.and_then(|(_, l)| l.share()) {
            Some(share) => progress(share.value(), 8, view.look.ascii),
            None => String::new(),
        },
        Some(p) => match p.total {
            Some(total) if total > 0 => progress(p.done as f64 / total as f64, 8, view.look.ascii),
            _ => format!("{} done", p.done),
        },
        None => String::new(),
    };
    let now = match (&j.outcome, live) {
        (Some(JobOutcome::Failed { failure }), _) => shown(&failure.message),
        _ if loads.is_some() => loads.map_or_else(String::new, |(target, l)| {
            let left = l.left(&load_phase::earlier(view.state, target), view.now);
            l.line(left)
        }),
        (None, Some(p)) => {
            let count = p.total.map_or_else(String::new, |t| format!("{}/{t} ", p.done));
            let eta = p.eta_s.map_or_else(String::new, |s| {
                let left = std::time::Duration::try_from_secs_f64(s).unwrap_or_default();
                format!(", {} to go", text::short_duration(left))
            });
            format!("{count}{}{eta}", shown(&p.phase))
        }
        _ => String::new(),
    };
    let time = text::age(j.ended_at.unwrap_or(view.now), j.started_at);
    vec![
        Cell::of(j.id.to_string(), Role::Dim),
        Cell::of(word, role),
        Cell::of(bar, Role::Text),
        Cell::of(time, Role::Dim),
        Cell::plain(shown(&j.title)),
        Cell::of(now, Role::Dim),
    ]
}

/// How far the start is that a running job waits for.
fn loading_of<'a>(view: &View<'a>, j: &Job) -> Option<(&'a str, &'a Loading)> {
    let id = j.procedure.filter(|_| j.outcome.is_none())?;
    let target = view.state.procedures.get(&id)?.procedure.target.as_str();
    Some((target, loading(view.state, view.live, target)?))
}

/// The phases of a start that goes on, with what each took and what it took before.
fn phase_lines(view: &View<'_>, target: &str, loads: &Loading) -> Vec<Line<'static>> {
    let earlier = load_phase::earlier(view.state, target);
    let times = loads.times();
    let mut out = Vec::new();
    for (i, begun) in loads.begun().iter().enumerate() {
        let took = times.get(i).map_or_else(
            || format!("since {}", text::age(view.now, begun.at)),
            |(_, seconds)| format!("{seconds:.1} s"),
        );
        let nth = loads.begun().iter().take(i).filter(|b| b.phase == begun.phase).count();
        let before = earlier.iter().filter(|(p, _)| *p == begun.phase).nth(nth);
        let before = before.map_or_else(String::new, |(_, s)| format!(", {s:.1} s at the start before"));
        out.push(fact(view, "phase", format!("{} {took}{before}", begun.phase.words()), Role::Text));
    }
    out.push(fact(view, "left", loads.left(&earlier, view.now).words(), Role::Text));
    out
}

fn shown(text: &str) -> String {
    Untrusted::from(text).visible(MAX_CHARS)
}

fn status_words(status: &ProcedureStatus) -> (&'static str, Role) {
    match status {
        ProcedureStatus::Planned => ("CONFIRM?", Role::Warn),
        ProcedureStatus::Running { phase: Phase::Do } => ("changing", Role::Warn),
        ProcedureStatus::Running { phase: Phase::Undo } => ("undoing", Role::Warn),
        ProcedureStatus::Interrupted { .. } => ("HALF DONE", Role::Bad),
        ProcedureStatus::Completed => ("completed", Role::Good),
        ProcedureStatus::Undone => ("undone", Role::Text),
        ProcedureStatus::Failed { .. } => ("FAILED", Role::Bad),
        ProcedureStatus::Discarded => ("discarded", Role::Dim),
    }
}

fn queued_words(q: &Queued) -> String {
    q.after.map_or_else(|| "waits for the one before it".to_owned(), |id| format!("waits for {id}"))
}

fn now_words(p: &ProcedureState) -> String {
    match &p.status {
        ProcedureStatus::Failed { failure } => shown(&failure.message),
        ProcedureStatus::Running { .. } | ProcedureStatus::Interrupted { .. } => {
            let step = p.steps.iter().position(|s| s.started && !s.done && !s.undone);
            step.and_then(|i| p.procedure.steps.get(i)).map_or(String::new(), |s| format!("step {}", s.name))
        }
        _ => String::new(),
    }
}

/// The title line.
pub fn heading(view: &View<'_>) -> Heading {
    let running = view.state.jobs.values().filter(|j| j.outcome.is_none()).count();
    let waiting = view.state.procedures.values().filter(|p| p.status == ProcedureStatus::Planned).count()
        + view.state.proposals.values().filter(|p| p.approved.is_none()).count();
    let mut words = Vec::new();
    if running > 0 {
        words.push(format!("{running} running"));
    }
    if waiting > 0 {
        words.push(format!("{waiting} to confirm"));
    }
    let queued = view.state.queue.items.len();
    if queued > 0 {
        words.push(format!("{queued} queued"));
    }
    Heading { summary: words.join(", "), at: None, stale_after_s: None }
}

/// Exactly what a step asks the host for: the shell text as it is, or the question in words.
pub fn action_lines(action: &Action) -> Vec<String> {
    match action {
        Action::Nothing => Vec::new(),
        Action::Shell { script, .. } => script.lines().map(shown).collect(),
        Action::ProcessGone { pid, timeout_s, .. } => {
            vec![format!("(wait up to {timeout_s} s until process {pid} is gone)")]
        }
        Action::Router { ask, worker, timeout_s } => vec![format!("({})", shown(&ask.words(worker, *timeout_s)))],
        Action::EntryToken { entry, timeout_s } => {
            vec![format!("(ask a whole request of {} within {timeout_s} s)", shown(entry))]
        }
        Action::ProveBoot { expect, timeout_s } => vec![format!(
            "(prove the start within {timeout_s} s: new pid owns port {}, ready line in {}, first token, {} read back)",
            expect.port,
            shown(&expect.log),
            text::counted(expect.readback.len(), "level")
        )],
    }
}

/// The steps of a change with their exact commands.
pub fn step_lines(view: &View<'_>, procedure: &Procedure) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for (i, step) in procedure.steps.iter().enumerate() {
        out.extend(one_step(view, i, step));
    }
    out
}

/// The steps of a change with what each runs, word for word, but for the lease; how it is checked, proven and taken
/// back is counted, and `key` shows it.
pub fn folded_lines(view: &View<'_>, procedure: &Procedure, key: &str) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for (i, step) in procedure.steps.iter().enumerate() {
        let head = view.span(format!("{}. {}", i + 1, shown(&step.name)), Role::Strong);
        let all = [Some(&step.check), Some(&step.apply), Some(&step.proof), step.undo.as_ref()];
        let count = |actions: &[Option<&Action>]| -> usize {
            actions.iter().flatten().map(|action| action_lines(action).len()).sum()
        };
        if let Some(what) = lease_words(&step.name, &procedure.target) {
            let lines = text::counted(count(&all), "line");
            out.push(Line::from(vec![
                head,
                view.span(format!("  {what}"), Role::Text),
                view.span(format!("  ({key}: {lines})"), Role::Dim),
            ]));
            continue;
        }
        let rest = [Some(&step.check), Some(&step.proof), step.undo.as_ref()];
        let names: Vec<&str> = ["check", "proof", "undo"]
            .into_iter()
            .zip(rest)
            .filter(|(_, action)| count(&[*action]) > 0)
            .map(|(name, _)| name)
            .collect();
        let mut line = vec![head];
        if !names.is_empty() {
            let lines = text::counted(count(&rest), "line");
            line.push(view.span(format!("  ({key}: {}, {lines})", names.join(", ")), Role::Dim));
        }
        out.push(Line::from(line));
        let mut run = action_lines(&step.apply);
        if run.is_empty() || matches!(step.proof, Action::Router { .. }) {
            // A step that waits says for what.
            run.extend(action_lines(&step.proof));
        }
        out.extend(run.into_iter().map(|text| Line::from(vec![Span::raw("   "), view.span(text, Role::Text)])));
    }
    out
}

/// What a step about the lease does, in a few words; `None` for any other step.
fn lease_words(step: &str, target: &str) -> Option<String> {
    match step {
        "lease" => Some(format!("reserves {target}, leaves its way back")),
        "give-lease-back" => Some(format!("gives {target} free again")),
        _ => None,
    }
}

fn one_step(view: &View<'_>, i: usize, step: &Step) -> Vec<Line<'static>> {
    let mut out = vec![view.line(format!("{}. {}", i + 1, shown(&step.name)), Role::Strong)];
    let parts = [
        ("check", Some(&step.check)),
        ("run", Some(&step.apply)),
        ("proof", Some(&step.proof)),
        ("undo", step.undo.as_ref()),
    ];
    for (name, action) in parts {
        let Some(action) = action else { continue };
        for (n, text) in action_lines(action).into_iter().enumerate() {
            let role = if name == "run" { Role::Text } else { Role::Dim };
            let lead = if n == 0 { text::fit(name, 6) } else { " ".repeat(6) };
            out.push(Line::from(vec![view.span(format!("   {lead}"), Role::Dim), view.span(text, role)]));
        }
    }
    out
}

/// Everything about one job, change or proposal.
pub fn detail(view: &View<'_>, key: &str) -> Vec<Line<'static>> {
    if let Some(p) = view.state.proposals.values().find(|p| p.id.to_string() == key) {
        return vec![
            fact(view, "proposed", p.command.spelling(), Role::Strong),
            fact(view, "by", shown(&p.by.name), Role::Text),
            fact(view, "answer", format!("`:approve {0}` or `:reject {0}`", p.id), Role::Text),
        ];
    }
    if let Some(p) = view.state.procedures.values().find(|p| p.procedure.id.to_string() == key) {
        let (word, role) = status_words(&p.status);
        let id = p.procedure.id;
        let mut out = vec![
            Line::from(vec![
                view.span(word, role),
                view.span(format!("  {}", shown(&p.procedure.title)), Role::Strong),
            ]),
            fact(view, "target", p.procedure.target.clone(), Role::Text),
        ];
        match &p.status {
            ProcedureStatus::Failed { failure } => {
                out.push(fact(view, "because", shown(&failure.message), Role::Bad));
                if let Some(hint) = &failure.hint {
                    out.push(fact(view, "hint", shown(hint), Role::Text));
                }
                out.push(fact(view, "next", format!("`:resume-procedure {id}` or `:undo-procedure {id}`"), Role::Text));
            }
            ProcedureStatus::Interrupted { .. } => {
                out.push(fact(view, "because", "the program ended while it ran", Role::Bad));
                out.push(fact(view, "next", format!("`:resume-procedure {id}` or `:undo-procedure {id}`"), Role::Text));
            }
            ProcedureStatus::Planned => {
                out.push(fact(view, "next", format!("`:confirm {id}` or `:discard {id}`"), Role::Text));
            }
            _ => {}
        }
        for (i, (step, state)) in p.procedure.steps.iter().zip(&p.steps).enumerate() {
            let how = match (state.undone, state.done, state.started) {
                (true, _, _) => "taken back",
                (_, true, _) => "done",
                (_, _, true) => "begun",
                _ => "not begun",
            };
            out.push(Line::from(vec![
                view.span(format!("{}. {}  ", i + 1, shown(&step.name)), Role::Strong),
                view.span(how, Role::Text),
            ]));
            for e in &state.evidence {
                out.push(Line::from(vec![
                    view.span(format!("   {}: {}  ", e.about, e.seen.visible(MAX_CHARS)), Role::Text),
                    view.span(e.source.clone(), Role::Dim),
                ]));
            }
        }
        out.extend(step_lines(view, &p.procedure));
        return out;
    }
    if let Some(q) = view.state.queue.items.iter().find(|q| q.id.to_string() == key) {
        return vec![
            fact(view, "queued", q.command.spelling(), Role::Strong),
            fact(view, "by", shown(&q.by.name), Role::Text),
            fact(view, "waits", format!("{}; it is dropped if that does not end well", queued_words(q)), Role::Text),
            fact(view, "take out", format!("`:unqueue {}`, or {} here", q.id, view.key("cancel")), Role::Text),
        ];
    }
    let Some(j) = view.state.jobs.values().find(|j| j.id.to_string() == key) else { return Vec::new() };
    let cells = job_cells(view, j);
    let mut out = vec![
        Line::from(vec![
            view.span(format!("{}  ", cells[1].text), cells[1].role),
            view.span(shown(&j.title), Role::Strong),
            view.span(format!("  {}", cells[3].text), Role::Dim),
        ]),
        view.line(cells[5].text.clone(), Role::Text),
    ];
    if let Some(JobOutcome::Failed { failure }) = &j.outcome
        && let Some(hint) = &failure.hint
    {
        out.push(fact(view, "hint", shown(hint), Role::Text));
    }
    if let Some((target, loads)) = loading_of(view, j) {
        out.extend(phase_lines(view, target, loads));
    }
    if let Some(tokens) = view.live.tokens.get(&j.id) {
        let end: String = tokens.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
        out.push(fact(view, "answering", end, Role::Text));
    }
    if let Some(log) = view.live.job_logs.get(&j.id) {
        let skip = log.lines.len().saturating_sub(50);
        out.extend(log.lines.iter().skip(skip).map(|l| view.line(l.visible(MAX_CHARS), Role::Dim)));
    }
    out
}
