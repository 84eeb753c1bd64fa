//! Opening the workbench: on a case, on a lab of its own, on an earlier session.
//!
//! Not responsible for the screen itself; that is `ui`.

use std::io::IsTerminal as _;
use std::path::Path;

use crate::cli::Context;
use crate::cli::answer::Failed;
use crate::cli::args::DemoArgs;
use crate::cli::unsupported::refuse;

/// Whether there is a terminal to draw on.
pub fn possible(context: &Context) -> bool {
    cfg!(feature = "tui") && context.json.is_none() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Opens the workbench on a case.
///
/// # Errors
/// There is no terminal, the case is wrong, or the session cannot be written.
pub fn case(context: &Context, case: &Path) -> Result<(), Failed> {
    needs_terminal(context, "`patchbench truth CASE` and the other commands work without one")?;
    screen::case(context, case)
}

/// Opens the workbench on a lab of its own.
///
/// # Errors
/// There is no terminal, the lab cannot be installed, or the session cannot be written.
pub fn demo(context: &Context, args: &DemoArgs) -> Result<(), Failed> {
    needs_terminal(context, "`patchbench demo --headless` investigates without one")?;
    screen::demo(context, args)
}

/// Opens the workbench on an earlier session.
///
/// # Errors
/// There is no terminal or no such session, or it cannot be written.
pub fn resume(context: &Context, session: &str) -> Result<(), Failed> {
    needs_terminal(context, "`--finish` and `--undo` work without one")?;
    screen::resume(context, session)
}

fn needs_terminal(context: &Context, hint: &str) -> Result<(), Failed> {
    if possible(context) {
        return Ok(());
    }
    Err(refuse("open the workbench without a terminal", hint))
}

#[cfg(not(feature = "tui"))]
mod screen {
    use super::{Context, DemoArgs, Failed, Path, refuse};

    pub(super) fn case(_: &Context, _: &Path) -> Result<(), Failed> {
        Err(without())
    }

    pub(super) fn demo(_: &Context, _: &DemoArgs) -> Result<(), Failed> {
        Err(without())
    }

    pub(super) fn resume(_: &Context, _: &str) -> Result<(), Failed> {
        Err(without())
    }

    fn without() -> Failed {
        refuse("draw a screen: it was built without the feature `tui`", "the headless commands work")
    }
}

#[cfg(feature = "tui")]
mod screen {
    use std::path::Path;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use crate::cli::Context;
    use crate::cli::answer::Failed;
    use crate::cli::args::DemoArgs;
    use crate::cli::connect::run::{Run, block_on, finish, start_new};
    use crate::cli::connect::{case_file, demo as lab, resume as again};
    use crate::cli::json::ErrorCode;
    use crate::cli::keymap;
    use crate::cli::output;
    use crate::engine::command::Command;
    use crate::engine::diagnostic::Diagnostic;
    use crate::engine::input::ActorRole;
    use crate::session::blobs::BlobStore;
    use crate::ui::app::{Mode, Setup};
    use crate::ui::layout::read::with_folder;
    use crate::ui::next;
    use crate::ui::run::{Exit, Options, run as show};
    use crate::ui::theme::{Look, LookEnv, Theme};
    use crate::world;

    pub(super) fn case(context: &Context, path: &Path) -> Result<(), Failed> {
        let (case, remarks) = case_file(path)?;
        block_on(async {
            let run = start_new(context, &case.name, 1)?;
            let open = Command::OpenCase { case: Box::new(case) };
            // An engine that is gone says so when the screen follows it.
            let _ = run.handle().send(run.actor.clone(), open).await;
            let exit = on_screen(context, &run, remarks).await;
            leave(run, exit, After::Serving).await
        })
    }

    pub(super) fn demo(context: &Context, args: &DemoArgs) -> Result<(), Failed> {
        block_on(async {
            let run = lab::begin(context, args)?;
            let mut handle = run.handle();
            // The screen is there at once; the lab loads while it is looked at.
            let exit = tokio::join!(on_screen(context, &run, Vec::new()), async {
                if let Err(error) = lab::start_lab(&run, &mut handle).await {
                    tracing::warn!(%error, "the lab did not start");
                }
            })
            .0;
            lab::end(&run).await;
            // The lab is gone with its levels, so nothing is left changed.
            leave(run, exit, After::Stopped).await
        })
    }

    pub(super) fn resume(context: &Context, session: &str) -> Result<(), Failed> {
        block_on(async {
            let run = again::reopen(context, session)?;
            let exit = on_screen(context, &run, Vec::new()).await;
            if lab::is_of_a_lab(&run) {
                // A lab that was started again from its session ends with it, as in the demo.
                lab::end(&run).await;
                return leave(run, exit, After::Stopped).await;
            }
            leave(run, exit, After::Serving).await
        })
    }

    /// Shows the screen until the user leaves; the load of the servers is followed meanwhile.
    async fn on_screen(context: &Context, run: &Run, remarks: Vec<Diagnostic>) -> Result<Exit, Failed> {
        let cancel = CancellationToken::new();
        let pace = world::Pace {
            load: Duration::from_secs_f64(context.config.seconds("load-every")),
            probe: Duration::from_secs_f64(context.config.seconds("probe-every")),
        };
        let watching =
            tokio::spawn(world::watch(run.hosts.clone(), run.handle(), run.actor.clone(), pace, cancel.clone()));
        let options = Options {
            setup: setup(context, remarks)?,
            actor: run.actor.clone(),
            next: next::step,
            notify: context.config.text("notify").to_owned(),
            blobs: BlobStore::existing(run.dir.join("blobs")),
        };
        let exit = show(run.handle(), options).await;
        cancel.cancel();
        // A task that is cancelled has nothing to say.
        let _ = watching.await;
        exit.map_err(|e| Failed::world(ErrorCode::Io, e.to_string()).session(&run.dir))
    }

    fn setup(context: &Context, mut remarks: Vec<Diagnostic>) -> Result<Setup, Failed> {
        let config = &context.config;
        let (mut layouts, wrong) = with_folder(&context.paths.config.join("layouts"));
        remarks.extend(wrong);
        let wanted = config.text("layout");
        if let Some(place) = layouts.iter().position(|l| l.name == wanted) {
            layouts.rotate_left(place);
        } else {
            let names: Vec<_> = layouts.iter().map(|l| l.name.as_str()).collect();
            let message = format!("there is no layout `{wanted}`");
            remarks.push(Diagnostic::warning("no-layout", message).hint(format!("there are {}", names.join(", "))));
        }
        // The setting admits the themes alone, and `default`.
        let theme = Theme::parse(config.text("theme")).unwrap_or_default();
        let mut look = Look::from_env(theme, &LookEnv::read());
        look.ascii |= config.is_on("ascii");
        let (keymap, wrong) = keymap::of_user(context)?;
        remarks.extend(wrong);
        Ok(Setup { mode: Mode::Live(ActorRole::Driver), look, keymap, layouts, remarks })
    }

    /// What becomes of the servers when the screen is gone.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum After {
        /// They go on.
        Serving,
        /// They were ours and were stopped.
        Stopped,
    }

    /// Ends the engine, and says what one wants to know after the screen is gone.
    async fn leave(run: Run, exit: Result<Exit, Failed>, after: After) -> Result<(), Failed> {
        let state = run.handle().state.borrow().clone();
        let name = state.session.name.clone();
        let ended = finish(run).await;
        let exit = exit?;
        ended?;
        if exit != Exit::TerminalLost {
            output::stderr_line(&format!("session {name}: `patchbench session resume {name}` opens it again"));
            for (target, known) in state.targets.iter().filter(|_| after == After::Serving) {
                if let Some(changed) = &known.changed {
                    output::stderr_line(&format!(
                        "`{target}` is CHANGED since {} by {}",
                        changed.since, changed.by.name
                    ));
                }
                if let Some(boot) = state.current_boot(target) {
                    output::stderr_line(&format!("`{target}` goes on as process {}", boot.proof.process.pid));
                }
            }
        }
        Ok(())
    }
}
