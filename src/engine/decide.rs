//! What a person's command leads to. Pure.
//!
//! Here stand the rules about who may act and what needs a question first.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use crate::case::{Case, Gate, Target};
use crate::engine::command::{Command, EndState};
use crate::engine::effect::{ChangeWish, Effect, JobSpec};
use crate::engine::event::Happened;
use crate::engine::ids::{ProcedureId, ProposalId};
use crate::engine::input::ActorRole;
use crate::engine::patches;
use crate::engine::procedure::{Failure, Phase, Purpose};
use crate::engine::queue;
use crate::engine::state::{ProcedureStatus, State};
use crate::engine::update::{Turn, known_levels};
use crate::isolate::plan;
use crate::isolate::verdict::{Finding, SubjectKind};
use crate::patch::context::Evidence;
use crate::patch::{belief, of_state};
use crate::redact;
use crate::remote::source;

/// Takes a command of the turn's actor: watchers may only propose.
///
/// While a search runs, nobody else changes what it measures.
pub(crate) fn command(turn: &mut Turn, command: &Command) {
    if turn.actor.role == ActorRole::Watcher && !matches!(command, Command::Propose { .. } | Command::Note { .. }) {
        let failure =
            Failure::new("a watcher may look and propose, not act").hint("send it as a proposal to the driver");
        return turn.refuse(command, failure);
    }
    let asked = match command {
        Command::Queue { command } => command,
        command => command,
    };
    let changes = matches!(
        asked,
        Command::Restart { .. }
            | Command::Stop { .. }
            | Command::Toggle { .. }
            | Command::Restore { .. }
            | Command::Elevate { .. }
            | Command::Confirm { .. }
            | Command::ResumeProcedure { .. }
            | Command::UndoProcedure { .. }
            | Command::ChooseEndState { .. }
    );
    if changes && turn.state.search.as_ref().is_some_and(|s| s.is_active()) {
        let failure =
            Failure::new("a search runs and changes the servers itself").hint("`stop-isolation` ends it first");
        return turn.refuse(command, failure);
    }
    act(turn, command);
}

/// Does what a command asks for, or records why it was refused.
pub(crate) fn act(turn: &mut Turn, command: &Command) {
    if let Err(failure) = try_act(turn, command) {
        turn.refuse(command, failure);
    }
}

