//! What a person is looking at: focus, zoom, layers, selections, filters; and what they ask for.
//!
//! `App` is view state alone: it takes keys, states and live messages in, and gives requests out.
//! It does no I/O and reads no clock; `run` does.

mod draw;
mod perform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyEvent, KeyEventKind};
use jiff::Timestamp;

use crate::engine::command::{Command, EndState};
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::ids::{JobId, ProcedureId, QueuedId, TrialId};
use crate::engine::input::{ActorRole, JobOutcome};
use crate::engine::live::Live;
use crate::engine::procedure::Failure;
use crate::engine::queue;
use crate::engine::state::{ProcedureStatus, State};
use crate::isolate::estimate::estimate;
use crate::recall::transcript::Transcript;
use crate::session::format::BlobHash;
use crate::ui::action::{self, Action, Context};
use crate::ui::derived::Derived;
use crate::ui::keymap::{Key, Keymap, Lookup};
use crate::ui::layer::confirm::Confirm;
use crate::ui::layer::detail::Detail;
use crate::ui::layer::{Layer, Outcome};
use crate::ui::layout::Layout;
use crate::ui::layout::solve::Solved;
use crate::ui::live::LiveRings;
use crate::ui::pane::{self, PaneId, PaneState, View};
use crate::ui::text;
use crate::ui::theme::Look;
use crate::ui::widget::list::Filter;

/// Jobs shorter than this end without a bell.
const BELL_AFTER: Duration = Duration::from_secs(10);
/// Cells of a refused command in the message line: the reason must fit behind it, and the timeline has the whole.
const SHOWN_OF_COMMAND: usize = 40;

/// What the screen asks of the rest of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Send this to the engine.
    Command(Command),
    /// Put this into the clipboard.
    Copy(String),
    /// Something long has ended: ring, and say this in the terminal's title or notification.
    Bell(String),
    /// Read this transcript, and give it to [`App::show_transcript`].
    Transcript {
        /// The trial.
        trial: TrialId,
        /// Where it is.
        hash: BlobHash,
    },
    /// Draw everything again, trusting nothing that is on the terminal.
    Redraw,
    /// Leave.
    Quit,
}

/// What may be done from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The session goes on, and this person acts or proposes.
    Live(ActorRole),
    /// A recorded session: nothing can be changed.
    Past,
}

/// How the app begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What may be done.
    pub mode: Mode,
    /// Colours and characters.
    pub look: Look,
    /// Keys.
    pub keymap: Keymap,
    /// Layouts; must not be empty.
    pub layouts: Vec<Layout>,
    /// What is wrong with the user's layouts and keys.
    pub remarks: Vec<Diagnostic>,
}

/// A line for the person, until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub severity: Severity,
    /// The sentence.
    pub text: String,
    /// What one can do.
    pub hint: Option<String>,
}

/// View state.
#[derive(Debug)]
pub struct App {
    mode: Mode,
    look: Look,
    keymap: Keymap,
    layouts: Vec<Layout>,
    layout: usize,
    focus: PaneId,
    zoomed: bool,
    panes: BTreeMap<PaneId, PaneState>,
    layers: Vec<Layer>,
    pending: Vec<Key>,
    message: Option<Message>,
    solved: Solved,
    state: Arc<State>,
    derived: Derived,
    /// The newest state while the view is frozen.
    held: Option<Arc<State>>,
    live: LiveRings,
    now: Timestamp,
    /// Changes asked for whose plan has not come yet.
    plans_awaited: usize,
    /// Plans that were shown, or that were there before.
    plans_seen: BTreeSet<ProcedureId>,
    /// Set while the servers are put into their end state before leaving.
    leaving: bool,
    /// The search that was asked for once; the same again begins it.
    asked: Option<Command>,
    dirty: bool,
}

impl App {
    /// A view of this state.
    pub fn new(setup: Setup, state: Arc<State>, now: Timestamp) -> Self {
        let mut derived = Derived::default();
        derived.update(&state);
        let focus = setup.layouts.first().and_then(|l| l.panes().next()).unwrap_or(PaneId::Patches);
        let message = setup.remarks.first().map(|d| Message {
            severity: d.severity,
            text: match &d.place {
                Some(place) => format!("{}: {}", place, d.message),
                None => d.message.clone(),
            },
            hint: d.hint.clone(),
        });
        Self {
            mode: setup.mode,
            look: setup.look,
            keymap: setup.keymap,
            layouts: setup.layouts,
            layout: 0,
            focus,
            zoomed: false,
            panes: BTreeMap::new(),
            layers: Vec::new(),
            pending: Vec::new(),
            message,
            solved: Solved::default(),
            plans_seen: state.procedures.keys().copied().collect(),
            state,
            derived,
            held: None,
            live: LiveRings::default(),
            now,
            plans_awaited: 0,
            leaving: false,
            asked: None,
            dirty: true,
        }
    }

