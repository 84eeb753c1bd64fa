//! The layers of one target with what follows from them: engine, version, card, spellings of flags. Pure.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::Layers;
use crate::case::{Patch, ServingEngine};
use crate::remote::argv::{self, Word};
use crate::remote::proc::Cmdline;
use crate::truth::flags;
use crate::truth::knowledge::{self, Tables};
use crate::truth::observed::{From, Observed, SourceKind};

/// The layers, read once for all rows.
pub(super) struct View<'a> {
    pub(super) layers: &'a Layers,
    pub(super) patches: &'a [&'a Patch],
    /// Everything that is observed, the configuration answer among it.
    pub(super) seen: Cow<'a, Observed>,
    pub(super) engine: Option<ServingEngine>,
    pub(super) version: Option<String>,
    /// Names that switch a patch of the case.
    pub(super) gates: BTreeSet<&'a str>,
}

impl<'a> View<'a> {
    pub(super) fn new(layers: &'a Layers, patches: &'a [&'a Patch]) -> Self {
        let seen = seen(layers);
        let version = seen.version().or_else(|| layers.version.clone());
        Self {
            layers,
            patches,
            engine: layers.engine.or_else(|| engine(layers)),
            version,
            seen,
            gates: patches.iter().map(|p| p.gate.switch_name()).collect(),
        }
    }

    /// What is known of the target's engine.
    pub(super) fn tables(&self) -> Option<&'static Tables> {
        self.engine.map(knowledge::of)
    }

    /// What is known of a variable's engine, which must not be another one than the target's.
    pub(super) fn tables_of(&self, variable: &str) -> Option<&'static Tables> {
        let (engine, tables) = knowledge::by_prefix(variable)?;
        self.engine.is_none_or(|own| own == engine).then_some(tables)
    }

    /// The key of a flag, and the value that its spelling alone gives it: `--no-x` is `x` off.
    pub(super) fn spelled(&self, flag: &str) -> (String, Option<&'static str>) {
        let Some(tables) = self.tables() else { return (flags::key(flag), None) };
        let key = tables.flag_key(flag);
        if !tables.flags.contains_key(&key)
            && let Some(rest) = key.strip_prefix("no_").filter(|rest| tables.flags.contains_key(*rest))
        {
            return (rest.to_owned(), Some("false"));
        }
        (key, None)
    }

    /// The number that a flag was given: by the process, else by the files where no process was read.
    pub(super) fn given_number(&self, key: &str) -> Option<u64> {
        let text = match &self.layers.process {
            Some((_, _, Ok(Cmdline::Words(words)))) => {
                let words = argv::known(words);
                let used = argv::flags(&words).into_iter().rev().find(|f| self.spelled(&f.name).0 == key)?;
                argv::flag_value(&words, &used.name, true).ok()??
            }
            Some(_) => return None,
            None => {
                let declared = self.layers.declared.as_ref()?;
                declared.flags.iter().rev().find(|f| self.spelled(&f.name).0 == key)?.value.known()?.to_owned()
            }
        };
        text.parse().ok()
    }

    /// Whether the process, else the files, give a flag.
    pub(super) fn given(&self, key: &str) -> bool {
        match &self.layers.process {
            Some((_, _, Ok(Cmdline::Words(words)))) => {
                argv::flags(&argv::known(words)).iter().any(|f| self.spelled(&f.name).0 == key)
            }
            Some(_) => false,
            None => self.layers.declaring().any(|d| d.flags.iter().any(|f| self.spelled(&f.name).0 == key)),
        }
    }

    /// Whether a flag stands alone, as far as is known.
    pub(super) fn is_switch(&self, key: &str) -> bool {
        self.tables().and_then(|t| t.flags.get(key)).is_some_and(|f| f.is_switch)
    }

    /// The architecture of the model, from the server or the checkpoint.
    pub(super) fn architecture(&self) -> Option<String> {
        let first = |value: &Value| value.get(0).and_then(Value::as_str).map(str::to_owned);
        let told = self.seen.value("architectures").and_then(|s| first(&s.value));
        let own = self.layers.checkpoint.as_ref().and_then(|(_, config)| config.get("architectures").and_then(first));
        told.or_else(|| self.seen.text("architecture")).or(own)
    }

    /// Whether the server runs on a card of this capability; `None` is not known.
    pub(super) fn runs_on(&self, capability: u32) -> Option<bool> {
        if self.seen.text("device").is_some_and(|device| !device.starts_with("cuda")) {
            return Some(false);
        }
        self.layers.capability.map(|own| knowledge::is_family(own, capability))
    }
}

fn seen(layers: &Layers) -> Cow<'_, Observed> {
    let Some(Ok((url, values))) = &layers.observed else { return Cow::Borrowed(&layers.seen) };
    let mut seen = layers.seen.clone();
    let from = From { kind: SourceKind::Configuration, source: url, line: None, when: None };
    for (name, value) in values {
        // Internal states of the same answer count before it.
        let known = seen.all(name).iter().any(|s| s.kind == SourceKind::InternalState);
        if !known {
            seen.say(name, value.clone(), from);
        }
    }
    Cow::Owned(seen)
}

/// The words of the process, else those of the files.
fn engine(layers: &Layers) -> Option<ServingEngine> {
    let running: Option<Vec<Word>> = match &layers.process {
        Some((_, _, Ok(Cmdline::Words(words)))) => Some(argv::known(words)),
        _ => None,
    };
    let declared = layers.declared.as_ref().map(|d| d.argv.clone());
    running.into_iter().chain(declared).find_map(|words| {
        let identity = argv::identity(&words)?;
        let named = |part: &str| identity.split([' ', '.', '/']).any(|word| word == part);
        [("sglang", ServingEngine::Sglang), ("vllm", ServingEngine::Vllm), ("llama-server", ServingEngine::LlamaServer)]
            .into_iter()
            .find_map(|(name, engine)| named(name).then_some(engine))
    })
}