fn try_act(turn: &mut Turn, command: &Command) -> Result<(), Failure> {
    match command {
        Command::OpenCase { case } => open_case(turn, command, case),
        Command::Probe { target } => probe(turn, command, target.as_deref())?,
        Command::Restart { target, levels } => {
            let case = case_of(&turn.state)?;
            check_levels(&case, target, levels)?;
            change_to(turn, command, &case, target, levels)?;
        }
        Command::Stop { target } => {
            let case = case_of(&turn.state)?;
            change(turn, command, &case, target, &format!("stop {target}"), ChangeWish::Stopped)?;
        }
        Command::Toggle { patch, target, level } => toggle(turn, command, patch, target.as_deref(), level)?,
        Command::Restore { target } => restore(turn, command, target.as_deref())?,
        Command::Elevate { target, seconds } => elevate(turn, target, *seconds)?,
        Command::Confirm { procedure, typed } => confirm(turn, command, *procedure, typed.as_deref())?,
        Command::Discard { procedure } => {
            let status = status_of(&turn.state, *procedure)?;
            if *status != ProcedureStatus::Planned {
                return Err(Failure::new(format!("{procedure} has begun and cannot be dropped"))
                    .hint(format!("`undo-procedure {procedure}` takes it back")));
            }
            turn.record(Happened::ProcedureDiscarded { procedure: *procedure });
        }
        Command::ResumeProcedure { procedure } => {
            let phase = match newest_of_its_target(&turn.state, *procedure)? {
                ProcedureStatus::Interrupted { phase } => *phase,
                ProcedureStatus::Failed { .. } => Phase::Do,
                _ => return Err(Failure::new(format!("{procedure} is not half done"))),
            };
            let change = turn.state.procedures[procedure].procedure.clone();
            if phase == Phase::Do && change.purpose != Purpose::Restore {
                let case = case_of(&turn.state)?;
                check_elevated(turn, &case, target_of(&case, &change.target)?)?;
            }
            turn.run_procedure(*procedure, phase, Some(command));
        }
        Command::UndoProcedure { procedure } => match newest_of_its_target(&turn.state, *procedure)? {
            ProcedureStatus::Interrupted { .. } | ProcedureStatus::Failed { .. } | ProcedureStatus::Completed => {
                turn.run_procedure(*procedure, Phase::Undo, Some(command));
            }
            _ => return Err(Failure::new(format!("there is nothing of {procedure} to take back"))),
        },
        Command::Recall { plan } => recall(turn, command, plan)?,
        Command::Believe { subject, says, evidence, why } => {
            believe(turn, subject, says, evidence, why.as_deref())?;
        }
        Command::MergePatches { patches: ids, title } => patches::merge(turn, ids, title)?,
        Command::SplitPatch { patch, by } => patches::split(turn, patch, *by)?,
        Command::EditPatch { patch, edit } => patches::edit(turn, patch, edit)?,
        Command::ImportPatches { from } => {
            let spec = JobSpec::ImportPatches { case: turn.state.case.clone(), from: from.clone() };
            turn.start(command.spelling(), Some(command), spec);
        }
        Command::Micro { spec, device, force_device, checkpoint, candidates, activations } => {
            let (spec, device, force_device) = (spec.clone(), device.clone(), *force_device);
            let (checkpoint, candidates) = (checkpoint.clone(), candidates.clone());
            let activations = activations.clone();
            let spec = JobSpec::Micro { spec, device, force_device, checkpoint, candidates, activations };
            turn.start(command.spelling(), Some(command), spec);
        }
        Command::Isolate { patches } => {
            let search = plan::begin(&turn.state, patches)?;
            turn.record(Happened::SearchMoved { search: Arc::new(search) });
        }
        Command::StopIsolation => {
            if !turn.state.search.as_ref().is_some_and(|s| s.is_active()) {
                return Err(Failure::new("no search runs"));
            }
            stop_search(turn);
        }
        Command::Cancel { job } => {
            if turn.state.jobs.get(job).is_none_or(|j| j.outcome.is_some()) {
                return Err(Failure::new(format!("{job} does not run")));
            }
            turn.record(Happened::CancelRequested { job: *job });
            turn.effect(Effect::Cancel(*job));
        }
        Command::Note { text } => turn.record(Happened::NoteAdded { text: redact::text(text) }),
        Command::Snapshot { name } => {
            turn.record(Happened::SnapshotNamed { name: name.clone() });
            turn.effect(Effect::WriteSnapshot(name.clone()));
        }
        Command::Propose { command } => {
            let proposal = ProposalId(turn.state.counters.proposal + 1);
            turn.record(Happened::Proposed { proposal, command: Box::new(command.redacted()) });
        }
        Command::Approve { proposal } => {
            let entry = open_proposal(&turn.state, *proposal)?;
            turn.record(Happened::ProposalAnswered { proposal: *proposal, approved: true });
            act(turn, &entry);
        }
        Command::Reject { proposal } => {
            open_proposal(&turn.state, *proposal)?;
            turn.record(Happened::ProposalAnswered { proposal: *proposal, approved: false });
        }
        Command::Queue { command } => queue::add(turn, command)?,
        Command::Unqueue { queued } => queue::remove(turn, *queued)?,
        Command::ChooseEndState { end_state } => choose_end(turn, command, end_state)?,
    }
    Ok(())
}

fn open_case(turn: &mut Turn, command: &Command, case: &Case) {
    turn.record(Happened::CaseOpened { case: Arc::new(case.clone()) });
    for target in &case.targets {
        start_probe(turn, Some(command), &target.name);
    }
}

