//! `truth`, `recall`, `micro`, `patches`, `isolate`: look, measure, search.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::case::{Case, Role};
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::{IsolateArgs, LookArgs, MicroArgs, RecallArgs};
use crate::cli::connect::case_file;
use crate::cli::connect::run::{Keep, Run, block_on, finish, start_kept, supervise};
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::unsupported::refuse;
use crate::cli::{Context, isolate, micro, output, recall, search_plan, truth};
use crate::engine::command::{Command, EndState, RecallPlan};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::drive::{self, DriveError};
use crate::engine::procedure::Failure;
use crate::engine::runtime::EngineHandle;
use crate::engine::state::State;
use crate::isolate::verdict::Finding;
use crate::kernel::recorded::Recording;
use crate::recall::trial::ProbeForm;

/// Conversations for each form, length and depth of a suite.
const REPEATS: u32 = 3;
/// Seed of sessions that were not given one.
const SEED: u64 = 1;

/// Answers `truth CASE`.
///
/// # Errors
/// The case is wrong, or the session cannot be written.
pub fn truth(context: &Context, args: &LookArgs) -> Result<Answer, Failed> {
    let answer = |state: &State, _, dir: Option<&Path>| truth::answer(state, dir, context.style);
    with_case(context, &args.case, keep(args.session), async |_, _, _| Ok(()), answer)
}

/// What only looks leaves a session only if it was asked to.
pub(super) fn keep(session: bool) -> Keep {
    if session { Keep::Session } else { Keep::Nothing }
}

/// Answers `recall CASE`.
///
/// # Errors
/// The case is wrong, no server runs, or the session cannot be written.
pub fn recall(context: &Context, args: &RecallArgs) -> Result<Answer, Failed> {
    let Some(path) = &args.case else { return Err(refuse("import a conversation", "run the suite of the case")) };
    if args.suite.as_deref().is_some_and(|suite| suite != "default") {
        return Err(refuse("run another suite than `default`", "leave `--suite` out"));
    }
    let work = async |handle: &mut EngineHandle, run: &Run, case: &Case| {
        drive::ask(handle, &run.actor, Command::Recall { plan: suite(case) }).await?;
        Ok(())
    };
    with_case(context, path, Keep::Session, work, |state, after, dir| recall::answer(state, after, dir, context.style))
}

/// The suite of a case: both forms at every length and depth.
pub fn suite(case: &Case) -> RecallPlan {
    RecallPlan {
        forms: vec![ProbeForm::MultiTurn, ProbeForm::Needle],
        lengths: case.recall.lengths.clone(),
        depths: case.recall.depths.clone(),
        repeats: REPEATS,
        seed: SEED,
        concurrency: case.budget.concurrency,
        factors: BTreeMap::new(),
    }
}

/// Answers `isolate CASE`.
///
/// # Errors
/// The case is wrong, no server runs, or the session cannot be written.
pub fn isolate(context: &Context, args: &IsolateArgs) -> Result<Answer, Failed> {
    if args.simulate {
        return search_plan::simulated(args.runs);
    }
    let Some(path) = &args.case else {
        return Err(Failed::usage(ErrorCode::Usage, "no case was given").hint("`isolate --simulate` needs none"));
    };
    if args.plan {
        let answer = |state: &State, _, dir: Option<&Path>| search_plan::answer(state, args.budget, dir, context.style);
        return with_case(context, path, Keep::Nothing, async |_, _, _| Ok(()), answer);
    }
    if args.yes.is_empty() {
        let message = "a search restarts the servers of the case many times, and that was not confirmed";
        return Err(Failed::usage(ErrorCode::Refused, message).hint("give `--yes` with the name of each target"));
    }
    let named = args.yes.clone();
    let work = async |handle: &mut EngineHandle, run: &Run, case: &Case| {
        if let Some(left_out) = case.targets.iter().find(|t| t.role != Role::Router && !named.contains(&t.name)) {
            let failure = Failure::new(format!("`{}` would be restarted and was not named", left_out.name));
            return Err(DriveError::Failed(failure.hint(format!("add `--yes {}`", left_out.name))));
        }
        let state = search_within(handle, run, args.budget).await?;
        let changed = state.targets.values().any(|t| t.changed.is_some());
        let guilty = state.verdicts.iter().any(|v| v.verdict == Finding::Guilty);
        if changed && !guilty {
            // Nobody is there to choose, and nothing that was found speaks for any other configuration.
            let original = Command::ChooseEndState { end_state: EndState::Original };
            drive::change(handle, &run.actor, original, None).await?;
        }
        Ok(())
    };
    let (mut case, remarks) = case_file(path)?;
    case.targets.iter_mut().for_each(|t| t.readable_env |= args.readable_env);
    let answer = |state: &State, _, dir: Option<&Path>| isolate::answer(state, dir, context.style);
    with_read(context, (case, remarks), Keep::Session, work, answer)
}