    /// Takes a key.
    pub fn handle_key(&mut self, event: KeyEvent) -> Vec<Request> {
        if event.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.dirty = true;
        if let Some(mut layer) = self.layers.pop() {
            let outcome = layer.key(event, &self.view());
            return self.layer_outcome(layer, outcome);
        }
        self.message = None;
        let key = Key::of(event);
        self.pending.push(key);
        let run = match self.keymap.lookup(&self.pending) {
            Lookup::Pending => return Vec::new(),
            Lookup::Bound(binding) => Some(binding.run.clone()),
            Lookup::Nothing => None,
        };
        let was_sequence = self.pending.len() > 1;
        self.pending.clear();
        match run {
            Some(line) => self.run_line(&line),
            // The key that broke a sequence may mean something alone.
            None if was_sequence => self.handle_key(event),
            None => Vec::new(),
        }
    }

    /// Takes pasted text: only inputs want it.
    pub fn handle_paste(&mut self, text: &str) -> Vec<Request> {
        let Some(mut layer) = self.layers.pop() else {
            self.say("pasted text is taken in inputs only", Some("`:` opens the command line".into()));
            return Vec::new();
        };
        self.dirty = true;
        let outcome = layer.paste(text);
        self.layer_outcome(layer, outcome)
    }

    /// Takes a new state.
    pub fn update_state(&mut self, state: Arc<State>) -> Vec<Request> {
        self.dirty = true;
        if self.held.is_some() {
            self.held = Some(state);
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.state, state);
        self.derived.update(&self.state);
        let mut requests = self.announce(&before);
        self.show_plan();
        // The choice may not have reached the engine yet; until it has, nothing has been put back.
        if self.leaving && self.at_rest() && (self.state.end_state.is_some() || self.state.refusal != before.refusal) {
            self.leaving = false;
            let last = self.state.procedures.values().next_back();
            let failed = last.is_some_and(|p| matches!(p.status, ProcedureStatus::Failed { .. }));
            if !failed && self.state.refusal == before.refusal {
                requests.push(Request::Quit);
            }
        }
        requests
    }

    /// Opens a transcript that was asked for, or says why it cannot be read.
    pub fn show_transcript(&mut self, trial: TrialId, read: Result<Transcript, String>) {
        self.dirty = true;
        match read {
            Ok(transcript) => {
                let lines = pane::recall::transcript(&self.view(), trial, &transcript);
                self.layers.push(Layer::Detail(Detail::of_text(format!("Transcript of {trial}"), lines)));
            }
            Err(why) => self.fail(Failure::new(why).hint("`patchbench session verify` says which are damaged")),
        }
    }

    /// Takes a live message.
    pub fn take_live(&mut self, message: Live) {
        self.dirty = true;
        self.live.take(message);
    }

    /// Whether something has changed since this was last asked.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Says that the screen must be drawn again.
    pub fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    /// When the ages on the screen change next, if nothing else happens.
    pub fn next_tick(&self) -> Option<Duration> {
        let last = self.state.timeline.last().map(|e| e.at)?;
        let running = self.state.jobs.values().any(|j| j.outcome.is_none());
        let young = self.now.duration_since(last).as_secs() < 60;
        Some(Duration::from_secs(if running || young { 1 } else { 30 }))
    }

    /// The state that is shown.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The pane that has the focus.
    pub fn focus(&self) -> PaneId {
        self.focus
    }

    /// The layers, the topmost last.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The message for the person, if there is one.
    pub fn message(&self) -> Option<&Message> {
        self.message.as_ref()
    }

    /// Whether the view is held still.
    pub fn frozen(&self) -> bool {
        self.held.is_some()
    }