/// Reads a target; nothing is changed.
pub(crate) fn start_probe(turn: &mut Turn, command: Option<&Command>, target: &str) {
    let Some(case) = turn.state.case.clone() else { return };
    let known = turn.state.current_boot(target).map(|boot| boot.proof.process);
    turn.start(format!("read {target}"), command, JobSpec::Probe { case, target: target.into(), known });
}

fn probe(turn: &mut Turn, command: &Command, target: Option<&str>) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    match target {
        Some(name) => {
            target_of(&case, name)?;
            start_probe(turn, Some(command), name);
        }
        None => case.targets.iter().for_each(|t| start_probe(turn, Some(command), &t.name)),
    }
    Ok(())
}

fn toggle(turn: &mut Turn, command: &Command, patch: &str, target: Option<&str>, level: &str) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    let entry = case.patch(patch).ok_or_else(|| {
        let known: Vec<_> = case.patches.iter().map(|p| p.id.as_str()).collect();
        let hint = if known.is_empty() { "it names none".to_owned() } else { format!("it has {}", known.join(", ")) };
        Failure::new(format!("the case has no patch `{patch}`")).hint(hint)
    })?;
    let targets: Vec<_> = entry
        .targets_in(&case)
        .map(|t| t.name.clone())
        .filter(|name| target.is_none_or(|wanted| wanted == name))
        .collect();
    if targets.is_empty() {
        return Err(Failure::new(format!("`{patch}` is in no such target")));
    }
    let levels = BTreeMap::from([(patch.to_owned(), level.to_owned())]);
    for name in targets {
        check_levels(&case, &name, &levels)?;
        change_to(turn, command, &case, &name, &levels)?;
    }
    Ok(())
}

fn restore(turn: &mut Turn, command: &Command, target: Option<&str>) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    let changed: Vec<_> = turn
        .state
        .targets
        .iter()
        .filter(|(name, t)| match target {
            // Another session may have changed it; a target that is named is put back whatever this one knows.
            Some(wanted) => wanted == name.as_str(),
            None => t.changed.is_some(),
        })
        .map(|(name, _)| name.clone())
        .collect();
    if changed.is_empty() {
        return Err(Failure::new("nothing is changed, so there is nothing to restore"));
    }
    for name in changed {
        change(turn, command, &case, &name, &format!("restore {name}"), ChangeWish::Original)?;
    }
    Ok(())
}

/// The longest time for which a production target may be changed without being asked again.
const ELEVATED_MOST_S: u32 = 4 * 3600;

fn elevate(turn: &mut Turn, target: &str, seconds: u32) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    let entry = target_of(&case, target)?;
    if !entry.production {
        return Err(Failure::new(format!("`{target}` is not production and needs no leave")));
    }
    if seconds == 0 || seconds > ELEVATED_MOST_S {
        return Err(Failure::new(format!("`{target}` can be elevated for 1 to {} minutes", ELEVATED_MOST_S / 60))
            .hint("state the minutes that the next steps need"));
    }
    let until = turn.at() + SignedDuration::from_secs(seconds.into());
    turn.record(Happened::TargetElevated { target: target.to_owned(), until });
    Ok(())
}

fn confirm(turn: &mut Turn, command: &Command, id: ProcedureId, typed: Option<&str>) -> Result<(), Failure> {
    if *status_of(&turn.state, id)? != ProcedureStatus::Planned {
        return Err(Failure::new(format!("{id} does not wait for a confirmation")));
    }
    newest_of_its_target(&turn.state, id)?;
    let case = case_of(&turn.state)?;
    let procedure = turn.state.procedures[&id].procedure.clone();
    let target = target_of(&case, &procedure.target)?;
    if procedure.purpose != Purpose::Restore {
        check_elevated(turn, &case, target)?;
    }
    let word = procedure.word();
    // Whoever allows to cut requests off has named the target too.
    let anyway = typed == Some(procedure.word_anyway().as_str());
    let named = typed == Some(word.as_str()) || anyway;
    if !target.production || named {
        turn.run_procedure_so(id, Phase::Do, anyway, Some(command));
        return Ok(());
    }
    if let Some(load) = procedure.load.filter(|_| procedure.cuts_off()) {
        return Err(Failure::new(format!("{load} on `{}`, and this change would cut them off", target.name))
            .hint(format!("wait and plan it anew, or type `{word}` (`--yes \"{word}\"`)")));
    }
    Err(Failure::new(format!("`{}` is production and its name was not typed", target.name))
        .hint(format!("type `{word}` or give `--yes {word}`")))
}

