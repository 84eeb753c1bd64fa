//! Tells somebody who looks elsewhere that a long step has ended, with a command of theirs.
//!
//! Not responsible for the bell and the notice of the terminal; those are the screen's.

use std::process::{Command, Stdio};

/// Runs the user's shell command with the sentence in `PATCHBENCH_NOTICE`; an empty command does nothing.
///
/// Nobody waits for it, and what it prints is dropped; that it cannot be started goes to the log.
pub fn run(command: &str, notice: &str) {
    if command.trim().is_empty() {
        return;
    }
    let started = Command::new("sh")
        .args(["-c", command])
        .env("PATCHBENCH_NOTICE", notice)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            // Without somebody who waits for it, it would stay as a dead process until this one ends.
            std::thread::spawn(move || child.wait());
        }
        Err(error) => tracing::warn!(%error, "the notify command cannot be started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_gets_the_sentence_and_not_as_shell_text() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("said");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        run(&format!("printf %s \"$PATCHBENCH_NOTICE\" > '{}'", pipe.display()), "recall: done $(reboot)");
        assert_eq!(fs_err::read_to_string(&pipe).unwrap(), "recall: done $(reboot)");
        run(" ", "nothing is started");
    }
}
