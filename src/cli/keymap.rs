//! Finds the user's keymap: the file that the setting `keymap` names, else `keymap.toml` in the configuration folder.
//!
//! Not responsible for what a keymap may say; that is `ui::keymap`.

use std::path::PathBuf;

use fs_err as fs;

use crate::cli::Context;
use crate::cli::answer::Failed;
use crate::cli::json::ErrorCode;
use crate::engine::diagnostic::Diagnostic;
use crate::ui::keymap::Keymap;

/// The file that is looked for.
pub fn path(context: &Context) -> PathBuf {
    context.config.path("keymap").unwrap_or_else(|| context.paths.config.join("keymap.toml"))
}

/// The keys: those of the table, and the user's over them; what is wrong in the file is said and left out.
///
/// # Errors
/// A file that was named cannot be read.
pub fn of_user(context: &Context) -> Result<(Keymap, Vec<Diagnostic>), Failed> {
    let path = path(context);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Keymap::with_user(&text, &path.display().to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && context.config.path("keymap").is_none() => {
            Ok((Keymap::from_table(), Vec::new()))
        }
        Err(error) => Err(Failed::usage(ErrorCode::Config, error.to_string())
            .hint("name a file that can be read in `keymap`, or leave it out")),
    }
}
