//! Opening the workbench: on a case, on the lab, on a session.

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
pub fn case(_context: &Context, _case: &Path) -> Result<(), Failed> {
    Err(refuse("open the workbench from here", "`patchbench session list` shows the sessions"))
}

/// Opens the workbench on a lab of its own.
///
/// # Errors
/// There is no terminal, the lab does not start, or the session cannot be written.
pub fn demo(_context: &Context, _args: &DemoArgs) -> Result<(), Failed> {
    Err(refuse("open the workbench from here", "`patchbench demo --headless` prints the verdict"))
}

/// Opens the workbench on an earlier session.
///
/// # Errors
/// There is no terminal or no such session, or it cannot be written.
pub fn resume(_context: &Context, _session: &str) -> Result<(), Failed> {
    Err(refuse("open the workbench from here", "`patchbench session list` shows the sessions"))
}
