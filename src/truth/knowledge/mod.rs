//! What is known of the variables and flags of each serving engine, as data with versions and sources.
//!
//! Pure. The tables beside this file are the knowledge; the types here read them. They are never complete:
//! a name that is missing from them is unknown *here*, and only the installed source can say that a server
//! does not know it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::flags;
use crate::case::ServingEngine;

pub mod names;

/// Versions for which something holds, both ends optional; no end at all is *not established*.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Span {
    /// First version.
    pub since: Option<String>,
    /// First version for which it holds no more.
    pub until: Option<String>,
}

impl Span {
    /// Whether it holds for a version; `None` where that is not established.
    pub fn covers(&self, version: Option<&str>) -> Option<bool> {
        let version = numbers(version?)?;
        let (since, until) = (self.since.as_deref().map(numbers), self.until.as_deref().map(numbers));
        match (since, until) {
            (None, None) => None,
            (since, until) => {
                Some(since.flatten().is_none_or(|s| version >= s) && until.flatten().is_none_or(|u| version < u))
            }
        }
    }
}

/// `v0.19.2rc1.dev8+g4b7f` as `[0, 19, 2]`; `None` for what is no version.
fn numbers(version: &str) -> Option<Vec<u32>> {
    let digits = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count();
    let mut out = Vec::new();
    for part in version.trim().trim_start_matches('v').split('.') {
        let end = digits(part);
        if end == 0 {
            break;
        }
        out.push(part[..end].parse().ok()?);
        if end < part.len() {
            break;
        }
    }
    (!out.is_empty()).then_some(out)
}

/// What a variable is to its engine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is read.
    Read,
    /// It is an old name of another one.
    Renamed,
    /// It was read by earlier versions and has no effect now.
    Ignored,
    /// No version of the engine reads it: only a patch of one's own does.
    Local,
    /// It is read and means something else than its name suggests.
    Misleading,
}

/// How a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As true or false by the engine's own rules.
    Boolean,
    /// As text or number.
    Text,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// What it is to the engine.
    pub standing: Standing,
    /// How its value is read; `None` is not recorded.
    pub reading: Option<Reading>,
    /// Default; `None` is not recorded or not set.
    pub default: Option<String>,
    /// The name that counts, for an old one.
    pub now: Option<String>,
    /// A clause for people.
    pub note: Option<String>,
    /// Where it was read.
    pub source: String,
    /// Versions for which it was established.
    pub span: Span,
}

/// One flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Key under which the server reports it.
    pub key: String,
    /// Default as text; `None` is *no value*, which a server resolves by itself.
    pub default: Option<String>,
    /// Whether it stands alone.
    pub is_switch: bool,
    /// Where it was read.
    pub source: String,
    /// Versions for which it was established.
    pub span: Span,
}

/// A variable that the engine sets by itself at its start, whatever was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overwrite {
    /// Name.
    pub variable: String,
    /// The value that it gets.
    pub value: String,
    /// Architecture of the model.
    pub architecture: String,
    /// Compute capability as `120`.
    pub capability: u32,
    /// Where it was read.
    pub source: String,
    /// First version.
    pub since: Option<String>,
    /// First version without it.
    pub until: Option<String>,
}

impl Overwrite {
    /// Whether model, card and version are those for which the engine does so; `None` is not known.
    pub fn fits(&self, architecture: Option<&str>, card: Option<bool>, version: Option<&str>) -> [Option<bool>; 3] {
        let span = Span { since: self.since.clone(), until: self.until.clone() };
        [architecture.map(|a| a == self.architecture), card, span.covers(version)]
    }
}

/// Whether a card of one compute capability is of the family of another: 12.0 and 12.1 are one.
pub fn is_family(own: u32, wanted: u32) -> bool {
    own / 10 == wanted / 10
}

/// One side of a conflict.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Variable or flag key.
    pub name: String,
    /// Value that it has; a truth value matches every way to write it.
    pub is: String,
}

