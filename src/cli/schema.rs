//! `patchbench schema`: the JSON schema of every report.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cli::answer::{Answer, Failed};
use crate::cli::changes::ChangesReport;
use crate::cli::connect::change::ChangeReport;
use crate::cli::connect::elevate::ElevateReport;
use crate::cli::connect::restore::RestoreReport;
use crate::cli::connect::resume::ResumeReport;
use crate::cli::demo::DemoReport;
use crate::cli::diff::DiffReport;
use crate::cli::doctor::DoctorReport;
use crate::cli::exit::Status;
use crate::cli::guard::GuardReport;
use crate::cli::init::InitReport;
use crate::cli::isolate::IsolateReport;
use crate::cli::json::{self, ErrorCode, ErrorReport, Report, schema_of};
use crate::cli::keys::{CommandsReport, KeysReport};
use crate::cli::lab::{InstallReport, RevealReport, ScenariosReport};
use crate::cli::micro::MicroReports;
use crate::cli::patches::{ExplainReport, ImportReport, PatchesReport};
use crate::cli::recall::RecallReport;
use crate::cli::search_plan::{PlanReport, SimulateReport};
use crate::cli::session::{SessionList, SessionRepair, SessionShow, SessionVerify};
use crate::cli::session_files::SessionMade;
use crate::cli::session_replay::SessionReplay;
use crate::cli::settings::ConfigReport;
use crate::cli::shell::TextReport;
use crate::cli::stream::{EventLine, event_schema};
use crate::cli::transcript::TranscriptReport;
use crate::cli::truth::TruthReport;
use crate::config::nearest;

/// The names of all reports, or one schema.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SchemasReport {
    /// Names that `patchbench schema NAME` takes.
    pub schemas: Vec<String>,
}

impl Report for SchemasReport {
    const NAME: &'static str = "schemas";
}

/// One report of the list.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Makes its schema.
    pub schema: fn() -> Value,
}

const fn known<R: Report>() -> Known {
    Known { name: R::NAME, schema: schema_of::<R> }
}

/// Every report that a command prints.
pub const ALL: &[Known] = &[
    known::<ChangeReport>(),
    known::<ChangesReport>(),
    known::<CommandsReport>(),
    known::<ConfigReport>(),
    known::<DemoReport>(),
    known::<DiffReport>(),
    known::<DoctorReport>(),
    known::<ElevateReport>(),
    known::<ErrorReport>(),
    Known { name: EventLine::NAME, schema: event_schema },
    known::<InitReport>(),
    known::<IsolateReport>(),
    known::<PlanReport>(),
    known::<SimulateReport>(),
    known::<KeysReport>(),
    known::<InstallReport>(),
    known::<RevealReport>(),
    known::<ScenariosReport>(),
    known::<MicroReports>(),
    known::<PatchesReport>(),
    known::<ImportReport>(),
    known::<ExplainReport>(),
    known::<GuardReport>(),
    known::<RecallReport>(),
    known::<SchemasReport>(),
    known::<SessionList>(),
    known::<SessionMade>(),
    known::<SessionRepair>(),
    known::<SessionReplay>(),
    known::<RestoreReport>(),
    known::<ResumeReport>(),
    known::<SessionShow>(),
    known::<SessionVerify>(),
    known::<TextReport>(),
    known::<TranscriptReport>(),
    known::<TruthReport>(),
];

/// Answers `patchbench schema [NAME]`. With a name, text and JSON are the schema itself.
///
/// # Errors
/// There is no report of that name.
pub fn schema(name: Option<&str>) -> Result<SchemaAnswer, Failed> {
    let Some(name) = name else {
        let names: Vec<String> = ALL.iter().map(|known| known.name.to_owned()).collect();
        let text = names.join("\n");
        return Ok(SchemaAnswer::List(Box::new(Answer::new(&SchemasReport { schemas: names }, Status::Done, text))));
    };
    if let Some(known) = ALL.iter().find(|known| known.name == name) {
        return Ok(SchemaAnswer::Schema(json::line(&(known.schema)())));
    }
    let failed = Failed::usage(ErrorCode::Usage, format!("there is no report `{name}`"));
    Err(match nearest(name, ALL.iter().map(|known| known.name)) {
        Some(near) => failed.hint(format!("did you mean `{near}`?")),
        None => failed.hint("`patchbench schema` lists them"),
    })
}

