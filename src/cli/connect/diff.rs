//! `diff A B`: reads two targets, or takes what a session read of them.

use std::path::Path;
use std::sync::Arc;

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::DiffArgs;
use crate::cli::connect::case_file;
use crate::cli::connect::run::{Keep, block_on, finish, start_kept, supervise};
use crate::cli::json::ErrorCode;
use crate::cli::{Context, diff, session};
use crate::engine::command::Command;
use crate::engine::drive;
use crate::engine::state::State;
use crate::session::store;
use crate::truth::TargetTruth;

/// Answers `diff A B`.
///
/// # Errors
/// A side names no case and no session, or no target of it, or could not be read.
pub fn diff(context: &Context, args: &DiffArgs) -> Result<Answer, Failed> {
    let (left, right) = (side(context, &args.a)?, side(context, &args.b)?);
    Ok(diff::answer((&args.a, &left), (&args.b, &right), context.style))
}

/// The reading that `CASE@TARGET` or `SESSION@TARGET` names; without a target, the only one.
fn side(context: &Context, name: &str) -> Result<Arc<TargetTruth>, Failed> {
    let (place, target) = match name.rsplit_once('@') {
        Some((place, target)) => (place, Some(target)),
        None => (name, None),
    };
    let path = Path::new(place);
    let state = if path.is_file() { live(context, path)? } else { recorded(context, place)? };
    let known: Vec<&str> = state.targets.keys().map(String::as_str).collect();
    let wanted = match (target, &known[..]) {
        (Some(target), _) => target,
        (None, [only]) => only,
        (None, _) => {
            let failed = Failed::usage(ErrorCode::Usage, format!("`{place}` has several targets"));
            return Err(failed.hint(format!("name one as `{place}@{}`", known.first().unwrap_or(&"TARGET"))));
        }
    };
    let Some(entry) = state.targets.get(wanted) else {
        let failed = Failed::usage(ErrorCode::Usage, format!("`{place}` has no target `{wanted}`"));
        return Err(failed.hint(format!("it has {}", known.join(", "))));
    };
    let Some(truth) = entry.truth.clone() else {
        return Err(Failed::world(ErrorCode::Unreachable, format!("`{wanted}` of `{place}` was never read"))
            .hint("`patchbench truth CASE --session` reads and keeps it"));
    };
    // Without a process, everything of the other side would look like a difference.
    if truth.process.is_none() {
        return Err(Failed::world(ErrorCode::Unreachable, format!("no process of `{wanted}` of `{place}` was read"))
            .hint("`patchbench truth` says why"));
    }
    Ok(truth)
}

fn live(context: &Context, path: &Path) -> Result<State, Failed> {
    let (case, _) = case_file(path)?;
    block_on(async {
        let run = start_kept(context, &case.name, 1, Keep::Nothing)?;
        let mut handle = run.handle();
        let open = Command::OpenCase { case: Box::new(case) };
        let result = supervise(context, &run, drive::ask(&mut handle, &run.actor, open)).await;
        finish(run).await?;
        Ok(State::clone(&*result?))
    })
}

fn recorded(context: &Context, name: &str) -> Result<State, Failed> {
    let dir = store::find(&context.paths.sessions, name)
        .map_err(|e| Failed::from(e).hint("a side is `CASE`, `CASE@TARGET`, or `SESSION@TARGET`"))?;
    Ok(session::read(&dir)?.0)
}
