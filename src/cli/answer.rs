//! What a command comes back with: a report in two forms and an exit status, or a failure.
//!
//! Not responsible for printing; see `output`.

use std::path::PathBuf;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::cli::exit::Status;
use crate::cli::json::{self, ErrorCode, ErrorInfo, Report};
use crate::engine::diagnostic::Diagnostic;
use crate::engine::procedure::Failure;

/// A command's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Name of the report.
    pub name: &'static str,
    /// Exit status.
    pub status: Status,
    /// Folder of the session that was used.
    pub session: Option<PathBuf>,
    /// Set where the command has a report and yet could not do all it was asked for.
    pub error: Option<ErrorInfo>,
    /// Remarks.
    pub diagnostics: Vec<Diagnostic>,
    /// The fields of the report.
    pub body: Map<String, Value>,
    /// The report for people, without a final line end.
    pub text: String,
}

impl Answer {
    /// An answer without session, error or remarks.
    pub fn new<R: Report>(report: &R, status: Status, text: impl Into<String>) -> Self {
        Self {
            name: R::NAME,
            status,
            session: None,
            error: None,
            diagnostics: Vec::new(),
            body: json::fields(report),
            text: text.into(),
        }
    }

    /// The same answer, from this session.
    #[must_use]
    pub fn session(mut self, path: impl Into<PathBuf>) -> Self {
        self.session = Some(path.into());
        self
    }

    /// The same answer, from this session if one was kept.
    #[must_use]
    pub fn kept_in(mut self, path: Option<&std::path::Path>) -> Self {
        self.session = path.map(std::path::Path::to_owned);
        self
    }

    /// The same answer with these remarks.
    #[must_use]
    pub fn diagnostics(mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) -> Self {
        self.diagnostics.extend(diagnostics);
        self
    }

    /// The same answer, which could not do all it was asked for.
    #[must_use]
    pub fn error(mut self, code: ErrorCode, message: impl Into<String>, hint: Option<String>) -> Self {
        self.error = Some(ErrorInfo { code, message: message.into(), hint });
        self
    }

    /// The answer as one JSON object.
    pub fn to_json(&self) -> String {
        json::object(self.name, self.status, self.session.as_ref(), self.error.as_ref(), &self.diagnostics, &self.body)
    }
}

/// A command that has no report to show.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", error.message)]
pub struct Failed {
    /// Exit status.
    pub status: Status,
    /// What went wrong.
    pub error: ErrorInfo,
    /// Folder of the session that was used, if it came that far.
    pub session: Option<PathBuf>,
}

impl Failed {
    /// A wrong command line, case or configuration.
    pub fn usage(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(Status::Usage, code, message)
    }

    /// A failure of the world outside this program.
    pub fn world(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(Status::World, code, message)
    }

    /// What the engine said, with the code that fits the command.
    pub fn from_failure(code: ErrorCode, failure: &Failure) -> Self {
        let mut failed = Self::world(code, failure.message.clone());
        failed.error.hint.clone_from(&failure.hint);
        failed
    }

    /// A failure without a hint.
    pub fn new(status: Status, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { status, error: ErrorInfo { code, message: message.into(), hint: None }, session: None }
    }

    /// The same failure with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }

    /// The same failure in this session: what was recorded so far is there.
    #[must_use]
    pub fn session(mut self, path: impl Into<PathBuf>) -> Self {
        self.session = Some(path.into());
        self
    }

    /// The failure as one JSON object.
    pub fn to_json(&self) -> String {
        json::object("error", self.status, self.session.as_ref(), Some(&self.error), &[], &Map::new())
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        let failed = Self::world(ErrorCode::Io, error.to_string());
        match error.kind() {
            std::io::ErrorKind::StorageFull => failed.hint("free some space; what was recorded so far is safe"),
            std::io::ErrorKind::PermissionDenied => failed.hint("`patchbench doctor` names the folders that are used"),
            _ => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_disk_has_status_3_and_a_hint() {
        let failed = Failed::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert_eq!(failed.status, Status::World);
        assert!(failed.error.hint.is_some());
        assert!(failed.to_json().contains(r#""exit":3"#));
    }

    #[test]
    fn an_engine_failure_keeps_its_words() {
        let failure = Failure::new("port 1 is taken").hint("stop it");
        let failed = Failed::from_failure(ErrorCode::Unreachable, &failure).session("s");
        assert_eq!(failed.to_string(), "port 1 is taken");
        assert_eq!(failed.error.hint.as_deref(), Some("stop it"));
        assert!(failed.to_json().contains(r#""session":"s""#));
    }
}
