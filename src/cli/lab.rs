//! `patchbench lab serve`, `lab install`, `lab scenarios` and `lab reveal`.
//!
//! What the lab is and how a deployment is sealed is `crate::lab`.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::answer::{Answer, Failed};
use crate::cli::args::lab::InstallArgs;
use crate::cli::exit::Status;
use crate::cli::json::{ErrorCode, Report};
use crate::cli::style::Style;
use crate::cli::table::{Cell, table};
use crate::lab::ServeArgs;
use crate::lab::install::{Installed, Sources, install_with};
use crate::lab::scenario::{self, Rate, Scenario, reveal as unseal};
use crate::lab::source::checkout;
use crate::session::store;

/// The scenarios of the lab, by name; what they hide is not said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScenariosReport {
    /// Names, in order.
    pub scenarios: Vec<String>,
}

/// A lab that was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstallReport {
    /// Its folder.
    pub folder: String,
    /// The case file to open.
    pub case: String,
    /// A case of one server over the same deployment, where the deployment has several.
    pub monolithic: Option<String>,
    /// Base URL of the server that clients talk to, once it runs.
    pub url: String,
    /// The checkout whose arithmetic its servers run with; `null` is the program's own.
    pub checkout: Option<String>,
}

/// The sealed answer of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RevealReport {
    /// The deployment that was read.
    pub deployment: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The faults; empty is a healthy server.
    pub faults: Vec<FaultRow>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FaultRow {
    /// Its kind.
    pub kind: String,
    /// When it strikes.
    pub when: String,
    /// How often, in the words of the scenario.
    pub rate: String,
}

impl Report for ScenariosReport {
    const NAME: &'static str = "lab-scenarios";
}

impl Report for InstallReport {
    const NAME: &'static str = "lab-install";
}

impl Report for RevealReport {
    const NAME: &'static str = "lab-reveal";
}

/// Runs `lab serve` until it is told to stop.
///
/// # Errors
/// The server cannot start, or its engine dies.
pub fn serve(args: &ServeArgs) -> Result<(), Failed> {
    crate::lab::serve(args).map_err(|e| {
        let failed = Failed::world(ErrorCode::Unreachable, e.to_string());
        match e.hint() {
            Some(hint) => failed.hint(hint),
            None => failed,
        }
    })
}

/// The scenario of that name.
///
/// # Errors
/// There is none.
pub fn scenario(name: &str) -> Result<Scenario, Failed> {
    scenario::named(name).map_err(|e| {
        let names: Vec<_> = scenario::names().collect();
        Failed::usage(ErrorCode::Usage, e.to_string()).hint(format!("there are {}", names.join(", ")))
    })
}

/// Answers `lab install`.
///
/// # Errors
/// The scenario is not known, or the folder cannot be written.
pub fn install(args: &InstallArgs) -> Result<Answer, Failed> {
    let scenario = scenario(&args.scenario)?;
    let exe = std::env::current_exe()?;
    let sources = if args.source { Sources::Checkout } else { Sources::BuiltIn };
    let made = install_with(sources, &args.folder, &scenario, args.seed, args.port, &exe)
        .map_err(|e| Failed::world(ErrorCode::Io, e.to_string()))?;
    Ok(installed(&made, sources))
}

fn installed(made: &Installed, sources: Sources) -> Answer {
    let text = |path: &Path| path.display().to_string();
    let report = InstallReport {
        folder: text(&made.dir),
        case: text(&made.case),
        monolithic: made.monolithic.as_deref().map(text),
        url: made.url.clone(),
        checkout: (sources == Sources::Checkout).then(|| text(&made.dir.join(checkout::FOLDER))),
    };
    let mut lines = vec![format!("case      {}", report.case)];
    lines.extend(report.monolithic.as_ref().map(|path| format!("          {path}")));
    lines.extend(report.checkout.as_ref().map(|path| format!("checkout  {path}")));
    lines.push(format!("server    {}, not started yet: `patchbench restart CASE TARGET` does that", report.url));
    Answer::new(&report, Status::Done, lines.join("\n"))
}

/// Reads the sealed answer of a deployment; without one, that of the newest session that has a lab.
///
/// # Errors
/// There is no deployment, or it cannot be read.
pub fn read(sessions: &Path, deployment: Option<&Path>) -> Result<RevealReport, Failed> {
    let path = match deployment {
        Some(path) if path.is_dir() => path.join("lab.deployment"),
        Some(path) => path.to_owned(),
        None => newest(sessions)?,
    };
    let found = unseal(&path).map_err(|e| Failed::world(ErrorCode::Io, e.to_string()))?;
    let faults = found.scenario.faults.iter().map(|fault| FaultRow {
        kind: serde_json::to_value(fault.kind)
            .map_or_else(|_| String::new(), |v| v.as_str().unwrap_or_default().to_owned()),
        when: fault.when.clone(),
        rate: match &fault.rate {
            Rate::Fixed(rate) => rate.to_string(),
            Rate::PerBoot { per_boot } => format!("{per_boot} per boot"),
        },
    });
    Ok(RevealReport {
        deployment: path.display().to_string(),
        scenario: found.scenario.name.clone(),
        faults: faults.collect(),
    })
}

fn newest(sessions: &Path) -> Result<PathBuf, Failed> {
    store::list(sessions)?
        .into_iter()
        .map(|entry| entry.path.join("lab").join("lab.deployment"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failed::usage(ErrorCode::Usage, "no session has a lab").hint("name one with `--deployment PATH`")
        })
}

/// Answers `lab scenarios`.
pub fn scenarios(names: Vec<String>) -> Answer {
    let text = names.join("\n");
    Answer::new(&ScenariosReport { scenarios: names }, Status::Done, text)
}

/// Answers `lab reveal`.
pub fn reveal(report: &RevealReport, style: Style) -> Answer {
    let head = format!("scenario {} in {}", style.bold(&report.scenario), report.deployment);
    let text = if report.faults.is_empty() {
        format!("{head}\nnothing is hidden: the server is healthy")
    } else {
        let cells = |f: &FaultRow| vec![f.kind.clone().into(), f.when.clone().into(), f.rate.clone().into()];
        let rows: Vec<Vec<Cell>> = report.faults.iter().map(cells).collect();
        format!("{head}\n\n{}", table(&["fault", "when", "rate"], &[], &rows, style))
    };
    Answer::new(report, Status::Done, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_server_is_said_to_be_healthy() {
        let report = RevealReport { deployment: "d".into(), scenario: "clean".into(), faults: Vec::new() };
        assert!(reveal(&report, Style::PLAIN).text.contains("nothing is hidden"));
    }

    #[test]
    fn scenarios_are_one_name_a_line() {
        assert_eq!(scenarios(vec!["a".into(), "b".into()]).text, "a\nb");
    }
}
