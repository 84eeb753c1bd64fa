//! The JSON contract: one object on every exit status, and its schema.
//!
//! Responsible for the envelope, for numbers that JSON does not know, and for making the text safe to
//! print on a terminal. Not responsible for what a report says; that is in the file of each command.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::cli::exit::{self, Status};
use crate::engine::diagnostic::Diagnostic;

/// A report that a command prints: its fields stand beside those of the envelope.
pub trait Report: Serialize + JsonSchema {
    /// Name in `patchbench.NAME/1`.
    const NAME: &'static str;
}

/// What every object holds, whatever the command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Envelope<R> {
    /// `patchbench.NAME/1`.
    pub schema: String,
    /// The exit status.
    pub exit: u8,
    /// Folder of the session that was used, if one was.
    pub session: Option<String>,
    /// Why the command could not do what it was asked for; `null` where it did.
    pub error: Option<ErrorInfo>,
    /// What is worth knowing although nothing failed as a whole.
    pub diagnostics: Vec<Diagnostic>,
    /// The fields of the report.
    #[serde(flatten)]
    pub report: R,
}

/// Why a command could not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorInfo {
    /// Which kind of error.
    pub code: ErrorCode,
    /// One clear sentence, lower case, no full stop.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

/// Kinds of errors; a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The command line is wrong.
    Usage,
    /// The case file is missing or broken.
    Case,
    /// The configuration is broken.
    Config,
    /// This version cannot do it.
    NotInThisVersion,
    /// A session is missing, locked or damaged.
    Session,
    /// A change was refused: not confirmed, not elevated, leased by somebody else.
    Refused,
    /// A host, server or port could not be reached or used.
    Unreachable,
    /// The device, driver or checkpoint is missing.
    NoDevice,
    /// Too few trials are left after voids.
    TooFewTrials,
    /// A file or folder could not be read or written.
    Io,
    /// The user interrupted it.
    Interrupted,
}

/// The report of a command that failed before it had one.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ErrorReport {}

impl Report for ErrorReport {
    const NAME: &'static str = "error";
}

/// A number as JSON can hold it: NaN and the infinities are the strings `NaN`, `inf`, `-inf`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(&self.0.to_string())
        }
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number; NaN and the infinities are strings.",
            "anyOf": [{ "type": "number" }, { "enum": ["NaN", "inf", "-inf"] }]
        })
    }
}

/// The envelope of an answer as one line of JSON, without a line end.
pub fn object(
    name: &str,
    status: Status,
    session: Option<&PathBuf>,
    error: Option<&ErrorInfo>,
    diagnostics: &[Diagnostic],
    body: &Map<String, Value>,
) -> String {
    let envelope = Envelope {
        schema: format!("patchbench.{name}/1"),
        exit: status.code(),
        session: session.map(|path| path.display().to_string()),
        error: error.cloned(),
        diagnostics: diagnostics.to_vec(),
        report: body,
    };
    line(&envelope)
}

/// One value as one line of JSON that is safe to print on a terminal.
///
/// A value that cannot be written is a mistake in this program; the line then says so as JSON.
pub fn line(value: &impl Serialize) -> String {
    match serde_json::to_string(value) {
        Ok(text) => escape_invisible(&text),
        Err(error) => Value::from(format!("cannot be written as JSON: {error}")).to_string(),
    }
}

/// The fields of a report.
pub fn fields(report: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(report) {
        Ok(Value::Object(map)) => map,
        Ok(other) => Map::from_iter([("value".to_owned(), other)]),
        Err(error) => Map::from_iter([("value".to_owned(), Value::from(error.to_string()))]),
    }
}

/// The JSON schema of a report inside its envelope, as it is printed.
pub fn schema_of<R: Report>() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Envelope<R>>().to_value();
    schema["title"] = Value::from(format!("patchbench.{}/1", R::NAME));
    schema["properties"]["schema"] = serde_json::json!({ "const": format!("patchbench.{}/1", R::NAME) });
    schema["properties"]["exit"] =
        serde_json::json!({ "enum": exit::ALL.iter().map(|(_, code, _)| code).collect::<Vec<_>>() });
    schema
}

/// Spells control, bidirectional and invisible characters as `\uXXXX`.
///
/// JSON text holds such characters inside strings alone, so the value stays the same, and a terminal
/// that the line is printed on cannot be steered by it.
fn escape_invisible(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_invisible(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(value: f64, expect: &str) {
        assert_eq!(line(&Number(value)), expect);
    }

    #[test]
    fn numbers_that_json_does_not_know_are_strings() {
        number(0.25, "0.25");
        number(f64::NAN, "\"NaN\"");
        number(f64::INFINITY, "\"inf\"");
        number(f64::NEG_INFINITY, "\"-inf\"");
    }

    #[test]
    fn the_envelope_has_every_field_on_success_and_on_error() {
        let body = Map::from_iter([("rows".to_owned(), Value::from(1))]);
        let text = object("truth", Status::Finding, Some(&PathBuf::from("s")), None, &[], &body);
        assert_eq!(
            text,
            r#"{"schema":"patchbench.truth/1","exit":1,"session":"s","error":null,"diagnostics":[],"rows":1}"#
        );
        let error = ErrorInfo { code: ErrorCode::NotInThisVersion, message: "no".into(), hint: None };
        let text = object("error", Status::Usage, None, Some(&error), &[], &Map::new());
        assert_eq!(
            text,
            r#"{"schema":"patchbench.error/1","exit":2,"session":null,"error":{"code":"not-in-this-version","message":"no","hint":null},"diagnostics":[]}"#
        );
    }

    #[test]
    fn the_schema_demands_the_envelope_and_names_the_report() {
        let schema = schema_of::<ErrorReport>();
        assert_eq!(schema["properties"]["schema"]["const"], "patchbench.error/1");
        let required = schema["required"].as_array().unwrap();
        for name in ["schema", "exit", "session", "error", "diagnostics"] {
            assert!(required.iter().any(|r| r == name), "{name} is not required");
        }
    }

    proptest! {
        #[test]
        fn escaping_changes_the_text_and_never_the_value(text in any::<String>()) {
            let printed = line(&text);
            prop_assert!(!printed.chars().any(is_invisible));
            prop_assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), text);
        }
    }
}
