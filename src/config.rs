//! The settings of the program, in layers: defaults, `config.toml`, environment, flags.
//!
//! Every setting stands once in [`SETTINGS`]; the file, the environment and `patchbench config` come from it.
//! Not responsible for what a setting does. A setting that is not known is an error that names its line.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Name in the file and in flags; the variable is `PATCHBENCH_` and the name in capitals.
    pub key: &'static str,
    /// What it is for, in one line.
    pub doc: &'static str,
    /// What a value may be.
    pub kind: Kind,
    /// Value without any layer, as text.
    pub default: &'static str,
}

/// What the value of a setting may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// Seconds, at least this many.
    Seconds(f64),
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "color",
        doc: "when to colour text output",
        kind: Kind::Choice(&["auto", "always", "never"]),
        default: "auto",
    },
    Setting {
        key: "theme",
        doc: "colour theme of the workbench; `default` is `dark`",
        kind: Kind::Choice(&["default", "dark", "light", "mono"]),
        default: "default",
    },
    Setting { key: "ascii", doc: "draw with ASCII characters alone", kind: Kind::Switch, default: "false" },
    Setting { key: "layout", doc: "layout that the workbench starts with", kind: Kind::Text, default: "overview" },
    Setting {
        key: "keymap",
        doc: "file that remaps keys; empty is `keymap.toml` in the configuration folder, if it is there",
        kind: Kind::Text,
        default: "",
    },
    Setting {
        key: "name",
        doc: "name under which actions are journaled; empty is the login",
        kind: Kind::Text,
        default: "",
    },
    Setting {
        key: "notify",
        doc: "shell command to run when a long step ends; it finds what ended in `PATCHBENCH_NOTICE`",
        kind: Kind::Text,
        default: "",
    },
    Setting { key: "log", doc: "what goes into the log file", kind: Kind::Text, default: "info" },
    Setting { key: "load-every", doc: "seconds between readings of the load", kind: Kind::Seconds(0.5), default: "2" },
    Setting { key: "probe-every", doc: "seconds between full probes", kind: Kind::Seconds(5.0), default: "60" },
];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Origin {
    /// Built in.
    Default,
    /// The configuration file.
    File {
        /// Its path.
        path: String,
        /// Line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Env {
        /// Its name.
        name: String,
    },
    /// A flag of the command line.
    Flag {
        /// The flag with its dashes.
        name: String,
    },
}

/// A setting with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Value {
    /// Name.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// All settings with their values, in the order of [`SETTINGS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    values: Vec<Value>,
}

/// Why the configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    /// File and line, variable or flag.
    pub place: String,
    /// One clear sentence.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let value = |s: &Setting| Value { key: s.key.into(), value: s.default.into(), origin: Origin::Default };
        Self { values: SETTINGS.iter().map(value).collect() }
    }
}

impl Config {
    /// Every layer over the one before: defaults, `file`, `env`, `flags`.
    ///
    /// `file` is the path and the text of the configuration file; `env` and `flags` are name and value,
    /// flags without their dashes.
    ///
    /// # Errors
    /// A setting that does not exist, or a value that it cannot have.
    pub fn layered(
        file: Option<(&Path, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some((path, text)) = file {
            config.apply_file(path, text)?;
        }
        for (name, value) in env {
            let Some(setting) = SETTINGS.iter().find(|s| variable(s) == name) else { continue };
            let value = check(setting, &value).map_err(|wrong| wrong.at(format!("`{name}`")))?;
            config.set(setting, value, Origin::Env { name });
        }
        for (key, value) in flags {
            let place = format!("`--{key}`");
            let setting = known(key).map_err(|wrong| wrong.at(place.clone()))?;
            let value = check(setting, &value).map_err(|wrong| wrong.at(place))?;
            config.set(setting, value, Origin::Flag { name: format!("--{key}") });
        }
        Ok(config)
    }

    /// The value of a setting as text; empty for a key that is none.
    pub fn text(&self, key: &str) -> &str {
        self.values.iter().find(|v| v.key == key).map_or("", |v| &v.value)
    }

    /// The value of a setting as a path; `None` where it is empty.
    pub fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.text(key) == "true"
    }