/// Writes down what a person believes, in place of what the same person believed of it before.
fn believe(turn: &mut Turn, subject: &str, says: &str, evidence: &str, why: Option<&str>) -> Result<(), Failure> {
    let known = of_state::ranked(&turn.state).iter().any(|r| r.id == subject);
    if !known {
        return Err(Failure::new(format!("there is no patch or factor `{subject}`"))
            .hint("`patchbench patches CASE` lists them"));
    }
    let by = turn.actor.name.clone();
    let held = belief::history(&turn.state.beliefs, subject);
    let replaces: Vec<_> = held.iter().filter(|b| b.by == by && b.ended.is_none()).map(|b| b.id).collect();
    let source = format!("said by {by}");
    let change = belief::Change::Hold {
        subject: subject.to_owned(),
        says: redact::text(says),
        by,
        at: turn.at,
        evidence: vec![Evidence { fact: redact::text(evidence), source }],
        replaces,
        why: why.map(redact::text),
    };
    belief::apply(&turn.state.beliefs, &change).map_err(|refusal| match refusal {
        belief::Refusal::NoReason => Failure::new(format!("you believed something else of `{subject}` before"))
            .hint("say why no more: `believe PATCH SAYS; EVIDENCE; WHY`"),
        _ => Failure::new("this cannot be written down as a belief"),
    })?;
    turn.record(Happened::Believed { change });
    Ok(())
}

fn recall(turn: &mut Turn, command: &Command, plan: &crate::engine::command::RecallPlan) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    let (mut boots, mut processes) = (Vec::new(), Vec::new());
    let mut arm = BTreeMap::new();
    for target in case.met_targets() {
        let Some(boot) = turn.state.current_boot(&target.name) else {
            return Err(Failure::new(format!("no proven start of `{}` is running", target.name)).hint(format!(
                "`restart {}` starts it, `probe {}` looks for a running one",
                target.name, target.name
            )));
        };
        boots.push(boot.id);
        processes.push((target.name.clone(), boot.proof.process));
        arm.extend(boot.proof.levels.iter().map(|(patch, level)| (format!("{patch}@{}", target.name), level.clone())));
    }
    let title = format!("recall at {} tokens", join_numbers(&plan.lengths));
    turn.start(title, Some(command), JobSpec::Recall { case, plan: plan.clone(), boots, processes, arm });
    Ok(())
}

fn choose_end(turn: &mut Turn, command: &Command, end_state: &EndState) -> Result<(), Failure> {
    let case = case_of(&turn.state)?;
    let state = &turn.state;
    let wished: Vec<(String, ChangeWish)> = match end_state {
        EndState::Original => state
            .targets
            .iter()
            .filter(|(_, t)| t.changed.is_some())
            .map(|(name, _)| (name.clone(), ChangeWish::Original))
            .collect(),
        EndState::BestKnown => {
            let off = guilty_off(state, &case);
            if off.is_empty() {
                return Err(Failure::new("no patch is guilty yet, so no configuration is known to be better")
                    .hint("`isolate` looks for the guilty one, `end-state original` puts everything back"));
            }
            wishes(state, &case, &off)
        }
        EndState::Stated { levels } => wishes(state, &case, levels),
    };
    turn.record(Happened::EndStateChosen { end_state: end_state.clone() });
    for (target, wish) in wished {
        change(turn, command, &case, &target, &format!("end state of {target}: {}", end_state.spelling()), wish)?;
    }
    Ok(())
}

