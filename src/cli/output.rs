//! Printing: data on standard output, everything else on standard error.
//!
//! Not responsible for what is printed. A reader that went away is no error.

use std::io::{self, IsTerminal as _, Write as _};

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::JsonForm;
use crate::cli::exit::Status;
use crate::cli::guard::GuardReport;
use crate::cli::json::Report as _;
use crate::cli::shell::TextReport;
use crate::cli::style::Style;
use crate::engine::diagnostic::{Diagnostic, Severity};

/// Prints an answer; returns the status to end with.
pub fn answer(answer: &Answer, json: Option<JsonForm>, style: Style) -> Status {
    if json.is_some() {
        return or_world(stdout_line(&answer.to_json()), answer.status);
    }
    let printed = match answer.text.as_str() {
        "" => Ok(()),
        // A text that the program wrote itself, such as a completion script, is printed as it is.
        own if answer.name == TextReport::NAME => stdout_line(own),
        // A diff that goes into a file or a program is what it says, byte for byte.
        own if answer.name == GuardReport::NAME && !io::stdout().is_terminal() => stdout_line(own),
        text => stdout_line(&style.safe(text)),
    };
    for diagnostic in &answer.diagnostics {
        stderr_styled(&diagnostic_text(diagnostic, style), style);
    }
    if let Some(error) = &answer.error {
        stderr_styled(&error_text(&error.message, error.hint.as_deref(), style), style);
    }
    or_world(printed, answer.status)
}

/// Prints a failure; returns the status to end with.
pub fn failed(failed: &Failed, json: Option<JsonForm>, style: Style) -> Status {
    if json.is_some() {
        return or_world(stdout_line(&failed.to_json()), failed.status);
    }
    stderr_styled(&error_text(&failed.error.message, failed.error.hint.as_deref(), style), style);
    if let Some(session) = &failed.session {
        let note = format!("{} what was recorded is in `{}`", style.hint("note:"), session.display());
        stderr_styled(&note, style);
    }
    failed.status
}

/// Prints one line of data and flushes, so that a reader of a stream sees it at once.
///
/// # Errors
/// The disk is full, and the like; a reader that went away is no error.
pub fn stdout_line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints a text without colour for people; there is nobody left to tell if that fails.
pub fn stderr_line(text: &str) {
    stderr_styled(text, Style::PLAIN);
}

fn stderr_styled(text: &str, style: Style) {
    let _ = writeln!(io::stderr().lock(), "{}", style.safe(text));
}

/// The style of text on standard output, from the setting `color` and the environment.
pub fn stdout_style(color: &str, no_color: bool) -> Style {
    Style::choose(color, no_color, io::stdout().is_terminal())
}

/// The style of text on standard error.
pub fn stderr_style(color: &str, no_color: bool) -> Style {
    Style::choose(color, no_color, io::stderr().is_terminal())
}

fn or_world(printed: io::Result<()>, status: Status) -> Status {
    match printed {
        Ok(()) => status,
        Err(error) => {
            stderr_line(&format!("error: standard output cannot be written: {error}"));
            Status::World
        }
    }
}

fn error_text(message: &str, hint: Option<&str>, style: Style) -> String {
    let hint = hint.map(|hint| format!("\n{} {hint}", style.hint("hint:"))).unwrap_or_default();
    format!("{} {message}{hint}", style.error("error:"))
}

fn diagnostic_text(diagnostic: &Diagnostic, style: Style) -> String {
    let head = match diagnostic.severity {
        Severity::Info => style.hint("info:"),
        Severity::Warning => style.warning("warning:"),
        Severity::Error => style.error("error:"),
    };
    let place = diagnostic.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
    let hint = diagnostic.hint.as_ref().map(|hint| format!("\n{} {hint}", style.hint("hint:"))).unwrap_or_default();
    format!("{head} {}{place}{hint}", diagnostic.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_colour_reads_the_same() {
        let text = error_text("no such case", Some("try `patchbench init`"), Style::PLAIN);
        assert_eq!(text, "error: no such case\nhint: try `patchbench init`");
    }

    #[test]
    fn a_remark_names_its_place() {
        let remark = Diagnostic::warning("x", "line is torn").at("journal.jsonl:7").hint("see `session verify`");
        assert_eq!(
            diagnostic_text(&remark, Style::PLAIN),
            "warning: line is torn (journal.jsonl:7)\nhint: see `session verify`"
        );
    }
}
