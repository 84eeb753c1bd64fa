//! Reads the JSON answers in which a server tells its identity, its configuration and its load. Pure.
//!
//! An answer of another kind adds nothing and is counted as damaged.

use serde_json::{Map, Value};

use super::{Damage, From, Observed, SourceKind};
use crate::serving::load;
use crate::serving::server_info::{self, InfoSource};

impl Observed {
    /// Adds `/server_info` of `SGLang`, or of `vLLM` in developer mode: internal states count before the top level.
    pub fn add_server_info(&mut self, url: &str, answer: Value) {
        let Some(info) = server_info::read(answer) else { return self.unreadable(url) };
        let from = |kind| From { kind, source: url, line: None, when: None };
        for (name, value) in info.values {
            if let Some(asked) = value.asked {
                self.say(&name, asked, from(SourceKind::Asked));
            }
            let kind = match value.source {
                InfoSource::TopLevel => SourceKind::Configuration,
                InfoSource::InternalState => SourceKind::InternalState,
            };
            match (name.as_str(), value.value) {
                // `vLLM` groups its configuration; its variables are no flags.
                ("vllm_config", Value::Object(groups)) => self.add_groups(&groups, from(kind)),
                ("vllm_env" | "system_env", _) => {}
                (_, value) => self.say(&name, value, from(kind)),
            }
        }
        for secret in &info.withheld {
            self.withhold(secret, from(SourceKind::Configuration));
        }
    }

    fn add_groups(&mut self, groups: &Map<String, Value>, from: From<'_>) {
        for (group, value) in groups {
            match value {
                Value::Object(inner) if group.ends_with("_config") => {
                    for (name, value) in inner {
                        self.say(name, value.clone(), from);
                    }
                }
                other => self.say(group, other.clone(), from),
            }
        }
    }

    /// Adds `/model_info` of `SGLang`.
    pub fn add_model_info(&mut self, url: &str, answer: Value) {
        let Value::Object(mut object) = answer else { return self.unreadable(url) };
        let from = From { kind: SourceKind::Identity, source: url, line: None, when: None };
        let mut withheld = Vec::new();
        server_info::withhold(&mut object, "", &mut withheld);
        for (name, value) in object {
            self.say(&name, value, from);
        }
        for secret in &withheld {
            self.withhold(secret, from);
        }
    }

    /// Adds `/props` of llama-server. `n_ctx` is the window of one slot.
    pub fn add_props(&mut self, url: &str, answer: Value) {
        let Value::Object(mut object) = answer else { return self.unreadable(url) };
        let from = From { kind: SourceKind::Configuration, source: url, line: None, when: None };
        let mut withheld = Vec::new();
        server_info::withhold(&mut object, "", &mut withheld);
        let settings = match object.remove("default_generation_settings") {
            Some(Value::Object(settings)) => settings,
            _ => Map::new(),
        };
        for (name, value) in settings {
            match (name.as_str(), value) {
                // Defaults of a request; a key may hold a dot, as `speculative.n_max` does.
                ("params", Value::Object(params)) => {
                    for (name, value) in params {
                        self.say(&name, value, from);
                    }
                }
                // The state of a slot, not its configuration.
                ("prompt" | "next_token" | "id" | "id_task" | "is_processing", _) => {}
                (_, value) => self.say(&name, value, from),
            }
        }
        for (name, value) in object {
            self.say(&name, value, from);
        }
        for secret in &withheld {
            self.withhold(secret, from);
        }
    }

    /// Adds `/v1/loads`: the capacity and the load of all ranks together.
    pub fn add_loads(&mut self, url: &str, answer: &Value) {
        let Some(all) = load::over_ranks(answer) else { return self.unreadable(url) };
        let when = answer.get("timestamp").and_then(Value::as_str);
        let from = From { kind: SourceKind::Load, source: url, line: None, when };
        for (name, total) in all {
            self.say(name, super::metrics::number(total), from);
        }
        if let Some(version) = answer.get("version").and_then(Value::as_str) {
            self.say("version", Value::from(version), from);
        }
    }

    pub(super) fn unreadable(&mut self, source: &str) {
        self.damaged.push(Damage { source: source.to_owned(), count: 1, lines: Vec::new() });
    }
}