/// For each target that does not have these levels yet: run with its original levels, but for these.
fn wishes(state: &State, case: &Case, levels: &BTreeMap<String, String>) -> Vec<(String, ChangeWish)> {
    let mut wishes = Vec::new();
    for target in &case.targets {
        let mut wanted = state.target(&target.name).map(|t| t.original.clone()).unwrap_or_default();
        for patch in case.patches_of(&target.name) {
            if let Some(level) = levels.get(&patch.id) {
                wanted.insert(patch.id.clone(), level.clone());
            }
        }
        if wanted != known_levels(state, &target.name) {
            wishes.push((target.name.clone(), ChangeWish::Running(wanted)));
        }
    }
    wishes
}

/// The innocent level of every guilty patch.
fn guilty_off(state: &State, case: &Case) -> BTreeMap<String, String> {
    state
        .verdicts
        .iter()
        .filter(|v| v.verdict == Finding::Guilty && v.subject.kind == SubjectKind::Patch)
        .filter_map(|v| case.patch(&v.subject.id))
        .filter_map(|p| Some((p.id.clone(), p.innocent_level()?.to_owned())))
        .collect()
}

/// Ends the search and what it had started; trials and verdicts stay, and a change that has begun runs to
/// its end.
pub(crate) fn stop_search(turn: &mut Turn) {
    let Some(search) = turn.state.search.clone() else { return };
    turn.record(Happened::SearchMoved { search: Arc::new(search.stopped()) });
    let running: Vec<_> = turn.state.running_jobs().filter(|j| j.procedure.is_none()).map(|j| j.id).collect();
    for job in running {
        turn.record(Happened::CancelRequested { job });
        turn.effect(Effect::Cancel(job));
    }
}

/// Whether a planned procedure may run without a question: it is a step of a search that was confirmed as a
/// whole, and not on production.
pub(crate) fn needs_no_question(turn: &Turn, id: ProcedureId) -> bool {
    let (Some(case), Some(entry)) = (&turn.state.case, turn.state.procedures.get(&id)) else { return false };
    let production = case.target(&entry.procedure.target).is_none_or(|t| t.production);
    let searching = turn.state.search.as_ref().is_some_and(|s| s.is_active());
    !production && searching
}

fn change_to(
    turn: &mut Turn,
    command: &Command,
    case: &Arc<Case>,
    target: &str,
    levels: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    let mut wanted = known_levels(&turn.state, target);
    wanted.extend(levels.clone());
    let text: Vec<_> = levels.iter().map(|(patch, level)| format!("{patch}={level}")).collect();
    let title =
        if text.is_empty() { format!("restart {target}") } else { format!("restart {target} with {}", text.join(" ")) };
    change(turn, command, case, target, &title, ChangeWish::Running(wanted))
}

fn change(
    turn: &mut Turn,
    command: &Command,
    case: &Arc<Case>,
    target: &str,
    title: &str,
    wish: ChangeWish,
) -> Result<(), Failure> {
    let entry = target_of(case, target)?;
    // The way back needs no leave.
    if !matches!(wish, ChangeWish::Original) {
        check_elevated(turn, case, entry)?;
    }
    may_change(turn, entry)?;
    let spec = JobSpec::Change { case: case.clone(), target: target.into(), wish };
    turn.start(format!("plan: {title}"), Some(command), spec);
    Ok(())
}

fn check_elevated(turn: &Turn, case: &Case, target: &Target) -> Result<(), Failure> {
    if !target.production {
        return Ok(());
    }
    let name = &target.name;
    match turn.state.target(name).and_then(|t| t.elevated_until) {
        None => Err(Failure::new(format!("`{name}` is production and read-only"))
            .hint(format!("`elevate {name} MIN` allows changes for so many minutes; a replica needs none"))),
        Some(until) if until <= turn.at() => {
            Err(Failure::new(format!("the leave to change `{name}` ended at {until}"))
                .hint(format!("`elevate {name} MIN` gives it anew; putting it back needs none")))
        }
        Some(_) if case.budget.downtime_min <= 0.0 => Err(Failure::new(format!(
            "the case allows no downtime of production, and a change of `{name}` restarts it"
        ))
        .hint("state the minutes as `downtime_min` under `[budget]`")),
        Some(_) => Ok(()),
    }
}

