//! `truth`, `recall`, `micro`, `patches`, `isolate`: look, measure, search.

use std::collections::BTreeMap;
use std::path::Path;

use crate::case::{Case, Role};
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::{IsolateArgs, MicroArgs, RecallArgs};
use crate::cli::connect::case_file;
use crate::cli::connect::run::{Run, block_on, finish, start_new, supervise};
use crate::cli::exit::Status;
use crate::cli::json::ErrorCode;
use crate::cli::unsupported::refuse;
use crate::cli::{Context, isolate, micro, patches, recall, truth};
use crate::engine::command::{Command, EndState, RecallPlan};
use crate::engine::drive::{self, DriveError};
use crate::engine::procedure::Failure;
use crate::engine::runtime::EngineHandle;
use crate::isolate::verdict::Finding;
use crate::recall::trial::ProbeForm;

/// Conversations for each form, length and depth of a suite.
const REPEATS: u32 = 3;
/// Seed of sessions that were not given one.
const SEED: u64 = 1;

/// Answers `truth CASE`.
///
/// # Errors
/// The case is wrong, or the session cannot be written.
pub fn truth(context: &Context, path: &Path) -> Result<Answer, Failed> {
    with_case(context, path, async |_, _, _| Ok(()), |state, _, dir| truth::answer(state, dir, context.style))
}

/// Answers `patches CASE`.
///
/// # Errors
/// The case is wrong, or the session cannot be written.
pub fn patches(context: &Context, path: &Path) -> Result<Answer, Failed> {
    with_case(context, path, async |_, _, _| Ok(()), |state, _, dir| patches::answer(state, Some(dir), context.style))
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
    with_case(context, path, work, |state, after, dir| recall::answer(state, after, dir, context.style))
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
    let Some(path) = &args.case else {
        return Err(refuse("simulate the search", "the tests of the search hold its simulations"));
    };
    if args.plan || args.budget.is_some() {
        return Err(refuse("plan a search beforehand or bound its minutes", "leave `--plan` and `--budget` out"));
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
        let state = drive::search(handle, &run.actor, Vec::new()).await?;
        let changed = state.targets.values().any(|t| t.changed.is_some());
        let guilty = state.verdicts.iter().any(|v| v.verdict == Finding::Guilty);
        if changed && !guilty {
            // Nobody is there to choose, and nothing that was found speaks for any other configuration.
            let original = Command::ChooseEndState { end_state: EndState::Original };
            drive::change(handle, &run.actor, original, None).await?;
        }
        Ok(())
    };
    with_case(context, path, work, |state, _, dir| isolate::answer(state, dir, context.style))
}

/// Answers `micro`.
///
/// # Errors
/// A microtest cannot run, or the session cannot be written.
pub fn micro(context: &Context, args: &MicroArgs) -> Result<Answer, Failed> {
    let specs = if args.specs.is_empty() {
        crate::kernel::specs().iter().map(|s| s.name.to_owned()).collect()
    } else {
        args.specs.clone()
    };
    block_on(async {
        let run = start_new(context, "micro", SEED)?;
        let mut handle = run.handle();
        let work = async {
            for spec in specs {
                let checkpoint = args.checkpoint.as_ref().map(|p| p.display().to_string());
                let command = Command::Micro { spec, device: args.device.clone(), checkpoint };
                drive::ask(&mut handle, &run.actor, command).await?;
            }
            Ok(())
        };
        let result = supervise(context, &run, work).await;
        let state = run.handle().state.borrow().clone();
        let dir = run.dir.clone();
        finish(run).await?;
        result.map_err(|mut failed| {
            failed.error.code = ErrorCode::NoDevice;
            failed
        })?;
        Ok(micro::answer(&state, 0, &dir, context.style))
    })
}

/// Opens a session on a case, lets `work` be done, and answers from the state at the end.
///
/// The answer is given the journal line at which the work began.
fn with_case(
    context: &Context,
    path: &Path,
    work: impl AsyncFnOnce(&mut EngineHandle, &Run, &Case) -> Result<(), DriveError>,
    answer: impl FnOnce(&crate::engine::state::State, u64, &Path) -> Answer,
) -> Result<Answer, Failed> {
    let (case, remarks) = case_file(path)?;
    block_on(async {
        let run = start_new(context, &case.name, SEED)?;
        let mut handle = run.handle();
        let mut began = 0;
        let opened = async {
            let state = drive::ask(&mut handle, &run.actor, Command::OpenCase { case: Box::new(case.clone()) }).await?;
            began = state.seq;
            work(&mut handle, &run, &case).await
        };
        let result = supervise(context, &run, opened).await;
        let state = run.handle().state.borrow().clone();
        let dir = run.dir.clone();
        finish(run).await?;
        match result {
            // A job that failed half-way has left something to report, and the report says what is missing.
            Err(failed) if failed.status == Status::Interrupted || state.seq <= began || began == 0 => Err(failed),
            Err(failed) => {
                let mut answer = answer(&state, began, &dir).session(&dir).diagnostics(remarks);
                answer.status = failed.status;
                answer.error = Some(failed.error);
                Ok(answer)
            }
            Ok(()) => Ok(answer(&state, began, &dir).session(&dir).diagnostics(remarks)),
        }
    })
}