    fn view(&self) -> View<'_> {
        View {
            state: &self.state,
            derived: &self.derived,
            live: &self.live,
            look: self.look,
            keys: &self.keymap,
            now: self.now,
        }
    }

    /// Runs a line of the palette, a key or a script.
    pub fn run_line(&mut self, line: &str) -> Vec<Request> {
        let patches = self.selected_patches();
        let target = self.selected_target();
        let (job, queued) = (self.selected_job(), self.selected_queued());
        let context = Context {
            state: &self.state,
            derived: &self.derived,
            patches: &patches,
            target: target.as_deref(),
            job,
            queued,
        };
        let action = action::parse(line, &context);
        match action {
            Ok(Action::Screen(screen)) => self.screen(screen),
            Ok(Action::Engine(commands)) if self.asks_first(&commands) => Vec::new(),
            Ok(Action::Engine(commands)) => self.send(commands),
            Err(failure) => {
                self.fail(failure);
                Vec::new()
            }
        }
    }

    /// A search restarts servers without a question each time, so that is said once and asked for again.
    fn asks_first(&mut self, commands: &[Command]) -> bool {
        let acts = matches!(self.mode, Mode::Live(ActorRole::Driver));
        let Some(search @ Command::Isolate { .. }) = commands.first().filter(|_| acts) else {
            self.asked = None;
            return false;
        };
        if self.asked.take().as_ref() == Some(search) {
            return false;
        }
        self.asked = Some(search.clone());
        let cost = estimate(&self.state);
        let targets: Vec<_> = self.state.case.iter().flat_map(|c| &c.targets).map(|t| t.name.as_str()).collect();
        let text = format!(
            "the search restarts {} about {} times in {:.0} min, without asking each time: the same again begins it",
            targets.join(", "),
            cost.boots,
            cost.minutes.ceil()
        );
        self.say(&text, None);
        true
    }

    fn send(&mut self, commands: Vec<Command>) -> Vec<Request> {
        let role = match self.mode {
            Mode::Past => {
                self.fail(
                    Failure::new("this is a recorded session; nothing can be changed")
                        .hint("open it with `session resume`"),
                );
                return Vec::new();
            }
            Mode::Live(role) => role,
        };
        commands
            .into_iter()
            .map(|command| {
                let free = matches!(command, Command::Note { .. } | Command::Propose { .. });
                if role == ActorRole::Watcher && !free {
                    self.say(&format!("proposed to the driver: {}", command.spelling()), None);
                    return Request::Command(Command::Propose { command: Box::new(command) });
                }
                // What cannot begin beside the change that runs waits for it.
                let waits = queue::must_wait(&self.state, &command);
                let command = if waits { Command::Queue { command: Box::new(command) } } else { command };
                self.sent(&command);
                Request::Command(command)
            })
            .collect()
    }

    /// What a command that goes out means for the view.
    fn sent(&mut self, command: &Command) {
        if plans(command) {
            self.plans_awaited += 1;
            if self.held.is_some() {
                let _ = self.thaw();
            }
        }
        match command {
            Command::Note { .. } => self.say("note written", None),
            Command::Snapshot { name } => self.say(&format!("snapshot `{name}` taken"), None),
            Command::Confirm { procedure, .. } => self.say(&format!("{procedure} runs; the jobs show its steps"), None),
            Command::Discard { procedure } => self.say(&format!("{procedure} dropped; nothing was changed"), None),
            Command::Queue { command } => self.say(
                &format!("`{}` waits until the change that runs is over", command.spelling()),
                Some("the jobs show it, and `c` on it there takes it out".into()),
            ),
            other => self.say(&format!("asked: {}", other.spelling()), None),
        }
    }

    fn layer_outcome(&mut self, layer: Layer, outcome: Outcome) -> Vec<Request> {
        match outcome {
            Outcome::Stay => {
                self.layers.push(layer);
                self.refresh_palette();
                Vec::new()
            }
            Outcome::Close => self.layer_closed(),
            Outcome::Run(line) => {
                let mut requests = self.layer_closed();
                requests.extend(self.run_line(&line));
                requests
            }
            Outcome::Filter { pane, typed, done } => {
                self.set_filter(pane, &Filter::parse(&typed));
                if done {
                    return self.layer_closed();
                }
                self.layers.push(layer);
                Vec::new()
            }
            Outcome::Confirm { procedure, typed } => {
                let mut requests = self.send(vec![Command::Confirm { procedure, typed }]);
                requests.extend(self.layer_closed());
                requests
            }
            Outcome::Discard(procedure) => {
                self.leaving = false;
                let mut requests = self.send(vec![Command::Discard { procedure }]);
                requests.extend(self.layer_closed());
                requests
            }
            Outcome::Note(text) => {
                let requests = self.send(vec![Command::Note { text }]);
                self.show_plan();
                requests
            }
            Outcome::Snapshot(name) => {
                let requests = self.send(vec![Command::Snapshot { name }]);
                self.show_plan();
                requests
            }
            Outcome::Leave(leave) => self.leave(leave),
        }
    }

    fn layer_closed(&mut self) -> Vec<Request> {
        self.show_plan();
        Vec::new()
    }

    fn refresh_palette(&mut self) {
        let names: Vec<String> = self.layouts.iter().map(|l| l.name.clone()).collect();
        let patches = self.selected_patches();
        let target = self.selected_target();
        let (job, queued) = (self.selected_job(), self.selected_queued());
        if let Some(Layer::Palette(palette)) = self.layers.last_mut() {
            let context = Context {
                state: &self.state,
                derived: &self.derived,
                patches: &patches,
                target: target.as_deref(),
                job,
                queued,
            };
            palette.refresh(&context, &names);
        }
    }

    /// Opens the question about a plan that was asked for; never over something that is being typed.
    fn show_plan(&mut self) {
        let waiting =
            |id: &ProcedureId| self.state.procedures.get(id).is_some_and(|p| p.status == ProcedureStatus::Planned);
        // A question that was answered elsewhere closes.
        self.layers.retain(|l| !matches!(l, Layer::Confirm(c) if !waiting(&c.procedure)));
        let may_ask = matches!(self.mode, Mode::Live(ActorRole::Driver | ActorRole::Program));
        if !may_ask || self.layers.iter().any(|l| l.takes_text() || matches!(l, Layer::Confirm(_))) {
            return;
        }
        let new: Vec<ProcedureId> =
            self.state.procedures.keys().filter(|id| !self.plans_seen.contains(id)).copied().collect();
        for id in new {
            let planned = self.state.procedures.get(&id).is_some_and(|p| p.status == ProcedureStatus::Planned);
            if !planned {
                self.plans_seen.insert(id);
                continue;
            }
            if self.plans_awaited == 0 {
                continue;
            }
            self.plans_seen.insert(id);
            self.plans_awaited -= 1;
            self.ask_about(id);
            return;
        }
    }

    fn ask_about(&mut self, id: ProcedureId) {
        let procedure = self.state.procedures.get(&id).map(|p| p.procedure.clone());
        let case = self.state.case.as_ref();
        // A target that the case does not know is treated as production.
        let name =
            procedure.filter(|p| case.and_then(|c| c.target(&p.target)).is_none_or(|t| t.production)).map(|p| p.word());
        self.layers.push(Layer::Confirm(Confirm::new(id, name)));
    }

    /// Says what has ended or was refused since the state before.
    fn announce(&mut self, before: &State) -> Vec<Request> {
        let mut requests = Vec::new();
        if let Some(refusal) = self.state.refusal.clone()
            && before.refusal.as_ref().is_none_or(|b| b.seq != refusal.seq)
        {
            self.plans_awaited = self.plans_awaited.saturating_sub(1);
            self.leaving = false;
            self.fail(Failure {
                message: format!(
                    "refused `{}`: {}",
                    text::cut(&refusal.command, SHOWN_OF_COMMAND),
                    refusal.failure.message
                ),
                hint: refusal.failure.hint,
            });
        }
        self.announce_queue(before);
        let ended: Vec<JobId> =
            before.jobs.values().filter(|j| j.outcome.is_none()).map(|j| j.id).filter(|id| self.is_over(*id)).collect();
        let started_and_ended =
            self.state.jobs.keys().filter(|id| !before.jobs.contains_key(*id) && self.is_over(**id));
        let all: Vec<JobId> = ended.into_iter().chain(started_and_ended.copied()).collect();
        for id in all {
            self.live.job_ended(id);
            let Some(job) = self.state.jobs.get(&id).cloned() else { continue };
            let took = job.ended_at.map_or(0, |end| end.duration_since(job.started_at).as_secs());
            if let Some(JobOutcome::Failed { failure }) = &job.outcome {
                self.plans_awaited = self.plans_awaited.saturating_sub(usize::from(job.title.starts_with("plan: ")));
                self.fail(Failure {
                    message: format!("{} failed: {}", job.title, failure.message),
                    hint: failure.hint.clone(),
                });
            }
            if took >= BELL_AFTER.as_secs() as i64 {
                requests.push(Request::Bell(format!("{}: {}", job.title, outcome_word(job.outcome.as_ref()))));
            }
        }
        requests
    }

    /// Says which waiting command was dropped; a plan of one that left without beginning comes no more.
    fn announce_queue(&mut self, before: &State) {
        let begun = |job: &JobId| self.state.queue.jobs.contains(job) && !before.queue.jobs.contains(job);
        let begun = self.state.jobs.keys().any(begun);
        let gone = before.queue.items.iter().filter(|q| !self.state.queue.items.iter().any(|now| now.id == q.id));
        let never = gone.skip(usize::from(begun)).filter(|q| plans(&q.command)).count();
        self.plans_awaited = self.plans_awaited.saturating_sub(never);
        let dropped = self.state.queue.dropped.clone();
        if let Some(dropped) = dropped.filter(|d| before.queue.dropped.as_ref().is_none_or(|b| b.seq != d.seq)) {
            let message = format!("dropped `{}`, which waited: {}", dropped.command.spelling(), dropped.why);
            self.fail(Failure::new(message).hint("ask for it anew"));
        }
    }

    fn is_over(&self, id: JobId) -> bool {
        self.state.jobs.get(&id).is_some_and(|j| j.outcome.is_some())
    }

    /// Nothing runs and no change waits.
    fn at_rest(&self) -> bool {
        self.state.running_jobs().next().is_none()
            && self
                .state
                .procedures
                .values()
                .all(|p| !matches!(p.status, ProcedureStatus::Planned | ProcedureStatus::Running { .. }))
    }

    fn thaw(&mut self) -> Vec<Request> {
        self.held.take().map_or_else(Vec::new, |state| self.update_state(state))
    }

    fn say(&mut self, text: &str, hint: Option<String>) {
        self.dirty = true;
        self.message = Some(Message { severity: Severity::Info, text: text.to_owned(), hint });
    }

    fn fail(&mut self, failure: Failure) {
        self.dirty = true;
        self.message = Some(Message { severity: Severity::Error, text: failure.message, hint: failure.hint });
    }

    fn with_list<R>(
        &mut self,
        pane: PaneId,
        act: impl FnOnce(&mut PaneState, &dyn crate::ui::widget::table::Source, u64) -> R,
    ) -> R {
        let mut st = self.panes.remove(&pane).unwrap_or_default();
        let view = self.view();
        let seq = view.state.seq;
        let rows = pane::source(pane, view, &st);
        st.list.refresh(rows.as_ref(), seq);
        let result = act(&mut st, rows.as_ref(), seq);
        drop(rows);
        self.panes.insert(pane, st);
        result
    }

    fn set_filter(&mut self, pane: PaneId, filter: &Filter) {
        self.with_list(pane, |st, rows, seq| st.list.set_filter(filter.clone(), rows, seq));
    }

    fn selected_patches(&mut self) -> Vec<String> {
        self.with_list(PaneId::Patches, |st, rows, _| {
            let marked = st.list.marked(rows);
            if marked.is_empty() { st.list.selected_key(rows).into_iter().collect() } else { marked }
        })
    }

    /// The target of the selected row of the server pane, if that pane has the focus.
    fn selected_target(&mut self) -> Option<String> {
        if self.focus != PaneId::Server {
            return None;
        }
        let key = self.with_list(PaneId::Server, |st, rows, _| st.list.selected_key(rows))?;
        key.split_once('\u{1f}').map(|(target, _)| target.to_owned())
    }

    fn selected_job(&mut self) -> Option<JobId> {
        let key = self.with_list(PaneId::Jobs, |st, rows, _| st.list.selected_key(rows))?;
        key.strip_prefix('j').and_then(|n| n.parse().ok()).map(JobId)
    }

    /// The waiting command that is selected, if the jobs have the focus.
    fn selected_queued(&mut self) -> Option<QueuedId> {
        if self.focus != PaneId::Jobs {
            return None;
        }
        let key = self.with_list(PaneId::Jobs, |st, rows, _| st.list.selected_key(rows))?;
        key.strip_prefix('q').and_then(|n| n.parse().ok()).map(QueuedId)
    }

    /// The configuration as it is, if each patch has one level on all its targets.
    fn levels_now(&self) -> Option<EndState> {
        let mut levels: BTreeMap<String, String> = BTreeMap::new();
        for truth in self.state.targets.values().filter_map(|t| t.truth.as_ref()) {
            for (patch, level) in &truth.levels {
                let level = level.clone()?;
                if levels.insert(patch.clone(), level.clone()).is_some_and(|other| other != level) {
                    return None;
                }
            }
        }
        Some(EndState::Stated { levels })
    }
}

/// Whether a command leads to a plan that is asked about.
fn plans(command: &Command) -> bool {
    match command {
        Command::Toggle { .. }
        | Command::Restart { .. }
        | Command::Stop { .. }
        | Command::Restore { .. }
        | Command::Approve { .. }
        | Command::ChooseEndState { .. } => true,
        Command::Queue { command } => plans(command),
        _ => false,
    }
}

fn outcome_word(outcome: Option<&JobOutcome>) -> &'static str {
    match outcome {
        Some(JobOutcome::Done) => "done",
        Some(JobOutcome::Failed { .. }) => "failed",
        Some(JobOutcome::Cancelled) => "cancelled",
        Some(JobOutcome::Lost) => "lost",
        None => "running",
    }
}
