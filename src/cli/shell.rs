//! `patchbench completions` and `patchbench man`: texts for the shell and the manual.

use clap::CommandFactory as _;
use clap_complete::Shell;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::Cli;
use crate::cli::exit::Status;
use crate::cli::json::Report;

/// A generated text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TextReport {
    /// The text: a completion script, a manual page in roff, or a help text.
    pub text: String,
}

impl Report for TextReport {
    const NAME: &'static str = "text";
}

/// Answers `patchbench completions SHELL`.
pub fn completions(shell: Shell) -> Answer {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "patchbench", &mut out);
    text(&String::from_utf8_lossy(&out))
}

/// Answers `patchbench man`: one page that holds every command.
///
/// # Errors
/// The page cannot be rendered.
pub fn man() -> Result<Answer, Failed> {
    let mut command = Cli::command();
    command.build();
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut out)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        subcommand(sub, &mut out)?;
    }
    Ok(text(&String::from_utf8_lossy(&out)))
}

/// A text as an answer.
pub fn text(text: &str) -> Answer {
    let text = text.trim_end().to_owned();
    Answer::new(&TextReport { text: text.clone() }, Status::Done, text)
}

fn subcommand(command: &clap::Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
    out.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
    let man = clap_mangen::Man::new(command.clone());
    man.render_description_section(out)?;
    man.render_synopsis_section(out)?;
    let local = command.get_arguments().any(|arg| !arg.is_global_set());
    if local {
        man.render_options_section(out)?;
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        subcommand(sub, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_names_a_deep_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let answer = completions(shell);
            assert!(answer.text.contains("verify"), "{shell}");
        }
    }

    #[test]
    fn the_manual_holds_every_command() {
        let page = man().unwrap().text;
        for command in Cli::command().get_subcommands() {
            let heading = format!("PATCHBENCH {}", command.get_name().to_uppercase());
            assert!(page.contains(&heading), "{heading}");
        }
        assert!(page.contains("PATCHBENCH SESSION VERIFY"));
    }
}
