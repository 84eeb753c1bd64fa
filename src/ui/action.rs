//! What a line of the palette, a key or a script means: a command for the engine or an act of the screen.
//!
//! Arguments that are left out come from what is marked, else from what is selected.
//! Pure: the line and what it refers to go in, the action comes out.

mod patches;

use std::collections::{BTreeMap, BTreeSet};

use crate::case::{Case, Patch};
use crate::engine::command::{Command, EndState, RecallPlan};
use crate::engine::ids::{JobId, ProcedureId, ProposalId, QueuedId};
use crate::engine::procedure::Failure;
use crate::engine::state::State;
use crate::engine::table;
use crate::patch::import::ImportFrom;
use crate::patch::inventory::By;
use crate::patch::risk::{Factor, Kind};
use crate::patch::types::Phase;
use crate::recall::trial::ProbeForm;
use crate::ui::derived::{Derived, level_of};
use crate::ui::layout::solve::Direction;
use crate::ui::pane::PaneId;
use crate::ui::pane::kernels::view::{Act, Shown, names};
use crate::ui::pane::patch_order::{Grouping, Order};
use crate::ui::theme::Theme;

/// What a line means.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// For the engine, in this order.
    Engine(Vec<Command>),
    /// For the screen.
    Screen(Screen),
}

/// An act of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Open the help.
    Help,
    /// Open the palette.
    Palette,
    /// Go to the pane with this number.
    FocusNumber(usize),
    /// Go to this pane, even if the layout does not have it.
    FocusPane(PaneId),
    /// Go to the next pane, or the previous one.
    FocusStep {
        /// Forwards.
        forward: bool,
    },
    /// Go to the neighbour.
    FocusTowards(Direction),
    /// Give the screen to one pane, or take it back.
    Zoom,
    /// Show the next layout.
    NextLayout,
    /// Show this layout.
    Layout(String),
    /// Show this theme, or the next one.
    Theme(Option<Theme>),
    /// Hold the view, or let it go.
    Freeze,
    /// Draw all again.
    Redraw,
    /// Leave.
    Quit,
    /// Close what is open.
    Back,
    /// Move the selection by rows.
    Step(isize),
    /// Move the selection by pages.
    Page(isize),
    /// Move the cursor of a curve.
    Cursor(isize),
    /// First row.
    First,
    /// Last row.
    Last,
    /// Show all of the selected row.
    Open,
    /// Show the conversation of the selected trial.
    Transcript,
    /// Mark or unmark the selected row.
    Mark,
    /// Type a filter.
    Filter,
    /// Invert the filter.
    FilterInvert,
    /// Go to the next match, or the previous one.
    Match {
        /// Forwards.
        forward: bool,
    },
    /// Copy.
    Copy,
    /// Change what the matrix counts.
    Scope,
    /// Change what is shown of a microtest.
    Kernels(Act),
    /// Show the patches in this order, or the next one.
    Sort(Option<Order>),
    /// Group the patches by this, or by the next.
    Group(Option<Grouping>),
    /// Unfold what a question folds; without a question there is nothing folded.
    Unfold,
    /// Type the rest of a command of which this much is said.
    Ask {
        /// What is asked, for the person.
        title: String,
        /// The command and its first arguments.
        lead: String,
        /// What stands there to begin with; the first character that is typed takes its place.
        suggestion: String,
    },
    /// Type a note.
    AskNote,
    /// Type the name of a snapshot.
    AskSnapshot,
}

/// What a line may refer to without naming it.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What is known.
    pub state: &'a State,
    /// Counts over it.
    pub derived: &'a Derived,
    /// The patches that are marked, else the one that is selected.
    pub patches: &'a [String],
    /// The target of the selected row, where the focused pane has one.
    pub target: Option<&'a str>,
    /// The job that is selected.
    pub job: Option<JobId>,
    /// The waiting command that is selected in the focused pane.
    pub queued: Option<QueuedId>,
}