    /// The value of a setting in seconds; 0 for a key that has none.
    pub fn seconds(&self, key: &str) -> f64 {
        self.text(key).parse().unwrap_or(0.0)
    }

    /// All values, in the order of [`SETTINGS`].
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let place = |offset: usize| format!("{}:{}", path.display(), line_of(text, offset));
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Wrong { message: error.message().trim().to_owned(), hint: None }.at(place(offset))
        })?;
        for (key, value) in table.get_ref() {
            let at = key.span().start;
            let setting = known(key.get_ref()).map_err(|wrong| wrong.at(place(at)))?;
            let value = toml_text(setting, value)
                .and_then(|text| check(setting, &text))
                .map_err(|wrong| wrong.at(place(at)))?;
            let origin = Origin::File { path: path.display().to_string(), line: line_of(text, at) };
            self.set(setting, value, origin);
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting, value: String, origin: Origin) {
        if let Some(slot) = self.values.iter_mut().find(|v| v.key == setting.key) {
            slot.value = value;
            slot.origin = origin;
        }
    }
}

/// The environment variable of a setting.
pub fn variable(setting: &Setting) -> String {
    format!("PATCHBENCH_{}", setting.key.to_uppercase().replace('-', "_"))
}

/// The known word that is nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A swap of two letters is a distance of 2, and must be forgiven in all but the shortest words.
    let limit = match word.chars().count() {
        0..=3 => 1,
        4..=7 => 2,
        long => long / 3,
    };
    known.into_iter().map(|k| (distance(word, k), k)).filter(|(d, _)| *d <= limit).min().map(|(_, k)| k)
}

struct Wrong {
    message: String,
    hint: Option<String>,
}

impl Wrong {
    fn at(self, place: String) -> ConfigError {
        ConfigError { place, message: self.message, hint: self.hint }
    }
}

fn known(key: &str) -> Result<&'static Setting, Wrong> {
    SETTINGS.iter().find(|s| s.key == key).ok_or_else(|| {
        let hint = match nearest(key, SETTINGS.iter().map(|s| s.key)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`patchbench config` prints every setting".to_owned(),
        };
        Wrong { message: format!("there is no setting `{key}`"), hint: Some(hint) }
    })
}

