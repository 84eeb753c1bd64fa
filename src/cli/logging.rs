//! The log of the program: a file under the state folder, never the terminal.

use std::path::Path;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::EnvFilter;

use crate::engine::diagnostic::Diagnostic;

/// Starts logging into `dir`; the guard writes what is left when it is dropped.
///
/// # Errors
/// A remark: the program works without a log.
pub fn start(dir: &Path, filter: &str) -> Result<WorkerGuard, Diagnostic> {
    let without = |why: String| {
        Diagnostic::warning("no-log", format!("there is no log of this run: {why}")).at(dir.display().to_string())
    };
    let filter = EnvFilter::try_new(filter).map_err(|error| without(format!("`log` is no filter: {error}")))?;
    fs_err::create_dir_all(dir).map_err(|error| without(error.to_string()))?;
    let file = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("patchbench")
        .filename_suffix("log")
        .max_log_files(7)
        .build(dir)
        .map_err(|error| without(error.to_string()))?;
    let (writer, guard) = tracing_appender::non_blocking(file);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .try_init()
        .map_err(|error| without(error.to_string()))?;
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_made_is_a_remark() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs_err::write(&file, "").unwrap();
        let remark = start(&file.join("log"), "info").unwrap_err();
        assert_eq!(remark.code, "no-log");
    }

    #[test]
    fn a_broken_filter_is_a_remark() {
        let dir = tempfile::tempdir().unwrap();
        assert!(start(dir.path(), "a=b=c").unwrap_err().message.contains("no filter"));
    }
}
