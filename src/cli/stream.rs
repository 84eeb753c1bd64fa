//! `--json=stream`: one line per event while a command runs, and its report as the last line.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cli::json;
use crate::engine::event::{Event, Happened};
use crate::engine::input::Actor;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventLine {
    /// `patchbench.event/1`.
    pub schema: String,
    /// Journal line.
    pub seq: u64,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What happened.
    pub what: Happened,
}

impl EventLine {
    /// Name in `patchbench.NAME/1`.
    pub const NAME: &'static str = "event";
}

/// An event as one line of the stream.
pub fn event_line(event: &Event) -> String {
    json::line(&EventLine {
        schema: format!("patchbench.{}/1", EventLine::NAME),
        seq: event.seq,
        at: event.at,
        actor: event.actor.clone(),
        what: event.what.clone(),
    })
}

/// The JSON schema of a line.
pub fn event_schema() -> Value {
    let generator = schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<EventLine>().to_value();
    schema["title"] = Value::from("patchbench.event/1");
    schema["properties"]["schema"] = serde_json::json!({ "const": "patchbench.event/1" });
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;

    #[test]
    fn a_line_is_one_line() {
        let what = Happened::NoteAdded { text: "two\nlines\u{9b}".into() };
        let line = event_line(&Event { seq: 4, at: fixture::noon(), actor: Actor::driver("ann"), what });
        assert_eq!(
            line,
            r#"{"schema":"patchbench.event/1","seq":4,"at":"2026-05-01T12:00:00Z","actor":{"name":"ann","role":"driver"},"what":{"kind":"note-added","payload":{"text":"two\nlines\u009b"}}}"#
        );
    }
}
