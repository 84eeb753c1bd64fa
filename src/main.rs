//! Hooks of the process, then the command line.

use std::process::ExitCode;

use color_eyre::config::{HookBuilder, Theme};

fn main() -> ExitCode {
    let mut hooks = HookBuilder::default().display_env_section(false);
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        hooks = hooks.theme(Theme::new());
    }
    // Both can only fail where they were installed already, and then there is nothing to do.
    let _ = hooks.install();
    let _ = rustls::crypto::ring::default_provider().install_default();
    patchbench::cli::main(std::env::args_os())
}