/// Settings that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// All must hold.
    pub when: Vec<Condition>,
    /// What goes wrong, in one clause.
    pub note: String,
    /// Where it was read.
    pub source: String,
    /// First version.
    pub since: Option<String>,
    /// First version without it.
    pub until: Option<String>,
}

/// Flags that have no effect while another one has a value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// Keys of the flags without effect.
    pub flags: Vec<String>,
    /// What makes them so.
    pub because: Condition,
    /// Where it was read.
    pub source: String,
    /// First version.
    pub since: Option<String>,
    /// First version without it.
    pub until: Option<String>,
}

/// Two texts of one flag that mean the same.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synonym {
    /// Key of the flag.
    pub flag: String,
    /// The texts.
    pub values: Vec<String>,
    /// Where it was read.
    pub source: String,
    /// First version.
    pub since: Option<String>,
    /// First version without it.
    pub until: Option<String>,
}

/// Variables that count only where a flag is not given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// Variable and the key of the flag that beats it.
    pub flags: BTreeMap<String, String>,
    /// Where it was read.
    pub source: String,
    /// First version.
    pub since: Option<String>,
    /// First version without it.
    pub until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariableGroup {
    source: String,
    since: Option<String>,
    until: Option<String>,
    /// Truth values that are on by default.
    #[serde(default)]
    on: Vec<String>,
    /// Truth values that are off by default.
    #[serde(default)]
    off: Vec<String>,
    /// Names whose default is not recorded.
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    values: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecialVariable {
    name: String,
    standing: Standing,
    now: Option<String>,
    default: Option<String>,
    note: Option<String>,
    source: String,
    since: Option<String>,
    until: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagGroup {
    source: String,
    since: Option<String>,
    until: Option<String>,
    #[serde(default)]
    defaults: BTreeMap<String, String>,
    /// Flags whose default is no value.
    #[serde(default)]
    unset: Vec<String>,
    /// Flags that stand alone and are off by default.
    #[serde(default)]
    switches: Vec<String>,
    /// Other spellings, without dashes, and the key that they mean.
    #[serde(default)]
    aliases: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    variables: Vec<VariableGroup>,
    #[serde(default)]
    variable: Vec<SpecialVariable>,
    #[serde(default)]
    flags: Vec<FlagGroup>,
    #[serde(default)]
    overwrite: Vec<Overwrite>,
    #[serde(default)]
    conflict: Vec<Conflict>,
    #[serde(default)]
    idle: Vec<Idle>,
    #[serde(default)]
    synonym: Vec<Synonym>,
    #[serde(default)]
    fallback: Vec<Fallback>,
}

/// What is known of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Variables by name.
    pub variables: BTreeMap<String, Variable>,
    /// Flags by key.
    pub flags: BTreeMap<String, Flag>,
    /// Other spellings of flags, as keys.
    pub aliases: BTreeMap<String, String>,
    /// What the engine sets by itself.
    pub overwrites: Vec<Overwrite>,
    /// What does not go together.
    pub conflicts: Vec<Conflict>,
    /// What has no effect beside something else.
    pub idle: Vec<Idle>,
    /// Texts that mean the same.
    pub synonyms: Vec<Synonym>,
    /// Variables that a flag beats.
    pub fallbacks: Vec<Fallback>,
}

const SGLANG: &str = include_str!("sglang.toml");
const VLLM: &str = include_str!("vllm.toml");
const LLAMA: &str = include_str!("llama_server.toml");

static TABLES: LazyLock<[Tables; 3]> =
    LazyLock::new(|| [SGLANG, VLLM, LLAMA].map(|text| read(text).unwrap_or_default()));

/// The tables of an engine.
pub fn of(engine: ServingEngine) -> &'static Tables {
    match engine {
        ServingEngine::Sglang => &TABLES[0],
        ServingEngine::Vllm => &TABLES[1],
        ServingEngine::LlamaServer => &TABLES[2],
    }
}