/// Reads a line.
///
/// # Errors
/// The line names no command, lacks an argument that nothing is selected for, or names something unknown.
pub fn parse(line: &str, context: &Context<'_>) -> Result<Action, Failure> {
    let (name, rest) = split_word(line.trim());
    let Some(entry) = table::entry(name) else {
        return Err(Failure::new(format!("there is no command `{name}`")).hint("`:` lists all commands"));
    };
    if let Some(screen) = screen(entry.name, rest)? {
        return Ok(Action::Screen(screen));
    }
    if let Some(asked) = patches::ask(entry.name, rest, context)? {
        return Ok(Action::Screen(asked));
    }
    let args: Vec<&str> = rest.split_whitespace().collect();
    let commands = match entry.name {
        "toggle" => toggle(&args, context)?,
        "restart" => vec![restart(&args, context)?],
        "stop" => vec![Command::Stop { target: target_or_selected(args.first(), context)? }],
        "restore" => vec![Command::Restore { target: known_target(args.first(), context)? }],
        "elevate" => vec![elevate(&args, context, entry)?],
        "probe" => vec![Command::Probe { target: known_target(args.first(), context)? }],
        "recall" => vec![Command::Recall { plan: recall_plan(&args, context)? }],
        "merge-patches" => vec![patches::merge(rest, context)?],
        "split-patch" => vec![patches::split(&args, context)?],
        "phases" => patches::phases(rest, context)?,
        "gate" => vec![patches::gate(rest, context)?],
        "patch-note" => vec![patches::note(rest, context)?],
        "believe" => vec![believe(rest)?],
        "import-patches" => vec![Command::ImportPatches { from: import_from(&args)? }],
        "micro" => micro(&args, context)?,
        "micro-cards" => micro(&[&args[..], &["--device", "all"]].concat(), context)?,
        "isolate" => vec![Command::Isolate { patches: isolate_patches(rest, context)? }],
        "stop-isolation" => vec![Command::StopIsolation],
        "cancel" if args.is_empty() && context.queued.is_some() => {
            context.queued.into_iter().map(|queued| Command::Unqueue { queued }).collect()
        }
        "cancel" => vec![Command::Cancel { job: job(args.first(), context)? }],
        "note" => vec![Command::Note { text: rest.to_owned() }],
        "snapshot" => vec![Command::Snapshot { name: rest.to_owned() }],
        "confirm" => vec![Command::Confirm {
            procedure: procedure(args.first(), entry)?,
            typed: args.get(1).map(|t| (*t).to_owned()),
        }],
        "discard" => vec![Command::Discard { procedure: procedure(args.first(), entry)? }],
        "resume-procedure" => vec![Command::ResumeProcedure { procedure: procedure(args.first(), entry)? }],
        "undo-procedure" => vec![Command::UndoProcedure { procedure: procedure(args.first(), entry)? }],
        "approve" => vec![Command::Approve { proposal: ProposalId(number(args.first(), 'w', entry)?) }],
        "reject" => vec![Command::Reject { proposal: ProposalId(number(args.first(), 'w', entry)?) }],
        "queue" => match parse(rest, context)? {
            Action::Engine(commands) => commands.into_iter().map(|c| Command::Queue { command: Box::new(c) }).collect(),
            Action::Screen(_) => return Err(Failure::new("only a command for the engine can wait")),
        },
        "unqueue" => vec![Command::Unqueue { queued: QueuedId(number(args.first(), 'q', entry)?) }],
        "propose" => match parse(rest, context)? {
            Action::Engine(commands) => {
                commands.into_iter().map(|c| Command::Propose { command: Box::new(c) }).collect()
            }
            Action::Screen(_) => return Err(Failure::new("only a command for the engine can be proposed")),
        },
        "end-state" => vec![Command::ChooseEndState { end_state: end_state(&args, entry)? }],
        other => return Err(Failure::new(format!("`{other}` cannot be run from here"))),
    };
    Ok(Action::Engine(commands))
}

