//! `patches CASE` and `patches explain`: opens a case or a session, and lets `cli::patches` say what is there.

use std::collections::BTreeMap;
use std::path::Path;

use super::measure::{keep, with_case};
use super::pieces;
use super::run::{Keep, Run, block_on, finish, start_kept, supervise};
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::ImportArgs;
use crate::cli::json::ErrorCode;
use crate::cli::patches::ImportForm;
use crate::cli::{Context, patches, session};
use crate::engine::command::Command;
use crate::engine::drive;
use crate::engine::runtime::EngineHandle;
use crate::engine::state::State;
use crate::patch::of_state;
use crate::session::store;

/// Answers `patches CASE`.
///
/// # Errors
/// The case is wrong, or the session cannot be written.
pub fn table(context: &Context, path: &Path, session: bool) -> Result<Answer, Failed> {
    let answer = |state: &State, _, dir: Option<&Path>| patches::answer(state, dir, context.style);
    with_case(context, path, keep(session), async |_, _, _| Ok(()), answer)
}

/// Answers `patches import SOURCE`.
///
/// # Errors
/// The diff or checkout cannot be read, the case is wrong, or the session cannot be written.
pub fn import(context: &Context, args: &ImportArgs) -> Result<Answer, Failed> {
    let from = pieces::source(&args.source, args.target.as_deref(), args.checkout.as_deref());
    let diffs = match &args.diffs {
        Some(folder) => pieces::write(args, &from, folder)?,
        None => BTreeMap::new(),
    };
    let form = if args.toml { ImportForm::Case } else { ImportForm::Table };
    let source = from.spelling();
    let answer =
        |state: &State, _, dir: Option<&Path>| patches::imported(state, &source, form, &diffs, dir, context.style);
    let work = async |handle: &mut EngineHandle, run: &Run| {
        drive::ask(handle, &run.actor, Command::ImportPatches { from: from.clone() }).await?;
        Ok(())
    };
    match &args.case {
        Some(path) => with_case(context, path, Keep::Session, async |handle, run, _| work(handle, run).await, answer),
        None => block_on(async {
            let run = start_kept(context, "patches", 1, Keep::Nothing)?;
            let mut handle = run.handle();
            let result = supervise(context, &run, work(&mut handle, &run)).await;
            let state = run.handle().state.borrow().clone();
            finish(run).await?;
            result.map(|()| answer(&state, 0, None))
        }),
    }
}

/// Answers `patches explain ID`: by a case, whose targets are read; by a session; else by the newest session that knows
/// the id.
///
/// # Errors
/// The case is wrong, or there is no such session.
pub fn explain(context: &Context, id: &str, case: Option<&Path>, named: Option<&str>) -> Result<Answer, Failed> {
    if let Some(path) = case {
        let answer = |state: &State, _, dir: Option<&Path>| patches::explain(state, id, dir);
        return with_case(context, path, keep(false), async |_, _, _| Ok(()), answer);
    }
    let root = &context.paths.sessions;
    if let Some(named) = named {
        let dir = store::find(root, named)?;
        let (state, remark) = session::read(&dir)?;
        return Ok(patches::explain(&state, id, Some(&dir)).diagnostics(remark));
    }
    for entry in store::list(root)? {
        // A session that cannot be read is no reason to leave out the older ones.
        let Ok((state, remark)) = session::read(&entry.path) else { continue };
        if of_state::ranked(&state).iter().any(|r| r.id == id) {
            return Ok(patches::explain(&state, id, Some(&entry.path)).diagnostics(remark));
        }
    }
    Err(Failed::usage(ErrorCode::Usage, format!("no session knows a patch or factor `{id}`"))
        .hint("`--case CASE` reads the targets of a case, `patchbench patches CASE` lists its patches"))
}
