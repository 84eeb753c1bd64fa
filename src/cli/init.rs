//! What `init` reports: the servers that a host runs, and the case that was written from them. Pure.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::case::{Role, ServingEngine};
use crate::cli::answer::Answer;
use crate::cli::exit::Status;
use crate::cli::json::Report;
use crate::cli::style::Style;
use crate::cli::table::{Cell, table};
use crate::truth::survey::{Keeper, Server, Survey};
use crate::untrusted::Untrusted;

/// What was found on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InitReport {
    /// The host.
    pub host: String,
    /// The file that was written; `null` where the case was printed.
    pub case: Option<String>,
    /// The case's text.
    pub text: String,
    /// The servers, by port.
    pub servers: Vec<FoundServer>,
    /// Questions that the host was asked.
    pub round_trips: u32,
}

/// A model server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FoundServer {
    /// Its port.
    pub port: u16,
    /// Its process.
    pub pid: u32,
    /// What it does.
    pub role: Role,
    /// The server program.
    pub engine: ServingEngine,
    /// What starts it, in words; `null` is not known.
    pub started_by: Option<String>,
    /// Its model; `null` is not known.
    pub model: Option<String>,
}

impl Report for InitReport {
    const NAME: &'static str = "init";
}

/// The answer once the case was written to `file`; without one it is the text itself.
pub fn answer(survey: &Survey, text: String, file: Option<&Path>, style: Style) -> Answer {
    let servers: Vec<FoundServer> = survey.servers.iter().map(found).collect();
    let shown = match file {
        None => text.trim_end().to_owned(),
        Some(file) => summary(survey, &servers, file, style),
    };
    let report = InitReport {
        host: survey.host.clone(),
        case: file.map(|f| f.display().to_string()),
        text,
        servers,
        round_trips: survey.round_trips,
    };
    Answer::new(&report, Status::Done, shown).diagnostics(survey.diagnostics.iter().cloned())
}

fn found(server: &Server) -> FoundServer {
    FoundServer {
        port: server.port,
        pid: server.pid,
        role: server.role.value,
        engine: server.engine.value,
        started_by: server.keeper.as_ref().map(|keeper| match &keeper.value {
            Keeper::Unit(unit) => unit.clone(),
            Keeper::Script { script, .. } => script.clone(),
            Keeper::Container(id) => format!("container {id}"),
        }),
        model: server.model.as_ref().map(|m| m.value.clone()),
    }
}

fn summary(survey: &Survey, servers: &[FoundServer], file: &Path, style: Style) -> String {
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let unknown = || "unknown".to_owned();
    let visible = |text: &Option<String>| text.as_deref().map_or_else(unknown, |t| Untrusted::from(t).visible(60));
    let rows: Vec<Vec<Cell>> = servers
        .iter()
        .map(|s| {
            let fields = crate::cli::json::fields(s);
            [
                s.port.to_string(),
                word(&fields["role"]),
                word(&fields["engine"]),
                visible(&s.started_by),
                visible(&s.model),
            ]
            .map(Cell::from)
            .to_vec()
        })
        .collect();
    let head = ["port", "role", "engine", "started by", "model"];
    let todo = survey.servers.iter().filter(|s| s.keeper.is_none()).count();
    let mut lines = vec![table(&head, &[0], &rows, style)];
    lines.push(format!("\nwritten to {}; `patchbench {}` opens it", file.display(), file.display()));
    if todo > 0 {
        lines.push(format!("{todo} of {} servers: what starts them is not known, see TODO in the file", servers.len()));
    }
    lines.join("\n")
}