fn screen(name: &str, rest: &str) -> Result<Option<Screen>, Failure> {
    Ok(Some(match name {
        "help" => Screen::Help,
        "palette" => Screen::Palette,
        "focus" => match (rest.parse(), PaneId::parse(rest)) {
            (Ok(n), _) => Screen::FocusNumber(n),
            (_, Some(pane)) => Screen::FocusPane(pane),
            _ => {
                let known = PaneId::ALL.map(PaneId::name).join(", ");
                return Err(Failure::new(format!("there is no pane `{rest}`")).hint(format!("panes are {known}")));
            }
        },
        "focus-next" => Screen::FocusStep { forward: true },
        "focus-previous" => Screen::FocusStep { forward: false },
        "focus-left" => Screen::FocusTowards(Direction::Left),
        "focus-right" => Screen::FocusTowards(Direction::Right),
        "focus-up" => Screen::FocusTowards(Direction::Up),
        "focus-down" => Screen::FocusTowards(Direction::Down),
        "zoom" => Screen::Zoom,
        "next-layout" => Screen::NextLayout,
        "layout" => Screen::Layout(rest.to_owned()),
        "theme" if rest.is_empty() => Screen::Theme(None),
        "theme" => {
            if let Some(theme) = Theme::parse(rest) {
                Screen::Theme(Some(theme))
            } else {
                let known = Theme::ALL.map(Theme::name).join(", ");
                return Err(Failure::new(format!("there is no theme `{rest}`")).hint(format!("themes are {known}")));
            }
        }
        "freeze" => Screen::Freeze,
        "redraw" => Screen::Redraw,
        "quit" => Screen::Quit,
        "back" => Screen::Back,
        "down" => Screen::Step(1),
        "up" => Screen::Step(-1),
        "left" => Screen::Cursor(-1),
        "right" => Screen::Cursor(1),
        "page-down" => Screen::Page(1),
        "page-up" => Screen::Page(-1),
        "first" => Screen::First,
        "last" => Screen::Last,
        "open" => Screen::Open,
        "transcript" => Screen::Transcript,
        "mark" => Screen::Mark,
        "filter" => Screen::Filter,
        "filter-invert" => Screen::FilterInvert,
        "next-match" => Screen::Match { forward: true },
        "previous-match" => Screen::Match { forward: false },
        "copy" => Screen::Copy,
        "scope" => Screen::Scope,
        "sort" => Screen::Sort(chosen(rest, "order", &Order::ALL.map(Order::name), Order::parse)?),
        "group" => Screen::Group(chosen(rest, "grouping", &Grouping::ALL.map(Grouping::name), Grouping::parse)?),
        "view" => Screen::Kernels(Act::Show(chosen(rest, "view", &Shown::ALL.map(Shown::name), Shown::parse)?)),
        "candidate" => Screen::Kernels(Act::Choose(named(rest))),
        "hide" => Screen::Kernels(Act::Hide(named(rest))),
        "show-all" => Screen::Kernels(Act::ShowAll),
        "closer" => Screen::Kernels(Act::Zoom { closer: true }),
        "wider" => Screen::Kernels(Act::Zoom { closer: false }),
        "overlay" => Screen::Kernels(Act::LayOver),
        "unfold" => Screen::Unfold,
        "note" if rest.is_empty() => Screen::AskNote,
        "snapshot" if rest.is_empty() => Screen::AskSnapshot,
        _ => return Ok(None),
    }))
}

/// What is named of a few things; nothing is the next one.
fn chosen<T>(word: &str, what: &str, known: &[&str], parse: fn(&str) -> Option<T>) -> Result<Option<T>, Failure> {
    if word.is_empty() {
        return Ok(None);
    }
    let unknown =
        || Failure::new(format!("there is no {what} `{word}`")).hint(format!("it is one of {}", known.join(", ")));
    parse(word).map(Some).ok_or_else(unknown)
}

fn named(word: &str) -> Option<String> {
    (!word.is_empty()).then(|| word.to_owned())
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).map_or((text, ""), |(a, b)| (a, b.trim()))
}

fn case<'a>(context: &Context<'a>) -> Result<&'a Case, Failure> {
    context.state.case.as_deref().ok_or_else(|| Failure::new("no case is open"))
}

fn patch<'a>(case: &'a Case, id: &str) -> Result<&'a Patch, Failure> {
    case.patch(id).ok_or_else(|| {
        let known: Vec<_> = case.patches.iter().map(|p| p.id.as_str()).collect();
        if Factor::ALL.iter().any(|f| f.id() == id) {
            return Failure::new(format!("`{id}` is a factor: no server has a switch for it"))
                .hint("it needs no restart; trials meet it by how they ask");
        }
        Failure::new(format!("the case has no patch `{id}`")).hint(format!("patches are {}", known.join(", ")))
    })
}