/// The two things that `schema` prints.
#[derive(Clone, Debug)]
pub enum SchemaAnswer {
    /// The names.
    List(Box<Answer>),
    /// One schema, as JSON.
    Schema(String),
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Map;

    use super::*;
    use crate::cli::style::Style;
    use crate::cli::{
        changes, demo, fixture, isolate, keys, lab, micro, patches, recall, search_plan, session, shell, stream, truth,
    };
    use crate::engine::state::State;

    fn validator(name: &str) -> jsonschema::Validator {
        let known = ALL.iter().find(|known| known.name == name).unwrap();
        jsonschema::options().with_draft(jsonschema::Draft::Draft202012).build(&(known.schema)()).unwrap()
    }

    fn check(answer: &Answer) {
        let value: Value = serde_json::from_str(&answer.to_json()).unwrap();
        let validator = validator(answer.name);
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", answer.name);
        // The schema is worth nothing if it accepts anything.
        let fields: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        for field in fields {
            let mut less = value.clone();
            less.as_object_mut().unwrap().remove(&field);
            assert!(!validator.is_valid(&less), "{} without `{field}` is valid", answer.name);
        }
    }

    #[test]
    fn every_report_over_a_full_state_is_valid_and_every_field_is_demanded() {
        let (state, dir, style) = (fixture::full_state(), Path::new("s"), Style::PLAIN);
        check(&isolate::answer(&state, Some(dir), style));
        check(&demo::answer(&state, "incident", dir, style));
        check(&truth::answer(&state, None, style));
        check(&recall::answer(&state, 0, Some(dir), style));
        check(&micro::answer(&state, 0, &[], Some(dir), style));
        check(&changes::answer(fixture::noon(), fixture::asked(), style));
        check(&patches::answer(&state, Some(dir), style));
        check(&Answer::new(&session::session_show_report(&state), Status::Done, ""));
        check(&keys::keys(None, false, style));
        check(&keys::commands(style));
        check(&search_plan::answer(&state, Some(5.0), None, style));
        check(&search_plan::simulated(1).unwrap());
        check(&lab::scenarios(vec!["incident".into()]));
        check(&shell::man().unwrap());
    }

    #[test]
    fn every_report_over_an_empty_state_is_valid() {
        let (state, dir, style) = (State::default(), Path::new("s"), Style::PLAIN);
        check(&isolate::answer(&state, Some(dir), style));
        check(&truth::answer(&state, None, style));
        check(&recall::answer(&state, 0, Some(dir), style));
        check(&micro::answer(&state, 0, &[], Some(dir), style));
        check(&patches::answer(&state, None, style));
        check(&Answer::new(&session::session_show_report(&state), Status::Done, ""));
    }

    #[test]
    fn a_failure_is_valid_as_an_error() {
        let failed = Failed::usage(ErrorCode::Case, "no").hint("yes").session("s");
        let value: Value = serde_json::from_str(&failed.to_json()).unwrap();
        assert!(validator("error").is_valid(&value));
        assert!(!validator("error").is_valid(&Value::Object(Map::new())));
    }

    #[test]
    fn an_event_of_the_stream_is_valid() {
        let line = stream::event_line(&crate::engine::event::Event {
            seq: 1,
            at: fixture::noon(),
            actor: crate::engine::input::Actor::program(),
            what: crate::engine::event::Happened::NoteAdded { text: "x".into() },
        });
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(validator("event").is_valid(&value), "{line}");
    }

    #[test]
    fn a_wrong_status_number_is_not_valid() {
        let mut value: Value = serde_json::from_str(&keys::keys(None, false, Style::PLAIN).to_json()).unwrap();
        value["exit"] = 7.into();
        assert!(!validator("keys").is_valid(&value));
    }

    #[test]
    fn an_unknown_report_gets_the_nearest_name() {
        assert_eq!(schema(Some("trut")).unwrap_err().error.hint.as_deref(), Some("did you mean `truth`?"));
    }
}