/// Searches to the end, or until the minutes are spent: then the search is stopped, and what runs comes to its end.
async fn search_within(handle: &mut EngineHandle, run: &Run, budget: Option<f64>) -> Result<Arc<State>, DriveError> {
    let Some(minutes) = budget else { return drive::search(handle, &run.actor, Vec::new()).await };
    let within = Duration::from_secs_f64(minutes * 60.0);
    if let Ok(found) = tokio::time::timeout(within, drive::search(handle, &run.actor, Vec::new())).await {
        return found;
    }
    let text = format!("the budget of {minutes} min is spent, so the search stops; what runs comes to its end");
    drive::ask(handle, &run.actor, Command::Note { text }).await.ok();
    drive::ask(handle, &run.actor, Command::StopIsolation).await
}

/// Answers `micro`.
///
/// # Errors
/// A microtest cannot run, or the session cannot be written.
pub fn micro(context: &Context, args: &MicroArgs) -> Result<Answer, Failed> {
    let known: Vec<&str> = crate::kernel::specs().iter().map(|s| s.name).collect();
    if let Some(unknown) = args.specs.iter().find(|spec| !known.contains(&spec.as_str())) {
        let failed = Failed::usage(ErrorCode::Usage, format!("there is no microtest `{unknown}`"));
        return Err(failed.hint(format!("there is {}", known.join(", "))));
    }
    let specs = match &args.activations {
        _ if !args.specs.is_empty() => args.specs.clone(),
        // What a recording has nothing for is not run on made-up activations under its name.
        Some(place) => Recording::open(place)
            .and_then(|recording| recording.specs())
            .map_err(|failure| Failed::from_failure(ErrorCode::Io, &failure))?,
        None => crate::kernel::specs_of(&args.device).into_iter().map(str::to_owned).collect(),
    };
    let targets = micro::files::targets(&args.figure, args.csv.as_deref(), specs.len())?;
    block_on(async {
        let run = start_kept(context, "micro", SEED, keep(args.session))?;
        let mut handle = run.handle();
        let work = async {
            let mut failed = None;
            for spec in specs {
                let checkpoint = args.checkpoint.as_ref().map(|p| p.display().to_string());
                let candidates = args.candidates.as_ref().map(|p| p.display().to_string());
                let activations = args.activations.as_ref().map(|p| p.display().to_string());
                let (device, force_device) = (args.device.clone(), args.force_device);
                let command = Command::Micro { spec, device, force_device, checkpoint, candidates, activations };
                match drive::ask(&mut handle, &run.actor, command).await {
                    Ok(_) => {}
                    // A microtest that fails on one device does not keep the next from being run.
                    Err(DriveError::Failed(failure)) => failed = failed.or(Some(failure)),
                    Err(other) => return Err(other),
                }
            }
            failed.map_or(Ok(()), |failure| Err(DriveError::Failed(failure)))
        };
        let result = supervise(context, &run, work).await;
        let state = run.handle().state.borrow().clone();
        let dir = run.kept().map(Path::to_owned);
        finish(run).await?;
        let answer = || micro::answer(&state, 0, &targets, dir.as_deref(), context.style);
        match result {
            Ok(()) => Ok(answer()),
            // What other devices or microtests found before is not lost.
            Err(failed) if !state.micro.is_empty() => Ok(Answer {
                status: failed.status,
                ..answer().error(ErrorCode::NoDevice, failed.error.message, failed.error.hint)
            }),
            Err(mut failed) => {
                failed.error.code = ErrorCode::NoDevice;
                Err(failed)
            }
        }
    })
}