fn target(case: &Case, name: &str) -> Result<String, Failure> {
    case.target(name).map(|t| t.name.clone()).ok_or_else(|| {
        let known: Vec<_> = case.targets.iter().map(|t| t.name.as_str()).collect();
        Failure::new(format!("there is no target `{name}`")).hint(format!("targets are {}", known.join(", ")))
    })
}

fn known_target(arg: Option<&&str>, context: &Context<'_>) -> Result<Option<String>, Failure> {
    arg.map(|name| target(case(context)?, name)).transpose()
}

fn target_or_selected(arg: Option<&&str>, context: &Context<'_>) -> Result<String, Failure> {
    let case = case(context)?;
    if let Some(name) = arg.copied().or(context.target) {
        return target(case, name);
    }
    match case.targets.as_slice() {
        [only] => Ok(only.name.clone()),
        targets => {
            let known: Vec<_> = targets.iter().map(|t| t.name.as_str()).collect();
            Err(Failure::new("which target?").hint(format!("name one of {}", known.join(", "))))
        }
    }
}

/// The level that runs on every target of the patch; `None` where it is unknown or they differ.
fn running_level<'a>(state: &'a State, case: &Case, patch: &Patch, only: Option<&str>) -> Option<&'a str> {
    let targets = patch.targets_in(case).filter(|t| only.is_none_or(|o| o == t.name));
    let mut levels = targets.map(|t| level_of(state, &t.name, &patch.id).0);
    let first = levels.next()??;
    levels.all(|l| l == Some(first)).then_some(first)
}

/// The level after the one that runs; the innocent one where that is not known.
fn next_level(state: &State, case: &Case, patch: &Patch, only: Option<&str>) -> Result<String, Failure> {
    let names: Vec<&str> = patch.gate.levels().map(|l| l.keys().map(String::as_str).collect()).unwrap_or_default();
    if names.len() < 2 {
        return Err(Failure::new(format!(
            "`{}` cannot be switched: its gate is `{}`",
            patch.id,
            patch.gate.switch_name()
        ))
        .hint("give it a gate with two levels in the case file"));
    }
    let now = running_level(state, case, patch, only);
    Ok(match now.and_then(|n| names.iter().position(|l| *l == n)) {
        Some(i) => names[(i + 1) % names.len()].to_owned(),
        None => patch.innocent_level().unwrap_or(names[0]).to_owned(),
    })
}

/// `PATCH SAYS; EVIDENCE[; WHY]`.
fn believe(rest: &str) -> Result<Command, Failure> {
    let form = || {
        Failure::new("`believe` needs a patch, what is believed and what it rests on")
            .hint("believe PATCH SAYS; EVIDENCE; WHY")
    };
    let (subject, rest) = split_word(rest.trim());
    let parts: Vec<&str> = rest.splitn(3, ';').map(str::trim).collect();
    match parts[..] {
        [says, evidence, ref why @ ..] if !subject.is_empty() && !says.is_empty() && !evidence.is_empty() => {
            Ok(Command::Believe {
                subject: subject.to_owned(),
                says: says.to_owned(),
                evidence: evidence.to_owned(),
                why: why.first().filter(|w| !w.is_empty()).map(|w| (*w).to_owned()),
            })
        }
        _ => Err(form()),
    }
}

fn import_from(args: &[&str]) -> Result<ImportFrom, Failure> {
    let Some(source) = args.first() else {
        return Err(Failure::new("`import-patches` needs a diff file or a range of commits"));
    };
    Ok(ImportFrom::named(source, args.get(1).copied(), None))
}

