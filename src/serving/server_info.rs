//! What a server says about its resolved configuration. Pure.
//!
//! Values of `internal_states[0]` win over the top level, which only repeats what was asked for; both are kept.
//! Secrets are taken out here, before anything else sees the answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::redact;

/// One value with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct InfoValue {
    /// The value that counts.
    pub value: Value,
    /// Where it stands.
    pub source: InfoSource,
    /// What the top level says, where that is another value.
    pub asked: Option<Value>,
}

/// Where a value stands in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoSource {
    /// At the top level.
    TopLevel,
    /// In `internal_states[0]`: after the decisions of the server.
    InternalState,
}

/// A server's resolved configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerInfo {
    /// Name to value.
    pub values: BTreeMap<String, InfoValue>,
    /// Dotted paths of secrets that were set and taken out.
    pub withheld: Vec<String>,
    /// Number of internal states; the first one was read.
    pub internal_states: usize,
}

impl ServerInfo {
    /// The value that counts; `None` is *the answer does not speak of it*, which is not "unset".
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|v| &v.value)
    }
}

/// Reads the answer of `/server_info`; `None` if it is no object.
pub fn read(answer: Value) -> Option<ServerInfo> {
    let Value::Object(mut top) = answer else { return None };
    let mut info = ServerInfo::default();
    let states = match top.remove("internal_states") {
        Some(Value::Array(states)) => states,
        _ => Vec::new(),
    };
    info.internal_states = states.len();
    withhold(&mut top, "", &mut info.withheld);
    for (name, value) in top {
        info.values.insert(name, InfoValue { value, source: InfoSource::TopLevel, asked: None });
    }
    if let Some(Value::Object(mut state)) = states.into_iter().next() {
        withhold(&mut state, "internal_states.0.", &mut info.withheld);
        for (name, value) in state {
            add_internal(&mut info.values, name, value);
        }
    }
    lower_requests(&mut info.values);
    Some(info)
}

/// `SGLang` repeats the asked number of requests and says beside it how many the cache leaves room for.
fn lower_requests(values: &mut BTreeMap<String, InfoValue>) {
    let number = |name: &str| values.get(name).and_then(|v| v.value.as_u64());
    let (asked, holds) = (number("max_running_requests"), number("effective_max_running_requests_per_dp"));
    let (Some(asked), Some(holds)) = (asked, holds) else { return };
    if asked != holds {
        let value = InfoValue { value: holds.into(), source: InfoSource::InternalState, asked: Some(asked.into()) };
        values.insert("max_running_requests".into(), value);
    }
}

fn add_internal(values: &mut BTreeMap<String, InfoValue>, name: String, value: Value) {
    let asked = match values.get(&name) {
        // A null of the internal state says only that nothing was decided there.
        Some(top) if value.is_null() || top.value == value => return,
        Some(top) => Some(top.value.clone()),
        None => None,
    };
    values.insert(name, InfoValue { value, source: InfoSource::InternalState, asked });
}

/// Takes secrets out of an object, at any depth; a secret that is null stays, because it says "not set".
///
/// Text that shows a secret by its own form, such as an URL with a password, is redacted in place.
pub fn withhold(object: &mut Map<String, Value>, path: &str, withheld: &mut Vec<String>) {
    object.retain(|name, value| {
        // Numbers and truth values are no secrets: `first_token: 5`.
        let secret = redact::is_secret_name(name)
            && match value {
                Value::String(text) => !text.is_empty(),
                other => other.is_array() || other.is_object(),
            };
        if secret {
            withheld.push(format!("{path}{name}"));
        }
        !secret
    });
    for (name, value) in object.iter_mut() {
        within(value, &format!("{path}{name}."), withheld);
    }
}

