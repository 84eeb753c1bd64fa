//! Where things stand on this machine: sessions, state, configuration.
//!
//! Responsible for names alone; nothing is made or read here except the environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use etcetera::base_strategy::Xdg;
use thiserror::Error;

/// The folders of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// One folder per session.
    pub sessions: PathBuf,
    /// State that is no session: log files, deployments of the lab.
    pub state: PathBuf,
    /// `config.toml` and the user's layouts, themes and keymaps.
    pub config: PathBuf,
}

/// No folder can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the home folder of this user is not known, so there is no place for sessions")]
pub struct NoHome;

impl Paths {
    /// The folders as environment and XDG rules say: `PATCHBENCH_SESSIONS` for the sessions, else XDG state.
    ///
    /// # Errors
    /// There is no home folder.
    pub fn from_env() -> Result<Self, NoHome> {
        let xdg = Xdg::new().map_err(|_| NoHome)?;
        let state = xdg.state_dir().unwrap_or_else(|| xdg.home_dir().join(".local/state"));
        Ok(Self::within(&state, &xdg.config_dir(), std::env::var_os("PATCHBENCH_SESSIONS")))
    }

    /// The folders within given base folders; `sessions` replaces the place of the sessions if it is not empty.
    pub fn within(state: &Path, config: &Path, sessions: Option<OsString>) -> Self {
        let state = state.join("patchbench");
        let sessions = match sessions {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => state.join("sessions"),
        };
        Self { sessions, state, config: config.join("patchbench") }
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The folder of log files.
    pub fn logs(&self) -> PathBuf {
        self.state.join("log")
    }

    /// The folder of deployments that the lab made.
    pub fn lab(&self) -> PathBuf {
        self.state.join("lab")
    }
}

/// The folder of ranges of checkpoints that were fetched from hosts, as XDG rules say; `None` without a home folder.
pub fn checkpoint_cache() -> Option<PathBuf> {
    Xdg::new().ok().map(|xdg| xdg.cache_dir().join("patchbench/checkpoints"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(sessions: Option<&str>) -> Paths {
        Paths::within(Path::new("/s"), Path::new("/c"), sessions.map(OsString::from))
    }

    #[test]
    fn sessions_stand_under_state_unless_told() {
        assert_eq!(paths(None).sessions, Path::new("/s/patchbench/sessions"));
        assert_eq!(paths(Some("")).sessions, Path::new("/s/patchbench/sessions"));
        assert_eq!(paths(Some("/x")).sessions, Path::new("/x"));
        assert_eq!(paths(None).config_file(), Path::new("/c/patchbench/config.toml"));
    }
}