fn may_change(turn: &Turn, target: &Target) -> Result<(), Failure> {
    if let Some(open) = turn.state.open_procedure(&target.name) {
        let id = open.procedure.id;
        let hint = match open.status {
            ProcedureStatus::Planned => format!("`confirm {id}` runs it, `discard {id}` drops it"),
            ProcedureStatus::Interrupted { .. } => {
                format!("`resume-procedure {id}` finishes it, `undo-procedure {id}` takes it back")
            }
            _ => "wait for it or cancel its job".into(),
        };
        return Err(
            Failure::new(format!("{id} on `{}` is still open: {}", target.name, open.procedure.title)).hint(hint)
        );
    }
    Ok(())
}

fn check_levels(case: &Case, target: &str, levels: &BTreeMap<String, String>) -> Result<(), Failure> {
    let target = target_of(case, target)?;
    for (patch, level) in levels {
        let entry = case.patch(patch).ok_or_else(|| Failure::new(format!("the case has no patch `{patch}`")))?;
        let Some(known) = entry.gate.levels() else {
            return Err(Failure::new(format!("`{patch}` has no gate that could be switched"))
                .hint("give it an `env`, `flag` or `reverse` gate in the case file"));
        };
        if matches!(entry.gate, Gate::Reverse { .. })
            && let Some(failure) = source::obstacle(target)
        {
            return Err(failure);
        }
        if !known.contains_key(level) {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            return Err(Failure::new(format!("`{patch}` has no level `{level}`"))
                .hint(format!("its levels are {}", names.join(", "))));
        }
    }
    Ok(())
}

fn case_of(state: &State) -> Result<Arc<Case>, Failure> {
    state.case.clone().ok_or_else(|| Failure::new("no case is open").hint("open one with `patchbench CASE`"))
}

fn target_of<'a>(case: &'a Case, name: &str) -> Result<&'a Target, Failure> {
    case.target(name).ok_or_else(|| {
        let known: Vec<_> = case.targets.iter().map(|t| t.name.as_str()).collect();
        Failure::new(format!("the case has no target `{name}`")).hint(format!("it has {}", known.join(", ")))
    })
}

fn status_of(state: &State, id: ProcedureId) -> Result<&ProcedureStatus, Failure> {
    let entry = state.procedures.get(&id).ok_or_else(|| Failure::new(format!("there is no procedure {id}")))?;
    Ok(&entry.status)
}

/// A change was planned against what ran before it; once a later one was planned or ran, it fits no more.
///
/// Returns how far it is.
fn newest_of_its_target(state: &State, id: ProcedureId) -> Result<&ProcedureStatus, Failure> {
    let status = status_of(state, id)?;
    let target = &state.procedures[&id].procedure.target;
    let later =
        state.procedures.iter().rev().find(|(other, p)| {
            **other != id && p.procedure.target == *target && p.status != ProcedureStatus::Discarded
        });
    match later {
        Some((other, p)) if *other > id || matches!(p.status, ProcedureStatus::Running { .. }) => {
            Err(Failure::new(format!("{other} on `{target}` came after {id} was planned"))
                .hint("ask for the change anew, so that it is planned against what runs now"))
        }
        _ => Ok(status),
    }
}

fn open_proposal(state: &State, id: ProposalId) -> Result<Command, Failure> {
    match state.proposals.get(&id) {
        Some(entry) if entry.approved.is_none() => Ok(entry.command.clone()),
        Some(_) => Err(Failure::new(format!("{id} was answered already"))),
        None => Err(Failure::new(format!("there is no proposal {id}"))),
    }
}

fn join_numbers(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