fn within(value: &mut Value, path: &str, withheld: &mut Vec<String>) {
    match value {
        Value::Object(inner) => withhold(inner, path, withheld),
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                within(item, &format!("{path}{i}."), withheld);
            }
        }
        Value::String(text) => *text = redact::text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn a29() -> ServerInfo {
        let text = include_str!("../../tests/artefacts/A29_sglang_get_server_info.json");
        read(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn the_internal_state_wins_where_it_differs() {
        let info = a29();
        for (name, value) in [
            ("decode_attention_backend", json!("fa3")),
            ("prefill_attention_backend", json!("fa3")),
            ("disable_chunked_prefix_cache", json!(true)),
            ("pp_max_micro_batch_size", json!(128)),
        ] {
            assert_eq!(info.get(name), Some(&value), "{name}");
            assert_eq!(info.values[name].source, InfoSource::InternalState, "{name}");
        }
        assert_eq!(info.values["decode_attention_backend"].asked, Some(Value::Null));
        assert_eq!(info.values["disable_chunked_prefix_cache"].asked, Some(json!(false)));
    }

    #[test]
    fn fewer_requests_than_were_asked_for_were_reported_as_asked() {
        let read = |asked: Value, holds: Value| {
            let state = json!({"max_running_requests": asked, "effective_max_running_requests_per_dp": holds});
            let info = read(json!({"max_running_requests": asked, "internal_states": [state]})).unwrap();
            let value = &info.values["max_running_requests"];
            (value.value.clone(), value.asked.clone())
        };
        assert_eq!(read(json!(32), json!(16)), (json!(16), Some(json!(32))));
        assert_eq!(read(json!(32), json!(32)), (json!(32), None));
        assert_eq!(read(Value::Null, json!(16)), (Value::Null, None));
    }

    #[test]
    fn the_rest_of_the_public_answer_is_read() {
        let info = a29();
        assert_eq!(info.get("disable_cuda_graph"), Some(&json!(true)));
        assert_eq!(info.get("cuda_graph_bs"), Some(&json!([1, 2, 4])));
        assert_eq!(info.get("chunked_prefill_size"), Some(&json!(8192)));
        assert_eq!(info.get("max_total_num_tokens"), Some(&json!(20480)));
        assert_eq!(info.get("max_req_input_len"), Some(&json!(20474)));
        assert!(info.get("version").is_some());
        assert_eq!(info.internal_states, 1);
    }

    #[test]
    fn secrets_are_taken_out_at_any_depth() {
        let info = read(json!({
            "api_key": "sk-1", "admin_api_key": null, "max_total_tokens": 5, "tokenizer_path": "t",
            "nested": {"HF-TOKEN": "hf_1", "ok": 1}, "list": [{"my_api_key": "x"}],
            "internal_states": [{"api_key": "sk-2"}],
        }))
        .unwrap();
        let withheld: std::collections::BTreeSet<&str> = info.withheld.iter().map(String::as_str).collect();
        let expect = ["api_key", "nested.HF-TOKEN", "list.0.my_api_key", "internal_states.0.api_key"];
        assert_eq!(withheld, expect.into_iter().collect());
        let text = format!("{info:?}");
        assert!(!text.contains("sk-") && !text.contains("hf_1"), "{text}");
        assert_eq!(info.get("admin_api_key"), Some(&Value::Null));
        assert_eq!(info.get("max_total_tokens"), Some(&json!(5)));
    }

    #[test]
    fn a_url_with_a_password_is_kept_without_it() {
        let info = read(json!({"dist": {"urls": ["redis://u:pw12345@h:1/0"]}, "first_token": 5})).unwrap();
        assert_eq!(info.get("dist"), Some(&json!({"urls": ["redis://u:[redacted]@h:1/0"]})));
        assert_eq!(info.get("first_token"), Some(&json!(5)));
    }

    #[test]
    fn an_answer_of_another_kind_is_nothing() {
        assert_eq!(read(json!([1])), None);
        assert_eq!(read(json!("ready")), None);
        assert_eq!(read(json!({"internal_states": "?", "a": 1})).unwrap().internal_states, 0);
    }
}