fn toggle(args: &[&str], context: &Context<'_>) -> Result<Vec<Command>, Failure> {
    let case = case(context)?;
    if let Some(first) = args.first() {
        let (id, at) = first.split_once('@').map_or((*first, None), |(p, t)| (p, Some(t)));
        let patch = patch(case, id)?;
        let target = at.map(|t| target(case, t)).transpose()?;
        let level = match args.get(1) {
            Some(level) => check_level(patch, level)?,
            None => next_level(context.state, case, patch, at)?,
        };
        return Ok(vec![Command::Toggle { patch: id.to_owned(), target, level }]);
    }
    match context.patches {
        [] => Err(Failure::new("no patch is selected").hint("go to the patches, or type `toggle PATCH LEVEL`")),
        [one] => {
            let patch = patch(case, one)?;
            let level = next_level(context.state, case, patch, None)?;
            Ok(vec![Command::Toggle { patch: one.clone(), target: None, level }])
        }
        several => {
            // One restart for each target, with all its marked patches, instead of one for each patch.
            let mut by_target: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
            for id in several {
                let patch = patch(case, id)?;
                let level = next_level(context.state, case, patch, None)?;
                for t in patch.targets_in(case) {
                    by_target.entry(t.name.clone()).or_default().insert(id.clone(), level.clone());
                }
            }
            Ok(by_target.into_iter().map(|(target, levels)| Command::Restart { target, levels }).collect())
        }
    }
}

fn check_level(patch: &Patch, level: &str) -> Result<String, Failure> {
    let names: Vec<&str> = patch.gate.levels().map(|l| l.keys().map(String::as_str).collect()).unwrap_or_default();
    if names.contains(&level) {
        return Ok(level.to_owned());
    }
    let failure = Failure::new(format!("`{}` has no level `{level}`", patch.id));
    Err(if names.is_empty() {
        failure.hint(format!("its gate is `{}`", patch.gate.switch_name()))
    } else {
        failure.hint(format!("its levels are {}", names.join(", ")))
    })
}

fn restart(args: &[&str], context: &Context<'_>) -> Result<Command, Failure> {
    let case = case(context)?;
    let named = args.first().filter(|a| !a.contains('='));
    let target = target_or_selected(named, context)?;
    let levels = levels(&args[usize::from(named.is_some())..], Some(case))?;
    Ok(Command::Restart { target, levels })
}

fn elevate(args: &[&str], context: &Context<'_>, entry: &table::Entry) -> Result<Command, Failure> {
    let target = known_target(args.first(), context)?;
    let minutes = args.get(1).and_then(|m| m.parse::<u32>().ok());
    match (target, minutes) {
        (Some(target), Some(minutes)) => Ok(Command::Elevate { target, seconds: minutes.saturating_mul(60) }),
        _ => Err(Failure::new(format!("`elevate` needs {}", entry.args.join(" ")))),
    }
}

fn levels(args: &[&str], case: Option<&Case>) -> Result<BTreeMap<String, String>, Failure> {
    args.iter()
        .map(|pair| {
            let (id, level) = pair
                .split_once('=')
                .ok_or_else(|| Failure::new(format!("`{pair}` is no level")).hint("levels are written PATCH=LEVEL"))?;
            if let Some(case) = case {
                check_level(patch(case, id)?, level)?;
            }
            Ok((id.to_owned(), level.to_owned()))
        })
        .collect()
}

/// Takes `--name VALUE` out of the arguments.
fn option<'a>(args: &[&'a str], name: &str) -> Result<Option<&'a str>, Failure> {
    match args.iter().position(|a| *a == name) {
        None => Ok(None),
        Some(i) => match args.get(i + 1) {
            Some(value) => Ok(Some(value)),
            None => Err(Failure::new(format!("`{name}` needs a value"))),
        },
    }
}

/// The suite of the case, with fresh conversations where these boots have been asked before.
fn recall_plan(args: &[&str], context: &Context<'_>) -> Result<RecallPlan, Failure> {
    let case = case(context)?;
    let lengths = match option(args, "--lengths")? {
        None => case.recall.lengths.clone(),
        Some(text) => text
            .split(',')
            .map(|n| n.parse().map_err(|_| Failure::new(format!("`{n}` is no number of tokens"))))
            .collect::<Result<_, _>>()?,
    };
    let repeats = match option(args, "--repeats")? {
        None => 1,
        Some(n) => n.parse().map_err(|_| Failure::new(format!("`{n}` is no number of repeats")))?,
    };
    // Equal seeds are paired across arms, so each new set of boots begins again at the session's seed.
    let asked =
        context.derived.now(context.state).map_or(0, |cells| cells.values().map(|c| c.n + c.void).max().unwrap_or(0));
    Ok(RecallPlan {
        forms: vec![ProbeForm::MultiTurn, ProbeForm::Needle],
        lengths,
        depths: case.recall.depths.clone(),
        repeats,
        seed: context.state.session.seed.wrapping_add(u64::from(asked)),
        concurrency: case.budget.concurrency,
        factors: BTreeMap::new(),
    })
}

