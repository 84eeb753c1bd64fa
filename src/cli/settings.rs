//! `patchbench config`: every setting, its value, and where the value comes from.
//!
//! Responsible for finding the layers on this machine; what a layer may say is `config`.

use std::path::{Path, PathBuf};

use fs_err as fs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::GlobalArgs;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::config::{Config, ConfigError, Origin, SETTINGS};
use crate::paths::Paths;

/// Every setting, and the folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigReport {
    /// Settings.
    pub settings: Vec<SettingRow>,
    /// The configuration file that is looked for.
    pub file: String,
    /// Whether it is there.
    pub file_exists: bool,
    /// Folder of the sessions.
    pub sessions: String,
    /// Folder of logs and of the lab's deployments.
    pub state: String,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingRow {
    /// Name.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What it is for.
    pub doc: String,
}

impl Report for ConfigReport {
    const NAME: &'static str = "config";
}

/// The configuration of this run: file, environment and flags over the defaults.
///
/// # Errors
/// The file cannot be read, or a layer says something that is not known.
pub fn load(paths: &Paths, global: &GlobalArgs) -> Result<Config, Failed> {
    let (path, required) = file(paths, global);
    let text = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => None,
        Err(error) => {
            return Err(Failed::usage(ErrorCode::Config, error.to_string()).hint("give a file that can be read"));
        }
    };
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    Config::layered(text.as_deref().map(|text| (path.as_path(), text)), env, flags(global)).map_err(Failed::from)
}

/// The configuration file that is looked for, and whether it must be there.
pub fn file(paths: &Paths, global: &GlobalArgs) -> (PathBuf, bool) {
    match &global.config {
        Some(path) => (path.clone(), true),
        None => (paths.config_file(), false),
    }
}

/// Answers `patchbench config`.
pub fn config(config: &Config, paths: &Paths, file: &Path, style: Style) -> Answer {
    let rows = config.values().iter().zip(SETTINGS).map(|(value, setting)| SettingRow {
        key: value.key.clone(),
        value: value.value.clone(),
        origin: value.origin.clone(),
        doc: setting.doc.to_owned(),
    });
    let report = ConfigReport {
        settings: rows.collect(),
        file: file.display().to_string(),
        file_exists: file.is_file(),
        sessions: paths.sessions.display().to_string(),
        state: paths.state.display().to_string(),
    };
    let text = config_text(&report, style);
    Answer::new(&report, Status::Done, text)
}

impl From<ConfigError> for Failed {
    fn from(error: ConfigError) -> Self {
        let failed = Self::usage(ErrorCode::Config, error.to_string());
        match error.hint {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    }
}

fn flags(global: &GlobalArgs) -> Vec<(&'static str, String)> {
    let texts = [
        ("color", &global.color),
        ("theme", &global.theme),
        ("layout", &global.layout),
        ("notify", &global.notify),
        ("log", &global.log),
    ];
    let mut flags: Vec<_> = texts.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
    if global.ascii {
        flags.push(("ascii", "true".to_owned()));
    }
    flags
}

fn config_text(report: &ConfigReport, style: Style) -> String {
    let row = |setting: &SettingRow| {
        let origin = match &setting.origin {
            Origin::Default => Cell::marked("default", Mark::Dim),
            Origin::File { path, line } => format!("{path}:{line}").into(),
            Origin::Env { name } => format!("${name}").into(),
            Origin::Flag { name } => name.clone().into(),
        };
        let value = if setting.value.is_empty() { "\"\"".to_owned() } else { setting.value.clone() };
        vec![setting.key.clone().into(), value.into(), origin, Cell::marked(setting.doc.clone(), Mark::Dim)]
    };
    let rows: Vec<Vec<Cell>> = report.settings.iter().map(row).collect();
    let there = if report.file_exists { "" } else { " (not there)" };
    format!(
        "{}\n\nconfiguration file  {}{there}\nsessions            {}\nstate               {}",
        table(&["setting", "value", "origin", "what it is for"], &[], &rows, style),
        report.file,
        report.sessions,
        report.state,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_must_be_there_and_the_usual_one_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::within(dir.path(), dir.path(), None);
        assert!(load(&paths, &GlobalArgs::default()).is_ok());
        let global = GlobalArgs { config: Some(dir.path().join("none.toml")), ..GlobalArgs::default() };
        let failed = load(&paths, &global).unwrap_err();
        assert_eq!((failed.status, failed.error.code), (Status::Usage, ErrorCode::Config));
    }

    #[test]
    fn a_flag_is_the_last_layer() {
        let global = GlobalArgs { theme: Some("x".into()), ascii: true, ..GlobalArgs::default() };
        assert_eq!(flags(&global), [("theme", "x".to_owned()), ("ascii", "true".to_owned())]);
    }
}