/// Opens a session on a case, lets `work` be done, and answers from the state at the end.
///
/// The answer is given the journal line at which the work began.
pub(super) fn with_case(
    context: &Context,
    path: &Path,
    keep: Keep,
    work: impl AsyncFnOnce(&mut EngineHandle, &Run, &Case) -> Result<(), DriveError>,
    answer: impl FnOnce(&State, u64, Option<&Path>) -> Answer,
) -> Result<Answer, Failed> {
    with_read(context, case_file(path)?, keep, work, answer)
}

/// The same on a case that was read already.
fn with_read(
    context: &Context,
    (case, remarks): (Case, Vec<Diagnostic>),
    keep: Keep,
    work: impl AsyncFnOnce(&mut EngineHandle, &Run, &Case) -> Result<(), DriveError>,
    answer: impl FnOnce(&State, u64, Option<&Path>) -> Answer,
) -> Result<Answer, Failed> {
    block_on(async {
        let run = start_kept(context, &case.name, SEED, keep)?;
        let mut handle = run.handle();
        let mut began = 0;
        let opened = async {
            let state = drive::ask(&mut handle, &run.actor, Command::OpenCase { case: Box::new(case.clone()) }).await?;
            began = state.seq;
            work(&mut handle, &run, &case).await
        };
        let result = supervise(context, &run, opened).await;
        put_back(context, &run, &result).await;
        let state = run.handle().state.borrow().clone();
        let dir = run.kept().map(Path::to_owned);
        let dir = dir.as_deref();
        finish(run).await?;
        match result {
            // A job that failed half-way has left something to report, and the report says what is missing.
            Err(failed) if failed.status == Status::Interrupted || state.seq <= began || began == 0 => Err(failed),
            Err(failed) => {
                let mut answer = answer(&state, began, dir).kept_in(dir).diagnostics(remarks);
                answer.status = failed.status;
                answer.error = Some(failed.error);
                Ok(answer)
            }
            Ok(()) => Ok(answer(&state, began, dir).kept_in(dir).diagnostics(remarks)),
        }
    })
}

/// A search that was interrupted leaves its servers as it found them; a second interrupt leaves them as they are.
async fn put_back(context: &Context, run: &Run, result: &Result<(), Failed>) {
    let interrupted = result.as_ref().is_err_and(|f| f.status == Status::Interrupted);
    let mut handle = run.handle();
    let state = handle.state.borrow().clone();
    if !interrupted || !state.search.as_ref().is_some_and(|s| s.is_active()) {
        return;
    }
    output::stderr_line("interrupted: the servers are put back as they were; again to leave them as they are");
    let work = async {
        drive::ask(&mut handle, &run.actor, Command::StopIsolation).await.ok();
        drive::settle(&mut handle).await?;
        let waiting = drive::planned(&handle.state.borrow());
        drive::discard(&handle, &run.actor, &waiting).await?;
        if handle.state.borrow().targets.values().any(|t| t.changed.is_some()) {
            let original = Command::ChooseEndState { end_state: EndState::Original };
            drive::change(&mut handle, &run.actor, original, None).await?;
        }
        Ok(())
    };
    if let Err(failed) = supervise(context, run, work).await {
        output::stderr_line(&format!("not put back: {failed}"));
    }
    let state = run.handle().state.borrow().clone();
    for (target, _) in state.targets.iter().filter(|(_, t)| t.changed.is_some()) {
        output::stderr_line(&format!("`{target}` is CHANGED; `patchbench restore CASE` puts it back"));
    }
}
