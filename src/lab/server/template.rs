//! The chat template: messages and tools to token ids. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::ApiError;
use crate::lab::model::tokens::{ASSISTANT, BOS, EOS, SYSTEM, USER, encode};

/// One message of a conversation.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Option<Content>,
    #[serde(default)]
    pub(super) tool_calls: Option<Box<RawValue>>,
}

/// Text of a message.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

impl Message {
    fn text(&self) -> Result<String, ApiError> {
        let mut text = match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let mut texts = Vec::new();
                for part in parts {
                    match &part.text {
                        Some(text) if part.kind == "text" => texts.push(text.as_str()),
                        _ => return Err(ApiError::bad(format!("Content of type `{}` is not supported.", part.kind))),
                    }
                }
                texts.join("\n")
            }
        };
        if let Some(calls) = self.tool_calls.as_ref().map(|c| c.get()).filter(|c| !matches!(*c, "null" | "[]")) {
            text.push_str(calls);
        }
        Ok(text)
    }
}

/// Token ids of a conversation, ready to be continued by the assistant.
///
/// Tool definitions join the system turn; tool results are user turns; a developer message is a
/// system message. Consecutive user turns become one.
pub(super) fn render(messages: &[Message], tools: &[Box<RawValue>]) -> Result<Vec<u16>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::bad("Messages cannot be empty."));
    }
    let mut turns: Vec<(u16, String)> = Vec::new();
    for message in messages {
        let role = match message.role.as_str() {
            "system" | "developer" => SYSTEM,
            "user" | "tool" => USER,
            "assistant" => ASSISTANT,
            other => return Err(ApiError::bad(format!("Unknown role `{other}`."))),
        };
        let text = message.text()?;
        match turns.last_mut() {
            Some((USER, last)) if role == USER => {
                last.push('\n');
                last.push_str(&text);
            }
            _ => turns.push((role, text)),
        }
    }
    if !tools.is_empty() {
        let definitions: Vec<&str> = tools.iter().map(|t| t.get()).collect();
        let text = format!("You can call these tools: {}", definitions.join(", "));
        match turns.first_mut() {
            Some((SYSTEM, system)) => {
                system.push(' ');
                system.push_str(&text);
            }
            _ => turns.insert(0, (SYSTEM, text)),
        }
    }
    let mut ids = vec![BOS];
    for (role, text) in turns {
        ids.push(role);
        ids.extend(encode(&text));
        if role == ASSISTANT {
            ids.push(EOS);
        }
    }
    ids.push(ASSISTANT);
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::model::tokens::decode_special;

    fn check(messages: &str, tools: &str, expect: &str) {
        let messages: Vec<Message> = serde_json::from_str(messages).unwrap();
        let tools: Vec<Box<RawValue>> = serde_json::from_str(tools).unwrap();
        let text = match render(&messages, &tools) {
            Ok(ids) => decode_special(&ids),
            Err(e) => e.message,
        };
        assert_eq!(text, expect);
    }

    #[test]
    fn the_golden_conversation() {
        let golden: serde_json::Value = serde_json::from_str(include_str!("../../../lab/golden.json")).unwrap();
        let turns: Vec<(String, String)> = serde_json::from_value(golden["conversation"].clone()).unwrap();
        let message =
            |(role, text): (String, String)| Message { role, content: Some(Content::Text(text)), tool_calls: None };
        let messages: Vec<Message> = turns.into_iter().map(message).collect();
        let ids: Vec<u16> = serde_json::from_value(golden["prompt_ids"].clone()).unwrap();
        assert_eq!(render(&messages, &[]).unwrap(), ids);
    }

    #[test]
    fn tools_join_the_system_turn() {
        let user = r#"[{"role":"user","content":"hi"}]"#;
        let expect = r#"<bos><system>You can call these tools: {"b": 1}, {"a":2}<user>hi<assistant>"#;
        check(user, r#"[{"b": 1},{"a":2}]"#, expect);
        let both = r#"[{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}]"#;
        check(both, r#"[{"a":2}]"#, r#"<bos><system>Be kind. You can call these tools: {"a":2}<user>hi<assistant>"#);
    }

    #[test]
    fn tool_results_are_user_turns() {
        let messages = r#"[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
            {"role":"tool","content":"b","tool_call_id":"1"},{"role":"user","content":[{"type":"text","text":"c"}]}]"#;
        check(
            messages,
            "[]",
            r#"<bos><user>a<assistant>[{"id":"1"}]<eos><user>b
c<assistant>"#,
        );
    }

    #[test]
    fn what_cannot_be_rendered_is_refused() {
        check("[]", "[]", "Messages cannot be empty.");
        check(r#"[{"role":"wizard","content":"a"}]"#, "[]", "Unknown role `wizard`.");
        let image = r#"[{"role":"user","content":[{"type":"image_url"}]}]"#;
        check(image, "[]", "Content of type `image_url` is not supported.");
    }
}
