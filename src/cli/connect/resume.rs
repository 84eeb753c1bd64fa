//! `session resume`: names what was cut off, and finishes it or takes it back.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::cli::answer::{Answer, Failed};
use crate::cli::args::session::ResumeArgs;
use crate::cli::connect::run::{Run, block_on, driver, finish, start, supervise};
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::session::{self, ProcedureWord};
use crate::engine::command::Command;
use crate::engine::drive;
use crate::engine::event::Happened;
use crate::engine::state::{ProcedureState, State};
use crate::session::store;

/// What was cut off, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResumeReport {
    /// Events that were acknowledged before.
    pub events: u64,
    /// Changes that were cut off.
    pub half_done: Vec<HalfDone>,
}

/// A change that was cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HalfDone {
    /// Its number.
    pub procedure: u64,
    /// One line for people.
    pub title: String,
    /// The target it changes.
    pub target: String,
    /// Name of the last step that had begun; `null` where none had.
    pub step: Option<String>,
    /// How it stands now.
    pub now: ProcedureWord,
}

impl Report for ResumeReport {
    const NAME: &'static str = "session-resume";
}

/// Opens a session again and starts an engine on it.
///
/// # Errors
/// There is no such session, or it is locked or damaged.
pub fn reopen(context: &Context, session: &str) -> Result<Run, Failed> {
    let dir = store::find(&context.paths.sessions, session)?;
    let session = store::open(&dir)?;
    let first = Happened::SessionResumed { program: env!("CARGO_PKG_VERSION").to_owned() };
    start(session, first, driver(&context.config))
}

/// Answers `session resume SESSION --finish|--undo`, or names what is half done and what can be said next.
///
/// # Errors
/// There is no such session, it is locked or damaged, or a change could be neither finished nor undone.
pub fn headless(context: &Context, args: &ResumeArgs) -> Result<Answer, Failed> {
    block_on(async {
        let run = reopen(context, &args.session)?;
        let mut handle = run.handle();
        let before = handle.state.borrow().clone();
        let cut = drive::half_done(&before);
        let work = async {
            for procedure in &cut {
                let command = match (args.finish, args.undo) {
                    (true, _) => Command::ResumeProcedure { procedure: *procedure },
                    (_, true) => Command::UndoProcedure { procedure: *procedure },
                    _ => continue,
                };
                drive::run(&mut handle, &run.actor, command, *procedure).await?;
            }
            Ok(())
        };
        let result = supervise(context, &run, work).await;
        let after = run.handle().state.borrow().clone();
        let dir = run.dir.clone();
        finish(run).await?;
        let half_done: Vec<_> =
            cut.iter().filter_map(|id| Some(describe(before.procedures.get(id)?, after.procedures.get(id)?))).collect();
        let report = ResumeReport { events: before.seq, half_done };
        let text = text(&report, &before);
        let open = !args.finish && !args.undo && !cut.is_empty();
        let status = if open { Status::Finding } else { Status::Done };
        let mut answer = Answer::new(&report, status, text).session(dir).diagnostics(before.diagnostics.clone());
        match result {
            Err(failed) => {
                answer.status = failed.status;
                answer.error = Some(failed.error);
            }
            Ok(()) if open => {
                let hint = "`--finish` finishes it, `--undo` takes it back".to_owned();
                answer = answer.error(ErrorCode::Refused, "a change is half done", Some(hint));
            }
            Ok(()) => {}
        }
        Ok(answer)
    })
}

fn describe(before: &ProcedureState, after: &ProcedureState) -> HalfDone {
    let last = before.steps.iter().rposition(|s| s.started);
    HalfDone {
        procedure: before.procedure.id.0,
        title: before.procedure.title.clone(),
        target: before.procedure.target.clone(),
        step: last.and_then(|i| before.procedure.steps.get(i)).map(|s| s.name.clone()),
        now: session::word(&after.status),
    }
}

fn text(report: &ResumeReport, state: &State) -> String {
    let head = format!("session {}: {} events, {} trials", state.session.name, report.events, state.trials.len());
    if report.half_done.is_empty() {
        return format!("{head}\nno change was half done");
    }
    let lines = report.half_done.iter().map(|h| {
        let step = h.step.as_deref().unwrap_or("nothing");
        format!("p{} on {}: {} (cut off in `{step}`): {}", h.procedure, h.target, h.title, h.now.word())
    });
    format!("{head}\n{}", lines.collect::<Vec<_>>().join("\n"))
}
