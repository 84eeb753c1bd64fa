//! `toggle` and `restart`: shown first, confirmed, done with proof.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::change::{ConfirmArgs, RestartArgs, ToggleArgs};
use crate::cli::args::session::ResumeArgs;
use crate::cli::connect::run::{Run, block_on, failed, finish, start_new, supervise};
use crate::cli::connect::{case_file, elevate, resume};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::session::{self, ProcedureWord};
use crate::engine::command::Command;
use crate::engine::coupling;
use crate::engine::diagnostic::{Diagnostic, Severity};
use crate::engine::drive;
use crate::engine::ids::ProcedureId;
use crate::engine::procedure::{Action, BootProof, Evidence, Procedure, Purpose};
use crate::engine::runtime::EngineHandle;
use crate::engine::state::{ProcedureState, ProcedureStatus, State};
use crate::session::{replay, store};

/// What would run, or what ran.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangeReport {
    /// The changes, with the exact commands of each step.
    pub procedures: Vec<Procedure>,
    /// How each stands now.
    pub outcomes: Vec<ProcedureWord>,
    /// What each costs the rest of the deployment.
    pub costs: Vec<Cost>,
    /// The proofs of the starts that they led to.
    pub proofs: Vec<BootProof>,
    /// What was seen of routers and through the entry, in the order in which it was.
    pub routed: Vec<Seen>,
}

/// What a change costs the rest of the deployment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// The change.
    pub procedure: ProcedureId,
    /// A sentence each.
    pub sentences: Vec<String>,
}

/// What a step that concerns a router has seen.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Seen {
    /// The change.
    pub procedure: ProcedureId,
    /// Name of the step.
    pub step: String,
    /// What was seen.
    pub evidence: Vec<Evidence>,
}

impl Report for ChangeReport {
    const NAME: &'static str = "change";
}

/// Answers `toggle CASE PATCH[@TARGET] LEVEL`.
///
/// # Errors
/// The case or a name is wrong, the change was not confirmed, or it failed.
pub fn toggle(context: &Context, args: &ToggleArgs) -> Result<Answer, Failed> {
    let (patch, target) = match args.patch.split_once('@') {
        Some((patch, target)) => (patch.to_owned(), Some(target.to_owned())),
        None => (args.patch.clone(), None),
    };
    let how = How { confirm: &args.confirm, readable_env: args.readable_env };
    change(context, &args.case, how, vec![Command::Toggle { patch, target, level: args.level.clone() }])
}

/// Answers `restart CASE TARGET`.
///
/// # Errors
/// The case or a name is wrong, the change was not confirmed, or it failed.
pub fn restart(context: &Context, args: &RestartArgs) -> Result<Answer, Failed> {
    if args.resume || args.undo {
        let session = half_done_session(context, args)?;
        return resume::headless(context, &ResumeArgs { session, finish: args.resume, undo: args.undo });
    }
    let command = Command::Restart { target: args.target.clone(), levels: BTreeMap::new() };
    change(context, &args.case, How { confirm: &args.confirm, readable_env: args.readable_env }, vec![command])
}

/// The newest session in which a change of this target of this case is half done.
fn half_done_session(context: &Context, args: &RestartArgs) -> Result<String, Failed> {
    let (case, _) = case_file(&args.case)?;
    let entries = store::list(&context.paths.sessions)?;
    let fits = |entry: &store::Entry| {
        let state = replay::replay(State::default(), &store::read(&entry.path).ok()?.events);
        let same = state.case.as_ref().is_some_and(|c| c.name == case.name);
        let cut = |status: &ProcedureStatus| {
            matches!(
                status,
                ProcedureStatus::Running { .. } | ProcedureStatus::Interrupted { .. } | ProcedureStatus::Failed { .. }
            )
        };
        let mine = state.procedures.values().any(|p| p.procedure.target == args.target && cut(&p.status));
        (same && mine).then(|| entry.path.display().to_string())
    };
    entries.iter().find_map(fits).ok_or_else(|| {
        Failed::usage(ErrorCode::Session, format!("no session has a half-done change of `{}`", args.target))
            .hint("`patchbench session list` lists them; `patchbench restore CASE` puts every target back")
    })
}