/// The tables of the engine that a variable belongs to by its prefix.
pub fn by_prefix(name: &str) -> Option<(ServingEngine, &'static Tables)> {
    let engine = names::engine(name)?;
    Some((engine, of(engine)))
}

fn read(text: &str) -> Result<Tables, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    let mut out = Tables {
        overwrites: file.overwrite,
        conflicts: file.conflict,
        idle: file.idle,
        synonyms: file.synonym,
        fallbacks: file.fallback,
        ..Tables::default()
    };
    for group in file.variables {
        let span = Span { since: group.since, until: group.until };
        let listed = [(group.on, Some("true")), (group.off, Some("false")), (group.names, None)];
        let plain = listed.into_iter().flat_map(|(names, default)| {
            names.into_iter().map(move |name| (name, default.map(str::to_owned), default.map(|_| Reading::Boolean)))
        });
        let values = group.values.into_iter().map(|(name, default)| (name, Some(default), Some(Reading::Text)));
        for (name, default, reading) in plain.chain(values) {
            out.variables.insert(
                name.clone(),
                Variable {
                    name,
                    standing: Standing::Read,
                    reading,
                    default: default.filter(|d| !d.is_empty()),
                    now: None,
                    note: None,
                    source: group.source.clone(),
                    span: span.clone(),
                },
            );
        }
    }
    for special in file.variable {
        let variable = Variable {
            name: special.name.clone(),
            standing: special.standing,
            reading: None,
            default: special.default,
            now: special.now,
            note: special.note,
            source: special.source,
            span: Span { since: special.since, until: special.until },
        };
        out.variables.insert(special.name, variable);
    }
    for group in file.flags {
        let span = Span { since: group.since, until: group.until };
        let values = group.defaults.into_iter().map(|(key, default)| (key, Some(default), false));
        let unset = group.unset.into_iter().map(|key| (key, None, false));
        let switches = group.switches.into_iter().map(|key| (key, Some("false".to_owned()), true));
        for (key, default, is_switch) in values.chain(unset).chain(switches) {
            let flag = Flag { key: key.clone(), default, is_switch, source: group.source.clone(), span: span.clone() };
            out.flags.insert(key, flag);
        }
        out.aliases.extend(group.aliases);
    }
    Ok(out)
}

impl Tables {
    /// The key that a flag is reported under: its own, that of an alias, or that of the only known flag which
    /// it abbreviates.
    pub fn flag_key(&self, spelled: &str) -> String {
        let bare = spelled.trim_start_matches('-').replace('-', "_");
        if let Some(key) = self.aliases.get(&bare) {
            return flags::key(key);
        }
        let key = flags::key(&bare);
        if self.flags.contains_key(&key) || !spelled.starts_with("--") || bare.len() < 4 {
            return key;
        }
        let known: BTreeSet<String> = self
            .flags
            .keys()
            .chain(self.aliases.keys())
            .filter(|k| k.starts_with(&bare))
            .map(|k| self.aliases.get(k).unwrap_or(k).clone())
            .collect();
        match known.len() {
            1 => known.into_iter().next().unwrap_or(key),
            _ => key,
        }
    }

    /// The flag that beats a variable.
    pub fn beaten_by(&self, variable: &str) -> Option<&str> {
        self.fallbacks.iter().find_map(|f| f.flags.get(variable)).map(String::as_str)
    }

    /// Whether two texts of one flag mean the same to this engine.
    pub fn same(&self, key: &str, a: &str, b: &str) -> bool {
        self.synonyms
            .iter()
            .any(|s| s.flag == key && s.values.iter().any(|v| v == a) && s.values.iter().any(|v| v == b))
    }
}

/// A truth value as `SGLang` reads it from the environment; `None` is no truth value.
pub fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "y" => Some(true),
        "false" | "0" | "no" | "n" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