fn toml_text(setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<String, Wrong> {
    match (setting.kind, value.get_ref()) {
        (Kind::Text | Kind::Choice(_), DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Switch, DeValue::Boolean(on)) => Ok(on.to_string()),
        (Kind::Seconds(_), DeValue::Integer(number)) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        (Kind::Seconds(_), DeValue::Float(number)) => Ok(number.as_str().to_owned()),
        (kind, other) => Err(Wrong {
            message: format!("`{}` must be {}, not {}", setting.key, wanted(kind), other.type_str()),
            hint: None,
        }),
    }
}

fn check(setting: &Setting, value: &str) -> Result<String, Wrong> {
    let fits = match setting.kind {
        Kind::Text => true,
        Kind::Choice(words) => words.contains(&value),
        Kind::Switch => matches!(value, "true" | "false"),
        Kind::Seconds(least) => value.parse::<f64>().is_ok_and(|s| s.is_finite() && s >= least),
    };
    if fits {
        return Ok(value.to_owned());
    }
    let hint = match setting.kind {
        Kind::Choice(words) => nearest(value, words.iter().copied()).map(|near| format!("did you mean `{near}`?")),
        _ => None,
    };
    Err(Wrong { message: format!("`{}` must be {}, not `{value}`", setting.key, wanted(setting.kind)), hint })
}

fn wanted(kind: Kind) -> String {
    match kind {
        Kind::Text => "a text".into(),
        Kind::Choice(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or "),
        Kind::Switch => "`true` or `false`".into(),
        Kind::Seconds(least) => format!("a number of seconds of at least {least}"),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// Edit distance in characters (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(text: &str) -> Result<Config, ConfigError> {
        Config::layered(Some((Path::new("config.toml"), text)), [], [])
    }

    fn refused(text: &str, message: &str, hint: Option<&str>) {
        let error = file(text).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.hint.as_deref(), hint);
    }

    #[test]
    fn a_later_layer_wins_and_says_so() {
        let config = Config::layered(
            Some((Path::new("c.toml"), "# mine\ntheme = \"dark\"\nlayout = \"file\"\nascii = true\n")),
            [
                ("PATCHBENCH_LAYOUT".to_owned(), "env".to_owned()),
                ("PATCHBENCH_THEME".to_owned(), "light".to_owned()),
                ("HOME".to_owned(), "x".to_owned()),
            ],
            [("theme", "mono".to_owned())],
        )
        .unwrap();
        let origin = |key: &str| config.values().iter().find(|v| v.key == key).unwrap().origin.clone();
        assert_eq!(config.text("theme"), "mono");
        assert_eq!(origin("theme"), Origin::Flag { name: "--theme".into() });
        assert_eq!(config.text("layout"), "env");
        assert_eq!(origin("layout"), Origin::Env { name: "PATCHBENCH_LAYOUT".into() });
        assert!(config.is_on("ascii"));
        assert_eq!(origin("ascii"), Origin::File { path: "c.toml".into(), line: 4 });
        assert_eq!(origin("color"), Origin::Default);
    }

    #[test]
    fn an_unknown_setting_names_its_line_and_the_nearest() {
        refused("\ntheem = \"x\"\n", "config.toml:2: there is no setting `theem`", Some("did you mean `theme`?"));
        refused(
            "zzzzzzzz = 1",
            "config.toml:1: there is no setting `zzzzzzzz`",
            Some("`patchbench config` prints every setting"),
        );
    }

    #[test]
    fn a_wrong_value_names_what_is_wanted() {
        refused("ascii = \"yes\"", "config.toml:1: `ascii` must be `true` or `false`, not string", None);
        refused(
            "color = \"allways\"",
            "config.toml:1: `color` must be `auto` or `always` or `never`, not `allways`",
            Some("did you mean `always`?"),
        );
        refused(
            "probe-every = 1",
            "config.toml:1: `probe-every` must be a number of seconds of at least 5, not `1`",
            None,
        );
        refused(
            "load-every = inf",
            "config.toml:1: `load-every` must be a number of seconds of at least 0.5, not `inf`",
            None,
        );
    }

    #[test]
    fn a_theme_that_does_not_exist_was_taken_by_every_command_but_the_workbench() {
        refused(
            "theme = \"drak\"",
            "config.toml:1: `theme` must be `default` or `dark` or `light` or `mono`, not `drak`",
            Some("did you mean `dark`?"),
        );
    }

    #[test]
    fn broken_toml_names_its_line() {
        let error = file("theme = \"dark\"\nlayout = \n").unwrap_err();
        assert_eq!(error.place, "config.toml:2");
    }

    #[test]
    fn a_wrong_variable_is_an_error_not_a_default() {
        let env = [("PATCHBENCH_ASCII".to_owned(), "1".to_owned())];
        let error = Config::layered(None, env, []).unwrap_err();
        assert_eq!(error.to_string(), "`PATCHBENCH_ASCII`: `ascii` must be `true` or `false`, not `1`");
    }

    #[test]
    fn every_default_is_a_value_that_the_setting_may_have() {
        for setting in SETTINGS {
            assert!(check(setting, setting.default).is_ok(), "{}", setting.key);
        }
        assert_eq!(Config::default().seconds("probe-every"), 60.0);
        assert_eq!(Config::default().path("keymap"), None);
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(a in "[a-c]{0,6}", b in "[a-c]{0,6}", c in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
        }
    }
}
