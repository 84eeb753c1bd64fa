//! The commands that need an engine: open a session, send the commands, wait, read the state.
//!
//! What they print is built by the pure files beside this folder.

pub mod change;
pub mod changes;
pub mod demo;
pub mod diff;
pub mod elevate;
pub mod guard;
pub mod init;
pub mod measure;
pub mod patches;
mod pieces;
pub mod restore;
pub mod resume;
pub mod run;

use std::path::Path;

use crate::case::{Case, read};
use crate::cli::answer::Failed;
use crate::cli::json::ErrorCode;
use crate::engine::diagnostic::{Diagnostic, Severity};

/// The case in this file, and what is worth knowing about it.
///
/// # Errors
/// The file cannot be read, or says something that cannot be used.
pub(crate) fn case_file(path: &Path) -> Result<(Case, Vec<Diagnostic>), Failed> {
    let (case, diagnostics) = read::read_file(path);
    let error = diagnostics.iter().find(|d| d.severity == Severity::Error);
    match (case, error) {
        (Some(case), None) => Ok((case, diagnostics)),
        (_, error) => {
            let message = error.map_or_else(
                || format!("`{}` is not a case file", path.display()),
                |e| match &e.place {
                    Some(place) => format!("{place}: {}", e.message),
                    None => e.message.clone(),
                },
            );
            let failed = Failed::usage(ErrorCode::Case, message);
            Err(match error.and_then(|e| e.hint.clone()) {
                Some(hint) => failed.hint(hint),
                None => failed,
            })
        }
    }
}