fn micro(args: &[&str], context: &Context<'_>) -> Result<Vec<Command>, Failure> {
    let device = option(args, "--device")?.unwrap_or("cpu").to_owned();
    let checkpoint = option(args, "--checkpoint")?.map(str::to_owned);
    let candidates = option(args, "--candidates")?.map(str::to_owned);
    let force_device = args.contains(&"--force-device");
    let activations = option(args, "--activations")?.map(str::to_owned);
    let run = |spec: String| Command::Micro {
        spec,
        device: device.clone(),
        force_device,
        checkpoint: checkpoint.clone(),
        candidates: candidates.clone(),
        activations: activations.clone(),
    };
    if let Some(spec) = args.first().filter(|a| !a.starts_with("--")) {
        return Ok(vec![run((*spec).to_owned())]);
    }
    let case = case(context)?;
    let mut specs: Vec<String> = Vec::new();
    for id in context.patches {
        if let Some((spec, _)) = patch(case, id)?.measured_by()
            && !specs.iter().any(|s| s == spec)
        {
            specs.push(spec.to_owned());
        }
    }
    if specs.is_empty() {
        let mut known: Vec<&str> = case.patches.iter().filter_map(|p| Some(p.measured_by()?.0)).collect();
        known.dedup();
        let hint = match known.first() {
            Some(spec) => format!("`:micro {spec}` runs one that the case names"),
            None => "name one, such as `:micro mhc-mix`".into(),
        };
        return Err(Failure::new("what is selected names no microtest").hint(hint));
    }
    Ok(specs.into_iter().map(run).collect())
}

/// A key searches all patches; only names that were typed narrow the search.
fn isolate_patches(rest: &str, context: &Context<'_>) -> Result<Vec<String>, Failure> {
    let case = case(context)?;
    rest.split([',', ' ']).filter(|id| !id.is_empty()).map(|id| patch(case, id).map(|p| p.id.clone())).collect()
}

fn job(arg: Option<&&str>, context: &Context<'_>) -> Result<JobId, Failure> {
    if let Some(text) = arg {
        let digits = text.strip_prefix('j').unwrap_or(text);
        return digits.parse().map(JobId).map_err(|_| Failure::new(format!("`{text}` is no job")));
    }
    let running: Vec<JobId> = context.state.running_jobs().map(|j| j.id).collect();
    match (context.job.filter(|j| running.contains(j)), running.as_slice()) {
        (Some(job), _) => Ok(job),
        (None, [only]) => Ok(*only),
        (None, []) => Err(Failure::new("no job runs")),
        (None, _) => Err(Failure::new("which job?").hint("select one in the jobs, or type `cancel JOB`")),
    }
}

fn number(arg: Option<&&str>, letter: char, entry: &table::Entry) -> Result<u64, Failure> {
    let usage = || Failure::new(format!("`{}` needs {}", entry.name, entry.args.join(" ")));
    let text = arg.ok_or_else(usage)?;
    text.strip_prefix(letter).unwrap_or(text).parse().map_err(|_| usage())
}

fn procedure(arg: Option<&&str>, entry: &table::Entry) -> Result<ProcedureId, Failure> {
    number(arg, 'p', entry).map(ProcedureId)
}

fn end_state(args: &[&str], entry: &table::Entry) -> Result<EndState, Failure> {
    match args {
        ["original"] => Ok(EndState::Original),
        ["best-known"] => Ok(EndState::BestKnown),
        ["stated", rest @ ..] => Ok(EndState::Stated { levels: levels(rest, None)? }),
        _ => Err(Failure::new(format!("`end-state` needs {}", entry.args.join(" ")))),
    }
}