/// How changes are made on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct How<'a> {
    /// Plan or confirmation.
    pub(super) confirm: &'a ConfirmArgs,
    /// Whether the environment of every process must stay readable, whatever the case says.
    pub(super) readable_env: bool,
}

/// Plans what the commands ask for, shows it, and runs it where it was confirmed.
pub(super) fn change(context: &Context, path: &Path, how: How<'_>, commands: Vec<Command>) -> Result<Answer, Failed> {
    let (mut case, mut remarks) = case_file(path)?;
    case.targets.iter_mut().for_each(|t| t.readable_env |= how.readable_env);
    block_on(async {
        let run = start_new(context, &case.name, 1)?;
        let mut handle = run.handle();
        let work = async {
            let leaves = elevate::granted(context, path, &case);
            drive::ask(&mut handle, &run.actor, Command::OpenCase { case: Box::new(case) }).await?;
            for leave in leaves {
                drive::ask(&mut handle, &run.actor, leave).await?;
            }
            let mut refused = None;
            for command in commands {
                // What can be put back is, whatever holds up the others; a change of several is made whole or not.
                let goes_on = matches!(command, Command::Restore { .. });
                match drive::ask(&mut handle, &run.actor, command).await {
                    Err(error) if goes_on => refused = refused.or(Some(error)),
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
            let state = handle.state.borrow().clone();
            let planned = drive::planned(&state);
            match refused {
                Some(error) if planned.is_empty() => Err(error),
                refused => Ok((planned, refused)),
            }
        };
        let planned = supervise(context, &run, work).await;
        let result = match planned {
            Ok((planned, refused)) => {
                let settled = settle(context, &run, how.confirm, &planned).await;
                settled.and(refused.map_or(Ok(()), |error| Err(failed(&error))))
            }
            Err(failed) => Err(failed),
        };
        let state = run.handle().state.borrow().clone();
        let dir = run.dir.clone();
        finish(run).await?;
        let report = report(&state);
        let result = match result {
            Err(failed) if report.procedures.is_empty() => return Err(failed),
            other => other,
        };
        let text = text(&report);
        remarks.extend(report.procedures.iter().filter_map(cut_off));
        let mut answer = Answer::new(&report, Status::Done, text).session(dir).diagnostics(remarks);
        if let Err(failed) = result {
            answer.status = failed.status;
            answer.error = Some(failed.error);
        }
        Ok(answer)
    })
}

async fn settle(context: &Context, run: &Run, confirm: &ConfirmArgs, planned: &[ProcedureId]) -> Result<(), Failed> {
    let mut handle = run.handle();
    let Some(yes) = &confirm.yes else {
        let dropped = async { Ok(drive::discard(&handle, &run.actor, planned).await?) };
        supervise(context, run, dropped).await?;
        if confirm.plan {
            return Ok(());
        }
        return Err(Failed::usage(ErrorCode::Refused, "nothing was changed: the change was not confirmed")
            .hint("read the commands above, then give `--yes`"));
    };
    let work = async {
        let mut first = None;
        for procedure in planned {
            let typed = (!yes.is_empty()).then(|| yes.clone());
            let command = Command::Confirm { procedure: *procedure, typed };
            match drive::run(&mut handle, &run.actor, command, *procedure).await {
                Err(error) if is_restore(&handle, *procedure) => first = first.or(Some(error)),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        first.map_or(Ok(()), Err)
    };
    supervise(context, run, work).await
}

fn is_restore(handle: &EngineHandle, id: ProcedureId) -> bool {
    handle.state.borrow().procedures.get(&id).is_some_and(|p| p.procedure.purpose == Purpose::Restore)
}

/// The changes of a session and how they ended.
pub fn report(state: &State) -> ChangeReport {
    let procedures: Vec<_> = state.procedures.values().collect();
    ChangeReport {
        outcomes: procedures.iter().map(|p| session::word(&p.status)).collect(),
        procedures: procedures.iter().map(|p| p.procedure.as_ref().clone()).collect(),
        proofs: state
            .boots
            .values()
            .filter(|boot| boot.procedure.is_some())
            .map(|boot| boot.proof.as_ref().clone())
            .collect(),
        costs: procedures
            .iter()
            .map(|p| Cost { procedure: p.procedure.id, sentences: coupling::price(state, &p.procedure) })
            .filter(|cost| !cost.sentences.is_empty())
            .collect(),
        routed: procedures.iter().flat_map(|p| routed(p)).collect(),
    }
}

fn routed(entry: &ProcedureState) -> impl Iterator<Item = Seen> + '_ {
    let of_router = |action: &Action| matches!(action, Action::Router { .. } | Action::EntryToken { .. });
    let steps = entry.procedure.steps.iter().zip(&entry.steps);
    steps.filter(move |(step, state)| of_router(&step.proof) && !state.evidence.is_empty()).map(|(step, state)| Seen {
        procedure: entry.procedure.id,
        step: step.name.clone(),
        evidence: state.evidence.clone(),
    })
}

/// A warning where a change cuts requests off; on production, that was typed.
fn cut_off(procedure: &Procedure) -> Option<Diagnostic> {
    let load = procedure.load.filter(|_| procedure.cuts_off())?;
    Some(Diagnostic {
        severity: Severity::Warning,
        code: "requests-cut-off".into(),
        message: format!("{load} on `{}`, and this change cuts them off", procedure.target),
        place: None,
        hint: Some("wait until they are done and plan it anew, where that matters".into()),
    })
}

/// The changes for people: every command exactly as it runs, in that order, then what was proven. The text that takes a
/// lease carries the whole way back and stands after the steps, so that these are seen first.
pub fn text(report: &ChangeReport) -> String {
    let mut lines = Vec::new();
    for (procedure, outcome) in report.procedures.iter().zip(&report.outcomes) {
        lines.push(format!("{} ({}): {}", procedure.id, outcome.word(), procedure.title));
        if let Some(load) = procedure.load {
            lines.push(format!("  when it was planned, {load} on `{}`", procedure.target));
        }
        lines.extend(procedure.notes.iter().map(|note| format!("  {note}")));
        let costs = report.costs.iter().filter(|c| c.procedure == procedure.id);
        lines.extend(costs.flat_map(|c| &c.sentences).map(|cost| format!("  {cost}")));
        if let Some(minutes) = procedure.lease.as_ref().and_then(|l| l.minutes).filter(|_| !procedure.steps.is_empty())
        {
            lines.push(format!(
                "  the host puts `{}` back by itself {minutes} minutes after the last session that keeps this change",
                procedure.target
            ));
        }
        let mut last = Vec::new();
        for (i, step) in procedure.steps.iter().enumerate() {
            lines.push(format!("  step {} {}", i + 1, step.name));
            let text = script(&step.apply);
            if step.name == "lease" {
                let n = text.lines().count();
                lines.push(format!(
                    "    reserves `{}` and leaves its way back there, by the {n} lines at the end",
                    procedure.target
                ));
                last.push(format!("  the text of step {} {}", i + 1, step.name));
                last.extend(text.lines().map(|line| format!("    {line}")));
            } else {
                lines.extend(text.lines().map(|line| format!("    {line}")));
            }
            if let Some(undo) = &step.undo {
                lines.push("    taken back by".to_owned());
                lines.extend(script(undo).lines().map(|line| format!("      {line}")));
            }
        }
        lines.append(&mut last);
    }
    for proof in &report.proofs {
        lines.push(format!("proof: {} runs as process {}", proof.target, proof.process.pid));
        for evidence in &proof.evidence {
            lines.push(format!("  {}  {}  ({})", evidence.about, evidence.seen.visible(160), evidence.source));
        }
        for (patch, why) in &proof.unverified {
            lines.push(format!("  level of {patch} unknown: {why}"));
        }
    }
    for seen in &report.routed {
        lines.push(format!("seen in step {} of {}", seen.step, seen.procedure));
        for evidence in &seen.evidence {
            lines.push(format!("  {}  {}  ({})", evidence.about, evidence.seen.visible(160), evidence.source));
        }
    }
    lines.join("\n")
}

fn script(action: &Action) -> String {
    match action {
        Action::Nothing => "nothing to run".to_owned(),
        Action::Shell { script, .. } => script.clone(),
        Action::ProcessGone { pid, .. } => format!("wait until process {pid} is gone"),
        Action::Router { ask, worker, timeout_s } => ask.words(worker, *timeout_s),
        Action::EntryToken { entry, timeout_s } => {
            format!("ask a whole request of `{entry}`, for at most {timeout_s} s")
        }
        Action::ProveBoot { expect, .. } => {
            format!("prove the start: new process, port {}, ready line, first token, levels", expect.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::case::Case;
    use crate::engine::effect::ChangeWish;
    use crate::engine::fake;
    use crate::engine::procedure::{Load, RoutedWorker, RouterAsk};
    use crate::engine::state::ProcedureStatus;

    #[test]
    fn the_way_back_stands_after_the_steps_and_every_command_stands_somewhere() {
        let mut change = fake::plan(&Case::default(), "lab", &ChangeWish::Running(BTreeMap::new()));
        let mut lease = change.steps[0].clone();
        lease.name = "lease".into();
        lease.apply = Action::Shell { script: "way\nback".into(), timeout_s: 1.0 };
        change.steps.insert(0, lease);
        let steps = change.steps.len();
        let report = ChangeReport {
            procedures: vec![change],
            outcomes: vec![session::word(&ProcedureStatus::Planned)],
            proofs: Vec::new(),
            costs: Vec::new(),
            routed: Vec::new(),
        };
        let text = text(&report);
        let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in\n{text}"));
        assert!(at("step 1 lease") < at(&format!("step {steps} ")));
        assert!(at(&format!("step {steps} ")) < at("the text of step 1 lease\n    way\n    back"));
        assert!(text.contains("by the 2 lines at the end"), "{text}");
    }

    fn change(running: u32, purpose: Purpose) -> Procedure {
        let case = crate::isolate::fake::case(1);
        let mut change = fake::plan(&case, "lab", &ChangeWish::Running(BTreeMap::new()));
        (change.load, change.purpose) = (Some(Load { running, waiting: 0 }), purpose);
        change
    }

    #[test]
    fn requests_that_are_cut_off_are_a_warning_with_their_number() {
        let said = cut_off(&change(3, Purpose::Restart)).unwrap();
        assert_eq!(said.message, "3 requests run and 0 wait on `lab`, and this change cuts them off");
        assert_eq!((said.severity, said.code.as_str()), (Severity::Warning, "requests-cut-off"));
        assert_eq!(cut_off(&change(0, Purpose::Restart)), None);
        assert_eq!(cut_off(&change(3, Purpose::Restore)), None, "the way back is not held up");
        let mut drains = change(3, Purpose::Restart);
        let worker = RoutedWorker { router: "r".into(), url: "u".into(), body: serde_json::json!({}) };
        drains.steps[0].proof = Action::Router { ask: RouterAsk::Idle { anyway: false }, worker, timeout_s: 1.0 };
        assert_eq!(cut_off(&drains), None, "they get time to end");
    }

    #[test]
    fn a_change_is_shown_with_its_notes_and_what_each_router_is_sent() {
        let mut change = change(0, Purpose::Restart);
        change.notes.push("a note".into());
        let body = serde_json::json!({"url": "http://x:1"});
        let worker = RoutedWorker { router: "r".into(), url: "http://x:1".into(), body };
        change.steps[0].apply = Action::Router { ask: RouterAsk::Remove, worker: worker.clone(), timeout_s: 60.0 };
        change.steps[0].undo = Some(Action::Router { ask: RouterAsk::Add, worker, timeout_s: 180.0 });
        let sentences = vec!["a price".to_owned()];
        let report = ChangeReport {
            costs: vec![Cost { procedure: change.id, sentences }],
            procedures: vec![change],
            outcomes: vec![ProcedureWord::Planned],
            proofs: Vec::new(),
            routed: Vec::new(),
        };
        let text = text(&report);
        for part in [
            "  a note\n",
            "  a price\n",
            "    DELETE /workers/ID of http://x:1 at `r`, gone within 60 s",
            "      POST /workers at `r` with {\"url\":\"http://x:1\"}, seen to live within 180 s",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