/// What can stand at the next place of a line, for the palette: whole lines, in the order of the case.
pub fn completions(line: &str, context: &Context<'_>, layouts: &[String]) -> Vec<String> {
    let Some((name, rest)) = line.split_once(' ') else { return Vec::new() };
    let (before, word) = rest.rsplit_once(' ').unwrap_or(("", rest));
    let done: Vec<&str> = before.split_whitespace().collect();
    let empty = Case::default();
    let case = context.state.case.as_deref().unwrap_or(&empty);
    let patches = || case.patches.iter().map(|p| p.id.clone());
    let targets = || case.targets.iter().map(|t| t.name.clone());
    let options: Vec<String> = match (name, done.len()) {
        ("toggle", 0) => match word.split_once('@') {
            Some((id, _)) => {
                let patch = case.patch(id);
                patch.map_or_else(Vec::new, |p| p.targets_in(case).map(|t| format!("{id}@{}", t.name)).collect())
            }
            None => patches().collect(),
        },
        ("toggle", 1) => {
            let id = done[0].split_once('@').map_or(done[0], |(p, _)| p);
            let levels = case.patch(id).and_then(|p| p.gate.levels());
            levels.map_or_else(Vec::new, |l| l.keys().cloned().collect())
        }
        ("restart" | "stop" | "restore" | "probe" | "elevate", 0) => targets().collect(),
        ("restart", _) => case
            .patches
            .iter()
            .flat_map(|p| {
                let levels = p.gate.levels().into_iter().flat_map(BTreeMap::keys);
                levels.map(|l| format!("{}={l}", p.id)).collect::<Vec<_>>()
            })
            .collect(),
        ("view", 0) => Shown::ALL.map(|view| view.name().to_owned()).to_vec(),
        ("candidate" | "hide", 0) => {
            let names = context.state.micro.iter().flat_map(|r| names(r)).map(str::to_owned);
            names.collect::<BTreeSet<_>>().into_iter().collect()
        }
        ("isolate", _) | ("gate", 0) => patches().collect(),
        ("split-patch", 0) => context.derived.imported.keys().cloned().collect(),
        ("phases" | "patch-note", 0) => {
            context.derived.ranked.iter().filter(|r| r.kind == Kind::Patch).map(|r| r.id.clone()).collect()
        }
        ("phases", 1) => Phase::ALL.map(|phase| phase.word().to_owned()).to_vec(),
        ("split-patch", 1) => By::ALL.map(|by| by.word().to_owned()).to_vec(),
        ("micro" | "micro-cards", 0) => crate::kernel::specs().iter().map(|spec| spec.name.to_owned()).collect(),
        ("unqueue", 0) => context.state.queue.items.iter().map(|q| q.id.to_string()).collect(),
        ("cancel", 0) => context.state.running_jobs().map(|j| j.id.to_string()).collect(),
        ("confirm" | "discard" | "resume-procedure" | "undo-procedure", 0) => {
            context.state.procedures.keys().rev().map(ToString::to_string).collect()
        }
        ("approve" | "reject", 0) => {
            let open = context.state.proposals.values().filter(|p| p.approved.is_none());
            open.map(|p| p.id.to_string()).collect()
        }
        ("end-state", 0) => ["original", "best-known", "stated"].map(str::to_owned).to_vec(),
        ("sort", 0) => Order::ALL.map(|o| o.name().to_owned()).to_vec(),
        ("group", 0) => Grouping::ALL.map(|g| g.name().to_owned()).to_vec(),
        ("focus", 0) => PaneId::ALL.map(|p| p.name().to_owned()).to_vec(),
        ("theme", 0) => Theme::ALL.map(|t| t.name().to_owned()).to_vec(),
        ("layout", 0) => layouts.to_vec(),
        _ => Vec::new(),
    };
    let mut seen = Vec::new();
    let lead = &line[..line.len() - word.len()];
    for option in options {
        if option.contains(word) && !seen.contains(&option) {
            seen.push(option);
        }
    }
    seen.into_iter().map(|o| format!("{lead}{o}")).collect()
}
